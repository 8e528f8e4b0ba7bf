"""Functions whose arguments are not all plain values, or whose SQL depends on their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.conversion import parse_json, to_type
from queries.kql.errors import KqlBindError, NotImplementedYet
from queries.kql.operations import arithmetic, check_regex
from queries.kql.regex import group_count
from queries.kql.stages import Scope
from queries.kql.values import NUMERIC, Value, bag_of, cast_number, constant, dynamic_of, sql, text_of, unify, widest

Special = Callable[[Binder, ast.Call, Scope], Value]


def _args(c: Binder, node: ast.Call, scope: Scope, low: int, high: int | None = None) -> list[Value]:
    high = low if high is None else high
    if not low <= len(node.args) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise KqlBindError(f"{node.name}() takes {wanted} arguments, not {len(node.args)}", node.span)
    return [c.expr(a, scope) for a in node.args]


def _now(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = _args(c, node, scope, 0, 1)
    moment = constant(c.now, "datetime")
    return arithmetic("+", moment, args[0], node.span) if args else moment


def _ago(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (span,) = _args(c, node, scope, 1)
    if span.type != "timespan":
        raise KqlBindError(f"ago() needs a timespan, not {span.type}", node.args[0].span)
    return arithmetic("-", constant(c.now, "datetime"), span, node.span)


def _strcat(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = [text_of(v) for v in _args(c, node, scope, 1, 64)]
    return sql("(" + " || ".join(f"{{{i}}}" for i in range(len(args))) + ")", "string", *args)


def _strcat_delim(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = [text_of(v) for v in _args(c, node, scope, 2, 64)]
    return sql("concat_ws(" + ", ".join(f"{{{i}}}" for i in range(len(args))) + ")", "string", *args)


def _iff(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 3:  # bound once only: nested calls would double the work at each level
        raise KqlBindError(f"{node.name}() takes 3 arguments, not {len(node.args)}", node.span)
    test = c.condition(node.args[0], scope)
    yes, no = unify([c.expr(a, scope) for a in node.args[1:]], "iff()", to_type)
    return sql("CASE WHEN {0} THEN {1} ELSE {2} END", yes.type, test, yes, no, nullable=yes.nullable or no.nullable)


def _case(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) < 3 or len(node.args) % 2 == 0:
        raise KqlBindError("case() takes pairs of condition and value, and a last value", node.span)
    tests = [c.condition(a, scope) for a in node.args[:-1:2]]
    values = unify([c.expr(a, scope) for a in (*node.args[1:-1:2], node.args[-1])], "case()", to_type)
    whens = " ".join(f"WHEN {{{i}}} THEN {{{len(tests) + i}}}" for i in range(len(tests)))
    template = f"CASE {whens} ELSE {{{2 * len(tests)}}} END"
    return sql(template, values[0].type, *tests, *values, nullable=any(v.nullable for v in values))


def _coalesce(c: Binder, node: ast.Call, scope: Scope) -> Value:
    values = unify(_args(c, node, scope, 1, 64), "coalesce()", to_type)
    if values[0].type == "string":  # R1: an empty string is what a missing one is
        holes = ", ".join(f"nullif({{{i}}}, '')" for i in range(len(values)))
        return sql(f"coalesce({holes}, '')", "string", *values)
    return sql("coalesce({*})", values[0].type, *values, nullable=all(v.nullable for v in values))


def _extreme(name: str) -> Special:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        values = unify(_args(c, node, scope, 1, 64), node.name + "()")
        return sql(f"{name}({{*}})", values[0].type, *values)

    return build


def _floored(value: str, size: str) -> str:
    """The multiple of `size` at or below `value`; SQL's own division truncates towards zero."""
    return f"({value} - (({value} % nullif({size}, 0)) + {size}) % {size})"


_YEAR_1 = 62_135_596_800_000_000  # microseconds from there to 1970
_UNITS = {10_000_000: "second", 600_000_000: "minute", 36_000_000_000: "hour", 864_000_000_000: "day"}


def _bin(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """R7: floor from 1970-01-01, UTC, for numbers, datetimes and timespans."""
    if node.name == "floor" and len(node.args) == 1:
        return sql("floor({0})", "real", cast_number(c.expr(node.args[0], scope), "real"))
    value, size = _args(c, node, scope, 2)
    return replace(bin_of(value, size, node), name=value.name)


def bin_of(value: Value, size: Value, node: ast.Node) -> Value:
    """bin() of bound values."""
    if value.type == "dynamic":
        raise KqlBindError("bin() needs a typed value; convert the dynamic first", node.span)
    if value.type == "datetime" and size.type == "timespan":
        unit = _UNITS.get(size.constant) if size.is_constant else None
        if unit:  # the same moment, and half the work
            return sql(f"CAST(date_trunc('{unit}', {{0}}) AS TIMESTAMP)", "datetime", value, nullable=True)
        if size.is_constant and (step := (size.constant or 0) // 10) > 0:
            # Counted from a multiple of the step before the year 1, division has no sign to mind: a third of the work.
            before = (_YEAR_1 // step + 1) * step
            template = f"make_timestamp((epoch_us({{0}}) + {before}) // {step} * {step} - {before})"
            return sql(template, "datetime", value, nullable=True)
        return sql(
            f"make_timestamp({_floored('epoch_us({0})', '({1} // 10)')})", "datetime", value, size, nullable=True
        )
    if value.type == "timespan" and size.type == "timespan":
        return sql(_floored("{0}", "{1}"), "timespan", value, size, nullable=True)
    if value.type in NUMERIC and size.type in NUMERIC:
        kind = widest([value.type, size.type, "long"])
        value, size = cast_number(value, kind), cast_number(size, kind)
        if kind == "long":
            return sql(_floored("{0}", "{1}"), kind, value, size, nullable=True)
        return sql("(floor({0} / nullif({1}, 0)) * {1})", kind, value, size, nullable=True)
    raise KqlBindError(f"bin() does not take {value.type} in steps of {size.type}", node.span)


def _bin_at(c: Binder, node: ast.Call, scope: Scope) -> Value:
    value, size, origin = _args(c, node, scope, 3)
    kinds = (value.type, size.type, origin.type)
    if kinds == ("datetime", "timespan", "datetime"):
        template = "make_timestamp(epoch_us({2}) + " + _floored("(epoch_us({0}) - epoch_us({2}))", "({1} // 10)") + ")"
        made = sql(template, "datetime", value, size, origin, nullable=True)
    elif kinds == ("timespan",) * 3:
        made = sql("({2} + " + _floored("({0} - {2})", "{1}") + ")", "timespan", value, size, origin, nullable=True)
    elif not {value.type, size.type, origin.type} <= set(NUMERIC):
        raise KqlBindError(f"bin_at() does not take {value.type} in steps of {size.type} from {origin.type}", node.span)
    else:
        kind = widest([value.type, size.type, origin.type])
        value, size, origin = (cast_number(v, kind) for v in (value, size, origin))
        made = sql("({2} + floor(({0} - {2}) / nullif({1}, 0)) * {1})", kind, value, size, origin, nullable=True)
    return replace(made, name=value.name)


def _extract(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """R10: extract(regex, group, text)."""
    if len(node.args) not in (3, 4):
        raise KqlBindError("extract() takes a regex, a group number and a text", node.span)
    pattern, group, text = (c.expr(a, scope) for a in node.args[:3])
    check_regex(pattern, node.args[0].span)
    if group.type not in ("int", "long") or not group.is_constant:
        raise NotImplementedYet("extract() needs a constant group number", node.args[1].span)
    if pattern.is_constant and group.constant > group_count(str(pattern.constant)):
        return constant("", "string")
    group = constant(group.constant, "int")
    made = sql("regexp_extract({0}, {1}, {2})", "string", text_of(text), text_of(pattern), group)
    if len(node.args) == 4:
        wanted = node.args[3]
        if not isinstance(wanted, ast.TypeOf):
            raise KqlBindError("the fourth argument of extract() is typeof(...)", wanted.span)
        return to_type(made, wanted.type)
    return made


def _split(c: Binder, node: ast.Call, scope: Scope) -> Value:
    args = _args(c, node, scope, 2, 3)
    text, by = text_of(args[0]), text_of(args[1])
    if len(args) == 3:
        return sql(
            "to_json(list_filter([string_split({0}, {1})[{2} + 1]], lambda kx: kx IS NOT NULL))",
            "dynamic",
            text,
            by,
            args[2],
        )
    return sql("to_json(string_split({0}, {1}))", "dynamic", text, by)


def _converter(kind: str) -> Special:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        (value,) = _args(c, node, scope, 1)
        return replace(to_type(value, kind), name=value.name)

    return build


def _parse_json(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (value,) = _args(c, node, scope, 1)
    made = parse_json(value) if value.type == "string" else dynamic_of(value)
    return replace(made, name=value.name)


def _toscalar(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 1:
        raise KqlBindError("toscalar() takes one argument", node.span)
    stage = c.as_table(node.args[0], Scope(scope.env))
    return c.scalar_of(stage) if stage else c.expr(node.args[0], Scope(scope.env))


def _pack_array(c: Binder, node: ast.Call, scope: Scope) -> Value:
    values = [dynamic_of(c.expr(a, scope)) for a in node.args]
    return sql("json_list([{*}]::JSON[])", "dynamic", *values, nullable=False)


def _bag_pack(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) % 2:
        raise KqlBindError(f"{node.name}() takes pairs of key and value", node.span)
    parts = []
    for place, arg in enumerate(node.args):
        value = c.expr(arg, scope)
        parts.append(text_of(value) if place % 2 == 0 else dynamic_of(value))
    return bag_of(parts)


def _column_ifexists(c: Binder, node: ast.Call, scope: Scope) -> Value:
    name, fallback = _args(c, node, scope, 2)
    return scope.columns.get(str(name.constant)) or replace(fallback, name=None)


def _array_slice(c: Binder, node: ast.Call, scope: Scope) -> Value:
    array, low, high = _args(c, node, scope, 3)
    n = "CAST(json_array_length({0}) AS BIGINT)"
    place = f"(CASE WHEN {{N}} < 0 THEN greatest({n} + {{N}}, 0) ELSE {{N}} END + 1)"
    return sql(
        f"CASE WHEN json_type({{0}}) = 'ARRAY' THEN json_list(TRY_CAST({{0}} AS JSON[])[{place.replace('{N}', '{1}')}"
        f" : {place.replace('greatest(', '(').replace(', 0)', ')').replace('{N}', '{2}')}]) END",
        "dynamic", array, low, high, nullable=True,
    )  # fmt: skip


def _set_operation(template: str) -> Special:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        values = _args(c, node, scope, 2, 64)
        for value in values:
            if value.type != "dynamic":
                raise KqlBindError(f"{node.name}() needs dynamic arrays, not {value.type}", value.span)
        # First-seen order, as Kusto shows it.
        distinct = "list_unique(TRY_CAST({0} AS JSON[]))"
        made = sql(distinct, "dynamic", values[0])
        for value in values[1:]:
            made = sql(template.replace("{U}", distinct.replace("{0}", "{1}")), "dynamic", made, value)
        guard = "CASE WHEN json_type({1}) = 'ARRAY' THEN json_list({0}) END"
        return sql(guard, "dynamic", made, values[0], nullable=True)

    return build


def _base_name(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (value,) = _args(c, node, scope, 1)
    kind = {"bool": "bool", "real": "real"}.get(value.type, value.type)
    if kind == "dynamic":
        return sql(
            "CASE json_type({0}) WHEN 'OBJECT' THEN 'dictionary' WHEN 'ARRAY' THEN 'array' WHEN 'VARCHAR' THEN 'string' "
            "WHEN 'DOUBLE' THEN 'double' WHEN 'BOOLEAN' THEN 'bool' WHEN 'BIGINT' THEN 'long' WHEN 'UBIGINT' THEN 'long' "
            "ELSE 'null' END",
            "string", value,
        )  # fmt: skip
    return constant(kind, "string")


SPECIAL: dict[str, Special] = {
    "now": _now, "ago": _ago, "strcat": _strcat, "strcat_delim": _strcat_delim, "iff": _iff, "case": _case,
    "coalesce": _coalesce, "max_of": _extreme("greatest"), "min_of": _extreme("least"), "bin": _bin, "bin_at": _bin_at,
    "extract": _extract, "split": _split, "toscalar": _toscalar,
    "parse_json": _parse_json, "pack_array": _pack_array, "bag_pack": _bag_pack,
    "column_ifexists": _column_ifexists, "array_slice": _array_slice, "gettype": _base_name,
    "set_union": _set_operation("list_concat({0}, list_filter({U}, lambda kx: NOT list_contains({0}, kx)))"),
    "set_difference": _set_operation("list_filter({0}, lambda kx: NOT list_contains(TRY_CAST({1} AS JSON[]), kx))"),
    "set_intersect": _set_operation("list_filter({0}, lambda kx: list_contains(TRY_CAST({1} AS JSON[]), kx))"),
} | {
    f"to{word}": _converter(kind)
    for word, kind in (
        ("string", "string"), ("int", "int"), ("long", "long"), ("double", "real"), ("decimal", "decimal"),
        ("bool", "bool"), ("datetime", "datetime"), ("timespan", "timespan"), ("guid", "guid"),
    )
}  # fmt: skip
