/* The tail: lines as they come, paused or filtered or marked, and the places where some are missing. */

import { say, typing } from '../app.js';
import { element, rowOf } from '../lines.js';
import { thousands, words } from '../table.js';
import { visible } from '../visible.js';
import { wall } from '../zone.js';
import { Stream } from './stream.js';

/** Lines in the page, lines that wait while it is paused, and marked ones that stay in the page. */
const [MOST_SHOWN, MOST_WAITING, MOST_MARKED] = [1_000, 5_000, 200];
/** Lines that are put into the page between two frames. */
const AT_ONCE = 250;
/** The view follows while its end is this near, pixels. */
const NEAR = 40;
/** The range of a line in Explore, ms before and after. */
const AROUND_MS = 30_000;

const find = id => document.getElementById(id);
const view = find('view');
const form = find('filter');
const clock = () => wall(Date.now()).slice(11, 19);

const seen = { lines: 0, last: '', gone: 0, dropped: 0, marked: 0 };
let waiting = [];
/** Lost while they waited, since the last that is in the page. */
let lost = 0;
let paused = false;
let drawing = false;
let stream = null;

function tell() {
  const last = seen.last ? `, the last at ${seen.last}` : '';
  const parts = [`${thousands(seen.lines)} line${seen.lines === 1 ? '' : 's'} came${last}`];
  if (seen.gone) parts.push(`the ${thousands(seen.gone)} oldest were taken out of view`);
  if (seen.dropped) parts.push(`${thousands(seen.dropped)} were dropped while the view was paused`);
  find('said').textContent = parts.join(' · ');
  const held = lost ? `, ${thousands(lost)} older dropped` : '';
  const rows = waiting.filter(item => item.row).length;
  find('pause').textContent = paused ? `Continue · ${thousands(rows)} wait${held}` : 'Pause';
  find('pause').setAttribute('aria-pressed', String(paused));
  find('marked').textContent = `Marked ${seen.marked}`;
  find('marked').hidden = find('copy').hidden = !seen.marked;
}

/** How the connection is; changes of it are also announced. */
function status(text, isSaid = true) {
  find('state').textContent = text;
  if (isSaid) say(text);
}

/** A row between the lines: what happened to the stream, and whether lines are missing there. */
function note(text, isMissing = false) {
  waiting.push({ note: `${clock()} ${text}`, isMissing });
  draw();
}

/** The line as the list of lines knows it; a row without a message shows its columns. */
function lineOf(row) {
  const pairs = Object.entries(row)
    .filter(([, value]) => value !== null && value !== '')
    .map(([name, value]) => `${name}=${words(value)}`);
  return {
    time: row.Time ?? '',
    received_time: row.Time && row.ReceivedTime,
    time_quality: 'line',
    host: row.Host,
    unit: row.Unit,
    source: row.Source,
    message: row.Message ?? pairs.join(' '),
    file: row.File,
    line: row.Line,
  };
}

/** Where Explore shows what else the host logged at that time. */
function explored(row) {
  const at = Date.parse(row.Time);
  const url = new URL('/explore', location.href);
  const asked = [`Logs`, ...(row.Host ? [`| where Host == ${JSON.stringify(row.Host)}`] : []), '| sort by Time asc'];
  url.searchParams.set('q', asked.join('\n'));
  url.searchParams.set('from', new Date(at - AROUND_MS).toISOString());
  url.searchParams.set('to', new Date(at + AROUND_MS).toISOString());
  const link = element('a', 'go', 'around');
  link.href = url.href;
  link.title = `what ${visible(row.Host || 'all hosts')} logged 30 s before and after`;
  return link;
}

function drawn(item) {
  if (item.note) return element('p', item.isMissing ? 'note missing' : 'note', item.note);
  const line = lineOf(item.row);
  const box = rowOf(line, 0);
  const mark = element('button', 'mark', '☆');
  mark.type = 'button';
  mark.setAttribute('aria-pressed', 'false');
  mark.setAttribute('aria-label', 'Mark this line');
  box.querySelector('.d').replaceWith(mark);
  if (!line.file) box.querySelector('.file').remove();
  const more = element('span', 'more');
  if (item.row.Time) more.append(explored(item.row));
  const file = box.querySelector('.file');
  if (file) more.append(file);
  box.append(more);
  return box;
}

const isMarked = box => box.querySelector('.mark')?.getAttribute('aria-pressed') === 'true';

/** Takes the oldest lines out of the page; marked ones stay. */
function shorten() {
  let over = view.childElementCount - seen.marked - MOST_SHOWN;
  for (let box = view.firstElementChild; box && over > 0;) {
    const next = box.nextElementSibling;
    if (!isMarked(box)) {
      if (box.matches('.ln')) seen.gone++;
      box.remove();
      over--;
    }
    box = next;
  }
}

function follow() {
  view.scrollTop = view.scrollHeight;
}

function put() {
  drawing = false;
  if (paused || !waiting.length) {
    tell();
    return;
  }
  if (lost) {
    view.append(drawn({ note: `${thousands(lost)} lines that came here were dropped`, isMissing: true }));
    lost = 0;
  }
  if (waiting.length > MOST_SHOWN) {
    // More than fit: the first ones would be taken out at once.
    const over = waiting.slice(0, waiting.length - MOST_SHOWN).filter(item => item.row).length;
    seen.gone += over;
    waiting = waiting.slice(-MOST_SHOWN);
  }
  view.append(...waiting.splice(0, AT_ONCE).map(drawn));
  shorten();
  follow();
  tell();
  if (waiting.length) draw();
}

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(put);
}

function took(row) {
  seen.lines++;
  seen.last = clock();
  waiting.push({ row });
  if (waiting.length > MOST_WAITING) {
    const gone = waiting.splice(0, waiting.length - MOST_WAITING).filter(item => item.row).length;
    lost += gone;
    seen.dropped += gone;
  }
  draw();
}

const HANDLERS = {
  line: took,
  quiet: () => status(`live, nothing new at ${clock()}`, false),
  live: () => status(`live since ${clock()}`),
  lost({ detail }) {
    status(`not live since ${clock()}: connecting again`);
    note(`the connection broke: ${detail}`);
  },
  again() {
    status(`live again since ${clock()}`);
    note('connected again; what was stored meanwhile follows');
  },
  gap: ({ from, to }) => note(`lines that were stored from ${from} to ${to} are not repeated: use Explore`, true),
  truncated: ({ most, every_s: every }) =>
    note(`more than ${thousands(most)} lines within ${every} s: some are not shown; filter to see all`, true),
  behind({ behind }) {
    const late = 'the store is behind: lines come late, and some may be missing here';
    note(behind ? late : 'the store is up to date again', behind);
  },
  refused(problem) {
    const place = problem.line ? `Line ${problem.line}, column ${problem.column}: ` : '';
    const remedy = problem.suggestion ? `Did you mean ${problem.suggestion}?` : (problem.do ?? '');
    find('fault').replaceChildren(visible(`${place}${problem.detail ?? 'refused'} ${remedy}`));
    find('fault').hidden = false;
    status('ended');
  },
};

function begin() {
  stream?.end();
  find('fault').hidden = true;
  status('connecting …');
  stream = new Stream(form.elements.filter.value.trim(), (event, data) => HANDLERS[event]?.(data));
  stream.follow();
}

function pause(on) {
  if (paused === on) return;
  paused = on;
  say(on ? 'Paused' : 'Continued');
  if (on) tell();
  else draw();
}

function mark(button) {
  const on = button.getAttribute('aria-pressed') !== 'true';
  if (on && seen.marked >= MOST_MARKED) {
    say(`At most ${MOST_MARKED} lines can be marked`);
    return;
  }
  button.setAttribute('aria-pressed', String(on));
  button.textContent = on ? '★' : '☆';
  button.closest('.ln').classList.toggle('hot', on);
  seen.marked += on ? 1 : -1;
  if (!seen.marked) only(false);
  tell();
}

/** Shows only the marked lines, or all. */
function only(on) {
  view.classList.toggle('only', on);
  find('marked').setAttribute('aria-pressed', String(on));
}

async function copy(button) {
  const lines = [...view.querySelectorAll('.ln.hot')].map(box =>
    ['.t', '.src', '.msg'].map(part => box.querySelector(part).textContent.trim()).join(' '),
  );
  try {
    await navigator.clipboard.writeText(`${lines.join('\n')}\n`);
    say(`${lines.length} lines copied`);
  } catch {
    say('Copying is not allowed here');
  }
  button.focus();
}

form.addEventListener('submit', event => {
  event.preventDefault();
  const url = new URL(location.href);
  url.searchParams.set('filter', form.elements.filter.value.trim());
  history.replaceState(null, '', url);
  note(`filter: ${form.elements.filter.value.trim() || 'none'}`);
  begin();
});
find('pause').addEventListener('click', () => {
  pause(!paused);
  if (!paused) follow();
});
find('marked').addEventListener('click', () => only(!view.classList.contains('only')));
find('copy').addEventListener('click', event => copy(event.currentTarget));
find('clear').addEventListener('click', () => {
  for (const box of [...view.children]) if (!isMarked(box)) box.remove();
});
view.addEventListener('click', event => {
  const button = event.target.closest('.mark');
  if (button) mark(button);
});
/** Whoever scrolls back reads: nothing moves then. */
for (const kind of ['wheel', 'touchmove', 'keydown']) {
  view.addEventListener(
    kind,
    () => {
      requestAnimationFrame(() => {
        if (view.scrollHeight - view.scrollTop - view.clientHeight > NEAR) pause(true);
      });
    },
    { passive: true },
  );
}
document.addEventListener('keydown', event => {
  if (event.key.toLowerCase() !== 'p' || typing(event) || document.querySelector('dialog[open]')) return;
  pause(!paused);
});
addEventListener('pagehide', () => stream?.end());
for (const id of ['pause', 'clear']) find(id).hidden = false;
begin();
tell();
