"""Causes that many nodes share, with and without a source that names them; and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.clocks.clocks import offsets
from correlator.clocks.offset import Offset
from correlator.evidence.weigh import Weigher
from correlator.facts.world import World
from correlator.incidents.documents import incident_document, verdict_document
from correlator.incidents.incidents import gather
from tests.correlator.making import T0, event, facts, run, world
from tests.correlator.situations import (
    EDGES,
    LINKS,
    down,
    judged,
    lost_peers,
    node_fail,
    one,
    out,
    rebooted,
    said,
    set_down,
    slowed,
)

MANY = [f"g{i:02d}" for i in range(16)]


def lost_together(at: float = 0.0, *, device: str = "eth0", hosts: list[str] = MANY, until: float = 900) -> list[Any]:
    return [e for i, host in enumerate(hosts) for e in down(at + 0.1 * i, host, device, until + 0.1 * i)]


def boots(at: float, hosts: list[str] = MANY) -> list[Any]:
    return [event("kernel.boot", at + 0.5 * i, host, "Linux version 6.1") for i, host in enumerate(hosts)]


# -- links that go together ---------------------------------------------------------------------------------------------
def test_sixteen_nodes_that_lose_one_interface_have_one_cause_without_a_name() -> None:
    """No inventory, no topology, no switch log: what they share broke, and the page says what would name it."""
    jobs = [run(i, [host], -900, 350, "NODE_FAIL") for i, host in enumerate(MANY, 1)]
    reported = [*set_down(350, *MANY), *(e for i, host in enumerate(MANY, 1) for e in node_fail(350, i, host))]
    where = world([*lost_together(), *reported], jobs)
    weigher = Weigher(where, EDGES)
    verdicts = judged(where)
    assert {said(v) for v in verdicts.values()} == {("infra.network", "switch.outage", None)}
    assert all(v.confidence < 0.95 for v in verdicts.values())
    (incident,) = gather(where, weigher, list(verdicts.values()))
    document = incident_document(where, weigher, incident)
    assert document["root_cause"] == {"event": "switch.failure", "code": None, "host": None, "device": None}
    assert document["hosts"] == MANY and len(document["jobs"]) == 16
    assert "no source names it" in document["title"] and "None" not in document["title"]
    shown = verdict_document(where, weigher, incident.verdicts[0], incident)
    assert any("links.csv" in doubt for doubt in shown["doubts"])


def test_three_nodes_are_three_links() -> None:
    where = world(
        [*lost_together(hosts=MANY[:3]), *set_down(350, "g00"), *node_fail(350, host="g00")],
        [one(350, "NODE_FAIL", ("g00",))],
    )
    assert not facts(where, "switch.outage")
    assert said(judged(where)["1"]) == ("infra.network", "link.outage", "g00")


def test_links_that_go_with_their_machines_are_the_machines() -> None:
    """Orderly reboots of empty nodes: slurmd ends first. No switch failed, and no machine lost power."""
    stops = [event("slurm.daemon_stop", -5, host, "Slurmd shutdown completing", source="slurmd") for host in MANY]
    where = world([*stops, *lost_together(), *boots(200)], spoke=lambda host: [T0 - 5, T0 + 200])
    assert not facts(where, "switch.outage") and not facts(where, "power.outage")


def test_a_clock_that_is_off_shows_the_same_outage_by_how_long_it_lasted() -> None:
    late = [e for host, off in (("n4", 61.0), ("n5", -140.0)) for e in down(off, host, "eth0", 720.0 + off)]
    lines = [
        *lost_together(hosts=["n1", "n2", "n3"], until=720.0),
        *late,
        *set_down(350, "n4"),
        *node_fail(350, host="n4"),
    ]
    where = world(lines, [one(350, "NODE_FAIL", ("n4",))], links=LINKS)
    (switch,) = facts(where, "switch.outage")
    assert switch.attrs["hosts"] == ["n1", "n2", "n3", "n4", "n5"]
    assert said(judged(where)["1"]) == ("infra.network", "switch.outage", "tor")


def test_short_flaps_last_as_long_as_each_other_anyway() -> None:
    late = [e for host, off in (("n4", 61.0), ("n5", -140.0)) for e in down(off, host, "eth0", 3.0 + off)]
    (switch,) = facts(world([*lost_together(hosts=["n1", "n2", "n3"], until=3.0), *late], links=LINKS), "switch.outage")
    assert switch.attrs["hosts"] == ["n1", "n2", "n3"]


def test_all_rails_of_a_leaf_are_one_cause() -> None:
    """One switch carries four rails of each node; other nodes' links lost at the same moment are unrelated."""
    rails = [
        e
        for k in range(4)
        for e in lost_together(0.2 * k, device=f"rdma{k}", hosts=[h for i, h in enumerate(MANY[:8]) if i != k])
    ]
    where = world([*rails, *lost_together(1.0, device="eth0", hosts=MANY[8:13])])
    found = {tuple(f.attrs["hosts"]): f.attrs["behind"] for f in facts(where, "switch.outage")}
    assert found == {tuple(MANY[:8]): "rdma[0-3]", tuple(MANY[8:13]): "eth0"}


# -- machines that go together ------------------------------------------------------------------------------------------
def test_machines_that_went_in_one_moment_lost_power() -> None:
    jobs = [run(1, ["g01"], -900, 350, "NODE_FAIL"), run(2, ["g07"], -900, 350, "NODE_FAIL")]
    reported = [*set_down(350, *MANY[:8]), *node_fail(350, 1, "g01"), *node_fail(350, 2, "g07")]
    lines = [*reported, *(rebooted(600 + 7 * i, host, last_response=-30 + i) for i, host in enumerate(MANY[:8]))]
    where = world(lines, jobs, spoke=lambda host: [T0 - 15, T0 + 590])
    verdicts = judged(where)
    assert {said(v) for v in verdicts.values()} == {("infra.node", "power.outage", None)}
    (incident,) = gather(where, Weigher(where, EDGES), list(verdicts.values()))
    assert incident_document(where, Weigher(where, EDGES), incident)["root_cause"]["event"] == "node.power"


def test_machines_that_went_one_after_the_other_did_not_share_it() -> None:
    words = {host: [T0 + 120.0 * i] for i, host in enumerate(MANY[:6])}
    where = world(
        [rebooted(120.0 * i + 90, host, last_response=120.0 * i - 5) for i, host in enumerate(MANY[:6])],
        spoke=lambda host: words.get(host, []),
    )
    assert not facts(where, "power.outage")


def test_a_node_that_was_back_before_the_others_lost_power_had_gone_for_another_reason() -> None:
    """Its slurmd had been stopped; it returned to service, and lost power with the rest a quarter of an hour later."""
    stop = event("slurm.daemon_stop", -700, "g01", "Slurmd shutdown completing", source="slurmd")
    back = event("slurm.node_up", -150, "ctl", "node g01 returned to service", source="slurmctld", nodes=["g01"])
    start = event("slurm.daemon_start", -155, "g01", "slurmd version 24.05.4 started", source="slurmd")
    lines = [stop, *set_down(-300, "g01"), *node_fail(-300, 1, "g01"), start, back]
    lines += [rebooted(600 + 7 * i, host, last_response=-30 + i) for i, host in enumerate(MANY[:6])]
    where = world(lines, [run(1, ["g01"], -1500, -300, "NODE_FAIL")], spoke=lambda host: [T0 - 160, T0 - 15, T0 + 590])
    (power,) = facts(where, "power.outage")
    assert power.start > T0 - 60 and "g01" in power.attrs["hosts"]
    assert said(judged(where)["1"]) == ("infra.scheduler", "slurmd.stop", "g01")


def test_a_switch_whose_nodes_lost_power_is_not_blamed() -> None:
    ports = [
        event("switch.port_down", 0.1 * i, "tor", f"Ethernet{i} down", source="switch", port=f"Ethernet{i}")
        for i in range(1, 6)
    ]
    lines = [*ports, *boots(600, [f"n{i}" for i in range(1, 6)]), *set_down(350, "n1"), *node_fail(350)]
    where = world(lines, [one(350, "NODE_FAIL")], links=LINKS, spoke=lambda host: [T0 - 15, T0 + 600])
    assert said(judged(where)["1"]) == ("infra.node", "power.outage", None)


# -- the controller -----------------------------------------------------------------------------------------------------
def test_who_is_cut_off_may_be_the_controller() -> None:
    """All nodes fall silent, and none of them lost anything."""
    lines = [*down(0, "ctl", "eth0", 900), *set_down(350, *MANY), *node_fail(350, host="g00")]
    where = world(lines, [one(350, "NODE_FAIL", ("g00",))])
    assert not facts(where, "switch.silent")
    assert said(judged(where)["1"]) == ("infra.network", "link.outage", "ctl")


# -- het components, batches, signals -----------------------------------------------------------------------------------
def test_a_part_of_a_heterogeneous_job_ends_with_another_parts_node() -> None:
    killed = [
        event("slurm.job_node_fail", 349.99, "ctl", f"Killing JobId=1+{part}({part + 1}) on failed node n2", source="slurmctld", job_id=part + 1, nodes=["n2"])
        for part in (0, 1)
    ]  # fmt: skip
    jobs = [run(1, ["n1"], -900, 350, "NODE_FAIL"), run(2, ["n2"], -900, 350, "NODE_FAIL")]
    found = judged(world([*down(0, "n2", "eth0", 900), *killed, *set_down(350, "n2")], jobs))
    assert {said(v) for v in found.values()} == {("infra.network", "link.outage", "n2")}


def test_all_tasks_killed_beside_a_flap() -> None:
    """A signal from outside, to every rank at once, is no lost rail; a rank that gave up first would be."""
    killed = [
        e for i in (1, 2) for e in out(3, "job.exit_error", f"srun: error: n{i}: task {i}: Killed", nodes=[f"n{i}"])
    ]
    where = world([*down(0, "n1", "ib0", 60), *killed], [one(40)])
    verdict = judged(where)["1"]
    assert said(verdict) == ("unknown", None, None) and "who sent it" in verdict.reason
    gave_up = out(3, "job.exit_error", "srun: error: n2: task 2: Aborted (core dumped)", nodes=["n2"])
    assert said(judged(world([*down(0, "n1", "ib0", 60), *gave_up], [one(40)]))["1"]) == (
        "infra.network",
        "link.outage",
        "n1",
    )


def test_a_link_that_was_back_at_once_where_no_retries_are_known() -> None:
    closed = out(2, "job.nccl_error", "NCCL WARN socketProgress: Connection closed by remote peer n2<50000>")
    assert said(judged(world([*down(0, "n1", "ib0", 1.5), *closed], [one(3)]))["1"])[0] == "unknown"
    assert said(judged(world([*down(0, "n1", "ib0", 1.5), *lost_peers(2)], [one(3)]))["1"]) == (
        "infra.network",
        "link.outage",
        "n1",
    )


@pytest.mark.parametrize(("line", "expected"), [("Requeuing JobId=1", "user.cancel"), ("requeue job JobId=1 due to launch failure", "unknown")])  # fmt: skip
def test_a_requeue_that_somebody_asked_for(line: str, expected: str) -> None:
    reported = [event("slurm.job_requeue", 1, "ctl", line, source="slurmctld", job_id=1)]
    assert said(judged(world(reported, [one(0, "REQUEUED")]))["1"])[0] == expected


def test_a_slurmd_that_is_started_anew_is_everydays_work() -> None:
    again = [event("slurm.daemon_stop", 0, "n1", "Slurmd shutdown completing", source="slurmd"),
             event("slurm.daemon_start", 4, "n1", "slurmd version 24.05 started", source="slurmd")]  # fmt: skip
    where = world(again, [one(900, "COMPLETED")])
    assert gather(where, Weigher(where, EDGES), []) == []


# -- slow runs, unseen runs ---------------------------------------------------------------------------------------------
def test_a_straggler_that_nothing_explains_is_reported_with_doubt() -> None:
    job = one(1600, "TIMEOUT", time_limit_s=3600)
    slow, steady = (judged(world([], [job], **slowed(job, onset)))["1"] for onset in (1500.0, 99999.0))
    assert said(slow)[0] == said(steady)[0] == "app.timeout"
    assert slow.confidence < 0.6 < 0.9 < steady.confidence
    assert "times slower" in slow.reason


def test_a_run_that_ended_before_the_first_line_of_anything() -> None:
    """A dump has runs of yesterday: their end does not mark a node as broken, and nothing about them is certain."""
    yesterday = run(7, ["n1"], -90000, -86400, "NODE_FAIL")
    failed = run(8, ["n1"], -90000, -86400, "FAILED")
    where = world([event("sys.service_started", 0, "n1", "chronyd", source="syslog")], [yesterday, failed])
    verdicts = judged(where)
    assert said(verdicts["7"]) == ("unknown", None, None)
    assert verdicts["8"].confidence < 0.6
    assert gather(where, Weigher(where, EDGES), list(verdicts.values())) == []


# -- clocks -------------------------------------------------------------------------------------------------------------
def launches(host: str, delays: list[float], first_job: int = 1) -> list[Any]:
    return [
        e for i, delay in enumerate(delays, first_job) for e in (
            event("slurm.job_start", 1000.0 * i, "ctl", "Allocate", source="slurmctld", job_id=i, nodes=[host]),
            event("slurm.step_start", 1000.0 * i + delay, host, f"Launching batch job {i} for UID 1", source="slurmd", job_id=i),
        )
    ]  # fmt: skip


@pytest.mark.parametrize(("delays", "off"), [([90.4, 90.9, 91.2], 91.0), ([90.4, 97.0, 84.0], None), ([90.4, 90.9], None)])  # fmt: skip
def test_launches_that_are_late_by_the_same_each_time_show_a_clock_ahead(
    delays: list[float], off: float | None
) -> None:
    others = [e for k, host in enumerate(("n2", "n3", "n4")) for e in launches(host, [0.5, 0.6], 100 + 10 * k)]
    found = offsets(sorted([*launches("n1", delays), *others], key=lambda e: e.time))
    assert [(o.host, o.seconds) for o in found] == ([("n1", off)] if off else [])


def test_what_a_host_wrote_last_is_reported_in_true_time() -> None:
    off = Offset("n1", float("-inf"), float("inf"), 90.0, 3.0, "2 launches agree on it")
    where = world([], spoke=lambda host: [T0 + 90.0, T0 + 190.0], clocks=[off])
    assert list(where.spoke_at("n1")) == [T0, T0 + 100.0] and list(where.spoke_at("n2")) == [T0 + 90.0, T0 + 190.0]


# -- switches that topology.conf alone names ------------------------------------------------------------------------------
TREE = [{"kind": "node", "switch": "ibleaf", "child": host} for host in MANY]


def under_tree(device: str, links: list[dict[str, str]]) -> World:
    jobs = [run(i, [host, "other"], -900, 62 if device == "ib0" else 350, "FAILED" if device == "ib0" else "NODE_FAIL") for i, host in enumerate(MANY, 1)]  # fmt: skip
    reported = [*set_down(350, *MANY), *(e for i, host in enumerate(MANY, 1) for e in node_fail(350, i, host))]
    lost = [e for i in range(1, 17) for e in lost_peers(60, job=i)] if device == "ib0" else reported
    return world([*lost_together(device=device), *lost], jobs, links=links, topology=TREE)


@pytest.mark.parametrize(("device", "links", "host"), [
    ("ib0", [], "ibleaf"), ("eth0", [], "ibleaf"),  # nothing contradicts it, and the page says that nothing else supports it
    ("eth0", [{"host": h, "device": "ib0", "switch": "ibleaf", "switch_port": h} for h in MANY], None),
    ("eth0", [{"host": h, "device": "eth0", "switch": "ibleaf", "switch_port": h} for h in MANY], "ibleaf"),
])  # fmt: skip
def test_the_tree_that_jobs_are_placed_by_need_not_be_the_network_that_was_lost(device: str, links: list[dict[str, str]], host: str | None) -> None:  # fmt: skip
    verdicts = judged(under_tree(device, links))
    assert {said(v) for v in verdicts.values()} == {("infra.network", "switch.outage", host)}
    doubted = {any("topology.conf names" in d for d in v.doubts) for v in verdicts.values()}
    assert doubted == {host is not None and not links}


def test_a_leaf_of_the_fabric_did_not_silence_its_nodes() -> None:
    fabric = [{"host": h, "device": "ib0", "switch": "ibleaf", "switch_port": h} for h in MANY]
    jobs = [run(i, [host], -900, 350, "NODE_FAIL") for i, host in enumerate(MANY, 1)]
    reported = [*set_down(350, *MANY), *(e for i, host in enumerate(MANY, 1) for e in node_fail(350, i, host))]
    for links, host in (([], "ibleaf"), (fabric, None)):
        tree = [*TREE, {"kind": "node", "switch": "leaf2", "child": "h1"}]
        where = world(reported, jobs, links=links, topology=tree)
        assert {said(v) for v in judged(where).values()} == {("infra.network", "switch.silent", host)}
