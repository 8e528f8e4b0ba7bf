"""Aggregates of `evaluate pivot` and `make-series`: which can be used, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pytest

from queries.kql import KqlBindError, run
from queries.kql.errors import NotImplementedYet

DATA = (
    "datatable(Host:string, V:real, T:datetime, D:dynamic)['a', 1.0, datetime(2026-01-01), dynamic({'x': 1}),"
    " 'b', 2.0, datetime(2026-01-02), dynamic({'y': 2})]"
)


def answer(query: str) -> list[Any]:
    """The rows of an answer in an order of their own: that of a pivot's is any."""
    return sorted(run(duckdb.connect(), f"{DATA} | {query}").rows, key=repr)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("makelist(V)", "make_list(V)"), ("makeset(V)", "make_set(V)"), ("make_dictionary(D)", "make_bag(D)"), ("any(V)", "take_any(V)"),
        ("cnt()", "count()"), ("hll(V)", "make_list(tostring(V))"),
    ],
)  # fmt: skip
def test_pivot_uses_an_aggregate_under_each_of_its_names(alias: str, name: str) -> None:
    by_alias, by_name = (answer(f"project Host, V, D | evaluate pivot(Host, {call}, Host)") for call in (alias, name))
    assert by_alias == by_name != []


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("argmax(V, Host)", "pivot cannot use argmax(), which has no form with a condition"),
        ("sumif(V, V > 1)", "pivot cannot use sumif(), which has a condition itself: choose the rows by where"),
        ("make_list_if(V, V > 1)", "pivot cannot use make_list_if(), which has a condition itself"),
        ("strlen(Host)", "pivot needs an aggregate, and strlen() is none"), ("nosuch(V)", "pivot needs an aggregate, and nosuch() is none"),
        ("summ(V)", "summ() is none; did you mean sum?"),
    ],
)  # fmt: skip
def test_pivot_refuses_by_the_name_that_the_query_has(call: str, reason: str) -> None:
    with pytest.raises(KqlBindError, match=re.escape(reason)):
        answer(f"evaluate pivot(Host, {call})")


def test_pivot_says_of_an_aggregate_of_kusto_that_it_is_not_implemented() -> None:
    with pytest.raises(NotImplementedYet, match=re.escape("the aggregate tdigest() is not implemented")):
        answer("evaluate pivot(Host, tdigest(V))")


def test_pivot_of_a_function_of_the_query_needs_its_form_with_a_condition() -> None:
    mine = "let mine = (v:real) { sum(v) }; "
    with pytest.raises(KqlBindError, match=re.escape("pivot cannot use mine(), which has no form with a condition")):
        run(duckdb.connect(), f"{mine}{DATA} | evaluate pivot(Host, mine(V))")


@pytest.mark.parametrize(
    ("series", "name", "count"),
    [("arg_max(V, Host)", "arg_max", 2), ("x = arg_min(V, *)", "arg_min", 4), ("(p, q) = percentiles(V, 5, 95)", "percentiles", 2)],
)  # fmt: skip
def test_a_series_of_several_values_is_refused_with_the_way_to_choose_one(series: str, name: str, count: int) -> None:
    with pytest.raises(KqlBindError) as caught:
        answer(f"make-series {series} on T step 1d")
    assert f"{name}() gives {count} values, and a series takes one: choose it by its place, x = {name}(...)[1]" in str(
        caught.value
    )


def test_a_series_of_one_of_several_values_is_drawn() -> None:
    ((hosts, _),) = answer("make-series x = arg_max(V, Host)[1] on T step 1d")
    assert hosts == ["a", "b"]
