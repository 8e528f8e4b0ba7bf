/* A dashboard: each panel is asked on its own, a few at a time, and again after the dashboard's own pause. A panel that
   fails says why, and keeps no other from its answer. */

import { chart } from './chart/chart.js';
import { element } from './lines.js';
import { Table, thousands } from './table.js';
import { visible } from './visible.js';
import { wall } from './zone.js';

/** Queries of this page that run at once: the others' pages need their turns, too. */
const AT_ONCE = 3;
/** A crowded service is asked again so often, then the panel says so. */
const TRIES = 5;
const page = document.getElementById('main');
const pause = Number(page.dataset.refresh) * 1000;
const asked = document.getElementById('asked');

class Panel {
  constructor(box) {
    this.box = box;
    for (const name of ['count', 'notes', 'fault', 'chart', 'rows']) this[name] = box.querySelector(`.${name}`);
    this.table = new Table(box.querySelector('table'), box.querySelector('.scroll'));
    this.rows.addEventListener('toggle', () => this.table.draw());
  }

  async ask() {
    const { query, from, to } = this.box.dataset;
    const body = { query, max_rows: Number(page.dataset.most), from: from || null, to: to || null };
    this.box.setAttribute('aria-busy', 'true');
    try {
      const answer = await post(body);
      const found = await answer.json();
      if (answer.ok) this.show(found);
      else this.complain(found);
    } catch (error) {
      this.complain({ detail: `The service did not answer: ${error.message}` });
    }
    this.box.removeAttribute('aria-busy');
  }

  complain({ message, detail, line, column, suggestion, do: remedy }) {
    const place = line ? `Line ${line}, column ${column}: ` : '';
    const hint = suggestion ? (/\s/.test(suggestion) ? suggestion : `Did you mean ${suggestion}?`) : remedy;
    this.fault.replaceChildren(element('b', 'err', place), visible(message ?? detail ?? 'unknown error'));
    if (hint) this.fault.append(element('p', '', hint));
    this.fault.hidden = false;
    this.notes.replaceChildren();
    this.chart.hidden = this.rows.hidden = true;
    this.count.textContent = '';
  }

  show(answer) {
    const { from, to } = this.box.dataset;
    const plain = this.box.dataset.chart === 'table';
    const shown = plain ? { ...answer, render: undefined } : answer;
    const rows = answer.rows.length;
    this.fault.hidden = true;
    const note = chart(this.chart, shown);
    const drawn = !this.chart.hidden;
    this.count.textContent =
      drawn && rows === 1 ? '' : `${thousands(rows)}${answer.truncated ? '+' : ''} row${rows === 1 ? '' : 's'}`;
    const more = answer.truncated ? `Truncated: these are the first ${thousands(rows)} rows.` : '';
    const remarks = [more, note].filter(Boolean).join(' ');
    const box = element('div', rows ? 'doubt' : 'empty');
    box.append(element('div', '', rows ? remarks : from || to ? 'No row in this range.' : 'No row.'));
    this.notes.replaceChildren(...(remarks || !rows ? [box] : []));
    this.rows.hidden = !rows;
    this.rows.classList.toggle('open', !drawn);
    if (!drawn) this.rows.open = true;
    if (rows) this.table.show(answer);
  }
}

async function post(body, tries = TRIES) {
  const answer = await fetch('/api/v1/query', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (answer.status !== 429 || tries < 2) return answer;
  const wait = Number(answer.headers.get('retry-after')) || 5;
  await new Promise(done => setTimeout(done, wait * 1000));
  return post(body, tries - 1);
}

const panels = [...document.querySelectorAll('[data-query]')].map(box => new Panel(box));
let timer = null;
let running = false;

async function all() {
  if (running) return;
  running = true;
  clearTimeout(timer);
  const waiting = [...panels];
  const take = async () => {
    for (let panel = waiting.shift(); panel; panel = waiting.shift()) await panel.ask();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, take));
  running = false;
  page.dataset.ready = 'yes';
  asked.textContent = `as of ${wall(Date.now()).slice(11, 19)}${pause ? `, every ${pause / 1000} s` : ''}`;
  if (pause) timer = setTimeout(next, pause);
}

/** A page that nobody sees asks nothing; it does when it is seen again. */
function next() {
  if (!document.hidden) all();
}

document.getElementById('again').addEventListener('click', all);
document.addEventListener('visibilitychange', () => {
  if (pause && !document.hidden) all();
});
all();
