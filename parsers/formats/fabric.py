"""Fabric daemons' own files: OpenSM, UFM's events and NVIDIA's fabric manager; ibdiagnet's report."""

from __future__ import annotations

import polars as pl

from parsers.formats.base import SEVERITY_WORDS, Format, groups, timed
from parsers.header_grammar import Run, digits, either, header, named
from parsers.record import Origin

OPENSM_HEADER = header(
    named("month", Run("capital", 1, 1), Run("small", 2, 2)), " ", named("day", digits(2)), " ",
    named("clock", digits(2), ":", digits(2), ":", digits(2)), " ", named("fraction", digits(6)), " [",
    named("thread", Run("HEX")), "] ", named("word", "0x", Run("hex", 2, 2)), " -> ",
)  # fmt: skip
_OPENSM = f"(?s)^{OPENSM_HEADER.regex}(?P<message>.*)$"
MANAGER_HEADER = header(
    "[", named("month", Run("capital", 1, 1), Run("small", 2, 2)), " ", named("day", either(r"\d{1,2}", Run("digit", 2, 2))), " ",
    named("year", digits(4)), " ", named("clock", digits(2), ":", digits(2), ":", digits(2)),
    either(r"(?:\.(?P<fraction>\d+))?"), "] [", named("word", Run("capital")), Run("blank", 0), "] [tid ",
    named("pid", either(r"\d+", Run("digit", 1, 10))), "] ",
)  # fmt: skip
_MANAGER = f"(?s)^{MANAGER_HEADER.regex}(?P<message>.*)$"
_UFM = (
    r"(?s)^(?P<iso>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) \[(?P<number>\d+)\] \[(?P<alarm>\d+)\] "
    r"(?P<word>[A-Z]+) \[(?P<category>[^\]]+)\] (?P<message>.*)$"
)
#: opensm's log level bits (osm_log.h): error, info, verbose, debug.
OPENSM_BITS = {"0x01": "error", "0x02": "info", "0x04": "info", "0x08": "debug", "0x80": "notice"}


def _stamp() -> pl.Expr:
    return pl.concat_str("month", pl.lit(" "), "day", pl.lit(" "), "clock")


def _read_opensm(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _OPENSM).with_columns(pl.lit(None, pl.String).alias("year"), _stamp().alias("stamp"))
    return timed(found, origin).with_columns(
        pl.col("word").replace_strict(OPENSM_BITS, default=None, return_dtype=pl.String).alias("severity"),
        pl.lit("opensm").alias("source"), pl.lit("opensm").alias("unit"), pl.lit("opensm").alias("format"),
    )  # fmt: skip


def _read_manager(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    stamp = pl.concat_str("month", pl.lit(" "), "day", pl.lit(" "), "year", pl.lit(" "), "clock")
    found = groups(frame, _MANAGER).with_columns(stamp.alias("stamp"))
    return timed(found, origin).with_columns(
        pl.col("word").str.to_lowercase().replace_strict(SEVERITY_WORDS, default=None, return_dtype=pl.String).alias("severity"),
        pl.lit("fabricmanager").alias("source"), pl.lit("nv-fabricmanager").alias("unit"),
        pl.lit("fabricmanager").alias("format"), pl.col("pid").cast(pl.Int64, strict=False),
    )  # fmt: skip


def _read_ufm(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _UFM)
    extra = pl.concat_str(pl.lit('{"category": "'), pl.col("category").str.replace_all(r'["\\\\]', ""), pl.lit('"}'))
    return timed(found.with_columns(pl.col("iso").alias("stamp")), origin).with_columns(
        pl.col("word").str.to_lowercase().replace_strict(SEVERITY_WORDS, default=None, return_dtype=pl.String).alias("severity"),
        pl.lit("ufm").alias("source"), pl.lit("ufm").alias("unit"), pl.lit("ufm").alias("format"), extra.alias("extra"),
    )  # fmt: skip


def _read_ibdiagnet(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    levels = {"I": "info", "W": "warning", "E": "error"}
    return frame.with_columns(
        pl.col("text").alias("message"), pl.lit("ibdiagnet").alias("source"), pl.lit("ibdiagnet").alias("unit"),
        pl.lit("ibdiagnet").alias("format"),
        pl.col("text").str.slice(1, 1).replace_strict(levels, default=None, return_dtype=pl.String).alias("severity"),
    )  # fmt: skip


OPENSM = Format(
    "opensm",
    "Mon dd hh:mm:ss microseconds [thread] 0xNN ->",
    r"^[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \d{6} \[",
    _read_opensm,
)
FABRICMANAGER = Format(
    "fabricmanager",
    "[Mon dd yyyy hh:mm:ss] [LEVEL] [tid N]",
    r"^\[[A-Z][a-z]{2} \d{1,2} \d{4} \d\d:",
    _read_manager,
)
UFM = Format(
    "ufm",
    "time [event] [type] LEVEL [category]",
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[\d+\] \[\d+\] [A-Z]+ \[",
    _read_ufm,
)
IBDIAGNET = Format("ibdiagnet", "-I-, -W- or -E- at the start", r"^-[IWE]- ", _read_ibdiagnet)
