/* Horizontal bars: one row a label, as text for screen readers, too. Shares of a whole are bars as well: lengths are
   compared more easily than angles. */

import { element } from '../lines.js';
import { brief, MOST_BARS } from './series.js';

/** The rows of a bar chart or of shares: labels and their numbers, series by series if there are several. */
function rowsOf({ is, words, series, at, shares }) {
  const places = [...new Set(at)];
  const many = series.length > 1;
  const label = p =>
    is === 'word' ? words[p] : is === 'time' ? new Date(p).toISOString().slice(0, 19).replace('T', ' ') : brief(p);
  const rows = places.flatMap(p =>
    series
      .filter(({ points }) => points.has(p))
      .map(({ name, points }) => [many ? `${label(p)}: ${name}` : label(p), points.get(p)[0]]),
  );
  return shares ? rows.toSorted((a, b) => b[1] - a[1]) : rows;
}

/** Draws the bars into a box, and states what is left out. */
export function bars(box, drawn) {
  const rows = rowsOf(drawn);
  const sum = rows.reduce((all, [, value]) => all + value, 0) || 1;
  const most = rows.reduce((all, [, value]) => Math.max(all, Math.abs(value)), 0) || 1;
  const list = element('ul', 'bars');
  for (const [name, value] of rows.slice(0, MOST_BARS)) {
    const bar = element('span', value < 0 ? 'bar under' : 'bar');
    bar.style.width = `${(100 * Math.abs(value)) / most}%`;
    const track = element('span', 'track');
    track.append(bar);
    const share = drawn.shares ? ` (${((100 * value) / sum).toFixed(1)} %)` : '';
    const item = element('li');
    item.append(
      element('span', 'name', name || '(empty)'),
      track,
      element('span', 'amount', `${value.toLocaleString('en', { maximumFractionDigits: 3 })}${share}`),
    );
    list.append(item);
  }
  box.append(list);
  return rows.length > MOST_BARS ? `${MOST_BARS} of ${rows.length} bars are drawn; the table has all.` : '';
}

/** Single numbers, large. */
export function card(box, { series }) {
  const list = element('ul', 'cards');
  for (const { name, points } of series) {
    const item = element('li');
    item.append(element('b', '', [...points.values()].at(-1).at(-1).toLocaleString('en')), element('span', '', name));
    list.append(item);
  }
  box.append(list);
}
