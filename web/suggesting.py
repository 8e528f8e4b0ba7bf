"""What may have been meant: jobs, nodes, incidents and pages similar to one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from parsers.host_names import short_name
from store.door import Answers
from store.questions import incidents as incident_questions
from store.questions import nodes as node_questions
from store.questions import runs as run_questions
from store.run_names import named_runs
from web import rooms

Suggestion = dict[str, str]

#: The maximum number of suggestions, and of letters in which a name may differ; fewer for short names, or all would
#: match.
MOST, LETTERS = 5, 2


def listed(kind: str, path: str, rows: Sequence[dict[str, Any]]) -> list[Suggestion]:
    return [{"text": f"{kind} {row['found']}", "href": path + quote(str(row["found"]), safe="")} for row in rows]


def letters(name: str) -> int:
    """By how many letters a name may differ from what was typed: 99 -> 0, 999 -> 1, 12345 -> 2."""
    return min(LETTERS, (len(name) - 1) // 2)


def runs(store: Answers, key: str) -> list[Suggestion]:
    """Other runs of the job, tasks of the array, then numbers that differ in a digit or two."""
    number, of = key.split("#")[0].split("@")[0].split("_")[0], named_runs(store)
    found = store.ask(run_questions.of_job_number(of, number, MOST))
    return listed("job", "/jobs/", found or store.ask(run_questions.near(of, key, letters(number), MOST)))


def nodes(store: Answers, name: str) -> list[Suggestion]:
    """Nodes whose name contains the text (as the first label of a domain name does), or is similar to it."""
    short = short_name(name)
    return listed("node", "/nodes/", store.ask(node_questions.near(short, letters(short), MOST)))


def incidents(store: Answers, name: str) -> list[Suggestion]:
    """Incidents whose id begins with it (one was cut off in a ticket), or is similar to it."""
    return listed("incident", "/incidents/", store.ask(incident_questions.near(name, letters(name), MOST)))


def pages(path: str) -> list[Suggestion]:
    """The page whose name is most similar to the first segment of a path: /job/15 -> /jobs/15."""
    first, _, rest = path.lstrip("/").partition("/")
    near = difflib.get_close_matches(
        f"/{first.lower()}", [f"/{name}" for name in (*rooms.names(), "search")], n=1, cutoff=0.7
    )
    return [
        {"text": name, "href": name} for name in (page + (f"/{rest}" if rest else "") for page in near) if name != path
    ]
