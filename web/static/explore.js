/* The query page: colours the text, runs it, and underlines the words that caused an error. */

import { element } from './lines.js';
import { keepAsked, showAsked } from './asked.js';
import { Result } from './result.js';
import { visible } from './visible.js';

const find = id => document.getElementById(id);
const area = find('q');
const fault = find('fault');
const took = find('took');
const shade = document.querySelector('#ed pre');
const nums = document.querySelector('#ed .nums');
const result = new Result();

const WORDS = [
  'where project extend summarize by sort order take limit top join union on kind let distinct count asc desc',
  'and or not in between has has_any has_all contains startswith endswith matches regex parse mv-expand',
  'project-away project-rename render print datatable make-series search evaluate as serialize with of',
];
/** What is coloured, by the class it gets: comment, string, number, function, keyword. */
const KINDS = {
  co: /\/\/[^\n]*/,
  st: /@?"(?:[^"\\\n]|\\.)*"?|@?'(?:[^'\\\n]|\\.)*'?/,
  nu: /\b\d[\w.:-]*/,
  fn: /\b[a-zA-Z_]\w*(?=\s*\()/,
  kw: new RegExp(`\\b(?:${WORDS.join(' ').replaceAll(' ', '|')})\\b|\\|`),
};
const parts = Object.entries(KINDS).map(([kind, pattern]) => `(?<${kind}>${pattern.source})`);
const TOKEN = new RegExp(parts.join('|'), 'g');

/** The characters that the last error is about, until the text changes. */
let wrong = null;
/** Was a query run here? The example with which the page opens does not count. */
let remembered = new URLSearchParams(location.search).has('q');
/** Ends the running query; null if there is none. */
let running = null;

/** Text that carries the class of its kind, or none. */
const piece = (words, kind) => (kind ? element('i', kind, words) : document.createTextNode(words));

function colour(text) {
  const out = [];
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    const kind = Object.keys(KINDS).find(name => found.groups[name] !== undefined);
    out.push(piece(text.slice(at, found.index)), piece(found[0], kind));
    at = found.index + found[0].length;
  }
  shade.replaceChildren(...out, piece(text.slice(at)), piece('\n'));
}

/** Wraps the offending characters; they may span several coloured pieces. */
function underline({ start, end }) {
  let at = 0;
  for (const node of [...shade.childNodes]) {
    const words = node.textContent;
    const a = Math.max(start - at, 0);
    const b = Math.min(end - at, words.length);
    at += words.length;
    if (a >= b) continue;
    const bad = element('i', `bad ${node.className ?? ''}`.trim(), words.slice(a, b));
    node.replaceWith(piece(words.slice(0, a), node.className), bad, piece(words.slice(b), node.className));
  }
}

/** Line numbers follow wrapped lines: each number gets as many rows as its line needs. */
function number() {
  const row = parseFloat(getComputedStyle(shade).lineHeight);
  const ruler = shade.cloneNode(false);
  ruler.style.cssText = 'position:absolute;visibility:hidden;left:0;top:0;min-height:0;padding-top:0;padding-bottom:0';
  shade.parentElement.append(ruler);
  const tall = area.value.split('\n').map(line => {
    ruler.textContent = line || ' ';
    return Math.max(1, Math.round(ruler.offsetHeight / row));
  });
  ruler.remove();
  nums.textContent = tall
    .map((rows, n) => `${n + 1}${'\n'.repeat(rows)}`)
    .join('')
    .replace(/\n$/, '');
}

function refresh() {
  colour(area.value);
  if (wrong) underline(wrong);
  number();
}

/** The offset in the text of a line and column (both from 1). */
function offset(line, column) {
  const before = area.value.split('\n').slice(0, line - 1);
  return before.reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
}

/** The number of offending characters: as given, else the length of the word there. */
function lengthAt(problem, text, column) {
  const word = /^[\w.-]+/.exec(text.slice(column - 1))?.[0].length ?? 1;
  return Math.max(1, Math.min(problem.length || word, 400));
}

/** The error in words, with a caret under its position, and what may be meant instead. */
function complain(problem) {
  const { line } = problem;
  const column = problem.column || 1;
  const said = element('p');
  const about = problem.message ?? problem.detail ?? 'unknown error';
  said.append(element('b', 'err', line ? `Line ${line}, column ${column}: ` : 'Not answered: '), visible(about));
  fault.replaceChildren(said);
  if (line) {
    const text = area.value.split('\n')[line - 1] ?? '';
    const length = lengthAt(problem, text, column);
    const start = offset(line, column);
    const mark = ' '.repeat(column - 1) + '^'.repeat(length);
    fault.prepend(visible(`${String(line).padStart(3)} | ${text}\n    | ${mark}`));
    wrong = { start, end: start + length };
    area.setSelectionRange(start, start);
  }
  const hint = problem.suggestion || problem.do;
  if (hint) fault.append(element('p', '', /\s/.test(hint) ? hint : `Did you mean ${hint}?`));
  fault.hidden = false;
  refresh();
}

/** The query in the address: the page can be reopened, and sent to others. */
function remember() {
  remembered = true;
  const url = new URL(location.href);
  url.searchParams.set('q', area.value);
  history.replaceState(null, '', url);
  return url.href;
}

/** While a query runs its button ends it. */
function busy(on) {
  const run = find('run');
  run.querySelector('span').textContent = on ? 'Stop' : 'Run';
  run.querySelector('kbd').hidden = on;
  find('check').disabled = on;
  result.busy(on);
}

/** Runs the query, or only checks it. */
async function ask(only) {
  fault.hidden = true;
  wrong = null;
  refresh();
  running = new AbortController();
  busy(true);
  took.textContent = 'running …';
  try {
    const answer = await fetch('/api/v1/query', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query: area.value, validate_only: only }),
      signal: running.signal,
    });
    tell(await answer.json(), answer.ok, only);
  } catch (error) {
    took.textContent = error.name === 'AbortError' ? 'stopped' : '';
    if (error.name !== 'AbortError') complain({ message: `The service did not answer: ${error.message}` });
  } finally {
    running = null;
    busy(false);
  }
}

function tell(body, ok, only) {
  if (!ok) {
    took.textContent = result.body ? 'the result below is that of the last run' : '';
    complain(body);
  } else if (only) {
    took.textContent = `the query is sound: ${body.columns.length} columns`;
  } else {
    took.textContent = `${Math.round(body.elapsed_ms)} ms`;
    result.show(body);
    if (remembered) keepAsked(area.value, body.rows.length);
  }
}

function run() {
  remember();
  ask(false);
}

area.addEventListener('input', () => {
  wrong = null;
  refresh();
  find('edited').textContent = 'edited';
});
area.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey || event.shiftKey)) return;
  event.preventDefault();
  if (!running) run();
});
find('run').addEventListener('click', () => (running ? running.abort() : run()));
find('check').addEventListener('click', () => ask(true));
find('csv').addEventListener('click', () => result.save());
find('link').addEventListener('click', async event => {
  const href = remember();
  try {
    await navigator.clipboard.writeText(href);
    event.target.textContent = 'Copied';
  } catch {
    event.target.textContent = 'Link is in the address';
  }
});
new ResizeObserver(number).observe(area);
refresh();
showAsked();
// Also without a query in the address: the page opens with an example, and an example shows its result.
if (area.value.trim()) ask(false);
