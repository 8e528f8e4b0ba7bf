"""The functions that questions use: all are listed for authors of a second engine, and our texts cannot break out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import sqlalchemy as sa

from store import functions, open_store
from store.functions import NOT_STANDARD, const, json_path, moment
from tests.syntax_trees import nodes_of

ROOT = Path(__file__).resolve().parents[2]
STANDARD = {
    "abs", "coalesce", "concat", "count", "floor", "lag", "lead", "length", "lower", "max", "min", "nullif", "rank", "round", "row_number",
    "substring", "sum", "trim", "upper",
}  # fmt: skip


def called() -> set[str]:
    """Names of functions that questions call: ``func.NAME``."""
    files = [*(ROOT / "store" / "questions").glob("*.py"), Path(functions.__file__)]
    return {
        node.attr
        for file in files
        for node in nodes_of(file)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "func"
    }


def test_every_function_beside_the_standard_is_named_for_other_engines() -> None:
    unnamed, unused = called() - STANDARD - set(NOT_STANDARD), set(NOT_STANDARD) - called() - {"rowid"}
    assert (unnamed, unused) == (set(), set())


@pytest.mark.parametrize("text", ["plain", "it's", "'; DROP TABLE x; --", "%s $1 :name", "\\1", ""])
def test_a_constant_reads_as_it_is_written(text: str) -> None:
    with open_store(None) as store:
        assert store.ask(sa.select(const(text).label("text"))) == [{"text": text}]


@pytest.mark.parametrize("path", ["$.a' OR 1=1", "a", "$..a", "$.a[x]", "$.A b"])
def test_what_is_no_path_into_a_document_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no path"):
        json_path(path)


@pytest.mark.parametrize("text", ["now()", "2026-01-01' OR '1", "2026-1-1"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no moment"):
        moment(text)
