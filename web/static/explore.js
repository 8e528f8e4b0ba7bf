/* The query page: colours the text, runs it, shows rows, and puts an error under the words that caused it. */

import { element, fileButton } from './lines.js';

const area = document.getElementById('q'), shade = document.querySelector('#ed pre'), nums = document.querySelector('#ed .nums');
const fault = document.getElementById('fault'), table = document.getElementById('result'), notes = document.getElementById('notes');
const hist = document.getElementById('hist'), count = document.getElementById('count'), took = document.getElementById('took');
const WORDS = 'where|project|extend|summarize|by|sort|order|take|limit|top|join|union|on|kind|let|distinct|count|asc|desc|and|or|not|in|between|has|has_any|has_all|contains|startswith|endswith|matches|regex|parse|mv-expand|project-away|project-rename|render|print|datatable|make-series|search|evaluate|as|serialize|with|of';
const TOKEN = new RegExp(`(?<co>//[^\\n]*)|(?<st>@?"(?:[^"\\\\\\n]|\\\\.)*"?|@?'(?:[^'\\\\\\n]|\\\\.)*'?)|(?<nu>\\b\\d[\\w.:-]*)|(?<fn>\\b[a-zA-Z_]\\w*(?=\\s*\\())|(?<kw>\\b(?:${WORDS})\\b|\\|)`, 'g');
const SHOWN = 2000;
let wrong = null, last = null;

function colour(text, mark) {
  const out = [];
  const put = (words, kind) => { if (words) out.push(kind ? element('i', kind, words) : document.createTextNode(words)); };
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    put(text.slice(at, found.index));
    put(found[0], Object.keys(found.groups).find(name => found.groups[name] !== undefined));
    at = found.index + found[0].length;
  }
  put(text.slice(at));
  shade.replaceChildren(...out, document.createTextNode('\n'));
  if (mark) underline(mark);
}

/** Wraps the offending characters; they may lie across several coloured pieces. */
function underline({ start, end }) {
  let at = 0;
  for (const node of [...shade.childNodes]) {
    const words = node.textContent, a = Math.max(start - at, 0), b = Math.min(end - at, words.length);
    at += words.length;
    if (a >= b) continue;
    const bad = element('i', `bad ${node.className ?? ''}`.trim(), words.slice(a, b));
    const piece = text => node.className ? element('i', node.className, text) : document.createTextNode(text);
    node.replaceWith(piece(words.slice(0, a)), bad, piece(words.slice(b)));
  }
}

/** Line numbers follow wrapped lines: each number gets as many rows as its line needs. */
function number() {
  const lines = area.value.split('\n'), style = getComputedStyle(shade), row = parseFloat(style.lineHeight);
  const ruler = shade.cloneNode(false);
  ruler.style.cssText = 'position:absolute;visibility:hidden;left:0;top:0;min-height:0;padding-top:0;padding-bottom:0';
  shade.parentElement.append(ruler);
  nums.textContent = lines.map((line, n) => { ruler.textContent = line || ' '; return `${n + 1}${'\n'.repeat(Math.max(1, Math.round(ruler.offsetHeight / row)))}`; }).join('').replace(/\n$/, '');
  ruler.remove();
}

function refresh() { colour(area.value, wrong); number(); }

function offset(line, column) { const lines = area.value.split('\n'); return lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + column - 1; }

function complain(problem) {
  fault.hidden = false;
  const { line, column } = problem, text = line ? area.value.split('\n')[line - 1] ?? '' : '';
  const length = Math.max(1, Math.min(problem.length || (/^[\w.-]+/.exec(text.slice((column || 1) - 1))?.[0].length ?? 1), 400));
  const caret = line ? `${String(line).padStart(3)} | ${text}\n    | ${' '.repeat(Math.max(0, column - 1))}${'^'.repeat(length)}` : '';
  const words = element('p'), hint = problem.suggestion || problem.do;
  words.append(element('b', 'err', line ? `Line ${line}, column ${column}: ` : 'Not answered: '), problem.message ?? problem.detail ?? 'unknown error');
  fault.replaceChildren(...[caret, words, hint ? element('p', '', /^did you mean/i.test(hint) || /\s/.test(hint) ? hint : `Did you mean ${hint}?`) : ''].filter(Boolean));
  if (line) { const start = offset(line, column || 1); wrong = { start, end: start + length }; area.setSelectionRange(start, start); }
  refresh();
}

async function ask(only) {
  fault.hidden = true; wrong = null; refresh();
  const buttons = [document.getElementById('run'), document.getElementById('check')];
  buttons.forEach(button => { button.disabled = true; });
  took.textContent = 'running …';
  const began = performance.now();
  try {
    const answer = await fetch('/api/v1/query', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ query: area.value, validate_only: only }) });
    const body = await answer.json();
    if (!answer.ok) { took.textContent = 'the result below is that of the last run'; complain(body); return; }
    if (only) { took.textContent = `the query is sound: ${body.columns.length} columns`; return; }
    show(body, performance.now() - began);
    const url = new URL(location.href); url.searchParams.set('q', area.value); history.replaceState(null, '', url);
  } catch (error) { took.textContent = ''; complain({ message: `The service did not answer: ${error.message}` }); } finally { buttons.forEach(button => { button.disabled = false; }); }
}

function cell(value, type) {
  const td = element('td', ['long', 'int', 'real', 'decimal'].includes(type) ? 'num' : '');
  td.textContent = value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
  return td;
}

function show(body) {
  last = body;
  count.textContent = `${body.rows.length.toLocaleString('en')}${body.truncated ? '+' : ''} rows`;
  took.textContent = `${Math.round(body.elapsed_ms)} ms`;
  document.getElementById('csv').hidden = !body.rows.length;
  notes.replaceChildren();
  const note = words => { const box = element('div', 'doubt'); box.append(element('div', '', words)); notes.append(box); };
  if (body.truncated) note(`Truncated. The answer holds the first ${body.rows.length.toLocaleString('en')} rows; chart and table know only these. Summarize or narrow the time to see all.`);
  if (body.rows.length > SHOWN) note(`The table shows ${SHOWN.toLocaleString('en')} of ${body.rows.length.toLocaleString('en')} rows; Save CSV has all of them.`);
  if (!body.rows.length) note('No row matches. Check the time range and the spelling of values; == is case-sensitive in KQL, =~ is not.');
  const at = name => body.columns.findIndex(column => column.name === name), file = at('File'), line = at('Line');
  const top = element('thead'), row = element('tr');
  for (const column of body.columns) { const th = element('th', '', column.name); th.append(element('small', '', column.type)); row.append(th); }
  top.append(row);
  const rows = element('tbody');
  for (const values of body.rows.slice(0, SHOWN)) {
    const tr = element('tr');
    values.forEach((value, n) => { const td = cell(value, body.columns[n].type); if (n === file && line >= 0 && value && values[line]) td.replaceChildren(fileButton(value, values[line])); tr.append(td); });
    rows.append(tr);
  }
  table.replaceChildren(top, rows);
  chart(body);
}

/** Rows over time, counted from the answer; the note above says when that is not all of them. */
function chart(body) {
  const column = body.columns.findIndex(item => item.type === 'datetime'), times = column < 0 ? [] : body.rows.map(row => Date.parse(row[column])).filter(Number.isFinite);
  const lo = times.reduce((a, b) => Math.min(a, b), Infinity), hi = times.reduce((a, b) => Math.max(a, b), -Infinity);
  hist.hidden = times.length < 3 || hi <= lo;
  if (hist.hidden) return;
  const ratio = devicePixelRatio || 1, width = hist.clientWidth, height = 96, g = hist.getContext('2d'), style = getComputedStyle(hist), token = name => style.getPropertyValue(name).trim();
  hist.width = width * ratio; hist.height = height * ratio; g.scale(ratio, ratio);
  const bins = Math.max(10, Math.min(120, Math.floor(width / 12))), sums = new Array(bins).fill(0);
  for (const t of times) sums[Math.min(bins - 1, Math.floor((t - lo) / (hi - lo) * bins))]++;
  const most = Math.max(...sums), wide = (width - 24) / bins;
  g.fillStyle = token('--accent');
  sums.forEach((sum, n) => { const tall = sum / most * 62; g.fillRect(12 + n * wide, 76 - tall, Math.max(1, wide - 2), tall); });
  g.fillStyle = token('--ink3'); g.font = `10.5px ${token('--sans')}`;
  g.fillText(new Date(lo).toISOString().slice(0, 19).replace('T', ' '), 12, 90);
  g.textAlign = 'right'; g.fillText(new Date(hi).toISOString().slice(0, 19).replace('T', ' '), width - 12, 90);
  g.fillText(`most in a bar: ${most}`, width - 12, 11);
}

function csv() {
  // A leading =, +, - or @ would be run by a spreadsheet: log lines are not to be trusted there either.
  const safe = value => { const text = value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value); const held = typeof value === 'string' && /^[=+\-@]/.test(text) ? `'${text}` : text; return /[",\n\r]/.test(held) ? `"${held.replaceAll('"', '""')}"` : held; };
  const text = [last.columns.map(column => safe(column.name)), ...last.rows.map(row => row.map(safe))].map(row => row.join(',')).join('\r\n');
  const link = element('a'); link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' })); link.download = 'faultline.csv'; link.click(); URL.revokeObjectURL(link.href);
}

area.addEventListener('input', () => { wrong = null; refresh(); document.getElementById('edited').textContent = 'edited'; });
area.addEventListener('keydown', event => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey || event.shiftKey)) { event.preventDefault(); ask(false); } });
document.getElementById('run').addEventListener('click', () => ask(false));
document.getElementById('check').addEventListener('click', () => ask(true));
document.getElementById('csv').addEventListener('click', csv);
document.getElementById('link').addEventListener('click', async event => { const url = new URL(location.href); url.searchParams.set('q', area.value); history.replaceState(null, '', url); try { await navigator.clipboard.writeText(url.href); event.target.textContent = 'Copied'; } catch { event.target.textContent = 'Link is in the address'; } });
new ResizeObserver(number).observe(area);
refresh();
if (new URLSearchParams(location.search).has('q')) ask(false);
