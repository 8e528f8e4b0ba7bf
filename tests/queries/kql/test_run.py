"""Running, beyond compiling: answers as JSON, texts compiled once, statements stopped in time."""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from queries.kql import CannotExpress, KqlRuntimeError, Query, QueryTimeout, run, validate
from queries.kql.budget import Budget
from queries.kql.cells import cells, document, dumps
from queries.kql.deadline import AGAIN_S, Deadline
from store import open_store
from store.door import Door

engine = importlib.import_module("queries.kql.run")
question = importlib.import_module("queries.kql.query")


@pytest.fixture(scope="module")
def store() -> Iterator[Door]:
    with open_store(None) as made:
        yield made


CELLS: list[tuple[str, Any, list[Any]]] = [
    ("datetime", pa.array([datetime(2026, 3, 1, 2, 3, 4, 5), None, datetime(1, 1, 1)], pa.timestamp("us")),
     ["2026-03-01T02:03:04.000005Z", None, "0001-01-01T00:00:00.000000Z"]),
    ("timespan", pa.array([-15_000_000, None, 864_000_000_001], pa.int64()), ["-00:00:01.5000000", None, "1.00:00:00.0000001"]),
    ("real", pa.array([0.1, None, float("nan"), float("-inf")]), [0.1, None, "NaN", "-Infinity"]),
    ("string", pa.array(["ü\n", None, ""]), ["ü\n", "", ""]),
    ("bool", pa.array([True, None]), [True, None]),
    ("long", pa.array([2**63 - 1, None, -(2**63)]), [2**63 - 1, None, -(2**63)]),
    ("decimal", pa.array(["0.100000000000", None]).cast(pa.decimal128(38, 12)), ["0.1", None]),
    ("dynamic", pa.array(['{"a": [1, {}]}', None, '"x"', "123456789012345678901", '[NaN, {"b": -Infinity}, "NaN"]']),
     [{"a": [1, {}]}, None, "x", 123456789012345678901, ["NaN", {"b": "-Infinity"}, "NaN"]]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "column", "expected"), CELLS, ids=[c[0] for c in CELLS])
def test_cells_are_json_of_their_type(kind: str, column: Any, expected: list[Any]) -> None:
    table = pa.table({"c": column})
    made = document([("c", kind)], table)
    answer = json.loads(dumps(made.body), parse_constant=lambda word: pytest.fail(word))
    assert made.is_whole
    assert answer == {"columns": [{"name": "c", "type": kind}], "rows": [[v] for v in expected]}
    assert kind == "dynamic" or cells(table.column(0), kind) == expected


@pytest.mark.parametrize("most", [0, 1, 7, 50, 388_893, 10_000_000])
def test_text_of_an_answer_ends_at_its_bytes(most: int) -> None:
    """Pieces of rows put together equal the text of all rows, as far as they fit."""
    table = pa.table({"n": list(range(300_000))})
    made = document([("n", "long")], table, most)
    rows = json.loads(dumps(made.body))["rows"]
    assert rows == [[n] for n in range(len(rows))]
    assert made.is_whole == (len(rows) == 300_000)
    assert made.is_whole or most - len(b"[299999],") <= sum(len(f"[{n}],") for n in range(len(rows))) <= most + 1


def test_text_of_an_answer_is_given_up_at_its_deadline() -> None:
    with pytest.raises(QueryTimeout):
        document([("n", "long")], pa.table({"n": [1]}), deadline=time.monotonic())


def test_the_text_of_an_answer_is_its_rows(store: Door) -> None:
    answer = store.run_kql(Query('print a = dynamic({"b":[1,null,"c"]}), t = 5m, n = long(null), s = "", r = 1.0 / 0'))
    assert (
        json.loads(answer.to_json())["rows"]
        == answer.rows
        == [[{"b": [1, None, "c"]}, "00:05:00", None, "", "Infinity"]]
    )
    assert json.loads(store.run_kql(Query("Logs | where Line < 0 | project Line")).to_json())["rows"] == []


KEPT = [
    ("print x = 1 + 2", None, True),
    ("Logs | summarize count() by Host, bin(Time, 1m)", None, True),
    ("declare query_parameters(h:string); Logs | where Host == h", {"h": "n1"}, True),
    ("print now()", None, True),
    ("Logs | where Time > ago(1h)", None, True),
    ('Logs | where Message has "rare"', None, True),  # while the segments are the same
    ('print d = dynamic({"a":1}) | evaluate bag_unpack(d)', None, False),  # the column names come from the data
    ("declare query_parameters(t:datetime); print t", {"t": datetime(2026, 1, 1)}, False),
]


@pytest.mark.parametrize(("query", "parameters", "kept"), KEPT, ids=[k[0][:40] for k in KEPT])
def test_a_text_is_compiled_once_if_nothing_else_matters(
    query: str, parameters: dict[str, Any] | None, kept: bool, store: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.run_kql(Query(query, parameters=parameters))
    made: list[str] = []
    compile_script = engine.compile_script

    def counting(text: str, *args: Any, **options: Any) -> Any:
        made.append(text)
        return compile_script(text, *args, **options)

    monkeypatch.setattr(engine, "compile_script", counting)
    store.run_kql(Query(query, parameters=parameters))
    assert made == ([] if kept else [query])


def test_parameters_are_part_of_the_text(store: Door) -> None:
    query = "declare query_parameters(x:dynamic = dynamic(null)); print x"
    answers = [store.run_kql(Query(query, parameters={"x": v})).to_json() for v in (1, True, "a", [1], 1)]
    assert [json.dumps(json.loads(a)["rows"]) for a in answers] == ["[[1]]", "[[true]]", '[["a"]]', "[[[1]]]", "[[1]]"]


def test_each_run_has_its_own_now(store: Door) -> None:
    moments = [store.run_kql(Query("print now()", now=datetime(2026, 1, day))).rows[0][0] for day in (1, 2)]
    assert moments == ["2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"]


def test_a_statement_is_stopped_and_the_next_one_is_not() -> None:
    con = duckdb.connect()
    with pytest.raises(QueryTimeout):
        run(con, "range x from 1 to 100000000 step 1 | extend y = x % 7 | summarize count() by x * y", timeout_s=0.05)
    for _ in range(3):
        assert run(con, "print 1", timeout_s=120).rows == [[1]]


def test_deadlines_fire_in_their_order_and_only_while_they_stand() -> None:
    class Connection:
        def __init__(self) -> None:
            self.interrupted = threading.Event()

        def interrupt(self) -> None:
            self.interrupted.set()

    late, soon, done = Connection(), Connection(), Connection()
    begun = time.monotonic()
    with Deadline(done, begun + AGAIN_S):  # type: ignore[arg-type]
        pass
    with Deadline(late, begun + 3600), Deadline(soon, begun + 2 * AGAIN_S) as second:  # type: ignore[arg-type]
        assert soon.interrupted.wait(120) and second.fired
        soon.interrupted.clear()
        assert soon.interrupted.wait(120)  # repeatedly, until it ends
    assert not done.interrupted.is_set() and not late.interrupted.is_set()


def test_columns_that_the_data_name_are_read_when_a_query_is_only_bound(store: Door) -> None:
    query = 'print d = dynamic({"a":1, "b":"x"}) | evaluate bag_unpack(d)'
    assert store.kql_columns(Query(query, timeout_s=120)) == [("a", "long"), ("b", "string")]
    with pytest.raises(CannotExpress, match="declare them"):
        validate(query)


def test_cancelling_interrupts_the_statement_that_runs_and_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements beside the store look at nothing else. The next statement of a connection may be another query's."""
    interrupted: list[str] = []
    connection = SimpleNamespace(interrupt=lambda: interrupted.append("now"))
    query = Query("print 1")

    def running(con: Any, text: str, *, stopped: threading.Event, **given: Any) -> bool:
        query.cancel()
        return stopped.is_set()

    monkeypatch.setattr(question, "run", running)
    query.cancel()
    assert interrupted == []
    assert query.run_on(connection) is True and interrupted == ["now"]
    query.cancel()
    assert interrupted == ["now"]


def test_reading_a_text_ends_when_it_is_cancelled() -> None:
    stopped = threading.Event()
    budget = Budget(stopped=stopped)
    budget.check()
    stopped.set()
    with pytest.raises(KqlRuntimeError, match="the query was cancelled"):
        budget.check()


def test_no_statement_is_planned_once_the_query_is_cancelled(store: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    query, read = Query("print 1"), engine.compile_script

    def cancelled(*args: Any, **given: Any) -> Any:
        query.cancel()
        return read(*args, **given)

    monkeypatch.setattr(engine, "compile_script", cancelled)
    with pytest.raises(KqlRuntimeError, match="the query was cancelled"):
        store.explain_kql(query)
