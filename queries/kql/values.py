"""A bound scalar: SQL, KQL type, whether it may be null, and the name Kusto would give it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement

from queries.kql import syntax as ast
from queries.kql.dialect import PHYSICAL, Sql, bound
from queries.kql.errors import NOWHERE, KqlBindError, Span
from queries.kql.lexical import format_datetime, format_timespan

NUMERIC = ("int", "long", "real", "decimal")
NOT_CONSTANT: Any = object()
TICKS_TO_TEXT = (
    "(CASE WHEN {0} < 0 THEN '-' ELSE '' END || CASE WHEN abs({0}) >= 864000000000 "
    "THEN (abs({0}) // 864000000000)::VARCHAR || '.' ELSE '' END || printf('%02d:%02d:%02d', "
    "abs({0}) // 36000000000 % 24, abs({0}) // 600000000 % 60, abs({0}) // 10000000 % 60) || "
    "CASE WHEN abs({0}) % 10000000 <> 0 THEN printf('.%07d', abs({0}) % 10000000) ELSE '' END)"
)
TIME_TO_TEXT = "time_text({0})"
REAL_TO_TEXT = "real_text({0})"


@dataclass(frozen=True, slots=True)
class Value:
    """One scalar expression, ready for SQL."""

    sql: ColumnElement[Any]
    type: str
    nullable: bool = True
    constant: Any = NOT_CONSTANT
    name: str | None = None
    span: Span = NOWHERE
    parts: tuple[tuple[str, Value], ...] = ()  # the names and values of a function of several; the first is this

    @property
    def is_constant(self) -> bool:
        """Is the value known while compiling?"""
        return self.constant is not NOT_CONSTANT

    def at(self, span: Span) -> Value:
        """The same value with another span."""
        return replace(self, span=span)


def sql(template: str, kind: str, *args: Value, nullable: bool | None = None) -> Value:
    """Builds a value; it may be null if any argument may. R1: a string never is."""
    may = any(a.nullable for a in args) if nullable is None else nullable
    element = Sql(template, *(a.sql for a in args))
    if kind == "string" and may:
        element = Sql("coalesce({0}, '')", element)
        may = False
    return Value(element, kind, may)


def constant(value: Any, kind: str) -> Value:
    """A constant of a KQL type; None is that type's null, '' for strings (R1)."""
    if kind == "string":
        value = value or ""
    if kind == "dynamic":
        bare = plain(value)
        text = None if bare is None else json.dumps(bare, ensure_ascii=False, allow_nan=False)
        return Value(bound(text, kind), kind, text is None, None if bare is None else value)
    return Value(bound(value, kind), kind, value is None, value)


def plain(value: Any) -> Any:
    """JSON of a parsed dynamic literal."""
    if isinstance(value, ast.Literal):
        if value.type == "datetime" and value.value is not None:
            return format_datetime(value.value).replace("Z", "0Z")
        if value.type == "timespan" and value.value is not None:
            return format_timespan(value.value)
        return plain(value.value) if value.type == "dynamic" else value.value
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def text_of(value: Value) -> Value:
    """tostring(): R1, a null becomes the empty string."""
    if value.type == "string":
        return value
    template = {
        "timespan": TICKS_TO_TEXT, "datetime": TIME_TO_TEXT, "real": REAL_TO_TEXT, "guid": "{0}",
        "bool": "(CASE WHEN {0} THEN 'True' WHEN NOT {0} THEN 'False' END)",
        "dynamic": "json_extract_string({0}, '$')", "decimal": "rtrim(rtrim(CAST({0} AS VARCHAR), '0'), '.')",
    }.get(value.type, "CAST({0} AS VARCHAR)")  # fmt: skip
    return sql(template, "string", value, nullable=True)


def dynamic_of(value: Value) -> Value:
    """The value as dynamic; times become the text Kusto shows."""
    if value.type == "dynamic":
        return value
    template = {
        "datetime": f"to_json({TIME_TO_TEXT})", "timespan": f"to_json({TICKS_TO_TEXT})",
        "real": "CASE WHEN isfinite({0}) THEN json_real({0}) ELSE to_json(" + REAL_TO_TEXT + ") END",
        "decimal": "json_real(CAST({0} AS DOUBLE))", "bool": "to_json(CAST({0} AS BOOLEAN))",
    }.get(value.type, "to_json({0})")  # fmt: skip
    # to_json(NULL) is the JSON text null; a null stays a null here.
    if value.nullable:
        template = f"CASE WHEN {{0}} IS NOT NULL THEN {template} END"
    return sql(template, "dynamic", value)


def bag_of(parts: list[Value]) -> Value:
    """A bag of alternating keys (texts) and values (dynamics)."""
    holes = ", ".join(f"{{{i}}}" for i in range(len(parts)))
    return sql(f"json_object({holes})", "dynamic", *parts, nullable=False)


def cast_number(value: Value, kind: str) -> Value:
    """Widens a number; only called with a wider or equal type."""
    if value.type == kind:
        return value
    made = sql(f"CAST({{0}} AS {PHYSICAL[kind]})", kind, value)
    return replace(made, constant=value.constant, name=value.name, span=value.span)


def widest(kinds: list[str]) -> str:
    """The number type that includes all of them."""
    return max(kinds, key=NUMERIC.index)


def unify(values: list[Value], what: str, convert: Callable[[Value, str], Value] | None = None) -> list[Value]:
    """Brings the branches of iff, case, coalesce to one type; without `convert`, types must fit by themselves."""
    kinds = {v.type for v in values}
    if len(kinds) == 1:
        return values
    if all(k in NUMERIC for k in kinds):
        wide = widest(list(kinds))
        return [cast_number(v, wide) for v in values]
    others = kinds - {"dynamic"}
    if "dynamic" in kinds and (len(others) == 1 or all(k in NUMERIC for k in others)) and convert is not None:
        # Kusto converts the dynamic branch to the type of the others.
        kind = others.pop() if len(others) == 1 else widest(list(others))
        return [cast_number(v, kind) if v.type in NUMERIC else convert(v, kind) for v in values]
    if convert is not None:
        return [dynamic_of(v) for v in values]
    first, other = values[0], next(v for v in values if v.type != values[0].type)
    raise KqlBindError(f"{what} mixes {first.type} and {other.type}", other.span)
