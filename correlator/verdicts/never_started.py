"""Runs whose program never started: what Slurm could not do, and whether the submission or the node is at fault.

A file system that failed is found from the lines of several users' runs (facts/launches). What is left here is a run
whose own lines are all there is: a wrong path is likely then, and a broken mount is its rival.
"""

from __future__ import annotations

import re
from posixpath import dirname

from correlator.facts.jobs.kinds import RUN_CANCELLED, RUN_FAILED, RUN_REQUEUED
from correlator.facts.launches import plugins
from correlator.facts.launches.bursts import SAME_FAILURE_S
from correlator.facts.launches.detector import (
    ABSENT,
    FILES,
    LOST,
    READ_ONLY,
    STARTED_TWICE,
    UNCONFIRMED,
    is_io_setup,
    who,
)
from correlator.facts.launches.kinds import LAUNCH_GIVEN_UP, LAUNCH_UNOPENED
from correlator.facts.output_hardware import file_system
from correlator.facts.world import World
from correlator.model.attributes import OPENED, OUTPUT, PATH, SIGNAL, STARTED, WHY, WORDS
from correlator.model.nouns import Event, Fact, Run
from correlator.verdicts.cancellations import given_up
from correlator.verdicts.verdict import Explanation, Verdict
from parsers.hostlist import fold

#: Slurm's code for a step whose input and output could not be set up, in the place of a signal (slurm
#: slurm/slurm_errno.h, ESLURMD_IO_SETUP; src/slurmd/slurmstepd/mgr.c).
IO_SETUP = "53"
#: A run that Slurm ends for that lasts no longer than this (seconds).
AT_ONCE_S = 60.0
#: A run that goes on for longer after one of its steps was not started does not end by that (edges E71 and E73).
OUTLIVED_S = 120.0

#: How often a submission is at fault: if the same path failed on another node, for errors that only a wrong path gives,
#: and for those of a missing or forbidden path, which a broken mount gives as well.
ALIKE_SURE, OWN_SURE, FORBIDDEN_SURE, MISSING_SURE = 0.92, 0.93, 0.8, 0.72
#: Nothing tells whose fault it was.
UNKNOWN_SURE = 0.6

_GAVE_UP = re.compile(rf"Could not launch job|{UNCONFIRMED}")
_QUOTA = re.compile(r"^Disk quota exceeded$")
_SPACE = re.compile(r"^No space left on device$")
_OPTION = {FILES["in"]: "--input", FILES["out"]: "--output", FILES["err"]: "--error"}


def explained(world: World, run: Run, end: Fact) -> Explanation | None:
    """The explanation of the end of a run; None if nothing shows that Slurm could not start it."""
    if end.kind == RUN_CANCELLED.name:
        return _not_launched(run, given_up(world, run), "cancelled")
    if end.kind == RUN_REQUEUED.name:
        return _not_launched(run, _given_up_lines(world, run, end), "requeued")
    if end.kind != RUN_FAILED.name:
        return None
    if (fact := _unopened(world, run, end)) is not None:
        return _by_error(world, run, end, fact)
    if lines := _given_up_lines(world, run, end):
        return _not_launched(run, lines, "ended")
    if _is_code(world, run, end):
        where = f" on {fold(run.nodes)}" if run.nodes else ""
        reason = f"its program never started: Slurm could not set up its input and output{where}; which file, and why, slurmd's log there tells, which was not collected"
        return Explanation("unknown", reason, [], UNKNOWN_SURE)
    if not end.attrs[WORDS]["own"] and (lines := _refused_by_plugins(world, run, end)):
        also = "nothing that was collected tells whether the node lacks something, or whether a plugin of the site's refused what the job asked for"
        reason = f"one of its steps never started on {lines[0].host}: {lines[0].message.rstrip('.')}; {also}"
        return Explanation("unknown", reason, lines[:5], UNKNOWN_SURE)
    return None


def _refused_by_plugins(world: World, run: Run, end: Fact) -> list[Event]:
    return [line for line in plugins.refused(world, run) if end.start - line.time <= OUTLIVED_S]


def _given_up_lines(world: World, run: Run, end: Fact) -> list[Event]:
    return [e for f in _of_end(world, run, end, LAUNCH_GIVEN_UP.name) for e in f.events]


def _of_end(world: World, run: Run, end: Fact, kind: str) -> list[Fact]:
    """The facts of a kind about a run that it did not outlive."""
    return [f for f in world.facts_of(kind) if f.run == run.key and end.start - f.start <= OUTLIVED_S]


def _not_launched(run: Run, lines: list[Event], how: str) -> Explanation | None:
    if not lines:
        return None
    text = next((e.message for e in lines if not _GAVE_UP.search(e.message)), lines[-1].message)
    host = next((e.host for e in lines if e.source != "slurmctld"), run.nodes[0] if run.nodes else None)
    if all(_GAVE_UP.search(e.message) for e in lines) and any(UNCONFIRMED in e.message for e in lines):
        late = f"slurmctld no longer waited when slurmd of {host} was to launch it, and it was {how}: {text}"
        return Explanation("unknown", f"{late}; nothing tells which of the two was late", lines[:5], UNKNOWN_SURE)
    if twice := next((e for e in lines if STARTED_TWICE.search(e.message)), None):
        reason = (
            f"slurmctld started it a second time on {host}, where it ran already, and it was {how}: {twice.message}"
        )
        return Explanation("infra.scheduler", reason, lines[:5], UNKNOWN_SURE)
    reason = f"slurmd of {host} could not launch it and {how} it"
    if all(_GAVE_UP.search(e.message) for e in lines):  # the restart of slurmctld and a prolog that failed end so, too
        return Explanation("unknown", f"{reason}, and nothing tells why: {text}", lines[:5], UNKNOWN_SURE)
    return Explanation("infra.node", f"{reason}: {text}", lines[:5], UNKNOWN_SURE)


def _unopened(world: World, run: Run, end: Fact) -> Fact | None:
    """The first file of the run that could not be opened."""
    found = (f for f in _of_end(world, run, end, LAUNCH_UNOPENED.name) if not f.attrs[STARTED])
    return min(found, key=lambda f: f.key[1:], default=None)


def _is_code(world: World, run: Run, end: Fact) -> bool:
    """Is the run's signal Slurm's code, and no signal? A program may die of a real-time signal of that number."""
    if str(end.attrs[SIGNAL]) != IO_SETUP:
        return False
    lines = [e for n in run.nodes for e in world.by_host.get(n, ()) if e.job_id == run.job_id]
    if any(is_io_setup(e) for e in lines):
        return True
    lasted = run.end - run.start if run.end is not None and run.start is not None else 0.0
    began = [s for s in run.steps if str(s.get("step_id")) not in ("batch", "extern")]
    spoke = any(e.source in ("slurmd", "slurmstepd") for e in lines)
    return lasted <= AT_ONCE_S and not (began or spoke or end.attrs[OUTPUT])


def could_not(fact: Fact) -> str:
    """What Slurm could not do: "Slurm could not open its output file /home/ada/x on gpu02 (Permission denied)"."""
    verb = "enter" if fact.attrs[STARTED] else "open"
    path = f" {fact.attrs[PATH]}" if fact.attrs[PATH] else ""
    return f"Slurm could not {verb} its {fact.attrs[OPENED]}{path} on {fact.host} ({fact.attrs[WHY]})"


def _by_error(world: World, run: Run, end: Fact, fact: Fact) -> Explanation:
    """Whose fault it was that Slurm could not open a file, by the error and by who else met it."""
    why, events = fact.attrs[WHY], list(fact.events)
    text = f"{_subject(end)} never started: {could_not(fact)}"
    if LOST.search(why):
        also = "the file system failed, and nothing that was collected tells whether on this node only"
        return Explanation("unknown", f"{text}; {also}", events, UNKNOWN_SURE)
    if READ_ONLY.search(why) or _SPACE.search(why):
        also = "nothing that was collected tells whether the file system is meant to be so"
        return Explanation("unknown", f"{text}; {also}", events, UNKNOWN_SURE)
    if not ABSENT.search(why):
        return Explanation("app.error", text, events, OWN_SURE)
    alike = [(f, _user(world, f) == who(world, run)) for f in _alike(world, fact)]
    others = [f for f, own in alike if not own and f.host == fact.host]
    if others:
        also = f"the files of another user's job {others[0].run} there could not be opened either"
        return Explanation("unknown", f"{text}; {also}", events, UNKNOWN_SURE)
    if any(own and f.host != fact.host for f, own in alike):
        return Explanation("app.error", f"{text}, as on another node", events, ALIKE_SURE)
    return Explanation("app.error", text, events, MISSING_SURE if why.startswith("No such") else FORBIDDEN_SURE)


def _subject(end: Fact) -> str:
    return "its program" if str(end.attrs[SIGNAL]) == IO_SETUP else "one of its steps"


def _alike(world: World, fact: Fact) -> list[Fact]:
    """Files of other runs on the same file system that could not be opened at about the same time."""
    return [
        f for f in world.facts_of(LAUNCH_UNOPENED.name)
        if f.run != fact.run and abs(f.start - fact.start) <= SAME_FAILURE_S and not f.attrs[STARTED]
        and f.attrs[PATH].count("/") >= 2 and fact.attrs[PATH].count("/") >= 2
        and file_system(f.attrs[PATH]) == file_system(fact.attrs[PATH])
    ]  # fmt: skip


def _user(world: World, fact: Fact) -> str:
    run = world.run.get(fact.run or "")
    return who(world, run) if run is not None else ""


def tell(world: World, verdict: Verdict) -> None:
    """Adds what the verdict's readers must know: that the program never started, what to do, and the rival."""
    run, end = verdict.run, verdict.end
    if verdict.category == "user.cancel":
        return
    fact = _unopened(world, run, end) if end.kind in (RUN_FAILED.name, RUN_REQUEUED.name) else None
    if fact is not None and _subject(end) == "its program":
        verdict.unstarted = could_not(fact)
    elif lost := _of_end(world, run, end, LAUNCH_GIVEN_UP.name):
        why = f" ({lost[0].attrs[WHY]})" if lost[0].attrs[WHY] else ""
        verdict.unstarted = f"{lost[0].host} could not launch it{why}"
    elif end.kind == RUN_FAILED.name and verdict.chain is None and _is_code(world, run, end):
        verdict.unstarted = "Slurm could not set up its input and output"
    if fact is None:
        _tell_folder(world, verdict)
    elif verdict.chain is None:
        verdict.advice = _advice(verdict, fact)
        if verdict.category == "app.error" and ABSENT.search(fact.attrs[WHY]):
            verdict.doubts.append(
                f"A file system that is missing on {fact.host}, or a credential that expired there, looks the same; no job of another user shows it"
            )


def _advice(verdict: Verdict, fact: Fact) -> str:
    path, why = fact.attrs[PATH], fact.attrs[WHY]
    option = _OPTION.get(fact.attrs[OPENED], "the path")
    again = "The same command would fail again."
    if verdict.category != "app.error":
        return f"Show this page to the operators. If other jobs work, submit again without this node (--exclude={fact.host})."
    if _QUOTA.search(why):
        return f"Free space within your quota, then submit again. {again}"
    if why.startswith("No such") and fact.attrs[OPENED] != FILES["in"] and path:
        return f"Create {dirname(path)}, or correct {option}, then submit again. {again}"
    if ABSENT.search(why) and not why.startswith("No such"):
        may = "read" if fact.attrs[OPENED] == FILES["in"] else "write"
        return f"Name a file that you may {may} ({option}), then submit again. {again}"
    return f"Correct {option}, then submit again. {again}"


def _tell_folder(world: World, verdict: Verdict) -> None:
    """Adds that the program ran in another working folder than it was to."""
    if verdict.chain is not None or verdict.end.kind != RUN_FAILED.name:
        return
    found = [f for f in world.facts_of(LAUNCH_UNOPENED.name) if f.run == verdict.run.key and f.attrs[STARTED]]
    if found:
        first = min(found, key=lambda f: f.key[1:])
        verdict.doubts.append(f"{could_not(first)}: what it looked for there by a relative path was missing")
