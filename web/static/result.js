/* The answer to a query: how many rows, what is missing from them, its chart, and the table. */

import { chart } from './chart/chart.js';
import { element } from './lines.js';
import { Table, thousands } from './table.js';

/** Rows of an answer that can be asked for; the table has only those in the page that can be seen. */
export const MOST_ROWS = 100_000;

/** What a reader must know before trusting the rows. */
function warnings({ rows, truncated, truncated_by: by }) {
  const count = thousands(rows.length);
  const all = [];
  if (truncated) {
    all.push(
      `Truncated${by === 'bytes' ? ' at 64 MiB' : ''}. The answer holds the first ${count} rows;`,
      'chart and table know only these.',
      'Summarize or narrow the time to see all; a saved file has up to a million.',
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

export class Result {
  constructor() {
    for (const id of ['result', 'notes', 'chart', 'count', 'export', 'tables', 'more']) {
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
    this.export.hidden = !rows;
    this.more.hidden = !answer.truncated || answer.truncated_by === 'bytes' || rows >= MOST_ROWS;
    this.more.textContent = `Up to ${thousands(MOST_ROWS)} rows`;
    const warning = [warnings(answer), chart(this.chart, answer)].filter(Boolean).join(' ');
    const box = element('div', 'doubt');
    box.append(element('div', '', warning));
    this.notes.replaceChildren(...(warning ? [box] : []));
    this.table.show(answer);
  }
}
