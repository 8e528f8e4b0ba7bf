"""The drain advisor on a real Slurm: what scontrol accepts and prints, and whose drain it then is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from correlator.repairs.drain_candidates import Candidate, Witness
from faultline.config import DrainAdvisor
from faultline.drains import acting, record
from faultline.drains.acting import DrainAdvising
from faultline.drains.slurm_nodes import Scontrol, SlurmError
from store import open_store
from test_live_cluster import HERE, REASON, alone, cluster

pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.skipif(REASON is not None, reason=REASON or "")]


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """``scontrol`` on the controller of two nodes."""
    program = tmp_path_factory.mktemp("bin") / "scontrol"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "cluster.py"}" run $AS ctl env TZ=UTC scontrol "$@"\n'
    )
    program.chmod(0o755)
    with alone():
        try:
            cluster("up", "--nodes", "2")
            yield program
        finally:
            cluster("down")


def test_it_drains_once_respects_people_and_resumes_its_own(
    scontrol: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Scontrol(str(scontrol), 60)
    assert set(slurm.all()) == {"gpu01", "gpu02"} and all(node.serves for node in slurm.all().values())
    now = datetime(2026, 3, 1)  # only steps and lines are compared with it
    told = tuple(
        Witness(h, a, now, 1, "nic.link_down", "e", "down") for h, a in (("gpu01", "kernel"), ("leaf01", "device"))
    )
    advised = [Candidate(None, "gpu01", "hsn0", "Reseat it.", True, "I-1", False, told, states=told)]
    monkeypatch.setattr(acting, "candidates", lambda store, cluster: advised)
    settings = DrainAdvisor(acting=True, floor=0.5, fresh_minutes=60, resume=True, check=("true",))
    with open_store(tmp_path) as store:
        step = iter(range(100))

        def round_() -> str:
            made = DrainAdvising(store, settings, None, slurm, lambda: now + timedelta(seconds=next(step)))
            made.round()
            assert made.trouble is None
            return record.Record(store).steps(now)[-1].step

        assert round_() == "drained" and round_() == "drained"
        drained = slurm.one("gpu01")
        assert drained.read.is_draining and drained.reason.startswith("faultline:I-1 hsn0 has no carrier (")
        assert slurm.one("gpu02").serves and drained.partitions
        advised.clear()
        assert round_() == "resumed" and not slurm.one("gpu01").read.is_draining  # not responding, until the next ping
        cluster("run", "ctl", "scontrol", "update", "NodeName=gpu02", "State=DRAIN", "Reason=bad cable [A] State=IDLE")
        advised.append(Candidate(None, "gpu02", "hsn0", "Reseat it.", True, "I-1", False, told, states=told))
        assert round_() == "refused" and record.Record(store).steps(now)[-1].guard == "drained"
        assert slurm.one("gpu02").reason == "bad cable [A] State=IDLE"


def test_slurm_refuses_who_may_not(scontrol: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AS", "--user alice")
    slurm = Scontrol(str(scontrol), 60)
    with pytest.raises(SlurmError, match=r"denied|permission|Invalid user"):
        slurm.drain("gpu01", "faultline:I-1")
    with pytest.raises(SlurmError):
        slurm.one("gpu99")
