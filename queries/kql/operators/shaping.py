"""Operators that choose and compute columns: the project family, extend, serialize, parse."""

from __future__ import annotations

import fnmatch
import itertools
import re

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.errors import KqlBindError
from queries.kql.stages import Env, Names, Scope, Stage, everything, fresh, scope_of, unknown_column
from queries.kql.values import Value, plain


def named_values(
    c: TableBinder, nodes: tuple[ast.Node, ...], scope: Scope, names: Names | None = None
) -> list[tuple[str, Value]]:
    """Expressions with the names Kusto gives them (R6)."""
    names = names or Names()
    out: list[tuple[str, Value]] = []
    for node in nodes:
        given = node.names if isinstance(node, ast.Named) else ()
        for place, (name, value) in enumerate(cells(c, node, scope)):
            written = place < len(given) or is_column(name, value, scope)
            out.append((names.write(name, node.span) if written else names.lend(name), value))
    return out


def is_column(name: str, value: Value, scope: Scope) -> bool:
    """Is a value a column of the row, unchanged? tolong() of a long is."""
    return name in scope.columns and scope.columns[name].sql is value.sql


def cells(c: TableBinder, node: ast.Node, scope: Scope) -> list[tuple[str, Value]]:
    """The value of a node, or the several of a function like series_stats, with the names given or implied."""
    given, body = (node.names, node.value) if isinstance(node, ast.Named) else ((), node)
    value = c.expr(body, scope)
    parts = value.parts or ((value.name or "", value),)
    if len(given) > len(parts):
        raise KqlBindError(f"there are {len(given)} names for {len(parts)} values", node.span)
    return [(given[i] if i < len(given) else name, part) for i, (name, part) in enumerate(parts)]


def project(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Exactly these columns."""
    scope = scope_of(stage, env, windowed=True)
    columns = named_values(c, node.nodes("columns"), scope)
    assert scope.stage is not None
    return c.emit(scope.stage, columns)


def extend(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R15: an existing name is replaced in its place; new ones go to the end."""
    scope = scope_of(stage, env, windowed=True)
    merged = dict(everything(stage))
    names = Names()
    for part in node.nodes("columns"):
        given = part.names if isinstance(part, ast.Named) else ()
        for place, (name, value) in enumerate(cells(c, part, scope)):
            if place < len(given) or is_column(name, value, scope):
                names.write(name, part.span)
            name = name or next(f"Column{n}" for n in itertools.count(1) if f"Column{n}" not in merged)
            merged[name] = value
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


def project_away(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R15: all but these; names may hold `*`."""
    gone = {n for part in node.nodes("columns") for n in _matching(stage, part)}
    return c.emit(stage, [(n, v) for n, v in everything(stage) if n not in gone])


def project_keep(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Only these, in their existing order."""
    kept = {n for part in node.nodes("columns") for n in _matching(stage, part)}
    return c.emit(stage, [(n, v) for n, v in everything(stage) if n in kept])


def project_by_names(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """The columns that constant texts and arrays name, wildcards included; unknown names are ignored."""
    order: list[str] = []
    for part in node.nodes("columns"):
        value = c.expr(part, Scope(env))
        if not value.is_constant or value.type not in ("string", "dynamic"):
            raise KqlBindError("project-by-names needs constant names", part.span)
        given = plain(value.constant) if value.type == "dynamic" else value.constant
        for name in given if isinstance(given, list) else [given]:
            for column in stage.visible:
                if fnmatch.fnmatchcase(column.name, str(name)) and column.name not in order:
                    order.append(column.name)
    values = dict(everything(stage))
    return c.emit(stage, [(n, values[n]) for n in order])


def project_rename(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """New names in the old positions."""
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


def _by_letter(name: str) -> tuple[str, str]:
    """Ignores case: Host between gpu and job, not before both."""
    return name.casefold(), name.swapcase()


def _by_number(name: str) -> tuple[list[tuple[int, str]], str]:
    """Compares the numbers in names by their values: a20 before a100."""
    parts = re.split("([0-9]+)", name.casefold())
    # Text and numbers alternate. Of two numbers without leading zeros the longer one is greater.
    sizes = [
        (0, part) if place % 2 == 0 else (len(part.lstrip("0")), part.lstrip("0")) for place, part in enumerate(parts)
    ]
    return sizes, name.swapcase()


def project_reorder(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """These first, the rest after."""
    order: list[str] = []
    for part in node.nodes("columns"):
        assert isinstance(part, ast.Reordered)
        found = _matching(stage, part.value)
        if part.order:
            by = _by_number if part.order.startswith("granny") else _by_letter
            found = sorted(found, key=by, reverse=part.order.endswith("desc"))
        order += [n for n in found if n not in order]
    values = dict(everything(stage))
    return c.emit(stage, [(n, values[n]) for n in order] + [(n, v) for n, v in values.items() if n not in order])


def serialize(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Fixes the order of rows. Unlike extend, a computed column never replaces one: it is renamed (Host1)."""
    made = c.serialized(stage)
    if not node.nodes("columns"):
        return made
    scope = scope_of(made, env, windowed=True)
    there, names = everything(made), Names()
    for part in node.nodes("columns"):
        given = part.names if isinstance(part, ast.Named) else ()
        for place, (name, value) in enumerate(cells(c, part, scope)):
            if place < len(given) or not is_column(name, value, scope):
                name = names.write(name, part.span) if place < len(given) else names.lend(name)
                there.append((fresh(name, [n for n, _ in there]), value))
    assert scope.stage is not None
    return c.emit(scope.stage, there)


def assert_schema(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """The rows unchanged, if their columns are the declared ones."""
    wanted = [(n, k) for n, k in node.parts["schema"].columns if n != "*"]
    found = [(v.name, v.type) for v in stage.visible]
    if found[: len(wanted)] != wanted or (len(found) > len(wanted) and ("*", "") not in node.parts["schema"].columns):
        found_text = ", ".join(f"{n}:{k}" for n, k in found)
        raise KqlBindError(f"the columns are ({found_text})", node.parts["schema"].span)
    return stage


BUILDERS = {
    "assert-schema": assert_schema,
    "project": project, "extend": extend, "project-away": project_away, "project-keep": project_keep,
    "project-rename": project_rename, "project-reorder": project_reorder, "serialize": serialize,
    "project-by-names": project_by_names,
}  # fmt: skip
