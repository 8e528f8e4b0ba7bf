"""The nouns of a cluster in queries: a job's rows, what was near, what followed, host lists, sessions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest

from parsers.record import frame
from queries.kql import KqlError, Query
from store import open_store
from store.door import Door
from tests.replaced_model import replace_model

START = datetime(2026, 2, 27, 12)

#: seconds after START, host, event
EVENTS = [
    (0, "gx01", "nic.link_down"), (30, "gx01", "slurm.comm_error"), (45, "gx01", "slurm.comm_error"),
    (100, "gx02", "nic.link_down"), (161, "gx02", "slurm.comm_error"),
    (200, "gx03", "slurm.comm_error"), (220, "gx03", "nic.link_down"),
    (300, "gx04", "nic.link_down"), (300, "gx04", "slurm.comm_error"),
]  # fmt: skip


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def store() -> Door:
    """Events of four hosts, two runs of job 7 and one of job 8, and a syslog line of each host and second minute."""
    made = open_store(None)
    replace_model(made, {
        "events": pl.DataFrame([{"event_id": f"E{n}", "time": at(s), "host": h, "event": e} for n, (s, h, e) in enumerate(EVENTS)]),
        "runs": pl.DataFrame([
            {"job_id": 7, "attempt": 0, "start": at(0), "end": at(120), "node_list": "gx[01-02]", "nodes": ["gx01", "gx02"]},
            {"job_id": 7, "attempt": 1, "start": at(180), "end": at(240), "node_list": "gx03", "nodes": ["gx03"]},
            {"job_id": 8, "attempt": 0, "start": at(150), "end": None, "node_list": "gx[02,04]", "nodes": ["gx02", "gx04"]},
            {"job_id": 9, "attempt": 0, "start": None, "end": at(1), "node_list": "", "nodes": []},
        ]),
    })  # fmt: skip
    made.append({"logs": frame("logs", [{"time": at(60 * n), "host": f"gx0{h}", "raw": f"line {n}", "message": f"line {n}", "format": "rfc3164", "line": n,
                                      "source": "slurmd", "severity": "info", "unit": "slurmd", "facility": "daemon", "pid": 5}
                                     for n in range(6) for h in (1, 2, 3, 4)])})  # fmt: skip
    return made


def rows(store: Door, query: str) -> list[list[Any]]:
    return store.run_kql(Query(query, now=at(1000))).rows


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Events | during_job(7) | summarize n = count() by Host | sort by Host asc", [["gx01", 3], ["gx02", 1], ["gx03", 2]]),
        ("Events | during_job(7, 1) | project EventId | sort by EventId asc", [["E5"], ["E6"]]),
        ("Events | invoke during_job(7, 0) | count", [[4]]),
        ("let job = 8; during_job(Events, job) | summarize make_list(Host)", [[["gx02", "gx04", "gx04"]]]),
        ("Events | during_job(9) | count", [[0]]),
        ("Events | during_job(4711) | count", [[0]]),
        ("Syslog | during_job(7) | summarize n = count() by Computer | sort by Computer asc", [["gx01", 3], ["gx02", 3], ["gx03", 2]]),
        ("slurmd_raw_CL | during_job(7, 1) | project RawData", [["line 3"], ["line 4"]]),
    ],
)  # fmt: skip
def test_rows_during_a_job(query: str, expected: list[list[Any]], store: Door) -> None:
    assert rows(store, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('within(30s, Events | where Event == "slurm.comm_error")', ["E0", "E6", "E7"]),
        ('within(61s, (Events | where Event == "slurm.comm_error"))', ["E0", "E3", "E6", "E7"]),
        ('within(0s, Events | where Event == "slurm.comm_error")', ["E7"]),
        ('invoke within(30s, Events | where Event == "slurm.comm_error")', ["E0", "E6", "E7"]),
    ],
)
def test_rows_near_others(query: str, expected: list[str], store: Door) -> None:
    text = f'Events | where Event == "nic.link_down" | {query} | project EventId | sort by EventId asc'
    assert [row[0] for row in rows(store, text)] == expected


def test_rows_that_something_followed(store: Door) -> None:
    text = """Events | where Event == "nic.link_down" | followed_by(61s, Events | where Event == "slurm.comm_error")
        | project EventId, FollowedAt, Lag | sort by EventId asc"""
    assert rows(store, text) == [
        ["E0", "2026-02-27T12:00:30.000000Z", "00:00:30"],
        ["E3", "2026-02-27T12:02:41.000000Z", "00:01:01"],
        ["E7", "2026-02-27T12:05:00.000000Z", "00:00:00"],
    ]
    assert rows(store, text.replace("61s", "60s").replace("Lag |", "Lag | where Lag > 1s |")) == rows(store, text)[:1]


def test_followed_by_twice_keeps_both_lags(store: Door) -> None:
    found = store.run_kql(Query("Events | followed_by(1m, Events) | followed_by(1m, Syslog)"))
    assert [n for n, _ in found.columns][-4:] == ["FollowedAt", "Lag", "FollowedAt1", "Lag1"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("Links | during_job(7)", "datetime column Time or TimeGenerated"),
        ("Events | during_job()", "takes 1 or 2 arguments"),
        ('Events | during_job("7")', "whole number"),
        ("Events | within(Events, 5m)", "is a table, not a value"),
        ("Events | within(5m, Links)", "datetime column"),
        ("Events | within(5m, NoSuchTable)", "unknown table 'NoSuchTable'"),
        ("Events | followed_by(5m)", "takes 2 arguments"),
        ("during_job()", "needs a table first"),
        ("Events | during_jobs(7)", "during_job"),
        ("Events | where session_gap(Time) > 1", "session_gap"),
    ],
)
def test_wrong_use_is_reported(query: str, message: str, store: Door) -> None:
    with pytest.raises(KqlError, match=message):
        rows(store, query)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('expand_nodes("gx[01-03],login1")', ["gx01", "gx02", "gx03", "login1"]),
        ('expand_nodes("")', []),
        ('expand_nodes(dynamic(["gx[1-2]", "gx2", "b"]))', ["gx1", "gx2", "b"]),
        ('nodeset(dynamic(["gx03", "gx01", "gx02"]))', "gx[01-03]"),
        ('nodeset("b1,a[1-2]")', "a[1-2],b1"),
        ("nodeset(dynamic([]))", ""),
    ],
)
def test_host_lists(expression: str, expected: object, store: Door) -> None:
    assert rows(store, f"print {expression}") == [[expected]]


def test_host_lists_of_columns(store: Door) -> None:
    text = "Jobs | where JobId == 7 | mv-expand Node = expand_nodes(NodeList) to typeof(string) | project Node | sort by Node asc"
    assert rows(store, text) == [["gx01"], ["gx02"], ["gx03"]]
    assert rows(store, "Events | summarize Hosts = make_set(Host) by Event | project nodeset(Hosts)")[0] == [
        "gx[01-04]"
    ]


def test_sessions_end_where_a_host_was_quiet(store: Door) -> None:
    text = """Events | extend Session = session_gap(Time, 20s, Host)
        | summarize n = count(), First = min(Time) by Host, Session | project Host, Session, n | sort by Host asc, Session asc"""
    assert rows(store, text) == [
        ["gx01", 1, 1], ["gx01", 2, 2], ["gx02", 1, 1], ["gx02", 2, 1], ["gx03", 1, 2], ["gx04", 1, 2]]  # fmt: skip
    assert rows(store, "Events | extend S = session_gap(Time, 1h) | summarize max(S)") == [[1]]


AZURE = [
    'Syslog | where SeverityLevel == "info" and ProcessName == "slurmd" | summarize count() by Computer, bin(TimeGenerated, 5m)',
    'Syslog | where TimeGenerated > ago(1d) | where SyslogMessage contains "line" | project TimeGenerated, Computer, ProcessID, HostIP',
    'slurmd_raw_CL | where RawData has "line" | extend N = toint(extract(@"line (\\d+)", 1, RawData)) | summarize max(N) by Computer',
    "union withsource=Source *_raw_CL | summarize count() by Source, Computer",
    'search in (Syslog, slurmd_raw_CL) "line" | count',
]


@pytest.mark.parametrize("query", AZURE)
def test_queries_written_for_azure_monitor_run_as_they_are(query: str, store: Door) -> None:
    assert rows(store, query)


def test_every_azure_table_has_the_contracts_columns(store: Door) -> None:
    for name in (
        "slurmctld",
        "slurmd",
        "slurmdb",
        "slurmrestd",
        "slurmjobs",
        "syslog",
        "dmesg",
        "jetpack",
        "jetpackd",
        "healthagent",
    ):
        assert store.run_kql(Query(f"{name}_raw_CL | take 0")).columns == [
            ("TimeGenerated", "datetime"), ("RawData", "string"), ("Computer", "string"), ("FilePath", "string")]  # fmt: skip
