"""Random queries, from the grammar and from bytes: each gives an answer or a KqlError, in bounded time.

KQL_FUZZ_EXAMPLES=5000 searches longer than the default of each test.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import duckdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queries.kql import Catalog, Column, KqlError, Table, run
from queries.kql.compile import INTERNAL

EXAMPLES = int(os.environ.get("KQL_FUZZ_EXAMPLES", "120"))
SQL_WORDS = ("SELECT", "CAST(", "VARCHAR", "Binder", "Catalog Error", "LINE 1", "Candidate", "kqlpy_", "duckdb")
COLUMNS = {
    "Host": "string", "N": "long", "R": "real", "At": "datetime", "Took": "timespan", "Ok": "bool", "Bag": "dynamic",
    "Small": "int", "Exact": "decimal", "Id": "guid",
}  # fmt: skip
PHYSICAL = {"string": "VARCHAR", "long": "BIGINT", "real": "DOUBLE", "datetime": "TIMESTAMP", "timespan": "BIGINT",
            "bool": "BOOLEAN", "dynamic": "JSON", "int": "INTEGER", "decimal": "DECIMAL(38,12)", "guid": "VARCHAR"}  # fmt: skip
ROWS = (
    ("gx01", 1, 0.5, "2026-01-01", 10**7, True, '{"a": [1, 2], "b": "x"}', 3, 1, "74be27de-1e4e-49d9-b579-fe0b331d3642"),
    ("", None, None, None, None, None, None, None, None, None),
    ("sw-2 Xid 79", -5, -1e300, "2026-02-03 04:05:06", -36 * 10**9, False, '[3, "y", null]', -2**31, 2, None),
)  # fmt: skip


@functools.cache
def tables() -> tuple[duckdb.DuckDBPyConnection, Catalog]:
    con = duckdb.connect()
    con.execute("CREATE SCHEMA kql")
    con.execute("CREATE TABLE kql.T (" + ", ".join(f'"{n}" {PHYSICAL[k]}' for n, k in COLUMNS.items()) + ")")
    con.executemany(f"INSERT INTO kql.T VALUES ({', '.join('?' * len(COLUMNS))})", ROWS)
    return con, Catalog({"T": Table("T", tuple(Column(n, k) for n, k in COLUMNS.items()), "kql.T")})


def wrong(text: str) -> str | None:
    """What is wrong with the answer to a text: rows, or an error in KQL's terms, are right."""
    con, catalog = tables()
    try:
        rows = run(con, text, catalog=catalog, timeout_s=10, max_rows=50).rows
    except KqlError as problem:
        foreign = any(words in problem.message for words in (*SQL_WORDS, INTERNAL))
        return f"not in KQL's words: {problem.message!r}" if foreign or not str(problem) else None
    return None if isinstance(rows, list) else f"no rows: {rows!r}"


NAMES = st.sampled_from([*COLUMNS, "Nobody", "Bag.a", "Bag['b']", "Bag[0]", "Bag[-1]"])
LITERALS = st.sampled_from(
    ["1", "-3", "2.5", "0", "'x'", '"gx01"', "true", "5m", "1d", "datetime(2026-01-01)", "datetime(null)", "int(null)",
     "dynamic([1, 'a', null])", "dynamic({'a': 1})", "dynamic(null)", "real(nan)", "long(null)", "''", "1tick",
     "decimal(1.5)", "guid(74be27de-1e4e-49d9-b579-fe0b331d3642)", "9223372036854775807", "@'(\\d+)'"]
)  # fmt: skip
ONE = st.sampled_from(
    ["tolower", "strlen", "abs", "tostring", "tolong", "todouble", "todatetime", "totimespan", "tobool", "isnull", "isempty",
     "array_length", "parse_json", "bag_keys", "startofday", "hourofday", "parse_url", "parse_ipv4", "hash", "not", "sqrt",
     "series_sum", "series_stats", "parse_csv", "format_bytes", "gettype", "array_sort_asc", "treepath", "round",
     "todecimal", "dynamic_to_json", "unixtime_seconds_todatetime", "zlib_decompress_from_base64_string", "toguid"]
)  # fmt: skip
TWO = st.sampled_from(
    ["bin", "strcat", "coalesce", "max_of", "pow", "split", "indexof", "set_union", "zip", "has_any_index", "array_concat",
     "range", "series_add", "bag_merge", "format_datetime", "format_timespan", "countof", "datetime_part", "repeat",
     "array_slice", "substring", "prev", "round", "has_ipv4", "strrep", "trim", "extract_all", "bag_has_key"]
)  # fmt: skip
OPERATORS = st.sampled_from(
    ["+", "-", "*", "/", "%", "==", "!=", "<", ">", "<=", ">=", "=~", "!~", "has", "!has", "contains", "startswith",
     "endswith", "hasprefix", "and", "or", "in", "!in", "has_any", "between", "matches_regex", "has_all", "in~"]
)  # fmt: skip


def joined(left: str, operator: str, right: str) -> str:
    if operator == "between":
        return f"({left} between ({right} .. {right}))"
    if operator in ("in", "!in", "has_any", "has_all", "in~"):
        return f"({left} {operator} ({right}, {right}))"
    return (
        f"({left} {operator.replace('_', ' ')} {right})"
        if operator == "matches_regex"
        else f"({left} {operator} {right})"
    )


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds(joined, inner, OPERATORS, inner),
        st.builds(lambda f, a: f"{f}({a})", ONE, inner),
        st.builds(lambda f, a, b: f"{f}({a}, {b})", TWO, inner, inner),
        st.builds(lambda a, b, c: f"iff({a}, {b}, {c})", inner, inner, inner),
        st.builds(lambda a, b, c: f"case({a} == 1, {b}, {c})", inner, inner, inner),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, LITERALS), grown, max_leaves=6)
AGGREGATES = st.builds(
    lambda f, e: f"{f}({e})",
    st.sampled_from(["count", "sum", "avg", "min", "max", "dcount", "make_list", "make_set", "take_any", "stdev", "countif",
                     "make_bag", "arg_max", "buildschema", "hll"]),
    EXPRESSIONS,
)  # fmt: skip
STEPS: tuple[tuple[str, Any], ...] = (
    ("where {}", EXPRESSIONS), ("extend z = {}", EXPRESSIONS), ("extend {}", EXPRESSIONS), ("project {}", EXPRESSIONS),
    ("summarize {}", AGGREGATES), ("summarize {} by Host", AGGREGATES), ("summarize count() by {}", EXPRESSIONS),
    ("sort by {}", EXPRESSIONS), ("top 2 by {}", EXPRESSIONS), ("distinct {}", EXPRESSIONS), ("mv-expand {}", EXPRESSIONS),
    ("mv-apply q = {} on (take 1)", EXPRESSIONS), ("join kind=leftouter (T) on {}", NAMES), ("lookup T on {}", NAMES),
    ("union (T | project k = {})", EXPRESSIONS), ("make-series n = count() on At from datetime(2026-01-01) to "
     "datetime(2026-01-05) step 1d by {}", NAMES), ("top-nested 1 of {} by count()", EXPRESSIONS),
    ("parse Host with * 'Xid ' {}:long", st.sampled_from(["Code", "N"])), ("evaluate bag_unpack({})", NAMES),
    ("evaluate pivot({})", NAMES), ("take {}", LITERALS), ("search {}", LITERALS), ("project-away {}", NAMES),
    ("partition by {} (top 1 by N)", NAMES), ("serialize z = row_number(), y = prev({})", EXPRESSIONS),
    ("scan declare (c:long = 0) with (step a: {} => c = a.c + 1;)", EXPRESSIONS), ("count", st.just("")),
    ("sample-distinct 2 of {}", NAMES), ("getschema", st.just("")), ("as x | where {}", EXPRESSIONS),
)  # fmt: skip
STEP = st.one_of([inner.map(shape.format) for shape, inner in STEPS])
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW)
@given(st.lists(STEP, min_size=1, max_size=4))
def test_grammar(steps: list[str]) -> None:
    assert wrong("T | " + " | ".join(steps)) is None


@settings(max_examples=EXAMPLES, deadline=None)
@given(EXPRESSIONS)
def test_expressions(text: str) -> None:
    assert wrong("print " + text) is None


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_bytes(text: str) -> None:
    assert wrong(text) is None


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=2), st.integers(0, 60), st.text(max_size=3))
def test_damaged(steps: list[str], place: int, damage: str) -> None:
    text = "T | " + " | ".join(steps)
    assert wrong(text[:place] + damage + text[place + 1 :]) is None
