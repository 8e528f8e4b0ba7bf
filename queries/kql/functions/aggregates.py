"""Aggregate functions, their SQL on DuckDB and Kusto's names for their columns (R6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from queries.kql import official
from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError
from queries.kql.functions.python import call as python_call
from queries.kql.stages import Scope
from queries.kql.values import NUMERIC, Value, cast_number, constant, dynamic_of, plain, sql, text_of

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
    "binary_all_and": ("bit_and({0}){F}", "0", ""),
    "binary_all_or": ("bit_or({0}){F}", "0", ""),
    "binary_all_xor": ("bit_xor({0}){F}", "0", ""),
}
CONDITIONAL = {f"{n}if": n for n in SIMPLE}
LISTS = ("make_list", "make_set", "make_list_with_nulls", "make_bag")
CONDITIONAL |= {f"{n}_if": n for n in LISTS} | {"hll_if": "hll"}
CONDITIONAL = {n: base for n, base in CONDITIONAL.items() if n in official.AGGREGATES}
SPREAD = ("arg_max", "arg_min", "percentiles", "percentilesw")
AGGREGATES = frozenset([*SIMPLE, *CONDITIONAL, *LISTS, *SPREAD, "count", "countif", "percentile", "percentilew",
                        "percentiles_array", "percentilesw_array", "covariance", "covariancep", "covarianceif",
                        "covariancepif", "hll", "hll_merge", "buildschema"])  # fmt: skip
Bind = Callable[[Binder, ast.Call, Scope], Value]


def bind_aggregate(c: Binder, node: ast.Call, name: str, scope: Scope) -> Value:
    """One aggregate call as a value."""
    inner = replace(scope, aggregates=False)
    base = CONDITIONAL.get(name, name)
    if base in OTHERS:
        return OTHERS[base](c, node, inner)
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
    if base in SPREAD:
        return _first_of(c, node, scope)
    if not args or (len(args) > 1 and base not in ("dcount", "take_any")):
        raise KqlBindError(f"{node.name}() does not take {len(args)} arguments", node.span)
    value = c.expr(args[0], inner)
    return _simple(node, name, base, value, condition)


def _first_of(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """arg_max() and its kin inside another expression: its first column, the others by [n]."""
    parts = spread(c, node, scope, [])
    return replace(parts[0][1], name=parts[0][0], parts=tuple(parts))


def output_name(prefix: str, value: Value) -> str:
    """R6: sum(X) is sum_X; an argument without a name leaves the bare prefix."""
    if not prefix:
        return value.name or ""
    return f"{prefix}_{value.name or ''}"


def _count(c: Binder, node: ast.Call, scope: Scope) -> Value:
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
    template, result, prefix = SIMPLE[base]
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
        return replace(python_call("bag_of_bags", [gathered, most], node), name=name)
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


def _share(c: Binder, node: ast.Call, arg: ast.Node, scope: Scope) -> list[Value]:
    """One percentage, or the constants of an array."""
    wanted = c.expr(arg, scope)
    if wanted.type == "dynamic" and wanted.is_constant and isinstance(plain(wanted.constant), list):
        return [constant(float(p), "real") for p in plain(wanted.constant)]
    if wanted.type not in NUMERIC:
        raise KqlBindError(f"{node.name}() needs a percentage, not {wanted.type}", arg.span)
    return [wanted]


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
        template = "list_sort(list({0}) FILTER (WHERE {0} IS NOT NULL))[greatest(1, CAST(ceil({1} / 100.0 * count({0})) AS BIGINT))]"
        made = sql(template, value.type, value, wanted, nullable=True)
    return replace(made, name=f"percentile_{value.name or ''}_{label}")


def weighted_of(value: Value, weight: Value, wanted: Value, node: ast.Call) -> Value:
    """The nearest rank where each value counts as often as its weight says."""
    value = _ranked(value, node)
    if weight.type not in ("int", "long"):
        raise KqlBindError(f"{node.name}() needs whole numbers as weights, not {weight.type}", node.span)
    number = sql("epoch_us({0})", "long", value) if value.type == "datetime" else value
    lists = [sql("coalesce(to_json(list({0})), '[]'::JSON)", "dynamic", v, nullable=False) for v in (number, weight)]
    found = python_call("weighted_rank", [*lists, cast_number(wanted, "real")], node)
    template = (
        "make_timestamp(CAST({0} AS BIGINT))"
        if value.type == "datetime"
        else f"TRY_CAST({{0}} AS {_RANKED[value.type]})"
    )
    made = sql(template, value.type, found, nullable=True)
    label = f"{wanted.constant:g}".replace(".", "_") if wanted.is_constant else ""
    return replace(made, name=f"percentile_{value.name or ''}_{label}")


_RANKED = {"long": "BIGINT", "int": "BIGINT", "timespan": "BIGINT", "real": "DOUBLE", "decimal": "DECIMAL(38,12)"}


def _percentiles(c: Binder, node: ast.Call, scope: Scope, weighted: bool) -> list[Value]:
    head = 2 if weighted else 1
    if len(node.args) <= head:
        raise KqlBindError(f"{node.name}() takes a value{', a weight' if weighted else ''} and percentages", node.span)
    first = [c.expr(a, scope) for a in node.args[:head]]
    shares = [s for a in node.args[head:] for s in _share(c, node, a, scope)]
    return [weighted_of(first[0], first[1], s, node) if weighted else percentile_of(first[0], s, node) for s in shares]


def _one_percentile(weighted: bool) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        found = _percentiles(c, node, scope, weighted)
        if len(found) != 1:
            raise KqlBindError(f"{node.name}() takes one percentage", node.span)
        return found[0]

    return build


def _percentile_array(weighted: bool) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        found = _percentiles(c, node, scope, weighted)
        named = c.expr(node.args[0], scope)
        made = sql("json_list([{*}]::JSON[])", "dynamic", *(dynamic_of(f) for f in found), nullable=False)
        return replace(made, name=f"percentiles_{named.name or ''}")

    return build


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
    return replace(python_call("schema_of", [gathered], node), name=f"schema_{value.name or ''}")


# With no key that is not null, any row is the best one.
_BEST = "CASE WHEN {N} IS NULL THEN first({0}) ELSE {A}({0}, {1}) END"


def spread(c: Binder, node: ast.Call, scope: Scope, keys: list[str]) -> list[tuple[str, Value]]:
    """The aggregates that make several columns: arg_max, arg_min, percentiles, take_any with many."""
    inner = replace(scope, aggregates=False)
    if node.name in ("percentiles", "percentilesw"):
        made = _percentiles(c, node, inner, node.name == "percentilesw")
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


OTHERS: dict[str, Bind] = {
    "count": _count, "countif": _countif, "percentile": _one_percentile(False), "percentilew": _one_percentile(True),
    "percentiles_array": _percentile_array(False), "percentilesw_array": _percentile_array(True), "hll_merge": _hll_merge,
    "buildschema": _buildschema, **dict.fromkeys(("covariance", "covariancep", "covarianceif", "covariancepif"), _covariance),
}  # fmt: skip
