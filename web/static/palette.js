/* The search dialog as a command palette: the pages, and what the buttons of this page do, found by a few letters. */

import { visible } from './visible.js';

const MOST = 40;
const BUTTONS = 'main .acts a, main .acts button, #top [data-do]:not([data-do=search], #burger)';

/** Everything that can be chosen: words, a hint, and the element that does it. */
function commands() {
  const seen = new Set();
  const all = [
    ...[...document.querySelectorAll('#top nav a')].map(target => ({ target, hint: 'page' })),
    ...[...document.querySelectorAll(BUTTONS)].map(target => ({ target, hint: 'here' })),
  ];
  return all
    .map(one => ({ ...one, words: (one.target.getAttribute('aria-label') ?? one.target.textContent).trim() }))
    .filter(({ words }) => words && !seen.has(words) && seen.add(words));
}

/** Those that have each of the typed words, which may be the beginnings of its words. */
function found(all, typed) {
  const parts = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter(({ words }) => parts.every(part => words.toLowerCase().includes(part))).slice(0, MOST);
}

class Palette {
  constructor(dialog) {
    this.dialog = dialog;
    this.input = dialog.querySelector('input[type=search]');
    this.list = dialog.querySelector('[role=listbox]');
    this.input.addEventListener('input', () => this.show());
    this.input.addEventListener('keydown', event => this.key(event));
    this.list.addEventListener('click', event => {
      const option = event.target.closest('[role=option]');
      if (option) this.run(Number(option.dataset.n));
    });
  }

  open() {
    this.all = commands();
    this.show();
  }

  show() {
    this.shown = found(this.all, this.input.value);
    this.list.replaceChildren(...this.shown.map((one, n) => this.option(one, n)));
    this.list.hidden = !this.shown.length;
    this.input.setAttribute('aria-expanded', String(this.shown.length > 0));
    this.choose(-1);
  }

  option({ words, hint }, n) {
    const option = document.createElement('li');
    option.setAttribute('role', 'option');
    option.id = `command-${n}`;
    option.dataset.n = n;
    option.append(visible(words));
    const small = document.createElement('span');
    small.className = 'faint';
    small.textContent = hint;
    option.append(small);
    return option;
  }

  /** Nothing is chosen until an arrow is pressed: Enter searches as before. */
  choose(n) {
    this.chosen = n;
    for (const [place, option] of [...this.list.children].entries()) {
      option.setAttribute('aria-selected', String(place === n));
    }
    if (n < 0) this.input.removeAttribute('aria-activedescendant');
    else this.input.setAttribute('aria-activedescendant', `command-${n}`);
    this.list.children[n]?.scrollIntoView({ block: 'nearest' });
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.shown.length) {
      event.preventDefault();
      const count = this.shown.length + 1; // the text itself is one of them
      this.choose(((this.chosen + 1 + step + count) % count) - 1);
    } else if (event.key === 'Enter' && this.chosen >= 0) {
      event.preventDefault();
      this.run(this.chosen);
    }
  }

  run(n) {
    const { target } = this.shown[n];
    this.input.blur(); // a closed dialog's input keeps the focus until the next frame, and the next key
    this.dialog.close();
    target.click();
  }
}

const made = new WeakMap();

/** Shows what can be chosen in the search dialog, which is open. */
export function palette(dialog) {
  if (!made.has(dialog)) made.set(dialog, new Palette(dialog));
  made.get(dialog).open();
}
