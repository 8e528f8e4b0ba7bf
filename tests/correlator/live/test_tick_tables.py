"""What a tick reads and writes as columns: hosts on which something may have ended, and the rows of runs."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from typing import Any

import polars as pl
import pytest

from correlator.conclusions import Conclusions
from correlator.engine import run_table
from correlator.gather.runs_fast import rows_of, stated_rows
from correlator.live.inbox import ending_in
from correlator.model.nouns import Run
from correlator.model.time_texts import stamp


@pytest.mark.parametrize(
    ("event", "host", "entities", "hosts"),
    [
        ("nic.link_up", "n1", None, {"n1"}),
        ("nic.link_up", "n1", "", {"n1"}),
        ("slurm.node_up", "ctl", '{"nodes": ["n2", "n3"]}', {"ctl", "n2", "n3"}),
        ("slurm.node_up", None, '{"nodes": "n2"}', {"n2"}),
        ("slurm.job_end", "ctl", '{"nodes": ["n2"]}', set()),
        ("gpu.xid", "n1", "{}", set()),
    ],
)
def test_lines_that_may_end_something_name_hosts(event: str, host: str | None, entities: str | None, hosts: set[str]) -> None:  # fmt: skip
    kinds = {"event": pl.String, "host": pl.String, "entities": pl.String}
    assert ending_in(pl.DataFrame([(event, host, entities)], schema=kinds, orient="row")) == hosts


def test_rows_of_runs_hold_the_nodes_of_each() -> None:
    nodes = [("n1", "n2"), (), ("n3",)]
    runs = [Run(str(j), j, 0, "COMPLETED", n, None, None, None, {}) for j, n in enumerate(nodes)]
    found = run_table([Conclusions("c", runs=runs)])
    assert (found["nodes"].dtype, found["nodes"].to_list()) == (pl.List(pl.String), [list(n) for n in nodes])
    assert found["node_count"].to_list() == [2, 0, 1]


ROWS = [
    {"name": "a", "gpus": 8, "user": "u"},
    {"name": "b", "gpus": None, "user": ""},
    {"name": "c", "gpus": 0, "user": None},
]


def test_a_row_of_columns_says_what_a_row_of_its_own_says() -> None:
    table = pl.DataFrame(ROWS, schema={"name": pl.String, "gpus": pl.Int64, "user": pl.String})
    rows, own = rows_of(table), stated_rows(table)
    assert [dict(r) for r in rows] == own and [len(r) for r in rows] == [3, 1, 2]
    assert rows[0] == own[0] and own[1] == rows[1] and rows[0] != rows[1]
    assert [(r.get("user"), r.get("nothing", 7), "gpus" in r) for r in rows] == [("u", 7, True), (None, 7, False), (None, 7, True)]  # fmt: skip
    with pytest.raises(KeyError):
        rows[1]["gpus"]


@pytest.mark.parametrize("shared", [(), (0,), (1, 2), (0, 1, 2)])
def test_rows_of_runs_are_the_same_wherever_their_fields_lie(shared: tuple[int, ...]) -> None:
    table = pl.DataFrame(ROWS, schema={"name": pl.String, "gpus": pl.Int64, "user": pl.String})
    own, columns = stated_rows(table), rows_of(table)

    def runs(rows: list[Any]) -> pl.DataFrame:
        made = [Run(str(j), j, 0, "COMPLETED", (), 1.5 * j, None, 2e9 + j / 7, row) for j, row in enumerate(rows)]
        return run_table([Conclusions("c", runs=made)])

    found = runs([columns[n] if n in shared else row for n, row in enumerate(own)])
    assert found.equals(runs(list(own)))
    assert (found["name"].to_list(), found["gpus"].to_list(), found["user"].to_list()) == (["a", "b", "c"], [8, None, 0], ["u", None, None])  # fmt: skip
    assert found["submit"].to_list()[1] == datetime(1970, 1, 1, 0, 0, 1, 500_000) and found["start"].null_count() == 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, None),
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1e9 + 0.25, "2001-09-09T01:46:40.250000Z"),
        (1e9 + 0.9999999, "2001-09-09T01:46:41.000000Z"),
        (-0.5, "1969-12-31T23:59:59.500000Z"),
    ],
)
def test_stamps_have_microseconds(seconds: float | None, text: str | None) -> None:
    assert stamp(seconds) == text


def test_rows_of_runs_need_no_pandas() -> None:
    """Importing it takes longer than a tick, and much memory."""
    program = (
        "import sys; from correlator.engine import Conclusions, run_table; from correlator.model.nouns import Run;"
        "run_table([Conclusions('c', runs=[Run('1', 1, 0, '', ('n1',), None, None, None, {})])]);"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
