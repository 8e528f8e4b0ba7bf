"""Which blocks of log lines a query can match at all, from its own text.

``where`` conditions at the head of a pipeline over a table of log lines are searched for phrases that every matching
line must contain. The store's text filters (``store.text_filter``) then name the blocks that may have one, and only
those blocks of the stored table are read. The conditions themselves stay in place: a filter only removes lines that
they would remove.

Lines that are not in a closed segment have block 0, which always passes. Filters and lines are read in one transaction.
Archived lines never change: if the conditions name a time range, the filters of archived segments outside it are not
read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Protocol

import duckdb
import numpy as np
from sqlalchemy import bindparam
from sqlalchemy.types import NullType

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.dialect import Sql
from queries.kql.parsed import parsed
from queries.kql.stages import Env, Stage
from queries.kql.textneeds import All, Need, Period, need_of, period_of, walked
from store.filter_terms import LONG_WORD, SHORTEST
from store.text_filter import MOST_WORDS, Mask, Pair, Phrase, Test, TextFilter, ascii_lower, term

#: The column of each table whose text is in the filters: the raw line, or the message in it.
TEXT_COLUMN = {"Logs": "Message", "Syslog": "SyslogMessage"} | {
    f"{name}_raw_CL": "RawData"
    for name in ("slurmctld", "slurmd", "slurmdb", "slurmrestd", "slurmjobs", "syslog", "dmesg", "jetpack", "jetpackd", "healthagent")
}  # fmt: skip
#: The column that is ``raw.logs.time``; a segment knows its first and last value.
TIME_COLUMN = {"Logs": "Time", "Syslog": "TimeGenerated"}
#: If more than this share of the blocks passes, reading all is as fast as choosing.
WORTH_IT = 0.5
#: Filters that are kept in memory between queries.
CACHE_BYTES = 256 * 2**20
#: The filters of this many segments are read from the store with one statement.
READ_AT_ONCE = 64


#: The segments, and how many lines are in none: one statement, since planning is most of what either costs.
_SEGMENTS = (
    "SELECT segment::VARCHAR, first_block, last_block, words_known, first_time, last_time, lines, {pairs}, filter_rows = 1,"
    " (SELECT count(*) FROM raw.logs WHERE block = 0) FROM raw.log_segments ORDER BY first_block"
)
#: An error if the lines of this database have no blocks. That asks for the narrow view of the lines: to plan the whole
#: one takes longer than the rest.
_HAVE_BLOCKS = 'SELECT "$block" FROM kql."LogLines" WHERE false'
#: Segments of databases whose lines have blocks; the oldest of a store stands for it. Planning the view takes twice as
#: long as reading the segments.
_KNOWN: set[str] = set()
_MOST_KNOWN = 1_000


class _Cache:
    """Filters by segment, most recently used last; segments never change under their number."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, TextFilter] = OrderedDict()
        self._size = 0

    def get(self, segment: str) -> TextFilter | None:
        with self._lock:
            if segment in self._kept:
                self._kept.move_to_end(segment)
            return self._kept.get(segment)

    def put(self, segment: str, made: TextFilter) -> None:
        with self._lock:
            if segment in self._kept:
                return
            self._kept[segment] = made
            self._size += made.rows.nbytes
            while self._size > CACHE_BYTES and len(self._kept) > 1:
                _, gone = self._kept.popitem(last=False)
                self._size -= gone.rows.nbytes


_CACHE = _Cache()


@dataclass(frozen=True)
class Pruned:
    """The blocks of one table that the filters left; lines in segments without a filter, and in none, are all read."""

    table: str
    segments: int
    segments_left: int
    blocks: int
    blocks_left: int
    used: bool
    unfiltered: int = 0
    loose: int = 0

    def __str__(self) -> str:
        share = (
            f"{self.blocks_left} of {self.blocks} blocks in {self.segments_left} of {self.segments} segments can match"
        )
        if self.segments and not self.used:
            share += "; that is most of them, so all are read"
        reads = [
            f"{lines:,} {where}"
            for lines, where in (
                (self.unfiltered, "in segments without a filter"),
                (self.loose, "not yet in a segment"),
            )
            if lines
        ]
        rest = f"; lines that every text search reads: {', '.join(reads)}" if reads else ""
        return f"{self.table}: {share}{rest}"


#: Tuples of terms; all those of one are needed.
_Choice = list[tuple[int, ...]]


@dataclass(frozen=True)
class _Questions:
    """A need in terms of the filters: terms that a block must have, and for each partial word the terms of one of its
    completions; the same of pairs of words."""

    every: bool
    terms: tuple[int, ...] = ()
    halves: tuple[_Choice, ...] = ()
    pairs: tuple[int, ...] = ()
    half_pairs: tuple[_Choice, ...] = ()
    parts: tuple[_Questions, ...] = ()

    def ask(self, made: TextFilter, words_known: bool, has_pairs: bool) -> Mask:
        """The blocks of one segment that may satisfy the need."""
        if self.parts:
            masks = [part.ask(made, words_known, has_pairs) for part in self.parts]
            joined: Mask = np.logical_and.reduce(masks) if self.every else np.logical_or.reduce(masks)
            return joined
        sure = self.terms + self.pairs if has_pairs else self.terms
        halves = self.halves + self.half_pairs if has_pairs else self.halves
        mask: Mask = made.having(*sure) if sure else np.ones(made.blocks, bool)
        for terms in halves if words_known else ():
            if mask.any():
                mask &= np.logical_or.reduce([made.having(*one) for one in terms])
        return mask | made.always


@dataclass
class Pruner:
    """Reads the text filters of the store behind a connection, within one transaction.

    It begins the transaction when first needed; the caller must call ``finish``.
    """

    con: duckdb.DuckDBPyConnection
    report: list[Pruned] = field(default_factory=list)
    asked: bool = False  # what was compiled depends on the present content of the store
    callers: bool | None = None  # whether the caller holds a transaction; None: unknown
    _began: bool = False
    _halves: dict[tuple[str, bool, bool], list[str] | None] = field(default_factory=dict)
    _segments: list[tuple[Any, ...]] | None = None
    _loose: int | None = None
    _is_store: bool = False

    def finish(self) -> None:
        if self._began:
            self._began = False
            self.con.execute("ROLLBACK")  # nothing was written

    def segments(self) -> tuple[str, ...] | None:
        """What the named blocks depend on: the segments, none of which changes under its name, and whether there are lines
        in none. None if this is no store."""
        if self._segments is None:
            self._segments = self._read_segments()
        return (*(name for name, *_ in self._segments), str(self.loose_lines() > 0)) if self._is_store else None

    def repeat(self, report: Sequence[Pruned]) -> None:
        """Reports what was found when the same segments were asked for a statement that is run again."""
        self.report += [replace(one, loose=self.loose_lines()) for one in report]

    def blocks(self, table: str, need: Need, period: Period | None = None) -> list[int] | None:
        """The blocks that may satisfy a need; None if filtering does not help.

        ``period``: the time range of matching lines.
        """
        if self._segments is None:
            self._segments = self._read_segments()
        if not self._segments:
            if self._is_store and self.loose_lines():
                self.report.append(Pruned(table, 0, 0, 0, 0, False, 0, self.loose_lines()))
            return None
        questions = self._questions(need)
        total = sum(last - first + 1 for _, first, last, *_ in self._segments)
        segments = [segment for segment in self._segments if period is None or _may_lie(segment, period)]
        left: list[int] = []
        segments_left = 0
        for (_, first, _, words_known, *_, has_pairs, _), made in zip(segments, self._filters(segments), strict=True):
            found = np.flatnonzero(questions.ask(made, bool(words_known), bool(has_pairs)))
            segments_left += len(found) > 0
            left += (found + first).tolist()
        used = len(left) <= total * WORTH_IT
        unfiltered = sum(lines for *_, lines, _, is_open in self._segments if is_open)
        self.report.append(
            Pruned(table, len(self._segments), segments_left, total, len(left), used, unfiltered, self.loose_lines())
        )
        return left if used else None

    def _read_segments(self) -> list[tuple[Any, ...]]:
        if not self.in_callers_transaction():
            self.con.execute("BEGIN TRANSACTION")
            self._began = True
        elif not self.con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'log_segments'").fetchall():
            return []  # an error would end the caller's transaction
        for pairs in ("pairs", "NULL"):
            try:
                found = self.con.execute(parsed(self.con, _SEGMENTS.format(pairs=pairs))).fetchall()
                self._check_blocks(found[0][0] if found else "")
                self._is_store = True
                self._loose = int(found[0][-1]) if found else None
                return [segment[:-1] for segment in found]
            except duckdb.Error:  # not a store, or one of an earlier version that is only read
                if not self._began:
                    return []
                self.con.execute("ROLLBACK")
                self.con.execute("BEGIN TRANSACTION")
        self.finish()
        return []

    def _check_blocks(self, segment: str) -> None:
        if segment not in _KNOWN:
            self.con.execute(parsed(self.con, _HAVE_BLOCKS))
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            if segment:
                _KNOWN.add(segment)

    def loose_lines(self) -> int:
        """How many lines are not in a closed segment; a zone map answers that."""
        if self._loose is None:
            ((self._loose,),) = self.con.execute("SELECT count(*) FROM raw.logs WHERE block = 0").fetchall()
        return int(self._loose)

    def in_callers_transaction(self) -> bool:
        """Does the caller hold a transaction? Then two statements have one number. (A second BEGIN would break it.)"""
        if self.callers is None:
            asked = parsed(self.con, "SELECT txid_current()")
            self.callers = len({self.con.execute(asked).fetchall()[0] for _ in range(2)}) == 1
        return self.callers

    def _filters(self, segments: list[tuple[Any, ...]]) -> Iterator[TextFilter]:
        for low in range(0, len(segments), READ_AT_ONCE):
            part = segments[low : low + READ_AT_ONCE]
            found = {segment: made for segment, *_ in part if (made := _CACHE.get(segment)) is not None}
            missing = [segment for segment, *_ in part if segment not in found]
            rows = self.con.execute(
                "SELECT segment::VARCHAR, filter_rows, filter, always, last_block - first_block + 1 FROM raw.log_segments"
                " WHERE list_contains(?::UUID[], segment)",
                [missing],
            ).fetchall() if missing else []  # fmt: skip
            for segment, bits, data, always, blocks in rows:
                passing = np.unpackbits(np.frombuffer(always, np.uint8), count=blocks).astype(bool)
                found[segment] = TextFilter(np.frombuffer(data, np.uint8).reshape(bits, -1), blocks, passing)
                _CACHE.put(segment, found[segment])
            for segment, *_ in part:
                yield found[segment]

    def _questions(self, need: Need) -> _Questions:
        """The lookups for every filter, computed once."""
        if not isinstance(need, Phrase):
            return _Questions(isinstance(need, All), parts=tuple(self._questions(part) for part in need.parts))
        tests = tuple(need.tests())
        sure = tuple(test.term for test in tests if test.term is not None)
        halves = tuple(terms for test in tests if test.term is None and (terms := self._completed(test)) is not None)
        pairs = tuple(need.pairs())
        sure_pairs = tuple(
            one for pair in pairs if pair.begins and pair.ends for terms in pair.terms(*_low(pair)) for one in terms
        )
        half_pairs = tuple(
            terms
            for pair in pairs
            if not (pair.begins and pair.ends) and (terms := self._completed_pair(pair)) is not None
        )
        return _Questions(True, sure, halves, sure_pairs, half_pairs)

    def _completed(self, test: Test) -> _Choice | None:
        """The terms that a partial word may be part of; None if there are too many."""
        words = self._words(test.half, test.left, test.right)
        return None if words is None else [(LONG_WORD,), *((term(word),) for word in words)]

    def _completed_pair(self, pair: Pair) -> _Choice | None:
        """The terms of the pairs that a pair with a partial word may be part of; None if there are too many."""
        (first,), (second,) = _low(pair)
        if any(len(word) < SHORTEST for word, whole in ((first, pair.begins), (second, pair.ends)) if not whole):
            return None  # shorter words are not in the vocabulary
        firsts = [first] if pair.begins else self._words(first, False, True)
        seconds = [second] if pair.ends else self._words(second, True, False)
        if firsts is None or seconds is None or len(firsts) * len(seconds) > MOST_WORDS:
            return None
        return pair.terms(firsts, seconds)

    def _words(self, half: str, left: bool, right: bool) -> list[str] | None:
        """The words of the store that a partial one may be part of; None if there are too many."""
        key = (half, left, right)
        if key not in self._halves:
            function = "starts_with" if left else "ends_with" if right else "contains"
            words = self.con.execute(
                f"SELECT word FROM raw.log_words WHERE {function}(word, ?) LIMIT {MOST_WORDS + 1}", [half]
            ).fetchall()
            self._halves[key] = None if len(words) > MOST_WORDS else [word for (word,) in words]
        return self._halves[key]


def _low(pair: Pair) -> tuple[list[str], list[str]]:
    return [ascii_lower(pair.first)], [ascii_lower(pair.second)]


def _may_lie(segment: tuple[Any, ...], period: Period) -> bool:
    """Can a segment have lines of a time range? Those in DuckDB (blocks above zero) may get another time later."""
    _, first, _, _, low, high, *_ = segment
    return first > 0 or low is None or high is None or (low <= period.high and high >= period.low)


class StoreBinder(Binder, Protocol):
    """A binder that reads the store's tables, and knows which of their blocks can contain a text."""

    pruner: Pruner | None

    def stored(self, name: str, only: Sequence[Sql] = ()) -> Stage:
        """A table of the catalogue, or its rows that pass each of ``only`` in turn."""


def narrowed(c: StoreBinder, node: ast.Pipeline, env: Env) -> Stage | None:
    """The stored table that a pipeline starts with, reduced to the blocks that its conditions can match."""
    pruner, source = c.pruner, node.source
    if pruner is None or not isinstance(source, ast.Name) or env.find(source.name) is not None:
        return None
    column = TEXT_COLUMN.get(source.name)
    if column is None or source.name not in c.catalog.tables:
        return None
    columns = {stored.name for stored in c.catalog.tables[source.name].columns}
    columns |= {name for n in walked(node.operators) if isinstance(n, ast.Named) for name in n.names}
    # A column hides the constant of the same name.
    known = Env({n: found for n in env.all_names() if n not in columns and (found := env.find(n)) is not None})
    need = need_of(c, node.operators, known, column)
    if need is None:
        return None
    pruner.asked = True
    clock = TIME_COLUMN.get(source.name)
    blocks = pruner.blocks(source.name, need, period_of(c, node.operators, known, clock) if clock else None)
    if blocks is None:
        return None
    chosen = bindparam("p", blocks, unique=True, type_=NullType())
    # Two scans: DuckDB pushes a join's keys into the scan, but not if many rows pass, as those of block 0 do.
    closed = Sql('"t"."$block" IN (SELECT unnest(CAST({0} AS INTEGER[])))', chosen)
    return c.stored(source.name, (closed, Sql('"t"."$block" = 0')) if pruner.loose_lines() else (closed,))
