"""Copies of one line are one event, and neither order nor repetition changes the result."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from correlator.gather.event_table import table
from correlator.gather.events import COALESCE_S, read
from correlator.gather.events import coalesce as of_frame
from correlator.model.nouns import Event
from parsers.record import LOGS
from tests.examples import examples

START = datetime(2026, 2, 28, 16, 29, 24)


def row(seconds: float = 0.0, **changes: Any) -> dict[str, Any]:
    """A row of ``raw.log_view``: gpu02 loses eth0."""
    base: dict[str, Any] = {
        "time": START + timedelta(seconds=seconds), "time_quality": "line", "resolution_us": 1000, "received_time": None,
        "cluster": "mini", "host": "gpu02", "source": "kernel", "unit": None, "severity": "warning",
        "event": "nic.link_down", "job_id": None, "message": "igb 0000:01:00.0 eth0: NIC Link is Down",
        "entities": '{"port": "eth0"}', "file": "kern.log", "line": 1,
    }  # fmt: skip
    return {**base, **changes}


rows = st.builds(
    row,
    seconds=st.floats(0, 20).map(lambda s: round(s, 3)),
    resolution_us=st.sampled_from([1, 1000, 1_000_000]),
    host=st.sampled_from(["gpu02", "gpu03", None]),
    event=st.sampled_from(["nic.link_down", "nic.link_up", "slurm.node_down", "job.nccl_error"]),
    job_id=st.sampled_from([None, 15, 16]),
    message=st.sampled_from(["link down", "error: link down", "other words"]),
    entities=st.sampled_from([None, '{"port": "eth0"}', '{"port": "eth1"}', '{"ibdev": "mlx5_0"}']),
    file=st.sampled_from(["kern.log", "messages", "syslog"]),
    line=st.integers(1, 10_000),
)


def coalesce(found: list[dict[str, Any]]) -> list[Event]:
    return of_frame(pl.DataFrame(found, schema=LOGS))


def distinct(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per place: a line of a file has one content."""
    return list({(r["file"], r["line"], r["host"]): r for r in found}.values())


def told(found: list[dict[str, Any]]) -> list[str]:
    return [repr(e) for e in coalesce(found)]


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(rows, max_size=25).map(distinct), st.randoms(use_true_random=False), st.data())
def test_order_and_repetition_change_nothing(found: list[dict[str, Any]], random: Any, data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(found), max_size=10)) if found else []
    shuffled = [*found, *again]
    random.shuffle(shuffled)
    assert told(shuffled) == told(found)


@settings(deadline=None)
@given(st.lists(rows, max_size=25).map(distinct))
def test_no_line_is_lost(found: list[dict[str, Any]]) -> None:
    places = {(r["file"], r["line"]) for r in found}
    events = coalesce(found)
    assert {(e.file, e.line) for e in events} | {p for e in events for p in e.also} == places


@settings(deadline=None)
@given(st.lists(rows, max_size=25).map(distinct))
def test_identities_are_unique(found: list[dict[str, Any]]) -> None:
    events = coalesce(found)
    assert len({e.id for e in events}) == len(events)


def test_copies_in_three_files_are_one_event_reported_by_the_finest_clock() -> None:
    copies = [
        row(0.0, file="messages", line=7, resolution_us=1_000_000),
        row(0.733, file="dmesg.log", line=2, resolution_us=1),
        row(0.734, file="kern.log", line=3, resolution_us=1000),
    ]
    (event,) = coalesce(copies)
    assert (event.file, event.line, event.count) == ("dmesg.log", 2, 1)
    assert event.also == (("kern.log", 3), ("messages", 7))
    assert event.sigma == 0.5e-6


def test_two_flaps_further_apart_than_copies_are_two_events() -> None:
    assert len(coalesce([row(0), row(COALESCE_S + 0.1, line=2)])) == 2


def test_two_devices_are_two_events() -> None:
    assert len(coalesce([row(0), row(0, line=2, entities=json.dumps({"port": "eth1"}))])) == 2


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(rows, max_size=25).map(distinct), st.randoms(use_true_random=False))
def test_events_are_stored_as_they_are_whether_or_not_their_lines_are_at_hand(
    found: list[dict[str, Any]], chance: random.Random
) -> None:
    events, lines = read(pl.DataFrame(found, schema=LOGS))
    some = [replace(e, time=e.time + 1.0) if chance.random() < 0.2 else e for e in events if chance.random() < 0.8]
    homes = {e.id: "I-1" for e in events if chance.random() < 0.5}
    assert_frame_equal(table(some, homes, "c", lines).sort("event_id"), table(some, homes, "c").sort("event_id"))
    # In a tick, all lines are behind events that are known already, or some events behind them are.
    known = [replace(e, id=f"known {e.id}", time=e.time - 10_000.0) for e in events if chance.random() < 0.5]
    for both in ([*known, *events], [*events, *known]):
        assert_frame_equal(table(both, homes, "c", lines), table(both, homes, "c"))
