"""The nodes that the repair list would have drained now, with what speaks for it: incident, lines, and their writers.

It is the advice that ``drain_advice`` counts in shadow, at the present moment. Nothing is done to any node here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from correlator.facts.registry import events_with
from correlator.repairs.model import Repair, Rows
from correlator.repairs.remedies import is_drain
from correlator.repairs.repairs import DAYS, OWN_ROOTS, repairs
from parsers.moments import later, rfc3339
from store.errors import NoSuchTable
from store.questions import drain_decisions, triage


def _of_faults() -> tuple[str, ...]:
    """Lines that say that a device came back, or that another took over, tell of no fault."""
    return events_with("down", "state", "trouble", "errors", "optics", "corrected")


@dataclass(frozen=True)
class Witness:
    """Lines about the fault from one writer that is no user: ``authority`` (parsers.writers) on ``host``. ``time``: the
    last one's (naive UTC), whose text and id are ``message`` and ``event_id``."""

    host: str
    authority: str
    time: datetime
    lines: int
    event: str
    event_id: str
    message: str

    def document(self) -> dict[str, Any]:
        """The lines as JSON."""
        return {"host": self.host, "authority": self.authority, "time": rfc3339(self.time), "lines": self.lines,
                "event": self.event, "event_id": self.event_id, "message": self.message[:300]}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """A node with a device for which the repair list says "now" and to drain. ``incident``: the newest one that is the
    device's own; None if there is none. ``wrong``: an operator marked it so. ``newest_fault``: when something that is no user last reported
    a fault of this device, whatever incident it belongs to. ``states``: of each such writer, its last word on whether the
    link is down or up. ``held``: why a person's decision stands against it, "" if none does."""

    cluster: str | None
    host: str
    device: str
    action: str
    down: bool
    incident: str | None = None
    wrong: bool = False
    witnesses: tuple[Witness, ...] = ()
    newest_fault: datetime | None = None
    states: tuple[Witness, ...] = ()
    held: str = ""

    @property
    def newest(self) -> datetime | None:
        """When something that is no user last spoke of the fault."""
        return max((one.time for one in self.witnesses), default=None)


def candidates(store: Rows, cluster: str | None) -> list[Candidate]:
    """One for each node of a cluster (None: of the only one), with the device that has the best evidence."""
    found: dict[str, Candidate] = {}
    for repair in repairs(store).repairs:
        if (
            repair.urgency != "now"
            or not (is_drain(repair) or repair.held)
            or (cluster is not None and repair.cluster != cluster)
        ):
            continue
        one = _candidate(store, repair)
        known = found.get(repair.host)
        if known is None or (not one.held, len(one.witnesses)) > (not known.held, len(known.witnesses)):
            found[repair.host] = one
    return [found[host] for host in sorted(found)]


def _candidate(store: Rows, repair: Repair) -> Candidate:
    places = {(repair.host, repair.device)}
    if repair.switch and repair.switch_port:
        places.add((repair.switch, repair.switch_port))
    own = [
        row
        for row in _incidents(store, repair)
        if row["root_event"] in OWN_ROOTS and (row["root_host"], row["root_device"]) in places
    ]
    last = repair.last or (own[-1]["start"] if own else None)

    def lines(incident: str | None, kinds: tuple[str, ...]) -> tuple[Witness, ...]:
        if last is None:
            return ()
        moment = later(last, -timedelta(days=DAYS))
        asked = drain_decisions.witnesses(repair.cluster, incident, places, kinds, moment)
        return tuple(_witness(row) for row in store.ask(asked))

    found = Candidate(
        repair.cluster, repair.host, repair.device, repair.action, repair.down, states=lines(None, events_with("down", "up")),
        newest_fault=max((one.time for one in lines(None, _of_faults())), default=None),
        held=repair.held,
    )  # fmt: skip
    if not own:
        return found
    name = own[-1]["incident_id"]
    return replace(found, incident=name, wrong=_is_wrong(store, [name]), witnesses=lines(name, _of_faults()))


def _witness(row: Mapping[str, Any]) -> Witness:
    line = row["event"], row["event_id"] or "", row["message"] or ""
    return Witness(row["host"], row["authority"], row["time"], row["lines"], *line)


def _incidents(store: Rows, repair: Repair) -> list[dict[str, Any]]:
    return store.ask(drain_decisions.incidents(repair.cluster, repair.incidents)) if repair.incidents else []


def _is_wrong(store: Rows, names: Collection[str]) -> bool:
    try:
        return any(row["state"] == "wrong" for row in store.ask(triage.standing(list(names))))
    except NoSuchTable:  # a store of an older version, opened for reading
        return False


__all__ = ["Candidate", "Witness", "candidates"]
