"""Finds the pattern of a catalogue that matches each message of a batch, without trying all patterns on all messages.

For every regex one *key* is chosen: a set of texts of which at least one occurs wherever the regex matches, taken from
the regex (parsers/required.py) or from the entry's literals. One pass over the batch finds all keys
(parsers/needles.py). Where a key occurs, the other texts that its regex requires are checked, and only then the regex
is tried. The results equal those of :meth:`Catalogue.match`, which tries one entry after another.

Which texts are rare differs from site to site, so keys are chosen by their frequency in the first lines. This affects
the speed and never the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Any, NamedTuple, cast

import numpy as np
import polars as pl

from parsers import quoting
from parsers.compiled import compiled, part
from parsers.entities import Reading
from parsers.lines import Array, each_once, joined
from parsers.needles import SHORT, Needles, Often, Sought, insert, search_row
from parsers.pattern import Pattern
from parsers.patterns import Catalogue, meaning
from parsers.required import Clause, needs_kept, selectivity

#: Number of lines that show which texts are rare; an index built from fewer is rebuilt when a batch has several times
#: more.
_SAMPLE, _SEVERAL = 8_000, 8
#: Number of further clauses of a regex that are checked before it is tried; a text in at most one of this many lines is
#: rare.
_MORE, _RARE = 3, 100
#: Letters that case-insensitive regexes equate with ASCII ones (U+0130, U+0131, U+017F, U+212A): a message with one of
#: them may lack a required text and still match, so every entry is tried on it.
_FOLDED = "[\u0130\u0131\u017f\u212a]"
#: A message's meaning: its number among the distinct messages, its text, the entry, and the entities.
Meaning = tuple[int, str, Pattern, dict[str, Any]]


@dataclass(frozen=True)
class Found:
    """The ``rows`` (in order) that may have a meaning: each equals row ``firsts[which[i]]``, source and all, whose
    message is ``texts[which[i]]``. ``meaning`` returns the meaning of the text with that number, if any."""

    rows: Array
    which: Array
    firsts: Array
    texts: list[str]
    meaning: Callable[[int], tuple[Pattern, dict[str, Any]] | None]

    @property
    def meanings(self) -> Iterator[Meaning]:
        """Every text with a meaning, and that meaning."""
        for at, text in enumerate(self.texts):
            if (means := self.meaning(at)) is not None:
                yield at, text, *means


def one_by_one(catalogue: Catalogue, messages: pl.Series, sources: pl.Series, of_job: bool = False) -> Found:
    """The meanings of ``messages``, without an index. ``of_job``: they are known job output."""
    rows = np.arange(len(messages))
    texts, known = messages.fill_null("").to_list(), sources.to_list()
    return Found(rows, rows, rows, texts, lambda at: catalogue.match(texts[at], known[at], of_job))


class PatternIndex:
    """Finds the meanings of messages in ``catalogue``. Safe to use from several threads."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._regexes = [
            (entry, regex, Reading(regex, entry.fixed)) for entry in catalogue.entries for regex in entry.regexes
        ]
        self._clauses: list[list[Clause]] | None = None
        self._refusing: list[Clause | None] = []
        self._keys: _Keys | None = None

    @property
    def made(self) -> bool:
        """Whether the keys have been chosen: the first search takes a tenth of a second more."""
        return self._keys is not None

    def find(self, messages: pl.Series, sources: pl.Series, of_job: bool = False) -> Found:
        """Which of ``messages`` may mean something in the catalogue, and what. Repeated messages are examined once.
        ``of_job``: they are known job output."""
        edges, data = joined(messages)
        keys = self._keys
        if keys is None or keys.sampled * _SEVERAL <= min(len(messages), _SAMPLE):
            self._keys = keys = self._choose(messages)
        rows, numbers = keys.find(edges, data, sources)
        folded = _folded(edges, data, messages)
        if len(folded):
            rows, numbers = keys.with_all(rows, numbers, folded, sources)
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        ends = np.append(starts[1:], len(rows))
        rows = rows[starts]
        which = np.empty(len(rows), np.int64)
        places = _different(edges, data, rows, _distinct(sources[rows])[1], which)
        firsts = rows[places]
        texts, whose = messages[firsts].fill_null("").to_list(), sources[firsts].to_list()
        begins, stops, candidates = starts[places].tolist(), ends[places].tolist(), numbers.tolist()

        @cache
        def spans() -> list[int]:  # of all at once, and not before one is asked for: most may be remembered
            return cast("list[int]", quoting.spans_of(data, edges[firsts], edges[firsts + 1], whose).tolist())

        def meaning_of(at: int) -> tuple[Pattern, dict[str, Any]] | None:
            message = quoting.as_readable(texts[at], whose[at], spans()[at])
            return meaning(self._meanings(message, candidates[begins[at] : stops[at]]), of_job)

        return Found(rows, which, firsts, texts, meaning_of)

    def _meanings(
        self, message: quoting.ReadableMessage, candidates: list[int]
    ) -> Iterator[tuple[Pattern, dict[str, Any]]]:
        """The meanings of ``message`` by those of the numbered regexes that match. A number is raised by the count of
        all regexes if more than the regex must be checked."""
        regexes, count = self._regexes, len(self._regexes)
        refused = None
        for number in candidates:
            doubtful = number >= count
            entry, regex, reading = regexes[number - count if doubtful else number]
            found = quoting.search(entry, regex, message)
            if found is None or entry is refused:
                continue
            if not doubtful or _accepts(entry, message.text):
                yield entry, reading(found)
            else:
                refused = entry

    def prepare(self) -> None:
        """Precomputes what depends on the regexes alone, before the first line."""
        if self._clauses is not None:
            return
        quoting.prepare()
        known = [[*needs_kept(regex), entry.literals] for entry, regex, _ in self._regexes]
        # Many entries share the same ``unless``, and each has several regexes.
        vetoes = {unless: _veto(unless) for unless in {entry.unless for entry, *_ in self._regexes}}
        self._refusing = [
            vetoes[entry.unless] if _implied(entry.literals, clauses[:-1]) else None
            for (entry, *_), clauses in zip(self._regexes, known, strict=True)
        ]
        self._clauses = [[found for clause in clauses if (found := _ascii(clause))] for clauses in known]

    def _choose(self, messages: pl.Series) -> _Keys:
        """The keys whose texts are the rarest in ``messages``, and the most selective of those."""
        self.prepare()
        assert self._clauses is not None
        sample = _Sample(messages.gather_every(max(len(messages) // _SAMPLE, 1)), self._clauses)
        chosen = list(map(sample.chosen, self._clauses))
        return _Keys([entry for entry, *_ in self._regexes], chosen, self._refusing, sample)


class _Sample:
    """Which of ``messages`` contain which texts of ``clauses``: sets of rows are integers, with a bit for each row."""

    def __init__(self, messages: pl.Series, clauses: list[list[Clause]]) -> None:
        self.size = len(messages)
        edges, data = joined(messages)
        self.often = Often(data)
        texts = sorted({text for some in clauses for clause in some for text in clause})
        rows, numbers = Needles(texts, self.often).find(edges, data)
        self._rows: dict[str, int] = {}
        order = np.argsort(numbers, kind="stable")
        for hits in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            holding = np.zeros(self.size, np.bool_)
            holding[rows[hits]] = True
            if len(hits):
                self._rows[texts[numbers[hits[0]]]] = int.from_bytes(np.packbits(holding).tobytes())

    def chosen(self, clauses: list[Clause]) -> list[Clause]:
        """The key among the clauses that a regex requires (the rarest, the most selective of those), followed by those
        worth checking where the key occurs: rare ones, and those that reduce the candidates."""
        holding = {clause: self._holding(clause) for clause in clauses}
        ranked = sorted(clauses, key=lambda clause: (holding[clause].bit_count(), -selectivity(clause)))
        left = holding[ranked[0]] if ranked else 0
        found = ranked[:1]
        for clause in ranked[1:]:
            fewer = left & holding[clause]
            rare = holding[clause].bit_count() * _RARE <= self.size and min(map(len, clause)) >= SHORT
            if (rare or fewer.bit_count() * 10 < left.bit_count() * 9) and len(found) <= _MORE:
                found.append(clause)
                left = fewer
        return found

    def _holding(self, clause: Clause) -> int:
        return reduce(or_, (self._rows.get(text, 0) for text in clause))


class _Groups(NamedTuple):
    """Group ``i`` is ``members[edges[i]:edges[i + 1]]``."""

    edges: Array
    members: Array


class _Needed(NamedTuple):
    """The clauses of regex ``i`` are ``clauses[i]`` to ``clauses[i + 1] - 1``; each requires one of a group of texts. A
    match is uncertain if a text of the group ``i`` of ``refusing`` occurs, or ``always``."""

    clauses: Array
    texts: _Groups
    refusing: _Groups
    always: Array


class _Keys:
    """The chosen key of each regex and the other clauses that it requires.

    ``chosen``: for each regex its key and the clauses to check where the key occurs, by ``sample``. ``refusing``: texts
    without which a match of the regex means its entry; None if there are none such.
    """

    def __init__(
        self, entries: list[Pattern], chosen: list[list[Clause]], refusing: list[Clause | None], sample: _Sample
    ) -> None:
        self.sampled = sample.size
        owners: dict[str, list[int]] = {}
        for number, clauses in enumerate(chosen):
            for text in clauses[0] if clauses else ():
                owners.setdefault(text, []).append(number)
        self._needles = Needles(list(owners), sample.often)
        self._without = [number for number, clauses in enumerate(chosen) if not clauses]
        # After all keys: the one that every message contains.
        self._owners = _groups([*owners.values(), self._without])
        others = [clauses[1:] for clauses in chosen]
        flat = [clause for some in others for clause in some]
        vetoes = [clause or () for clause in refusing]
        numbers = {text: at for at, text in enumerate(sorted({text for clause in (*flat, *vetoes) for text in clause}))}
        self._others = Needles(list(numbers), sample.often)
        texts, asked = (_groups([[numbers[text] for text in clause] for clause in some]) for some in (flat, vetoes))
        always = np.array([clause is None for clause in refusing], np.bool_)
        self._needed = _Needed(_edges(map(len, others)), texts, asked, always)
        self._entries = entries
        self._fits: dict[str | None, Array] = {}

    def find(self, edges: Array, data: Array, sources: pl.Series) -> tuple[Array, Array]:
        """Which regexes (by number, in order of precedence) may match which rows; raised by the count of all regexes if
        a match may not mean the entry."""
        rows, keys = self._needles.find(edges, data)
        if self._without:
            everywhere = np.arange(len(edges) - 1)
            rows = np.concatenate([everywhere, rows])
            order = np.argsort(rows, kind="stable")
            keys = np.concatenate([np.full(len(everywhere), len(self._needles.texts)), keys])[order]
            rows = rows[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        names, codes = _distinct(sources[rows[starts]])
        fits = np.array([self._fitting(name) for name in names], np.bool_).reshape(-1, len(self._entries))
        room = int(np.diff(self._owners.edges)[keys].sum())
        found = np.empty(room, np.int64), np.empty(room, np.int64)
        hits = _Hits(rows[starts], np.append(starts, len(rows)), keys, codes)
        count = _sift(edges, data, hits, fits, self._owners, self._others.sought, self._needed, *found)
        return found[0][:count], found[1][:count]

    def with_all(self, rows: Array, numbers: Array, others: Array, sources: pl.Series) -> tuple[Array, Array]:
        """The result of :meth:`find`, but for the rows ``others`` every regex for their source, all uncertain."""
        kept = ~np.isin(rows, others)
        doubtful = len(self._entries)
        fits = [np.flatnonzero(self._fitting(source)) + doubtful for source in sources[others].to_list()]
        rows = np.concatenate([rows[kept], np.repeat(others, list(map(len, fits)))])
        order = np.argsort(rows, kind="stable")
        return rows[order], np.concatenate([numbers[kept], *fits])[order]

    def _fitting(self, source: str | None) -> Array:
        """For each regex, whether lines of ``source`` may mean its entry."""
        known = self._fits.get(source)
        if known is None:
            known = self._fits[source] = np.array([entry.fits(source) for entry in self._entries], np.bool_)
        return known


class _Hits(NamedTuple):
    """Row ``rows[i]`` contains the keys ``keys[spans[i]:spans[i + 1]]``, and ``sources[i]`` is the number of its
    source."""

    rows: Array
    spans: Array
    keys: Array
    sources: Array


@compiled
def _sift(
    edges: Array, data: Array, hits: _Hits, fits: Array, owners: _Groups, others: Sought, needed: _Needed, rows: Array,
    regexes: Array,
) -> int:  # fmt: skip
    """Writes which regexes (in ascending order) may match which rows; returns how many.

    ``others``: the texts besides keys, searched only in rows with a key of a regex for their source.
    """
    asked = np.full(len(needed.clauses) - 1, -1, np.int64)
    seen = np.full(len(others.texts.edges) - 1, -1, np.int64)
    numbers = np.empty(len(seen), np.int64)
    count = 0
    for at in range(len(hits.rows)):
        row = hits.rows[at]
        first = last = count
        for hit in range(hits.spans[at], hits.spans[at + 1]):
            key = hits.keys[hit]
            for owner in range(owners.edges[key], owners.edges[key + 1]):
                regex = owners.members[owner]
                if asked[regex] != row and fits[hits.sources[at], regex]:
                    asked[regex] = row
                    insert(regexes, first, last, regex)
                    last += 1
        if last == first:
            continue
        search_row(data, edges[row], edges[row + 1], row, others, seen, numbers, 0)
        for place in range(first, last):
            regex = regexes[place]
            if _has_all(seen, row, needed, regex):
                rows[count] = row
                regexes[count] = regex + (len(asked) if _in_doubt(seen, row, needed, regex) else 0)
                count += 1
    return count


@part
def _in_doubt(seen: Array, row: int, needed: _Needed, regex: int) -> bool:
    """Whether a match in the row may not mean the regex's entry."""
    doubtful = bool(needed.always[regex])
    for text in range(needed.refusing.edges[regex], needed.refusing.edges[regex + 1]):
        doubtful |= seen[needed.refusing.members[text]] == row
    return doubtful


@part
def _has_all(seen: Array, row: int, needed: _Needed, regex: int) -> bool:
    """Whether a text of each clause of a regex occurred in the row."""
    for clause in range(needed.clauses[regex], needed.clauses[regex + 1]):
        for text in range(needed.texts.edges[clause], needed.texts.edges[clause + 1]):
            if seen[needed.texts.members[text]] == row:
                break
        else:
            return False
    return True


@compiled
def _different(edges: Array, data: Array, rows: Array, sources: Array, which: Array) -> Array:
    """Finds distinct ``rows`` (by bytes and ``sources``): writes to ``which`` the distinct one for each, and returns
    the first index in ``rows`` for each of those."""
    size = 2
    while size < 2 * len(rows):
        size *= 2
    slots = np.full(size, -1, np.int64)
    firsts = np.empty(len(rows), np.int64)
    count = 0
    for at in range(len(rows)):
        begin, end = edges[rows[at]], edges[rows[at] + 1]
        slot = (_hash(data, begin, end) + sources[at]) & (size - 1)
        while True:
            number = slots[slot]
            if number < 0:
                slots[slot] = number = count
                firsts[count] = at
                count += 1
                break
            first = firsts[number]
            other = edges[rows[first]]
            if sources[first] == sources[at] and _same(data, begin, end, other, edges[rows[first] + 1]):
                break
            slot = (slot + 1) & (size - 1)
        which[at] = number
    return firsts[:count]


@part
def _hash(data: Array, begin: int, end: int) -> int:
    """32-bit FNV-1a."""
    value = np.uint32(2166136261)
    for at in range(begin, end):
        value = np.uint32((value ^ data[at]) * np.uint32(16777619))
    return int(value ^ value >> np.uint32(15))


@part
def _same(data: Array, begin: int, end: int, other: int, other_end: int) -> bool:
    if end - begin != other_end - other:
        return False
    at = 0
    while at < end - begin and data[begin + at] == data[other + at]:
        at += 1
    return bool(at == end - begin)


def _edges(sizes: Iterable[int]) -> Array:
    return np.cumsum([0, *sizes], dtype=np.int64)


def _groups(groups: list[list[int]]) -> _Groups:
    return _Groups(_edges(map(len, groups)), np.array([member for group in groups for member in group], np.int64))


def _folded(edges: Array, data: Array, messages: pl.Series) -> Array:
    """Rows of messages with a letter that regexes equate with an ASCII one."""
    high = np.flatnonzero(data > 127)
    rows = each_once(np.searchsorted(edges, high, side="right") - 1)
    found: Array = rows[messages[rows].str.contains(_FOLDED).to_numpy()]
    return found


def _distinct(texts: pl.Series) -> tuple[list[str | None], Array]:
    """The distinct ``texts``, and the index of each text among them."""
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode(null_encoding="encode")
    # Arrow's own to_numpy would import pandas, if installed, into every parsing process.
    return array.dictionary.to_pylist(), np.frombuffer(array.indices.buffers()[1], np.int32, len(array))


def _accepts(entry: Pattern, message: str) -> bool:
    """Whether a message that matches one of the entry's regexes means the entry. Unrolled: many lines come here."""
    lower = message.lower()
    for literal in entry.literals:
        if literal in lower:
            return entry.unless is None or entry.unless.search(message) is None
    return False


@cache
def _veto(unless: re.Pattern[str] | None) -> Clause | None:
    """Texts of which ``unless`` requires one; empty without ``unless``, None if nothing is certain."""
    return () if unless is None else next(iter(needs_kept(unless)), None)


def _implied(literals: Clause, clauses: list[Clause]) -> bool:
    """Whether a message that contains a text of each of the ``clauses`` always contains one of ``literals``."""
    return any(all(any(literal in text for literal in literals) for text in clause) for clause in clauses)


def _ascii(clause: Clause) -> Clause:
    """``clause`` reduced to its longest runs of ASCII, which are found in any case; empty if a text has none."""
    runs = [max(re.findall(r"[\x00-\x7f]+", text), key=len, default="") for text in clause]
    return tuple(runs) if all(runs) else ()
