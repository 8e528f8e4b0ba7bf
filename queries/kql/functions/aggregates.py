"""Aggregate functions, their SQL on DuckDB and Kusto's names for their columns (R6)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError
from queries.kql.functions.calling import call, call_of_group
from queries.kql.functions.declaration import LINEAR, Bind, Body, Cost, Function, Kind, Template, conditional
from queries.kql.functions.percentiles import percentiles_of
from queries.kql.stages import Scope
from queries.kql.values import Value, constant, dynamic_of, sql, text_of

Json = Any

SPREAD = ("arg_max", "arg_min", "percentiles", "percentilesw")


def _gathering(base: str, conditional: bool) -> Bind:
    """A list or a state of the values of a group, perhaps of those for which a condition holds."""

    def bind(c: Binder, node: ast.Call, scope: Scope) -> Value:
        inner = replace(scope, aggregates=False)
        args = list(node.args)
        condition: Value | None = None
        if conditional:
            if len(args) < 2:
                raise KqlBindError(f"{node.name}() takes a value and a condition", node.span)
            condition = c.condition(args.pop(1), inner, strict=True)
        if base == "hll":
            return _hll(c, node, args, condition, inner)
        return _listing(c, node, base, args, condition, inner)

    return bind


def _first_of(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """arg_max() and arg_min() inside another expression: its first column, the others by [n]."""
    parts = spread(c, node, scope, [])
    return replace(parts[0][1], name=parts[0][0], parts=tuple(parts))


def _count(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if (
        len(node.args) == 1 and not isinstance(node.args[0], ast.Star) and c.expr(node.args[0], scope).type == "bool"
    ):  # the older form of countif()
        return replace(call_of_group(c, COUNTIF, node, scope), name="count_")
    if node.args:
        raise KqlBindError("count() takes no arguments; countif() takes a condition", node.span, suggestion="count()")
    return Value(sql("count(*)", "long").sql, "long", False, name="count_")


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


def _buildschema(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 1:
        raise KqlBindError("buildschema() takes one dynamic", node.span)
    value = c.expr(node.args[0], scope)
    if value.type != "dynamic":
        raise KqlBindError(f"buildschema() needs a dynamic, not {value.type}; did you mean parse_json()?", node.span)
    gathered = sql("coalesce(json_list(list({0})), '[]'::JSON)", "dynamic", value, nullable=False)
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
    if key.type in ("dynamic", "guid"):
        raise KqlBindError(f"{node.name}() does not order a {key.type}; convert it first", node.args[0].span)
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


def _alone(bind: Bind) -> Bind:
    """The aggregate, whose arguments contain no other."""
    return lambda c, node, scope: bind(c, node, replace(scope, aggregates=False))


_aggregate = partial(Function, kind=Kind.AGGREGATE)
_linear = partial(_aggregate, cost=LINEAR)
_of_numbers = partial(_linear, wrong_type="needs a number, not {0}")
_ordered_values = partial(_linear, wrong_type="does not order {0}; convert it first")
_bits = partial(_linear, keeps_name=True, wrong_type="needs a whole number, not {0}")
_two_numbers = partial(_aggregate, wrong_number="takes two values", wrong_type="needs numbers")


def _real(kinds: str, sql: str) -> Template:
    return Template(kinds, "real", sql, never_null=True)


def _deviation(function: str) -> tuple[Template, Template]:
    """R16: spread of one row is 0."""
    sql = f"coalesce({function}({{0}}){{if}}, 0)"
    return _real("r", sql), _real("p", sql)


def _bits_of(function: str) -> tuple[Template, Template]:
    sql = f"{function}({{0}}){{if}}"
    return Template("i", "int", sql), Template("l", "long", sql)


# R11: dcount and percentiles are exact here; Kusto estimates them.
# R16: sum over nothing is 0, avg over nothing is NaN, min is null.
_SUM, _DIFFERENT = "coalesce(sum({0}){if}, 0)", "count(DISTINCT {0}){if}"
OF_VALUES = (
    _of_numbers(
        "sum", "The sum of numbers or timespans.",
        Template("i", "long", f"CAST({_SUM} AS BIGINT)", never_null=True),
        Template("l", "long", f"CAST({_SUM} AS BIGINT)", never_null=True),
        Template("m", "decimal", f"CAST({_SUM} AS DECIMAL(38,12))", never_null=True),
        Template("r", "real", f"CAST({_SUM} AS DOUBLE)", never_null=True),
        Template("p", "timespan", f"CAST({_SUM} AS BIGINT)"),
    ),
    _of_numbers(
        "avg", "The mean of numbers, timespans or datetimes.",
        Template("m", "decimal", "CAST(avg({0}){if} AS DECIMAL(38,12))"),
        Template("r", "real", "coalesce(avg({0}){if}, 'NaN'::DOUBLE)"),
        Template("p", "timespan", "CAST(avg({0}){if} AS BIGINT)"),
        Template("t", "datetime", "make_timestamp(CAST(avg(epoch_us({0})){if} AS BIGINT))"),
    ),
    _ordered_values("min", "The least value.", Template("o", "0", "min({0}){if}")),
    _ordered_values("max", "The greatest value.", Template("o", "0", "max({0}){if}")),
    _linear(
        "dcount", "How many different values there are.", Template("a _*", "long", _DIFFERENT, never_null=True),
        wrong_number="needs a value",
    ),
    _linear("count_distinct", "How many different values there are.", Template("a", "long", _DIFFERENT, never_null=True)),
    _of_numbers("stdev", "The standard deviation of a sample.", *_deviation("stddev_samp")),
    _of_numbers("stdevp", "The standard deviation of a population.", *_deviation("stddev_pop")),
    _of_numbers("variance", "The variance of a sample.", *_deviation("var_samp")),
    _of_numbers("variancep", "The variance of a population.", *_deviation("var_pop")),
    _linear("take_any", "Any of the values.", Template("a _*", "0", "any_value({0}){if}"), aliases=("any",), keeps_name=True),
    _bits("binary_all_and", "The bits that all values have.", *_bits_of("bit_and")),
    _bits("binary_all_or", "The bits that any of the values has.", *_bits_of("bit_or")),
    _bits("binary_all_xor", "The bits that an odd number of the values has.", *_bits_of("bit_xor")),
)  # fmt: skip
_BY_NAME = {function.name: function for function in OF_VALUES}
COUNTIF = _linear(
    "countif", "How many rows there are for which a condition holds.",
    Template("c", "long", "count(*) FILTER (WHERE {0})", never_null=True), wrong_number="takes one condition",
)  # fmt: skip
_COVARIANCES = (
    _two_numbers("covariance", "The covariance of two values in a sample.",
                 _real("r r", "coalesce(covar_samp({0}, {1}){if}, 0)")),
    _two_numbers("covariancep", "The covariance of two values in a population.",
                 _real("r r", "coalesce(covar_pop({0}, {1}){if}, 0)")),
)  # fmt: skip


FUNCTIONS = (
    BAG_OF_BAGS,
    SCHEMA_OF,
    *OF_VALUES,
    *(
        conditional(_BY_NAME[base], f"{base}if", aliases=("anyif",) if base == "take_any" else ())
        for base in (
            "sum", "avg", "min", "max", "dcount", "count_distinct", "stdev", "variance", "variancep", "take_any",
        )
    ),
    _linear("count", "How many rows there are.", bind=_alone(_count), aliases=("cnt",)),
    COUNTIF,
    _linear("arg_max", "Columns of the row with the greatest value.", bind=_first_of, aliases=("argmax",)),
    _linear("arg_min", "Columns of the row with the least value.", bind=_first_of, aliases=("argmin",)),
    _aggregate("make_list", "An array of the values that are not null.", bind=_gathering("make_list", False),
               cost=Cost.FEW_ROWS, aliases=("makelist",)),
    _aggregate("make_set", "An array of the different values that are not null.", bind=_gathering("make_set", False),
               cost=Cost.FEW_ROWS, aliases=("makeset",)),
    _aggregate("make_list_with_nulls", "An array of the values, nulls as well.",
               bind=_gathering("make_list_with_nulls", False)),
    _aggregate("make_bag", "One bag of all bags.", bind=_gathering("make_bag", False), aliases=("make_dictionary",)),
    _aggregate("make_list_if", "An array of the values for which a condition holds.",
               bind=_gathering("make_list", True), cost=Cost.FEW_ROWS),
    _aggregate("make_set_if", "An array of the different values for which a condition holds.",
               bind=_gathering("make_set", True), cost=Cost.FEW_ROWS),
    _aggregate("make_bag_if", "One bag of the bags for which a condition holds.", bind=_gathering("make_bag", True)),
    _aggregate("hll", "The different values as a state for dcount_hll(); exact here.", bind=_gathering("hll", False)),
    _aggregate("hll_if", "hll() of the rows for which a condition holds.", bind=_gathering("hll", True)),
    _aggregate("hll_merge", "Several states of hll() as one.",
        Template(
            "d", "dynamic",
            "coalesce(to_json(list_sort(list_distinct(flatten(list(CAST({0} AS VARCHAR[])))))), '[]'::JSON)",
            never_null=True,
        ),
        wrong_number="takes one hll() state in summarize", wrong_type="needs hll() states, not {0}",
    ),
    _aggregate("buildschema", "The types of all values below each property.", bind=_alone(_buildschema)),
    *_COVARIANCES,
    *(conditional(one, f"{one.name}if", wrong_number="takes two values and a condition") for one in _COVARIANCES),
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
