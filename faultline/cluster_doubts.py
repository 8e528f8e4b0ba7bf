"""Checks whether one cluster has two names: accounting's and the configuration's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector.identity.cluster_aliases import names

if TYPE_CHECKING:
    from store.door import Asks


def two_names(store: Asks, cluster: str | None) -> list[str]:
    """Accounting's names of a cluster without any lines, while the lines have the configuration's ``cluster``: if that
    is one cluster under two names, its jobs and lines never meet. If it certainly is, the service merges the names."""
    return [
        f"cluster = {cluster!r} in the configuration, and accounting tells of {name!r}, of which there is no line: if that is the same "
        f"one, its jobs and lines do not meet; write cluster = {name!r}, or leave it out, and load the logs anew"
        for name in names(store, cluster).doubts
    ]
