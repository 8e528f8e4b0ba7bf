/* Colours come from the page's tokens and glyphs from its symbols, so that canvas and HTML can never disagree. */

const NAMES = [
  'bg',
  'panel',
  'raise',
  'line',
  'line2',
  'ink',
  'ink2',
  'ink3',
  'accent',
  'switch',
  'link',
  'kernel',
  'slurmd',
  'ctld',
  'gpu',
  'storage',
  'job',
  'impact',
  'impact-band',
  'warn',
  'warn-bg',
  'ok',
  'band',
  'band-ink',
  'jobbar',
  'hatch',
  'cursor',
  'arrow',
  'mark',
];
const LAYER = { slurmctld: 'ctld', node: 'job' };

export class Palette {
  constructor(element) {
    const style = getComputedStyle(element);
    this.c = Object.fromEntries(NAMES.map(n => [n, style.getPropertyValue(`--${n}`).trim()]));
    this.sans = style.getPropertyValue('--sans').trim() || 'sans-serif';
    this.mono = style.getPropertyValue('--mono').trim() || 'monospace';
    this.paths = {};
    for (const symbol of document.querySelectorAll('symbol[id^="g-"]')) {
      this.paths[symbol.id.slice(2)] = new Path2D(symbol.querySelector('path').getAttribute('d'));
    }
    this.hatch = this.makeHatch();
  }

  layer(name) {
    return this.c[LAYER[name] ?? name] || this.c.job;
  }
  font(size, weight = 400, mono = false) {
    return `${weight} ${size}px ${mono ? this.mono : this.sans}`;
  }

  /** Diagonal strokes that mean "not seen" in both themes and without colour. */
  makeHatch() {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const g = tile.getContext('2d');
    g.strokeStyle = this.c.hatch;
    g.lineWidth = 1.2;
    g.beginPath();
    for (const shift of [-8, 0, 8]) {
      g.moveTo(shift - 2, 10);
      g.lineTo(shift + 10, -2);
    }
    g.stroke();
    return tile;
  }

  glyph(g, name, x, y, size, colour, edge = null) {
    const path = this.paths[name] ?? this.paths.info;
    g.save();
    g.translate(x - size / 2, y - size / 2);
    g.scale(size / 12, size / 12);
    g.lineJoin = 'round';
    g.lineWidth = edge ? 4.4 : 2.6;
    g.strokeStyle = this.c.panel;
    g.stroke(path);
    if (edge) {
      g.lineWidth = 1.7;
      g.strokeStyle = edge;
      g.stroke(path);
    }
    g.fillStyle = colour;
    g.fill(path, 'evenodd');
    g.restore();
  }
}
