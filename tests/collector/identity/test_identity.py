"""To which cluster, node and boot rows belong, on arrival and when it is learned later."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from collector.identity import boots, clusters
from collector.identity.clusters import TreeCluster, named_in_file, named_in_tree
from collector.identity.entry import host_of_line, named_in_line
from collector.identity.identity import Identity, settle
from parsers.record import frame
from store import open_store
from store.functions import PLACE, const
from store.tables import LOGS
from tests.examples import examples

T0 = datetime(2026, 1, 1)
EPOCH = (T0 - datetime(1970, 1, 1)).total_seconds()


# -- a line as it comes in --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "transport", "host"), [
    ("gpu01", "10.0.0.1", "gpu01"), (None, "10.0.0.1", "10.0.0.1"), ("localhost", "10.0.0.1", "10.0.0.1"),
    ("LocalHost", "10.0.0.1", "10.0.0.1"), ("localhost.localdomain", None, "localhost.localdomain"), ("localhost", None, "localhost"),
    (None, None, None), ("localghos", "10.0.0.1", "localghos"),
])  # fmt: skip
def test_the_host_of_a_line(line: str | None, transport: str | None, host: str | None) -> None:
    rows = pl.DataFrame({"host": [line], "peer": [transport]}, schema={"host": pl.String, "peer": pl.String})
    found = rows.select(host_of_line(named_in_line(rows["host"]), pl.col("peer")).alias("host"))
    assert found["host"].to_list() == [host]


# -- clusters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "head", "whole", "names"), [
    ("slurm_conf", b"# x\n clustername = no\nClusterName=ant # its name\n", True, ("ant",)), ("scontrol_config", b"ClusterName             = ant\n", True, ("ant",)),
    ("slurm_conf", b"NodeName=n1\n", True, ()), ("sacct", b"JobID|Cluster\n1|ant\n2|ant\n3|bee\n", True, ("ant", "ant", "bee")),
    ("sacct", b"JobID|Cluster\n1|ant\n2|an", False, ("ant",)), ("sacct", b"JobID|State\n1|FAILED\n", True, ()),
    ("hook_env", b"A=1\0SLURM_CLUSTER_NAME=ant\0B=2", True, ("ant",)), ("lines", b"ClusterName=ant\n", True, ()),
])  # fmt: skip
def test_what_a_file_calls_its_cluster(kind: str, head: bytes, whole: bool, names: tuple[str, ...]) -> None:
    assert named_in_file(kind, head, whole) == names


@given(
    st.permutations([("sacct", ("bee", "bee", "ant")), ("hook_env", ("cat",)), ("lines", ()), ("hook_env", ("ant",))])
)
@settings(max_examples=examples(12), deadline=None)
def test_the_most_frequent_name_of_a_tree_comes_first_in_any_order(files: list[tuple[str, tuple[str, ...]]]) -> None:
    assert named_in_tree(files) == ["ant", "bee", "cat"]
    assert named_in_tree([*files, ("slurm_conf", ("dog",))]) == ["dog"]


def test_a_trees_own_cluster_is_called_as_it_is_to_be() -> None:
    rows = pl.DataFrame({"cluster": ["ant", "ANT", "bee", None]})
    assert TreeCluster("Ant", "site").place(rows)["cluster"].to_list() == ["site", "site", "bee", None]
    assert TreeCluster("Ant", "site").place(pl.DataFrame({"host": ["n1"]})).columns == ["host"]


# -- boots ------------------------------------------------------------------------------------------------------------


ROWS = {
    "cluster": pl.String,
    "host": pl.String,
    "file": pl.String,
    "part": pl.Int64,
    "boot": pl.Float64,
    "resolution_us": pl.Int64,
    PLACE: pl.Int64,
    "uptime": pl.Float64,
    "last": pl.Float64,
}


def rows(given: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(given, schema=ROWS)


def boot(at: float, resolution: int | None = 1_000, host: str = "n1") -> dict[str, Any]:
    return {"cluster": None, "host": host, "boot": at, "resolution_us": resolution}


@pytest.mark.parametrize(("by_lines", "reported", "known"), [
    ([], [], []), ([], [boot(1000.0)], [1000.0]), ([boot(1000.0)], [boot(1030.0)], [1000.0]),
    ([boot(1000.0)], [boot(5000.0)], [1000.0, 5000.0]), ([boot(1000.4, 1_000), boot(1001.0, 1_000_000)], [], [1000.4]),
    ([boot(1000.0, None)], [], [1000.0]), ([boot(-1e11), boot(1e300)], [boot(-1e30), boot(1000.0)], [1000.0]), ([], [boot(1000.0), boot(1020.0)], [1000.0]),
])  # fmt: skip
def test_when_a_machine_booted(
    by_lines: list[dict[str, Any]], reported: list[dict[str, Any]], known: list[float]
) -> None:
    assert boots.boots_of(rows(by_lines), rows(reported)).get((None, "n1"), []) == known


@pytest.mark.parametrize(("known", "uptime", "last", "at"), [
    ([EPOCH], 5.0, None, 5.0), ([EPOCH, EPOCH + 3600], 5.0, None, 3605.0), ([EPOCH, EPOCH + 3600], 5.0, EPOCH + 100, 5.0),
    ([EPOCH, EPOCH + 1, EPOCH + 2], 5.0, None, 6.0), ([EPOCH + 3600], 5.0, EPOCH + 100, None), ([], 5.0, None, None),
    ([EPOCH], 1e300, None, None), ([EPOCH], -1e300, None, None), ([EPOCH], None, None, None),
])  # fmt: skip
def test_the_boot_that_a_line_belongs_to(
    known: list[float], uptime: float | None, last: float | None, at: float | None
) -> None:
    waiting = [{PLACE: 7, "cluster": None, "host": "n1", "file": "dmesg", "part": 0, "uptime": uptime}]
    lines = [] if last is None else [{"cluster": None, "host": "n1", "last": last}]
    expected = [] if at is None else [(7, T0 + timedelta(seconds=at))]
    assert boots.times_of(rows(waiting), {(None, "n1", "dmesg", 0): known}, rows(lines)).rows() == expected


@given(
    st.permutations(
        [boot(EPOCH), boot(EPOCH + 1.5), boot(EPOCH + 2.0), boot(EPOCH + 9000.0), boot(EPOCH + 9001.0, 10**6)]
    )
)
@example([boot(EPOCH + 9000.0), boot(EPOCH), boot(EPOCH + 2.0), boot(EPOCH + 9001.0, 10**6), boot(EPOCH + 1.5)])
@settings(max_examples=examples(20), deadline=None)
def test_the_order_of_lines_does_not_matter_for_their_boot(lines: list[dict[str, Any]]) -> None:
    known = boots.boots_of(rows(lines), rows([]))
    waiting = [{PLACE: 1, "cluster": None, "host": "n1", "file": "dmesg", "part": 0, "uptime": 10.0}]
    last = [{"cluster": None, "host": "n1", "last": EPOCH + 600.0}]
    of_ring = {(None, "n1", "dmesg", 0): known[None, "n1"]}
    assert boots.times_of(rows(waiting), of_ring, rows(last)).rows() == [(1, T0 + timedelta(seconds=11.5))]


def test_lines_with_only_an_uptime_get_the_time_of_their_own_machine() -> None:
    machines = [("ant", "n1", 0.0), ("bee", "n1", 500.0), ("ant", None, 900.0), ("ant", "n2", None)]
    stored = []
    for cluster, host, booted in machines:
        common = {
            "cluster": cluster,
            "host": host,
            "raw": "x",
            "message": "x",
            "file": f"{cluster}{host}",
            "event": "other",
            "source": "kernel",
        }
        stored.append({**common, "line": 1, "entities": '{"uptime_s": 12.5}'})
        if booted is not None:
            at = T0 + timedelta(seconds=booted + 100.0)
            stored.append(
                {
                    **common,
                    "line": 2,
                    "format": "kmsg",
                    "entities": '{"uptime_s": 100.0}',
                    "time": at,
                    "time_quality": "line",
                    "resolution_us": 1,
                }
            )
    with open_store(None) as store:
        store.append({"logs": frame("logs", stored)})
        boots.settle(store)
        boots.settle(store)
        found = {
            (row["cluster"], row["host"]): row["time"]
            for row in store.ask(select(LOGS.c.cluster, LOGS.c.host, LOGS.c.time).where(LOGS.c.line == const(1)))
        }
    assert found == {
        (cluster, host): None if booted is None else T0 + timedelta(seconds=booted + 12.5)
        for cluster, host, booted in machines
    }


# -- what a service has learned ---------------------------------------------------------------------------------------


def lines(*hosts: str, cluster: str | None = None, timed: bool = True) -> pl.DataFrame:
    return frame("logs", [
        {"raw": host, "message": host, "host": host, "file": "f", "line": n, "time": T0 if timed else None, "cluster": cluster, "event": "other"}
        for n, host in enumerate(hosts, 1)
    ])  # fmt: skip


def jobs(cluster: str | None) -> pl.DataFrame:
    return frame("jobs", [{"job_id": 1, "cluster": cluster, "nodes": ["node17"], "source": "sacct"}])


SETTINGS = frame("settings", [
    {"scope": "cluster", "cluster": "ant", "name": "NodeName:node[17-18]", "value": "NodeAddr=10.0.3.[17-18]"},
])  # fmt: skip


def test_the_configured_cluster_is_that_of_rows_without_one() -> None:
    with open_store(None) as store:
        identity = Identity(store, "site")
        assert identity.place("logs", lines("n1"))["cluster"].to_list() == ["site"]
        assert identity.place("logs", lines("n1", cluster="other"))["cluster"].to_list() == ["other"]
        assert not identity.learn({"jobs": jobs("ant")}) and identity.cluster == "site"


@pytest.mark.parametrize(("tables", "stored", "cluster"), [
    ({"jobs": jobs("ant")}, None, "ant"), ({"jobs": jobs(None), "logs": lines("n1", cluster="ant")}, None, "ant"),
    ({"jobs": jobs("ant"), "settings": SETTINGS.with_columns(cluster=pl.lit("bee"))}, None, None), ({"jobs": jobs("ant")}, "bee", None),
    ({"jobs": jobs("ant")}, "ant", "ant"), ({"jobs": jobs(None)}, None, None), ({}, None, None),
])  # fmt: skip
def test_the_cluster_is_learned_where_there_is_one_only(
    tables: dict[str, pl.DataFrame], stored: str | None, cluster: str | None
) -> None:
    with open_store(None) as store:
        if stored is not None:
            store.append({"jobs": jobs(stored)})
        identity = Identity(store)
        assert (identity.learn(tables), identity.cluster) == (cluster is not None, cluster)


def _store(identity: Identity, store: Any, tables: dict[str, pl.DataFrame]) -> None:
    """As the pipeline does it."""
    learned = identity.learn(tables)
    placed = {name: identity.place(name, data) for name, data in tables.items()}
    store.append(placed)
    identity.stored(
        [placed["logs"]] if "logs" in placed else [], others=bool(placed.keys() - {"logs"}), learned=learned
    )


@pytest.mark.one_of_each(kind=lambda order: order.index(0))  # whether the lines come first, in the middle or last
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_rows_and_what_is_learned_may_come_in_any_order(order: tuple[int, ...]) -> None:
    steps = ({"logs": lines("10.0.3.17", "node18.ant.example", "n9")}, {"jobs": jobs("ant")}, {"settings": SETTINGS})
    with open_store(None) as store:
        identity = Identity(store)
        identity.begin()
        for place in order:
            _store(identity, store, steps[place])  # type: ignore[arg-type]
            while identity.is_unsettled:
                identity.settle()
        rows = store.rows("SELECT host, cluster FROM raw.log_view ORDER BY line")
        assert [(row["host"], row["cluster"]) for row in rows] == [("node17", "ant"), ("node18", "ant"), ("n9", "ant")]
        assert identity.cluster == "ant" and not identity.is_unsettled


@pytest.mark.parametrize(("stored", "waits"), [
    (lambda i: i.stored([], others=False, learned=False), False), (lambda i: i.stored([lines("n1", cluster="site")], others=False, learned=False), False),
    (lambda i: i.stored([lines("n1")], others=False, learned=False), True), (lambda i: i.stored([lines("n1", cluster="site", timed=False)], others=False, learned=False), True),
    (lambda i: i.stored([], others=True, learned=False), True), (lambda i: i.begin(), True),
])  # fmt: skip
def test_when_stored_rows_may_wait(stored: Callable[[Identity], None], waits: bool) -> None:
    with open_store(None) as store:
        identity = Identity(store, "site")
        stored(identity)
        assert identity.is_unsettled is waits


def test_after_a_restart_the_same_is_known(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        identity = Identity(store)
        identity.begin()
        _store(identity, store, {"jobs": jobs("ant"), "settings": SETTINGS})
        identity.settle()
        names = identity.names
    with open_store(tmp_path) as store:
        again = Identity(store)
        again.begin()
        again.settle()
        assert (again.cluster, again.names) == ("ant", names) and names.meaning("ant", "10.0.3.18") == "node18"


def test_settling_twice_is_settling_once() -> None:
    with open_store(None) as store:
        store.append({"logs": lines("10.0.3.17"), "settings": SETTINGS, "jobs": jobs("ant")})
        first = settle(store)
        rows = store.rows("SELECT host, cluster FROM raw.log_view")
        assert rows == [{"host": "node17", "cluster": "ant"}]
        assert settle(store) == first and store.rows("SELECT host, cluster FROM raw.log_view") == rows


def test_rows_of_several_clusters_get_no_name() -> None:
    with open_store(None) as store:
        store.append({"logs": lines("n1"), "jobs": pl.concat([jobs("ant"), jobs("bee")])})
        clusters.settle(store)
        assert store.rows("SELECT cluster FROM raw.log_view") == [{"cluster": None}]
        assert clusters.only_one_of_jobs(store) is None
