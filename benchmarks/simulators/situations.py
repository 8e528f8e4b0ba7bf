"""Random situations with known causes: what broke (or did not), what was logged about it, and what happened beside it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from correlator.facts.world import World
from correlator.model.measurements import Throttled
from correlator.model.nouns import Event, Run
from tests.correlator.making import T0, event, run, world

NODES = [f"n{i}" for i in range(1, 13)]
LINKS = [{"host": n, "device": d, "switch": s, "switch_port": f"Ethernet{i}"}
         for i, n in enumerate(NODES) for d, s in (("eth0", "tor"), ("ib0", "leaf-p1"))]  # fmt: skip


@dataclass
class Situation:
    """``truth`` is the category of job 1 and, for infrastructure, the host it is rooted on."""

    kind: str
    truth: tuple[str, str | None]
    state: str
    end: float
    events: list[Event] = field(default_factory=list)
    progress: list[tuple[float, float]] = field(default_factory=list)
    hot: list[Throttled] = field(default_factory=list)
    job_nodes: tuple[str, ...] = ()
    others: list[Run] = field(default_factory=list)


class Chance(random.Random):
    """Random choices. ``complete``: every witness of a fault logs it, wherever lines are not lost."""

    complete = False


OWN = ("ValueError: shapes (3,4) and (5,) not aligned", "KeyError: 'train_loss'", "AssertionError: loss is nan",
       "RuntimeError: CUDA error: an illegal memory access was encountered", "Segmentation fault (core dumped)")  # fmt: skip
DEAD = (
    "srun: error: n2: task 3: Killed",
    "srun: error: n1: task 0: Exited with exit code 1",
    "terminate called without an active exception",
)


def _out(at: float, kind: str, text: str, **more: Any) -> Event:
    return event(kind, at, None, text, source="job_stderr", job_id=1, **more)


def _link(r: random.Random, host: str, device: str, at: float, length: float, ends: int = 3) -> list[Event]:
    ends = 3 if getattr(r, "complete", False) else ends
    found = []
    if ends & 1:
        found += [
            event("nic.link_down", at, host, f"{device}: Link down", port=device),
            event("nic.link_up", at + length, host, f"{device}: Link up", port=device),
        ]
    if ends & 2:
        port, switch = f"Ethernet{NODES.index(host)}", "tor" if device == "eth0" else "leaf-p1"
        found += [event("switch.port_down", at + r.uniform(-0.5, 0.9), switch, f"{port} down", source="switch", port=port),
                  event("switch.port_up", at + length, switch, f"{port} up", source="switch", port=port)]  # fmt: skip
    return found


def _set_down(at: float, host: str) -> list[Event]:
    return [event("slurm.node_down", at, "ctl", "error: Nodes not responding, setting DOWN", source="slurmctld", nodes=[host]),
            event("slurm.job_node_fail", at - 0.001, "ctl", "Killing JobId=1 on failed node", source="slurmctld", job_id=1, nodes=[host])]  # fmt: skip


def _peers(at: float) -> Event:
    return _out(at, "job.nccl_error", "NCCL WARN NET/IB: Got completion with status=IBV_WC_RETRY_EXC_ERR(12)")


def fabric_loss(r: random.Random, host: str) -> Situation:
    late = r.uniform(30, 125)
    reported = [_peers(late)] if r.random() < 0.8 else [_out(late, "job.exit_error", r.choice(DEAD))]
    return Situation("fabric_loss", ("infra.network", host), "FAILED", late + r.uniform(0.5, 6),
                     [*_link(r, host, "ib0", 0, late + r.uniform(20, 300), r.choice((1, 2, 3))), *reported])  # fmt: skip


def management_loss(r: random.Random, host: str) -> Situation:
    late = r.uniform(205, 505)
    return Situation("management_loss", ("infra.network", host), "NODE_FAIL", late,
                     [*_link(r, host, "eth0", 0, late + r.uniform(20, 300), r.choice((1, 3))), *_set_down(late, host)])  # fmt: skip


def gpu_fault(r: random.Random, host: str) -> Situation:
    code, late = r.choice((48, 79, 94, 95, 79, 119)), r.uniform(1, 30)
    reported = [event("gpu.xid", 0, host, f"NVRM: Xid {code}", pci="0000:3a:00", xid=code)]
    if r.random() < 0.6:
        reported.append(
            _out(
                late,
                "job.cuda_error",
                "CUDA error: uncorrectable ECC error encountered"
                if code in (48, 94, 95)
                else "CUDA error: unspecified launch failure",
            )
        )
    return Situation("gpu_fault", ("infra.gpu", host), "FAILED", late + 1, reported)


def nvlink(r: random.Random, host: str) -> Situation:
    """An NVLink error kills about half of the runs that see it; the others end for other reasons, at any time."""
    late = r.uniform(1, 20)
    return Situation(
        "nvlink",
        ("infra.gpu", host),
        "FAILED",
        late,
        [event("gpu.xid", 0, host, "NVRM: Xid 74", pci="0000:3a:00", xid=74)],
    )


def panic(r: random.Random, host: str) -> Situation:
    late = r.uniform(205, 505)
    reported = [event("kernel.panic", 0, host, "Kernel panic - not syncing")] if r.random() < 0.8 else []
    return Situation("panic", ("infra.node", host), "NODE_FAIL", late, [*reported, *_set_down(late, host)])


def slurmd_crash(r: random.Random, host: str) -> Situation:
    """slurmd dies while its machine stays up; without its log, that looks like any other silence."""
    late = r.uniform(205, 505)
    fatal = event("slurm.daemon_fatal", 0, host, "fatal: malloc failed: out of memory", source="slurmd")
    return Situation("slurmd_crash", ("infra.scheduler", host), "NODE_FAIL", late, [fatal, *_set_down(late, host)])


def heat(r: random.Random, host: str) -> Situation:
    pace = [(T0 - 1900 + i * 60, (2.0 if i < 25 else 4.0) * r.uniform(0.95, 1.05)) for i in range(59)]
    return Situation(
        "heat",
        ("infra.gpu", host),
        "TIMEOUT",
        1600,
        [],
        pace,
        [Throttled(host, "00000000:9A:00.0", T0 - 300, T0 + 1560, T0 - 600, None, 7)],
    )


def storage(r: random.Random, host: str) -> Situation:
    late = r.uniform(60, 300)
    lost = [
        event("storage.lustre_error", i * 0.2, h, "Connection to fs1-OST0001 was lost", lustre_target="fs1-OST0001")
        for i, h in enumerate(NODES[:8])
    ]
    return Situation(
        "storage",
        ("infra.storage", None),
        "FAILED",
        late + 1,
        [*lost, _out(late, "job.exit_error", "OSError: [Errno 5] Input/output error: '/lustre/fs1/x'")],
    )


def own_error(r: random.Random, host: str) -> Situation:
    """The program's own fault: it logs it, or it only dies; sometimes the other ranks then lose their peer."""
    late = r.uniform(1, 60)
    reported = (
        [_out(late, "job.exit_error" if "fault" not in (text := r.choice(OWN)) else "job.segfault", text)]
        if r.random() < 0.8
        else [_out(late, "job.exit_error", r.choice(DEAD))]
    )
    if r.random() < 0.3:
        reported.append(_peers(late + r.uniform(0.5, 3)))
    return Situation("own_error", ("app.error", None), "FAILED", late + 4, reported)


def lost_peers(r: random.Random, host: str) -> Situation:
    """The output reports only network errors, although nothing of the cluster was broken."""
    late = r.uniform(1, 60)
    return Situation("lost_peers", ("unknown", None), "FAILED", late + 1, [_peers(late)])


def long_run(r: random.Random, host: str) -> Situation:
    pace = [(T0 - 1900 + i * 60, 2.0 * r.uniform(0.9, 1.1)) for i in range(59)]
    return Situation("long_run", ("app.timeout", None), "TIMEOUT", 1600, [], pace if r.random() < 0.5 else [])


def _slowed(r: random.Random) -> list[tuple[float, float]]:
    onset, factor = r.randrange(15, 35), r.uniform(1.6, 4.0)
    return [(T0 - 1900 + i * 60, (2.0 if i < onset else 2.0 * factor) * r.uniform(0.95, 1.05)) for i in range(59)]


def unseen_slowness(r: random.Random, host: str) -> Situation:
    """A node slows the run down (heat, a bad link, a slow disk), and no telemetry of it is collected."""
    return Situation("unseen_slowness", ("infra.gpu", host), "TIMEOUT", 1600, [], _slowed(r))


def own_slowness(r: random.Random, host: str) -> Situation:
    """The program slows itself down: longer sequences, a cache that no longer fits, an evaluation in every step."""
    return Situation("own_slowness", ("app.timeout", None), "TIMEOUT", 1600, [], _slowed(r))


def reset_together(r: random.Random, host: str) -> Situation:
    """Many nodes lose power, the job's nodes among them."""
    late = r.uniform(205, 505)
    reported = [
        event("slurm.node_reboot", late + 300 + i, "ctl", f"Node {n} unexpectedly rebooted", source="slurmctld", nodes=[n], boot_time=T0 + late + 260 + i,
              last_response=T0 - r.uniform(0, 90)) for i, n in enumerate([host, *(x for x in NODES if x != host)][:r.choice((1, 6))])
    ]  # fmt: skip
    return Situation("reset_together", ("infra.node", None), "NODE_FAIL", late, [*reported, *_set_down(late, host)])


def _beside_it(r: random.Random, late: float, hit: float) -> tuple[list[Run], list[Event]]:
    """Other runs on several nodes, each hit with a probability of ``hit``."""
    runs, reported = [], []
    for job in range(2, 2 + r.choice((1, 2, 3, 5, 8))):
        nodes = r.sample(NODES, 2)
        if r.random() < hit:
            at = late + r.uniform(-10, 20)
            runs.append(run(job, nodes, -3000, at + 2, "FAILED"))
            reported.append(event("job.nccl_error", at, None, "NCCL WARN NET/IB: Got completion with status=IBV_WC_RETRY_EXC_ERR(12)",
                              source="job_stderr", job_id=job))  # fmt: skip
        else:
            runs.append(run(job, nodes, -3000, 3000, "COMPLETED"))
    return runs, reported


def shared_link_loss(r: random.Random, host: str) -> Situation:
    """A leaf switch takes down the rail of all nodes, or of most.

    It ends all runs that lose their peers by it, or each with some probability.
    """
    late = r.uniform(30, 125)
    lost = [n for n in NODES if n == host or r.random() < 0.9]
    links = [e for n in lost for e in _link(r, n, "ib0", r.uniform(0, 1.0), late + 200, 1)]
    others, reported = _beside_it(r, late, 1.0 if r.random() < 0.85 else r.uniform(0.1, 0.9))
    return Situation(
        "shared_link_loss",
        ("infra.network", "leaf-p1"),
        "FAILED",
        late + 2,
        [*links, *reported, _peers(late)],
        others=others,
    )


def absorbed_link_loss(r: random.Random, host: str) -> Situation:
    """A leaf switch is gone for a while and traffic is rerouted: no run is hurt, and one ends by itself meanwhile."""
    late = r.uniform(30, 125)
    links = [e for n in NODES for e in _link(r, n, "ib0", r.uniform(0, 1.0), late + r.uniform(5, 200), 1)]
    others, _ = _beside_it(r, late, 0.0)
    reported = [_out(late, "job.exit_error", r.choice(DEAD if r.random() < 0.7 else OWN))]
    return Situation("absorbed_link_loss", ("app.error", None), "FAILED", late + 2, [*links, *reported], others=others)


def absorbed_switch_loss(r: random.Random, host: str) -> Situation:
    """The same with the switch that carries Slurm's messages, while one node falls silent for another reason."""
    late = r.uniform(205, 505)
    links = [e for n in NODES for e in _link(r, n, "eth0", r.uniform(0, 1.0), late + r.uniform(5, 200), 1)]
    others, _ = _beside_it(r, late, 0.0)
    reported = (
        [event("kernel.panic", r.uniform(0, late - 205), host, "Kernel panic - not syncing")]
        if r.random() < 0.5
        else []
    )
    others = [o for o in others if host not in o.nodes]
    return Situation(
        "absorbed_switch_loss",
        ("infra.node", host),
        "NODE_FAIL",
        late,
        [*links, *reported, *_set_down(late, host)],
        others=others,
    )


#: The share of each among runs that did not end well: users' own errors dominate (correlation.md, section 1).
SHARES: dict[Callable[[random.Random, str], Situation], float] = {
    own_error: 0.38, long_run: 0.12, lost_peers: 0.08, fabric_loss: 0.1, management_loss: 0.07, gpu_fault: 0.11, nvlink: 0.02, panic: 0.04,
    heat: 0.03, storage: 0.05, unseen_slowness: 0.02, own_slowness: 0.02, reset_together: 0.02, shared_link_loss: 0.03,
    absorbed_link_loss: 0.02, absorbed_switch_loss: 0.01,
}  # fmt: skip
#: Only slurmd's log tells of these: they are made where sources are taken away.
BY_SLURMD: dict[Callable[[random.Random, str], Situation], float] = {slurmd_crash: 0.01}


def beside(r: random.Random, hosts: list[str]) -> list[Event]:
    """Routine events: short flaps, remapped rows, corrected bus errors, an NVLink error without effect."""
    found: list[Event] = []
    for _ in range(r.choice((0, 1, 1, 2, 3))):
        host, at = r.choice(hosts), r.uniform(-1500, 900)
        kind = r.random()
        if kind < 0.4:
            found += _link(r, host, r.choice(("eth0", "ib0")), at, r.uniform(0.5, 12))
        elif kind < 0.5:
            found += _link(r, host, r.choice(("eth0", "ib0")), at, r.uniform(12, 120))
        elif kind < 0.7:
            found.append(event("gpu.xid", at, host, "NVRM: Xid 63", pci="0000:5d:00", xid=63))
        elif kind < 0.8:
            found.append(event("gpu.xid", at, host, f"NVRM: Xid {r.choice((31, 13, 43))}", pci="0000:5d:00", xid=31))
        elif kind < 0.87:
            found.append(event("gpu.xid", at, host, "NVRM: Xid 74", pci="0000:5d:00", xid=74))
        else:
            found += [
                event("pcie.aer", at + i, host, "AER: Corrected error received", pci="0000:17:00.0")
                for i in range(r.choice((1, 2, 7)))
            ]
    return found


@dataclass
class Site:
    """What was collected in a situation. ``mute``: the hosts without a kernel log."""

    situation: Situation
    events: list[Event]
    runs: list[Run]
    mute: frozenset[str]
    settings: dict[str, int]
    links: list[dict[str, str]]

    def world(self, **more: Any) -> World:
        """Everything that is concluded from it. ``more``: other attributes of the world."""
        known = {
            "progress": {(1, 0): self.situation.progress}, "throttling": self.situation.hot,
            "reporting_hosts": frozenset(n for n in NODES if n not in self.mute),
        }  # fmt: skip
        return world(self.events, self.runs, links=self.links, settings=self.settings, **{**known, **more})


def make(seed: int) -> tuple[Situation, World]:
    """One situation and the world of its logs."""
    site = made(Chance(seed))
    return site.situation, site.world()


def made(r: Chance) -> Site:
    """One situation and its logs: some lines lost, clocks slightly different.

    On some sites a source is missing altogether: Slurm's configuration, the inventory of links, the runs' output, the
    logs of some or many hosts.
    """
    nodes = r.sample(NODES, r.choice((1, 2, 2, 4, 6)))
    shares = SHARES | BY_SLURMD if r.complete else SHARES
    situation = r.choices(list(shares), weights=list(shares.values()))[0](r, nodes[0])
    if situation.kind in ("fabric_loss", "lost_peers") and len(nodes) == 1:
        nodes.append(next(n for n in NODES if n != nodes[0]))
    events = [e for e in situation.events if r.random() > 0.04] + beside(r, NODES)
    silent = r.choice((0.0, 0.0, 0.05, 0.05, 0.05, 0.05, 0.05, 0.3))  # one site in eight lacks many
    mute = frozenset(n for n in NODES if r.random() < silent)
    if r.random() < 0.04:
        events = [e for e in events if e.source != "job_stderr"]
    events = [e for e in events if e.host not in mute or e.source != "kernel"]
    job = run(1, nodes, -1920, situation.end, situation.state, time_limit_s=3520)
    # A run on the same node or its rail would have ended with it.
    separate = [n for n in NODES if n != nodes[0]]
    others = situation.others or [run(2, r.sample(separate, 2), -3000, 3000, "COMPLETED")]
    # A quiet day around it: base rates need exposure.
    quiet = [event("sys.service_started", at, "ctl", "chrony", source="syslog") for at in (-43200.0, 43200.0)]
    settings = {"SlurmdTimeout": 300} if r.random() < 0.9 else {"KillWait": 30}
    links = LINKS if r.random() < 0.9 else []
    return Site(situation, [*events, *quiet], [job, *others], mute, settings, links)
