"""What every line that a query can match must contain, and its time range, from the query's own text.

``where`` conditions at the head of a pipeline are searched for phrases and times; ``queries.kql.textindex`` asks the
store's text filters for them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from queries.kql import syntax as ast
from queries.kql.binder import Binder
from queries.kql.errors import KqlError
from queries.kql.functions.declaration import Kind
from queries.kql.functions.registry import registry
from queries.kql.stages import Env, Scope
from store.text_filter import Phrase


@dataclass(frozen=True)
class All:
    """Every condition must hold."""

    parts: tuple[Need, ...]


@dataclass(frozen=True)
class Some:
    """At least one condition must hold."""

    parts: tuple[Need, ...]


Need = Phrase | All | Some


def need_of(c: Binder, operators: Sequence[ast.Node], env: Env, column: str) -> Need | None:
    """What every line that passes the leading operators must contain; None if nothing is certain."""
    needs = [_condition(c, condition, env, column) for condition in _conditions(operators, column)]
    found = tuple(need for need in needs if need is not None)
    return All(found) if found else None


def _conditions(operators: Sequence[ast.Node], column: str) -> Iterator[ast.Node]:
    """The conditions of the leading operators, as long as rows are independent and the column is the stored one."""
    of_rows = registry().names(Kind.ROW)
    for node in operators:
        assert isinstance(node, ast.Operator)
        if node.name not in ("where", "extend", "project", "project-away", "project-keep", "project-reorder"):
            return
        if any(isinstance(n, ast.Call) and registry().name_of(n.name) in of_rows for n in walked(node)):
            return  # a row's neighbours count
        if node.name == "where":
            yield node.parts["value"]
        elif any(isinstance(n, ast.Named) and column in n.names for n in node.nodes("columns")):
            return


def walked(node: Any) -> Iterator[ast.Node]:
    if isinstance(node, ast.Node) and is_dataclass(node):
        yield node
        for slot in fields(node):
            yield from walked(getattr(node, slot.name))
    elif isinstance(node, (tuple, list)):
        for item in node:
            yield from walked(item)
    elif isinstance(node, dict):
        for item in node.values():
            yield from walked(item)


_WHOLE = {  # operator -> which sides of the text cannot be inside a longer term
    "has": (True, True), "hasprefix": (True, False), "hassuffix": (False, True), "contains": (False, False),
    "startswith": (True, False), "endswith": (False, True), "==": (True, True), "=~": (True, True),
}  # fmt: skip


def _condition(c: Binder, node: ast.Node, env: Env, column: str) -> Need | None:
    if isinstance(node, ast.Logical):
        parts = [_condition(c, operand, env, column) for operand in node.operands]
        known = tuple(part for part in parts if part is not None)
        if node.op == "and":
            return All(known) if known else None
        return Some(known) if len(known) == len(parts) else None
    if isinstance(node, ast.Binary) and isinstance(node.left, ast.Name) and node.left.name == column:
        text = _text(c, node.right, env)
        if text is None:
            return None
        if node.op == "matches regex":
            return regex_need(text)
        sides = _WHOLE.get(node.op.removesuffix("_cs"))
        return None if sides is None else Phrase(text, *sides, exact=node.op == "==" or node.op.endswith("_cs"))
    if isinstance(node, ast.InList) and isinstance(node.operand, ast.Name) and node.operand.name == column:
        texts = _texts(c, node.items, env)
        phrases = tuple(Phrase(text, True, True, exact=node.op == "in") for text in texts or ())
        if phrases and node.op in ("has_any", "in", "in~"):
            return Some(phrases)
        if phrases and node.op == "has_all":
            return All(phrases)
    return None


def _constant(c: Binder, node: ast.Node, env: Env) -> Any:
    if not isinstance(node, (ast.Literal, ast.Name)):
        return None
    try:
        value = c.expr(node, Scope(env))
    except KqlError:
        return None  # the condition itself will report the error
    return value.constant if value.is_constant else None


def _text(c: Binder, node: ast.Node, env: Env) -> str | None:
    found = _constant(c, node, env)
    return found if isinstance(found, str) else None


def _texts(c: Binder, nodes: Sequence[ast.Node], env: Env) -> list[str] | None:
    out: list[str] = []
    for node in nodes:
        found = _constant(c, node, env)
        for item in found if isinstance(found, list) else [found]:
            text = item.value if isinstance(item, ast.Literal) else item
            if not isinstance(text, str):
                return None
            out.append(text)
    return out


@dataclass(frozen=True)
class Period:
    """Every matching line has a time from ``low`` to ``high``, both included."""

    low: datetime = datetime.min
    high: datetime = datetime.max

    def within(self, other: Period) -> Period:
        return Period(max(self.low, other.low), min(self.high, other.high))


def period_of(c: Binder, operators: Sequence[ast.Node], env: Env, column: str) -> Period:
    """The time range that the leading operators leave, as far as it is known while compiling."""
    found = Period()
    for condition in _conditions(operators, column):
        found = found.within(_period(c, condition, env, column))
    return found


def _period(c: Binder, node: ast.Node, env: Env, column: str) -> Period:
    found = Period()
    if isinstance(node, ast.Logical) and node.op == "and":
        for operand in node.operands:
            found = found.within(_period(c, operand, env, column))
    elif isinstance(node, ast.Between) and not node.negated and _is_column(node.operand, column):
        low, high = _moment(c, node.low, env), _moment(c, node.high, env)
        if isinstance(low, datetime) and isinstance(high, int):  # a timespan in ticks of 100 ns
            high = _later(low, high)
        found = _between(low, high)
    elif isinstance(node, ast.Binary) and node.op in _MIRRORED:
        left, right, op = node.left, node.right, node.op
        if _is_column(right, column):
            left, right, op = right, left, _MIRRORED[op]
        if _is_column(left, column):
            moment = _moment(c, right, env)
            found = _between(moment if op in (">", ">=", "==") else None, moment if op in ("<", "<=", "==") else None)
    return found


_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "=="}


def _is_column(node: ast.Node, column: str) -> bool:
    return isinstance(node, ast.Name) and node.name == column


def _between(low: Any, high: Any) -> Period:
    return Period(
        low if isinstance(low, datetime) else datetime.min,
        high if isinstance(high, datetime) else datetime.max,
    )


def _later(moment: datetime, ticks: int) -> datetime | None:
    try:
        return moment + timedelta(microseconds=ticks // 10 + 1)  # rounded up: a bound may be too wide only
    except OverflowError:
        return None


def _moment(c: Binder, node: ast.Node, env: Env) -> Any:
    """The value of datetimes, timespans, names of such, ``now`` and ``ago``, and sums of them; None for all else."""
    plain = (ast.Literal, ast.Name, ast.Binary, ast.Call)
    if not all(
        isinstance(n, plain) and (not isinstance(n, ast.Call) or n.name in ("now", "ago")) for n in walked(node)
    ):
        return None
    try:
        value = c.expr(node, Scope(env))
    except KqlError:
        return None  # the condition itself will report the error
    known = value.is_constant and value.type in ("datetime", "timespan")
    return value.constant if known else None


def regex_need(pattern: str) -> Need | None:
    """The texts that every match of a regular expression contains.

    The pattern is RE2's; Python's parser interprets it the same way whenever it accepts it, except for classes such as
    [[:alpha:]], which are left out.
    """
    if "[:" in pattern or "[[" in pattern:
        return None
    parser: Any = importlib.import_module("re._parser")
    try:
        tree = parser.parse(pattern)
    except Exception:  # whatever it is, the engine will check the pattern
        return None
    return _sequence(tree, exact=not _FLAG_I.search(pattern))


#: A flag that may ignore case, for all of a pattern or a part of it.
_FLAG_I = re.compile(r"\(\?[A-Za-z-]*i")


def _sequence(tree: Any, exact: bool) -> Need | None:
    found: list[Need] = []
    run: list[str] = []

    def flush() -> None:
        if run:
            found.append(Phrase("".join(run), exact=exact))
            run.clear()

    for op, argument in tree:
        word = str(op)
        if word == "LITERAL":
            run.append(chr(argument))
            continue
        flush()
        inner: Need | None = None
        if word == "SUBPATTERN":
            inner = _sequence(argument[3], exact)
        elif word == "BRANCH":
            parts = [_sequence(branch, exact) for branch in argument[1]]
            known = tuple(part for part in parts if part is not None)
            inner = Some(known) if len(known) == len(parts) else None
        elif word in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] > 0:
            inner = _sequence(argument[2], exact)
        if inner is not None:
            found.append(inner)
    flush()
    return All(tuple(found)) if found else None
