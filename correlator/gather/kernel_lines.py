"""How far a line in the kernel's name is the kernel's.

``logger -t kernel`` writes to /var/log/syslog what looks like the kernel's line, and a file in rsyslog's traditional
format keeps no facility that would distinguish the two (``NAME``). ``logger`` cannot use facility ``kern``; a program
that writes to /dev/log by itself can, rsyslog's imuxsock believes it, and journald passes it on (``FACILITY``: kern.log, a
priority). Only the kernel fills its ring and the journal's kernel transport, and a node's agent asks the kernel and the GPU's
driver itself, as root. A copy from there supports a line. Without one:

* Without an uptime, if lines of that kernel had one before any lacked it, it is not the kernel's (``REFUTED``): it is
  ignored.
* Its uptime fits no boot of its host (``ODD``), or the ring of that time was collected without it (``UNCONFIRMED``).
* It has facility ``kern``, and none of this applies (``SHARED``).
* It has the kernel's name only, and an uptime that fits (``STAMPED``). Its writer knew the clock, which every user can
  read.
* It has the name only, and neither it nor others of that kernel have an uptime (``BARE``): there is no evidence either
  way.

Other sources' reports of the same fault count more (verdicts/kernel_words.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import accumulate, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import polars as pl

from correlator.gather.own_devices import is_of_own_device
from correlator.model.moments import moment_of
from correlator.model.nouns import Event
from parsers.documents.fields import number
from parsers.record import TABLES
from parsers.writers import UNVERIFIED
from store.questions import kernel_lines
from store.questions.authority import RELAYED

if TYPE_CHECKING:
    from store.door import Asks

REFUTED, ODD, UNCONFIRMED, STAMPED, BARE = "refuted", "odd", "unconfirmed", "stamped", "bare"
#: What others than the program that they name can have written (gather/shared_lines.py).
SHARED, SENT = "shared", "sent"
#: What other files show (gather/kernel_copies.py).
OF_USER, DENIED, UNHELD, LACKING = "of a user", "denied", "unheld", "lacking"

#: The evidence that a line is the kernel's, best first.
RING, FACILITY, NAME = "", "facility", "name"

#: The columns with that evidence.
COLUMNS = {
    **{name: TABLES["logs"][name] for name in ("source", "facility", "format", "file")},
    "authority": pl.String(),
}
_BY_FACILITY, _OF_AGENT = re.compile(kernel_lines.BY_FACILITY), re.compile(kernel_lines.OF_AGENT)
#: Files and places with the ring's lines only.
_OF_RING = re.compile(r"(?:dmesg|kmsg|journal|ip-monitor)[^/]*$")
#: A kernel's habit is searched for this long before the first line in question.
HABIT_S = 7 * 86_400.0
#: A kernel's ring is read up to this long after a line: what it lacks by then, it does not get later.
AHEAD_S = 600.0
#: A kernel that logged without uptimes for this long was configured to write none.
HABIT_KEPT_S = 86_400.0
#: At least this many lines with an uptime are a habit.
HABIT_LINES = 3
#: A copy's timestamp may differ by this much from its line's (seconds): the clocks of the ring and of the host drift,
#: and setting a clock moves only one of them.
COPY_S = 900.0
#: A timestamp of whole minutes, and a line that waits for its daemon, put this much between two lines of one moment.
MINUTE_S = 60.0

#: The rows of ``store.questions.kernel_lines.clocks`` for some hosts and a time range (epoch seconds).
Clocks = Callable[[Collection[str], float, float], Sequence[Mapping[str, Any]]]


def is_in_doubt() -> pl.Expr:
    """Selects lines in the kernel's name that others can have written; few of very many."""
    of_root = pl.col("format").fill_null("").is_in(kernel_lines.OF_RING)
    of_root |= pl.col("file").cast(pl.String).fill_null("").str.contains(kernel_lines.OF_AGENT)
    return ((pl.col("source") == "kernel") & ~(of_root & (pl.col("authority") != UNVERIFIED))).fill_null(False)


def known_by(lines: pl.DataFrame, in_doubt: pl.Series) -> list[str]:
    """The evidence that each of these lines is the kernel's; ``RING`` for others, which need none. ``in_doubt``: the values
    of ``is_in_doubt``."""
    found = [RING] * lines.height
    doubted = in_doubt.arg_true()
    facilities, files = (lines[name][doubted].to_list() for name in ("facility", "file"))
    for place, facility, file in zip(doubted.to_list(), facilities, files, strict=True):
        found[place] = FACILITY if facility is not None or _is_by_facility(file or "") else NAME
    return found


def known_by_of(line: Mapping[str, Any]) -> str:
    """The same for one line."""
    of_root = line["format"] in kernel_lines.OF_RING or _is_agents(line["file"] or "")
    if line["source"] != "kernel" or (of_root and line["authority"] != UNVERIFIED):
        return RING
    return FACILITY if line["facility"] is not None or _is_by_facility(line["file"] or "") else NAME


def known_by_of_copies(copies: Sequence[Mapping[str, Any]]) -> str:
    """The best evidence of several copies of a line. Whoever sends a packet chooses its facility, so that adds nothing to
    a file's line."""
    filed = [c for c in copies if not (c["file"] or "").startswith(RELAYED)]
    return min(map(known_by_of, filed or copies))


@lru_cache(maxsize=65_536)
def _is_agents(file: str) -> bool:
    return _OF_AGENT.search(file) is not None


@lru_cache(maxsize=65_536)
def _is_by_facility(file: str) -> bool:
    return _BY_FACILITY.search(file) is not None


class Asked:
    """``Clocks`` of what is stored. ``any_clock``: does any line of the cluster show one? None: not known yet."""

    def __init__(self, store: Asks, cluster: str | None, *, any_clock: bool | None = None) -> None:
        self.store, self.cluster, self.any_clock = store, cluster, any_clock

    def __call__(self, hosts: Collection[str], since: float, until: float) -> Sequence[Mapping[str, Any]]:
        first, last = moments(since, until)
        if self.any_clock is None:
            self.any_clock = bool(self.store.ask(kernel_lines.any_clock(self.cluster)))
        if not self.any_clock or not self.store.ask(kernel_lines.any_clock_in(self.cluster, first, last)):
            return ()  # lines without uptimes are evidence only beside lines with one
        return self.store.ask(kernel_lines.clocks(self.cluster, sorted(hosts), first, last))


def moments(since: float, until: float) -> tuple[datetime, datetime]:
    """A range of time for queries."""
    first, last = moment_of(since), moment_of(until)
    assert first is not None and last is not None
    return first, last


def unasked(hosts: Collection[str], since: float, until: float) -> Sequence[Mapping[str, Any]]:
    """``Clocks`` without a store."""
    return ()


def unsupported(of_kernel: Sequence[Event]) -> list[Event]:
    """The events in the kernel's name that others can have written, and that no line with better evidence supports."""
    doubtful = [e for e in of_kernel if e.known_by]
    if not doubtful:  # the common case, if the kernel's ring is collected
        return []
    # What a file repeats of the ring is one event with it: such a line of the ring is the copy of no other.
    reported: dict[_Statement, list[float]] = defaultdict(list)
    for event in [e for e in of_kernel if not e.known_by]:
        if all(_OF_RING.search(file) for file, _ in event.also):
            reported[_statement(event)].append(event.time)
    if not reported:
        return doubtful
    claimed: dict[_Statement, list[Event]] = defaultdict(list)
    for event in doubtful:
        claimed[_statement(event)].append(event)
    supported = {
        e.id for about, some in claimed.items() if about in reported for e in _supported(some, reported[about])
    }
    return [e for e in doubtful if e.id not in supported]


#: What a line says, and whether a user can have made the kernel say it: such a line supports no driver's.
_Statement = tuple[str | None, str, str | None, bool]


def _statement(event: Event) -> _Statement:
    return event.host, event.kind, event.device, is_of_own_device(event)


def standing(doubtful: Sequence[Event], clocks: Clocks) -> dict[str, str]:
    """Event id -> the evidence against its being the kernel's, of ``unsupported`` events."""
    if not doubtful:
        return {}
    hosts = {e.host for e in doubtful if e.host}
    by_host: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    if hosts:
        times = [e.written_at for e in doubtful]
        for row in clocks(hosts, min(times) - HABIT_S, max(times) + AHEAD_S):
            by_host[row["host"]].append(row)
    of_host = {host: _HostClocks(rows) for host, rows in by_host.items()}
    return {e.id: _standing(e, of_host.get(e.host or "")) for e in doubtful}


def _supported(claimed: Iterable[Event], reported: Iterable[float]) -> Iterator[Event]:
    """The events that lines which only the kernel can have written, ``reported`` at these times, are copies of: one each.

    Otherwise, a user could repeat what the kernel logged a while ago, and make a flap of a loss.
    """
    left = sorted(reported, reverse=True)
    for event in sorted(claimed, key=lambda e: (e.time, e.id)):
        while left and left[-1] < event.time - COPY_S:
            left.pop()
        if left and left[-1] <= event.time + COPY_S:
            left.pop()
            yield event


def _by_itself(event: Event) -> str:
    """The evidence against an event that no clock of its host speaks against."""
    if event.known_by == FACILITY:
        return SHARED
    return BARE if event.entities.get("uptime_s") is None else STAMPED


class _HostClocks:
    """The clocks that the kernel's lines of one host show: ``rows`` of ``Clocks``. A user can make as many of them as she writes
    lines, so a line is not compared with each."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        in_order = sorted(rows, key=itemgetter("first"))
        ring = [r for r in in_order if r["of_ring"]]
        self._ring, self._ring_last = _firsts(ring), _highest(ring, "last")
        self._bare = min((r["first"] for r in rows if not r["of_ring"] and r["boot"] is None), default=float("inf"))
        shown = [r for r in in_order if not r["of_ring"] and r["boot"] is not None]
        self._shown, self._last, self._boots = _firsts(shown), _highest(shown, "last"), _highest(shown, "boot")
        self._lines = [0, *accumulate(r["lines"] for r in shown)]
        self._by_boot = sorted(shown, key=itemgetter("boot"))

    def miss(self, at: float) -> bool:
        """Was the ring collected before and after that time (epoch seconds)?"""
        begun = bisect_left(self._ring, at - MINUTE_S)
        return begun > 0 and self._ring_last[begun - 1] > at + MINUTE_S / 2

    def had_uptimes(self, at: float) -> bool:
        """Had that kernel's lines an uptime, until shortly before?"""
        # Writing lines without an uptime for a while must not make that a habit: the earlier habit counts, for a day.
        habit = bisect_left(self._shown, min(at - MINUTE_S, self._bare))
        kept = habit > 0 and at - min(self._last[habit - 1], at) <= HABIT_KEPT_S
        return kept and self._lines[habit] >= HABIT_LINES

    def fit(self, at: float, boot: float) -> bool:
        """Can a kernel that booted then have written a line at that time (epoch seconds)?"""
        begun = bisect_left(self._shown, at - MINUTE_S)
        if not begun:
            return True
        near = bisect_left(self._by_boot, boot / kernel_lines.SAME_CLOCK_S - 3.0, key=itemgetter("boot"))
        siblings = []
        for row in islice(self._by_boot, near, None):
            if row["boot"] > boot / kernel_lines.SAME_CLOCK_S + 3.0:
                break
            if kernel_lines.fits_clock(row["boot"], boot):
                siblings.append(row)
        if any(r["first"] < at - MINUTE_S for r in siblings):
            return True
        # A boot after all other known ones: no line of an earlier one may be later than it, and a boot writes many lines.
        latest = {"boot": self._boots[begun - 1], "last": self._last[begun - 1]}
        return kernel_lines.ends_before(latest, boot) and sum(r["lines"] for r in siblings) >= HABIT_LINES


def _firsts(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row["first"] for row in rows]


def _highest(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """For each row, the highest value of a column until there."""
    return list(accumulate((row[name] for row in rows), max))


def _standing(event: Event, clocks: _HostClocks | None) -> str:
    """``clocks``: of its host; None if it shows none."""
    uptime = number(event.entities.get("uptime_s"))  # a store of an earlier version has what a sender called so
    if clocks is None:
        return _by_itself(event)
    at = event.written_at
    if uptime is None and clocks.had_uptimes(at):
        return REFUTED
    if clocks.miss(at):
        return UNCONFIRMED
    return _by_itself(event) if uptime is None or clocks.fit(at, at - uptime) else ODD
