/* The map of all nodes: pointer and keys find a node in the picture that the server drew; slider, choice and width ask
   for another picture. */

import { say, typing } from '../app.js';
import { visible } from '../visible.js';
import { called, wallOf } from '../zone.js';
import { Places } from './map.js';

const part = document.getElementById('fleet');
/** The width of a node in the picture, pixels, if nothing is scaled. */
const PITCH = 12;
/** Pictures that are scaled by less or more than this are drawn anew for the width. */
const SCALES = [0.8, 1.5];
/** How many nodes a row may have; web/fleet/picture.py has the same. */
const COLUMNS = [12, 400];
const NEAREST = 8;
/** A movement of the zoom rests after this. */
const SETTLE_MS = 150;
/** The slider must rest this long before a picture is asked for. */
const REST_MS = 90;
/** A replay of the moments takes this many pictures. */
const PICTURES = 40;
const KEPT = ['from', 'to', 'theme', 'zone'];

const state = {
  node: -1,
  near: 1,
  settling: null,
  names: null,
  columns: 0,
  playing: null,
  asking: null,
  pending: null,
};
let places = null;
let map = null;

const clamp = (low, value, high) => Math.min(high, Math.max(low, value));

/** The picture that is shown: what a script finds in it. */
function take() {
  map = document.getElementById('map');
  state.names = null;
  if (!map) return;
  places = new Places(map.dataset.blocks);
  state.node = clamp(-1, state.node, places.count - 1);
  sized();
  mark();
  slider();
  point(map);
}

const svg = () => map.querySelector('svg');

// -- another picture ------------------------------------------------------------------------------

/** The address of what is asked for, with the columns that fit. */
function address() {
  const url = new URL(location.href);
  if (state.columns) url.searchParams.set('columns', state.columns);
  return url;
}

/** Asks for the picture of the address; of several requests the last one counts. */
async function load() {
  state.asking?.abort();
  const asking = new AbortController();
  state.asking = asking;
  try {
    const answer = await fetch(address(), { headers: { accept: 'text/html' }, signal: asking.signal });
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('fleet');
    if (!answer.ok || !fresh) throw new Error(String(answer.status));
    const focused = map?.contains(document.activeElement);
    const chosen = document.activeElement?.id;
    const opened = document.getElementById('groups')?.open;
    part.replaceChildren(...fresh.childNodes);
    if (opened) document.getElementById('groups').open = true;
    take();
    if (focused) map.focus({ preventScroll: true });
    else if (chosen === 'moment' || chosen === 'play') document.getElementById(chosen)?.focus();
  } catch (error) {
    if (error.name !== 'AbortError') say(`The map could not be read: ${error.message}`);
  }
}

function ask(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value);
  else url.searchParams.delete(name);
  history.replaceState(null, '', url);
  return load();
}

/** A narrow window has fewer nodes in a row, so that they can still be seen and met. */
function fit() {
  if (!map) return;
  const scale = map.clientWidth / (Number(map.dataset.columns) * PITCH);
  if (scale >= SCALES[0] && scale <= SCALES[1]) return;
  const columns = clamp(COLUMNS[0], Math.floor(map.clientWidth / PITCH), COLUMNS[1]);
  if (columns === state.columns) return;
  state.columns = columns;
  load();
}

// -- moments --------------------------------------------------------------------------------------

function slider() {
  const box = document.getElementById('when');
  const [first, last, at] = ['first', 'last', 'at'].map(name => Date.parse(box.dataset[name]));
  if (!(last > first)) return;
  const range = document.getElementById('moment');
  const tell = () => {
    const to = new Date(first + (range.value / 1000) * (last - first)).toISOString();
    range.setAttribute('aria-valuetext', `${wallOf(to).slice(0, 19).replace('T', ' ')} ${called(Date.parse(to))}`);
    return to;
  };
  range.value = String(Math.round(((at - first) / (last - first)) * 1000));
  tell();
  range.addEventListener('input', () => {
    const to = tell();
    clearTimeout(state.pending);
    state.pending = setTimeout(() => ask('at', range.value === '1000' ? '' : to), REST_MS);
  });
  document.getElementById('play').addEventListener('click', () => {
    if (state.playing) state.playing = null;
    else play(first, last);
    pressed();
  });
  pressed();
  box.hidden = false;
}

function pressed() {
  const button = document.getElementById('play');
  button.setAttribute('aria-pressed', String(state.playing !== null));
  button.textContent = state.playing ? 'Stop' : 'Play';
}

/** From the first moment to the last, as fast as pictures come. One that was stopped ends at its next picture. */
async function play(first, last) {
  const mine = {};
  state.playing = mine;
  for (let n = 0; n <= PICTURES && state.playing === mine; n++) {
    const soon = new Promise(next => setTimeout(next, REST_MS));
    await ask('at', new Date(first + (n / PICTURES) * (last - first)).toISOString());
    await soon;
  }
  if (state.playing === mine) state.playing = null;
  pressed();
}

// -- a node ---------------------------------------------------------------------------------------

/** The names of the nodes and what is stated of them; asked for when somebody looks at a node. */
async function names() {
  if (state.names) return state.names;
  const answer = await fetch(document.getElementById('as-json').href);
  if (!answer.ok) throw new Error(String(answer.status));
  const found = await answer.json();
  if (found.digest !== map.dataset.digest) await load(); // nodes came since the picture was drawn
  state.names = found;
  return found;
}

function words(found, node) {
  const { nodes, classes, texts, groups } = found;
  const text = nodes.says[node] === null ? '' : texts[nodes.says[node]];
  const value = nodes.value?.[node];
  const shown = [classes[nodes.class[node]].words, value === null || value === undefined ? '' : String(value), text];
  const group = groups[places.blockOf(node)]?.name ?? '';
  return { name: nodes.name[node], group, text: shown.filter(Boolean).join(', ') };
}

function mark() {
  document.getElementById('here').setAttribute('d', state.node < 0 ? '' : places.frame(state.node));
}

function open(name) {
  const url = new URL(`/nodes/${encodeURIComponent(name)}`, location.href);
  const query = new URLSearchParams(location.search);
  for (const key of KEPT) if (query.has(key)) url.searchParams.set(key, query.get(key));
  location.href = url.href;
}

const tip = () => document.getElementById('node-tip');

/** Shows a node: framed, named beside it, and announced to screen readers if a key led there. */
async function look(node, { aloud = false } = {}) {
  state.node = node;
  mark();
  if (node < 0) {
    tip().hidden = true;
    return;
  }
  const of = words(await names(), node);
  if (state.node !== node) return;
  const bold = document.createElement('b');
  bold.textContent = visible(of.name);
  tip().replaceChildren(bold, visible(`${of.text} · ${of.group}`));
  tip().hidden = false;
  const { scale, left: edge } = shown();
  const { x, y } = places.corner(node);
  const left = clamp(map.scrollLeft, (x - edge) * scale + 16, map.scrollLeft + map.clientWidth - tip().offsetWidth - 4);
  const below = (y + PITCH) * scale + 6;
  const room = map.scrollTop + map.clientHeight - tip().offsetHeight;
  Object.assign(tip().style, {
    left: `${left}px`,
    top: `${below <= room ? below : Math.max(0, y * scale - tip().offsetHeight - 6)}px`,
  });
  if (aloud) say(`${of.name}, ${of.text}, ${of.group}`);
}

/** How many pixels a unit of the picture has, and where the picture begins. */
function shown() {
  const { x, width } = svg().viewBox.baseVal;
  return { scale: svg().getBoundingClientRect().width / width, left: x };
}

function under(event) {
  const box = svg().getBoundingClientRect();
  const { scale, left } = shown();
  return places.at((event.clientX - box.left) / scale + left, (event.clientY - box.top) / scale);
}

// -- pointer and keys -----------------------------------------------------------------------------

/** The names of the groups wait until the zoom rests: to lay them out takes longer than to paint the nodes. */
function zoom(near, event = null) {
  const before = state.near;
  state.near = clamp(1, near, NEAREST);
  if (before === state.near) return;
  map.classList.add('moving');
  sized();
  const box = map.getBoundingClientRect();
  const x = event ? event.clientX - box.left : map.clientWidth / 2;
  const y = event ? event.clientY - box.top : map.clientHeight / 2;
  map.scrollLeft = ((map.scrollLeft + x) * state.near) / before - x;
  map.scrollTop = ((map.scrollTop + y) * state.near) / before - y;
  clearTimeout(state.settling);
  state.settling = setTimeout(() => map.classList.remove('moving'), SETTLE_MS);
}

function sized() {
  map.classList.toggle('near', state.near > 1);
  svg().style.width = `${state.near * 100}%`;
}

function point(at) {
  let from = null;
  at.addEventListener('pointermove', event => {
    if (from) {
      from.moved ||= Math.abs(event.clientX - from.x) + Math.abs(event.clientY - from.y) > 4;
      at.scrollLeft = from.left - (event.clientX - from.x);
      at.scrollTop = from.top - (event.clientY - from.y);
      return;
    }
    const node = under(event);
    if (node !== state.node) look(node);
  });
  at.addEventListener('pointerdown', event => {
    from = { x: event.clientX, y: event.clientY, left: at.scrollLeft, top: at.scrollTop, moved: false };
    if (event.pointerType === 'mouse' && state.near > 1) at.setPointerCapture(event.pointerId);
  });
  at.addEventListener('pointerup', async event => {
    const moved = from?.moved;
    from = null;
    const node = under(event);
    if (!moved && node >= 0) open((await names()).nodes.name[node]);
  });
  at.addEventListener('pointercancel', () => (from = null));
  at.addEventListener('pointerleave', () => {
    from = null;
    if (document.activeElement !== at) look(-1);
  });
  at.addEventListener(
    'wheel',
    event => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(state.near * Math.exp(-clamp(-1, event.deltaY / 400, 1)), event);
    },
    { passive: false },
  );
  at.addEventListener('keydown', keys);
}

const ARROWS = { arrowleft: [-1, 0], arrowright: [1, 0], arrowup: [0, -1], arrowdown: [0, 1] };

async function keys(event) {
  if (typing(event)) return;
  const key = event.key.toLowerCase();
  const step = ARROWS[key];
  if (!step && !['enter', 'w', 's', 'escape', 'home', 'end'].includes(key)) return;
  event.preventDefault();
  if (step) await look(state.node < 0 ? 0 : places.beside(state.node, ...step), { aloud: true });
  else if (key === 'home' || key === 'end') await look(key === 'home' ? 0 : places.count - 1, { aloud: true });
  else if (key === 'escape') look(-1);
  else if (key === 'enter' && state.node >= 0) open((await names()).nodes.name[state.node]);
  else if (key === 'w' || key === 's') zoom(state.near * (key === 'w' ? 1.4 : 1 / 1.4));
}

// -- the page -------------------------------------------------------------------------------------

for (const choice of document.querySelectorAll('#choice select')) {
  choice.addEventListener('change', () => choice.form.requestSubmit());
}
/** The map of the last moment follows new data. */
const follow = Number(part.dataset.follow);
if (follow) {
  setInterval(() => {
    if (!document.hidden && !state.playing && !new URL(location.href).searchParams.has('at')) load();
  }, follow * 1000);
}
take();
fit();
addEventListener('resize', fit);
part.dataset.ready = 'yes';
