"""``Drains``, the only definition of "out of service": who drained which node, why, until when, and who undid it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import drains_store
import duckdb
import polars as pl
import pytest

from parsers import documents
from parsers.reasons import split_reason
from parsers.record import Origin
from queries import reports, saved
from queries.kql import Query
from store import open_store
from store.duckdb import visible
from store.duckdb.store import DuckStore
from web.reading import Reader

DAY = datetime(2026, 11, 21, 10)
COLUMNS = "Host, State, Actor, Owner, Reason, Begin = format_datetime(Begin, 'HH:mm:ss.fff'), End = format_datetime(End, 'HH:mm:ss.fff'), UndoneBy, Seconds, Times"
SCRATCH, TEAM, RMA = (
    "NHC: check_fs_mount: /scratch not mounted",
    "waiting for the storage team",
    "RMA [root@2026-11-20T10:59:00]",
)
#: What the lines and tables of ``drains_store`` say, written down before the query was asked.
TRUE = [
    ["gx01", "drained", "not logged by Slurm", "nhc", SCRATCH, "08:00:00.100", "08:10:00.000", "", 599.9, 1],
    ["gx01", "drained", "not logged by Slurm", "admin", TEAM, "08:10:00.000", "08:30:00.000", "not logged by Slurm", 1200.0, 1],
    ["gx02", "down", "slurm(64030)", "slurm", "Not responding", "09:00:00.000", "09:05:00.000", "", 300.0, 1],
    ["gx02", "drained", "dora(1207)", "admin", "bad cable", "09:05:00.000", "09:25:00.000", "slurmctld", 1200.0, 1],
    ["gx03", "drained", "root", "admin", "Xid 79", "10:00:00.000", "", "", 21600.4, 1],
    ["gx04", "down", "not logged by Slurm", "admin", RMA, "11:00:00.000", "11:10:00.000", "not logged by Slurm", 600.0, 1],
    ["gx05", "drained", "slurmctld", "", "", "12:00:00.000", "12:20:00.000", "not logged by Slurm", 1200.0, 1],
    ["gx05", "failed", "not logged by Slurm", "", "", "13:00:00.000", "13:00:30.000", "not logged by Slurm", 30.0, 2],
]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckStore]:
    with drains_store.build(tmp_path_factory.mktemp("drains")) as made:
        yield made


def test_every_drain_with_who_why_when_and_who_undid_it(store: DuckStore) -> None:
    """Neither the author that a reason names, nor a compute node's or a job's line, is believed."""
    assert drains_store.answer(store, f"Drains | sort by Host asc, Begin asc | project {COLUMNS}") == TRUE


def test_evidence_names_each_source_once_and_the_line(store: DuckStore) -> None:
    ((evidence,),) = drains_store.answer(store, 'Drains | where Host == "gx02" and State == "down" | project Evidence')
    assert [(e["source"], e["state"], e["actor"]) for e in evidence] == [
        ("slurmctld", "down", "slurmctld"), ("sacctmgr_events", "down*", "slurm(64030)"),
    ]  # fmt: skip
    ids = [e["event_id"] for e in evidence]
    assert drains_store.answer(store, f'Events | where EventId == "{ids[0]}" | project Event') == [["slurm.node_down"]]
    assert ids[1] == ""
    ((later,),) = drains_store.answer(store, 'Drains | where Host == "gx02" and State == "drained" | project Evidence')
    assert [e["time"][11:19] for e in later if e["state"] == "reboot"] == ["09:20:00"], "a reboot of a drained node"


def test_query_report_and_page_agree_on_the_time_out_of_service(store: DuckStore) -> None:
    out = dict(drains_store.answer(store, "Drains | summarize sum(Seconds) by Host"))
    asked = drains_store.answer(store, saved.load("node_downtime").text)
    queried = {
        row[1]: sum(float(part) * unit for part, unit in zip(row[2].split(":"), (3600, 60, 1), strict=True))
        for row in asked
    }
    table = reports.run(store, "failure-patterns").section("unavailable").tables[0]
    reported: dict[str, float] = {}
    for row in table.rows:
        reported[row["host"]] = reported.get(row["host"], 0.0) + row["out_s"]
    reader = Reader(store)
    shown = {host: sum(row["seconds"] for row in reader.drains(reader.node(host), None, None)) for host in out}
    for found in (queried, reported, shown):
        assert found == pytest.approx(out)
    assert out["gx02"] == 1500.0, "DOWN, then drained: once, and no second twice"


def test_a_node_that_is_still_drained_is_so_since_then(store: DuckStore) -> None:
    """Nothing was said of it after the first second, and it has been drained for six hours."""
    history = {row[1]: row[4] for row in drains_store.answer(store, saved.load("drain_history").text)}
    assert history["gx03"] == "2026-11-20T10:00:00.000000Z" and history["gx01"] is None
    (row,) = (r for r in reports.run(store, "failure-patterns").section("unavailable").tables[0].rows if r["since"])
    assert (row["host"], row["since"], row["out_s"]) == ("gx03", datetime(2026, 11, 20, 10), 21600.4)
    (now,) = drains_store.answer(store, saved.load("drains_now").text)
    assert now[1:5] == ["gx03", "drained", "2026-11-20T10:00:00.000000Z", "14:00:00"]


def test_the_owner_of_a_reason_is_that_of_the_parser(store: DuckStore) -> None:
    said = drains_store.answer(store, 'Drains | where Reason != "" | distinct Reason, Owner')
    assert {owner for _, owner in said} == {"nhc", "admin", "slurm"}
    assert [owner for _, owner in said] == [split_reason(reason)["owner"] for reason, _ in said]


def test_idle_plus_drain_is_a_drain(store: DuckStore) -> None:
    (row,) = drains_store.answer(store, 'NodeStates | where Host == "gx03"')
    assert "idle+drain" in row, "Slurm's own word for it begins with idle"
    assert "gx03" in [r[1] for r in drains_store.answer(store, saved.load("drain_history").text)]


@pytest.mark.parametrize("relation", ['kql."Drains"', "model.facts"])
def test_owners_of_jobs_have_no_ledger(store: DuckStore, relation: str) -> None:
    connection = visible.cursor(store, "dora")
    try:
        with pytest.raises(duckdb.CatalogException):
            connection.execute(f"SELECT * FROM {relation}")
    finally:
        connection.close()


#: A real slurmctld's, of a node that was resumed and drained again 1.5 s later; accounting has whole seconds.
TWICE = {
    "controller/slurmctld.log": """\
[2026-11-20T04:01:45.352] error: validate_node_specs: Prolog or job env setup failure on node gpu02, draining the node
[2026-11-20T04:01:45.352] drain_nodes: node gpu02 state set to DRAIN
[2026-11-20T04:01:50.833] update_node: node gpu02 state set to IDLE
[2026-11-20T04:01:52.360] update_node: node gpu02 reason set to: bad cable
[2026-11-20T04:01:52.367] update_node: node gpu02 state set to DRAINED
[2026-11-20T04:01:57.148] update_node: node gpu02 state set to IDLE
""",
    "slurm/events.psv": "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    "made|gpu02|2026-11-20T04:01:45|2026-11-20T04:01:50|DRAIN|Prolog error|slurm(64030)\n"
    "made|gpu02|2026-11-20T04:01:52|2026-11-20T04:01:57|DRAIN|bad cable|root(0)\n",
}
LEDGER = "Drains | sort by Begin asc | project Actor, Reason, Begin = format_datetime(Begin, 'ss.fff'), End = format_datetime(End, 'ss.fff'), UndoneBy"


def test_a_node_that_is_drained_again_at_once_was_resumed_by_somebody(tmp_path: Path) -> None:
    with drains_store.build(tmp_path, TWICE) as store:
        first, second = drains_store.answer(store, LEDGER)
    assert (
        first[:3] + first[4:] == ["slurm(64030)", "Prolog error", "45.000", "not logged by Slurm"]
        and first[3][:2] == "50"
    )
    assert second == ["root(0)", "bad cable", "52.000", "57.000", "not logged by Slurm"]


ASKED = {
    "two forms of the log": (
        "10.000] AUDIT_RPCS: msg_type=REQUEST_UPDATE_NODE uid=1207 client=[10.0.0.5:56918] protocol=10240",
        "20.000] AUDIT_RPCS: [slurmctld-primary:6817(fd:18)] msg_type=REQUEST_UPDATE_NODE uid=0 client=[10.0.0.5:56918] protocol=11008",
        "uid 1207", "uid 0",
    ),
    "two who asked": (
        "10.000] AUDIT_RPCS: msg_type=REQUEST_UPDATE_NODE uid=1207 client=[10.0.0.5:56918] protocol=10240",
        "06.000] AUDIT_RPCS: msg_type=REQUEST_UPDATE_NODE uid=0 client=[10.0.0.5:56918] protocol=10240",
        "not logged by Slurm", "not logged by Slurm",
    ),
    "another request, and one of long ago": (
        "10.000] AUDIT_RPCS: msg_type=REQUEST_UPDATE_JOB uid=1207 client=[10.0.0.5:56918] protocol=10240",
        "14.000] AUDIT_RPCS: msg_type=REQUEST_UPDATE_NODE uid=0 client=[10.0.0.5:56918] protocol=10240",
        "not logged by Slurm", "not logged by Slurm",
    ),
    "a user whom slurmctld refused": (
        "10.000] AUDIT_RPCS: msg_type=REQUEST_UPDATE_NODE uid=20001 client=[10.0.0.5:56918] protocol=10240",
        "10.001] error: Security violation, UPDATE_NODE RPC from uid=20001",
        "not logged by Slurm", "not logged by Slurm",
    ),
    "asked, in any release with SlurmctldDebug=debug2": (
        "10.000] debug2: Processing RPC: REQUEST_UPDATE_NODE from UID=1207", "20.000] debug2: Processing RPC: REQUEST_UPDATE_NODE from UID=0",
        "uid 1207", "uid 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_who_asked_for_an_update_is_named_where_slurmctld_logs_it(case: str, tmp_path: Path) -> None:
    """And is whoever was allowed to: what somebody else asked for at the same time leaves it open."""
    one, other, drained, resumed = ASKED[case]
    lines = sorted((
        one, other, "10.003] update_node: node gx01 reason set to: bad cable", "10.004] update_node: node gx01 state set to DRAINED",
        "20.004] update_node: node gx01 state set to IDLE",
    ))  # fmt: skip
    log = "".join(f"[2026-11-20T08:00:{line}\n" for line in lines)
    with drains_store.build(tmp_path, {"controller/slurmctld.log": log}) as store:
        (found,) = drains_store.answer(store, LEDGER)
    assert (found[0], found[4]) == (drained, resumed)


@pytest.mark.parametrize("uid", ["nobody", "99999999999999999999", "[0]", ""])
def test_a_uid_that_is_no_number_ends_no_ledger(uid: str, tmp_path: Path) -> None:
    """A sender of records may give any line of slurmctld's an attribute of that name."""
    lines = (
        "10.003] update_node: node gx01 reason set to: bad cable",
        "10.004] update_node: node gx01 state set to DRAINED",
    )
    log = "".join(f"[2026-11-20T08:00:{line}\n" for line in lines)
    with drains_store.build(tmp_path, {"controller/slurmctld.log": log}) as store:
        with store.cursor() as connection:
            connection.execute(
                "UPDATE model.events SET entities = json_merge_patch(entities, json_object('uid', ?))", [uid]
            )
        (found,) = drains_store.answer(store, LEDGER)
    assert found[:2] == ["not logged by Slurm", "bad cable"]


def seen(store: DuckStore, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    with store.cursor() as connection:
        connection.execute("DELETE FROM model.node_states")
        for row in rows:
            values = {"cluster": "c", "host": "n1", "source": "poll", **row}
            marks = ", ".join("?" * len(values))
            connection.execute(
                f"INSERT INTO model.node_states ({', '.join(values)}) VALUES ({marks})", list(values.values())
            )
    found = store.rows('SELECT state, epoch(begin) b, epoch("end") e, reason FROM (SELECT "State" AS state, "Begin" AS begin, '
                       '"End" AS "end", "Reason" AS reason FROM kql."Drains") ORDER BY b')  # fmt: skip
    return [(r["state"], int(r["b"]), None if r["e"] is None else int(r["e"]), r["reason"]) for r in found]


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, tz=None).replace(tzinfo=None)


def test_sources_of_whole_seconds_do_not_cut_a_drain() -> None:
    """Polls and accounting round differently: the node is back when it stays back."""
    with open_store(None) as one:
        assert seen(one, {"time": at(100), "state": "drain", "reason": "x", "source": "sacctmgr_events"},
                    {"time": at(100), "state": "idle"}, {"time": at(101), "state": "drained", "reason": "x"},
                    {"time": at(160), "state": "idle"}) == [("drained", 100, 160, "x")]  # fmt: skip
        assert seen(one, {"time": at(10), "until": at(20), "state": "down"}, {"time": at(20), "state": "drain", "reason": "y"}) == [
            ("down", 10, 20, ""), ("drained", 20, None, "y"),
        ]  # fmt: skip
        assert seen(one, {"time": at(10), "state": "drained", "reason": "Node unexpectedly rebooted"},
                    {"time": at(30), "state": "drained", "reason": "Node unexpectedly re", "source": "sinfo"},
                    {"time": at(50), "state": "idle~"}) == [("drained", 10, 50, "Node unexpectedly rebooted")]  # fmt: skip
        assert seen(one, {"time": at(10), "state": "idle*"}, {"time": at(20), "state": "down+powered_down"}) == []


def test_of_two_states_of_one_moment_the_same_is_the_later_one_however_they_were_stored() -> None:
    """gres/gpu count too low: slurmctld sets the node INVAL and drains it at once, and both are in the store."""
    states = [
        {"time": at(100), "state": "drain", "source": "sacctmgr_events"},
        {"time": at(100), "state": "inval", "reason": "gres/gpu count reported lower than configured", "source": "sinfo"},
    ]  # fmt: skip
    with open_store(None) as one:
        seen(one, *({**state, "host": f"n{n}"} for n in range(40) for state in states[:: 1 if n % 2 else -1]))
        still = one.rows('SELECT DISTINCT "State" AS state FROM kql."Drains" WHERE "End" IS NULL')
        assert still == [{"state": "invalid"}]


def test_of_two_reasons_of_one_moment_the_same_is_the_later_one_however_they_were_stored() -> None:
    """Two collectors asked sinfo in the second in which somebody changed the reason."""
    rows = [
        {"time": at(100), "reason": "disk broken"},
        {"time": at(100), "reason": "gpu lost"},
        {"time": at(160), "reason": "gpu lost"},
    ]
    with open_store(None) as one:
        found = {
            tuple(seen(one, *({**row, "state": "drain", "source": "sinfo"} for row in some)))
            for some in permutations(rows)
        }
    assert found == {(("drained", 100, 100, "disk broken"), ("drained", 100, None, "gpu lost"))}


def test_jobs_that_waited_for_a_node_are_counted() -> None:
    """As squeue, scontrol and slurmrestd show it. A job may be seen often, and waits for other nodes as well."""
    squeue = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
    squeue += "                 {}       gpu    train    alice PD       0:00      2 (ReqNodeNotAvail, UnavailableNodes:gpu[01-02])\n"
    scontrol = "JobId=23 JobName=a\n   UserId=ann(1001) JobState=PENDING Reason=Resources ReqNodeList=gpu02 SubmitTime=2026-11-21T10:00:00\n"
    rest = {"jobs": [
        {"job_id": 24, "job_state": ["PENDING"], "state_reason": "ReqNodeNotAvail", "required_nodes": "",
         "state_description": "ReqNodeNotAvail, UnavailableNodes:gpu02", "submit_time": {"set": True, "number": 1795255200}, "cluster": "mini"},
        {"job_id": 25, "job_state": ["RUNNING"], "required_nodes": "gpu02", "nodes": "gpu02", "cluster": "mini"},
    ]}  # fmt: skip
    with open_store(None) as store:

        def shown(kind: str, text: str, minutes: float) -> None:
            store.add(
                documents.read(
                    kind, text.encode(), Origin(path=kind, cluster="mini", received=DAY + timedelta(minutes=minutes))
                ).tables
            )

        states = [
            {"time": DAY + timedelta(minutes=at), "cluster": "mini", "host": "gpu02", "state": state, "reason": "disk", "source": "scontrol"}
            for at, state in ((0, "idle"), (10, "idle+drain"), (60, "idle"))
        ]  # fmt: skip
        store.replace_model({"node_states": pl.DataFrame(states)})
        shown("squeue", squeue.format(21), 5)  # before it was drained
        for at in (20, 30):
            shown("squeue", squeue.format(22), at)
        shown("scontrol_jobs", scontrol, 40)
        shown("rest_jobs", json.dumps(rest), 50)
        shown("squeue", squeue.format(26), 70)  # it was back
        found = store.run_kql(Query("Drains | project Host, State, JobsWaiting")).rows
    assert found == [["gpu02", "drained", 3]]
