/* Mouse, touch and wheel on the canvas. Keys belong to the page (incident.js): they work wherever the focus is. */

import { visible } from '../visible.js';
import { allowed } from './arrows.js';
import { lag } from './scale.js';
import { at as valueAt } from './series.js';
import { secondsAt } from './timeout.js';

const SLACK = 4;

export function attach(axis) {
  const pointers = new Map();
  const drag = { mode: null, moved: false };
  const at = event => {
    const box = axis.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  axis.canvas.addEventListener(
    'wheel',
    event => {
      const { x } = at(event);
      if (x < axis.view.gutter) return;
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!sideways && !axis.fits && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      if (sideways) {
        axis.pan((event.deltaX || event.deltaY) / 900);
      } else {
        axis.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 400))), axis.scale.t(x));
      }
    },
    { passive: false },
  );

  axis.canvas.addEventListener('pointerdown', event => {
    const place = at(event);
    pointers.set(event.pointerId, place);
    axis.canvas.setPointerCapture(event.pointerId);
    Object.assign(drag, { ...begin(axis, place), start: place, lo: axis.scale.lo, hi: axis.scale.hi, moved: false });
    if (pointers.size === 2) Object.assign(drag, { mode: 'pinch', gap: gap(pointers) });
  });

  axis.canvas.addEventListener('pointermove', event => {
    const place = at(event);
    if (!pointers.has(event.pointerId)) {
      hover(axis, place);
      return;
    }
    pointers.set(event.pointerId, place);
    if (Math.abs(place.x - drag.start.x) > SLACK) drag.moved = true;
    if (drag.moved || drag.mode === 'pinch') {
      axis.tip.hidden = true;
      move(axis, drag, place, pointers);
    }
  });

  const done = event => {
    if (!pointers.delete(event.pointerId)) return;
    axis.host.classList.remove('drag');
    if (!drag.moved && drag.mode === 'pan' && event.type === 'pointerup') click(axis, at(event));
    if (!pointers.size) drag.mode = null;
  };
  axis.canvas.addEventListener('pointerup', done);
  axis.canvas.addEventListener('pointercancel', done);
  axis.canvas.addEventListener('pointerleave', () => {
    axis.tip.hidden = true;
    axis.state.ghost = null;
    axis.draw();
  });
  axis.canvas.addEventListener('dblclick', event => axis.zoom(0.4, axis.scale.t(at(event).x)));
}

const gap = pointers => {
  const [a, b] = [...pointers.values()];
  return Math.max(10, Math.abs(a.x - b.x));
};
const mapTime = (axis, x) =>
  axis.scale.start +
  ((x - axis.scale.left) / (axis.scale.right - axis.scale.left)) * (axis.scale.end - axis.scale.start);
const mapX = (axis, t) =>
  axis.scale.left +
  ((t - axis.scale.start) / (axis.scale.end - axis.scale.start)) * (axis.scale.right - axis.scale.left);

/** Is it on the minimap? Lanes that have scrolled under it are not meant. */
const onMap = (axis, y) => y >= axis.offset && y < axis.offset + axis.view.map;

/** The action of a drag that starts here: handles and frame of the minimap, a new brush, or panning the lanes. */
function begin(axis, { x, y }) {
  const handle = axis.hits.timeouts.find(hit => inside(hit, { x, y }));
  if (handle && !onMap(axis, y)) return { mode: 'timeout', handle };
  if (!onMap(axis, y)) return { mode: 'pan' };
  const a = mapX(axis, axis.scale.lo);
  const b = mapX(axis, axis.scale.hi);
  if (Math.abs(x - a) < 8) return { mode: 'left' };
  if (Math.abs(x - b) < 8) return { mode: 'right' };
  return { mode: x > a && x < b ? 'frame' : 'brush' };
}

function move(axis, drag, place, pointers) {
  const { scale } = axis;
  const perMap = (scale.end - scale.start) / (scale.right - scale.left);
  const dx = place.x - drag.start.x;
  axis.host.classList.add('drag');
  if (drag.mode === 'timeout') {
    const seconds = secondsAt(drag.handle, scale.t(place.x), axis.other);
    axis.dispatchEvent(new CustomEvent('timeout', { detail: seconds }));
    return;
  }
  if (drag.mode === 'pinch') {
    const factor = drag.gap / gap(pointers);
    const middle = (drag.lo + drag.hi) / 2;
    const half = ((drag.hi - drag.lo) / 2) * factor;
    scale.show(middle - half, middle + half);
  } else if (drag.mode === 'pan') {
    const by = (dx * (drag.hi - drag.lo)) / (scale.right - scale.left);
    scale.show(drag.lo, drag.hi);
    scale.pan(-by);
  } else if (drag.mode === 'frame') {
    scale.show(drag.lo, drag.hi);
    scale.pan(dx * perMap);
  } else if (drag.mode === 'left') {
    scale.show(Math.min(drag.hi - perMap, drag.lo + dx * perMap), drag.hi);
  } else if (drag.mode === 'right') {
    scale.show(drag.lo, Math.max(drag.lo + perMap, drag.hi + dx * perMap));
  } else {
    const a = mapTime(axis, drag.start.x);
    const b = mapTime(axis, place.x);
    scale.show(Math.min(a, b), Math.max(a, b));
  }
  axis.moved();
}

const inside = (box, { x, y }, room = 0) =>
  x >= box.x - room && x <= box.x + box.w + room && y >= box.y - room && y <= box.y + box.h + room;

/** Marks before pills before bands: the smallest object under the pointer is meant. */
function under(axis, place) {
  const mark = axis.hits.marks.filter(hit => inside(hit, place)).sort((a, b) => a.w - b.w)[0];
  if (mark) return { kind: 'mark', hit: mark };
  const pill = axis.hits.pills.find(hit => inside(hit, place));
  if (pill) return { kind: 'pill', hit: pill };
  const band = axis.hits.bands.findLast(hit => inside(hit, place, 3));
  if (band) return { kind: 'band', hit: band };
  const row = axis.view.rows.find(one => one.item.series.length && place.y >= one.top && place.y < one.top + one.bar);
  return row ? { kind: 'series', hit: { row, t: axis.scale.t(place.x) } } : null;
}

function nearest(axis, hit, x) {
  let best = hit.best;
  for (let n = hit.from; n < hit.from + hit.count; n++) {
    if (Math.abs(axis.scale.x(hit.list[n].t) - x) + 1 < Math.abs(axis.scale.x(best.t) - x) && hit.count > 6) {
      best = hit.list[n];
    }
  }
  return best;
}

function click(axis, place) {
  if (place.x < axis.view.gutter || place.y < axis.offset + axis.view.map) return;
  const found = under(axis, place);
  if (found?.kind === 'mark') {
    const mark = nearest(axis, found.hit, place.x);
    if (found.hit.count > 6 && found.hit.w > 60) axis.look(axis.scale.t(place.x), { pin: true, lane: found.hit.lane });
    else axis.pick(mark.id);
  } else if (found?.kind === 'pill') {
    axis.pick(found.hit.arrow.to);
  } else {
    axis.look(axis.scale.t(place.x), { pin: true });
  }
}

function hover(axis, place) {
  if (onMap(axis, place.y)) {
    axis.canvas.style.cursor = { left: 'ew-resize', right: 'ew-resize', frame: 'grab', brush: 'crosshair' }[
      begin(axis, place).mode
    ];
    axis.tip.hidden = true;
    return;
  }
  if (axis.hits.timeouts.some(hit => inside(hit, place))) {
    axis.canvas.style.cursor = 'ew-resize';
    const what = part('b', `SlurmdTimeout=${axis.other.seconds}`);
    axis.tip.replaceChildren(what, part('div', 'Drag it: which jobs would have lived?'));
    axis.tip.hidden = false;
    put(axis, place);
    return;
  }
  const found = place.x > axis.view.gutter ? under(axis, place) : null;
  axis.canvas.style.cursor = found && !['band', 'series'].includes(found.kind) ? 'pointer' : 'crosshair';
  if (place.x > axis.view.gutter) {
    axis.state.ghost = axis.scale.t(place.x);
    if (axis.state.pinned) {
      axis.draw();
      axis.dispatchEvent(new CustomEvent('ghost', { detail: { t: axis.state.ghost } }));
    } else {
      axis.look(axis.state.ghost);
    }
  }
  tooltip(axis, place, found);
}

function tooltip(axis, place, found) {
  axis.tip.hidden = !found;
  if (!found) return;
  axis.tip.replaceChildren(...describe(axis, found));
  put(axis, place);
}

/** The text beside the pointer, inside the picture. */
function put(axis, place) {
  const room = axis.tip.offsetWidth;
  const tall = axis.tip.offsetHeight;
  axis.tip.style.left = `${Math.max(4, Math.min(place.x + 14, axis.view.width - room - 6))}px`;
  axis.tip.style.top = `${place.y + 18 + tall > axis.view.height ? place.y - tall - 12 : place.y + 18}px`;
}

const part = (tag, words, kind = '') => {
  const e = document.createElement(tag);
  e.textContent = visible(words);
  e.className = kind;
  return e;
};

function describe(axis, { kind, hit }) {
  if (kind === 'pill') return describePill(hit.arrow);
  if (kind === 'series') return hit.row.item.series.map(one => part('div', valueAt(one, hit.t, t => axis.time(t))));
  return kind === 'band' ? describeBand(axis, hit) : describeMark(axis, hit);
}

function describePill({ n, lag_text: lag, window, because, text }) {
  const within = window ? `, allowed ${allowed(window)}` : '';
  return [part('b', `${n}: ${lag}${within}`), part('div', [because, text].filter(Boolean).join('. '))];
}

function describeBand(axis, { band, lane }) {
  const title = band.kind === 'job' ? `${lane.label.replace(/ +/g, ' ')}: ${band.state}` : band.text;
  const lasted = `${axis.time(band.start)} – ${axis.time(band.end)}, ${lag(band.end - band.start).slice(1)}`;
  const out = [part('b', title), part('div', band.open ? 'still going on' : lasted)];
  if (band.kind === 'late' || band.kind === 'blind') {
    out.push(part('div', 'Lines of this stretch were missing or came late. Absence of a line here proves nothing.'));
  }
  return out;
}

/** How a mark without a line of its own is known. */
const source = mark =>
  mark.quality === 'line' ? 'at the time of the line that reports it' : 'concluded: no line tells of it at this time';

function describeMark(axis, { best: mark, count }) {
  const title = count > 1 ? `${count} events here; the weightiest: ${mark.event}` : mark.event;
  const when = [`${axis.time(mark.t)}  (${lag(mark.t)})`];
  if (mark.pm >= 0.5) when.push(`± ${lag(mark.pm).slice(1)}`);
  if (mark.quality !== 'line') when.push(`time ${mark.quality}`);
  if (mark.late) when.push(`came ${lag(mark.late).slice(1)} late`);
  if (mark.last > mark.t) when.push(`the first of ${mark.count} such lines until ${axis.time(mark.last)}`);
  if (mark.between) when.push(`began between ${mark.between.map(t => axis.time(t)).join(' and ')}`);
  return [
    part('b', title),
    part('div', when.join(', ')),
    part('div', mark.text ?? '', 'mono'),
    mark.file ? part('div', `${mark.short}:${mark.line}`, 'mono') : part('div', source(mark)),
  ];
}
