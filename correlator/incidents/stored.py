"""The stored conclusions as one document. Reading them needs nothing of what concludes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from correlator.incidents import lemons, recurrence
from store import run_names
from store.node_names import NodeNames
from store.questions import conclusions as stored

if TYPE_CHECKING:
    from store.door import Door

FORMAT = "corr-result/1"


def result(store: Door) -> dict[str, Any]:
    """corr-result/1 from the stored conclusions."""
    rows = store.ask(stored.incident_documents())
    names = {cluster: run_names.differing(store, cluster) for cluster in {r["cluster"] for r in rows}}
    incidents = [
        run_names.renamed(json.loads(r["document"]), names[r["cluster"]]) | {"cluster": r["cluster"]} for r in rows
    ]
    recurrence.link(incidents)
    runs = run_names.verdicts(store)
    return {
        "format": FORMAT,
        "incidents": incidents,
        "verdicts": {r["run_key"]: json.loads(r["document"]) | {"cluster": r["cluster"]} for r in runs},
        "lemons": _lemons(store),
    }


def _lemons(store: Door) -> list[str]:
    """The lemons, with the nodes' names in the whole store."""
    found = lemons.read(store.fact(lemons.FACT))
    names = NodeNames(store) if found else None
    return sorted({names.of(host, cluster) for cluster, host in found}) if names else []
