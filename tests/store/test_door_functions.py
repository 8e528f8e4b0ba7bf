"""The functions beyond the standard that questions call (``store.functions.NOT_STANDARD``), as every engine with SQL
must translate them: one call of each behind the protocol, with its answer.

That the list is complete is shown by ``test_spelled_functions``. An engine without SQL has none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from sqlalchemy import func

from store import functions
from store.door import Door
from store.functions import NOT_STANDARD, bound_list, const, json_count, json_text, row_place, unnested
from store.tables import FLAG, INCIDENTS, NUMBER, RUNS, TEXT, TEXTS, TIME
from tests.store.test_door import ENGINES, T0, each


@pytest.fixture(params=each(ENGINES), scope="module")
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Three runs, in the order c, b, a: the later a name, the earlier it ended; nobody knows the user of the last."""
    store = ENGINES[request.param](tmp_path_factory.mktemp("functions"))
    with store.write() as writer:
        rows = [{"run_key": key, "user": user, "end": T0 + timedelta(hours=at), "job_id": at}
                for at, (key, user) in enumerate((("c", "carol"), ("b", "bob"), ("a", None)), 1)]  # fmt: skip
        writer.insert(RUNS, pl.DataFrame(rows))
        writer.insert(INCIDENTS, pl.DataFrame({"incident_id": ["I1"], "document": ['{"host": "n1", "jobs": [7, 8]}']}))
    yield store
    store.close()


R, DOCUMENT = RUNS.c, INCIDENTS.c.document
LETTERS = bound_list(["b", "a"], TEXT)
TEXT_OF_OURS = const("gpu07.site")
LATER = sa.literal(T0 + timedelta(seconds=1.5), TIME)

#: By name: a column to ask for, and its answers. ``list`` and the like are asked over the three runs.
CALLS: dict[str, tuple[sa.ColumnElement[Any], list[Any]]] = {
    "any_value": (func.any_value(sa.case((R.user == "bob", R.user))), ["bob"]),  # null is no value
    "arg_max": (func.arg_max(R.user, R.end), ["bob"]),  # of the rows with a value, the last
    "arg_max_null": (func.arg_max_null(R.user, R.end), [None]),  # of all rows
    "arg_min": (func.arg_min(R.user, R.end), ["carol"]),
    "array_to_string": (func.array_to_string(LETTERS, const(",")), ["b,a"]),
    "bool_or": (func.bool_or(R.user == "bob", type_=FLAG), [True]),
    "contains": (functions.contains(TEXT_OF_OURS, "07."), [True]),
    "damerau_levenshtein": (func.damerau_levenshtein(const("gpu07"), const("gup071")), [2]),  # a swap is one change
    "date_diff": (func.date_diff(const("microsecond"), sa.literal(T0, TIME), LATER), [1_500_000]),
    "ends_with": (func.ends_with(TEXT_OF_OURS, const(".site")), [True]),
    "epoch": (functions.epoch(LATER), [1767225601.5]),
    "epoch_us": (func.epoch_us(LATER), [1767225601500000]),
    "greatest": (func.greatest(const(1), const(3), const(2)), [3]),
    "json_array_length": (json_count(DOCUMENT, "$.jobs"), [2]),
    "json_extract": (functions.json_member(DOCUMENT, "$.host"), ['"n1"']),
    "json_extract_string": (json_text(DOCUMENT, "$.host"), ["n1"]),
    "list": (func.list_sort(func.list(sa.distinct(R.job_id))), [[1, 2, 3]]),
    "list_contains": (functions.has(LETTERS, "a"), [True]),
    "list_has_all": (functions.has_all(LETTERS, bound_list(["a", "x"], TEXT)), [False]),
    "list_intersect": (functions.shared(LETTERS, bound_list(["a", "x"], TEXT)), [["a"]]),
    "list_position": (func.list_position(LETTERS, const("a")), [2]),  # from one
    "list_sort": (func.list_sort(LETTERS, type_=TEXTS), [["a", "b"]]),
    "list_value": (func.list_value(const(2), const(1)), [[2, 1]]),
    "map": (func.map_extract_value(func.map(LETTERS, bound_list(["x", "y"], TEXT)), const("b")), ["x"]),
    "map_extract_value": (func.map_extract_value(func.map(LETTERS, LETTERS), const("z"), type_=TEXT), [None]),
    "median": (func.median(R.job_id), [2.0]),
    "regexp_extract": (functions.group_of(TEXT_OF_OURS, r"([a-z]+)(\d+)", 2), ["07"]),
    "regexp_matches": (functions.matches(TEXT_OF_OURS, "gpu"), [True]),
    "regexp_replace": (func.regexp_replace(const("15#2#2"), const("(#[0-9]+)?$"), const("!")), ["15#2!"]),
    "right": (func.right(TEXT_OF_OURS, const(4)), ["site"]),
    "rowid": (sa.and_(R.run_key != "", row_place(RUNS) < 0), [False, False, False]),
    "split_part": (func.split_part(TEXT_OF_OURS, const("."), const(1)), ["gpu07"]),  # from one
    "starts_with": (func.starts_with(TEXT_OF_OURS, const("gpu")), [True]),
    "to_microseconds": (functions.earlier(LATER, const(0.5)), [T0 + timedelta(seconds=1)]),
    "unnest": (unnested([1, 2], NUMBER), [1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_function_beside_the_standard_says_the_same_on_every_engine(name: str, door: Door) -> None:
    call, answers = CALLS[name]
    assert [row["v"] for row in door.ask(sa.select(call.label("v")))] == answers


def test_later_rows_have_higher_places(door: Door) -> None:
    rows = door.ask(sa.select(R.run_key).order_by(row_place(RUNS)))
    assert [row["run_key"] for row in rows] == ["c", "b", "a"]


def test_every_name_that_an_engine_must_translate_is_called() -> None:
    called = {
        name for call, _ in CALLS.values() for part in sa.sql.visitors.iterate(call)
        if isinstance(part, sa.sql.functions.FunctionElement) and (name := getattr(part, "name", ""))
    }  # fmt: skip
    assert set(CALLS) == set(NOT_STANDARD)
    assert set(NOT_STANDARD) - called == {"rowid"}, "a row's place is no function"
