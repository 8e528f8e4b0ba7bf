"""The acting mode of the drain advisor, with a fake ``scontrol``: what it drains, what each guard refuses, and failures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa
from drain_site import HOSTS, KERNEL, NOON, SWITCH, USER, Site, cabled, line

from correlator.repairs.drain_candidates import candidates
from faultline.config import validate
from faultline.drains import acting
from faultline.drains.acting import CHECK_AGAIN, PENDING
from faultline.drains.record import Record
from faultline.drains.slurm_nodes import LONGEST_REASON, Scontrol, SlurmError, called, plain, read_nodes
from faultline.failure import CommandError
from faultline.service import Service
from queries import reports
from store.door import Door
from store.tables import DRAIN_DECISIONS
from tests.replaced_model import replace_model


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


def test_a_node_that_two_sources_tell_of_is_drained_once_and_recorded_with_its_evidence(site: Site) -> None:
    reason = site.drained()
    assert reason.startswith("faultline:I-n1 rdma0 has no carrier (")
    assert site.slurm.updates == [["update", "NodeName=n1", "State=DRAIN", f"Reason={reason}"]]
    site.round()
    assert len(site.slurm.updates) == 1
    assert site.steps == [("n1", "intended", ""), ("n1", "drained", "")]
    last = Record(site.store).steps(NOON + timedelta(hours=1))[-1]
    assert last.stamp == "slurm@2026-03-01T12:01:00"
    assert {(one["host"], one["authority"]) for one in json.loads(last.evidence)} == {("n1", KERNEL), ("leaf1", SWITCH)}
    section = reports.run(site.store, "drain-advice").section("decisions")
    assert [(row["host"], row["step"]) for row in section.tables[0].rows] == [("n1", "drained"), ("n1", "intended")]
    assert any("device of leaf1" in words for words in section.tables[0].rows[0]["evidence"])


@pytest.mark.parametrize("writers", [(KERNEL,), (KERNEL, USER)])
def test_what_a_user_can_write_is_no_second_authority(site: Site, writers: tuple[str, ...]) -> None:
    site.down("n1", writers=writers)
    site.round()
    site.round()
    assert site.steps == [("n1", "refused", "authorities")] and site.slurm.updates == []


def test_guards_about_the_node_and_its_evidence(site: Site) -> None:
    site.slurm.set("n1", "IDLE+DRAIN", reason="bad cable [dora@2026-03-01T11:00:00]")
    site.round()
    site.slurm.set("n1", "DOWN+NOT_RESPONDING")
    site.round()
    site.slurm.set("n1", "IDLE+POWERED_DOWN")
    site.round()
    site.slurm.set("n1")
    site.down("n1", incidents=False)
    site.round()
    site.down("n1", since=-120)
    site.round()
    (site.slurm.folder / "nodes" / "n1").unlink()
    site.round()
    assert [guard for _, _, guard in site.steps] == ["drained", "state", "incident", "freshness", "node"]
    assert site.slurm.updates == []


def test_lines_about_another_device_or_of_a_recovery_are_no_witnesses(site: Site) -> None:
    for host, event, device in (("leaf1", "switch.port_down", "Ethernet99"), ("leaf1", "switch.port_up", "Ethernet1")):
        site.down("n1", writers=(KERNEL,))
        events = [line("n1", "nic.link_down", "rdma0", -12, KERNEL, "I-n1"), line(host, event, device, -13, SWITCH, "I-n1"),
                  line("n12", "nic.link_up", "rdma0", 0, KERNEL, None)]  # fmt: skip
        replace_model(site.store, {"events": pl.DataFrame(events, infer_schema_length=None)})
        one = {found.host: found for found in candidates(site.store, "c")}["n1"]
        assert [(seen.host, seen.authority) for seen in one.witnesses] == [("n1", KERNEL)]


def test_a_clock_that_was_set_back_is_a_trouble_and_nothing_is_done(site: Site) -> None:
    site.drained()
    site.slurm.set("n1")
    assert "is the clock right?" in str(site.round(-10).trouble)
    assert [step for _, step, _ in site.steps] == ["intended", "drained"]


def test_a_storm_drains_nothing(site: Site) -> None:
    site.down(*HOSTS[:6])
    site.round()
    assert site.refused == dict.fromkeys(HOSTS[:6], "storm") and site.slurm.updates == []


def test_at_most_so_many_nodes_an_hour_also_by_another_service_and_after_a_restart(site: Site) -> None:
    site.down("n1", "n2")
    site.round()
    assert [update[1] for update in site.slurm.updates] == ["NodeName=n1", "NodeName=n2"]
    site.down("n1", "n2", "n3", since=-5)
    site.down("n3", since=-8)
    site.round()
    assert site.refused["n3"] == "rate"
    with site.store.write() as writer:  # a service with another store sees them in Slurm
        writer.change(sa.delete(DRAIN_DECISIONS))
    site.round()
    assert site.refused["n3"] == "rate" and len(site.slurm.updates) == 2


def test_a_share_of_the_cluster_is_a_limit_as_well(site: Site) -> None:
    site.settings |= {"share_per_hour": 0.1}  # of 12 nodes: one
    site.down("n1", "n2")
    site.round()
    assert site.refused == {"n1": "storm", "n2": "storm"}


def test_each_partition_keeps_its_floor(site: Site) -> None:
    for host in ("n1", "n2", "n3"):
        site.slurm.set(host, partitions="gpu,debug")
    site.settings |= {"floors": {"debug": 0.6}}
    site.down("n1", "n2")
    site.round()
    assert [update[1] for update in site.slurm.updates] == ["NodeName=n1"], "2 of 3 are left, 1 would be too few"
    assert site.refused == {"n2": "floor"}


@pytest.mark.parametrize("how", ["hang", "fail"])
def test_slurm_that_hangs_or_refuses_is_a_trouble_and_nothing_is_done(site: Site, how: str) -> None:
    site.program_s = 0.1
    site.slurm.behave(how)
    made = site.round()
    assert made.trouble is not None and ("no answer within" in made.trouble or "denied" in made.trouble)
    assert site.steps == [] and "nodes/n1" not in str(site.slurm.updates)
    site.slurm.behave(how, on=False)
    site.program_s = 5.0
    assert site.round().trouble is None and len(site.slurm.updates) == 1


def test_a_service_that_ended_between_decision_and_answer_finds_its_drain(site: Site) -> None:
    site.program_s = 0.2
    site.slurm.behave("silent")
    assert "was to be drained" in str(site.round().trouble)
    assert site.steps == [("n1", "intended", "")]
    site.slurm.behave("silent", on=False)
    site.program_s = 5.0
    site.round()
    assert len(site.slurm.updates) == 1 and site.steps[-1] == ("n1", "drained", "")


def test_what_slurm_never_did_is_given_up_and_asked_again_later(site: Site) -> None:
    site.drained()
    site.slurm.set("n1")
    with site.store.write() as writer:
        writer.change(sa.delete(DRAIN_DECISIONS).where(DRAIN_DECISIONS.c.step == "drained"))
    site.round()
    assert site.steps == [("n1", "intended", "")], "slurmctld may still do it"
    site.down("n1", since=8)
    site.round(PENDING.total_seconds() / 60)
    site.round()
    assert [step for _, step, _ in site.steps] == ["intended", "failed", "refused"]
    assert site.refused == {"n1": "slurm"} and len(site.slurm.updates) == 1


def test_a_person_who_writes_another_reason_has_taken_the_node_over(site: Site) -> None:
    site.drained()
    site.slurm.set("n1", "IDLE+DRAIN", reason="waiting for a cable [dora@2026-03-01T12:01:30]")
    site.check(0)
    site.down()
    for _ in range(3):
        site.round()
    assert site.steps[-1] == ("n1", "taken over", "") and len(site.slurm.updates) == 1


def test_the_same_words_by_a_person_are_the_persons(site: Site) -> None:
    reason = site.drained()
    site.slurm.set("n1", "IDLE+DRAIN", reason=f"{reason} [dora@2026-03-01T12:05:00]")
    site.check(0)
    site.down()
    site.round()
    assert site.steps[-1] == ("n1", "taken over", "") and len(site.slurm.updates) == 1


def test_a_node_that_a_person_gave_back_is_not_drained_again(site: Site) -> None:
    site.drained()
    site.slurm.set("n1")
    site.round()
    site.down("n1", since=1)
    site.round()
    assert site.steps[-2:] == [("n1", "undone", ""), ("n1", "refused", "people")] and len(site.slurm.updates) == 1


def test_a_drain_of_a_persons_that_somebody_ended_stands_against_the_same_lines(site: Site) -> None:
    """Not ours: the ledger has it. Only a fault after that drains the node, however long ago it was given back."""
    given_back = [
        {"cluster": "c", "host": host, "time": NOON + timedelta(minutes=minutes), "state": state, "source": "poll"}
        for host, minutes, state in [*((host, -540, "idle") for host in HOSTS), ("n1", -10, "drained"), ("n1", -3, "idle")]
    ]  # fmt: skip
    states = pl.DataFrame([{**row, "reason": "bad cable" if row["state"] == "drained" else None} for row in given_back])
    site.down("n1", since=-12)
    replace_model(site.store, {"node_states": states})
    site.round()
    step = Record(site.store).steps(NOON + timedelta(hours=1))[-1]
    assert (step.step, step.guard, site.slurm.updates) == ("refused", "people", [])
    assert step.detail == "resumed by somebody at 2026-03-01 11:57 UTC; new evidence would be needed"
    forged = [line("n1", event, "rdma0", -1, USER, None) for event in ("nic.link_down", "nic.module_event")]
    site.faults({"n1": (KERNEL, SWITCH)}, *forged)
    replace_model(site.store, {"node_states": states})
    site.round(minutes=6)
    assert (site.refused, site.slurm.updates) == ({"n1": "people"}, []), "anybody can write such lines"
    site.down("n1", since=-2)
    replace_model(site.store, {"node_states": states})
    site.round(minutes=6)
    assert site.drained().startswith("faultline:I-n1 rdma0")


def test_withdrawn_evidence_resumes_nothing_by_itself(site: Site) -> None:
    site.drained()
    site.down()
    site.round()
    site.round()
    assert site.steps[2:] == [("n1", "withdrawn", "")] and len(site.slurm.updates) == 1


def test_only_a_passed_check_gives_a_node_back(site: Site) -> None:
    site.drained()
    site.check(1)
    site.round()
    assert not (site.folder / "checked").exists(), "it is advised still"
    site.down()
    site.round()
    site.round()
    assert (site.folder / "checked").read_text() == "n1\n" and site.steps[-1] == ("n1", "check failed", "")
    site.check(0)
    site.round(CHECK_AGAIN.total_seconds() / 60)
    assert site.slurm.updates[-1] == ["update", "NodeName=n1", "State=RESUME"]
    assert site.steps[-2:] == [("n1", "resuming", ""), ("n1", "resumed", "")]
    site.round()
    assert len(site.slurm.updates) == 2


def test_a_node_that_is_down_besides_is_not_resumed(site: Site) -> None:
    site.drained()
    site.check(0)
    site.down()
    path = site.slurm.folder / "nodes" / "n1"
    path.write_text(path.read_text().replace("IDLE+DRAIN", "DOWN+DRAIN+NOT_RESPONDING"))
    site.round()
    assert site.steps[-1] == ("n1", "check failed", "") and len(site.slurm.updates) == 1


def test_a_drain_of_another_service_is_not_resumed(site: Site) -> None:
    site.slurm.set(
        "n1", "IDLE+DRAIN", reason="faultline:I-n1 rdma0 has no carrier (0123456789ab) [slurm@2026-03-01T11:59:00]"
    )
    site.check(0)
    site.round()
    site.down()
    site.round()
    assert site.refused == {"n1": "drained"} and site.slurm.updates == []


def test_the_bridge_is_told_the_same_decision_and_changes_none(site: Site) -> None:
    program = site.folder / "bridge"
    program.write_text(f'#!/bin/sh\ncat >>"{site.folder}/told"; echo >>"{site.folder}/told"; exit 1\n')
    program.chmod(0o755)
    site.settings |= {"bridge": (str(program),)}
    made = site.round()
    (told,) = (site.folder / "told").read_text().splitlines()
    assert {key: json.loads(told)[key] for key in ("node", "step", "incident")} == {
        "node": "n1",
        "step": "drained",
        "incident": "I-n1",
    }
    assert "bridge was not told" in str(made.trouble) and site.steps[-1] == ("n1", "drained", "")


def test_a_hostlist_is_no_node_and_a_reason_is_plain_text() -> None:
    control = Scontrol("false")
    for name in ("n[1-99]", "n1,n2", "ALL nodes", "-M", ""):
        with pytest.raises(SlurmError, match="not the name of one node"):
            control.drain(name, "x")
    said = plain("faultline:I-1 a\nb\x1b[1m 'c' \"d\" $(e) " + "x" * 300)
    assert said.startswith("faultline:I-1 a b 1m c d (e) xxx") and len(said) == LONGEST_REASON


def test_nodes_are_read_whatever_the_reason_says() -> None:
    text = ("NodeName=a Arch=x86_64 State=MIXED+DRAIN ThreadsPerCore=1 Partitions=p,q  CPUAlloc=0 "
            "Reason=say [why] State=IDLE [x@y] z [root@2026-03-01T12:00:00]\nNodeName=b State=IDLE* \n")  # fmt: skip
    found = read_nodes(text)
    assert (found["a"].state, found["a"].partitions) == ("MIXED+DRAIN", ("p", "q"))
    assert (found["a"].stamp, found["a"].set_at) == ("root@2026-03-01T12:00:00", "2026-03-01T12:00:00")
    assert not found["b"].serves and found["b"].reason == ""


def test_it_is_off_unless_the_site_turns_it_on(whole: Door, tmp_path: Path) -> None:
    assert not validate({}, "t").drain_advisor.acting
    with pytest.raises(CommandError, match="resume needs check"):
        validate({"drain_advisor": {"acting": True, "resume": True}}, "t")
    for is_on in (False, True):
        config = validate({"data": str(tmp_path), "drain_advisor": {"acting": is_on}}, "t")
        service = Service(config, whole)
        service.scheduler.start(paused=True)
        service.scheduler.start = lambda: None  # type: ignore[method-assign]
        service.start()
        names = [job.id for job in service.scheduler.get_jobs()]
        service.scheduler.shutdown(wait=False)
        assert ("draining nodes" in names) == is_on


def test_a_program_that_the_kernel_cannot_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in state D, on a dead NFS: it is killed, and nobody waits for it."""
    wait, limits = subprocess.Popen.wait, []

    def never(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        limits.append(timeout)
        if timeout is None:
            wait(self)
            pytest.fail("waited without a limit")
        raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", never)
    with pytest.raises(subprocess.TimeoutExpired):
        called([sys.executable, "-c", "input()\nimport time\ntime.sleep(60)"], 0.1, b"go\n")
    assert limits
