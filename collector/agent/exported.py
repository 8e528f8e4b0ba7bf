"""What a shell's own ``export -p`` printed, as a hook file: ``faultline-memory.sh`` can start no process in a job's way, so the
agent picks the allow-listed variables out afterwards, as ``collector.hooks`` would have done.

The file is ``faultline-shell/1``, a line each for event, host and job, the shell's words, and ``faultline-end``. Without that
last line the hook was stopped, or its disk was full. Shells quote differently (dash and busybox ``'..'``, bash ``".."`` and
``$'..'``); POSIX has all of them read back what they print.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from collector.agent import environment

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
#: What ``collector.hooks`` keeps, and its bounds: a test compares the two. A hook takes nothing from the agent, nor this from it.
_EVENTS = ("prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "healthcheck", "gate")
_PREFIXES = (b"SLURM_", b"SLURMD_")
_NAMES = frozenset((b"CUDA_VISIBLE_DEVICES", b"GPU_DEVICE_ORDINAL", b"ROCR_VISIBLE_DEVICES"))
_SECRET = b"SLURM_JWT"
_GATE_ANSWER = b"FAULTLINE_GATE_ANSWER"
_MOST_VALUE, _MOST_FILE = 32 << 10, 256 << 10
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
    named = event if event.decode("ascii", "replace") in _EVENTS else b"unknown"
    return _content(env, named, host, at_ns)


def _content(env: Mapping[bytes, bytes], event: bytes, host: bytes, at_ns: int) -> bytes:
    pairs = [
        b"FAULTLINE_EVENT=" + event,
        b"FAULTLINE_HOST=" + host,
        b"FAULTLINE_TIME=%d.%09d" % divmod(at_ns, 1_000_000_000),
    ]
    room, cut, more = (
        _MOST_FILE - 256,
        0,
        _of_task() if event == b"taskprolog" and env.get(b"SLURM_PROCID", b"0") == b"0" else (),
    )
    for name, value in env.items():
        allowed = name.startswith(_PREFIXES) or name in _NAMES or (name + b"=").startswith(more)
        if not (allowed or (name == _GATE_ANSWER and event == b"gate")) or name == _SECRET:
            continue
        if len(value) > _MOST_VALUE:
            value, cut = value[:_MOST_VALUE], cut + 1
        room -= len(name) + len(value) + 2
        if room < 0:
            cut += 1
            break
        pairs.append(name + b"=" + value)
    if cut:
        pairs.append(b"FAULTLINE_TRUNCATED=%d" % cut)
    return b"faultline-hook/1\n" + b"\0".join(pairs)


def _of_task() -> tuple[bytes, ...]:
    """The beginnings of ``NAME=`` that are kept of a step's first task."""
    names = (name.encode("utf-8", "replace") for name in environment.allowed())
    return tuple(name[:-1] if name.endswith(b"*") else name + b"=" for name in names)


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
