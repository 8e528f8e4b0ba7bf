"""Columns that no later step reads are not in the SQL; those that only a template or a star reads stay."""

from __future__ import annotations

import pytest

from queries.kql.catalog import CATALOG
from queries.kql.compile import compile_script


def statement(query: str) -> str:
    return compile_script(query, CATALOG)[-1].sql


@pytest.mark.parametrize(
    ("query", "there", "gone"),
    [
        ("Logs | where Unit == 'sshd' | project Host", ["Host", "Unit"], ["Facility", "Message", "Fields"]),
        ("Logs | summarize count() by Host", ["Host", "LogLines"], ["Time", "Message", "Logs"]),
        ("Logs | where Authority == 'local' | project Host", ["Host", "Logs"], ["LogLines"]),
        ("Logs | take 3", ["Authority", "Logs"], ["LogLines"]),
        ("Logs | count", [], ["Host", "Fields"]),
        ("Logs | sort by Time | take 3 | project Host", ["Time", "Host"], ["Message"]),
        ("Logs | join kind=leftouter (Events | where Severity == 'x') on Host | project Device", ["Severity"], ["File"]),
        ("Logs | where Message has 'x' | extend Long = strlen(Message) | summarize max(Long)", ["Message"], ["Unit"]),
        ("Logs | top-nested 3 of Source by count(), top-nested 2 of Host by count()", ["Source", "Host"], ["Message", "Fields"]),
        ("Logs | join kind=leftsemi (Events) on Host | project Unit", ["Host", "Unit"], ["Message", "Fields"]),
        ("Logs | sample 3 | project Host", ["Host"], ["Message"]),
        ("Logs | sort by Time asc | extend Gap = Time - prev(Time) | summarize max(Gap)", ["Time", "LogLines"], ["Message", "Logs"]),
        ("union (Logs | where Source == 'kernel'), (Events) | summarize count() by Source", ["Source", "LogLines"], ["Message", "IncidentId", "Logs"]),
        ("union withsource = From Logs, Events | count", [], ["Message", "IncidentId", "Logs"]),
        ("union kind=inner Logs, Events | where Host == 'x' | project Time", ["Host", "Time"], ["Message", "Logs"]),
        # Each row of these depends on all columns, or a star selects them.
        ("union Logs, Events | project-away Fields | distinct * | count", ["IncidentId", "Line"], []),
        ("Logs | project-away Fields | distinct * | count", ["Host", "Line"], []),
        ("Logs | project Host, Unit, File | distinct Host, Unit | project Host", ["Unit"], ["File"]),
        ("Logs | sort by Time asc | scan declare (N:long = 0) with (step a: true => N = 1;) | project N", ["Host"], []),
        ("Logs | summarize count() by Host, Unit | project count_", ["Host", "Unit"], ["File"]),
    ],
)  # fmt: skip
def test_sql_names_the_columns_that_are_read(query: str, there: list[str], gone: list[str]) -> None:
    sql = statement(query)
    assert [name for name in there if f'"{name}"' not in sql] == []
    assert [name for name in gone if f'"{name}"' in sql] == []
