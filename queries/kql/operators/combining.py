"""Operators that combine tables: join, lookup, union, mv-expand, invoke."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, union_all

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.budget import tick
from queries.kql.conversion import to_type
from queries.kql.dialect import Sql, quoted
from queries.kql.errors import KqlBindError, NotImplementedYet, nearest
from queries.kql.stages import (
    Env,
    Function,
    Scope,
    Stage,
    StageColumn,
    everything,
    fresh,
    named_columns,
    relation,
    row_of,
    scope_of,
)
from queries.kql.unread import Stacked
from queries.kql.values import NUMERIC, Value, cast_number, constant, sql

KINDS = ("innerunique", "inner", "leftouter", "rightouter", "fullouter", "leftsemi", "rightsemi", "leftanti", "rightanti",
         "anti", "leftantisemi", "rightantisemi")  # fmt: skip

#: The maximum number of tables in one union; with wildcards it may name each of the store's.
MOST_PARTS = 500

# SQL's names of joins, and the kinds here.
_SQL_KINDS = {"left": "leftouter", "right": "rightouter", "full": "fullouter", "outer": "fullouter", "semi": "leftsemi"}


def is_innerunique(node: ast.Operator) -> bool:
    """Does a join drop all but one left row of each key?"""
    return node.name == "join" and str(getattr(node.settings.get("kind"), "value", "innerunique")) == "innerunique"


def _kind(node: ast.Operator, default: str, allowed: tuple[str, ...]) -> str:
    chosen = node.settings.get("kind")
    if chosen is None:
        return default
    word = str(getattr(chosen, "value", "")).lower()
    if word not in allowed:
        meant = _SQL_KINDS.get(word, word)
        close = meant if meant in allowed else nearest(word, allowed)
        raise KqlBindError(f"unknown {node.name} kind '{word}'", chosen.span, suggestion=close)
    return {"anti": "leftanti", "leftantisemi": "leftanti", "rightantisemi": "rightanti"}.get(word, word)


def _conditions(c: TableBinder, left: Stage, right: Stage, node: ast.Operator, env: Env) -> list[tuple[Value, Value]]:
    rows = {"$left": row_of(left, "l"), "$right": row_of(right, "r")}
    pairs = []
    flat: list[ast.Node] = []
    for on in node.nodes("on"):
        flat += on.operands if isinstance(on, ast.Logical) and on.op == "and" else [on]
    for on in flat:
        if isinstance(on, ast.Name):
            for side in ("$left", "$right"):
                if on.name not in rows[side]:
                    raise KqlBindError(
                        f"the {side[1:]} side has no column '{on.name}'",
                        on.span,
                        suggestion=nearest(on.name, rows[side]),
                    )
            first, second = rows["$left"][on.name], rows["$right"][on.name]
        elif isinstance(on, ast.Binary) and on.op == "==":
            sides = {_side(part): part for part in (on.left, on.right)}
            if set(sides) != {"$left", "$right"}:
                raise KqlBindError(f"{node.name} takes column names and $left.X == $right.Y", on.span)
            scope = Scope(env, {}, None, sides=rows)
            first, second = (c.expr(sides[side], scope) for side in ("$left", "$right"))
        else:
            raise KqlBindError(f"{node.name} takes column names and $left.X == $right.Y", on.span)
        if first.type != second.type:
            if first.type in NUMERIC and second.type in NUMERIC and {first.type, second.type} == {"int", "long"}:
                first, second = cast_number(first, "long"), cast_number(second, "long")
            else:
                raise KqlBindError(f"cannot join {first.type} with {second.type}", on.span)
        if first.type == "dynamic":
            raise KqlBindError("cannot join on a dynamic; convert it with tostring()", on.span)
        pairs.append((first, second))
    return pairs


def _side(node: ast.Node) -> str:
    """``$left`` or ``$right`` if this is a column of it; empty for anything else, which Kusto does not take in a join."""
    return node.object.name if isinstance(node, ast.Member) and isinstance(node.object, ast.Name) else ""


def _dedupe(c: TableBinder, stage: Stage, keys: list[Value]) -> Stage:
    """R4: innerunique keeps one left row for each key."""
    place = ", ".join(f"{{{i}}}" for i in range(len(keys)))
    keyed = Sql(f"row_number() OVER (PARTITION BY {place})", *(k.sql for k in keys)).label(quoted("$n"))
    items = [v.value("l").sql.label(quoted(v.physical)) for v in stage.visible]
    name = c.add(select(*items, keyed).select_from(relation(stage.relation, "l")))
    trimmed = c.add(
        select(*(v.value("l").sql.label(quoted(v.physical)) for v in stage.visible))
        .select_from(relation(name, "l"))
        .where(Sql('"l"."$n" = 1'))
    )
    return Stage(trimmed, stage.visible)


def join(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R4: innerunique by default; keys of the right side are repeated as Key1."""
    return _join(c, stage, node, env, _kind(node, "innerunique", KINDS), repeat=True)


def lookup(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R4: leftouter by default; the key is not repeated."""
    return _join(c, stage, node, env, _kind(node, "leftouter", ("leftouter", "inner")), repeat=False)


def _join(c: TableBinder, stage: Stage, node: ast.Operator, env: Env, kind: str, *, repeat: bool) -> Stage:
    right = c.table(node.parts["right"], env)
    if not node.nodes("on"):
        raise KqlBindError(f"{node.name} needs 'on'", node.span)
    pairs = _conditions(c, stage, right, node, env)
    if kind == "innerunique":
        stage = _dedupe(c, stage, [a for a, _ in pairs])
    # Kusto joins nulls to nothing, as SQL does; '' is a value (R1).
    on = Sql(
        " AND ".join(f"{{{2 * i}}} = {{{2 * i + 1}}}" for i in range(len(pairs))), *(v.sql for p in pairs for v in p)
    )
    left_table, right_table = relation(stage.relation, "l"), relation(right.relation, "r")
    if kind.endswith(("semi", "anti")):
        return _half(c, stage, right, on, kind)
    dropped = set() if repeat else {b.name for _, b in pairs}
    made: list[tuple[str, Value]] = [
        (v.name, _outer(v, "l", kind in ("rightouter", "fullouter"))) for v in stage.visible
    ]
    lefts = {name for name, _ in made}
    taken = lefts | {column.name for column in right.visible}
    for column in right.visible:
        if column.name in dropped:
            continue
        name = fresh(column.name, taken) if column.name in lefts else column.name
        taken.add(name)
        made.append((name, _outer(column, "r", kind in ("leftouter", "fullouter"))))
    if kind == "rightouter":
        source: Any = right_table.outerjoin(left_table, on)
    else:
        source = left_table.join(right_table, on, isouter=kind in ("leftouter", "fullouter"), full=kind == "fullouter")
    return c.emit(stage, made, source=source, keep_hidden=False, is_sorted=False)


def _outer(column: StageColumn, alias: str, missing: bool) -> Value:
    """R1: a missing string after an outer join is empty."""
    value = column.value(alias)
    if not missing:
        return value
    return sql("{0}", column.type, value, nullable=True)


def _half(c: TableBinder, left: Stage, right: Stage, on: Sql, kind: str) -> Stage:
    kept, other, alias, other_alias = (left, right, "l", "r") if kind.startswith("left") else (right, left, "r", "l")
    test = Sql(
        f'{"" if kind.endswith("semi") else "NOT "}EXISTS (SELECT 1 FROM "{other.relation}" AS "{other_alias}" WHERE {{0}})',
        on,
    )
    columns = [(v.name, v.value(alias)) for v in kept.visible]
    return c.emit(
        kept, columns, source=relation(kept.relation, alias), keep_hidden=False, is_sorted=False,
        refine=lambda q: q.where(test), row_by_row=True,
    )  # fmt: skip


def union_items(c: TableBinder, nodes: tuple[ast.Node, ...], env: Env, fuzzy: bool) -> list[tuple[str, Stage]]:
    """Tables, wildcards and subqueries with the names `withsource` shows."""
    out: list[tuple[str, Stage]] = []
    for number, node in enumerate(nodes):
        if isinstance(node, (ast.Wildcard, ast.Star)):
            pattern = node.pattern if isinstance(node, ast.Wildcard) else "*"
            names = [n for n in c.catalog.tables if fnmatch.fnmatchcase(n, pattern)]
            for n in dict.fromkeys(env.all_names()):
                found = env.find(n)
                view = isinstance(found, Stage) or (isinstance(found, Function) and found.body.is_view)
                if view and fnmatch.fnmatchcase(n, pattern):
                    names.append(n)
            if not names and not fuzzy:
                raise KqlBindError(f"no table matches '{pattern}'", node.span)
            out += [(n, c.table(ast.Name(n, span=node.span), env)) for n in names]
            continue
        try:
            stage = c.table(node, env)
        except KqlBindError:
            if not fuzzy:
                raise
            continue
        name = node.name if isinstance(node, ast.Name) else stage.label or f"union_arg{number}"
        out.append((name, stage))
    return out


def union(c: TableBinder, stage: Stage | None, node: ast.Operator, env: Env) -> Stage:
    """R12: the superset of columns; one name with two types splits into name_type columns."""
    word = _kind(node, "outer", ("outer", "inner"))
    fuzzy = getattr(node.settings.get("isfuzzy"), "value", False) in (True, "true")
    parts = union_items(c, node.nodes("tables"), env, fuzzy)
    if stage is not None:
        parts.insert(0, (stage.label or "union_arg0", stage))
    if not parts:
        raise KqlBindError("union has no table left", node.span)
    if len(parts) > MOST_PARTS:
        raise KqlBindError(f"union of {len(parts)} tables; at most {MOST_PARTS} can be put together", node.span)
    tag = node.settings.get("withsource") or node.settings.get("with_source")
    return stack(c, parts, word, str(getattr(tag, "value", "")) if tag is not None else None)


def stack(c: TableBinder, parts: list[tuple[str, Stage]], kind: str, tag: str | None) -> Stage:
    """Tables one below the other; `tag` names a column with the source of each row."""
    columns = _superset([s for _, s in parts], kind)
    if not columns and tag is None:
        raise KqlBindError("the tables of this union have no column in common")
    tick(len(columns) * len(parts))
    selects = []
    narrowed = []
    for name, part in parts:
        items = []
        if tag is not None:
            items.append(constant(name, "string").sql.label(quoted(tag)))
        for _out, key, type_, physical in columns:
            found = next((v for v in part.visible if v.name == key and v.type == type_), None)
            value = found.value() if found else constant(None, type_)
            items.append(value.sql.label(quoted(physical)))
        selects.append(select(*items).select_from(relation(part.relation)))
        narrowed.append((selects[-1], tuple(items)))
    body = union_all(*selects) if len(selects) > 1 else selects[0]
    made = [StageColumn(out, type_, physical, type_ != "string") for out, _, type_, physical in columns]
    if tag is not None:
        made.insert(0, StageColumn(tag, "string", tag, False))
    name = c.add(body, narrowed=Stacked(tuple(narrowed)))
    return Stage(name, tuple(made), serial=all(part.serial for _, part in parts))


def _superset(stages: list[Stage], kind: str) -> list[tuple[str, str, str, str]]:
    kinds: dict[str, list[str]] = {}
    for stage in stages:
        for column in stage.visible:
            types = kinds.setdefault(column.name, [])
            if column.type not in types:
                types.append(column.type)
    if kind == "inner":
        kinds = {n: t for n, t in kinds.items() if all(any(v.name == n for v in s.visible) for s in stages)}
    flat: list[tuple[str, str, str]] = []
    for name, types in kinds.items():
        for one in types:
            flat.append((name if len(types) == 1 else f"{name}_{one}", name, one))
    taken: set[str] = set()
    out = []
    for label, name, one in flat:
        unique = fresh(label, taken)
        taken.add(unique)
        out.append((unique, name, one))
    physical = named_columns([(label, constant(None, one)) for label, _, one in out])
    return [(label, name, one, p.physical) for (label, name, one), p in zip(out, physical, strict=True)]


def union_source(c: TableBinder, node: ast.Operator, env: Env) -> Stage:
    """union at the head of a query."""
    return union(c, None, node, env)


@dataclass(frozen=True, slots=True)
class Expanded:
    """One column of mv-expand or mv-apply: its name, its array, and the type of its items."""

    name: str
    array: Value
    type: str | None

    def item(self, place: Value, array: Value | None = None) -> Value:
        """The item at an index, from 0; null past the end."""
        made = sql(
            "nullif(list_extract({0}, {1} + 1), 'null'::JSON)", "dynamic", array or self.array, place, nullable=True
        )
        return _of_type(made, self.type) if self.type else made


#: The types in JSON of items that a type of ``typeof`` takes; all others are null (Kusto's page on mv-expand).
_TAKEN = {
    **dict.fromkeys(("int", "long"), "'BIGINT', 'UBIGINT'"), **dict.fromkeys(("real", "decimal"), "'BIGINT', 'UBIGINT', 'DOUBLE'"),
    "bool": "'BOOLEAN'", **dict.fromkeys(("datetime", "timespan", "guid"), "'VARCHAR'"),
}  # fmt: skip


def _of_type(item: Value, kind: str) -> Value:
    if kind not in _TAKEN:
        return to_type(item, kind)
    taken = sql(f"CASE WHEN json_type({{0}}) IN ({_TAKEN[kind]}) THEN {{0}} END", "dynamic", item, nullable=True)
    return to_type(taken, kind)


# R13: null gives one row, an empty array none; a bag gives one-property bags, or pairs with kind=array.
_PAIRS = {"bag": "json_object", "array": "json_array"}


def expanded_items(
    c: TableBinder, stage: Stage, node: ast.Operator, env: Env, scope: Scope | None = None
) -> list[Expanded]:  # fmt: skip
    """The arrays to iterate over, as SQL lists."""
    if set(node.settings) - {"with_itemindex", "bagexpansion", "kind"}:
        raise NotImplementedYet(f"this setting of {node.name} is not implemented yet", node.span)
    chosen = node.settings.get("bagexpansion") or node.settings.get("kind")
    kind = str(getattr(chosen, "value", "bag"))
    if kind not in _PAIRS:
        raise KqlBindError(f"a bag is expanded as 'bag' or 'array', not '{kind}'", node.span)
    row = scope or scope_of(stage, env)
    out: list[Expanded] = []
    for part in node.nodes("columns"):
        assert isinstance(part, ast.Expand)
        inner = part.value.value if isinstance(part.value, ast.Named) else part.value
        value = c.expr(inner, row)
        if value.type != "dynamic":
            raise KqlBindError(f"{node.name} needs a dynamic, not {value.type}", part.span)
        name = part.value.names[0] if isinstance(part.value, ast.Named) else value.name or f"Column{len(out) + 1}"
        out.append(Expanded(name, sql(f"json_items({{0}}, {_PAIRS[kind]})", "dynamic", value), part.type))
    return out


def walk_length(parts: list[Expanded]) -> Value:
    """The number of rows that one row becomes: the longest array decides."""
    return sql("greatest({*})", "long", *(sql("len({0})", "long", p.array) for p in parts))


def mv_expand(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """R13: several columns are iterated in parallel; null gives one row, an empty array none."""
    parts = expanded_items(c, stage, node, env)
    base = everything(stage) + [(f"$x{i}", p.array) for i, p in enumerate(parts)] + [("$len", walk_length(parts))]
    wide = c.emit(stage, base)
    row = row_of(wide)
    exploded = c.emit(wide, [*row.items(), ("$i", sql("unnest(range({0}))", "long", row["$len"], nullable=False))])
    row = row_of(exploded)
    made = {n: row[n] for n, _ in everything(stage)}
    for number, part in enumerate(parts):
        made[part.name] = part.item(row["$i"], row[f"$x{number}"])
    index = node.settings.get("with_itemindex")
    if index is not None:  # R6: it is renamed if the column exists
        made[fresh(str(getattr(index, "value", "")), made)] = row["$i"]
    limit = c.expr(node.parts["limit"], Scope(env)) if "limit" in node.parts else None
    return c.emit(
        exploded, list(made.items()),
        refine=(lambda q: q.where(sql("({0} < {1})", "bool", row["$i"], limit).sql)) if limit else None,
    )  # fmt: skip


def invoke(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """A user function with the rows so far as its first argument."""
    call = node.parts["call"]
    inner = Env({"$input": stage}, env)
    return c.table(ast.Call(call.name, (ast.Name("$input"), *call.args), span=call.span), inner)


BUILDERS: dict[str, Any] = {
    "join": join, "lookup": lookup, "union": union, "mv-expand": mv_expand, "invoke": invoke,
}  # fmt: skip
