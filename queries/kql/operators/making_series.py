"""make-series: aggregates in slots of an axis, gaps filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import literal_column

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.conversion import to_type
from queries.kql.dialect import PHYSICAL, Sql
from queries.kql.errors import KqlBindError
from queries.kql.functions.numbers import YEAR_1
from queries.kql.operators.shaping import named_values
from queries.kql.stages import Env, Names, Scope, Stage, row_of, scope_of
from queries.kql.values import NUMERIC, TICKS_TO_TEXT, Value, cast_number, constant, sql


@dataclass(frozen=True, slots=True)
class _Axis:
    """The axis as whole or real units: microseconds of a time, ticks of a span, the number itself."""

    name: str
    kind: str
    value: Value
    step: Value
    start: Value | None
    stop: Value | None
    closed: bool

    @property
    def origin(self) -> Value:
        """Where slot 0 begins: the start, or a moment near 1970 that a whole number of steps leads to from where bin() counts. In
        microseconds since the year 1, division would not be exact."""
        if self.start is not None:
            return self.start
        if self.kind != "datetime":
            return constant(0, "long")
        return sql(f"-({YEAR_1} % {{0}})", "long", self.step)


def _units(value: Value) -> Value:
    if value.type == "datetime":
        return sql("epoch_us({0})", "long", value)
    if value.type == "timespan":
        return sql("({0} // 10)", "long", value)
    return value


def _axis(c: TableBinder, node: ast.Operator, row: Scope, env: Env) -> _Axis:
    on = node.parts["on"]
    ((name, value),) = named_values(c, (on,), row)
    if "step" not in node.parts:
        raise KqlBindError("make-series needs a 'step'", node.span)
    given = {k: c.expr(node.parts[k], Scope(env)) for k in ("from", "to", "step") if k in node.parts}
    step_kind = "timespan" if value.type in ("datetime", "timespan") else value.type
    if value.type not in (*NUMERIC, "datetime", "timespan"):
        raise KqlBindError(f"an axis is a time, a span or a number, not {value.type}", on.span)
    for key, end in given.items():
        wanted = step_kind if key == "step" else value.type
        if end.type != wanted and not (end.type in NUMERIC and wanted in NUMERIC):
            raise KqlBindError(f"'{key}' must be {wanted} like the axis, not {end.type}", node.parts[key].span)
    if given["step"].is_constant and not given["step"].constant:
        raise KqlBindError("'step' must not be 0", node.parts["step"].span)
    kinds = [v.type for v in (value, *given.values())]
    if all(k in NUMERIC for k in kinds):
        wide = "real" if {"real", "decimal"} & set(kinds) else "long"
        value, given = cast_number(value, wide), {k: cast_number(v, wide) for k, v in given.items()}
    start, stop = given.get("from"), given.get("to")
    return _Axis(
        name, value.type, _units(value), _units(given["step"]),
        _units(start) if start else None, _units(stop) if stop else None, bool(node.parts.get("closed")),
    )  # fmt: skip


def make_series(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R14: the end is exclusive (inclusive with `in range`), the columns are keys, series, axis; default fills gaps."""
    kind = str(getattr(node.settings.get("kind"), "value", "normal"))
    if kind != "normal" and kind != "nonempty":
        raise KqlBindError(f"the kind of make-series is nonempty, not '{kind}'", node.span)
    row = scope_of(stage, env)
    names = Names()
    keys = named_values(c, node.nodes("by"), row, names)
    axis = _axis(c, node, row, env)
    origin = axis.origin
    slot = sql("CAST(floor(({0} - {1}) / {2}) AS BIGINT)", "long", axis.value, origin, axis.step, nullable=True)
    tests = [sql("{0} IS NOT NULL", "bool", axis.value)]
    if axis.start:
        tests.append(sql("{0} >= {1}", "bool", axis.value, axis.start))
    if axis.stop:
        tests.append(sql("{0} <= {1}" if axis.closed else "{0} < {1}", "bool", axis.value, axis.stop))
    inside = sql(" AND ".join(f"({{{i}}})" for i in range(len(tests))), "bool", *tests)
    columns = [*keys, ("$slot", slot)]
    aggregate = Scope(env, row.columns, stage, aggregates=True)
    series: list[tuple[str, Value, Value]] = []
    for number, part in enumerate(node.nodes("columns")):
        assert isinstance(part, ast.Series)
        name, value = _one_value(named_values(c, (part.value,), aggregate, names), part.value)
        fallback = c.expr(part.default, Scope(env)) if part.default else constant(0, "long")
        columns.append((f"$v{number}", value))
        series.append((name, value, _default(name, value, fallback, part)))
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(keys) + 1)]
    counted = c.emit(
        stage, columns, keep_hidden=False, refine=lambda q: q.where(inside.sql).group_by(*positions), is_sorted=False
    )
    nonempty = kind == "nonempty" and axis.start is not None and axis.stop is not None
    return _fill(c, counted, keys, series, axis, nonempty)


def _one_value(found: list[tuple[str, Value]], node: ast.Node) -> tuple[str, Value]:
    """The named value of a series, of which an aggregate may give several. Raises ``KqlBindError``."""
    if len(found) == 1:
        return found[0]
    called = node.value if isinstance(node, ast.Named) else node
    name = called.name if isinstance(called, ast.Call) else "this"
    raise KqlBindError(
        f"{name}() gives {len(found)} values, and a series takes one: choose it by its place, x = {name}(...)[1], and give "
        "each other one a series of its own", node.span,
    )  # fmt: skip


def _default(name: str, value: Value, fallback: Value, part: ast.Node) -> Value:
    """The default as the values' type; a real default makes the series real."""
    if fallback.type == value.type:
        return fallback
    numbers = value.type in NUMERIC and fallback.type in NUMERIC
    if numbers and not (value.type in ("int", "long") and fallback.type == "real"):
        return to_type(fallback, value.type)
    if numbers:
        return fallback
    if fallback.is_constant and fallback.constant in (0, None):
        return constant(None, value.type)
    raise KqlBindError(f"the default of '{name}' is {fallback.type}, its values are {value.type}", part.span)


def _fill(
    c: TableBinder, counted: Stage, keys: list[tuple[str, Value]], series: list[tuple[str, Value, Value]], axis: _Axis,
    nonempty: bool,
) -> Stage:  # fmt: skip
    row = row_of(counted)
    slots = _slots(axis, row["$slot"])
    out = [(n, row[n]) for n, _ in keys]
    gathered = sql("list({0})", "long", row["$slot"])
    for number, (label, value, fallback) in enumerate(series):
        kind = "real" if fallback.type == "real" else value.type
        cell = f"CAST(coalesce(list_lookup({{1}}, {{2}}, ks), {{3}}) AS {PHYSICAL[kind]})"
        cells = sql("list({0})", value.type, row[f"$v{number}"])
        made = sql(f"to_json(list_transform({{0}}, lambda ks: {cell}))", "dynamic", slots, gathered, cells, fallback)
        out.append((label, made))
    origin = axis.origin
    point = "({1} + ks * {2})"
    moment = {
        "datetime": f"time_text(make_timestamp({point}))",
        "timespan": TICKS_TO_TEXT.replace("{0}", f"({point} * 10)"),
    }.get(axis.kind, point)
    out.append(
        (axis.name, sql(f"to_json(list_transform({{0}}, lambda ks: {moment}))", "dynamic", slots, origin, axis.step))
    )
    positions: list[Any] = [literal_column(str(i + 1)) for i in range(len(keys))]
    return c.emit(
        counted, out, keep_hidden=False, is_sorted=False,
        refine=lambda q: q.group_by(*positions) if positions else q if nonempty
        else q.having(Sql("count(*) > 0")),
    )  # fmt: skip


def _slots(axis: _Axis, slot: Value) -> Value:
    """The numbers of the slots of one series: up to the ends given, else to its own first and last."""
    first = sql("0", "long", nullable=False) if axis.start else sql("min({0})", "long", slot)
    if axis.stop is None:
        return sql("range({0}, max({1}) + 1)", "dynamic", first, slot)
    origin = axis.origin
    count = "floor(({0} - {1}) / {2}) + 1" if axis.closed else "ceil(({0} - {1}) / {2})"
    last = sql(f"CAST({count} AS BIGINT)", "long", axis.stop, origin, axis.step)
    return sql("range({0}, {1})", "dynamic", first, last)


BUILDERS = {"make-series": make_series}
