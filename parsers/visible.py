"""Makes untrusted text visible: characters that control a terminal, reverse a line or are invisible become escapes.

One place for everything shown to people: commands, pages, messages, the service's own log. Output for programs (JSON,
Parquet) keeps the text unchanged. The escapes are JSON's, so that they mean the same character there.
"""

from __future__ import annotations

import re

#: C0 but tab and newline, DEL, C1; soft hyphen, the Arabic letter mark, zero-width and directional marks, separators of lines
#: and paragraphs, embeddings, overrides, isolates and other invisible formats; tags; halves of surrogate pairs.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff"
)
_KEEPING_LINES = re.compile(f"[{_HIDDEN}]")
_IN_ONE_LINE = re.compile(f"[{_HIDDEN}\n\t]")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def visible(text: str, *, lines: bool = True) -> str:
    """``text`` with visible escapes. ``lines``: newlines and tabs stay; else it becomes one line.

    >>> visible("a\\x1b[31mb\\u202ec")
    'a\\\\u001b[31mb\\\\u202ec'
    """
    return (_KEEPING_LINES if lines else _IN_ONE_LINE).sub(_escape, text)
