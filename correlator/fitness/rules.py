"""What makes a node unfit, and what only doubtful. A table of situations tests it (tests/correlator/fitness/test_fitness.py).

Only what lasts, is proven and hurts any job makes a node unfit: a GPU that is lost or needs a reset by NVIDIA's
catalogue, a link without carrier that no other plane replaces, and what Slurm itself says. All else is a doubt:
patterns, what may have been repaired, what a user could have written, and silence.

A person who takes a node out of DRAIN has judged it: what happened before is a doubt from then on, and a reboot ends
what a reboot repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from correlator.facts.registry import grave
from correlator.facts.world import bus_of
from correlator.fitness.model import Fitness, NodeFitness, Reason, in_order
from correlator.repairs.model import Repair
from parsers import extensions
from parsers.node_states import NodeState, node_state
from parsers.writers import in_words

#: An agent reports once a minute (collector/agent/agent.py, STATUS_EVERY_S); ten of them missing are a silence.
AGENT_SILENT_S = 600.0
#: A node without an agent writes lines of cron and of timers at least hourly.
LINES_SILENT_S = 7200.0
#: For this long a doubt remains about a cause that ended without a repair being seen.
UNREPAIRED_S = 86_400.0
#: Below this confidence an incident does not prove its lines (an unproven one has 0.5 at most).
PROVEN = 0.8


@dataclass(frozen=True, slots=True)
class GraveLine:
    """Equal lines about a GPU or of a failed validation: the last of them, and since when they come. ``proven``: no
    user can have written it, or the correlator found it to be true."""

    event: str
    message: str
    since: datetime
    last: datetime
    device: str | None = None
    xid: int | None = None
    authority: str | None = None
    source: str | None = None
    proven: bool = True
    #: The name of a validation, and when the same validator last reported that it passed.
    check: str | None = None
    passed: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeIncident:
    """An incident that has its root in the node (``rooted``), or in which something of the node still lasts."""

    incident_id: str
    title: str
    start: datetime
    end: datetime
    rooted: bool
    is_open: bool
    lasts: str = ""


@dataclass
class Situation:
    """What is known of one node. Times are naive UTC.

    ``last_seen``: when the node last reported itself, ``has_agent``: by an agent. ``undrained``: when it last left DRAIN.
    """

    node: str
    host: str
    cluster: str | None = None
    state: str | None = None
    reason: str | None = None
    state_since: datetime | None = None
    had_jobs: bool = False
    has_agent: bool = False
    last_seen: datetime | None = None
    booted: datetime | None = None
    undrained: datetime | None = None
    lines: list[GraveLine] = field(default_factory=list)
    validations: list[GraveLine] = field(default_factory=list)
    incidents: list[NodeIncident] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    lemon: bool = False


def judged(known: Situation, now: datetime) -> NodeFitness:
    """The answer about a node."""
    reasons = [
        *_of_slurm(known), *_of_gpus(known), *_of_validations(known), *_of_links(known), *_of_incidents(known, now),
        *_of_patterns(known), *_of_silence(known, now),
    ]  # fmt: skip
    runs_jobs = known.state is not None or known.had_jobs
    return NodeFitness(known.node, known.host, known.cluster, in_order(reasons), runs_jobs)


# --------------------------------------------------------------------------------------------------------------- Slurm


def _of_slurm(known: Situation) -> Iterator[Reason]:
    if known.state is None:
        if not known.had_jobs:
            yield Reason(Fitness.DOUBTFUL, "nothing shows that Slurm has a node of this name", "no state, no job")
        return
    state = node_state(known.state)
    why = f": {known.reason}" if known.reason else ""
    evidence = f"Slurm's state {known.state}{why}"
    for holds, verdict, text in _STATES:
        if holds(state):
            yield Reason(verdict, f"Slurm {text}{why}", evidence, known.state_since, known_to_slurm=True)
            return


#: The first that holds counts.
_STATES: tuple[tuple[Callable[[NodeState], bool], Fitness, str], ...] = (
    (lambda s: s.is_broken, Fitness.UNFIT, "has set it DOWN or failed"),
    (lambda s: s.is_draining, Fitness.UNFIT, "drains it"),
    (lambda s: s.is_silent, Fitness.DOUBTFUL, "gets no answer from it"),
    (lambda s: s.is_in_maintenance, Fitness.DOUBTFUL, "has it reserved for maintenance"),
    (lambda s: not s.is_up, Fitness.DOUBTFUL, "does not have it up"),
)


# ---------------------------------------------------------------------------------------------------------------- GPUs


def _of_gpus(known: Situation) -> Iterator[Reason]:
    """One reason for each GPU: several sources report the same fault, and an Xid says more than that a GPU is lost. Lines
    without a device are of the same fault if one kind of fact declares them."""
    gravest: dict[tuple[str, str], tuple[tuple[int, bool, datetime], Reason]] = {}
    for line in known.lines:
        reason = _of_gpu(known, line)
        if reason is None:
            continue
        declared, kind = grave()[line.event]
        rank = (list(Fitness).index(reason.verdict), declared.conclusive, line.last)
        gpu = ("", bus_of(line.device)) if line.device else (kind.name, "")
        if gpu not in gravest or rank > gravest[gpu][0]:
            gravest[gpu] = (rank, reason)
    yield from (reason for _, reason in gravest.values())


def _of_gpu(known: Situation, line: GraveLine) -> Reason | None:
    if known.booted is not None and known.booted > line.last:
        return None
    declared, kind = grave()[line.event]
    try:
        text = declared.says(line.device, line.xid)
    except Exception as error:  # a package's; the answers about all other nodes and lines stand
        extensions.warn_once(
            f"kind of fact {kind.name}: what it says of {line.event} raised {extensions.described(error)}", error
        )
        return Reason(Fitness.DOUBTFUL, f"what {line.event} says of the node is not known", line.message, line.since)
    if text is None:
        return None
    verdict = Fitness.UNFIT
    if not line.proven:
        text, verdict = f"{text}; {in_words(line.authority, known.host) or 'its writer is not known'}", Fitness.DOUBTFUL
    elif known.undrained is not None and known.undrained > line.last:
        text, verdict = f"{text}; it was taken out of DRAIN since, without a reboot", Fitness.DOUBTFUL
    return Reason(verdict, text, line.message, line.since)


def _of_validations(known: Situation) -> Iterator[Reason]:
    """A check that failed. Some validators say when it passes again; else a boot and a person do."""
    for line in known.validations:
        if max(known.booted or line.last, known.undrained or line.last, line.passed or line.last) > line.last:
            continue
        text = f"{line.source} reported a failed check{f' ({line.check})' if line.check else ''}"
        if not line.proven:
            text += f"; {in_words(line.authority, known.host) or 'its writer is not known'}"
        yield Reason(Fitness.DOUBTFUL, text, line.message, line.since)


# --------------------------------------------------------------------------------------------------------------- links


def _of_links(known: Situation) -> Iterator[Reason]:
    """Links and corrected errors of the repair list (``correlator.repairs``)."""
    for repair in known.repairs:
        if (
            known.undrained is not None
            and repair.last is not None
            and known.undrained > repair.last
            and not repair.down
        ):
            continue
        shown = f"the repair list, {repair.host} {repair.device}"
        if repair.down:
            other = repair.planes > 1
            instead = f"; {repair.planes - 1} other planes carry the traffic" if other else ""
            verdict = Fitness.DOUBTFUL if other else Fitness.UNFIT
            yield Reason(verdict, f"{repair.device} has no carrier{instead}", shown, repair.last)
        elif repair.kind == "link" and (repair.outlier or repair.urgency == "now"):
            hurt = f", and hurt {len(repair.ended) + len(repair.slowed)} jobs" if repair.ended or repair.slowed else ""
            text = f"{repair.device} comes and goes, {repair.flaps or repair.errors} times{hurt}: {repair.action}"
            yield Reason(Fitness.DOUBTFUL, text, shown, repair.first)
        elif repair.kind == "gpu" and repair.outlier:
            text = f"GPU {repair.device} corrected {repair.errors} errors, more than chance explains"
            yield Reason(Fitness.DOUBTFUL, text, shown, repair.first)


# ----------------------------------------------------------------------------------------------- incidents and patterns


def _of_incidents(known: Situation, now: datetime) -> Iterator[Reason]:
    latest = min(now, known.last_seen or now)  # a silence repairs nothing
    for incident in known.incidents:
        shown = f"incident {incident.incident_id}"
        if incident.lasts:
            yield Reason(Fitness.DOUBTFUL, incident.lasts, shown, incident.start)
        if not incident.rooted:
            continue
        repaired = max(known.booted or incident.start, known.undrained or incident.start) > incident.end
        if incident.is_open and not repaired:
            yield Reason(
                Fitness.DOUBTFUL, f"an open incident has its cause here: {incident.title}", shown, incident.start
            )
        elif not repaired and latest - incident.end <= timedelta(seconds=UNREPAIRED_S):
            text = f"an incident had its cause here, and nothing shows that it was repaired: {incident.title}"
            yield Reason(Fitness.DOUBTFUL, text, shown, incident.start)


def _of_patterns(known: Situation) -> Iterator[Reason]:
    if known.lemon:
        text = "it is the cause of more incidents than chance explains"
        yield Reason(Fitness.DOUBTFUL, text, f"GET /api/v1/nodes/{known.node}/risk")


# ------------------------------------------------------------------------------------------------------------- silence


def _of_silence(known: Situation, now: datetime) -> Iterator[Reason]:
    """A node that nobody reports of is not fit: an error there would not be seen."""
    if known.last_seen is None:
        yield Reason(Fitness.DOUBTFUL, "nothing that it writes is collected", "no agent, no line of its own")
        return
    silent_s = (now - known.last_seen).total_seconds()
    if silent_s > (AGENT_SILENT_S if known.has_agent else LINES_SILENT_S):
        whose = "its agent reported last" if known.has_agent else "its last line is from"
        text = f"nothing arrived from {'its agent' if known.has_agent else 'it'} for {lasting(silent_s)}"
        yield Reason(Fitness.DOUBTFUL, text, f"{whose} {known.last_seen:%Y-%m-%d %H:%M} UTC", known.last_seen)


def lasting(seconds: float) -> str:
    """A duration in words, rounded down: 90 s, 12 min, 5 h, 3 days."""
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


__all__ = ["GraveLine", "NodeIncident", "Situation", "judged", "lasting"]
