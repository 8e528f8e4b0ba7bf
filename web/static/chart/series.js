/* From an answer with `render` to what is drawn: one axis, and series of numbers over it. */

/** More lines than this cannot be distinguished; the largest are drawn, and a note gives their number. */
export const MOST_SERIES = 12;
/** More bars than this cannot be read. */
export const MOST_BARS = 60;
const BARS = ['barchart', 'columnchart', 'piechart'];
const AREAS = ['areachart', 'stackedareachart'];
/** Kinds that are shown as a table only. */
const UNDRAWN = ['graph', 'ladderchart', 'pivotchart', 'plotly', 'timepivot', 'treemap'];

const wordOf = value => (value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value));

/** A timespan's text (d.hh:mm:ss.fffffff) in seconds; null if it is none. */
export function seconds(text) {
  const found = /^(-?)(?:(\d+)\.)?(\d+):(\d+):([\d.]+)$/.exec(text);
  if (!found) return null;
  const [, sign, days, ...clock] = found;
  const [h, m, s] = clock.map(Number);
  return (sign ? -1 : 1) * (Number(days ?? 0) * 86400 + h * 3600 + m * 60 + s);
}

/** A number to draw: from a number, a decimal's text, or a timespan in seconds; null if there is none. */
function amount(value) {
  if (typeof value === 'number') return Number.isFinite(value) ? value : null;
  if (typeof value === 'boolean') return Number(value);
  if (typeof value !== 'string' || !value.trim()) return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : seconds(value);
}

/** The values of the axis: times (ms), numbers, or words in the order of the rows. */
function axisOf(values) {
  const known = values.filter(value => value !== null && value !== '');
  const isTime = value => typeof value === 'string' && /^\d{4}-\d\d-\d\dT/.test(value);
  if (known.length && known.every(isTime)) return { is: 'time', at: values.map(value => Date.parse(value)) };
  if (known.length && known.every(value => amount(value) !== null)) return { is: 'number', at: values.map(amount) };
  const words = [...new Set(values.map(wordOf))];
  const place = new Map(words.map((word, n) => [word, n]));
  return { is: 'word', words, at: values.map(value => place.get(wordOf(value))) };
}

/** One row a point: series of `make-series` are arrays over one axis. */
function unfolded(rows, x, y) {
  if (!rows.some(row => Array.isArray(row[x]))) return rows;
  return rows.flatMap(row => {
    if (!Array.isArray(row[x])) return [];
    return row[x].map((at, n) =>
      row.map((value, column) => {
        if (column === x) return at;
        return y.includes(column) && Array.isArray(value) ? value[n] : value;
      }),
    );
  });
}

/** The series by name, each a Map from the axis value to its number; numbers of one value are added. */
function gathered(rows, at, y, names, columns) {
  const found = new Map();
  rows.forEach((row, n) => {
    if (!Number.isFinite(at[n])) return;
    const said = names.map(column => wordOf(row[column])).join(', ');
    for (const column of y) {
      const value = amount(row[column]);
      if (value === null) continue;
      const measure = columns[column].name;
      const name = !names.length ? measure : y.length > 1 ? `${said}: ${measure}` : said || '(empty)';
      if (!found.has(name)) found.set(name, new Map());
      const points = found.get(name);
      points.set(at[n], (points.get(at[n]) ?? 0) + value);
    }
  });
  return found;
}

const size = points => [...points.values()].reduce((sum, value) => sum + Math.abs(value), 0);

/** Each number with all before it. */
function accumulated(points) {
  let sum = 0;
  const ordered = [...points].sort(([a], [b]) => a - b);
  return new Map(ordered.map(([at, value]) => [at, (sum += value)]));
}

/** The series that are drawn, the largest first, and how many there are. */
function largest(found) {
  const all = [...found].map(([name, points]) => ({ name, points }));
  if (all.length <= MOST_SERIES) return { series: all, of: all.length };
  const series = all.toSorted((a, b) => size(b.points) - size(a.points)).slice(0, MOST_SERIES);
  return { series, of: all.length };
}

/** What an answer's chart draws; null if nothing can be. `is`: how the axis is read, `lo` and `hi` its ends, `words`
 * its words, `series` what is drawn over it `of` all; `note` states what is left out. */
export function drawn({ columns, rows, render }) {
  const place = name => columns.findIndex(column => column.name === name);
  const kind = render.visualization;
  if (UNDRAWN.includes(kind)) return { kind, note: `A ${kind} is not drawn here: the table has its rows.` };
  const [x, y, names] = [place(render.x), render.y.map(place), render.series.map(place)];
  const points = unfolded(rows, x, y);
  const axis = axisOf(points.map(row => row[x]));
  const among = names.filter(column => column !== x);
  const { series: most, of } = largest(gathered(points, axis.at, y, among, columns));
  const series = render.accumulate === true ? most.map(one => ({ ...one, points: accumulated(one.points) })) : most;
  if (!series.length) return { kind, note: `Nothing to draw: a ${kind} needs a column of numbers beside ${render.x}.` };
  const at = axis.at.filter(Number.isFinite);
  const left = axis.at.length - at.length;
  const note = [
    of > series.length && `The ${series.length} largest of ${of} series are drawn; the table has all.`,
    left && `${left} row${left === 1 ? ' has' : 's have'} no ${render.x} and no place in the chart.`,
  ]
    .filter(Boolean)
    .join(' ');
  return {
    ...axis,
    at,
    kind,
    series,
    of,
    note,
    said: render,
    lo: at.reduce((a, b) => Math.min(a, b), Infinity),
    hi: at.reduce((a, b) => Math.max(a, b), -Infinity),
    bars: BARS.includes(kind),
    filled: AREAS.includes(kind),
    stacked: kind === 'stackedareachart' || /^stacked/.test(render.kind ?? ''),
    shares: kind === 'piechart' || render.kind === 'stacked100',
  };
}

const UNITS = [
  [1e12, 'T'],
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
];

/** A number as short as its size allows: 12 k, 3.4 M, 0.02. */
export function brief(value) {
  const big = Math.abs(value);
  const [unit, letter] = UNITS.find(([least]) => big >= least) ?? [1, ''];
  const digits = big === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(big / unit)));
  return `${Number((value / unit).toFixed(big < 0.01 ? 6 : digits))}${letter ? ` ${letter}` : ''}`;
}

/** Ends and steps of a vertical axis at round numbers, about this many of them. */
export function steps(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= raw);
  const out = [];
  for (let n = Math.floor(low / step); n * step < high + step * 0.999; n++) out.push(n * step);
  return out;
}
