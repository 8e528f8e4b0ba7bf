"""The words for a run that only returned a code or died by a signal, if nothing else explains its end."""

from __future__ import annotations

import re

from correlator.facts.jobs.deaths import (
    by_srun,
    exit_code_of,
    killed_at_once,
    killed_tasks,
    step_out_of_time,
    tasks_on,
    was_killed,
)
from correlator.facts.memory_guards import MOST, held_by, kills_of, says
from correlator.facts.world import World
from correlator.model.attributes import ENVIRONMENT, OUTPUT, WORDS
from correlator.model.nouns import Event, Fact, Run
from correlator.verdicts.verdict import quoted
from parsers.hostlist import fold

#: slurmctld does not log who sends a signal that is no cancellation (``scancel -s KILL``); lack of memory would be
#: logged.
AT_ONCE_SURE = 0.9
#: One process that was killed: a watchdog, a person, or a script that ends its own children.
KILLED_SURE = 0.6
RETURNED_SURE = 0.9
#: Nothing but output tells of a node or a container.
REPORTED_SURE = 0.6
#: A missing image looks the same on a node that lacks its file system.
IMAGE_SURE = 0.8


def own_end(world: World, run: Run, end: Fact) -> tuple[str, str, list[Event], float]:
    """Category, reason, evidence and confidence."""
    lines: list[Event] = end.attrs[WORDS]["aftermath"]
    if (step := step_out_of_time(run)) is not None:
        reason = f"its step {step} reached the time limit of that step (srun --time), and the job ended with it"
        return "app.timeout", reason, [e for e in end.attrs[OUTPUT] if e.kind == "job.time_limit"][:5], RETURNED_SURE
    if (guarded := _by_guard(world, run, end)) is not None:
        return guarded
    if killed_at_once(end):
        reason = "all its tasks were killed by a signal at once; who sent it (its user, its own script, an administrator), nothing that was collected tells"
        return "unknown", reason, lines[:5], AT_ONCE_SURE
    if was_killed(world, run, end):
        mute = world.mute(run)
        kernel = f", or by the kernel of {fold(mute)}, whose log was not collected" if mute else ""
        reason = f"it was killed by signal 9: by itself, or by somebody outside of Slurm (a person, an agent of its node){kernel}; no line tells by whom"
        return "unknown", reason, [*killed_tasks(world, run), *lines][:5], KILLED_SURE
    signal = run.row.get("exit_signal")
    how = f"signal {signal}" if signal else exit_code_of(run, end)
    if ended := by_srun(end):
        return "app.error", f"{ended.reason}; it ended with {how}", list(ended.events), RETURNED_SURE
    if (reported := _as_reported(world, run, end, how)) is not None:
        return reported
    if errors := end.attrs[ENVIRONMENT]:
        last = max(errors, key=lambda e: (e.time, e.line or 0))
        return (
            "app.error",
            f"it ended by itself with {how}, and the last error of its output is: {quoted(last)}",
            [last],
            RETURNED_SURE,
        )
    return "app.error", f"it ended by itself with {how}", lines[:5], RETURNED_SURE


#: Mistakes in the name of an image, or rights that its user lacks.
_OWN_IMAGE = re.compile(
    r"\b40[134]\b|unauthorized|manifest unknown|could not open image|no such file or directory|failed to retrieve path|invalid image",
    re.IGNORECASE,
)
#: enroot's line about what failed, which pyxis repeats below its own.
_OF_ENROOT = "[ERROR]"
#: srun's own line about a node; the program may print one as well.
_NODE_FAILURE = re.compile(r"^srun: error: Node failure on \S+")
#: A node did not write a file that sbcast or srun --bcast sent. slurmd's log has the error; up to Slurm 22.05 they print
#: "Unspecified error" for each (slurm src/slurmd/slurmd/req.c _rpc_file_bcast). These errors are of the path alone.
_PATH_ERRORS = "permission denied|no such file|not a directory|file exists|(?:disk )?quota"
_UNWRITTEN = re.compile(rf"REQUEST_FILE_BCAST\([^)\s]+\): (?!.*(?:{_PATH_ERRORS}))", re.IGNORECASE)
_UID = re.compile(r"\buid:(\d+)\b")
_OF_PATH = re.compile(rf": (?:{_PATH_ERRORS})\b", re.IGNORECASE)


#: What srun, salloc and slurmstepd say of Slurm's daemons, of a node or of the network to it, and not of what was asked
#: of them (slurm src/common/slurm_errno.c, src/slurmd/slurmstepd/mgr.c).
_OF_SLURM = re.compile(
    r"^(?:srun|salloc|slurmstepd[\w.-]*): .*(?:unable to contact slurm|socket timed out|zero bytes were transmitted|communication connection failure"
    r"|can.t find (?:an )?address\b.*, check slurm\.conf|slurm_set_addr: unable to resolve |message (?:send|receive) failure|communication shutdown failure|unexpected missing socket"
    r"|connection (?:refused|timed out|reset)|no route to host|in standby mode|temporarily unable to accept|error configuring interconnect"
    r"|could not set up environment|user not found on host|credential (?:revoked|expired)|unable to create cgroup)",
    re.IGNORECASE,
)


def _as_reported(world: World, run: Run, end: Fact, how: str) -> tuple[str, str, list[Event], float] | None:
    """What Slurm's own programs wrote into the output of a run that ended with ``how``: any user can print that."""
    output: list[Event] = end.attrs[OUTPUT]
    if nodes := [e for e in output if e.kind == "job.node_failure" and _NODE_FAILURE.search(e.message)]:
        reason = f"it ended with {how} after srun had lost a node, and no log of Slurm or of the node tells of it: {quoted(nodes[0])}"
        return "unknown", reason, nodes[:5], REPORTED_SURE
    if container := [e for e in output if e.kind == "job.container_error"]:
        image = next((e for e in container if _OWN_IMAGE.search(e.message)), None)
        shown = image or next((e for e in container if _OF_ENROOT in e.message), container[0])
        reason = f"its container did not start: {quoted(shown)}"
        if image is not None:
            return "app.error", reason, container[:5], IMAGE_SURE
        return "unknown", f"{reason}; whether by its image or by its node, nothing tells", container[:5], REPORTED_SURE
    if copies := [e for e in output if e.kind == "job.launch_error" and _UNWRITTEN.search(e.message)]:
        by_slurmd = [
            e for node in run.nodes for e in world.by_host.get(node, ())
            if e.source == "slurmd" and e.kind == "slurm.bcast_error" and run.covers(e.time) and _is_of_user(e, run)
        ]  # fmt: skip
        if by_slurmd:
            reason = f"it ended with {how}, and its file could not be copied to {by_slurmd[0].host}, whose slurmd tells: {quoted(by_slurmd[0])}"
            if _OF_PATH.search(by_slurmd[0].message.rpartition("`")[2]):  # the user chose the path before it
                return "app.error", reason, [*by_slurmd[:3], *copies[:2]], RETURNED_SURE
            # A user names the path, and may have filled what lies there.
            return "unknown", f"{reason}; by whom, nothing tells", [*by_slurmd[:3], *copies[:2]], REPORTED_SURE
        reason = f"it ended with {how}, and its file could not be copied to a node, by its path or by the node's disk, nothing tells: {quoted(copies[0])}"
        return "unknown", reason, copies[:5], REPORTED_SURE
    if daemons := [e for e in output if e.kind == "job.launch_error" and _OF_SLURM.search(e.message)]:
        reason = f"it ended with {how} after Slurm could not start its tasks, by its daemons or by a node, nothing tells: {quoted(daemons[0])}"
        return "unknown", reason, daemons[:5], REPORTED_SURE
    if launch := [e for e in output if e.kind == "job.launch_error"]:
        return "app.error", f"it ended with {how}, and its output says: {quoted(launch[0])}", launch[:5], RETURNED_SURE
    return None


def _is_of_user(event: Event, run: Run) -> bool:
    """Does slurmd's line name the user of a run? Others may copy files to the same node at the same time."""
    named, uid = _UID.search(event.message), run.row.get("uid")
    return named is not None and uid is not None and named[1] == str(uid)


def _by_guard(world: World, run: Run, end: Fact) -> tuple[str, str, list[Event], float] | None:
    """A memory guard of its node killed it, and nothing shows that others had used up the memory."""
    kills = kills_of(world, run, killed_tasks(world, run)) if was_killed(world, run, end) else []
    if not kills:
        return None
    kill = kills[-1]
    held = held_by(kill, tasks_on(kill.host or "", end))
    if held is not None and held >= MOST:
        return "app.oom", f"{says(kill)}, most of it by the job itself", list(kill.events), KILLED_SURE
    return "unknown", f"{says(kill)}; by whom, nothing that was collected tells", list(kill.events), KILLED_SURE
