"""Which patterns of a catalogue are near a message that none of them matches, and why each does not match.

For people who write patterns; nothing here decides what a line means.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from math import log

from parsers import quoting
from parsers.pattern import Pattern
from parsers.patterns import Catalogue

#: At most this many patterns are near, and none that shares less than this part of its words, weighted by rarity.
MOST, LEAST = 3, 0.34
#: What it counts, in that part, that a literal of the pattern is in the message.
_TRIED = 0.25
#: Characters of a text that are shown.
CHARS = 60
_WORD = re.compile(r"[a-z][a-z0-9_]+")


@dataclass(frozen=True)
class Near:
    """A pattern, the words that its nearest text (a literal or an example) shares with the message, and why it does not
    match."""

    pattern: Pattern
    shared: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        return f"pattern {self.pattern.id} ({self.pattern.event}) is near, by {', '.join(self.shared)}: {self.why}"


def near(catalogue: Catalogue, message: str, source: str | None) -> list[Near]:
    """The nearest patterns, the nearest first; none if no pattern shares words that say anything."""
    words = set(_WORD.findall(message.lower()))
    entries = {entry.id: entry for entry in catalogue.entries}
    texts = {name: [_words(text) for text in _texts(entry)] for name, entry in entries.items()}
    known = Counter(word for sets in texts.values() for word in set().union(*sets))
    weight = {word: log(1 + len(texts) / count) for word, count in known.items()}
    lower = message.lower()
    found: list[tuple[float, int, Pattern, tuple[str, ...]]] = []
    for name, sets in texts.items():
        entry = entries[name]
        share, shared = max(_likeness(one, words, weight) for one in sets)
        tried = any(literal in lower for literal in entry.literals)
        if shared and (share >= LEAST or (tried and len(shared) > 1)):
            found.append((share + _TRIED * tried, -entry.order, entry, shared))
    best = sorted(found, key=lambda one: one[:2], reverse=True)[:MOST]
    return [Near(entry, shared, _why_not(entry, message, source)) for _, _, entry, shared in best]


def _texts(entry: Pattern) -> list[str]:
    return [*entry.literals, *(example.text for example in entry.examples)]


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _likeness(of_text: frozenset[str], words: set[str], weight: dict[str, float]) -> tuple[float, tuple[str, ...]]:
    """The part of a text's words, by weight, that the message has; and these words, the rarest first."""
    whole = sum(weight[word] for word in of_text)
    shared = sorted(of_text & words, key=lambda word: (-weight[word], word))
    return (sum(weight[word] for word in shared) / whole if whole else 0.0), tuple(shared)


def _why_not(entry: Pattern, message: str, source: str | None) -> str:
    """The first condition that the message does not meet, in the order in which they are checked."""
    if not any(literal in message.lower() for literal in entry.literals):
        return f"the line has none of its literals: {', '.join(repr(one) for one in entry.literals[:4])}"
    readable = quoting.as_readable(message, source)
    matching = next((found for regex in entry.regexes if (found := regex.search(message))), None)
    if matching is None:
        return _first_difference(entry, message)
    if not entry.fits(source):
        return (
            f"its regex matches, but it is for lines of {', '.join(sorted(entry.sources))}, and this one is of {source}"
        )
    unless = entry.unless.search(readable.text) if entry.unless is not None else None
    if unless is not None:
        return f"its regex matches, and so does what it excepts (unless): {_short(unless.group())}"
    return (
        f"its regex matches {_short(matching.group())}, which a user may have written: it does not stand where the writer's own "
        "words begin"
    )


def _first_difference(entry: Pattern, message: str) -> str:
    """How far the regex that goes furthest matches, and what it wants then."""
    _, _, text, rest = max((_reach(regex, message) for regex in entry.regexes), key=lambda reach: reach[:2])
    if not text:
        return f"its regex wants, and the line has not: {_short(rest)}"
    return f"its regex matches {_short(text, tail=True)} and then wants: {_short(rest)}"


def _reach(regex: re.Pattern[str], message: str) -> tuple[int, int, str, str]:
    """The length of the text that the longest matching beginning of a regex matches, the length of that beginning, the
    text, and the rest of the regex. A beginning is one that is a regex by itself."""
    low, high = 0, len(regex.pattern)
    best = (0, 0, "", regex.pattern)
    while low < high:
        middle = (low + high + 1) // 2
        cut = next((at for at in range(middle, low, -1) if _compiled(regex, at) is not None), low)
        beginning = _compiled(regex, cut) if cut > low else None
        if beginning is None:  # none up to the middle is a regex
            low = middle
        elif (found := beginning.search(message)) is None:
            high = cut - 1
        else:
            best = max(best, (len(found.group()), cut, found.group(), regex.pattern[cut:]))
            low = middle
    return best


def _compiled(regex: re.Pattern[str], length: int) -> re.Pattern[str] | None:
    """The first characters of a regex as one, if they are."""
    text = regex.pattern[:length]
    if text.endswith("\\") or regex.pattern[length : length + 1] in ("?", "*", "+", "{"):
        return None
    try:
        return re.compile(text, regex.flags)
    except (re.error, RecursionError, OverflowError):
        return None


def _short(text: str, *, tail: bool = False) -> str:
    if len(text) > CHARS:
        text = f"...{text[-CHARS:]}" if tail else f"{text[:CHARS]}..."
    return repr(text)
