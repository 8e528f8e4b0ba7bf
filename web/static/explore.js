/* The query page: runs the query in the range of the page, and shows its answer, rows over time and columns. */

import { keepAsked, showAsked } from './asked.js';
import { editor } from './editor.js';
import { element } from './lines.js';
import { binned, counted, facets, Histogram, overview } from './overview.js';
import { MOST_ROWS, Result } from './result.js';
import { visible } from './visible.js';

const find = id => document.getElementById(id);
const fault = find('fault');
const took = find('took');
const result = new Result();
const histogram = new Histogram(find('over'), narrow);
/** The text with which the page opened. */
const opened = editor.value;
/** Rows of a saved file. */
const MOST_SAVED = 1_000_000;

/** Was a query run here? The example with which the page opens does not count. */
let remembered = ['q', 'saved'].some(name => new URLSearchParams(location.search).has(name));
/** Ends the running query; null if there is none. */
let running = null;
/** The query, its answer and where a filter of it can be added. */
let shown = { text: '', answer: null, at: null };

/** The number of offending characters: as given, else the length of the word there. */
function lengthAt(problem, text, column) {
  const word = /^[\w.-]+/.exec(text.slice(column - 1))?.[0].length ?? 1;
  return Math.max(1, Math.min(problem.length || word, 400));
}

/** The error in words, with a caret under its position, and what may be meant instead. */
function complain(problem) {
  const { line } = problem;
  const column = problem.column || 1;
  const message = element('p');
  const about = problem.message ?? problem.detail ?? 'unknown error';
  message.append(element('b', 'err', line ? `Line ${line}, column ${column}: ` : 'Not answered: '), visible(about));
  fault.replaceChildren(message);
  if (line) {
    const text = editor.value.split('\n')[line - 1] ?? '';
    const length = lengthAt(problem, text, column);
    const start = editor.offset(line, column);
    const mark = ' '.repeat(column - 1) + '^'.repeat(length);
    fault.prepend(visible(`${String(line).padStart(3)} | ${text}\n    | ${mark}`));
    editor.mark({ start, end: start + length });
  }
  const hint = problem.suggestion || problem.do;
  if (hint) fault.append(element('p', '', /\s/.test(hint) ? hint : `Did you mean ${hint}?`));
  fault.hidden = false;
}

/** The page's address with the query, which opens the same page. */
function addressed() {
  const url = new URL(location.href);
  url.searchParams.set('q', editor.value);
  url.searchParams.delete('saved');
  return url;
}

/** The query in the address: the page can be reopened, and going back leads to the query before. */
function remember() {
  remembered = true;
  const { href } = addressed();
  if (href !== location.href) history.pushState(null, '', href);
}

/** While a query runs its button ends it. */
function busy(on) {
  const run = find('run');
  run.querySelector('span').textContent = on ? 'Stop' : 'Run';
  run.querySelector('kbd').hidden = on;
  find('check').disabled = on;
  result.busy(on);
}

/** What the API is asked: the query in the range of the page. */
function question(more = {}) {
  const given = new URLSearchParams(location.search);
  return { query: editor.value, from: given.get('from') || null, to: given.get('to') || null, ...more };
}

const post = (body, signal) =>
  fetch('/api/v1/query', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });

/** Runs the query, or only checks it. `more`: what else the API is asked, such as more rows. */
async function ask(only, more = {}) {
  fault.hidden = true;
  editor.mark(null);
  const mine = new AbortController();
  const { signal } = mine;
  running = mine;
  const asked = question({ validate_only: only, ...more });
  busy(true);
  took.textContent = 'running …';
  try {
    const answer = await post(asked, signal);
    const body = await answer.json();
    tell(body, answer.ok, asked);
    if (answer.ok && !only) beside(body, question({ query: asked.query }));
  } catch (error) {
    took.textContent = error.name === 'AbortError' ? 'stopped' : '';
    if (error.name !== 'AbortError') complain({ message: `The service did not answer: ${error.message}` });
  } finally {
    if (running === mine) {
      running = null;
      busy(false);
    }
  }
}

function tell(body, ok, { query, validate_only: only }) {
  if (!ok) {
    took.textContent = result.body ? 'the result below is that of the last run' : '';
    complain(body);
  } else if (only) {
    took.textContent = `the query is sound: ${body.columns.length} columns`;
  } else {
    took.textContent = `${Math.round(body.elapsed_ms)} ms`;
    shown = { text: query, answer: body, at: null };
    find('edited').textContent = '';
    result.show(body);
    if (remembered) keepAsked(query, body.rows.length);
  }
}

/** The address of new lines that pass the filters of the query; of all lines if it asks for something else. */
function tailed() {
  const url = new URL(find('tail').href);
  const asked = shown.text.slice(0, shown.at ?? 0).replace(/^(\s*\/\/[^\n]*\n)+/, '').trim();
  if (/^Logs\s*\|/.test(asked)) url.searchParams.set('filter', asked);
  else url.searchParams.delete('filter');
  return url.href;
}

/** The counts beside an answer; they come after it. */
async function beside(answer, asked) {
  let found = null;
  try {
    found = await overview(asked);
  } catch {
    /* The answer is there; without the counts the page has less beside it. */
  }
  if (shown.answer !== answer) return;
  shown.at = found?.at ?? null;
  shown.patterns = found?.patterns ?? null;
  find('tail').href = tailed();
  find('patterns').hidden = !shown.patterns;
  facets(find('facets'), found?.facets ?? [], add);
  const own = found?.bins?.length ? null : binned(answer);
  if (found?.bins?.length) {
    const bins = found.bins.map(([time, rows]) => [Date.parse(time), rows]);
    histogram.show(bins, found.step_s * 1000, counted(found));
  } else if (own && !answer.render) {
    histogram.show(own.bins, own.step, 'rows of the answer over time');
  } else {
    histogram.show([], 0, '');
  }
}

function run() {
  if (running) return;
  remember();
  ask(false);
}

/** Adds a line to the query where the rows that were counted end, and runs it. */
async function add(line) {
  let { at } = shown;
  if (editor.value !== shown.text) at = (await overview(question()))?.at ?? null;
  if (at === null) {
    took.textContent = 'the query cannot be read: run it first';
    return;
  }
  const text = editor.value;
  editor.value = `${text.slice(0, at)}\n${line}${text.slice(at)}`;
  run();
}

/** The same query in another range: a page of its own, so that going back leads to the range before. */
function narrow(from, to) {
  const url = addressed();
  url.searchParams.set('from', new Date(from).toISOString());
  url.searchParams.set('to', new Date(to - 1).toISOString());
  location.assign(url);
}

async function save(button) {
  const { format } = button.dataset;
  button.disabled = true;
  took.textContent = 'saving …';
  try {
    const answer = await post(question({ query: shown.text, format, max_rows: MOST_SAVED }));
    if (!answer.ok) throw new Error((await answer.json()).detail);
    let blob = await answer.blob();
    if (format === 'ndjson') {
      const lines = (await blob.text()).trimEnd().split('\n');
      blob = new Blob([`[${lines.join(',\n')}]\n`], { type: 'application/json' });
    }
    const link = element('a');
    link.href = URL.createObjectURL(blob);
    link.download = `faultline.${format === 'ndjson' ? 'json' : format}`;
    link.click();
    URL.revokeObjectURL(link.href);
    took.textContent = `saved ${link.download}`;
  } catch (error) {
    took.textContent = `not saved: ${error.message}`;
  }
  button.disabled = false;
}

/** A link that gives this answer again: the query, the range in moments, and the zone. */
async function copyLink(button) {
  remember();
  const url = addressed();
  const { from, to } = (shown.text === editor.value && shown.answer?.range) || {};
  if (from) url.searchParams.set('from', from);
  if (to) url.searchParams.set('to', to);
  url.searchParams.set('zone', document.documentElement.dataset.zone);
  try {
    await navigator.clipboard.writeText(url.href);
    button.textContent = 'Copied';
  } catch {
    history.replaceState(null, '', url);
    button.textContent = 'Link is in the address';
  }
}

/** The list of saved queries, of which only those are shown that contain all words. */
function filterSaved(input) {
  const asked = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const group of find('saved').querySelectorAll('details')) {
    const items = [...group.querySelectorAll('li')];
    for (const item of items) item.hidden = !asked.every(word => item.textContent.toLowerCase().includes(word));
    group.hidden = items.every(item => item.hidden);
    if (asked.length) group.open = true;
  }
}

editor.listen(() => {
  find('edited').textContent = 'edited';
}, run);
find('run').addEventListener('click', () => (running ? running.abort() : run()));
find('check').addEventListener('click', () => ask(true));
find('link').addEventListener('click', event => copyLink(event.currentTarget));
find('export').addEventListener('click', event => {
  const button = event.target.closest('button');
  if (button && shown.answer) save(button);
});
find('more').addEventListener('click', () => {
  if (!running) ask(false, { max_rows: MOST_ROWS });
});
find('patterns').addEventListener('click', () => {
  editor.value = shown.patterns;
  run();
});
find('find').hidden = false;
find('find').addEventListener('input', event => filterSaved(event.currentTarget));
/** Another range keeps what was typed. */
for (const form of document.querySelectorAll('.range form')) {
  form.addEventListener('submit', () => {
    for (const name of ['q', 'saved']) form.querySelector(`input[type=hidden][name=${name}]`)?.remove();
    const text = element('input');
    Object.assign(text, { type: 'hidden', name: 'q', value: editor.value });
    form.append(text);
  });
}
for (const link of document.querySelectorAll('.range > a')) {
  link.addEventListener('click', () => {
    const url = new URL(link.href);
    url.searchParams.set('q', editor.value);
    url.searchParams.delete('saved');
    link.href = url.href;
  });
}
addEventListener('popstate', () => {
  running?.abort();
  editor.value = new URLSearchParams(location.search).get('q') ?? opened;
  ask(false);
});
showAsked();
// Also without a query in the address: the page opens with an example, and an example shows its result.
if (editor.value.trim()) ask(false);
