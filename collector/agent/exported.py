"""What a shell's own ``export -p`` printed, as a hook file: ``faultline-memory.sh`` can start no process in a job's way, so the
agent picks the allow-listed variables out afterwards, as ``collector.hooks`` would have done.

The file is ``faultline-shell/1``, a line each for event, host and job, the shell's words, and ``faultline-end``. Without that
last line the hook was stopped, or its disk was full. Shells quote differently (dash and busybox ``'..'``, bash ``".."`` and
``$'..'``); POSIX has all of them read back what they print.
"""

from __future__ import annotations

import re
from typing import Any, cast

from collector import hooks

SUFFIX = ".exported"
MAGIC, END = b"faultline-shell/1\n", b"faultline-end\n"
#: A hook gave this file up, and handed its record over elsewhere.
VOID = b"faultline-void\n"

_PIECE = re.compile(
    rb"""'(?P<plain>[^']*+)'|"(?P<double>(?:[^"\\]|\\[\s\S])*+)"|\$'(?P<ansi>(?:[^'\\]|\\[\s\S])*+)'|\\(?P<one>[\s\S])|(?P<bare>[^'"\s\\$]++)"""
)
_ENTRY = re.compile(
    rb"""(?:export|declare -x) (?P<name>[A-Za-z_][A-Za-z0-9_]*+)"""
    rb"""(?P<value>=(?:'[^']*+'|"(?:[^"\\]|\\[\s\S])*+"|\$'(?:[^'\\]|\\[\s\S])*+'|\\[\s\S]|[^'"\s\\$])*+)?\n"""
)
_DOUBLE = re.compile(rb'\\(["$`\\])|\\\n')
_ANSI = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|([\s\S]))")
_LETTERS = {b"a": b"\a", b"b": b"\b", b"e": b"\x1b", b"E": b"\x1b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}  # fmt: skip


def is_whole(tail: bytes) -> bool:
    """Whether a file with these last bytes was written to its end."""
    return tail.endswith(b"\n" + END)


def hook_file(data: bytes, at_ns: int) -> bytes:
    """The file as a hook in Python would have written it at ``at_ns`` (epoch). Raises ``ValueError`` if it is none.

    >>> hook_file(b"faultline-shell/1\\nepilog\\ngpu01\\n7\\nexport SLURM_JOB_ID='7'\\nexport HOME='/'\\nfaultline-end\\n", 10**9)
    b'faultline-hook/1\\nFAULTLINE_EVENT=epilog\\x00FAULTLINE_HOST=gpu01\\x00FAULTLINE_TIME=1.000000000\\x00SLURM_JOB_ID=7'
    """
    if not data.startswith(MAGIC):
        raise ValueError(f"does not begin with {MAGIC.decode().strip()}")
    event, host, _job, rest = (data[len(MAGIC) :].split(b"\n", 3) + [b""] * 4)[:4]
    env: dict[bytes, bytes] = {}
    at = 0
    while (found := _ENTRY.match(rest, at)) is not None:
        if found["value"] is not None:
            env[found["name"]] = _unquoted(found["value"][1:])
        at = found.end()
    if rest[at:] != END:
        raise ValueError("is not what a shell prints for export -p")
    named = event.decode("ascii", "replace")
    named = named if named in hooks.EVENTS else "unknown"
    return hooks.content(cast("Any", env), named, host.decode("utf-8", "surrogateescape"), at_ns)


def about(head: bytes) -> tuple[str, str, str]:
    """Event, host and job of a file that may be torn; a question mark for what is missing."""
    lines = head[len(MAGIC) :].split(b"\n") if head.startswith(MAGIC) else []
    event, host, job = ([line.decode("utf-8", "replace") for line in lines[:3]] + ["", "", ""])[:3]
    return event or "?", host or "?", job or "?"


def _unquoted(value: bytes) -> bytes:
    return b"".join(map(_piece, _PIECE.finditer(value)))


def _piece(found: re.Match[bytes]) -> bytes:
    kind = found.lastgroup or "bare"
    text: bytes = found[kind]
    if kind == "double":
        return _DOUBLE.sub(lambda escape: escape[1] or b"", text)
    return _ANSI.sub(_ansi, text) if kind == "ansi" else text


def _ansi(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes([int(found[1], 8) & 0xFF])
    if found[2]:
        return bytes([int(found[2], 16)])
    return _LETTERS.get(found[3], found[3])
