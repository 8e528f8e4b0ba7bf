"""A function's declared cost decides where it runs: linear ones beside the store, the others behind the wall.

The built-in functions are tested in test_language_page.py, with the page's examples.
"""

from __future__ import annotations

import pytest

from queries.kql.compile import compile_script
from queries.kql.functions.declaration import Cost
from queries.kql.probes import CATALOG
from tests.queries.kql.functions.test_site_functions import DECLARE, Install, installed  # noqa: F401 - a fixture


def behind_the_wall(query: str) -> bool:
    return cost_of(query) is not Cost.LINEAR


def cost_of(query: str) -> Cost:
    """The cost of a statement, as the wall sees it."""
    (statement,) = compile_script(query, CATALOG)
    if statement.cut is None:
        return Cost.LINEAR
    return Cost.FEW_ROWS if statement.cut.is_far_small else Cost.WALL


SITE = (
    f"{DECLARE}(\n"
    + "".join(
        f"    Function('{name}', 'Ours.', Template('s', 'real', \"{sql}\"){cost}),\n"
        for name, sql, cost in (
            ("quick", "length({0}) * 2.0", ", cost=LINEAR"),
            ("quick_word", "jaro_similarity({0}, 'gx')", ", cost=LINEAR"),
            ("slow", "length({0}) * 2.0", ""),
            ("slow_word", "jaro_similarity({0}, 'gx')", ""),
            ("bounded_word", "jaro_winkler_similarity({0}, 'gx')", ", cost=Cost.FEW_ROWS"),
        )
    )
    + ")\n"
)


@pytest.mark.parametrize(
    ("query", "behind"),
    [
        ("X | extend y = quick(S)", False),
        ("X | extend y = quick_word(S)", False),
        ("X | extend y = slow(S)", True),
        ("X | extend y = slow_word(S)", True),
        ("X | extend y = 1 + quick(S) + slow(S)", True),
        ("X | where slow(S) > 1 | count", True),
        ("X | summarize max(slow(S))", True),
        ("X | extend y = quick(strrep(S, 3))", True),  # linear itself, with an argument that is not
    ],
)
def test_the_cost_of_a_site_function_says_where_its_query_runs(query: str, behind: bool, installed: Install) -> None:  # noqa: F811
    installed("from queries.kql.functions.declaration import LINEAR, Cost\n" + SITE)
    assert behind_the_wall(query) is behind


def test_a_slow_step_is_not_taken_for_one_beside_the_store(installed: Install) -> None:  # noqa: F811
    """Only what reads the store stays there, not what the function makes of the rows."""
    installed("from queries.kql.functions.declaration import LINEAR, Cost\n" + SITE)
    (statement,) = compile_script("X | where L > 1 | extend y = slow(S) | where y > 2", CATALOG)
    assert statement.cut is not None
    near = " ".join(stream.statement.sql for stream in statement.cut.near)
    assert '"L"' in near and "2.0" not in near and "2.0" in statement.cut.far.sql


@pytest.mark.parametrize(("query", "cost"), [
    ("X | extend y = bounded_word(S)", Cost.FEW_ROWS),
    ("X | extend y = bounded_word(S) + quick(S) | summarize make_set(y)", Cost.FEW_ROWS),
    ("X | extend y = bounded_word(S) + slow(S)", Cost.WALL),
    ("X | extend y = bounded_word(strrep(S, 3))", Cost.WALL),
])  # fmt: skip
def test_a_bounded_function_of_a_site_runs_beside_the_store(query: str, cost: Cost, installed: Install) -> None:  # noqa: F811
    installed("from queries.kql.functions.declaration import LINEAR, Cost\n" + SITE)
    assert cost_of(query) is cost
