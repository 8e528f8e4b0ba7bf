"""Why the store has nothing from a run's hooks, where it knows: in words for the job's page and for ``/sources``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from parsers.moments import utc
from store.errors import NoSuchTable
from store.questions import hook_losses
from web.reading import Reader, Row

#: Hooks run at a run's start and end; their reports and the daemons' lines are that near. Epilogs of lost nodes are late.
BEFORE, AFTER = timedelta(seconds=120), timedelta(seconds=600)
#: Most reasons that the page of a run shows.
SHOWN = 4


def reasons(read: Reader, run: Row) -> list[str]:
    """Why no hook brought anything of a run, the most certain first; empty if the store does not know.

    Who sees only own jobs gets no reasons: they name other hosts and what administrators do.
    """
    if read.own:
        return []
    begin, end = run["start"] or run["submit"], run["end"] or run["start"] or run["submit"]
    if begin is None or end is None:
        return []
    nodes, near = list(run["nodes"] or []), (begin - BEFORE, end + AFTER)
    found: dict[str, None] = {}
    with contextlib.suppress(NoSuchTable):  # a store that never received anything
        for row in read.ask(hook_losses.reported(nodes, *near)):
            found[f"{row['host']}: {row['reason']}"] = None
    for row in read.ask(hook_losses.not_run(nodes, run["cluster"], *near)):
        found[f"{row['source']} of {row['host']}: {row['message']}"] = None
    with contextlib.suppress(NoSuchTable):
        for item in in_trouble(read, near[0], nodes):
            began = _moment(item["since"])
            if item["source"] == "hooks" and began is not None and began <= near[1]:
                found[f"{item['host']}: {item['detail']}"] = None
    return list(found)[:SHOWN]


def others_brought(read: Reader, run: Row) -> Any:
    """When a hook of any run of this cluster last brought something; None: none ever did."""
    if read.own:
        return None
    row = read.one(hook_losses.newest(run["cluster"]))
    return row["time"] if row else None


def _moment(text: Any) -> datetime | None:
    """An agent's RFC 3339 time in naive UTC."""
    try:
        return utc(datetime.fromisoformat(text))
    except (TypeError, ValueError):
        return None


def in_trouble(read: Reader, since: datetime, hosts: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Sources of agents whose last report names trouble: host, source, state, detail (with its cure), since when.

    ``since``: reports before it do not count.
    """
    for row in read.ask(hook_losses.agents_in_trouble(since, hosts)):
        try:
            sources = json.loads(row["status"])["sources"]
            for source in sources:
                if source["state"] in ("error", "denied"):
                    yield {"host": row["host"], "cluster": row["cluster"], "source": source["name"], "state": source["state"],
                           "detail": source["detail"], "since": source["since"], "reported": row["status_at"]}  # fmt: skip
        except (ValueError, KeyError, TypeError):
            continue
