"""Which pattern of a catalogue fits each message of a batch, with few messages looked at more than once.

Of every regex one *key* is chosen: texts of which one must be there wherever it matches, taken from the regex
(parsers/required.py) or from the entry's literals. One pass over the batch finds all keys (parsers/needles.py). Where one
was found, the other texts that its regex needs are looked for, and only then the regex is tried. The answers are those
of :meth:`Catalogue.match`, which tries one entry after another.

What is rare differs from site to site, so keys are chosen by how often they stand in the first lines that are seen. This
changes how long an answer takes and never the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from parsers.lines import Array
from parsers.needles import Needles
from parsers.patterns import Catalogue, Pattern
from parsers.required import Clause, needs, telling

#: So many lines tell which texts are rare; an index made of fewer is made anew when a batch has several times more.
_SAMPLE, _SEVERAL = 8_000, 8
#: So many sets of keys are remembered with their candidates; messages are many, sets of keys in them few.
_REMEMBERED = 20_000
#: Further clauses of a regex that are looked for before it is tried.
_MORE = 3
#: Stands for a key in front of all others where a regex has none.
_NO_KEY = -1
#: Letters that regexes take for ASCII ones when case does not count (U+0130, U+0131, U+017F, U+212A): what a regex
#: needs may be missing in a message with one of these, so every entry is tried on it.
_FOLDED = ("\u0130", "\u0131", "\u017f", "\u212a")
#: What a message means: its row, the entry, and the entities.
Meaning = tuple[int, Pattern, dict[str, Any]]
#: How to search, texts that must all be in the message's small letters, clauses one of whose texts must be, and whose
#: regex it is.
_Candidate = tuple[Callable[[str], "re.Match[str] | None"], tuple[str, ...], tuple[Clause, ...], Pattern]


class PatternIndex:
    """Finds what messages mean by ``catalogue``. Safe to use from several threads."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._regexes = [
            (entry, number, regex) for entry in catalogue.entries for number, regex in enumerate(entry.regexes)
        ]
        self._clauses: list[list[Clause]] | None = None
        self._keys: _Keys | None = None

    @property
    def made(self) -> bool:
        """Whether the keys have been chosen: the first search takes a tenth of a second more."""
        return self._keys is not None

    def meanings(self, messages: pl.Series, sources: pl.Series) -> Iterator[Meaning]:
        """What those of ``messages`` (by row, in order) mean that mean something to the catalogue."""
        keys = self._keys
        if keys is None or keys.sampled * _SEVERAL <= min(len(messages), _SAMPLE):
            self._keys = keys = self._choose(messages)
        rows, numbers = keys.find(messages, sources)
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        at = rows[starts]
        texts, whose, met = messages.gather(at).to_list(), sources.gather(at).to_list(), numbers.tolist()
        spans = pairwise([*starts.tolist(), len(met)])
        known, candidates_of = keys.known, keys.candidates
        for row, message, source, (start, end) in zip(at.tolist(), texts, whose, spans, strict=True):
            which = (source, tuple(met[start:end]))
            candidates = known.get(which)
            if candidates is None:
                candidates = candidates_of(which)
            if candidates and message is not None:
                found = _first(message, candidates)
                if found is not None:
                    yield row, *found

    def _choose(self, messages: pl.Series) -> _Keys:
        """The keys whose texts are the rarest in ``messages``, and of those the most telling."""
        if self._clauses is None:
            self._clauses = [[*needs(regex), entry.literals] for entry, _, regex in self._regexes]
        sample = messages.gather_every(max(len(messages) // _SAMPLE, 1))
        needles = Needles(sorted({text for clauses in self._clauses for clause in clauses for text in _ascii(clause)}))
        counts = np.bincount(needles.find(sample)[1], minlength=len(needles.texts)).tolist()
        often = dict(zip(needles.texts, counts, strict=True))
        owners: dict[str, list[_Owner]] = {}
        always: list[_Owner] = []
        for (entry, number, regex), clauses in zip(self._regexes, self._clauses, strict=True):
            plain = [found for clause in clauses if (found := _ascii(clause))]
            key = min(plain, key=lambda texts: (sum(often[text] for text in texts), -telling(texts)), default=())
            others = [clause for clause in clauses if clause not in (key, entry.literals)][:_MORE]
            checked = others if key == entry.literals else [*others, entry.literals]
            owner = ((entry.order, number), _candidate(entry, regex, checked))
            for text in key:
                owners.setdefault(text, []).append(owner)
            if not key:
                always.append(owner)
        everyone = [((entry.order, n), _candidate(entry, regex, [entry.literals])) for entry, n, regex in self._regexes]
        owners |= dict.fromkeys(_FOLDED, everyone)
        return _Keys(owners, always, len(sample))


#: The place in the order in which regexes are tried, and the candidate.
_Owner = tuple[tuple[int, int], _Candidate]


class _Keys:
    """The chosen keys; whose each of them is; and, as far as met, the candidates of sets of keys in lines of a source."""

    def __init__(self, owners: dict[str, list[_Owner]], always: list[_Owner], sampled: int) -> None:
        self.sampled = sampled
        self.known: dict[tuple[str | None, tuple[int, ...]], tuple[_Candidate, ...]] = {}
        self._needles = Needles(list(owners))
        self._owners = {_NO_KEY: always, **dict(enumerate(owners.values()))}
        self._fits: dict[str | None, Array] = {}

    def find(self, messages: pl.Series, sources: pl.Series) -> tuple[Array, Array]:
        """Which rows hold which keys of patterns for their source, by row and number."""
        rows, numbers = self._needles.find(messages)
        whose = sources.gather(rows)
        names = whose.unique()
        fine = np.zeros(len(rows), np.bool_)
        for name in names.to_list():
            of_source = whose.is_null() if name is None else (whose == name).fill_null(False)
            fine |= of_source.to_numpy() & self._fitting(name)[numbers]
        rows, numbers = rows[fine], numbers[fine]
        if self._owners[_NO_KEY]:
            rows = np.concatenate([np.arange(len(messages)), rows])
            order = np.argsort(rows, kind="stable")
            rows, numbers = rows[order], np.concatenate([np.full(len(messages), _NO_KEY), numbers])[order]
        return rows, numbers

    def _fitting(self, source: str | None) -> Array:
        """For the number of each key whether lines of ``source`` may mean one of its patterns."""
        known = self._fits.get(source)
        if known is None:
            known = np.array(
                [any(c[-1].fits(source) for _, c in self._owners[n]) for n in range(len(self._owners) - 1)]
            )
            self._fits[source] = known
        return known

    def candidates(self, which: tuple[str | None, tuple[int, ...]]) -> tuple[_Candidate, ...]:
        """What to try on a line of this source with exactly these keys, in order."""
        source, keys = which
        ranked = {place: found for key in keys for place, found in self._owners[key] if found[-1].fits(source)}
        found = tuple(ranked[place] for place in sorted(ranked))
        if len(self.known) >= _REMEMBERED:
            self.known.clear()
        self.known[which] = found
        return found


def _first(message: str, candidates: tuple[_Candidate, ...]) -> tuple[Pattern, dict[str, Any]] | None:
    """The first of ``candidates`` that fits, and its entities. Written out: these are the loops that most time goes to."""
    lower = message.lower()
    refused = None
    for search, all_of, one_of, entry in candidates:
        for text in all_of:
            if text not in lower:
                break
        else:
            for clause in one_of:
                for text in clause:
                    if text in lower:
                        break
                else:
                    break
            else:
                found = search(message)
                if found is None or entry is refused:
                    continue
                if entry.unless is None or entry.unless.search(message) is None:
                    return entry, entry.entities(found)
                refused = entry
    return None


def _candidate(entry: Pattern, regex: re.Pattern[str], checked: list[Clause]) -> _Candidate:
    alone = tuple(clause[0] for clause in checked if len(clause) == 1)
    return regex.search, alone, tuple(clause for clause in checked if len(clause) > 1), entry


def _ascii(clause: Clause) -> Clause:
    """``clause`` by its longest runs of ASCII, which are found in any case; nothing if a text has none."""
    runs = [max(re.findall(r"[\x00-\x7f]+", text), key=len, default="") for text in clause]
    return tuple(runs) if all(runs) else ()
