/* Measured values: a line through the highest values of a lane, or those of the device that the incident is about,
   within the range of all devices; gaps stay gaps. Few points are drawn as such: what lies between two of them was not
   measured. */

import { text } from './draw.js';
import { lower } from './layout.js';
import { lag } from './scale.js';

/** Room above and below the line, in pixels. */
const MARGIN = 3;
/** At most so many points of a lane in sight are marked. */
const MARKED = 40;

/** The place in a point of the value that the line goes through. */
const lined = one => (one.own ? 3 : 2);

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
    for (const [t, bottom] of [...shown].reverse()) g.lineTo(scale.x(t), y(bottom));
    g.closePath();
    g.globalAlpha = 0.16;
    g.fillStyle = colour;
    g.fill();
    g.globalAlpha = 1;
    // A GPU that fell off its bus has no value from then on, though the others have; one sample may come a moment
    // later.
    const own = shown.map(point => [scale.x(point[0]), point[lined(one)]]);
    const known = n => n >= 0 && own[n][1] !== null;
    g.beginPath();
    own.forEach(([x, value], n) => {
      if (value !== null) g[known(n - 1) || known(n - 2) ? 'lineTo' : 'moveTo'](x, y(value));
    });
    g.lineWidth = 1.5;
    g.strokeStyle = colour;
    // With no sample in sight, what is drawn lies between two that are not.
    const sampled = shown.some(([t]) => t >= scale.lo && t <= scale.hi);
    g.setLineDash(sampled ? [] : [4, 4]);
    g.stroke();
    g.setLineDash([]);
    if (own.length > MARKED) continue;
    g.fillStyle = colour;
    for (const [x, value] of own) {
      if (value === null) continue;
      g.beginPath();
      g.arc(x, y(value), 2.2, 0, 2 * Math.PI);
      g.fill();
    }
  }
  const lost = ended(one, scale);
  if (lost) text(g, p, lost, view.gutter + 8, row.top + row.bar / 2 + 4, { size: 10, colour: 'ink2', halo: true });
  const words = across(one);
  const style = { size: 10, colour: 'ink3', align: 'right', halo: true };
  text(g, p, words, view.width - 6, row.top + row.bar / 2 + 4, style);
}

/** The lowest and the highest value of a lane in words. */
export const across = one => `${[...new Set(one.range.map(number))].join('–')} ${one.unit}`.trim();

/** The last value of a lane's own device if it was not measured any more in what is shown, in words. */
export function ended(one, scale) {
  if (!one.lost) return '';
  const points = one.pieces.flat();
  const last = points.findLast(point => point[3] !== null);
  const later = last && points.find(point => point[0] > last[0]);
  if (!later || last[0] > scale.hi) return '';
  return `last ${number(last[3])} ${one.unit}`.trim() + ` at ${lag(last[0])}, then not measured`;
}

/** The values at a time: those of the last point before it, if no gap lies between. ``time`` writes a moment. */
export function at(one, t, time) {
  for (const piece of one.pieces) {
    if (t < piece[0][0] || t > piece[piece.length - 1][0]) continue;
    const [since, low, high, own] = piece[Math.max(0, lower(piece, t + 1e-9, point => point[0]) - 1)];
    const all = low === high ? number(high) : `${number(low)} to ${number(high)}`;
    const every = `${all} ${one.unit}`.trim();
    if (!one.own) return `${one.name}: ${every}, at ${time(since)}`;
    const mine = own === null ? 'not measured' : `${number(own)} ${one.unit}`.trim();
    return `${one.name} of ${one.own}: ${mine}, at ${time(since)}; all ${one.devices} devices ${every}`;
  }
  return `${one.name}: not measured`;
}

const number = value => {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
};
