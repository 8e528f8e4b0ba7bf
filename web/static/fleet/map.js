/* Where each node stands in the picture, from the corners of its groups: nodes have no elements of their own. */

/** The measures of web/fleet/picture.py: the side of a node and the distance to the next one. */
const SIDE = 10;
const PITCH = 12;

export class Places {
  constructor(text) {
    let first = 0;
    this.blocks = text
      .split(';')
      .filter(Boolean)
      .map(part => {
        const [x, y, columns, count] = part.split(',').map(Number);
        const block = { x, y, columns, count, first };
        first += count;
        return block;
      });
    this.count = first;
  }

  blockOf(node) {
    let low = 0;
    let high = this.blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.blocks[middle].first <= node) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The upper left corner of a node. */
  corner(node) {
    const block = this.blocks[this.blockOf(node)];
    const number = node - block.first;
    return {
      x: block.x + (number % block.columns) * PITCH,
      y: block.y + Math.floor(number / block.columns) * PITCH,
    };
  }

  /** The node at a point of the picture; -1 between nodes. */
  at(x, y) {
    for (const block of this.blocks) {
      const column = Math.floor((x - block.x) / PITCH);
      const row = Math.floor((y - block.y) / PITCH);
      const number = row * block.columns + column;
      if (column >= 0 && column < block.columns && row >= 0 && number < block.count) return block.first + number;
    }
    return -1;
  }

  /** The node that an arrow key leads to: sideways in the order of the map, up and down to the nearest one there. */
  beside(node, dx, dy) {
    if (!dy) return Math.min(this.count - 1, Math.max(0, node + dx));
    const { x, y } = this.corner(node);
    const bottom = Math.max(...this.blocks.map(one => one.y + Math.ceil(one.count / one.columns) * PITCH));
    for (let next = y + dy * PITCH; next >= 0 && next < bottom; next += (dy * PITCH) / 2) {
      const found = this.at(x + SIDE / 2, next + SIDE / 2);
      if (found >= 0 && found !== node) return found;
    }
    return node;
  }

  frame(node) {
    const { x, y } = this.corner(node);
    return `M${x - 1} ${y - 1}h${PITCH}v${PITCH}h${-PITCH}z`;
  }
}
