"""What nodes run (kernel, drivers, firmware, image), asked for where programs fail alike: never for all nodes at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from correlator.model.moments import moment_of
from store.questions import software

if TYPE_CHECKING:
    from store.door import Asks

#: Of hosts at a moment (epoch seconds): host -> name -> version, several devices' different ones joined.
Software = Callable[[Sequence[str], float], Mapping[str, Mapping[str, str]]]
#: An agent repeats its samples every hour.
LOOK_BACK = timedelta(hours=3)


def versions(store: Asks, cluster: str | None, *, is_measured: bool) -> Software:
    """``is_measured``: are there any measurements? The same question is asked once in a pass."""
    known: dict[tuple[tuple[str, ...], float], Mapping[str, Mapping[str, str]]] = {}

    def at(hosts: Sequence[str], moment: float) -> Mapping[str, Mapping[str, str]]:
        key, begin = (tuple(hosts), moment), moment_of(moment)
        if not is_measured or begin is None:
            return {}
        if key not in known:
            found: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
            for row in store.ask(software.at(hosts, cluster, begin, LOOK_BACK)):
                if row["name"] and row["version"]:
                    found[row["host"]][row["name"]].add(row["version"])
            known[key] = {
                host: {name: ", ".join(sorted(some)) for name, some in had.items()} for host, had in found.items()
            }
        return known[key]

    return at
