"""Functions that SQL cannot say: bodies in Python, given to DuckDB when a query uses them.

A family is one file with a table `BODIES`: name -> bodies. A body says its argument kinds as `signatures.py` does (and
`D` for any type read as dynamic), its result type, and the function. Dynamics arrive as Python values and leave as
them; timespans are ticks, datetimes naive UTC. A null argument gives null without asking the body, unless
`nulls` is set. ClickHouse cannot call Python, so there these functions are refused.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb

from queries.kql import official
from queries.kql import syntax as ast
from queries.kql.dialect import PHYSICAL, Sql
from queries.kql.errors import KqlBindError
from queries.kql.functions import (
    addresses,
    arrays,
    encoding,
    geo,
    keyvalues,
    nodes,
    parsing,
    searching,
    series,
    statistics,
    units,
    zones,
)
from queries.kql.functions.body import Body
from queries.kql.functions.signatures import fit
from queries.kql.values import Value, sql

BODIES: dict[str, tuple[Body, ...]] = (
    addresses.BODIES | arrays.BODIES | encoding.BODIES | geo.BODIES | keyvalues.BODIES | nodes.BODIES | parsing.BODIES | series.BODIES
    | searching.BODIES | statistics.BODIES | units.BODIES | zones.BODIES
)  # fmt: skip
# What a query may call; the others serve forms and operators.
CALLABLE = frozenset(n for n in BODIES if n in official.FUNCTIONS or n in nodes.BODIES)
USED = re.compile(r"\bkqlpy_(\w+?)_(\d+)(?:\(|$)")
_GIVING = threading.Lock()


def call(name: str, args: list[Value], node: ast.Call) -> Value:
    """The first body whose kinds fit, as a call in SQL."""
    problem = ""
    for place, body in enumerate(BODIES[name]):
        fitted, why = fit(body.kinds.split(), args)
        if fitted is None:
            problem = problem or why
            continue
        holes = ", ".join(f"{{{i}}}" for i in range(len(fitted)))
        made = sql(f"kqlpy_{name}_{place}({holes})", body.result, *fitted, nullable=True)
        if isinstance(made.sql, Sql):
            made.sql.origin = node
        return spread(made, name, body, node, args) if body.parts else made
    raise KqlBindError(f"{name}() {problem}", node.span)


def spread(made: Value, name: str, body: Body, node: ast.Call, args: list[Value]) -> Value:
    """A body that gives several values: each is a column of its own when nobody names it."""
    parts = []
    base = args[0].name or ""
    for place, (label, kind) in enumerate(body.parts):
        item = sql(f"nullif(json_extract({{0}}, '$[{place}]'), 'null'::JSON)", "dynamic", made, nullable=True)
        parts.append((f"{name}_{base}_{label}", as_type(item, kind)))
    first = parts[0][1]
    return Value(first.sql, first.type, True, name=parts[0][0], parts=tuple(parts))


def as_type(item: Value, kind: str) -> Value:
    """A dynamic item as the type its body promised."""
    if kind == "dynamic":
        return item
    return sql(f"TRY_CAST(json_extract_string({{0}}, '$') AS {PHYSICAL[kind]})", kind, item, nullable=True)


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A body as DuckDB calls it: JSON text to values and back."""

    body: Body
    decoded: Callable[[int, int], bool]

    def __call__(self, *cells: Any) -> Any:
        """One row."""
        count = len(cells)
        values = [json.loads(c) if c is not None and self.decoded(i, count) else c for i, c in enumerate(cells)]
        if not self.body.nulls and any(v is None for v in values):
            return None
        out = self.body.run(*values)
        if out is None or self.body.result != "dynamic":
            return out
        return to_json(out)


def to_json(value: Any) -> str:
    """JSON text; numbers JSON lacks become the words Kusto shows."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return value


def _decoded(kinds: list[str]) -> Callable[[int, int], bool]:
    """Whether the cell at a place is JSON."""

    def test(place: int, count: int) -> bool:
        kind = kinds[min(place, len(kinds) - 1)]
        return kind[0] in "dD"

    return test


@cache
def _wrapped(name: str, place: int) -> Any:
    """One object for the life of the process: the engine keeps only a bare pointer once the cursor is closed."""
    body = BODIES[name][place]
    return _Wrapped(body, _decoded(body.kinds.split()))


def give(con: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Register the bodies a statement calls; the registration lasts as long as the database is open.

    A cursor of its own does it: a name that is there already would end the caller's transaction.
    """
    wanted = {(name, int(place)) for name, place in USED.findall(statement) if name in BODIES}
    if not wanted:
        return
    with _GIVING, con.cursor() as beside:
        for name, place in sorted(wanted):
            body = BODIES[name][place]
            special: Any = "special"
            try:
                beside.create_function(
                    f"kqlpy_{name}_{place}", _wrapped(name, place), None, PHYSICAL[body.result], null_handling=special,
                    side_effects=body.volatile,
                )  # fmt: skip
            except (duckdb.CatalogException, duckdb.NotImplementedException):
                continue  # given before
