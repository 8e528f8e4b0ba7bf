"""The nodes that a job had asked for by name, if they were out of service when it ended before it had started."""

from __future__ import annotations

import re

from correlator.facts.control import NODE_DRAIN
from correlator.facts.nodes.detector import ups_of
from correlator.facts.world import World
from correlator.model.attributes import REASON
from correlator.model.nouns import Event, Run
from parsers.hostlist import expand, fold

#: The nodes in a submission's own words: they say what it asked for, and blame nobody.
_ASKED = re.compile(r"(?:^|\s)(?:-w ?|--nodelist[= ])(?P<nodes>[A-Za-z0-9_.,\[\]-]{1,200})(?=\s|$)")
#: slurmctld's answer to the registration of an invalid node; why it is invalid, another line says.
_NO_REASON = frozenset({"", "Invalid argument"})


def out_of_service(world: World, run: Run) -> tuple[str, list[Event]]:
    """Why the nodes that a job asked for took no job when it ended, in words, and the lines that say so; empty if they did."""
    asked = _ASKED.search(str(run.row.get("submit_line") or ""))
    if asked is None or run.nodes or run.end is None:
        return "", []
    wanted, ups = expand(asked["nodes"]), ups_of(world)
    drains = {}
    for drain in world.facts_on(NODE_DRAIN.name, wanted):
        back = any(drain.start < up <= run.end for up in ups.get(drain.host or "", ()))
        if drain.start <= run.end and not back and str(drain.attrs.get(REASON) or "") not in _NO_REASON:
            drains[drain.host or ""] = drain
    if not wanted or set(drains) != set(wanted):
        return "", []
    last = max(drains.values(), key=lambda d: d.key[1:])
    of = "which it had asked for, was" if len(wanted) == 1 else "which it had asked for, were"
    why = f"; {fold(wanted)}, {of} out of service: {last.attrs.get(REASON)}"
    return why, [e for d in drains.values() for e in d.events][:5]
