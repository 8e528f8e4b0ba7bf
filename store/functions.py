"""SQL functions beyond the standard that queries use. The names are DuckDB's; another engine's compiler translates
them.

Callers bind user values; ``const`` and ``json_path`` are for constants of ours, which the engine should see when it
plans.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from parsers.host_names import WHOLE
from store.tables import FLAG, NUMBER, REAL, TEXT, TEXTS, TIME

#: Non-standard names in queries, which a second engine must translate: all of them (``test_spelled_functions`` holds the
#: list complete, ``tests/store/test_door_functions.py`` says what each answers).
NOT_STANDARD = (
    "any_value", "arg_max", "arg_max_null", "arg_min", "array_to_string", "bool_or", "contains",
    "damerau_levenshtein", "date_diff", "ends_with", "epoch", "epoch_us", "greatest",
    "json_array_length", "json_extract", "json_extract_string", "list", "list_contains", "list_has_all", "list_intersect",
    "list_position", "list_sort", "list_value", "map", "map_extract_value", "median", "regexp_extract",
    "regexp_matches", "regexp_replace", "right", "rowid", "split_part", "starts_with", "to_microseconds", "unnest",
)  # fmt: skip

Element = sa.ColumnElement[Any]
#: Option of a statement: see ``kept_until_commit``.
KEPT_UNTIL_COMMIT = "kept_until_commit"


class FixedSubquery(sa.Subquery):
    """A subquery that is built once and has no bound values. Caches of compiled statements identify it by itself, like
    a table: a frequent source of queries is not traversed column by column at each query."""

    inherit_cache = True

    def _gen_cache_key(self, anon_map: Any, bindparams: Any) -> tuple[Any, ...]:
        return (self, *self._annotations_cache_key) if self._annotations else (self,)


def fixed_subquery(question: sa.Select[Any], name: str) -> sa.Subquery:
    """A subquery for a module constant. Raises ``ValueError`` if it has bound values: one statement's would leak into
    another."""
    key = question._generate_cache_key()
    if key is None or key.bindparams:
        raise ValueError(f"subquery {name}: values are bound in it; use const() for constants")
    made = FixedSubquery._construct(question, name=name)
    assert isinstance(made, FixedSubquery)
    return made


def kept_until_commit(question: sa.Select[Any]) -> sa.Select[Any]:
    """Marks a module-constant query without values that runs often and has a short answer: a store may cache the answer
    until the next commit. Inside a transaction, and in a person's view, it runs each time."""
    return question.execution_options(**{KEPT_UNTIL_COMMIT: True})


def const(value: str | int | float) -> Element:
    """A constant of ours in the statement's text. Never for a user's value."""
    if isinstance(value, str):
        return sa.literal_column("'" + value.replace("'", "''") + "'", TEXT)
    return sa.literal_column(repr(value), NUMBER if isinstance(value, int) else REAL)


def one_of(column: Element, values: Iterable[str]) -> sa.ColumnElement[bool]:
    """Whether a column has one of some constants of ours."""
    return column.in_([const(value) for value in values])


def listed(column: Element, values: Any) -> sa.ColumnElement[bool]:
    """Whether a column has one of some bound values (a list, or a bound list parameter)."""
    given = values if isinstance(values, sa.ColumnElement) else sa.literal(list(values), sa.ARRAY(column.type))
    return func.list_contains(given, column, type_=FLAG)


def has(items: Element, value: Any) -> sa.ColumnElement[bool]:
    """Whether a list column contains a value."""
    return func.list_contains(items, value, type_=FLAG)


def has_all(items: Element, others: Element) -> sa.ColumnElement[bool]:
    """Whether a list column contains all values of another one."""
    return func.list_has_all(items, others, type_=FLAG)


def same(one: Element, other: Any) -> sa.ColumnElement[bool]:
    """Equal, or both null."""
    return one.is_not_distinct_from(other if other is not None else sa.null())


def holds(column: Element, text: Any) -> sa.ColumnElement[bool]:
    """Whether a column contains a text, case-insensitively; ``%`` and ``_`` in it are wildcards."""
    return column.ilike(const("%").op("||")(text).op("||")(const("%")))


_PATH = re.compile(r"\$(?:\.[a-z_]+|\[\*\]|\[\d+\])*")


def json_path(path: str) -> Element:
    """A path of ours into a document, such as ``$.jobs[*].job_id``. Raises ``ValueError`` for anything else."""
    if not _PATH.fullmatch(path):
        raise ValueError(f"{path!r} is no path into a document")
    return sa.literal_column(f"'{path}'", TEXT)


def json_text(document: Element, path: str) -> sa.Function[Any]:
    """A member of a JSON document as text, null if there is none."""
    return func.json_extract_string(document, json_path(path), type_=TEXT)


def json_texts(document: Element, path: str) -> sa.Function[Any]:
    """All members that a path with ``[*]`` matches, as a list of texts."""
    return func.json_extract_string(document, json_path(path), type_=TEXTS)


def shared(one: Element, other: Element) -> sa.Function[Any]:
    """What two lists of texts both have."""
    return func.list_intersect(one, other, type_=TEXTS)


def json_count(document: Element, path: str) -> sa.Function[Any]:
    """The length of a list in a document; null if there is none."""
    return func.json_array_length(document, json_path(path), type_=NUMBER)


def json_number(document: Element, path: str) -> Element:
    """A member of a document as a number, null if it is not one."""
    return sa.try_cast(json_text(document, path), REAL)


def epoch(moment: Element) -> sa.Function[Any]:
    """Seconds since 1970."""
    return func.epoch(moment, type_=REAL)


def moment(text: str) -> Element:
    """A constant moment of ours, ``9999-01-01`` or with a time of day."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d)?", text):
        raise ValueError(f"{text!r} is no moment")
    return sa.literal_column(f"TIMESTAMP '{text}'", TIME)


def counted(condition: Any = None) -> Element:
    """``count(*)``, of the rows for which a condition is true."""
    count = func.count()
    return count if condition is None else count.filter(condition)


def among(column: Element, values: Collection[Any]) -> sa.ColumnElement[bool]:
    """Like ``listed``, for very many values: they are joined, not compared one by one."""
    return column.in_(sa.select(unnested(values, column.type)))


def unnested(values: Iterable[Any], kind: Any) -> sa.Function[Any]:
    """Values as rows: one bound list. Its type is explicit, since a list may be empty."""
    return func.unnest(bound_list(values, kind), type_=kind)


def bound_list(values: Iterable[Any], kind: Any) -> Element:
    """Values as one bound list with an explicit type."""
    return sa.cast(sa.literal(list(values), sa.ARRAY(kind)), sa.ARRAY(kind))


def matches(text: Element, pattern: str) -> sa.ColumnElement[bool]:
    """Whether an RE2 pattern of ours matches anywhere in a text."""
    return func.regexp_matches(text, const(pattern), type_=FLAG)


def group_of(text: Element, pattern: str, number: int = 1) -> sa.Function[Any]:
    """The first match of a group of an RE2 pattern of ours in a text; empty if it matched nothing."""
    return func.regexp_extract(text, const(pattern), const(number), type_=TEXT)


def contains(text: Element, part: str) -> sa.ColumnElement[bool]:
    """Whether a text contains a constant of ours."""
    return func.contains(text, const(part), type_=FLAG)


def short_name(host: Element) -> Element:
    """``parsers.host_names.short_name`` of a column: the name of a host without its domain, an address whole."""
    # What that rule leaves whole begins with a digit or a dot, or has a colon: two cheap tests instead of a regex per row.
    # (Not ``host < ':'``: DuckDB 2.0 cannot bind that for a part of a column that is null in all rows.)
    maybe = sa.or_(func.substring(host, const(1), const(1)) < const(":"), contains(host, ":"))
    return sa.case((sa.and_(maybe, matches(host, WHOLE)), host), else_=func.split_part(host, const("."), const(1)))


def earlier(moment: Element, by: Element) -> Element:
    """A time that many seconds earlier, to the microsecond."""
    return moment - func.to_microseconds(sa.cast(by * const(1e6), NUMBER))


def first_by(column: Element, order: Element) -> sa.Function[Any]:
    """In a group, the first non-null value by ``order``."""
    return func.arg_min(column, order, type_=column.type)


def last_by(column: Element, order: Element) -> sa.Function[Any]:
    """In a group, the last non-null value by ``order``."""
    return func.arg_max(column, order, type_=column.type)


def in_order(question: sa.Select[Any]) -> sa.Select[Any]:
    """Rows ordered by all columns from left to right: the order is always the same."""
    return question.order_by(*question.selected_columns)


def json_member(document: Element, path: str) -> sa.Function[Any]:
    """A member of a JSON document as JSON, null if there is none."""
    return func.json_extract(document, json_path(path), type_=TEXT)


#: The name of a row's location in answers and in ``Writer.amend_by``.
PLACE = "place"


def row_place(rows: sa.FromClause) -> Element:
    """Where an engine stores a row of a table (or of its alias): later rows have higher locations. Valid within one
    transaction; see ``Door.changes`` for longer."""
    named = rows.name if isinstance(rows, sa.Alias) else f"{rows.schema}.{rows.name}"  # type: ignore[attr-defined]
    return sa.literal_column(f"{named}.rowid", NUMBER)
