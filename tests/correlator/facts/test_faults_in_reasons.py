"""Xids in the reasons of drains: one that the node's kernel logged is no further fault, of whichever GPU it was."""

from __future__ import annotations

import pytest

from correlator.facts.registry import title_of
from correlator.facts.world import World
from correlator.model.nouns import Event
from tests.correlator.making import event, facts, world

KNOWN = event("gpu.xid", 0.0, "n2", "NVRM: Xid (PCI:0000:9b:00): 95, pid=7, name=a", pci="0000:9b:00", xid=95)


def drained(reason: str, at: float = 40.0, host: str = "n2") -> Event:
    return event("slurm.node_reason", at, "ctl", "update_node", source="slurmctld", nodes=[host], reason=reason)


def seen(*events: Event, logged: tuple[str, ...] = ("n2",)) -> World:
    return world(events, reporting_hosts=frozenset(logged))


@pytest.mark.parametrize("reason", ["XID 95: ticket 4711", "NHC: check_gpu: Xid=95", "[HC] gpu xid:95"])
def test_a_reason_about_a_logged_fault_is_no_further_one(reason: str) -> None:
    assert len(facts(seen(KNOWN, drained(reason)), "gpu.xid")) == 1


def test_of_several_codes_at_once_a_reason_may_name_any() -> None:
    recovery = event("gpu.xid", 0.5, "n2", "NVRM: Xid (PCI:0000:9b:00): 154, pid=7", pci="0000:9b:00", xid=154)
    assert len(facts(seen(KNOWN, recovery, drained("xid 154")), "gpu.xid")) == 1


@pytest.mark.parametrize(
    "other",
    [
        drained("NHC: check_gpu: Xid=79"),
        drained("GPU 0000:3b:00.0 is lost"),
        drained("NHC: check_gpu: Xid=95", at=4000.0),
        drained("NHC: check_gpu: Xid=95", host="n3"),
    ],
    ids=["another code", "another bus", "long after", "another node"],
)  # fmt: skip
def test_a_reason_about_another_fault_is_one(other: Event) -> None:
    assert len(facts(seen(KNOWN, other), "gpu.xid")) == 2


def test_a_persons_reason_is_about_an_older_fault_if_the_kernels_log_has_none() -> None:
    assert not facts(seen(drained("Xid 95, RMA")), "gpu.xid")
    assert len(facts(seen(drained("Xid 95, RMA"), logged=("n1",)), "gpu.xid")) == 1
    assert len(facts(seen(drained("NHC: check_gpu: Xid=95")), "gpu.xid")) == 1


def test_a_fault_without_a_device_is_called_a_gpu() -> None:
    (fact,) = facts(seen(drained("Xid 95"), logged=("n1",)), "gpu.xid")
    assert title_of(fact) == "a GPU of n2 reported Xid 95"


def test_errors_of_an_unnamed_bus_are_those_of_a_bus() -> None:
    lines = [event("pcie.aer", at * 1.0, "n2", "PCIe Bus Error: severity=Uncorrected (Fatal)") for at in range(3)]
    (fact,) = facts(world(lines), "pcie.aer")
    assert title_of(fact) == "a bus of n2 reported errors"
