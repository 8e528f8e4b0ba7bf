"""The page about the language, and the examples on which it is based: computed once for both."""

from __future__ import annotations

from pathlib import Path

from queries.kql.engines import DUCKDB
from queries.kql.operators import OPERATORS, SOURCES
from queries.kql.operators.plugins import PLUGIN_BUILDERS
from queries.kql.probes import answered, examples
from queries.kql.support import matrix

PAGE = Path(__file__).parents[2] / "docs" / "kql.md"


def test_every_function_and_operator_has_an_example_that_binds() -> None:
    """The page's statements about engines rest on these."""
    without = {n for queries in examples().values() for n, query in queries.items() if query is None}
    assert not without
    assert set(OPERATORS) == set(examples()["operators"]) == answered(DUCKDB, "operators")
    assert set(SOURCES) == set(examples()["sources"]) and set(PLUGIN_BUILDERS) == set(examples()["plugins"])


def test_the_page_about_the_language_is_current() -> None:
    assert PAGE.read_text() == matrix(), "run: python -m queries.kql.support > docs/kql.md"
