/* The incident page: the axis, the raw lines, the chain and the table move together. */

import { Axis } from './axis/axis.js';
import { Lines } from './lines.js';
import { say, typing } from './app.js';

const host = document.getElementById('axis');
const chain = document.getElementById('chain');
/** The cursor must rest this long before lines are fetched: a sweep over the axis is not a hundred questions. */
const REST_MS = 140;

function span(seconds) { return seconds < 1 ? `${(seconds * 1e3).toFixed(0)} ms` : seconds < 600 ? `${seconds.toFixed(0)} s` : seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`; }

function follow(axis) {
  const list = document.getElementById('lines');
  if (!list) return;
  const lines = new Lines(list, document.getElementById('lines-what'), document.getElementById('lines-explore'));
  const hosts = [...new Set(axis.data.lanes.filter(lane => axis.lanes.get(lane.id).core && lane.layer !== 'job').map(lane => lane.host))];
  const jobs = axis.data.marks.filter(mark => mark.role !== 'context').map(mark => mark.host);
  const known = [...new Set([...hosts, ...jobs])].filter(Boolean);
  let timer, last;
  const ask = (detail, wait) => { last = detail; clearTimeout(timer); timer = setTimeout(() => lines.show(detail, known), wait); };
  axis.addEventListener('cursor', event => ask(event.detail, event.detail.pinned ? 0 : REST_MS));
  for (const button of document.querySelectorAll('[data-scope]')) button.addEventListener('click', () => {
    lines.scope = button.dataset.scope;
    for (const other of document.querySelectorAll('[data-scope]')) other.setAttribute('aria-pressed', String(other === button));
    if (last) ask(last, 0);
  });
  axis.look(axis.state.cursor);
}

function steps(axis) {
  if (!chain) return;
  const items = [...chain.children];
  const light = id => { for (const item of items) item.classList.toggle('on', item.dataset.event === id); };
  const go = item => { axis.pick(item.dataset.event); light(item.dataset.event); item.scrollIntoView({ block: 'nearest' }); };
  for (const item of items) item.querySelector('.n').addEventListener('click', () => { go(item); host.scrollIntoView({ block: 'nearest' }); });
  axis.addEventListener('pick', event => { light(event.detail.id); say(`${event.detail.event} on ${event.detail.host}, ${axis.time(event.detail.t)}`); });
  axis.addEventListener('release', () => light(null));
  return by => { const at = items.findIndex(item => item.classList.contains('on')); go(items[Math.min(items.length - 1, Math.max(0, at + by))]); };
}

function range(axis) {
  const shown = document.getElementById('shown');
  let timer;
  const tell = ({ span: part, whole }) => { if (shown) shown.textContent = `${span(part)} of ${span(whole)} shown`; };
  tell({ span: axis.scale.span, whole: axis.scale.end - axis.scale.start });
  axis.addEventListener('range', event => {
    tell(event.detail);
    clearTimeout(timer);
    timer = setTimeout(() => { const url = new URL(location.href); url.searchParams.set('from', event.detail.from); url.searchParams.set('to', event.detail.to); history.replaceState(null, '', url); }, 250);
  });
}

/** A range in the address opens the axis there. */
function fromAddress(axis) {
  const query = new URLSearchParams(location.search), from = query.get('from'), to = query.get('to');
  if (!from || !to) return;
  const a = axis.since(from), b = axis.since(to);
  if (Number.isFinite(a) && Number.isFinite(b) && b > a && b > axis.data.start && a < axis.data.end) { axis.scale.show(a, b); axis.draw(); }
}

function keys(axis, walk) {
  const table = document.getElementById('table');
  const tabled = () => { if (table) { table.open = !table.open; if (table.open) { table.scrollIntoView({ block: 'start' }); table.querySelector('summary').focus(); } } };
  const does = {
    w: () => axis.zoom(.7), s: () => axis.zoom(1 / .7), a: () => axis.pan(-.2), d: () => axis.pan(.2), f: () => axis.fit(),
    e: event => axis.step(event.shiftKey ? -1 : 1), j: () => walk?.(1), k: () => walk?.(-1), t: tabled, escape: () => axis.release(),
  };
  document.addEventListener('keydown', event => {
    if (typing(event) || document.querySelector('dialog[open]')) return;
    const action = does[event.key.toLowerCase()];
    if (action) { event.preventDefault(); action(event); }
  });
  document.getElementById('to-table')?.addEventListener('click', event => { event.preventDefault(); tabled(); });
  const press = { in: () => axis.zoom(.6), out: () => axis.zoom(1 / .6), fit: () => axis.fit() };
  for (const button of document.querySelectorAll('[data-axis]')) button.addEventListener('click', () => press[button.dataset.axis]());
  for (const button of document.querySelectorAll('[data-layer]')) button.addEventListener('click', () => button.setAttribute('aria-pressed', String(axis.toggle(button.dataset.layer))));
}

async function start() {
  if (!host) return;
  const wait = host.querySelector('.wait');
  try {
    const answer = await fetch(host.dataset.src), data = await answer.json();
    if (!answer.ok) throw new Error(data.detail ?? answer.statusText);
    const axis = new Axis(host, data, { job: host.dataset.job ?? null });
    host.axis = axis;
    if (!host.dataset.job) fromAddress(axis);
    follow(axis);
    if (!host.dataset.job) range(axis);
    keys(axis, steps(axis));
    host.dataset.ready = 'yes';
  } catch (error) {
    if (wait) wait.textContent = `The time axis could not be drawn: ${error.message}. The table has the same content.`;
    host.dataset.ready = 'failed';
    throw error;
  }
}
start();
