"""Addresses, formats, bags and arrays: functions built from other functions rather than from one template."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from queries.kql import syntax as ast
from queries.kql.bind import Scope
from queries.kql.errors import KqlBindError, NotImplementedYet
from queries.kql.functions.special import Special, _args
from queries.kql.functions.tables import _IPV4, PARSE_IPV4
from queries.kql.values import Value, constant, dynamic_of, plain, sql, text_of

if TYPE_CHECKING:
    from queries.kql.compile import Compiler

_LENGTH = "coalesce(TRY_CAST(split_part({0}, '/', 2) AS INTEGER), 32)"

_MARKS = re.compile("[\uf000-\uf8ff]")


def _address(value: Value) -> Value:
    """The address alone as a number, whatever prefix follows it."""
    return sql(PARSE_IPV4, "long", sql("split_part({0}, '/', 1)", "string", value), nullable=True)


def _valid(value: Value) -> Value:
    return sql(f"regexp_matches({{0}}, '{_IPV4}')", "bool", value)


def _masked(first: Value, second: Value, prefix: Value | None) -> tuple[Value, Value]:
    """Both addresses under the shortest of the prefixes: what ipv4_compare and ipv4_is_match look at."""
    lengths = [sql(_LENGTH, "long", v) for v in (first, second)] + ([prefix] if prefix else [])
    size = sql("least({*})", "long", *lengths)
    shift = "({0} >> (32 - {1}))"
    return sql(shift, "long", _address(first), size), sql(shift, "long", _address(second), size)


def _ipv4_pair(template: str, kind: str) -> Special:
    def build(c: Compiler, node: ast.Call, scope: Scope) -> Value:
        args = _args(c, node, scope, 2, 3)
        first, second = text_of(args[0]), text_of(args[1])
        left, right = _masked(first, second, args[2] if len(args) == 3 else None)
        guard = f"CASE WHEN {{2}} AND {{3}} THEN {template} END"
        return sql(guard, kind, left, right, _valid(first), _valid(second), nullable=True)

    return build


def _in_range(address: Value, network: Value) -> Value:
    size = sql(_LENGTH, "long", network)
    template = "CASE WHEN {3} AND {4} THEN ({0} >> (32 - {2})) = ({1} >> (32 - {2})) END"
    parts = (_address(address), _address(network), size, _valid(address), _valid(network))
    return sql(template, "bool", *parts, nullable=True)


def _ipv4_is_in_range(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    address, network = _args(c, node, scope, 2)
    return _in_range(text_of(address), text_of(network))


def _ipv4_is_in_any_range(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    address, *networks = _args(c, node, scope, 2, 64)
    flat: list[Value] = []
    for network in networks:
        if network.type == "dynamic":
            if not network.is_constant or not isinstance(network.constant, list):
                raise NotImplementedYet(f"{node.name}() needs constant ranges", network.span)
            flat += [constant(str(m), "string") for m in plain(network.constant)]
        else:
            flat.append(text_of(network))
    tests = [_in_range(text_of(address), n) for n in flat]
    joined = " OR ".join(f"coalesce({{{i}}}, false)" for i in range(len(tests)))
    return sql(f"({joined})", "bool", *tests, nullable=False)


def _ipv4_netmask_suffix(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    (value,) = _args(c, node, scope, 1)
    return sql(f"CASE WHEN {{1}} THEN {_LENGTH} END", "long", text_of(value), _valid(text_of(value)), nullable=True)


# .NET's custom letters that Kusto documents, as strftime says them; None where strftime has no such spelling.
_DATE_LETTERS = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "M": "%-m", "dd": "%d", "d": "%-d", "HH": "%H", "H": "%-H", "hh": "%I",
    "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "tt": "%p", "fff": "%g", "ffffff": "%f",
}  # fmt: skip


def _runs(text: str, node: ast.Call) -> list[str]:
    out = [m[0] for m in re.finditer(r"([A-Za-z])\1*|[^A-Za-z]+", text)]
    if not out:
        raise KqlBindError(f"{node.name}() needs a constant format", node.span)
    return out


def _format_datetime(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    moment, layout = _args(c, node, scope, 2)
    if moment.type != "datetime" or not layout.is_constant:
        raise KqlBindError("format_datetime() takes a datetime and a constant format", node.span)
    pattern = ""
    for run in _runs(str(layout.constant), node):
        if run.isascii() and run.isalpha():
            if run not in _DATE_LETTERS:
                raise NotImplementedYet(f"'{run}' in a date format is not implemented yet", layout.span)
            pattern += _DATE_LETTERS[run]
        else:
            pattern += run.replace("%", "%%")
    return sql("strftime({0}, {1})", "string", moment, constant(pattern, "string"))


def _format_timespan(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    span, layout = _args(c, node, scope, 2)
    if span.type != "timespan" or not layout.is_constant:
        raise KqlBindError("format_timespan() takes a timespan and a constant format", node.span)
    sizes = {"d": "abs({0}) // 864000000000", "h": "abs({0}) // 36000000000 % 24", "H": "abs({0}) // 36000000000 % 24",
             "m": "abs({0}) // 600000000 % 60", "s": "abs({0}) // 10000000 % 60"}  # fmt: skip
    parts, literals = [], [span]
    for run in _runs(str(layout.constant), node):
        if run[0] in sizes and (run[0] == "d" or len(run) <= 2):
            parts.append(f"printf('%0{len(run)}d', {sizes[run[0]]})")
        elif run[0] == "f" and len(run) <= 7:
            parts.append(f"left(printf('%07d', abs({{0}}) % 10000000), {len(run)})")
        elif run[0] == "F" and len(run) <= 7:
            parts.append(f"rtrim(left(printf('%07d', abs({{0}}) % 10000000), {len(run)}), '0')")
        elif run.isascii() and run.isalpha():
            raise NotImplementedYet(f"'{run}' in a timespan format is not implemented yet", layout.span)
        else:
            parts.append(f"{{{len(literals)}}}")
            literals.append(constant(run, "string"))
    return sql("(" + " || ".join(parts) + ")", "string", *literals)


def _bag_remove_keys(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    """Top-level keys only; a JSONPath among them is refused."""
    bag, keys = _args(c, node, scope, 2)
    if bag.type != "dynamic" or not keys.is_constant or not isinstance(keys.constant, list):
        raise NotImplementedYet("bag_remove_keys() needs a bag and constant keys", node.span)
    if any(str(k).startswith("$") for k in plain(keys.constant)):
        raise NotImplementedYet("bag_remove_keys() with a path is not implemented yet", keys.span)
    kept = "list_filter(json_keys({0}), lambda kx: NOT list_contains({1}::VARCHAR[], kx))"
    return sql(f"CASE WHEN json_type({{0}}) = 'OBJECT' THEN {_rebuilt(kept)} END", "dynamic", bag, keys, nullable=True)


def _rebuilt(keys: str) -> str:
    """A bag of these keys, with the values they have in {0}."""
    pair = "to_json(kx) || ':' || json_extract({0}, '$.\"' || replace(replace(kx, '\\', '\\\\'), '\"', '\\\"') || '\"')"
    return f"CAST('{{' || array_to_string(list_transform({keys}, lambda kx: {pair}), ',') || '}}' AS JSON)"


def _bag_pack_columns(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    parts = []
    for arg in node.args:
        value = c.expr(arg, scope)
        if not isinstance(arg, ast.Name):
            raise KqlBindError("bag_pack_columns() takes columns", arg.span)
        parts += [constant(arg.name, "string"), dynamic_of(value)]
    return sql("json_object({*})", "dynamic", *parts, nullable=False)


def _replace_strings(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    """In the order given, and what was put in is not looked at again: each hit becomes a mark first."""
    text, wanted, given = _args(c, node, scope, 3)
    if not (isinstance(wanted.constant, list) and isinstance(given.constant, list)):
        raise NotImplementedYet("replace_strings() needs constant arrays", node.span)
    old, new = plain(wanted.constant), plain(given.constant)
    if len(old) != len(new):
        raise KqlBindError("replace_strings() needs as many replacements as lookups", node.span)
    if not all(isinstance(w, str) and w and not _MARKS.search(w) for w in old) or not all(
        isinstance(w, str) for w in new
    ):
        raise NotImplementedYet("replace_strings() takes arrays of texts", node.span)
    made = sql(
        "CASE WHEN regexp_matches({0}, '[\uf000-\uf8ff]') THEN error('kql: replace_strings() on private-use letters') "
        "ELSE {0} END",
        "string", text_of(text),
    )  # fmt: skip
    marks = [chr(0xF000 + place) for place in range(len(old))]
    for before, after in [*zip(old, marks, strict=True), *zip(marks, new, strict=True)]:
        made = sql("replace({0}, {1}, {2})", "string", made, constant(before, "string"), constant(after, "string"))
    return made


def _translate(c: Compiler, node: ast.Call, scope: Scope) -> Value:
    """The last replacement letter serves all searched letters beyond it; none at all removes them."""
    old, new, text = _args(c, node, scope, 3)
    if not (old.is_constant and new.is_constant):
        raise NotImplementedYet("translate() needs constant lists of letters", node.span)
    filled = str(new.constant)
    if filled:
        filled = filled.ljust(len(old.constant), filled[-1])
    return sql("translate({0}, {1}, {2})", "string", text_of(text), old, constant(filled, "string"))


def _shift(sign: int) -> Special:
    def build(c: Compiler, node: ast.Call, scope: Scope) -> Value:
        args = _args(c, node, scope, 2, 3)
        if args[0].type != "dynamic":
            raise KqlBindError(f"{node.name}() needs an array, not {args[0].type}", node.span)
        fill = dynamic_of(args[2]) if len(args) == 3 else constant(None, "dynamic")
        place = f"(ki + {sign} * {{1}})"
        picked = f"CASE WHEN {place} BETWEEN 1 AND len(CAST({{0}} AS JSON[])) THEN CAST({{0}} AS JSON[])[{place}] ELSE {{2}} END"
        template = f"to_json(list_transform(range(1, len(CAST({{0}} AS JSON[])) + 1), lambda ki: {picked}))"
        guarded = f"CASE WHEN json_type({{0}}) = 'ARRAY' THEN {template} END"
        return sql(guarded, "dynamic", args[0], args[1], fill, nullable=True)

    return build


MORE: dict[str, Special] = {
    "ipv4_compare": _ipv4_pair("CAST(sign({0} - {1}) AS BIGINT)", "long"), "ipv4_is_match": _ipv4_pair("({0} = {1})", "bool"),
    "ipv4_is_in_range": _ipv4_is_in_range, "ipv4_is_in_any_range": _ipv4_is_in_any_range,
    "ipv4_netmask_suffix": _ipv4_netmask_suffix, "format_datetime": _format_datetime, "format_timespan": _format_timespan,
    "bag_remove_keys": _bag_remove_keys, "bag_pack_columns": _bag_pack_columns, "replace_strings": _replace_strings,
    "translate": _translate, "array_shift_left": _shift(1), "array_shift_right": _shift(-1),
}  # fmt: skip
