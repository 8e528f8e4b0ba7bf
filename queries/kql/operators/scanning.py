"""scan: a state machine over the rows in order, as a recursive CTE that takes one row at a time.

For each row the steps are tried from the last to the first. A row that fits step k while step k-1 has a state promotes
that state (check 1). Otherwise it may continue the state of step k itself, or begin a new sequence at the first step
(check 2). Each step's state holds, for every step up to it, the columns that conditions and assignments name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import TableBinder
from queries.kql.conversion import to_type
from queries.kql.dialect import PHYSICAL, Col, Ident, Sql
from queries.kql.errors import KqlBindError
from queries.kql.stages import Env, Scope, Stage, StageColumn, fresh, named_columns
from queries.kql.values import NUMERIC, Value, constant, sql

MAX_STEPS = 16


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    when: ast.Node
    assign: dict[str, ast.Node]
    output: str


def _steps(node: ast.Operator, declared: dict[str, Value]) -> list[_Step]:
    out: list[_Step] = []
    for part in node.nodes("steps"):
        assert isinstance(part, ast.Operator)
        if part.parts.get("optional"):
            raise KqlBindError("optional steps of scan are not supported", part.span)
        assign: dict[str, ast.Node] = {}
        for item in part.nodes("assign"):
            assert isinstance(item, ast.Named)
            if item.names[0] not in declared:
                raise KqlBindError(f"scan does not declare '{item.names[0]}'", item.span)
            assign[item.names[0]] = item.value
        out.append(_Step(part.parts["name"], part.parts["when"], assign, str(part.parts.get("output", "all"))))
    if len(out) > MAX_STEPS:
        raise KqlBindError(f"scan takes at most {MAX_STEPS} steps", node.span)
    return out


def _declared(c: TableBinder, node: ast.Operator, env: Env) -> dict[str, Value]:
    out: dict[str, Value] = {}
    for part in node.nodes("declare"):
        assert isinstance(part, ast.Parameter)
        out[part.name] = (
            to_type(c.expr(part.default, Scope(env)), part.type) if part.default else constant(None, part.type)
        )
    return out


def _used(steps: list[_Step]) -> list[tuple[int, str]]:
    """The (step, column) pairs that any expression names."""
    places = {s.name: i for i, s in enumerate(steps)}
    found: dict[tuple[int, str], None] = {}

    def walk(node: Any) -> None:
        if isinstance(node, ast.Member) and isinstance(node.object, ast.Name) and node.object.name in places:
            found[places[node.object.name], node.name] = None
        if isinstance(node, (tuple, list)):
            for item in node:
                walk(item)
        elif isinstance(node, ast.Node):
            for slot in node.__slots__ if hasattr(node, "__slots__") else ():
                walk(getattr(node, slot, None))

    for step in steps:
        walk([step.when, *step.assign.values()])
    return list(found)


class _Machine:
    """Builds the layers of SELECTs of one transition."""

    def __init__(self, c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> None:
        self.c, self.env, self.node = c, env, node
        self.declared = _declared(c, node, env)
        self.steps = _steps(node, self.declared)
        self.stage = stage
        self.input = {v.name: v for v in stage.visible if v.name not in self.declared}
        self.used = _used(self.steps)
        for step, name in self.used:
            if name not in self.input and name not in self.declared:
                raise KqlBindError(f"scan step '{self.steps[step].name}' has no column '{name}'", node.span)

    def kind(self, name: str) -> str:
        return self.declared[name].type if name in self.declared else self.input[name].type

    def empty(self, name: str) -> Value:
        return self.declared.get(name) or constant(None, self.kind(name))

    def cell(self, row: int, step: int, name: str) -> str:
        """The column that holds a step's value in one row of the state matrix."""
        return f"v{row}_{self.used.index((step, name))}"

    def scope(self, state: int | None, cleared: str | None = None) -> Scope:
        """What an expression sees: the row, declared defaults, and the states of the steps."""
        columns: dict[str, Value] = {n: v.value("t") for n, v in self.input.items()}
        columns |= self.declared
        sides: dict[str, dict[str, Value]] = {s.name: {} for s in self.steps}
        for step, name in self.used:
            value = self.empty(name)
            if state is not None and step <= state:
                held = Value(Col("t", self.cell(state, step, name)), self.kind(name), True)
                value = held if cleared is None else sql(
                    f"CASE WHEN {cleared} THEN {{0}} ELSE {{1}} END", self.kind(name), value, held, nullable=True)  # fmt: skip
            sides[self.steps[step].name][name] = value
        return Scope(self.env, columns, None, sides=sides)

    def test(self, step: int, scope: Scope) -> Value:
        return sql("coalesce({0}, false)", "bool", self.c.condition(self.steps[step].when, scope), nullable=False)

    def layer(self, inner: Sql, items: list[tuple[str, Any]]) -> Sql:
        """Adds a SELECT over the layer below, with named columns added."""
        made = ", ".join(f'{{{i + 1}}} AS "{n}"' for i, (n, _) in enumerate(items))
        return Sql(f'SELECT "t".*, {made} FROM ({{0}}) AS "t"', inner, *(e for _, e in items))

    def transition(self, base: Sql) -> Sql:
        """All steps on one row, from the last to the first."""
        body = base
        for k in reversed(range(len(self.steps))):
            cleared = f'"t"."m{k + 1}"' if k + 1 < len(self.steps) else "false"
            first: Any = Sql("false")
            if k > 0:
                first = Sql(f'("t"."f{k - 1}" AND {{0}})', self.test(k, self.scope(k - 1)).sql)
            body = self.layer(body, [(f"m{k}", first)])
            may = f'("t"."f{k}" AND NOT {cleared})' if k > 0 else "true"
            again = Sql(f'(NOT "t"."m{k}" AND {may} AND {{0}})', self.test(k, self.scope(k, cleared)).sql)
            body = self.layer(body, [(f"c{k}", again)])
            body = self.layer(body, [(f"a{k}_{i}", self.assigned(k, n, cleared)) for i, n in enumerate(self.declared)] or
                              [(f"a{k}_none", Sql("NULL"))])  # fmt: skip
        return body

    def assigned(self, k: int, name: str, cleared: str) -> Any:
        """A declared column of the row at step k, after either check."""
        node = self.steps[k].assign.get(name)
        kind = self.declared[name].type
        held = k > 0
        if node is None:
            return self.declared[name].sql
        again = _fits(self.c.expr(node, self.scope(k, cleared)), kind, node)
        if not held:
            return again.sql
        first = _fits(self.c.expr(node, self.scope(k - 1)), kind, node)
        return Sql(f'CASE WHEN "t"."m{k}" THEN {{0}} ELSE {{1}} END', first.sql, again.sql)


def _fits(value: Value, kind: str, node: ast.Node) -> Value:
    if value.type != kind and not (value.type in NUMERIC and kind in NUMERIC) and value.type != "dynamic":
        raise KqlBindError(f"this is {value.type}, the declared column is {kind}", node.span)
    return to_type(value, kind)


def _next_state(m: _Machine) -> list[tuple[str, Any]]:
    """The state after a row, from the flags of its checks."""
    out: list[tuple[str, Any]] = []
    count = len(m.steps)
    promoted = '"t"."m1"' if count > 1 else "false"
    begins = f'("t"."c0" AND (NOT "t"."f0" OR {promoted}))'
    out.append(("mid", Sql(f'"t"."mid" + CASE WHEN {begins} THEN 1 ELSE 0 END')))
    for k in range(count):
        cleared = f'"t"."m{k + 1}"' if k + 1 < count else "false"
        out.append((f"f{k}", Sql(f'("t"."m{k}" OR "t"."c{k}" OR ("t"."f{k}" AND NOT {cleared}))')))
        own = f'CASE WHEN {begins} THEN "t"."mid" ELSE "t"."i0" END' if k == 0 else \
            f'CASE WHEN "t"."m{k}" THEN "t"."i{k - 1}" ELSE "t"."i{k}" END'  # fmt: skip
        out.append((f"i{k}", Sql(own)))
        for step, name in m.used:
            if step > k:
                continue
            cell = m.cell(k, step, name)
            if step == k:
                fresh = Sql(f'"t"."a{k}_{list(m.declared).index(name)}"') if name in m.declared else \
                    Col("t", m.input[name].physical)  # fmt: skip
                held = Sql(f'CASE WHEN "t"."m{k}" OR "t"."c{k}" THEN {{0}} WHEN {cleared} THEN {{1}} ELSE "t"."{cell}" END',
                           fresh, m.empty(name).sql)  # fmt: skip
            else:
                below = m.cell(k - 1, step, name)
                held = Sql(f'CASE WHEN "t"."m{k}" THEN "t"."{below}" WHEN {cleared} THEN {{0}} ELSE "t"."{cell}" END',
                           m.empty(name).sql)  # fmt: skip
            out.append((cell, held))
    return out


def scan(c: TableBinder, stage: Stage, node: ast.Operator, env: Env) -> Stage:
    """Match sequences of rows; every matching row comes out with its declared columns (and match id)."""
    ordered = c.serialized(stage)
    assert ordered.order is not None
    m = _Machine(c, ordered, node, env)
    numbered = c.add(Sql(f'SELECT *, row_number() OVER (ORDER BY {{0}}) AS "$n" FROM "{ordered.relation}" AS "t"',
                         ordered.order.value().sql), materialized=True)  # fmt: skip
    state = c.alias("scan")
    cells = [(k, s, n) for k in range(len(m.steps)) for s, n in m.used if s <= k]
    declared = [(f"a{k}_{i}", v.type) for k in range(len(m.steps)) for i, v in enumerate(m.declared.values())]
    first = ['CAST(0 AS BIGINT) AS "$at"', 'CAST(0 AS BIGINT) AS "mid"']
    first += [
        f'false AS "f{k}", CAST(0 AS BIGINT) AS "i{k}", false AS "m{k}", false AS "c{k}"' for k in range(len(m.steps))
    ]
    args: list[Any] = []
    for k, s, n in cells:
        first.append(f'CAST({{{len(args)}}} AS {PHYSICAL[m.kind(n)]}) AS "{m.cell(k, s, n)}"')
        args.append(m.empty(n).sql)
    first += [f'CAST(NULL AS {PHYSICAL[kind]}) AS "{name}"' for name, kind in declared]
    held = ["mid", *(x for k in range(len(m.steps)) for x in (f"f{k}", f"i{k}")), *(m.cell(*cell) for cell in cells)]
    joined = Sql(
        f'SELECT "r".*, {", ".join(f"{chr(34)}s{chr(34)}.{chr(34)}{h}{chr(34)}" for h in held)} '
        f'FROM "{state}" AS "s" JOIN "{numbered}" AS "r" ON "r"."$n" = "s"."$at" + 1'
    )
    after = dict(_next_state(m))
    names = ["$at", "mid"]
    for k in range(len(m.steps)):
        names += [f"f{k}", f"i{k}", f"m{k}", f"c{k}"]
    names += [m.cell(*cell) for cell in cells] + [n for n, _ in declared]
    kinds = dict(declared) | {m.cell(*cell): m.kind(cell[2]) for cell in cells}
    parts: list[str] = []
    values: list[Any] = [m.transition(joined)]
    for name in names:
        element = Sql('"t"."$n"') if name == "$at" else after.get(name, Sql(f'"t"."{name}"'))
        cast = f"CAST({{{len(values)}}} AS {PHYSICAL[kinds[name]]})" if name in kinds else f"{{{len(values)}}}"
        parts.append(f'{cast} AS "{name}"')
        values.append(element)
    step = Sql(f'SELECT {", ".join(parts)} FROM ({{0}}) AS "t"', *values)
    start = Sql("SELECT " + ", ".join(first), *args)
    c.add_recursive(state, Sql("{0} UNION ALL {1}", start, step))
    return _output(c, m, ordered, numbered, state)


def _output(c: TableBinder, m: _Machine, ordered: Stage, numbered: str, state: str) -> Stage:
    """The rows that matched a step, in their order; of one row the first step comes first."""
    match_id = m.node.settings.get("with_match_id")
    given: list[tuple[str, Value]] = [(n, v.value("r")) for n, v in m.input.items()]
    base = list(given)
    names = [n for n, _ in base] + list(m.declared)
    name_id = fresh(str(getattr(match_id, "value", "")), names) if match_id is not None else None
    made = named_columns(
        [(n, constant(None, m.kind(n))) for n in names] + ([(name_id, constant(0, "long"))] if name_id else [])
    )
    selects: list[str] = []
    args: list[Any] = []
    for k, step in enumerate(m.steps):
        if step.output == "none":
            continue
        parts = []
        for column in made:
            if column.name in m.declared and column.name != name_id:
                element: Any = Sql(f'"s"."a{k}_{list(m.declared).index(column.name)}"')
            elif column.name == name_id:
                element = Sql(f'"s"."i{k}"')
            else:
                element = Col("r", m.input[column.name].physical)
            parts.append((element, column.physical))
        holes = ", ".join(f"{{{len(args) + i}}}" for i in range(len(parts)))
        args += [Sql("{0} AS {1}", element, Ident(physical)) for element, physical in parts]
        test = f'"s"."m{k}" OR "s"."c{k}"'
        if step.output == "last":
            # Only the last row of a run at this step: the next row does not continue it.
            later = f'"{state}" AS "z" WHERE "z"."$at" > "s"."$at" AND "z"."i{k}" = "s"."i{k}" AND ("z"."m{k}" OR "z"."c{k}")'
            test = f"({test}) AND NOT EXISTS (SELECT 1 FROM {later})"
        selects.append(
            f'SELECT {holes}, "s"."$at" * {len(m.steps) + 1} + {k} AS "$ord" FROM "{state}" AS "s" '
            f'JOIN "{numbered}" AS "r" ON "r"."$n" = "s"."$at" WHERE {test}'
        )
    if not selects:
        raise KqlBindError("every step of this scan has output=none", m.node.span)
    name = c.add(Sql(" UNION ALL ".join(selects), *args))
    return Stage(name, (*made, StageColumn("$ord", "long", "$ord", False, True)), True)


BUILDERS = {"scan": scan}
