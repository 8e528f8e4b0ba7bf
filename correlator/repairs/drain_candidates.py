"""The nodes that the repair list would have drained now, with what speaks for it: incident, lines, and their writers.

It is the advice that ``drain_advice`` counts in shadow, at the present moment. Nothing is done to any node here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from correlator.repairs.model import Repair, Rows
from correlator.repairs.remedies import is_drain
from correlator.repairs.repairs import DAYS, DEVICE_KINDS, OWN_ROOTS, repairs
from parsers.moments import later, rfc3339
from store.errors import NoSuchTable
from store.questions import drain_decisions, triage

#: Lines that say that a device came back, or took over, tell of no fault.
FAULT_KINDS = tuple(kind for kind in DEVICE_KINDS if kind not in {"nic.link_up", "switch.port_up", "nic.failover"})


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
    device's own; None if there is none. ``wrong``: an operator marked it so."""

    cluster: str | None
    host: str
    device: str
    action: str
    down: bool
    incident: str | None = None
    wrong: bool = False
    witnesses: tuple[Witness, ...] = ()

    @property
    def newest(self) -> datetime | None:
        """When something that is no user last spoke of the fault."""
        return max((one.time for one in self.witnesses), default=None)


def candidates(store: Rows, cluster: str | None) -> list[Candidate]:
    """One for each node of a cluster (None: of the only one), with the device that has the best evidence."""
    found: dict[str, Candidate] = {}
    for repair in repairs(store).repairs:
        if repair.urgency != "now" or not is_drain(repair) or (cluster is not None and repair.cluster != cluster):
            continue
        one = _candidate(store, repair)
        if repair.host not in found or len(one.witnesses) > len(found[repair.host].witnesses):
            found[repair.host] = one
    return [found[host] for host in sorted(found)]


def _candidate(store: Rows, repair: Repair) -> Candidate:
    plain = Candidate(repair.cluster, repair.host, repair.device, repair.action, repair.down)
    places = {(repair.host, repair.device)}
    if repair.switch and repair.switch_port:
        places.add((repair.switch, repair.switch_port))
    own = [
        row
        for row in _incidents(store, repair)
        if row["root_event"] in OWN_ROOTS and (row["root_host"], row["root_device"]) in places
    ]
    if not own:
        return plain
    name, last = own[-1]["incident_id"], repair.last or own[-1]["start"]
    asked = drain_decisions.witnesses(repair.cluster, name, places, FAULT_KINDS, later(last, -timedelta(days=DAYS)))
    seen = tuple(
        Witness(row["host"], row["authority"], row["time"], row["lines"], row["event"], row["event_id"] or "", row["message"] or "")
        for row in store.ask(asked)
    )  # fmt: skip
    return Candidate(
        repair.cluster, repair.host, repair.device, repair.action, repair.down, name, _is_wrong(store, [name]), seen
    )


def _incidents(store: Rows, repair: Repair) -> list[dict[str, Any]]:
    return store.ask(drain_decisions.incidents(repair.cluster, repair.incidents)) if repair.incidents else []


def _is_wrong(store: Rows, names: Collection[str]) -> bool:
    try:
        return any(row["state"] == "wrong" for row in store.ask(triage.standing(list(names))))
    except NoSuchTable:  # a store of an older version, opened for reading
        return False


__all__ = ["Candidate", "Witness", "candidates"]
