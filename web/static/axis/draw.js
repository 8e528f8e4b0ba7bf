/* Lanes, marks, header and minimap; bands.js draws the bands. Each function draws one thing and returns what can be
   hit. */

import { visible } from '../visible.js';
import { ahead, called } from '../zone.js';
import { clock, relative, lag } from './scale.js';
import { lower, HEADER, GROUP, MAP } from './layout.js';

const RANK = { cause: 5, effect: 4, symptom: 3, recovery: 3, context: 0 };
const LEVEL = { error: 2, warning: 1, info: 0 };
/** Marks nearer than this many pixels are one cluster. */
const APART = 9;

export function text(
  g,
  p,
  words,
  x,
  y,
  { size = 11, colour = 'ink2', weight = 400, align = 'left', halo = false } = {},
) {
  g.font = p.font(size, weight);
  g.textAlign = align;
  g.textBaseline = 'alphabetic';
  if (halo) {
    g.lineWidth = 3;
    g.strokeStyle = p.c.panel;
    g.lineJoin = 'round';
    g.strokeText(words, x, y);
  }
  g.fillStyle = p.c[colour] ?? colour;
  g.fillText(visible(words), x, y);
}

export function measure(g, p, words, size = 11, weight = 400) {
  g.font = p.font(size, weight);
  return g.measureText(visible(words)).width;
}

/** The longest of the texts that fits, or an empty one. */
export function fitting(g, p, texts, room, size = 11, weight = 400) {
  return texts.find(words => words && measure(g, p, words, size, weight) <= room) ?? '';
}

export function grid(g, p, view, scale) {
  const { out } = scale.ticks(view.small ? 84 : 92);
  g.strokeStyle = p.c.line;
  g.lineWidth = 1;
  for (const t of out) {
    const x = Math.round(scale.x(t)) + 0.5;
    g.setLineDash(Math.abs(t) < 1e-9 ? [] : [1, 3]);
    g.beginPath();
    g.moveTo(x, view.top);
    g.lineTo(x, view.height);
    g.stroke();
  }
  g.setLineDash([]);
}

export function header(g, p, view, scale, t0, cursorX) {
  const y = view.header;
  const seconds = ((t0 + ahead(t0)) / 1000) % 86400;
  const free = (x, half) =>
    x - half > view.gutter + 2 && x + half < view.width - 2 && (cursorX === null || Math.abs(x - cursorX) > half + 54);
  g.fillStyle = p.c.panel;
  g.fillRect(0, y, view.width, HEADER);
  g.strokeStyle = p.c.line;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(view.gutter, y + 18.5);
  g.lineTo(view.width, y + 18.5);
  g.moveTo(0, y + HEADER - 0.5);
  g.lineTo(view.width, y + HEADER - 0.5);
  g.stroke();
  const above = scale.ticks(view.small ? 84 : 92, seconds);
  const below = scale.ticks(view.small ? 84 : 92);
  for (const t of above.out) {
    const x = scale.x(t);
    if (free(x, 30)) text(g, p, clock(t0 + t * 1000, above.step), x, y + 13, { align: 'center' });
  }
  for (const t of below.out) {
    const x = scale.x(t);
    if (free(x, 22)) text(g, p, relative(t, below.step), x, y + 30, { align: 'center', colour: 'ink3', size: 10.5 });
  }
  if (view.gutter) {
    text(g, p, `${called(t0)}, ${new Date(t0 + ahead(t0)).toUTCString().slice(5, 16)}`, 12, y + 13);
    text(g, p, 'T0 = first evidence', 12, y + 30, { colour: 'ink3', size: 10.5 });
  }
}

export function frame(g, p, view) {
  g.strokeStyle = p.c.line;
  g.lineWidth = 1;
  for (const group of view.groups) {
    g.fillStyle = p.c.raise;
    g.fillRect(0, group.y, view.width, GROUP);
    text(g, p, group.name, view.small ? view.width - 10 : 12, group.y + 13, {
      weight: 650,
      size: 10.5,
      align: view.small ? 'right' : 'left',
    });
    if (group.hidden.length && !view.small) {
      const words = fitting(
        g,
        p,
        [`▸ ${group.hidden.join(', ')}: folded, no part in this`, `▸ ${group.hidden.length} lanes folded`],
        view.width - Math.max(view.gutter, 90) - 20,
        10.5,
      );
      text(g, p, words, Math.max(view.gutter + 14, 90), group.y + 13, { colour: 'ink3', size: 10.5 });
    }
  }
  g.beginPath();
  for (const row of [...view.rows, ...view.folds]) {
    g.moveTo(0, row.y + row.height - 0.5);
    g.lineTo(view.width, row.y + row.height - 0.5);
  }
  if (view.gutter) {
    g.moveTo(view.gutter + 0.5, 0);
    g.lineTo(view.gutter + 0.5, view.height);
  }
  g.stroke();
}

/** Names of lanes: in the gutter, or above the band if there is none. */
export function labels(g, p, view) {
  for (const { item, y, middle } of view.rows) {
    const colour = p.layer(item.layer);
    g.fillStyle = colour;
    g.beginPath();
    if (!view.gutter) {
      g.roundRect(10, y + 5, 7, 7, 2);
      g.fill();
      if (item.fold) continue;
      text(g, p, item.label, 22, y + 12.5, { colour: 'ink', size: 11.5, weight: 550, halo: true });
      text(g, p, item.sub, 29 + measure(g, p, item.label, 11.5, 550), y + 12.5, { colour: 'ink3', halo: true });
      continue;
    }
    g.roundRect(12, middle - 4, 8, 8, 2);
    g.fill();
    if (item.fold) continue;
    const room = view.gutter - 36;
    const font = item.series.length ? [11.5, 450] : [12.5, 550];
    const wide = measure(g, p, item.label, ...font);
    let name = item.label;
    while (name.length > 4 && measure(g, p, name, ...font) > room) name = `${name.slice(0, -2)}…`.replace('……', '…');
    text(g, p, name, 27, middle + 4, { colour: 'ink', size: font[0], weight: font[1] });
    if (wide + measure(g, p, item.sub) + 8 < room) {
      text(g, p, item.sub, view.gutter - 8, middle + 4, { colour: 'ink3', align: 'right' });
    }
  }
}

/** Marks, clustered where they are too dense to distinguish. Returns hit boxes with their marks. */
export function marks(g, p, view, scale, selected, ground = false) {
  const hits = [];
  for (const row of view.rows) {
    const list = row.item.marks;
    const colour = p.layer(row.item.layer);
    if (!ground) beats(g, p, view, scale, row);
    let n = lower(list, scale.lo - scale.perPixel * 10);
    const stop = lower(list, scale.hi + scale.perPixel * 10);
    while (n < stop) {
      const first = n;
      const x0 = scale.x(list[n].t);
      let x1 = x0;
      let count = 0;
      let best = list[n];
      let total = 0;
      for (; n < stop; n++) {
        const x = scale.x(list[n].t);
        if (n > first && x - x1 > APART) break;
        x1 = x;
        count++;
        total += list[n].count;
        if (weight(list[n]) > weight(best)) best = list[n];
      }
      if (ground) {
        if (x1 - x0 > 16) stretch(g, row, colour, x0, x1);
        continue;
      }
      hits.push(
        cluster(
          g,
          p,
          row,
          colour,
          { x0, x1, count, total, best, first, at: scale.x(best.t), members: list },
          scale,
          selected,
        ),
      );
    }
  }
  return hits;
}

const weight = mark => (RANK[mark.role] ?? 0) * 10 + LEVEL[mark.level];

/** A dense range is a bar under everything: overlapping glyphs would show less and cost more. */
function stretch(g, row, colour, x0, x1) {
  g.globalAlpha = 0.35;
  g.fillStyle = colour;
  g.fillRect(x0, row.middle - 4, x1 - x0, 8);
  g.globalAlpha = 1;
}

function cluster(g, p, row, colour, c, scale, selected) {
  const y = row.middle;
  const error = c.best.level === 'error';
  const context = c.best.role === 'context';
  const size = context && c.best.glyph === 'info' ? 11 : context && !error ? 12 : 14;
  if (c.best.pm && c.best.pm / scale.perPixel > 6 && c.count < 4) {
    bracket(g, scale.x(c.best.t - c.best.pm), scale.x(c.best.t + c.best.pm), y, 4, p.c.ink);
  }
  const [a, b] = (c.best.between ?? []).map(t => scale.x(t));
  if (b - a > 6) bracket(g, a, b, y, 4, p.c.ink);
  if (c.best.id === selected) {
    g.strokeStyle = p.c.accent;
    g.lineWidth = 2;
    g.beginPath();
    g.arc(c.at, y, 11, 0, 7);
    g.stroke();
  }
  const hollow = context && c.best.level === 'info';
  g.globalAlpha = hollow ? 0.85 : 1;
  p.glyph(g, c.best.glyph, c.at, y, size, colour, error ? p.c.impact : null);
  g.globalAlpha = 1;
  if (c.total > 1) {
    text(g, p, String(c.total), c.at + 7, y - 4, {
      size: 9.5,
      weight: 700,
      colour: 'ink',
      halo: true,
    });
  }
  return {
    x: Math.min(c.x0, c.at) - 8,
    y: y - 10,
    w: c.x1 - c.x0 + 16,
    h: 20,
    best: c.best,
    count: c.count,
    from: c.first,
    list: c.members,
    lane: row.item,
  };
}

/** A bracket from a to b with arms of this many pixels: a time that is only known to be between the two. */
export function bracket(g, a, b, y, arm, colour) {
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(a, y);
  g.lineTo(b, y);
  for (const x of [a, b]) {
    g.moveTo(x, y - arm);
    g.lineTo(x, y + arm);
  }
  g.stroke();
}

/** The heartbeat of a program's output: small ticks at the foot of its bar. */
function beats(g, p, view, scale, row) {
  const list = row.item.beats;
  g.fillStyle = p.c.ink2;
  let last = -9;
  for (let n = lower(list, scale.lo, t => t); n < list.length && list[n] <= scale.hi; n++) {
    const x = scale.x(list[n]);
    if (x - last >= 2) {
      g.fillRect(x, row.top + row.bar - 4, 1, 4);
      last = x;
    }
  }
}

/** The whole incident in a strip, with the shown range framed. */
export function minimap(g, p, view, scale, lanes, t0) {
  if (!view.map) return;
  const map = { left: scale.left, right: scale.right, lo: scale.start, hi: scale.end };
  const X = t => map.left + ((t - map.lo) / (map.hi - map.lo)) * (map.right - map.left);
  g.fillStyle = p.c.bg;
  g.fillRect(0, 0, view.width, MAP);
  if (view.gutter) {
    text(g, p, 'Whole incident', 12, 14, { weight: 600 });
    text(g, p, `${clock(t0 + scale.start * 1000, 1)} – ${clock(t0 + scale.end * 1000, 1)}`, 12, 28, {
      colour: 'ink3',
      size: 10.5,
    });
  }
  let n = 0;
  for (const lane of lanes.values()) {
    const colour = p.layer(lane.layer);
    const y = 5 + (n++ % 6) * 3;
    for (const band of lane.bands) {
      if (band.kind === 'down') {
        g.fillStyle = p.c['impact-band'];
        g.fillRect(X(band.start), 25, Math.max(2, X(band.end) - X(band.start)), 5);
      }
    }
    g.fillStyle = colour;
    let last = -9;
    for (const mark of lane.marks) {
      const x = X(mark.t);
      if (x - last >= 1) {
        g.fillRect(x - 0.75, y, 1.5, 7);
        last = x;
      }
    }
  }
  const a = X(scale.lo);
  const b = X(scale.hi);
  g.fillStyle = p.c.panel;
  g.globalAlpha = 0.62;
  g.fillRect(view.gutter, 0, a - view.gutter, MAP);
  g.fillRect(b, 0, view.width - b, MAP);
  g.globalAlpha = 1;
  g.strokeStyle = p.c.accent;
  g.lineWidth = 1.5;
  g.strokeRect(a, 1, Math.max(3, b - a), MAP - 2);
  g.fillStyle = p.c.accent;
  for (const x of [a, b]) {
    g.beginPath();
    g.roundRect(x - 3, 10, 6, 14, 2);
    g.fill();
  }
  g.strokeStyle = p.c.line;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(0, MAP + 0.5);
  g.lineTo(view.width, MAP + 0.5);
  g.stroke();
}

export function cursor(g, p, view, scale, t0, state) {
  const x = scale.x(state.cursor);
  if (state.ghost !== null && state.pinned) {
    const gx = scale.x(state.ghost);
    g.strokeStyle = p.c.ink3;
    g.lineWidth = 1;
    g.setLineDash([2, 3]);
    g.beginPath();
    g.moveTo(gx, view.top);
    g.lineTo(gx, view.height);
    g.stroke();
    g.setLineDash([]);
    text(g, p, lag(state.ghost - state.cursor), gx + 5, view.height - 5, { size: 10.5, colour: 'ink', halo: true });
  }
  if (x < view.gutter || x > view.width) return;
  g.strokeStyle = p.c.cursor;
  g.globalAlpha = 0.75;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(x, view.top - 4);
  g.lineTo(x, view.height);
  g.stroke();
  g.globalAlpha = 1;
  const time = clock(t0 + state.cursor * 1000, scale.span < 0.5 ? 1e-6 : 0.001);
  const wide = measure(g, p, time, 11.5, 650) + 16;
  const left = Math.min(view.width - wide - 2, Math.max(view.gutter + 2, x - wide / 2));
  g.fillStyle = p.c.ink;
  g.beginPath();
  g.roundRect(left, view.header + 2, wide, 31, 3);
  g.fill();
  text(g, p, time, left + wide / 2, view.header + 15, { colour: 'panel', weight: 650, size: 11.5, align: 'center' });
  const since = `${state.cursor < 0 ? '−' : '+'}${Math.abs(state.cursor).toFixed(3)} s`;
  text(g, p, since + (state.pinned ? '  pinned' : ''), left + wide / 2, view.header + 28, {
    colour: 'panel',
    size: 10,
    align: 'center',
  });
}
