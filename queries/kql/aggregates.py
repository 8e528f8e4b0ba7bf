"""Aggregate functions, their SQL on DuckDB and Kusto's names for their columns (R6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from queries.kql import syntax as ast
from queries.kql.bind import Scope
from queries.kql.errors import KqlBindError, NotImplementedYet
from queries.kql.values import NUMERIC, Value, cast_number, constant, dynamic_of, sql

if TYPE_CHECKING:
    from queries.kql.compile import Compiler

# name -> (template, result type or 0 for the argument's, prefix of the output name). {0} is the argument,
# {F} the FILTER clause of the `...if` forms.
# R11: dcount and percentiles are exact here; Kusto estimates them.
# R16: spread of one row is 0; sum over nothing is 0, avg over nothing is NaN, min is null.
SIMPLE: dict[str, tuple[str, str, str]] = {
    "sum": ("coalesce(sum({0}){F}, 0)", "sum", "sum"),
    "avg": ("coalesce(avg({0}){F}, 'NaN'::DOUBLE)", "real", "avg"),
    "min": ("min({0}){F}", "0", "min"),
    "max": ("max({0}){F}", "0", "max"),
    "dcount": ("count(DISTINCT {0}){F}", "long", "dcount"),
    "count_distinct": ("count(DISTINCT {0}){F}", "long", "count_distinct"),
    "stdev": ("coalesce(stddev_samp({0}){F}, 0)", "real", "stdev"),
    "stdevp": ("coalesce(stddev_pop({0}){F}, 0)", "real", "stdevp"),
    "variance": ("coalesce(var_samp({0}){F}, 0)", "real", "variance"),
    "variancep": ("coalesce(var_pop({0}){F}, 0)", "real", "variancep"),
    "take_any": ("any_value({0}){F}", "0", ""),
    "binary_all_and": ("bit_and({0}){F}", "long", "binary_all_and"),
    "binary_all_or": ("bit_or({0}){F}", "long", "binary_all_or"),
    "binary_all_xor": ("bit_xor({0}){F}", "long", "binary_all_xor"),
}
CONDITIONAL = {f"{n}if": n for n in SIMPLE if n != "count_distinct"} | {"count_distinctif": "count_distinct"}
LISTS = ("make_list", "make_set", "make_list_with_nulls", "make_bag")
CONDITIONAL |= {f"{n}_if": n for n in LISTS}
SPREAD = ("arg_max", "arg_min", "percentiles")
AGGREGATES = frozenset([*SIMPLE, *CONDITIONAL, *LISTS, *SPREAD, "count", "countif", "percentile"])


def bind_aggregate(c: Compiler, node: ast.Call, name: str, scope: Scope) -> Value:
    """One aggregate call as a value."""
    inner = replace(scope, aggregates=False)
    base = CONDITIONAL.get(name, name)
    args = list(node.args)
    if base == "count":
        return Value(sql("count(*)", "long").sql, "long", False, name="count_")
    if base == "countif":
        if len(args) != 1:
            raise KqlBindError("countif() takes one condition", node.span)
        counted = sql("count(*) FILTER (WHERE {0})", "long", c_bool(c, args[0], inner), nullable=False)
        return replace(counted, name="countif_")
    condition: Value | None = None
    if name in CONDITIONAL:
        if len(args) < 2:
            raise KqlBindError(f"{node.name}() takes a value and a condition", node.span)
        condition = c_bool(c, args.pop(1), inner)
    if base in LISTS:
        return _listing(c, node, base, args, condition, inner)
    if base == "percentile":
        return _percentile(c, node, args, inner)
    if base in SPREAD:
        raise NotImplementedYet(f"{node.name}() inside another expression is not implemented yet", node.span)
    if not args or (len(args) > 1 and base not in ("dcount", "take_any")):
        raise KqlBindError(f"{node.name}() does not take {len(args)} arguments", node.span)
    value = c.expr(args[0], inner)
    return _simple(node, name, base, value, condition)


def c_bool(c: Compiler, node: ast.Node, scope: Scope) -> Value:
    """A condition argument."""
    from queries.kql.expressions import boolean

    return boolean(c, node, scope)


def output_name(prefix: str, value: Value) -> str:
    """R6: sum(X) is sum_X; an argument without a name leaves the bare prefix."""
    if not prefix:
        return value.name or ""
    return f"{prefix}_{value.name or ''}"


def _simple(node: ast.Call, name: str, base: str, value: Value, condition: Value | None) -> Value:
    template, result, prefix = SIMPLE[base]
    prefix = name if name in CONDITIONAL and prefix else prefix
    kind = {"0": value.type, "sum": "long" if value.type == "int" else value.type}.get(result, result)
    if base in ("sum", "avg", "stdev", "stdevp", "variance", "variancep") and value.type not in (*NUMERIC, "timespan"):
        raise KqlBindError(f"{node.name}() needs a number, not {value.type}", node.span)
    if base in ("min", "max") and value.type in ("dynamic", "bool"):
        raise KqlBindError(f"{node.name}() does not order {value.type}", node.span)
    if value.type == "timespan" and base == "avg":
        template, kind = "CAST(avg({0}){F} AS BIGINT)", "timespan"
    elif base == "sum":
        physical = {"real": "DOUBLE", "decimal": "DECIMAL(38,12)"}.get(kind, "BIGINT")
        template = f"CAST({template} AS {physical})"
    elif base in ("stdev", "stdevp", "variance", "variancep", "avg"):
        value = replace(cast_number(value, "real"), name=value.name) if value.type != "decimal" else value
    if base in ("dcount", "count_distinct") and value.type == "string":
        pass  # R1: the empty string counts as a value
    parts = [value] + ([condition] if condition else [])
    filled = template.replace("{F}", " FILTER (WHERE {1})" if condition else "")
    made = sql(filled, kind, *parts, nullable=True)
    name_out = output_name("any" if node.name == "any" else prefix, value)
    return Value(
        made.sql, made.type, (made.nullable and base in ("min", "max", "take_any")) or kind == "timespan", name=name_out
    )


def _listing(
    c: Compiler, node: ast.Call, base: str, args: list[ast.Node], condition: Value | None, scope: Scope
) -> Value:
    value = c.expr(args[0], scope)
    limit = c.expr(args[1], scope) if len(args) > 1 else None
    if limit is not None and not limit.is_constant:
        raise KqlBindError(f"{node.name}() needs a constant limit", args[1].span)
    item = dynamic_of(value)
    prefix = {"make_list": "list", "make_set": "set", "make_list_with_nulls": "list", "make_bag": "bag"}[base]
    name = f"{prefix}_{value.name or ''}"
    tests = [] if base == "make_list_with_nulls" else ["{0} IS NOT NULL"]
    parts = [item]
    if condition:
        parts.append(condition)
        tests.append("{1}")
    where = f" FILTER (WHERE {' AND '.join(tests)})" if tests else ""
    if base == "make_bag":
        if value.type != "dynamic":
            raise KqlBindError("make_bag() needs property bags", node.span)
        if limit is not None:
            raise NotImplementedYet("make_bag() with a limit is not implemented yet", node.span)
        return replace(_bag(parts[0], condition), name=name)
    if base == "make_set":
        # The order inside a set is unspecified in Kusto; sorted, the answer is the same every time.
        if value.type in ("string", "int", "long"):
            parts[0] = value
        inner = f"list_sort(list_distinct(list({{0}}){where}))"
    else:
        inner = f"list({{0}}){where}"
    if limit is not None:
        parts.append(constant(limit.constant, "long"))
        inner = f"({inner})[1 : {{{len(parts) - 1}}}]"
    made = sql(f"coalesce(to_json({inner}), '[]'::JSON)", "dynamic", *parts, nullable=False)
    return replace(made, name=name)


def _bag(item: Value, condition: Value | None) -> Value:
    """One bag of all bags; a key that comes twice has no documented winner, so that is refused unless equal."""
    kept = "json_type({0}) = 'OBJECT'" + (" AND {1}" if condition else "")
    pairs = (
        (
            "list_sort(list_distinct(flatten(list(list_transform(json_keys({0}), lambda kx: {{'k': kx, 'v': json_extract({0}, "
            "'$.\"' || replace(replace(kx, '\\', '\\\\'), '\"', '\\\"') || '\"')}})) FILTER (WHERE "
        )
        .replace("{{", "{")
        .replace("}}", "}")
        + kept
        + "))))"
    )
    keys = f"list_transform({pairs}, lambda kp: kp.k)"
    text = f"array_to_string(list_transform({pairs}, lambda kp: to_json(kp.k) || ':' || kp.v), ',')"
    twice = f"len({keys}) <> len(list_distinct({keys}))"
    template = (
        f"CASE WHEN {twice} THEN error('kql: make_bag() met two values for one key') "
        f"ELSE CAST('{{' || coalesce({text}, '') || '}}' AS JSON) END"
    )
    return sql(template, "dynamic", item, *([condition] if condition else []), nullable=False)


def percentile_of(value: Value, wanted: Value, node: ast.Call) -> Value:
    """R11: the nearest rank, an existing value."""
    if value.type not in (*NUMERIC, "datetime", "timespan"):
        raise KqlBindError(f"{node.name}() does not take {value.type}", node.span)
    if not wanted.is_constant or wanted.type not in NUMERIC:
        raise KqlBindError(f"{node.name}() needs a constant percentage", node.span)
    fraction = constant(float(wanted.constant) / 100.0, "real")
    label = f"{wanted.constant:g}".replace(".", "_")
    made = sql("quantile_disc({0}, {1})", value.type, value, fraction, nullable=True)
    return replace(made, name=f"percentile_{value.name or ''}_{label}")


def _percentile(c: Compiler, node: ast.Call, args: list[ast.Node], scope: Scope) -> Value:
    if len(args) != 2:
        raise KqlBindError("percentile() takes a value and a percentage", node.span)
    return percentile_of(c.expr(args[0], scope), c.expr(args[1], scope), node)


# With no key that is not null, any row is the best one.
_BEST = "CASE WHEN {N} IS NULL THEN first({0}) ELSE {A}({0}, {1}) END"


def spread(c: Compiler, node: ast.Call, scope: Scope, keys: list[str]) -> list[tuple[str, Value]]:
    """The aggregates that make several columns: arg_max, arg_min, percentiles, take_any with many."""
    inner = replace(scope, aggregates=False)
    if node.name == "percentiles":
        value = c.expr(node.args[0], inner)
        made = [percentile_of(value, c.expr(a, inner), node) for a in node.args[1:]]
        return [(m.name or "", m) for m in made]
    if node.name in ("take_any", "any"):
        return [
            (v.name or "", sql("any_value({0})", v.type, v, nullable=True)) for v in _expand(c, node.args, inner, keys)
        ]
    key = c.expr(node.args[0], inner)
    function = "arg_max_null" if node.name in ("arg_max", "argmax") else "arg_min_null"
    best = "max" if function == "arg_max_null" else "min"
    key_name = key.name or f"{best}_"
    out = [(key_name, sql(f"{best}({{0}})", key.type, key, nullable=True))]
    for value in _expand(c, node.args[1:], inner, [*keys, key_name]):
        out.append(
            (
                value.name or "",
                sql(
                    _BEST.replace("{N}", f"{best}({{1}})").replace("{A}", function),
                    value.type,
                    value,
                    key,
                    nullable=True,
                ),
            )
        )
    return out


def _expand(c: Compiler, args: tuple[ast.Node, ...], scope: Scope, skip: list[str]) -> list[Value]:
    out: list[Value] = []
    for arg in args:
        if isinstance(arg, ast.Star):
            out += [v for n, v in scope.columns.items() if n not in skip]
        else:
            out.append(c.expr(arg, scope))
    return out
