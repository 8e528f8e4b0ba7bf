"""Programs of several users that ended alike in the same moment on different nodes: each may have died of a mistake of its
own, but what they share (a file, storage, a library) explains all of them, and nothing tells which it was.

It takes two other users: no user alone must change the verdict on another's run, and whoever watches the queue can end a
program of his own by any signal, or print any words, within a second of another's end. Only for SIGBUS is one enough. Programs that began together may end together by one and the same mistake, as in
a course; only SIGBUS is hardly ever one: what a program had mapped was gone.

On one node, programs of three users that had run for a while and in one moment find files of one folder of the root (/tmp,
/scratch) gone, broken or closed to them share more than a mistake, whatever the files are: somebody emptied it, or its disk
failed. Where each user has a folder below it (/home), the errors have to be the same. Two users are not enough there either: one of them can die whenever the other does.
"""

from __future__ import annotations

import re
import signal
from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from correlator.facts.jobs.kinds import RUN_FAILED
from correlator.facts.world import World
from correlator.gather.presence import SOMEBODY, user_of
from correlator.model.attributes import WORDS
from correlator.model.nouns import Fact, Run
from correlator.verdicts.verdict import Verdict
from parsers.documents.fields import integer

#: Accounting has whole seconds, and what ends several programs ends them within one or two.
SAME_MOMENT_S = 2.0
#: Begun at least so far from each other, their ends tell of no common beginning (seconds).
APART_S = 30.0
#: So many other users must have ended by the same signal, words or loss of files; by SIGBUS, which a program's own mistake hardly
#: ever raises, one.
OTHERS, BY_SIGBUS = 2, 1
LEFT_OPEN_SURE = 0.5

#: Signals that a fault of a program raises in it; others are sent by somebody.
_FAULTS = frozenset(
    {signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS}
)
#: What differs from run to run in the same error.
_NUMBERS = re.compile(r"\b0x[0-9a-f]+\b|\d+", re.IGNORECASE)
_ERRORS = (
    "No such file or directory|Input/output error|Stale file handle|Permission denied|Read-only file system|"
    "Transport endpoint is not connected"
)
#: An absolute path begins the line, or follows a quote, a blank or a colon: its first two folders.
_BEGINS, _IN_PATH = r"(?<![^\s'\"`\u2018\u201c:])", r"[^\s'\"`\u2019\u201d:/]"
#: A file that is gone, broken, or closed to the program, and the folder of the root that it is in, by where the path stands.
_FILE = (
    re.compile(rf"(?P<error>{_ERRORS})\b.*?{_BEGINS}(?P<folder>/[\w.-]+)/(?P<below>{_IN_PATH}*)"),
    re.compile(
        rf"{_BEGINS}(?P<folder>/[\w.-]+)/(?P<below>{_IN_PATH}*)(?:/{_IN_PATH}*)*['\"`\u2019\u201d]?: (?P<error>{_ERRORS})\b"
    ),
)
#: These have a folder of each user.
_OF_EACH_USER = frozenset({"/home", "/users"})
#: A program that fails sooner may never have had the file (seconds).
_HAD_IT_S = 10.0
#: Slurm's own words about the end of a task tell of no error.
_OF_SLURM = re.compile(r"^(?:srun|slurmstepd[\w.-]*): ")
#: Of longer lines the beginning counts: users write them.
_MOST_TEXT = 300


Moments = np.ndarray[Any, np.dtype[np.float64]]


class _Death(NamedTuple):
    end: float
    run: Run
    user: str
    nodes: frozenset[str]


class _Deaths(NamedTuple):
    """Those with one signal or error, in order of time, and the ends and starts of their runs (epoch seconds), and a number for the user of each."""

    each: list[_Death]
    ends: list[float]
    starts: Moments
    users: np.ndarray[Any, np.dtype[np.int64]]
    numbers: dict[str, int]


class _Files(NamedTuple):
    """Errors of files below one folder of the root on one node. ``error``: which one, where each user has a folder; else empty."""

    folder: str
    node: str
    error: str


_How = int | str | _Files | None


class EndedAlike:
    """Finds them in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._words: dict[Fact, str] = {}

    def leave_open(self, verdict: Verdict) -> None:
        """Blames no program that ended as those of others did in the same moment."""
        if verdict.category != "app.error" or verdict.chain is not None or verdict.unstarted or verdict.run.end is None:
            return
        number = _signal_of(verdict.run)
        of_bus = number == signal.SIGBUS
        ways: list[tuple[_How, int, bool]] = [
            (number, BY_SIGBUS if of_bus else OTHERS, not of_bus), (self._words_of(verdict.end), OTHERS, True),
            *((lost, OTHERS, True) for lost in _files_of(verdict.end, verdict.run)),
        ]  # fmt: skip
        for how, needed, apart in ways:
            others = self._like(verdict.run, how, needed, apart=apart) if how else []
            users = {other.user for other in others}
            if len(users) < needed:
                continue
            what, where = "the same error", "on other nodes"
            if how is number:
                what = f"signal {number} ({signal.Signals(number).name})"
            elif isinstance(how, _Files):
                what, where = f"an error of a file in {how.folder}", "on its node"
            verdict.category, verdict.confidence = "unknown", min(verdict.confidence, LEFT_OPEN_SURE)
            verdict.reason = (
                f"it ended by {what}, as {_named(others)} of {f'{len(users)} other users' if len(users) > 1 else 'another user'} did {where} in the "
                "same moment: what they share (a file, storage, a library) may have ended all of them, and nothing that was collected tells what"
            )  # fmt: skip
            return
        self._doubt(verdict)

    def _doubt(self, verdict: Verdict) -> None:
        """Names those of other users that printed the same error in the same moment: a program that they share may be broken.

        Where too few did so to leave the verdict open, and wherever and whenever they began: a doubt changes no verdict.
        """
        deaths, user = self._deaths.get(self._words_of(verdict.end)), user_of(verdict.run)
        if deaths is None or user in (None, SOMEBODY):
            return
        found = slice(*_moment(deaths, verdict.run.end or 0.0))
        if found.stop - found.start == 1 and deaths.each[found.start].run is verdict.run:  # nearly always
            return
        others = np.flatnonzero(deaths.users[found] != deaths.numbers.get(user or "", -1))
        if len(others):
            which = deaths.each[found.start + others[0]].run.key
            users = np.count_nonzero(np.bincount(deaths.users[found][others]))
            verdict.doubts.append(
                f"The same error ended {f'{len(others)} jobs' if len(others) > 1 else f'job {which}'} of "
                f"{f'{users} other users' if users > 1 else 'another user'} in the same moment: a program that they share may be broken, "
                "or each made the same mistake"
            )

    def _like(self, run: Run, how: _How, needed: int, *, apart: bool) -> list[_Death]:
        """Those of other users that ended so in the same moment; none if they are fewer than ``needed`` users."""
        deaths, user = self._deaths.get(how), user_of(run)
        if deaths is None or user in (None, SOMEBODY):
            return []
        end = run.end or 0.0
        first, last = _moment(deaths, end)
        if last - first < needed:  # nearly always
            return []
        users = deaths.users[first:last]
        others = users != deaths.numbers.get(user or "", -1)
        if apart:
            others &= np.abs(deaths.starts[first:last] - (run.start or end)) >= APART_S
        # A user's array can end a thousand tasks at once, each of which would look at those of the next user's.
        if np.count_nonzero(np.bincount(users[others])) < needed:
            return []
        found = list(compress(deaths.each[first:last], others.tolist()))
        return found if isinstance(how, _Files) else [o for o in found if o.nodes.isdisjoint(run.nodes)]

    def _words_of(self, end: Fact) -> str:
        # Each is asked for among all others, and again for its verdict.
        if (words := self._words.get(end)) is None:
            words = self._words[end] = _words_of(end)
        return words

    @cached_property
    def _deaths(self) -> dict[_How, _Deaths]:
        """By signal, by error, and by the folder of a lost file on each node."""
        found: defaultdict[_How, list[_Death]] = defaultdict(list)
        for end in self._world.facts_of(RUN_FAILED.name):
            run = self._world.run[end.run or ""]
            user = user_of(run)
            if run.end is None or user in (None, SOMEBODY) or not run.nodes:
                continue
            ways: tuple[_How, ...] = (_signal_of(run), self._words_of(end), *_files_of(end, run))
            for how in ways:
                if how:
                    found[how].append(_Death(run.end, run, user or "", frozenset(run.nodes)))
        return {how: _in_columns(deaths) for how, deaths in found.items()}


def _in_columns(deaths: list[_Death]) -> _Deaths:
    deaths.sort(key=lambda death: (death.end, death.run.key))
    starts = [death.run.start or death.end for death in deaths]
    numbers = {user: number for number, user in enumerate(sorted({death.user for death in deaths}))}
    users = np.array([numbers[death.user] for death in deaths], np.int64)
    return _Deaths(deaths, [death.end for death in deaths], np.array(starts), users, numbers)


def _moment(deaths: _Deaths, end: float) -> tuple[int, int]:
    """The places of those that ended within the same moment: the first, and the one after the last."""
    return bisect_left(deaths.ends, end - SAME_MOMENT_S), bisect_right(deaths.ends, end + SAME_MOMENT_S)


def _signal_of(run: Run) -> int:
    """The signal that a fault raised in a run or in one of its steps, by accounting; 0 if none did."""
    signals = [integer(run.row.get("exit_signal")), *(integer(step.get("exit_signal")) for step in run.steps)]
    return next((number for number in signals if number in _FAULTS), 0) or 0


def _words_of(end: Fact) -> str:
    """The first error of its own that a run printed, without what differs from run to run; empty if it printed none."""
    own = [e.message for e in end.attrs[WORDS]["own"] if not _OF_SLURM.match(e.message)]
    return _NUMBERS.sub("#", own[0][:_MOST_TEXT]) if own else ""


def _files_of(end: Fact, run: Run) -> list[_Files]:
    """Where the file was that a run had lost when it ended, after it had run for a while, on each of its nodes."""
    if run.start is None or run.end is None or run.end - run.start < _HAD_IT_S:
        return []
    own = [e.message for e in end.attrs[WORDS]["own"] if not _OF_SLURM.match(e.message)]
    lost = next((found for form in _FILE if (found := form.search(own[0][:_MOST_TEXT]))), None) if own else None
    if lost is None:
        return []
    of_each = lost["folder"] in _OF_EACH_USER or lost["below"] == user_of(run)
    return [_Files(lost["folder"], node, lost["error"] if of_each else "") for node in sorted(set(run.nodes))]


def _named(others: list[_Death]) -> str:
    return f"job {others[0].run.key}" if len(others) == 1 else f"{len(others)} jobs"
