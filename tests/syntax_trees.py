"""The syntax trees of source files: each file is parsed once in a test process, however many tests use it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from benchmarks import house


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def statements_of(path: Path) -> tuple[ast.AST, ...]:
    """All statements of a file, in functions and classes too: a tenth of its nodes, and imports are nothing else."""
    return tuple(house.statements(tree_of(path)))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, in the order of :func:`ast.walk`."""
    return tuple(ast.walk(tree_of(path)))
