"""Following what is new, and putting right what is stored, as every engine does it behind the door (``store.door``)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa

from parsers.record import frame
from store.door import Door, Mark
from store.errors import NoSuchTable
from store.functions import PLACE, row_place
from store.questions import intake, settling
from store.questions.arrivals import KNOWN_BOOTS
from store.questions.event_lines import stamped
from store.questions.hosts import boots_again
from store.questions.source import ALL, Source
from store.tables import ARCHIVE, BOOTS, LOGS, SETTINGS
from tests.store.test_door import ENGINES, T0, logs

TABLES = ("logs", "boots")


@pytest.fixture(params=ENGINES)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    store = ENGINES[request.param](tmp_path)
    yield store
    store.close()


def boots(*hours: int, host: str = "gpu01", source: str = "scontrol_node") -> pl.DataFrame:
    times = [T0 + timedelta(hours=h) for h in hours]
    return frame("boots", [{"boot_time": t, "host": host, "cluster": "mini", "source": source} for t in times])


def new(store: Door, since: Mark) -> list[str]:
    question = sa.select(LOGS.c.raw).where(store.stored_since(LOGS, since)).order_by(LOGS.c.raw)
    return [row["raw"] for row in store.ask(question)]


def test_a_mark_made_after_another_says_what_one_made_from_nothing_says(door: Door) -> None:
    """The cheap way, which looks behind an earlier mark only, through additions, deletions and lines that are put elsewhere."""
    mark = door.mark(TABLES)
    steps = (
        lambda: door.append({"logs": logs("a", "b")}), lambda: None, lambda: door.append({"boots": boots(1), "logs": logs("c")}),
        lambda: door.seal(least=1), lambda: door.append({"logs": logs("d")}),
    )  # fmt: skip
    for step in steps:
        step()
        mark = door.mark(TABLES, mark)
        assert mark == door.mark(TABLES)
    with door.write() as writer:
        writer.change(sa.delete(LOGS).where(LOGS.c.raw == "d"))
    assert door.mark(TABLES, mark) == door.mark(TABLES) != mark


def test_rows_that_were_only_added_count_the_same_in_both_ways(door: Door) -> None:
    """Whoever follows tells from it whether there is anything but new rows."""
    door.append({"logs": logs("a", "b")})
    before = door.mark(TABLES)
    door.append({"logs": logs("c")})
    added = door.mark(TABLES, before)
    (then, now) = (mark.tables["logs"] for mark in (before, added))
    assert (now.rows - then.rows, now.added - then.added) == (1, 1)
    with door.write() as writer:
        writer.change(sa.delete(LOGS).where(LOGS.c.raw == "a"))
    door.append({"logs": logs("e")})
    gone = door.mark(TABLES, added).tables["logs"]
    assert gone.rows - now.rows != gone.added - now.added
    assert new(door, before) == ["c", "e"]


def test_rows_of_an_alias_are_told_apart_by_the_same_mark(door: Door) -> None:
    door.append({"boots": boots(1)})
    mark = door.mark(TABLES)
    door.append({"boots": boots(2)})
    own, known = door.stored_since(BOOTS, mark), ~door.stored_since(KNOWN_BOOTS, mark)
    question = sa.select(BOOTS.c.boot_time, KNOWN_BOOTS.c.boot_time.label("known")).where(own, known)
    assert door.ask(question) == [{"boot_time": T0 + timedelta(hours=2), "known": T0 + timedelta(hours=1)}]


def test_a_stretch_of_time_has_its_own_rows_and_none_without_a_time(door: Door) -> None:
    lines = logs("before", "within", "untimed").with_columns(
        event=pl.lit("nic.link_down"), time=pl.Series([T0, T0 + timedelta(hours=1), None], dtype=pl.Datetime("us"))
    )
    door.append({"logs": lines})
    asked = {source: door.ask_frame(stamped("mini", source)) for source in (ALL, Source(T0 + timedelta(minutes=1)))}
    assert [sorted(found["message"]) for found in asked.values()] == [["before", "within"], ["within"]]


def test_a_boot_within_a_stretch_is_one_again_by_boots_before_it(door: Door) -> None:
    door.append({"boots": pl.concat([boots(1, 5), boots(5, host="gpu02")])})
    for source in (ALL, Source(T0 + timedelta(hours=4))):
        found = door.ask(boots_again("mini", ("scontrol_node",), 60.0, source))
        assert [row["host"] for row in found] == ["gpu01"]


def test_amended_rows_get_other_values_and_those_who_follow_are_told(door: Door) -> None:
    door.append({"logs": logs("a", "b")})
    rewritten = door.rewritten
    (row,) = door.ask(sa.select(row_place(LOGS).label(PLACE)).where(LOGS.c.raw == "b"))
    with door.write() as writer:
        data = pl.DataFrame({PLACE: [row[PLACE]], "host": ["gpu09"], "time_quality": ["inferred"]})
        writer.amend_by(LOGS, (PLACE,), data)
    hosts = door.ask(sa.select(LOGS.c.raw, LOGS.c.host, LOGS.c.time_quality).order_by(LOGS.c.raw))
    assert [tuple(r.values()) for r in hosts] == [("a", "gpu02", None), ("b", "gpu09", "inferred")]
    assert door.rewritten > rewritten


def test_rows_under_another_name_of_a_host_get_the_nodes(door: Door) -> None:
    lines = pl.concat(
        [logs("a", host="10.0.0.1"), logs("b", host="10.0.0.1").with_columns(cluster=pl.lit(None, pl.String))]
    )
    door.append({"logs": lines})
    with door.write() as writer:
        writer.amend(settling.name_hosts(LOGS, [(None, "10.0.0.1", "gpu01")]))
    found = door.ask(sa.select(LOGS.c.raw, LOGS.c.host).order_by(LOGS.c.raw))
    assert [row["host"] for row in found] == ["10.0.0.1", "gpu01"]


def test_rows_without_a_cluster_get_the_one_that_is_known(door: Door) -> None:
    unnamed = logs("a").with_columns(cluster=pl.lit(None, pl.String))
    door.append({"logs": unnamed, "settings": frame("settings", [{"name": "ClusterName", "value": "mini"}])})
    door.name_cluster("mini")
    assert door.ask(sa.select(LOGS.c.cluster).union_all(sa.select(SETTINGS.c.cluster))) == [{"cluster": "mini"}] * 2
    assert door.ask(sa.select(ARCHIVE)) == []


def test_the_tables_of_the_way_in_are_made_once_and_keep_what_they_hold(door: Door) -> None:
    with pytest.raises(NoSuchTable):
        door.ask(intake.sources())
    for _ in range(2):
        door.open_intake()
        assert door.ask(intake.blind_count()) == [{"n": 0}]


def test_a_writer_in_a_hurry_leaves_upkeep_to_others_only_meanwhile(door: Door) -> None:
    def threshold() -> object:
        return door.cursor().execute("SELECT current_setting('wal_autocheckpoint')").fetchone()

    usual = threshold()
    with pytest.raises(KeyError), door.others_tidy():
        assert threshold() != usual
        raise KeyError
    assert threshold() == usual
