"""Slurm's own log files, in every LogTimeFormat, and its daemons' lines without a timestamp (stderr, journald).

``[2026-11-21T00:31:45.959] [15.0] error: text``: in slurmd.log, the tag ``[J.S]`` precedes lines of slurmstepd, which
writes into the same file. Levels: info and verbose have no word.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from parsers import regexes
from parsers.compiled import compiled, part
from parsers.formats.base import SLURM, Format, groups, severity_of_level, timed
from parsers.header_grammar import either, header, named, stamp
from parsers.lines import Array, chosen, joined
from parsers.record import Origin
from parsers.scan import meaning, reads, words

#: Steps that have a name in place of a number.
STEP_NAMES = ("batch", "extern", "interactive", "TBD")
#: JOB or JOB.STEP, as slurmstepd writes it before its lines.
STEP_TAG = rf"\d+(?:[_+]\d+)?(?:\.(?:\d+|{'|'.join(STEP_NAMES)})(?:\+\d+)?)?"
_TAG = rf"(?:\[(?P<step_tag>{STEP_TAG})\] ?)?(?P<message>.*)$"
FILE_HEADER = header("[", named("iso", stamp()), either(r"\] ?", "] "))
_ISO = f"(?s)^{FILE_HEADER.regex}{_TAG}"
_SHORT = (
    r"(?s)^\[(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))?"
    r"(?: +(?P<pid>\d+)(?: (?P<thread>.{1,20}?))? +0x[0-9a-f]+)?\] ?" + _TAG
)
_BARE = r"(?s)^(?P<unit>slurmctld|slurmd|slurmdbd|slurmrestd|sackd)(?:-[\w.-]+)?(?:\[(?P<pid>\d+)\])?: (?P<message>.*)$"
_CLOCK = r"(?s)^\[(?P<stamp>\d{1,9})\] " + _TAG
#: Prefixes of lines that only slurmd writes; every other untagged line is attributed to the controller. Each prefix
#: begins with at least four plain characters.
_SLURMD = (
    r"launch task ", r"Launching batch job", r"slurmd ", r"Slurmd ", r"task/(?:affinity|cgroup)", r"prolog failed",
    r"epilog failed", r"\[job \d+\]", r"Unable to register", r"CPUs=\d+ Boards", r"Could not launch job",
    r"Node configuration differs", r"_forkexec_slurmstepd", r"reissued job credential", r"Job \d+ already killed",
    r"slurm_receive_msg_and_forward", r"gres\.conf", r"Gres ", r"CPU frequency setting", r"Invalid job credential",
    r"MPI: Cannot create",
)  # fmt: skip
_SLURMD_LINE = rf"^(?:fatal: |error: )?(?:{'|'.join(_SLURMD)})"
_BEGINNINGS = words({re.sub(r"\\(.)", r"\1", beginning)[:4]: 1 for beginning in _SLURMD})
#: Writers of Slurm files that are not known to be another program's.
DAEMONS = ("slurmctld", "slurmdbd", "slurmd")
_SLURMDBD = ("slurmdbd version", "accounting_storage/as_mysql", "mysql_", "innodb")
_DATABASE = words(dict.fromkeys(_SLURMDBD, 1))
_DATABASE_FIRST = np.isin(np.arange(256), _DATABASE[:, 2])


def daemons(messages: pl.Series, origin: Origin) -> pl.Series:
    """The daemon that wrote each untagged line: the file's if known, else by the words of the message."""
    if origin.source in SLURM:
        return pl.Series([origin.source]).new_from_index(0, len(messages))
    edges, data = joined(messages)
    return chosen(DAEMONS, daemons_at(data, edges[:-1], edges[1:]))


def daemons_at(data: Array, starts: Array, ends: Array) -> Array:
    """Like :func:`daemons` for messages in a buffer, as indices into DAEMONS."""
    found = np.zeros(len(starts), np.int64)
    candidates = np.zeros(len(starts), np.bool_)
    _guess(data, starts.astype(np.int64), ends.astype(np.int64), found, candidates)
    places = np.flatnonzero(candidates)
    lines = [bytes(data[starts[at] : ends[at]]).decode() for at in places]
    found[places[regexes.contains(pl.Series(lines, dtype=pl.String), _SLURMD_LINE).to_numpy()]] = 2
    return found


@compiled
def _guess(data: Array, starts: Array, ends: Array, found: Array, candidates: Array) -> None:
    """1 for lines with a keyword of slurmdbd; ``candidates`` are those with slurmd's prefixes."""
    for line in range(len(starts)):
        at, end = starts[line], ends[line]
        found[line] = _any_word(data, at, end)
        if end - at >= 7 and (reads(data, at, b"fatal: ") or reads(data, at, b"error: ")):
            at += 7
        candidates[line] = end - at >= 4 and meaning(data, at, 4, _BEGINNINGS) > 0


@part
def _any_word(data: Array, start: int, end: int) -> int:
    """1 if a keyword of slurmdbd occurs anywhere."""
    for at in range(start, end):
        if _DATABASE_FIRST[data[at]]:
            for word in range(len(_DATABASE)):
                length = _DATABASE[word, 0]
                if length <= end - at and meaning(data, at, length, _DATABASE):
                    return 1
    return 0


def _finish(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Source, severity and format of lines with ``message`` and ``step_tag``."""
    tagged = pl.col("step_tag").is_not_null()
    return frame.with_columns(
        pl.when(tagged).then(pl.lit("slurmstepd")).otherwise(daemons(frame["message"], origin)).alias("source"),
        severity_of_level(pl.col("message")).fill_null("info").alias("severity"),
        pl.lit("slurm").alias("format"),
    ).with_columns(pl.col("source").alias("unit"))


def _read_file(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _ISO)
    return _finish(timed(found.with_columns(pl.col("iso").alias("stamp")), origin), origin)


def _read_short(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _SHORT).with_columns(
        pl.lit(None, pl.String).alias("year"), pl.col("pid").cast(pl.Int64, strict=False),
        pl.concat_str("month", pl.lit(" "), "day", pl.lit(" "), "clock").alias("stamp"),
    )  # fmt: skip
    return _finish(timed(found, origin), origin)


def _read_bare(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _BARE)
    return found.with_columns(
        pl.col("pid").cast(pl.Int64, strict=False), pl.col("unit").alias("source"), pl.lit("slurm").alias("format"),
        severity_of_level(pl.col("message")).fill_null("info").alias("severity"),
    )  # fmt: skip


def _read_clock(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """LogTimeFormat=clock is processor time, not a time of day. Only if the file is known to be Slurm's."""
    if origin.source not in SLURM:
        return frame.clear()
    return _finish(groups(frame, _CLOCK), origin)


FILE = Format(
    "slurm",
    "[ISO 8601 time] at the start",
    r"^\[\d{4}-\d\d-\d\dT[^ \]]+\](?: |$)",
    _read_file,
)
SHORT = Format(
    "slurm", "[Mon dd hh:mm:ss] at the start", r"^\[[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d[.\]]", _read_short,
)  # fmt: skip
BARE = Format(
    "slurm",
    "a Slurm daemon's name at the start",
    _BARE,
    _read_bare,
)
CLOCK = Format(
    "slurm",
    "[processor seconds] in a Slurm daemon's file",
    r"^\[\d{1,9}\] ",
    _read_clock,
)
