"""What is asked only about runs that reached their time limit: when they wrote output and worked, and who had set the limit.

There are few such runs. All of a pass are asked about at once, when the first one is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from correlator.clocks.clocks import Zones
from correlator.gather.kernel_lines import moments
from correlator.model.measurements import NewLimit, Output, Worked
from correlator.model.nouns import Run
from store.questions import activity, job_output, time_limits
from store.questions import telemetry as samples
from store.questions.authority import Speakers

if TYPE_CHECKING:
    from store.door import Asks

#: By job.
Outputs = Callable[[Collection[int]], Mapping[int, Output]]
NewLimits = Callable[[Collection[int], float, float], Mapping[int, list[NewLimit]]]
#: By the key of a run; of those whose GPUs worked and were measured.
Work = Callable[[Sequence[Run]], Mapping[str, Worked]]


def outputs(store: Asks, cluster: str | None, zones: Zones) -> Outputs:
    """``outputs(jobs)``: when programs of these jobs wrote to their output, in true time."""

    def of(jobs: Collection[int]) -> dict[int, Output]:
        stamps: defaultdict[int, list[float]] = defaultdict(list)
        read_by: defaultdict[int, list[float]] = defaultdict(list)
        # The last line of each file that something dates, and that nothing dates.
        dated: dict[tuple[int, str | None], int] = {}
        undated: dict[tuple[int, str | None], int] = {}
        for row in store.ask(job_output.written(cluster, sorted(jobs))):
            job, moment, line = row["job_id"], row["t"], row["line"] or 0
            last = undated if moment is None else dated
            place = job, row["file"]
            last[place] = max(line, last.get(place, line))
            if moment is None:
                continue
            if row["stamped"]:
                stamps[job].append(moment - zones.ahead_in_output(job, moment) if zones.offsets else moment)
            else:
                read_by[job].append(moment)
        open_ended = {place[0] for place, line in undated.items() if place not in dated or dated[place] < line}
        return {
            job: Output(tuple(sorted(stamps[job])), tuple(sorted(read_by[job])), job in open_ended)
            for job in sorted({*stamps, *read_by, *open_ended})
        }

    return of


#: Nobody's GPUs are measured on so many nodes for so long without many samples (seconds): of such a run the end is asked.
MOST_NODES, MOST_S = 64, 86_400.0


def work(store: Asks, cluster: str | None, *, is_measured: bool) -> Work:
    """``work(runs)``: when the GPUs of these runs worked. ``is_measured``: are there any measurements? The first call
    counts: a pass asks about all its runs at once."""
    known: list[Mapping[str, Worked]] = []

    def of(runs: Sequence[Run]) -> Mapping[str, Worked]:
        if not known:
            some = [
                run
                for run in runs
                if run.start is not None and run.end is not None and 0 < len(run.nodes) <= MOST_NODES
            ]
            measured = (
                is_measured and bool(some) and bool(store.ask(samples.any_sample(cluster, names=activity.GPU_WORK)))
            )
            known.append(_worked(store, cluster, some) if measured else {})
        return known[0]

    return of


def _worked(store: Asks, cluster: str | None, runs: Sequence[Run]) -> dict[str, Worked]:
    spans = []
    for number, run in enumerate(runs):
        end = run.end or 0.0
        since, until = moments(max(run.start or end, end - MOST_S), end)
        spans += [activity.Span(number, host, since, until) for host in run.nodes]
    rows = [row for row in store.ask(activity.gpu_work(cluster, spans)) if row["worked_to"] is not None]
    numbers = {row["n"] for row in rows}
    moved = {row["n"]: row["t"] for row in store.ask(activity.moved_data(cluster, [s for s in spans if s.number in numbers]))} if rows else {}  # fmt: skip
    return {
        runs[row["n"]].key: Worked(
            row["worked_from"], row["worked_to"], row["pause"] or 0.0, row["last"], row["hosts"] == len(runs[row["n"]].nodes),
            moved.get(row["n"]),
        )
        for row in rows
    }  # fmt: skip


_SET = re.compile(r"update_job: setting time_limit to (?P<minutes>\d{1,10}) for ")
_ASKED = re.compile(r"_slurm_rpc_update_job: complete .*\buid=(?P<uid>\d+)")

#: More than any zone is ahead of another: lines are found by their time as stored.
ZONES_S = 86_400.0

#: slurmctld logs what it changes, then who asked, in one call (seconds).
ONE_CALL_S = 2.0


class ChangedLimits:
    """The changes of time limits that are stored. ``any_change``: did slurmctld ever log one? None: not known yet."""

    def __init__(self, store: Asks, cluster: str | None, *, any_change: bool | None = None) -> None:
        self.store, self.cluster, self.any_change = store, cluster, any_change

    def read(self, speakers: Speakers, zones: Zones) -> NewLimits:
        """``new_limits(jobs, since, until)``: the changes of these jobs' time limits in a range of true time that
        slurmctld logs, in order."""

        def new_limits(jobs: Collection[int], since: float, until: float) -> dict[int, list[NewLimit]]:
            if self.any_change is None:
                self.any_change = bool(self.store.ask(time_limits.any_change(self.cluster)))
            if not self.any_change:  # true of most clusters, and the question takes milliseconds of every tick
                return {}
            return self._of(jobs, since, until, speakers, zones)

        return new_limits

    def _of(
        self, jobs: Collection[int], since: float, until: float, speakers: Speakers, zones: Zones
    ) -> dict[int, list[NewLimit]]:
        found: defaultdict[int, list[NewLimit]] = defaultdict(list)
        asked: defaultdict[int, list[tuple[float, str]]] = defaultdict(list)
        for row in self.store.ask(
            time_limits.updates(self.cluster, sorted(jobs), *moments(since - ZONES_S, until + ZONES_S), speakers)
        ):
            job, moment, message = row["job_id"], row["t"] - zones.log_ahead, row["message"]
            if match := _SET.search(message):
                found[job].append(NewLimit(moment, 60.0 * int(match["minutes"]), None))
            elif match := _ASKED.search(message):
                asked[job].append((moment, match["uid"]))
        return {job: [_with_uid(new, asked[job]) for new in known] for job, known in found.items()}


def _with_uid(new: NewLimit, asked: list[tuple[float, str]]) -> NewLimit:
    """The change with who asked for it; two lines of one call may carry one timestamp, in either order."""
    near = [(abs(moment - new.time), uid) for moment, uid in asked if abs(moment - new.time) <= ONE_CALL_S]
    return replace(new, uid=min(near)[1]) if near else new
