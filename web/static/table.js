/* The rows of an answer as a table: sorted by any column, and only as many in the page as can be seen. */

import { seconds } from './chart/series.js';
import { element, fileButton, short } from './lines.js';
import { called, UTC, wallOf } from './zone.js';

/** Rows of more cells than this are put into the page only while they can be seen. */
const WHOLE = 1000;
/** Cells above and below the visible ones, about. */
const SPARE = 24;
/** A text longer than this gets a wide column, and may wrap in it; a shorter one stays on one line. */
const LONG = 48;
/** The width of a wide column, and of the space beside a text, in characters. */
const WIDE = 76;
const ROOM = 3.2;
/** The height of a row before any is measured, pixels. */
const ROW = 29;
const NUMBERS = ['long', 'int', 'real', 'decimal'];
/** Columns whose values have a page. */
const PAGES = { IncidentId: '/incidents/', JobId: '/jobs/' };
const zone = document.documentElement.dataset.zone || UTC;

export const thousands = number => number.toLocaleString('en');

export function words(value) {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** A value as it is shown: times in the zone of the page. */
const shown = (value, { type }) =>
  type === 'datetime' && value && zone !== UTC ? wallOf(value).replace('T', ' ') : words(value);

/** All rows of the answer by one column; rows without a value come last. */
function arranged({ columns, rows }, { column, up }) {
  if (column === null) return rows;
  const kind = columns[column].type;
  const of = NUMBERS.includes(kind) ? Number : kind === 'timespan' ? text => seconds(text) ?? text : words;
  const keyed = rows.map(row => [row[column] === null || row[column] === '' ? null : of(row[column]), row]);
  const turn = up ? 1 : -1;
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return turn * (typeof a === 'number' && typeof b === 'number' ? a - b : a < b ? -1 : a > b ? 1 : 0);
  });
  return keyed.map(([, row]) => row);
}

function link(path, text) {
  const url = new URL(path + encodeURIComponent(text), location.href);
  for (const name of ['theme', 'zone']) {
    const kept = new URLSearchParams(location.search).get(name);
    if (kept) url.searchParams.set(name, kept);
  }
  const out = element('a', '', text);
  out.href = url.href;
  return out;
}

export class Table {
  /** `scroller`: the element around the table that scrolls. `picked`: called with a value and its column on a click. */
  constructor(table, scroller, picked = null) {
    Object.assign(this, { table, scroller, picked, answer: null });
    scroller.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  show(answer) {
    this.answer = answer;
    this.sorted = { column: null, up: true };
    this.scroller.scrollTop = 0;
    this.fill();
  }

  /** The rows in the order that the reader chose. */
  arranged() {
    return arranged(this.answer, this.sorted);
  }

  fill() {
    this.rows = this.arranged();
    this.whole = this.rows.length * this.answer.columns.length <= WHOLE;
    this.file = this.answer.columns.findIndex(column => column.name === 'File');
    this.line = this.answer.columns.findIndex(column => column.name === 'Line');
    this.body = element('tbody');
    this.first = this.last = -1;
    this.heights = new Float64Array(this.rows.length); // 0: not measured yet
    this.typical = null;
    this.spare = Math.max(1, Math.floor(SPARE / this.answer.columns.length));
    this.table.classList.toggle('fixed', !this.whole);
    this.table.setAttribute('aria-rowcount', String(this.rows.length + 1));
    this.table.replaceChildren(...(this.whole ? [] : [this.widths()]), this.head(), this.body);
    if (this.whole) this.body.append(...this.rows.map((_, n) => this.row(n)));
    else this.draw();
  }

  /** The columns' widths, from all rows: they stay while rows come and go. */
  widths() {
    const group = element('colgroup');
    let sum = 0;
    this.answer.columns.forEach((column, n) => {
      let most = column.name.length + column.type.length;
      for (const row of this.rows) {
        const size = n === this.file ? short(row[n]).length + 8 : shown(row[n], column).length;
        if (size > most) most = size;
      }
      const wide = Math.min(most > LONG ? WIDE : most, WIDE) + ROOM;
      sum += wide;
      const col = element('col');
      col.style.width = `${wide}ch`;
      group.append(col);
    });
    this.table.style.width = `max(100%, ${sum}ch)`;
    return group;
  }

  /** Each column's name sorts the rows by it: ascending, descending, as they came. */
  head() {
    const row = element('tr');
    this.answer.columns.forEach((column, n) => {
      const { column: by, up } = this.sorted;
      const cell = element('th', NUMBERS.includes(column.type) ? 'num' : '');
      const button = element('button', 'sort', column.name);
      const timed = column.type === 'datetime' && zone !== UTC;
      button.type = 'button';
      button.append(element('small', timed ? '' : 'type', timed ? called(Date.now()) : column.type));
      button.addEventListener('click', () => this.sort(n));
      cell.scope = 'col';
      cell.setAttribute('aria-sort', by === n ? (up ? 'ascending' : 'descending') : 'none');
      cell.append(button);
      row.append(cell);
    });
    const box = element('thead');
    box.append(row);
    return box;
  }

  sort(column) {
    const { column: last, up } = this.sorted;
    if (column !== last) this.sorted = { column, up: true };
    else this.sorted = up ? { column, up: false } : { column: null, up: true };
    this.scroller.scrollTop = 0;
    this.fill();
    this.table.querySelectorAll('th button')[column].focus();
  }

  row(n) {
    const row = element('tr');
    row.setAttribute('aria-rowindex', String(n + 2));
    row.append(...this.rows[n].map((_, column) => this.cell(this.rows[n], column)));
    return row;
  }

  /** A file beside its line number opens the lines around it. */
  cell(values, n) {
    const column = this.answer.columns[n];
    const text = shown(values[n], column);
    const kind = NUMBERS.includes(column.type) ? 'num' : text.length > LONG ? 'wide' : '';
    const box = element('td', kind, text);
    const isPlace = n === this.file && values[n] && values[this.line];
    if (isPlace) box.replaceChildren(fileButton(values[n], values[this.line]));
    else if (PAGES[column.name] && text) box.replaceChildren(link(PAGES[column.name], text));
    else if (column.type === 'datetime' && zone !== UTC) box.title = words(values[n]);
    if (this.picked && text) this.picked(box, column, values[n]);
    return box;
  }

  height(n) {
    return this.heights[n] || this.typical || ROW;
  }

  /** Puts the rows into the page that can be seen, between two empty ones as high as all others. */
  draw() {
    if (!this.answer || this.whole || this.drawing || !this.body.isConnected) return;
    const { scrollTop, clientHeight } = this.scroller;
    const above = Math.max(0, scrollTop - (this.table.tHead?.offsetHeight ?? 0));
    let first = 0;
    let top = 0;
    while (first < this.rows.length - 1 && top + this.height(first) <= above) top += this.height(first++);
    let last = first;
    let shownTo = top;
    while (last < this.rows.length && shownTo < above + clientHeight) shownTo += this.height(last++);
    first = Math.max(0, first - this.spare);
    last = Math.min(this.rows.length, last + this.spare);
    if (first === this.first && last === this.last) return;
    if (first >= this.first && last <= this.last && last - first >= this.last - this.first - this.spare) return;
    this.put(first, last);
  }

  put(first, last) {
    this.drawing = true;
    const kept = new Map([...this.body.rows].map(row => [Number(row.ariaRowIndex) - 2, row]));
    const focused = this.body.contains(document.activeElement);
    const rows = Array.from({ length: last - first }, (_, n) => kept.get(first + n) ?? this.row(first + n));
    const sum = (from, to) => {
      let all = 0;
      for (let n = from; n < to; n++) all += this.height(n);
      return all;
    };
    const gap = height => {
      const row = element('tr', 'gap');
      row.setAttribute('aria-hidden', 'true');
      const cell = element('td');
      cell.colSpan = this.answer.columns.length;
      cell.style.height = `${height}px`;
      row.append(cell);
      return row;
    };
    const fresh = [gap(sum(0, first)), ...rows, gap(sum(last, this.rows.length))];
    for (const row of [...this.body.rows]) if (!fresh.includes(row)) row.remove();
    fresh.forEach((row, n) => {
      if (this.body.rows[n] !== row) this.body.insertBefore(row, this.body.rows[n] ?? null);
    });
    rows.forEach((row, n) => {
      this.heights[first + n] = row.getBoundingClientRect().height || ROW;
    });
    // Once: if it changed later, the place of all rows below would.
    this.typical ??= rows.reduce((all, _, n) => all + this.heights[first + n], 0) / rows.length;
    [this.first, this.last] = [first, last];
    if (focused && document.activeElement === document.body) this.scroller.focus({ preventScroll: true });
    this.drawing = false;
  }
}
