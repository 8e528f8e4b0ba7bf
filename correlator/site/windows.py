"""Window expressions over the site's configuration: ``[2*SlurmdTimeout/3, 5*SlurmdTimeout/3 + MessageTimeout]``.

An unknown setting is not a number but a range of plausible values: ``Value(low, high, known=False)``. Arithmetic is
interval arithmetic, so an unknown setting widens the window instead of inventing one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyparsing as pp


@dataclass(frozen=True)
class Value:
    """A quantity in seconds (or a plain number) known to lie in [low, high]."""

    low: float
    high: float
    known: bool = True
    origin: str = ""

    @classmethod
    def of(cls, number: float) -> Value:
        return cls(number, number)


class ExpressionError(ValueError):
    """The expression does not parse or names something unknown; the text says what and where."""


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

_TIME = re.compile(r"(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?P<unit>us|ms|min|s|h|d)")


def duration(value: object) -> float:
    """Seconds of "250s", "-2s" or "30min", or of a bare number, which is seconds. Raises ``ExpressionError``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ExpressionError(f"{value!r} is no time; write a number and one of {', '.join(_UNITS)}")
    return float(match["number"]) * _UNITS[match["unit"]]


def _combine(left: Value, operator: str, right: Value) -> Value:
    if operator == "+":
        corners = [left.low + right.low, left.high + right.high]
    elif operator == "-":
        corners = [left.low - right.high, left.high - right.low]
    else:
        pairs = [(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
        if operator == "*":
            corners = [a * b for a, b in pairs]
        elif operator == "/":
            if right.low <= 0 <= right.high:
                raise ExpressionError("division by something that may be zero")
            corners = [a / b for a, b in pairs]
        else:
            corners = [a**b for a, b in pairs]
    return Value(min(corners), max(corners), left.known and right.known)


@cache
def _grammar() -> pp.ParserElement:
    import pyparsing as pp  # 0.1 s of CPU, which commands that only read conclusions do without

    number = pp.Regex(r"(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?P<unit>us|ms|min|s|h|d)?(?![A-Za-z0-9_])")
    number.set_parse_action(lambda t: ("number", float(t["number"]) * _UNITS[t["unit"] or "s"], bool(t["unit"])))
    name = pp.Regex(r"[A-Za-z_][A-Za-z0-9_]*")
    name.set_parse_action(lambda t: ("name", t[0]))
    expression = pp.Forward()
    call = pp.Regex(r"(?P<function>max|min)\(") + expression + pp.Suppress(",") + expression + pp.Suppress(")")
    call.set_parse_action(lambda t: ("call", t[0].rstrip("("), t[-2], t[-1]))
    atom = call | number | name | pp.Suppress("(") + expression + pp.Suppress(")")

    def fold(tokens: pp.ParseResults) -> Any:
        items = list(tokens)
        tree = items[0]
        for operator, right in zip(items[1::2], items[2::2], strict=True):
            tree = ("binary", operator, tree, right)
        return tree

    power = (atom + pp.ZeroOrMore(pp.Literal("^") + atom)).set_parse_action(fold)
    product = (power + pp.ZeroOrMore(pp.one_of("* /") + power)).set_parse_action(fold)
    expression <<= (product + pp.ZeroOrMore(pp.one_of("+ -") + product)).set_parse_action(fold)
    return pp.Suppress("[") + expression + pp.Suppress(",") + expression + pp.Suppress("]")


@cache
def parse_window(text: str) -> tuple[Any, Any]:
    """The two trees of a window. Raises ``ExpressionError`` with the column."""
    from pyparsing import ParseException  # as in ``_grammar``

    try:
        low, high = _grammar().parse_string(text, parse_all=True)
    except ParseException as error:
        raise ExpressionError(
            f"{text!r}: not a window at column {error.column}; write [FROM, TO], with units {', '.join(_UNITS)}"
        ) from error
    return low, high


def names(text: str) -> frozenset[str]:
    """The settings that a window names."""
    return frozenset(re.findall(r"(?<![\w.])[A-Za-z_]\w*", re.sub(r"(?<=\d)(us|ms|min|s|h|d)\b", "", text))) - {
        "max",
        "min",
    }


def _evaluate(tree: Any, values: Mapping[str, Value]) -> Value:
    kind = tree[0]
    if kind == "number":
        return Value.of(tree[1])
    if kind == "name":
        if tree[1] not in values:
            raise ExpressionError(f"unknown setting {tree[1]!r}")
        return values[tree[1]]
    if kind == "call":
        left, right = _evaluate(tree[2], values), _evaluate(tree[3], values)
        pick = max if tree[1] == "max" else min
        return Value(pick(left.low, right.low), pick(left.high, right.high), left.known and right.known)
    return _combine(_evaluate(tree[2], values), tree[1], _evaluate(tree[3], values))


def check_units(text: str, plain: Collection[str]) -> None:
    """Raises ``ExpressionError`` if a bound of a window is not a time. Names are times, except the ``plain`` numbers."""
    for tree in parse_window(text):
        if _power(tree, plain) not in (1, None):
            raise ExpressionError(f"{text!r}: {_written(tree)} is no time")


def _power(tree: Any, plain: Collection[str]) -> int | None:
    """The power of seconds in an expression: 1 is a time, 0 a plain number; None is a bare number, which may be either."""
    kind = tree[0]
    if kind == "number":
        return 1 if tree[2] else None
    if kind == "name":
        return 0 if tree[1] in plain else 1
    left, right = _power(tree[2], plain), _power(tree[3], plain)
    if kind == "call" or tree[1] in "+-":
        if left is not None and right is not None and left != right:
            raise ExpressionError(f"{_written(tree)}: one of the two is a time, the other is none")
        return right if left is None else left
    if tree[1] == "^":
        if left not in (0, None) or right not in (0, None):
            raise ExpressionError(f"{_written(tree)}: times have no powers and are none")
        return left if right is None else 0
    if left is None and right is None:
        return None
    return (left or 0) + (right or 0) if tree[1] == "*" else (left or 0) - (right or 0)


def _written(tree: Any) -> str:
    """An expression as a person would write it."""
    kind = tree[0]
    if kind == "number":
        return f"{tree[1]:g}s" if tree[2] else f"{tree[1]:g}"
    if kind == "name":
        return str(tree[1])
    left, right = _written(tree[2]), _written(tree[3])
    return f"{tree[1]}({left}, {right})" if kind == "call" else f"({left} {tree[1]} {right})"


def window(text: str, values: Mapping[str, Value]) -> tuple[float, float, bool]:
    """(earliest lag, latest lag, all settings known). An unknown setting gives its widest window."""
    low_tree, high_tree = parse_window(text)
    low, high = _evaluate(low_tree, values), _evaluate(high_tree, values)
    return low.low, high.high, low.known and high.known
