"""Small situations for tests: short forms of log lines, and the conclusions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collector.ingest import Ingest
from correlator.edges import load as edge_files
from correlator.engine import correlate, result
from correlator.evidence.weigh import Weigher
from correlator.facts.world import World
from correlator.verdicts.judge import judge
from correlator.verdicts.verdict import Verdict
from store import open_store
from tests.correlator.making import T0, event, run, world
from tests.line_parser import line_parser

EDGES, PROBLEMS = edge_files.load()
LINKS = [{"host": f"n{i}", "device": d, "switch": s, "switch_port": f"Ethernet{i}"}
         for i in range(1, 6) for d, s in (("eth0", "tor"), ("ib0", "leaf-p1"))]  # fmt: skip


def judged(where: World, *, without: str = "") -> dict[str, Verdict]:
    weigher = Weigher(where, [e for e in EDGES if e.id != without])
    return {v.run.key: v for v in judge(where, weigher)}


def said(verdict: Verdict) -> tuple[str, str | None, str | None]:
    root = verdict.root
    return (verdict.category, root.kind if root else None, root.host if root else None)


# -- what logs say, in few words ---------------------------------------------------------------------------------------
def down(at: float, host: str, device: str, until: float | None = None) -> list[Any]:
    found = [event("nic.link_down", at, host, f"{device}: Link down", port=device)]
    return found + ([event("nic.link_up", until, host, f"{device}: Link up", port=device)] if until is not None else [])


def set_down(at: float, *hosts: str) -> list[Any]:
    return [
        event(
            "slurm.node_down",
            at,
            "ctl",
            "error: Nodes not responding, setting DOWN",
            source="slurmctld",
            nodes=list(hosts),
        )
    ]


def node_fail(at: float, job: int = 1, host: str = "n1") -> list[Any]:
    return [
        event(
            "slurm.job_node_fail",
            at,
            "ctl",
            f"Killing JobId={job} on failed node {host}",
            source="slurmctld",
            job_id=job,
            nodes=[host],
        )
    ]


def rebooted(at: float, host: str, last_response: float) -> Any:
    text = f"validate_node_specs: Node {host} unexpectedly rebooted boot_time={T0 + at:.0f} last response={T0 + last_response:.0f}"
    return event("slurm.node_reboot", at + 5, "ctl", text, source="slurmctld", nodes=[host], boot_time=T0 + at, last_response=T0 + last_response)  # fmt: skip


def unlaunched(at: float, why: str) -> list[Any]:
    text = f"srun: error: Task launch for StepId=1.0 failed on node n1: {why}"
    return out(at, "job.launch_error", text, nodes=["n1"])


def returned(reported: list[Any]) -> World:
    """A second run of the job, on the same nodes, at the moment that its lost node is back; it is judged as job 1."""
    first = run(1, ["n1", "n2"], -900, 350, "NODE_FAIL")
    first.key = "1@first"
    again = run(1, ["n1", "n2"], 700, 706, "FAILED")
    lines = [*down(0, "n1", "eth0", 690), *set_down(350, "n1"), *reported, *unlaunched(702, "Job credential revoked")]
    return world(lines, [first, again])


def out(at: float, kind: str, text: str, job: int = 1, **more: Any) -> list[Any]:
    return [event(kind, at, None, text, source="job_stderr", job_id=job, **more)]


def lost_peers(at: float, **more: Any) -> list[Any]:
    return out(at, "job.nccl_error", "NCCL WARN NET/IB: Got completion with status=IBV_WC_RETRY_EXC_ERR(12)", **more)


def watchdog(at: float, seconds: float = 600.0) -> list[Any]:
    return out(at, "job.nccl_timeout", "Watchdog caught collective operation timeout", timeout_ms=seconds * 1000)


def xid(at: float, code: int, host: str = "n1", pci: str = "0000:3a:00") -> list[Any]:
    return [event("gpu.xid", at, host, f"NVRM: Xid (PCI:{pci}): {code}, pid=7, name=py", pci=pci, xid=code)]


def disk(at: float, *, read_only: bool = False) -> list[Any]:
    text = "EXT4-fs (sda): Remounting filesystem read-only" if read_only else "I/O error, dev sda, sector 1"
    return [event("storage.io_error", at, "n1", text, device="sda")]


def slowed(job: Any, onset: float) -> dict[str, Any]:
    length = (job.end or 0) - (job.start or 0)
    points = [((job.start or 0) + 20 + i * 60, 2.0 if i * 60 < onset else 5.0) for i in range(int(length // 60))]
    return {"progress": {(job.job_id, 0): points}}


def over_planes(
    lines: list[Any], *, planes: int = 4, pace: float = 2.9, others: list[Any] | None = None, **more: Any
) -> World:
    """Job 1 spreads over planes; from T0 on its steps take ``pace`` seconds instead of 2, until its time limit."""
    job = run(1, ("n1", "n2"), -2000, 1600, "TIMEOUT", time_limit_s=3600)
    reported = {
        (r.job_id, 0): [(T0 - 1980 + i * 60, 2.0 if i < 33 or r is not job else pace) for i in range(59)]
        for r in (job, *(others or []))
    }
    where = world(lines, [job, *(others or [])], progress=reported, **more)
    where.site.job_settings.update({r.key: {"NCCL_FABRIC_PLANES": str(planes)} for r in where.runs if planes > 1})
    return where


def lustre(
    at: float, hosts: tuple[str, ...] = ("n1", "n2", "n3"), text: str = "Connection to fs1-OST0001 was lost"
) -> list[Any]:
    return [
        event("storage.lustre_error", at + i * 0.1, h, text, lustre_target="fs1-OST0001") for i, h in enumerate(hosts)
    ]


def one(end: float, state: str = "FAILED", nodes: tuple[str, ...] = ("n1", "n2"), **row: Any) -> Any:
    return run(1, nodes, -2000, end, state, **row)


def conclude(folder: Path) -> dict[str, Any]:
    """The output of ``faultline incidents`` for a folder of logs."""
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([folder])
        correlate(store)
        return result(store)
