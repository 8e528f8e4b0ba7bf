"""The syntax trees of source files: each file is parsed once in a test process, however many tests use it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, in the order of :func:`ast.walk`."""
    return tuple(ast.walk(tree_of(path)))
