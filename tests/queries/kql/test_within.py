"""The time range that comes with a query limits every stored table, whatever way the query names it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate
from queries.kql import CATALOG, Query, Within
from store import open_store
from store.door import Door
from tests.line_parser import line_parser
from tests.queries.library_store import FILES, build

START, END = datetime(2026, 11, 21, 0, 30), datetime(2026, 11, 21, 0, 31)
RANGE = Within(START, END)
SAID = "between (datetime(2026-11-21T00:30:00Z) .. datetime(2026-11-21T00:31:00Z))"


@pytest.fixture(scope="module")
def store() -> Door:
    return build("mgmt_flap_long")


def rows(store: Door, text: str, within: Within = RANGE) -> list[list[object]]:
    return store.run_kql(Query(text, within=within)).rows


@pytest.mark.parametrize("table", ["Logs", "Events", "NodeStates", "Syslog", "slurmctld_raw_CL"])
def test_rows_of_a_table_are_those_of_a_filter_in_the_query(store: Door, table: str) -> None:
    time = "TimeGenerated" if table in ("Syslog", "slurmctld_raw_CL") else "Time"
    limited, whole = rows(store, f"{table} | count"), rows(store, f"{table} | count", Within())
    assert limited == rows(store, f"{table} | where {time} {SAID} | count", Within())
    assert limited[0][0] < whole[0][0]


def test_what_lasts_overlaps_the_range(store: Door) -> None:
    """Job 15 began before it and ended in it; it is in each range that it touches, and in none before."""
    assert [15] in rows(store, "Jobs | project JobId") and [15] in rows(store, "Jobs | project JobId", Within(START))
    assert [15] not in rows(store, "Jobs | project JobId", Within(None, datetime(2026, 11, 21)))
    before, after = Within(None, datetime(2026, 11, 21)), Within(datetime(2026, 11, 22))
    assert rows(store, "Incidents | count") == [[1]]
    assert rows(store, "Incidents | count", before) == rows(store, "Incidents | count", after) == [[0]]
    assert rows(store, "Links | count") == rows(store, "Links | count", Within())


def test_what_has_no_end_lasts(tmp_path: Path) -> None:
    """Job 900 runs since 09:30, 901 waits since 11:00."""
    (tmp_path / "sacct.txt").write_text(FILES["accounting/sacct.txt"])
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([tmp_path])
        correlate(store)
        for at, expected in ((9, []), (10, [900]), (12, [900, 901])):
            moment = datetime(2026, 11, 21, at)
            asked = rows(store, "Jobs | project JobId | sort by JobId asc", Within(moment, moment))
            assert [job for (job,) in asked] == expected


def test_every_table_with_times_is_limited() -> None:
    timed = [table for table in CATALOG if any(column.kql_type == "datetime" for column in table.columns)]
    assert len(timed) > 10 and [table.name for table in timed if not RANGE.condition(table)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Logs",
        "Logs | where Message has 'link'",
        "let L = Logs; L",
        "let f = (T:(*)) { T | where true }; f(Logs)",
        "union Logs, Events",
        "union L*",
        "search in (Logs, Events) 'link'",
        "table('Logs')",
        "materialize(Logs)",
        "Logs | as X | union (X)",
        "Links | join kind=fullouter (Logs) on Host",
        "print Time = toscalar(Logs | summarize max(Time))",
        "Events | followed_by(10m, Logs)",
    ],
)
def test_no_way_to_name_a_table_leads_around_it(store: Door, text: str) -> None:
    ((first, last),) = rows(store, f"{text} | summarize min(Time), max(Time)")
    assert first is not None and str(first) >= "2026-11-21T00:30:00" and str(last) <= "2026-11-21T00:31:00.000000Z"


def test_a_table_of_the_query_is_its_own(store: Door) -> None:
    assert rows(store, "let Logs = datatable(Time:datetime)[datetime(2020-01-01)]; Logs | count") == [[1]]
    assert rows(store, "let T = datatable(Time:datetime)[datetime(2020-01-01)]; T | count") == [[1]]


def test_a_later_range_is_not_answered_from_the_one_before(store: Door) -> None:
    text = "Logs | summarize N = count()"
    whole = rows(store, text, Within())
    assert rows(store, text) != whole == rows(store, text, Within())
