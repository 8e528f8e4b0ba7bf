"""top-nested and top-hitters: the greatest groups, within the greatest groups."""

from __future__ import annotations

from typing import Any

from sqlalchemy import literal_column

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.conversion import to_type
from queries.kql.dialect import Sql
from queries.kql.errors import KqlBindError
from queries.kql.operators.rows import limit_of
from queries.kql.operators.shaping import named_values
from queries.kql.stages import Env, Names, Scope, Stage, StageColumn, everything, named_columns, row_of, scope_of
from queries.kql.values import constant, sql


def top_nested(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Level by level: the top values of one expression among the rows of the values kept above."""
    row = scope_of(stage, env)
    levels = [n for n in node.nodes("levels") if isinstance(n, ast.Operator)]
    keys = [named_values(c, (level.parts["of"],), row)[0] for level in levels]
    base = c.emit(stage, [*everything(stage), *((f"$k{i}", v) for i, (_, v) in enumerate(keys))])
    kept: Stage | None = None
    names: list[tuple[str, str]] = []
    for depth, level in enumerate(levels):
        found, label = _level(c, base, level, depth, env, kept)
        names.append((keys[depth][0], label or f"aggregated_{keys[depth][0]}"))
        kept = _joined(c, kept, found, depth) if kept is not None else found
    assert kept is not None
    made = row_of(kept)
    taken = Names()
    flat = [
        (taken.lend(n), made[p])
        for i, pair in enumerate(names)
        for n, p in zip(pair, (f"$k{i}", f"$a{i}"), strict=True)
    ]
    return c.emit(kept, flat, is_sorted=False)


def _same(depth: int) -> str:
    return " AND ".join(f'"l"."$k{i}" IS NOT DISTINCT FROM "r"."$k{i}"' for i in range(depth)) or "true"


def _level(
    c: TableBinder, base: Stage, level: ast.Operator, depth: int, env: Env, kept: Stage | None
) -> tuple[Stage, str | None]:  # fmt: skip
    """The top of one level: keys so far, the aggregate, and whether it is the row of the others."""
    if kept is not None:
        test = Sql(
            f'EXISTS (SELECT 1 FROM "{kept.relation}" AS "r" WHERE NOT "r"."$o" AND {_same(depth).replace(chr(34) + "l" + chr(34), chr(34) + "t" + chr(34))})'
        )
        base = c.emit(base, everything(base), refine=lambda q: q.where(test), row_by_row=True)
    by, label, aggregate = level.parts["by"], None, level.parts["by"]
    if isinstance(by, ast.Named):
        label, aggregate = by.names[0], by.value
    row = row_of(base)
    value = c.expr(
        aggregate, Scope(env, {n: v for n, v in row.items() if not n.startswith("$")}, base, aggregates=True)
    )
    held = [(f"$k{i}", row[f"$k{i}"]) for i in range(depth + 1)]
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(depth + 1)]
    grouped = c.emit(base, [*held, (f"$a{depth}", value)], keep_hidden=False, is_sorted=False,
                     refine=lambda q: q.group_by(*positions))  # fmt: skip
    got = row_of(grouped)
    way = "ASC NULLS FIRST" if level.parts.get("asc") else "DESC NULLS LAST"
    part = "PARTITION BY " + ", ".join(f"{{{i + 1}}}" for i in range(depth)) + " " if depth else ""
    rank = sql(f"row_number() OVER ({part}ORDER BY {{0}} {way}, {{{depth + 1}}})", "long", got[f"$a{depth}"],
               *(got[f"$k{i}"] for i in range(depth + 1)), nullable=False)  # fmt: skip
    ranked = c.emit(grouped, [*got.items(), ("$r", rank)])
    got = row_of(ranked)
    wanted = [(n, got[n]) for n in (*(f"$k{i}" for i in range(depth + 1)), f"$a{depth}")]
    flag = ("$o", constant(False, "bool"))
    if "count" not in level.parts:
        return c.emit(ranked, [*wanted, flag]), label
    limit = limit_of(c, level.parts["count"], env)
    top = c.emit(ranked, [*wanted, flag], refine=lambda q: q.where(sql("({0} <= {1})", "bool", got["$r"], limit).sql))
    if "others" not in level.parts:
        return top, label
    rest = _others(c, base, top, level, depth, env, aggregate)
    return Stage(
        c.add(Sql(f'SELECT * FROM "{top.relation}" UNION ALL SELECT * FROM "{rest.relation}"')), top.columns
    ), label


def _others(
    c: TableBinder, base: Stage, top: Stage, level: ast.Operator, depth: int, env: Env, aggregate: ast.Node
) -> Stage:  # fmt: skip
    """One row for all values of this level that are not among the top."""
    same = _same(depth + 1).replace('"l"', '"t"')
    outside = Sql(f'NOT EXISTS (SELECT 1 FROM "{top.relation}" AS "r" WHERE {same})')
    left = c.emit(base, everything(base), refine=lambda q: q.where(outside), row_by_row=True)
    row = row_of(left)
    name = c.expr(level.parts["others"], Scope(env))
    key = next(v for v in top.columns if v.name == f"$k{depth}")
    value = c.expr(
        aggregate, Scope(env, {n: v for n, v in row.items() if not n.startswith("$")}, left, aggregates=True)
    )
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(depth)]
    columns = [(f"$k{i}", row[f"$k{i}"]) for i in range(depth)]
    columns += [(f"$k{depth}", to_type(name, key.type)), (f"$a{depth}", value), ("$o", constant(True, "bool"))]
    return c.emit(
        left, columns, keep_hidden=False, is_sorted=False,
        refine=lambda q: q.group_by(*positions) if positions else q.having(Sql("count(*) > 0")),
    )  # fmt: skip


def _joined(c: TableBinder, kept: Stage, found: Stage, depth: int) -> Stage:
    """The levels above joined with this one; the row of the others has nothing below it."""
    above = [v for v in kept.columns if v.name != "$o"]
    own = [v for v in found.columns if v.name in (f"$k{depth}", f"$a{depth}")]
    columns = named_columns([(v.name, v.value()) for v in (*above, *own)])
    flag = StageColumn("$o", "bool", "$o", False)
    holes = [v.value("l").sql for v in above] + [v.value("r").sql for v in own]
    first = ", ".join(f"{{{i}}}" for i in range(len(holes)))
    nulls = [constant(None, v.type).sql for v in own]
    second = ", ".join(f"{{{i}}}" for i in (*range(len(above)), *range(len(holes), len(holes) + len(nulls))))
    body = Sql(
        f'SELECT {_named(first, columns)}, "r"."$o" AS "$o" FROM "{kept.relation}" AS "l" JOIN "{found.relation}" AS "r" '
        f'ON NOT "l"."$o" AND {_same(depth)} UNION ALL SELECT {_named(second, columns)}, true AS "$o" '
        f'FROM "{kept.relation}" AS "l" WHERE "l"."$o"',
        *holes, *nulls,
    )  # fmt: skip
    return Stage(c.add(body), (*columns, flag))


def _named(holes: str, columns: tuple[StageColumn, ...]) -> str:
    parts = holes.split(", ")
    return ", ".join(f'{h} AS "{v.physical}"' for h, v in zip(parts, columns, strict=True))


def top_hitters(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """The most frequent values, or those with the highest weight; counted exactly here."""
    limit = limit_of(c, node.parts["limit"], env)
    row = scope_of(stage, env)
    ((name, value),) = named_values(c, (node.parts["of"],), row)
    by = node.nodes("by")
    if by:
        weight = c.expr(by[0], row)
        if weight.type not in ("int", "long", "real", "decimal"):
            raise KqlBindError(f"top-hitters sums a number, not {weight.type}", by[0].span)
        kind = "long" if weight.type == "int" else weight.type
        total = sql("sum({0})", kind, weight)
        if kind == "long":
            total = sql("CAST(sum({0}) AS BIGINT)", kind, weight)
        made = (f"approximate_sum_{weight.name or ''}", total)
    else:
        made = (f"approximate_count_{name}", sql("count(*)", "long", nullable=False))
    grouped = c.emit(stage, [(name, value), made], keep_hidden=False, refine=lambda q: q.group_by(literal_column("1")))
    got = row_of(grouped)
    order = Sql("{0} DESC, {1}", got[made[0]].sql, got[name].sql)
    top = c.emit(grouped, list(got.items()), refine=lambda q: q.order_by(order).limit(limit.sql), is_sorted=True)
    return c.serialized(top)


BUILDERS: dict[str, Any] = {"top-nested": top_nested, "top-hitters": top_hitters}
