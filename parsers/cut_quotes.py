"""Lines in a Slurm daemon's own file that a user can have written, because they stand within a user's text.

Slurm's daemons write what a user chose (a partition, an account, a feature, a comment, a folder) as it is, line ends
included. What follows such a line end is a line of its own, with any timestamp and any words: the file of slurmctld does
not show who wrote it. The messages that repeat a user's text are known (``cut`` in ``quoting.toml``), and each has
words of its own behind it, or the refusal of the request, which the same thread logs at once:

* A message with an end of its own that lacks it is cut: the lines up to the one that has this end are the user's.
* A message that ends with the user's text may be whole. The lines between it and the refusal may be the user's.

Not all of them are known, and one consists of a user's text alone (``scontrol notify``). Times show nothing: a user can write
any time, and so hide by it what a daemon says; a clock may be set back, and processes write late.

A user can write an end or a refusal, too. So further ones count for a few lines; who writes more of them, further apart,
is not found here (``correlator/gather/outlived.py`` compares with what accounting says). All lines behind such a
message must not be in doubt: then any user could hide what slurmctld says, by submitting what it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from parsers.automata import Automata
from parsers.formats.base import SLURM, one_of
from parsers.lines import Array, joined
from parsers.quoting import quoted_data

#: slurmctld's refusal of what a user submitted or changed (slurm src/slurmctld/proc_req.c).
_REFUSED = re.compile(r"^(?:error: |info: )?_?slurm_rpc_\w+: (?!JobId=\S+ InitPrio)")
#: Part of it.
_RPC = "slurm_rpc_"
#: It follows within this (seconds): the thread only gives its locks back.
_AT_ONCE_S = 0.1
#: A user's text has at most so many lines, and so many between two ends.
_MOST, _BETWEEN = 50, 2
#: For fewer messages, the automaton of what begins a user's text is not made: a short command parses only a few.
_MANY = 2_000
#: What may stand before the words of ``begin``: a step, levels and names of functions of one word each, and the beginning of
#: the message itself. Behind other words, a text that looks like a message's is a user's.
_BEFORE = r"(?:\[[\w.+-]+\] )?(?:\w+(?:\(\d?\))?: +)*(?:Job's |JobId=\S+ (?:has )?|Failed to create job: |couldn't )?"
_HEAD = re.compile(rf"{_BEFORE}\Z")


class _Cut(NamedTuple):
    """``begin`` ends where the user's text begins; ``end`` follows it, None if nothing does."""

    hint: str
    begin: re.Pattern[str]
    end: re.Pattern[str] | None


@lru_cache(maxsize=1)
def _cuts() -> tuple[_Cut, ...]:
    tables: Sequence[dict[str, Any]] = quoted_data()["cut"]
    ends = (table.get("end") for table in tables)
    return tuple(
        _Cut(table["hint"], re.compile(table["begin"]), None if end is None else re.compile(end))
        for table, end in zip(tables, ends, strict=True)
    )


@lru_cache(maxsize=1)
def _hints() -> list[str]:
    return [cut.hint for cut in _cuts()]


@lru_cache(maxsize=1)
def _begun() -> Automata:
    """May a user's text begin in a message? Yes for each that ``_HEAD`` and a ``begin`` match, and rarely for others. Of most
    messages only the first words are read."""
    begins = "|".join(f"(?:{cut.begin.pattern})" for cut in _cuts())
    return Automata([re.compile(f"^{_BEFORE}(?:{begins})")])


def prepare() -> None:
    """Makes the automaton before the first line."""
    _begun()


def _may_begin(texts: pl.Series) -> Array:
    """The places of the messages in which a user's text may begin."""
    if len(texts) < _MANY:
        return texts.str.contains_any(_hints()).fill_null(False).arg_true().to_numpy()
    edges, data = joined(texts)
    return np.flatnonzero(_begun().fitting(data, edges[:-1], edges[1:], np.arange(len(texts))))


def lines_within(frame: pl.DataFrame) -> frozenset[int]:
    """The rows of ``frame`` (HEADER's columns, lines of one file in order) that may stand within a user's text."""
    of_slurm = one_of(frame["source"], SLURM).fill_null(False) & (frame["format"] == "slurm").fill_null(False)
    if not of_slurm.any():
        return frozenset()
    messages, ours = frame["message"], of_slurm.arg_true()
    texts = messages.gather(ours)
    may_begin = _may_begin(texts)
    found: set[int] = set()
    for at, text in zip(ours[may_begin].to_list(), texts[may_begin].to_list(), strict=True):
        for cut in _cuts():
            if cut.hint not in text:
                continue
            begun = cut.begin.search(text)
            if (
                begun is None
                or not _HEAD.match(text[: begun.start()])
                or (cut.end is not None and cut.end.search(text, begun.end()))
            ):
                continue
            after = messages.slice(at + 1, _MOST)
            ends = (
                _own_ends(cut, after) if cut.end is not None else _refusals(frame["time"].slice(at, _MOST + 1), after)
            )
            last = _last_of(ends)
            # The line with the message's own end begins with the user's words; a refusal is slurmctld's.
            found.update(range(at + 1, at + 1 + last + (cut.end is not None)))
    return frozenset(found)


def of_users(frame: pl.DataFrame, rows: Collection[int]) -> pl.DataFrame:
    """``frame`` with these rows as what any user can have written: no daemon's lines, and about no job."""
    at = pl.Series(sorted(rows), dtype=pl.UInt32)
    plain = {"source": "syslog", "format": "plain", "facility": "user", "job_id": None, "_job": None, "step_tag": None}
    return frame.with_columns(frame[name].scatter(at, value) for name, value in plain.items())


def _own_ends(cut: _Cut, after: pl.Series) -> list[int]:
    assert cut.end is not None
    texts = enumerate(after.fill_null("").to_list())
    return [place for place, text in texts if cut.end.search(text) and not cut.begin.search(text)]


def _refusals(times: pl.Series, after: pl.Series) -> list[int]:
    """Which of the messages ``after`` one are refusals of it. ``times``: its own, and theirs."""
    # Few are any refusal: only theirs are looked at.
    refused = [place for place, text in enumerate(after.to_list()) if text and _RPC in text and _REFUSED.search(text)]
    if not refused or (moment := times[0]) is None:
        return []
    found = zip(refused, times.gather([place + 1 for place in refused]).to_list(), strict=True)
    return [place for place, time in found if time is not None and abs((time - moment).total_seconds()) <= _AT_ONCE_S]


def _last_of(ends: Sequence[int]) -> int:
    """The end of the user's text: the first one, or one that follows another soon. -1: there is none."""
    last = -1
    for end in ends:
        if last >= 0 and end - last > _BETWEEN:
            break
        last = end
    return last
