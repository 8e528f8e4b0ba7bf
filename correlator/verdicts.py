"""The verdict on each run that did not end COMPLETED: which explanation carries, and how surely.

What Slurm and people did on purpose (cancel, preempt, time limit) is decided first. Then the evidence graph competes
with the run's own words. An infrastructure cause needs positive evidence; without any, a failed program is the
program's, and where its words only say "the network" nobody is blamed: unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from correlator.causes import cause_of
from correlator.evidence import Chain, Rejection, Weigher
from correlator.facts import World
from correlator.model import Event, Fact, Run

#: Weights of the explanations that are not infrastructure. They compete with chains, whose weight is at most
#: evidence.MAX_RATIO. First estimates of docs/correlation.md.
OWN_WORDS = 0.9  # the program printed its own error
OWN_EXIT = 0.6  # it only returned a code
NETWORK_WORDS = 0.15  # it printed only that peers or network failed: seldom its own fault, rarely proof of ours
SILENT_NODE = 1.0  # slurmctld gave a node up: the node is certain, the reason behind it is not
LEAK = 0.08  # none of these


@dataclass
class Verdict:
    """``category`` and, for infrastructure, the chain and its root. ``confidence`` 0..1."""

    run: Run
    end: Fact
    category: str
    confidence: float
    chain: Chain | None = None
    others: list[Chain] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    own: list[Event] = field(default_factory=list)
    reason: str = ""

    @property
    def root(self) -> Fact | None:
        return self.chain.root if self.chain else None


def judge(world: World, weigher: Weigher) -> list[Verdict]:
    ends = sorted((f for f in world.facts if f.kind.startswith("run.")), key=lambda f: (f.run or "", f.start))
    return [_judge_one(world, weigher, end) for end in ends]


def _judge_one(world: World, weigher: Weigher, end: Fact) -> Verdict:
    run = world.run[end.run or ""]
    found = weigher.evidence(end)
    verdict = Verdict(run, end, "unknown", 0.0, rejections=found.rejections)
    deliberate = _deliberate(world, run, end, found.chains)
    if deliberate is not None:
        verdict.category, verdict.confidence, verdict.reason, verdict.own = deliberate
        return verdict
    chains = [c for c in found.chains if _acceptable(c)]
    own_category, own_weight, own_reason, own_events = _own_explanation(world, run, end)
    total = sum(c.weight for c in chains) + own_weight + LEAK
    best = chains[0] if chains else None
    if best is not None and best.weight >= own_weight and best.weight >= LEAK:
        rivals = [c for c in chains[1:] if not _same_cause(c.root, best.root)]
        same_root = sum(c.weight for c in chains if _same_cause(c.root, best.root))
        verdict.chain, verdict.others = best, rivals
        verdict.category = cause_of(best.root).category
        verdict.confidence = same_root / total
        if best.root.kind == "node.down":
            verdict.confidence = min(verdict.confidence, 0.75)  # that it fell silent is certain; why, nobody said
        if verdict.confidence < 0.5:
            verdict.reason = f"the best explanation carries only {verdict.confidence:.2f}"
            verdict.category, verdict.chain = "unknown", None
            verdict.others = chains
        return verdict
    verdict.category, verdict.reason, verdict.own = own_category, own_reason, own_events
    verdict.confidence = (own_weight if own_category != "unknown" else LEAK + own_weight) / total
    verdict.others = chains
    return verdict


def _same_cause(one: Fact, other: Fact) -> bool:
    """The same trouble of the same device, told twice (two bursts of one failing disk), does not compete with itself."""
    return one is other or (one.kind, one.host, one.device) == (other.kind, other.host, other.device)


def _acceptable(chain: Chain) -> bool:
    """Only infrastructure may stand at the root: a lost peer or a remapped row explains nothing by itself."""
    return chain.root.kind in _ROOTS


_ROOTS = frozenset({
    "link.outage", "switch.outage", "node.reboot", "node.panic", "slurmd.crash", "munge.failure", "node.deaf", "node.down",
    "admin.down", "prolog.failure", "gpu.xid", "pcie.aer", "gpu.thermal", "disk.error", "disk.full", "storage.outage",
})  # fmt: skip


def _deliberate(world: World, run: Run, end: Fact, chains: list[Chain]) -> tuple[str, float, str, list[Event]] | None:
    told = [f for f in world.facts if f.run == str(run.job_id) and f.kind in ("user.cancel", "sched.preempt", "time.limit")
            and (run.start or run.submit or 0) - 5 <= f.start <= end.start + 60]  # fmt: skip
    lines = [e for f in told for e in f.events]
    if end.kind == "run.preempted":
        return "sched.preempt", 0.98, "Slurm preempted it", lines
    if end.kind == "run.cancelled":
        failed_launch = [c for c in chains if c.root.kind in ("prolog.failure", "disk.full")]
        who = run.row.get("cancelled_by")
        if failed_launch and str(who or "0") in ("0", "root", "slurm"):
            return None
        name = {"0": "root"}.get(str(who), f"uid {who}") if who not in (None, "") else "somebody"
        own = who is not None and str(who) == str(run.row.get("uid"))
        return "user.cancel", 0.97, f"cancelled by {run.row.get('user') if own else name}", lines
    if end.kind == "run.oom":
        return "app.oom", 0.97, "it needed more memory than it had asked for", _memory_events(end)
    if end.kind == "run.failed" and end.attrs["memory"]:
        return "app.oom", 0.95, "one of its steps needed more memory than it had asked for", _memory_events(end)
    if end.kind == "run.timeout" and not [c for c in chains if _acceptable(c)]:
        return "app.timeout", 0.93, "it reached its time limit", lines
    return None


def _memory_events(end: Fact) -> list[Event]:
    return [e for e in end.attrs["memory"] if isinstance(e, Event)]


def _own_explanation(world: World, run: Run, end: Fact) -> tuple[str, float, str, list[Event]]:
    """What the run itself says against any infrastructure cause."""
    own: list[Event] = end.attrs["application"]
    network: list[Event] = end.attrs["communication"]
    if end.kind == "run.node_fail":
        return "infra.node", LEAK, "its node failed, and nothing tells which", []
    if end.kind == "run.requeued":
        return "unknown", LEAK, "it was requeued, and nothing tells why", []
    if end.kind == "run.cancelled":
        return "user.cancel", 0.5, "it was cancelled", []
    if end.kind == "run.timeout":
        return "app.timeout", 0.8, "it reached its time limit", []
    first_own = min((e.time for e in own if not _only_exit(e)), default=None)
    first_network = min((e.time for e in network), default=None)
    if first_own is not None and (first_network is None or first_own <= first_network + 1.0):
        return "app.error", OWN_WORDS, f"its own output says: {_short(own)}", own[:5]
    if first_network is not None:
        return "unknown", NETWORK_WORDS, "its output says only that its peers or the network were lost", network[:5]
    code, signal = run.row.get("exit_code"), run.row.get("exit_signal")
    how = f"signal {signal}" if signal else f"exit code {code}"
    return "app.error", OWN_EXIT, f"it ended by itself with {how}", own[:5]


def _only_exit(event: Event) -> bool:
    """srun's report of an exit code says that a task ended, not why."""
    return (
        event.kind == "job.exit_error" and "traceback" not in event.message.lower() and event.message.startswith("srun")
    )


def _short(events: list[Event]) -> str:
    text = next((e.message for e in events if not _only_exit(e)), events[0].message)
    return text if len(text) <= 120 else text[:117] + "..."
