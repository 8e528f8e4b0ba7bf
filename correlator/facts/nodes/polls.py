"""Slurm's answers about its nodes, which replace slurmctld's log where it is missing.

Accounting's events, and the timestamp of a reason, show when a state was set. A poll only shows that it was set by
then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from correlator.facts.nodes.kinds import ADMIN_DOWN, NODE_DOWN, REBOOTED, AdminDown, NodeDown
from correlator.facts.world import World
from correlator.model.attributes import POLLED
from correlator.model.attrs import with_attr
from correlator.model.moments import seconds_of
from correlator.model.nouns import Fact
from parsers.node_states import NodeState, node_state
from parsers.reasons import split_reason

#: Answers of Slurm that date a node's state by when it was set: accounting's events, and the timestamp of a reason.
_DATED = frozenset({"sacctmgr_events", "scontrol", "slurmrestd"})

#: The end of a run in accounting and the timestamp of the state that ended it: two whole seconds of one transaction.
SAME_STATE_S = 3.0

#: The first poll after a run's end shows why its node was lost, if it is not much later: an administrator may have
#: acted meanwhile.
POLLED_S = 300.0

UNSTATED = "not told"


def polled_downs(world: World) -> Iterable[tuple[float, str, NodeState, str, str]]:
    """(time, host, state, reason, who) of the nodes that were DOWN, by Slurm's answers."""
    for row in world.node_states:
        state, start = node_state(str(row["state"] or "")), row["time"]
        if state.is_down and row["source"] in _DATED and isinstance(start, datetime):
            yield seconds_of(start) or 0.0, str(row["host"]), state, str(row["reason"] or ""), _who(row)


def _who(row: dict[str, object]) -> str:
    return str(row.get("actor") or "").split("(")[0]


def down_by_state(time: float, host: str, state: NodeState, reason: str, who: str) -> Fact | None:
    """How a node went DOWN, as its state and the reason for it say; None where they do not."""
    attrs: NodeDown = {"said_by": "accounting", "reason": reason}
    split = split_reason(reason) if reason else {}
    if "reboot timed out" in reason.lower():
        return NODE_DOWN.fact(time, None, 0.5, host, attrs={**attrs, "unresumed": REBOOTED})
    if state.is_silent or "not responding" in reason.lower():
        return NODE_DOWN.fact(time, None, 0.5, host, attrs={**attrs, "silent": True})
    if "resumetimeout" in reason.lower():
        return NODE_DOWN.fact(time, None, 0.5, host, attrs={**attrs, "unresumed": UNSTATED})
    if who != "slurm" and split and split["owner"] != "slurm":
        admin: AdminDown = {
            "said_by": "accounting", "reason": reason, "component": split.get("component", ""), "owner": split["owner"],
        }  # fmt: skip
        if who:
            admin["who"] = who
        return ADMIN_DOWN.fact(time, None, 0.5, host, attrs=admin)
    if not split and state.is_in_maintenance:
        return ADMIN_DOWN.fact(
            time, None, 0.5, host, attrs={"said_by": "accounting", "reason": "reserved for maintenance"}
        )
    return None


def lost_by(world: World, host: str, moment: float) -> Fact | None:
    """What took a node from a run that ended at ``moment``.

    It is the state that was set then, or one that a poll saw soon after, if the poll before had it at work.
    """
    polled: tuple[float, NodeState, str, str] | None = None
    at_work = False
    for row in world.states_of(host):
        state, time = node_state(str(row["state"] or "")), row["time"]
        at = (seconds_of(time) if isinstance(time, datetime) else None) or 0.0
        record = (at, state, str(row["reason"] or ""), _who(row))
        if row["source"] in _DATED:
            # A drain does not end a run: if the reason was set in that second, the node was set DOWN.
            if (
                state.is_down
                and abs(at - moment) <= SAME_STATE_S
                and (fact := down_by_state(moment, host, *record[1:]))
            ):
                return fact
        elif at < moment:
            at_work = moment - at <= POLLED_S and not state.is_down
        elif polled is None and at_work and at - moment <= POLLED_S and state.is_down:
            polled = record
    fact = down_by_state(moment, host, *polled[1:]) if polled else None
    if fact is None or polled is None:
        return fact
    return replace(fact, attrs=with_attr(fact.attrs, POLLED, max(0.0, polled[0] - moment)))
