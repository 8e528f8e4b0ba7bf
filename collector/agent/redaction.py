"""Takes secrets out of what jobs wrote: tokens, passwords, keys.

Every pattern starts at a word's edge and repeats only up to a bound, so that its cost grows with the length of the
text and no faster, whatever a job wrote into its output.
"""

from __future__ import annotations

import re

MARK = b"[redacted]"

_EDGE = rb"(?<![A-Za-z0-9_-])"
# "max_tokens: 4096" and "pad_token=0" are what a training job prints: a short number is no token.
_COUNT = rb"""["']?\s{0,4}[:=]\s{0,4}\d{1,6}(?:\W|$)"""
_NAME = (
    rb"[A-Za-z0-9_-]{0,60}?(?:TOKEN(?!" + _COUNT + rb")|PASSWORD|PASSWD|PASSPHRASE|SECRET"
    rb"|(?:API|ACCESS|PRIVATE)[_-]?KEY|[_-]KEY(?!" + _COUNT + rb"))"
)
_VALUE = rb"""(?:"[^"\r\n]{1,2000}"|'[^'\r\n]{1,2000}'|[^\s"',;&]{1,2000})"""

# (what stays in front of the mark is group 1, the mark takes the place of group 2)
_PATTERNS = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (rb"()(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z))", re.DOTALL),
        (_EDGE + rb"((?:proxy-)?authorization\s{0,4}[:=]\s{0,4})([^\r\n]{1,4000})", re.IGNORECASE),
        (_EDGE + rb"([a-z][a-z0-9+.-]{0,20}://)([^\s/:@]{0,200}:[^\s/@]{1,500})(?=@)", re.IGNORECASE),
        (_EDGE + rb"()(gh[pousr]_[A-Za-z0-9]{16,255}|github_pat_[A-Za-z0-9_]{16,255}|hf_[A-Za-z0-9]{16,255})", 0),
        (_EDGE + rb"()(sk-[A-Za-z0-9_-]{16,255}|xox[abprs]-[A-Za-z0-9-]{10,255}|(?:AKIA|ASIA)[0-9A-Z]{16})", 0),
        (_EDGE + rb"()(eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{0,4000})", 0),
        (_EDGE + rb"(" + _NAME + rb"""["']?\s{0,4}=\s{0,4})(?!\[redacted\])(""" + _VALUE + rb")", re.I),
        (_EDGE + rb"(" + _NAME + rb"""["']?:\s{1,4})(?!\[redacted\])(""" + _VALUE + rb")", re.I),
        (_EDGE + rb"(KEY=)(?!\[redacted\])(" + _VALUE + rb")", 0),
        # An option: --password hunter2
        (rb"(?<!\S)(--?(?:password|passwd|token|secret|api-key)\s{1,4})(?!\[redacted\])([^\s-]\S{0,500})", re.I),
    )
)


def redact(text: bytes) -> tuple[bytes, int]:
    """``text`` with a mark in the place of each secret, and how many there were.

    >>> redact(b"export HF_TOKEN=abcdefgh")
    (b'export HF_TOKEN=[redacted]', 1)
    """
    total = 0
    for pattern in _PATTERNS:
        text, count = pattern.subn(rb"\1" + MARK, text)
        total += count
    return text, total
