"""Rival causes with the fact that rejects them, and claims that count for nothing."""

from __future__ import annotations

from functools import cache
from heapq import nsmallest
from typing import Any

from correlator.edges.conditions.links import name_of
from correlator.evidence.chains import Rejection
from correlator.evidence.weigh import Weigher, describe_cause
from correlator.facts.jobs.kinds import COMM_ERROR, RUN_NODE_FAIL
from correlator.facts.links.kinds import SWITCH_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import kind_of, kinds_where
from correlator.facts.world import World
from correlator.incidents.steps import others_say
from correlator.model.attributes import FAILED_NODES, PROMOTED
from correlator.model.kinds import Trace
from correlator.model.nouns import Event, Fact
from correlator.model.time_texts import clock
from correlator.verdicts.doubts import AS_WELL
from correlator.verdicts.verdict import Verdict


def rival_rows(world: World, weigher: Weigher, verdicts: list[Verdict], root: Fact | None) -> list[dict[str, Any]]:
    """Rival causes and why they were rejected.

    First what was tried and failed, then what would have left a trace and did not.
    """
    rows: dict[tuple[str, str | None, str | None], dict[str, Any]] = {}
    for verdict in verdicts:
        for rejection in verdict.rejections:
            if (
                rejection.cause is root
                or rejection.cause.kind in (COMM_ERROR.name, NODE_DOWN.name)
                or rejection.cause.attrs.get(PROMOTED)
            ):
                continue
            _add(rows, rejection)
        for chain in verdict.others:
            if root is None or chain.root is not root:
                key = (describe_cause(world, chain.root), chain.root.host, chain.root.device)
                best = verdict.others[0] if verdict.left_open else verdict.chain
                even = best is not None and chain.weight >= AS_WELL * best.weight
                against = others_say(h for h in chain.hops if h.others and h.others.survivors)
                why = (
                    "not rejected: it may have ended the run as well"
                    if even
                    else "; ".join(against) or "another explanation carries more"
                )
                rows.setdefault(key, {"cause": key[0], "host": key[1], "device": key[2], "rejected": why})
        for one in verdict.denied:
            claim = one.claim, one.event.host, one.event.device
            if claim not in rows:  # a storm's lines claim the same very often
                rows[claim] = {"cause": claim[0], "host": claim[1], "device": claim[2], "rejected": one.why}
        for row in _absent(world, verdict, root):
            rows.setdefault((row["cause"], row["host"], row["device"]), row)
    return [rows[key] for key in nsmallest(12, rows, key=lambda k: (k[0], k[1] or "", k[2] or ""))]


#: At most this many claims are named among the doubts.
DENIALS = 3


def denials(verdict: Verdict) -> list[str]:
    """The claims about the run's nodes that count for nothing."""
    named = [
        f"A line{_as_kernel(one.event)} in {one.event.file or 'a log'} claims {one.claim} and does not count: {one.why}"
        for one in verdict.denied[:DENIALS]
    ]
    further = verdict.denied[DENIALS:]
    which = _as_kernel(*(one.event for one in further))
    if not further:
        return named
    what = f"1 further line{which} does not" if len(further) == 1 else f"{len(further)} further lines{which} do not"
    return [*named, f"{what} count either"]


def _as_kernel(*events: Event) -> str:
    return " in the kernel's name" if all(e.source == "kernel" for e in events) else ""


def _add(rows: dict[tuple[str, str | None, str | None], dict[str, Any]], rejection: Rejection) -> None:
    fact = rejection.cause
    kind = kind_of(fact.kind)
    what = "link loss" if kind.flaps else kind.cause.event if kind.cause else fact.kind
    name = f"{what} ({name_of(fact)}, {clock(fact.start)})"
    rows.setdefault(
        (name, fact.host, fact.device),
        {"cause": name, "host": fact.host, "device": fact.device, "rejected": rejection.reason},
    )


@cache
def _traces() -> list[tuple[str, Trace]]:
    """What else sets a node DOWN, and the trace that it leaves, by kind."""
    return [(name, kind.trace) for name in sorted(kinds_where(lambda k: k.trace)) if (kind := kind_of(name)).trace]


def _absent(world: World, verdict: Verdict, root: Fact | None) -> list[dict[str, Any]]:
    if verdict.end.kind != RUN_NODE_FAIL.name or (root is not None and root.kind == SWITCH_OUTAGE.name):
        return []
    rows = []
    for host in verdict.end.attrs.get(FAILED_NODES, ())[:2]:
        for name, trace in _traces():
            if root is not None and name == root.kind:
                continue
            near = [f for f in world.facts_of(name, *trace.also)
                    if (trace.anywhere or f.host == host) and abs(f.start - verdict.end.start) <= 900]  # fmt: skip
            if not near:
                rows.append(
                    {"cause": f"{trace.rival} ({host})", "host": host, "device": None, "rejected": trace.absent}
                )
    return rows
