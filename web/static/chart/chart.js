/* `render`: draws an answer as its query requests. */

import { element } from '../lines.js';
import { bars, card } from './bars.js';
import { Plot } from './plot.js';
import { drawn } from './series.js';
import { visible } from '../visible.js';

/** Draws into the box what can be drawn, and returns the note about it. */
export function chart(box, answer) {
  box.replaceChildren();
  box.hidden = true;
  if (!answer.render || !answer.rows.length) return '';
  const what = drawn(answer);
  if (!what.series) return what.note;
  box.hidden = false;
  if (what.render.title) box.append(element('h3', '', what.render.title));
  box.setAttribute('role', 'group');
  box.setAttribute(
    'aria-label',
    visible(`${what.kind} of ${what.render.y.join(', ')} over ${what.render.x}, ${what.series.length} series`),
  );
  if (what.kind === 'card') card(box, what);
  else if (what.kind === 'barchart' || what.kind === 'piechart')
    return [what.note, bars(box, what)].filter(Boolean).join(' ');
  else new Plot(box, what);
  return what.note;
}
