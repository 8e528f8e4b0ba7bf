/* Another SlurmdTimeout on the axis: from each node's loss to when slurmctld would give it up, and a handle at the
   timeout itself. What the service answers is drawn (what_if.js); only the handle follows the pointer. */

import { bracket, measure, text } from './draw.js';

/** The handle, in pixels. */
const WIDE = 8;
const HIGH = 13;
/** How far the pointer may be off it. */
const SLACK = 5;

/** `other`: the `seconds`, when a node is given up (`givenUp`, seconds after its loss: from, to), and what was `lost`:
    each `host` and when (`at`, RFC 3339; `since` turns it into the axis' time). Returns the handles; several nodes in
    one row have one. A handle that lies out of sight waits at the edge. */
export function timeout(g, p, view, scale, other, since) {
  const hits = [];
  const taken = new Set();
  for (const { host, at } of other.lost) {
    const row = view.byLane.get(`node|${host}`);
    if (!row || taken.has(row)) continue;
    taken.add(row);
    const t = since(at);
    const y = row.top + row.bar + 2;
    const there = scale.x(t + other.seconds);
    const x = Math.min(view.width - WIDE, Math.max(view.gutter + WIDE, there));
    const [from, to] = other.givenUp.map(seconds => scale.x(t + seconds));
    bracket(g, from, to, y, 4, p.c.accent);
    g.fillStyle = p.c.accent;
    g.strokeStyle = p.c.panel;
    g.lineWidth = 1.5;
    g.beginPath();
    g.roundRect(x - WIDE / 2, y - HIGH / 2, WIDE, HIGH, 3);
    g.fill();
    g.stroke();
    if (!hits.length) name(g, p, view, other, x, y);
    hits.push({ x: x - WIDE / 2 - SLACK, y: y - HIGH / 2 - SLACK, w: WIDE + 2 * SLACK, h: HIGH + 2 * SLACK, t });
  }
  return hits;
}

function name(g, p, view, other, x, y) {
  const words = `what if SlurmdTimeout=${other.seconds}`;
  const style = { size: 10, weight: 650 };
  const room = view.width - x - 12;
  const left = measure(g, p, words, style.size, style.weight) > room;
  const side = left ? { align: 'right' } : {};
  text(g, p, words, left ? x - 8 : x + 8, y + 4, { ...style, ...side, colour: 'accent', halo: true });
}

/** The timeout that a handle means at a place, whole seconds within the limits of the form. */
export const secondsAt = (hit, t, { least, most }) => Math.round(Math.min(most, Math.max(least, t - hit.t)));
