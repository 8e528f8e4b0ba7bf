"""Those short formats of ``journalctl`` that differ from syslog: ``-o short-full``, ``-o short-unix``, ``-o
short-monotonic``, and the lines that it prints between boots. After the time they look like syslog.
"""

from __future__ import annotations

import polars as pl

from parsers import clock
from parsers.formats import syslog
from parsers.formats.base import Format, conform, groups
from parsers.formats.kernel import MONOTONIC_WRITER
from parsers.record import Origin

_ZONE = r"(?:[A-Z][A-Za-z]{1,4}|[+-]\d\d(?:\d\d)?)"
_FULL = rf"(?s)^\S{{1,12}} (?P<day>\d{{4}}-\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?) (?P<zone>{_ZONE}) (?P<rest>\S+ \S+?: .*)$"
_UNIX = r"(?s)^(?P<epoch>1\d{9})\.(?P<fraction>\d{1,6}) (?P<rest>[\w.-]+ [^\s\[\]:]+(?:\[\d+\])?: .*)$"
_SINCE_BOOT = r"\d+\.\d{6}"
_MONOTONIC = rf"(?s)^\[ *(?P<uptime>{_SINCE_BOOT})\] (?P<rest>{MONOTONIC_WRITER}.*)$"
_BETWEEN = r"^-- (?:(?:Journal|Logs) begins? at |Boot [0-9a-f]{32}|Reboot|No entries)"


def _offset(zone: str) -> str:
    """``CET`` or ``+01`` as an RFC 3339 offset; empty for an unknown zone."""
    if zone[0] in "+-":
        return f"{zone[:3]}:{zone[3:] or '00'}"
    hours = clock.ZONES.get(zone)
    if hours is None:
        return ""
    return f"{'-' if hours < 0 else '+'}{abs(int(hours)):02d}:{round(abs(hours) % 1 * 60):02d}"


def _as_syslog(found: pl.DataFrame, stamp: pl.Expr, origin: Origin) -> pl.DataFrame:
    """Parses the text after the time as if it followed an RFC 3339 timestamp."""
    lines = found.select("i", pl.concat_str(stamp, pl.lit(" "), "rest").alias("text"))
    return conform(syslog.ISO.read(lines, origin.but(source=origin.source or "syslog")))


def _read_full(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _FULL).filter(pl.col("zone").is_not_null())
    offsets = {zone: _offset(zone) for zone in found["zone"].unique().to_list()}
    zone = pl.col("zone").replace_strict(offsets, default="", return_dtype=pl.String) if offsets else pl.lit("")
    return _as_syslog(found, pl.concat_str("day", pl.lit("T"), "clock", zone), origin)


def _read_unix(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _UNIX).filter(pl.col("epoch").is_not_null())
    micros = pl.col("epoch").cast(pl.Int64) * 1_000_000 + pl.col("fraction").str.pad_end(6, "0").cast(pl.Int64)
    return _as_syslog(found, micros.cast(pl.Datetime("us")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"), origin)


def _read_monotonic(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _MONOTONIC).filter(pl.col("uptime").is_not_null())
    seconds = found["uptime"].cast(pl.Float64, strict=False)
    times = clock.uptime(seconds, origin)
    own = pl.DataFrame([found["i"], seconds.alias("uptime_s"), times.alias("time"), found["uptime"].alias("stamp")])
    rest = _as_syslog(found, pl.lit("1970-01-01T00:00:00Z"), origin).drop("time", "stamp", "uptime_s")
    known = pl.when(pl.col("time").is_not_null())
    return rest.join(own, on="i", how="left").with_columns(
        known.then(pl.lit("inferred")).otherwise(pl.lit("received")).alias("quality"),
        pl.lit(1_000, pl.Int64).alias("resolution_us"),
    )


def _read_between(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    return frame.select(
        "i", pl.col("text").alias("message"), pl.lit("journalctl").alias("format"), pl.lit("syslog").alias("source")
    )


FULL = Format(
    "journalctl", "journalctl -o short-full: weekday, date, time, zone",
    rf"^\S{{1,12}} \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? {_ZONE} \S+ \S+?: ", _read_full,
)  # fmt: skip
UNIX = Format(
    "journalctl", "journalctl -o short-unix: epoch seconds, host, program", r"^1\d{9}\.\d{1,6} [\w.-]+ [^\s\[\]:]+(?:\[\d+\])?: ",
    _read_unix,
)  # fmt: skip
MONOTONIC = Format(
    "journalctl", "journalctl -o short-monotonic: [seconds since boot] host program",
    rf"^\[ *{_SINCE_BOOT}\] {MONOTONIC_WRITER}", _read_monotonic,
)  # fmt: skip
BETWEEN = Format("journalctl", "what journalctl prints between boots", _BETWEEN, _read_between)
