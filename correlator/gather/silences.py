"""Witnesses that were there, look at such things, and saw nothing: they deny what a line claims.

* Both ends of a cable lose their carrier together. A switch denies the loss of a link if it logs the loss of its ports, its
  log of that minute was collected, and it has no line about this port. Only its own lines show the first two
  (gather/collected.py): otherwise, anybody's packets in its name would deny a true loss. A line about the port, whoever
  wrote it, leaves the loss undenied.
* A gauge of the last Xid of each GPU denies an Xid if such gauges have shown Xids before, this one was read before and after
  the line, and it did not change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from correlator.gather.collected import shows_its_log
from correlator.gather.kernel_lines import moments
from correlator.gather.telemetry import XID_METRICS
from store.questions import switch_ports
from store.questions import telemetry as samples

if TYPE_CHECKING:
    from store.door import Asks

#: A witness was there if it has a line or a sample at most this long before a moment, and one at most this long after it
#: (seconds; a tick looks 900 s back).
BEFORE_S, AFTER_S = 900.0, 600.0
#: A line about the port within this is about this loss: the clocks of switches are often not kept. A sample is read within
#: this after an Xid (seconds).
NEAR_S = 120.0
#: A witness looks at such things if it reported one within these days before.
HABIT_S = 7 * 86_400.0
_NUMBERS = re.compile(r"\d+")

Rows = Sequence[Mapping[str, Any]]


class Answers(Protocol):
    """The answers of ``store.questions.switch_ports`` and about gauges; times are epoch seconds. ``is_own`` of a row: only
    the switch can have written it."""

    def around(self, switch: str, since: float, until: float) -> Rows: ...

    def logs_ports(self, switch: str, since: float, until: float) -> bool: ...

    def gauges(self, host: str, since: float, until: float) -> Rows: ...

    def shows_xids(self, since: float, until: float) -> bool: ...


class Asked:
    """``Answers`` from what is stored."""

    def __init__(self, store: Asks, cluster: str | None) -> None:
        self.store, self.cluster = store, cluster

    def around(self, switch: str, since: float, until: float) -> Rows:
        rows = self.store.ask(switch_ports.around(self.cluster, switch, *moments(since, until)))
        return [{**row, "is_own": not row["claim"] and _shows(row, switch)} for row in rows]

    def logs_ports(self, switch: str, since: float, until: float) -> bool:
        rows = self.store.ask(switch_ports.logs_ports(self.cluster, switch, *moments(since, until)))
        return any(_shows(row, switch) for row in rows)

    def gauges(self, host: str, since: float, until: float) -> Rows:
        return self.store.ask(samples.gauges(self.cluster, host, XID_METRICS, *moments(since, until)))

    def shows_xids(self, since: float, until: float) -> bool:
        return bool(self.store.ask(samples.any_above_zero(self.cluster, XID_METRICS, *moments(since, until))))


def _shows(row: Mapping[str, Any], switch: str) -> bool:
    return shows_its_log(row["authority"], (row["file"],), switch)


class Link(NamedTuple):
    """A NIC, and the port that it is plugged into."""

    host: str
    device: str
    switch: str
    port: str


def denies_link(answers: Answers, link: Link, at: float) -> bool:
    """Does the switch of a link deny that the link was lost at ``at`` (epoch seconds)?"""
    rows = answers.around(link.switch, at - BEFORE_S, at + AFTER_S)
    own = [row["t"] for row in rows if row["is_own"]]
    if not any(t < at for t in own) or not any(t > at for t in own):
        return False
    if any(abs(row["t"] - at) <= NEAR_S and _about(row, link) for row in rows):
        return False
    return answers.logs_ports(link.switch, at - HABIT_S, at - NEAR_S)


def _about(row: Mapping[str, Any], link: Link) -> bool:
    """Is it a line about the port, by its number, its name or the node at its end; or one that may be about any port?"""
    if not row["event"]:
        return False
    port = str(row["port"] or "")
    # Ethernet1/5, Et5 and swp5 may be one port.
    numbers, ours = _NUMBERS.findall(port), _NUMBERS.findall(link.port)
    return not port or port == link.port or numbers[-1:] == ours[-1:] or link.host in f"{port} {row['message']}"


def denies_xid(answers: Answers, host: str, bus: str, code: object, at: float) -> bool:
    """Does the gauge of a GPU, given by its ``bus``, deny that it reported the Xid ``code`` at ``at`` (epoch seconds)?"""
    ours = [row for row in answers.gauges(host, at - BEFORE_S, at + AFTER_S) if bus in str(row["gpu"]).lower()]
    before = [row["code"] for row in ours if row["t"] < at - NEAR_S]
    after = [row["code"] for row in ours if row["t"] > at + NEAR_S]
    near = [row["code"] for row in ours if abs(row["t"] - at) <= NEAR_S]
    if not before or not after or before[-1] == code or len({*before[-1:], *near, *after}) > 1:
        return False
    return answers.shows_xids(at - HABIT_S, at - NEAR_S)
