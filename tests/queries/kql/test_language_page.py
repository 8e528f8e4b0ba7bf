"""The page about the language, and the examples on which it is based: they are found once for all tests here.

Finding them compiles thousands of queries.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from queries.kql.engines import DUCKDB
from queries.kql.functions.declaration import Kind
from queries.kql.functions.registry import registry
from queries.kql.operators import OPERATORS, SOURCES
from queries.kql.operators.plugins import PLUGIN_BUILDERS
from queries.kql.probes import answered, examples
from queries.kql.support import matrix
from tests.queries.kql.functions.test_costs import cost_of

PAGE = Path(__file__).parents[3] / "docs" / "kql.md"
#: For these, the most obvious call reads text, or takes a pattern or a percentage from a column, which only the wall may do.
CHEAPER_IN = {
    "format_datetime": "X | extend y = format_datetime(T, 'd')",
    "make_datetime": "X | extend y = make_datetime(2026, L, 1)",
    "make_timespan": "X | extend y = make_timespan(L, L)",
    "todatetime": "X | extend y = todatetime(L)",
    "totimespan": "X | extend y = totimespan(L)",
    "parse_json": "X | extend y = parse_json(D)",
    "percentile": "X | summarize y = percentile(L, 50)",
    "percentiles": "X | summarize y = percentiles(L, 50)",
    "replace": "X | extend y = replace('a', 'b', S)",
    "replace_regex": "X | extend y = replace_regex(S, 'a', 'b')",
}


def test_every_function_and_operator_has_an_example_that_binds() -> None:
    """The page's statements about engines rest on these."""
    without = {n for queries in examples().values() for n, query in queries.items() if query is None}
    assert not without
    assert set(OPERATORS) == set(examples()["operators"]) == answered(DUCKDB, "operators")
    assert set(SOURCES) == set(examples()["sources"]) and set(PLUGIN_BUILDERS) == set(examples()["plugins"])


def test_the_page_about_the_language_is_current() -> None:
    assert PAGE.read_text() == matrix(), "run: python -m queries.kql.support > docs/kql.md"


@pytest.mark.parametrize("kind", list(Kind))
def test_the_declared_cost_is_what_the_wall_makes_of_it(kind: Kind) -> None:
    found = registry()
    declared = found.aggregates if kind is Kind.AGGREGATE else found.functions
    group = examples()["aggregates" if kind is Kind.AGGREGATE else "functions"]
    asked = {name: query for name in found.names(kind) if (query := CHEAPER_IN.get(name, group[name]))}
    wrong = {name: query for name, query in asked.items() if cost_of(query) is not declared[name].cost}
    assert len(asked) >= len(found.names(kind)) * 0.9
    assert not wrong
