"""The ends of a chain's steps on the time axis.

A line that tells of a fact at its time is its mark. A fact that was measured or inferred has none, and the line that represents
it may be another's, or come later: a boot tells of the crash before it. Such a fact has a mark of its own, at the first
moment at which it can have begun, and a bracket up to the last. The end of a run is always on the lane of that run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from correlator.facts.registry import kind_of
from correlator.incidents.steps import BEGINS_S
from web.glyphs import glyph_of
from web.shaping import BAD_STATES, moment

Row = dict[str, Any]

#: A cause's line may be this much later than its effect's: clocks of two hosts kept by NTP (seconds).
CLOCKS_S = 1.0

#: Accounting rounds the end of a run down to a second.
SECOND_S = 1.0


@dataclass
class End:
    """Where a step begins or ends. ``line`` is the event that tells of the fact at its time, ``shown_by`` the one that represents it
    in the chain; ``first`` and ``last`` are the moments between which it began."""

    kind: str
    host: str | None
    device: str | None
    run: str | None
    says: str
    role: str
    first: datetime
    last: datetime
    shown_by: str | None
    line: Row | None = None

    @property
    def fact(self) -> tuple[str | None, ...]:
        """What it is about, the same in all steps."""
        return (self.kind, self.host, self.device, self.run, self.shown_by)

    @property
    def ends_run(self) -> bool:
        return self.run is not None and self.kind.startswith("run.")

    @property
    def own(self) -> bool:
        """Does it have a mark of its own?"""
        return self.line is None or self.ends_run

    @property
    def id(self) -> str:
        """The id of its mark: the same in each step that begins or ends with this fact."""
        if self.ends_run:
            return f"run:{self.run}"
        if self.line is not None:
            return str(self.line["id"])
        return "fact:" + "|".join(
            str(part or "") for part in (self.kind, self.host, self.device, self.run, self.last.isoformat())
        )

    @property
    def at(self) -> datetime:
        found = moment(self.line.get("time")) if self.line else None
        return found or self.first


@dataclass
class Hop:
    """A step of the chain with both ends."""

    step: Row
    cause: End
    effect: End


def hops_of(document: Row) -> list[Hop]:
    """The steps with their ends, so that no cause is later than its effect by more than clocks explain.

    Steps are left out if nothing tells when they began or ended.
    """
    events = {str(event.get("id")): event for event in document.get("events") or []}
    pairs = [
        (step, *(_end(step, side, events) for side in ("cause", "effect"))) for step in document.get("chain") or []
    ]
    # One line represents both: it is the effect's, in all steps of the cause.
    alike = {c.fact for _, c, e in pairs if c and e and c.line is not None and not c.ends_run and c.id == e.id}
    known: dict[str, End] = {}
    hops = []
    for step, cause, effect in pairs:
        if cause is None or effect is None:
            continue
        for end in (cause, effect):
            if end.fact in alike and (end is cause or effect.fact != cause.fact):
                end.line = None
        # A fact has one mark, however many steps begin or end with it.
        hops.append(Hop(step, known.setdefault(cause.id, cause), known.setdefault(effect.id, effect)))
    _in_order(hops)
    return hops


def _end(step: Row, side: str, events: Mapping[str, Row]) -> End | None:
    shown_by, says = step.get(side), str(step.get(f"{side}_says") or "")
    line = events.get(str(shown_by))
    line_time = moment(line.get("time")) if line else None
    # Who may not see whose a fact is sees its line; so does who opens a document of an older version.
    time, pm = (
        (moment(step.get(f"{side}_time")), step.get(f"{side}_pm_s")) if f"{side}_pm_s" in step else (line_time, 0.0)
    )
    if time is None:
        return None
    room = timedelta(seconds=float(pm or 0.0))
    host, device, run = (step.get(f"{side}_{name}") for name in ("host", "device", "run"))
    end = End(str(step.get(f"{side}_fact") or ""), host, device, run, says, side, time - room, time + room, shown_by)
    if line is not None and line_time is not None:
        room = timedelta(seconds=BEGINS_S + float(line.get("resolution_s") or 0.0))
        if end.first - room <= line_time <= end.last + room:
            end.line = line
    if end.ends_run and end.line is None:
        end.first, end.last = time, time + timedelta(seconds=SECOND_S)
    until = moment(step.get(f"{side}_until"))
    if until is not None and end.line is None:
        end.last = max(end.last, until)
    return end


def _in_order(hops: list[Hop]) -> None:
    """A cause that was seen only after its effect began before that: its mark is at the first moment it can have had, and its bracket ends
    with its first effect."""
    slack = timedelta(seconds=CLOCKS_S)
    for hop in hops:
        if hop.cause.line is None and hop.cause is not hop.effect and hop.step.get("cause_until"):
            hop.cause.last = max(hop.cause.first, min(hop.cause.last, hop.effect.at))
    for _ in hops:
        late = [hop for hop in hops if hop.cause is not hop.effect and hop.cause.at > hop.effect.at + slack]
        if not late:
            return
        for hop in late:
            cause = hop.cause
            cause.first, cause.last = min(cause.first, hop.effect.at), max(cause.at, cause.last)
            cause.line = None


def mark_of(end: End, lane: str, t0: datetime, run: Row | None = None) -> Row:
    """The mark of an end that has one of its own, in the form of the canvas (``web.axis.mark``)."""
    kind = kind_of(end.kind)
    first, last = ((when - t0).total_seconds() for when in (end.first, end.last))
    glyph, level, text = glyph_of(kind.cause.event if kind.cause else end.kind), "warning", end.says or kind.summary
    if end.ends_run:
        state = str((run or {}).get("state") or "").split(" ")[0]
        bad = state in BAD_STATES or not state
        glyph, level, text = "kill" if bad else "end", "error" if bad else "info", f"{end.says} {state}".strip()
    at = (end.at - t0).total_seconds()
    has_line = end.line is not None
    return {
        "id": end.id, "t": round(at, 6), "lane": lane, "glyph": glyph, "event": end.kind, "host": end.host, "text": text,
        "role": end.role, "level": level, "count": 1, "file": None, "short": "", "line": None, "pm": 0.0,
        "quality": "line" if has_line else "inferred", "late": None, "told_by": end.shown_by,
        "between": None if has_line else [round(first, 6), round(last, 6)],
    }  # fmt: skip


def moments(hops: Iterable[Hop]) -> list[datetime]:
    """When the steps begin and end."""
    return [end.at for hop in hops for end in (hop.cause, hop.effect)]


def first_cause(hops: Iterable[Hop]) -> datetime | None:
    """When the earliest cause began that is no effect of another."""
    hops = list(hops)
    effects = {hop.effect.id for hop in hops}
    return min((hop.cause.at for hop in hops if hop.cause.id not in effects), default=None)


def first_evidence(document: Row, hops: Iterable[Hop]) -> datetime | None:
    """T0, from which times are counted: when the first cause was, else the first event; None if no event has a time."""
    events = [(item.get("role"), moment(item.get("time"))) for item in document.get("events") or []]
    causes = [first_cause(hops), *(when for role, when in events if role == "cause")]
    return min(filter(None, causes), default=None) or min((when for _, when in events if when), default=None)
