const CONTROLS = '[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad]';
const INVISIBLE = '[\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]';
const ODD = '[\\u3164\\uffa0\\ufff9-\\ufffb]|\\udb40[\\udc00-\\udc7f]';
const HIDDEN = new RegExp(`${CONTROLS}|${INVISIBLE}|${ODD}`, 'g');

/** Characters that reverse a line or hide in it, as escapes: the same ones as in parsers/visible.py. */
export const visible = words =>
  String(words).replace(
    HIDDEN,
    sign => [...Array(sign.length).keys()].map(n => `\\u${sign.charCodeAt(n).toString(16).padStart(4, '0')}`).join(''),
  );
