"""The same queries on ClickHouse, in this process through chdb: DuckDB's answer, or a refusal that is on the list."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from datetime import datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queries.kql import CannotExpress, Catalog, KqlError, NotImplementedYet, Result
from queries.kql.compile import compile_script
from queries.kql.engines import engines
from queries.kql.engines.clickhouse import CLICKHOUSE, ClickHouseDialect, parameters
from queries.kql.engines.engine import Engine
from tests.examples import examples
from tests.measured import Measured
from tests.queries import clickhouse_session
from tests.queries.kql.test_cases import CASES, CONFORMANCE, NOW, comparison, outcome, stored

if find_spec("chdb") is None:  # importing it, and pandas with it, would cost every test process half a second
    pytest.skip("chdb is not installed: nothing here ran on ClickHouse", allow_module_level=True)
GAPS: dict[str, list[str]] = tomllib.loads((Path(__file__).parents[2] / "clickhouse_gaps.toml").read_text())
REASONS = {name: reason for reason, names in GAPS.items() for name in names}
# The shares of the conformance cases ClickHouse must answer: tier 1, all. Raise them, never lower them.
TIER_1, ALL = 0.95, 0.84


def nearly(got: Any, wanted: Any) -> bool:
    """Equal, reals to 12 digits: the engines sum them in another order."""
    if isinstance(got, float) and isinstance(wanted, (float, int)):
        return got == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    if isinstance(got, list) and isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(nearly, got, wanted))
    if isinstance(got, dict) and isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(nearly(got[k], wanted[k]) for k in got)
    return bool(got == wanted)


def same_rows(got: list[list[Any]], wanted: list[list[Any]], ordered: bool) -> bool:
    """Rows in order if the query orders them."""
    if ordered:
        return nearly(got, wanted)
    return nearly(sorted(got, key=repr), sorted(wanted, key=repr))


def ask(query: str, tables: dict[str, Any] | None = None, now: datetime | None = None) -> Result:
    """The answer of ClickHouse."""
    return clickhouse_session.run(query, clickhouse_session.load(tables or {}, stored), now)


def test_the_list_of_gaps_names_cases() -> None:
    assert set(REASONS) <= {folder.name for folder in CASES}
    assert sum(map(len, GAPS.values())) == len(REASONS), "a case is listed twice"
    assert len(REASONS) <= 0.08 * len(CASES)


@pytest.mark.parametrize(
    "folder",
    # The store's own engine answers all of them in test_cases.py; to load this one takes two seconds.
    [pytest.param(folder, id=folder.name, marks=pytest.mark.long) for folder in CASES],
)
def test_golden(folder: Path) -> None:
    query = (folder / "query.kql").read_text()
    catalog = clickhouse_session.load(json.loads((folder / "tables.json").read_text()), stored)
    if folder.name in REASONS:
        # A gap that closes fails here: remove it from the list.
        with pytest.raises((CannotExpress, NotImplementedYet), match=REASONS[folder.name]):
            clickhouse_session.run(query, catalog, NOW)
        return
    result = clickhouse_session.run(query, catalog, NOW)
    expected = json.loads((folder / "expected.json").read_text())
    assert [list(c) for c in result.columns] == expected["columns"]
    ordered = compile_script(query, catalog, now=NOW, engine=CLICKHOUSE, probe=clickhouse_session.probe)[-1].ordered
    assert same_rows(result.rows, expected["rows"], ordered), (result.rows, expected["rows"])


@pytest.mark.long
@pytest.mark.skipif(not CONFORMANCE.exists(), reason="the conformance cases are not on this machine")
def test_conformance(measured: Measured) -> None:
    same = comparison().same_rows
    counts: Counter[tuple[int, str]] = Counter()
    wrong = []
    for line in (CONFORMANCE / "conformance.jsonl").read_text().splitlines():
        case = json.loads(line)
        what = outcome(case, same, lambda one: ask(one["query"], one["tables"]))
        counts[case["tier"], what] += 1
        wrong += [case["id"]] * (what == "wrong")
    size = Counter({t: sum(n for (tier, _), n in counts.items() if tier == t) for t in (1, 2, 3, 4)})
    rates = {t: counts[t, "pass"] / size[t] for t in size}
    whole = sum(counts[t, "pass"] for t in size) / size.total()
    stated = ", ".join(f"tier {t} {rate:.3f}" for t, rate in rates.items())
    measured(f"on clickhouse: {stated}, all {whole:.3f}; wrong: {wrong}")
    assert not wrong
    assert rates[1] >= TIER_1 and whole >= ALL


@pytest.mark.long
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@settings(max_examples=examples(20), deadline=None)
@example("\\N")
@example("a\tb\nc\\d'e\"f{p_1:String}\r\0")
@example("'; DROP TABLE x --")
def test_a_text_of_the_user_reaches_clickhouse_as_a_parameter(text: str) -> None:
    (one,) = compile_script("print x = y", Catalog({}), parameters={"y": "ß" + text}, engine=CLICKHOUSE)
    assert "ß" not in one.sql
    assert clickhouse_session.answer(one).rows == [["ß" + text]]


@pytest.mark.long
@pytest.mark.parametrize(
    "value", [True, False, 0, -(2**63), 2**63 - 1, 0.1, -1e300, datetime(2026, 3, 1, 12, 0, 0, 123456), ""]
)
def test_values_of_all_types_arrive(value: Any) -> None:
    (one,) = compile_script("print x = y", Catalog({}), parameters={"y": value}, engine=CLICKHOUSE)
    (got,) = clickhouse_session.answer(one).table.column(0).to_pylist()
    assert got == value and type(got) is type(value)


def test_parameters_as_text() -> None:
    values = [None, "\\N", "a\tb", Decimal("1.50"), True, datetime(2026, 3, 1)]
    stated = parameters([f"p{i}" for i in range(6)], values)
    assert list(stated.values()) == ["\\N", "\\\\N", "a\\tb", "1.50", "True", "2026-03-01 00:00:00"]


@pytest.mark.long
def test_names_of_columns_cannot_break_out() -> None:
    assert ask("""print ['a"b\\\\'] = 1, ['x\\\\" , 2 AS \\\\"y'] = 2""").rows == [[1, 2]]


@pytest.mark.parametrize(
    ("query", "kind", "said"),
    [
        ("print parse_path('/a/b')", CannotExpress, r"parse_path\(\) cannot be answered on clickhouse: its body is Python"),
        ("print x = 1 | extend y = format_bytes(x)", CannotExpress, r"column 26: format_bytes\(\)"),
        ("print d = dynamic([1]) | mv-apply d on (count)", CannotExpress, "mv-apply cannot be answered on clickhouse"),
        ("print row_window_session(now(), 1m, 1m)", KqlError, "row_window_session"),
        ("print datetime(1066-10-14)", CannotExpress, "years 1900 to 2299"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_by_name(query: str, kind: type[KqlError], said: str) -> None:
    with pytest.raises(kind, match=said):
        compile_script(query, Catalog({}), engine=CLICKHOUSE)


@pytest.mark.long
def test_positions_follow_the_sort_on_many_rows() -> None:
    """The order must survive from one step to the next if several threads work."""
    query = """range x from 1 to 300000 step 1 | extend k = x * 7919 % 300007 | sort by k asc
        | extend n = row_number(), before = prev(k) | where isnotnull(before)
        | summarize rows = count(), wrong = countif(k < before), least = min(n), most = max(n)"""
    assert ask(query).rows == [[299999, 0, 2, 300000]]


def test_a_third_party_engine_changes_one_word() -> None:
    """An engine is a table: a derived one spells one word differently and inherits the rest."""
    words = CLICKHOUSE.words | {"lower": "lowerAscii(<0>)"}
    mine = Engine("mine", ClickHouseDialect, words, types=CLICKHOUSE.types, out=CLICKHOUSE.out)
    (one,) = compile_script("print tolower('ABC')", Catalog({}), engine=mine)
    assert "lowerAscii(" in one.sql and "lowerUTF8" not in one.sql
    assert set(engines()) >= {"duckdb", "clickhouse"}
