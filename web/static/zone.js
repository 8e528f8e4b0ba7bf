/* The zone of the shown times: the page's data-zone, UTC unless the reader chose another. Addresses keep UTC. */

export const UTC = 'UTC';
const zone = document.documentElement.dataset.zone || UTC;
/** Clocks are set on a quarter of an hour of UTC, all over the world. */
const QUARTER = 900e3;
const offsets = new Map();
let format;

/** How far the zone's wall clock is ahead of UTC at a moment, in ms. */
export function ahead(ms) {
  if (zone === UTC) return 0;
  const since = Math.floor(ms / QUARTER) * QUARTER;
  if (!offsets.has(since)) offsets.set(since, measured(since));
  return offsets.get(since);
}

function measured(ms) {
  format ??= new Intl.DateTimeFormat('en-GB', {
    timeZone: zone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });
  const part = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) - ms;
}

/** The wall clock at a moment, written as ISO without a zone. */
export const wall = ms => new Date(ms + ahead(ms)).toISOString().slice(0, -1);

/** The wall clock of a moment in RFC 3339 with as many digits as it has, which Date would cut. */
export const wallOf = text =>
  text ? wall(Date.parse(`${text.slice(0, 19)}Z`)).slice(0, 19) + text.slice(19).replace(/Z$/, '') : '';

/** The name of the zone at a moment, in the page's own format. */
export function called(ms) {
  if (zone === UTC) return UTC;
  const minutes = ahead(ms) / 60e3;
  const size = Math.abs(minutes);
  const two = n => String(n).padStart(2, '0');
  const rest = size % 60 ? `:${two(size % 60)}` : '';
  return `UTC${minutes < 0 ? '−' : '+'}${two(Math.floor(size / 60))}${rest}`;
}

/** The other choice: the browser's own zone, or UTC again. */
export const other = () => (zone === UTC ? Intl.DateTimeFormat().resolvedOptions().timeZone || UTC : UTC);
