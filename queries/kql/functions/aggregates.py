"""Aggregate functions, their SQL on DuckDB and Kusto's names for their columns (R6)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from queries.kql import official
from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError
from queries.kql.functions.calling import call
from queries.kql.functions.declaration import Bind, Body, Cost, Function, Kind, Template
from queries.kql.functions.percentiles import percentiles_of
from queries.kql.stages import Scope
from queries.kql.values import NUMERIC, Value, cast_number, constant, dynamic_of, sql, text_of

Json = Any


@dataclass(frozen=True, slots=True)
class Simple:
    """An aggregate of one value.

    ``{0}`` in the template is the argument, ``{F}`` the FILTER clause of the ``...if`` form; ``result`` is its type,
    ``0`` for the argument's; ``prefix`` precedes the argument's name in the column's.
    """

    name: str
    doc: str
    template: str
    result: str
    prefix: str


# R11: dcount and percentiles are exact here; Kusto estimates them.
# R16: spread of one row is 0; sum over nothing is 0, avg over nothing is NaN, min is null.
SIMPLE = {
    one.name: one
    for one in (
        Simple("sum", "The sum of numbers or timespans", "coalesce(sum({0}){F}, 0)", "sum", "sum"),
        Simple(
            "avg", "The mean of numbers, timespans or datetimes", "coalesce(avg({0}){F}, 'NaN'::DOUBLE)", "real", "avg"
        ),
        Simple("min", "The least value", "min({0}){F}", "0", "min"),
        Simple("max", "The greatest value", "max({0}){F}", "0", "max"),
        Simple("dcount", "How many different values there are", "count(DISTINCT {0}){F}", "long", "dcount"),
        Simple(
            "count_distinct", "How many different values there are", "count(DISTINCT {0}){F}", "long", "count_distinct"
        ),
        Simple("stdev", "The standard deviation of a sample", "coalesce(stddev_samp({0}){F}, 0)", "real", "stdev"),
        Simple("stdevp", "The standard deviation of a population", "coalesce(stddev_pop({0}){F}, 0)", "real", "stdevp"),
        Simple("variance", "The variance of a sample", "coalesce(var_samp({0}){F}, 0)", "real", "variance"),
        Simple("variancep", "The variance of a population", "coalesce(var_pop({0}){F}, 0)", "real", "variancep"),
        Simple("take_any", "Any of the values", "any_value({0}){F}", "0", ""),
        Simple("binary_all_and", "The bits that all values have", "bit_and({0}){F}", "0", ""),
        Simple("binary_all_or", "The bits that any of the values has", "bit_or({0}){F}", "0", ""),
        Simple("binary_all_xor", "The bits that an odd number of the values has", "bit_xor({0}){F}", "0", ""),
    )
}
LISTS = ("make_list", "make_set", "make_list_with_nulls", "make_bag")
#: Aggregates with a condition, and the ones without it.
CONDITIONAL = {
    name: base
    for base, name in (*((n, f"{n}if") for n in SIMPLE), *((n, f"{n}_if") for n in LISTS), ("hll", "hll_if"))
    if name in official.AGGREGATES
}
SPREAD = ("arg_max", "arg_min", "percentiles", "percentilesw")


def _bind(name: str, c: Binder, node: ast.Call, scope: Scope) -> Value:
    """A call of an aggregate of one value, of a list or of a state."""
    inner = replace(scope, aggregates=False)
    base = CONDITIONAL.get(name, name)
    if base == "dcount" and not node.args:
        raise KqlBindError(f"{node.name}() needs a value", node.span)
    args = list(node.args)
    condition: Value | None = None
    if name in CONDITIONAL:
        if len(args) < 2:
            raise KqlBindError(f"{node.name}() takes a value and a condition", node.span)
        condition = c.condition(args.pop(1), inner)
    if base in LISTS:
        return _listing(c, node, base, args, condition, inner)
    if base == "hll":
        return _hll(c, node, args, condition, inner)
    if not args or (len(args) > 1 and base not in ("dcount", "take_any")):
        raise KqlBindError(f"{node.name}() does not take {len(args)} arguments", node.span)
    value = c.expr(args[0], inner)
    return _simple(node, name, base, value, condition)


def _first_of(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """arg_max() and arg_min() inside another expression: its first column, the others by [n]."""
    parts = spread(c, node, scope, [])
    return replace(parts[0][1], name=parts[0][0], parts=tuple(parts))


def output_name(prefix: str, value: Value) -> str:
    """R6: sum(X) is sum_X; an argument without a name leaves the bare prefix."""
    if not prefix:
        return value.name or ""
    return f"{prefix}_{value.name or ''}"


def _count(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if (
        len(node.args) == 1 and not isinstance(node.args[0], ast.Star) and c.expr(node.args[0], scope).type == "bool"
    ):  # the older form of countif()
        return replace(_countif(c, node, scope), name="count_")
    if node.args:
        raise KqlBindError("count() takes no arguments; countif() takes a condition", node.span, suggestion="count()")
    return Value(sql("count(*)", "long").sql, "long", False, name="count_")


def _countif(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 1:
        raise KqlBindError("countif() takes one condition", node.span)
    test = c.condition(node.args[0], scope)
    counted = sql("count(*) FILTER (WHERE {0})", "long", test, nullable=False)
    return replace(counted, name=f"countif_{test.name or ''}")


def _simple(node: ast.Call, name: str, base: str, value: Value, condition: Value | None) -> Value:
    template, result, prefix = SIMPLE[base].template, SIMPLE[base].result, SIMPLE[base].prefix
    prefix = name if name in CONDITIONAL and prefix else prefix
    kind = {"0": value.type, "sum": "long" if value.type == "int" else value.type}.get(result, result)
    summable = (*NUMERIC, "timespan", "datetime") if base == "avg" else (*NUMERIC, "timespan")
    if base in ("sum", "avg", "stdev", "stdevp", "variance", "variancep") and value.type not in summable:
        raise KqlBindError(f"{node.name}() needs a number, not {value.type}", node.span)
    if base in ("min", "max") and value.type == "dynamic":
        raise KqlBindError(f"{node.name}() does not order {value.type}; convert it first", node.span)
    if base.startswith("binary_all") and value.type not in ("int", "long"):
        raise KqlBindError(f"{node.name}() needs a whole number, not {value.type}", node.span)
    if base == "avg" and value.type == "timespan":
        template, kind = "CAST(avg({0}){F} AS BIGINT)", "timespan"
    elif base == "avg" and value.type == "datetime":
        template, kind = "make_timestamp(CAST(avg(epoch_us({0})){F} AS BIGINT))", "datetime"
    elif base == "avg" and value.type == "decimal":
        template, kind = "CAST(avg({0}){F} AS DECIMAL(38,12))", "decimal"
    elif base == "sum":
        physical = {"real": "DOUBLE", "decimal": "DECIMAL(38,12)"}.get(kind, "BIGINT")
        template = f"CAST({template} AS {physical})"
    elif base in ("stdev", "stdevp", "variance", "variancep", "avg"):
        value = replace(cast_number(value, "real"), name=value.name) if value.type in NUMERIC else value
    parts = [value] + ([condition] if condition else [])
    filled = template.replace("{F}", " FILTER (WHERE {1})" if condition else "")
    made = sql(filled, kind, *parts, nullable=True)
    shown = node.name if node.name in ("any", "anyif") else prefix
    absent = base in ("min", "max", "take_any", "avg") or base.startswith("binary") or kind == "timespan"
    return Value(made.sql, made.type, made.nullable and absent, name=output_name(shown, value))


def _ordered(scope: Scope, at: int) -> tuple[str, list[Value]]:
    """R6: lists follow the order of sorted rows."""
    order = scope.stage.order if scope.stage else None
    return (f" ORDER BY {{{at}}}", [order.value()]) if order else ("", [])


def _limit(c: Binder, node: ast.Call, args: list[ast.Node], scope: Scope) -> Value | None:
    if len(args) > 2:
        raise KqlBindError(f"{node.name}() does not take {len(args)} arguments", node.span)
    limit = c.expr(args[1], scope) if len(args) > 1 else None
    if limit is not None and (not limit.is_constant or limit.type not in ("int", "long")):
        raise KqlBindError(f"{node.name}() needs a constant limit", args[1].span)
    return limit


def _listing(
    c: Binder, node: ast.Call, base: str, args: list[ast.Node], condition: Value | None, scope: Scope
) -> Value:
    if not args:
        raise KqlBindError(f"{node.name}() needs a value", node.span)
    value = c.expr(args[0], scope)
    limit = _limit(c, node, args, scope)
    item = dynamic_of(value)
    prefix = {"make_list": "list", "make_set": "set", "make_list_with_nulls": "list", "make_bag": "bag"}[base]
    name = f"{'dictionary' if node.name == 'make_dictionary' else prefix}_{value.name or ''}"
    tests = [] if base == "make_list_with_nulls" else ["{0} IS NOT NULL"]
    parts = [item]
    if condition:
        parts.append(condition)
        tests.append("{1}")
    where = f" FILTER (WHERE {' AND '.join(tests)})" if tests else ""
    order, by = _ordered(scope, len(parts))
    gather = "json_list"
    if base == "make_bag":
        if value.type != "dynamic":
            raise KqlBindError(f"{node.name}() needs property bags, not {value.type}", node.span)
        gathered = sql(f"coalesce(json_list(list({{0}}{order}){where}), '[]'::JSON)", "dynamic", *parts, *by)
        most = limit or constant(-1, "long")
        return replace(call(BAG_OF_BAGS, [gathered, most], node), name=name)
    if base == "make_set":
        # The order inside a set is unspecified in Kusto; sorted, the answer is the same every time.
        if value.type in ("string", "int", "long"):
            parts[0], gather = value, "to_json"
        found = f"list({{0}}){where}"
        if value.type == "dynamic":  # the set of the items of arrays
            items = "CASE WHEN json_type({0}) = 'ARRAY' THEN json_items({0}, json_object) ELSE [{0}] END"
            found = f"list_filter(flatten(list({items}){where}), lambda kx: kx IS NOT NULL AND kx <> 'null'::JSON)"
        inner = f"list_sort(list_distinct({found}))"
    else:
        inner = f"list({{0}}{order}){where}"
        parts += by
    if limit is not None:
        parts.append(constant(limit.constant, "long"))
        inner = f"({inner})[1 : {{{len(parts) - 1}}}]"
    made = sql(f"coalesce({gather}({inner}), '[]'::JSON)", "dynamic", *parts, nullable=False)
    return replace(made, name=name)


def _covariance(c: Binder, node: ast.Call, scope: Scope) -> Value:
    conditional = node.name.endswith("if")
    if len(node.args) != 2 + conditional:
        raise KqlBindError(f"{node.name}() takes two values{' and a condition' if conditional else ''}", node.span)
    first, second = (c.expr(a, scope) for a in node.args[:2])
    if first.type not in NUMERIC or second.type not in NUMERIC:
        raise KqlBindError(f"{node.name}() needs numbers", node.span)
    parts = [cast_number(first, "real"), cast_number(second, "real")]
    where = ""
    if conditional:
        parts.append(c.condition(node.args[2], scope))
        where = " FILTER (WHERE {2})"
    function = "covar_pop" if "variancep" in node.name else "covar_samp"
    made = sql(f"coalesce({function}({{0}}, {{1}}){where}, 0)", "real", *parts, nullable=False)
    return replace(made, name=f"{node.name}_{first.name or ''}")


def _hll(c: Binder, node: ast.Call, args: list[ast.Node], condition: Value | None, scope: Scope) -> Value:
    """R11: the state is the exact set of values, as texts."""
    if not 1 <= len(args) <= 2:
        raise KqlBindError(f"{node.name}() takes a value and perhaps an accuracy", node.span)
    value = c.expr(args[0], scope)
    parts = [text_of(value), value] + ([condition] if condition else [])
    where = " FILTER (WHERE {1} IS NOT NULL" + (" AND {2}" if condition else "") + ")"
    made = sql(
        f"coalesce(to_json(list_sort(list_distinct(list({{0}}){where}))), '[]'::JSON)",
        "dynamic",
        *parts,
        nullable=False,
    )
    return replace(made, name=f"{node.name}_{value.name or ''}")


def _hll_merge(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 1:
        raise KqlBindError("hll_merge() takes one hll() state in summarize", node.span)
    value = c.expr(node.args[0], scope)
    if value.type != "dynamic":
        raise KqlBindError(f"hll_merge() needs hll() states, not {value.type}", node.span)
    inner = "list_sort(list_distinct(flatten(list(CAST({0} AS VARCHAR[])))))"
    return replace(
        sql(f"coalesce(to_json({inner}), '[]'::JSON)", "dynamic", value, nullable=False),
        name=f"hll_merge_{value.name or ''}",
    )


def _buildschema(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 1:
        raise KqlBindError("buildschema() takes one dynamic", node.span)
    value = c.expr(node.args[0], scope)
    gathered = sql("coalesce(json_list(list({0})), '[]'::JSON)", "dynamic", dynamic_of(value), nullable=False)
    return replace(call(SCHEMA_OF, [gathered], node), name=f"schema_{value.name or ''}")


# If all keys are null, any row is the best one.
_BEST = "CASE WHEN {N} IS NULL THEN first({0}) ELSE {A}({0}, {1}) END"


def spread(c: Binder, node: ast.Call, scope: Scope, keys: list[str]) -> list[tuple[str, Value]]:
    """The aggregates that make several columns: arg_max, arg_min, percentiles, take_any with many."""
    inner = replace(scope, aggregates=False)
    if node.name in ("percentiles", "percentilesw"):
        made = percentiles_of(c, node, inner, node.name == "percentilesw")
        return [(m.name or "", m) for m in made]
    if node.name in ("take_any", "any"):
        lead = "any_" if node.name == "any" else ""
        return [(lead + (v.name or ""), sql("any_value({0})", v.type, v, nullable=True))
                for v in _expand(c, node.args, inner, keys)]  # fmt: skip
    if not node.args:
        raise KqlBindError(f"{node.name}() needs a value to order by", node.span)
    key = c.expr(node.args[0], inner)
    if key.type == "dynamic":
        raise KqlBindError(f"{node.name}() does not order a dynamic; convert it first", node.args[0].span)
    function = "arg_max_null" if node.name in ("arg_max", "argmax") else "arg_min_null"
    best = "max" if function == "arg_max_null" else "min"
    key_name = key.name or f"{best}_"
    old = node.name in ("argmax", "argmin")  # the deprecated names make columns max_Key and max_Key_Value
    lead = f"{best}_{key.name or ''}" if old else key_name
    out = [(lead, sql(f"{best}({{0}})", key.type, key, nullable=True))]
    template = _BEST.replace("{N}", f"{best}({{1}})").replace("{A}", function)
    for value in _expand(c, node.args[1:], inner, [*keys, key_name]):
        name = f"{lead}_{value.name or ''}" if old else value.name or ""
        out.append((name, sql(template, value.type, value, key, nullable=True)))
    return out


def _expand(c: Binder, args: tuple[ast.Node, ...], scope: Scope, skip: list[str]) -> list[Value]:
    out: list[Value] = []
    for arg in args:
        if isinstance(arg, ast.Star):
            out += [v for n, v in scope.columns.items() if n not in skip]
        else:
            out.append(c.expr(arg, scope))
    return out


def bag_of_bags(bags: Json, most: int) -> dict[str, Json]:
    """make_bag(): one bag of all; for a duplicate key the first row wins."""
    out: dict[str, Json] = {}
    for bag in bags:
        for key, value in bag.items() if isinstance(bag, dict) else ():
            if key not in out and (most < 0 or len(out) < most):
                out[key] = value
    return out


def schema_of(values: Json) -> Json:
    """buildschema(): the types below each property of all values."""
    kinds: dict[str, Json] = {}
    for value in values:
        kind = _schema(value)
        kinds.setdefault(_key(kind), kind)
    return _merged(list(kinds.values()))


def _schema(value: Json) -> Json:
    if isinstance(value, dict):
        return {k: _schema(v) for k, v in value.items()}
    if isinstance(value, list):
        return {"`indexer`": _merged([_schema(v) for v in value])}
    if isinstance(value, bool):
        return "bool"
    return {int: "long", float: "double", str: "string"}.get(type(value), "null")


def _merged(kinds: list[Json]) -> Json:
    """Several schemas as one: bags merge by property, different plain types become an array."""
    bags = [k for k in kinds if isinstance(k, dict)]
    flat: list[Json] = list(dict.fromkeys(k for kind in kinds if not isinstance(kind, dict)
                              for k in (kind if isinstance(kind, list) else [kind]) if isinstance(k, str)))  # fmt: skip
    if bags:
        keys = dict.fromkeys(k for b in bags for k in b)
        flat.append({k: _merged([b[k] for b in bags if k in b]) for k in keys})
    flat = [k for k in flat if k != "null"] or flat
    return flat[0] if len(flat) == 1 else flat


def _key(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


BAG_OF_BAGS = Function(
    "bag_of_bags", "make_bag() of the gathered bags.", Body("d l", "dynamic", bag_of_bags), internal=True
)
SCHEMA_OF = Function(
    "schema_of", "buildschema() of the gathered values.", Body("d", "dynamic", schema_of), internal=True
)


def _aggregate(
    name: str, doc: str, bind: Bind | None = None, cost: Cost = Cost.WALL, aliases: tuple[str, ...] = ()
) -> Function:
    """An aggregate; without ``bind``, of one value, of a list or of a state."""
    return Function(name, doc, bind=bind or partial(_bind, name), cost=cost, kind=Kind.AGGREGATE, aliases=aliases)


def _alone(bind: Bind) -> Bind:
    """The aggregate, whose arguments contain no other."""
    return lambda c, node, scope: bind(c, node, replace(scope, aggregates=False))


_OLD_NAMES = {"take_any": ("any",), "take_anyif": ("anyif",)}
FUNCTIONS = (
    BAG_OF_BAGS,
    SCHEMA_OF,
    *(_aggregate(s.name, f"{s.doc}.", cost=Cost.LINEAR, aliases=_OLD_NAMES.get(s.name, ())) for s in SIMPLE.values()),
    *(
        _aggregate(name, f"{SIMPLE[base].doc} of the rows for which a condition holds.", cost=Cost.LINEAR,
                   aliases=_OLD_NAMES.get(name, ()))
        for name, base in CONDITIONAL.items() if base in SIMPLE
    ),
    _aggregate("count", "How many rows there are.", _alone(_count), Cost.LINEAR, ("cnt",)),
    _aggregate("countif", "How many rows there are for which a condition holds.", _alone(_countif), Cost.LINEAR),
    _aggregate("arg_max", "Columns of the row with the greatest value.", _first_of, Cost.LINEAR, ("argmax",)),
    _aggregate("arg_min", "Columns of the row with the least value.", _first_of, Cost.LINEAR, ("argmin",)),
    _aggregate("make_list", "An array of the values that are not null.", cost=Cost.FEW_ROWS, aliases=("makelist",)),
    _aggregate("make_set", "An array of the different values that are not null.", cost=Cost.FEW_ROWS,
               aliases=("makeset",)),
    _aggregate("make_list_with_nulls", "An array of the values, nulls as well."),
    _aggregate("make_bag", "One bag of all bags.", aliases=("make_dictionary",)),
    _aggregate("make_list_if", "An array of the values for which a condition holds.", cost=Cost.FEW_ROWS),
    _aggregate("make_set_if", "An array of the different values for which a condition holds.", cost=Cost.FEW_ROWS),
    _aggregate("make_bag_if", "One bag of the bags for which a condition holds."),
    _aggregate("hll", "The different values as a state for dcount_hll(); exact here."),
    _aggregate("hll_if", "hll() of the rows for which a condition holds."),
    _aggregate("hll_merge", "Several states of hll() as one.", _alone(_hll_merge)),
    _aggregate("buildschema", "The types of all values below each property.", _alone(_buildschema)),
    *(
        _aggregate(name, f"The covariance of two values in a {of}{rows}.", _alone(_covariance))
        for name, of, rows in (
            ("covariance", "sample", ""), ("covariancep", "population", ""),
            ("covarianceif", "sample", " of the rows for which a condition holds"),
            ("covariancepif", "population", " of the rows for which a condition holds"),
        )
    ),
    Function(
        "dcount_hll", "How many values a state of hll() holds.",
        Template("d", "long!", "CASE WHEN json_type({0}) = 'ARRAY' THEN CAST(json_array_length({0}) AS BIGINT) END"),
        cost=Cost.LINEAR,
    ),
    Function(
        "hll_merge", "Several states of hll() as one.",
        Template("d d*", "dynamic!", "to_json(list_sort(list_distinct(flatten([{*}]::VARCHAR[][]))))"),
    ),
)  # fmt: skip
