"""Bodies in Python, registered with DuckDB when a statement calls them.

ClickHouse cannot call Python, so there such functions are refused.
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

from queries.kql.dialect import PHYSICAL
from queries.kql.failures import REFUSED
from queries.kql.functions.calling import BODY_PREFIX
from queries.kql.functions.declaration import Body, Function, Kind
from queries.kql.functions.registry import registry

#: A call of a body in a statement: its function, and the index among the overloads.
USED = re.compile(rf"\b{BODY_PREFIX}(\w+?)_(\d+)(?:\(|$)")
_GIVING = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A body as DuckDB calls it: JSON text to values and back. Values of a group that are no dynamics come as a list."""

    body: Body
    decoded: Callable[[int, int], bool]
    site: str = ""  #: the function's name, if an installed package declares it

    def __call__(self, *cells: Any) -> Any:
        """One row."""
        count = len(cells)
        values = [json.loads(c) if isinstance(c, str) and self.decoded(i, count) else c for i, c in enumerate(cells)]
        if not self.body.nulls and any(v is None for v in values):
            return None
        try:
            out = self.body.run(*values)
        except Exception as error:
            if not self.site:
                raise
            raise ValueError(f"{REFUSED}{self.site}() raised {type(error).__name__}: {error}") from error
        if out is None or self.body.result != "dynamic":
            return out
        return to_json(out)


def to_json(value: Any) -> str:
    """JSON text; numbers that JSON lacks become the words Kusto shows."""
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
    """Is the cell at an index JSON?"""

    def test(place: int, count: int) -> bool:
        kind = kinds[min(place, len(kinds) - 1)]
        return kind[0] in "dD"

    return test


def prepare() -> None:
    """Finds all bodies, including those of installed packages, so that a process that is forked later need not."""
    registry()


def _body(name: str, place: int) -> Body | None:
    """The body of a word in a statement."""
    found = _declared(name, place)
    return found[1] if found is not None else None


def _declared(name: str, place: int) -> tuple[Function, Body] | None:
    """The function of a word in a statement, and the body. No scalar and aggregate of one name both have bodies."""
    for functions in (registry().functions, registry().aggregates):
        function = functions.get(name)
        overload = function.overloads[place] if function is not None and place < len(function.overloads) else None
        if function is not None and isinstance(overload, Body):
            return function, overload
    return None


@cache
def _wrapped(name: str, place: int) -> Any:
    """One object for the life of the process: the engine keeps only a bare pointer once the cursor is closed."""
    found = _declared(name, place)
    assert found is not None
    function, body = found
    kinds = body.arguments.split() if function.kind is Kind.SCALAR else ["d*"]  # else arrays of the rows' values
    return _Wrapped(body, _decoded(kinds), name if name in registry().site else "")


def give(con: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Registers the bodies that a statement calls, for as long as the database is open.

    Uses its own cursor: an existing name would end the caller's transaction.
    """
    wanted = {(name, int(place)) for name, place in USED.findall(statement) if _body(name, int(place)) is not None}
    if not wanted:
        return
    with _GIVING, con.cursor() as beside:
        for name, place in sorted(wanted):
            body = _body(name, place)
            assert body is not None
            special: Any = "special"
            try:
                beside.create_function(
                    f"{BODY_PREFIX}{name}_{place}", _wrapped(name, place), None, PHYSICAL[body.result], null_handling=special,
                    side_effects=body.volatile,
                )  # fmt: skip
            except (duckdb.CatalogException, duckdb.NotImplementedException):
                continue  # registered before
