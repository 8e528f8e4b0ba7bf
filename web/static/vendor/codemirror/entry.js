/* What the query page uses of CodeMirror 6. README.md says how codemirror.js is built of it. */
export { EditorState, StateEffect, StateField } from '@codemirror/state';
export {
  EditorView,
  Decoration,
  keymap,
  lineNumbers,
  highlightSpecialChars,
  drawSelection,
  hoverTooltip,
} from '@codemirror/view';
export { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
export { StreamLanguage, HighlightStyle, syntaxHighlighting, bracketMatching } from '@codemirror/language';
export { autocompletion, completionKeymap, closeBrackets, closeBracketsKeymap } from '@codemirror/autocomplete';
export { tags } from '@lezer/highlight';
