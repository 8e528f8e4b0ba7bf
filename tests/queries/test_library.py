"""Every saved query has its header, and gives the true answer on real captures."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from library_store import NOW, build

from collector.ingest import Ingest, Options
from correlator.engine import correlate
from parsers.job_states import JOB_STATES, Phase, in_phase
from parsers.record import frame
from queries import saved
from queries.dashboards import all_dashboards
from queries.kql import Query
from store import open_store
from store.door import Door
from tests.line_parser import line_parser

#: name -> (captures, parameters, a subset of a row that must be in the answer, minimum number of rows). No captures:
#: the night of one cluster and the synthetic additions. The contents of the rows are from each capture's truth.json,
#: from sacct, or from the lines of library_store.
EXPECTED: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any], int]] = {
    "backfill": ((), {}, {"Scheduler": "backfill"}, 1),
    "blind_periods": ((), {}, {"Host": "gx01", "Silent": "00:19:40"}, 1),
    "common_messages": ((), {"most": 5}, {"Source": "job_stdout", "Shape": "gpu# rank# step #"}, 5),
    "communication_errors": (("munge_dies",), {}, {"Host": "gpu02"}, 1),
    "daemon_restarts": ((), {}, {"Host": "ctl", "Event": "slurm.daemon_start"}, 1),
    "disks_full": (("disk_full",), {}, {"Host": "", "Jobs": [2]}, 2),
    "drain_history": (("epilog_fails",), {}, {"Host": "gpu03", "Reason": "Epilog error", "StillSince": "2026-11-21T00:46:41.000000Z"}, 1),
    "drain_ledger": ((), {"host": "gpu02"}, {"State": "down", "Reason": "Not responding", "UndoneBy": "slurmctld"}, 1),
    "drains_now": (("epilog_fails",), {}, {"Host": "gpu03", "State": "drained", "Owner": "slurm"}, 1),
    "drains_repeated": ((), {}, {"Host": "gpu04", "Times": 2, "Reasons": ["Node unexpectedly rebooted", "Not responding"]}, 1),
    "errors_by_unit": (("munge_dies",), {}, {"Unit": "slurmd", "Hosts": 1}, 2),
    "errors_without_event": ((), {"most": 100}, {"Source": "slurmd", "Shape": "error: flux capacitor # is out of tune by #"}, 1),
    "fabric_errors": ((), {}, {"Event": "fabric.link_errors", "Events": 1}, 1),
    "failed_jobs_by_node": ((), {}, {"Host": "gpu02"}, 4),
    "failed_jobs_by_user": ((), {}, {"User": "alice", "Category": "infra.node"}, 3),
    "failed_jobs_explained": ((), {}, {"JobId": 15, "State": "NODE_FAIL", "Category": "infra.network", "NodeList": "gpu[01-02]"}, 10),
    "failures_by_category": ((), {}, {"Category": "infra.network"}, 4),
    "failures_unexplained": ((), {}, {}, 0),
    "flaps_by_switch": ((), {}, {"Switch": "leaf01", "Nodes": ["gx01"]}, 1),
    "gpu_errors": ((), {}, {"Host": "gx02", "Event": "gpu.xid", "Errors": 2, "Devices": ["0000:63:00"]}, 2),
    "gpu_hours_lost": ((), {}, {"RootCause": "nic.link_down", "RootHost": "gpu02"}, 1),
    "gpus_lost": ((), {}, {"Host": "gx01", "Device": "0000:53:00"}, 2),
    "hardware_errors": ((), {}, {"Host": "gx01", "Event": "kernel.mce", "Errors": 1}, 1),
    "incident_events": ((), {"incident": "gpu02 nic.link_down"}, {"Host": "gpu02", "Event": "nic.link_down", "Device": "eth0"}, 2),
    "incidents_by_day": ((), {}, {"Day": "2026-11-21T00:00:00.000000Z", "Category": "infra.network"}, 2),
    "incidents_by_root_cause": ((), {}, {"RootCause": "nic.link_down", "Category": "infra.network"}, 3),
    "incidents_recent": ((), {}, {"RootCause": "nic.link_down", "RootHost": "gpu02", "RootDevice": "eth0", "Jobs": ["15"]}, 3),
    "job_exit_codes": ((), {}, {"ExitCode": 3, "Names": ["exit3"]}, 3),
    "job_output_tail": ((), {"job": 15, "lines": 5}, {"Message": "slurmstepd-gpu01: error: *** JOB 15 ON gpu01 CANCELLED AT"}, 5),
    "job_story": ((), {"job": 15}, {"Host": "gpu02", "What": "nic.link_down"}, 5),
    "jobs_cancelled": ((), {}, {"User": "bob", "Jobs": 1, "Names": ["bystander"]}, 2),
    "jobs_pending": ((), {}, {"JobId": 901, "User": "carol", "Waits": "13:00:00"}, 1),
    "jobs_running": ((), {}, {"JobId": 900, "User": "carol", "NodeList": "gx[01-02]", "Running": "14:30:00"}, 1),
    "jobs_timed_out": ((), {}, {"JobId": 28, "User": "bob", "Name": "toolong", "Ran": "00:01:13"}, 1),
    "late_lines": ((), {"late": "10s"}, {"Host": "gpu02", "Source": "kernel"}, 1),
    "link_down_then_node_down": ((), {}, {"Host": "gpu02", "Device": "eth0"}, 1),
    "link_flaps_by_port": ((), {"least": 1}, {"Host": "gx01", "Device": "enp83s0f0np0", "Switch": "leaf01", "SwitchPort": "swp7", "Flaps": 1}, 3),
    "link_outages": ((), {}, {"Host": "gx01", "Device": "enp83s0f0np0", "Outage": "00:00:15"}, 2),
    "log_volume_by_host": ((), {}, {"Host": "gx02", "Lines": 2}, 5),
    "log_volume_by_source": ((), {}, {"Source": "slurmctld"}, 5),
    "memory_kills": ((), {}, {"Host": "gpu02", "Event": "kernel.oom_kill"}, 2),
    "metric_extremes": ((), {}, {"Host": "gx01", "Device": "1", "Highest": 88.0}, 2),
    "munge_failures": (("munge_dies",), {}, {"Host": "gpu02", "Source": "slurmd"}, 1),
    "nccl_errors": ((), {}, {"JobId": 25, "Hosts": "gpu03"}, 1),
    "network_instability": ((), {}, {"Host": "gx01", "Downs": 1}, 2),
    "node_downtime": ((), {}, {"Host": "gpu03", "Out": "00:02:47", "StillSince": None, "Reasons": ["Epilog error"]}, 2),
    "node_history": ((), {"host": "gpu02"}, {"What": "state down*", "Message": "Not responding"}, 10),
    "node_states_now": ((), {}, {"Host": "gpu01"}, 4),
    "nodes_down_history": ((), {}, {"Host": "gpu02", "State": "down*", "Reason": "Not responding"}, 2),
    "nodes_not_responding": ((), {}, {"Host": "gpu02", "Lost": 1, "Reasons": ["Not responding"]}, 2),
    "nodes_out_of_service": (("epilog_fails",), {}, {"State": "drained", "Reason": "Epilog error", "Nodes": "gpu03", "Count": 1}, 1),
    "prolog_epilog_failures": ((), {}, {"Host": "gpu03", "Source": "slurmd", "Jobs": [35]}, 2),
    "queue_waits": ((), {}, {"Partition": "gpu", "Median": "00:00:01"}, 1),
    "queue_waits_longest": ((), {"most": 3}, {"JobId": 900, "Waited": "00:30:00"}, 3),
    "reboots_and_panics": ((), {}, {"Event": "slurm.node_reboot"}, 1),
    "repeated_job_failures": ((), {}, {"User": "alice", "Name": "hit"}, 1),
    "requeued_jobs": ((), {}, {"JobId": 2, "Name": "hit", "Runs": 2, "States": ["NODE_FAIL", "COMPLETED"]}, 1),
    "resource_exhaustion": ((), {}, {"Host": "gpu02", "Event": "kernel.oom_kill"}, 2),
    "service_failures": ((), {}, {"Host": "gx01", "Sample": "nvidia-persistenced.service: Failed with result 'exit-code'."}, 1),
    "silent_hosts": ((), {}, {"Host": "gx01", "LastSeen": "2026-11-21T10:30:00.000000Z", "Silent": "13:30:00"}, 3),
    "slow_runs": ((), {"factor": 1.05}, {"User": "alice"}, 1),
    "slowest_nodes": ((), {}, {"Host": "gpu02"}, 4),
    "slurmd_errors_after_link_down": ((), {}, {"Host": "gpu04", "Device": "hsn0"}, 1),
    "storage_errors": ((), {}, {"Host": "gx01", "Event": "storage.nvme_error", "Events": 1}, 1),
    "usage_by_account": ((), {}, {"Account": "ml"}, 1),
    "usage_by_partition": ((), {}, {"Partition": "gpu", "Day": "2026-11-21T00:00:00.000000Z"}, 1),
    "usage_by_user": ((), {}, {"User": "bob", "Account": "ml"}, 2),
    "what_was_new": ((), {}, {"Host": "gx02", "Event": "gpu.xid", "Times": 2}, 10),
    "xid_by_node": ((), {}, {"Host": "gx02", "Xid": 31, "Errors": 1}, 3),
    "xid_codes": ((), {}, {"Xid": 79, "Errors": 2, "Nodes": "gx[01-02]"}, 2),
}  # fmt: skip
_STORES: dict[tuple[str, ...], Door] = {}


def store_of(names: tuple[str, ...]) -> Door:
    if names not in _STORES:
        _STORES[names] = build(*names)
    return _STORES[names]


def matches(row: dict[str, Any], part: dict[str, Any]) -> bool:
    """Texts may continue after the expected prefix."""
    return all(
        str(row[k]).startswith(v) if isinstance(v, str) and k in ("Message", "Sample") else row[k] == v
        for k, v in part.items()
    )


def test_there_are_forty_and_each_is_expected_something_of() -> None:
    assert len(saved.names()) >= 40
    assert set(EXPECTED) == set(saved.names())


@pytest.mark.parametrize("name", saved.names())
def test_a_saved_query_says_what_is_true(name: str) -> None:
    captures, parameters, part, least = EXPECTED[name]
    store = store_of(captures)
    if "incident" in parameters:
        host, event = parameters["incident"].split()
        (found, *_) = store.run_kql(
            Query(f'Incidents | where RootHost == "{host}" and RootCause == "{event}" | project IncidentId')
        ).rows
        parameters = {"incident": found[0]}
    result = store.run_kql(Query(saved.load(name).text, parameters=parameters, now=NOW))
    rows = [dict(zip([n for n, _ in result.columns], row, strict=True)) for row in result.rows]
    assert len(rows) >= least
    assert not part or any(matches(row, part) for row in rows), rows[:10]


@pytest.mark.parametrize("name", saved.names())
def test_a_saved_query_has_its_header(name: str) -> None:
    query = saved.load(name)
    assert (
        query.title
        and query.description
        and query.group != saved.SITE_GROUP
        and query.example.startswith(f"faultline query --saved {name}")
    )
    declared = re.search(r"declare query_parameters\((.*)\);", query.text)
    assert query.parameters == (declared[1] if declared else "none")


@pytest.fixture(scope="module")
def one_of_each(tmp_path_factory: pytest.TempPathFactory) -> Door:
    """A job in each of Slurm's states, with an end where the job is over; and each as a state of its own of a node."""
    folder = tmp_path_factory.mktemp("states") / "each"
    lines = ["JobID|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|NodeList|NNodes|AllocTRES|Cluster"]
    for number, (name, state) in enumerate(JOB_STATES.items(), 1):
        end = "Unknown" if state.phase in (Phase.WAITING, Phase.RUNNING) else "2026-11-21T11:00:00"
        start = "Unknown" if state.phase is Phase.WAITING else "2026-11-21T10:00:00"
        lines.append(
            f"{number}|{name}|{name}|ml|gpu|{name}|0:0|2026-11-21T09:00:00|{start}|{end}|n{number}|1|gres/gpu=8|each"
        )
    (folder / "accounting").mkdir(parents=True)
    (folder / "accounting" / "sacct.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    store = open_store(None)
    Ingest(store, Options(cluster="each"), parser=line_parser()).run([folder])
    correlate(store)
    return store


#: Saved query -> the column that names the job (here: its state), and the phases that the query lists.
BY_PHASE: dict[str, tuple[str, set[Phase]]] = {
    "failed_jobs_explained": ("State", {Phase.FAILED, Phase.STOPPED, Phase.REQUEUED}),
    "failures_unexplained": ("State", {Phase.FAILED, Phase.STOPPED, Phase.REQUEUED}),
    "failed_jobs_by_user": ("User", {Phase.FAILED}),
    "jobs_running": ("Name", {Phase.RUNNING, Phase.CLOSING}),
    "jobs_pending": ("Name", {Phase.WAITING}),
}


@pytest.mark.parametrize("name", BY_PHASE)
def test_a_saved_query_lists_the_states_that_it_means(name: str, one_of_each: Door) -> None:
    column, phases = BY_PHASE[name]
    result = one_of_each.run_kql(Query(saved.load(name).text, parameters={}, now=NOW))
    place = [n for n, _ in result.columns].index(column)
    wanted = in_phase(*phases)
    if name == "failures_unexplained":  # what a person or a limit ended is explained
        wanted &= {row[place] for row in result.rows}
        assert wanted
    assert {row[place] for row in result.rows} == wanted


def test_what_else_is_counted_by_state(one_of_each: Door) -> None:
    def rows(name: str, **parameters: Any) -> list[list[Any]]:
        return one_of_each.run_kql(Query(saved.load(name).text, parameters=parameters, now=NOW)).rows

    failed = in_phase(Phase.FAILED)
    numbers = {name: number for number, name in enumerate(JOB_STATES, 1)}
    assert {job for row in rows("failed_jobs_by_node") for job in row[3]} == {
        numbers[name] for name in failed - {"TIMEOUT", "DEADLINE"}
    }
    assert "time limits aside" in saved.load("failed_jobs_by_node").description
    assert {row[1] for row in rows("repeated_job_failures", least=1)} == failed - {"TIMEOUT", "DEADLINE"}
    assert {row[3] for row in rows("jobs_timed_out")} == {"TIMEOUT", "DEADLINE"}
    assert sum(row[1] for row in rows("failures_by_category")) == len(
        in_phase(Phase.FAILED, Phase.STOPPED, Phase.REQUEUED)
    )
    ((account, used, lost, jobs),) = rows("usage_by_account")
    over = in_phase(Phase.FAILED, Phase.STOPPED, Phase.REQUEUED, Phase.SUCCEEDED, Phase.CLOSING)
    assert (account, used, lost, jobs) == (
        "ml",
        8.0 * len(over),
        8.0 * len(failed - {"TIMEOUT", "DEADLINE"}),
        len(over),
    )
    (panel,) = [p for p in all_dashboards((), saved.library()[0])[0]["cluster-now"].panels if p.title == "Jobs"]
    assert one_of_each.run_kql(Query(panel.query, now=NOW)).rows == [[len(JOB_STATES), len(JOB_STATES), len(failed)]]


def polled(states: list[tuple[str, str]]) -> Door:
    """A store in which these nodes were seen in these states, a minute apart."""
    store = open_store(None)
    begin = NOW - timedelta(hours=1)
    rows = [
        {"time": begin + timedelta(minutes=n), "cluster": "each", "host": host, "state": state, "source": "sinfo"}
        for n, (host, state) in enumerate(states)
    ]
    line = {
        "time": begin,
        "cluster": "each",
        "host": "ctl",
        "message": "a line",
        "source": "system",
        "file": "syslog",
        "line": 1,
    }
    store.add({"node_states": frame("node_states", rows), "logs": frame("logs", [line])})
    correlate(store)
    return store


def test_node_states_are_read_in_each_notation() -> None:
    states = [
        ("a1", "down*"), ("a2", "IDLE+CLOUD+POWERED_DOWN"), ("a3", "IDLE+NOT_RESPONDING"), ("a4", "failg"), ("a5", "idle"),
        ("a6", "drng"), ("a7", "inval"), ("a8", "maint"), ("a9", "mixed"), ("b1", "idle~"),
    ]  # fmt: skip
    store = polled(states)
    panels = {p.title: p for p in all_dashboards((), saved.library()[0])[0]["cluster-now"].panels}
    out = store.run_kql(Query(panels["Nodes out of service"].query, now=NOW)).rows
    assert {row[0] for row in out} == {"a1", "a3", "a4", "a6", "a7", "a8"}
    assert store.run_kql(Query(panels["Nodes"].query, now=NOW)).rows == [[10, 6]]
    down = store.run_kql(Query(saved.load("nodes_down_history").text, now=NOW)).rows
    assert {row[1] for row in down} == {"a1", "a3", "a4", "a7"}


def test_a_node_that_comes_back_and_is_lost_again_is_lost_twice() -> None:
    store = polled(
        [("a1", s) for s in ("idle", "down*", "down*", "idle", "IDLE+NOT_RESPONDING", "idle")] + [("b1", "down")]
    )
    found = store.run_kql(Query(saved.load("nodes_not_responding").text, now=NOW)).rows
    assert [(row[1], row[2], row[3]) for row in found] == [("a1", 2, 3), ("b1", 1, 1)]


def test_a_failed_node_that_does_not_respond_is_counted() -> None:
    """Its kind is failed, which says more of it."""
    states = [
        ("a1", "fail*"), ("a2", "FAIL"), ("a3", "IDLE+FAIL+NOT_RESPONDING"), ("a4", "inval*"), ("a5", "inval"), ("a6", "idle"),
        ("a7", "failg*"), ("a8", "IDLE+FAIL+NO_RESPOND"),
    ]  # fmt: skip
    found = polled(states).run_kql(Query(saved.load("nodes_not_responding").text, now=NOW)).rows
    assert {row[1] for row in found} == {"a1", "a3", "a4", "a7", "a8"}


#: Panels of dashboards that have nothing to show of these clusters.
EMPTY = {
    "Nodes out of service", "GPUs slowed by heat", "Memory that needs a repair", "Utilisation", "Power by GPU",
}  # fmt: skip


def test_each_panel_of_a_shipped_dashboard_answers() -> None:
    store, silent = store_of(()), set()
    dashboards, _ = all_dashboards((), saved.library()[0])
    for panel in [panel for one in dashboards.values() for panel in one.panels]:
        text = saved.with_values(panel.query, {"since": "90d"} if "since" in panel.ranged else {})
        answer = store.run_kql(Query(text, now=NOW))
        assert answer.chart is not None or panel.chart in ("", "table")
        silent |= set() if answer.rows else {panel.title}
    assert silent == EMPTY


def test_an_unknown_one_is_not_found() -> None:
    with pytest.raises(KeyError):
        saved.load("../kql/run")
