"""Defines formats and what they share: header columns, timestamps, priorities, the source for each program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Any, TypeAlias

import polars as pl

from parsers import clock, regexes
from parsers.formats.mnemonics import MNEMONIC
from parsers.record import JOB_OUTPUT, Origin

#: What a format may return for a line. ``i`` is the line's index in the batch; ``stamp`` the time as written; ``extra``
#: a JSON object of further entities; ``step_tag`` Slurm's ``J.S``; ``quality`` the time_quality; ``tag`` the line's
#: anomalies, separated by commas.
HEADER: dict[str, pl.DataType | type[pl.DataType]] = {
    "i": pl.UInt32, "time": pl.Datetime("us"), "quality": pl.String, "sender_time": pl.Datetime("us"),
    "received": pl.Datetime("us"), "resolution_us": pl.Int64, "host": pl.String, "source": pl.String, "format": pl.String,
    "unit": pl.String, "pid": pl.Int64, "facility": pl.String, "severity": pl.String, "message": pl.String,
    "uptime_s": pl.Float64, "stamp": pl.String, "step_tag": pl.String, "extra": pl.String, "tag": pl.String,
}  # fmt: skip
SEVERITIES = ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug")
FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp", "audit",
    "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
#: Other spellings of severities -> ours.
SEVERITY_WORDS = {
    **{name: name for name in SEVERITIES}, "err": "error", "warn": "warning", "panic": "emerg", "fatal": "crit",
    "critical": "crit", "emergency": "emerg", "information": "info", "informational": "info", "trace": "debug",
    "debug1": "debug", "debug2": "debug", "debug3": "debug", "debug4": "debug", "debug5": "debug", "failure": "error",
    "severe": "crit",
}  # fmt: skip
#: A BSD syslog timestamp in fields, as parsers/clock.py expects it.
_BSD_PARTS = ("month", "day", "clock", "fraction", "year")
#: What a reader of single lines may return: HEADER's columns, and a timestamp in place of ``time``.
STAMPED = {**HEADER, "iso": pl.String, **dict.fromkeys(_BSD_PARTS, pl.String)}
#: The values of one line, by HEADER's names. LATER: only a reader of frames can decide.
Row: TypeAlias = dict[str, Any]
LATER: Row = {}
LineReader: TypeAlias = Callable[[str, Origin], Row | None]
FrameReader: TypeAlias = Callable[[pl.DataFrame, Origin], pl.DataFrame]
#: Level words at the start of Slurm's messages, each followed by a colon and a blank -> severities.
SLURM_LEVELS = {
    word: SEVERITY_WORDS.get(word, "info")
    for word in ("error", "fatal", "warning", "info", "verbose", "debug", "debug1", "debug2", "debug3", "debug4", "debug5")
}  # fmt: skip
#: The test of a format that accepts anything.
EVERY_LINE = pl.col("text").is_not_null()
SLURM = ("slurmctld", "slurmd", "slurmdbd", "slurmrestd", "slurmstepd", "sackd")
JOB_SOURCES = (*JOB_OUTPUT, "job_output")


@dataclass(frozen=True)
class Format:
    """One framing.

    ``accepts`` is a cheap test: a regex (parsers/regexes.py), or any test over the String column ``text``. ``read``
    takes the accepted lines (columns i, text) and returns those it could actually read, with any of ``HEADER``'s
    columns; the others go to the next format. ``for_jobs``: also tried on known job output, which may look like
    anything but is nothing else.
    """

    name: str
    why: str
    accepts: str | pl.Expr
    read: FrameReader
    for_jobs: bool = False


def accepted(form: Format, texts: pl.Series) -> pl.Series:
    """Which of ``texts`` pass the format's test."""
    if isinstance(form.accepts, str):
        return regexes.contains(texts, form.accepts)
    if form.accepts is EVERY_LINE:
        return texts.is_not_null()
    return texts.to_frame("text").select(form.accepts.alias("text")).to_series().fill_null(False)


def accepts_text(form: Format, text: str) -> bool:
    """Like :func:`accepted`, for one text."""
    if isinstance(form.accepts, str):
        return regexes.compiled(form.accepts).search(text) is not None
    return form.accepts is EVERY_LINE or bool(accepted(form, pl.Series("text", [text]))[0])


def groups(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """The named groups of ``pattern`` over ``text``, for the lines that match it."""
    found = frame.with_columns(regexes.groups(frame["text"], pattern))
    # Every pattern here has a group that takes part in each match, so one pass gives both.
    return found.filter(pl.any_horizontal(pl.col(*regexes.compiled(pattern).groupindex).is_not_null()))


def timed(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Adds ``time``, ``quality`` and ``resolution_us`` from ``iso``, or from month, day, clock, fraction, year."""
    if frame.is_empty():
        return frame
    times = clock.iso(frame["iso"], origin) if "iso" in frame.columns else clock.bsd(frame, origin)
    known = times["time"].is_not_null()
    if not known.all():
        # A timestamp outside any calendar: the line is kept and tagged.
        given = frame["iso" if "iso" in frame.columns else "month"].is_not_null()
        bad = pl.when(given & ~known).then(pl.lit("bad_time"))
        frame = frame.with_columns(pl.coalesce(*(["tag"] if "tag" in frame.columns else []), bad).alias("tag"))
    return frame.with_columns(
        times["time"], times["quality"].zip_with(known, pl.Series([None], dtype=pl.String).new_from_index(0, len(frame))),
        times["resolution_us"],
    )  # fmt: skip


class ByLine:
    """Adapts a reader of single lines to frames: for framings that occur in hundreds, not in millions.

    ``line`` returns HEADER values, plus ``iso`` or the fields of a BSD timestamp in place of ``time``; None leaves the
    line. ``of_many`` reads the same from a frame, for many lines and for those where ``line`` returns ``LATER``.
    """

    def __init__(self, line: LineReader, of_many: FrameReader | None = None) -> None:
        self.line, self.of_many = line, of_many

    def __call__(self, frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
        if self.of_many is not None and len(frame) >= regexes.MANY:
            return self.of_many(frame, origin)
        rows, later = self.rows(frame["i"].to_list(), frame["text"].to_list(), origin)
        if self.of_many is None or not later:
            return as_frame(rows, origin)
        others = self.of_many(frame.filter(frame["i"].is_in(later)), origin)
        return pl.concat([as_frame(rows, origin), conform(others)])

    def rows(self, numbers: list[int], texts: list[str], origin: Origin) -> tuple[list[Row], list[int]]:
        """The values of the lines with these numbers, and the numbers of those left to ``of_many``."""
        rows: list[Row] = []
        later = []
        for i, text in zip(numbers, texts, strict=True):
            row = self.line(text, origin)
            if row is LATER:
                later.append(i)
            elif row is not None:
                rows.append({**row, "i": i})
        return rows, later


def by_line(line: LineReader) -> ByLine:
    return ByLine(line)


def as_frame(rows: list[Row], origin: Origin) -> pl.DataFrame:
    """The results of single-line readers as HEADER's columns."""
    stamped: dict[str | None, list[Row]] = {"iso": [], "month": [], None: []}
    for row in rows:
        stamped[next((name for name in ("iso", "month") if row.get(name) is not None), None)].append(row)
    parts: list[pl.DataFrame] = []
    for stamp, some in stamped.items():
        names = set().union(*some)
        part = pl.DataFrame([
            pl.Series(name, [row.get(name) for row in some], dtype=kind, strict=False) if name in names
            else nothing(name, kind, len(some)) for name, kind in STAMPED.items()
            if name in names or (name in _BSD_PARTS and stamp == "month")
        ])  # fmt: skip
        if some and stamp is not None:
            part = timed(part if stamp == "iso" else part.drop("iso", strict=False), origin)
        elif "time" in part.columns and "quality" not in part.columns:
            # A reader that gives the moment itself, from a number of seconds for example, read it from the line.
            part = part.with_columns(pl.when(pl.col("time").is_not_null()).then(pl.lit("line")).alias("quality"))
        if some or not parts:
            parts.append(conform(part))
    return pl.concat(parts)


def conform(frame: pl.DataFrame) -> pl.DataFrame:
    """Exactly HEADER's columns; those that a format does not give are null."""
    return pl.DataFrame([
        frame[name].cast(kind) if name in frame.columns else nothing(name, kind, len(frame)) for name, kind in HEADER.items()
    ])  # fmt: skip


def nothing(name: str, kind: pl.DataType | type[pl.DataType], length: int) -> pl.Series:
    """A column of nulls."""
    return _null(name, kind).new_from_index(0, length)


def one_of(texts: pl.Series, names: Iterable[str]) -> pl.Series:
    """Which of ``texts`` are one of a few ``names``, null for null: a sixth of the cost of ``is_in``."""
    return reduce(or_, (texts == name for name in names))


@lru_cache(maxsize=256)
def _null(name: str, kind: pl.DataType | type[pl.DataType]) -> pl.Series:
    return pl.Series(name, [None], dtype=kind)


def choice(names: tuple[str, ...], number: pl.Expr) -> pl.Expr:
    """``names[number]``, null outside."""
    return number.replace_strict(list(range(len(names))), list(names), default=None, return_dtype=pl.String)


def severity_of_level(message: pl.Expr) -> pl.Expr:
    """The severity of Slurm's level word before a message; null for a message without one."""
    word = message.str.extract(rf"^({'|'.join(SLURM_LEVELS)}): ")
    return word.replace_strict(SLURM_LEVELS, default=None, return_dtype=pl.String)


def source_of_program(program: str | None, message: str = "") -> str | None:
    """The source of a syslog program; None for an unknown one."""
    name = (program or "").lower()
    if not name:
        return None
    source = _source_of(name)
    if source == "syslog" and message.startswith("%") and _MNEMONIC.match(message):
        return "switch"
    return source


_MNEMONIC = re.compile(MNEMONIC)


@lru_cache(maxsize=4096)
def _source_of(name: str) -> str:
    if name == "kernel" or name == "/kernel":
        return "kernel"
    for daemon in SLURM:
        # Several daemons of a host are distinguished by a suffix to their name.
        if name == daemon or name.startswith(f"{daemon}-") or (daemon == "slurmstepd" and name.startswith(daemon)):
            return daemon
    return next((source for start, source in _PROGRAMS if name.startswith(start)), "syslog")


_PROGRAMS = (
    ("slurm-prolog", "prolog"), ("slurm_prolog", "prolog"), ("spank-prolog", "prolog"), ("spank-epilog", "epilog"), ("slurm-epilog", "epilog"), ("slurm_epilog", "epilog"),
    ("nhc", "nhc"), ("opensm", "opensm"), ("nv-fabricmanager", "fabricmanager"), ("nvidia-fabricmanager", "fabricmanager"),
    ("mmfs", "storage"), ("nvidia-imex", "fabricmanager"), ("nv-imex", "fabricmanager"), ("nvlsm", "opensm"), ("psud", "switch"), ("thermalctld", "switch"),
    ("swss", "switch"), ("orchagent", "switch"), ("portsyncd", "switch"), ("bgp#", "switch"), ("teamd#", "switch"),
    ("lldp#", "switch"), ("syncd", "switch"), ("pmon#", "switch"), ("xcvrd", "switch"), ("switchd", "switch"),
    ("rpd", "switch"), ("mib2d", "switch"), ("lacpd", "switch"), ("craftd", "switch"), ("alarmd", "switch"),
    ("chassisd", "switch"), ("mgd", "switch"), ("l2ald", "switch"), ("eswd", "switch"), ("ebra", "switch"),
    ("bgpd", "switch"), ("ptmd", "switch"), ("clagd", "switch"), ("bfdd", "switch"), ("smond", "switch"), ("l2cpd", "switch"),
)  # fmt: skip
