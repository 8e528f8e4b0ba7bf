"""How runs ended (``run.*``: what the correlator must explain) and what their own output reports (``job.*``)."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from correlator.facts.configuration import reconfigured
from correlator.facts.gpu_holders import had_none, not_held
from correlator.facts.gpus import XID
from correlator.facts.jobs.kinds import (
    BATCH_LOST,
    COMM_ERROR,
    ENVIRONMENT_ERROR,
    LAUNCH_FAILURE,
    RUN_CANCELLED,
    RUN_FAILED,
    RUN_NODE_FAIL,
    RUN_OOM,
    RUN_PREEMPTED,
    RUN_REQUEUED,
    RUN_TIMEOUT,
    CommError,
    LaunchFailure,
    RunEnd,
)
from correlator.facts.links.kinds import SWITCH_OUTAGE
from correlator.facts.nodes.kinds import ADMIN_DOWN, NODE_DOWN, NODE_REBOOT, NodeDown
from correlator.facts.nodes.polls import UNTOLD, lost_by
from correlator.facts.world import World, bursts, hosts_of
from correlator.model.attributes import FAMILY, HOSTS, LINKS, NOTICED, ROLE, UNDER
from correlator.model.moments import UNSTAMPED_S, seconds_of
from correlator.model.nouns import Event, Fact, Run
from parsers.documents.fields import integer, number
from parsers.job_states import same_end

#: How far from the run's end a line about that end may lie: sacct has whole seconds, output is flushed late.
END_SLACK_S = 5.0

_KIND_OF_END = {
    "NODE_FAIL": RUN_NODE_FAIL, "FAILED": RUN_FAILED, "TIMEOUT": RUN_TIMEOUT, "CANCELLED": RUN_CANCELLED,
    "PREEMPTED": RUN_PREEMPTED, "OUT_OF_MEMORY": RUN_OOM, "REQUEUED": RUN_REQUEUED,
}  # fmt: skip

#: Output events that mean "the peers or the network", not "my code". They are symptoms on every innocent rank.
COMMUNICATION = frozenset({"job.nccl_error", "job.nccl_timeout", "job.mpi_error"})
_APPLICATION = frozenset({"job.cuda_error", "job.segfault", "job.exit_error", "job.bus_error"})

# Matched in lower case: ignoring case would try every word at each position of a text.

#: Output of a process that is ended from outside: it shows that a rank died, not why.
_AFTERMATH = re.compile(
    r"terminate called|exited with exit code|childfailederror|aborted \(core dumped\)|\bkilled\b|sigabrt|sigterm|root cause \(first"
    r"|torchelastic|elastic\.multiprocessing|task\s*\d+: (?:aborted|killed|exited)|mpi_abort|process received signal|signal code:",
)

#: The peers or the network, in a program's or a library's messages.
_PEERS = re.compile(
    r"distbackenderror|distnetworkerror|distst?oreerror|processgroupnccl|\bnccl\b|\bucx\b|\brccl\b|gloo|tcpstore|rendezvous|broken pipe"
    r"|connection (?:reset|refused|closed|timed out|aborted)|remote (?:process|peer|end)|peer (?:closed|has closed|is unreachable)|no route to host"
    r"|network (?:is unreachable|error)|transport retry|retry exceeded|socket timeout|heartbeat",
)

#: CUDA's messages about a GPU that broke under the program, not about what the program did.
_BROKEN_GPU = re.compile(
    r"uncorrectable (?:ecc|nvlink)|ecc error|device (?:is )?(?:lost|unavailable)|busy or unavailable|unspecified launch failure"
    r"|no cuda-capable device|device handle|hardware (?:stack )?error|driver shutting down|system not yet initialized|unknown error|gpu is lost|fallen off",
)

#: The file system's messages: the program asked, the storage failed.
_STORAGE = re.compile(
    r"input/output error|\beio\b|errno 5\b|read-only file ?system|errno 30\b|stale file handle|transport endpoint|cannot send after",
)


#: A path that could not be reached or has changed: the file system's servers, as often as the network or the user.
_FILE_LOST = re.compile(
    r"\[Errno (?:5|107|108|110|112|116)\][^'\"]*: ?['\"](?P<path>/[^'\"]+)['\"]"
    r"|['\"\u2018](?P<file>/[^'\"\u2019]+)['\"\u2019]: (?:Connection timed out|Stale (?:NFS )?file handle|Input/output error|Transport endpoint|Cannot send after)",
    re.IGNORECASE,
)


def file_lost(text: str) -> str | None:
    """The path for which a line reports that its file system timed out, lost it or returned an error."""
    match = _FILE_LOST.search(text)
    return (match["path"] or match["file"]) if match else None


def words_of(event: Event) -> str:
    """Whom a line of output blames: ``own``, ``peers``, ``gpu``, ``storage``, or ``aftermath`` (none of these)."""
    return (_kept_words if len(event.message) <= _KEPT_TEXT else _words)(event.message, event.kind)


#: Every pass looks at the output of the window again. Longer lines are not kept: users write them.
_KEPT_TEXT = 500


def _words(message: str, kind: str) -> str:
    if file_lost(message):
        return "storage"
    text = message.lower()
    if kind in COMMUNICATION or _PEERS.search(text):
        return "peers"
    if _AFTERMATH.search(text):
        return "aftermath"
    if _STORAGE.search(text):
        return "storage"
    if kind == "job.cuda_error" and _BROKEN_GPU.search(text):
        return "gpu"
    return "own"


_kept_words = lru_cache(maxsize=16_384)(_words)


_OUTPUT = ("job_stdout", "job_stderr")
_REQUEUED = frozenset({"slurm.job_requeue", "job.requeued"})
_MEMORY = frozenset({"job.oom", "slurm.job_oom"})
_ERRORS = COMMUNICATION | _APPLICATION | {"job.oom", "job.launch_error"}

_TIMEOUT_MS = re.compile(r"Timeout\(ms\)\s*=\s*(\d+)")
_TIMEOUT_S = re.compile(
    r"\b(?:nothing|no (?:data|response|progress|reply|heartbeat)|timed out|timeout)\b.{0,60}?\b(\d+(?:\.\d+)?) ?(?:s|sec|seconds)\b",
    re.IGNORECASE,
)


def of_run(run: Run, events: Iterable[Event], slack: float = END_SLACK_S) -> list[Event]:
    """Events that name the job and lie within this run (not within an earlier or later run of the same job)."""
    low = (run.start or run.submit or 0.0) - slack
    high = (run.end if run.end is not None else float("inf")) + slack + 60.0
    return [e for e in events if low <= e.time <= high]


#: Programs wait for each other for minutes, some for hours. Users write the line, and every tick looks back for as long as
#: the longest timeout, so a longer one counts for nothing.
LONGEST_TIMEOUT_S = 86_400.0


def logged_timeout(events: Iterable[Event]) -> float | None:
    """The timeout in seconds in a watchdog's line, if there is one; at most ``LONGEST_TIMEOUT_S``."""
    found = (seconds for event in events if (seconds := _timeout_of(event)) is not None)
    return next((seconds for seconds in found if seconds <= LONGEST_TIMEOUT_S), None)


def _timeout_of(event: Event) -> float | None:
    for entity, form, unit in (("timeout_ms", _TIMEOUT_MS, 1000.0), ("timeout_s", _TIMEOUT_S, 1.0)):
        match = form.search(event.message)
        named = event.entities.get(entity, match[1] if match else None)
        if named is not None:
            seconds = number(named)
            return None if seconds is None else seconds / unit
    return None


def communication_errors(world: World) -> list[Fact]:
    """``job.comm_error`` per run and loss: the first line in which a rank lost its peers; attrs timeout (s), onset."""
    facts = []
    speaking = {e.job_id for e in world.kinds(*COMMUNICATION)}
    for run in (r for r in world.runs if r.job_id in speaking):
        lines = [e for e in of_run(run, world.by_job.get(run.job_id, ())) if e.kind in COMMUNICATION]
        if not lines:
            continue
        facts += [_lost_peers(run, burst) for burst in bursts(lines, SAME_LOSS_S)]
    return facts


#: Ranks that lose each other log it within this of each other; what comes later is another loss, which means that the
#: run survived the first.
SAME_LOSS_S = 300.0


def _lost_peers(run: Run, lines: list[Event]) -> Fact:
    first, timeout = lines[0], logged_timeout(lines)
    attrs: CommError = {
        "timeout": timeout,
        "onset": first.time - (timeout or 0.0),
        "families": sorted({e.kind for e in lines}),
    }
    return COMM_ERROR.fact(first.time, lines[-1].time, first.sigma, first.host, run=run.key, attrs=attrs, events=tuple(lines[:20]))  # fmt: skip


#: Slurm's reasons for not starting a step on a node that concern the node or the network to it, not the program.
_LAUNCH_REFUSED = re.compile(
    r"credential (?:revoked|expired)|invalid job credential|communication connection failure|unable to contact slurmd|socket timed out"
    r"|protocol authentication error|connection (?:refused|timed out)|no route to host|zero bytes",
    re.IGNORECASE,
)


#: A slurmd's answer about a job that it considers killed, or if its clock is wrong.
_CREDENTIAL = re.compile(r"job credential (?:revoked|expired)", re.IGNORECASE)

#: A program that does not exist, or that may not be executed, is its user's fault.
_NOT_RUNNABLE = re.compile(r"\bexecve\b.*(?:permission denied|no such file|exec format|not a directory)", re.IGNORECASE)

#: A step for which its user asked for more than the job has or the site allows: no node and no network had a part in it
#: (slurm slurm/slurm_errno.h, src/slurmctld/step_mgr.c).
_REFUSED = re.compile(
    r"^srun: error: (?:Unable to create step for job \d+: (?:Memory required by task is not available|More processors requested than permitted"
    r"|Invalid generic resource|Step limit reached for this job|Task count specification invalid|CPU count specification invalid"
    r"|Node count specification invalid|More time requested than permitted)|.*\bx11 forwarding\b|Couldn't find the specified plugin name for mpi/)",
    re.IGNORECASE,
)


def launch_failures(world: World) -> list[Fact]:
    """``launch.failure`` per run and node: its tasks could not be started there.

    attrs revoked: the node still considered the job killed; refused: it answered, and rejected the request.
    """
    by_node: dict[tuple[str, str], list[Event]] = {}
    for event in world.kinds("job.launch_error"):
        if event.job_id is None or not _LAUNCH_REFUSED.search(event.message):
            continue
        for run in world.runs_of_job.get(event.job_id, ()):
            if run.ended_badly and of_run(run, [event]):
                for host in event.entities.get("nodes") or ():
                    by_node.setdefault((run.key, str(host)), []).append(event)
    for event in world.kinds("slurm.comm_error"):
        if event.source == "slurmd" and _CREDENTIAL.search(event.message):
            for run in world.runs_at(event.host or "", event.time, END_SLACK_S):
                if run.ended_badly:
                    by_node.setdefault((run.key, event.host or ""), []).append(event)
    facts = []
    for (key, host), events in sorted(by_node.items()):
        first = min(events, key=lambda e: (e.sigma, e.time, e.id))  # slurmd's lines have a timestamp, srun's have none
        refused = [e for e in events if _CREDENTIAL.search(e.message)]
        attrs: LaunchFailure = {
            "revoked": any("revoked" in e.message.lower() for e in events),
            "refused": bool(refused),
        }
        facts.append(
            LAUNCH_FAILURE.fact(first.time, None, first.sigma, host, run=key, attrs=attrs, events=(first, *(e for e in events if e is not first)))
        )  # fmt: skip
    return facts


def ends(world: World) -> list[Fact]:
    """The terminal fact of every run that did not end COMPLETED."""
    facts: list[Fact] = []
    downs = [
        (f.host, f.attrs.get(NOTICED, f.start))
        for f in world.facts_of(NODE_DOWN.name, NODE_REBOOT.name, ADMIN_DOWN.name)
    ]
    launches: defaultdict[str, list[Event]] = defaultdict(list)
    for fact in world.facts_of(LAUNCH_FAILURE.name):
        launches[fact.run or ""] += fact.events
    for run in world.runs:
        if not run.ended_badly:
            continue
        kind = _KIND_OF_END.get(same_end(run.state), RUN_FAILED)
        moment = run.end if run.end is not None else run.start or run.submit or world.last
        lines = [*of_run(run, world.by_job.get(run.job_id, ())), *_of_other_parts(world, run)]
        if kind is RUN_NODE_FAIL and (killed := _killed_later(world, run, moment)) is not None:
            moment, lines = killed.time, [*lines, killed]
        if kind is not RUN_TIMEOUT:  # a hanging run logs that long before its limit
            lines = _last_messages(lines, moment, ended_itself=kind is RUN_FAILED)
        words: dict[str, list[Event]] = {name: [] for name in ("own", "peers", "gpu", "storage", "aftermath")}
        for event in lines:
            if event.kind == "job.launch_error" and (
                _NOT_RUNNABLE.search(event.message) or _REFUSED.search(event.message)
            ):
                words["own"].append(event)
            elif event.kind in _APPLICATION or event.kind in COMMUNICATION:
                said = words_of(event)
                # To a program that asked for no GPU, the driver says that there is none: nothing broke.
                words["own" if said == "gpu" and had_none(world, run, moment) else said].append(event)
        failed = _failed_nodes(world, run, lines, moment, downs)
        if kind is RUN_NODE_FAIL:
            unseen = _unseen_downs(world, run, moment, lines, failed, facts)
            facts += unseen
            failed = failed or sorted({fact.host for fact in unseen if fact.host})
        memory, ago = _out_of_memory(lines, run, moment, words, _killed_for_memory(world, run, moment, lines))
        attrs: RunEnd = {
            "failed_nodes": failed, "words": words, "launch": launches.get(run.key, []),
            "memory": memory, "memory_ago": ago, "environment": [e for e in lines if e.source in _OUTPUT and e.kind == ENVIRONMENT_ERROR],
            "blamed_code": _code_faults(world, run, moment), "output": [e for e in lines if e.source in _OUTPUT and e.kind != ENVIRONMENT_ERROR], "signal": run.row.get("exit_signal"),
            "exit_code": run.row.get("exit_code"), "cancelled_by": run.row.get("cancelled_by"),
        }  # fmt: skip
        closing = [e for e in lines if e.kind in ("slurm.job_node_fail", "slurm.job_requeue", "slurm.job_failed", "slurm.job_end",
                   "slurm.job_cancelled", "slurm.job_timeout", "slurm.job_preempted", "slurm.job_oom") and e.source == "slurmctld"
                   and abs(e.time - moment) <= END_SLACK_S]  # fmt: skip
        # slurmctld's own timestamp has milliseconds where accounting has whole seconds.
        exact = closing[0].time if closing else moment
        sigma = closing[0].sigma if closing else 0.5
        if kind is RUN_REQUEUED:
            closing += [e for e in _requeues(world, run, moment) if e not in closing]
        facts.append(kind.fact(exact, exact, sigma, None, run=run.key, attrs=attrs, events=tuple(closing)))
    return facts


#: Output this long before the end is something the run survived. Time spent waiting for other ranks is added (watchdogs
#: of ten minutes and more, which log their timeout).
LIVED_S = 600.0


def _last_messages(lines: list[Event], end: float, *, ended_itself: bool) -> list[Event]:
    """The lines about a run's end, without output from long before.

    Nothing is left out for a run that ended by itself and logged no error later.
    """
    waited = logged_timeout([e for e in lines if e.kind in COMMUNICATION]) or 0.0
    since = end - LIVED_S - waited
    old = [e for e in lines if e.time < since and e.source in _OUTPUT]
    errors = any(e.time >= since and e.kind in _ERRORS and e.source in _OUTPUT for e in lines)
    if not old or (ended_itself and not errors):
        return lines
    return [e for e in lines if e.time >= since or e.source not in _OUTPUT]


#: slurmstepd's note about a step, and about all levels above, whose memory was full once: usually of page cache.
_MET_LIMIT = re.compile(r"hit memory limit at least once", re.IGNORECASE)


def _out_of_memory(
    lines: list[Event], run: Run, moment: float, words: dict[str, list[Event]], killed: list[object]
) -> tuple[list[object], float]:
    """The evidence that memory ended the run, and how long before its end.

    A step does not count if its script ran on long after it, or then failed for another reason.
    """
    later = max(
        (e.time for moments in ("own", "peers", "gpu", "storage") for e in words[moments]), default=float("-inf")
    )
    messages = [e for e in lines if e.kind in _MEMORY and not _MET_LIMIT.search(e.message)]
    steps = [(end, s) for s in run.steps if _is_oom(s) and (end := seconds_of(s.get("end"))) is not None]
    if steps or any(e.sigma < UNSTAMPED_S for e in messages):  # output without timestamps is placed at the run's end
        messages = [e for e in messages if e.sigma < UNSTAMPED_S]
    moments: list[tuple[float, object]] = [*((e.time, e) for e in messages), *steps]
    moments += [(moment, s) for s in run.steps if _is_oom(s) and s.get("end") is None]
    moments = [(time, what) for time, what in moments if later - time <= KILLED_S and moment - time <= LIVED_S]
    moments += [(moment, what) for what in killed]
    return [what for _, what in moments], moment - max((time for time, _ in moments), default=moment)


#: slurmctld logs a requeue when all nodes of the run have ended it: minutes later if it has to repeat its order.
COMPLETES_S = 1800.0


def _requeues(world: World, run: Run, end: float) -> list[Event]:
    """What slurmctld, and the slurmstepds ordered to end the run, log about its requeue."""
    again = [r.start for r in world.runs_of_job[run.job_id] if r.start is not None and r.start > end]
    until = min([*again, end + COMPLETES_S])
    return [e for e in world.by_job.get(run.job_id, ()) if e.kind in _REQUEUED and end - END_SLACK_S <= e.time < until]


#: slurmctld's line for a run that it ends with its node (slurm src/slurmctld/job_mgr.c).
_KILLED_WITH_NODE = re.compile(r"\bKilling .*\bon failed node\b")


def _killed_later(world: World, run: Run, end: float) -> Event | None:
    """The loss of the node of a suspended run.

    Accounting takes the moment of suspension as the run's end (slurm src/slurmctld/job_mgr.c); its node's end came
    later.
    """
    again = min(
        (r.start for r in world.runs_of_job[run.job_id] if r.start is not None and r.start > end), default=float("inf")
    )
    kills = [
        e for e in world.by_job.get(run.job_id, ()) if e.kind == "slurm.job_node_fail" and e.source == "slurmctld"
        and end - END_SLACK_S <= e.time < again and _KILLED_WITH_NODE.search(e.message)
    ]  # fmt: skip
    return kills[0] if kills and kills[0].time > end + END_SLACK_S else None


def _of_other_parts(world: World, run: Run) -> list[Event]:
    """Output of the other components of a heterogeneous job: its one script writes under the first component."""
    parts = world.het_components.get(run.job_id, frozenset()) - {run.job_id}
    return [e for part in sorted(parts) for e in of_run(run, world.by_job.get(part, ())) if e.source in _OUTPUT]


#: An Xid of the application class and the end of the process that caused it (correlation.md, E27).
CODE_FAULT_S = 60.0


def _code_faults(world: World, run: Run, moment: float) -> list[Fact]:
    """Xids that NVIDIA's catalogue attributes to the application, on a GPU of this run, just before its end."""
    return [
        f for f in world.facts_of(XID.name)
        if f.attrs.get(FAMILY) == "application" and f.host in run.nodes and -5.0 <= moment - f.start <= CODE_FAULT_S
        and not_held(world, run, f) is None
    ]  # fmt: skip


#: slurmctld's line for a batch script that its node does not know (slurm src/slurmctld/job_mgr.c).
_BATCH_GONE = "missing from batch node"

_PART = re.compile(r"\bJobId=\d+\+\d+")


def lost_batches(world: World) -> list[Fact]:
    """``batch.lost``: the node answered, but had no batch script of the job: slurmstepd had died, or never started."""
    return [
        BATCH_LOST.fact(e.time, None, e.sigma, host, run=str(e.job_id), events=(e,))
        for e in world.kinds("slurm.job_node_fail", "slurm.job_requeue", "slurm.job_failed")
        if e.source == "slurmctld" and e.job_id is not None and _BATCH_GONE in e.message for host in hosts_of(e)
    ]  # fmt: skip


def _is_oom(step: dict[str, object]) -> bool:
    return step["state"] == "OUT_OF_MEMORY" or (step["exit_signal"] == 125 and step["exit_code"] == 0)


#: A kernel that is out of memory kills, srun notices, and the run ends within this.
KILLED_S = 60.0

#: How a process that was killed for its node's memory ends: SIGKILL is 9, shells and srun add 128.
_KILLED = re.compile(r"\bkilled\b|out of memory|exit code 137|signal:? 9\b", re.IGNORECASE)


def _killed_for_memory(world: World, run: Run, moment: float, lines: list[Event]) -> list[object]:
    """The kernel killed a process of this run because its node had no memory left, beyond any limit of Slurm's."""
    number, signal = str(run.row.get("exit_code")), str(run.row.get("exit_signal"))
    if (
        "9" not in (number, signal)
        and number != "137"
        and not any(_KILLED.search(e.message) for e in lines if e.source in _OUTPUT)
    ):
        return []
    found: list[object] = []
    for event in (
        e for host in run.nodes for e in _between(world.by_host.get(host, ()), moment - KILLED_S, moment + 5.0)
    ):
        if event.kind != "kernel.oom_kill":
            continue
        whose = event.job_id if event.job_id is not None else event.entities.get("job_id")
        uid, own = event.entities.get("uid"), run.row.get("uid")
        if whose is not None:
            mine = integer(whose) == run.job_id
        else:
            others = [r for r in world.runs_at(event.host or "", event.time) if r is not run]
            mine = not others and uid not in (None, "0", 0) and (own is None or str(own) == str(uid))
        if mine:
            found.append(event)
    return found


def _between(events: Sequence[Event], low: float, high: float) -> Sequence[Event]:
    """The events from ``low`` to ``high``, of events in time order."""
    return events[bisect_left(events, low, key=_time) : bisect_right(events, high, key=_time)]


def _time(event: Event) -> float:
    return event.time


def _failed_nodes(
    world: World, run: Run, lines: list[Event], moment: float, downs: Iterable[tuple[str | None, float]]
) -> list[str]:
    """Nodes whose failure ended the run: named by slurmctld, else those of the run that went DOWN at its end.

    ``downs``: all nodes that did, and when that was noticed.
    """
    named: set[str] = set()
    for event in lines:
        if (
            event.kind in ("slurm.job_node_fail", "slurm.job_requeue")
            and event.source == "slurmctld"
            and abs(event.time - moment) <= END_SLACK_S
        ):
            if _BATCH_GONE in event.message:
                continue  # the node answered, and had no such job
            # All components of a heterogeneous job end with one of them, possibly on a node of another component.
            part = _PART.search(event.message)
            named.update(h for h in hosts_of(event) if h in run.nodes or not run.nodes or part)
    failed = _named_by_srun(lines)
    named |= failed.intersection(run.nodes) or _of_another_part(world, run, failed)
    if run.row.get("failed_node"):
        named.add(str(run.row["failed_node"]))
    named.update(host for host, noticed in downs if abs(noticed - moment) <= END_SLACK_S and host and host in run.nodes)
    return sorted(named)


def _named_by_srun(lines: Iterable[Event]) -> set[str]:
    """The nodes that failed, as srun names them; slurmstepd's line about it names the node that writes it."""
    return {
        h for e in lines if e.kind == "job.node_failure" and "node failure on" in e.message.lower() for h in hosts_of(e)
    }


def _ever_had(world: World, run: Run) -> set[str]:
    """The nodes of all runs of a job: its output file may still hold the lines of an earlier run."""
    return {h for r in world.runs_of_job.get(run.job_id, ()) for h in r.nodes}


def _of_another_part(world: World, run: Run, failed: set[str]) -> set[str]:
    """Failed nodes of another component of the heterogeneous job.

    An srun that started tasks of several components may name a node of another one. A job's output cannot report on any
    other node, and a node of an earlier run is left over in the job's output file.
    """
    parts = world.het_components.get(run.job_id, frozenset())
    others = {h for part in parts for r in world.runs_of_job.get(part, ()) for h in r.nodes}
    return (failed & others) - _ever_had(world, run)


#: How long before a node is set DOWN the reason may have begun, seconds (five thirds of a SlurmdTimeout of ten
#: minutes).
UNSEEN_S = 1000.0


def _unseen_downs(
    world: World, run: Run, moment: float, lines: Iterable[Event], named: list[str], found: list[Fact]
) -> list[Fact]:
    """``node.down`` without slurmctld's line.

    The run's end names a node, or accounting reports that one failed. In the second case there must be only one node,
    and srun must name no other, or something that sets nodes DOWN must have happened on a few of them or on the switch
    of all.
    """
    if reconfigured(world, run, moment):
        return []  # slurmctld says why: the nodes were not lost
    gone = [
        f for f in world.facts_of(BATCH_LOST.name) if f.run == str(run.job_id) and abs(f.start - moment) <= END_SLACK_S
    ]
    if gone and not named:
        return []
    failed = {
        f.host for f in [*world.facts_of(NODE_DOWN.name, NODE_REBOOT.name, ADMIN_DOWN.name), *found]
        if f.kind.startswith(("node.", "admin.")) and _went_down_by(f, run, moment)
    }  # fmt: skip
    if named:
        return [_unseen(world, run, host, moment) for host in named if host not in failed]
    if answered := [
        f for host in run.nodes if (f := lost_by(world, host, moment)) is not None and f.host not in failed
    ]:
        return answered
    near = {
        fact.host for fact in world.facts_of(*world.kinds_where(lambda kind: kind.sets_down))
        if fact.host in run.nodes and -UNSEEN_S <= fact.start - moment <= END_SLACK_S and fact.attrs.get(ROLE) != "fabric"
    }  # fmt: skip
    cut_off = {
        host for fact in world.facts_of(SWITCH_OUTAGE.name) if -UNSEEN_S <= fact.start - moment <= END_SLACK_S
        and {world.site.role(h, d) for h, d in fact.attrs.get(LINKS, ())} != {"fabric"}
        for host in run.nodes if host in (fact.attrs.get(UNDER) or fact.attrs[HOSTS])
    }  # fmt: skip
    few = near if 2 * len(near) <= len(run.nodes) else set()
    # srun may name the node of another component: this run's own node need not have failed.
    elsewhere = (_named_by_srun(lines) & world.site.hosts) - _ever_had(world, run)
    hosts = set(run.nodes) if len(run.nodes) == 1 and not elsewhere else cut_off or few
    return [_unseen(world, run, host, moment) for host in sorted(h for h in hosts if h)]


def _went_down_by(fact: Fact, run: Run, moment: float) -> bool:
    """Did the node go down within this run, and was it still down at its end?"""
    noticed = float(fact.attrs.get(NOTICED, fact.start))
    if run.start is not None and noticed < run.start - END_SLACK_S:
        return False
    return noticed - 3 * END_SLACK_S <= moment <= max(noticed, fact.end or 0.0) + 3 * END_SLACK_S


#: ``scontrol update`` writes a reason and a state in one transaction, whose runs end with it.
SAME_UPDATE_S = 1.0

_CHECKED = re.compile(r"\bnhc\b|health|check|not responding|gpu|xid", re.IGNORECASE)


def _unseen(world: World, run: Run, host: str, moment: float) -> Fact:
    """The fact for a node whose line is missing. A reason given at that moment shows who set the node DOWN."""
    near = _between(world.by_kind.get("slurm.node_reason", ()), moment - SAME_UPDATE_S, moment + SAME_UPDATE_S)
    given = [e for e in near if e.source == "slurmctld" and host in hosts_of(e) and not _CHECKED.search(e.message)]
    if given:
        return ADMIN_DOWN.fact(
            given[0].time,
            None,
            given[0].sigma,
            host,
            attrs={"said_by": "slurmctld"},
            events=tuple(given),
        )
    if (answered := lost_by(world, host, moment)) is not None:
        return answered
    attrs: NodeDown = {"said_by": "accounting", "reason": f"job {run.key} ended {run.state}"}
    if run.state == "BOOT_FAIL":
        attrs["unresumed"] = UNTOLD
    return NODE_DOWN.fact(moment, None, 0.5, host, attrs=attrs)


KINDS = (
    COMM_ERROR, LAUNCH_FAILURE, BATCH_LOST, RUN_CANCELLED, RUN_FAILED, RUN_NODE_FAIL, RUN_OOM, RUN_PREEMPTED, RUN_REQUEUED, RUN_TIMEOUT,
)  # fmt: skip
DETECTORS = [communication_errors, launch_failures, lost_batches, ends]
