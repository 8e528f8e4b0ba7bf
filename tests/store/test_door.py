"""What every engine does behind the door (``store.door``). A second engine is one more entry of ``ENGINES`` and runs this as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa

from parsers.record import frame
from store import open_store, restore
from store.door import Door, FileEntry, Writer
from store.errors import EngineError, NoSuchTable, StoreError
from store.functions import has, json_count, json_text, json_texts, one_of, same
from store.questions import lines
from store.tables import (
    ALIASES,
    BOOTS,
    FACTS,
    FILES,
    INCIDENTS,
    LINES,
    LOGS,
    MODEL_NODE_STATES,
    RUNS,
    SOURCES,
    STATES,
    VERSIONS,
)

T0 = datetime(2026, 1, 1)
ENGINES: dict[str, Callable[[Path], Door]] = {
    "duckdb-file": lambda folder: open_store(folder / "store"),
    "duckdb-memory": lambda folder: open_store(None),
}
#: Engines that keep what they hold, as functions that open it again.
KEEPING = ("duckdb-file",)


@pytest.fixture(params=ENGINES)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    store = ENGINES[request.param](tmp_path)
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


def test_a_step_is_stored_whole_with_what_goes_along(door: Door) -> None:
    def position(writer: Writer) -> None:
        writer.insert(FACTS, pl.DataFrame({"name": ["position"], "value": ["17"]}))

    door.append({"logs": logs("a", "b")}, [entry("f")], also=position)
    assert texts(door) == ["a", "b"]
    assert door.fact("position") == "17"
    assert [row["path"] for row in door.ask(sa.select(FILES.c.path))] == ["f"]


def test_a_step_of_which_a_part_fails_stores_nothing(door: Door) -> None:
    def failing(writer: Writer) -> None:
        raise ValueError("a fault of ours")

    with pytest.raises(ValueError, match="a fault of ours"):
        door.append({"logs": logs("a")}, [entry("f")], also=failing)
    with pytest.raises(EngineError):
        door.append({"logs": logs("a")}, [entry("f"), entry("g", consumed="not a number")])
    assert texts(door) == []
    assert door.ask(sa.select(FILES)) == []


def test_an_unfinished_last_line_is_replaced_when_it_has_grown(door: Door) -> None:
    door.append({"logs": logs("whole", "half")}, [entry("f", tail="half")])
    more = logs("whole", "half and half")[1:]
    door.append({"logs": more}, [entry("f", replaces_tail=True, tail_line=2)])
    assert texts(door) == ["whole", "half and half"]
    assert len(door.ask(sa.select(FILES))) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_a_line_reads_as_it_came_wherever_it_lies(door: Door, sealed: bool) -> None:
    odd = ("plain", "tab\there", "quote ' and \" and %s and $1", "naïve ✓", "")
    door.append({"logs": logs(*odd)})
    if sealed:
        door.seal(least=1)
    assert texts(door) == list(odd)


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
def test_rows_are_replaced_by_their_keys(door: Door, rows: int) -> None:
    names = [f"n{i}" for i in range(rows)]
    for value in ("first", "second"):
        with door.write() as writer:
            writer.replace(FACTS, ("name",), pl.DataFrame({"name": names, "value": [value] * rows}))
    found = door.ask(sa.select(FACTS).where(FACTS.c.name.in_(names)).order_by(FACTS.c.name))
    assert found == [{"name": name, "value": "second"} for name in names]


def test_a_fact_is_set_over_itself(door: Door) -> None:
    assert door.fact("lemons") is None
    for value in ("[]", '["gpu07"]'):
        door.set_fact("lemons", value)
    assert door.fact("lemons") == '["gpu07"]'


# -- asking --------------------------------------------------------------------------------------------------------------


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


# -- following what is new -----------------------------------------------------------------------------------------------


def test_new_rows_are_found_behind_a_mark(door: Door) -> None:
    door.append({"logs": logs("a")})
    mark = door.mark(["logs"])
    assert door.ask(sa.select(LOGS.c.raw).where(door.stored_since(LOGS, mark))) == []
    door.append({"logs": logs("b")})
    assert [r["raw"] for r in door.ask(sa.select(LOGS.c.raw).where(door.stored_since(LOGS, mark)))] == ["b"]
    assert door.mark(["logs"]).batch > mark.batch


# -- looking after it ----------------------------------------------------------------------------------------------------


def test_what_was_stored_is_there_after_reopening(kept: Door, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kept.append({"logs": logs("a")})
    kept.close()
    again = ENGINES[KEEPING[0]](tmp_path)
    try:
        again.migrate()  # changes nothing that is there
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


def test_a_copy_that_is_not_what_was_written_is_told_and_not_restored(kept: Door, tmp_path: Path) -> None:
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


def test_the_door_is_whole(door: Door) -> None:
    assert isinstance(door, Door)
    assert door.ask(sa.select(VERSIONS)) == []
