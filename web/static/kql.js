/* KQL for the editor: its colours, completion from the server's own schema, and what a word means under the pointer. */

import { StreamLanguage } from './vendor/codemirror/codemirror.js';

const WORDS = new Set(
  (
    'where project extend summarize by sort order take limit top join union on kind let distinct count asc desc and ' +
    'or not in between has has_cs hasprefix has_any has_all contains startswith endswith matches regex parse as ' +
    'mv-expand mv-apply project-away project-rename project-keep render print datatable make-series search evaluate ' +
    'serialize with of declare query_parameters lookup range sample scan partition fork facet invoke step from to'
  ).split(' '),
);
const OPENED = new RegExp(String.raw`(^|[;(]|\b(?:union|join|lookup|in)\b[^|;]*[\s(,])\s*$`);

/** One token of the text, by the name of its highlighting. */
function token(stream) {
  if (stream.eatSpace()) return null;
  if (stream.match(/^\/\/.*/)) return 'comment';
  if (stream.match(/^[@h]?"(?:[^"\\\n]|\\.)*"?/) || stream.match(/^[@h]?'(?:[^'\\\n]|\\.)*'?/)) return 'string';
  if (stream.match(/^\d[\w.:-]*/)) return 'number';
  const word = stream.match(/^[A-Za-z_][\w-]*/);
  if (word) {
    if (WORDS.has(word[0])) return 'keyword';
    // Only keywords have a dash: elsewhere it is a minus.
    const dash = word[0].indexOf('-');
    if (dash > 0) stream.backUp(word[0].length - dash);
    if (stream.match(/^\s*\(/, false)) return 'variableName.function';
    return null;
  }
  return stream.next() === '|' ? 'keyword' : null;
}

export const language = StreamLanguage.define({
  name: 'kql',
  token,
  languageData: { commentTokens: { line: '//' }, closeBrackets: { brackets: ['(', '[', '{', '"', "'"] } },
});

/** Tables, columns, operators and functions, once from the server; empty if it does not give them. */
let asked = null;
function schema() {
  asked ??= fetch('/api/v1/schema')
    .then(answer => (answer.ok ? answer.json() : null))
    .catch(() => null)
    .then(found => found ?? { tables: [], operators: [], functions: [] });
  return asked;
}

/** The text up to a place without comments and texts: bars and brackets in them mean nothing. */
const UNREAD = /\/\/.*|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?/g;
const bare = text => text.replace(UNREAD, part => ' '.repeat(part.length));

/** Columns of the tables that the text names, and names that it gives itself. */
function columnsOf(text, { tables }) {
  const named = tables.filter(({ name }) => new RegExp(String.raw`\b${name}\b`).test(text));
  const out = new Map();
  for (const { name: table, columns } of named.length ? named : []) {
    for (const { name, type } of columns) {
      const at = out.get(name);
      out.set(name, { type, tables: [...(at?.tables ?? []), table] });
    }
  }
  for (const [, name] of text.matchAll(/\b([A-Za-z_]\w*)\s*=(?![=~])/g)) {
    if (!out.has(name)) out.set(name, { type: 'in this query', tables: [] });
  }
  return out;
}

const columnOption = ([name, { type, tables }]) => ({
  label: name,
  type: 'property',
  detail: type,
  info: tables.length ? `column of ${tables.join(', ')}` : undefined,
});
const functionOption = ({ name, doc, kind }) => ({
  label: name,
  type: 'function',
  detail: kind === 'scalar' ? '' : kind,
  info: doc,
  apply: `${name}(`,
  boost: -1,
});

/** What may be written at a place. */
export async function complete(context) {
  const word = context.matchBefore(/[A-Za-z_][\w-]*/);
  if (!word && !context.explicit) return null;
  const from = word?.from ?? context.pos;
  const whole = context.state.doc.toString();
  const all = bare(whole);
  const before = all.slice(0, from);
  // Inside a text or a comment nothing is offered.
  if (word && all.slice(word.from, word.to) !== word.text) return null;
  const known = await schema();
  const operators = known.operators.map(({ name, doc }) => ({ label: name, type: 'keyword', info: doc || undefined }));
  const tables = known.tables.map(({ name, doc }) => ({ label: name, type: 'class', info: doc || undefined }));
  const options = /\|\s*$/.test(before)
    ? operators
    : OPENED.test(before)
      ? [...tables, ...operators.filter(({ label }) => ['union', 'search', 'find', 'print', 'range'].includes(label))]
      : [...[...columnsOf(all, known)].map(columnOption), ...known.functions.map(functionOption)];
  return { from, options, validFor: /^[\w-]*$/ };
}

/** What a word means: its name, its type, and a sentence. Null for a word that nobody knows. */
export async function meaning(text, word) {
  const known = await schema();
  const table = known.tables.find(({ name }) => name === word);
  if (table) {
    const names = table.columns.map(({ name }) => name).join(', ');
    return { head: word, type: 'table', doc: `${table.doc} ${names}` };
  }
  const column = columnsOf(bare(text), known).get(word);
  if (column?.tables.length) return { head: word, type: column.type, doc: `column of ${column.tables.join(', ')}` };
  const found = known.functions.find(({ name }) => name === word) ?? known.operators.find(({ name }) => name === word);
  if (!found) return null;
  const type = found.kind ? `${found.kind === 'scalar' ? '' : `${found.kind} `}function` : 'operator';
  return { head: word, type, doc: found.doc };
}
