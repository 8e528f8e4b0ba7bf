/* The replay of an incident: asked for on demand, then a scrubber over the moments that the page lists. */

import { say } from './app.js';

/** How often to look whether it is made, ms. */
const AGAIN_MS = 1500;

/** Shows one moment, or all; the axis' cursor goes there. */
function scrubber(section) {
  const bar = section.querySelector('.scrub');
  const moments = [...section.querySelectorAll('.moment')];
  if (!bar || !moments.length) return;
  const slider = bar.querySelector('input');
  const every = bar.querySelector('[data-every]');
  const lines = [...section.querySelectorAll('.at')];
  const step = Number(section.querySelector('svg').viewBox.baseVal.width) / moments.length;
  const show = ({ moved = true } = {}) => {
    const n = Number(slider.value);
    const all = every.getAttribute('aria-pressed') === 'true';
    moments.forEach((moment, place) => {
      moment.hidden = !all && place !== n;
      moment.classList.toggle('now', place === n);
    });
    for (const line of lines) line.setAttribute('d', `M${step * (n + 0.5)} 0V44`);
    slider.setAttribute('aria-valuetext', moments[n].querySelector('h3').textContent.replace(/\s+/g, ' ').trim());
    const axis = document.getElementById('axis')?.axis;
    if (moved && axis) axis.look(axis.since(moments[n].dataset.t), { pin: true });
  };
  slider.addEventListener('input', () => show());
  for (const button of bar.querySelectorAll('[data-step]')) {
    button.addEventListener('click', () => {
      slider.value = Number(slider.value) + Number(button.dataset.step);
      show();
    });
  }
  every.addEventListener('click', () => {
    every.setAttribute('aria-pressed', String(every.getAttribute('aria-pressed') !== 'true'));
    show({ moved: false });
  });
  bar.hidden = false;
  show({ moved: false });
}

/** Until it is made; false if it failed, which the page then says. */
async function made(address) {
  for (;;) {
    const answer = await fetch(address, { headers: { accept: 'application/json' } });
    if (answer.status !== 202) return answer.ok;
    await new Promise(done => setTimeout(done, AGAIN_MS));
  }
}

/** The button: the page's own form works without this, but the reader would have to look again. */
function ask(section) {
  const form = section.querySelector('form');
  if (!form) return;
  form.addEventListener('submit', async event => {
    event.preventDefault();
    const status = form.querySelector('[role=status]');
    form.querySelector('button').disabled = true;
    status.textContent = 'It is being made; this takes some seconds to minutes.';
    try {
      const done = await made(section.dataset.src);
      const url = new URL(location.href);
      url.searchParams.set('replay', 'yes');
      const page = await fetch(url, { headers: { accept: 'text/html' } });
      const fresh = new DOMParser().parseFromString(await page.text(), 'text/html').getElementById('replay');
      if (!fresh) throw new Error(String(page.status));
      history.replaceState(null, '', url);
      section.replaceWith(fresh);
      begin(fresh);
      say(done ? 'The replay is there' : 'It could not be replayed');
    } catch (error) {
      status.textContent = `The service does not answer: ${error.message}. Try again.`;
      form.querySelector('button').disabled = false;
    }
  });
  if (section.dataset.making) form.requestSubmit();
}

function begin(section) {
  ask(section);
  scrubber(section);
}

const section = document.getElementById('replay');
if (section) begin(section);
