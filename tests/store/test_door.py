"""What every engine does behind the protocol (``store.door``). A second engine is one more entry of ``ENGINES``.

The suite that it must pass is ``test_door*.py``: this file, ``test_door_following`` (new rows, amended lines),
``test_door_kql`` and ``test_door_functions``. The last one calls every name of ``store.functions.NOT_STANDARD``, all of
which an engine with SQL must translate. ``test_engines`` is the suite of ``store.engine``. All other files of this folder
test DuckDB's store, and a second engine brings its own.

Tests of ``plain`` query whole tables only: they hold for an engine without SQL as well (``tests.store.memory_engine``).
Tests of ``door`` ask questions with functions and joins, of ``kept`` need files; today both run on DuckDB only.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa

from parsers.record import frame
from store import open_store, restore
from store.door import Added, Door, FileEntry, Writer
from store.errors import EngineError, NoSuchTable, StoreError
from store.functions import (
    fixed_subquery,
    has,
    json_count,
    json_text,
    json_texts,
    kept_until_commit,
    one_of,
    same,
)
from store.questions import intake, lines
from store.tables import (
    ALIASES,
    BOOTS,
    FACTS,
    FILES,
    INCIDENTS,
    LINES,
    LOGS,
    MODEL_NODE_STATES,
    RECENT_LINES,
    RUNS,
    SOURCES,
    STATES,
    STREAMS,
    VERSIONS,
)
from tests.store.memory_engine import MemoryStore
from tests.syntax_trees import nodes_of

T0 = datetime(2026, 1, 1)
ENGINES: dict[str, Callable[[Path], Door]] = {
    "duckdb-file": lambda folder: open_store(folder / "store"),
    "duckdb-memory": lambda folder: open_store(None),
}
#: The same, and one without SQL.
PLAIN: dict[str, Callable[[Path], Any]] = {**ENGINES, "plain-memory": lambda _: MemoryStore()}


def each(engines: Iterable[str]) -> list[Any]:
    """Parameters for engines. The service's store is a file; one in memory is what most other tests use."""
    return [pytest.param(name, marks=pytest.mark.long if name == "duckdb-memory" else ()) for name in engines]


#: Persistent engines, as functions that open them again.
KEEPING = ("duckdb-file",)


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


def logs(*raws: str, host: str = "gpu02", file: str = "f", at: datetime = T0) -> pl.DataFrame:
    return frame("logs", [{"raw": raw, "message": raw, "host": host, "file": file, "line": n, "time": at + timedelta(seconds=n),
                           "source": "syslog", "event": "other", "cluster": "mini"} for n, raw in enumerate(raws, 1)])  # fmt: skip


def entry(path: str, **changes: object) -> FileEntry:
    return FileEntry(**{"path": path, "cluster": "mini", "host": None, "kind": "lines", "source": None, "reason": "by name",
                        "consumed": 1, "digest": "ab", "lines": 1, "events": 0, "unparsed": 0, "warnings": (), **changes})  # type: ignore[arg-type]  # fmt: skip


def texts(store: Door) -> list[str]:
    return [row["raw"] for row in store.ask(sa.select(LINES.c.raw).order_by(LINES.c.line))]


# -- writing -------------------------------------------------------------------------------------------------------------


def test_a_step_is_stored_whole_with_what_goes_along(plain: Door) -> None:
    def position(writer: Writer) -> None:
        writer.insert(FACTS, pl.DataFrame({"name": ["position"], "value": ["17"]}))

    plain.append({"logs": logs("a", "b")}, [entry("f")], also=position)
    assert texts(plain) == ["a", "b"]
    assert plain.fact("position") == "17"
    assert [row["path"] for row in plain.ask(sa.select(FILES.c.path))] == ["f"]


def test_a_step_of_which_a_part_fails_stores_nothing(plain: Door) -> None:
    def failing(writer: Writer) -> None:
        raise ValueError("a fault of ours")

    with pytest.raises(ValueError, match="a fault of ours"):
        plain.append({"logs": logs("a")}, [entry("f")], also=failing)
    with pytest.raises(EngineError):
        plain.append({"logs": logs("a")}, [entry("f"), entry("g", consumed="not a number")])
    assert texts(plain) == []
    assert plain.ask(sa.select(FILES)) == []


def test_an_unfinished_last_line_is_replaced_when_it_has_grown(plain: Door) -> None:
    plain.append({"logs": logs("whole", "half")}, [entry("f", tail="half")])
    more = logs("whole", "half and half")[1:]
    plain.append({"logs": more}, [entry("f", replaces_tail=True, tail_line=2)])
    assert texts(plain) == ["whole", "half and half"]
    assert len(plain.ask(sa.select(FILES))) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_a_line_reads_as_it_came_wherever_it_lies(plain: Door, sealed: bool) -> None:
    odd = ("plain", "tab\there", "quote ' and \" and %s and $1", "naïve ✓", "")
    plain.append({"logs": logs(*odd)})
    if sealed:
        plain.seal(least=1)
    assert texts(plain) == list(odd)


def test_changes_of_one_writer_are_seen_in_it_and_stored_together(door: Door) -> None:
    with door.write() as writer:
        writer.insert(ALIASES, pl.DataFrame({"alias": ["old", "older"], "incident_id": ["new", "old"]}))
        assert writer.change(sa.update(ALIASES).where(ALIASES.c.incident_id == "old").values(incident_id="new")) == 1
        assert writer.ask(sa.select(sa.func.count().label("n")).where(ALIASES.c.incident_id == "new")) == [{"n": 2}]
        assert writer.change(sa.delete(ALIASES).where(ALIASES.c.alias == "older")) == 1
    assert door.ask(sa.select(ALIASES.c.alias, ALIASES.c.since)) == [{"alias": "old", "since": None}]
    with pytest.raises(KeyError), door.write() as writer:
        writer.change(sa.delete(ALIASES))
        raise KeyError
    assert len(door.ask(sa.select(ALIASES))) == 1


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_are_replaced_by_their_keys(plain: Door, rows: int) -> None:
    names = [f"n{i}" for i in range(rows)]
    for value in ("first", "second"):
        with plain.write() as writer:
            writer.replace(FACTS, ("name",), pl.DataFrame({"name": names, "value": [value] * rows}))
    found = [row for row in plain.ask(sa.select(FACTS).order_by(FACTS.c.name)) if row["name"] in names]
    assert found == [{"name": name, "value": "second"} for name in names]


def test_a_fact_is_set_over_itself(plain: Door) -> None:
    assert plain.fact("lemons") is None
    for value in ("[]", '["gpu07"]'):
        plain.set_fact("lemons", value)
    assert plain.fact("lemons") == '["gpu07"]'


def test_positions_of_streams_are_stored_with_their_step(plain: Door) -> None:
    plain.open_intake()
    for ranges in ("1-41", "1-41,43-50"):
        row = {"agent": "gpu01", "stream": "syslog", "epoch": "e", "ranges": ranges, "received": T0}
        plain.append({"logs": logs(ranges)}, also=lambda writer, row=row: writer.replace(STREAMS, ("agent", "stream", "epoch"), pl.DataFrame([row])))  # fmt: skip
    assert plain.ask(intake.streams()) == [{"agent": "gpu01", "stream": "syslog", "epoch": "e", "ranges": "1-41,43-50"}]
    assert len(texts(plain)) == 2


class Heard:
    """A listener that records what it is given."""

    def __init__(self, store: Door) -> None:
        self.store, self.rows, self.digested = store, [], 0
        store.listeners.add(self)

    def on_added(self, added: Added) -> None:
        self.rows += [(name, data["raw"].to_list()) for name, data in added]
        assert self.store.is_notifying

    def digest(self) -> None:
        self.digested += 1


def test_listeners_are_given_what_was_stored_and_nothing_else(plain: Door) -> None:
    received = Heard(plain)
    plain.append({"logs": logs("a", "b")})
    with pytest.raises(KeyError):
        plain.append({"logs": logs("c")}, also=failing)
    plain.set_fact("lemons", "[]")
    assert (received.rows, received.digested, plain.is_notifying) == ([("logs", ["a", "b"])], 1, False)
    del received
    gc.collect()
    assert not plain.listeners  # no reference is left


def failing(_: Writer) -> None:
    raise KeyError


# -- queries -------------------------------------------------------------------------------------------------------------


def test_what_is_bound_is_never_read_as_sql(door: Door) -> None:
    door.append({"logs": logs("a", host="x' OR 1=1 --")})
    assert len(door.ask(lines.found(hosts=["x' OR 1=1 --"], limit=9))) == 1
    assert door.ask(lines.found(hosts=["' OR 1=1 --"], limit=9)) == []
    assert door.ask(lines.found(search="') OR 1=1 --", limit=9)) == []


def test_a_question_of_one_shape_is_answered_for_each_of_its_values(door: Door) -> None:
    door.append({"logs": pl.concat([logs("a", "b", "c"), logs("d", file="g")])})
    assert [[r["raw"] for r in door.ask(lines.between(*of))] for of in (("f", 1, 2), ("f", 3, 9), ("g", 1, 1), ("h", 1, 1))] == [
        ["a", "b"], ["c"], ["d"], []]  # fmt: skip
    for hosts in (["gpu02"], ["gpu02", "gpu03"], []):
        asked = sa.select(sa.func.count().label("n")).where(LINES.c.host.in_(hosts))
        assert door.ask(asked) == [{"n": 4 if hosts else 0}]


def test_lists_documents_and_nulls_can_be_asked_about(door: Door) -> None:
    document = '{"jobs": [{"job_id": "15"}, {"job_id": "16"}], "title": "a link"}'
    with door.write() as writer:
        writer.insert(RUNS, pl.DataFrame({"run_key": ["15"], "nodes": [["gpu01", "gpu02"]]}))
        writer.insert(INCIDENTS, pl.DataFrame({"incident_id": ["i"], "document": [document], "severity": ["impact"]}))
    assert [r["nodes"] for r in door.ask(sa.select(RUNS.c.nodes).where(has(RUNS.c.nodes, "gpu02")))] == [
        ["gpu01", "gpu02"]
    ]
    of = INCIDENTS.c.document
    asked = sa.select(json_text(of, "$.title").label("title"), json_count(of, "$.jobs").label("jobs"), json_text(of, "$.no").label("no"),
                      json_texts(of, "$.jobs[*].job_id").label("ids"))  # fmt: skip
    asked = asked.where(same(INCIDENTS.c.cluster, None), one_of(INCIDENTS.c.severity, ["impact", "benign"]))
    assert door.ask(asked) == [{"title": "a link", "jobs": 2, "no": None, "ids": ["15", "16"]}]


def test_a_frame_has_the_types_of_the_record(door: Door) -> None:
    door.append({"boots": frame("boots", [{"host": "gpu01", "boot_time": T0, "error_us": 5}])})
    found = door.ask_frame(sa.select(BOOTS.c.host, BOOTS.c.boot_time, BOOTS.c.error_us))
    assert found.rows() == [("gpu01", T0, 5)]
    assert [found.schema[name] for name in ("host", "boot_time", "error_us")] == [
        pl.String,
        pl.Datetime("us"),
        pl.Int64,
    ]


def test_states_of_nodes_are_derived_from_records_and_lines(door: Door) -> None:
    with door.write() as writer:
        writer.insert(MODEL_NODE_STATES, pl.DataFrame({"time": [T0], "host": ["gpu01"], "state": ["idle"]}))
    states = sa.select(STATES.c.host, STATES.c.state).where(STATES.c.host == "gpu01").order_by(STATES.c.time)
    assert door.ask(states) == [{"host": "gpu01", "state": "idle"}]


def test_a_table_that_is_not_there_is_named(door: Door) -> None:
    with pytest.raises(NoSuchTable, match="sources"):  # nothing was ever received here
        door.ask(sa.select(SOURCES))


def test_a_question_can_be_explained(door: Door) -> None:
    assert door.explain(lines.between("f", 1, 2))


RUN_COUNT = kept_until_commit(sa.select(sa.func.count().label("n")).select_from(RUNS))


def test_an_answer_that_may_be_kept_is_that_of_the_last_commit(door: Door) -> None:
    def found(one: Any) -> int:
        return int(one.ask(RUN_COUNT)[0]["n"])

    hers = door.seen_by("alice")
    assert [found(door), found(door), found(hers)] == [0, 0, 0]
    for number in (1, 2):
        with door.write() as writer:
            writer.insert(RUNS, pl.DataFrame({"run_key": [str(number)], "user": [f"user{number}"]}))
            assert [found(writer), found(door)] == [number, number - 1]
        assert [found(door), found(door), found(hers)] == [number, number, 0]
    with pytest.raises(ValueError, match="a fault of ours"), door.write() as writer:
        writer.insert(RUNS, pl.DataFrame({"run_key": ["3"]}))
        assert found(writer) == 3
        raise ValueError("a fault of ours")
    assert found(door) == 2


def test_an_answer_that_is_kept_is_nobodys_to_change(door: Door) -> None:
    door.ask(RUN_COUNT)[0]["n"] = -1
    again = door.ask(RUN_COUNT)
    again[0] |= {"more": 1}
    assert door.ask(RUN_COUNT) == [{"n": 0}]


def test_an_answer_is_kept_only_where_the_question_says_so(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    cursor = type(door).cursor

    def counting(store: Any) -> Any:
        asked.append(store)
        return cursor(store)

    monkeypatch.setattr(type(door), "cursor", counting)
    for _ in range(3):
        door.ask(RUN_COUNT)
    assert len(asked) == 1
    for _ in range(3):
        door.ask(sa.select(RUNS.c.run_key))
    assert len(asked) == 4


def test_subqueries_made_once_are_not_taken_for_each_other(door: Door) -> None:
    with door.write() as writer:
        writer.insert(RUNS, pl.DataFrame({"run_key": ["1"], "name": ["train"]}))
    same_name = [
        fixed_subquery(sa.select(column.label("found")), "runs_by_name") for column in (RUNS.c.run_key, RUNS.c.name)
    ]
    asked = [[door.ask(sa.select(of.c.found).where(of.c.found != other)) for of in same_name] for other in ("", "1")]
    assert asked == [[[{"found": "1"}], [{"found": "train"}]], [[], [{"found": "train"}]]]


def test_a_subquery_made_once_binds_no_value() -> None:
    with pytest.raises(ValueError, match="mine: values are bound"):
        fixed_subquery(sa.select(RUNS.c.run_key).where(RUNS.c.user == "alice"), "mine")


# -- looking after it ----------------------------------------------------------------------------------------------------


def test_what_was_stored_is_there_after_reopening(kept: Door, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kept.append({"logs": logs("a")})
    kept.close()
    again = ENGINES[KEEPING[0]](tmp_path)
    try:
        again.migrate()  # changes nothing that exists
        assert texts(again) == ["a"]
        assert again.health().well
    finally:
        again.close()


def test_old_days_are_archived_and_dropped_and_the_rest_stays(kept: Door) -> None:
    kept.append({"logs": pl.concat([logs("old"), logs("new", at=T0 + timedelta(days=9))])})
    kept.close_days(date(2026, 1, 10), hot_days=2)
    assert sorted(texts(kept)) == ["new", "old"]
    kept.drop_before(date(2026, 1, 5))
    assert texts(kept) == ["new"]


def test_settled_lines_of_a_day_that_goes_on_are_still_all_there(kept: Door, tmp_path: Path) -> None:
    old = logs(*(f"old {n}" for n in range(20)), host="other").with_columns(received_time="time")
    kept.append({"logs": pl.concat([old, logs("new", at=T0 + timedelta(hours=2))])})
    kept.close_settled(T0 + timedelta(hours=1), least=1, hot_days=2)
    with kept.write() as writer:
        assert writer.name_hosts(LOGS, [("mini", "other", "n1")]) == 20
    assert len(texts(kept)) == 21
    named = kept.ask(sa.select(LINES.c.host).where(LINES.c.raw != "new").distinct())
    assert [row["host"] for row in named] == ["n1"]
    assert len(kept.ask(sa.select(RECENT_LINES.c.raw))) == 21
    copy = kept.backup(tmp_path / "settled")
    assert kept.verify(copy) == []
    kept.close_days(T0.date() + timedelta(days=9), hot_days=2)
    assert len(texts(kept)) == 21


def test_a_copy_is_whole_and_comes_back(kept: Door, tmp_path: Path) -> None:
    kept.append({"logs": logs("a", "b")}, [entry("f")])
    kept.set_fact("lemons", "[]")
    copy = kept.backup(tmp_path / "copy")
    kept.append({"logs": logs("later")})
    assert kept.verify(copy) == []
    assert copy.tables["raw.logs"][0] == 2
    restore(tmp_path / "copy", tmp_path / "back")
    with open_store(tmp_path / "back") as back:
        assert texts(back) == ["a", "b"]
        assert back.fact("lemons") == "[]"


def test_a_copy_that_is_not_what_was_written_is_reported_and_not_restored(kept: Door, tmp_path: Path) -> None:
    kept.append({"logs": logs("a")})
    copy = kept.backup(tmp_path / "copy")
    with open_store(tmp_path / "copy") as other:
        other.set_fact("lemons", "[]")
    assert any("model.facts" in text for text in kept.verify(copy))
    with pytest.raises(StoreError, match="not what was written"):
        restore(tmp_path / "copy", tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "what", ["copy into a folder that is used", "restore into a folder that is used", "restore what is no copy"]
)
def test_copies_never_write_over_anything(kept: Door, tmp_path: Path, what: str) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "file").write_text("mine")
    with pytest.raises(StoreError):
        if what.startswith("copy"):
            kept.backup(used)
        elif what.endswith("used"):
            kept.backup(tmp_path / "copy")
            restore(tmp_path / "copy", used)
        else:
            restore(used, tmp_path / "back")
    assert [path.name for path in used.iterdir()] == ["file"]


def test_who_holds_the_lease_writes_and_others_wait(door: Door) -> None:
    with door.lease():
        door.set_fact("mine", "1")
    assert door.fact("mine") == "1"


@pytest.mark.parametrize(("engine", "where"), [("duckdb-file", "store"), ("duckdb-memory", None)])
def test_a_store_says_where_it_lies_and_what_it_holds(engine: str, where: str | None, tmp_path: Path) -> None:
    with ENGINES[engine](tmp_path) as door:
        door.append({"logs": logs("a", "b")})
        assert (door.folder, door.read_only) == (where and tmp_path / where, False)
        info = door.info()
        assert (info["lines"], info["first"], info["last"]) == (2, T0 + timedelta(seconds=1), T0 + timedelta(seconds=2))
        assert door.health().info == info and list(door.lost) == []


def test_a_store_is_read_beside_nobody_and_not_written_to(kept: Door, tmp_path: Path) -> None:
    kept.append({"logs": logs("a")})
    kept.close()
    with open_store(tmp_path / "store", read_only=True) as reading:
        assert reading.read_only and texts(reading) == ["a"]
        with pytest.raises(EngineError):
            reading.append({"logs": logs("b")})
        assert texts(reading) == ["a"]


def test_a_person_sees_their_part_only_and_nothing_of_the_site(door: Door) -> None:
    run = {"cluster": "mini", "start": T0, "end": T0 + timedelta(hours=1)}
    with door.write() as writer:
        writer.insert(RUNS, pl.DataFrame([{"run_key": "1", "job_id": 1, "user": "alice", **run}, {"run_key": "2", "job_id": 2, "user": "bob", **run}]))  # fmt: skip
    question = sa.select(RUNS.c.run_key).order_by(RUNS.c.run_key)
    hers = door.seen_by("alice")
    assert hers.ask(question) == [{"run_key": "1"}] and hers.ask_frame(question).rows() == [("1",)]
    assert hers.seen_by("bob").ask(question) == [{"run_key": "2"}]
    assert [row["run_key"] for row in door.ask(question)] == ["1", "2"]
    assert dict(hers.info()) == {}
    with pytest.raises(NoSuchTable):
        hers.ask(sa.select(FACTS))


def test_a_store_that_is_well_stays_as_it_is_when_it_is_opened_anew(door: Door) -> None:
    door.append({"logs": logs("a")})
    mark = door.changes(("logs",)).until
    door.reopen_if_broken()
    door.migrate()
    assert texts(door) == ["a"] and door.changes(("logs",), mark).nothing


def test_what_is_in_the_log_is_there_when_the_log_was_written_into_the_store(door: Door) -> None:
    door.append({"logs": logs("a")})
    door.release_memory()
    door.checkpoint(1 << 40)  # its log is shorter
    door.checkpoint()
    assert door.shrink(share=0.0) == 0  # there is too little of it
    assert texts(door) == ["a"]
    door.append({"logs": logs("b", file="g")})
    assert texts(door) == ["a", "b"]


def test_a_writer_for_whom_somebody_waits_writes_as_ever(door: Door) -> None:
    with pytest.raises(KeyError), door.others_tidy():
        door.append({"logs": logs("a")})
        raise KeyError
    door.append({"logs": logs("b", file="g")})
    assert texts(door) == ["a", "b"]


def test_the_door_is_whole(door: Door) -> None:
    assert isinstance(door, Door)
    assert door.ask(sa.select(VERSIONS)) == []


def test_every_part_of_the_door_is_tested_through_it() -> None:
    """Each name of the protocol is used by a test of this suite, on an object with the name of its fixtures."""
    suite = list(Path(__file__).parent.glob("test_door*.py"))
    used = {
        node.attr
        for path in suite
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        and node.value.id in ("door", "kept", "plain", "store", "writer", "reading", "hers", "again", "back")
    }  # fmt: skip
    wanted = {name for part in (Door, Writer) for name in dir(part) if not name.startswith("_")}
    assert wanted <= used, f"no test of the suite uses {sorted(wanted - used)}"
