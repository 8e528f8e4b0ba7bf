"""Old events and facts are let go of; whoever asks for one finds it as it was, and late lines are concluded as ever."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from sys import getrefcount
from typing import cast
from weakref import ref

import numpy as np
import polars as pl
import pytest

from benchmarks import correlation
from benchmarks.soak import stored
from correlator.conclusions import Conclusions
from correlator.engine import correlate
from correlator.gather.presence import WhoWasThere
from correlator.live import old, ticker
from correlator.live.state import LiveConclusions
from correlator.live.state import stored as stored_change
from correlator.live.ticker import Ticker
from correlator.model import append_only_list, thinned
from correlator.model.append_only_list import AppendOnlyList
from correlator.model.attrs import Attrs, by_name
from correlator.model.nouns import EVENTS, FACTS, Event, Fact
from correlator.model.packed import Block, NotPlainError, pack_restored, rows_of
from parsers.record import frame
from store import open_store
from store.door import Door

DAY_S = 86_400


@pytest.fixture(autouse=True)
def _old_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short histories do what long ones do."""
    monkeypatch.setattr(old, "LATEST", 8)
    monkeypatch.setattr(old, "TIMES", 0)
    monkeypatch.setattr(old, "MOST_WAITING", 0)
    monkeypatch.setattr(append_only_list, "BLOCK", 16)
    monkeypatch.setattr(ticker, "RESTED_TICKS", 1)
    yield
    old.let_go()


def _event(number: int) -> Event:
    return Event(
        f"e{number}", 10.0 * number, 0.5, "gpu.xid", f"n{number % 3}", None, 7, f"message {number}", "kernel", "gpu", None, "n1/kern.log", number,
        None, "line", 1, 10.0 * number, {"xid": number, "pids": [1, 2]}, (("n1/syslog", 3),),
    )  # fmt: skip


def _values(event: Event) -> tuple[object, ...]:
    return astuple(event)


def test_a_packed_event_is_the_same_object_with_the_same_values() -> None:
    events, wanted = [_event(n) for n in range(600)], [_values(_event(n)) for n in range(600)]
    EVENTS.pack(events)
    assert not any(type(one) is Event for one in events)
    assert events[3].time == 30.0 and type(events[3]) is not Event  # what stays is read without a look
    for _ in range(2):
        assert [_values(one) for one in events] == wanted
        assert {type(one) for one in events} == {Event}
        assert pack_restored() == 600
        assert not any(type(one) is Event for one in events)
    with pytest.raises(AttributeError, match="colour"):
        attrgetter("colour")(events[0])


def test_a_fact_that_refers_to_others_keeps_them() -> None:
    line = _event(1)
    facts = [
        Fact("a", 1.0, 2.0, 0.0, attrs=cast("Attrs", attrs), events=(line,))
        for attrs in ({"hosts": ["n1"], "code": None}, {"output": [line]}, {})
    ]
    FACTS.pack(facts)
    assert [type(one) is Fact for one in facts] == [False, True, False]
    assert by_name(facts[1].attrs)["output"][0] is line
    assert [by_name(facts[0].attrs), by_name(facts[2].attrs)] == [{"hosts": ["n1"], "code": None}, {}]
    assert all(fact.events == (line,) for fact in facts)


class _Text(str):
    """Not plain, and equal to a text."""


@pytest.mark.parametrize(
    "value", [np.float64(2.0), np.int64(7), np.str_("a"), _Text("a"), np.bool_(True), [np.float64(1)]]
)
def test_values_that_are_not_plain_are_left_as_they_are(value: object) -> None:
    plain = [_event(n) for n in range(3)]
    odd = [replace(_event(3), entities={"xid": value}), replace(_event(4), message=cast("str", value))]
    events = [*plain, *odd]
    assert thinned.thinned(events) == tuple(events)  # no copies of them
    facts = [Fact("a", 1.0, 2.0, 0.0, attrs=cast("Attrs", {"why": each})) for each in ("a", value, "b")]
    FACTS.pack(facts)
    assert [type(one) is Fact for one in facts] == [False, True, False]
    assert [by_name(one.attrs)["why"] for one in facts] == ["a", value, "b"] and by_name(facts[1].attrs)["why"] is value
    packed = thinned.Thinned(plain)  # what could not be packed leaves nothing behind
    wanted = [_values(one) for one in plain]
    del events, plain, odd
    old.let_go()
    assert packed.held == 0 and [_values(one) for one in packed] == wanted


def test_what_was_packed_is_not_kept_by_what_packs_it() -> None:
    class Seen(dict[str, int]):  # unlike a dict, it can be watched
        pass

    held, watched = {"hosts": ["n1" * 50]}, Seen()
    gone = ref(watched)
    first = Block(["text", held])
    Block(["text" * 1000, held])
    with pytest.raises(NotPlainError):
        Block(["text", held, watched])
    assert Block(["text", held]).data == first.data
    del watched
    assert gone() is None and getrefcount(held) == 2


def test_threads_pack_at_the_same_time() -> None:
    def both(first: int) -> bool:
        rows = [[(f"{first} {n}", n / 3, {"nodes": [f"n{n % 7}"]}) for n in range(m, m + 200)] for m in range(40)]
        return [rows_of(Block(some)) for some in rows] == rows

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(both, range(16)))


def test_only_events_that_something_refers_to_are_held() -> None:
    wanted = [_values(_event(n)) for n in range(64)]
    events = AppendOnlyList([_event(n) for n in range(70)])
    kept = events[5]
    events.hold(67, thinned.thinned)
    old.let_go()
    blocks = [block for block in events.blocks if isinstance(block, thinned.Thinned)]
    assert [block.held for block in blocks] == [1, 0, 0, 0] and len(events.blocks) == 5
    assert events[5] is kept and events[20] is events[20]
    assert [_values(one) for one in events[:64]] == wanted
    for moment in (-1.0, 0.0, 0.5, 150.0, 155.0, 160.0, 300.0, 640.0, 695.0, 9000.0):
        assert thinned.first_at(events, moment) == sum(10.0 * n < moment for n in range(70))
    twice = events[30]
    old.let_go()
    assert [block.held for block in blocks] == [1, 1, 0, 0]
    assert events[30] is twice
    assert list(events.but(40, [_event(99)]))[39].id == "e39"


def test_questions_of_a_while_keep_its_hosts_only() -> None:
    (asked,) = WhoWasThere.of([(float(n), f"n{n}") for n in range(100)], 0.0)
    (few,), (most,) = asked.between(10.0, 20.0), asked.between(0.0, 90.0)
    assert few.hosts == {f"n{n}" for n in range(10, 20)}
    assert most.hosts is asked.hosts  # not made anew by each tick


def _held(known: LiveConclusions) -> tuple[int, int]:
    """How many events are held, and how many of those whole."""
    held: list[Event] = []
    events = known.result.events
    for block in events.blocks if isinstance(events, AppendOnlyList) else [events]:
        held += filter(None, block._held) if isinstance(block, thinned.Thinned) else block
    return len(held), sum(type(one) is Event for one in held)


def _at(seconds: float) -> datetime:
    return correlation.START.replace(tzinfo=UTC) + timedelta(seconds=seconds)


def _add(store: Door, made: correlation.Day) -> None:
    store.append({"logs": frame("logs", made.logs), "jobs": frame("jobs", made.jobs)})
    made.logs, made.jobs = [], []


def _settings(store: Door) -> None:
    conf = {"cluster": "made", "scope": "cluster", "name": "SlurmdTimeout", "value": "300", "source": "slurm.conf"}
    store.append({"settings": frame("settings", [conf])})


def test_lines_three_days_late_are_concluded_as_a_full_pass_does() -> None:
    made = correlation.Day(5)
    made.fill(0, DAY_S, 30, 300)
    late_from, late_until = _at(DAY_S - 3600).replace(tzinfo=None), _at(DAY_S).replace(tzinfo=None)
    rows = frame("logs", made.logs)
    is_late = pl.col("time").is_between(late_from, late_until) & (pl.col("line") % 2 == 0)
    with open_store(None) as store:
        _settings(store)
        store.append({"logs": rows.filter(~is_late), "jobs": frame("jobs", made.jobs)})
        made.logs, made.jobs = [], []
        service = Ticker(store)
        service.tick(_at(DAY_S))
        for day in range(1, 4):
            made.fill(day * DAY_S, (day + 1) * DAY_S, 5, 15)
            _add(store, made)
            assert not service.tick(_at((day + 1) * DAY_S)).full
        (known,) = service._known.values()
        assert _held(known)[0] < len(known.result.events) / 2
        facts = known.result.facts
        assert sum(type(fact) is not Fact for fact in facts) > len(facts) / 2
        before = stored(store)
        late = rows.filter(is_late)
        assert late.height > 10
        store.append({"logs": late})
        report = service.tick(_at(4 * DAY_S + 60))
        assert report.worked and not report.full
        ticked = stored(store)
        assert ticked["incidents"] != before["incidents"]
        correlate(store)
        assert stored(store) == ticked


def _days(store: Door, count: int) -> Iterator[datetime]:
    """Stores so many days with faults, one after the other; the end of each."""
    made = correlation.Day(3)
    _settings(store)
    for day in range(count):
        made.fill(day * DAY_S, (day + 1) * DAY_S, 0, 100)
        _add(store, made)
        yield _at((day + 1) * DAY_S)


def test_held_events_follow_what_is_new() -> None:
    held = []
    with open_store(None) as store:
        service = Ticker(store)
        for evening in _days(store, 7):
            service.tick(evening)
            (known,) = service._known.values()
            held.append(_held(known))
        assert len(known.result.events) > 600
        assert max(whole for _, whole in held) < 230, held
        assert held[-1][0] < len(known.result.events) / 2, held


def test_the_tick_after_one_with_news_packs_again_what_was_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a tenth of a second after some bursts, and nobody waits for that tick."""
    calls = [0]
    monkeypatch.setattr(ticker, "let_go", lambda: calls.append(calls.pop() + 1))
    with open_store(None) as store:
        service = Ticker(store)
        for evening in _days(store, 4):
            before = calls[0]
            report = service.tick(evening)
            assert report.worked and (report.full or calls[0] == before)
            for _ in range(2):
                assert not service.tick(evening).worked
            assert calls[0] == before + 1
        assert not report.full


def test_rows_have_all_values_in_the_order_of_the_fields() -> None:
    values = tuple(map(str, range(len(fields(Event)))))
    assert thinned._rows([Event(*values)]) == [values]  # type: ignore[arg-type]


def test_a_held_event_has_its_values_in_the_block_of_its_stretch() -> None:
    events = [_event(n) for n in range(300)]
    stretch, wanted = thinned.Thinned(events), [_values(one) for one in events]
    old.let_go()
    assert not any(type(one) is Event for one in events) and stretch.held == 300
    assert {id(one._block) for one in events} == set(map(id, stretch._blocks))
    assert _values(events[270]) == wanted[270] and type(events[270]) is Event
    again = thinned.Thinned(events[200:])  # a late line moved the borders of stretches
    assert _values(events[290]) == wanted[290]
    old.let_go()
    assert {id(one._block) for one in events[200:]} == set(map(id, again._blocks))
    assert not any(type(one) is Event for one in events) and [_values(one) for one in events] == wanted


def test_packing_waits_for_a_tick_without_news_or_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old, "MOST_WAITING", 450)
    monkeypatch.setattr(old, "PIECE", 400)
    monkeypatch.setattr(old, "RESTING_PIECE", 160)
    made, whole = correlation.Day(3), []
    with open_store(None) as store:
        _settings(store)
        service = Ticker(store)

        def tick(day: int) -> None:
            service.tick(_at((day + 1) * DAY_S))
            (known,) = service._known.values()
            whole.append(sum(type(fact) is Fact for fact in known.result.facts) + _held(known)[1])

        def fill(day: int) -> int:
            made.fill(day * DAY_S, (day + 1) * DAY_S, 0, 100)
            count = len(made.logs)
            _add(store, made)
            tick(day)
            return count

        waiting = sum(fill(day) for day in range(3))
        assert waiting >= 300 and whole[-1] > whole[0]
        for _ in range(4):
            tick(3)
        assert whole[3] < whole[2] and whole[4] < whole[3]  # pieces
        assert whole[5] == whole[6]  # all of it
        rested = whole[6]
        for day in range(3, 10):
            fill(day)
        assert max(whole[7:]) - rested > 300
        assert min(b - a for a, b in pairwise(whole[7:])) < 0, whole


def test_many_events_of_one_moment_hold_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines of an output without timestamps are placed at its run's end."""
    monkeypatch.setattr(old, "RESTING_PIECE", 32)
    moment = [replace(_event(n), time=10.0, received=10.0) for n in range(100)]
    known = LiveConclusions(
        Conclusions("made", [_event(0), *moment, *(_event(n) for n in range(100, 300))]), change=stored_change()
    )
    del moment  # nobody else holds them
    for _ in range(20):
        old.pack_old(known, is_resting=True)
    assert known.memory.packed_until > 2000.0
    old.let_go()
    assert _held(known)[0] < 80


def test_who_looks_at_each_once_makes_none_be_held() -> None:
    """A host that was never seen before makes a tick look at all events of some kinds."""
    wanted = [_values(_event(n)) for n in range(600)]
    stretch = thinned.Thinned([_event(n) for n in range(600)])
    old.let_go()
    assert stretch.held == 0
    known: AppendOnlyList[Event] = AppendOnlyList()
    known._blocks = [stretch]
    assert not list(thinned.of_kinds(known, {"gpu.ecc"})) and not rows_of.cache_info().currsize, "nothing is restored"
    assert [_values(e) for e in thinned.of_kinds(known, {"gpu.xid"})] == wanted
    mixed = thinned.Thinned([replace(_event(n), kind="gpu.ecc" if n in (7, 300) else "gpu.xid") for n in range(600)])
    old.let_go()
    assert [e.id for e in mixed.of_kinds({"gpu.ecc"})] == ["e7", "e300"] and stretch.held == mixed.held == 0
