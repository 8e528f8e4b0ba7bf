"""The kernel's own framings: /dev/kmsg records, ``dmesg`` raw, ``-T``, ``-x``, ``--time-format iso`` and reltime."""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl

from parsers import clock
from parsers.formats.base import FACILITIES, SEVERITIES, SEVERITY_WORDS, Format, by_line, choice, groups
from parsers.header_grammar import Run, digits, either, header, named
from parsers.record import Origin

KMSG_HEADER = header(
    named("prio", digits(1, 4)), ",", named("seq", either(r"\d+", Run("digit"))), ",",
    named("micros", either(r"\d+", Run("digit", 1, 15))), ",",
)  # fmt: skip
_KMSG = rf"(?s)^{KMSG_HEADER.regex}(?P<flag>[^;]*);(?P<message>.*)$"
#: The task or processor that wrote the line: kernels with PRINTK_CALLER.
CALLER = r"\[ *[TC]\d+\]"
#: Seconds since boot, as the kernel prints them. Ten digits are seconds since 1970, as UCX writes them.
_SECONDS = (Run("digit", 1, 9), ".", Run("digit", 6, 6))
#: ``[  123.456789] ``, of ``dmesg`` and before the text of the kernel's lines in syslog.
UPTIME_HEADER = header(
    "[", Run("blank", 0), named("uptime", either(r"\d+\.\d+", *_SECONDS)), either(rf"\](?: ?{CALLER})? ?", "] ")
)
#: What follows the same header of ``journalctl -o short-monotonic``: a host and its kernel, or a program with its process
#: ID. Without one of them the line is of ``dmesg``.
MONOTONIC_WRITER = r"[\w.-]+ (?:kernel|[^\s\[\]:]+\[\d+\]): "
_DMESG = rf"(?s)^ ?(?:<(?P<prio>\d{{1,3}})>)? ?{UPTIME_HEADER.regex}(?P<message>.*)$"
_WEEKDAY = re.compile(
    r"(?:<\d+>)?\[\S{1,6} (?P<month>\S{2,6}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)"
    r" (?P<year>\d{4})\] ?(?:(?P<host>[\w.-]+) kernel: )?(?P<message>.*)$",
    re.DOTALL,
)
#: ``dmesg -e`` prints the day and the minute once and then only the distance ("+0.000012"), which gives no time.
_RELTIME = re.compile(
    r"\[(?:(?P<month>[A-Z][a-z]{2}) ?(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d)|\s*\+\d+\.\d+)\] (?P<message>.*)$", re.DOTALL
)
_LEVELS = re.compile(
    r"(?P<facility>kern|user|daemon|syslog|auth|local\d) *:(?P<severity>\w+) *: "
    r"(?:(?P<iso>\d{4}-\d\d-\d\dT\S+) |\[ *(?P<uptime>\d+\.\d+)\] |\[(?P<day>[^\]]*)\] )?(?P<message>.*)$",
    re.DOTALL,
)
#: Talos Linux's forwarding of the kernel log.
_TALOS = re.compile(
    r"(?P<host>[\w.-]+): (?P<facility>\w+): +(?P<severity>\w+): \[(?P<iso>\d{4}-\d\d-\d\dT[^\]]+)\]: (?P<message>.*)$",
    re.DOTALL,
)


def _with_uptime(frame: pl.DataFrame, seconds: pl.Series, origin: Origin) -> pl.DataFrame:
    times = clock.uptime(seconds, origin)
    return frame.with_columns(
        seconds.alias("uptime_s"), times.alias("time"),
        pl.when(times.is_not_null()).then(pl.lit("inferred")).otherwise(pl.lit("received")).alias("quality"),
        pl.lit(1_000, pl.Int64).alias("resolution_us"), pl.lit("kernel").alias("source"), pl.lit("kernel").alias("unit"),
    )  # fmt: skip


def _priority(frame: pl.DataFrame) -> pl.DataFrame:
    number = pl.col("prio").cast(pl.Int64, strict=False)
    return frame.with_columns(
        choice(SEVERITIES, number % 8).alias("severity"), choice(FACILITIES, number // 8).alias("facility")
    )


def _read_kmsg(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _KMSG)
    if found.is_empty():
        return found
    # One division of two exact numbers gives the nearest double; Polars would multiply by the double nearest to a
    # millionth.
    micros = found["micros"].cast(pl.Float64, strict=False).to_numpy()
    seconds = pl.Series(micros / 1_000_000, nan_to_null=True)
    extra = pl.concat_str(
        pl.lit('{"kmsg_pri": '),
        pl.col("prio").str.replace(r"^0+(\d)", "${1}"),  # JSON has no leading zeros
        pl.lit(', "kmsg_seq": '),
        pl.col("seq").str.replace(r"^0+(\d)", "${1}"),  # JSON has no leading zeros
        pl.lit(', "kmsg_usec": '),
        pl.col("micros").str.replace(r"^0+(\d)", "${1}"),  # JSON has no leading zeros
        pl.lit("}"),
    )
    return _priority(_with_uptime(found, seconds, origin)).with_columns(
        pl.lit("kmsg").alias("format"), extra.alias("extra"), pl.lit(1, pl.Int64).alias("resolution_us")
    )


def _read_dmesg(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _DMESG)
    if found.is_empty():
        return found
    seconds = found["uptime"].cast(pl.Float64, strict=False)
    return _priority(_with_uptime(found, seconds, origin)).with_columns(pl.lit("dmesg").alias("format"))


def _time_row(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _WEEKDAY.match(text)
    if found and found["month"].lower().rstrip(".") in clock.MONTHS:
        stamp = text[text.index("[") + 1 : text.index("]")]
        return {**found.groupdict(), "stamp": stamp, "format": "dmesg", "source": "kernel", "unit": "kernel"}
    found = _RELTIME.match(text)
    if found is None:
        return None
    row: dict[str, Any] = {"message": found["message"], "format": "dmesg", "source": "kernel", "unit": "kernel"}
    if found["month"]:
        row |= {"month": found["month"], "day": found["day"], "clock": found["clock"] + ":00", "stamp": found["clock"]}
    return row


def _weekday_parts(stamp: str | None) -> dict[str, str]:
    """``Sat Mar  7 16:37:25 2026`` as the fields of a timestamp; empty if it is not one."""
    found = _WEEKDAY.match(f"[{stamp}]") if stamp else None
    if stamp is None or found is None or found["month"].lower().rstrip(".") not in clock.MONTHS:
        return {}
    return {"stamp": stamp, **{name: found[name] for name in ("month", "day", "clock", "year")}}


def _level_row(text: str, origin: Origin) -> dict[str, Any] | None:
    found = _LEVELS.match(text) or _TALOS.match(text)
    if found is None or found["severity"].lower() not in SEVERITY_WORDS:
        return None
    parts = found.groupdict()
    return {
        "format": "dmesg", "source": "kernel", "unit": "kernel", "message": parts["message"], "host": parts.get("host"),
        "facility": parts["facility"], "severity": SEVERITY_WORDS[parts["severity"].lower()], "iso": parts["iso"],
        "stamp": parts["iso"], "uptime_s": float(parts["uptime"]) if parts.get("uptime") else None,
        "extra": json.dumps({"level": parts["severity"]}), **_weekday_parts(parts.get("day")),
    }  # fmt: skip


def _iso_row(text: str, origin: Origin) -> dict[str, Any] | None:
    stamp, _, message = text.partition(" ")
    return {
        "format": "dmesg", "source": "kernel", "unit": "kernel", "message": message, "iso": stamp, "stamp": stamp,
    }  # fmt: skip


KMSG = Format(
    "kmsg",
    "a /dev/kmsg record: priority,sequence,microseconds,flags;",
    r"^\d{1,4},\d+,\d+,[^;]*;",
    _read_kmsg,
)
DMESG = Format(
    "dmesg",
    "[seconds since boot] at the start",
    r"^ ?(?:<\d+>)? ?\[ *\d+\.\d+\]",
    _read_dmesg,
)
DMESG_TIME = Format(
    "dmesg", "[weekday month day time year] or dmesg -e's [MonDD hh:mm]",
    r"^(?:<\d+>)?\[(?:\S{1,6} \S{2,6} +\d{1,2} [\d:]{8} \d{4}\] |[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d\] |\s*\+\d+\.\d+\] )",
    by_line(_time_row),
)  # fmt: skip
DMESG_ISO = Format(
    "dmesg", "dmesg --time-format iso: a comma before six digits of a second, then the message",
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d ", by_line(_iso_row),
)  # fmt: skip
DMESG_RAW_LEVELS = Format(
    "dmesg", "dmesg -x: facility and level in front", r"^(?:\w+ *:\w+ *: |[\w.-]+: \w+: +\w+: \[\d{4}-)",
    by_line(_level_row),
)  # fmt: skip
