/* The stream of new lines: server-sent events over fetch, which tells errors apart, and begins again by itself. */

/** A stream that says nothing for this long is broken: the server speaks every 15 s. */
const SILENT_MS = 45_000;
/** Pauses between two tries, seconds: doubled up to the second. */
const [FIRST_S, LONGEST_S] = [1, 30];
/** Lines that are remembered to recognise those that come again. */
const REMEMBERED = 6_000;
/** What a refusal means that trying again would not change. */
const FINAL = [400, 401, 403, 404, 422];

const wait = ms => new Promise(done => setTimeout(done, ms));

/** One event of the stream: `{id, event, data}`; data null for a comment. */
export function parsed(block) {
  const out = { id: '', event: 'message', data: null };
  for (const line of block.split('\n')) {
    const [, name, value] = /^(\w*): ?(.*)$/.exec(line) ?? [];
    if (name === 'data') out.data = (out.data === null ? '' : `${out.data}\n`) + value;
    else if (name) out[name] = value;
  }
  return out;
}

export class Stream {
  /** `handle(event, data)`: line, truncated, behind, gap, and of the connection itself: live, lost, again, refused. */
  constructor(filter, handle) {
    Object.assign(this, { filter, handle, id: '', ended: false, abort: null });
    /** Texts of the last lines: after a break, those of the moment of the break come again. */
    this.recent = new Set();
  }

  end() {
    this.ended = true;
    this.abort?.abort();
  }

  /** Follows until `end`, or until it is refused. */
  async follow() {
    let pause = FIRST_S;
    let broken = false;
    while (!this.ended) {
      let reason = '';
      try {
        const answer = await this.open();
        if (FINAL.includes(answer.status) || answer.redirected) {
          this.handle('refused', await refusal(answer));
          return;
        }
        if (!answer.ok) throw new Error((await refusal(answer)).detail);
        this.handle(broken ? 'again' : 'live', {});
        [pause, broken] = [FIRST_S, false];
        reason = await this.read(answer.body.getReader());
        if (reason === null) return;
      } catch (error) {
        reason = error.name === 'AbortError' ? 'it sent nothing for too long' : error.message;
      }
      if (this.ended) return;
      if (!broken) this.handle('lost', { detail: reason });
      broken = true;
      this.resumed = this.id;
      await wait(pause * 1000);
      pause = Math.min(pause * 2, LONGEST_S);
    }
  }

  open() {
    const query = new URLSearchParams({ filter: this.filter });
    if (this.id) query.set('since', this.id);
    this.abort = new AbortController();
    this.listen();
    return fetch(`/api/v1/tail?${query}`, { headers: { accept: 'text/event-stream' }, signal: this.abort.signal });
  }

  /** Ends a connection that has become silent, as after a night of the computer's own sleep. */
  listen() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.abort.abort(), SILENT_MS);
  }

  /** Reads until the stream ends; null if it ended for good. */
  async read(reader) {
    const decoder = new TextDecoder();
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return 'the service closed it';
      this.listen();
      text += decoder.decode(value, { stream: true });
      const blocks = text.split('\n\n');
      text = blocks.pop();
      for (const block of blocks) {
        const { id, event, data } = parsed(block);
        if (event === 'error') {
          this.handle('refused', JSON.parse(data));
          return null;
        }
        if (data !== null) this.take(id, event, data);
      }
    }
  }

  take(id, event, data) {
    if (id) this.id = id;
    if (event !== 'line') {
      this.handle(event, JSON.parse(data));
      return;
    }
    const isAgain = this.resumed && this.recent.has(data);
    if (this.resumed && id !== this.resumed) this.resumed = '';
    if (isAgain) return;
    this.recent.add(data);
    if (this.recent.size > REMEMBERED) this.recent.delete(this.recent.values().next().value);
    this.handle('line', JSON.parse(data));
  }
}

async function refusal(answer) {
  if (answer.redirected) return { detail: 'The sign-in has ended.', do: 'Load the page again.' };
  try {
    return await answer.json();
  } catch {
    return { detail: `${answer.status} ${answer.statusText}` };
  }
}
