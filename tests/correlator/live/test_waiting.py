"""A verdict that rests on a node's silence is certain only when the node has logged, or when nothing more can arrive."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

from correlator.engine import correlate, result
from correlator.live.awaited import HELD_SURE, held
from correlator.live.ticker import Ticker
from correlator.selftest import situations
from store import open_store
from tests.correlator.field import ALIVE, KILLED, LEAF, SET_DOWN, Situation, _case, down, ended
from tests.correlator.rows import answer
from tests.line_parser import line_parser

PORT = "-250s tor1 switchd: swp1: link state changed to down"
END = situations.BEGINNING
DEAF = tuple(
    f"{t}s ctl slurmctld: error: slurm_receive_msgs: [[gpu01]:6818] failed: Socket timed out on send/recv operation"
    for t in (-120, -20)
)


def tables(*lines: str) -> dict[str, Any]:
    """The stored rows of one run on gpu[01-02] that ended NODE_FAIL with gpu01."""
    return tables_of(lines)


def tables_of(*each: tuple[str, ...]) -> dict[str, Any]:
    """Those of one such run on each of several clusters."""
    reported = (Situation("", lines, (ended("NODE_FAIL"),), (None,), links=LEAF) for lines in each)
    return situations.tables_of([_case(one, n) for n, one in enumerate(reported)], line_parser())


def verdict_of(store: Any) -> dict[str, Any]:
    (verdict,) = result(store)["verdicts"].values()
    return dict(verdict)


#: What was logged, and whether the verdict waits for more.
SILENT: dict[str, tuple[tuple[str, ...], bool]] = {
    "far end": ((PORT,), True),
    "own loss": (down("-250s", "gpu01", "eth0"), True),
    "silence": ((), True),
    "deaf": (DEAF, True),
    "far end, it lives": ((PORT, "-200s gpu01 kernel: something that goes on"), False),
    "own loss, it lives": (
        (*down("-250s", "gpu01", "eth0"), "-100s gpu01 systemd: Started Session 4 of user root."), False
    ),
    "own loss, over": (down("-250s", "gpu01", "eth0", "-2s"), False),
    "panic": (("-250s gpu01 kernel: Kernel panic - not syncing: Fatal exception",), False),
}  # fmt: skip


def test_provisional_verdicts_on_silent_nodes_are_held() -> None:
    """Each on a cluster of its own."""
    rows = tables_of(*((*ALIVE, *lines, SET_DOWN, KILLED) for lines, _ in SILENT.values()))
    with open_store(None) as store:
        store.add(rows)
        Ticker(store).tick(END + timedelta(seconds=1))
        early = result(store)["verdicts"]
        correlate(store)
        late = result(store)["verdicts"]
    for job, (name, (_, is_held)) in zip(sorted(early), SILENT.items(), strict=True):
        assert ("awaited" in early[job]) == is_held, name
        assert not is_held or early[job]["confidence"] == HELD_SURE, name
        assert any("next lines of gpu01" in d for d in early[job]["doubts"]) == is_held, name
        assert late[job]["confidence"] > HELD_SURE, name


def test_what_slurm_answers_about_a_node_is_not_its_own_word() -> None:
    rows = tables(*ALIVE, PORT, SET_DOWN, KILLED, "-1s gpu01 systemd: Started Session 4 of user root.")
    logs = rows["logs"]
    answers = logs.with_columns(
        source=pl.when(logs["message"].str.contains("Session")).then(pl.lit("sacctmgr_events")).otherwise("source")
    )
    with open_store(None) as store:
        store.add({**rows, "logs": answers})
        Ticker(store).tick(END + timedelta(seconds=1))
        assert "awaited" in verdict_of(store)


def test_who_was_never_logged_is_not_waited_for() -> None:
    with open_store(None) as store:
        store.add(tables("-2h gpu02 kernel: x", PORT, SET_DOWN, KILLED))
        Ticker(store).tick(END + timedelta(seconds=1))
        assert "awaited" not in verdict_of(store)


def test_its_next_line_gives_the_confidence_back() -> None:
    lines = (*ALIVE, PORT, SET_DOWN, KILLED, "30s gpu01 systemd: Started Session 4 of user root.")
    rows = tables(*lines)
    logs = rows["logs"]
    late = (logs["host"] == "gpu01") & (logs["time"] > END)
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add({**rows, "logs": logs.filter(~late)})
        ticker.tick(END + timedelta(seconds=1))
        (incident,) = result(store)["incidents"]
        assert [
            incident["confidence"],
            incident["jobs"][0]["confidence"],
            incident["candidates"][0]["probability"],
        ] == [HELD_SURE] * 3
        ticker.tick(END + timedelta(seconds=20))
        assert verdict_of(store)["awaited"]["hosts"] == ["gpu01"]
        store.add({"logs": logs.filter(late)})
        report = ticker.tick(END + timedelta(seconds=40))
        assert report.provisional == tuple(result(store)["verdicts"])
        (incident,) = result(store)["incidents"]
        sure = verdict_of(store)
        assert "awaited" not in incident and "awaited" not in sure and not sure["final"]
        ticker.tick(END + timedelta(days=1))
        ticked = answer(store)
        correlate(store)
        assert answer(store) == ticked and verdict_of(store)["confidence"] == sure["confidence"]


def test_time_alone_makes_a_held_verdict_final_as_it_was_concluded() -> None:
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add(tables(*ALIVE, PORT, SET_DOWN, KILLED))
        ticker.tick(END + timedelta(seconds=1))
        assert "awaited" in verdict_of(store)
        ticker.tick(END + timedelta(days=1))
        ticked = answer(store)
        correlate(store)
        assert answer(store) == ticked


def test_what_is_held_comes_back_as_it_was() -> None:
    document = {"confidence": 0.9, "doubts": ["a"], "root_cause": {"event": "e", "host": "h", "device": None}}
    incident = {**document, "candidates": [{"event": "e", "host": "h", "device": None, "probability": 0.9}]}
    for plain in (document, incident):
        shown = held(plain, ("h",))
        assert shown["confidence"] == HELD_SURE and len(shown["doubts"]) == 2
        assert held(shown, ("h",)) is shown and held(shown, ()) == plain and held(plain, ()) is plain
        assert held(shown, ("g", "h"))["awaited"] == {"hosts": ["g", "h"], "confidence": 0.9}
    doubtful = {**document, "confidence": 0.4}
    assert held(doubtful, ("h",)) is doubtful
