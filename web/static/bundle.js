/* The script of a bundle, a page without a server: the axis, the chain and the lines move together, as on the page of
   an incident, over data that the page itself holds. */

import { Axis } from './axis/axis.js';

const data = document.getElementById('axis-data');
const lines = [...document.querySelectorAll('#lines .ln')].map(row => ({
  row,
  at: Date.parse(row.querySelector('time')?.dateTime ?? ''),
}));

/** Raw lines at the cursor: those of the second around it are marked, the nearest is scrolled to. */
function follow(axis) {
  const box = document.getElementById('lines');
  let on = [];
  const look = t => {
    const at = axis.t0 + t * 1000;
    let nearest = null;
    for (const { row } of on) row.classList.remove('on');
    on = lines.filter(line => Math.abs(line.at - at) <= 500);
    for (const line of lines) {
      if (!nearest || Math.abs(line.at - at) < Math.abs(nearest.at - at)) nearest = line;
    }
    if (!on.length && nearest) on = [nearest];
    for (const { row } of on) row.classList.add('on');
    if (nearest) box.scrollTop += nearest.row.getBoundingClientRect().top - box.getBoundingClientRect().top - 60;
  };
  axis.addEventListener('cursor', event => look(event.detail.t));
  look(axis.state.cursor);
}

/** Steps of the chain: a click shows the event, J and K walk them. */
function steps(axis) {
  const all = [...document.querySelectorAll('#chain > li')];
  const light = id => {
    for (const item of all) item.classList.toggle('on', item.dataset.event === id);
  };
  const go = item => {
    axis.pick(item.dataset.event);
    light(item.dataset.event);
  };
  for (const item of all) item.querySelector('.n').addEventListener('click', () => go(item));
  axis.addEventListener('pick', event => light(event.detail.id));
  axis.addEventListener('release', () => light(null));
  return by => {
    if (!all.length) return;
    const at = all.findIndex(item => item.classList.contains('on'));
    const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
    go(next);
    next.scrollIntoView({ block: 'nearest' });
  };
}

function keys(axis, walk) {
  const does = {
    w: () => axis.zoom(0.7),
    s: () => axis.zoom(1 / 0.7),
    a: () => axis.pan(-0.2),
    d: () => axis.pan(0.2),
    f: () => axis.fit(),
    e: event => axis.step(event.shiftKey ? -1 : 1),
    j: () => walk(1),
    k: () => walk(-1),
    escape: () => axis.release(),
  };
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = does[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action(event);
  });
}

function start() {
  const host = document.getElementById('axis');
  if (!host || !data) return;
  const axis = new Axis(host, JSON.parse(data.textContent));
  host.axis = axis;
  follow(axis);
  keys(axis, steps(axis));
  for (const button of document.querySelectorAll('[data-layer]')) {
    button.addEventListener('click', () => {
      button.setAttribute('aria-pressed', String(axis.toggle(button.dataset.layer)));
    });
  }
  const does = { in: () => axis.zoom(0.6), out: () => axis.zoom(1 / 0.6), fit: () => axis.fit() };
  for (const button of document.querySelectorAll('[data-axis]')) {
    button.addEventListener('click', () => does[button.dataset.axis]());
  }
  host.dataset.ready = 'yes';
}
start();
