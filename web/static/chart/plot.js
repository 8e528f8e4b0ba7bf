/* Lines, areas, points and columns over one axis on a canvas, with a readout under the pointer. */

import { visible } from '../visible.js';
import { clock, Scale } from '../axis/scale.js';
import { element } from '../lines.js';
import { ahead } from '../zone.js';
import { brief, steps } from './series.js';

const EDGE = { left: 52, right: 14, top: 18, bottom: 34 };
const HEIGHT = 250;
const HUES = ['link', 'kernel', 'slurmd', 'switch', 'ctld', 'impact'];
/** Hues repeat with another stroke: series can be distinguished without colour, too. */
const DASHES = [[], [5, 3]];
/** The approximate distance between labels, pixels. */
const APART = { x: 110, y: 44 };

/** The stroke of the nth series. */
const look = n => ({ hue: HUES[n % HUES.length], dash: DASHES[Math.floor(n / HUES.length) % DASHES.length] });

/** For each series its points [x, low, high] in order; stacked ones are on top of each other. One of a series without a
 * line has every value. */
function layers({ series, at, stacked, shares }) {
  const places = [...new Set(at)].sort((a, b) => a - b);
  if (!stacked) {
    return series.map(({ points }) => places.flatMap(p => (points.get(p) ?? []).map(value => [p, 0, value])));
  }
  const height = new Map(places.map(p => [p, 0]));
  const sum = new Map(places.map(p => [p, series.reduce((all, { points }) => all + (points.get(p)?.[0] ?? 0), 0)]));
  return series.map(({ points }) =>
    places.map(p => {
      const low = height.get(p);
      const value = points.get(p)?.[0] ?? 0;
      height.set(p, low + (shares ? (100 * value) / (sum.get(p) || 1) : value));
      return [p, low, height.get(p)];
    }),
  );
}

/** The stretches of a line: it ends where the series says that it has no value, and at an empty bin. */
function stretches(points, { gaps }, grid) {
  const out = [];
  let last = null;
  for (const point of points) {
    const empty = () => [...gaps].some(at => last < at && at < point[0]);
    if (last === null || (grid && point[0] - last > 1.5 * grid) || empty()) out.push([]);
    out.at(-1).push(point);
    last = point[0];
  }
  return out;
}

/** Ticks of the horizontal axis: positions and labels. */
function marks({ is, words, lo, hi }, wide) {
  const most = Math.max(2, Math.floor(wide / APART.x));
  if (is === 'word') {
    const every = Math.ceil(words.length / most);
    return words.map((word, n) => [n, word]).filter(([n]) => n % every === 0);
  }
  if (is === 'number')
    return steps(lo, hi, most)
      .filter(n => n >= lo && n <= hi)
      .map(n => [n, brief(n)]);
  const scale = new Scale(lo / 1000, hi / 1000);
  scale.right = wide;
  const { step, out } = scale.ticks(APART.x, ahead(lo) / 1000);
  return out.map(t => [t * 1000, clock(t * 1000, step)]);
}

export class Plot {
  constructor(box, drawn) {
    this.drawn = drawn;
    this.layers = layers(drawn);
    this.canvas = element('canvas');
    this.tip = element('div', 'tip');
    this.tip.hidden = true;
    const face = element('div', 'face');
    face.append(this.canvas, this.tip);
    box.append(face);
    if (drawn.render.legend !== 'hidden') box.append(this.legend());
    this.canvas.addEventListener('pointermove', event => this.read(event));
    this.canvas.addEventListener('pointerleave', () => this.forget());
    new ResizeObserver(() => this.draw()).observe(face);
  }

  /** The range of the axes: bars and areas start at zero, and bars need half a step at both ends. */
  span() {
    const { bars, filled, stacked, lo, hi, at, is, render } = this.drawn;
    const ends = this.layers.flatMap(points => points.flatMap(([, low, high]) => (stacked ? [low, high] : [high])));
    const grounded = bars || filled || render.yaxis !== 'log';
    const low = render.ymin ?? ends.reduce((a, b) => Math.min(a, b), grounded ? 0 : Infinity);
    const high = render.ymax ?? ends.reduce((a, b) => Math.max(a, b), grounded ? 0 : -Infinity);
    const places = [...new Set(at)].sort((a, b) => a - b);
    const gaps = places.slice(1).map((p, n) => p - places[n]);
    const gap = gaps.length ? gaps.reduce((a, b) => Math.min(a, b)) : is === 'time' ? 60_000 : 1;
    const room = bars || lo === hi ? gap / 2 : 0;
    return {
      x: [lo - room, hi + room],
      y: steps(low, high, Math.floor((HEIGHT - EDGE.top - EDGE.bottom) / APART.y)),
      gap,
    };
  }

  draw() {
    const wide = this.canvas.clientWidth;
    if (!wide) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = wide * ratio;
    this.canvas.height = HEIGHT * ratio;
    this.g = this.canvas.getContext('2d');
    this.g.scale(ratio, ratio);
    const style = getComputedStyle(this.canvas);
    this.colour = name => style.getPropertyValue(`--${name}`).trim();
    const { x, y, gap } = this.span();
    const log = this.drawn.render.yaxis === 'log';
    const up = value => (log ? Math.log10(Math.max(value, 1e-9)) : value);
    const [low, high] = log ? [up(Math.max(y.find(n => n > 0) ?? 1, 1e-9)), up(y.at(-1))] : [y[0], y.at(-1)];
    const inner = { wide: wide - EDGE.left - EDGE.right, tall: HEIGHT - EDGE.top - EDGE.bottom };
    this.x = at => EDGE.left + ((at - x[0]) / (x[1] - x[0] || 1)) * inner.wide;
    this.y = value => EDGE.top + (1 - (Math.max(up(value), low) - low) / (high - low || 1)) * inner.tall;
    this.ruled(y, wide, log);
    const one = this.drawn.bars ? Math.max(1, ((inner.wide * gap) / (x[1] - x[0] || 1)) * 0.8) : 0;
    this.layers.forEach((points, n) => this.layer(points, n, one));
    this.rings();
  }

  /** Lines and labels of both axes. */
  ruled(values, wide, log) {
    const { g } = this;
    g.font = `10.5px ${this.colour('sans')}`;
    g.strokeStyle = this.colour('line');
    g.fillStyle = this.colour('ink3');
    g.textAlign = 'right';
    for (const value of log ? values.filter(n => n > 0) : values) {
      const y = Math.round(this.y(value)) + 0.5;
      g.beginPath();
      g.moveTo(EDGE.left, y);
      g.lineTo(wide - EDGE.right, y);
      g.stroke();
      g.fillText(brief(value) + (this.drawn.shares ? ' %' : ''), EDGE.left - 6, y + 3.5);
    }
    g.textAlign = 'center';
    for (const [at, word] of marks(this.drawn, wide - EDGE.left - EDGE.right)) {
      const x = Math.min(wide - 30, Math.max(EDGE.left + 8, this.x(at)));
      g.fillText(visible(word.length > 18 ? `${word.slice(0, 17)}…` : word), x, HEIGHT - 18);
    }
    const { xtitle, ytitle } = this.drawn.render;
    if (xtitle) g.fillText(visible(xtitle), EDGE.left + (wide - EDGE.left - EDGE.right) / 2, HEIGHT - 4);
    g.textAlign = 'left';
    if (ytitle) g.fillText(visible(ytitle), 4, 9);
  }

  layer(points, n, one) {
    const { g, drawn } = this;
    const { hue, dash } = look(n);
    g.fillStyle = g.strokeStyle = this.colour(hue);
    if (drawn.bars) {
      const share = drawn.stacked ? 1 : this.layers.length;
      const left = drawn.stacked ? 0 : n;
      g.globalAlpha = dash.length ? 0.55 : 1;
      for (const [at, low, high] of points.filter(([, low, high]) => low !== high)) {
        const [top, foot] = [this.y(high), this.y(low)].sort((a, b) => a - b);
        g.fillRect(
          this.x(at) - one / 2 + (left * one) / share,
          top,
          Math.max(1, one / share - 1),
          Math.max(1, foot - top),
        );
      }
      g.globalAlpha = 1;
      return;
    }
    const series = drawn.series[n];
    if (drawn.kind === 'scatterchart' || series.dots) {
      for (const point of points) this.dot(point);
      return;
    }
    for (const some of drawn.stacked ? [points] : stretches(points, series, drawn.grid)) this.line(some, dash);
  }

  dot([at, , high]) {
    this.g.fillRect(this.x(at) - 2, this.y(high) - 2, 4, 4);
  }

  /** One stretch of a line. */
  line(points, dash) {
    const { g, drawn } = this;
    if (points.length === 1) return this.dot(points[0]);
    g.setLineDash(dash);
    g.lineWidth = 1.6;
    g.beginPath();
    points.forEach(([at, , high], k) => (k ? g.lineTo(this.x(at), this.y(high)) : g.moveTo(this.x(at), this.y(high))));
    g.stroke();
    g.setLineDash([]);
    if (drawn.filled || drawn.stacked) {
      for (const [at, low] of points.toReversed()) g.lineTo(this.x(at), this.y(low));
      g.globalAlpha = 0.25;
      g.fill();
      g.globalAlpha = 1;
    }
  }

  /** Rings around what the query calls anomalies. */
  rings() {
    const { g } = this;
    g.strokeStyle = this.colour('impact');
    g.lineWidth = 1.6;
    for (const [at, value] of this.drawn.anomalies) {
      g.beginPath();
      g.arc(this.x(at), this.y(value), 5, 0, 2 * Math.PI);
      g.stroke();
    }
  }

  legend() {
    const list = element('ul', 'legend');
    this.drawn.series.forEach(({ name }, n) => {
      const { hue, dash } = look(n);
      const key = element('i', dash.length ? 'key dashed' : 'key');
      key.style.setProperty('--key', `var(--${hue})`);
      const item = element('li');
      item.append(key, visible(name));
      list.append(item);
    });
    return list;
  }

  /** The values of all series at the point nearest to the pointer. */
  read(event) {
    if (!this.x) return;
    const { at, is, words, series } = this.drawn;
    const here = at.reduce((best, p) =>
      Math.abs(this.x(p) - event.offsetX) < Math.abs(this.x(best) - event.offsetX) ? p : best,
    );
    const label = is === 'word' ? words[here] : is === 'number' ? brief(here) : clock(here, 1);
    const head = element(
      'b',
      '',
      is === 'time' ? `${new Date(here + ahead(here)).toISOString().slice(0, 10)} ${label}` : label,
    );
    const rows = series
      .filter(({ points }) => points.has(here))
      .flatMap(({ name, points }) => points.get(here).map(value => [name, value]))
      .toSorted((a, b) => b[1] - a[1]);
    this.tip.replaceChildren(
      head,
      ...rows.map(([name, value]) => element('div', '', `${name}  ${value.toLocaleString('en')}`)),
    );
    this.tip.hidden = false;
    const right = this.x(here) > this.canvas.clientWidth / 2;
    this.tip.style.left = right ? '' : `${this.x(here) + 10}px`;
    this.tip.style.right = right ? `${this.canvas.clientWidth - this.x(here) + 10}px` : '';
  }

  forget() {
    this.tip.hidden = true;
  }
}
