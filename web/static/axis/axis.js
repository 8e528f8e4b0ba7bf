/* The time axis: one canvas, one cursor. Holds the state, draws a frame when something changed, and notifies others by
   events: "cursor" (where the reader looks), "ghost" (where the pointer is while the cursor is pinned), "pick" (an
   event was chosen), "range" (what is shown), "timeout" (another SlurmdTimeout was dragged to). */

import { visible } from '../visible.js';
import { Scale, clock } from './scale.js';
import { Palette } from './palette.js';
import { index, layout } from './layout.js';
import { arrows } from './arrows.js';
import { grid, header, frame, labels, marks, minimap, cursor } from './draw.js';
import { bands } from './bands.js';
import { series } from './series.js';
import { timeout } from './timeout.js';
import { attach } from './input.js';

/** The maximum number of lanes of a fold that are named when the pointer rests on it. */
const TITLED = 40;
/** At least this much of the lanes is seen under the ruler, in pixels. */
const KEPT = 60;

export class Axis extends EventTarget {
  constructor(host, data, { job = null } = {}) {
    super();
    this.host = host;
    this.job = job;
    this.take(data);
    this.scale = new Scale(data.start, data.end);
    this.scale.show(data.focus[0], data.focus[1]);
    const effect = data.arrows.find(arrow => !arrow.recovery);
    this.state = {
      cursor: effect ? this.byId.get(effect.to).t : 0,
      ghost: null,
      pinned: false,
      step: null,
      selected: null,
    };
    this.show = { causes: true, blind: true, all: false };
    this.open = new Set();
    this.hits = { marks: [], bands: [], pills: [], timeouts: [] };
    /** Another SlurmdTimeout, if the page offers one. */
    this.other = null;
    this.build();
    attach(this);
    new ResizeObserver(() => this.resize()).observe(host);
    addEventListener('scroll', () => this.scrolled() !== this.offset && this.draw(), { passive: true });
    matchMedia('(prefers-color-scheme:light)').addEventListener('change', () => this.recolour());
    new MutationObserver(() => this.recolour()).observe(document.documentElement, { attributeFilter: ['data-theme'] });
    this.resize();
  }

  take(data) {
    this.data = data;
    this.t0 = Date.parse(data.t0);
    // Date keeps milliseconds; the microseconds of T0 are kept beside it so that clocks on the axis stay exact.
    const micros = /\.(\d{3})(\d{3})Z$/.exec(data.t0);
    if (micros) this.t0 += Number(micros[2]) / 1000;
    this.lanes = index(data);
    this.byId = new Map(data.marks.map(mark => [mark.id, mark]));
  }

  /** Newer data of the same incident. A reader who chose a range keeps it, by the clock: T0 may have moved to an
   * earlier cause. Otherwise the present focus is shown. */
  update(data) {
    const { lo, hi } = this.scale;
    const [from, to] = this.data.focus;
    const untouched = Math.abs(lo - from) + Math.abs(hi - to) < 1e-6;
    const before = this.t0;
    this.take(data);
    const shift = (before - this.t0) / 1000;
    this.scale.start = data.start;
    this.scale.end = data.end;
    if (untouched) this.scale.show(data.focus[0], data.focus[1]);
    else this.scale.show(lo + shift, hi + shift);
    Object.assign(this.state, { cursor: this.state.cursor + shift, ghost: null });
    if (!this.byId.has(this.state.selected)) this.state.selected = this.state.step = null;
    this.describe();
    this.lack();
    this.resize();
  }

  build() {
    this.host.replaceChildren();
    this.canvas = document.createElement('canvas');
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.describe();
    this.tip = document.createElement('div');
    this.tip.className = 'tip';
    this.tip.hidden = true;
    this.folds = document.createElement('div');
    this.folds.className = 'folds';
    this.notes = document.createElement('p');
    this.notes.className = 'notes';
    this.host.append(this.canvas, this.folds, this.tip, this.notes);
    this.lack();
    this.g = this.canvas.getContext('2d');
    this.palette = new Palette(this.host);
  }

  describe() {
    const { marks: events, lanes } = this.data;
    const what = `Time axis with ${events.length} events in ${lanes.length} lanes.`;
    this.canvas.setAttribute('aria-label', `${what} The same stands in the table below.`);
  }

  /** What the picture does not have, in words. */
  lack() {
    this.notes.textContent = visible((this.job ? [] : (this.data.notes ?? [])).join(' '));
    this.notes.hidden = !this.notes.textContent;
  }

  recolour() {
    this.palette = new Palette(this.host);
    this.draw();
  }

  resize() {
    const width = this.host.clientWidth;
    if (!width) return;
    this.view = layout(this.data, this.lanes, width, { all: this.show.all, job: this.job, open: this.open });
    const ratio = Math.max(1, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.view.height * ratio);
    this.canvas.style.height = `${this.view.height}px`;
    this.g.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.scale.left = this.view.gutter + (this.view.small ? 10 : 14);
    this.scale.right = width - (this.view.small ? 10 : 14);
    this.placeFolds();
    this.paint();
  }

  /** The buttons are rebuilt with each layout; the focus is kept. */
  placeFolds() {
    const had = this.folds.contains(document.activeElement) ? document.activeElement.dataset.fold : null;
    this.folds.replaceChildren(...this.view.folds.map(fold => this.foldButton(fold)));
    if (had) [...this.folds.children].find(button => button.dataset.fold === had)?.focus();
  }

  /** A fold's name is a button, so that it opens by click, by touch and by key. */
  foldButton({ item, y, height, open }) {
    const button = document.createElement('button');
    button.type = 'button';
    button.dataset.fold = item.fold.id;
    button.textContent = visible(`${open ? '▾' : '▸'} ${item.label}: ${item.sub}`);
    const names = item.members.slice(0, TITLED).map(lane => lane.label.replace(/ +/g, ' '));
    const more = item.members.length - names.length;
    button.title = visible(names.join(', ') + (more ? ` and ${more} more` : ''));
    button.setAttribute('aria-expanded', String(open));
    button.style.top = `${y}px`;
    button.style.height = `${this.view.small && !open ? 18 : height - 1}px`;
    if (this.view.gutter && !open) button.style.width = `${this.view.gutter - 26}px`;
    button.addEventListener('click', () => {
      if (!this.open.delete(item.fold.id)) this.open.add(item.fold.id);
      this.resize();
      this.dispatchEvent(new CustomEvent('lanes'));
    });
    return button;
  }

  /** Requests a frame; several changes before it make one drawing. */
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const { g, palette: p, view, scale } = this;
    const began = performance.now();
    g.fillStyle = p.c.panel;
    g.fillRect(0, 0, view.width, view.height);
    grid(g, p, view, scale);
    frame(g, p, view);
    g.save();
    g.beginPath();
    g.rect(view.gutter + 1, view.top, view.width, view.height);
    g.clip();
    this.hits.bands = bands(g, p, view, scale, this.show);
    g.restore();
    cursorLine(g, p, view, scale, this.state);
    g.save();
    g.beginPath();
    g.rect(view.gutter + 1, view.top, view.width, view.height);
    g.clip();
    series(g, p, view, scale);
    marks(g, p, view, scale, null, true);
    if (this.show.causes) this.hits.pills = arrows(g, p, view, scale, this.data, this.byId, this.state);
    else this.hits.pills = [];
    this.hits.marks = marks(g, p, view, scale, this.state.selected);
    this.hits.timeouts = this.other ? timeout(g, p, view, scale, this.other, at => this.since(at)) : [];
    g.restore();
    labels(g, p, view);
    // Minimap and ruler stay in sight while the lanes of a tall axis scroll.
    this.offset = this.scrolled();
    const ruled = { ...view, header: view.header + this.offset, top: view.top + this.offset };
    g.save();
    g.translate(0, this.offset);
    minimap(g, p, view, scale, this.lanes, this.t0);
    g.restore();
    header(g, p, ruled, scale, this.t0, scale.x(this.state.cursor));
    cursor(g, p, ruled, scale, this.t0, this.state);
    this.frameMs = performance.now() - began;
  }

  /** How far the top of the canvas has scrolled out of sight, in pixels. */
  scrolled() {
    const most = this.view.height - this.view.top - KEPT;
    return Math.round(Math.max(0, Math.min(-this.canvas.getBoundingClientRect().top, most)));
  }

  /** Can all of it be seen at once? Then the wheel zooms; otherwise it scrolls, and zooms with Ctrl. */
  get fits() {
    return this.view.height <= window.innerHeight;
  }

  moved() {
    this.draw();
    this.dispatchEvent(
      new CustomEvent('range', {
        detail: {
          from: this.iso(this.scale.lo),
          to: this.iso(this.scale.hi),
          span: this.scale.span,
          whole: this.scale.end - this.scale.start,
        },
      }),
    );
  }

  zoom(factor, at = this.inside(this.state.cursor)) {
    this.scale.zoom(factor, at);
    this.moved();
  }
  pan(share) {
    this.scale.pan(this.scale.span * share);
    this.moved();
  }
  inside(t) {
    return t >= this.scale.lo && t <= this.scale.hi ? t : (this.scale.lo + this.scale.hi) / 2;
  }

  /** First from cause to effect; the second time, everything. */
  fit() {
    const { focus, start, end } = this.data;
    const near = Math.abs(this.scale.lo - focus[0]) + Math.abs(this.scale.hi - focus[1]) < this.scale.span * 0.01;
    if (near) this.scale.show(start, end);
    else this.scale.show(focus[0], focus[1]);
    this.moved();
  }

  /** Puts the cursor there; lists that follow it are notified at once when it is pinned. */
  look(t, { pin = this.state.pinned, lane = null } = {}) {
    this.state.cursor = t;
    this.state.pinned = pin;
    this.draw();
    this.dispatchEvent(
      new CustomEvent('cursor', {
        detail: { t, at: this.iso(t), pinned: pin, lane, half: Math.max(0.05, this.scale.span * 0.0135) },
      }),
    );
  }

  /** Chooses an event: cursor on it, range moved if it lies outside. */
  pick(id, { quiet = false } = {}) {
    const mark = this.byId.get(id);
    if (!mark) return;
    this.state.selected = id;
    this.state.step = this.data.arrows.some(a => a.to === id || a.from === id) ? id : null;
    if (mark.t < this.scale.lo || mark.t > this.scale.hi) {
      this.scale.show(mark.t - this.scale.span / 2, mark.t + this.scale.span / 2);
      this.moved();
    }
    this.look(mark.t, { pin: true, lane: this.lanes.get(mark.lane) });
    if (!quiet) this.dispatchEvent(new CustomEvent('pick', { detail: mark }));
  }

  release() {
    this.state.pinned = false;
    this.state.step = this.state.selected = this.state.ghost = null;
    this.draw();
    this.dispatchEvent(new CustomEvent('release'));
  }

  /** The next event of the shown lanes after the cursor; context only if nothing else is left. */
  step(direction) {
    const shown = this.data.marks.filter(
      mark => this.view.byLane.has(mark.lane) && (this.show.all || mark.role !== 'context'),
    );
    const ordered = direction > 0 ? shown : [...shown].reverse();
    const at = shown.findIndex(mark => mark.id === this.state.selected);
    const next =
      at >= 0 ? shown[at + direction] : ordered.find(mark => direction * (mark.t - this.state.cursor) > 1e-9);
    this.pick((next ?? ordered[0])?.id);
  }

  toggle(layer) {
    this.show[layer] = !this.show[layer];
    this.resize();
    this.dispatchEvent(new CustomEvent('lanes'));
    return this.show[layer];
  }

  /** RFC 3339 with microseconds for T0 + t. */
  iso(t) {
    const micros = Math.round(this.t0 * 1000) + Math.round(t * 1e6);
    const fraction = String(((micros % 1e6) + 1e6) % 1e6).padStart(6, '0');
    return `${new Date(Math.floor(micros / 1000)).toISOString().slice(0, 19)}.${fraction}Z`;
  }

  since(text) {
    const whole = Date.parse(
      text.replace(/\.\d+Z?$/, '') + (text.endsWith('Z') ? '' : 'Z').replace(/^$/, text.includes('.') ? 'Z' : ''),
    );
    const part = /\.(\d+)/.exec(text);
    return (whole - this.t0) / 1000 + (part ? Number(`0.${part[1]}`) : 0);
  }

  time(t) {
    return clock(this.t0 + t * 1000, this.scale.span < 0.5 ? 1e-6 : 0.001);
  }
}

/** Under arrows and marks, so that the cursor never hides what it points at. */
function cursorLine(g, p, view, scale, state) {
  const x = scale.x(state.cursor);
  if (x < view.gutter || x > view.width) return;
  g.fillStyle = p.c.accent;
  g.globalAlpha = 0.1;
  g.fillRect(x - 4, view.top, 8, view.height);
  g.globalAlpha = 1;
}
