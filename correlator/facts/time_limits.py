"""Time limits that were changed while their runs went on.

A user may only lower the limit of a job; an administrator may do both (slurm src/slurmctld/job_mgr.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

from correlator.facts.control import is_others, is_own
from correlator.facts.world import World
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Fact, Run
from parsers.documents.fields import duration_s
from parsers.job_states import same_end


class ShortenedLimit(TypedDict):
    """The time limit in words, before (None if it is not known) and after; ``who`` asked for the change."""

    before: str | None
    after: str
    who: str


def _in_words(fact: Fact) -> str:
    limit = LIMIT_SHORTENED.attrs_of(fact)
    before = f" instead of {limit['before']}" if limit["before"] else ""
    return f"{limit['who']} set the time limit of job {fact.run} to {limit['after']}{before}, as slurmctld logs"


LIMIT_SHORTENED = Kind(
    "limit.shortened", "slurmctld", "Somebody other than its user shortened the time limit of a run.", ShortenedLimit,
    witnesses=("slurmctld",),
    brief="time limit shortened", measured=_in_words, reported_within_s=120.0,
    cause=Cause(
        "slurm.admin_action", "infra.scheduler", "{who} shortened the time limit to {after} while the job ran", "an administrator shortened its time limit",
        (("Ask {who} why the limit was shortened; the job needs its former limit to finish.", None),),
        short="time limit shortened by {who}",
        disproof="A line of slurmctld's that sets the limit again later, or that names the job's own user.",
    ),
)  # fmt: skip

#: Slurm looks for exceeded limits once a minute, and gives programs KillWait to end (seconds).
ENDS_WITHIN_S = 120.0

#: The options of sbatch, salloc and srun that take no value as the next word (sbatch(1)): what follows them may be the
#: program, whose own options say nothing about the job.
_ALONE = re.compile(
    r"-[hHkOQsvVWIlu]+|--[\w-]+=.*|--(?:parsable|exclusive|hold|(?:no-)?requeue|wait|ignore-pbs|verbose|quiet|overcommit|oversubscribe"
    r"|spread-job|use-min-nodes|no-kill|contiguous|reboot|test-only|immediate|unbuffered|label|pty)"
)
_LIMIT = re.compile(r"(?:-t=?|--time=)(?P<limit>\d[\d:-]*)")


@dataclass(frozen=True)
class Change:
    """The change of a time limit that ended a run: at ``time``, to ``seconds``, from ``before`` if that is known, by
    ``uid`` if that is known."""

    time: float
    seconds: float
    before: float | None
    uid: str | None

    def shortened(self, run: Run) -> bool | None:
        """Was the limit shortened? None if its former value is not known."""
        if run.start is not None and self.time - run.start >= self.seconds:
            return True  # it was over as soon as it was set
        return None if self.before is None else self.seconds < self.before


def change_of(world: World, run: Run) -> Change | None:
    """The last change of a run's time limit, if that limit ended it."""
    if run.start is None or run.end is None or same_end(run.state) != "TIMEOUT":
        return None
    found = world.new_limits_of(run)
    if not found:
        return None
    last = found[-1]
    if abs(run.end - max(run.start + last.seconds, last.time)) > ENDS_WITHIN_S:
        return None
    before = found[-2].seconds if len(found) > 1 else _asked_for(run)
    return Change(last.time, last.seconds, before, last.uid)


def _asked_for(run: Run) -> float | None:
    """The time limit with which the job was submitted, seconds (``sbatch -t 10``); None if its options do not tell."""
    words = iter(str(run.row.get("submit_line") or "").split()[1:])
    for word in words:
        if match := _LIMIT.fullmatch(word):
            return duration_s(match["limit"])
        if not word.startswith("-"):
            return None
        value = None if _ALONE.fullmatch(word) else next(words, None)
        if word in ("-t", "--time"):
            return duration_s(value)
    return None


def name_of(run: Run, uid: str | None) -> str:
    """Who asked for a change, in words."""
    if uid is None:
        return "somebody"
    return str(run.row.get("user") or "its user") if is_own(run, uid) else "root" if uid == "0" else f"uid {uid}"


def limit_words(seconds: float) -> str:
    """A time limit in words."""
    return f"{seconds / 60:.0f} min" if seconds < 7200 or seconds % 3600 else f"{seconds / 3600:.0f} h"


def shortened(world: World) -> list[Fact]:
    """``limit.shortened`` per run that was ended by a limit that somebody other than its user had shortened."""
    facts = []
    for run in world.timed_out:
        change = change_of(world, run)
        if change is None or not is_others(run, change.uid) or not change.shortened(run):
            continue
        attrs: ShortenedLimit = {
            "before": None if change.before is None else limit_words(change.before),
            "after": limit_words(change.seconds), "who": name_of(run, change.uid),
        }  # fmt: skip
        facts.append(LIMIT_SHORTENED.fact(change.time, None, 0.5, run=run.key, attrs=attrs))
    return facts


KINDS = (LIMIT_SHORTENED,)
DETECTORS = [shortened]
