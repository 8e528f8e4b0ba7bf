/* The answer to a query: how many rows, what is missing from them, rows over time, the table, and a file of it. */

import { chart } from './chart/chart.js';
import { seconds } from './chart/series.js';
import { element, fileButton } from './lines.js';

/** More rows than this make the table slow and give a reader no more information. */
const SHOWN = 2000;
/** A text longer than this gets a wide column, and may wrap in it; a shorter one stays on one line. */
const LONG = 48;
const NUMBERS = ['long', 'int', 'real', 'decimal'];
const CHART = { height: 96, side: 12, foot: 76, tall: 62 };

const thousands = number => number.toLocaleString('en');
const stamp = ms => new Date(ms).toISOString().slice(0, 19).replace('T', ' ');

function words(value) {
  if (value === null) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** A spreadsheet would run a leading =, +, - or @: log lines are not to be trusted there either. */
function csvField(value) {
  const text = words(value);
  const run = typeof value === 'string' && Number.isNaN(Number(value)) && /^[=+\-@\t\r]/.test(text);
  const held = run ? `'${text}` : text;
  return /[",\n\r]/.test(held) ? `"${held.replaceAll('"', '""')}"` : held;
}

/** What a reader must know before trusting the rows. */
function warnings({ rows, truncated }) {
  const count = thousands(rows.length);
  const all = [];
  if (truncated) {
    all.push(
      `Truncated. The answer holds the first ${count} rows; chart and table know only these.`,
      'Summarize or narrow the time to see all.',
    );
  }
  if (rows.length > SHOWN) {
    all.push(`The table shows ${thousands(SHOWN)} of ${count} rows; Save CSV has all of them.`);
  }
  if (!rows.length) {
    all.push(
      'No row matches. Check the time range and the spelling of values;',
      '== is case-sensitive in KQL, =~ is not.',
    );
  }
  return all.join(' ');
}

/** Each column's name sorts the rows by it: ascending, descending, as they came. */
function head(columns, sorted, onSort) {
  const row = element('tr');
  columns.forEach((column, n) => {
    const cell = element('th', NUMBERS.includes(column.type) ? 'num' : '');
    const button = element('button', 'sort', column.name);
    button.type = 'button';
    button.append(element('small', '', column.type));
    button.addEventListener('click', () => onSort(n));
    cell.scope = 'col';
    cell.setAttribute('aria-sort', sorted.column === n ? (sorted.up ? 'ascending' : 'descending') : 'none');
    cell.append(button);
    row.append(cell);
  });
  const box = element('thead');
  box.append(row);
  return box;
}

/** The rows as a table body. A file beside its line number opens the lines around it. */
function body({ columns, rows }) {
  const file = columns.findIndex(column => column.name === 'File');
  const line = columns.findIndex(column => column.name === 'Line');
  const cell = (values, n) => {
    const text = words(values[n]);
    const kind = NUMBERS.includes(columns[n].type) ? 'num' : text.length > LONG ? 'wide' : '';
    const box = element('td', kind, text);
    if (n === file && values[n] && values[line]) box.replaceChildren(fileButton(values[n], values[line]));
    return box;
  };
  const box = element('tbody');
  for (const values of rows.slice(0, SHOWN)) {
    const row = element('tr');
    row.append(...values.map((_, n) => cell(values, n)));
    box.append(row);
  }
  return box;
}

/** How many of the times are in each of this many equal intervals from lo to hi. */
function bins(times, lo, hi, count) {
  const sums = new Array(count).fill(0);
  for (const time of times) sums[Math.min(count - 1, Math.floor(((time - lo) / (hi - lo)) * count))]++;
  return sums;
}

function bars(canvas, sums, lo, hi) {
  const { height, side, foot, tall } = CHART;
  const width = canvas.clientWidth;
  const ratio = devicePixelRatio || 1;
  const style = getComputedStyle(canvas);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const g = canvas.getContext('2d');
  g.scale(ratio, ratio);
  const most = Math.max(...sums);
  const wide = (width - 2 * side) / sums.length;
  g.fillStyle = style.getPropertyValue('--accent').trim();
  sums.forEach((sum, n) => {
    const up = (sum / most) * tall;
    g.fillRect(side + n * wide, foot - up, Math.max(1, wide - 2), up);
  });
  g.fillStyle = style.getPropertyValue('--ink3').trim();
  g.font = `10.5px ${style.getPropertyValue('--sans').trim()}`;
  g.fillText(stamp(lo), side, 90);
  g.textAlign = 'right';
  g.fillText(stamp(hi), width - side, 90);
  g.fillText(`most in a bar: ${most}`, width - side, 11);
}

/** All rows of the answer, not only the shown ones, by one column; rows without a value come last. */
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

export class Result {
  constructor() {
    for (const id of ['result', 'notes', 'chart', 'hist', 'count', 'csv', 'tables']) {
      this[id] = document.getElementById(id);
    }
    this.body = null;
    this.sorted = { column: null, up: true };
  }

  busy(on) {
    this.result.setAttribute('aria-busy', String(on));
  }

  /** An answer may have several tables, of `fork`, `facet` or several statements. The last is shown first. */
  show(answer) {
    const tables = [...(answer.others ?? []), answer];
    const buttons = tables.map((table, n) => {
      const button = element('button', 'ctl sm', `${table.name || `Table ${n + 1}`} · ${thousands(table.rows.length)}`);
      button.type = 'button';
      button.addEventListener('click', () => choose(n));
      return button;
    });
    const choose = chosen => {
      buttons.forEach((button, n) => button.setAttribute('aria-pressed', String(n === chosen)));
      this.showTable(tables[chosen]);
    };
    this.tables.hidden = tables.length < 2;
    this.tables.replaceChildren(...buttons);
    choose(tables.length - 1);
  }

  showTable(answer) {
    this.body = answer;
    this.sorted = { column: null, up: true };
    const rows = answer.rows.length;
    this.count.textContent = `${thousands(rows)}${answer.truncated ? '+' : ''} row${rows === 1 ? '' : 's'}`;
    this.csv.hidden = !rows;
    const warning = [warnings(answer), chart(this.chart, answer)].filter(Boolean).join(' ');
    const box = element('div', 'doubt');
    box.append(element('div', '', warning));
    this.notes.replaceChildren(...(warning ? [box] : []));
    this.table();
    this.overTime(answer);
  }

  /** The rows in the order that the reader chose. */
  table() {
    const { columns } = this.body;
    const rows = arranged(this.body, this.sorted);
    this.result.replaceChildren(head(columns, this.sorted, n => this.sort(n)), body({ columns, rows }));
  }

  sort(column) {
    const { column: last, up } = this.sorted;
    if (column !== last) this.sorted = { column, up: true };
    else this.sorted = up ? { column, up: false } : { column: null, up: true };
    this.table();
    this.result.querySelectorAll('th button')[column].focus();
  }

  /** Rows over time, counted from the answer; the note above states if that is not all of them. */
  overTime({ columns, rows, render }) {
    const column = columns.findIndex(item => item.type === 'datetime');
    const times = column < 0 ? [] : rows.map(row => Date.parse(row[column])).filter(Number.isFinite);
    const lo = times.reduce((a, b) => Math.min(a, b), Infinity);
    const hi = times.reduce((a, b) => Math.max(a, b), -Infinity);
    this.hist.hidden = Boolean(render) || times.length < 3 || hi <= lo;
    if (this.hist.hidden) return;
    const count = Math.max(10, Math.min(120, Math.floor(this.hist.clientWidth / 12)));
    bars(this.hist, bins(times, lo, hi, count), lo, hi);
  }

  /** All rows as a file. */
  save() {
    const { columns } = this.body;
    const rows = arranged(this.body, this.sorted);
    const table = [columns.map(column => column.name), ...rows];
    const text = table.map(row => row.map(csvField).join(',')).join('\r\n');
    const link = element('a');
    link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
    link.download = 'faultline.csv';
    link.click();
    URL.revokeObjectURL(link.href);
  }
}
