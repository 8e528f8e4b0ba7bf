"""Lines of forwarders and Go loggers: standard output of Fluentd and Fluent Bit, files with tab-separated columns,
klog.

Fluentd and Fluent Bit put a time and a tag before a record, which is JSON or a printed Ruby hash.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from parsers import clock, regexes
from parsers.formats import jsonl, syslog
from parsers.formats.base import SEVERITY_WORDS, Format, by_line, conform, groups, timed
from parsers.formats.job_output import COLOUR
from parsers.formats.wrapped import read_inner, with_outer
from parsers.record import Origin

_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)"
#: out_stdout of Fluentd, out_file of Fluentd.
_RECORD = rf"(?s)^(?P<iso>{_DAY}(?: {_CLOCK} [+-]\d{{4}} |T{_CLOCK}{_ZONE}\t))(?P<tag>[\w./*-]+)(?:: |\t)(?P<rest>\{{.*\}})\s*$"
#: out_stdout of Fluent Bit; since version 2 the time is in a list with the record's metadata.
_NUMBERED = r"(?s)^\[\d+\] (?P<tag>[\w./*-]+): \[\[?(?P<epoch>1\d{9})\.(?P<fraction>\d{6})\d*(?:, \{.*?\}\])?, (?P<rest>\{.*\})\]\s*$"
#: Ruby's notation of a hash that differs from JSON: arrows, nil, and some escapes.
_RUBY = re.compile(r'"(?:[^"\\]|\\.)*"|\s*=>\s*|\bnil\b', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|(.))", re.DOTALL)
_ESCAPES = {"e": r"\u001b", "a": r"\u0007", "v": r"\u000b", "s": " ", "#": "#"}


def _json_of(record: str) -> str:
    """A record as JSON, whichever of the two it is."""
    return _RUBY.sub(_token, record) if "=>" in record else record


def _token(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith('"'):
        return _ESCAPE.sub(lambda part: _ESCAPES.get(part[1], part[0]) if part[1] else r"\ufffd", text)
    return "null" if text == "nil" else ": "


def _read_records(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    parts = []
    for shape in (_RECORD, _NUMBERED):
        found = groups(frame, shape).filter(pl.col("rest").is_not_null())
        if found.is_empty():
            continue
        if "epoch" in found.columns:
            micros = (pl.concat_str("epoch", "fraction")).cast(pl.Int64).cast(pl.Datetime("us"))
            found = found.with_columns(micros.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").alias("iso"))
        found = found.with_columns(pl.col("iso").str.strip_chars())
        outer = timed(found, origin).select("i", "time", "quality", "resolution_us")
        texts = pl.Series("text", [_json_of(text) for text in found["rest"].to_list()], dtype=pl.String)
        parts.append(with_outer(conform(jsonl.JSON.read(pl.DataFrame([found["i"], texts]), origin)), outer, "fluent"))
    return pl.concat(parts) if parts else frame.clear()


_LEVEL = "|".join(sorted({word.upper() for word in SEVERITY_WORDS} | {"WARN", "DPANIC"}, key=len, reverse=True))
_COLUMNS = (
    rf"(?s)^(?P<iso>{_DAY}[T ]{_CLOCK}{_ZONE}?)\t"
    rf"(?:(?P<level>{_LEVEL})\t(?P<message>.*)|(?P<host>[A-Za-z0-9][\w.-]*)\t(?P<unit>[A-Za-z][\w./@-]*)(?P<pid>\[\d+\])?:?\t(?P<rest>.*))$"
)


def _read_columns(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Time, level and text, as zap writes; or time, host, program and text, as in syslog daemons' templates."""
    found = groups(frame, _COLUMNS).filter(pl.col("iso").is_not_null())
    levelled, hosted = (found.filter(pl.col(name).is_not_null()) for name in ("level", "host"))
    parts = []
    if len(levelled):
        word = pl.col("level").str.to_lowercase().replace({"dpanic": "critical"})
        parts.append(conform(timed(levelled.drop("host", "unit", "pid").with_columns(
            word.replace_strict(SEVERITY_WORDS, default=None, return_dtype=pl.String).alias("severity"),
            pl.col("iso").alias("stamp"), pl.lit("tabbed").alias("format"), pl.lit(origin.source, pl.String).alias("source"),
        ), origin)))  # fmt: skip
    if len(hosted):
        tag = pl.concat_str("unit", pl.col("pid").fill_null(""), pl.lit(": "), "rest")
        text = pl.concat_str(pl.col("iso").str.replace(" ", "T"), pl.lit(" "), "host", pl.lit(" "), tag)
        lines = hosted.select("i", text.alias("text"))
        parts.append(conform(syslog.ISO.read(lines, origin.but(source=origin.source or "syslog"))))
    return pl.concat(parts) if parts else frame.clear()


_WORDS = "|".join(sorted((word for word in SEVERITY_WORDS if word.isalpha()), key=len, reverse=True))
_LEVELLED = rf"(?s)^(?P<iso>{_DAY}T{_CLOCK}{_ZONE}) +(?:\d+ )?(?:\[ *(?P<bracketed>{_LEVEL}|{_WORDS}) *\]|(?P<level>{_LEVEL})) +(?P<message>\S.*)$"


def _read_levelled(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Loggers with RFC 3339 timestamps: the time is followed by a level, not by a host."""
    found = groups(frame, _LEVELLED).filter(pl.col("iso").is_not_null())
    if found.is_empty():
        return found
    word = pl.coalesce("level", "bracketed").str.to_lowercase().replace({"dpanic": "critical"})
    return timed(found.with_columns(
        word.replace_strict(SEVERITY_WORDS, default=None, return_dtype=pl.String).alias("severity"),
        pl.col("iso").alias("stamp"), pl.lit("levelled").alias("format"), pl.lit(origin.source, pl.String).alias("source"),
    ), origin)  # fmt: skip


_KLOG = re.compile(
    r"(?P<letter>[IWEF])(?P<month>\d\d)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)\.(?P<fraction>\d{6}) +(?P<pid>\d{1,9}) (?P<file>[\w.-]+\.go):\d+\] ?(?P<message>.*)$",
    re.DOTALL,
)
_LETTERS = {"I": "info", "W": "warning", "E": "error", "F": "crit"}
_NAMES = dict(zip(range(1, 13), list(clock.MONTHS)[:12], strict=True))


def _klog_row(text: str, origin: Origin) -> dict[str, Any] | None:
    """Lines of Kubernetes' daemons, exporters and device plugins: not job output, though glog's header is the same."""
    found = _KLOG.match(text)
    if found is None or int(found["month"]) not in _NAMES:
        return None
    return {
        "format": "klog", "source": origin.source or "syslog", "message": found["message"], "pid": int(found["pid"]),
        "severity": _LETTERS[found["letter"]], "month": _NAMES[int(found["month"])],
        **{name: found[name] for name in ("day", "clock", "fraction")}, "stamp": text[: found.start("pid")].strip(),
    }  # fmt: skip


#: An unambiguous zone after a timestamp, where a host would be.
_NAMED_ZONE = "|".join(sorted((zone for zone in clock.ZONES if len(zone) > 1), key=len, reverse=True))
_TAG = r"[\w.-]+ [A-Za-z][\w./@-]*(?:\[\d+\])?: "
_ZONED = rf"(?s)^(?P<head>(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} [ \d]\d (?:\d{{4}} )?\d\d:\d\d:\d\d(?:\.\d+)? )(?P<zone>{_NAMED_ZONE}) (?P<rest>{_TAG}.*)$"
_BLANKS = rf"(?s)^(?P<day>{_DAY}) (?P<clock>{_CLOCK}) ?(?P<zone>{_NAMED_ZONE}|{_ZONE}) (?P<rest>{_TAG}.*)$"


def _offset(zone: str) -> str:
    """``CET`` or ``+0100`` as an RFC 3339 offset."""
    if zone not in clock.ZONES:
        return zone
    hours = clock.ZONES[zone]
    return f"{'-' if hours < 0 else '+'}{abs(int(hours)):02d}:{round(abs(hours) % 1 * 60):02d}"


def _read_zoned(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    parts = []
    found = groups(frame, _ZONED).filter(pl.col("rest").is_not_null())
    if len(found):
        lines = found.select("i", pl.concat_str("head", "rest").alias("text"))
        read = conform(syslog.BSD.read(lines, origin.but(timezone="UTC", timezone_known=True)))
        hours = pl.col("zone").replace_strict(clock.ZONES, return_dtype=pl.Float64)
        both = read.join(found.select("i", pl.duration(minutes=hours * 60).alias("_east")), on="i", how="left")
        parts.append(conform(both.with_columns(pl.col("time") - pl.col("_east"))))
    found = groups(frame, _BLANKS).filter(pl.col("rest").is_not_null())
    if len(found):
        offsets = {zone: _offset(zone) for zone in found["zone"].unique().to_list()}
        stamp = pl.concat_str(
            "day",
            pl.lit("T"),
            pl.col("clock").str.replace(",", ".", literal=True),
            pl.col("zone").replace_strict(offsets),
        )
        lines = found.select("i", pl.concat_str(stamp, pl.lit(" "), "rest").alias("text"))
        written = found.select("i", pl.concat_str("day", pl.lit(" "), "clock").alias("_stamp"))
        both = conform(syslog.ISO.read(lines, origin)).join(written, on="i", how="left")
        parts.append(conform(both.with_columns(pl.col("_stamp").alias("stamp"))))
    return pl.concat(parts) if parts else frame.clear()


def _read_coloured(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Reads a line without its colours; a line that no format knows then stays unchanged."""
    shown = frame.with_columns(pl.col("text").str.replace_all(COLOUR, "").str.strip_chars_end("\r"))
    plain = ~regexes.contains(shown["text"], r"[\x1b\r]")
    inner = read_inner(shown.filter(plain), origin)
    return inner.filter(~pl.col("format").is_in(["plain", "continuation"]))


FLUENT = Format(
    "fluent",
    "Fluentd's or Fluent Bit's time and tag in front of a record",
    rf"^(?:{_DAY}(?: {_CLOCK} [+-]\d{{4}} |T{_CLOCK}{_ZONE}\t)[\w./*-]+(?:: |\t)\{{|\[\d+\] [\w./*-]+: \[\[?1\d{{9}}\.\d{{6}})",
    _read_records,
)
TABBED = Format(
    "tabbed",
    "a time, then columns between tabs: level and text, or host, program and text",
    rf"^{_DAY}[T ]{_CLOCK}{_ZONE}?\t(?:(?:{_LEVEL})\t|[A-Za-z0-9][\w.-]*\t[A-Za-z][\w./@-]*(?:\[\d+\])?:?\t)",
    _read_columns,
    for_jobs=True,
)
LEVELLED = Format(
    "levelled",
    "a time with its zone, then a level",
    rf"^{_DAY}T{_CLOCK}{_ZONE} +(?:\d+ )?(?:\[ *(?:{_LEVEL}|{_WORDS}) *\]|(?:{_LEVEL})) +\S",
    _read_levelled,
)
KLOG = Format(
    "klog", "a letter, month and day, time, process, FILE.go:LINE]",
    r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d{1,9} [\w.-]+\.go:\d+\]", by_line(_klog_row),
)  # fmt: skip
ZONED = Format(
    "rfc3164", "a zone's name between time and host",
    rf"^(?:(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} [ \d]\d (?:\d{{4}} )?\d\d:\d\d:\d\d(?:\.\d+)? (?:{_NAMED_ZONE}) {_TAG}|{_DAY} {_CLOCK} ?(?:{_NAMED_ZONE}|{_ZONE}) {_TAG})",
    _read_zoned,
)  # fmt: skip
COLOURED = Format("coloured", "a terminal's colours in a line that is known without them", r"\x1b\[", _read_coloured)
