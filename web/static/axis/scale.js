/* Time to pixels and back, the limits of zooming, and ticks at round steps. Times are seconds after T0. */

import { wall } from '../zone.js';

const STEPS = [
  1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5,
  10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000, 31536000,
];
/** Below this the clocks of the sources are meaningless. */
const SHORTEST = 0.0005;

export class Scale {
  constructor(start, end) {
    this.start = start;
    this.end = end;
    this.lo = start;
    this.hi = end;
    this.left = 0;
    this.right = 1;
  }

  x(t) {
    return this.left + ((t - this.lo) / (this.hi - this.lo)) * (this.right - this.left);
  }
  t(x) {
    return this.lo + ((x - this.left) / (this.right - this.left)) * (this.hi - this.lo);
  }
  get span() {
    return this.hi - this.lo;
  }
  get perPixel() {
    return this.span / Math.max(1, this.right - this.left);
  }

  /** Shows [lo, hi], kept inside the data and not shorter than the clocks allow. */
  show(lo, hi) {
    const whole = this.end - this.start;
    const length = Math.min(whole, Math.max(SHORTEST, hi - lo));
    const middle = (lo + hi) / 2;
    this.lo = Math.min(Math.max(this.start, hi - lo < length ? middle - length / 2 : lo), this.end - length);
    this.hi = this.lo + length;
  }

  zoom(factor, at) {
    this.show(at - (at - this.lo) * factor, at + (this.hi - at) * factor);
  }
  pan(by) {
    const length = this.span;
    const lo = Math.min(Math.max(this.start, this.lo + by), this.end - length);
    this.show(lo, lo + length);
  }

  /** Tick times for labels about `apart` pixels from each other; `offset` aligns them to the wall clock. */
  ticks(apart, offset = 0) {
    const wanted = this.perPixel * apart;
    const step = STEPS.find(s => s >= wanted) ?? STEPS[STEPS.length - 1];
    const out = [];
    for (let n = Math.ceil((this.lo + offset) / step); n * step - offset <= this.hi; n++) out.push(n * step - offset);
    return { step, out };
  }
}

/** Time of day in the reader's zone, as fine as the step needs. */
export function clock(ms, step) {
  const text = wall(Math.round(ms * 1000) / 1000);
  if (step >= 86400) return text.slice(5, 10);
  if (step >= 60) return text.slice(11, 16);
  if (step >= 1) return text.slice(11, 19);
  const micros = Math.round((ms - Math.floor(ms / 1000) * 1000) * 1000);
  return (
    text.slice(11, 20) +
    String(Math.min(999999, micros))
      .padStart(6, '0')
      .slice(0, step >= 0.001 ? 3 : 6)
  );
}

/** A lag in the page's own format: 3 ms, 35.0 s, 12 min. */
export function lag(seconds) {
  const size = Math.abs(seconds);
  const sign = seconds < 0 ? '−' : '+';
  if (size === 0) return '0 s';
  if (size < 0.001) return `${sign}${(size * 1e6).toFixed(0)} µs`;
  if (size < 1) return `${sign}${(size * 1e3).toFixed(size < 0.01 ? 1 : 0)} ms`;
  if (size < 600) return `${sign}${size.toFixed(size < 100 ? 1 : 0)} s`;
  if (size < 7200) return `${sign}${(size / 60).toFixed(0)} min`;
  return `${sign}${(size / 3600).toFixed(1)} h`;
}

/** A tick's distance from T0, without noise: T0, +10 s, +0.5 s, +2 ms. */
export function relative(t, step) {
  if (Math.abs(t) < step / 1e3) return 'T0';
  const sign = t < 0 ? '−' : '+';
  const size = Math.abs(t);
  if (step < 0.001) return `${sign}${(size * 1e6).toFixed(0)} µs`;
  if (step < 1 && size < 1) return `${sign}${(size * 1e3).toFixed(0)} ms`;
  if (step < 1) return `${sign}${size.toFixed(step < 0.01 ? 3 : step < 0.1 ? 2 : 1)} s`;
  if (size < 600) return `${sign}${size.toFixed(0)} s`;
  return size < 7200 ? `${sign}${(size / 60).toFixed(0)} min` : `${sign}${(size / 3600).toFixed(1)} h`;
}
