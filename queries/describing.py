"""What a query can name: tables with their columns, operators, functions, with a sentence each. For editors."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from queries.kql.catalog import CATALOG
from queries.kql.functions.registry import registry
from queries.kql.operators import OPERATORS, SOURCES
from queries.kql.operators.nouns import NOUNS

#: A reference to a rule of the language in the code's own comments: "R12: ...".
_RULE = re.compile(r"\bR\d+: ")
#: What rows of a table are, for a reader of a list.
TABLES = {
    "Logs": "Log lines, as they were written.",
    "Events": "Lines whose meaning is known.",
    "Jobs": "Runs of jobs, with the verdict on each.",
    "NodeStates": "Each state that Slurm gave a node.",
    "Metrics": "Samples of counters and sensors.",
    "Drains": "Each time that a node was drained, and by whom.",
    "Facts": "What was concluded from events.",
    "Incidents": "What went wrong, and what it cost.",
    "Links": "Which port of a node is connected to which of a switch.",
    "Syslog": "The same lines, with the columns of Azure Monitor.",
}


@cache
def schema() -> dict[str, Any]:
    """``tables`` (name, doc, columns), ``operators`` and ``functions`` (name, doc; kind for functions)."""
    tables = [
        {
            "name": table.name, "doc": TABLES.get(table.name, ""),
            "columns": [{"name": column.name, "type": column.kql_type} for column in table.columns],
        }
        for table in CATALOG
    ]  # fmt: skip
    builders = {**SOURCES, **OPERATORS, **NOUNS}
    operators = [{"name": name, "doc": _sentence(builders[name])} for name in sorted(builders)]
    found = registry()
    functions = [
        {"name": one.name, "doc": one.doc, "kind": one.kind.value}
        for one in (*found.callable().values(), *found.aggregates.values())
    ]
    return {"tables": tables, "operators": operators, "functions": sorted(functions, key=lambda one: str(one["name"]))}


def _sentence(builder: object) -> str:
    """The first sentence of what the code says of an operator."""
    first = (getattr(builder, "__doc__", None) or "").strip().split("\n\n")[0]
    text = _RULE.sub("", " ".join(first.split()))
    return text[:1].upper() + text[1:]
