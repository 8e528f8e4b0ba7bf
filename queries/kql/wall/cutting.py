"""Cuts one statement in two: cheap steps that read the store, and the processing of their rows elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol

from queries.kql.budget import look
from queries.kql.errors import KqlBindError
from queries.kql.wall.judging import MOST_TEXT, cheap, cheap_on_few_rows

#: A reference to a step. What must not precede it is tested after the quote: a search for a fixed letter is many times
#: as fast.
_STEP = re.compile(r'"(?<![.\w]")(?<!AS ")(\w+)"')
#: If one of these reads a step, it may read it more than once.
_AGAIN = re.compile(r"\b(?:LATERAL|RECURSIVE|EXISTS|ASOF)\b")
#: The maximum number of step reads in one query; each doubling ``union`` doubles it.
MOST_READS = 4_000
#: The maximum number of streams in one statement: each needs a thread and reads the store by itself.
MOST_STREAMS = 32


@dataclass(frozen=True, slots=True)
class BoundSql:
    """SQL and its parameters.

    ``linear``: every function that it calls is declared as ``Cost.LINEAR``; ``words``: the words that their templates
    call; ``bounded``: every function is declared as ``Cost.LINEAR`` or ``Cost.FEW_ROWS``.
    """

    sql: str
    parameters: list[Any]
    linear: bool = True
    words: frozenset[str] = frozenset()
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows that the half beside the store produces: the step's name, its statement, and whether it is read only once."""

    name: str
    statement: BoundSql
    once: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """A statement cut in two: the streams beside the store, and the rest.

    ``is_far_small``: the rest may run beside the store, too, if the streams have few rows. ``many`` is set once they had
    more.
    """

    near: tuple[Stream, ...]
    far: BoundSql
    is_far_small: bool = False
    many: Event = field(default_factory=Event, compare=False)


Step = tuple[str, Any, bool]
#: The text around steps: a hole for each of them, and one for their reader.
Template = Callable[[Sequence[Step]], str]


class Parts(Protocol):
    """The compiled pieces of a whole statement (``queries.kql.parts``)."""

    @property
    def last(self) -> BoundSql:
        """The final reader of the steps, without them."""

    def alone(self, name: str) -> BoundSql:
        """One step, without those that it reads."""

    def together(self, template: str, steps: Sequence[Step], reader: str | None = None) -> BoundSql:
        """Steps, and ``reader`` or the final reader of the whole statement."""


def parts_of(whole: str, names: Sequence[str]) -> tuple[dict[str, str], str]:
    """The text of each step in a whole statement of ours, and of their final reader."""
    places = []
    at = 0
    for name in names:
        at = whole.index(f'"{name}" AS ', at)
        places.append(at)
    ends = [*places[1:], len(whole)]
    texts = {name: whole[begin + len(name) + 6 : end] for name, begin, end in zip(names, places, ends, strict=True)}
    last = whole if not names else texts[names[-1]]
    return texts, last


def reads_of(texts: dict[str, str], once: Collection[str], last: str) -> tuple[int, dict[str, list[str]]]:
    """The number of steps that the engine sees, and the steps that each step reads, as often as it does.

    The engine writes a step out at every place that reads it, except those of ``once``, which are materialized. Raises
    ``KqlBindError`` beyond ``MOST_READS``.
    """
    reads: dict[str, list[str]] = {}
    cost: dict[str, int] = {}
    most = 0
    for name, text in texts.items():
        found = [n for n in _STEP.findall(text) if n in cost]
        reads[name] = found
        cost[name] = 1 + sum(1 if n in once else cost[n] for n in found)
        most = max(most, cost[name])
    most = max(most, sum(cost[n] for n in _STEP.findall(last) if n in cost))
    if most > MOST_READS:
        raise KqlBindError(
            f"the query reads its own steps more than {MOST_READS} times: a table is read again wherever it is named; put "
            "materialize() around the one that is named twice"
        )
    return most, reads


def is_cheap(whole: BoundSql, names: Sequence[str], once: Collection[str]) -> bool:
    """Whether a whole statement may run beside the store. Raises as ``reads_of`` does."""
    texts, last = parts_of(whole.sql, names)
    most, _ = reads_of(texts, once, last)
    return whole.linear and cheap(whole.sql, whole.parameters, most, whole.words)


def cut(steps: Sequence[Step], stored: set[str], parts: Parts, template: Template) -> Cut:
    """Cuts a statement. ``stored``: the steps that read the store's tables."""
    statements = {name: parts.alone(name) for name, _, _ in steps}
    texts = {name: one.sql for name, one in statements.items()}
    last = parts.last.sql
    most, reads = reads_of(texts, {n for n, _, materialized in steps if materialized}, last)
    from_store: set[str] = set()
    near: set[str] = set()
    for name, _, _ in steps:
        if name in stored or not from_store.isdisjoint(reads[name]):
            from_store.add(name)
        if name in stored or (near.issuperset(reads[name]) and _cheap_alone(statements[name])):
            near.add(name)
    far: list[Step] = []
    wanted = {n for n in _STEP.findall(last) if n in texts}
    streams: dict[str, int] = {}
    for step in reversed(steps):
        name = step[0]
        if name not in wanted:
            continue
        if name in near and name in from_store and _whole_is_cheap(name, steps, reads, statements):
            streams[name] = 0
            continue
        if name in stored:
            streams[name] = 0
            continue
        far.insert(0, step)
        wanted.update(reads[name])
    if len(streams) > MOST_STREAMS:
        raise KqlBindError(f"the query reads the store at more than {MOST_STREAMS} places")
    again = any(_AGAIN.search(text) for text in (*(texts[name] for name, _, _ in far), last))
    ends = _STEP.findall(last)
    made = tuple(
        Stream(name, _stream(name, steps, reads, parts, template), not again and _once(name, far, reads, ends))
        for name, _, _ in steps
        if name in streams
    )
    rest = parts.together(template(far), far)
    return Cut(made, rest, bool(made) and _is_small(rest, [name for name, _, _ in far], reads, most))


def _cheap_alone(one: BoundSql) -> bool:
    return one.linear and cheap(one.sql, one.parameters, 1, one.words)


def _is_small(rest: BoundSql, far: Sequence[str], reads: dict[str, list[str]], most: int) -> bool:
    """May the rest run beside the store on few rows? ``most``: the number of steps that the engine sees."""
    read = [n for name in far for n in reads[name]]
    single = len(far) if len(read) == len(set(read)) else None
    return rest.bounded and cheap_on_few_rows(rest.sql, rest.parameters, most, single, rest.words)


def _below(name: str, reads: dict[str, list[str]]) -> set[str]:
    found, todo = {name}, [name]
    while todo:
        for other in set(reads[todo.pop()]) - found:
            found.add(other)
            todo.append(other)
    return found


def _whole_is_cheap(
    name: str, steps: Sequence[Step], reads: dict[str, list[str]], statements: dict[str, BoundSql]
) -> bool:
    below = _below(name, reads)
    parts = [statements[n] for n, _, _ in steps if n in below]
    look()
    if not all(p.linear for p in parts) or sum(len(p.sql) for p in parts) > MOST_TEXT:
        return False
    words = frozenset[str]().union(*(p.words for p in parts))
    return cheap(" ".join(p.sql for p in parts), [v for p in parts for v in p.parameters], len(parts), words)


def _stream(
    name: str, steps: Sequence[Step], reads: dict[str, list[str]], parts: Parts, template: Template
) -> BoundSql:
    below = _below(name, reads)
    needed = [step for step in steps if step[0] in below]
    return parts.together(template(needed), needed, f'SELECT * FROM "{name}"')


def _once(name: str, far: Sequence[Step], reads: dict[str, list[str]], last: Sequence[str]) -> bool:
    """Does the far half read the step at one place only, by one path? ``last``: the steps that the final reader uses."""
    ways = {n: last.count(n) for n in (*(step[0] for step in far), name)}
    for other, _, _ in reversed(far):
        for n in reads[other]:
            if n in ways:
                ways[n] += ways[other]
    return ways[name] == 1
