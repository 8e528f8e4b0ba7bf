"""Following new rows, and amending stored ones, as every engine does it behind the protocol (``store.door``)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers.record import frame
from store import open_store, restore
from store.changes import Change, Mark
from store.door import Door
from store.errors import NoSuchTable
from store.functions import PLACE, row_place
from store.questions import intake, settling
from store.questions.arrivals import KNOWN_BOOTS
from store.questions.event_lines import stamped
from store.questions.hosts import boots_again
from store.questions.source import ALL, Source
from store.tables import ARCHIVE, BOOTS, LOGS, SETTINGS
from tests.examples import examples
from tests.store.test_door import ENGINES, KEEPING, PLAIN, T0, each, entry, failing, logs

TABLES = ("logs", "boots")


@pytest.fixture(params=each(ENGINES))
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    store = ENGINES[request.param](tmp_path)
    yield store
    store.close()


@pytest.fixture(params=each(PLAIN))
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    store = PLAIN[request.param](tmp_path)
    yield store
    store.close()


@pytest.fixture(params=KEEPING)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    store = ENGINES[request.param](tmp_path)
    yield store
    store.close()


def boots(*hours: int, host: str = "gpu01", source: str = "scontrol_node") -> pl.DataFrame:
    times = [T0 + timedelta(hours=h) for h in hours]
    return frame("boots", [{"boot_time": t, "host": host, "cluster": "mini", "source": source} for t in times])


def new(store: Door, since: Mark) -> list[str]:
    added = store.stored_since(LOGS, store.changes(("logs",), since))
    return [row["raw"] for row in store.ask(sa.select(LOGS.c.raw).where(added).order_by(LOGS.c.raw))]


def here(store: Door) -> Mark:
    """The position of a reader that has read everything."""
    return store.changes(TABLES).until


def remove(store: Door, raw: str) -> None:
    with store.write() as writer:
        writer.change(sa.delete(LOGS).where(LOGS.c.raw == raw))


def rename(store: Door, raw: str) -> None:
    with store.write() as writer:
        writer.amend(sa.update(LOGS).where(LOGS.c.raw == raw).values(host="gpu09"))


#: Changes to a store with the lines a and b, and the resulting news for a reader of those two.
CHANGED = {
    "nothing": (lambda _: None, {}),
    "lines": (lambda store: store.append({"logs": logs("c", "d")}), {"logs": Change(added=2)}),
    "two tables": (lambda store: store.append({"boots": boots(1), "logs": logs("c")}), {"logs": Change(added=1), "boots": Change(added=1)}),
    "an amendment": (lambda store: rename(store, "a"), {"logs": Change(amended=1)}),
    "an amendment of nothing": (lambda store: rename(store, "z"), {}),
    "a removal": (lambda store: remove(store, "a"), {"logs": Change(removed=1)}),
    "tables that nobody follows": (lambda store: store.set_fact("lemons", "[]"), {}),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED)
def test_a_reader_is_told_what_changed(plain: Door, what: str) -> None:
    plain.append({"logs": logs("a", "b")})
    mark = here(plain)
    change, reported = CHANGED[what]
    change(plain)
    found = plain.changes(TABLES, mark)
    assert found.tables == {"logs": Change(), "boots": Change()} | reported
    assert not found.too_old and found.nothing == (not reported)
    assert found.until.instance == mark.instance and found.until.batch >= mark.batch
    assert plain.changes(TABLES, found.until).nothing


def test_lines_that_are_put_in_order_are_no_new_ones(door: Door) -> None:
    door.append({"logs": logs("a", "b")})
    mark = here(door)
    sealed = door.seal(least=1)
    found = door.changes(TABLES, mark)
    assert found.tables["logs"] == Change(moved=sealed.lines) and found.rows["logs"] == 2


def test_who_was_never_there_is_told_how_much_there_is(plain: Door) -> None:
    plain.append({"logs": logs("a", "b")})
    found = plain.changes(TABLES)
    assert (found.too_old, found.nothing, found.rows) == (True, False, {"logs": 2, "boots": 0})


def test_who_was_never_there_reads_all(door: Door) -> None:
    door.append({"logs": logs("a", "b")})
    found = door.changes(TABLES)
    question = sa.select(LOGS.c.raw).where(door.stored_since(LOGS, found)).order_by(LOGS.c.raw)
    assert [row["raw"] for row in door.ask(question)] == ["a", "b"]


@pytest.mark.parametrize("mark", [Mark("another", 1), Mark("", 0)])
def test_marks_of_another_instance_are_too_old(plain: Door, mark: Mark) -> None:
    assert plain.changes(TABLES, mark).too_old
    assert plain.changes(TABLES, here(plain)._replace(instance=mark.instance)).too_old
    assert plain.changes(TABLES, here(plain)._replace(batch=10_000)).too_old  # of a time that has not been reached here


def test_each_step_has_a_greater_number(plain: Door) -> None:
    seen = [here(plain).batch]
    for step in (lambda: plain.append({"logs": logs("a")}), lambda: rename(plain, "a"), lambda: remove(plain, "a")):
        step()
        seen.append(here(plain).batch)
    assert seen == sorted(set(seen))


def test_what_failed_is_no_change(plain: Door) -> None:
    mark = here(plain)
    with pytest.raises(KeyError):
        plain.append({"logs": logs("a")}, also=failing)
    assert plain.changes(TABLES, mark).nothing
    plain.append({"logs": logs("b")})
    assert plain.changes(TABLES, mark).tables["logs"] == Change(added=1)


def test_what_failed_is_not_among_the_new_rows(door: Door) -> None:
    mark = here(door)
    with pytest.raises(KeyError):
        door.append({"logs": logs("a")}, also=failing)
    door.append({"logs": logs("b")})
    assert new(door, mark) == ["b"]


_STEPS = {
    "append": lambda store, n: store.append({"logs": logs(f"a{n}", f"b{n}"), "boots": boots(n)}),
    "seal": lambda store, n: store.seal(least=1),
    "tail": lambda store, n: store.append({"logs": logs(f"t{n}")}, [entry("f", replaces_tail=True, tail_line=1)]),
    "remove": lambda store, n: remove(store, f"b{n - 1}"),
    "rename": lambda store, n: rename(store, f"a{n - 1}"),
    "drop": lambda store, n: store.drop_before((T0 + timedelta(days=-1)).date()),
}  # fmt: skip


@settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(sorted(_STEPS)), min_size=1, max_size=12), st.data())
@pytest.mark.parametrize("engine", each(ENGINES))
def test_whatever_happens_new_rows_are_found(
    engine: str, tmp_path: Path, steps: list[str], data: st.DataObject
) -> None:
    """Readers from every moment on: the numbers add up to the existing rows, and no added row is missed.

    If none was removed or moved, exactly the added ones are found.
    """
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder, ENGINES[engine](Path(folder)) as store:
        marks: list[tuple[Mark, int, set[str]]] = []
        for number, step in enumerate(steps):
            rows = {row["raw"] for row in store.ask(sa.select(LOGS.c.raw))}
            marks.append((here(store), len(rows), rows))
            _STEPS[step](store, number)
        rows = {row["raw"] for row in store.ask(sa.select(LOGS.c.raw))}
        at = data.draw(st.integers(0, len(marks) - 1))
        for mark, count, before in (marks[at], marks[-1]):
            found = store.changes(TABLES, mark)
            change = found.tables["logs"]
            assert found.rows["logs"] == len(rows) == count + change.added - change.removed
            fresh = set(new(store, mark))
            assert rows - before <= fresh
            if not change.removed and not change.moved:
                assert fresh == rows - before


def test_a_mark_holds_after_reopening(kept: Door, tmp_path: Path) -> None:
    mark = here(kept)
    kept.append({"logs": logs("a")})
    later = here(kept)
    rename(kept, "a")
    kept.close()
    with ENGINES[KEEPING[0]](tmp_path) as again:
        assert again.changes(TABLES, mark).tables["logs"] == Change(added=1, amended=1)
        assert again.changes(TABLES, later).tables["logs"] == Change(amended=1)
        assert new(again, mark) == ["a"] and new(again, later) == []
        again.append({"logs": logs("b")})
        assert new(again, later) == ["b"] and here(again).batch > later.batch


def test_archived_lines_are_only_moved_and_dropped_ones_are_gone(kept: Door) -> None:
    many = pl.concat([logs("old")] * 25_000)  # an engine may leave a day with few lines unchanged
    kept.append({"logs": pl.concat([many, logs("new", at=T0 + timedelta(days=9))])})
    mark = here(kept)
    assert kept.close_days(date(2026, 1, 10), hot_days=2).lines == many.height
    found = kept.changes(TABLES, mark)
    assert (found.tables["logs"], found.rows["logs"]) == (Change(moved=many.height), many.height + 1)
    assert kept.drop_before(date(2026, 1, 5)).lines == many.height
    found = kept.changes(TABLES, found.until)
    assert (found.tables["logs"], found.rows["logs"]) == (Change(removed=many.height), 1)


def test_a_copy_that_was_put_back_is_another_instance(kept: Door, tmp_path: Path) -> None:
    kept.append({"logs": logs("a")})
    mark = here(kept)
    kept.backup(tmp_path / "copy")
    kept.append({"logs": logs("b")})
    restore(tmp_path / "copy", tmp_path / "back")
    with open_store(tmp_path / "back") as back:
        assert back.changes(TABLES, mark).too_old
        assert here(back).instance != mark.instance
        back.append({"logs": logs("c")})
    assert new(kept, mark) == ["b"]


def test_rows_of_an_alias_are_distinguished_by_the_same_mark(door: Door) -> None:
    door.append({"boots": boots(1)})
    mark = here(door)
    door.append({"boots": boots(2)})
    changes = door.changes(TABLES, mark)
    own, known = door.stored_since(BOOTS, changes), ~door.stored_since(KNOWN_BOOTS, changes)
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
        found = door.ask(boots_again("mini", ("scontrol_node",), source))
        assert [row["host"] for row in found] == ["gpu01"]


def test_amended_rows_get_other_values_and_those_who_follow_are_told(door: Door) -> None:
    door.append({"logs": logs("a", "b")})
    mark = here(door)
    (row,) = door.ask(sa.select(row_place(LOGS).label(PLACE)).where(LOGS.c.raw == "b"))
    with door.write() as writer:
        data = pl.DataFrame({PLACE: [row[PLACE]], "host": ["gpu09"], "time_quality": ["inferred"]})
        writer.amend_by(LOGS, (PLACE,), data)
    hosts = door.ask(sa.select(LOGS.c.raw, LOGS.c.host, LOGS.c.time_quality).order_by(LOGS.c.raw))
    assert [tuple(r.values()) for r in hosts] == [("a", "gpu02", None), ("b", "gpu09", "inferred")]
    assert door.changes(TABLES, mark).tables["logs"] == Change(amended=1)


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
