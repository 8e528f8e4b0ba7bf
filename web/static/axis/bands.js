/* Bands: states, outages, late periods and job runs, with their labels as far as there is room. */

import { lag } from './scale.js';
import { bracket, fitting, measure, text } from './draw.js';

const FILL = {
  no_carrier: 'soft',
  disabled: 'soft',
  late: 'hatch',
  blind: 'hatch',
  unknown: 'hatch',
  down: 'down',
  silent: 'warn',
  drain: 'warn',
  busy: 'band',
  idle: 'idle',
  up: 'idle',
  off: 'idle',
  job: 'job',
};

export function bands(g, p, view, scale, { blind = true } = {}) {
  const hits = [];
  for (const row of view.rows) {
    row.ending = null;
    const own = p.layer(row.item.layer);
    // On a lane of a counter it would be read as a value.
    if (row.item.layer === 'link' && !row.item.series.length) thin(g, row, view, own);
    for (const band of row.item.bands) {
      const x0 = Math.max(view.gutter + 1, scale.x(band.start));
      const x1 = Math.min(view.width, scale.x(band.end));
      const kind = FILL[band.kind] ?? 'soft';
      if (x1 < view.gutter || x0 > view.width || x1 < x0 || (kind === 'hatch' && !blind)) continue;
      const box = { x: x0, y: row.top, w: Math.max(1.5, x1 - x0), h: row.bar };
      paint(g, p, box, kind, own, band);
      words(g, p, view, scale, box, kind, band, row);
      hits.push({ ...box, band, lane: row.item });
    }
  }
  return hits;
}

function thin(g, row, view, colour) {
  g.fillStyle = colour;
  g.fillRect(view.gutter + 1, row.middle - 1.5, view.width, 3);
}

function paint(g, p, { x, y, w, h }, kind, own, band) {
  g.save();
  g.fillStyle = p.c.panel;
  g.fillRect(x, y, w, h);
  g.lineWidth = 1;
  if (kind === 'soft') {
    g.globalAlpha = 0.17;
    g.fillStyle = own;
    g.fillRect(x, y, w, h);
    g.globalAlpha = 0.8;
    g.strokeStyle = own;
    if (band.kind === 'no_carrier') g.setLineDash([4, 3]);
    g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  } else if (kind === 'hatch') {
    g.fillStyle = g.createPattern(p.hatch, 'repeat');
    g.fillRect(x, y, w, h);
    g.strokeStyle = p.c.hatch;
    g.setLineDash([2, 2]);
    g.beginPath();
    g.moveTo(x + 0.5, y);
    g.lineTo(x + 0.5, y + h);
    g.moveTo(x + w - 0.5, y);
    g.lineTo(x + w - 0.5, y + h);
    g.stroke();
  } else if (kind === 'down') {
    g.fillStyle = p.c['impact-band'];
    g.fillRect(x, y, w, h);
  } else if (kind === 'warn') {
    g.fillStyle = p.c['warn-bg'];
    g.fillRect(x, y, w, h);
    g.strokeStyle = p.c.warn;
    g.setLineDash([3, 2]);
    g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  } else if (kind === 'idle') {
    g.strokeStyle = p.c.line2;
    g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  } else {
    g.fillStyle = kind === 'job' ? p.c.jobbar : p.c.band;
    g.fillRect(x, y, w, h);
  }
  g.restore();
}

/** A band's label, as far as it has room. */
function words(g, p, view, scale, box, kind, band, row) {
  if (kind === 'job') {
    if (!band.quiet) jobWords(g, p, box, band, row, scale.x(band.end) > view.width + 1);
    if (!band.open && box.x + box.w < view.width - 1) jobEnd(g, p, scale, box, band, row);
    return;
  }
  if (band.quiet) return;
  // On a narrow screen a pill replaces the label; the hatch still shows it and the table still names it.
  const pill = mark => mark.role === 'symptom' || mark.role === 'effect';
  if (kind === 'hatch' && view.small && row.item.marks.some(pill)) return;
  if (kind === 'down') until(g, p, view, scale, box, band);
  const weight = kind === 'down' ? 650 : 500;
  const texts = [band.text, band.text.replace(/^.*; /, ''), band.text.split('  ')[0], band.kind];
  const fits = fitting(g, p, texts, box.w - (kind === 'hatch' ? 60 : 20), 11, weight);
  if (!fits) return;
  const base = box.y + box.h / 2 + 4;
  if (kind === 'hatch') {
    const wide = measure(g, p, fits) + 12;
    const at = box.x + Math.max(26, (box.w - wide) / 5);
    g.fillStyle = p.c.panel;
    g.fillRect(at, box.y + 1, wide, box.h - 2);
    text(g, p, fits, at + 6, base);
    return;
  }
  const colour = { down: '#fff', warn: 'warn', soft: 'ink' }[kind] ?? 'band-ink';
  const left = box.x + (kind === 'soft' || kind === 'down' ? 14 : 7);
  text(g, p, fits, left, base, { colour, weight });
}

/** The job's name at the left of its bar, how it ended at the right; if it ended out of sight, when. */
function jobWords(g, p, { x, y, w, h }, band, row, later) {
  const base = y + h / 2 + 4;
  const colour = band.ending === 'bad' && !later ? 'impact' : 'band-ink';
  const states = band.several && later ? [] : [band.state];
  if (band.several) later = false;
  if (band.open) states[0] = `${band.state}, still running`;
  else if (later) states.splice(0, 1, `running, ${band.state} at ${lag(band.end)} ▸`, `${lag(band.end)} ▸`);
  const end = fitting(g, p, states, w - 26, 11.5, 650);
  const wide = measure(g, p, end, 11.5, 650);
  if (end) {
    row.ending = { words: end, x: x + w - 14 - wide, y, w: wide, h, base, colour };
    ended(g, p, row.ending);
  }
  const name = fitting(g, p, [band.text], w - wide - 40);
  text(g, p, name, x + 7, base, { colour: 'band-ink', weight: 500 });
}

/** How a row's job ended, in words: again over an arrow along the row, which would strike them out. */
export function ended(g, p, { words: end, x, y, w, h, base, colour }, over = false) {
  for (const fill of over ? [p.c.panel, p.c.jobbar] : []) {
    g.fillStyle = fill;
    g.fillRect(x - 4, y, w + 4, h);
  }
  text(g, p, end, x + w, base, { colour, weight: 650, size: 11.5, align: 'right' });
}

/** The end of a job's bar: a stroke, the precision of its time, and a glyph if no mark shows it. */
function jobEnd(g, p, scale, { x, y, w, h }, band, row) {
  const colour = p.c[{ bad: 'impact', good: 'ok' }[band.ending] ?? 'ink2'];
  g.fillStyle = colour;
  g.fillRect(x + w - 1.25, y - 2, 2.5, h + 4);
  const [a, b] = (band.pm ?? []).map((t) => scale.x(t));
  if (b - a >= 5) bracket(g, a, b, y + h + 3, 2, p.c.ink2);
  const glyph = { bad: 'kill', good: 'check' }[band.ending] ?? 'end';
  if (!band.told) p.glyph(g, glyph, x + w, row.middle, 13, colour);
}

/** A band that extends out of sight shows its end time. */
function until(g, p, view, scale, { y, h }, band) {
  const words = `until ${lag(band.end)} ▸`;
  const wide = measure(g, p, words) + 12;
  const x = view.width - wide - 5;
  if (scale.x(band.end) <= view.width + 1 || scale.x(band.start) > x - 120) return;
  g.fillStyle = p.c.panel;
  g.beginPath();
  g.roundRect(x, y + 2, wide, h - 4, 2);
  g.fill();
  text(g, p, words, x + 6, y + h / 2 + 4, { colour: 'ink' });
}
