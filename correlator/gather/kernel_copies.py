"""What other files show about a line in the kernel's name.

* *Its copy.* A file without facilities keeps what ``logger -t kernel`` wrote as the kernel's. A log host's copy of the
  same line says facility ``user``: then a user wrote it (``OF_USER``).
* *The silence of its host.* A log host's file has a line of a node's kernel; the node's own syslog of that time was
  collected, and does not have it. Anybody can send a log host a line in the name of a node. That own file must have
  lines shortly before and after, without a boot between, and must be one that gets the kernel's lines: others of this
  kernel are in both (``DENIED``), or nothing speaks against it (``UNHELD``: it is not believed, but not shown to be
  false). If others of this kernel were missing there before as well, the line is only doubtful (``LACKING``).

A kernel that dies, and a disk that no longer takes lines, explain such a silence: their lines are believed as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from correlator.gather import kernel_lines, shared_lines
from correlator.gather.kernel_lines import (
    COPY_S,
    DENIED,
    LACKING,
    NAME,
    OF_USER,
    REFUTED,
    SENT,
    UNCONFIRMED,
    UNHELD,
    moments,
)
from correlator.model.nouns import Event
from correlator.site.open_lines import owner_of
from parsers.formats.base import SEVERITIES
from parsers.host_names import short_key
from store.questions import kernel_copies as questions

if TYPE_CHECKING:
    from store.door import Asks

#: An own file covers a moment if it has a line at most this long before it, and one at most this long after it (a tick
#: looks 900 s back).
BEFORE_S, AFTER_S = 900.0, 600.0
#: What a kernel passed to its files within these days counts.
HABIT_DAYS = 7
#: Copies of one line show one moment, to the coarser of their two resolutions.
_SAME_S = 0.001
#: Lines of one event are this near to it (gather/events.py).
_NEAR_S = 2.0
#: What may keep a node from writing its own files.
_FATAL = (
    "kernel.panic",
    "kernel.lockup",
    "kernel.boot",
    "kernel.hung_task",
    "kernel.mce",
    "storage.",
    "disk.",
    "pcie.",
)
#: Files that a syslog daemon fills with the kernel's lines unless it is configured otherwise (Debian, Red Hat, SUSE).
_GENERAL = re.compile(r"(?:syslog|messages|kern(?:el)?(?:\.log)?)(?:$|[.-])")

Rows = Sequence[Mapping[str, Any]]


class Copies(Protocol):
    """The answers of ``store.questions.kernel_copies``; times are epoch seconds."""

    def of_programs(self, hosts: Collection[str], messages: Collection[str], since: float, until: float) -> Rows: ...

    def named(self, hosts: Collection[str], events: Collection[str], since: float, until: float) -> Rows: ...

    def files_of(self, hosts: Collection[str], since: float, until: float) -> Rows: ...

    def spans(self, files: Collection[str], places: Collection[tuple[str, int]]) -> Rows: ...

    def held(self, files: Collection[str], messages: Collection[str]) -> Rows: ...

    def passed(self, hosts: Collection[str], files: Collection[str], since: float, until: float) -> Rows: ...


class Asked:
    """``Copies`` of what is stored."""

    def __init__(self, store: Asks, cluster: str | None) -> None:
        self.store, self.cluster = store, cluster

    def of_programs(self, hosts: Collection[str], messages: Collection[str], since: float, until: float) -> Rows:
        return self.store.ask(
            questions.of_programs(self.cluster, sorted(hosts), sorted(messages), *moments(since, until))
        )

    def named(self, hosts: Collection[str], events: Collection[str], since: float, until: float) -> Rows:
        return self.store.ask(questions.named(self.cluster, sorted(hosts), sorted(events), *moments(since, until)))

    def files_of(self, hosts: Collection[str], since: float, until: float) -> Rows:
        return self.store.ask(questions.files_of(self.cluster, sorted(hosts), *moments(since, until)))

    def spans(self, files: Collection[str], places: Collection[tuple[str, int]]) -> Rows:
        return self.store.ask(questions.spans(self.cluster, sorted(files), sorted(places)))

    def held(self, files: Collection[str], messages: Collection[str]) -> Rows:
        return self.store.ask(questions.held(self.cluster, sorted(files), sorted(messages)))

    def passed(self, hosts: Collection[str], files: Collection[str], since: float, until: float) -> Rows:
        return self.store.ask(questions.passed(self.cluster, sorted(hosts), sorted(files), *moments(since, until)))


class Disproof(NamedTuple):
    """``how``: ``OF_USER``, ``DENIED``, ``UNHELD`` or ``LACKING``; ``why``, for people."""

    how: str
    why: str


def standing(
    of_kernel: Sequence[Event], clocks: kernel_lines.Clocks, copies: Copies | None, relays: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """The evidence against events in the kernel's name, by event id, and in words what other files show against some.
    ``relays``: addresses that forward lines of others."""
    doubtful = kernel_lines.unsupported(of_kernel)
    found = kernel_lines.standing(doubtful, clocks)
    found |= {name: SENT for name in shared_lines.sent(doubtful, relays) if found.get(name) != REFUTED}
    words: dict[str, str] = {}
    for name, disproof in disproved([e for e in doubtful if found.get(e.id) != REFUTED], of_kernel, copies).items():
        if disproof.how != LACKING:
            found[name] = disproof.how
            words[name] = disproof.why
        elif found.get(name) not in (UNCONFIRMED, SENT):
            found[name] = LACKING
    return found, words


def disproved(doubtful: Sequence[Event], of_kernel: Iterable[Event], copies: Copies | None) -> dict[str, Disproof]:
    """Event id -> what its copies, or the lack of one, show against it.

    ``doubtful``: events that no line with better evidence supports; ``of_kernel``: all events in the kernel's name.
    """
    if copies is None or not doubtful:
        return {}
    found = _of_users([e for e in doubtful if e.known_by == NAME and e.host], copies)
    found |= _unheld([e for e in doubtful if e.id not in found], of_kernel, copies)
    return found


def is_own(file: str | None, host: str) -> bool:
    """Is a file one that was collected from the host itself: by its agent, or in the host's folder of a tree?"""
    return bool(file) and owner_of(file or "") == short_key(host)


@lru_cache(maxsize=65_536)
def is_own_system_log(file: str | None, host: str) -> bool:
    """Is a file a general file of the host's own syslog daemon, collected from the host itself?"""
    return is_own(file, host) and _GENERAL.match((file or "").rsplit("/", 1)[-1]) is not None


def _in_own_file(event: Event) -> bool:
    """Is the event's line in a file of the host that it names?"""
    host = event.host or ""
    # The first file decides for nearly all of very many events.
    return bool(host) and (is_own(event.file, host) or any(is_own(file, host) for file, _ in event.also))


# ------------------------------------------------------------------------------------------------- the copy of a user's


def _of_users(named: Sequence[Event], copies: Copies) -> dict[str, Disproof]:
    if not named:
        return {}
    hosts = {e.host for e in named if e.host}
    since = min(e.written_at for e in named) - _NEAR_S
    until = max(e.last_written_at for e in named) + _NEAR_S
    texts = {e.message for e in named}
    by_text = _by(("host", "message"), copies.of_programs(hosts, texts, since, until))
    asked = [e for e in named if (e.host, e.message) in by_text]
    if not asked:
        return {}
    rows = copies.named({e.host for e in asked if e.host}, {e.kind for e in asked}, since, until)
    lines = _by(("host", "event"), rows)
    if more := {row["message"] for row in rows if row["message"] is not None} - texts:
        by_text |= _by(("host", "message"), copies.of_programs(hosts, more, since, until))
    found = {}
    for event in asked:
        low, high = event.written_at - _NEAR_S, event.last_written_at + _NEAR_S
        ours = [row for row in lines.get((event.host, event.kind), ()) if low <= row["t"] <= high]
        copy = _all_copied(ours, by_text)
        if copy is not None:
            why = f"{copy['file'] or 'another log'} has the same line with the facility of a program: a user wrote it"
            found[event.id] = Disproof(OF_USER, why)
    return found


def _by(names: Sequence[str], rows: Rows) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Rows by their values in some columns."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return dict(found)


def _all_copied(
    lines: Sequence[Mapping[str, Any]], by_text: Mapping[tuple[Any, ...], Sequence[Mapping[str, Any]]]
) -> Mapping[str, Any] | None:
    """One of the copies with a program's facility, if every one of these lines has one; None otherwise.

    A user may repeat the kernel's true line. So each line needs a copy of its own moment, and there must be as many
    copies as lines.
    """
    first: Mapping[str, Any] | None = None
    wanted: Counter[tuple[str, str, str]] = Counter()
    given: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
    for line in lines:
        text = (line["host"], line["message"])
        same = [row for row in by_text.get(text, ()) if _is_copy(line, row)]
        if not same:
            return None
        first = first or min(same, key=lambda row: (row["t"], str(row["file"])))
        wanted[(*text, line["file"] or "")] += 1
        given[text].update((row["file"] or "", row["line"] or 0) for row in same)
    for (host, message, _), count in wanted.items():
        if max(Counter(file for file, _ in given[(host, message)]).values()) < count:
            return None
    return first


def _is_copy(line: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    gap = min(abs(line["t"] - moment) for moment in (row["t"], row["sent"]) if moment is not None)
    return bool(gap <= max(line["resolution_us"] or 1e6, row["resolution_us"] or 1e6) / 1e6 + _SAME_S)


# ------------------------------------------------------------------------------------------- the silence of its own host


def _unheld(doubtful: Sequence[Event], of_kernel: Iterable[Event], copies: Copies) -> dict[str, Disproof]:
    strange = [
        e for e in doubtful if e.host and not e.kind.startswith(_FATAL)
        and not _in_own_file(e)
    ]  # fmt: skip
    general = _general_files(strange, copies) if strange else {}
    strange = [e for e in strange if e.host in general]
    if not strange:
        return {}
    files = {file for of_host in general.values() for file in of_host}
    places = {(e.host, _quarter(e.written_at) + n) for e in strange if e.host for n in (-1, 0, 1)}
    spans: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in copies.spans(files, places):
        spans[(row["host"], row["file"])].append((row["first"], row["last"]))
    of_kernel = list(of_kernel)
    reported, boots = _reported(of_kernel), _boots(of_kernel)
    covering = {
        e.id: file for e in strange
        if (file := _covering(e, general[e.host or ""], spans, boots.get(e.host or "", ()))) is not None
        and not _near(reported.get((e.host, e.kind, e.device), ()), e.written_at)
    }  # fmt: skip
    strange = [e for e in strange if e.id in covering]
    if not strange:
        return {}
    texts: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in copies.held(files, {e.message for e in strange}):
        texts[(row["host"], row["message"])].append(row["t"])
    strange = [e for e in strange if not _near(texts.get((e.host or "", e.message), ()), e.written_at)]
    return _by_habit(strange, covering, files, copies) if strange else {}


def _by_habit(
    strange: Sequence[Event], covering: Mapping[str, str], files: Collection[str], copies: Copies
) -> dict[str, Disproof]:
    """How much the silence of the files in ``covering`` counts, by what else of these kernels they hold."""
    since = (min(_day(e.written_at) for e in strange) - HABIT_DAYS) * questions.DAY_S
    habits: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in copies.passed({e.host for e in strange if e.host}, files, since, max(e.written_at for e in strange)):
        habits[row["host"]].append(row)
    found = {}
    for event in strange:
        at, rank = event.written_at, _rank(event.severity)
        before = [row for row in habits[event.host or ""] if _day(at) - HABIT_DAYS <= row["day"] <= _day(at)]
        # One that mattered less passed: so must this one. One that mattered more did not: then this one need not.
        both = any(_was(row["both"], at) and _compared(row, rank) >= 0 for row in before)
        lacking = any(_was(row["lacking"], at) and _compared(row, rank) <= 0 for row in before)
        name = covering[event.id].rsplit("/", 1)[-1]
        why = f"{event.host}'s own {name} was collected over that minute and does not have the line"
        if both or not lacking:
            found[event.id] = Disproof(DENIED if both else UNHELD, why)
        else:
            found[event.id] = Disproof(LACKING, f"{why}, nor earlier ones of this kernel")
    return found


def _was(moment: float | None, at: float) -> bool:
    return moment is not None and moment < at - _NEAR_S


def _compared(row: Mapping[str, Any], rank: int | None) -> int:
    """Positive for lines of less importance than ``rank``, negative for more; 0 also if either is unknown."""
    other = _rank(row["severity"])
    return 0 if rank is None or other is None else other - rank


def _general_files(strange: Sequence[Event], copies: Copies) -> dict[str, list[str]]:
    """The own files of each host that get the kernel's lines unless a syslog daemon is configured otherwise."""
    since, until = min(e.written_at for e in strange) - BEFORE_S, max(e.written_at for e in strange) + AFTER_S
    found: dict[str, list[str]] = defaultdict(list)
    for row in copies.files_of({e.host for e in strange if e.host}, since, until):
        if is_own_system_log(row["file"], row["host"]):
            found[row["host"]].append(row["file"])
    return dict(found)


def _covering(
    event: Event,
    files: Iterable[str],
    spans: Mapping[tuple[str, str], Sequence[tuple[float, float]]],
    boots: Sequence[float],
) -> str | None:
    """The own file of the host that must have the event's line; None if there is none."""
    at, found = event.written_at, []
    for file in sorted(files):
        ours = spans.get((event.host or "", file), ())
        before = max((min(last, at) for first, last in ours if first < at), default=None)
        after = min((max(first, at) for first, last in ours if last > at), default=None)
        if before is None or after is None or at - before > BEFORE_S or after - at > AFTER_S:
            continue
        if not any(at - BEFORE_S <= boot <= after + _NEAR_S for boot in boots):
            found.append((_preference(file), file))
    return min(found)[1] if found else None


def _preference(file: str) -> int:
    """The file that is by facility is named first."""
    return 0 if file.rsplit("/", 1)[-1].startswith("kern") else 1


def _reported(of_kernel: Iterable[Event]) -> dict[tuple[str | None, str, str | None], list[float]]:
    """When the own files of hosts report what: by host, kind and device, ascending.

    A line in other words that has the kernel's name only may be a user's, written beside the one that she sent.
    """
    found: dict[tuple[str | None, str, str | None], list[float]] = defaultdict(list)
    for event in of_kernel:
        if event.known_by != NAME and _in_own_file(event):
            found[(event.host, event.kind, event.device)].append(event.written_at)
    return {key: sorted(times) for key, times in found.items()}


def _boots(of_kernel: Iterable[Event]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for event in of_kernel:
        if event.kind == "kernel.boot" and event.host:
            found[event.host].append(event.written_at)
    return found


def _near(times: Sequence[float], at: float) -> bool:
    """Is one of these ascending moments at about ``at``? What comes later than ``AFTER_S`` is not waited for."""
    place = bisect_left(times, at - COPY_S)
    return place < len(times) and times[place] <= at + AFTER_S


def _quarter(at: float) -> int:
    return int(at // questions.QUARTER_S)


def _day(at: float) -> int:
    return int(at // questions.DAY_S)


def _rank(severity: str | None) -> int | None:
    return SEVERITIES.index(severity) if severity in SEVERITIES else None
