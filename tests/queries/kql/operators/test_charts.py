"""`render`: which columns a chart uses, and what is refused. The rows are those of the query without it."""

from __future__ import annotations

from typing import Any

import pytest

from queries.kql.catalog import CATALOG
from queries.kql.compile import compile_script
from queries.kql.errors import KqlBindError, KqlSyntaxError
from queries.kql.operators.rendering import Chart

BY_TIME = "Logs | summarize n = count(), hosts = dcount(Host) by bin(Time, 1m), Source"
SERIES = "Logs | make-series n = count() on Time from ago(1h) to now() step 1m by Host"


def chart_of(text: str) -> Chart | None:
    return compile_script(text, CATALOG)[-1].chart


CASES: dict[str, tuple[Any, ...]] = {
    f"{BY_TIME} | render timechart": ("Time", ["n", "hosts"], ["Source"]),
    # The axis of time is found in any position; another chart's axis is the first column.
    f"{BY_TIME} | project Source, n, Time | render linechart": ("Time", ["n"], ["Source"]),
    f"{BY_TIME} | project Source, n, Time | render barchart": ("Source", ["n"], []),
    f"{BY_TIME} | render timechart with (ycolumns = hosts, n, series = Source)": ("Time", ["hosts", "n"], ["Source"]),
    f"{BY_TIME} | render columnchart with (xcolumn = Source, ycolumns = n)": ("Source", ["n"], []),
    f"{SERIES} | render timechart": ("Time", ["n"], ["Host"]),
    "Jobs | project JobId, Elapsed = End - Start | render scatterchart": ("JobId", ["Elapsed"], []),
    "Logs | count | render card": ("Count", ["Count"], []),
    "Logs | project Host | render timechart": ("Host", [], []),
}


@pytest.mark.parametrize("text", CASES)
def test_a_chart_is_drawn_of_the_columns_that_are_meant(text: str) -> None:
    chart = chart_of(text)
    assert chart is not None
    document = chart.document()
    assert (document["x"], document["y"], document["series"]) == CASES[text]
    assert document["visualization"] in text


@pytest.mark.parametrize(
    "said", ['with (title = "Lines, all", kind = stacked, ymin = -1, legend = hidden)',
             'title="Lines, all" kind=stacked ymin=-1 legend=hidden']
)  # fmt: skip
def test_properties_go_with_the_chart_in_both_spellings(said: str) -> None:
    chart = chart_of(f"{BY_TIME} | render areachart {said}")
    assert chart is not None and chart.properties == {
        "title": "Lines, all",
        "kind": "stacked",
        "ymin": -1,
        "legend": "hidden",
    }


@pytest.mark.parametrize("text", ["Logs | take 1", "Logs | render table", f"{BY_TIME} | render timechart | take 3"])
def test_no_chart_where_none_is_asked_of_the_last_rows(text: str) -> None:
    assert chart_of(text) is None


WRONG = {
    "render timchart": ("timechart", "timchart"),
    "render timechart with (titel = 'a')": ("title", "titel"),
    "render timechart with (ycolumns = hots)": ("hosts", "hots"),
    "render timechart with (title)": (None, "title"),
    "render timechart with (title = n, hosts)": (None, "hosts"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_meant_otherwise_is_refused_at_its_place(text: str) -> None:
    suggestion, word = WRONG[text]
    whole = f"{BY_TIME} | {text}"
    with pytest.raises(KqlBindError) as refused:
        chart_of(whole)
    problem = refused.value.locate(whole)
    assert problem.suggestion == suggestion
    assert whole[problem.column - 1 :].startswith(word)


def test_a_chart_without_a_kind_is_no_kql() -> None:
    with pytest.raises(KqlSyntaxError):
        chart_of(f"{BY_TIME} | render with (title = 'a')")
