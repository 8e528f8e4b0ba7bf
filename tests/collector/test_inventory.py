"""Which source fell silent while the node is up, and which has only finished; boot epochs; rates."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.inventory import HABIT_LINES, HABIT_SPAN, SILENT_AT_LEAST, SILENT_AT_MOST, Inventory, by_host, patience
from collector.ledger import KEY, LONGEST_LIFE_S, RATE_S, RATES, SOURCES, Ledger, Source, Step
from collector.segment_file import Position
from store import open_store
from tests.examples import examples

NOW = datetime(2026, 11, 21, 12)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with open_store(None) as store:
        yield Ledger(store, "spool")


def seen(ledger: Ledger, host: str, source: str, ago: timedelta, *, lines: int = 100, gap_s: float = 10.0,
         longest_s: float | None = None, stream: str | None = None, span: timedelta = timedelta(days=1)) -> None:  # fmt: skip
    file = f"{host}:{stream or f'/var/log/{source}'}"
    made = Source(
        host, source, file, "agent", NOW - ago - span, NOW - ago, lines=lines, gap_s=gap_s, longest_s=longest_s
    )
    reported = pl.DataFrame([{**vars(made), "rated": time.monotonic(), "rate": lines / RATE_S}], schema=SOURCES | RATES)
    step = Step(Position(1, 20), sources=reported, lines={made.file: lines})
    ledger.apply(step)
    with ledger.store.write() as writer:
        ledger.write(writer, step)


def silent(ledger: Ledger) -> list[tuple[str, str]]:
    return [(a.host, a.source) for a in Inventory(ledger.store, ledger).alerts(NOW)]


@pytest.mark.parametrize(
    ("quiet_for", "changes", "alerted"),
    [
        (timedelta(minutes=20), {}, True),
        (timedelta(minutes=14), {}, False),  # logs come in bursts
        (timedelta(minutes=20), {"gap_s": 600.0}, False),  # it never logged often
        (timedelta(minutes=20), {"lines": HABIT_LINES - 1}, False),  # no habit yet
        (timedelta(hours=5), {"longest_s": 7200.0}, False),  # it was quiet for two hours before
        (timedelta(hours=7), {"longest_s": 7200.0}, True),
        (timedelta(minutes=20), {"span": HABIT_SPAN / 2}, False),  # lines of one boot are no habit
        (timedelta(days=8), {}, False),  # forgotten
    ],
)  # fmt: skip
def test_silence_while_another_source_of_the_node_speaks(quiet_for: timedelta, changes: dict[str, Any], alerted: bool, ledger: Ledger) -> None:  # fmt: skip
    seen(ledger, "gpu01", "slurmd", quiet_for, **changes)
    seen(ledger, "gpu01", "syslog", timedelta(minutes=1))
    assert silent(ledger) == ([("gpu01", "slurmd")] if alerted else [])


def test_a_node_that_is_down_is_not_alerted_and_one_that_slurm_holds_for_up_is(ledger: Ledger) -> None:
    for host in ("gpu01", "gpu02", "gpu03"):
        seen(ledger, host, "syslog", timedelta(minutes=30))
    states = [("gpu01", "idle"), ("gpu02", "down*"), ("gpu03", "mixed*")]
    rows = pl.DataFrame([{"time": NOW - timedelta(minutes=10), "host": h, "state": s} for h, s in states])
    with ledger.store.transaction() as connection:
        connection.register("states", rows.to_arrow())
        connection.execute("INSERT INTO model.node_states (time, host, state) SELECT time, host, state FROM states")
    assert silent(ledger) == [("gpu01", "syslog")]
    (alert,) = Inventory(ledger.store, ledger).alerts(NOW)
    assert "syslog of gpu01 silent for 30 min" in alert.text and "idle" in alert.text


def reports(ledger: Ledger, host: str, ago: timedelta, **states: str) -> None:
    """The host's agent reported which of its sources work."""
    status = {"sources": [{"name": name, "state": state} for name, state in states.items()]}
    step = Step(Position(1, 20))
    ledger.met(step, host, None, NOW - ago, status=json.dumps(status))
    ledger.apply(step)


def test_an_agent_that_went_with_its_node_says_what_it_left_behind(ledger: Ledger) -> None:
    def left(host: str, ago: timedelta, **spool: Any) -> None:
        step = Step(Position(1, 20))
        ledger.met(step, host, None, NOW - ago, status=json.dumps({"sources": [], "spool": spool}))
        ledger.apply(step)

    left("cloud1", timedelta(minutes=30), bytes=1_204_331, batches=12, dropped_lines=0)
    left("cloud2", timedelta(minutes=40), bytes=500, batches=0)
    left("cloud3", timedelta(minutes=3), bytes=1, batches=1)  # it will report again
    left("cloud4", timedelta(days=9), bytes=1, batches=1)  # forgotten
    left("cloud5", timedelta(minutes=30), bytes="many", batches=True)
    left("up", timedelta(minutes=30), bytes=1, batches=1)
    seen(ledger, "up", "slurmd", timedelta(seconds=30))  # its node lives: that is a silent agent
    inventory = Inventory(ledger.store, ledger)
    found = {one.host: one for one in inventory.gone(NOW)}
    assert list(found) == ["cloud1", "cloud2", "cloud5"]
    assert (
        found["cloud1"].text
        == "cloud1 gone for 30 min: up to 1,204,331 bytes in 12 batches unshipped when its agent last reported"
    )
    assert (found["cloud2"].bytes, "nothing unshipped" in found["cloud2"].text) == (0, True)
    assert (found["cloud5"].batches, found["cloud5"].bytes) == (0, 0)


@pytest.mark.parametrize(
    ("stream", "states", "ago", "alerted"),
    [
        ("/var/log/messages", {"files": "ok"}, 0, False),
        ("/var/log/messages", {"files": "denied"}, 0, True),
        ("journal", {"files": "denied", "journald": "ok"}, 0, False),
        ("journal", {"files": "ok", "journald": "error"}, 0, True),
    ],
)
def test_what_an_agent_reads_is_quiet_and_not_silent(
    stream: str, states: dict[str, str], ago: int, alerted: bool, ledger: Ledger
) -> None:
    seen(ledger, "gpu01", "syslog", timedelta(hours=3), stream=stream)
    reports(ledger, "gpu01", timedelta(minutes=ago), **states)
    assert bool(silent(ledger)) == alerted


def test_an_agent_that_reports_no_more_is_the_one_alert_for_all_that_it_read(ledger: Ledger) -> None:
    for source in ("syslog", "slurmd", "kernel"):
        seen(ledger, "gpu01", source, timedelta(minutes=21))
    reports(ledger, "gpu01", timedelta(minutes=20), files="ok")
    assert silent(ledger) == [], "its node may be off"
    seen(ledger, "gpu01", "syslog", timedelta(minutes=1), stream="tcp")  # the syslog daemon of the node still sends
    step = Step(Position(1, 20))
    ledger.met(step, "gpu01", None, NOW)
    ledger.apply(step)
    assert silent(ledger) == [("gpu01", "agent")]
    just_started = Inventory(ledger.store, ledger, NOW - timedelta(minutes=5))
    assert just_started.alerts(NOW) == [], "until agents have had the time to report"


def test_a_file_speaks_if_one_of_its_sources_does_and_a_kernel_has_no_rhythm(ledger: Ledger) -> None:
    for source, ago in (
        ("slurmd", timedelta(hours=9)),
        ("kernel", timedelta(hours=9)),
        ("syslog", timedelta(minutes=1)),
    ):
        seen(ledger, "gpu01", source, ago, stream="tcp")
    seen(ledger, "gpu01", "kernel", timedelta(hours=9), stream="/var/log/kern.log")
    assert silent(ledger) == []
    for file in ("/var/log/a", "/var/log/b"):
        seen(ledger, "gpu01", "slurmd", timedelta(hours=9), stream=file)
    alerts = Inventory(ledger.store, ledger).alerts(NOW)
    assert by_host(alerts) == [("gpu01", f"{alerts[0].text} (and 1 more of its files)")] and len(alerts) == 2


def test_a_jobs_output_ends_without_an_alert(ledger: Ledger) -> None:
    seen(ledger, "gpu01", "job_stdout", timedelta(hours=2))
    seen(ledger, "gpu01", "syslog", timedelta(0))
    assert silent(ledger) == []


def test_patience_follows_the_habit_within_bounds() -> None:
    common = {gap: patience(Source("h", "s", "f", "", NOW, NOW, gap_s=gap)) for gap in (None, 1.0, 3600.0, 1e9)}
    assert common[None] == common[1.0] == SILENT_AT_LEAST
    assert common[3600.0] == timedelta(hours=10) and common[1e9] == SILENT_AT_MOST


def test_what_the_ledger_keeps_is_what_a_new_one_reads(ledger: Ledger) -> None:
    step = Step(Position(3, 99))
    ledger.met(step, "gpu01", "ml1", NOW, boot_id="a")
    ledger.met(step, "gpu01", None, NOW + timedelta(seconds=5), boot_id="b")
    ledger.met(step, "gpu02", None, NOW, boots=2)
    ledger.apply(step)
    with ledger.store.write() as writer:
        ledger.write(writer, step)
    seen(ledger, "gpu01", "syslog", timedelta(0))
    again = Ledger(ledger.store, "spool")
    assert again.nodes == ledger.nodes and again.sources == ledger.sources and again.lines == ledger.lines
    assert (again.nodes["gpu01"].boots, again.nodes["gpu01"].cluster, again.nodes["gpu02"].boots) == (2, "ml1", 2)
    assert again.watermark() == Position(1, 20) and Ledger(ledger.store, "another").watermark() is None
    assert 0 < ledger.rates_now()["gpu01", "syslog", "gpu01:/var/log/syslog"] < 2


def test_old_keys_and_ended_output_are_forgotten_and_nothing_else(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.ledger.KEYS_KEPT", 2)
    monkeypatch.setattr("collector.ledger.MOST_KEYS", 4)
    seen(ledger, "gpu01", "job_stdout", timedelta(days=8))
    seen(ledger, "gpu01", "syslog", timedelta(days=8))

    def keys_after(*ages: timedelta) -> list[str]:
        with ledger.store.transaction() as connection:
            connection.execute("DELETE FROM intake.keys")
        ledger.keys = {}
        step = Step(Position(1, 30), opaque=[(f"k{n}", NOW - age) for n, age in enumerate(ages)])
        ledger.apply(step)
        with ledger.store.write() as writer:
            ledger.write(writer, step)
        ledger.prune(NOW)
        assert Ledger(ledger.store, "spool").keys == ledger.keys
        return sorted(ledger.keys)

    day, minute = timedelta(days=2), timedelta(minutes=1)
    assert keys_after(day, day * 2) == ["k0", "k1"]  # few: kept whatever their age
    assert keys_after(minute, minute * 2, day, day * 2) == ["k0", "k1", "k2"]
    assert keys_after(*(minute * n for n in range(8))) == ["k0", "k1", "k2", "k3", "k4"]  # too many: the oldest go
    assert [s.source for s in ledger.sources.values()] == ["syslog"]


STATISTICS = {n: kind for n, kind in SOURCES.items() if n not in ("gap_s", "longest_s")} | {
    "cluster": pl.String,
    "boots": pl.Int64,
}
TOLD = st.fixed_dictionaries(
    {
        "host": st.sampled_from([None, "", "a", "b"]), "source": st.sampled_from(["syslog", "slurmd"]), "file": st.sampled_from([None, "f", "g"]),
        "transport": st.sampled_from([None, "tcp"]), "lines": st.integers(1, 9), "events": st.integers(0, 2), "bytes": st.integers(0, 99),
        "seen": st.integers(0, 600), "time": st.none() | st.integers(0, 600), "lag_s": st.none() | st.floats(-5, 5), "late": st.none() | st.integers(0, 3),
    }
)  # fmt: skip


@settings(max_examples=examples(8), deadline=None)
@given(st.lists(st.lists(TOLD, min_size=1, max_size=6, unique_by=lambda t: (t["host"] or "", t["source"], t["file"] or "")), max_size=5))  # fmt: skip
def test_many_sources_at_once_are_counted_as_one_by_one(steps: list[list[dict[str, Any]]]) -> None:
    def moment(seconds: int | None) -> datetime | None:
        return None if seconds is None else NOW + timedelta(seconds=seconds)

    known: dict[tuple[str, str, str], dict[str, Any]] = {}
    with open_store(None) as store:
        ledger = Ledger(store, "spool")
        for reported in steps:
            rows = []
            for t in reported:
                seen, at = moment(t["seen"]), moment(t["time"])
                stated = {name: t[name] for name in (*KEY, "transport", "lines", "events", "bytes", "lag_s", "late")}
                more = {"first_seen": seen, "last_seen": seen, "last_time": at, "unparsed": 0, "max_lag_s": t["lag_s"]}
                rows.append({**stated, **more, "cluster": None, "boots": 0})
                key = (t["host"] or "", t["source"], t["file"] or "")
                old = known.get(key)
                gap = max(0.0, (seen - old["last_seen"]).total_seconds()) if old and seen else None
                faded = (old or {}).get("longest_s")
                faded = None if faded is None else faded * math.exp(-(gap or 0.0) / LONGEST_LIFE_S)
                most = [v for v in ((old or {}).get("max_lag_s"), t["lag_s"]) if v is not None]
                known[key] = {
                    "transport": old["transport"] if old else t["transport"] or "", "last_seen": max(seen or NOW, old["last_seen"]) if old else seen,
                    "lines": t["lines"] + (old["lines"] if old else 0), "late": (t["late"] or 0) + (old["late"] if old else 0),
                    "lag_s": t["lag_s"] if t["lag_s"] is not None or not old else old["lag_s"], "max_lag_s": max(most, default=None),
                    "gap_s": gap if not old or old["gap_s"] is None else old["gap_s"] + ((gap or 0.0) - old["gap_s"]) * 0.1,
                    "longest_s": None if gap is None else max(gap, faded or 0.0),
                }  # fmt: skip
            step = Step(Position(1, 20))
            ledger.count(step, pl.DataFrame(rows, schema=STATISTICS))
            ledger.apply(step)
            with store.write() as writer:
                ledger.write(writer, step)
        found = {key: {name: getattr(source, name) for name in known[key]} for key, source in ledger.sources.items()}
        assert found == {
            key: {**row, **{name: pytest.approx(row[name]) for name in ("gap_s", "longest_s")}}
            for key, row in known.items()
        }
        again = Ledger(store, "spool")
        assert again.sources == ledger.sources and again.lines == ledger.lines
        assert ledger.rates_now().keys() == known.keys()


def test_no_host_and_an_empty_one_are_the_same_source(ledger: Ledger) -> None:
    reported = {"source": "syslog", "file": None, "transport": "tcp", "first_seen": NOW, "last_seen": NOW, "last_time": NOW, "unparsed": 0,
            "events": 0, "bytes": 5, "lag_s": None, "max_lag_s": None, "late": 0, "cluster": None, "boots": 0}  # fmt: skip
    rows = [{**reported, "host": host, "lines": lines} for host, lines in ((None, 3), ("", 4))]
    step = Step(Position(1, 20))
    ledger.count(step, pl.DataFrame(rows, schema=STATISTICS))
    ledger.apply(step)
    assert [(s.host, s.lines) for s in ledger.sources.values() if s.source == "syslog" and not s.host] == [("", 7)]
