"""What the drain advisor guards against besides: storms of nodes that it may not drain, users' words, checks that take long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from drain_site import HOSTS, KERNEL, NOON, SWITCH, USER, Site, cabled, line

from correlator.repairs.drain_candidates import candidates
from faultline import admin_comments
from faultline.config import DrainAdvisor, validate
from faultline.drains import acting
from faultline.drains.acting import DrainAdvising
from faultline.drains.slurm_nodes import Scontrol
from faultline.service import Service
from store.door import Door


@pytest.fixture(scope="module")
def whole() -> Iterator[Door]:
    with cabled() as store:
        yield store


@pytest.fixture
def site(whole: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(whole, tmp_path)
    monkeypatch.setattr(acting, "candidates", made.candidates)
    monkeypatch.setenv("PATH", f"{made.slurm.bin}:/usr/bin:/bin")
    return made


OTHERS = {
    "one source": ({"writers": (KERNEL,)}, True),
    "no incident of their own": ({"incident": False}, True),
    "drained by people": ({"state": "IDLE+DRAIN"}, True),
    "down": ({"state": "DOWN+NOT_RESPONDING"}, True),
    "users' lines only": ({"writers": (USER,)}, False),
}


@pytest.mark.parametrize(("others", "is_storm"), OTHERS.values(), ids=OTHERS)
def test_faulty_nodes_that_may_not_be_drained_make_a_storm_as_well(
    others: dict[str, Any], is_storm: bool, site: Site
) -> None:
    """Of six nodes with the fault, four are refused for another reason: the other two are not drained for that."""
    rest = HOSTS[2:6]
    told = {"n1": (KERNEL, SWITCH), "n2": (KERNEL, SWITCH)} | dict.fromkeys(
        rest, others.get("writers", (KERNEL, SWITCH))
    )
    site.faults(told, without_incident=() if others.get("incident", True) else rest)
    for host in rest:
        reason = "cables [dora@2026-03-01T11:00:00]" if "state" in others else ""
        site.slurm.set(host, others.get("state", "IDLE"), reason=reason)
    site.round()
    assert {site.refused.get(host) for host in ("n1", "n2")} == ({"storm"} if is_storm else {None})
    assert len(site.slurm.updates) == (0 if is_storm else 2)


def test_old_faults_of_other_nodes_are_no_storm(site: Site) -> None:
    old = [line(host, "nic.link_down", "rdma0", -500, KERNEL, None) for host in HOSTS[2:8]]
    site.faults({"n1": (KERNEL, SWITCH)}, *old)
    site.round()
    assert [update[1] for update in site.slurm.updates] == ["NodeName=n1"]


def test_that_a_link_is_down_now_is_no_users_word(site: Site) -> None:
    """It came back, as its kernel and its switch say. What a user writes then makes it down to the list, and to no guard."""
    back = [
        line("n1", "nic.link_up", "rdma0", -8, KERNEL, "I-n1"),
        line("leaf1", "switch.port_up", "Ethernet1", -8, SWITCH, "I-n1"),
    ]
    site.faults({"n1": (KERNEL, SWITCH)}, *back, line("n1", "nic.link_down", "rdma0", -6, USER, "I-n1"))
    (one,) = candidates(site.store, "c")
    assert one.down and len(one.witnesses) == 2
    site.round()
    assert site.refused == {"n1": "down"} and site.slurm.updates == []
    site.faults({"n1": (KERNEL, SWITCH)}, *back, line("n1", "nic.link_down", "rdma0", -6, KERNEL, "I-n1"))
    site.round()
    assert site.refused == {"n1": "down"}, "the switch says that it is up"
    again = [
        line("n1", "nic.link_down", "rdma0", -6, KERNEL, "I-n1"),
        line("leaf1", "switch.port_down", "Ethernet1", -6, SWITCH, "I-n1"),
    ]
    site.faults({"n1": (KERNEL, SWITCH)}, *back, *again)
    site.round()
    assert [update[1] for update in site.slurm.updates] == ["NodeName=n1"]


def test_checks_are_run_after_the_advice_was_followed_and_for_a_limited_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.settings |= {"nodes_per_hour": 9}
    site.down("n1", "n2")
    site.round()
    site.check(0)
    site.down("n3", since=-5)
    seen: list[tuple[str, int]] = []

    def check(argv: Sequence[str], *_: object, **__: object) -> tuple[int, str]:
        seen.append((argv[-1], len(site.slurm.updates)))
        return 1, "not yet"

    monkeypatch.setattr(acting, "called", check)
    monkeypatch.setattr(acting, "CHECKS_S", 0.0)
    site.round()
    assert seen == [] and len(site.slurm.updates) == 3, "n3 is drained, and there is no time for checks"
    monkeypatch.setattr(acting, "CHECKS_S", 60.0)
    site.down("n3", "n4", since=-5)
    site.round()
    assert seen == [("n1", 4), ("n2", 4)]


def test_a_service_that_ends_waits_for_no_program_and_takes_nothing_for_a_failed_check(site: Site) -> None:
    site.drained()
    program, begun, ended = site.folder / "slow", site.folder / "begun", threading.Event()
    program.write_text(f"#!/bin/sh\ntouch {begun}\nsleep 60\n")
    program.chmod(0o755)
    site.settings |= {"resume": True, "check": (str(program),)}
    site.down()
    now = NOON + timedelta(minutes=2)
    settings = DrainAdvisor(acting=True, **site.settings)
    made = DrainAdvising(site.store, settings, None, Scontrol("scontrol", ended=ended), lambda: now, ended=ended)

    def end() -> None:
        while not begun.exists():
            time.sleep(0.01)
        ended.set()

    ending = threading.Thread(target=end)
    ending.start()
    made.round()
    ending.join()
    assert [step for _, step, _ in site.steps] == ["intended", "drained", "withdrawn"]
    made.round()
    assert "the service ends" in str(made.trouble) and len(site.slurm.updates) == 1


def test_the_service_ends_the_programs_that_its_jobs_wait_for(whole: Door, tmp_path: Path) -> None:
    service = Service(validate({"data": str(tmp_path)}, "t"), whole)
    service.scheduler.start(paused=True)
    assert service.stop() and service.drains.ended.is_set()
    with pytest.raises(admin_comments.SlurmError, match="the service ends"):
        service.comments.slurm.records([1])
