"""What must hold before a node is drained. Each guard answers with the reason why not, or "".

The first three ask whether it may be done at all, the next ones whether the evidence carries it, the last ones whether the
cluster can bear it. A guard that lacks what it needs refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from correlator.facts.registry import events_with
from correlator.repairs.drain_candidates import Candidate
from faultline.config import DrainAdvisor
from faultline.drains.record import FAILED, INTENDED, TAKEN_OVER, UNDONE, Step
from faultline.drains.slurm_nodes import SlurmNode

#: How many writers that are no users must have reported the fault, each with its own authority or on its own host.
AUTHORITIES = 2
HOUR = timedelta(hours=1)
#: How far the clocks of a node and its switch may be apart: an "up" of one end may be stamped so much before the other's "down".
CLOCKS = timedelta(minutes=5)
#: What Slurm refused is asked again after this time.
AGAIN = timedelta(minutes=10)
#: Every reason that is ours, and that of another service like this one, begins so.
PREFIX = "faultline:"
#: How Slurm writes times, with TZ=UTC.
SLURM_TIME = "%Y-%m-%dT%H:%M:%S"


@dataclass
class Known:
    """What the guards look at, at one moment. ``nodes``: Slurm's; those that were just drained are entered as such."""

    settings: DrainAdvisor
    now: datetime
    nodes: dict[str, SlurmNode]
    steps: Collection[Step]
    #: Hosts that passed the guards about themselves in this round.
    qualified: set[str] = field(default_factory=set)
    #: Hosts of the list whose fault something that is no user reported lately, whether or not they may be drained.
    faulty: set[str] = field(default_factory=set)

    @property
    def most(self) -> int:
        """How many nodes may be drained within an hour."""
        share = int(self.settings.share_per_hour * len(self.nodes))
        return min(self.settings.nodes_per_hour, max(1, share))

    def of_the_hour(self) -> set[str]:
        """The nodes that were drained, or about to be, within the hour: by our record, and by what Slurm has, which a
        second service may have set, or ours before its store was brought back from a copy."""
        since = self.now - HOUR
        ours = {step.host for step in self.steps if step.step == INTENDED and step.at > since}
        return ours | {
            node.name
            for node in self.nodes.values()
            if node.reason.startswith(PREFIX) and _is_since(node.set_at, since)
        }


def _is_since(text: str, since: datetime) -> bool:
    """A time that cannot be read may be of now."""
    try:
        return datetime.strptime(text, SLURM_TIME) > since
    except ValueError:
        return True


def _is_known(known: Known, one: Candidate) -> str:
    return "" if one.host in known.nodes else "Slurm has no node of this name"


def _is_nobodys(known: Known, one: Candidate) -> str:
    node = known.nodes[one.host]
    if node.read.is_draining:
        return f"it is drained already: {node.reason or 'no reason given'} [{node.stamp or 'nobody named'}]"
    return ""


def _is_serving(known: Known, one: Candidate) -> str:
    node = known.nodes[one.host]
    if node.read.is_rebooting or not node.serves or not node.read.is_powered:
        return f"Slurm has it {node.state}: it takes no jobs as it is"
    return ""


def _is_own(known: Known, one: Candidate) -> str:
    if one.incident is None:
        return "no incident has its cause in this device"
    return f"an operator marked incident {one.incident} as wrong" if one.wrong else ""


def _is_witnessed(known: Known, one: Candidate) -> str:
    channels = {(witness.host, witness.authority) for witness in one.witnesses}
    if len(channels) >= AUTHORITIES:
        return ""
    named = ", ".join(f"{authority} of {host}" for host, authority in sorted(channels)) or "none"
    return f"{AUTHORITIES} sources that no user can write to must tell of the fault; it is told by: {named}"


def _is_down(known: Known, one: Candidate) -> str:
    """Whether a link that the list has as down is so by the word of what is no user: any line can say that to the list."""
    downs = [seen.time for seen in one.states if seen.event in events_with("down")]
    if not one.down:
        return ""
    if not downs:
        return "nothing that no user can write says that the link is down now"
    for seen in one.states:
        if seen.event not in events_with("down") and seen.time > max(downs) - CLOCKS:
            return f"the link is up again by {seen.host}'s line of {seen.time:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def is_fresh(known: Known, moment: datetime | None) -> bool:
    """Whether a line is recent enough to act on."""
    return moment is not None and abs(known.now - moment) <= timedelta(minutes=known.settings.fresh_minutes)


def _is_fresh(known: Known, one: Candidate) -> str:
    newest = one.newest
    if not is_fresh(known, newest):
        return f"the newest line is from {newest:%Y-%m-%d %H:%M} UTC" if newest else "no line tells of it"
    return ""


def _respects_people(known: Known, one: Candidate) -> str:
    if one.held:
        return one.held
    since = known.now - timedelta(hours=known.settings.respect_hours)
    for step in known.steps:
        if step.host == one.host and step.step in (UNDONE, TAKEN_OVER) and step.at > since:
            return f"somebody decided about our drain at {step.at:%Y-%m-%d %H:%M} UTC: {step.detail}"
    return ""


def _is_not_refused_by_slurm(known: Known, one: Candidate) -> str:
    tried = (s for s in known.steps if s.host == one.host and s.step == FAILED and s.at > known.now - AGAIN)
    return next((f"Slurm did not do it at {step.at:%H:%M} UTC: {step.detail}" for step in tried), "")


def _is_no_storm(known: Known, one: Candidate) -> str:
    at_once = known.faulty | known.qualified
    if len(at_once) > known.most:
        return (
            f"{len(at_once)} nodes have such a fault at once, more than the {known.most} of an hour: what they have in "
            "common is the cause, and a person must look"
        )
    return ""


def _is_within_rate(known: Known, one: Candidate) -> str:
    done = known.of_the_hour() - {one.host}
    return f"{len(done)} nodes were drained within the hour, and {known.most} may be" if len(done) >= known.most else ""


def _leaves_enough(known: Known, one: Candidate) -> str:
    node = known.nodes[one.host]
    able, members = _capacity(known.nodes.values())
    for name in node.partitions or ("",):
        floor = known.settings.floors.get(name, known.settings.floor)
        left = able[name] - 1
        if left < floor * members[name]:
            where = f"partition {name}" if name else "the cluster"
            return f"{left} of {members[name]} nodes of {where} would be left, and {floor:.0%} must stay"
    return ""


def _capacity(nodes: Iterable[SlurmNode]) -> tuple[Counter[str], Counter[str]]:
    """By partition, the nodes that can run jobs, and all; nodes of none count for the partition ""."""
    able: Counter[str] = Counter()
    members: Counter[str] = Counter()
    for node in nodes:
        for name in node.partitions or ("",):
            members[name] += 1
            able[name] += node.serves
    return able, members


Guard = Callable[[Known, Candidate], str]
#: About the node and the evidence.
OF_NODE: Mapping[str, Guard] = {
    "node": _is_known, "drained": _is_nobodys, "state": _is_serving, "people": _respects_people, "incident": _is_own,
    "authorities": _is_witnessed, "down": _is_down, "freshness": _is_fresh, "slurm": _is_not_refused_by_slurm,
}  # fmt: skip
#: About what the cluster can bear.
OF_CLUSTER: Mapping[str, Guard] = {"rate": _is_within_rate, "storm": _is_no_storm, "floor": _leaves_enough}


def refusal(guards: Mapping[str, Guard], known: Known, one: Candidate) -> tuple[str, str] | None:
    """The first guard that refuses, and why; None if all let it pass."""
    for name, guard in guards.items():
        if why := guard(known, one):
            return name, why
    return None


__all__ = ["OF_CLUSTER", "OF_NODE", "PREFIX", "Known", "is_fresh", "refusal"]
