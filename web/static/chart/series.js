/* From an answer with `render` to what is drawn: one axis, and series of numbers over it. */

/** More lines than this cannot be distinguished; the largest are drawn, and a note gives their number. */
export const MOST_SERIES = 12;
/** More bars than this cannot be read. */
export const MOST_BARS = 60;
const BARS = ['barchart', 'columnchart', 'piechart'];
const AREAS = ['areachart', 'stackedareachart'];
/** Kinds that are shown as a table only. */
const UNDRAWN = ['graph', 'ladderchart', 'pivotchart', 'plotly', 'timepivot', 'treemap'];

const TIME = /^\d{4}-\d\d-\d\dT/;

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
  const isTime = value => typeof value === 'string' && TIME.test(value);
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

/** The series by name: `points` is a Map from the axis value to its numbers, `gaps` the values with none. */
function gathered(rows, at, y, names, columns) {
  const found = new Map();
  rows.forEach((row, n) => {
    if (!Number.isFinite(at[n])) return;
    const label = names.map(column => wordOf(row[column])).join(', ');
    for (const column of y) {
      const value = amount(row[column]);
      const measure = columns[column].name;
      const name = !names.length ? measure : y.length > 1 ? `${label}: ${measure}` : label || '(empty)';
      if (!found.has(name)) found.set(name, { name, column, points: new Map(), gaps: new Set() });
      const { points, gaps } = found.get(name);
      if (value === null) gaps.add(at[n]);
      else if (points.has(at[n])) points.get(at[n]).push(value);
      else points.set(at[n], [value]);
    }
  });
  return [...found.values()].filter(({ points }) => points.size);
}

const total = values => values.reduce((sum, value) => sum + value, 0);
const size = points => [...points.values()].reduce((sum, values) => sum + Math.abs(total(values)), 0);
const several = ({ points }) => [...points.values()].some(values => values.length > 1);

/** One number for each axis value. */
const added = one => ({ ...one, points: new Map([...one.points].map(([at, values]) => [at, [total(values)]])) });

/** The note about series with several values at one place. */
function crowding(crowded, all, x, sums) {
  const which = crowded.length === all.length ? 'Series have' : `${crowded.length} of ${all.length} series have`;
  return `${which} several values at one ${x}: ${sums ? 'they are added' : 'each is a point, and no line is drawn'}.`;
}

/** Each number with all before it. */
function accumulated(one) {
  let sum = 0;
  const ordered = [...one.points].sort(([a], [b]) => a - b);
  return { ...one, points: new Map(ordered.map(([at, values]) => [at, [(sum += total(values))]])) };
}

/** The series that are drawn, the largest first, and how many there are. */
function largest(all) {
  if (all.length <= MOST_SERIES) return { series: all, of: all.length };
  const series = all.toSorted((a, b) => size(b.points) - size(a.points)).slice(0, MOST_SERIES);
  return { series, of: all.length };
}

/** The axis and the measures. `make-series` names no times: its axis is the column of arrays that has them.
 * Columns of anomalies are marks, not lines. */
function overTime(columns, rows, x, y, marked) {
  const hasTimes = n => rows.some(row => Array.isArray(row[n]) && row[n].some(value => TIME.test(value)));
  const isOther = rows.some(row => Array.isArray(row[x])) && !hasTimes(x);
  const times = isOther ? columns.findIndex((_, n) => hasTimes(n)) : -1;
  const all = times < 0 ? y : [...new Set([...y, x])];
  return { x: times < 0 ? x : times, y: all.filter(n => n !== times && !marked.includes(n)).sort((a, b) => a - b) };
}

/** The points of a measure that a column calls anomalies: [axis value, number]. */
function anomaliesOf(rows, at, column, measure, series) {
  const drawn = new Set(series.filter(one => one.column === measure).flatMap(one => [...one.points.keys()]));
  return rows.flatMap((row, n) =>
    amount(row[column]) && amount(row[measure]) !== null && drawn.has(at[n]) ? [[at[n], amount(row[measure])]] : [],
  );
}

/** The step of times that are bins, or samples, of one width; null if they are moments. Whole seconds may be either. */
function gridOf(at) {
  const places = [...new Set(at)].sort((a, b) => a - b);
  const divisor = (a, b) => (b ? divisor(b, a % b) : a);
  const step = places.slice(1).reduce((found, p, n) => divisor(found, p - places[n]), 0);
  return places.length > 2 && step > 1000 ? step : null;
}

/** What an answer's chart draws; null if nothing can be. `is`: how the axis is read, `lo` and `hi` its ends, `words`
 * its words, `series` what is drawn over it `of` all; `note` states what is left out. */
export function drawn({ columns, rows, render }) {
  const place = name => columns.findIndex(column => column.name === name);
  const kind = render.visualization;
  if (UNDRAWN.includes(kind)) return { kind, note: `A ${kind} is not drawn here: the table has its rows.` };
  const names = render.series.map(place);
  const marked = [render.anomalycolumns ?? []].flat().map(place);
  const { x, y } = overTime(columns, rows, place(render.x), render.y.map(place), marked);
  const points = unfolded(rows, x, [...y, ...marked]);
  const axis = axisOf(points.map(row => row[x]));
  const among = names.filter(column => column !== x);
  const { series: most, of } = largest(gathered(points, axis.at, y, among, columns));
  const stacked = kind === 'stackedareachart' || /^stacked/.test(render.kind ?? '');
  const sums = BARS.includes(kind) || AREAS.includes(kind) || stacked || render.accumulate === true;
  const crowded = most.filter(several);
  const one = render.accumulate === true ? accumulated : sums ? added : each => ({ ...each, dots: several(each) });
  const series = most.map(one);
  const anomalies = marked.flatMap((column, n) => anomaliesOf(points, axis.at, column, y[n], series));
  if (!series.length) return { kind, note: `Nothing to draw: a ${kind} needs a column of numbers beside ${render.x}.` };
  const at = axis.at.filter(Number.isFinite);
  const left = axis.at.length - at.length;
  const note = [
    of > series.length && `The ${series.length} largest of ${of} series are drawn; the table has all.`,
    left && `${left} row${left === 1 ? ' has' : 's have'} no ${columns[x].name} and no place in the chart.`,
    crowded.length && !['scatterchart', 'card'].includes(kind) && crowding(crowded, most, columns[x].name, sums),
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
    render,
    lo: at.reduce((a, b) => Math.min(a, b), Infinity),
    hi: at.reduce((a, b) => Math.max(a, b), -Infinity),
    bars: BARS.includes(kind),
    filled: AREAS.includes(kind),
    stacked,
    anomalies,
    grid: axis.is === 'time' ? gridOf(at) : null,
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
