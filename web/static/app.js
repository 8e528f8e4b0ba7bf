/* What every page has: theme, search, keys, range presets, copying, file buttons, and the count of late streams. */

import { around } from './lines.js';
import { visible } from './visible.js';
import { other } from './zone.js';

const root = document.documentElement;
const dark = () =>
  root.dataset.theme ? root.dataset.theme === 'dark' : !matchMedia('(prefers-color-scheme:light)').matches;
export const say = words => {
  document.getElementById('status').textContent = visible(words);
};
export const typing = event =>
  event.target.closest?.('input, textarea, select, [contenteditable]') ||
  event.ctrlKey ||
  event.metaKey ||
  event.altKey;

/** Links and forms of this page were written with the theme that was pinned then. */
function repin() {
  for (const link of document.querySelectorAll('a[href*="theme="]')) {
    const url = new URL(link.href);
    url.searchParams.set('theme', root.dataset.theme);
    link.href = url.href;
  }
  for (const input of document.querySelectorAll('input[type=hidden][name=theme]')) input.value = root.dataset.theme;
}

function theme() {
  root.dataset.theme = dark() ? 'light' : 'dark';
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
  const url = new URL(location.href);
  if (url.searchParams.has('theme')) {
    url.searchParams.set('theme', root.dataset.theme);
    history.replaceState(null, '', url);
    repin();
  }
  say(`${root.dataset.theme} theme`);
}

/** Times in the browser's zone or in UTC: the server writes them, so the page is reloaded. */
function zone() {
  const next = other();
  if (next === root.dataset.zone) {
    say('This browser is in UTC itself');
    return;
  }
  document.cookie = `zone=${encodeURIComponent(next)}; path=/; max-age=31536000; samesite=lax`;
  const url = new URL(location.href);
  if (url.searchParams.has('zone')) url.searchParams.set('zone', next);
  location.replace(url);
}

function open(id) {
  const dialog = document.getElementById(id);
  if (!dialog) return; // who sees only their own jobs searches nothing else
  if (!dialog.open) dialog.showModal();
  dialog.querySelector('input[type=search]')?.select();
  if (id === 'search') import('./palette.js').then(({ palette }) => palette(dialog));
}

function menu(button) {
  const on = document.getElementById('top').classList.toggle('open');
  button.setAttribute('aria-expanded', String(on));
}

async function copy(button, words) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(words);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Copying is not allowed here';
  }
  say(button.textContent);
  setTimeout(() => {
    button.textContent = before;
  }, 1600);
}

const DO = { theme, zone, search: () => open('search'), keys: () => open('keys'), menu };

document.addEventListener('click', event => {
  const target = event.target.closest('[data-do], [data-copy], [data-copy-link], [data-file], [data-from]');
  if (event.target.tagName === 'DIALOG') event.target.close();
  if (!target) return;
  if (target.dataset.do) {
    DO[target.dataset.do](target);
  } else if (target.dataset.copy !== undefined) {
    copy(target, target.dataset.copy);
  } else if (target.dataset.copyLink !== undefined) {
    copy(target, location.href);
  } else if (target.dataset.file) {
    around(target);
  } else if (target.dataset.from !== undefined) {
    const form = target.closest('form');
    form.elements.from.value = target.dataset.from;
    form.elements.to.value = '';
    form.requestSubmit();
  }
});

document.addEventListener('keydown', event => {
  const inText = event.target.closest?.('input, textarea, select, [contenteditable]');
  const control = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
  if (control && event.key === 'k' && !inText) {
    event.preventDefault();
    open('search');
  }
  if (typing(event)) return;
  if (event.key === '/') {
    event.preventDefault();
    open('search');
  }
  if (event.key === '?') {
    event.preventDefault();
    open('keys');
  }
});

/** Late streams concern the whole service: every page shows them, discreetly, with a link. */
async function late() {
  const chip = document.getElementById('late');
  if (!chip) return;
  try {
    const answer = await fetch('/api/v1/sources');
    if (!answer.ok) return;
    const body = await answer.json();
    if (!body.late) return;
    chip.querySelector('span').textContent = `${body.late} of ${body.total} streams came late`;
    chip.title = chip.textContent.trim();
    chip.hidden = false;
  } catch {
    /* The service is down; the next page reports it better than a chip could. */
  }
}
late();
