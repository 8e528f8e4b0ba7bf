"""Percentiles of the values of a group, plain and weighted. R11: they are exact, an existing value of the nearest rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError
from queries.kql.functions.calling import call
from queries.kql.functions.declaration import Bind, Body, Cost, Function, Kind
from queries.kql.stages import Scope
from queries.kql.values import NUMERIC, Value, cast_number, constant, dynamic_of, plain, sql

Json = Any


def weighted_rank(values: Json, weights: Json, share: float) -> float | None:
    """The least value at which the cumulated weight reaches a share, in percent."""
    pairs = sorted((v, w) for v, w in zip(values, weights, strict=True) if v is not None and w and w > 0)
    reached, total = 0, sum(w for _, w in pairs)
    for value, weight in pairs:
        reached += weight
        if reached >= total * share / 100:
            return float(value)
    return None


WEIGHTED_RANK = Function(
    "weighted_rank", "The weighted percentiles.", Body("d d r", "real", weighted_rank), internal=True
)


def _share(c: Binder, node: ast.Call, arg: ast.Node, scope: Scope) -> list[Value]:
    """One percentage, or the constants of an array."""
    wanted = c.expr(arg, scope)
    several = plain(wanted.constant) if wanted.type == "dynamic" and wanted.is_constant else None
    given = several if isinstance(several, list) else [wanted.constant] if wanted.is_constant else []
    if wanted.type == "decimal":  # whose constants are texts
        given = [one if one is None else float(one) for one in given]
    if not isinstance(several, list) and wanted.type not in NUMERIC:
        raise KqlBindError(f"{node.name}() needs a percentage, not {wanted.type}", arg.span)
    for one in given:
        if one is None or isinstance(one, bool | str | list | dict) or not 0 <= one <= 100:
            raise KqlBindError(f"{node.name}() needs percentages from 0 to 100", arg.span)
    return [constant(float(p), "real") for p in several] if isinstance(several, list) else [wanted]


def _ranked(value: Value, node: ast.Call) -> Value:
    if value.type not in (*NUMERIC, "datetime", "timespan"):
        raise KqlBindError(f"{node.name}() does not take {value.type}", node.span)
    return replace(cast_number(value, "long"), name=value.name) if value.type == "int" else value


def percentile_of(value: Value, wanted: Value, node: ast.Call) -> Value:
    """R11: the nearest rank, an existing value."""
    value = _ranked(value, node)
    if wanted.is_constant and wanted.constant is not None:
        label = f"{float(wanted.constant):g}".replace(".", "_")
        made = sql(
            "quantile_disc({0}, {1})",
            value.type,
            value,
            constant(float(wanted.constant) / 100.0, "real"),
            nullable=True,
        )
    else:
        # A percentage of a let or of toscalar(): known to the engine, not here.
        label = ""
        place = "greatest(1, CAST(ceil({1} / 100.0 * count({0})) AS BIGINT))"
        template = f"CASE WHEN {{1}} >= 0 THEN list_sort(list({{0}}) FILTER (WHERE {{0}} IS NOT NULL))[{place}] END"
        made = sql(template, value.type, value, wanted, nullable=True)
    return replace(made, name=f"percentile_{value.name or ''}_{label}")


def weighted_of(value: Value, weight: Value, wanted: Value, node: ast.Call) -> Value:
    """The nearest rank where each value counts as often as its weight."""
    value = _ranked(value, node)
    if weight.type not in ("int", "long"):
        raise KqlBindError(f"{node.name}() needs whole numbers as weights, not {weight.type}", node.span)
    number = sql("epoch_us({0})", "long", value) if value.type == "datetime" else value
    lists = [sql("coalesce(to_json(list({0})), '[]'::JSON)", "dynamic", v, nullable=False) for v in (number, weight)]
    found = call(WEIGHTED_RANK, [*lists, cast_number(wanted, "real")], node)
    template = (
        "make_timestamp(CAST({0} AS BIGINT))"
        if value.type == "datetime"
        else f"TRY_CAST({{0}} AS {_RANKED[value.type]})"
    )
    made = sql(template, value.type, found, nullable=True)
    label = f"{wanted.constant:g}".replace(".", "_") if wanted.is_constant else ""
    return replace(made, name=f"percentile_{value.name or ''}_{label}")


_RANKED = {"long": "BIGINT", "int": "BIGINT", "timespan": "BIGINT", "real": "DOUBLE", "decimal": "DECIMAL(38,12)"}


def percentiles_of(c: Binder, node: ast.Call, scope: Scope, weighted: bool) -> list[Value]:
    head = 2 if weighted else 1
    if len(node.args) <= head:
        raise KqlBindError(f"{node.name}() takes a value{', a weight' if weighted else ''} and percentages", node.span)
    first = [c.expr(a, scope) for a in node.args[:head]]
    shares = [s for a in node.args[head:] for s in _share(c, node, a, scope)]
    return [weighted_of(first[0], first[1], s, node) if weighted else percentile_of(first[0], s, node) for s in shares]


def _one_percentile(weighted: bool) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        found = percentiles_of(c, node, scope, weighted)
        if len(found) != 1:
            raise KqlBindError(f"{node.name}() takes one percentage", node.span)
        return found[0]

    return build


def _percentile_array(weighted: bool) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        found = percentiles_of(c, node, scope, weighted)
        named = c.expr(node.args[0], scope)
        made = sql("json_list([{*}]::JSON[])", "dynamic", *(dynamic_of(f) for f in found), nullable=False)
        return replace(made, name=f"percentiles_{named.name or ''}")

    return build


def _several(weighted: bool) -> Bind:
    """percentiles() inside another expression: its first column, the others by [n]."""

    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        found = percentiles_of(c, node, replace(scope, aggregates=False), weighted)
        return replace(found[0], parts=tuple((f.name or "", f) for f in found))

    return build


def _aggregate(name: str, doc: str, bind: Bind, cost: Cost = Cost.WALL) -> Function:
    return Function(name, doc, bind=bind, cost=cost, kind=Kind.AGGREGATE)


FUNCTIONS = (
    WEIGHTED_RANK,
    _aggregate(
        "percentile",
        "The value below or at which so many percent of the values are.",
        _one_percentile(False),
        Cost.FEW_ROWS,
    ),
    _aggregate("percentilew", "percentile() in which each value counts as often as its weight.", _one_percentile(True)),
    _aggregate("percentiles", "Several percentiles, a column each.", _several(False), Cost.FEW_ROWS),
    _aggregate("percentilesw", "Several weighted percentiles, a column each.", _several(True)),
    _aggregate("percentiles_array", "Several percentiles as an array.", _percentile_array(False)),
    _aggregate("percentilesw_array", "Several weighted percentiles as an array.", _percentile_array(True)),
)
