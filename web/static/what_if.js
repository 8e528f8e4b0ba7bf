/* Another SlurmdTimeout on the incident's page: dragging asks the same page as the form does. */

/** The slider must rest this long before the service is asked, ms. */
const REST_MS = 200;

/** What the answer says, for the axis. */
function read(section) {
  const { least, most, seconds, givenUp } = section.querySelector('ul').dataset;
  const lost = [...section.querySelectorAll('[data-lost]')].map(node => ({
    host: node.dataset.host,
    at: node.dataset.lost,
  }));
  return { seconds: Number(seconds), least: Number(least), most: Number(most), givenUp: JSON.parse(givenUp), lost };
}

function begin(section) {
  const form = section.querySelector('form');
  const typed = form.querySelector('input[type=number]');
  const slider = form.querySelector('input[type=range]');
  let timer = null;
  let asked = 0;
  let axis = document.getElementById('axis')?.axis;
  const show = () => {
    if (!axis) return;
    axis.other = read(section);
    axis.draw();
  };
  const ask = async () => {
    const turn = ++asked;
    const url = new URL(location.href);
    url.searchParams.set('slurmd_timeout', typed.value);
    try {
      const answer = await fetch(url, { headers: { accept: 'text/html' } });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const fresh = page.getElementById('what-if');
      if (!fresh || turn !== asked) return;
      for (const part of ['ul', '.note']) section.querySelector(part).replaceWith(fresh.querySelector(part));
      show();
      history.replaceState(null, '', url);
    } catch {
      form.submit();
    }
  };
  slider.hidden = false;
  form.querySelector('button').hidden = true;
  slider.addEventListener('input', () => {
    typed.value = slider.value;
    clearTimeout(timer);
    timer = setTimeout(ask, REST_MS);
  });
  const follow = made => {
    axis = made;
    // The handle follows the pointer; what it means is asked when it rests.
    axis.addEventListener('timeout', ({ detail: seconds }) => {
      axis.other = { ...axis.other, seconds };
      axis.draw();
      slider.max = Math.max(Number(slider.max), seconds);
      slider.value = seconds;
      slider.dispatchEvent(new Event('input'));
    });
    show();
  };
  document.addEventListener('axis', ({ detail }) => follow(detail));
  if (axis) follow(axis);
  typed.addEventListener('change', () => {
    if (!typed.checkValidity()) return;
    slider.max = Math.max(Number(slider.max), Number(typed.value));
    slider.value = typed.value;
    ask();
  });
  form.addEventListener('submit', event => {
    event.preventDefault();
    if (typed.reportValidity()) ask();
  });
}

const section = document.getElementById('what-if');
if (section) begin(section);
