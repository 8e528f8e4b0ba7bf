/* Queries that were run in this browser: a list of links beside the editor. It never leaves the browser. */

import { visible } from './visible.js';
import { element } from './lines.js';

const KEY = 'faultline.asked';
const MOST = 20;

function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? '[]');
    return Array.isArray(found) ? found.filter(item => typeof item?.q === 'string') : [];
  } catch {
    return []; // the browser keeps nothing for us: there is no list, and all else works
  }
}

/** The list, newest first; hidden while there is none. */
export function showAsked() {
  const list = document.getElementById('asked');
  const items = stored();
  list.replaceChildren(
    ...items.map(({ q, at, rows }) => {
      const url = new URL(location.href);
      url.searchParams.set('q', q);
      const link = element('a', 'mono', q.replace(/^(\s*\/\/[^\n]*\n)+/, '').replace(/\s+/g, ' '));
      link.href = url.href;
      link.title = visible(`${q}\n\n${rows} rows, ${at} UTC`);
      const item = element('li');
      item.append(link);
      return item;
    }),
  );
  list.closest('section').hidden = !items.length;
}

/** Keeps a query that was answered; a repeated one moves to the top. */
export function keepAsked(q, rows) {
  const at = new Date().toISOString().slice(0, 16).replace('T', ' ');
  const items = [{ q, at, rows }, ...stored().filter(item => item.q !== q)].slice(0, MOST);
  try {
    localStorage.setItem(KEY, JSON.stringify(items));
  } catch {
    return;
  }
  showAsked();
}
