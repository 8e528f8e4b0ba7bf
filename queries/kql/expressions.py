"""Scalar expressions: syntax tree to typed SQL, by one function per kind of node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from queries.kql import official
from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.dialect import Col
from queries.kql.errors import KqlBindError, NotImplementedYet, nearest
from queries.kql.operations import arithmetic, compare, equal, match, negate_total
from queries.kql.stages import Scope, Stage, unknown_column
from queries.kql.values import NUMERIC, Value, constant, sql, text_of

_ARITHMETIC = ("+", "-", "*", "/", "%")


def bind(c: Binder, node: ast.Node, scope: Scope) -> Value:
    """Bind one expression in a scope."""
    handler = HANDLERS.get(type(node))
    if handler is None:
        raise KqlBindError("a value is needed here", node.span)
    return handler(c, node, scope).at(node.span)


def _name(c: Binder, node: ast.Name, scope: Scope) -> Value:
    if node.name in scope.columns:
        return scope.columns[node.name]
    found = scope.env.find(node.name)
    if isinstance(found, Value):
        return _renamed(found, node.name)
    if found is not None or node.name in c.catalog.tables:
        raise KqlBindError(f"'{node.name}' is a table, not a value; wrap it in toscalar()", node.span)
    if node.name in scope.sides:
        raise KqlBindError(f"{node.name} needs a column: {node.name}.Name", node.span)
    close = nearest(node.name, [*scope.columns, *scope.env.all_names()])
    if close is None and (node.name in official.FUNCTIONS or node.name in official.AGGREGATES):
        raise KqlBindError(f"unknown name '{node.name}'", node.span, suggestion=f"{node.name}()")
    raise unknown_column(node.name, [*scope.columns, *scope.env.all_names()], node.span)


def _literal(_c: Binder, node: ast.Literal, _scope: Scope) -> Value:
    return constant(node.value, node.type)


def _member(c: Binder, node: ast.Member, scope: Scope) -> Value:
    if isinstance(node.object, ast.Name) and node.object.name in scope.sides:
        side = scope.sides[node.object.name]
        if node.name not in side:
            raise unknown_column(node.name, side, node.span)
        return side[node.name]
    return _property(bind(c, node.object, scope), node.name, node)


def _property(value: Value, name: str, node: ast.Node) -> Value:
    if value.type != "dynamic":
        raise KqlBindError(f"only dynamic values have properties; this is {value.type}", node.span)
    # R8: a missing property and a JSON null are both null.
    made = sql("nullif(json_member({0}, {1}), 'null'::JSON)", "dynamic", value, constant(name, "string"), nullable=True)
    return _renamed(made, f"{value.name}_{name}" if value.name else name)


def _renamed(value: Value, name: str | None) -> Value:
    return replace(value, name=name)


def _index(c: Binder, node: ast.Index, scope: Scope) -> Value:
    value, key = bind(c, node.object, scope), bind(c, node.key, scope)
    if value.parts and isinstance(key.constant, int) and 0 <= key.constant < len(value.parts):
        return value.parts[key.constant][1]
    # Only a literal key implies a name: `Fields["x"]` is Fields_x, `Fields[k]` and `Fields[-1]` are Fields_.
    key_text = str(key.constant) if isinstance(node.key, ast.Literal) else ""
    name = (f"{value.name}_{key_text}" if value.name else key_text) if key.is_constant else None
    if key.type == "string" and key.is_constant:
        return _renamed(_property(value, key.constant, node), name)
    if value.type != "dynamic":
        raise KqlBindError(f"only dynamic values can be indexed; this is {value.type}", node.span)
    if key.type not in ("int", "long", "bool", "string", "dynamic"):
        raise KqlBindError(f"an index is a whole number or a text, not {key.type}", node.key.span)
    if key.type not in ("int", "long"):
        key = text_of(key)
    # R8: a negative index counts from the end.
    word = "json_item" if key.type in ("int", "long") else "json_member"
    made = sql(f"nullif({word}({{0}}, {{1}}), 'null'::JSON)", "dynamic", value, key, nullable=True)
    return _renamed(made, name)


def _unary(c: Binder, node: ast.Unary, scope: Scope) -> Value:
    value = bind(c, node.operand, scope)
    if value.type not in (*NUMERIC, "timespan"):
        raise KqlBindError(f"a sign needs a number or a timespan, not {value.type}", node.span)
    if node.op == "+":
        return value
    if value.is_constant and value.constant is not None and value.type != "decimal":
        return constant(-value.constant, value.type)
    return sql("(-{0})", value.type, value)


def _binary(c: Binder, node: ast.Binary, scope: Scope) -> Value:
    if node.op == ":":
        raise KqlBindError("Column:term works in search and find only", node.span)
    if isinstance(node.left, ast.Star):
        return _any_column(c, node, scope)
    left = bind(c, node.left, scope)
    right = _beside(c, node.right, scope, left) if node.op not in _ARITHMETIC else bind(c, node.right, scope)
    if node.op in _ARITHMETIC:
        return arithmetic(node.op, left, right, node.span)
    if node.op in ("==", "!=") and left.type == right.type == "dynamic":
        # The engine says so, its binder does not (github.com/MicrosoftDocs/dataexplorer-docs/issues/43).
        problem = KqlBindError(f"'{node.op}' does not compare two dynamics; convert one of them first", node.span)
        problem.rewritten = ("tostring({})", node.left.span)
        raise problem
    if node.op in ("==", "!=", "=~", "!~"):
        return equal(node.op, left, right, node.span)
    if node.op in ("<", "<=", ">", ">="):
        try:
            return compare(node.op, left, right, node.span)
        except KqlBindError as problem:
            if left.type == "datetime" and right.type == "long":  # 2026-11-21 is a subtraction
                problem.rewritten = ("datetime({})", node.right.span)
            raise
    return match(node.op, left, right, node.span)


def _beside(c: Binder, node: ast.Node, scope: Scope, other: Value) -> Value:
    """The other side of a comparison; an unknown word beside a text was meant as a text."""
    try:
        return bind(c, node, scope)
    except KqlBindError as problem:
        if other.type in ("string", "dynamic") and problem.suggestion is None:
            if isinstance(node, ast.Name):
                problem.suggestion = f'"{node.name}"'
            elif isinstance(node, ast.Binary | ast.Member):  # gpu-001, rack1.gpu01
                problem.rewritten = ('"{}"', node.span)
        raise


def _any_column(c: Binder, node: ast.Binary, scope: Scope) -> Value:
    """`* has "x"`: any text column for which it holds."""
    texts = [v for v in scope.columns.values() if v.type in ("string", "dynamic")]
    tests = [bind(c, replace(node, left=ast.Name(v.name or "", span=node.left.span)), scope) for v in texts]
    if not tests:
        return constant(False, "bool")
    joined = " OR ".join(f"coalesce({{{i}}}, false)" for i in range(len(tests)))
    return sql(f"({joined})", "bool", *tests, nullable=False)


def boolean(c: Binder, node: ast.Node, scope: Scope) -> Value:
    """A condition, which may be a dynamic boolean; ``where`` does not take that. Kusto refuses all other types (its binder's
    signatures, src/Kusto.Language/Operators.cs)."""
    value = bind(c, node, scope)
    if value.type == "bool":
        return value
    if value.type == "dynamic":
        return sql("TRY_CAST(json_extract_string({0}, '$') AS BOOLEAN)", "bool", value, nullable=True).at(node.span)
    raise no_condition(node, value)


def only_boolean(c: Binder, node: ast.Node, scope: Scope) -> Value:
    """A condition where Kusto takes no dynamic one: in ``where`` and in aggregates."""
    value = bind(c, node, scope)
    if value.type != "bool":
        raise no_condition(node, value)
    return value


def no_condition(node: ast.Node, value: Value) -> KqlBindError:
    """The error about a value in place of a condition."""
    if value.type == "dynamic":
        return KqlBindError("a condition is needed here, not dynamic; convert it with tobool()", node.span)
    several = "has_any (...) with all the words" if isinstance(node, ast.Literal) and value.type == "string" else None
    return KqlBindError(f"a condition is needed here, not {value.type}", node.span, suggestion=several)


def _logical(c: Binder, node: ast.Logical, scope: Scope) -> Value:
    values = [boolean(c, operand, scope) for operand in node.operands]
    joined = f" {node.op.upper()} ".join(f"{{{i}}}" for i in range(len(values)))
    return sql(f"({joined})", "bool", *values)


def _between(c: Binder, node: ast.Between, scope: Scope) -> Value:
    value, low, high = (bind(c, n, scope) for n in (node.operand, node.low, node.high))
    if value.type == "datetime" and low.type == "datetime" and high.type == "timespan":
        high = arithmetic("+", low, high, node.high.span)
    lower, upper = compare(">=", value, low, node.span), compare("<=", value, high, node.span)
    return sql("(NOT ({0} AND {1}))" if node.negated else "({0} AND {1})", "bool", lower, upper)


def _in_list(c: Binder, node: ast.InList, scope: Scope) -> Value:
    value = bind(c, node.operand, scope)
    op = node.op.lstrip("!")
    negated = node.op.startswith("!")
    if len(node.items) == 1:
        stage = c.as_table(node.items[0], scope)
        if stage is not None:
            return _in_table(c, node, value, stage, op, negated)
    items: list[Value] = []
    for item in node.items:
        items += _spread(_beside(c, item, scope, value), op, value, node)
    if op in ("has_any", "has_all"):
        tests = [match("has", value, text_of(item), node.span) for item in items]
        if not tests:
            return constant(op == "has_all", "bool")
        joined = (" OR " if op == "has_any" else " AND ").join(f"{{{i}}}" for i in range(len(tests)))
        made = sql(f"({joined})", "bool", *tests)
        return negate_total(made) if negated else made
    tests = [equal("=~" if op == "in~" else "==", value, item, node.span, node.op) for item in items]
    if not tests:
        return constant(negated, "bool")
    simple = _plain_in(value, items, op)
    made = simple or sql("coalesce(" + " OR ".join(f"{{{i}}}" for i in range(len(tests))) + ", false)", "bool", *tests)
    return negate_total(made) if negated else made


def _plain_in(value: Value, items: list[Value], op: str) -> Value | None:
    """SQL's own IN, which is faster, if no side can hold a null or the value's null means false."""
    if any(i.nullable or i.type != value.type for i in items) or value.type == "dynamic":
        return None
    holes = ", ".join(f"lower({{{i + 1}}})" if op == "in~" else f"{{{i + 1}}}" for i in range(len(items)))
    left = "lower({0})" if op == "in~" else "{0}"
    template = f"({left} IN ({holes}))"
    if value.nullable:
        template = f"coalesce({template}, false)"
    return sql(template, "bool", value, *items, nullable=False)


#: What members of a dynamic array can equal a value of a type: their types in JSON, and the type to compare them as.
_WHOLE = "'BIGINT', 'UBIGINT'"
_MEMBERS = {
    "int": (_WHOLE, "BIGINT"), "long": (_WHOLE, "BIGINT"), "real": (f"{_WHOLE}, 'DOUBLE'", "DOUBLE"), "bool": ("'BOOLEAN'", "BOOLEAN"),
}  # fmt: skip


def _spread(item: Value, op: str, value: Value, node: ast.Node) -> list[Value]:
    """`in (dynamic([...]))` means the members; so does a let-bound constant array."""
    if item.type != "dynamic":
        return [item]
    if item.is_constant and isinstance(item.constant, list):
        return [
            constant(m.value, m.type) if isinstance(m, ast.Literal) else constant(m, "dynamic") for m in item.constant
        ]
    if value.type in ("string", "dynamic") and op in ("in", "in~"):
        lowered = "lower" if op == "in~" else ""
        made = sql(
            f"coalesce(list_contains(list_transform(TRY_CAST({{0}} AS JSON[]), "
            f"lambda kx: {lowered}(json_text(kx))), {lowered}({{1}})), false)",
            "bool", item, text_of(value), nullable=False,
        )  # fmt: skip
        raise _Whole(made)
    if value.type in _MEMBERS and op == "in":
        types, kind = _MEMBERS[value.type]
        made = sql(
            f"coalesce(list_contains(list_transform(TRY_CAST({{0}} AS JSON[]), lambda kx: CASE WHEN json_type(kx) IN ({types}) "
            f"THEN TRY_CAST(json_text(kx) AS {kind}) END), CAST({{1}} AS {kind})), false)",
            "bool", item, value, nullable=False,
        )  # fmt: skip
        raise _Whole(made)
    raise NotImplementedYet("membership in a computed dynamic array is not implemented for this type", node.span)


class _Whole(Exception):  # noqa: N818 - carries a finished answer out of the item loop
    def __init__(self, value: Value) -> None:
        self.value = value


def _in_list_outer(c: Binder, node: ast.InList, scope: Scope) -> Value:
    try:
        return _in_list(c, node, scope)
    except _Whole as whole:
        return negate_total(whole.value) if node.op.startswith("!") else whole.value


def _in_table(c: Binder, node: ast.InList, value: Value, stage: Stage, op: str, negated: bool) -> Value:
    column = stage.visible[0].value("t")
    source = f'SELECT {{1}} FROM "{stage.relation}" AS "t"'
    if op in ("has_any", "has_all"):
        word = Value(Col("q", stage.visible[0].physical), column.type, column.nullable)
        test = match("has", value, text_of(word), node.span)
        source = f'SELECT 1 FROM "{stage.relation}" AS "q"'
        template = f"EXISTS ({source} WHERE {{0}})" if op == "has_any" else f"NOT EXISTS ({source} WHERE NOT {{0}})"
        made = sql(template, "bool", test, nullable=False)
        return negate_total(made) if negated else made
    if column.type == "dynamic":
        column = text_of(column)
    if value.type == "dynamic":
        value = text_of(value)
    if column.type != value.type and not (column.type in NUMERIC and value.type in NUMERIC):
        raise KqlBindError(f"cannot look for {value.type} among {column.type}", node.span)
    if op == "in~":
        value, column = sql("lower({0})", "string", value), sql("lower({0})", "string", column)
    # SQL's IN is null when the list holds a null; Kusto's is false (R2).
    made = sql(f"coalesce(({{0}} IN ({source} WHERE {{1}} IS NOT NULL)), false)", "bool", value, column, nullable=False)
    return negate_total(made) if negated else made


def _call(c: Binder, node: ast.Call, scope: Scope) -> Value:
    return c.call(node, scope)


def _pipeline(c: Binder, node: ast.Pipeline, scope: Scope) -> Value:
    raise KqlBindError("a table stands where a value is needed; wrap it in toscalar()", node.span)


Handler = Callable[[Any, Any, Scope], Value]
HANDLERS: dict[type[ast.Node], Handler] = {
    ast.Name: _name, ast.Literal: _literal, ast.Member: _member, ast.Index: _index, ast.Unary: _unary,
    ast.Binary: _binary, ast.Logical: _logical, ast.Between: _between, ast.InList: _in_list_outer, ast.Call: _call,
    ast.Pipeline: _pipeline,
}  # fmt: skip
