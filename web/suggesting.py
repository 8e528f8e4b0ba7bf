"""What may have been meant: jobs, nodes, incidents and pages near to one that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from store import node_names
from store.run_names import named_runs
from web import rooms

Suggestion = dict[str, str]
Ask = Callable[[str, Sequence[Any]], list[dict[str, Any]]]

#: So many are offered at most, and a name may differ by so many letters: of a short one by fewer, or all would be near.
MOST, LETTERS = 5, 2


def listed(kind: str, path: str, rows: Sequence[dict[str, Any]]) -> list[Suggestion]:
    return [{"text": f"{kind} {row['found']}", "href": path + quote(str(row["found"]), safe="")} for row in rows]


def letters(name: str) -> int:
    """By how many letters a name may differ from what was typed: 99 -> 0, 999 -> 1, 12345 -> 2."""
    return min(LETTERS, (len(name) - 1) // 2)


def runs(ask: Ask, key: str) -> list[Suggestion]:
    """Other runs of the job, tasks of the array, then numbers that differ in a digit or two."""
    number, of = key.split("#")[0].split("@")[0].split("_")[0], named_runs(ask)
    found = ask(
        f"SELECT run_key AS found FROM {of} WHERE CAST(job_id AS VARCHAR) = ? OR CAST(array_job_id AS VARCHAR) = ?"
        " ORDER BY job_id, attempt LIMIT ?",
        [number, number, MOST],
    ) or ask(
        f"SELECT run_key AS found, damerau_levenshtein(run_key, ?) AS far FROM {of} WHERE far <= ?"
        " ORDER BY far, coalesce(start, submit) DESC NULLS LAST LIMIT ?",
        [key, letters(number), MOST],
    )
    return listed("job", "/jobs/", found)


def nodes(ask: Ask, name: str) -> list[Suggestion]:
    """Nodes whose name holds the text (as the first part of a domain name does), or nearly is it."""
    short = name.split(".")[0]
    found = ask(
        f"SELECT name AS found FROM {node_names.nodes()}"
        " WHERE contains(lower(name), lower(?)) OR damerau_levenshtein(lower(host), lower(?)) <= ?"
        " ORDER BY damerau_levenshtein(lower(host), lower(?)), name LIMIT ?",
        [short, short, letters(short), short, MOST],
    )
    return listed("node", "/nodes/", found)


def incidents(ask: Ask, name: str) -> list[Suggestion]:
    """Incidents whose id begins so (one was cut off in a ticket), or nearly is it."""
    found = ask(
        "SELECT incident_id AS found FROM model.incidents WHERE starts_with(lower(incident_id), lower(?))"
        " OR damerau_levenshtein(lower(incident_id), lower(?)) <= ? ORDER BY start DESC LIMIT ?",
        [name, name, letters(name), MOST],
    )
    return listed("incident", "/incidents/", found)


def pages(path: str) -> list[Suggestion]:
    """The page whose name is nearest to the first part of a path: /job/15 -> /jobs/15."""
    first, _, rest = path.lstrip("/").partition("/")
    near = difflib.get_close_matches(
        f"/{first.lower()}", [f"/{name}" for name in (*rooms.names(), "search")], n=1, cutoff=0.7
    )
    return [
        {"text": name, "href": name} for name in (page + (f"/{rest}" if rest else "") for page in near) if name != path
    ]
