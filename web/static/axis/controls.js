/* What moves an axis from outside of its canvas, on the page of an incident and in a bundle: the steps of the chain,
   keys and buttons. */

/** The steps of the chain are chosen by click, by key (the returned function walks them) and by the axis. `tell`
 * receives the mark that was picked. */
export function steps(axis, tell = () => {}) {
  // The list is replaced while the incident is in progress: it is looked up each time.
  const all = () => [...document.querySelectorAll('#chain > li')];
  const light = mark => {
    const ids = [mark?.id, mark?.told_by].filter(Boolean);
    const on = item => ids.includes(item.dataset.mark) || ids.includes(item.dataset.event);
    for (const item of all()) item.classList.toggle('on', on(item));
  };
  const go = item => {
    axis.pick(item.dataset.mark);
    for (const other of all()) other.classList.toggle('on', other === item);
    item.scrollIntoView({ block: 'nearest' });
  };
  document.addEventListener('click', event => {
    const item = event.target.closest('#chain > li > .n')?.parentElement;
    if (!item) return;
    go(item);
    axis.host.scrollIntoView({ block: 'nearest' });
  });
  axis.addEventListener('pick', event => {
    if (!document.querySelector(`#chain > li.on[data-mark="${CSS.escape(event.detail.id)}"]`)) light(event.detail);
    tell(event.detail);
  });
  axis.addEventListener('release', () => light(null));
  return by => {
    const items = all();
    if (!items.length) return;
    const at = items.findIndex(item => item.classList.contains('on'));
    go(items[Math.min(items.length - 1, Math.max(0, at + by))]);
  };
}

/** What each key does. */
export const moves = (axis, walk) => ({
  w: () => axis.zoom(0.7),
  s: () => axis.zoom(1 / 0.7),
  a: () => axis.pan(-0.2),
  d: () => axis.pan(0.2),
  f: () => axis.fit(),
  e: event => axis.step(event.shiftKey ? -1 : 1),
  j: () => walk?.(1),
  k: () => walk?.(-1),
  escape: () => axis.release(),
});

/** The buttons in the head of the axis. */
export function buttons(axis) {
  const does = { in: () => axis.zoom(0.6), out: () => axis.zoom(1 / 0.6), fit: () => axis.fit() };
  for (const button of document.querySelectorAll('[data-axis]')) {
    button.addEventListener('click', () => does[button.dataset.axis]());
  }
  for (const button of document.querySelectorAll('[data-layer]')) {
    button.addEventListener('click', () => {
      button.setAttribute('aria-pressed', String(axis.toggle(button.dataset.layer)));
    });
  }
}
