"""Situations of real sites, from their logs, through parser, store and correlator.

Each truth was written before the correlator ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from correlator.conclusions import Conclusions
from correlator.engine import correlate
from correlator.selftest import run, situations
from parsers.record import frame
from store import open_store
from tests.correlator.situations import EDGES
from tests.line_parser import line_parser

Job = dict[str, Any]
ANY = "any of several"


@dataclass(frozen=True)
class Situation:
    """``lines``: "OFFSET HOST SOURCE: TEXT", as in tests of edges.

    ``true``: category, event and host of the verdict on the last of the jobs; ``not_told``: root causes that no
    incident may have.
    """

    name: str
    lines: tuple[str, ...]
    jobs: tuple[Job, ...]
    true: tuple[str, str | None, str | None]
    not_told: tuple[str, ...] = ()
    states: tuple[Mapping[str, Any], ...] = ()
    links: tuple[Mapping[str, str], ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)


def ended(state: str = "FAILED", end: str = "0s", nodes: str = "gpu[01-02]", start: str = "-1h", **more: Any) -> Job:
    code = {"exit_code": 1} if state == "FAILED" else {}
    return {"nodes": nodes, "start": start, "end": end, "state": state, **code, **more}


APP = ("app.error", None, None)
KEY_ERROR = "-1s {job} stderr: KeyError: 'train_loss'"
KILLED = "-1s ctl slurmctld: Killing JobId={job} on failed node gpu01"
NIC = "mlx5_core 0000:17:00.0 {}: Link {}"
LEAF = tuple({"host": f"gpu0{i}", "device": "eth0", "switch": "tor1", "port": f"swp{i}"} for i in range(1, 7))
BOOT = "Linux version 6.1.0-18-amd64 (builder@host) (gcc-12) #1 SMP"


def down(at: str, host: str, device: str, up: str | None = None) -> tuple[str, ...]:
    lost = f"{at} {host} kernel: {NIC.format(device, 'down')}"
    return (lost, f"{up} {host} kernel: {NIC.format(device, 'up')}") if up else (lost,)


def event_of(state: str, reason: str, actor: str, host: str = "gpu01", at: float = 0.0, source: str = "sacctmgr_events") -> Mapping[str, Any]:  # fmt: skip
    return {"time": situations.BEGINNING + timedelta(seconds=at), "host": host, "state": state, "reason": reason, "actor": actor, "source": source}  # fmt: skip


SITUATIONS = [
    Situation("an empty node that Slurm was asked to reboot", (
        "-900s ctl slurmctld: reboot request queued for nodes gpu03", "-880s ctl slurmctld: Issuing reboot request for nodes gpu03",
        f"-700s gpu03 kernel: {BOOT}", "-640s ctl slurmctld: Node gpu03 now responding", KEY_ERROR), (ended(),), APP, ("node.reboot",)),
    Situation("a cloud node that booted too late", (
        "-330s ctl slurmctld: POWER: power_save: waking nodes gpu01", f"-60s gpu01 kernel: {BOOT}",
        "0s ctl slurmctld: error: node gpu01 not resumed by ResumeTimeout(300), setting DOWN and POWERED_DOWN", KILLED),
        (ended("NODE_FAIL", start="-331s"),), ("infra.node", "node.unresponsive", "gpu01"), ("node.reboot",)),
    Situation("many cloud nodes that the provider had no room for", (
        "-330s ctl slurmctld: POWER: power_save: waking nodes gpu[01-06]",
        "0s ctl slurmctld: error: node gpu01 not resumed by ResumeTimeout(300), setting DOWN and POWERED_DOWN",
        *(f"0.001s ctl slurmctld: error: node gpu0{i} not resumed by ResumeTimeout(300), setting DOWN and POWERED_DOWN" for i in range(2, 7)), KILLED),
        (ended("NODE_FAIL", start="-331s", nodes="gpu[01-06]"),), ("infra.node", "node.unresponsive", "gpu01"), ("switch.failure",), links=LEAF),
    Situation("idle nodes that Slurm switches off together", (
        "-400s ctl slurmctld: POWER: power_save: suspending nodes gpu[01-06]",
        *(line for i in range(1, 7) for line in down(f"-37{i}.1s", f"gpu0{i}", "eth0")),
        *(f"-37{i}s tor1 switchd: swp{i}: link state changed to down" for i in range(1, 7)), KEY_ERROR),
        (ended(nodes="gpu08"),), APP, ("switch.failure", "nic.link_down", "node.power"), links=LEAF),
    Situation("idle nodes that Slurm switches off at once", (
        "-400s ctl slurmctld: POWER: power_save: suspending nodes gpu[01-06]",
        *(line for i in range(1, 7) for line in down(f"-370.{i}s", f"gpu0{i}", "eth0")), KEY_ERROR),
        (ended(nodes="gpu08"),), APP, ("switch.failure", "nic.link_down", "node.power"), links=LEAF),
    Situation("bus errors, then the GPU falls off", (
        *(f"-{40 - i}s gpu01 kernel: pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0" for i in range(3)),
        "-5s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
        "-1s {job} stderr: RuntimeError: CUDA error: unspecified launch failure"), (ended(),), ("infra.gpu", ANY, "gpu01")),
    Situation("a health check sets a node DOWN for a GPU that fell off", (
        "-60s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
        "-0.02s ctl slurmctld: update_node: node gpu01 reason set to: NHC: check_nv_gpu: GPU 0 lost",
        "-0.01s ctl slurmctld: Killing JobId={job} on failed node gpu01", "0s ctl slurmctld: update_node: node gpu01 state set to DOWN"),
        (ended("NODE_FAIL"),), ("infra.gpu", "gpu.xid", "gpu01")),
    Situation("an Xid of the program's own", (
        "-3s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 43, pid=4242, name=python, Ch 00000018",
        "-1s {job} stderr: RuntimeError: CUDA error: an illegal memory access was encountered"), (ended(),), APP),
    Situation("slurmd is upgraded under a run that fails later by itself", (
        "-600s gpu01 slurmd: Slurmd shutdown completing", "-580s gpu01 slurmd: slurmd version 24.05.3 started", KEY_ERROR), (ended(),), APP, ("slurm.slurmd_crash", "slurm.admin_action")),
    Situation("a storage target that was back, and an assertion later", (
        *(f"-{600 - i}s gpu0{i} kernel: Lustre: work-OST0017-osc-ffff: Connection to work-OST0017 (at 10.0.0.5@o2ib) was lost; in progress operations using this service will wait" for i in (1, 2)),
        *(f"-{560 - i}s gpu0{i} kernel: Lustre: work-OST0017-osc-ffff: Connection restored to 10.0.0.5@o2ib (at 10.0.0.5@o2ib)" for i in (1, 2)),
        "-1s {job} stderr: AssertionError: loss is nan"), (ended(),), APP),
    Situation("a drain because processes would not die, after the program's own end", (
        KEY_ERROR, "65s ctl slurmctld: error: slurmd error running JobId={job} on node(s)=gpu01: Kill task failed",
        "65s ctl slurmctld: drain_nodes: node gpu01 state set to DRAIN"), (ended(),), APP),
    Situation("a neighbour's contained memory error", (
        "-30s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 94, pid=777, name=other, Contained: SM (0x1). RST: No, D-RST: No", KEY_ERROR),
        (ended("FAILED", end="-28s", nodes="gpu01"), ended(nodes="gpu01")), APP),
    Situation("a row that was remapped", (
        "-60s gpu01 kernel: NVRM: Xid (PCI:0000:17:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
        KEY_ERROR), (ended(),), APP),
    Situation("a reboot that only accounting tells of", ("-3600s gpu02 kernel: EDAC MC: Ver: 3.0.0",), (ended("NODE_FAIL"),),
              ("infra.node", "node.reboot", "gpu01"), states=(event_of("down", "Node unexpectedly rebooted", "slurm(64030)"),)),
    Situation("a node set DOWN by hand, as accounting tells", ("-3600s gpu01 kernel: EDAC MC: Ver: 3.0.0",), (ended("NODE_FAIL"),),
              ("infra.scheduler", "slurm.admin_action", "gpu01"), states=(event_of("down", "replace psu2", "root(0)"),)),
    Situation("a node set DOWN by hand, as scontrol tells", ("-3600s gpu01 kernel: EDAC MC: Ver: 3.0.0",), (ended("NODE_FAIL"),),
              ("infra.scheduler", "slurm.admin_action", "gpu01"), states=(event_of("down", "replace psu2", "ana", source="scontrol"),)),
    Situation("a node drained days ago that falls silent today", ("-3600s gpu01 kernel: EDAC MC: Ver: 3.0.0",), (ended("NODE_FAIL"),),
              ("infra.node", "node.unresponsive", "gpu01"), states=(event_of("down*+drain", "bad dimm", "root(0)", at=-3e5, source="scontrol"), event_of("down*+drain", "bad dimm", "root(0)"))),
    Situation("a link that was lost, as accounting tells the DOWN", down("-250s", "gpu01", "eth0"), (ended("NODE_FAIL"),),
              ("infra.network", "nic.link_down", "gpu01"), states=(event_of("down*", "Not responding", "slurm(64030)"),)),
    Situation("a cloud node that did not resume, as accounting tells", ("-3600s gpu02 kernel: EDAC MC: Ver: 3.0.0",), (ended("NODE_FAIL", start="-600s"),),
              ("infra.node", "node.unresponsive", "gpu01"), states=(event_of("down", "ResumeTimeout reached", "slurm(64030)"),)),
    Situation("one leg of a bond, whose other leg carried on", (
        *down("-250s", "gpu01", "eth0"), "-249.9s gpu01 kernel: bond0: (slave eth0): link status definitely down, disabling slave",
        "-249.9s gpu01 kernel: bond0: (slave eth1): making interface the new active one", "0s ctl slurmctld: error: Nodes gpu01 not responding, setting DOWN", KILLED),
        (ended("NODE_FAIL"),), ("infra.node", "node.unresponsive", "gpu01")),
    Situation("a machine out of memory that kills slurmd", (
        "-250s gpu01 kernel: Out of memory: Killed process 812 (slurmd) total-vm:4194304kB, anon-rss:21000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:200kB oom_score_adj:0",
        "0s ctl slurmctld: error: Nodes gpu01 not responding, setting DOWN", KILLED), (ended("NODE_FAIL"),), ("infra.scheduler", "slurm.slurmd_crash", "gpu01")),
    Situation("a drain for maintenance while a run goes to its limit", (
        "-1800s ctl slurmctld: update_node: node gpu01 reason set to: firmware maintenance", "-1800s ctl slurmctld: update_node: node gpu01 state set to DRAINING",
        "-0.5s ctl slurmctld: Time limit exhausted for JobId={job}"), (ended("TIMEOUT"),), ("app.timeout", None, None)),
]  # fmt: skip

FIRST_JOB = 7000


def _case(situation: Situation, number: int) -> run.Case:
    job = FIRST_JOB + 10 * number + len(situation.jobs) - 1
    reported: dict[str, Any] = {
        "holds": True, "settings": {"SlurmdTimeout": 300, **situation.settings}, "links": [dict(link) for link in situation.links],
        "lines": [line.replace("{job}", str(job)) for line in situation.lines],
        "jobs": [{"id": job - len(situation.jobs) + 1 + place, **reported} for place, reported in enumerate(situation.jobs)],
    }  # fmt: skip
    return run.read("test", EDGES[0], number, reported)


@cache
def concluded() -> dict[str, Conclusions]:
    """All situations in one store, each as a cluster of its own."""
    reported = [_case(s, n) for n, s in enumerate(SITUATIONS)]
    with open_store(None) as store:
        states = [{"cluster": situations.cluster_of(n), **row} for n, s in enumerate(SITUATIONS) for row in s.states]
        store.add({**situations.tables_of(reported, line_parser()), "node_states": frame("node_states", states)})
        found = {c.cluster: c for c in correlate(store, settings={"SlurmdTimeout": "300"})}
    return {s.name: found[situations.cluster_of(n)] for n, s in enumerate(SITUATIONS)}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    found = concluded()[situation.name]
    verdict = found.verdicts[max(found.verdicts)]
    root: dict[str, Any] = next((i["root_cause"] for i in found.incidents if i["id"] == verdict["incident_id"]), {})
    reported = (verdict["category"], root.get("event"), root.get("host"))
    assert reported == tuple(true if true is not ANY else stated for true, stated in zip(situation.true, reported, strict=True)), verdict["summary"]  # fmt: skip
    blamed = {i["root_cause"]["event"] for i in found.incidents}
    assert not blamed & set(situation.not_told), [i["title"] for i in found.incidents]
