"""Runs that heat held back: for which part of its time a run's node was throttled, and how long the same program took
elsewhere."""

from __future__ import annotations

import re

from correlator.facts.world import World
from correlator.model.nouns import Fact, Run
from parsers.job_states import SUCCEEDED, same_end

#: Runs elsewhere count if they ended within a day before, as for a node's environment (facts/environment/detector.py), or
#: soon after; a tick looks 900 s back.
DAY_S, AHEAD_S = 86_400.0, 600.0

#: What took at most half as long elsewhere would have ended long before the limit.
QUICKER = 0.5

#: Where a job shall run is no part of what it runs.
_PLACE = re.compile(r"\s(?:-[wx]\s*|--(?:nodelist|exclude)[=\s]\s*)\S+")


def throttled_share(run: Run, heat: Fact) -> float:
    """The part of a run's time in which its node was throttled."""
    if run.start is None or run.end is None or run.end <= run.start:
        return 0.0
    until = run.end if heat.end is None else min(heat.end, run.end)
    return max(0.0, until - max(heat.start, run.start)) / (run.end - run.start)


def quicker_elsewhere(world: World, run: Run) -> list[Run]:
    """The runs of the same program and user on other nodes, if they all ended well in at most half the time.

    The program is the same if name, command, number of nodes and GPUs are. One that took longer elsewhere as well shows
    that the program needs the time.
    """
    if run.start is None or run.end is None or not run.row.get("name") or not run.row.get("submit_line"):
        return []
    past, _ = world.past(run.start - DAY_S)
    last, longest = run.end + AHEAD_S, QUICKER * (run.end - run.start)
    others = {
        other.key: other for other in (*past, *world.runs)
        if other.job_id != run.job_id and other.end is not None and other.start is not None
        and run.start - DAY_S <= other.end <= last and set(run.nodes).isdisjoint(other.nodes) and _program(other) == _program(run)
        and (other.state in SUCCEEDED or same_end(other.state) == "TIMEOUT")
    }  # fmt: skip
    found = [other for _, other in sorted(others.items())]
    well = all(r.state in SUCCEEDED and (r.end or 0.0) - (r.start or 0.0) <= longest for r in found)
    return found if well else []


def _program(run: Run) -> tuple[object, ...]:
    command = _PLACE.sub("", str(run.row.get("submit_line") or ""))
    return run.row.get("user"), run.row.get("name"), command, len(run.nodes), run.gpus
