"""Distinguishes a writer's own words from quoted text: a daemon that repeats what a user wrote does not report it.

A program's name, a path, a partition, a job's name: the kernel and daemons copy them into their messages unchanged, and
they may read like any other message. So three conditions must hold before a message means what a pattern says:

* its **place**: the pattern's words begin at the head of the message, where only the writer's own words can be: after
  timestamps, names of functions, drivers, devices and ports, and the few words that the pattern lists itself
  (``after``);
* whose **words** they are: known user text (``quoting.toml``) is blanked for all patterns, though entities keep it
  unchanged; job IDs and node names are never taken from it;
* the **writer**: a program that only repeats text (a login daemon, cron, audit) means no event, other system programs
  only their own events, and systemd only what its first process writes: every user's own instance writes under the same
  name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parsers.automata import Automata
from parsers.formats.base import SLURM
from parsers.lines import Array

if TYPE_CHECKING:
    from parsers.pattern import Pattern

#: Sources whose messages begin with the writer's own words. Sources without users (a switch, a subnet manager, a health
#: check) and those of unknown writers are not checked.
_PLACED = frozenset({"kernel", *SLURM, "syslog", "prolog", "epilog"})
#: A relay's lines from switches begin in each vendor's way, and anybody may write such a line: the host decides
#: (standing.py).
_OF_SWITCHES = ("switch.", "fabric.")
_NUMBERED = r"(?=\S{0,40}\d)[\w.:/@<>,+#-]+"
#: What may precede the first meaningful word, up to eight of these: a bracket with any content that the format allows,
#: one word and a colon, or a device: a name, up to three words with a digit or brackets, and a colon.
_HEAD = re.compile(
    rf"""\s*(?:
      \[[^\]\n]{{0,60}}\]:?\s*
     |\{{\d+\}}\s*
     |\d+:\d+:\([\w./-]{{1,40}}:\d+:\w{{1,60}}\(\)\)\s*
     |(?:\S+\ )?kernel(?:\[\])?:\s*|-?\d+\ log_channel\(cluster\)\ log\ \[\w+\]\ :\ (?:Health\ check\ failed:\ )?
     |<\w+:?[\w.]*>\s*
     |\(pid\ \d+\):\s*
     |(?!/)[^\s:"'`=\\/(][^\s"'`=\\]{{0,80}}:\s*
     |[A-Za-z][\w-]*(?:\ (?:error|warning))?(?:\ (?:{_NUMBERED}|\([^()]{{0,60}}\)|\[[^\]]{{0,40}}\])){{1,3}}:\s*
     |(?:NMI\ watchdog|Memory\ cgroup\ out\ of\ memory|Out\ of\ memory|EDAC\ \w+\ MC\d+|Internal\ error):\s*
     |:-\ |\*+\s*|-+\s|@@@\s|\]\s|_
    ){{0,9}}""",
    re.VERBOSE,
)
#: Entities that are never taken from a user's words.
_SURE = ("job", "node", "nodelist", "node_names", "short_node", "affected_node", "step")
_FILLER = re.compile(r"[^\s/.:-]")
#: The bits of all spans; and the length in bytes from which a message counts as having any: an automaton may take a
#: microsecond for each byte of a text that was made for it.
ANY = -1
_LONG = 2_000


class ReadableMessage(NamedTuple):
    """A message of ``source`` with its quoted text blanked character by character: ``text``; the blanked ranges:
    ``spans``."""

    message: str
    text: str
    source: str | None
    spans: tuple[tuple[int, int], ...] = ()


class _Carrier(NamedTuple):
    """What repeats a user's text: messages that ``hint`` fits. The groups of ``spans`` are that text; the first span has the
    number ``first`` among those of all carriers."""

    sources: frozenset[str]
    hint: re.Pattern[str]
    spans: tuple[re.Pattern[str], ...]
    first: int

    @property
    def bits(self) -> int:
        """A bit for the number of each span."""
        return (1 << len(self.spans)) - 1 << self.first


@lru_cache(maxsize=1)
def quoted_data() -> Mapping[str, Any]:
    """The tables of ``quoting.toml``."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@lru_cache(maxsize=1)
def _carriers() -> tuple[_Carrier, ...]:
    found: list[_Carrier] = []
    for table in quoted_data()["carrier"]:
        first = found[-1].first + len(found[-1].spans) if found else 0
        spans = tuple(map(re.compile, table["spans"]))
        found.append(_Carrier(frozenset(table["sources"]), re.compile(table["hint"], re.I), spans, first))
    return tuple(found)


@lru_cache(maxsize=64)
def _carriers_of(source: str | None) -> tuple[_Carrier, ...]:
    return tuple(carrier for carrier in _carriers() if source in carrier.sources)


@lru_cache(maxsize=64)
def _bits_of(source: str | None) -> int:
    return sum(carrier.bits for carrier in _carriers_of(source))


@lru_cache(maxsize=1)
def _all_spans() -> Automata:
    return Automata([span for carrier in _carriers() for span in carrier.spans])


def prepare() -> None:
    """Makes the automaton before the first message."""
    _all_spans()


def spans_of(data: Array, starts: Array, ends: Array, sources: Sequence[str | None]) -> Array:
    """For each message ``data[starts[i]:ends[i]]`` of ``sources[i]`` the bits of the spans that may be in it: one pass
    over all messages, of which few repeat a user's text."""
    bits = np.fromiter(map(_bits_of, sources), np.uint64, len(sources))
    asked = np.flatnonzero((bits > 0) & (ends - starts <= _LONG))
    bits[asked] &= _all_spans().fitting(data, starts, ends, asked)
    return bits


def as_readable(message: str, source: str | None, spans: int = ANY) -> ReadableMessage:
    """``message`` in the form that patterns are matched against. ``spans``: the bits of those that may be in it."""
    if not spans:
        return ReadableMessage(message, message, source)
    found: list[tuple[int, int]] = []
    for carrier in _carriers_of(source):
        if spans & carrier.bits and carrier.hint.search(message) is not None:
            for number, regex in enumerate(carrier.spans, carrier.first):
                if spans >> number & 1 and (match_ := regex.search(message)) is not None:
                    found += [match_.span(group) for group in range(1, regex.groups + 1) if match_[group]]
    text = message
    for begin, end in found:
        text = text[:begin] + _FILLER.sub("x", text[begin:end]).replace(":", "x") + text[end:]
    return ReadableMessage(message, text, source, tuple(found))


def search(entry: Pattern, regex: re.Pattern[str], message: ReadableMessage) -> Any | None:
    """The match (with ``group`` and ``groupdict``) of a regex of ``entry``, if the matched words are the writer's
    own."""
    if entry.anywhere:
        return regex.search(message.message)
    found = regex.search(message.text)
    if found is None or not (found.start() == 0 or _in_place(entry, found.start(), message)):
        return None
    return _Unhidden(found, message) if message.spans else found


def match(entry: Pattern, message: str, source: str | None) -> dict[str, Any] | None:
    """Raw entities if a message of ``source`` means the event of ``entry``, else None."""
    if not entry.fits(source):
        return None
    readable = as_readable(message, source)
    found = next((found for regex in entry.regexes if (found := search(entry, regex, readable))), None)
    if found is None or (entry.unless is not None and entry.unless.search(readable.text)):
        return None
    return {**entry.fixed, **{name: value for name, value in found.groupdict().items() if value is not None}}


def _in_place(entry: Pattern, start: int, message: ReadableMessage) -> bool:
    if message.source not in _PLACED or entry.event.startswith(_OF_SWITCHES):
        return True
    head = _HEAD.match(message.text)
    end = head.end() if head else 0
    if start <= end:
        return True
    if entry.after is None:
        return False
    more = entry.after.match(message.text, end) or entry.after.match(message.text)
    return more is not None and start <= more.end()


class _Unhidden:
    """A match in a partly blanked text, with its groups as originally written."""

    def __init__(self, found: re.Match[str], message: ReadableMessage) -> None:
        self._found, self._message = found, message
        self._unsure = {number for name, number in found.re.groupindex.items() if name.rstrip("_") in _SURE}

    def _written(self, number: int) -> str | None:
        begin, end = self._found.span(number)
        if begin < 0:
            return None
        if number in self._unsure and any(begin < stop and first < end for first, stop in self._message.spans):
            return None
        return self._message.message[begin:end]

    def group(self, *numbers: int) -> Any:
        """Like ``re.Match.group``, for numbers of groups."""
        if len(numbers) == 1:
            return self._written(numbers[0])
        return tuple(map(self._written, numbers))

    def groupdict(self) -> dict[str, str | None]:
        """Like ``re.Match.groupdict``."""
        return {name: self._written(number) for name, number in self._found.re.groupindex.items()}


# ------------------------------------------------------------------------------------------------------------ who speaks


@lru_cache(maxsize=16_384)
def may_mean(event: str, source: str | None, unit: str | None, first: bool, step: bool) -> bool:
    """Whether a line of ``source`` and program ``unit`` may mean ``event``. ``first``: written by process 1, or by an
    unknown process; ``step``: a step's daemon wrote it."""
    if event.startswith(("site.", "other")):
        return True
    if source in SLURM or source == "kernel":
        families = quoted_data()["daemons"]["slurmstepd" if step else source]
    elif source == "syslog" and unit is not None:
        name = unit.lower()
        begin = max((begin for begin in quoted_data()["speaks"] if name.startswith(begin)), key=len, default=None)
        if begin is None:
            return True
        if begin == "systemd" and not first:
            return False
        families = quoted_data()["speaks"][begin]
    else:
        return True
    return event.startswith(tuple(families))
