/* The editor: CodeMirror in place of the textarea, which stays for whoever has no scripts. It is in a shadow root:
   there its styles are constructed style sheets, and the policy of the page admits no others. */

import { element } from './lines.js';
import { complete, language, meaning } from './kql.js';
import {
  autocompletion,
  bracketMatching,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
  Decoration,
  defaultKeymap,
  drawSelection,
  EditorState,
  EditorView,
  highlightSpecialChars,
  HighlightStyle,
  history,
  historyKeymap,
  hoverTooltip,
  keymap,
  lineNumbers,
  StateEffect,
  StateField,
  syntaxHighlighting,
  tags,
} from './vendor/codemirror/codemirror.js';

const area = document.getElementById('text');
const host = element('div', 'rich');
let changed = () => {};
let run = () => {};

const colour = name => `var(--${name})`;
const colours = HighlightStyle.define([
  { tag: tags.keyword, color: colour('ctld') },
  { tag: tags.string, color: colour('slurmd') },
  { tag: tags.number, color: colour('kernel') },
  { tag: tags.comment, color: colour('ink3') },
  { tag: tags.function(tags.variableName), color: colour('link') },
]);

const theme = EditorView.theme({
  '&': { color: colour('ink'), backgroundColor: colour('panel'), minHeight: '180px' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { font: 'inherit', minHeight: '180px' },
  '.cm-content': { padding: '10px 0', caretColor: colour('ink') },
  '.cm-line': { padding: '0 12px' },
  '.cm-cursor': { borderLeftColor: colour('ink') },
  '.cm-content, .cm-gutter': { minHeight: '180px' },
  '.cm-gutters': {
    color: colour('ink3'),
    backgroundColor: colour('panel'),
    borderRight: `1px solid ${colour('line')}`,
  },
  '.cm-lineNumbers .cm-gutterElement': { padding: '0 10px 0 12px', minWidth: '30px' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {
    background: `color-mix(in srgb, ${colour('accent')} 40%, transparent)`,
  },
  '.bad': {
    textDecoration: `underline wavy ${colour('impact')}`,
    textUnderlineOffset: '4px',
    background: colour('impact-bg'),
  },
  '.cm-tooltip': {
    color: colour('ink'),
    backgroundColor: colour('raise'),
    border: `1px solid ${colour('line2')}`,
    font: `12px/1.45 ${colour('sans')}`,
    maxWidth: 'min(480px, 80vw)',
  },
  '.cm-tooltip.cm-tooltip-autocomplete > ul': { font: `12px/1.5 ${colour('mono')}`, maxHeight: '220px' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { color: colour('on-accent'), background: colour('accent') },
  '.cm-completionDetail': { fontStyle: 'normal', opacity: '0.8' },
  '.cm-completionInfo, .said': { padding: '6px 9px' },
  '.said b': { fontFamily: colour('mono') },
});

const setWrong = StateEffect.define();
const bad = Decoration.mark({ class: 'bad' });
/** The characters that the last error is about, until the text changes. */
const wrong = StateField.define({
  create: () => Decoration.none,
  update(marks, change) {
    const one = change.effects.find(effect => effect.is(setWrong));
    if (one) return one.value ? Decoration.set([bad.range(one.value.start, one.value.end)]) : Decoration.none;
    return change.docChanged ? Decoration.none : marks;
  },
  provide: field => EditorView.decorations.from(field),
});

/** What the word under the pointer means. */
const hovered = hoverTooltip(async (view, pos) => {
  const line = view.state.doc.lineAt(pos);
  const word = [...line.text.matchAll(/[A-Za-z_][\w-]*/g)].find(
    ({ index, 0: text }) => line.from + index <= pos && pos <= line.from + index + text.length,
  );
  const found = word && (await meaning(view.state.doc.toString(), word[0]));
  if (!found) return null;
  const create = () => {
    const dom = element('div', 'said');
    dom.append(element('b', '', found.head), ` ${found.type}`, element('div', '', found.doc));
    return { dom };
  };
  return { pos: line.from + word.index, end: line.from + word.index + word[0].length, above: true, create };
});

const keys = ['Mod-Enter', 'Shift-Enter'].map(key => ({
  key,
  run() {
    run();
    return true;
  },
}));

function start() {
  host.setAttribute('aria-label', area.getAttribute('aria-label'));
  area.closest('.ed').replaceChildren(host);
  const root = host.attachShadow({ mode: 'open' });
  return new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: area.value,
      extensions: [
        keymap.of([...keys, ...completionKeymap, ...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap]),
        lineNumbers(),
        highlightSpecialChars(),
        history(),
        drawSelection(),
        bracketMatching(),
        closeBrackets(),
        language,
        autocompletion({ override: [complete], icons: false, defaultKeymap: false }),
        hovered,
        wrong,
        theme,
        syntaxHighlighting(colours),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ id: 'q', 'aria-label': 'KQL query', spellcheck: 'false' }),
        EditorView.updateListener.of(update => update.docChanged && changed()),
      ],
    }),
  });
}

const view = start();

/** The editor as the page uses it. */
export const editor = {
  get value() {
    return view.state.doc.toString();
  },
  set value(text) {
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
  },
  /** Underlines a stretch of the text, and puts the cursor before it; null: nothing. */
  mark(span) {
    const most = view.state.doc.length;
    const range = span && { start: Math.min(span.start, most), end: Math.min(span.end, most) };
    const drawn = range && range.start < range.end ? range : null;
    view.dispatch({ effects: setWrong.of(drawn), ...(range ? { selection: { anchor: range.start } } : {}) });
  },
  /** The offset in the text of a line and column (both from 1). */
  offset(line, column) {
    const { doc } = view.state;
    return doc.line(Math.min(Math.max(line, 1), doc.lines)).from + column - 1;
  },
  /** Calls `onChange` after each change of the text, and `onRun` on its key. */
  listen(onChange, onRun) {
    changed = onChange;
    run = onRun;
  },
};
