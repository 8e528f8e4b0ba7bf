"""Flaps on a fabric of several planes are routine: no incident of their own, unless they hurt or take down a whole NIC."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.edges import load as edge_files
from correlator.evidence.weigh import Weigher
from correlator.incidents.incident import Incident
from correlator.incidents.incidents import ROUTINE_S, gather
from correlator.verdicts.judge import judge
from tests.correlator.making import event, run, world
from tests.correlator.situations import down, slowed

EDGES = edge_files.load()[0]
PORTS = [
    {"host": f"n{n}", "device": f"rdma{p}", "switch": f"leaf-p{p}", "switch_port": f"swp{n}", "plane": str(p)}
    for n in (1, 2) for p in range(4)
]  # fmt: skip
MRC = {"NCCL_MRC_PLANES": "4"}


def incidents(
    events: list[Any], jobs: list[Any], environment: dict[str, dict[str, str]], **more: Any
) -> list[Incident]:
    # There is an event before the flaps: what begins with the logs may have begun long before.
    where = world([event("sys.service_started", -4000, "n1"), *events], jobs, links=PORTS, **more)
    where.site.job_settings.update(environment)
    weigher = Weigher(where, EDGES)
    return gather(where, weigher, judge(where, weigher))


def running(job: int = 1, nodes: tuple[str, ...] = ("n1", "n2"), state: str = "COMPLETED") -> Any:
    return run(job, nodes, -900, 3000, state)


@pytest.mark.parametrize(("devices", "until", "environment", "told"), [
    (("rdma1",), 3.0, {"1": MRC}, 0),
    (("rdma1",), 3.0, {}, 1),  # a run without information about planes may have waited: this did no harm
    (("rdma1",), 3.0, {"9": MRC}, 1),  # the runs of others spread, this one does not
    (("rdma1",), ROUTINE_S + 60, {"1": MRC}, 1),  # a port that stays down is reported
    (("rdma1",), None, {"1": MRC}, 1),
    (("eth0",), 3.0, {"1": MRC}, 0),  # a port without a cable
    (("rdma0", "rdma1"), 3.0, {"1": MRC}, 1),
    (("rdma0", "rdma1", "rdma2", "rdma3"), 3.0, {"1": MRC}, 1),
    (("rdma0", "rdma1", "rdma2", "rdma3"), 3.0, {}, 1),
])  # fmt: skip
def test_single_flaps_are_left_to_the_repair_list(devices: tuple[str, ...], until: float | None, environment: dict[str, dict[str, str]], told: int) -> None:  # fmt: skip
    events = [e for place, device in enumerate(devices) for e in down(place / 10, "n1", device, until)]
    found = incidents(events, [running()], environment)
    assert len(found) == told
    for incident in found:
        lost = {f.device for f in (incident.root, *incident.members) if f.kind == "link.outage"}
        assert lost == set(devices)
        assert incident.severity == ("degraded" if len(devices) == 4 else "benign")


def test_an_idle_node_of_such_a_fabric_shows_no_flap_either() -> None:
    assert incidents(down(0, "n1", "rdma1", 3.0), [running(nodes=("n2",))], {"1": MRC}) == []


def test_one_of_two_runs_on_the_node_that_may_have_waited_is_enough() -> None:
    assert len(incidents(down(0, "n1", "rdma1", 3.0), [running(1), running(2)], {"1": MRC})) == 1


def test_a_flap_while_a_run_lost_its_pace_is_reported() -> None:
    job = running()
    reported = down(0, "n1", "rdma1", 200.0)
    assert incidents(reported, [job], {"1": MRC}, **slowed(job, 2000.0)) == [], "the run slowed half an hour later"
    assert len(incidents(reported, [job], {"1": MRC}, **slowed(job, 910.0))) == 1


def test_ports_that_go_one_after_the_other_are_single_flaps() -> None:
    events = [
        e
        for place, device in enumerate(("rdma0", "rdma1", "rdma2"))
        for e in down(60.0 * place, "n1", device, 60.0 * place + 3)
    ]
    assert incidents(events, [running()], {"1": MRC}) == []
    assert len(incidents(events, [running()], {})) == 3


def test_the_same_port_again_belongs_to_the_incident_of_the_whole_nic() -> None:
    events = [
        e
        for again in (0.0, 100.0)
        for place in range(4)
        for e in down(again + place / 10, "n1", f"rdma{place}", again + 3)
    ]
    (found,) = incidents(events, [running()], {})
    assert len([f for f in (found.root, *found.members, *found.flaps) if f.kind == "link.outage"]) == 8
