"""Whether accounting counts the GPUs of runs: only then a run without any has none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from correlator.model.nouns import Run
from parsers.hostlist import expand

#: Shares of a GPU that jobs get without a GPU in their count (gres.conf(5)).
_SHARES = ("shard", "mps")


def counted_by_settings(settings: Iterable[Mapping[str, Any]]) -> bool | None:
    """Does slurm.conf have GPUs counted (``AccountingStorageTRES=gres/gpu``)? None: it does not tell.

    Where jobs also get shares of GPUs, a run without a whole one need not be one without.
    """
    found = {
        str(row["name"]).lower(): str(row["value"]).lower()
        for row in sorted(settings, key=lambda r: (str(r["name"]), str(r["value"])))
        if row["scope"] == "cluster"
    }
    given = found.get("grestypes", "").replace(" ", "").split(",")
    tracked = found.get("accountingstoragetres", "").replace(" ", "").split(",")
    if any(share in given for share in _SHARES):
        return False
    return True if "gres/gpu" in tracked else None


_OF_NODES = "NodeName:"
_GPUS = re.compile(r"(?:=|,)gpu(?::[A-Za-z][\w.-]*)?:(\d{1,4})\b", re.IGNORECASE)


def gpus_of_nodes(settings: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many GPUs slurm.conf gives each node (``Gres=gpu:h100:4``)."""
    found: dict[str, int] = {}
    for row in settings:
        name, value = str(row["name"] or ""), str(row["value"] or "")
        if name.startswith(_OF_NODES) and (counts := _GPUS.findall(value)):
            found |= dict.fromkeys(expand(name.removeprefix(_OF_NODES)), sum(map(int, counts)))
    return found


@dataclass(frozen=True)
class CountedBefore:
    """The question whether accounting had counted GPUs of a run that began before ``at``."""

    at: float
    #: Logs of hosts count for nothing here.
    unlogged: ClassVar[frozenset[str]] = frozenset()

    def sees(self, run: Run | None) -> tuple[object, ...]:
        """The properties of a run that count here; runs with equal properties are equivalent."""
        counts = run is not None and run.start is not None and run.start < self.at and run.gpus > 0
        return ("counted",) if counts else ()
