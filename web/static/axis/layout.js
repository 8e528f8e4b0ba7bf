/* Which lanes are shown and where. Lanes without a part in the incident fold away, and the fold says what it hides. */

const TELLING = new Set(['no_carrier', 'disabled', 'down', 'late', 'blind', 'silent', 'drain', 'bad']);
export const MAP = 34;
export const HEADER = 35;
export const GROUP = 18;

/** Marks and bands by lane, once per set of data. */
export function index(data) {
  const lanes = new Map(data.lanes.map(lane => [lane.id, { ...lane, marks: [], bands: [], beats: [] }]));
  for (const mark of data.marks) lanes.get(mark.lane)?.marks.push(mark);
  for (const band of data.bands) lanes.get(band.lane)?.bands.push(band);
  for (const [lane, t] of data.beats) lanes.get(lane)?.beats.push(t);
  for (const lane of lanes.values()) {
    lane.told = lane.marks.some(mark => mark.role !== 'context');
    lane.core = lane.told || lane.layer === 'job' || lane.bands.some(band => TELLING.has(band.kind));
  }
  return lanes;
}

/** A job's own page shows only what led to its end. */
function ofJob(lane, job, ends) {
  if (lane.layer === 'job') return lane.label === job || lane.label.startsWith(`${job} `);
  if (lane.layer === 'node') return lane.bands.some(band => band.kind === 'down' || band.kind === 'silent');
  return lane.layer !== 'switch' && ends.has(lane.id);
}

export function layout(data, lanes, width, { all = false, job = null } = {}) {
  const small = width < 640;
  const gutter = small ? 0 : 184;
  const lane = small ? 40 : 30;
  const rows = [];
  const groups = [];
  const map = job ? 0 : MAP;
  const ends = new Set(
    data.marks.filter(mark => mark.role === 'cause' || mark.role === 'effect').map(mark => mark.lane),
  );
  let y = map + HEADER;
  for (const group of data.groups) {
    const members = [...lanes.values()].filter(item => item.group === group);
    const shown = members.filter(item => (job ? ofJob(item, job, ends) : all || item.core));
    if (!members.length || (job && !shown.length)) continue;
    const hidden = job ? [] : members.filter(item => !shown.includes(item));
    if (!job) {
      groups.push({ name: group, y, hidden: hidden.map(item => item.label.replace(/ {2}/g, ' ')) });
      y += GROUP;
    }
    for (const item of shown) {
      const bar = small ? 20 : 18;
      const top = small ? y + 18 : y + (lane - bar) / 2;
      rows.push({ item, y, height: lane, top, bar, middle: top + bar / 2 });
      y += lane;
    }
  }
  return {
    small,
    gutter,
    rows,
    groups,
    map,
    header: map,
    top: map + HEADER,
    height: y + (job ? 8 : 2),
    width,
    byLane: new Map(rows.map(row => [row.item.id, row])),
  };
}

/** First index whose time is not before t; lists are sorted. */
export function lower(list, t, of = item => item.t) {
  let a = 0;
  let b = list.length;
  while (a < b) {
    const m = (a + b) >> 1;
    if (of(list[m]) < t) a = m + 1;
    else b = m;
  }
  return a;
}
