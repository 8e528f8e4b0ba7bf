"""Lines that were logged a second time: a header before a complete line with its own, as left by rsyslog's ``imfile``,
relays and shippers; and lines after prefixes of ``grep``, ``pdsh``, quotes and copies.
"""

from __future__ import annotations

import polars as pl

from parsers.formats import syslog
from parsers.formats.base import FACILITIES, SEVERITY_WORDS, SLURM, Format, accepted, conform, groups
from parsers.formats.wrapped import read_inner
from parsers.record import Origin

_BSD = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)"
_TAG = r"[^\s:\[\]]+(?:\[\d+\])?: "
_SLURM_STAMP = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?\] "
#: A complete syslog line: nothing less follows a header by chance.
_WHOLE = rf"(?:<\d{{1,3}}>)?(?:{_BSD}|{_ISO}) [\w.-]+ {_TAG}"
_RELAYED = (
    rf"(?s)^(?P<stamp>(?:<\d{{1,3}}>)?(?:{_BSD}|{_ISO})) (?:(?P<host>[\w.-]+) (?:(?P<unit>[^\s:\[\]]+)(?:\[\d+\])?: )?)?"
    rf"(?P<rest>(?:{_WHOLE}|{_SLURM_STAMP}).*)$"
)
_FACILITY_LEVEL = rf"^({'|'.join(FACILITIES)})\.({'|'.join(SEVERITY_WORDS)})$"
#: grep's file and line, pdsh's and compose's node, a weekday, quote marks of an e-mail, blanks.
_LABEL = r"(?:(?P<node>[A-Za-z][\w.-]*)(?:: +| +\| )|[\w.-]*/[\w./-]+:(?:\d+[:-])? ?|\[[A-Za-z][\w.-]*\]:? +|[A-Z][a-z]{2},? |[\"'`>|*#-]+ ?|\s+|\d+[:-] ?)"
_WEEKDAY = r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\] "
_LINE = rf"{_BSD}(?: \d{{4}})? [\w.-]+ {_TAG}|{_ISO} [\w.-]+ {_TAG}|\[ *\d+\.\d{{6}}\] |{_WEEKDAY}"
_BEHIND = rf"(?s)^{_LABEL}(?P<rest>(?:{_LINE}).*)$"
#: Compose's and stern's containers, a launcher's rank, ansible's host: any kind of line follows these.
_STAMPED = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|[DIWEF]\d{4} \d\d:\d\d:\d\d|time=\""
_SURE = r"(?:[a-z][\w.-]* +\| |[a-z][\w.]*-[\w.-]+ [a-z][\w-]* |\[rank: ?\d+\] |(?P<node>[A-Za-z][\w.-]*) \| (?:CHANGED|SUCCESS|FAILED!?) \| rc=\d+ >> ?)"
_SURELY_BEHIND = rf"(?s)^{_SURE}(?P<rest>(?:{_LINE}|{_STAMPED}).*)$"


def _outer(found: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """The outer header's time, quality, resolution, severity and facility."""
    lines = found.select("i", pl.concat_str("stamp", pl.lit(" - -: -")).alias("text"))
    parts = []
    for form in (syslog.ISO, syslog.BSD):
        parts.append(conform(form.read(lines.filter(accepted(form, lines["text"])), origin)))
    return pl.concat(parts).select("i", "time", "quality", "resolution_us", "severity", "facility")


def _read_relayed(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """The inner line gives origin and content. Its time is the event's, unless only the outer one has an explicit
    zone."""
    found = groups(frame, _RELAYED).filter(pl.col("rest").is_not_null())
    if found.is_empty():
        return found
    inner = read_inner(found.select("i", pl.col("rest").alias("text")), origin)
    both = inner.join(_outer(found, origin), on="i", how="left", suffix="_outer").join(
        found.select("i", pl.col("host").alias("_host"), pl.col("unit").alias("_unit")), on="i", how="left"
    )
    surer = pl.col("time_outer").is_not_null() & (
        pl.col("time").is_null() | (pl.col("quality_outer").eq("line") & pl.col("quality").ne_missing("line"))
    )
    times = [
        pl.when(surer).then(f"{name}_outer").otherwise(name).alias(name)
        for name in ("time", "quality", "resolution_us")
    ]
    # A daemon's file does not name the daemon, but the tag that the file is sent with does.
    own = pl.col("_unit").is_in(list(SLURM)) & pl.col("source").is_in(list(SLURM)) & pl.col("step_tag").is_null()
    named = [pl.when(own).then("_unit").otherwise(name).alias(name) for name in ("source", "unit")]
    levels = [pl.coalesce(name, f"{name}_outer").alias(name) for name in ("severity", "facility")]
    return conform(both.with_columns(*times, *named, *levels, pl.coalesce("host", "_host").alias("host")))


def _read_behind(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _BEHIND).filter(pl.col("rest").is_not_null())
    others = frame.join(found.select("i"), on="i", how="anti", maintain_order="left")
    found = pl.concat([found, groups(others, _SURELY_BEHIND).filter(pl.col("rest").is_not_null())])
    if found.is_empty():
        return found
    text, quote = pl.col("rest"), pl.col("text").str.slice(0, 1)
    quoted = quote.is_in(["'", '"', "`"]) & (pl.col("rest").str.slice(-1) == quote)
    text = pl.when(quoted).then(text.str.head(-1)).otherwise(text).alias("text")
    inner = read_inner(found.select("i", text), origin)
    both = _without_levels(inner).join(found.select("i", "node"), on="i", how="left")
    return conform(both.with_columns(pl.coalesce("host", "node").alias("host")))


def _without_levels(frame: pl.DataFrame) -> pl.DataFrame:
    """OpenWrt's ``logread`` writes a weekday, the time, facility and level, and no host: ``kern.err`` is not one."""
    facility, level = (pl.col("host").str.extract(_FACILITY_LEVEL, group) for group in (1, 2))
    return frame.with_columns(
        pl.when(level.is_null()).then("host").alias("host"), pl.coalesce("facility", facility).alias("facility"),
        pl.coalesce("severity", level.replace_strict(SEVERITY_WORDS, default=None, return_dtype=pl.String)).alias("severity"),
    )  # fmt: skip


RELAYED = Format(
    "relayed",
    "a header in front of a whole line of syslog or Slurm",
    rf"^(?:<\d{{1,3}}>)?(?:{_BSD}|{_ISO}) (?:[\w.-]+ (?:[^\s:\[\]]+(?:\[\d+\])?: )?)?(?:{_WHOLE}|{_SLURM_STAMP})",
    _read_relayed,
)
BEHIND = Format(
    "relayed",
    "a line of syslog or dmesg behind a file's name, a node's name or quotes; any stamped one behind a container's name or a rank",
    rf"^(?:{_LABEL.replace('?P<node>', '?:')}(?:{_LINE})|{_SURE.replace('?P<node>', '?:')}(?:{_LINE}|{_STAMPED}))",
    _read_behind,
)
