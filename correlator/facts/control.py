"""Actions of people and of Slurm itself: cancelled, preempted, drained, restarted, ran a failing prolog."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import replace
from typing import Any, NotRequired, TypedDict

from correlator.facts.nodes.detector import is_order, ups_of
from correlator.facts.nodes.kinds import NODE_REBOOT, RESUME, NodeReboot
from correlator.facts.power_saving import RESUMES_S, Power
from correlator.facts.world import World, hosts_of, merge_near
from correlator.model.attributes import BOOT, HOSTS, INFERRED, REASON
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Cause, Kind, NoAttrs, Trace
from correlator.model.nouns import Event, Fact, Revision, Run, in_order


class AskedEnd(TypedDict):
    """``uid`` of the requester; ``by_controller``: slurmctld's own log shows it."""

    uid: Any
    by_controller: bool


class HookFailure(TypedDict):
    """``which``: prolog or epilog; ``hosts``: all nodes that were tried, if it failed on each of them.

    ``controllers``: it is slurmctld's own, which no node runs. ``unfit``: Faultline's gate in it refused the job, by this
    check, and since when it fails.
    """

    which: str
    controllers: NotRequired[bool]
    unfit: NotRequired[str]
    hosts: NotRequired[list[str]]


class NodeDrain(TypedDict):
    """The ``reason`` that was given; ``maintenance``: it names planned work."""

    reason: str
    maintenance: bool


class ControllerRestart(TypedDict, total=False):
    """``took_over``: it is a backup's takeover, which had run before: nobody was answered meanwhile, and nothing restarted."""

    took_over: bool


USER_CANCEL = Kind("user.cancel", "slurmctld", "Somebody cancelled a job or sent it a signal.", AskedEnd)
SCHED_PREEMPT = Kind("sched.preempt", "slurmctld", "Slurm preempted a job.", AskedEnd)
TIME_LIMIT = Kind("time.limit", "slurmctld", "Slurm ended a job at a time limit.", AskedEnd)

_PROLOG = Cause(
    "slurm.prolog_failure", "infra.scheduler", "the prolog failed on {host}", "a node failed its check before the job began",
    (("Run the prolog by hand on {host}.", None), RESUME), unharmed="degraded", software=("os", "image"),
)  # fmt: skip
_PROLOG_EVERYWHERE = replace(
    _PROLOG, title="the prolog failed on every node that was tried ({nodes})", plain="the cluster's check before jobs failed on every node that was tried",
    short="the prolog failed everywhere", again="when that is mended",
    advice=(("Run the prolog by hand on one of {nodes}, and see what all nodes share that it needs: its script, a server, a mount. Then put them back into service.", None),),
)  # fmt: skip

_PROLOG_OF_CONTROLLER = replace(
    _PROLOG, title="the controller's own prolog (PrologSlurmctld) failed on {host}", plain="the controller's check before the job failed",
    short="PrologSlurmctld failed", again="when that is mended", advice=(("Run the script of PrologSlurmctld by hand on {host}.", None),),
)  # fmt: skip

_GATE = replace(
    _PROLOG, event="node.unfit", category="infra.node", title="{host} was found unfit by Faultline's gate: {unfit}",
    plain="its node was found unfit before the job began", short="found unfit by Faultline's gate",
    advice=(("See what makes {host} unfit, and repair that.", "faultline node {host}"), RESUME),
    disproof="A record of the gate in root's spool on another node, or a check of this node that finds it fit.",
    software=(), avoid=False,
)  # fmt: skip


def _whose_prolog(fact: Fact) -> Cause | None:
    if fact.attrs.get(UNFIT):
        return _GATE
    if fact.attrs.get(CONTROLLERS):
        return _PROLOG_OF_CONTROLLER
    return _PROLOG_EVERYWHERE if fact.attrs.get(HOSTS) else None


PROLOG_FAILURE = Kind(
    "prolog.failure", "slurmd", "The prolog failed on a node.", HookFailure,
    witnesses=("slurmd", "slurmctld"),
    brief="prolog failed", reported_within_s=60.0, cause=_PROLOG, variant=_whose_prolog, variants=(_GATE,),
)  # fmt: skip

EPILOG_FAILURE = Kind(
    "epilog.failure", "slurmd", "The epilog failed on a node.", HookFailure,
    witnesses=("slurmd", "slurmctld"),
    brief="epilog failed",
    cause=Cause(
        "slurm.epilog_failure", "infra.scheduler", "the epilog failed on {host}", "a node failed its check after the job",
        (("Run the epilog by hand on {host}.", None), RESUME), unharmed="degraded", root=False,
    ),
)  # fmt: skip

NODE_DRAIN = Kind(
    "node.drain", "node", "A node was taken out of service.", NodeDrain,
    brief="node drained", role="effect",
    cause=Cause("slurm.admin_action", "infra.scheduler", "{host} was drained", "a node was drained", root=False),
)  # fmt: skip

#: The first line of a log is often the daemon's start: no restart.
_BEGIN_S = 5.0

_TAKEOVER = Cause(
    "slurm.controller_restart", "infra.scheduler", "the backup controller {host} took over", "the backup controller took over",
    unharmed="benign", root=False,
)  # fmt: skip


def _is_other_back(world: World, takeover: Fact) -> bool:
    """Did the controller from which a backup took over write again? Then its return makes the incident."""
    return bool(takeover.attrs.get(TOOK_OVER)) and any(
        event.source == "slurmctld" and event.time > takeover.start + _BEGIN_S
        for host in world.controllers - {takeover.host}
        for event in world.by_host.get(host or "", ())
    )


CONTROLLER_RESTART = Kind(
    "controller.restart", "slurmctld", "slurmctld restarted, or a backup took over.", ControllerRestart,
    brief="slurmctld restarted", trace=Trace("slurmctld restart", "slurmctld did not restart", anywhere=True),
    cause=Cause(
        "slurm.controller_restart", "infra.scheduler", "slurmctld restarted", "the controller restarted",
        unharmed="benign", root=False,
        trivial=lambda world, fact: fact.start - world.first < _BEGIN_S or _is_other_back(world, fact),
    ),
    variant=lambda fact: _TAKEOVER if fact.attrs.get(TOOK_OVER) else None,
)  # fmt: skip

KILL_FAILURE = Kind("kill.failure", "slurmd", "Processes of a job could not be killed.", NoAttrs)

#: Attributes that are read in this file only.
CONTROLLERS: Attr[bool] = attr("controllers")
UNFIT: Attr[str] = attr("unfit")
TOOK_OVER: Attr[bool] = attr("took_over")

_MAINTENANCE = re.compile(
    r"\b(maint|maintenance|reservation|planned|scheduled|firmware|upgrade|reboot asap)\b", re.IGNORECASE
)


def is_own(run: Run, who: str | None) -> bool:
    """Did the user of the run ask for it? ``who``: a number or a name, as Slurm logs it."""
    return who in {str(own) for name in ("uid", "user") if (own := run.row.get(name)) not in (None, "")}


#: Root, as Slurm logs it.
ROOT = frozenset({"0", "root"})


def is_others(run: Run, who: str | None) -> bool:
    """Did certainly somebody else than the user of the run ask for it? A number tells that only where the user's number is known."""
    if who in (None, "") or is_own(run, who):
        return False
    return who in ROOT or run.row.get("uid" if str(who).isdigit() else "user") not in (None, "")


def cancellations(world: World) -> list[Fact]:
    """``user.cancel`` (with uid), ``sched.preempt``, ``time.limit``: Slurm's own lines about one job."""
    facts: list[Fact] = []
    kinds = {
        "slurm.job_cancelled": USER_CANCEL, "slurm.job_preempted": SCHED_PREEMPT, "slurm.job_timeout": TIME_LIMIT,
    }  # fmt: skip
    refused = _refused_requests(world)
    for event in world.kinds(*kinds):
        if event.job_id is None or event.entities.get("symptom") or event.id in world.doubted:
            continue  # a line that any user can write does not show who asked for an end
        if (event.job_id, event.entities.get("uid"), int(event.time // REFUSED_S)) in refused:
            continue
        attrs: AskedEnd = {"uid": event.entities.get("uid"), "by_controller": event.source == "slurmctld"}
        kind, run = kinds[event.kind], str(event.job_id)
        facts.append(kind.fact(event.time, None, event.sigma, event.host, run=run, attrs=attrs, events=(event,)))
    return facts


#: slurmctld logs a request before it waits for the lock of its jobs, and refuses it then: on a busy one seconds later (seconds).
#: Whoever may not cancel a job may not do so a minute earlier or later either.
REFUSED_S = 60.0


def _refused_requests(world: World) -> set[tuple[int, object, int]]:
    """Job, uid and moment of what slurmctld did not permit: it logs the request before, like one that it grants."""
    return {
        (e.job_id, e.entities.get("uid"), int(e.time // REFUSED_S) + slot)
        for e in world.kinds("slurm.cancel_refused") for slot in (-1, 0, 1)
        if e.source == "slurmctld" and e.job_id is not None
    }  # fmt: skip


def hook_failures(world: World) -> list[Fact]:
    """``prolog.failure`` and ``epilog.failure`` on a node, tied to the job if a line names it."""
    facts: list[Fact] = []
    for event in world.kinds(
        "slurm.node_drain", "slurm.node_error", "slurm.node_reason", "slurm.job_failed", "slurm.kill_task_failed"
    ):
        text = event.message.lower()
        which = "prolog" if "prolog" in text else "epilog" if "epilog" in text else None
        if which is None or not re.search(r"fail|error|hung|draining", text):
            continue
        kind = PROLOG_FAILURE if which == "prolog" else EPILOG_FAILURE
        for host in hosts_of(event) or [None]:  # type: ignore[list-item]
            attrs: HookFailure = {"which": which}
            if f"{which}_slurmctld" in text:
                attrs["controllers"] = True
            run = str(event.job_id) if event.job_id is not None else None
            facts.append(kind.fact(event.time, None, event.sigma, host, run=run, attrs=attrs, events=(event,)))
    return [_refused(fact, world) for fact in _one_per_failure(facts)]


#: The gate's record is written right before the prolog that asked it fails; on a slow disk it takes some seconds.
REFUSAL_S = 10.0


def _refused(fact: Fact, world: World) -> Fact:
    """A failed prolog in which Faultline's gate had refused the job. Root's prolog leaves that record, where no user can write
    (parsers/documents/hook.py). Without a failed prolog it proves nothing: a site may ask the gate and go on."""
    if fact.kind != PROLOG_FAILURE.name or not fact.host:
        return fact
    for event in world.kinds("sys.gate_refused"):
        run = str(event.job_id) if event.job_id is not None else None
        near = abs(event.time - fact.start) <= REFUSAL_S
        if near and event.host == fact.host and event.entities.get("reason") and fact.run in (None, run):
            since = event.entities.get("since")
            known = f", since {str(since).replace('T', ' ')} UTC" if since else ""
            attrs: HookFailure = {**PROLOG_FAILURE.attrs_of(fact), "unfit": f"{event.entities['reason']}{known}"}
            events = in_order(fact.events, (event,))
            return replace(fact, run=run, attrs=PROLOG_FAILURE.as_attrs(attrs), events=events)
    return fact


#: slurmd, slurmctld's agent, the drain and its reason all report the same failure within a moment.
SAME_FAILURE_S = 5.0


def _one_per_failure(facts: list[Fact]) -> list[Fact]:
    """One fact per failing node, tied to the job; the controller's lines that name only the job are added to it."""
    on_nodes = merge_near([f for f in facts if not _from_controller(f)], SAME_FAILURE_S)
    for fact in sorted((f for f in facts if _from_controller(f)), key=lambda f: f.key):
        near = [n for n, f in enumerate(on_nodes) if f.kind == fact.kind and abs(f.start - fact.start) <= SAME_FAILURE_S
                and (fact.run is None or f.run in (None, fact.run))]  # fmt: skip
        if not near:
            on_nodes.append(fact)
        for n in near:
            other = on_nodes[n]
            start, events = min(other.start, fact.start), in_order(other.events, fact.events)
            on_nodes[n] = replace(other, start=start, run=other.run or fact.run, events=events)
    return on_nodes


def _from_controller(fact: Fact) -> bool:
    """Is the fact's host only the writer (slurmctld), not a node named in the line?"""
    event = fact.events[0]
    return event.source == "slurmctld" and not event.entities.get("nodes")


#: A job whose prolog failed is tried on other nodes within this: it is requeued for two minutes. A tick looks 900 s back.
NEXT_TRY_S = 600.0


def common_failures(world: World) -> list[Revision]:
    """Prologs that failed on one node after another, while no node began a job: none of the nodes is at fault."""
    found_unfit = [f for f in world.facts_of(PROLOG_FAILURE.name) if f.attrs.get(UNFIT)]  # each of its own node
    failures = [
        f for f in world.facts_of(PROLOG_FAILURE.name) if f.host and not _from_controller(f) and f not in found_unfit
    ]
    failures.sort(key=_start)
    begun = [e.time for e in world.kinds("slurm.step_start") if e.source == "slurmd" and "batch job" in e.message]
    found: list[Revision] = []
    for fact in failures:
        since = bisect_left(failures, fact.start - NEXT_TRY_S, key=_start)
        near = failures[since : bisect_right(failures, fact.start + NEXT_TRY_S, key=_start)]
        hosts = sorted({f.host for f in near if f.host})
        first, last = near[0].start - SAME_FAILURE_S, near[-1].start + SAME_FAILURE_S
        if len(hosts) > 1 and not any(first <= time <= last for time in begun):
            attrs: HookFailure = {**PROLOG_FAILURE.attrs_of(fact), "hosts": hosts}
            found.append(Revision(fact, replace(fact, host=None, attrs=PROLOG_FAILURE.as_attrs(attrs))))
    return found


def _start(fact: Fact) -> float:
    return fact.start


#: ``scontrol update`` writes the reason, then the state; a health check's script may take two calls.
SAME_ORDER_S = 5.0


def drains(world: World) -> list[Fact]:
    """``node.drain``: a node taken out of service, with owner, check and reason, and who did it."""
    facts = []
    reasons: defaultdict[str, list[Event]] = defaultdict(list)
    for event in world.by_kind.get("slurm.node_reason", ()):
        for host in hosts_of(event):
            reasons[host].append(event)
    for event in world.kinds("slurm.node_drain", "slurm.node_invalid"):
        for host in hosts_of(event):
            # The order of two lines within one second is unknown: the reason belongs to the state, whichever is read
            # first.
            near = [e for e in reasons.get(host, ()) if 0.0 <= event.time - e.time <= SAME_ORDER_S]
            given_reason = near[-1] if near else None
            reason = str(
                (given_reason.entities.get("reason") if given_reason else None) or event.entities.get("reason") or ""
            )
            events = (given_reason, event) if given_reason else (event,)
            attrs: NodeDrain = {
                "reason": reason,
                "maintenance": bool(_MAINTENANCE.search(reason + " " + event.message)),
            }
            facts.append(NODE_DRAIN.fact(event.time, None, event.sigma, host, attrs=attrs, events=events))
    return facts


#: A drain for work on a node may wait days for its jobs to end.
DRAIN_S = 7 * 86400.0


def planned_reboots(world: World) -> list[Revision]:
    """Marks planned reboots: of drained, empty nodes, those requested from Slurm, and nodes that it had powered up."""
    drained: dict[str | None, list[Fact]] = defaultdict(list)
    for drain in world.facts_of(NODE_DRAIN.name):
        drained[drain.host].append(drain)
    ups, ordered, power = ups_of(world), reboot_orders(world), Power(world)
    found: list[Revision] = []
    for fact in world.facts_of(NODE_REBOOT.name):
        host, moment = fact.host or "", _boot_of(fact)
        back = max((up for up in ups.get(host, ()) if up < moment), default=float("-inf"))
        before = [d for d in drained.get(fact.host, ()) if 0 <= moment - d.start <= DRAIN_S and back <= d.start]
        # A run was lost with the node since it was drained or last back: that was not planned.
        since = min([fact.start, *(d.start for d in before)])
        killed = any(
            run.state == "NODE_FAIL" and run.end is not None and since <= run.end <= moment
            for run in world.runs_on.get(host, ())
        ) or any(run.state == "NODE_FAIL" for run in world.runs_at(host, fact.start))
        if before and not killed and not world.runs_at(host, moment):
            why: NodeReboot = {"planned": True, "reason": before[-1].attrs.get(REASON)}
        elif not killed and any(0 <= moment - t <= RESUMES_S and back <= t for t in ordered.get(host, ())):
            why = {"planned": True, "asked": "Slurm was asked to reboot it"}
        elif power.powered_up(host, moment):
            # Routine in a cluster that grows and shrinks: no incident.
            why = {"passing": True, "asked": "Slurm had powered it up"}
        else:
            continue
        found.append(
            Revision(
                fact, replace(fact, start=moment, attrs=NODE_REBOOT.as_attrs({**NODE_REBOOT.attrs_of(fact), **why}))
            )
        )
    return found


def _boot_of(fact: Fact) -> float:
    """The end of the reboot: its start may be inferred from the machine's last line, before the order."""
    boot = fact.attrs.get(BOOT) if fact.attrs.get(INFERRED) else None
    return float(boot) if boot else fact.start


def reboot_orders(world: World) -> dict[str, list[float]]:
    """When Slurm was asked to reboot each node."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in world.by_kind.get("slurm.node_reboot", ()):
        for host in hosts_of(event) if is_order(event) else ():
            found[host].append(event.time)
    return found


#: What slurmctld logs when it takes over as a backup, when it serves, and when it stands by
#: (slurm src/slurmctld/backup.c, controller.c).
_TAKES_OVER, _SERVES, _STANDS_BY = "taking over", "Running as primary controller", "running in background mode"
#: A start is logged in several lines; reading the state takes longer (seconds).
_SAME_RESTART_S, _READS_STATE_S = 10.0, 120.0


def controller_restarts(world: World) -> list[Fact]:
    """``controller.restart``: slurmctld's own lines about its start, and a backup's about its takeover.

    A backup that stands by again has not restarted, unless it says that it started.
    """
    starts = [e for e in world.kinds("slurm.daemon_start") if e.source == "slurmctld"]
    facts = []
    for event in starts:
        near = [e for e in starts if e.host == event.host and abs(e.time - event.time) <= _SAME_RESTART_S]
        if all(_STANDS_BY in e.message for e in near):
            continue
        before = [e for e in starts if e.host == event.host and 0.0 <= event.time - e.time <= _READS_STATE_S]
        took_over = _TAKES_OVER in event.message or (
            _SERVES in event.message
            and _TAKES_OVER in max((e for e in before if e is not event), key=_moment, default=event).message
        )
        attrs: ControllerRestart = {"took_over": True} if took_over else {}
        facts.append(
            CONTROLLER_RESTART.fact(event.time, event.time, event.sigma, event.host, attrs=attrs, events=(event,))
        )
    return merge_near(facts, _SAME_RESTART_S)


def _moment(event: Event) -> float:
    return event.time


def kill_failures(world: World) -> list[Fact]:
    return [
        KILL_FAILURE.fact(e.time, None, e.sigma, host, attrs={}, events=(e,))
        for e in world.kinds("slurm.kill_task_failed") for host in hosts_of(e)
    ]  # fmt: skip


KINDS = (
    USER_CANCEL, SCHED_PREEMPT, TIME_LIMIT, PROLOG_FAILURE, EPILOG_FAILURE, NODE_DRAIN, CONTROLLER_RESTART, KILL_FAILURE,
)  # fmt: skip
DETECTORS = [cancellations, hook_failures, common_failures, drains, planned_reboots, controller_restarts, kill_failures]
