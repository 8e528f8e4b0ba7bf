"""Lines of JSON: journald's export, the captures' kernel reader, node polls, and shippers that wrap a line in an object."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from parsers.formats.base import FACILITIES, SEVERITIES, SEVERITY_WORDS, Format, by_line, source_of_program
from parsers.formats.syslog import odd_tail
from parsers.record import Origin

_ROUTED = re.compile(r"\[minislurm:(?P<host>[\w.-]+)\] (?P<text>.*)$", re.DOTALL)
_SYSLOG = re.compile(r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d) (?P<rest>.*)$", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(microseconds: Any) -> str | None:
    try:
        return (_EPOCH + timedelta(microseconds=int(microseconds))).isoformat(timespec="microseconds")
    except (TypeError, ValueError, OverflowError):
        return None


def _name(names: tuple[str, ...], number: Any) -> str | None:
    try:
        at = int(number)
    except (TypeError, ValueError):
        return None
    return names[at] if 0 <= at < len(names) else None


def _text(value: Any) -> str | None:
    """A journal field: text, a list of bytes where it is not UTF-8, or a list of texts where it occurs twice."""
    if isinstance(value, list):
        if value and all(isinstance(item, int) and 0 <= item < 256 for item in value):
            return bytes(value).decode(errors="replace")
        return " ".join(str(item) for item in value)
    return None if value is None else str(value)


def _integer(value: Any) -> int | None:
    text = _text(value) or ""
    return int(text) if text.isdigit() and len(text) < 18 else None


def _kmsg(record: dict[str, Any], origin: Origin) -> dict[str, Any]:
    """The captures' reader of /dev/kmsg: ``read_at`` is the wall clock at reading, within milliseconds of the event."""
    text = str(record.get("text", ""))
    routed = _ROUTED.match(text)
    try:
        read_at = float(record["read_at"])
    except (KeyError, TypeError, ValueError):
        read_at = None
    extra = {"kmsg_seq": record.get("seq"), "kmsg_usec": record.get("kmsg_us")}
    return {
        "format": "kmsg", "source": "kernel", "unit": "kernel", "message": routed["text"] if routed else text,
        # The ring buffer is one for all simulated hosts: without a route nobody knows whose line it is.
        "host": routed["host"] if routed else None, "iso": _moment(read_at * 1_000_000) if read_at is not None else None,
        "severity": _name(SEVERITIES, record.get("severity")), "facility": _name(FACILITIES, record.get("facility")),
        "extra": json.dumps(extra),
    }  # fmt: skip


def _journal(record: dict[str, Any], origin: Origin) -> dict[str, Any]:
    program = _text(record.get("SYSLOG_IDENTIFIER") or record.get("_COMM"))
    if record.get("_TRANSPORT") == "kernel":
        program = program or "kernel"
    message = _text(record.get("MESSAGE")) or ""
    unit = _text(record.get("_SYSTEMD_UNIT") or record.get("UNIT"))
    extra = {"program": program, "boot_id": _text(record.get("_BOOT_ID")), "unit": unit}
    return {
        "format": "journald", "source": source_of_program(program, message) or "syslog", "unit": program, "message": message,
        "host": _text(record.get("_HOSTNAME")), "pid": _integer(record.get("_PID") or record.get("SYSLOG_PID")),
        "severity": _name(SEVERITIES, record.get("PRIORITY")), "facility": _name(FACILITIES, record.get("SYSLOG_FACILITY")),
        "iso": _moment(record.get("_SOURCE_REALTIME_TIMESTAMP") or record.get("__REALTIME_TIMESTAMP")),
        "extra": json.dumps({k: v for k, v in extra.items() if v}),
    }  # fmt: skip


def _wrapped(record: dict[str, Any], message: str, origin: Origin) -> dict[str, Any]:
    """An object around a line: level, host and time as the common shippers call them; a syslog header inside is read."""
    first = {name.lower().lstrip("@_"): value for name, value in reversed(record.items())}
    level = str(first.get("level") or first.get("severity") or "").lower()
    row: dict[str, Any] = {
        "format": "json", "source": origin.source, "message": message, "severity": SEVERITY_WORDS.get(level),
        "iso": _text(first.get("timestamp") or first.get("time") or first.get("ts")),
        "host": _text(first.get("host") or first.get("hostname")) if not isinstance(first.get("host"), dict) else None,
    }  # fmt: skip
    found = _SYSLOG.match(message)
    if found:
        tail = odd_tail(found["rest"], False)
        direct = re.match(
            r"(?P<host>\S*[^\s:]) +(?P<unit>[^\s:\[]+)(?:\[(?P<procid>\d+)\])?: (?P<message>.*)$",
            found["rest"],
            re.DOTALL,
        )
        tail = direct.groupdict() if direct else tail
        row |= {
            "host": tail.get("host"),
            "unit": tail.get("unit"),
            "pid": _integer(tail.get("procid")),
            "message": tail["message"],
        }
        row["source"] = source_of_program(tail.get("unit"), str(tail["message"])) or "syslog"
    return row


def _row(text: str, origin: Origin) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if "kmsg_us" in record and "text" in record:
        return _kmsg(record, origin)
    if "MESSAGE" in record and (
        "__REALTIME_TIMESTAMP" in record or "_SOURCE_REALTIME_TIMESTAMP" in record or "PRIORITY" in record
    ):
        return _journal(record, origin)
    for name in ("message", "msg", "log", "MESSAGE", "body"):
        if isinstance(record.get(name), str):
            return _wrapped(record, record[name], origin)
    if "t" in record and "node" in record:  # a poll of a node's state: a document, not an event
        return {
            "format": "json",
            "source": origin.source,
            "message": text,
            "host": _text(record["node"]),
            "iso": _text(record["t"]),
        }
    return {"format": "json", "source": origin.source, "message": text}


def _read(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    return by_line(_row)(frame, origin)


JSON = Format("json", "an object of JSON", r"^\s*\{.*\}\s*$", _read, for_jobs=True)
