"""One parser for all tests of a process: its first batch of some length costs half a second of CPU."""

from __future__ import annotations

from functools import cache

from parsers.engine import LineParser


@cache
def line_parser() -> LineParser:
    """The built-in patterns. No batch changes the result of another one."""
    return LineParser()
