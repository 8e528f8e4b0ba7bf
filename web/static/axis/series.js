/* Measured values: a line through the highest values of a lane, with the range down to the lowest; gaps stay gaps. */

import { text } from './draw.js';
import { lower } from './layout.js';

/** Room above and below the line, in pixels. */
const MARGIN = 3;

export function series(g, p, view, scale) {
  for (const row of view.rows) for (const one of row.item.series) draw(g, p, view, scale, row, one);
}

function draw(g, p, view, scale, row, one) {
  const [low, high] = one.drawn;
  const height = row.bar - 2 * MARGIN;
  const y = value => row.top + MARGIN + (high > low ? (1 - (value - low) / (high - low)) * height : height / 2);
  const colour = p.layer(row.item.layer);
  for (const piece of one.pieces) {
    const first = Math.max(0, lower(piece, scale.lo, point => point[0]) - 1);
    const shown = piece.slice(first, lower(piece, scale.hi, point => point[0]) + 1);
    if (!shown.length) continue;
    g.beginPath();
    shown.forEach(([t, , top], n) => g[n ? 'lineTo' : 'moveTo'](scale.x(t), y(top)));
    g.lineWidth = 1.5;
    g.strokeStyle = colour;
    g.stroke();
    for (const [t, bottom] of [...shown].reverse()) g.lineTo(scale.x(t), y(bottom));
    g.closePath();
    g.globalAlpha = 0.16;
    g.fillStyle = colour;
    g.fill();
    g.globalAlpha = 1;
  }
  const words = `${one.range.map(number).join('–')} ${one.unit}`.trim();
  const style = { size: 10, colour: 'ink3', align: 'right', halo: true };
  text(g, p, words, view.width - 6, row.top + row.bar / 2 + 4, style);
}

/** The values at a time: those of the last point before it, if no gap lies between. */
export function at(one, t) {
  for (const piece of one.pieces) {
    if (t < piece[0][0] || t > piece[piece.length - 1][0]) continue;
    const [, low, high] = piece[Math.max(0, lower(piece, t + 1e-9, point => point[0]) - 1)];
    const value = low === high ? number(high) : `${number(low)} to ${number(high)}`;
    return `${one.name}: ${value} ${one.unit}`.trim();
  }
  return `${one.name}: not measured`;
}

const number = value => {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
};
