"""The arguments of a call: their number, and each as the kind that a declaration requires."""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlBindError
from queries.kql.operations import check_regex
from queries.kql.stages import Scope
from queries.kql.values import NUMERIC, Value, cast_number, dynamic_of, sql, text_of


def arguments(c: Binder, node: ast.Call, scope: Scope, low: int, high: int | None = None) -> list[Value]:
    """The bound arguments of a call that takes ``low`` to ``high`` of them. Raises ``KqlBindError``."""
    high = low if high is None else high
    if not low <= len(node.args) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise KqlBindError(f"{node.name}() takes {wanted} arguments, not {len(node.args)}", node.span)
    return [c.expr(a, scope) for a in node.args]


def expect_whole(node: ast.Call, *values: Value) -> None:
    """Raises ``KqlBindError`` for a value of ``node`` that is none of the whole numbers which Kusto takes there."""
    for value in values:
        if value.type not in ("int", "long"):
            raise KqlBindError(
                f"{node.name}() needs a whole number, not {value.type}; did you mean toint()?", node.span
            )


def fit(kinds: list[str], args: list[Value], number: str, wrong: str) -> tuple[list[Value] | None, str]:
    """The arguments as these kinds, or why they do not fit, in the words of ``number`` or ``wrong``."""
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
        return None, number.format(len(args))
    out: list[Value] = []
    for kind, arg in zip(wanted, args, strict=True):
        fitted = coerce(arg, kind)
        if fitted is None:
            return None, wrong.format(arg.type, len(out) + 1)
        out.append(fitted)
    return out, ""


def _hashable(arg: Value) -> Value:
    """The input of hash(): times as ticks, other values unchanged."""
    if arg.type == "datetime":
        return sql("(epoch_us({0}) * 10 + 621355968000000000)", "long", arg)
    if arg.type in ("int", "long", "timespan"):
        return sql("CAST({0} AS BIGINT)", "long", arg)
    return arg if arg.type in ("bool", "real") else text_of(arg)


_KINDS = {"t": "datetime", "p": "timespan", "b": "bool", "g": "guid", "c": "bool"}


def coerce(arg: Value, kind: str) -> Value | None:
    """The argument as a kind, or None if it does not fit."""
    if kind in "a_":
        return arg
    if kind == "o":
        return arg if arg.type not in ("dynamic", "guid") else None
    if kind == "z":
        return arg if arg.type == "string" else None
    if kind == "S":
        return text_of(arg)
    if kind == "x" and arg.type in ("string", "dynamic"):
        check_regex(arg, arg.span)
        return text_of(arg)
    if kind == "h":
        return _hashable(arg) if arg.type != "dynamic" else None
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
