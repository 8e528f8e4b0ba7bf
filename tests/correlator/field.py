"""Situations from their logs, through parser, store and correlator. Each truth was written before the correlator ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

import polars as pl

from correlator.conclusions import Conclusions
from correlator.engine import correlate
from correlator.selftest import run, situations
from parsers.record import frame
from store import open_store
from tests.correlator.situations import EDGES
from tests.line_parser import line_parser

Job = dict[str, Any]
ANY = "any"


@dataclass(frozen=True)
class Situation:
    """``lines``: "OFFSET HOST SOURCE: TEXT"; ``{0}`` is the number of the first job.

    ``true``: for each job category, event and host (alternatives with "|"; None: no verdict). ``at_most``: the highest
    confidence of the last one's verdict. ``not_told``: root causes that no incident may have.
    """

    name: str
    lines: tuple[str, ...]
    jobs: tuple[Job, ...]
    true: tuple[tuple[str, str | None, str | None] | None, ...]
    not_told: tuple[str, ...] = ()
    at_most: float = 1.0
    states: tuple[Mapping[str, Any], ...] = ()
    boots: tuple[Mapping[str, Any], ...] = ()
    metrics: tuple[Mapping[str, Any], ...] = ()
    links: tuple[Mapping[str, str], ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)


def ended(state: str = "FAILED", end: str = "0s", nodes: str = "gpu[01-02]", start: str = "-1h", **more: Any) -> Job:
    code = {"exit_code": 1} if state == "FAILED" else {}
    return {"nodes": nodes, "start": start, "end": end, "state": state, **code, **more}


APP = ("app.error", None, None)
UNKNOWN = ("unknown", None, None)
KEY_ERROR = "-1s {0} stderr: KeyError: 'train_loss'"
KILLED = "-0.001s ctl slurmctld: Killing JobId={0} on failed node gpu01"
SET_DOWN = "0s ctl slurmctld: error: Nodes gpu01 not responding, setting DOWN"
NIC = "mlx5_core 0000:17:00.0 {}: Link {}"
BOOT = "Linux version 6.1.0-18-amd64 (builder@host) (gcc-12) #1 SMP"
RETRY = (
    "gpu01:11:12 [3] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<9> with status=IBV_WC_RETRY_EXC_ERR(12) "
    "opcode=IBV_WC_RDMA_WRITE(1) reqSize=0 vendor_err=129 req_type=Send localGid fe80 hca mlx5_3"
)
WATCHDOG = "[rank3]:[E1 00:00:00.1 x.cpp:1] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000)"
FELL_OFF = "NVRM: Xid (PCI:0000:17:00): 79, pid=4242, name=python, GPU has fallen off the bus."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
LEAF = tuple({"host": f"gpu0{i}", "device": "eth0", "switch": "tor1", "port": f"swp{i}"} for i in range(1, 7))
RAILS = tuple(
    {"host": f"gpu0{i}", "device": f"ib{p}", "switch": f"leaf-p{p}", "port": f"swp{i}", "plane": str(p)}
    for i in range(1, 7)
    for p in (0, 1, 2, 3)
)


def down(at: str, host: str, device: str, up: str | None = None) -> tuple[str, ...]:
    lost = f"{at} {host} kernel: {NIC.format(device, 'down')}"
    return (lost, f"{up} {host} kernel: {NIC.format(device, 'up')}") if up else (lost,)


def pace(
    job: int, host: str, first: int, onset: int, last: int, quick: float = 2.0, slow: float = 3.0
) -> tuple[str, ...]:
    """A line a minute from minute ``first`` to ``last``; slower from ``onset`` on."""
    return tuple(
        f"{m}min {{{job}}} stdout: iter {m + 999} | loss 2.1 | iter_time {quick if m < onset else slow:.2f}s"
        for m in range(first, last)
    )


def at(seconds: float) -> Any:
    return situations.BEGINNING + timedelta(seconds=seconds)


def state(
    state: str,
    reason: str | None,
    actor: str | None,
    host: str = "gpu01",
    when: float = 0.0,
    source: str = "sacctmgr_events",
) -> Mapping[str, Any]:
    return {"time": at(when), "host": host, "state": state, "reason": reason, "actor": actor, "source": source}


def booted(when: float, host: str = "gpu01", source: str = "scontrol_node") -> Mapping[str, Any]:
    return {"boot_time": at(when), "host": host, "error_us": 1_000_000, "source": source}


def _case(reported: Situation, number: int) -> run.Case:
    first = 7000 + 10 * number
    names = {f"{{{n}}}": str(first + n) for n in range(len(reported.jobs))}

    def filled(line: str) -> str:
        for name, job in names.items():
            line = line.replace(name, job)
        return line

    table: dict[str, Any] = {
        "holds": True, "settings": {"SlurmdTimeout": 300, **reported.settings}, "links": [dict(link) for link in reported.links],
        "lines": [filled(line) for line in reported.lines] or ["-2h quiet kernel: x"],
        "jobs": [{"id": first + n, **{k: v for k, v in job.items() if k in CASE_KEYS}} for n, job in enumerate(reported.jobs)],
    }  # fmt: skip
    return run.read("test", EDGES[0], number, table)


#: The keys of a job in tests of edges; other fields of a job are columns of accounting.
CASE_KEYS = frozenset({"nodes", "start", "end", "state", "exit_code", "signal", "cancelled_by", "env"})


def _accounted(reported: list[Situation], jobs: pl.DataFrame) -> pl.DataFrame:
    """The rows of accounting, with the additional columns of the situations."""
    rows = {(row["cluster"], row["job_id"]): row for row in jobs.to_dicts()}
    for number, situation in enumerate(reported):
        for n, job in enumerate(situation.jobs):
            row = rows[situations.cluster_of(number), 7000 + 10 * number + n]
            row |= {k: v for k, v in job.items() if k not in CASE_KEYS}
            if job["state"] == "RUNNING":
                row["end"] = row["exit_code"] = None
    return frame("jobs", rows.values())


#: A line of every node's kernel long before: its log was collected.
ALIVE = tuple(f"-7000s gpu0{i} kernel: EDAC MC: Ver: 3.0.0" for i in range(1, 7))
NETWORK = "infra.network"
ETH0 = IB0 = (NETWORK, "nic.link_down|nic.link_flap", "gpu01")
TIMELIMIT = "-0.5s ctl slurmctld: Time limit exhausted for JobId={0}"
XID48 = "NVRM: Xid (PCI:0000:17:00): 48, pid=4242, name=python, DBE (double bit error)"


def heard(name: str, lines: Iterable[str], *more: Any, **rest: Any) -> Situation:
    """A situation in which the kernel log of every node was collected."""
    return Situation(name, (*ALIVE, *lines), *more, **rest)


def tables_of(reported: list[Situation], made: list[run.Case] | None = None) -> dict[str, pl.DataFrame]:
    """All situations as rows for one store, each as a cluster of its own. ``made``: the cases of their lines, if the caller
    has changed them."""
    made = [_case(s, n) for n, s in enumerate(reported)] if made is None else made
    rest = {}
    for table in ("states", "boots", "metrics"):
        rows = [
            {"cluster": situations.cluster_of(n), **row} for n, s in enumerate(reported) for row in getattr(s, table)
        ]
        name = {"states": "node_states"}.get(table, table)
        rest[name] = frame(name, rows)
    tables = situations.tables_of(made, line_parser())
    return {**tables, **rest, "jobs": _accounted(reported, tables["jobs"])}


def concluded(reported: Iterable[Situation]) -> dict[str, tuple[Conclusions, list[Any]]]:
    """All situations in one store: with the verdicts of their jobs in order."""
    reported = list(reported)
    with open_store(None) as store:
        store.add(tables_of(reported))
        found = {c.cluster: c for c in correlate(store, settings={"SlurmdTimeout": "300"})}
    out = {}
    for n, s in enumerate(reported):
        one = found[situations.cluster_of(n)]
        out[s.name] = (one, [one.verdicts.get(str(7000 + 10 * n + i)) for i in range(len(s.jobs))])
    return out


class InOneStore(Mapping[str, tuple[Conclusions, list[Any]]]):
    """The conclusions about situations by name, made when the first one is asked for."""

    def __init__(self, reported: Iterable[Situation]) -> None:
        self._reported = list(reported)

    @cached_property
    def _found(self) -> dict[str, tuple[Conclusions, list[Any]]]:
        return concluded(self._reported)

    def __getitem__(self, name: str) -> tuple[Conclusions, list[Any]]:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return (situation.name for situation in self._reported)

    def __len__(self) -> int:
        return len(self._reported)


def wrong(reported: Situation, found: Conclusions, verdicts: list[Any]) -> list[str]:
    """The differences from the truth; empty if there are none."""
    stated = []
    for number, (true, verdict) in enumerate(zip(reported.true, verdicts, strict=True)):
        if true is None or verdict is None:
            stated += [f"job {number}: {verdict and verdict['summary']}"] if true is not verdict else []
            continue
        root: dict[str, Any] = next((i["root_cause"] for i in found.incidents if i["id"] == verdict["incident_id"]), {})
        parts = (verdict["category"], root.get("event"), root.get("host"))
        if not all(_fits(t, s) for t, s in zip(true, parts, strict=True)):
            stated.append(f"job {number}: {parts}, {verdict['summary']}")
    last = next((v for v in reversed(verdicts) if v is not None), None)
    if last is not None and last["confidence"] > reported.at_most:
        stated.append(f"told too surely: {last['confidence']}")
    return stated + [i["title"] for i in found.incidents if i["root_cause"]["event"] in reported.not_told]


def _fits(true: str | None, stated: str | None) -> bool:
    return true == ANY or stated == true or (true is not None and str(stated) in true.split("|"))
