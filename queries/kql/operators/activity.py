"""Plugins that count who was active when: activity_counts_metrics and the like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import literal_column

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.dialect import Sql
from queries.kql.errors import KqlBindError
from queries.kql.functions.numbers import bin_of
from queries.kql.operations import arithmetic
from queries.kql.stages import Env, Scope, Stage, relation, row_of, scope_of
from queries.kql.values import NUMERIC, Value, constant, dynamic_of, sql


@dataclass(frozen=True, slots=True)
class Window:
    """Rows as (who, when in whole steps, dimensions), and the names they come from."""

    stage: Stage
    time: str
    dimensions: list[str]
    start: Value
    step: Value


def window(c: TableBinder, stage: Stage, call: ast.Call, env: Env, extra: int = 0) -> Window:
    """Id, time, start, end, step (and `extra` more), dimensions."""
    if len(call.args) < 5 + extra:
        raise KqlBindError(f"{call.name} takes an id, a time, start, end and a step", call.span)
    row = scope_of(stage, env)
    who, when = (c.expr(a, row) for a in call.args[:2])
    start, stop, step = (c.expr(a, Scope(env)) for a in call.args[2:5])
    kinds = (when.type, start.type, stop.type, step.type)
    if kinds != ("datetime", "datetime", "datetime", "timespan"):
        raise KqlBindError(f"{call.name} needs datetimes and a timespan, not {', '.join(kinds)}", call.span)
    inside = sql("({0} >= {1} AND {0} < {2})", "bool", when, start, stop)
    slot = sql("((epoch_us({0}) - epoch_us({1})) // ({2} // 10))", "long", when, start, step)
    dimensions = [c.expr(a, row) for a in call.args[5 + extra :]]
    columns = [("$who", who), ("$slot", slot), ("$when", when)]
    columns += [(d.name or f"Column{i + 1}", d) for i, d in enumerate(dimensions)]
    made = c.emit(stage, columns, keep_hidden=False, is_sorted=False, refine=lambda q: q.where(inside.sql))
    return Window(made, when.name or "Column1", [n for n, _ in columns[3:]], start, step)


def moment_of(rows: Window, slot: Value) -> Value:
    return sql("make_timestamp(epoch_us({0}) + {1} * ({2} // 10))", "datetime", rows.start, slot, rows.step)


def activity_counts_metrics(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """Per step: rows, different ids, ids never seen before, different ids so far."""
    rows = window(c, stage, call, env)
    row = row_of(rows.stage)
    by = ", ".join(f"{{{i + 2}}}" for i in range(len(rows.dimensions)))
    dims = [row[n] for n in rows.dimensions]
    over = "PARTITION BY {0}" + (", " + by if by else "")
    first = sql(f"(min({{1}}) OVER ({over}) = {{1}})", "bool", row["$who"], row["$slot"], *dims, nullable=False)
    marked = c.emit(rows.stage, [*row.items(), ("$new", first)])
    row = row_of(marked)
    out = [("$slot", row["$slot"]), *((n, row[n]) for n in rows.dimensions)]
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(out))]
    out += [
        ("count", sql("count(*)", "long", nullable=False)),
        ("dcount", sql("count(DISTINCT {0})", "long", row["$who"], nullable=False)),
        (
            "new_dcount",
            sql("count(DISTINCT CASE WHEN {1} THEN {0} END)", "long", row["$who"], row["$new"], nullable=False),
        ),
    ]
    grouped = c.emit(marked, out, keep_hidden=False, is_sorted=False, refine=lambda q: q.group_by(*positions))
    row = row_of(grouped)
    part = f"PARTITION BY {', '.join(f'{{{i + 2}}}' for i in range(len(rows.dimensions)))} " if rows.dimensions else ""
    total = sql(f"CAST(sum({{0}}) OVER ({part}ORDER BY {{1}}) AS BIGINT)", "long", row["new_dcount"], row["$slot"],
                *(row[n] for n in rows.dimensions), nullable=False)  # fmt: skip
    made = [(rows.time, moment_of(rows, row["$slot"])), *((n, row[n]) for n in rows.dimensions)]
    made += [(n, row[n]) for n in ("count", "dcount", "new_dcount")]
    return c.emit(grouped, [*made, ("aggregated_dcount", total)])


def sliding_window_counts(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """Per step: rows and different ids of the window that ends with it."""
    if len(call.args) < 6:
        raise KqlBindError("sliding_window_counts takes id, time, start, end, window and step", call.span)
    length = c.expr(call.args[4], Scope(env))
    shifted = ast.Call(call.name, (*call.args[:4], call.args[5], *call.args[6:]), span=call.span)
    low = ast.Binary("-", call.args[2], call.args[4])
    whole = ast.Call(call.name, (*shifted.args[:2], low, *shifted.args[3:]), span=call.span)
    rows = window(c, stage, whole, env)
    row = row_of(rows.stage)
    start, stop = (c.expr(a, Scope(env)) for a in call.args[2:4])
    ends = "range(0, CAST(ceil((epoch_us({1}) - epoch_us({0})) / ({2} / 10)) AS BIGINT))"
    end = sql(f"unnest({ends})", "long", start, stop, rows.step)
    crossed = c.emit(rows.stage, [*row.items(), ("$end", end)])
    row = row_of(crossed)
    moment = sql("make_timestamp(epoch_us({0}) + {1} * ({2} // 10))", "datetime", start, row["$end"], rows.step)
    inside = sql(
        "({0} < {1} + to_microseconds({3} // 10) AND {0} >= {1} + to_microseconds({3} // 10) - to_microseconds({2} // 10))",
        "bool", row["$when"], moment, length, rows.step,
    )  # fmt: skip
    out = [(rows.time, moment), *((n, row[n]) for n in rows.dimensions)]
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(out))]
    out += [("Count", sql("count(*)", "long", nullable=False)),
            ("Dcount", sql("count(DISTINCT {0})", "long", row["$who"], nullable=False))]  # fmt: skip
    return c.emit(crossed, out, keep_hidden=False, is_sorted=False,
                  refine=lambda q: q.where(inside.sql).group_by(*positions))  # fmt: skip


def dcount_intersect(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """How many values the first state holds, the first and second share, and so on."""
    if len(call.args) < 2:
        raise KqlBindError("dcount_intersect takes two or more hll() columns", call.span)
    row = scope_of(stage, env)
    states = [dynamic_of(c.expr(a, row)) for a in call.args]
    out: list[tuple[str, Value]] = [(v.name, v.value()) for v in stage.visible]
    for place in range(len(states)):
        shared = "TRY_CAST({0} AS JSON[])"
        for other in range(1, place + 1):
            shared = f"list_intersect({shared}, TRY_CAST({{{other}}} AS JSON[]))"
        out.append((f"s{place}", sql(f"CAST(len({shared}) AS BIGINT)", "long", *states[: place + 1], nullable=True)))
    return c.emit(stage, out)


def rows_near(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """Rows for which a condition holds, with this many rows before and after each."""
    if len(call.args) < 2:
        raise KqlBindError("rows_near takes a condition and a number of rows", call.span)
    ordered = c.serialized(stage)
    row = Scope(env, row_of(ordered), ordered)
    test = c.condition(call.args[0], row)
    before = c.expr(call.args[1], Scope(env))
    after = c.expr(call.args[2], Scope(env)) if len(call.args) > 2 else before
    if not (
        before.is_constant
        and after.is_constant
        and isinstance(before.constant, int)
        and isinstance(after.constant, int)
    ):
        raise KqlBindError("rows_near needs constant numbers of rows", call.span)
    assert ordered.order is not None
    frame = f"ROWS BETWEEN {abs(after.constant)} PRECEDING AND {abs(before.constant)} FOLLOWING"
    near = sql(f"coalesce(bool_or({{0}}) OVER (ORDER BY {{1}} {frame}), false)", "bool", test, ordered.order.value())
    marked = c.emit(ordered, [*row_of(ordered).items(), ("$near", near)])
    flag = row_of(marked)["$near"]
    columns = [(n, v) for n, v in row_of(marked).items() if n != "$near"]
    return c.emit(marked, columns, refine=lambda q: q.where(flag.sql), row_by_row=True)


def rolling_percentile(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """Per bin of an axis: the percentile over the bin and those before it in the window."""
    if len(call.args) < 5:
        raise KqlBindError(
            "rolling_percentile takes a value, a percentage, an axis, a bin size and bins per window", call.span
        )
    row = scope_of(stage, env)
    value, axis = c.expr(call.args[0], row), c.expr(call.args[2], row)
    share, size, bins = (c.expr(call.args[i], Scope(env)) for i in (1, 3, 4))
    if not (share.is_constant and bins.is_constant and isinstance(bins.constant, int)):
        raise KqlBindError("rolling_percentile needs constants for the percentage and the bins", call.span)
    if value.type not in (*NUMERIC, "datetime", "timespan"):
        raise KqlBindError(f"rolling_percentile needs a number, not {value.type}", call.args[0].span)
    slot = bin_of(axis, size, call.args[2])
    dimensions = [(d.name or f"Column{i + 1}", d) for i, d in enumerate(c.expr(a, row) for a in call.args[5:])]
    binned = c.emit(stage, [("$v", value), ("$b", slot), *dimensions], keep_hidden=False, is_sorted=False)
    names = ["$b", *(n for n, _ in dimensions)]
    left, right = row_of(binned, "l"), row_of(binned, "r")
    keys = c.emit(binned, [(n, row_of(binned)[n]) for n in names], keep_hidden=False, refine=lambda q: q.distinct())
    left = row_of(keys, "l")
    first = arithmetic("-", left["$b"], _times(size, bins.constant - 1), call.span)
    tests = [sql("({0} <= {1} AND {0} >= {2})", "bool", right["$b"], left["$b"], first)]
    tests += [sql("({0} IS NOT DISTINCT FROM {1})", "bool", left[n], right[n]) for n in names[1:]]
    on = Sql(" AND ".join(f"{{{i}}}" for i in range(len(tests))), *(t.sql for t in tests))
    source = relation(keys.relation, "l").join(relation(binned.relation, "r"), on)
    label = f"{float(share.constant):g}".replace(".", "_")
    made = sql(
        "quantile_disc({0}, {1})", value.type, right["$v"], constant(float(share.constant) / 100, "real"), nullable=True
    )
    out = [(axis.name or "Column1", left["$b"]), *((n, left[n]) for n in names[1:])]
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(out))]
    out.append((f"rolling_{bins.constant}_percentile_{value.name or ''}_{label}", made))
    return c.emit(keys, out, source=source, keep_hidden=False, is_sorted=False, refine=lambda q: q.group_by(*positions))


def _times(size: Value, count: int) -> Value:
    return sql("({0} * {1})", size.type, size, constant(count, "long"))


PLUGINS = {
    "rolling_percentile": rolling_percentile,
    "activity_counts_metrics": activity_counts_metrics, "sliding_window_counts": sliding_window_counts,
    "dcount_intersect": dcount_intersect, "rows_near": rows_near,
}  # fmt: skip
