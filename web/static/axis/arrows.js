/* Causes: a trunk leaves the cause once and branches into the lanes of its effects. Beside each lag is the window that
   was allowed, and the window itself is a bracket under the effect. */

import { ended } from './bands.js';
import { lower } from './layout.js';
import { measure, text } from './draw.js';

/** Nearer than this the arrow goes straight down instead of along the lane. */
const UPRIGHT = 46;
/** The height of a cause's number, in pixels. */
const NUMBER = 14;

export function arrows(g, p, view, scale, data, byId, state) {
  const taken = new Map();
  const hits = [];
  const placed = data.arrows.map(arrow => place(view, scale, arrow, byId)).filter(Boolean);
  const drawn = together(placed, item => [item.arrow.n, item.from.item.id, item.to.item.id]);
  for (const item of drawn) bracket(g, p, view, scale, item, state);
  for (const item of drawn) line(g, p, view, item, dim(item, state));
  for (const row of new Set(drawn.map(item => item.to))) if (row.ending) ended(g, p, row.ending, true);
  // A step has one number: if it ends in one row several times, one pill shows it.
  for (const item of together(placed, item => [item.arrow.n, item.to.item.id])) {
    hits.push(pill(g, p, view, scale, item, taken, state));
  }
  for (const one of numbered(view, scale, data.roots ?? [], byId)) badge(g, p, view, one, state);
  return hits.filter(Boolean);
}

const dim = (item, state) => (state.step && state.step !== item.arrow.to && state.step !== item.arrow.from ? 0.3 : 1);

function place(view, scale, arrow, byId) {
  const cause = byId.get(arrow.from);
  const effect = byId.get(arrow.to);
  const from = view.byLane.get(cause?.lane);
  const to = view.byLane.get(effect?.lane);
  if (!from || !to) return null;
  const x0 = scale.x(cause.t);
  const x1 = scale.x(effect.t);
  if (Math.max(x0, x1) < view.gutter || Math.min(x0, x1) > view.width) return null;
  return { arrow, cause, effect, from, to, x0, x1, upright: Math.abs(x1 - x0) < UPRIGHT };
}

/** Arrows with a common key (those of one step between two rows) are merged, with the range of their lags. */
function together(items, keyOf) {
  const found = new Map();
  for (const item of items) {
    const key = keyOf(item).join('\n');
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(item);
  }
  return [...found.values()].map(alike => {
    if (alike.length === 1) return alike[0];
    alike.sort((a, b) => a.arrow.lag - b.arrow.lag);
    const [first, last] = [alike[0], alike[alike.length - 1]];
    const range = alike.some(item => item.arrow.range);
    // Of known lags, the least and the greatest. Bounds are not joined: each says what is known of its own arrow.
    const lags = [...new Set([first, last].map(item => item.arrow.lag_text))].join(range ? ' … ' : ' to ');
    return { ...first, arrow: { ...first.arrow, range, lag_text: `${lags}, ${alike.length}×` } };
  });
}

function stroke(g, p, item, path) {
  const colour = item.arrow.recovery ? p.c.ok : p.c.arrow;
  g.setLineDash([]);
  g.strokeStyle = p.c.panel;
  g.lineWidth = 5;
  g.stroke(path);
  if (item.arrow.recovery) g.setLineDash([4, 3]);
  g.strokeStyle = colour;
  g.lineWidth = item.effect.role === 'effect' ? 2 : 1.4;
  g.stroke(path);
  g.setLineDash([]);
  return colour;
}

function head(g, p, x, y, turn, colour) {
  g.save();
  g.translate(x, y);
  g.rotate(turn);
  g.beginPath();
  g.moveTo(0, 0);
  g.lineTo(-8, -4.5);
  g.lineTo(-8, 4.5);
  g.closePath();
  g.lineWidth = 1.5;
  g.strokeStyle = p.c.panel;
  g.stroke();
  g.fillStyle = colour;
  g.fill();
  g.restore();
}

function line(g, p, view, item, alpha) {
  const { from, to, x0, x1 } = item;
  const path = new Path2D();
  const down = to.middle >= from.middle ? 1 : -1;
  g.save();
  g.globalAlpha = alpha;
  g.beginPath();
  g.rect(view.gutter + 1, view.top, view.width, view.height);
  g.clip();
  if (from === to) {
    path.moveTo(x0 + 8, from.middle);
    path.lineTo(x1 - 15, from.middle);
    if (x1 - x0 > 30) head(g, p, x1 - 8, to.middle, 0, stroke(g, p, item, path));
  } else if (item.upright) {
    path.moveTo(x1, from.middle + 7 * down);
    path.lineTo(x1, to.middle - 17 * down);
    head(g, p, x1, to.middle - 8 * down, (down * Math.PI) / 2, stroke(g, p, item, path));
  } else {
    const side = x1 > x0 ? 1 : -1;
    path.moveTo(x0, from.middle + 7 * down);
    path.lineTo(x0, to.middle - 6 * down);
    path.quadraticCurveTo(x0, to.middle, x0 + 6 * side, to.middle);
    path.lineTo(x1 - 16 * side, to.middle);
    head(g, p, x1 - 8 * side, to.middle, side > 0 ? 0 : Math.PI, stroke(g, p, item, path));
  }
  g.restore();
}

function bracket(g, p, view, scale, item, state) {
  const pair = item.arrow.allowed;
  if (!pair) return;
  const a = scale.x(pair[0]);
  const b = scale.x(pair[1]);
  const y = item.to.top + item.to.bar + 2;
  if (b < view.gutter || a > view.width || b - a < 3) return;
  const left = Math.max(view.gutter + 1, a);
  const right = Math.min(view.width, b);
  g.save();
  g.globalAlpha = 0.4 * dim(item, state);
  g.fillStyle = p.c.accent;
  g.fillRect(left, y - 3, right - left, 4);
  g.globalAlpha = dim(item, state);
  if (a > view.gutter) g.fillRect(a - 0.75, y - 5, 1.5, 8);
  if (b < view.width) g.fillRect(b - 0.75, y - 5, 1.5, 8);
  g.restore();
}

/** An allowed window in readable form. */
export function allowed(pair) {
  const most = Math.max(...pair.map(Math.abs));
  const [unit, seconds] = UNITS.find(([, , from]) => most >= from);
  const ends = pair.map(value => `${Number((value / seconds).toFixed(1))}`.replace('-', '−'));
  return `${ends.join(Math.min(...pair) < 0 ? ' to ' : '–')} ${unit}`;
}

/** Unit, its seconds, and from how many seconds on it is used. */
const UNITS = [['days', 86400, 172800], ['h', 3600, 7200], ['s', 1, 0]];

/** The full text, then lag and window, then the lag alone, then the number alone: a pill never covers its effect. */
function phrases(arrow, small) {
  const sign = arrow.range || arrow.lag < 0 ? '' : '+';
  const lag = `${sign}${arrow.lag_text}`;
  const window = arrow.window ? allowed(arrow.window) : '';
  const full = `${lag}${window && `, window ${window}`}${arrow.because && ` from ${arrow.because}`}`;
  return small ? [lag, ''] : [full, window ? `${lag}, ${window}` : lag, lag, ''];
}

function pill(g, p, view, scale, item, taken, state) {
  const { arrow, to, x0, x1 } = item;
  const used = taken.get(to) ?? (to.ending ? [[to.ending.x, to.ending.x + to.ending.w]] : []);
  const strong = item.effect.role === 'effect';
  const along = !item.upright && x1 > x0;
  const start = along ? Math.max(view.gutter + 8, x0 + 16) : x1 + 13;
  const limit = along ? Math.min(view.width - 4, x1 - 30) : view.width - 4;
  for (const words of phrases(arrow, view.small)) {
    const wide = 20 + (words ? measure(g, p, words, 11, strong ? 550 : 400) + 9 : 0);
    for (let x = start; x + wide <= limit || (!words && x <= limit); x += 24) {
      const clash = used.some(([a, b]) => x < b + 4 && x + wide > a - 4) || (words && crossed(scale, item, x, wide));
      if (clash) continue;
      used.push([x, x + wide]);
      taken.set(to, used);
      paint(g, p, x, to.middle, wide, arrow.n, words, strong, dim(item, state));
      return { x, y: to.middle - 9, w: wide, h: 18, arrow };
    }
  }
  return null;
}

/** Text must not cover marks of the lane: both would be unreadable. Then only the number is drawn. */
function crossed(scale, item, x, wide) {
  if (item.to.item.layer === 'job') return false;
  const { marks } = item.to.item;
  for (let n = lower(marks, scale.t(x - 8)); n < marks.length && scale.x(marks[n].t) < x + wide + 8; n++) {
    if (marks[n].id !== item.effect.id) return true;
  }
  return false;
}

function paint(g, p, x, y, wide, n, words, strong, alpha) {
  g.save();
  g.globalAlpha = alpha;
  g.beginPath();
  g.roundRect(x, y - 9, wide, 18, 9);
  g.fillStyle = p.c.panel;
  g.fill();
  g.lineWidth = 1;
  g.strokeStyle = strong ? p.c.ink2 : p.c.line2;
  g.stroke();
  g.beginPath();
  g.arc(x + 10, y, 6.5, 0, 7);
  if (strong) {
    g.fillStyle = p.c.ink;
    g.fill();
  } else {
    g.strokeStyle = p.c.ink2;
    g.stroke();
  }
  text(g, p, String(n), x + 10, y + 3.4, { size: 9.5, weight: 700, colour: strong ? 'panel' : 'ink', align: 'center' });
  text(g, p, words, x + 20, y + 4, { colour: 'ink', weight: strong ? 550 : 400 });
  g.restore();
}

/** The number of a cause, left of its mark. */
/** Numbers of causes that would stand on one another are one: "1–3". Each has the marks that it is about. */
export function numbered(view, scale, roots, byId) {
  const found = [];
  for (const { id, n } of roots) {
    const mark = byId.get(id);
    const row = mark && view.byLane.get(mark.lane);
    if (!row) continue;
    const x = scale.x(mark.t) - 17;
    if (x < view.gutter + 8 || x > view.width) continue;
    const near = found.find(one => one.row === row && Math.abs(one.x - x) < NUMBER);
    if (near) near.parts.push({ n, id });
    else found.push({ row, x, parts: [{ n, id }] });
  }
  return found.map(one => ({ ...one, words: numbers(one.parts.map(part => part.n)) }));
}

function numbers(all) {
  const [first, last] = [Math.min(...all), Math.max(...all)];
  if (first === last) return String(first);
  return last - first === new Set(all).size - 1 ? `${first}–${last}` : [...new Set(all)].join(',');
}

function badge(g, p, view, { row, x, words, parts }, state) {
  const half = words.length > 1 ? 3 + 3 * words.length : NUMBER / 2;
  const left = Math.max(view.gutter + 2, x + NUMBER / 2 - 2 * half);
  g.save();
  g.globalAlpha = state.step && !parts.some(part => part.id === state.step) ? 0.5 : 1;
  g.beginPath();
  g.roundRect(left, row.middle - NUMBER / 2, 2 * half, NUMBER, NUMBER / 2);
  g.fillStyle = p.c.ink;
  g.fill();
  text(g, p, words, left + half, row.middle + 3.4, { size: 9.5, weight: 700, colour: 'panel', align: 'center' });
  g.restore();
}
