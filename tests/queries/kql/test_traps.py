"""The seventeen traps of KQL, one story each; R<n> is the number in docs/kql.md and in the code."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from queries.kql import KqlError, run

SENSORS = """let T = datatable(k:string, v:long, s:string)
    ["a", 1, "Foo_bar", "a", 2, "", "b", long(null), "error: x", "c", 5, "no errors"];\n"""


def rows(text: str) -> list[list[Any]]:
    """The rows of a query that needs no stored table."""
    return run(duckdb.connect(), text).rows


def names(text: str) -> list[str]:
    """The column names of a query."""
    return [n for n, _ in run(duckdb.connect(), text).columns]


def test_r1_no_null_strings() -> None:
    joined = (
        SENSORS + 'T | join kind=leftouter (T | where k == "a" | project k, w = s) on k | where k == "c" | project w'
    )
    assert rows(joined) == [[""]]
    assert rows("print isnull(''), isempty(''), tostring(int(null)) == ''") == [[False, True, True]]


def test_r2_equality_is_total() -> None:
    assert rows("print int(null) == 1, int(null) != 1, int(null) == int(null), int(null) < 1") == [
        [False, True, None, None]
    ]
    assert rows(SENSORS + "T | where v !in (1, 2) | count") == [[2]]
    two = "print d = dynamic({'a': 1, 'b': 1}) | project x = "
    with pytest.raises(KqlError, match=r"two dynamics.*tostring\(d\.a\)"):
        rows(two + "d.a == d.b")
    assert (
        rows(two + "tostring(d.a) == d.b") == rows(two + "d.a == 1") == rows(two + "d.a in (dynamic([1]))") == [[True]]
    )


def test_r3_has_is_a_term_match() -> None:
    text = "print 'error' has 'err', 'foo_bar' has 'bar', 'errors' !has 'error', 'AB' has 'ab', 'AB' has_cs 'ab'"
    assert rows(text) == [[False, True, True, True, False]]


def test_r4_join_without_kind_is_innerunique() -> None:
    join = SENSORS + "T | where k == 'a' | join {} (T | where k == 'a') on k | count"
    assert rows(join.format("")) == [[2]]
    assert rows(join.format("kind=inner")) == [[4]]
    assert "k1" in names(SENSORS + "T | join T on k") and "k1" not in names(SENSORS + "T | lookup T on k")


def test_r5_sort_is_descending_and_nulls_are_smallest() -> None:
    assert [r[0] for r in rows(SENSORS + "T | sort by v | project v")] == [5, 2, 1, None]
    assert [r[0] for r in rows(SENSORS + "T | sort by v asc | project v")] == [None, 1, 2, 5]


def test_r6_output_names() -> None:
    text = SENSORS + "T | summarize count(), sum(v), make_list(v), percentile(v, 95), dcount(k), v + 0 by k"
    with pytest.raises(KqlError, match="neither a key"):
        rows(text)
    assert names(text.replace(", v + 0", "")) == ["k", "count_", "sum_v", "list_v", "percentile_v_95", "dcount_k"]
    assert names("print 1, x=2") == ["print_0", "x"]
    assert names(SENSORS + "T | count") == ["Count"]


def test_r7_bin_counts_times_from_the_year_1() -> None:
    assert rows("print bin(-7, 5), bin(datetime(2026-01-07), 7d), startofweek(datetime(2026-01-07))") == [
        [-10, "2026-01-05T00:00:00.000000Z", "2026-01-04T00:00:00.000000Z"]
    ]


def test_r8_conversions_give_null() -> None:
    assert rows("print tolong('x'), todatetime('?'), dynamic({}).a, dynamic([1, 2])[-1]") == [[None, None, None, 2]]


def test_r9_times_are_utc_and_differences_timespans() -> None:
    assert rows("print datetime(2026-01-02) - datetime(2026-01-01), 90m / 1h") == [["1.00:00:00", 1.5]]
    assert rows("print now() == now()") == [[True]]


def test_r10_positions_are_zero_based() -> None:
    assert rows(r"print substring('abc', 1), indexof('abc', 'z'), extract(@'(\d)(\d)', 2, 'x42')") == [["bc", -1, "2"]]


def test_r11_percentile_is_an_existing_value() -> None:
    assert rows(SENSORS + "T | summarize percentile(v, 50)") == [[2]]


def test_r12_union_splits_clashing_types() -> None:
    assert names("union (print x = 1), (print x = 'a')") == ["x_long", "x_string"]


def test_r13_mv_expand_zips() -> None:
    text = "print a = dynamic([1, 2]), b = dynamic(['x']) | mv-expand a, b"
    assert rows(text) == [[1, "x"], [2, None]]
    assert rows("print a = dynamic([]) | mv-expand a") == []
    assert rows("print a = dynamic(null) | mv-expand a") == [[None]]


def test_r14_make_series_ends_before_its_end() -> None:
    text = """datatable(t:datetime, v:long)[datetime(2026-01-01), 3]
        | make-series n = sum(v) default = 0 on t from datetime(2026-01-01) to datetime(2026-01-03) step 1d"""
    assert rows(text)[0][0] == [3, 0]
    assert names(text) == ["n", "t"]


def test_r15_extend_replaces_in_place_and_case_counts() -> None:
    assert names("print a = 1, b = 2 | extend a = 3, A = 4") == ["a", "b", "A"]
    assert rows("print a = 1, b = 2 | extend a = 3, A = 4") == [[3, 2, 4]]


def test_r16_aggregates_over_little() -> None:
    assert rows("print x = 1 | summarize stdev(x)") == [[0.0]]
    assert rows("print x = 1 | where x > 1 | summarize sum(x), avg(x), min(x)") == [[0, "NaN", None]]


def test_r17_the_remainder_is_never_negative() -> None:
    assert rows("print -14 % 12, -7 / 2, 1 / 0") == [[10, -3, None]]


def test_r17_mixed_arrays_are_sorted_as_far_as_their_order_is_known() -> None:
    assert rows("print array_sort_asc(dynamic(['b', 2, true, 'a', null, 1]))") == [[[1, 2, "a", "b", True, None]]]
    guid = "'74be27de-1e4e-49d9-b579-fe0b331d3642'"
    for array in (f"[1, {guid}]", "[1, '2026-01-01']", "[1, '01:00:00']", "[1, true, [2]]", "[true, 1, {}]"):
        with pytest.raises(KqlError, match="mixed types"):
            rows(f"print array_sort_asc(dynamic({array}))")
    with pytest.raises(KqlError, match="mixed types"):
        rows("print array_sort_desc(dynamic([1, 'a']))")


def test_make_series_without_a_start_has_the_slots_of_bin() -> None:
    late = "datetime(2024-01-01 00:59:59.999999)"
    assert rows(f"datatable(t: datetime)[{late}] | make-series n = count() on t step 1h | project t") == [
        [["2024-01-01T00:00:00.0000000Z"]]
    ]
    assert rows(f"print bin({late}, 1h)") == [["2024-01-01T00:00:00.000000Z"]]
