/* Keeps pages about something in progress current. A page with data-poll (seconds; the smallest counts) is requested
   again while it is visible; changed elements marked data-live replace their older versions. The axis gets new data
   under the reader's zoom and cursor (incident.js listens to "refresh"). A final page has no data-poll, and is not
   requested again. */

import { say } from './app.js';
import { wall } from './zone.js';

const pause = page => Math.min(...[...page.querySelectorAll('[data-poll]')].map(part => Number(part.dataset.poll)));
/** Seconds to the next request; infinite if nothing is in progress. */
let poll = pause(document);
/** After repeated failures the pauses increase up to this, seconds. */
const LONGEST_S = 60;
let failures = 0;
let since = '';
let timer = null;
let asking = false;

/** A selector for the focused element by which its successor can be found. */
function name(element) {
  for (const [key, value] of [
    ['id', element.id],
    ['href', element.getAttribute('href')],
    ['data-fold', element.dataset.fold],
  ]) {
    if (value) return `[${key}="${CSS.escape(value)}"]`;
  }
  const row = element.closest('[data-event]');
  return row ? `[data-event="${CSS.escape(row.dataset.event)}"] ${element.tagName.toLowerCase()}` : null;
}

/** Puts the newer version in place; what was opened stays open, and the focus is kept. */
function exchange(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const place = focused && name(focused);
  const opened = [...old.querySelectorAll('details')].map(details => details.open);
  [...fresh.querySelectorAll('details')].forEach((details, n) => {
    if (opened[n]) details.open = true;
  });
  old.replaceChildren(...fresh.childNodes);
  if (place) old.querySelector(place)?.focus({ preventScroll: true });
}

/** The reader is typing or has lines open there: it is not replaced. */
const busy = part => part.querySelector('.ctx:not(details)') || part.contains(document.activeElement?.closest('form'));

const source = part => part.innerHTML.replace(/\s+/g, ' ');
/** The elements as the server wrote them: scripts change what is shown, such as the highlighted step. */
const written = new Map();

function take(page) {
  let changed = 0;
  for (const part of document.querySelectorAll('[data-live]')) {
    const fresh = page.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!fresh || busy(part)) continue;
    const text = source(fresh);
    if (text === written.get(part.dataset.live)) continue;
    written.set(part.dataset.live, text);
    exchange(part, fresh);
    changed++;
  }
  return changed;
}

/** How current the page is, if it is not up to date. */
function stale(words) {
  const chip = document.getElementById('stale');
  chip.hidden = !words;
  chip.textContent = words;
}

async function refresh() {
  if (asking || document.hidden) return;
  asking = true;
  clearTimeout(timer);
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html' } });
    if (!answer.ok) throw new Error(String(answer.status));
    if (new URL(answer.url).pathname === '/login') {
      stale('not current: signed out, load the page again');
      asking = false;
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    failures = 0;
    stale('');
    if (take(page)) {
      say('The page was updated');
      document.dispatchEvent(new Event('refresh'));
    }
    poll = pause(page);
  } catch {
    if (!failures) since = wall(Date.now()).slice(11, 19);
    failures++;
    stale(`not current since ${since}: the service does not answer`);
  }
  asking = false;
  next();
}

function next() {
  clearTimeout(timer);
  if (!Number.isFinite(poll)) return;
  timer = setTimeout(refresh, Math.min(LONGEST_S, poll * 2 ** failures) * 1000);
}

if (Number.isFinite(poll)) {
  for (const part of document.querySelectorAll('[data-live]')) written.set(part.dataset.live, source(part));
  document.addEventListener('visibilitychange', refresh);
  next();
}
