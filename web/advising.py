"""Advice as it stands now: a document was concluded when its fault was, and somebody may have put the node back since."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from correlator.facts.nodes.kinds import is_resume
from parsers.node_states import kind_of_state
from store.door import Question
from store.questions import fleet

Row = dict[str, Any]
#: Every state that is stored is earlier.
_EVER = datetime(9999, 1, 1)
_IN_SERVICE = ("busy", "idle", "up")
_NODE = re.compile(r"\bnodename=(\S+)")


class Reads(Protocol):
    """What asks the store."""

    def ask(self, question: Question) -> list[Row]: ...


def keep_due(read: Reads, rows: Sequence[Row]) -> None:
    """Takes commands that put a node back into service out of documents (``document``, of incidents or runs with ``cluster``, ``start`` and
    ``end``), with their sentences, if the newest state of the node is of later and in service."""
    resumed = {host for row in rows for item in _advice(row) if (host := _resumed(item))}
    if not resumed:
        return
    states = read.ask(fleet.states(_EVER, sorted(resumed)))
    for row in rows:
        advice = _advice(row)
        due = [item for item in advice if not _is_back(_resumed(item), row, states)]
        if len(due) < len(advice):
            row["document"]["advice"] = due


def _advice(row: Row) -> list[Any]:
    found = row["document"].get("advice")
    return found if isinstance(found, list) else []


def _resumed(item: object) -> str | None:
    """The node that an advice puts back into service."""
    command = item.get("command") if isinstance(item, dict) else None
    named = _NODE.search(command) if isinstance(command, str) and is_resume(command) else None
    return named[1] if named else None


def _is_back(host: str | None, row: Row, states: Sequence[Row]) -> bool:
    since = row["end"] or row["start"]
    newest = [one for one in states if one["host"] == host and one["cluster"] in (row["cluster"], None)]
    return bool(host and newest and since) and all(
        one["time"] > since and one["until"] is None and kind_of_state(str(one["state"] or "")) in _IN_SERVICE
        for one in newest
    )
