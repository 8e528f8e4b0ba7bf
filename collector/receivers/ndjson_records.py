"""One record of the wire format: its lines, what it says of them, and what it holds besides lines."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from collector.receivers.base import Decoded, Payload, Run, micros, moment_of
from collector.receivers.refusals import Poison
from collector.receivers.wrapped import HEAD_LINES, Streams, is_wrapped, loads, whole
from collector.receivers.wrapped_columns import WrappedColumns
from parsers import accounts, documents, json_text
from parsers import journal_fields as journal
from parsers.lines import count_of
from parsers.record import Origin

#: Keys of objects that a format parses whole: the journal's own entries, and records of a kernel log reader.
WHOLE = frozenset((*journal.TIME, "kmsg_us"))
_LINES = ("raw", "lines", "raw_base64", "lines_base64")
_BASE64 = frozenset(("raw_base64", "lines_base64"))
#: Content fields of a wire record, with their types.
CONTENT: dict[str, type | tuple[type, ...]] = {
    "raw": str, "lines": (str, list), "raw_base64": str, "lines_base64": str, "blind": dict, "status": dict, "defaults": dict,
}  # fmt: skip
_LEVELS = frozenset(("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug"))


class To(NamedTuple):
    """Where the result of one payload goes: ``others`` takes foreign objects; ``own`` holds the request's headers."""

    payload: Payload
    into: Decoded
    streams: Streams
    others: WrappedColumns
    own: dict[str, Any]


def records(body: bytes, json_form: bool) -> Iterator[dict[str, Any] | bytes]:
    """Objects, or the bytes of a line that is not an object."""
    if json_form:
        try:
            whole = json_text.loads(body)
        except ValueError:
            whole = None
        if whole is not None:
            for item in whole if isinstance(whole, list) else [whole]:
                yield item if isinstance(item, dict) else text_of(item)
            return
    for line in body.split(b"\n"):
        line = line.removesuffix(b"\r")
        if not line or line.isspace():
            continue
        try:
            value = loads(line) if line[:1] == b"{" or line.lstrip()[:1] in b'{"' else None
        except (ValueError, RecursionError):
            value = None
        yield value if isinstance(value, dict) else text_of(value) if isinstance(value, str) else line


def text_of(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def add_record(record: dict[str, Any], full: dict[str, Any], to: To) -> None:
    payload, into = to.payload, to.into
    if not _is_ours(record):
        # A foreign object: a shipper's wrapper around a line, or itself the line.
        if is_wrapped(record) and not WHOLE & record.keys():
            to.others.add({**to.own, **record}, "http")
            return
        _add_lines([json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")], to.own, to)
        return
    host = text_at(full, "host")
    if isinstance(record.get("blind"), dict):
        into.blind.append({**_blind(record["blind"], payload.received), "host": host, "stream": text_at(full, "stream"),
                           "source": text_at(full, "source"), "told_by": text_at(full, "agent") or payload.peer})  # fmt: skip
    if isinstance(record.get("status"), dict):
        into.status.append({
            "host": host, "cluster": text_at(full, "cluster"), "status": json.dumps({**record["status"], "address": payload.peer}),
            "boot_id": text_at(full, "boot_id"), "boot_time": micros(full.get("boot_time")), "received": payload.received,
        })  # fmt: skip
    # Accounting or an inventory in a file of a person's own making is that person's text, and no document.
    of_person = accounts.of_persons_file(full.get("owner"), text_at(full, "path"))
    if isinstance(record.get("document"), str) and not of_person:
        _document(record, full, payload, into)
        return
    if isinstance(record.get("lines"), str) and not _BASE64 & record.keys():
        add_text(text_of(record["lines"]) + b"\n", full, to)
    elif lines := _lines_of(record):
        _add_lines(lines, full, to)


def _is_ours(record: dict[str, Any]) -> bool:
    """Whether an object is a wire record: foreign objects have fields of the same names ("status": 200) with other
    values."""
    if isinstance(record.get("document"), str) and not any(name in record for name in _LINES):
        return False
    return any(isinstance(record.get(name), kinds) for name, kinds in CONTENT.items())


def _lines_of(record: dict[str, Any]) -> list[bytes]:
    try:
        if record.get("lines_base64") is not None:
            return _split(base64.b64decode(str(record["lines_base64"])))
        if record.get("raw_base64") is not None:
            return [base64.b64decode(str(record["raw_base64"]))]
    except binascii.Error as error:
        raise Poison(f"a record's base64 is broken: {error}") from error
    if isinstance(record.get("lines"), str):
        return _split(text_of(record["lines"]))
    if isinstance(record.get("lines"), list):
        return [text_of(item) for item in record["lines"]]
    return [text_of(record["raw"])] if record.get("raw") is not None else []


def _split(data: bytes) -> list[bytes]:
    """``a\\nb`` -> two lines; an empty line in the middle is a line."""
    return [part.removesuffix(b"\r") for part in data.split(b"\n")]


def text_at(full: dict[str, Any], name: str) -> str | None:
    value = full.get(name)
    if not isinstance(value, str | int | float) or isinstance(value, bool) or value == "":
        return None
    return whole(str(value))


def _number(full: dict[str, Any], name: str) -> int | None:
    value = full.get(name)
    if isinstance(value, str) and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def add_text(data: bytes, full: dict[str, Any], to: To) -> None:
    """Adds lines with their ends; an empty one is a line."""
    run, group = described(count_of(b"\n", data), data, full, to)
    to.into.add_data(data, run, **group)


def _add_lines(lines: list[bytes], full: dict[str, Any], to: To) -> None:
    run, group = described(len(lines), lines, full, to)
    to.into.add(lines, run, **group)


def described(count: int, lines: bytes | list[bytes], full: dict[str, Any], to: To) -> tuple[Run, dict[str, Any]]:
    """What is known about ``lines``, and the group in which they are parsed."""
    payload = to.payload
    host, path, source, job = (
        text_at(full, "host"),
        text_at(full, "path"),
        text_at(full, "source"),
        _number(full, "job_id"),
    )
    restarts = _number(full, "restarts")
    if path and source is None:
        first = lines.split(b"\n", HEAD_LINES) if isinstance(lines, bytes) else lines
        known = to.streams.of(path, first)
        source, job = known.source, job if job is not None else known.job_id
        host, restarts = host or known.host, restarts if restarts is not None else known.restarts
    where = path or text_at(full, "stream")
    if where is None:
        file = None
    else:
        file = f"{host or payload.peer or '?'}:{where}"
    severity = text_at(full, "severity")
    tags = full.get("tags")
    run = Run(
        count, payload.received, host or payload.peer, file, micros(full.get("time")), micros(full.get("read")),
        severity if severity in _LEVELS else None, None, None, None, None,
        json.dumps([whole(str(tag)) for tag in tags]) if isinstance(tags, list) and tags else None, "agent" if where else "http",
    )  # fmt: skip
    return run, {
        "source": source, "cluster": text_at(full, "cluster"), "timezone": text_at(full, "timezone"),
        "job_id": job if source in ("job_stdout", "job_stderr") else None, "restarts": restarts if job is not None else None,
        "of_person": accounts.of_persons_file(full.get("owner"), path),
    }  # fmt: skip


def _blind(period: dict[str, Any], received: int) -> dict[str, Any]:
    return {
        "start": micros(period.get("from")), "end": micros(period.get("to")), "reason": whole(str(period.get("reason") or "not said")),
        "lines": _number(period, "lines"), "bytes": _number(period, "bytes"), "received": received,
    }  # fmt: skip


def _document(record: dict[str, Any], full: dict[str, Any], payload: Payload, into: Decoded) -> None:
    kind = str(record["document"])
    if kind not in documents.families():
        raise Poison(f"document {kind[:60]!r} is not known; known are {', '.join(sorted(documents.families()))}")
    data = b"\n".join(_lines_of(record))
    host, where = text_at(full, "host"), text_at(full, "path") or text_at(full, "stream") or kind
    read = micros(full.get("read")) or micros(full.get("time")) or payload.received
    origin = Origin(
        path=f"{host or payload.peer or '?'}:{where}", cluster=text_at(full, "cluster"), host=host, source=kind,
        timezone=text_at(full, "timezone") or "UTC", timezone_known="timezone" in full, received=moment_of(read),
        reference=moment_of(read),
    )  # fmt: skip
    into.parsed.append(documents.read(kind, data, origin))
