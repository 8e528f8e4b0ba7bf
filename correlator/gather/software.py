"""What nodes run (kernel, drivers, firmware, image), compared with others where programs fail alike: never for all nodes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from correlator.model.moments import moment_of
from store.questions import software

if TYPE_CHECKING:
    from store.door import Asks


@dataclass(frozen=True)
class Held:
    """How many of the hosts and of their ``peers`` had a ``version`` of what has a ``name``. ``known``: peers of which any version of it is
    known."""

    name: str
    version: str
    hosts: int
    peers: int
    known: int


#: Of hosts and peers at a moment (epoch seconds).
Software = Callable[[Sequence[str], Sequence[str], float], Sequence[Held]]
#: An agent repeats its samples every hour.
LOOK_BACK = timedelta(hours=3)
#: With more versions nothing is compared: what is left out might be the same as the hosts'.
MOST_VERSIONS = 2000


def versions(store: Asks, cluster: str | None, *, is_measured: bool) -> Software:
    """``is_measured``: are there any measurements? The same question is asked once in a pass."""
    known: dict[tuple[tuple[str, ...], tuple[str, ...], float], Sequence[Held]] = {}

    def at(hosts: Sequence[str], peers: Sequence[str], moment: float) -> Sequence[Held]:
        key, begin = (tuple(hosts), tuple(peers), moment), moment_of(moment)
        if not is_measured or begin is None:
            return ()
        if key not in known:
            rows = store.ask(software.compared(hosts, peers, cluster, begin, LOOK_BACK, MOST_VERSIONS + 1))
            known[key] = [Held(**row) for row in rows] if len(rows) <= MOST_VERSIONS else ()
        return known[key]

    return at
