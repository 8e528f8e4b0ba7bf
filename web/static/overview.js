/* Beside an answer: its rows over time, of which a stretch can be selected, and by columns, to filter by. */

import { element } from './lines.js';
import { thousands, words } from './table.js';
import { called, wall } from './zone.js';

const SIZE = { height: 96, side: 12, top: 6, foot: 76 };
/** A shorter drag is a click, pixels. */
const DRAG = 5;

const at = ms => wall(ms).slice(0, 19).replace('T', ' ');
/** The width of a bin in words: 30 s, 5 min, 6 h, 1 d. */
function wide(seconds) {
  const [size, unit] = [
    [86400, 'd'],
    [3600, 'h'],
    [60, 'min'],
    [1, 's'],
  ].find(([least]) => seconds >= least);
  return `${seconds / size} ${unit}`;
}

/** The counts of a query, from the server; null if they cannot be had. */
export async function overview(body, signal) {
  const answer = await fetch('/api/v1/query/overview', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });
  if (!answer.ok) return null;
  const found = await answer.json();
  return found.rows === undefined ? null : found;
}

/** Bins of the rows of an answer that no query counted, such as those of a table in the query itself. */
export function binned({ columns, rows }) {
  const column = columns.findIndex(item => item.type === 'datetime');
  const times = column < 0 ? [] : rows.map(row => Date.parse(row[column])).filter(Number.isFinite);
  const lo = times.reduce((a, b) => Math.min(a, b), Infinity);
  const hi = times.reduce((a, b) => Math.max(a, b), -Infinity);
  if (times.length < 3 || hi <= lo) return null;
  const step = Math.max(1000, Math.ceil((hi - lo) / 90 / 1000) * 1000);
  const sums = new Map();
  for (const time of times) {
    const bin = Math.floor(time / step) * step;
    sums.set(bin, (sums.get(bin) ?? 0) + 1);
  }
  return { step, bins: [...sums].sort(([a], [b]) => a - b) };
}

/** `chosen` is called with the two moments (ms) of a stretch that the reader selected. */
export class Histogram {
  constructor(figure, chosen) {
    this.figure = figure;
    this.canvas = figure.querySelector('canvas');
    this.caption = figure.querySelector('figcaption');
    this.chosen = chosen;
    this.canvas.addEventListener('pointerdown', event => this.press(event));
    this.canvas.addEventListener('pointermove', event => this.move(event));
    this.canvas.addEventListener('pointerup', event => this.release(event));
    this.canvas.addEventListener('pointerleave', () => this.tell());
    document.addEventListener('keydown', event => event.key === 'Escape' && this.cancel());
    new ResizeObserver(() => this.draw()).observe(figure);
  }

  /** `bins`: [ms, rows] in order; `step`: ms. */
  show(bins, step, text) {
    this.figure.hidden = !bins.length;
    Object.assign(this, { bins, step, text, drag: null });
    if (!bins.length) return;
    this.lo = bins[0][0];
    this.hi = bins.at(-1)[0] + step;
    this.tell();
    this.draw();
  }

  x(ms) {
    return SIZE.side + ((ms - this.lo) / (this.hi - this.lo)) * (this.canvas.clientWidth - 2 * SIZE.side);
  }

  ms(x) {
    const share = (x - SIZE.side) / (this.canvas.clientWidth - 2 * SIZE.side);
    return this.lo + Math.min(1, Math.max(0, share)) * (this.hi - this.lo);
  }

  tell(more = '') {
    this.caption.textContent = more || this.text || '';
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width || !this.bins?.length) return;
    const ratio = devicePixelRatio || 1;
    const style = getComputedStyle(this.canvas);
    const colour = name => style.getPropertyValue(`--${name}`).trim();
    this.canvas.width = width * ratio;
    this.canvas.height = SIZE.height * ratio;
    const g = this.canvas.getContext('2d');
    g.scale(ratio, ratio);
    const most = this.bins.reduce((all, [, n]) => Math.max(all, n), 0);
    const bar = Math.max(1, this.x(this.lo + this.step) - this.x(this.lo) - 1);
    g.fillStyle = colour('accent');
    for (const [time, n] of this.bins) {
      const up = Math.max(1, (n / most) * (SIZE.foot - SIZE.top));
      g.fillRect(this.x(time), SIZE.foot - up, bar, up);
    }
    if (this.drag) {
      const [a, b] = this.ends();
      g.globalAlpha = 0.25;
      g.fillRect(this.x(a), 0, this.x(b) - this.x(a), SIZE.foot);
      g.globalAlpha = 1;
    }
    g.fillStyle = colour('ink3');
    g.font = `10.5px ${colour('sans')}`;
    g.fillText(at(this.lo), SIZE.side, 90);
    g.textAlign = 'right';
    g.fillText(`${at(this.hi)} ${called(this.hi)}`, width - SIZE.side, 90);
  }

  /** The selected stretch, on the edges of bins. */
  ends() {
    const [a, b] = [this.drag.from, this.drag.to].sort((p, q) => p - q);
    const down = Math.floor(a / this.step) * this.step;
    return [Math.max(this.lo, down), Math.min(this.hi, Math.ceil(b / this.step) * this.step)];
  }

  press(event) {
    if (event.button || !this.chosen) return;
    this.canvas.setPointerCapture(event.pointerId);
    const from = this.ms(event.offsetX);
    this.drag = { from, to: from, x: event.offsetX };
  }

  move(event) {
    if (!this.bins?.length) return;
    const here = this.ms(event.offsetX);
    if (this.drag) {
      this.drag.to = here;
      const [a, b] = this.ends();
      this.tell(`${at(a)} – ${at(b)}: let go to show only this`);
      this.draw();
      return;
    }
    const bin = this.bins.findLast(([time]) => time <= here);
    const found = bin && here < bin[0] + this.step;
    this.tell(found ? `${at(bin[0])}, ${wide(this.step / 1000)}: ${thousands(bin[1])} rows` : '');
  }

  release(event) {
    if (!this.drag) return;
    const far = Math.abs(event.offsetX - this.drag.x) >= DRAG;
    const [a, b] = this.ends();
    this.cancel();
    if (far) this.chosen(a, b);
  }

  cancel() {
    if (!this.drag) return;
    this.drag = null;
    this.tell();
    this.draw();
  }
}

/** The sentence above the histogram. */
export function counted({ rows, before, step_s: step, undated }) {
  const parts = [`${thousands(rows)} row${rows === 1 ? '' : 's'}${before ? ` before ${before}` : ''}`];
  if (step) parts.push(`a bar is ${wide(step)}`, 'drag to narrow the range');
  if (undated) parts.push(`${thousands(undated)} without a time`);
  return parts.join(' · ');
}

/** A line of KQL that keeps, or leaves out, the rows with a value. */
export function filter(column, value, keep) {
  if (value === '') return `| where ${keep ? 'isempty' : 'isnotempty'}(${column})`;
  return `| where ${column} ${keep ? '==' : '!='} ${JSON.stringify(value)}`;
}

/** Fills the panel of columns; `picked` is called with a line of KQL. */
export function facets(panel, found, picked) {
  const box = panel.querySelector(':scope > div:last-child');
  panel.hidden = !found.length;
  const parts = found.map(({ column, values, more }) => {
    const part = element('details');
    part.open = true;
    const head = element('summary', '', column);
    const list = element('ul');
    for (const [value, rows] of values) {
      const text = words(value);
      const item = element('li');
      const keep = element('button', 'value', text || '(empty)');
      const drop = element('button', 'drop', '−');
      keep.type = drop.type = 'button';
      keep.title = `only ${column} ${text || '(empty)'}`;
      drop.setAttribute('aria-label', `without ${column} ${text || '(empty)'}`);
      keep.addEventListener('click', () => picked(filter(column, text, true)));
      drop.addEventListener('click', () => picked(filter(column, text, false)));
      item.append(keep, element('span', 'n', thousands(rows)), drop);
      list.append(item);
    }
    if (more) list.append(element('li', 'faint', 'and more'));
    part.append(head, list);
    return part;
  });
  box.replaceChildren(...parts);
}
