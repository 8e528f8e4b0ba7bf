"""fork and facet give several tables; the last is the answer, the others precede it."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from queries.kql import format as printing
from queries.kql import run, validate

HOSTS = """let Hosts = datatable(Host:string, Rack:string, Errors:long)
    ["gx01", "r1", 5, "gx02", "r1", 0, "gx03", "", 7];\n"""


def tables(text: str) -> list[tuple[str, list[str], list[list[Any]]]]:
    """Name, columns and rows of every table of an answer; rows sorted."""
    answer = run(duckdb.connect(), HOSTS + text)
    return [(one.name, [n for n, _ in one.columns], sorted(one.rows, key=str)) for one in [*answer.others, answer]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Hosts | fork (where Errors > 5 | project Host) (count)", [("", ["Host"], [["gx03"]]), ("", ["Count"], [[3]])]),
        (
            "Hosts | fork bad = (where Errors > 0 | summarize n = count()) (take 0 | project Host | as None_)",
            [("bad", ["n"], [[2]]), ("None_", ["Host"], [])],
        ),
        ("Hosts | facet by Rack", [("Rack", ["Rack", "count_Rack"], [["", 1], ["r1", 2]])]),
        (
            "Hosts | where Errors < 7 | facet by Rack, Errors with (top 1 by Errors | project Host)",
            [("", ["Host"], [["gx01"]]), ("Rack", ["Rack", "count_Rack"], [["r1", 2]]),
             ("Errors", ["Errors", "count_Errors"], [[0, 1], [5, 1]])],
        ),
        ("print 1; Hosts | fork (count) (distinct Rack)", [("", ["print_0"], [[1]]), ("", ["Count"], [[3]]), ("", ["Rack"], [[""], ["r1"]])]),
        ("Hosts | fork (count)", [("", ["Count"], [[3]])]),
    ],
)  # fmt: skip
def test_the_tables(text: str, wanted: list[tuple[str, list[str], list[list[Any]]]]) -> None:
    assert tables(text) == wanted


def test_now_is_one_moment_for_all_branches() -> None:
    answer = run(duckdb.connect(), "print 1 | fork (project t = now()) (project t = now())")
    assert answer.others[0].rows == answer.rows


def test_the_row_limit_is_of_each_table() -> None:
    answer = run(duckdb.connect(), "range x from 1 to 5 step 1 | fork (take 5) (count)", max_rows=2)
    assert (answer.others[0].truncated, len(answer.others[0].rows), answer.truncated) == (True, 2, False)


def test_each_branch_draws_its_own_chart() -> None:
    answer = run(duckdb.connect(), HOSTS + "Hosts | fork (project Host, Errors | render piechart) (count)")
    assert answer.chart is None and answer.others[0].chart is not None


def test_columns_are_those_of_the_last_table() -> None:
    assert validate(HOSTS + "Hosts | fork (take 1) (count)") == [("Count", "long")]


def test_a_named_table_has_its_name_above_it() -> None:
    answer = run(duckdb.connect(), HOSTS + "Hosts | fork all = (count)")
    assert printing.render(answer, "table") == "all:\nCount\n3\n"


def test_consume_reads_everything_and_gives_nothing() -> None:
    answer = run(duckdb.connect(), HOSTS + "Hosts | consume")
    assert (answer.rows, [n for n, _ in answer.columns]) == ([], ["Host", "Rack", "Errors"])
    with pytest.raises(ValueError, match="assertion failed"):
        run(duckdb.connect(), HOSTS + "Hosts | extend a = assert(Errors < 7, 'seven') | consume")
