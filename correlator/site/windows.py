"""Window expressions over the site's configuration: ``[2*SlurmdTimeout/3, 5*SlurmdTimeout/3 + MessageTimeout]``.

An unknown setting is not a number but a range of plausible values: ``Value(low, high, known=False)``. Arithmetic is
interval arithmetic, so an unknown setting widens the window instead of inventing one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any


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


#: The binary operators, weakest first. Those of one level are applied from left to right.
_LEVELS = ("+-", "*/", "^")

_NUMBER = re.compile(r"(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?P<unit>us|ms|min|s|h|d)?(?![A-Za-z0-9_])")
_CALL = re.compile(r"(max|min)\(")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE = re.compile(r"[ \t\r\n]*")


class _Reader:
    """Reads a window from left to right.

    Written by hand: pyparsing takes 0.1 s of CPU to import and to read the windows of the built-in edges, a quarter of
    what a first pass over a small store takes.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._skip(0)

    def window(self) -> tuple[Any, Any]:
        self._expect("[")
        low = self._expression()
        self._expect(",")
        high = self._expression()
        self._expect("]")
        if self._at < len(self._text):
            raise self._error()
        return low, high

    def _expression(self, level: int = 0) -> Any:
        if level == len(_LEVELS):
            return self._atom()
        tree = self._expression(level + 1)
        while operator := self._take(_LEVELS[level]):
            tree = ("binary", operator, tree, self._expression(level + 1))
        return tree

    def _atom(self) -> Any:
        if call := self._match(_CALL):
            left = self._expression()
            self._expect(",")
            right = self._expression()
            self._expect(")")
            return ("call", call[1], left, right)
        if number := self._match(_NUMBER):
            return ("number", float(number["number"]) * _UNITS[number["unit"] or "s"], bool(number["unit"]))
        if name := self._match(_NAME):
            return ("name", name[0])
        self._expect("(")
        tree = self._expression()
        self._expect(")")
        return tree

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if found := pattern.match(self._text, self._at):
            self._skip(found.end())
        return found

    def _take(self, marks: str) -> str:
        """The next character if it is one of ``marks``; empty if not."""
        mark = self._text[self._at : self._at + 1]
        if not mark or mark not in marks:
            return ""
        self._skip(self._at + 1)
        return mark

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self._error()

    def _skip(self, at: int) -> None:
        space = _SPACE.match(self._text, at)
        self._at = space.end() if space else at

    def _error(self) -> ExpressionError:
        units = ", ".join(_UNITS)
        return ExpressionError(
            f"{self._text!r}: not a window at column {self._at + 1}; write [FROM, TO], with units {units}"
        )


@cache
def parse_window(text: str) -> tuple[Any, Any]:
    """The two trees of a window. Raises ``ExpressionError`` with the column."""
    return _Reader(text).window()


@cache
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
