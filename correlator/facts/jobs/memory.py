"""Runs that memory ended: a limit of Slurm's, or a node that had none left."""

from __future__ import annotations

import re

from correlator.facts.jobs.lines import LIVED_S, between
from correlator.facts.world import World
from correlator.model.moments import UNSTAMPED_S, seconds_of
from correlator.model.nouns import Event, Run
from parsers.documents.fields import integer

_MEMORY = frozenset({"job.oom", "slurm.job_oom"})


#: slurmstepd's note about a step, and about all levels above, whose memory was full once: usually of page cache.
_MET_LIMIT = re.compile(r"hit memory limit at least once", re.IGNORECASE)


def out_of_memory(
    lines: list[Event], run: Run, moment: float, words: dict[str, list[Event]], killed: list[object]
) -> tuple[list[object], float]:
    """The evidence that memory ended the run, and how long before its end.

    A step does not count if its script ran on long after it, or then failed for another reason.
    """
    messages = [e for e in lines if e.kind in _MEMORY and not _MET_LIMIT.search(e.message)]
    short = [s for s in run.steps if _is_oom(s)]
    if not (messages or short or killed):
        return [], 0.0  # as for nearly every run
    later = max(
        (e.time for moments in ("own", "peers", "gpu", "storage") for e in words[moments]), default=float("-inf")
    )
    steps = [(end, s) for s in short if (end := seconds_of(s.get("end"))) is not None]
    if steps or any(e.sigma < UNSTAMPED_S for e in messages):  # output without timestamps is placed at the run's end
        messages = [e for e in messages if e.sigma < UNSTAMPED_S]
    moments: list[tuple[float, object]] = [*((e.time, e) for e in messages), *steps]
    moments += [(moment, s) for s in short if s.get("end") is None]
    moments = [(time, what) for time, what in moments if later - time <= KILLED_S and moment - time <= LIVED_S]
    moments += [(moment, what) for what in killed]
    return [what for _, what in moments], moment - max((time for time, _ in moments), default=moment)


def _is_oom(step: dict[str, object]) -> bool:
    return step["state"] == "OUT_OF_MEMORY" or (step["exit_signal"] == 125 and step["exit_code"] == 0)


#: A kernel that is out of memory kills, srun notices, and the run ends within this.
KILLED_S = 60.0

#: How a process that was killed for its node's memory ends: SIGKILL is 9, shells and srun add 128.
_KILLED = re.compile(r"\bkilled\b|out of memory|exit code 137|signal:? 9\b", re.IGNORECASE)


def killed_for_memory(world: World, run: Run, moment: float, output: list[Event]) -> list[object]:
    """The kernel killed a process of this run because its node had no memory left, beyond any limit of Slurm's.

    ``output``: the lines of the run's output about its end.
    """
    number, signal = str(run.row.get("exit_code")), str(run.row.get("exit_signal"))
    if "9" not in (number, signal) and number != "137":
        reported = output and any(_KILLED.search(e.message) for e in output)
        if not reported:
            return []
    found: list[object] = []
    for event in (
        e for host in run.nodes for e in between(world.by_host.get(host, ()), moment - KILLED_S, moment + 5.0)
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
