"""Recurrence: incidents with the same root, on the same device, are listed in each other's documents.

It is added when documents are read and not stored in them: an old incident does not change because it happened again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from correlator.facts.registry import once


def root_key(document: dict[str, Any]) -> tuple[str, ...] | None:
    """Cluster, family of the root's event, host and device, which identify one fault; None without a host."""
    root = document.get("root_cause") or {}
    if not root.get("host"):
        return None
    # A link is named as a flap or as down, by how often it was lost; it is the same link.
    event = str(root.get("event") or "")
    family = once().get(event, event)
    return str(document.get("cluster") or ""), family, str(root["host"]), str(root.get("device") or "")


def link(documents: Iterable[dict[str, Any]]) -> None:
    """Adds ``recurrence`` to each document: the other incidents of the same fault, oldest first.

    It also holds whether the first step of their chains is the same edge.
    """
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    listed = list(documents)
    for document in listed:
        key = root_key(document)
        if key is not None:
            groups[key].append(document)
    for document in listed:
        key = root_key(document)
        others = (
            sorted((d for d in groups[key] if d is not document), key=lambda d: (d["start"], d["id"])) if key else []
        )
        document["recurrence"] = [
            {
                "id": d["id"],
                "start": d["start"],
                "severity": d["severity"],
                "same_edge": edge_of(d) == edge_of(document),
            }
            for d in others
        ]


def edge_of(document: dict[str, Any]) -> str | None:
    chain = document.get("chain") or []
    return chain[0].get("edge") if chain else None
