"""What a tick takes in and hands over as columns: where something may have ended, and the rows of runs."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from correlator.arrivals import _ending_in
from correlator.engine import Conclusions, run_table
from correlator.model import Run


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
    assert _ending_in(pl.DataFrame([(event, host, entities)], schema=kinds, orient="row")) == hosts


def test_rows_of_runs_hold_the_nodes_of_each() -> None:
    nodes = [("n1", "n2"), (), ("n3",)]
    runs = [Run(str(j), j, 0, "COMPLETED", n, None, None, None, {}) for j, n in enumerate(nodes)]
    found = run_table([Conclusions("c", runs=runs)])
    assert (found["nodes"].dtype, found["nodes"].to_list()) == (pl.List(pl.String), [list(n) for n in nodes])
    assert found["node_count"].to_list() == [2, 0, 1]


def test_rows_of_runs_need_no_pandas() -> None:
    """Its import takes longer than a tick, and much memory."""
    program = (
        "import sys; from correlator.engine import Conclusions, run_table; from correlator.model import Run;"
        "run_table([Conclusions('c', runs=[Run('1', 1, 0, '', ('n1',), None, None, None, {})])]);"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
