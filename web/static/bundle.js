/* The script of a bundle, a page without a server: the axis, the chain and the lines move together, as on the page of
   an incident, over data that the page itself holds. */

import { Axis } from './axis/axis.js';
import { buttons, moves, steps } from './axis/controls.js';

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

function keys(axis, walk) {
  const does = moves(axis, walk);
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
  buttons(axis);
  host.dataset.ready = 'yes';
}
start();
