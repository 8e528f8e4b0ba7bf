/* Raw lines: the list under the cursor, and the lines around one line of a file. Texts only, never markup. */

import { visible } from './visible.js';
import { wallOf } from './zone.js';

const LAYER = {
  slurmctld: 'slurmctld',
  slurmdbd: 'slurmctld',
  slurmd: 'slurmd',
  slurmstepd: 'slurmd',
  switch: 'switch',
  opensm: 'switch',
  kernel: 'kernel',
  job_stdout: 'job',
  job_stderr: 'job',
  fabricmanager: 'gpu',
  dcgm: 'gpu',
};
/** The number of lines before and after one line of a file. */
const RADIUS = 5;
/** The maximum number of lines requested at the cursor. */
const MOST = 120;
/** A line that arrived later than this is marked. */
const LATE_S = 5;

export const element = (tag, kind = '', words = '') => {
  const e = document.createElement(tag);
  if (kind) e.className = kind;
  if (words) e.textContent = visible(words);
  return e;
};
/** The last two components of a path. */
export const short = path => /[^/]*\/?[^/]*$/.exec(path ?? '')[0];
/** Microseconds since 1970; Date alone would lose the last three digits. */
const micros = text => {
  const part = /\.(\d+)/.exec(text ?? '');
  return Date.parse((text ?? '').replace(/\.\d+/, '')) * 1000 + (part ? Number(part[1].padEnd(6, '0')) : 0);
};

/** The same line read from several files (a daemon's own log and syslog) is one row that names all of them. */
export function fold(lines) {
  const rows = [];
  for (const line of lines) {
    const words = line.message.replace(/^\[[\w.]+\] /, '');
    const twin = rows.find(
      row =>
        row.host === line.host &&
        row.file !== line.file &&
        row.words === words &&
        Math.abs(row.us - micros(line.time)) <= 1.1e6,
    );
    if (twin) twin.also.push(line);
    else rows.push({ ...line, words, us: micros(line.time), also: [] });
  }
  return rows;
}

function message(value) {
  const text = visible(value);
  const box = element('span', 'msg');
  const found = /\b(error|fatal|panic|critical):/i.exec(text);
  if (!found) {
    box.textContent = text;
    return box;
  }
  box.append(text.slice(0, found.index), element('b', 'err', found[0]), text.slice(found.index + found[0].length));
  return box;
}

function distance(us) {
  const size = Math.abs(us);
  const sign = us < 0 ? '−' : '+';
  if (size < 1) return '0';
  if (size < 1e3) return `${sign}${size} µs`;
  return `${sign}${(size / 1e6).toFixed(size < 1e8 ? 3 : 0)}`;
}

/** RFC 3339 with microseconds. */
function iso(us) {
  const second = Math.floor(us / 1e6);
  return `${new Date(second * 1e3).toISOString().slice(0, 19)}.${String(us - second * 1e6).padStart(6, '0')}Z`;
}

export function fileButton(file, line) {
  const button = element('button', 'file', `${short(file)}:${line}`);
  button.type = 'button';
  button.dataset.file = file;
  button.dataset.line = line;
  button.title = `${visible(file)}:${line}, show the lines around it`;
  return button;
}

/** Other places of the same line. */
function twins(also) {
  const where = `also ${also.map(other => `${short(other.file)}:${other.line}`).join(', ')}`;
  const tag = element('span', 'dup', `${also.length + 1}×, ${where}`);
  tag.title = visible(where);
  return tag;
}

/** The text of a line with notes about it: twins, a late arrival. */
function wordsOf(row) {
  const box = message(row.message ?? row.raw ?? '');
  if (row.also?.length) box.append(twins(row.also));
  const late = row.received_time ? (micros(row.received_time) - micros(row.time)) / 1e6 : 0;
  if (late > LATE_S) box.append(element('span', 'dup w', `came ${late.toFixed(1)} s late`));
  return box;
}

export function rowOf(row, centre) {
  const sure = row.time_quality === 'line';
  const box = element('div', `ln c-${row.layer ?? LAYER[row.source] ?? 'kernel'}`);
  const source = element('span', 'src');
  source.append(element('i'), visible(row.host ?? ''), ' ', element('span', 'faint', row.unit || row.source || ''));
  const from = element('span', 'd', sure ? distance(micros(row.time) - centre) : '≈');
  if (!sure) from.title = `time ${row.time_quality}`;
  box.append(
    from,
    element('span', 't', wallOf(row.time).slice(11, 23)),
    source,
    wordsOf(row),
    fileButton(row.file, row.line),
  );
  box.dataset.us = micros(row.time);
  return box;
}

/** The same window as a query. */
function kql(from, to, hosts, cluster) {
  const names = hosts.map(name => JSON.stringify(name)).join(', ');
  const where = [`Time between (datetime(${from}) .. datetime(${to}))`, ...(names ? [`Host in (${names})`] : [])];
  if (cluster) where.push(`Cluster in (${JSON.stringify(cluster)}, "")`);
  return ['Logs', ...where.map(test => `where ${test}`), 'sort by Time asc'].join('\n| ');
}

const nearest = (rows, centre) =>
  rows.reduce((best, row) => (best && Math.abs(best.us - centre) <= Math.abs(row.us - centre) ? best : row), null);

/** Follows the cursor: requests a window from the API, drops answers that are out of date, reports an empty one. */
export class Lines {
  constructor(list, what, explore) {
    Object.assign(this, { list, what, explore, scope: 'incident', asked: 0 });
  }

  async show({ at, half, lane }, known) {
    const ask = ++this.asked;
    const centre = micros(at);
    const width = Math.round(half * 1e6);
    const from = iso(centre - width);
    const to = iso(centre + width);
    const hosts = this.scope === 'incident' ? known : this.scope === 'host' && lane ? (lane.hosts ?? [lane.host]) : [];
    const query = new URLSearchParams({ from, to, limit: MOST });
    if (hosts.length) query.set('host', hosts.join(','));
    // Set by the page if the store has several clusters: another's host may have the same name.
    const cluster = hosts.length ? this.list.dataset.cluster : '';
    if (cluster) query.set('cluster', cluster);
    let body;
    try {
      body = await read(query);
    } catch (error) {
      if (ask === this.asked) this.say('The lines could not be read', error.message);
      return;
    }
    if (ask !== this.asked) return;
    const asked = new URL(this.explore.href);
    asked.searchParams.set('q', kql(from, to, hosts, cluster));
    this.explore.href = asked.href;
    this.fill(body, { at, centre, half, hosts });
  }

  fill({ lines, truncated }, { at, centre, half, hosts }) {
    const rows = fold(lines);
    const range = half >= 1 ? `${half.toFixed(1)} s` : `${(half * 1e3).toFixed(0)} ms`;
    const count = `${lines.length}${truncated ? '+' : ''} lines in ${rows.length} rows`;
    this.what.textContent =
      `${wallOf(at).slice(11, 23)} ± ${range}, ${count}` + (truncated ? '; truncated, zoom in to see all' : '');
    if (!rows.length) {
      const who = hosts.length ? ` by ${hosts.join(', ')}` : '';
      const why = `Nothing was logged within ± ${range}${who}. In a hatched stretch that proves nothing.`;
      this.say('No line here', why, this.what.textContent);
      return;
    }
    const near = nearest(rows, centre);
    const unsure = [...new Set(rows.map(row => row.time_quality).filter(quality => quality !== 'line'))];
    if (unsure.length) this.what.textContent += `; ≈ time ${unsure.join(' or ')}`;
    const boxes = rows.map(row => rowOf(row, centre));
    const hot = boxes[rows.indexOf(near)];
    hot.classList.add('hot');
    this.list.replaceChildren(...boxes);
    this.list.scrollTop = hot.offsetTop - boxes[0].offsetTop - this.list.clientHeight / 3;
  }

  say(title, why, what = '') {
    const box = element('div', 'empty');
    box.append(element('b', '', title), visible(why));
    this.list.replaceChildren(box);
    this.what.textContent = what;
  }
}

/** Lines from the API; raises with its message if it has none to give. */
async function read(query) {
  const answer = await fetch(`/api/v1/lines?${query}`);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail ?? answer.statusText);
  return body;
}

function surroundings({ lines }, file, line) {
  const title = lines.length
    ? `${file}, line ${line} ± ${RADIUS}`
    : `${file} is named as evidence, but its lines are not in the store (expired or not loaded).`;
  const rows = lines.map(row => {
    const box = element('div', row.line === Number(line) ? 'me' : '');
    box.append(element('span', '', String(row.line)), element('span', '', row.raw));
    return box;
  });
  return [element('p', '', title), ...rows];
}

/** Opens or closes the lines around one line of its file, below the row that names it. */
export async function around(button) {
  const home = button.closest('.ln, .raw, td') ?? button.parentElement;
  const open = home.querySelector(':scope > .ctx:not(details)');
  if (open) {
    open.remove();
    return;
  }
  const { file, line } = button.dataset;
  const box = element('div', 'ctx');
  box.append(element('p', '', `reading ${file} …`));
  home.append(box);
  try {
    const body = await read(new URLSearchParams({ file, around_line: line, limit: RADIUS }));
    box.replaceChildren(...surroundings(body, file, line));
  } catch (error) {
    box.replaceChildren(element('p', '', `The lines around it could not be read: ${error.message}`));
  }
}
