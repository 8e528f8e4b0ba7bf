"""Conditions, nulls and the choice between values."""

from __future__ import annotations

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.conversion import to_type
from queries.kql.errors import KqlBindError
from queries.kql.functions.arguments import arguments
from queries.kql.functions.declaration import LINEAR, Function, Template
from queries.kql.stages import Scope
from queries.kql.values import (
    Value,
    sql,
    unify,
)


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
    given = arguments(c, node, scope, 2, 64)
    values = unify(given, "coalesce()", to_type if any(v.type == "dynamic" for v in given) else None)
    if values[0].type == "string":  # R1: an empty string is a missing one
        holes = ", ".join(f"nullif({{{i}}}, '')" for i in range(len(values)))
        return sql(f"coalesce({holes}, '')", "string", *values)
    return sql("coalesce({*})", values[0].type, *values, nullable=all(v.nullable for v in values))


def _assert(c: Binder, node: ast.Call, scope: Scope) -> Value:
    if len(node.args) != 2:
        raise KqlBindError("assert() takes a condition and a message", node.span)
    test, message = c.condition(node.args[0], scope), c.expr(node.args[1], scope)
    return sql("CASE WHEN {0} THEN true ELSE error('kql: assertion failed: ' || {1}) END", "bool", test, message)


FUNCTIONS = (
    Function(
        "not",
        "The opposite of a condition.",
        Template("b", "bool", "(NOT {0})"),
        cost=LINEAR,
    ),
    Function(
        "isnull",
        "Whether the value is null; a text never is.",
        Template("z", "bool", "({0} IS NULL)"),
        Template("a", "bool", "({0} IS NULL)"),
        cost=LINEAR,
    ),
    Function(
        "isnotnull",
        "Whether the value is not null.",
        Template("z", "bool", "({0} IS NOT NULL)"),
        Template("a", "bool", "({0} IS NOT NULL)"),
        cost=LINEAR,
        aliases=("notnull",),
    ),
    Function(
        "iff", "The second argument where the first holds, else the third.", bind=_iff, cost=LINEAR, aliases=("iif",)
    ),
    Function("case", "The value behind the first condition that holds, else the last value.", bind=_case, cost=LINEAR),
    Function("coalesce", "The first argument that is neither null nor the empty text.", bind=_coalesce, cost=LINEAR),
    Function(
        "assert",
        "True; where the condition does not hold, the query is refused with the message.",
        bind=_assert,
        cost=LINEAR,
    ),
)
