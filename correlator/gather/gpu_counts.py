"""Whether accounting counts the GPUs of runs: only then a run without any has none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from correlator.model.nouns import Run
from parsers.documents.fields import SLICE
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
_GPUS = re.compile(r"(?:=|,)gpu(?::[^\s,:(]+)?(?::no_consume)?:(\d{1,4})\b(?!:)", re.IGNORECASE)
#: The kinds of GPUs, with what is stated of each.
_KINDS = re.compile(r"(?:=|,)gpu:[^\s,]*", re.IGNORECASE)


def gpus_of_nodes(settings: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many GPUs slurm.conf gives each node (``Gres=gpu:h100:4``); none for a node with slices of GPUs (MIG)."""
    return {node: sum(map(int, counts)) for node, gres in _gres_of_nodes(settings).items()
            if (counts := _GPUS.findall(gres)) and not _has_slices(gres)}  # fmt: skip


def nodes_with_slices(settings: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The nodes to which slurm.conf gives slices of GPUs (``Gres=gpu:a100_1g.5gb:7``): Slurm numbers these, not GPUs."""
    return frozenset(node for node, gres in _gres_of_nodes(settings).items() if _has_slices(gres))


def _gres_of_nodes(settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What slurm.conf says of each node with GPUs."""
    found: dict[str, str] = {}
    for row in settings:
        name, value = str(row["name"] or ""), str(row["value"] or "")
        if name.startswith(_OF_NODES) and _KINDS.search(value):
            found |= dict.fromkeys(expand(name.removeprefix(_OF_NODES)), value)
    return found


def _has_slices(gres: str) -> bool:
    return any(SLICE.search(kind) for kind in _KINDS.findall(gres))


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
