/* Raw lines: the list under the cursor, and the lines around one line of a file. Texts only, never markup. */

const LAYER = { slurmctld: 'slurmctld', slurmdbd: 'slurmctld', slurmd: 'slurmd', slurmstepd: 'slurmd', switch: 'switch', opensm: 'switch', kernel: 'kernel', job_stdout: 'job', job_stderr: 'job', fabricmanager: 'gpu', dcgm: 'gpu' };
const RADIUS = 5;

export const element = (tag, kind = '', words = '') => { const e = document.createElement(tag); if (kind) e.className = kind; if (words) e.textContent = words; return e; };
export const short = path => String(path ?? '').split('/').slice(-2).join('/');
const micros = text => { const part = /\.(\d+)/.exec(text ?? ''); return Date.parse((text ?? '').replace(/\.\d+/, '')) * 1000 + (part ? Number(part[1].padEnd(6, '0')) : 0); };

/** The same line read from several files (a daemon's own log and syslog) is one row that names all of them. */
export function fold(lines) {
  const rows = [];
  for (const line of lines) {
    const words = line.message.replace(/^\[[\w.]+\] /, '');
    const twin = rows.find(row => row.host === line.host && row.file !== line.file && row.words === words && Math.abs(row.us - micros(line.time)) <= 1.1e6);
    if (twin) twin.also.push(line); else rows.push({ ...line, words, us: micros(line.time), also: [] });
  }
  return rows;
}

function message(text) {
  const box = element('span', 'msg'), found = /\b(error|fatal|panic|critical):/i.exec(text);
  if (!found) { box.textContent = text; return box; }
  box.append(text.slice(0, found.index), element('b', 'err', found[0]), text.slice(found.index + found[0].length));
  return box;
}

function distance(us) {
  const size = Math.abs(us), sign = us < 0 ? '−' : '+';
  if (size < 1) return '0';
  return size < 1e3 ? `${sign}${size} µs` : size < 1e8 ? `${sign}${(size / 1e6).toFixed(3)}` : `${sign}${(size / 1e6).toFixed(0)}`;
}

export function fileButton(file, line) {
  const button = element('button', 'file', `${short(file)}:${line}`);
  button.type = 'button'; button.dataset.file = file; button.dataset.line = line; button.title = `${file}:${line}, show the lines around it`;
  return button;
}

export function rowOf(row, centre) {
  const box = element('div', `ln c-${row.layer ?? LAYER[row.source] ?? 'kernel'}`);
  const unsure = row.time_quality !== 'line';
  const source = element('span', 'src');
  source.append(element('i'), row.host ?? '', ' ', element('span', 'faint', row.unit || row.source || ''));
  const words = message(row.message ?? row.raw ?? '');
  if (row.also?.length) { const tag = element('span', 'dup', `${row.also.length + 1}×`); tag.title = `also ${row.also.map(other => `${short(other.file)}:${other.line}`).join(', ')}`; tag.textContent += `, also ${row.also.map(other => `${short(other.file)}:${other.line}`).join(', ')}`; words.append(tag); }
  if (unsure) words.append(element('span', 'dup w', `time ${row.time_quality}`));
  const late = row.received_time ? (micros(row.received_time) - micros(row.time)) / 1e6 : 0;
  if (late > 5) words.append(element('span', 'dup w', `came ${late.toFixed(1)} s late`));
  box.append(element('span', 'd', unsure ? '≈' : distance(micros(row.time) - centre)), element('span', 't', (row.time ?? '').slice(11, 23).replace(/Z?$/, '').padEnd(12, '')), source, words, fileButton(row.file, row.line));
  box.dataset.us = micros(row.time);
  return box;
}

/** Follows the cursor: asks the API for a window, drops answers that came too late, says when there is nothing. */
export class Lines {
  constructor(list, what, explore) { Object.assign(this, { list, what, explore, scope: 'incident', asked: 0 }); }

  async show({ at, half, lane }, hosts) {
    const centre = micros(at), ask = ++this.asked;
    const iso = us => { const ms = Math.floor(us / 1000); return `${new Date(ms).toISOString().slice(0, 19)}.${String(us - Math.floor(us / 1e6) * 1e6).padStart(6, '0')}Z`; };
    const width = Math.round(half * 1e6), query = new URLSearchParams({ from: iso(centre - width), to: iso(centre + width), limit: 120 });
    const host = this.scope === 'host' ? lane?.host : this.scope === 'incident' ? hosts.join(',') : '';
    if (host) query.set('host', host);
    let body;
    try {
      const answer = await fetch(`/api/v1/lines?${query}`);
      body = await answer.json();
      if (!answer.ok) throw new Error(body.detail ?? answer.statusText);
    } catch (error) {
      if (ask === this.asked) this.say('The lines could not be read', String(error.message ?? error));
      return;
    }
    if (ask !== this.asked) return;
    const rows = fold(body.lines), near = rows.reduce((best, row) => !best || Math.abs(row.us - centre) < Math.abs(best.us - centre) ? row : best, null);
    const range = half >= 1 ? `${half.toFixed(1)} s` : `${(half * 1e3).toFixed(0)} ms`;
    this.what.textContent = `${at.slice(11, 23)} ± ${range}, ${body.lines.length}${body.truncated ? '+' : ''} lines in ${rows.length} rows${body.truncated ? '; truncated, zoom in to see all' : ''}`;
    this.explore.href = `/explore?q=${encodeURIComponent(`Logs\n| where Time between (datetime(${query.get('from')}) .. datetime(${query.get('to')}))${host ? `\n| where Host in (${host.split(',').map(name => JSON.stringify(name)).join(', ')})` : ''}\n| sort by Time asc`)}`;
    if (!rows.length) { this.say('No line here', `Nothing was logged within ± ${range}${host ? ` by ${host.replaceAll(',', ', ')}` : ''}. In a hatched stretch that proves nothing.`, false); return; }
    this.list.replaceChildren(...rows.map(row => { const box = rowOf(row, centre); if (row === near) box.classList.add('hot'); return box; }));
  }

  say(title, why, also = true) {
    const box = element('div', 'empty');
    box.append(element('b', '', title), why);
    this.list.replaceChildren(box);
    if (also) this.what.textContent = '';
  }
}

/** Opens or closes the lines around one line of its file, below the row that names it. */
export async function around(button) {
  const home = button.closest('.ln, .raw, td') ?? button.parentElement, open = home.querySelector(':scope > .ctx');
  if (open) { open.remove(); return; }
  const { file, line } = button.dataset, box = element('div', 'ctx');
  box.append(element('p', '', `reading ${file} …`));
  home.append(box);
  try {
    const answer = await fetch(`/api/v1/lines?${new URLSearchParams({ file, around_line: line, limit: RADIUS })}`), body = await answer.json();
    if (!answer.ok) throw new Error(body.detail);
    const rows = body.lines.map(row => { const one = element('div', row.line === Number(line) ? 'me' : ''); one.append(element('span', '', String(row.line)), element('span', '', row.raw)); return one; });
    box.replaceChildren(element('p', '', rows.length ? `${file}, line ${line} ± ${RADIUS}` : `${file} is named as evidence, but its lines are not in the store (expired or not loaded).`), ...rows);
  } catch (error) { box.replaceChildren(element('p', '', `The lines around it could not be read: ${error.message}`)); }
}
