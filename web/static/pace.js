/* The panel of step times and the time axis of a job's page have one cursor: who moves over one sees the same moment in
   the other. Both have it in seconds since 1970, so that they agree whatever part of the run each shows. */

import { clock } from './axis/scale.js';

const panel = () => document.querySelector('.paces');
/** Pictures of the panel have this much free at either side of their width (web/pace.py, EDGE and WIDE). */
const share = ({ edge, wide }) => Number(edge) / Number(wide);

let axis = document.getElementById('axis')?.axis ?? null;

/** Marks a moment in all pictures of the panel; none outside of what they show. */
function mark(at) {
  const host = panel();
  if (!host) return;
  const { first, last } = host.dataset;
  const from = Date.parse(first) / 1000;
  const until = Date.parse(last) / 1000;
  const shown = at >= from && at <= until;
  const margin = share(host.dataset);
  const x = (margin + ((1 - 2 * margin) * (at - from)) / (until - from)) * Number(host.dataset.wide);
  for (const line of host.querySelectorAll('.at')) line.setAttribute('d', shown ? `M${x.toFixed(1)} 0V999` : '');
  const output = document.getElementById('pace-at');
  if (output) output.textContent = shown ? `at ${clock(at * 1000, 1)}` : '';
}

/** The moment under the pointer, in seconds since 1970; null beside the pictures. */
function under(event) {
  const picture = event.target.closest?.('.paces svg');
  if (!picture) return null;
  const { first, last, ...sizes } = panel().dataset;
  const box = picture.getBoundingClientRect();
  const margin = share(sizes);
  const part = ((event.clientX - box.left) / box.width - margin) / (1 - 2 * margin);
  const from = Date.parse(first) / 1000;
  return from + Math.max(0, Math.min(1, part)) * (Date.parse(last) / 1000 - from);
}

document.addEventListener('pointermove', event => {
  const at = under(event);
  if (at === null) return;
  mark(at);
  if (!axis) return;
  const t = at - axis.t0 / 1000;
  if (axis.state.pinned) {
    axis.state.ghost = t;
    axis.draw();
  } else {
    axis.look(t);
  }
});

function follow(found) {
  axis = found;
  for (const kind of ['cursor', 'ghost']) axis.addEventListener(kind, event => mark(axis.t0 / 1000 + event.detail.t));
}

if (axis) follow(axis);
else document.addEventListener('axis', event => follow(event.detail), { once: true });
