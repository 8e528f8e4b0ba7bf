/* The incident page: the axis, the raw lines, the chain and the table move together. */

import { Axis } from './axis/axis.js';
import { buttons, moves, steps } from './axis/controls.js';
import { Lines } from './lines.js';
import { say, typing } from './app.js';

const host = document.getElementById('axis');
/** The cursor must rest this long before lines are fetched: a sweep over the axis does not send a hundred requests. */
const REST_MS = 140;
/** More hosts than this are not named when their lines are requested. */
const MANY_HOSTS = 200;

function span(seconds) {
  if (seconds < 1) return `${(seconds * 1e3).toFixed(0)} ms`;
  if (seconds < 600) return `${seconds.toFixed(0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

const press = (buttons, pressed) => {
  for (const button of buttons) button.setAttribute('aria-pressed', String(pressed(button)));
};

/** The hosts that this incident is about: those of its core lanes and of every event with a role in it. None if there
 * are so many that the lines of all hosts are equivalent, and an address could not name them. */
function hostsOf(axis) {
  const lanes = axis.data.lanes.filter(lane => axis.lanes.get(lane.id).core && lane.layer !== 'job');
  const marks = axis.data.marks.filter(mark => mark.role !== 'context');
  const hosts = [...new Set([...lanes, ...marks].map(item => item.host))].filter(Boolean);
  return hosts.length > MANY_HOSTS ? [] : hosts;
}

/** The raw lines follow the cursor. */
function follow(axis) {
  const list = document.getElementById('lines');
  if (!list) return;
  const lines = new Lines(list, document.getElementById('lines-what'), document.getElementById('lines-explore'));
  const known = hostsOf(axis);
  let timer = null;
  let last = null;
  const ask = (detail, wait) => {
    last = detail;
    clearTimeout(timer);
    timer = setTimeout(() => lines.show(detail, known), wait);
  };
  axis.addEventListener('cursor', event => ask(event.detail, event.detail.pinned ? 0 : REST_MS));
  const scopes = [...document.querySelectorAll('[data-scope]')];
  for (const button of scopes) {
    button.addEventListener('click', () => {
      lines.scope = button.dataset.scope;
      press(scopes, other => other === button);
      if (last) ask(last, 0);
    });
  }
  axis.look(axis.state.cursor);
}

/** Says what was picked, for screen readers. */
function described(axis, { event, host: where, text, t }) {
  say(`${where ? `${event} on ${where}` : text}, ${axis.time(t)}`);
}

/** Writes what the reader looks at into the address, so that a link shows another reader the same. */
function keepInAddress(axis) {
  const { state, open, show } = axis;
  const url = new URL(location.href);
  const kept = {
    at: state.pinned && !state.selected ? axis.iso(state.cursor) : '',
    event: state.selected ?? '',
    lanes: show.all ? 'all' : '',
  };
  for (const [name, value] of Object.entries(kept)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  url.searchParams.delete('open');
  for (const fold of open) url.searchParams.append('open', fold);
  if (url.href !== location.href) history.replaceState(null, '', url);
}

/** The cursor, the chosen event and the opened lanes of the address. Names that the axis does not have do nothing. */
function pointed(axis) {
  const query = new URLSearchParams(location.search);
  const folds = new Set(axis.data.folds.map(fold => fold.id));
  for (const fold of query.getAll('open')) if (folds.has(fold)) axis.open.add(fold);
  if (query.get('lanes') === 'all') {
    axis.show.all = true;
    press(document.querySelectorAll('[data-layer=all]'), () => true);
  }
  if (axis.open.size || axis.show.all) axis.resize();
  const at = query.get('at') ? axis.since(query.get('at')) : NaN;
  if (query.get('event')) axis.pick(query.get('event'));
  else if (at >= axis.data.start && at <= axis.data.end) axis.look(at, { pin: true });
  let timer;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => keepInAddress(axis), 250);
  };
  for (const kind of ['cursor', 'release', 'lanes']) axis.addEventListener(kind, later);
}

function range(axis) {
  const shown = document.getElementById('shown');
  let timer;
  const tell = ({ span: part, whole }) => {
    if (shown) shown.textContent = `${span(part)} of ${span(whole)} shown`;
  };
  tell({ span: axis.scale.span, whole: axis.scale.end - axis.scale.start });
  axis.addEventListener('range', event => {
    tell(event.detail);
    clearTimeout(timer);
    timer = setTimeout(() => {
      const url = new URL(location.href);
      url.searchParams.set('from', event.detail.from);
      url.searchParams.set('to', event.detail.to);
      history.replaceState(null, '', url);
    }, 250);
  });
}

/** A range in the address opens the axis there. One that contains the whole incident is the range of the list from
 * which the reader came: then the axis opens from cause to effect, as without it. */
function fromAddress(axis) {
  const query = new URLSearchParams(location.search);
  const from = query.get('from');
  const to = query.get('to');
  if (!from || !to) return;
  const a = axis.since(from);
  const b = axis.since(to);
  const { start, end } = axis.data;
  if (a < b && b > start && a < end && (a > start || b < end)) {
    axis.scale.show(a, b);
    axis.draw();
  }
}

function toggleTable() {
  const table = document.getElementById('table');
  if (!table) return;
  table.open = !table.open;
  if (!table.open) return;
  table.scrollIntoView({ block: 'start' });
  table.querySelector('summary').focus();
}

function keys(axis, walk) {
  const does = { ...moves(axis, walk), t: toggleTable };
  document.addEventListener('keydown', event => {
    if (typing(event) || document.querySelector('dialog[open]')) return;
    const action = does[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}

/** The button beside them that opens the table. */
function tableButton() {
  document.getElementById('to-table')?.addEventListener('click', event => {
    event.preventDefault();
    toggleTable();
  });
}

let tag = '';
/** The data of the axis; null if unchanged since the last time. */
async function read() {
  const answer = await fetch(host.dataset.src, tag ? { headers: { 'if-none-match': tag } } : {});
  if (answer.status === 304) return null;
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.detail ?? answer.statusText);
  tag = answer.headers.get('etag') ?? '';
  return data;
}

/** While the incident is in progress the axis takes over new data; the reader's zoom, cursor and choice stay. */
function keep(axis) {
  document.addEventListener('refresh', async () => {
    const data = await read().catch(() => null);
    if (data) axis.update(data);
  });
}

async function start() {
  if (!host) return;
  const wait = host.querySelector('.wait');
  try {
    const data = await read();
    const axis = new Axis(host, data, { job: host.dataset.job ?? null });
    host.axis = axis;
    document.dispatchEvent(new CustomEvent('axis', { detail: axis }));
    if (!host.dataset.job) fromAddress(axis);
    follow(axis);
    if (!host.dataset.job) range(axis);
    keys(axis, steps(axis, mark => described(axis, mark)));
    buttons(axis);
    tableButton();
    if (!host.dataset.job) pointed(axis);
    keep(axis);
    host.dataset.ready = 'yes';
  } catch (error) {
    if (wait) wait.textContent = `The time axis could not be drawn: ${error.message}. The table has the same content.`;
    host.dataset.ready = 'failed';
    throw error;
  }
}
start();
