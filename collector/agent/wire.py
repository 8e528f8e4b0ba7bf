"""Records as docs/sources/wire.md describes them: one JSON object per line, and how a batch of them is packed."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quote
from typing import Any

try:
    import zstandard
except ImportError:  # a node without the wheel still delivers, at twice the bytes
    zstandard = None  # type: ignore[assignment]

#: Level 3 costs 8 ms per MB and node, and packs syslog 12:1; higher levels cost CPU that belongs to the job.
_LEVEL = 3


def stamp(seconds: float) -> str:
    """Epoch seconds as RFC 3339 with microseconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def record(**fields: Any) -> bytes:
    """One record; fields that are None are omitted."""
    return json.dumps({k: v for k, v in fields.items() if v is not None}, separators=(",", ":")).encode() + b"\n"


def lines_record(head: bytes, text: bytes, **fields: Any) -> bytes:
    """Several lines (no line end after the last) under ``head``, a prepared ``{"stream":..,"source":..`` without its
    closing brace. Bytes that are not UTF-8 are sent exactly, in base64 (in a document as U+FFFD: Slurm writes UTF-8).
    """
    if b'"document":' in head:
        text = text.decode("utf-8", "replace").encode() + b"\n"
    more = "".join(f',"{name}":{json.dumps(value)}' for name, value in fields.items() if value is not None).encode()
    try:
        name = b"raw" if b'"document":' in head else b"lines"
        return head + more + b',"' + name + b'":' + quote(text.decode("utf-8")).encode("ascii") + b"}\n"
    except UnicodeDecodeError:
        return head + more + b',"lines_base64":"' + base64.b64encode(text) + b'"}\n'


def head(**fields: Any) -> bytes:
    """The start of a record that ``lines_record`` completes."""
    return record(**fields)[:-2]


def document(kind: str, text: str, stream: str, read: float, **fields: Any) -> bytes:
    """A whole document (the answer of sacct, Prometheus text, ...)."""
    return record(stream=stream, document=kind, raw=text, read=stamp(read), **fields)


def blind(
    stream: str, source: str | None, since: float, until: float, reason: str, lines: int | None = None, **fields: Any
) -> bytes:
    """Nothing was seen of ``stream`` between two times; ``lines`` if the loss is counted."""
    about: dict[str, Any] = {"from": stamp(since), "to": stamp(until), "reason": reason}
    if lines is not None:
        about["lines"] = lines
    return record(blind=about, stream=stream, source=source, **fields)


def own_words(host: str, stream: str, message: str, now: float, **quotations: str) -> bytes:
    """A line of the agent's own. ``message`` holds only our own words and numbers; text that users chose (names, paths)
    goes into ``quotations``, as ``strangers.quoted`` returns it."""
    pairs = "".join(f" {name}={text}" for name, text in quotations.items())
    line = f"{stamp(now)} {host} faultline-agent[{os.getpid()}]: {stream}: {message}{pairs}"
    about = head(stream=stream, source="faultline-agent", timezone="UTC")
    return lines_record(about, " ".join(line.split()).encode("utf-8", "replace"), read=stamp(now))


def pack(body: bytes) -> bytes:
    """A batch in the form stored in the spool and sent over the wire."""
    if zstandard is None:
        return gzip.compress(body, 6, mtime=0)
    return zstandard.ZstdCompressor(level=_LEVEL).compress(body)


def unpack(payload: bytes) -> bytes:
    """The records of a packed batch, whichever way it was packed (a spool may outlive an upgrade)."""
    if payload[:2] == b"\x1f\x8b":
        return gzip.decompress(payload)
    if zstandard is None:
        raise ValueError("a zstd batch in the spool, and zstandard is not installed any more")
    return zstandard.ZstdDecompressor().decompress(payload, max_output_size=1 << 30)


def encoding_of(payload: bytes) -> str:
    """The ``Content-Encoding`` of a packed batch."""
    return "gzip" if payload[:2] == b"\x1f\x8b" else "zstd"


def halves(body: bytes) -> tuple[bytes, bytes] | None:
    """A batch split in two, each half with the defaults it needs: between records, else between lines. None if it is
    one line."""
    rows = body.splitlines(keepends=True)
    shared = [row for row in rows if row.startswith(b'{"defaults"')][:1]
    rest = [row for row in rows if not row.startswith(b'{"defaults"')]
    if len(rest) > 1:
        middle = len(rest) // 2
        return b"".join(shared + rest[:middle]), b"".join(shared + rest[middle:])
    if not rest:
        return None
    found = _split_lines(json.loads(rest[0]))
    if found is None:
        return None
    first, second = (b"".join(shared) + record(**piece) for piece in found)
    return first, second


def _split_lines(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    name = "lines" if "lines" in row else "lines_base64"
    if name not in row:
        return None
    data = row[name].encode() if name == "lines" else base64.b64decode(row[name])
    pieces = data.split(b"\n")
    if len(pieces) < 2:
        return None
    first, second = b"\n".join(pieces[: len(pieces) // 2]), b"\n".join(pieces[len(pieces) // 2 :])
    moved = {"offset": row["offset"] + len(first) + 1} if "offset" in row else {}
    texts = [p.decode() if name == "lines" else base64.b64encode(p).decode() for p in (first, second)]
    return {**row, name: texts[0]}, {**row, **moved, name: texts[1]}


def defaults(facts: Mapping[str, Any]) -> bytes:
    """Values that apply to every record below it in the body."""
    return record(defaults=dict(facts))


def records(body: bytes) -> Iterator[dict[str, Any]]:
    """The records of a body, parsed (for tests and ``faultline agent probe``)."""
    for row in body.splitlines():
        yield json.loads(row)


def count(rows: Iterable[Mapping[str, Any]]) -> int:
    """The number of lines and documents in records."""
    return sum(
        row["lines"].count("\n") + 1 if "lines" in row else "raw" in row or "lines_base64" in row for row in rows
    )
