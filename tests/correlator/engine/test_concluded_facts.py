"""What the correlator concluded is stored as ``Facts``: by the full pass and by ticks alike, byte for byte."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime
from types import MappingProxyType
from typing import Any

import duckdb
import pytest

from correlator.engine import correlate
from correlator.live.ticker import Ticker
from correlator.model import fact_table
from correlator.model.attrs import attr
from correlator.model.json_text import sorted_json
from correlator.model.nouns import Event, Fact
from queries.kql import Query
from store import open_store
from store.duckdb import visible
from store.duckdb.store import DuckStore
from tests.correlator.live import test_streaming as streaming
from tests.correlator.rows import CAPTURES, EACH, concluded, rows_of, slices

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_requeue")


def stored(store: DuckStore) -> list[dict[str, Any]]:
    return store.rows("SELECT * FROM model.concluded_facts ORDER BY ALL")


def test_a_lost_link_and_what_followed_as_facts() -> None:
    """The truth of the capture: gpu04's management link is down for 45 s, its node is set DOWN, job 2 dies of it."""
    with concluded(FLAP) as store:

        def rows(query: str) -> list[list[Any]]:
            return store.run_kql(Query(query)).rows

        asked = rows('Facts | where Kind != "run.failed" | sort by Begin asc | project-away Evidence, Attributes')
        (ports,) = rows('Facts | where Kind == "link.outage" | project Attributes.switch, Attributes.port')
        known = rows("Events | summarize make_set(EventId)")[0][0]
        named = [name for (names,) in rows("Facts | project Evidence") for name in names]
    assert [list(row) for row in asked] == [
        ["mini", "link.outage", "gpu04 eth0", "gpu04", "eth0", "", "2026-11-21T00:51:52.644370Z", "2026-11-21T00:52:37.647828Z", 5e-07],
        ["mini", "run.node_fail", "2", "", "", "2", "2026-11-21T00:52:26.182000Z", "2026-11-21T00:52:26.182000Z", 0.0005],
        ["mini", "node.down", "gpu04", "gpu04", "", "", "2026-11-21T00:52:26.185000Z", "2026-11-21T00:53:47.644000Z", 0.0005],
    ]  # fmt: skip
    assert list(ports) == ["leaf01", "m-gpu04"]
    assert len(named) == 7 and set(named) <= set(known)


@pytest.mark.parametrize("capture", EACH)
def test_ticks_store_the_facts_of_a_full_pass(capture: Any) -> None:
    with open_store(None) as store:
        ticker, partly = Ticker(store), 0
        for part in slices(rows_of(capture), 6):
            store.add(part)
            partly += not ticker.tick().full
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store) != []


def an_event(name: str, time: float) -> Event:
    return Event(
        name,
        time,
        0.5,
        "nic.link_down",
        "n1",
        "eth0",
        None,
        "",
        "kernel",
        "link",
        None,
        None,
        None,
        None,
        "line",
        1,
        time,
    )


def test_a_row_is_named_after_what_it_says() -> None:
    words = attr("words")
    fact = Fact("link.outage", 10.0, None, 0.5, "n1", "eth0", events=(an_event("b", 2.0), an_event("a", 1.0)))
    again = fact_table.rows([fact, replace(fact)], "c")
    assert len(again) == 1, "the same said twice is one row"
    ((name, row),) = again.items()
    assert row[2] == "n1 eth0" and json.loads(row[-1]) == ["a", "b"], "evidence is in order of time"
    others = [
        replace(fact, end=11.0),
        replace(fact, sigma=0.6),
        replace(fact, events=()),
        fact.having(words, {"gpu": [an_event("e", 1.0)]}),
    ]
    assert len({*fact_table.rows(others, "c"), *fact_table.rows([fact], "d"), name}) == 6
    said = fact_table.rows([others[-1]], "c")
    assert json.loads(next(iter(said.values()))[-2]) == {"words": {"gpu": ["e"]}}, "an event stands there by its id"
    assert fact_table.rows([fact.having(words, {"gpu": []})], "c") == fact_table.rows([fact], "c"), (
        "nothing found says nothing"
    )
    assert fact_table.table({}).height == 0 and fact_table.table(again)["end"].to_list() == [None]


@pytest.mark.parametrize(
    "value",
    [
        "text", "", 0, 0.0, False, None, [], [0], ["b", "a"], [[1, ""], {}], [an_event("e", 1.0)], an_event("e", 1.0),
        {"gpu": "7", "none": ""}, {"gpu": [an_event("e", 1.0)], "none": []}, {"none": []}, {1: "x"}, frozenset({"b", "a"}), (1, "x"),
        Fact("gpu.xid", 1.5, None, 0.5, "n1", "gpu0"), [Fact("gpu.xid", 1.5, None, 0.5, "n1", "gpu0")], date(2026, 3, 2),
        datetime(2026, 3, 2, 1, 2, 3, 4500), 2**70, "\ud800", float("nan"), MappingProxyType({"none": ""}),
    ],
)  # fmt: skip
def test_attributes_are_what_is_not_empty_of_them(value: Any) -> None:
    """The encoder goes into values by itself where it can; what it writes is what the plain form says."""
    plain = {"a": 1, "value": fact_table._plain(value)} if value or value == 0 else {"a": 1}
    expected = sorted_json({k: v for k, v in plain.items() if v or v == 0})
    assert fact_table._attributes({"value": value, "a": 1}) == expected


@pytest.mark.parametrize("relation", ["model.concluded_facts", 'kql."Facts"'])
def test_an_owner_of_jobs_reads_no_facts(relation: str) -> None:
    with concluded(FLAP) as store:
        assert stored(store)
        connection = visible.cursor(store, "alice")
        try:
            with pytest.raises(duckdb.CatalogException):
                connection.execute(f"SELECT * FROM {relation}")
        finally:
            connection.close()


@pytest.mark.parametrize("before_s", [pytest.param(-0.2, marks=pytest.mark.long), 0.2])
def test_a_fact_that_was_over_is_not_told_again_by_a_line_that_still_lasts(before_s: float) -> None:
    """The line that drained a node is carried into each window while the node is drained; the one beside it, which ended
    the failure of the prolog, is not."""
    node, day = streaming.benchmark().NODES[7], streaming.benchmark().Day(4)
    with open_store(None) as store:
        streaming.with_settings(store)
        day.fill(0, streaming.HOURS * 3600, 100, 600)
        text = f"error: validate_node_specs: Prolog or job env setup failure on node {node}, draining the node"
        day.say(5_000.0, "ctl", "slurmctld", "slurm.node_drain", text, nodes=[node], check="prolog")
        day.say(
            5_000.0 + before_s,
            node,
            "slurmd",
            "slurm.node_error",
            "error: [job 900] prolog failed status=1:0",
            check="prolog",
        )
        day.store(store)
        ticker = Ticker(store)
        ticker.tick()
        failures = [r for r in stored(store) if r["kind"] == "prolog.failure"]
        for late in range(3):
            day.link(streaming.benchmark().NODES[9], "eth0", 24_900.0 + 60.0 * late, 5.0)
            day.store(store)
            assert not ticker.tick().full
        ticked = stored(store)
        assert [r for r in ticked if r["kind"] == "prolog.failure"] == failures != []
        correlate(store)
        assert ticked == stored(store)
