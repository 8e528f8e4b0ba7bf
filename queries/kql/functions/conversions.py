"""Values of one type as another; what does not fit is null."""

from __future__ import annotations

from dataclasses import replace

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.conversion import to_type
from queries.kql.functions.arguments import arguments
from queries.kql.functions.declaration import LINEAR, Bind, Function, Template
from queries.kql.stages import Scope
from queries.kql.values import Value

# An int is shown in its own 32 bits.
_HEX_OF_INT = "to_hex(bits_and(CAST({0} AS BIGINT), 4294967295))"


def _converter(kind: str) -> Bind:
    def build(c: Binder, node: ast.Call, scope: Scope) -> Value:
        (value,) = arguments(c, node, scope, 1)
        return replace(to_type(value, kind), name=value.name)

    return build


FUNCTIONS = (
    Function("tostring", "The value as text.", bind=_converter("string"), cost=LINEAR),
    Function("toint", "The value as an int.", bind=_converter("int"), cost=LINEAR),
    Function("tolong", "The value as a long.", bind=_converter("long"), cost=LINEAR),
    Function("todouble", "The value as a real.", bind=_converter("real"), cost=LINEAR, aliases=("toreal",)),
    Function("todecimal", "The value as a decimal.", bind=_converter("decimal"), cost=LINEAR),
    Function("tobool", "The value as a bool.", bind=_converter("bool"), cost=LINEAR, aliases=("toboolean",)),
    Function("todatetime", "The value as a datetime.", bind=_converter("datetime"), cost=LINEAR),
    Function("totimespan", "The value as a timespan.", bind=_converter("timespan"), cost=LINEAR, aliases=("totime",)),
    Function("toguid", "The value as a guid.", bind=_converter("guid"), cost=LINEAR),
    Function(
        "tohex",
        "A whole number in hexadecimal, filled up to so many digits.",
        Template("i", "string", f"lower({_HEX_OF_INT})"),
        Template(
            "i l",
            "string",
            f"CASE WHEN length({_HEX_OF_INT}) >= {{1}} THEN lower({_HEX_OF_INT}) ELSE lpad(lower({_HEX_OF_INT}), CAST({{1}} AS INTEGER), '0') END",
        ),
        Template("l", "string", "lower(to_hex({0}))"),
        Template(
            "l l",
            "string",
            "CASE WHEN length(to_hex({0})) >= {1} THEN lower(to_hex({0})) ELSE lpad(lower(to_hex({0})), CAST({1} AS INTEGER), '0') END",
        ),
    ),
)
