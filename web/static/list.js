/* J and K walk the rows of a list; Enter opens the one that has the focus, as it does for any link. */

import { typing } from './app.js';

/** The first link of each row, which opens it. */
const rows = () =>
  [...document.querySelectorAll('main .inc, main .root [data-row], main tbody tr')]
    .map(row => (row.matches('a') ? row : row.querySelector('a')))
    .filter(link => link && link.getClientRects().length);

function walk(by) {
  const all = rows();
  if (!all.length) return;
  const here = document.activeElement;
  const at = all.findIndex(link => link === here || link.closest('tr')?.contains(here));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  next.focus();
  next.scrollIntoView({ block: 'nearest' });
}

document.addEventListener('keydown', event => {
  if (typing(event) || document.querySelector('dialog[open]')) return;
  const by = { j: 1, k: -1 }[event.key.toLowerCase()];
  if (!by) return;
  event.preventDefault();
  walk(by);
});
