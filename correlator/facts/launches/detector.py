"""Launches that failed, by the lines of Slurm's own daemons, which root writes.

A user's mistake (a folder that does not exist, one that belongs to somebody else) and a broken mount look alike in one
line. What tells them apart is who else met it: two users on one node, and the same file system in use on other nodes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from posixpath import commonpath, dirname
from typing import ClassVar

from correlator.facts.control import CONTROLLER_RESTART
from correlator.facts.jobs.kinds import BATCH_LOST
from correlator.facts.jobs.lines import of_run
from correlator.facts.launches.bursts import SAME_FAILURE_S, bursts
from correlator.facts.launches.kinds import (
    LAUNCH_GIVEN_UP,
    LAUNCH_LOST,
    LAUNCH_UNOPENED,
    MOUNT_FAILURE,
    PLUGIN_FAILURE,
    SPOOL_FAILURE,
    LaunchLost,
    LaunchUnopened,
    MountFailure,
)
from correlator.facts.launches.plugins import plugin_failures
from correlator.facts.output_hardware import LOCAL_PATH, file_system
from correlator.facts.world import World
from correlator.gather.runs_fast import is_given_up
from correlator.model.attributes import OPENED, PATH, WHY
from correlator.model.daemon_words import HEAD
from correlator.model.nouns import Event, Fact, Run, in_order

_DAEMONS = ("slurmd", "slurmstepd")

#: slurm src/slurmd/slurmstepd/io.c; older versions print no path.
_UNOPENED = re.compile(rf"{HEAD}Could not open std(?P<stream>in|out|err) file(?: (?P<path>/.*?))?: (?P<why>[^:/]+)$")
#: slurm src/slurmd/slurmstepd/task.c and mgr.c, src/common/run_command.c.
_UNENTERED = re.compile(
    rf"{HEAD}couldn't (?:chdir|change working dir) to [`']?(?P<path>/.*?)'?: (?P<why>[^:/]+)(?:: going to \S+ instead)?$"
)
#: slurmd's exit code for a step whose input and output could not be set up: 53 is ESLURMD's, and no signal.
_IO_SETUP = re.compile(rf"{HEAD}IO setup failed\b")
FILES = {"in": "input file", "out": "output file", "err": "error file"}
WORKING_FOLDER = "working folder"

#: Errors of a file system that is broken or gone (glibc's texts, sysdeps/gnu/errlist.c): no path of a user's choice
#: returns them while it is well.
LOST = re.compile(
    r"^(?:Stale (?:NFS )?file handle|Input/output error|Remote I/O error|Transport endpoint is not connected|Connection timed out"
    r"|Host is down|No such device(?: or address)?|Structure needs cleaning|Cannot send after transport endpoint shutdown"
    r"|Connection (?:refused|reset by peer)|Software caused connection abort|No route to host|Network is (?:down|unreachable)"
    r"|Communication error on send|Link has been severed|Protocol error|Bad message|Required key not available|Key has (?:expired|been revoked))$"
)
#: Of these, what a FUSE file system gives whose daemon has died, was cut off, or passes on an error of its connection. Users may mount
#: their own, and let it die.
_OF_FUSE = re.compile(
    r"^(?:Transport endpoint is not connected|Software caused connection abort|Connection (?:refused|reset by peer)|No route to host"
    r"|Network is (?:down|unreachable)|Protocol error|Bad message)$"
)
READ_ONLY = re.compile(r"^Read-only file system$")
#: Errors that a wrong path gives as well.
ABSENT = re.compile(r"^(?:No such file or directory|Permission denied|Operation not permitted)$")

#: Launches on other nodes within this of a failure show whether the file system was well there (seconds).
ELSEWHERE_S = 900.0
#: A launch on the same node between failures shows that the file system was there; stamps differ by this (seconds).
HERE_S = 1.0


def unopened(world: World) -> list[Fact]:
    """``launch.unopened`` per run, node and path."""
    found: defaultdict[tuple[str, str, str, str], list[tuple[Event, str]]] = defaultdict(list)
    for event in world.kinds("slurm.node_error"):
        if (what := what_failed(event)) is None or not event.own or event.job_id is None or not event.host:
            continue
        opened, path, why = what
        for run in world.runs_of_job.get(event.job_id, ()):
            if of_run(run, [event]) and (not run.nodes or event.host in run.nodes):
                found[run.key, event.host, opened, path].append((event, why))
    facts = []
    for (key, host, opened, path), lines in sorted(found.items()):
        first, why = lines[0]
        attrs: LaunchUnopened = {
            "opened": opened, "path": path, "why": why, "started": opened == WORKING_FOLDER,
        }  # fmt: skip
        facts.append(
            LAUNCH_UNOPENED.fact(
                first.time, None, first.sigma, host, run=key, attrs=attrs, events=tuple(e for e, _ in lines[:5])
            )
        )
    return facts


def what_failed(event: Event) -> tuple[str, str, str] | None:
    """What could not be opened, its path and the error, by a line of slurmstepd; None for another line."""
    if event.source not in _DAEMONS and event.kind != "job.launch_error":
        return None
    if (match := _UNOPENED.search(event.message)) is not None:
        return FILES[match["stream"]], match["path"] or "", match["why"]
    if (match := _UNENTERED.search(event.message)) is not None:
        return WORKING_FOLDER, match["path"], match["why"]
    return None


def is_io_setup(event: Event) -> bool:
    """Is it slurmstepd's line that a step's input and output could not be set up?"""
    return event.source in _DAEMONS and (what_failed(event) is not None or bool(_IO_SETUP.search(event.message)))


# ---------------------------------------------------------------------------------------------------------- file systems


@dataclass(frozen=True)
class _Failure:
    """One run that could not use a path."""

    fact: Fact
    run: Run
    who: str
    path: str
    why: str

    @property
    def broken(self) -> bool:
        """Is it an error that no wrong path gives?"""
        return bool(LOST.search(self.why))


def mount_failures(world: World) -> list[Fact]:
    """``mount.failure`` of a node, or of several nodes that failed alike."""
    groups: defaultdict[tuple[str, str], list[_Failure]] = defaultdict(list)
    for fact in sorted(world.facts_of(LAUNCH_UNOPENED.name), key=lambda f: f.key):
        failure = _failure(world, fact)
        if failure is not None:
            groups[file_system(failure.path), fact.host or ""].append(failure)
    on_nodes = [
        (system, host, burst)
        for (system, host), failures in sorted(groups.items())
        for burst in bursts(failures, lambda f: f.fact.start)
    ]
    facts, taken = [], set()
    for number, (system, host, burst) in enumerate(on_nodes):
        if number in taken:
            continue
        alike = [
            n for n, (other, _, failures) in enumerate(on_nodes)
            if other == system and n not in taken and (n == number or _together(burst, failures))
        ]  # fmt: skip
        hosts = sorted({on_nodes[n][1] for n in alike})
        whole = [f for n in alike for f in on_nodes[n][2]]
        if len(hosts) > 1 and len({f.who for f in whole}) > 1 and not _used(world, system, hosts, whole):
            taken.update(alike)
            facts.append(_fact(system, hosts, whole, alone=False))
        elif (alone := _of_node(world, system, host, burst)) is not None:
            facts.append(_fact(system, [host], burst, alone=alone))
    return facts


#: The place of a mount. Users choose their paths, and its name is part of a command for operators.
_MOUNT = re.compile(r"[\w.+@/-]+")


def _failure(world: World, fact: Fact) -> _Failure | None:
    """The failure, if it can be the node's; None for a path of which a user's mistake is the better explanation."""
    path, why = fact.attrs[PATH], fact.attrs[WHY]
    run = world.run.get(fact.run or "")
    if run is None or path.count("/") < 2 or LOCAL_PATH.match(path) or not _MOUNT.fullmatch(file_system(path)):
        return None
    failure = _Failure(fact, run, who(world, run), path, why)
    if failure.broken or READ_ONLY.search(why):
        return failure
    opened = fact.attrs[OPENED]
    existed = opened != FILES["in"] and _existed(run, path, opened == WORKING_FOLDER)
    return failure if ABSENT.search(why) and existed else None


def _existed(run: Run, path: str, is_folder: bool) -> bool:
    """Was the folder there when the job was submitted? Its working folder was, and so were those above it."""
    folder, work_dir = path if is_folder else dirname(path), str(run.row.get("work_dir") or "")
    return bool(work_dir.startswith("/") and folder != "/" and commonpath([folder, work_dir]) == folder)


def who(world: World, run: Run) -> str:
    """The user of a run: from accounting, else the uid in slurmd's line about its launch; empty if neither is known."""
    known = run.row.get("user") or run.row.get("uid")
    if known not in (None, ""):
        return str(known)
    lines = (e for e in world.by_job.get(run.job_id, ()) if e.kind == "slurm.step_start" and e.own)
    return next((str(uid) for e in lines if (uid := e.entities.get("uid")) is not None), "")


def _together(one: list[_Failure], other: list[_Failure]) -> bool:
    """Do the two overlap, or follow each other closely?"""
    return (
        one[0].fact.start <= other[-1].fact.start + SAME_FAILURE_S
        and other[0].fact.start <= one[-1].fact.start + SAME_FAILURE_S
    )


def _of_node(world: World, system: str, host: str, burst: list[_Failure]) -> bool | None:
    """Is the node at fault? ``True``: the jobs of one user alone show it. None: their users' paths may be as well."""
    users = {f.who for f in burst if f.who}
    broken = all(f.broken for f in burst)
    if not broken and _used(world, system, [host], burst, on=True):
        return None
    elsewhere = _used(world, system, [host], burst)
    if len(users) > 1:
        return False if broken or elsewhere else None
    of_file_system = any((f.broken and not _OF_FUSE.search(f.why)) or READ_ONLY.search(f.why) for f in burst)
    return True if elsewhere and of_file_system else None


def _used(world: World, system: str, hosts: list[str], burst: list[_Failure], *, on: bool = False) -> bool:
    """Was a run that works on the file system launched without such an error, off ``hosts`` (or ``on`` them), at about
    that time?"""
    slack = HERE_S if on else ELSEWHERE_S
    low, high = burst[0].fact.start - slack, max(f.fact.start for f in burst) + slack
    failed = {f.run for f in world.facts_of(LAUNCH_UNOPENED.name)}
    return any(
        run.key not in failed and _uses(run, system) and _launched(world, run, hosts, low, high, on=on)
        for run in world.in_time.overlapping(low, high)
    )


#: The option of sbatch, srun and salloc that names the file of the output.
_OUTPUT = re.compile(r"(?:^|\s)(?:-o\s*|--output[=\s]\s*)[\"']?(/\S+)")


def _uses(run: Run, system: str) -> bool:
    """Did Slurm write the run's output to the file system?"""
    named = _OUTPUT.findall(str(run.row.get("submit_line") or ""))
    path = named[-1] if named else f"{run.row.get('work_dir') or ''}/x"
    return path.count("/") >= 2 and file_system(path) == system


def _launched(world: World, run: Run, hosts: list[str], low: float, high: float, *, on: bool) -> bool:
    return any(
        e.kind == "slurm.step_start" and e.own and low <= e.time <= high and (e.host in hosts) == on
        for e in world.by_job.get(run.job_id, ())
    )


def _fact(system: str, hosts: list[str], failures: list[_Failure], *, alone: bool) -> Fact:
    first = min(failures, key=lambda f: (f.fact.start, f.fact.key))
    attrs: MountFailure = {
        "path": system, "why": first.why, "runs": sorted({f.run.key for f in failures}), "hosts": hosts,
    }  # fmt: skip
    if alone:
        attrs["alone"] = True
    return MOUNT_FAILURE.fact(
        first.fact.start, max(f.fact.start for f in failures), first.fact.sigma, hosts[0] if len(hosts) == 1 else None,
        system, attrs=attrs, events=in_order(*(f.fact.events for f in failures))[:50],
    )  # fmt: skip


@dataclass(frozen=True)
class Used:
    """The question which runs were launched around ``time`` with their output on a file system, for an effect ``at``.

    If later rows change the answer, the conclusions about the effect may change.
    """

    at: float
    system: str
    time: float
    #: Logs of other hosts count for nothing here.
    unlogged: ClassVar[frozenset[str]] = frozenset()

    def sees(self, run: Run | None) -> tuple[object, ...]:
        """The properties of a run that count here; runs with equal properties are equivalent."""
        if (
            run is None
            or run.start is None
            or abs(run.start - self.time) > 2 * ELSEWHERE_S
            or not _uses(run, self.system)
        ):
            return ()
        return (run.key, run.nodes, run.start, run.row.get("user"))


def questions(world: World, end: Fact) -> list[Used]:
    """The questions on which the conclusion about the end of a run depends."""
    return [
        Used(end.start, file_system(path), fact.start)
        for fact in world.facts_of(LAUNCH_UNOPENED.name)
        if fact.run == end.run and (path := fact.attrs[PATH]).count("/") >= 2
    ]


# ------------------------------------------------------------------------------------------------------ slurmd's own trouble

#: slurmctld no longer waited for the answer to its launch (slurm src/slurmd/slurmd/req.c).
UNCONFIRMED = "Could not confirm batch launch"

#: slurm src/slurmd/slurmd/req.c and src/slurmd/slurmstepd/mgr.c: a launch that failed before the program was executed.
_FAILED_LAUNCH = re.compile(
    rf"{HEAD}(?:{UNCONFIRMED}|batch script setup failed|Job \d+ already running, do not launch second copy)"
)
#: A node that was sent a launch of a job which ran there already.
STARTED_TWICE = re.compile(rf"{HEAD}Job \d+ already running, do not launch second copy")

#: Errors of the file system that slurmd keeps its state on. A full one is ``disk.full``.
_SPOOL_ERROR = r"(?P<why>Read-only file system|Input/output error|Structure needs cleaning|Stale (?:NFS )?file handle|Transport endpoint is not connected|No such file or directory|Permission denied)$"
#: slurm src/slurmd/slurmstepd/mgr.c (_make_batch_dir, _make_batch_script), src/common/slurm_cred.c.
_SPOOL = (
    re.compile(rf"{HEAD}batch script setup failed for job \d+ on \S+: {_SPOOL_ERROR}"),
    re.compile(rf"{HEAD}(?:mkdir|creat|open|rename|write)\((?:/\S*)/(?:job\d{{5,}}\S*|cred_state\S*|slurm_script)\): {_SPOOL_ERROR}"),
)  # fmt: skip


def spool_failures(world: World) -> list[Fact]:
    """``spool.failure``: slurmd or slurmstepd could not write to slurmd's own folder."""
    found: defaultdict[str, list[tuple[Event, str]]] = defaultdict(list)
    for event in world.kinds("slurm.node_error"):
        if event.source in _DAEMONS and event.own and event.host:
            match = next((m for regex in _SPOOL if (m := regex.search(event.message))), None)
            if match is not None:
                found[event.host].append((event, match["why"]))
    facts = []
    for host, lines in sorted(found.items()):
        for burst in bursts(lines, lambda line: line[0].time):
            (first, why), last = burst[0], burst[-1][0]
            facts.append(
                SPOOL_FAILURE.fact(
                    first.time, last.time, first.sigma, host, attrs={"why": why}, events=tuple(e for e, _ in burst[:50])
                )
            )
    return facts


#: slurmctld's line for a batch job that its node refused (slurm src/slurmctld/agent.c).
_NON_STARTABLE = "Killing non-startable batch"


def given_up(world: World) -> list[Fact]:
    """``launch.given_up`` per run and node."""
    found: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in world.kinds("slurm.node_error", "slurm.job_failed"):
        if event.job_id is None or not _tells(event):
            continue
        for run in world.runs_of_job.get(event.job_id, ()):
            host = (
                event.host if event.source in _DAEMONS else next(iter(run.nodes), None)
            )  # the batch host is the first
            if host is not None and of_run(run, [event]) and (not run.nodes or host in run.nodes):
                found[run.key, host].append(event)
    facts = []
    for (key, host), events in sorted(found.items()):
        errors = (m["why"] for e in events for regex in _SPOOL if (m := regex.search(e.message)))
        facts.append(
            LAUNCH_GIVEN_UP.fact(
                events[0].time,
                None,
                events[0].sigma,
                host,
                run=key,
                attrs={"why": next(errors, "")},
                events=tuple(events[:5]),
            )
        )
    return facts


def _tells(event: Event) -> bool:
    """Does a daemon of the node, or slurmctld, log that a node could not launch a job?"""
    if event.source in _DAEMONS:
        return event.own and (is_given_up(event.message) or _FAILED_LAUNCH.search(event.message) is not None)
    return event.source == "slurmctld" and _NON_STARTABLE in event.message


# -------------------------------------------------------------------------------------------------------- the controller

#: slurmctld that was away for longer than this lost more than launches; and a node whose batch script is missing is
#: noticed within this of the restart (seconds).
AWAY_S, NOTICED_WITHIN_S = 900.0, 1800.0


def lost_launches(world: World) -> list[Fact]:
    """``launch.lost`` per restart of slurmctld: it had allocated nodes to runs that these had not started, or it had lost
    what it had started, and started it again.

    The nodes gave the runs back, or knew nothing of them when they registered again.
    """
    missed: defaultdict[str, list[float]] = defaultdict(list)
    twice: defaultdict[float, set[str]] = defaultdict(set)
    restarts = world.facts_of(CONTROLLER_RESTART.name)
    for fact in world.facts_of(BATCH_LOST.name, LAUNCH_GIVEN_UP.name) if restarts else ():
        missed[fact.run or ""].append(fact.start)
        if any(STARTED_TWICE.search(e.message) for e in fact.events):
            before = [r.start for r in restarts if 0.0 <= fact.start - r.start <= NOTICED_WITHIN_S]
            twice[max(before, default=0.0)].add(fact.run or "")
    facts = []
    for restart in restarts if missed else ():
        lost = twice[restart.start]
        for run in world.in_time.overlapping(restart.start - AWAY_S, restart.start):
            names = {run.key, str(run.job_id)}
            if run.ended_badly and _launched_during(world, run, restart, [t for name in names for t in missed[name]]):
                lost |= names
        if lost:
            attrs: LaunchLost = {"runs": sorted(lost)}
            facts.append(
                LAUNCH_LOST.fact(restart.start, None, restart.sigma, restart.host, attrs=attrs, events=restart.events)
            )
    return facts


def _launched_during(world: World, run: Run, restart: Fact, missed: list[float]) -> bool:
    """Had slurmctld begun to launch the run when it ended, and did its nodes start nothing of it?"""
    if run.start is None or not 0.0 <= restart.start - run.start <= AWAY_S:
        return False
    if any(e.kind == "slurm.step_start" for e in of_run(run, world.by_job.get(run.job_id, ()))):
        return False
    return any(run.start <= moment <= restart.start + NOTICED_WITHIN_S for moment in missed)


KINDS = (LAUNCH_UNOPENED, LAUNCH_GIVEN_UP, MOUNT_FAILURE, SPOOL_FAILURE, PLUGIN_FAILURE, LAUNCH_LOST)
DETECTORS = [unopened, mount_failures, spool_failures, plugin_failures, given_up, lost_launches]
