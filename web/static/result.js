/* The answer to a query: how many rows, what is missing from them, rows over time, the table, and a file of it. */

import { chart } from './chart/chart.js';
import { element } from './lines.js';
import { csv, Table, thousands } from './table.js';

const CHART = { height: 96, side: 12, foot: 76, tall: 62 };

const stamp = ms => new Date(ms).toISOString().slice(0, 19).replace('T', ' ');

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
  if (!rows.length) {
    all.push(
      'No row matches. Check the time range and the spelling of values;',
      '== is case-sensitive in KQL, =~ is not.',
    );
  }
  return all.join(' ');
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

export class Result {
  constructor() {
    for (const id of ['result', 'notes', 'chart', 'hist', 'count', 'csv', 'tables']) {
      this[id] = document.getElementById(id);
    }
    this.body = null;
    this.table = new Table(this.result, document.getElementById('rows'));
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
    const rows = answer.rows.length;
    this.count.textContent = `${thousands(rows)}${answer.truncated ? '+' : ''} row${rows === 1 ? '' : 's'}`;
    this.csv.hidden = !rows;
    const warning = [warnings(answer), chart(this.chart, answer)].filter(Boolean).join(' ');
    const box = element('div', 'doubt');
    box.append(element('div', '', warning));
    this.notes.replaceChildren(...(warning ? [box] : []));
    this.table.show(answer);
    this.overTime(answer);
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
    const text = csv({ columns: this.body.columns, rows: this.table.arranged() });
    const link = element('a');
    link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
    link.download = 'faultline.csv';
    link.click();
    URL.revokeObjectURL(link.href);
  }
}
