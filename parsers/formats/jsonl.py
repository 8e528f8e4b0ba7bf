"""Lines of JSON: journald's export, the captures' kernel reader, node polls, and shippers that wrap a line in an object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from parsers import accounts
from parsers import journal_fields as journal
from parsers.formats import envelopes
from parsers.formats.base import (
    FACILITIES,
    LATER,
    SEVERITIES,
    SEVERITY_WORDS,
    ByLine,
    Format,
    by_line,
    conform,
    source_of_program,
)
from parsers.formats.wrapped import read_inner
from parsers.json_text import loads
from parsers.record import Origin

_ROUTED = re.compile(r"\[minislurm:(?P<host>[\w.-]+)\] (?P<text>.*)$", re.DOTALL)
#: Marks rows whose message may have a header of its own, until that is parsed.
_WRAPPED = "wrapped"
#: Where shippers put the line.
_MESSAGES = ("message", "msg", "log", "MESSAGE", "body", "line")
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
    """A journal field: text, a list of bytes if it is not UTF-8, or a list of texts if it occurs twice."""
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
        # The ring buffer is shared by all simulated hosts: without a route, the line's host is unknown.
        "host": routed["host"] if routed else None, "iso": _moment(read_at * 1_000_000) if read_at is not None else None,
        "severity": _name(SEVERITIES, record.get("severity")), "facility": _name(FACILITIES, record.get("facility")),
        "extra": json.dumps(extra),
    }  # fmt: skip


def _journal(record: dict[str, Any], origin: Origin) -> dict[str, Any]:
    program = _text(_first(record, journal.PROGRAM))
    if record.get(journal.TRANSPORT) == "kernel":
        program = program or "kernel"
    message = _text(record.get(journal.MESSAGE)) or ""
    unit = _text(_first(record, journal.UNIT))
    source = source_of_program(program, message) or "syslog"
    if source == "kernel" and record.get(journal.TRANSPORT) not in (None, "kernel"):
        source = "syslog"  # journald itself records how it received an entry
    facility = _name(FACILITIES, record.get(journal.FACILITY))
    if accounts.of_person(record.get(journal.ACCOUNT), record.get(journal.SYSTEM_UNIT), record.get(journal.USER_UNIT)):
        source, facility = "syslog", accounts.FACILITY
    extra = {"program": program, "boot_id": _text(record.get(journal.BOOT)), "unit": unit}
    return {
        "format": "journald", "source": source, "unit": program, "message": message,
        "host": _text(record.get(journal.HOST)), "pid": _integer(_first(record, journal.PID)),
        "severity": _name(SEVERITIES, record.get(journal.PRIORITY)), "facility": facility,
        "iso": _moment(_first(record, journal.TIME))
        or _time(next((record[name] for name in journal.SHIPPERS_TIMES if record.get(name)), None)),
        "extra": json.dumps({k: v for k, v in extra.items() if v}),
    }  # fmt: skip


def _first(record: dict[str, Any], names: Iterable[str]) -> Any:
    """The value of the first of these fields that says anything, else that of the last."""
    value = None
    for name in names:
        if value := record.get(name):
            break
    return value


#: Shippers' names for the host, the program and the time of a line.
_HOSTS = ("host", "hostname", "_hostname", "host.name", "node_name", "nodename", "syslog_hostname", "computer")
_LABELS = ("labels", "stream", "resource", "kubernetes", "agent", "attributes")
_TAGS = ("ident", "programname", "appname", "syslog_identifier")
_PROGRAMS = (*_TAGS, "program", "app-name", "app_name", "daemon")
_TIMES = ("timestamp", "time", "ts", "date", "datetime", "timereported", "timegenerated", "eventtime")
#: Number of digits of seconds, milli-, micro- and nanoseconds since 1970.
_SECONDS, _SINCE_1970 = 10, (10, 13, 16, 19)


def _host(fields: dict[str, Any]) -> str | None:
    """The line's host: a name, Elastic's ``{"host": {"name": ...}}``, a label of Loki's stream, Kubernetes' node."""
    host = next((fields[name] for name in _HOSTS if fields.get(name)), None)
    if isinstance(host, dict):
        return _text(host.get("name") or host.get("hostname"))
    for name in _LABELS if host is None else ():
        labels = fields.get(name)
        if isinstance(labels, dict):
            host = next((labels[key] for key in (*_HOSTS, "node") if isinstance(labels.get(key), str)), host)
    return _text(host)


def _time(value: Any) -> str | None:
    """A timestamp as written; seconds, milli-, micro- or nanoseconds since 1970 as one."""
    text = _text(value)
    whole, point, fraction = (text or "").partition(".")
    if not whole.isdigit() or not (fraction.isdigit() or not point) or len(whole) not in _SINCE_1970:
        return text
    behind = int(f"{fraction:0<6.6}") if len(whole) == _SECONDS else 0
    return _moment(int(whole) * 1_000_000 // 10 ** (len(whole) - _SECONDS) + behind)


def _wrapped(record: dict[str, Any], message: str, origin: Origin) -> dict[str, Any]:
    """An object around a line: level, host and time under the names of common shippers."""
    first = {name.lower().lstrip("@_"): value for name, value in reversed(record.items())}
    level = SEVERITY_WORDS.get(str(first.get("level") or first.get("severity") or "").lower())
    moment, host = next((first[name] for name in _TIMES if first.get(name)), None), _host(first)
    fields = envelopes.flat(record) if level is None or moment is None or host is None else {}
    called = next((name for name in _PROGRAMS if isinstance(first.get(name), str)), "")
    source = source_of_program(first.get(called), message)
    if called not in _TAGS and source == "syslog":  # a program of that name may belong to a job
        source = None
    row: dict[str, Any] = {
        "format": "json", "source": origin.source or source, "unit": first.get(called),
        "message": message.rstrip("\n"), "severity": level or envelopes.severity(fields),
        "iso": _time(moment if moment is not None else envelopes.time(fields)),
        "host": host or envelopes.host(fields), "tag": _WRAPPED,
    }  # fmt: skip
    row |= {"iso": None, **parts} if (parts := envelopes.bsd_parts(row["iso"])) else {}
    inner = _record(row["message"])
    if inner is not None and (text := _message_of(inner)) is not None:  # an object around an object
        return _filled(_wrapped(inner, text, origin), row)
    return row


def _filled(inner: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any]:
    """The inner object's values, else the outer one's; the outer time takes precedence, as it does around a line."""
    return {name: value if value is not None else outer.get(name) for name, value in inner.items()} | {
        "iso": outer["iso"] or inner["iso"]
    }


def _enveloped(record: dict[str, Any], origin: Origin) -> dict[str, Any] | None:
    """An object around a line that only a look at all its members recognises; None for any other."""
    fields = envelopes.flat(record)
    message = envelopes.text(fields)
    if message is None:
        return None
    program = envelopes.program(fields)
    row: dict[str, Any] = {
        "format": "json", "source": origin.source or source_of_program(program, message), "unit": program,
        "message": message.rstrip("\n"), "severity": envelopes.severity(fields), "iso": _time(envelopes.time(fields)),
        "host": envelopes.host(fields), "tag": _WRAPPED,
    }  # fmt: skip
    return row | ({"iso": None, **parts} if (parts := envelopes.bsd_parts(row["iso"])) else {})


def _record(text: str) -> dict[str, Any] | None:
    """A JSON object."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        record = loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _message_of(record: dict[str, Any]) -> str | None:
    """The line inside an object."""
    return next((record[name] for name in _MESSAGES if isinstance(record.get(name), str)), None)


def _only_entry(record: dict[str, Any]) -> dict[str, Any] | None:
    """The only entry of a push to Loki, as an object around its line."""
    streams = record.get("streams")
    if not isinstance(streams, list) or len(streams) != 1 or not isinstance(streams[0], dict):
        return None
    values = streams[0].get("values")
    if not isinstance(values, list) or len(values) != 1 or not isinstance(values[0], list) or len(values[0]) < 2:
        return None
    return {"stream": streams[0].get("stream"), "ts": values[0][0], "line": values[0][1]}


def _row(text: str, origin: Origin) -> dict[str, Any] | None:
    record = _record(text)
    if record is None:
        return None
    row = _read_record(record, text, origin)
    if row.get("tag") == _WRAPPED and _is_persons(record, text):
        # Whatever header a person's text has, it is only text.
        return row | {"tag": None, "format": "journald", "source": "syslog", "facility": accounts.FACILITY}
    return row


def _is_persons(record: dict[str, Any], text: str) -> bool:
    small = text.lower()
    return any(mark in small for mark in accounts.MARKS) and accounts.writer({**envelopes.flat(record), **record})


def _read_record(record: dict[str, Any], text: str, origin: Origin) -> dict[str, Any]:
    if "kmsg_us" in record and "text" in record:
        return _kmsg(record, origin)
    if journal.MESSAGE in record and (
        any(name in record for name in journal.TIME)
        or (journal.PRIORITY in record and journal.SYSLOG_NG_PROGRAM not in record)
    ):
        return _journal(record, origin)
    if isinstance(record.get("_source"), dict):  # a document exported by Elasticsearch
        record = record["_source"]
    record = _only_entry(record) or record
    if (message := _message_of(record)) is not None:
        return _wrapped(record, message, origin)
    if "t" in record and "node" in record:  # a poll of a node's state: a document, not an event
        return {
            "format": "json",
            "source": origin.source,
            "message": text,
            "host": _text(record["node"]),
            "iso": _text(record["t"]),
        }
    return _enveloped(record, origin) or {"format": "json", "source": origin.source, "message": text}


def _read(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    rows = by_line(_row)(frame, origin)
    wrapped = rows["tag"].eq(_WRAPPED).fill_null(False)
    if not wrapped.any():
        return rows
    inner = read_inner(rows.filter(wrapped).select("i", pl.col("message").alias("text")), origin.but(received=None))
    # A line without a header of its own gives nothing but its text.
    inner = inner.filter(~pl.col("format").is_in(["plain", "continuation", "json"])).drop("format", "tag", "quality")
    both = rows.with_columns(pl.when(pl.col("tag") != _WRAPPED).then("tag").alias("tag")).join(
        inner, on="i", how="left", suffix="_inner"
    )
    # The inner header knows the writer better, the outer one the time.
    inside = [name for name in inner.columns if name != "i"]
    outer_first = {"time", "resolution_us", "stamp", "received", "sender_time"}
    messages = [
        pl.coalesce(*((name, f"{name}_inner") if name in outer_first else (f"{name}_inner", name))).alias(name)
        for name in inside
    ]
    own_time = pl.col("time").is_null() & pl.col("time_inner").is_not_null()
    return conform(
        both.with_columns(*messages, pl.when(own_time).then(pl.lit("inferred")).otherwise("quality").alias("quality"))
    )


def _alone(text: str, origin: Origin) -> dict[str, Any] | None:
    """Like :func:`_row`; wrapped lines are parsed together."""
    row = _row(text, origin)
    return LATER if row is not None and row.get("tag") == _WRAPPED else row


_PAIR = re.compile(r'([A-Za-z_][\w.-]*)=("(?:[^"\\]|\\.)*"|\S*)')


def _logfmt_row(text: str, origin: Origin) -> dict[str, Any] | None:
    """``time="..." level=warning msg="..."`` as written by containerd, kubelet and Go loggers; an error follows the
    message."""
    fields = {name.lower(): value for name, value in reversed(_PAIR.findall(text))}
    values = {name: loads(value) if _is_quoted(value) else value for name, value in fields.items()}
    message = values.get("msg") or values.get("message")
    if not message:
        return None
    error = values.get("error") or values.get("err")
    return {
        "format": "logfmt", "source": origin.source, "message": f"{message}: {error}" if error else message,
        "severity": SEVERITY_WORDS.get(values.get("level", values.get("lvl", "")).lower()), "host": _host(values),
        "iso": values.get("time") or values.get("ts") or values.get("t"),
    }  # fmt: skip


def _is_quoted(value: str) -> bool:
    """Whether a value is a JSON string: anything else stays as written."""
    try:
        return value.startswith('"') and isinstance(loads(value), str)
    except ValueError:
        return False


LOGFMT = Format(
    "logfmt",
    'pairs of name=value with time, level and msg="..."',
    r'^(?:time|ts|t|level|lvl)="?\S[^=]*"? (?:.* )?(?:msg|message)=',
    by_line(_logfmt_row),
)
JSON = Format("json", "an object of JSON", r"^\s*\{.*\}\s*$", ByLine(_alone, _read), for_jobs=True)
