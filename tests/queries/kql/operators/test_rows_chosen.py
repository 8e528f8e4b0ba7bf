"""`where` over functions of rows: the value is of all rows, and rows are chosen by it afterwards."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from queries.kql import run

DATA = "datatable(N:long, X:real)[3, 30.0, 1, 10.0, 2, 20.0, 4, 5.0] | sort by N asc"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("where prev(X) > 10 | project N", [[3], [4]]), ("where X > prev(X) | project N", [[2], [3]]),
        ("where row_number() > 1 | extend R = row_number() | project N, R", [[2, 1], [3, 2], [4, 3]]),
        ("where row_cumsum(N) < 7 and X > 10 | project N", [[2], [3]]), ("where prev(X) > 10 | where next(X) < 100 | project N", [[3]]),
        ("where isnull(prev(N)) | count", [[1]]),
    ],
)  # fmt: skip
def test_rows_are_chosen_by_their_neighbours(query: str, rows: list[Any]) -> None:
    assert run(duckdb.connect(), f"{DATA} | {query}").rows == rows
