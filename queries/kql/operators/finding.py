"""search and find: a condition over every column of many tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.conversion import to_type
from queries.kql.errors import CannotExpress, KqlBindError
from queries.kql.operations import match, re2_escape
from queries.kql.operators.combining import stack, union_items
from queries.kql.stages import Env, Scope, Stage, everything, scope_of, unknown_column
from queries.kql.values import Value, bag_of, constant, dynamic_of, sql, text_of

TAG, SOURCE, PACK = "$table", "source_", "pack_"


def _term(value: Value, text: str, sensitive: bool, span: Any) -> Value:
    """`"abc"` is a term, `"abc*"`, `"*abc"`, `"*abc*"` its start, end or any substring, `"a*c"` a pattern."""
    suffix = "_cs" if sensitive else ""
    inner = text.strip("*")
    if "*" in inner:
        pattern = ".*".join(re2_escape(p) for p in text.split("*"))
        edges = ["" if ends else r"\b" for ends in (text.startswith("*"), text.endswith("*"))]
        pattern = f"{'' if sensitive else '(?i)'}{edges[0]}{pattern}{edges[1]}"
        return match("matches regex", value, constant(pattern, "string"), span)
    word = {(False, False): "has", (False, True): "hasprefix", (True, False): "hassuffix", (True, True): "contains"}
    operator = word[text.startswith("*"), text.endswith("*")]
    return match(operator + suffix, value, constant(inner, "string"), span)


def _anywhere(scope: Scope, text: str, sensitive: bool, span: Any) -> Value:
    """The term in any column with text."""
    tests = [
        _term(text_of(v), text, sensitive, span)
        for v in scope.columns.values()
        if v.type in ("string", "dynamic", "guid")
    ]
    if not tests:
        return constant(False, "bool")
    return sql(
        "(" + " OR ".join(f"coalesce({{{i}}}, false)" for i in range(len(tests))) + ")", "bool", *tests, nullable=False
    )


def condition(c: TableBinder, node: ast.Node, scope: Scope, sensitive: bool) -> Value:
    """A predicate in which a bare text is a term, and a comparison with a column that the table lacks is false."""
    if isinstance(node, ast.Star):
        return constant(True, "bool")
    if isinstance(node, ast.Literal) and node.type == "string":
        return constant(True, "bool") if node.value == "*" else _anywhere(scope, str(node.value), sensitive, node.span)
    if isinstance(node, ast.Logical):
        parts = [condition(c, n, scope, sensitive) for n in node.operands]
        joined = f" {node.op.upper()} ".join(f"{{{i}}}" for i in range(len(parts)))
        return sql(f"({joined})", "bool", *parts)
    if isinstance(node, ast.Call) and node.name == "not" and len(node.args) == 1:
        return sql("(NOT coalesce({0}, false))", "bool", condition(c, node.args[0], scope, sensitive), nullable=False)
    if isinstance(node, ast.Binary) and isinstance(node.left, ast.Star):
        tests = []
        for value in scope.columns.values():
            try:
                tests.append(c.condition(replace(node, left=ast.Name(value.name or "")), scope))
            except KqlBindError:
                continue  # this column's type is not comparable with the value
        return sql("(" + " OR ".join(f"coalesce({{{i}}}, false)" for i in range(len(tests))) + ")", "bool", *tests) \
            if tests else constant(False, "bool")  # fmt: skip
    if isinstance(node, ast.Binary) and node.op == ":":
        if not isinstance(node.left, ast.Name) or node.left.name not in scope.columns:
            return constant(False, "bool")
        assert isinstance(node.right, ast.Literal)
        return _term(text_of(scope.columns[node.left.name]), str(node.right.value), sensitive, node.span)
    if names_in(node) - set(scope.columns) - set(scope.env.all_names()):
        return constant(False, "bool")
    return c.condition(node, scope)


def names_in(node: Any) -> set[str]:
    """Every plain name in an expression."""
    if isinstance(node, ast.Name):
        return {node.name}
    found: set[str] = set()
    if isinstance(node, (tuple, list)):
        for item in node:
            found |= names_in(item)
    elif isinstance(node, ast.Member):
        found = names_in(node.object)
    elif isinstance(node, ast.Node) and not isinstance(node, (ast.Pipeline, ast.Operator)):
        for slot in node.__slots__:
            if slot not in ("span", "names"):
                found |= names_in(getattr(node, slot, None))
    return found


def _sensitive(node: ast.Operator) -> bool:
    word = str(getattr(node.settings.get("kind"), "value", "case_insensitive"))
    if word not in ("case_insensitive", "case_sensitive"):
        raise KqlBindError(f"the kind is case_insensitive or case_sensitive, not '{word}'", node.span)
    return word == "case_sensitive"


def _tables(c: TableBinder, node: ast.Operator, env: Env) -> list[tuple[str, Stage]]:
    given = node.nodes("tables")
    if given:
        return union_items(c, given, env, False)
    if not c.catalog.tables:
        raise KqlBindError("there is no table to look through", node.span)
    return union_items(c, (ast.Wildcard("*", span=node.span),), env, False)


def _checked(node: ast.Node, tables: list[tuple[str, Stage]], env: Env) -> None:
    """A name that no table has is a mistake, not a search without hits."""
    known = {v.name for _, s in tables for v in s.visible} | set(env.all_names())
    for name in sorted(names_in(node) - known):
        raise unknown_column(name, known, node.span)


def _kept(c: TableBinder, node: ast.Operator, tables: list[tuple[str, Stage]], env: Env) -> list[tuple[str, Stage]]:
    _checked(node.parts["value"], tables, env)
    sensitive = _sensitive(node)
    out = []
    for name, stage in tables:
        test = condition(c, node.parts["value"], scope_of(stage, env), sensitive)
        kept = c.emit(stage, everything(stage), refine=lambda q, t=test: q.where(t.sql), keep_hidden=False)  # type: ignore[misc]
        out.append((name, kept))
    return out


def search(c: TableBinder, node: ast.Operator, env: Env) -> Stage:
    """Over all tables, or those named: the table's name, then every column."""
    return stack(c, _kept(c, node, _tables(c, node, env), env), "outer", TAG)


def search_in(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Over the rows so far."""
    if node.nodes("tables"):
        raise KqlBindError("search in (...) stands at the head of a query", node.span)
    return stack(c, _kept(c, node, [(stage.label or "union_arg0", stage)], env), "outer", TAG)


def find_in(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Over the rows so far."""
    return _found(c, node, [(stage.label or "union_arg0", stage)], env)


def find(c: TableBinder, node: ast.Operator, env: Env) -> Stage:
    """Like search, with chosen columns; else those that all tables have or the condition names, the rest packed."""
    return _found(c, node, _tables(c, node, env), env)


def _found(c: TableBinder, node: ast.Operator, tables: list[tuple[str, Stage]], env: Env) -> Stage:
    kept = _kept(c, node, tables, env)
    tag = str(getattr(node.settings.get("withsource"), "value", SOURCE))
    given = node.nodes("columns")
    wanted = _chosen(given) if given else _smart(kept, names_in(node.parts["value"]))
    pack = any(isinstance(n, ast.Call) for n in given) if given else any(
        {v.name for v in s.visible} - {n for n, _ in wanted} for _, s in kept)  # fmt: skip
    kinds = {n: k or _common(kept, n) for n, k in wanted}
    parts = []
    for name, stage in kept:
        row = dict(everything(stage))
        out = [(n, to_type(row[n], k) if n in row else constant(None, k)) for n, k in kinds.items()]
        if pack:
            rest = [p for n, v in row.items() if n not in kinds for p in (constant(n, "string"), dynamic_of(v))]
            out.append((PACK, bag_of(rest)))
        parts.append((name, c.emit(stage, out, keep_hidden=False)))
    return stack(c, parts, "outer", tag)


def _chosen(nodes: tuple[ast.Node, ...]) -> list[tuple[str, str]]:
    out = []
    for node in nodes:
        if isinstance(node, ast.Call) and node.name in ("pack", "pack_all", "bag_pack"):
            continue
        if isinstance(node, ast.Capture):
            out.append((node.name, node.type))
        else:
            raise CannotExpress("find projects columns, Name:type and pack(*)", node.span)
    return out


def _smart(parts: list[tuple[str, Stage]], named: set[str]) -> list[tuple[str, str]]:
    every = list(dict.fromkeys(v.name for _, s in parts for v in s.visible))
    common = [n for n in every if all(any(v.name == n for v in s.visible) for _, s in parts)]
    return [(n, "") for n in every if n in common or n in named]


def _common(parts: list[tuple[str, Stage]], name: str) -> str:
    kinds = {v.type for _, s in parts for v in s.visible if v.name == name}
    return next(iter(kinds)) if len(kinds) == 1 else "dynamic"


SOURCE_BUILDERS: dict[str, Any] = {"search": search, "find": find}
BUILDERS: dict[str, Any] = {"search": search_in, "find": find_in}
