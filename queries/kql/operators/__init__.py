"""Tabular operators: name -> builder. One file per group; a new operator is a function and a line.

BRANCHES are those that end a statement and give several tables.
"""

from __future__ import annotations

from typing import Any

from queries.kql.operators import (
    applying,
    branching,
    combining,
    finding,
    making_series,
    nesting,
    nouns,
    parsing,
    plugins,
    rendering,
    rows,
    scanning,
    shaping,
    sources,
    summarizing,
)  # fmt: skip

_GROUPS = (
    branching,
    rows,
    shaping,
    summarizing,
    combining,
    applying,
    parsing,
    making_series,
    scanning,
    nesting,
    finding,
    nouns,
    plugins,
    rendering,
)
OPERATORS: dict[str, Any] = {name: build for group in _GROUPS for name, build in group.BUILDERS.items()}
BRANCHES: dict[str, Any] = branching.BRANCHES
SOURCES: dict[str, Any] = sources.BUILDERS | finding.SOURCE_BUILDERS | {"union": combining.union_source}
