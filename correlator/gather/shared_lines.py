"""Events whose lines others than the program that they name can have written, beside those in the kernel's name
(``kernel_lines.py``, ``kernel_copies.py``).

* ``logger -t slurmd`` writes to a syslog daemon's file what looks like the daemon's own line (``SHARED``). A log host's
  file about another host, and what a relay forwards, are no better: the writer was some program of that host.
* A packet from an address that is not known to be the host's, and text that a shipper sent without naming a file, show
  nothing about their writer (``SENT``). That counts for lines in the kernel's name as well. No conclusion uses them.

The same words where only their program can write remove the doubt. verdicts/kernel_words.py states what such lines are
worth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from correlator.gather.kernel_lines import COPY_S, SENT, SHARED
from correlator.gather.own_devices import is_of_own_device
from correlator.model.nouns import Event
from correlator.site.open_lines import is_sent
from parsers.writers import JOB, UNVERIFIED, USERS

#: A job's output is judged elsewhere (gather/standing.py).
_OPEN = USERS - {JOB}


def standing(
    events: Sequence[Event], by_kind: Mapping[str, Sequence[Event]], relays: Collection[str]
) -> dict[str, str]:
    """``SHARED`` or ``SENT`` by the ids of the events that nothing supports. ``by_kind``: the same ``events``;
    ``relays``: addresses that forward lines of others."""
    shared = [e for e in events if e.authority in _OPEN and e.source != "kernel"]
    if not shared:
        return {}
    return {e.id: how for e in _unsupported(shared, by_kind) if (how := open_to(e, relays))}


def sent(of_kernel: Iterable[Event], relays: Collection[str]) -> set[str]:
    """The ids of the events in the kernel's name that came with nothing that shows their writer."""
    return {e.id for e in of_kernel if e.authority in _OPEN and open_to(e, relays) == SENT}


def open_to(event: Event, relays: Collection[str]) -> str:
    """``SHARED`` or ``SENT`` for an event that others can have written; "" for one of its program's own file."""
    if is_sent(event, relays):
        return SENT
    return "" if event.authority == UNVERIFIED else SHARED  # a file in a format of its own is its program's


def _unsupported(shared: Sequence[Event], by_kind: Mapping[str, Sequence[Event]]) -> list[Event]:
    """Those of which no line that only their program can have written says the same."""
    about, kinds = {(e.host, e.kind) for e in shared}, {e.kind for e in shared}
    proven: dict[tuple[str | None, str, str], list[float]] = defaultdict(list)
    for event in chain.from_iterable(by_kind.get(kind, ()) for kind in kinds):
        if event.authority not in USERS and (event.host, event.kind) in about and not is_of_own_device(event):
            proven[_statement(event)].append(event.time)
    about = {(host, kind) for host, kind, _ in proven}
    return [
        e for e in shared
        if (e.host, e.kind) not in about or not any(abs(at - e.time) <= COPY_S for at in proven.get(_statement(e), ()))
    ]  # fmt: skip


def _statement(event: Event) -> tuple[str | None, str, str]:
    """What a line says of which host. A header of its daemon's before the words is no part of them."""
    return event.host, event.kind, event.message.rpartition("] ")[2].removeprefix("error: ")
