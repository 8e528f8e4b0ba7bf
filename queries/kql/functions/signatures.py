"""The plain scalar functions: name -> signatures. `engines/spelling.py` says what a template is.

A signature is `("argument kinds", "result", "template")`. Kinds: s string, l long, n number, r real,
d dynamic, t datetime, p timespan, b bool, a any, S any as text, x a regular expression; `k?` may be missing, `k*` repeats. Result: a KQL type,
or `0` for the type of the first argument. `!` after the result: may be null though no argument is.
"""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.errors import KqlBindError, Span
from queries.kql.functions.tables import BAGS, DATES, MATHS, NETWORK, TEXT
from queries.kql.operations import check_regex
from queries.kql.values import NUMERIC, Value, cast_number, dynamic_of, sql, text_of

Signature = tuple[str, str, str]
SIMPLE: dict[str, tuple[Signature, ...]] = TEXT | MATHS | DATES | BAGS | NETWORK
ALIASES = {
    "iif": "iff", "toreal": "todouble", "parsejson": "parse_json", "todynamic": "parse_json", "any": "take_any",
    "makelist": "make_list", "makeset": "make_set", "pack": "bag_pack", "pack_dictionary": "bag_pack",
    "notempty": "isnotempty", "notnull": "isnotnull", "columnifexists": "column_ifexists",
    "monthofyear": "getmonth", "array_iif": "array_iff", "array_strcat": "strcat_array", "arraylength": "array_length",
    "extractall": "extract_all", "parseurl": "parse_url", "parseurlquery": "parse_urlquery", "totime": "totimespan",
    "cnt": "count", "hash_xxh64": "hash_xxhash64", "argmax": "arg_max",
    "argmin": "arg_min", "anyif": "take_anyif", "make_dictionary": "make_bag", "ceil": "ceiling", "base64_decodestring":
    "base64_decode_tostring", "base64_encodestring": "base64_encode_tostring", "toboolean": "tobool", "floor": "bin",
    "datepart": "datetime_part", "toobject": "parse_json",
    "extractjson": "extract_json", "merge_tdigest": "tdigest_merge",
}  # fmt: skip


def call(name: str, args: list[Value], node: ast.Call) -> Value:
    """Find the signature that fits and fill its template."""
    signatures = SIMPLE[name]
    problem = ""
    for kinds, result, template in signatures:
        fitted, why = fit(kinds.split(), args)
        if fitted is None:
            problem = problem or why
            continue
        may_be_null = result.endswith("!")
        kind = result.rstrip("!")
        if kind == "0":
            kind = fitted[0].type
        made = sql(template, kind, *fitted, nullable=True if may_be_null else None)
        return made
    span = node.span if args else Span(node.span.start, node.span.end)
    raise KqlBindError(f"{name}() {problem}", span)


def fit(kinds: list[str], args: list[Value]) -> tuple[list[Value] | None, str]:
    """The arguments as these kinds, or why they are not."""
    wanted: list[str] = []
    for kind in kinds:
        if kind.endswith("*"):
            wanted += [kind[0]] * (len(args) - len(wanted))
        elif kind.endswith("?"):
            if len(wanted) < len(args):
                wanted.append(kind[0])
        else:
            wanted.append(kind)
    if len(wanted) != len(args):
        return None, f"does not take {len(args)} arguments"
    out: list[Value] = []
    for kind, arg in zip(wanted, args, strict=True):
        fitted = coerce(arg, kind)
        if fitted is None:
            return None, f"does not take {arg.type} for argument {len(out) + 1}"
        out.append(fitted)
    return out, ""


def _hashable(arg: Value) -> Value:
    """What hash() looks at: times as ticks, other things as they are."""
    if arg.type == "datetime":
        return sql("(epoch_us({0}) * 10 + 621355968000000000)", "long", arg)
    if arg.type in ("int", "long", "timespan"):
        return sql("CAST({0} AS BIGINT)", "long", arg)
    return arg if arg.type in ("bool", "real") else text_of(arg)


_KINDS = {"t": "datetime", "p": "timespan", "b": "bool", "g": "guid"}


def coerce(arg: Value, kind: str) -> Value | None:
    """The argument as a kind, or None when it does not fit."""
    if kind == "a":
        return arg
    if kind == "z":
        return arg if arg.type == "string" else None
    if kind == "S":
        return text_of(arg)
    if kind == "x" and arg.type in ("string", "dynamic"):
        check_regex(arg, arg.span)
        return text_of(arg)
    if kind == "h":
        return _hashable(arg)
    if kind == "s":
        return text_of(arg) if arg.type in ("string", "dynamic", "guid") else None
    if kind in ("i", "m"):
        return arg if arg.type == {"i": "int", "m": "decimal"}[kind] else None
    if kind == "n":
        return arg if arg.type in NUMERIC else None
    if kind == "l":
        return cast_number(arg, "long") if arg.type in ("int", "long") else None
    if kind == "r":
        return cast_number(arg, "real") if arg.type in NUMERIC and arg.type != "decimal" else (
            sql("CAST({0} AS DOUBLE)", "real", arg) if arg.type == "decimal" else None)  # fmt: skip
    if kind == "d":
        return arg if arg.type == "dynamic" else None
    if kind == "D":
        return dynamic_of(arg)
    return arg if arg.type == _KINDS.get(kind) else None
