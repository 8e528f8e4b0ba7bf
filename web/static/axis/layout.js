/* Which lanes are shown and where. Lanes without an event of the incident fold away, lanes with the same behaviour are
   drawn as one, and both folds name what they hide. */

const HURT = new Set(['no_carrier', 'disabled', 'down', 'late', 'blind', 'silent', 'drain', 'bad']);
export const MAP = 34;
export const HEADER = 35;
export const GROUP = 18;
/** The head of a fold that is open. */
const OPEN = 22;

/** Marks and bands by lane, once per set of data. */
export function index(data) {
  const lanes = new Map(data.lanes.map(lane => [lane.id, { ...lane, marks: [], bands: [], beats: [], series: [] }]));
  for (const mark of data.marks) lanes.get(mark.lane)?.marks.push(mark);
  for (const band of data.bands) lanes.get(band.lane)?.bands.push(band);
  for (const [lane, t] of data.beats) lanes.get(lane)?.beats.push(t);
  for (const one of data.series ?? []) {
    const points = one.pieces.flat();
    const range = [Math.min(...points.map(point => point[1])), Math.max(...points.map(point => point[2]))];
    // What is compared with 0 is drawn from there: a tenth more must not look like a rise from nothing.
    const drawn = one.zero ? [Math.min(0, range[0]), range[1]] : range;
    lanes.get(one.lane)?.series.push({ ...one, range, drawn });
  }
  for (const lane of lanes.values()) {
    lane.inChain = lane.marks.some(mark => mark.role !== 'context');
    const hurt = lane.bands.some(band => HURT.has(band.kind));
    lane.core = lane.inChain || lane.series.length > 0 || lane.layer === 'job' || hurt;
  }
  return lanes;
}

/** A job's own page shows only what led to its end, and of the nodes' states only those of its own nodes. */
function ofJob(lane, job, ends, nodes) {
  if (lane.layer === 'job') return lane.label === job || lane.label.startsWith(`${job} `);
  if (lane.layer === 'node') {
    return nodes.has(lane.host) && lane.bands.some(band => band.kind === 'down' || band.kind === 'silent');
  }
  return lane.layer !== 'switch' && ends.has(lane.id);
}

/** The stacking order where several lanes share a row: faults above normal states, a labelled band above others of its
 * kind. */
const RANK = { unknown: 0, idle: 0, up: 0, off: 0, busy: 0, job: 1, down: 3 };
const above = (a, b) => (RANK[a.kind] ?? 2) - (RANK[b.kind] ?? 2) || b.quiet - a.quiet;

/** One lane for several: all their marks and all their bands, of which only the last of a kind has a label. */
function merged(fold, members) {
  const last = new Map();
  const having = new Map();
  const bands = members.flatMap(lane => lane.bands.map(band => ({ ...band, quiet: true })));
  for (const band of bands) {
    if (!(last.get(band.kind)?.start > band.start)) last.set(band.kind, band);
    having.set(band.kind, (having.get(band.kind) ?? new Set()).add(band.lane));
  }
  for (const band of last.values()) {
    const words = band.kind === 'job' ? fold.noun : band.text.split(/[,;]| {2}/)[0];
    // Of a lane without such a band nothing is known, or something else.
    const count = having.get(band.kind).size;
    const part = count === members.length ? count : `${count} of ${members.length}`;
    Object.assign(band, { quiet: false, several: true, text: `${part} ${words}` });
  }
  return {
    ...members[0],
    id: fold.id,
    label: `${members.length} ${fold.noun}`,
    sub: fold.says,
    hosts: [...new Set(members.map(lane => lane.host))],
    marks: members.flatMap(lane => lane.marks).sort((a, b) => a.t - b.t),
    bands: bands.sort(above),
    beats: [],
    series: [],
    fold,
    members,
  };
}

/** The lanes of a group, with equal ones replaced at the first of them; open folds keep a head. */
function folded(shown, folds, { open, alike, free }) {
  const of = new Map(folds.flatMap(fold => fold.lanes.map(lane => [lane, fold])));
  const done = new Set();
  const out = [];
  const foldOf = item => (free(item) ? null : of.get(item.id));
  const inFold = new Map(folds.map(fold => [fold, []]));
  for (const item of shown) inFold.get(foldOf(item))?.push(item);
  for (const item of shown) {
    const fold = foldOf(item);
    const members = inFold.get(fold) ?? [];
    if (members.length < alike) {
      out.push({ item });
    } else if (!done.has(fold.id)) {
      done.add(fold.id);
      const head = { item: merged(fold, members), members: open.has(fold.id) ? [] : members, open: open.has(fold.id) };
      out.push(head, ...(head.open ? members.map(member => ({ item: member })) : []));
    }
  }
  return out;
}

export function layout(data, lanes, width, { all = false, job = null, open = new Set() } = {}) {
  const small = width < 640;
  const gutter = small ? 0 : 184;
  const lane = small ? 40 : 30;
  const rows = [];
  const groups = [];
  const folds = [];
  const byLane = new Map();
  const map = job ? 0 : MAP;
  const ends = new Set(
    data.marks.filter(mark => mark.role === 'cause' || mark.role === 'effect').map(mark => mark.lane),
  );
  const own = new Set(data.bands.filter(band => band.kind === 'job' && band.job === job).flatMap(band => band.nodes));
  const folding = { open, alike: data.alike, free: item => own.has(item.host) && own.size < data.alike };
  let y = map + HEADER;
  for (const group of data.groups) {
    const members = [...lanes.values()].filter(item => item.group === group);
    const shown = members.filter(item => (job ? ofJob(item, job, ends, own) : all || item.core));
    if (!members.length || (job && !shown.length)) continue;
    const seen = new Set(shown);
    const hidden = job ? [] : members.filter(item => !seen.has(item));
    if (!job) {
      groups.push({ name: group, y, hidden: hidden.map(item => item.label.replace(/ {2}/g, ' ')) });
      y += GROUP;
    }
    const drawn = all ? shown.map(item => ({ item })) : folded(shown, data.folds, folding);
    for (const { item, members = [], open: head = false } of drawn) {
      const height = head ? OPEN : lane;
      if (item.fold) folds.push({ item, y, height, open: head });
      if (!head) {
        const bar = small ? 20 : 18;
        const top = small ? y + 18 : y + (lane - bar) / 2;
        const row = { item, y, height, top, bar, middle: top + bar / 2 };
        rows.push(row);
        for (const name of [item, ...members]) byLane.set(name.id, row);
      }
      y += height;
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
    folds,
    byLane,
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
