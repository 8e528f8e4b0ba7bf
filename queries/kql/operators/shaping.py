"""Operators that choose and compute columns: project and its kin, extend, serialize, parse."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from queries.kql import syntax as ast
from queries.kql.bind import Env, Scope, Stage, fresh, row_of, unknown_column
from queries.kql.errors import KqlBindError, NotImplementedYet
from queries.kql.functions.convert import to_type
from queries.kql.operations import re2_escape
from queries.kql.operators.rows import everything, scope_of
from queries.kql.values import Value, constant, sql

if TYPE_CHECKING:
    from queries.kql.compile import Compiler


def named_values(
    c: Compiler, nodes: tuple[ast.Node, ...], scope: Scope, prefix: str = "Column"
) -> list[tuple[str, Value]]:
    """Expressions with the names Kusto gives them (R6)."""
    out: list[tuple[str, Value]] = []
    unnamed = 0
    for node in nodes:
        if isinstance(node, ast.Named):
            if len(node.names) > 1:
                raise NotImplementedYet("several names for one value work only in summarize", node.span)
            name = node.names[0]
            value = c.expr(node.value, scope)
            if any(n == name for n, _ in out):
                raise KqlBindError(f"the column '{name}' is defined twice", node.span)
        else:
            value = c.expr(node, scope)
            name = value.name or ""
            if not name:
                unnamed += 1
                name = f"{prefix}{unnamed}"
            name = fresh(name, [n for n, _ in out])
        out.append((name, value))
    return out


def project(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Exactly these columns."""
    scope = scope_of(stage, env, windowed=True)
    columns = named_values(c, node.nodes("columns"), scope)
    assert scope.stage is not None
    return c.emit(scope.stage, columns)


def extend(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R15: an existing name is replaced in its place; new ones go to the end."""
    scope = scope_of(stage, env, windowed=True)
    merged = dict(everything(stage))
    unnamed = 0
    for part in node.nodes("columns"):
        if isinstance(part, ast.Named):
            if len(part.names) > 1:
                raise NotImplementedYet("several names for one value work only in summarize", part.span)
            merged[part.names[0]] = c.expr(part.value, scope)
            continue
        value = c.expr(part, scope)
        name = value.name
        if not name:
            unnamed += 1
            name = f"Column{unnamed}"
        merged[fresh(name, merged)] = value
    assert scope.stage is not None
    return c.emit(scope.stage, list(merged.items()))


def _matching(stage: Stage, node: ast.Node) -> list[str]:
    names = [c.name for c in stage.visible]
    if isinstance(node, ast.Star):
        return names
    if isinstance(node, ast.Wildcard):
        return [n for n in names if fnmatch.fnmatchcase(n, node.pattern)]
    assert isinstance(node, ast.Name)
    if node.name not in names:
        raise unknown_column(node.name, names, node.span)
    return [node.name]


def project_away(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R15: all but these; names may hold `*`."""
    gone = {n for part in node.nodes("columns") for n in _matching(stage, part)}
    return c.emit(stage, [(n, v) for n, v in everything(stage) if n not in gone])


def project_keep(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Only these, in the order they had."""
    kept = {n for part in node.nodes("columns") for n in _matching(stage, part)}
    return c.emit(stage, [(n, v) for n, v in everything(stage) if n in kept])


def project_rename(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """New names in the old places."""
    renamed: dict[str, str] = {}
    for part in node.nodes("columns"):
        assert isinstance(part, ast.Named)
        if not isinstance(part.value, ast.Name):
            raise KqlBindError("project-rename takes New = Old", part.span)
        (old,) = _matching(stage, part.value)
        renamed[old] = part.names[0]
    columns = [(renamed.get(n, n), v) for n, v in everything(stage)]
    if len({n for n, _ in columns}) < len(columns):
        raise KqlBindError("project-rename would make two columns of one name", node.span)
    return c.emit(stage, columns)


def project_reorder(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """These first, the rest after."""
    order: list[str] = []
    for part in node.nodes("columns"):
        assert isinstance(part, ast.SortKey)
        found = _matching(stage, part.value)
        if part.ascending is not None:
            found = sorted(found, reverse=not part.ascending)
        order += [n for n in found if n not in order]
    values = dict(everything(stage))
    return c.emit(stage, [(n, values[n]) for n in order] + [(n, v) for n, v in values.items() if n not in order])


def serialize(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Fix the order of rows; computed columns as in extend."""
    made = c.serialized(stage)
    return extend(c, made, node, env) if node.nodes("columns") else made


# How a typed hole in `parse` reads; a string hole takes anything.
_HOLE = {"int": r"\s*([-+]?\d+)", "long": r"\s*([-+]?\d+)", "real": r"\s*([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"}
_ANY = "(.*?)"  # datetimes and timespans have many spellings: take all up to the next text and judge it afterwards


def _hole(capture: ast.Capture, last: bool) -> str:
    if capture.type in _HOLE:
        return _HOLE[capture.type]
    if capture.type not in ("string", "datetime", "timespan"):
        raise NotImplementedYet(f"parse of a {capture.type} is not implemented yet", capture.span)
    return "(.*)" if last else _ANY


def _pattern(node: ast.Operator) -> tuple[str, list[ast.Capture]]:
    """The simple mode as one regular expression and its holes."""
    pattern, captures = "(?s)^", []
    items = node.nodes("pattern")
    for place, item in enumerate(items):
        last = place == len(items) - 1
        if isinstance(item, ast.Literal):
            pattern += re2_escape(str(item.value))
        elif isinstance(item, ast.Star):
            pattern += ".*" if last else ".*?"
        elif isinstance(item, ast.Capture):
            captures.append(item)
            pattern += _hole(item, last)
    return pattern + "$", captures


def parse(c: Compiler, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Holes between literal texts, in the simple mode: all of it matches, or no hole is filled."""
    mode = node.settings.get("kind")
    if mode is not None and getattr(mode, "value", None) != "simple":
        raise NotImplementedYet(f"{node.name} kind={getattr(mode, 'value', '?')} is not implemented yet", mode.span)
    scope = scope_of(stage, env)
    source = to_type(c.expr(node.parts["value"], scope), "string")
    pattern, captures = _pattern(node)
    regex = constant(pattern, "string")
    merged = dict(everything(stage))
    matched = [sql("regexp_matches({0}, {1})", "bool", source, regex)]
    holes: list[tuple[ast.Capture, Value]] = []
    for number, capture in enumerate(captures, 1):
        text = sql("regexp_extract({0}, {1}, {2})", "string", source, regex, constant(number, "int"))
        value = to_type(text, capture.type)
        holes.append((capture, value))
        if capture.type != "string":
            matched.append(sql("({0} IS NOT NULL)", "bool", value, nullable=False))
    whole = sql("(" + " AND ".join(f"{{{i}}}" for i in range(len(matched))) + ")", "bool", *matched, nullable=False)
    strict = len(matched) > 1  # in the simple mode one bad hole empties them all
    for capture, value in holes:
        kept = sql("CASE WHEN {0} THEN {1} END", capture.type, whole, value, nullable=True) if strict else value
        merged[capture.name] = kept
    if node.name == "parse-where":
        return c.emit(stage, list(merged.items()), refine=lambda q: q.where(whole.sql))
    return c.emit(stage, list(merged.items()))


BUILDERS = {
    "project": project, "extend": extend, "project-away": project_away, "project-keep": project_keep,
    "project-rename": project_rename, "project-reorder": project_reorder, "serialize": serialize, "parse": parse,
    "parse-where": parse,
}  # fmt: skip
__all__ = ["BUILDERS", "named_values", "row_of"]
