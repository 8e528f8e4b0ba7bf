"""Plugins about returning ids: activity_metrics, new_activity_metrics, active_users_count.

Time is divided into slots from the start on, the end not included; an id counts once in a slot.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import literal_column

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.dialect import Sql
from queries.kql.errors import KqlBindError
from queries.kql.operators.activity import Window, moment_of, window
from queries.kql.stages import Env, Scope, Stage, relation, row_of, scope_of
from queries.kql.values import Value, sql

_RATE = "CASE WHEN coalesce({1}, 0) = 0 THEN 'NaN'::DOUBLE ELSE CAST({0} AS DOUBLE) / {1} END"


def _parted(count: int, first: int, order: str = "") -> str:
    """OVER (...) partitioned by `count` holes from `first` on."""
    by = ", ".join(f"{{{first + n}}}" for n in range(count))
    return f"OVER ({f'PARTITION BY {by} ' if count else ''}{f'ORDER BY {order}' if order else ''})"


def _seen(c: TableBinder, rows: Window) -> Stage:
    """Each id once for each slot and combination of dimensions, with the first slot it was seen in."""
    row = row_of(rows.stage)
    columns = [(n, row[n]) for n in ("$who", "$slot", *rows.dimensions)]
    known = sql("{0} IS NOT NULL", "bool", row["$who"])
    once = c.emit(rows.stage, columns, keep_hidden=False, is_sorted=False,
                  refine=lambda q: q.where(known.sql).distinct())  # fmt: skip
    row = row_of(once)
    keys = [row["$who"], *(row[n] for n in rows.dimensions)]
    first = sql(f"min({{0}}) {_parted(len(keys), 1)}", "long", row["$slot"], *keys, nullable=False)
    before = sql(f"lag({{0}}) {_parted(len(keys), 1, '{0}')}", "long", row["$slot"], *keys, nullable=True)
    return c.emit(once, [*row.items(), ("$first", first), ("$before", before)])


def _positions(count: int) -> list[Any]:
    return [literal_column(str(place + 1)) for place in range(count)]


def activity_metrics(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """Per slot: the number of different ids, and of those that were not in the slot before.

    Also the shares of the former slot's ids that returned and that stayed away.
    """
    rows = window(c, stage, call, env)
    seen = _seen(c, rows)
    row = row_of(seen)
    held = [("$slot", row["$slot"]), *((n, row[n]) for n in rows.dimensions)]
    back = sql("count(*) FILTER (WHERE {0} = {1} - 1)", "long", row["$before"], row["$slot"], nullable=False)
    counts = [("$n", sql("count(*)", "long", nullable=False)), ("$back", back)]
    grouped = c.emit(seen, [*held, *counts], keep_hidden=False, is_sorted=False,
                     refine=lambda q: q.group_by(*_positions(len(held))))  # fmt: skip
    row = row_of(grouped)
    dims = [row[n] for n in rows.dimensions]
    over = _parted(len(dims), 2, "{1}")
    template = f"CASE WHEN lag({{1}}) {over} = {{1}} - 1 THEN lag({{0}}) {over} END"
    last = c.emit(
        grouped, [*row.items(), ("$last", sql(template, "long", row["$n"], row["$slot"], *dims, nullable=True))]
    )
    row = row_of(last)
    retained = sql(_RATE, "real", row["$back"], row["$last"])
    return c.emit(last, [
        (rows.time, moment_of(rows, row["$slot"])), *((n, row[n]) for n in rows.dimensions),
        ("dcount_values", row["$n"]), ("dcount_newvalues", sql("({0} - {1})", "long", row["$n"], row["$back"])),
        ("retention_rate", retained), ("churn_rate", sql("(1 - {0})", "real", retained)),
    ])  # fmt: skip


def new_activity_metrics(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """The ids first seen in one slot (the cohort), and how many of them are in it and in each later slot."""
    plain, cohort, known = _cohort_arguments(c, stage, call, env)
    if known is not None:
        stage = _without(c, stage, call, known, env)
    rows = window(c, stage, plain, env)
    seen = _seen(c, rows)
    row = row_of(seen)
    own = [("$first", row["$first"]), *((n, row[n]) for n in rows.dimensions)]
    size = ("$size", sql("count(DISTINCT {0})", "long", row["$who"], nullable=False))
    chosen = _only(rows, row["$first"], cohort) if cohort is not None else None

    def grouped(query: Any) -> Any:
        return (query.where(chosen.sql) if chosen else query).group_by(*_positions(len(own)))

    cohorts = c.emit(seen, [*own, size], keep_hidden=False, is_sorted=False, refine=grouped)
    stop = c.expr(call.args[3], Scope(env))
    slots = "unnest(range(0, CAST(ceil((epoch_us({1}) - epoch_us({0})) / ({2} / 10)) AS BIGINT)))"
    to = sql(slots, "long", rows.start, stop, rows.step, nullable=False)
    pairs = c.emit(cohorts, [*row_of(cohorts).items(), ("$to", to)])
    later = sql("({0} >= {1})", "bool", row_of(pairs)["$to"], row_of(pairs)["$first"])
    pairs = c.emit(pairs, list(row_of(pairs).items()), refine=lambda q: q.where(later.sql))
    return _compared(c, rows, pairs, seen)


def _compared(c: TableBinder, rows: Window, pairs: Stage, seen: Stage) -> Stage:
    """Each pair of slots with the ids of the later one, counted."""
    left, right = row_of(pairs, "l"), row_of(seen, "r")
    tests = [sql("({0} = {1})", "bool", left["$to"], right["$slot"])]
    tests += [sql("({0} IS NOT DISTINCT FROM {1})", "bool", left[n], right[n]) for n in rows.dimensions]
    on = Sql(" AND ".join(f"{{{i}}}" for i in range(len(tests))), *(t.sql for t in tests))
    held = [(n, left[n]) for n in ("$first", "$to", *rows.dimensions, "$size")]
    stayed = sql("count(*) FILTER (WHERE {0} = {1})", "long", right["$first"], left["$first"], nullable=False)
    new = sql("count(*) FILTER (WHERE {0} > {1})", "long", right["$first"], left["$first"], nullable=False)
    source = relation(pairs.relation, "l").join(relation(seen.relation, "r"), on, isouter=True)
    counted = c.emit(pairs, [*held, ("$stayed", stayed), ("$new", new)], source=source, keep_hidden=False,
                     is_sorted=False, refine=lambda q: q.group_by(*_positions(len(held))))  # fmt: skip
    row = row_of(counted)
    new = sql("CASE WHEN {0} = {1} THEN {2} ELSE {3} END", "long", row["$first"], row["$to"], row["$size"], row["$new"])
    kept = sql(_RATE, "real", row["$stayed"], row["$size"])
    return c.emit(counted, [
        (f"from_{rows.time}", moment_of(rows, row["$first"])), (f"to_{rows.time}", moment_of(rows, row["$to"])),
        *((n, row[n]) for n in rows.dimensions), ("dcount_new_values", new), ("dcount_retained_values", row["$stayed"]),
        ("dcount_churn_values", sql("({0} - {1})", "long", row["$size"], row["$stayed"])),
        ("retention_rate", kept), ("churn_rate", sql("(1 - {0})", "real", kept)),
    ])  # fmt: skip


def _cohort_arguments(
    c: TableBinder, stage: Stage, call: ast.Call, env: Env
) -> tuple[ast.Call, Value | None, Stage | None]:  # fmt: skip
    """The call without its cohort (a moment after the step) and without the table of known ids at its end."""
    args, cohort, known = list(call.args), None, None
    columns = {v.name for v in stage.visible}
    if len(args) > 5 and not (isinstance(args[-1], ast.Name) and args[-1].name in columns):
        known = c.as_table(args[-1], Scope(env))
        if known is not None:
            args.pop()
    if len(args) > 5 and not (isinstance(args[5], ast.Name) and args[5].name in columns):
        cohort = c.expr(args.pop(5), Scope(env))
        if cohort.type != "datetime":
            raise KqlBindError(f"{call.name} takes a cohort's datetime here, not {cohort.type}", call.args[5].span)
    return ast.Call(call.name, tuple(args), span=call.span), cohort, known


def _only(rows: Window, first: Value, cohort: Value) -> Value:
    """Is a first slot the one that contains a moment?"""
    return sql("({0} = (epoch_us({1}) - epoch_us({2})) // ({3} // 10))", "bool", first, cohort, rows.start, rows.step)


def _without(c: TableBinder, stage: Stage, call: ast.Call, known: Stage, env: Env) -> Stage:
    """The rows whose id is not in the table of known ids, in the column of the same name."""
    who = c.expr(call.args[0], scope_of(stage, env))
    column = next((v for v in known.visible if v.name == who.name), None)
    if column is None:
        raise KqlBindError(f"the table of known ids has no column '{who.name}'", call.args[-1].span)
    source = f'NOT EXISTS (SELECT 1 FROM "{known.relation}" AS "k" WHERE {{0}} = {{1}})'
    test = Sql(source, column.value("k").sql, who.sql)
    return c.emit(stage, list(row_of(stage).items()), refine=lambda q: q.where(test), row_by_row=True)


def active_users_count(c: TableBinder, stage: Stage, call: ast.Call, env: Env) -> Stage:
    """Per step: different ids that, at one of their appearances in it, had been present in enough periods before.

    The periods are those of the lookback time, which ends with the appearance and does not include its own beginning.
    """
    if len(call.args) < 8:
        raise KqlBindError(
            "active_users_count takes an id, a time, start, end, the time to look back, a period, a number of periods and a step",
            call.span,
        )
    back, period, least = (c.expr(a, Scope(env)) for a in call.args[4:7])
    if (back.type, period.type) != ("timespan", "timespan") or least.type not in ("int", "long"):
        raise KqlBindError(
            "active_users_count needs two timespans and a whole number before the step", call.args[4].span
        )
    low = ast.Binary("-", call.args[2], call.args[4], span=call.args[2].span)
    shifted = (*call.args[:2], low, call.args[3], call.args[7], *call.args[8:])
    rows = window(c, stage, ast.Call(call.name, shifted, span=call.span), env)
    start = c.expr(call.args[2], Scope(env))
    left, right = row_of(rows.stage, "l"), row_of(rows.stage, "r")
    same = [sql("({0} IS NOT DISTINCT FROM {1})", "bool", left[n], right[n]) for n in ("$who", *rows.dimensions)]
    near = "({1} <= {0} AND epoch_us({0}) - epoch_us({1}) < {2} // 10 AND {0} >= {3})"
    tests = [*same, sql(near, "bool", left["$when"], right["$when"], back, start)]
    on = Sql(" AND ".join(f"{{{i}}}" for i in range(len(tests))), *(t.sql for t in tests))
    slot = sql("((epoch_us({0}) - epoch_us({1})) // ({2} // 10))", "long", left["$when"], start, rows.step)
    held = [("$who", left["$who"]), ("$when", left["$when"]), ("$slot", slot), *((n, left[n]) for n in rows.dimensions)]
    periods = "count(DISTINCT CAST(floor((epoch_us({0}) - epoch_us({1})) / ({2} / 10)) AS BIGINT)) >= {3}"
    enough = sql(periods, "bool", right["$when"], start, period, least)
    source = relation(rows.stage.relation, "l").join(relation(rows.stage.relation, "r"), on)
    active = c.emit(rows.stage, held, source=source, keep_hidden=False, is_sorted=False,
                    refine=lambda q: q.group_by(*_positions(len(held))).having(enough.sql))  # fmt: skip
    row = row_of(active)
    begun = Window(active, rows.time, rows.dimensions, start, rows.step)
    out = [(rows.time, moment_of(begun, row["$slot"])), *((n, row[n]) for n in rows.dimensions)]
    counted = ("dcount", sql("count(DISTINCT {0})", "long", row["$who"], nullable=False))
    return c.emit(active, [*out, counted], keep_hidden=False, is_sorted=False,
                  refine=lambda q: q.group_by(*_positions(len(out))))  # fmt: skip


PLUGINS = {
    "activity_metrics": activity_metrics, "new_activity_metrics": new_activity_metrics,
    "active_users_count": active_users_count,
}  # fmt: skip
