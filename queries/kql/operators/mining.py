"""basket: every combination of values that is frequent enough."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from sqlalchemy import literal_column, select

from queries.kql import syntax as ast
from queries.kql.bind import Env, Scope, Stage, StageColumn, relation
from queries.kql.dialect import Sql, quoted
from queries.kql.errors import CannotExpress, KqlBindError
from queries.kql.values import Value, constant, text_of

if TYPE_CHECKING:
    from queries.kql.compile import Compiler

THRESHOLD, MAX_DIMENSIONS = 0.05, 5  # Kusto's documented defaults
MAX_SETS = 5_000


def basket(c: Compiler, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """All frequent patterns of at least one value, most frequent first; an empty cell stands for any value."""
    numbers = [c.expr(a, Scope(env)) for a in call.args]
    if len(numbers) > 1 and any(n.constant != "~" for n in numbers[1:2]):
        raise CannotExpress("basket with a weight column cannot be answered here", call.span)
    share = _number(numbers, 0, THRESHOLD, call)
    most = int(_number(numbers, 2, MAX_DIMENSIONS, call))
    columns = [v for v in stage.visible if v.type not in ("dynamic",)]
    if len(columns) < len(stage.visible):
        raise KqlBindError("basket takes no dynamic columns; project them away first", call.span)
    sets = [s for size in range(1, min(most, len(columns)) + 1) for s in combinations(range(len(columns)), size)]
    if len(sets) > MAX_SETS:
        raise CannotExpress(f"basket over {len(columns)} columns has too many combinations; project fewer", call.span)
    return _frequent(c, stage, columns, sets, share)


def _number(numbers: list[Value], place: int, fallback: float, call: ast.Call) -> float:
    if place >= len(numbers) or numbers[place].constant == "~":
        return fallback
    if not isinstance(numbers[place].constant, (int, float)):
        raise KqlBindError(f"{call.name} needs constant numbers", call.span)
    return float(numbers[place].constant)


def _frequent(
    c: Compiler, stage: Stage, columns: list[StageColumn], sets: list[tuple[int, ...]], share: float
) -> Stage:
    texts = [text_of(v.value()) for v in columns]
    items = [t.sql.label(quoted(f"c{i}")) for i, t in enumerate(texts)]
    flat = c.add(select(*items).select_from(relation(stage.relation)))
    grouping = ", ".join("(" + ", ".join(f'"c{i}"' for i in s) + ")" for s in sets)
    names = ", ".join(f'"c{i}"' for i in range(len(columns)))
    counted = c.add(
        Sql(
            f'SELECT count(*) AS n, {names} FROM "{flat}" GROUP BY GROUPING SETS ({grouping}) '
            f'HAVING count(*) >= {{0}} * (SELECT count(*) FROM "{flat}")',
            constant(share, "real").sql,
        )
    )
    head: list[Any] = [
        literal_column(f"row_number() OVER (ORDER BY n DESC, {names}) - 1").label(quoted("SegmentId")),
        literal_column("n").label(quoted("Count")),
        literal_column(f'n * 100.0 / (SELECT count(*) FROM "{flat}")').label(quoted("Percent")),
    ]
    head += [literal_column(f"coalesce(\"c{i}\", '')").label(quoted(v.physical)) for i, v in enumerate(columns)]
    made = c.add(select(*head).select_from(relation(counted)))
    out = (
        StageColumn("SegmentId", "long", "SegmentId", False), StageColumn("Count", "long", "Count", False),
        StageColumn("Percent", "real", "Percent", False), *(StageColumn(v.name, "string", v.physical, False) for v in columns),
    )  # fmt: skip
    return Stage(made, out)


PLUGINS = {"basket": basket}
