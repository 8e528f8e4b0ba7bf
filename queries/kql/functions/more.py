"""Addresses, formats, bags and arrays: functions built from other functions rather than from one template."""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError, NotImplementedYet
from queries.kql.functions.special import Special, _args
from queries.kql.functions.tables import _IPV4, PARSE_IPV4
from queries.kql.stages import Scope
from queries.kql.values import Value, bag_of, constant, dynamic_of, sql, text_of

_LENGTH = "coalesce(TRY_CAST(split_part({0}, '/', 2) AS INTEGER), 32)"


def _address(value: Value) -> Value:
    """The address alone as a number, whatever prefix follows it."""
    return sql(PARSE_IPV4, "long", sql("split_part({0}, '/', 1)", "string", value), nullable=True)


def _valid(value: Value) -> Value:
    return sql(f"regexp_matches({{0}}, '{_IPV4}')", "bool", value)


def _masked(first: Value, second: Value, prefix: Value | None) -> tuple[Value, Value]:
    """Both addresses under the shortest of the prefixes: what ipv4_compare and ipv4_is_match look at."""
    lengths = [sql(_LENGTH, "long", v) for v in (first, second)] + ([prefix] if prefix else [])
    size = sql("least({*})", "long", *lengths)
    shift = "shift_right({0}, 32 - {1})"
    return sql(shift, "long", _address(first), size), sql(shift, "long", _address(second), size)


def _ipv4_pair(template: str, kind: str) -> Special:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        args = _args(c, node, scope, 2, 3)
        first, second = text_of(args[0]), text_of(args[1])
        left, right = _masked(first, second, args[2] if len(args) == 3 else None)
        guard = f"CASE WHEN {{2}} AND {{3}} THEN {template} END"
        return sql(guard, kind, left, right, _valid(first), _valid(second), nullable=True)

    return build


def _in_range(address: Value, network: Value) -> Value:
    size = sql(_LENGTH, "long", network)
    template = "CASE WHEN {3} AND {4} THEN shift_right({0}, 32 - {2}) = shift_right({1}, 32 - {2}) END"
    parts = (_address(address), _address(network), size, _valid(address), _valid(network))
    return sql(template, "bool", *parts, nullable=True)


def _ipv4_is_in_range(c: Binder, node: ast.Call, scope: Scope) -> Value:
    address, network = _args(c, node, scope, 2)
    return _in_range(text_of(address), text_of(network))


def _ipv4_netmask_suffix(c: Binder, node: ast.Call, scope: Scope) -> Value:
    (value,) = _args(c, node, scope, 1)
    return sql(f"CASE WHEN {{1}} THEN {_LENGTH} END", "long", text_of(value), _valid(text_of(value)), nullable=True)


# .NET's custom letters that Kusto documents, as strftime says them; None where strftime has no such spelling.


def _bag_pack_columns(c: Binder, node: ast.Call, scope: Scope) -> Value:
    parts = []
    for arg in node.args:
        value = c.expr(arg, scope)
        if not isinstance(arg, ast.Name):
            raise KqlBindError("bag_pack_columns() takes columns", arg.span)
        parts += [constant(arg.name, "string"), dynamic_of(value)]
    return bag_of(parts)


def _translate(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """The last replacement letter serves all searched letters beyond it; none at all removes them."""
    old, new, text = _args(c, node, scope, 3)
    if not (old.is_constant and new.is_constant):
        raise NotImplementedYet("translate() needs constant lists of letters", node.span)
    filled = str(new.constant)
    if filled:
        filled = filled.ljust(len(old.constant), filled[-1])
    return sql("translate({0}, {1}, {2})", "string", text_of(text), old, constant(filled, "string"))


def _shift(sign: int) -> Special:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        args = _args(c, node, scope, 2, 3)
        if args[0].type != "dynamic":
            raise KqlBindError(f"{node.name}() needs an array, not {args[0].type}", node.span)
        fill = dynamic_of(args[2]) if len(args) == 3 else constant(None, "dynamic")
        place = f"(ki + {sign} * {{1}})"
        picked = f"CASE WHEN {place} BETWEEN 1 AND len(TRY_CAST({{0}} AS JSON[])) THEN TRY_CAST({{0}} AS JSON[])[{place}] ELSE {{2}} END"
        template = f"json_list(list_transform(range(1, len(TRY_CAST({{0}} AS JSON[])) + 1), lambda ki: {picked}))"
        guarded = f"CASE WHEN json_type({{0}}) = 'ARRAY' THEN {template} END"
        return sql(guarded, "dynamic", args[0], args[1], fill, nullable=True)

    return build


MORE: dict[str, Special] = {
    "ipv4_compare": _ipv4_pair("CAST(sign({0} - {1}) AS BIGINT)", "long"), "ipv4_is_match": _ipv4_pair("({0} = {1})", "bool"),
    "ipv4_is_in_range": _ipv4_is_in_range, "ipv4_netmask_suffix": _ipv4_netmask_suffix,
    "bag_pack_columns": _bag_pack_columns,
    "translate": _translate, "array_shift_left": _shift(1), "array_shift_right": _shift(-1),
}  # fmt: skip
