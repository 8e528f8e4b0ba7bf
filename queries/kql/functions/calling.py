"""A call of a declared function as SQL: the first of its templates and bodies whose arguments fit."""

from __future__ import annotations

from dataclasses import replace

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.dialect import PHYSICAL, Sql
from queries.kql.errors import KqlBindError
from queries.kql.functions.arguments import fit
from queries.kql.functions.declaration import ORDER, Body, Function, Kind, Template
from queries.kql.stages import Scope
from queries.kql.values import Value, sql

#: The prefix of a body in Python in SQL, followed by the function's name and the index among its overloads.
BODY_PREFIX = "kqlpy_"


def call(function: Function, args: list[Value], node: ast.Call, order: Value | None = None) -> Value:
    """The value of a call. ``order``: of the rows, for a function of rows. Raises ``KqlBindError`` with the first reason
    if no overload fits."""
    problem = ""
    for place, overload in enumerate(function.overloads):
        fitted, why = fit(overload.arguments.split(), args, function.wrong_number, function.wrong_type)
        if fitted is None:
            problem = problem or why
        elif isinstance(overload, Template):
            if order is not None:
                fitted, overload = [*fitted, order], _in_order(overload, len(fitted))
            return _of_template(overload, fitted, may=None if function.kind is Kind.SCALAR else True)
        elif function.kind is not Kind.SCALAR:
            if not fitted:
                raise KqlBindError(f"{function.name}() needs an argument", node.span)
            return _of_body(function, place, overload, [_gathered(value, order) for value in fitted], args, node)
        else:
            return _of_body(function, place, overload, fitted, args, node)
    raise KqlBindError(f"{node.name if function.kind is Kind.AGGREGATE else function.name}() {problem}", node.span)


def call_of_group(c: Binder, function: Function, node: ast.Call, scope: Scope) -> Value:
    """The value of a call of an aggregate. R6: its column is named after it and its first argument."""
    args = _of_rows(c, function, node, replace(scope, aggregates=False))
    made = call(function, args, node)
    if made.parts:
        return made
    first = (args[0].name if args else None) or ""
    return replace(made, name=first if function.keeps_name and node.name == function.name else f"{node.name}_{first}")


def call_of_row(c: Binder, function: Function, node: ast.Call, scope: Scope) -> Value:
    """The value of a call of a function of rows. Its arguments are computed a step earlier: they may be windows as well."""
    order = order_of_rows(c, node, scope)
    args = []
    for arg in node.args:
        value = c.expr(arg, scope)
        is_column = value.is_constant or scope.columns.get(value.name or "") is value
        args.append(value if is_column else replace(c.hoist(scope, value), name=value.name))
    return call(function, args, node, order)


def order_of_rows(c: Binder, node: ast.Call, scope: Scope) -> Value:
    """The order of the rows that a function of rows goes over. Raises ``KqlBindError`` where they have none."""
    if scope.stage is None or not scope.windowed:
        raise KqlBindError(
            f"{node.name}() works in extend, project and where over sorted or serialized rows", node.span
        )
    if not c.serial:
        raise KqlBindError(
            f"{node.name}() needs serialized rows: nothing before it puts them in an order that stays", node.span,
            suggestion="| sort by ..., or | serialize, before this operator",
        )  # fmt: skip
    scope.stage, scope.ordered = c.serialized(scope.stage), True
    order = scope.stage.order
    assert order is not None
    return order.value()


def _in_order(template: Template, place: int) -> Template:
    """The template with the order of the rows as the argument at ``place``."""
    return replace(template, sql=template.sql.replace(ORDER, f"{{{place}}}"))


def _of_rows(c: Binder, function: Function, node: ast.Call, scope: Scope) -> list[Value]:
    """The arguments of an aggregate, those that it uses. Their number comes first: it is what explains the others."""
    given = len(node.args)
    if not any(low <= given <= high for low, high in function.numbers):
        raise KqlBindError(f"{node.name}() {function.wrong_number.format(given)}", node.span)
    return [
        c.condition(arg, scope, strict=True) if place == function.condition else c.expr(arg, scope)
        for place, arg in enumerate(node.args[: function.used])
    ]


def _gathered(value: Value, order: Value | None) -> Value:
    """All values of the group, or of the rows up to this one in their ``order``, as one array, as a body in Python takes
    them: dynamics as JSON, others in their own type."""
    over, by = ("", []) if order is None else (" OVER (ORDER BY {1})", [order])
    if value.type == "dynamic":
        gathered, none = f"json_list(list({{0}}){over})", "'[]'::JSON"
    else:
        gathered, none = f"list({{0}}){over}", f"CAST([] AS {PHYSICAL[value.type]}[])"
    return sql(f"coalesce({gathered}, {none})", "dynamic", value, *by, nullable=False)


def _of_template(template: Template, args: list[Value], may: bool | None) -> Value:
    """``may``: whether it may be null; None: if an argument may, or if the template says so."""
    kind = template.result.rstrip("!")
    if kind == "0":
        kind = args[0].type
    if template.never_null:
        may = False
    return sql(template.sql, kind, *args, nullable=True if template.result.endswith("!") else may)


def _of_body(
    function: Function, place: int, body: Body, fitted: list[Value], args: list[Value], node: ast.Call
) -> Value:
    holes = ", ".join(f"{{{i}}}" for i in range(len(fitted)))
    made = sql(f"{BODY_PREFIX}{function.name}_{place}({holes})", body.result, *fitted, nullable=True)
    if isinstance(made.sql, Sql):
        made.sql.origin = node
    return _spread(made, function.name, body, args) if body.parts else made


def _spread(made: Value, name: str, body: Body, args: list[Value]) -> Value:
    """A body that gives several values: each is a column of its own if no name is given."""
    parts = []
    base = args[0].name or ""
    for place, (label, kind) in enumerate(body.parts):
        item = sql(f"nullif(json_extract({{0}}, '$[{place}]'), 'null'::JSON)", "dynamic", made, nullable=True)
        parts.append((f"{name}_{base}_{label}", _as_type(item, kind)))
    first = parts[0][1]
    return Value(first.sql, first.type, True, name=parts[0][0], parts=tuple(parts))


def _as_type(item: Value, kind: str) -> Value:
    """A dynamic item as the type that its body declared."""
    if kind == "dynamic":
        return item
    return sql(f"TRY_CAST(json_extract_string({{0}}, '$') AS {PHYSICAL[kind]})", kind, item, nullable=True)
