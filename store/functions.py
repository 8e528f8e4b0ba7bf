"""The functions that questions use beside standard SQL. They are DuckDB's names; another engine's compiler spells these.

User values are bound by the callers; ``const`` and ``json_path`` are for constants of ours, which the engine should see when it
plans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func

from store.tables import FLAG, NUMBER, REAL, TEXT, TEXTS, TIME

#: Names that stand in questions and are not in standard SQL: what a second engine has to spell (a test compares).
NOT_STANDARD = (
    "any_value", "arg_max", "arg_max_null", "contains", "damerau_levenshtein", "date_diff", "epoch", "greatest", "json_array_length",
    "json_extract_string", "list", "list_contains", "list_sort", "regexp_replace", "starts_with", "unnest",
)  # fmt: skip

Element = sa.ColumnElement[Any]


def const(value: str | int | float) -> Element:
    """A constant of ours in the statement's text. Never for a user's value."""
    if isinstance(value, str):
        return sa.literal_column("'" + value.replace("'", "''") + "'", TEXT)
    return sa.literal_column(repr(value), NUMBER if isinstance(value, int) else REAL)


def one_of(column: Element, values: Iterable[str]) -> sa.ColumnElement[bool]:
    """Whether a column has one of some constants of ours."""
    return column.in_([const(value) for value in values])


def listed(column: Element, values: Any) -> sa.ColumnElement[bool]:
    """Whether a column has one of some bound values (a list or a bound parameter that is one)."""
    given = values if isinstance(values, sa.ColumnElement) else sa.literal(list(values), sa.ARRAY(column.type))
    return func.list_contains(given, column, type_=FLAG)


def has(items: Element, value: Any) -> sa.ColumnElement[bool]:
    """Whether a column of lists holds a value."""
    return func.list_contains(items, value, type_=FLAG)


def same(one: Element, other: Any) -> sa.ColumnElement[bool]:
    """Equal, or both null."""
    return one.is_not_distinct_from(other if other is not None else sa.null())


def holds(column: Element, text: Any) -> sa.ColumnElement[bool]:
    """Whether a text is in a column, in whatever letters; ``%`` and ``_`` in it stand for others."""
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
    """All members that a path with ``[*]`` finds, as a list of texts."""
    return func.json_extract_string(document, json_path(path), type_=TEXTS)


def json_count(document: Element, path: str) -> sa.Function[Any]:
    """How many items a list in a document has; null if there is none."""
    return func.json_array_length(document, json_path(path), type_=NUMBER)


def json_number(document: Element, path: str) -> Element:
    """A member of a document as a number, null if it is none."""
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
    """``count(*)``, of the rows for which a condition holds."""
    count = func.count()
    return count if condition is None else count.filter(condition)
