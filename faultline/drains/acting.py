"""One round of the acting mode: follow the drains that stand, then carry out the advice that every guard lets pass.

A node is ours only while Slurm has exactly the reason that we gave, set by the same user at the same second as Slurm reported
right afterwards. All else is somebody's decision: it is recorded, and the node is not touched.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from correlator.repairs.drain_candidates import Candidate, candidates
from faultline.drains import record
from faultline.drains.guards import OF_CLUSTER, OF_NODE, PREFIX, Known, is_fresh, refusal
from faultline.drains.record import Record, Step
from faultline.drains.slurm_nodes import Nodes, SlurmError, SlurmNode, called, plain
from faultline.programs import ServiceEndsError
from store.questions import inventory

if TYPE_CHECKING:
    from faultline.config import DrainAdvisor
    from store.door import Door

log = structlog.get_logger()

#: How often it looks, in seconds.
EVERY_S = 60
#: slurmctld may still carry out what a killed ``scontrol`` had asked; after this time it will not.
PENDING = timedelta(minutes=10)
#: A check that failed is run again after this time.
CHECK_AGAIN = timedelta(minutes=30)
#: No further check is begun in a round after this time, in seconds: the list is to be looked at again.
CHECKS_S = 60.0
#: How long the bridge may take, in seconds.
BRIDGE_S = 20.0
#: Steps that are sent to the bridge: what changes whether jobs may go to the node.
FORWARDED = frozenset({record.DRAINED, record.RESUMED, record.UNDONE, record.TAKEN_OVER, record.GONE})


def _utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


@dataclass(eq=False)
class DrainAdvising(Collector):
    """The acting mode of one cluster, ``cluster`` of the service's configuration."""

    store: Door
    settings: DrainAdvisor
    cluster: str | None
    nodes: Nodes
    now: Callable[[], datetime] = _utc_now
    trouble: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    #: Set when the service ends: programs that run are killed, and no further one is begun.
    ended: threading.Event = field(default_factory=threading.Event)
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._record = Record(self.store)
        self._standing = 0
        #: The last trouble that was logged.
        self._logged = ""

    def round(self) -> None:
        """Decides about every node that is advised or that we drained."""
        if self.cluster is None and len(self.store.ask(inventory.clusters())) > 1:
            self._in_trouble(
                "several clusters are stored: say which is this Slurm's (cluster = ... in the configuration)"
            )
            return
        now = self.now()
        steps = self._record.steps(now)
        # Steps of one moment are kept some microseconds apart.
        if steps and steps[-1].at > now + timedelta(seconds=EVERY_S):
            self._in_trouble(f"a step of {steps[-1].at} was kept, which is to come: is the clock right?")
            return
        ours = record.standing(steps)
        advised = {one.host: one for one in candidates(self.store, self.cluster)}
        self._standing = len(ours)
        if not advised and not ours:
            self.trouble = None
            return
        try:
            nodes = dict(self.nodes.all())
        except SlurmError as error:
            self._in_trouble(str(error))
            return
        self.trouble = None
        withdrawn = [
            one for host, step in ours.items() if (one := self._follow(step, nodes.get(host), advised.get(host)))
        ]
        known = Known(self.settings, now, nodes, self._record.steps(now))
        is_answered = self._advise([one for host, one in advised.items() if host not in ours], known)
        # Last, because a check takes its time, and what the guards looked at would grow old meanwhile.
        self._check(withdrawn if is_answered else [])
        self._standing = len(record.standing(self._record.steps(now)))

    # ------------------------------------------------------------------------------------------------------- draining

    def _advise(self, advised: list[Candidate], known: Known) -> bool:
        """Drains what every guard lets pass; False if Slurm does not answer, and nothing more should be asked of it now."""
        last = record.last_of_hosts(known.steps)
        known.faulty = {one.host for one in advised if is_fresh(known, one.newest_fault)}
        for one in advised:
            if (no := refusal(OF_NODE, known, one)) is None:
                known.qualified.add(one.host)
            else:
                self._refuse(one, no, last.get(one.host))
        for one in (one for one in advised if one.host in known.qualified):
            no = refusal(OF_CLUSTER, known, one) or self._changed(one)
            if no is not None:
                self._refuse(one, no, last.get(one.host))
            elif not self._drain(one, known):
                return False
        return True

    def _changed(self, one: Candidate) -> tuple[str, str] | None:
        """Asks once more, right before: somebody may have acted since the list was read."""
        try:
            now = self.nodes.one(one.host)
        except SlurmError as error:
            return "slurm", str(error)
        if now.read.is_draining or not now.serves:
            return "drained", f"it changed a moment ago: {now.state} {now.reason} [{now.stamp}]"
        return None

    def _refuse(self, one: Candidate, no: tuple[str, str], last: Step | None) -> None:
        """Keeps a refusal, once while guard and incident stay the same."""
        guard, why = no
        if last is not None and (last.step, last.guard, last.incident_id) == (record.REFUSED, guard, one.incident):
            return
        self._keep(replace(self._begun(one, record.REFUSED), guard=guard, detail=why))

    def _begun(self, one: Candidate, step: str) -> Step:
        evidence = json.dumps([witness.document() for witness in one.witnesses])
        return Step(
            uuid.uuid4().hex[:12], one.cluster, one.host, one.device, one.incident, step, self.now(), evidence=evidence
        )

    def _drain(self, one: Candidate, known: Known) -> bool:
        """Drains a node; False if Slurm does not answer, and nothing more should be asked of it now."""
        step = self._begun(one, record.INTENDED)
        what = "has no carrier" if one.down else "comes and goes and hurt jobs"
        # The name of the decision makes the reason one that nobody else has.
        step = replace(
            step, reason=plain(f"{PREFIX}{one.incident} {one.device} {what} ({step.decision})"), detail=one.action
        )
        self._keep(step)
        known.steps = [*known.steps, step]
        node = known.nodes[one.host]
        known.nodes[one.host] = replace(node, state=f"{node.state}+DRAIN", reason=step.reason)
        try:
            self.nodes.drain(one.host, step.reason)
            self._settle(step, self.nodes.one(one.host))
        except SlurmError as error:
            # What became of it is seen in the next round: slurmctld may have done it, or still do it.
            self._in_trouble(f"{one.host} was to be drained: {error}")
            return False
        return True

    # ------------------------------------------------------------------------------------------------------ following

    def _follow(self, step: Step, node: SlurmNode | None, advised: Candidate | None) -> Step | None:
        """What became of a drain of ours. Returns one that a passed check may end."""
        if node is None:
            self._keep(step.then(record.GONE, self.now(), "Slurm has no node of this name any more"))
        elif step.step == record.INTENDED:
            self._settle(step, node)
        elif not node.read.is_draining and step.step == record.RESUMING:
            self._keep(step.then(record.RESUMED, self.now(), step.detail))
        elif not node.read.is_draining:
            self._keep(step.then(record.UNDONE, self.now(), f"somebody gave it back: Slurm has it {node.state}"))
        elif not _is_ours(step, node):
            self._keep(step.then(record.TAKEN_OVER, self.now(), f"its reason is now {node.reason} [{node.stamp}]"))
        elif advised is None:
            return self._withdrawn(step)
        return None

    def _settle(self, step: Step, node: SlurmNode) -> None:
        """Whether Slurm did what was intended."""
        if node.read.is_draining and node.reason == step.reason:
            self._keep(step.then(record.DRAINED, self.now(), step.detail, stamp=node.stamp))
        elif node.read.is_draining:
            self._keep(
                step.then(record.TAKEN_OVER, self.now(), f"its reason is {node.reason} [{node.stamp}], not ours")
            )
        elif self.now() - step.at > PENDING:
            self._keep(step.then(record.FAILED, self.now(), f"Slurm was asked, and has it {node.state}"))

    def _withdrawn(self, step: Step) -> Step | None:
        """The list does not advise it any more: repaired, or the evidence was withdrawn. Only a check gives it back."""
        if step.step == record.DRAINED:
            words = "the repair list does not advise it any more"
            step = step.then(
                record.WITHDRAWN, self.now(), words if self.settings.resume else f"{words}; a person may resume it"
            )
            self._keep(step)
        waits = step.step == record.CHECK_FAILED and self.now() - step.at < CHECK_AGAIN
        return None if waits or not self.settings.resume else step

    def _check(self, steps: list[Step]) -> None:
        """Gives back nodes whose check passes, those that waited longest first, as far as there is time in this round."""
        begun = self.monotonic()
        for step in sorted(steps, key=lambda step: step.at):
            if self.monotonic() - begun >= CHECKS_S:
                return
            try:
                why = self._failed_check(step.host)
            except ServiceEndsError:
                return
            if why:
                self._keep(step.then(record.CHECK_FAILED, self.now(), why))
            else:
                self._resume(step)

    def _resume(self, step: Step) -> None:
        try:
            node = self.nodes.one(step.host)
            if not _is_ours(step, node):  # changed while the check ran: seen in the next round
                return
            if node.read.is_broken:  # RESUME would end that as well
                self._keep(step.then(record.CHECK_FAILED, self.now(), f"Slurm has it {node.state}"))
                return
            step = step.then(record.RESUMING, self.now(), f"{self.settings.check[0]} passed")
            self._keep(step)
            self.nodes.resume(step.host)
        except SlurmError as error:
            self._in_trouble(f"{step.host} was to be resumed: {error}")
            return
        self._keep(step.then(record.RESUMED, self.now(), step.detail))

    def _failed_check(self, host: str) -> str:
        """Why the site's check did not pass; "" if it did. Raises ``ServiceEndsError``."""
        program = self.settings.check[0]
        try:
            code, output = called([*self.settings.check, host], self.settings.check_timeout_s, ended=self.ended)
        except subprocess.TimeoutExpired:
            return f"{program}: no answer within {self.settings.check_timeout_s:g} s"
        except OSError as error:
            return f"{program}: {error.strerror}"
        return f"{program}: exit code {code}: {' '.join(output.split())[:300]}" if code else ""

    # ------------------------------------------------------------------------------------------------------- the bridge

    def _keep(self, step: Step) -> None:
        self._record.keep(step)
        self.counts[step.step] = self.counts.get(step.step, 0) + 1
        log.info(
            "drain advisor", node=step.host, step=step.step, guard=step.guard, detail=step.detail, reason=step.reason
        )
        if self.settings.bridge and step.step in FORWARDED:
            self._tell(step)

    def _tell(self, step: Step) -> None:
        """Tells the bridge. It decides nothing: what it answers changes no step."""
        try:
            # Not killed when the service ends: nothing would tell it again.
            code, output = called(self.settings.bridge, BRIDGE_S, json.dumps(step.document()).encode())
        except (OSError, subprocess.TimeoutExpired) as error:
            code, output = 1, str(error)
        if code:
            self._in_trouble(
                f"the bridge was not told that {step.host} is {step.step}: {' '.join(output.split())[:200]}"
            )

    def _in_trouble(self, why: str) -> None:
        text = f"drain advisor: {why}"
        if text != self._logged:
            log.warning("drain advisor", error=why)
        self.trouble = self._logged = text

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics of the acting mode."""
        steps = CounterMetricFamily(
            "faultline_drain_steps", "Steps of the drain advisor, by what was done.", labels=("step",)
        )
        for step, count in sorted(self.counts.items()):
            steps.add_metric((step,), count)
        yield steps
        yield GaugeMetricFamily(
            "faultline_drains_standing", "Nodes that the drain advisor drained and that are so.", self._standing
        )


def _is_ours(step: Step, node: SlurmNode) -> bool:
    return node.read.is_draining and (node.reason, node.stamp) == (step.reason, step.stamp)


__all__ = ["DrainAdvising"]
