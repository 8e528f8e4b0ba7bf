"""Statements behind the wall whose near steps have few rows: where they run, and that answers stay the same."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import Any

import duckdb
import pytest

from queries.kql import Catalog, Column, Table, run
from queries.kql.compile import Compiled, compile_script
from queries.kql.wall import few, remote_query
from queries.kql.wall.children import Child
from queries.kql.wall.guarding import Guarded
from queries.kql.wall.judging import cheap, cheap_on_few_rows
from queries.kql.wall.memory import LEAST, anonymous

CATALOG = Catalog({"Logs": Table("Logs", (
    Column("Time", "datetime"), Column("Host", "string"), Column("Message", "string"), Column("Line", "long"),
    Column("Fields", "dynamic")), 'kql."Logs"')})  # fmt: skip
LINES = 100


@pytest.fixture(scope="module")
def store() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE SCHEMA kql")
    con.execute(
        'CREATE TABLE kql."Logs" AS SELECT TIMESTAMP \'2026-03-01\' + to_seconds(i) AS "Time", \'gpu\' || (i % 7) AS "Host", '
        f'\'step "\' || i || \'" ä\' AS "Message", i AS "Line", \'{{"a": \' || i || \'}}\' AS "Fields" FROM range({LINES}) t(i)'
    )
    return con


def _ask(store: duckdb.DuckDBPyConnection, kql: str, **how: Any) -> list[list[Any]]:
    return run(store.cursor(), kql, catalog=CATALOG, **how).rows


def _forked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The streams of statements that run in a process of their own from now on."""
    sent: list[Any] = []
    ask = Child.ask

    def noted(self: Child, question: bytes, streams: Any) -> None:
        sent.append(streams)
        ask(self, question, streams)

    monkeypatch.setattr(Child, "ask", noted)
    return sent


GATHERS = [
    "Logs | summarize make_set(Host), make_set(Line, 3), make_list(Message, 2), n = count() by bin(Time, 30s) | sort by Time asc",
    "Logs | where Message has '7' | summarize s = make_set_if(Message, Line > 20) by Host | extend t = tostring(s) | sort by Host asc",
    "Logs | summarize percentiles(Line, 10, 90), percentile(Time, 50) by Host | sort by Host asc",
    "Logs | project Fields, Host | summarize make_list(Fields) by Host | sort by Host asc",
    "Logs | where Line > 1000 | summarize make_set(Host)",
    "Logs | extend Shape = replace_regex(Message, @'[0-9]+', '#') | summarize count() by Shape",
    "let p = Logs | summarize Half = percentile(Line, 50) by Host; Logs | join kind=inner p on Host | where Line > Half | summarize count() by Host | sort by Host asc",
]


@pytest.mark.parametrize(
    "kql", [*GATHERS, "Logs | where Line % 9 == 0 | followed_by(1m, Logs | where Line % 10 == 0) | sort by Line asc"]
)
def test_the_rest_runs_beside_the_store_with_the_same_answer(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, kql: str
) -> None:
    (one,) = compile_script(kql, CATALOG)
    assert one.cut is not None and one.cut.is_far_small
    sent = _forked(monkeypatch)
    got = [_ask(store, kql, **how) for how in ({}, {"max_rows": 100, "max_bytes": 2**20, "timeout_s": 120.0})]
    assert not sent and got[0] == got[1]
    monkeypatch.setattr(few, "read", lambda con, cut: None)
    assert _ask(store, kql) == got[0] and len(sent) == 1


@pytest.mark.parametrize("bound", ["rows", "bytes"])
@pytest.mark.parametrize("is_over", [False, True])
def test_more_rows_or_bytes_are_processed_in_a_process(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, bound: str, is_over: bool
) -> None:
    rows = few.read(store.cursor(), _cut("Logs | summarize make_set(Host)"))
    assert rows is not None and rows[0].table.num_rows == LINES
    most = {"rows": ("MOST_ROWS", LINES), "bytes": ("MOST_BYTES", rows[0].table.nbytes)}[bound]
    monkeypatch.setattr(few, most[0], most[1] - is_over)
    sent = _forked(monkeypatch)
    assert _ask(store, "Logs | summarize make_set(Host)") == [[[f"gpu{n}" for n in range(7)]]]
    assert len(sent) == is_over


def _cut(kql: str) -> Any:
    (one,) = compile_script(kql, CATALOG)
    assert one.cut is not None
    return one.cut


def test_a_text_whose_rows_were_many_is_not_tried_again(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, read = _cut("Logs | summarize make_set(Host)"), []
    rows = few._rows
    monkeypatch.setattr(few, "_rows", lambda con, stream, *most: (read.append(stream), rows(con, stream, *most))[1])
    monkeypatch.setattr(few, "MOST_ROWS", LINES - 1)
    assert few.read(store.cursor(), cut) is None and few.read(store.cursor(), cut) is None
    assert len(read) == 1


@pytest.mark.parametrize("is_struck", [False, True])
def test_a_step_whose_memory_exceeds_the_limit_is_streamed(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, is_struck: bool
) -> None:
    """A chunk of long lines may; streamed, no more than a chunk is held. Any other interruption ends the query."""

    def guarded(con: duckdb.DuckDBPyConnection, share: int) -> Guarded:
        made = Guarded(con, share)
        made.struck = is_struck
        return made

    def interrupted(con: duckdb.DuckDBPyConnection, stream: Any, *most: int) -> None:
        raise duckdb.InterruptException("interrupted")

    cut = _cut("Logs | summarize make_set(Host)")
    monkeypatch.setattr(few, "_rows", interrupted)
    monkeypatch.setattr(few, "Guarded", guarded)
    with nullcontext() if is_struck else pytest.raises(duckdb.InterruptException):
        assert few.read(store.cursor(), cut) is None
    assert cut.many.is_set() is is_struck


def test_rows_that_were_read_are_sent_to_the_process(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The near step is not planned again; JSON stays JSON."""
    kql = "Logs | where Line < 2 | project Line, Fields, Message | extend a = strrep(Message, 2), b = Fields.a | sort by Line asc"
    monkeypatch.setattr(few, "read", lambda con, cut: None)
    streamed = _ask(store, kql)
    monkeypatch.undo()
    sent, asked = _forked(monkeypatch), []
    monkeypatch.setattr(remote_query.Asked, "_begin", _noted(remote_query.Asked._begin, asked))
    assert _ask(store, kql) == streamed and len(sent) == 1
    assert asked[0]._near == () and asked[0]._rows[0].types[1] == ("Fields", "JSON")


def test_a_statement_that_reads_itself_reads_rows_that_were_sent(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kql = (
        "Logs | where Line < 3 | sort by Line asc | scan declare (n:long = 0) with (step s: true => n = s.n + Line;) "
        "| project n, Fields"
    )
    with monkeypatch.context() as patched:
        patched.setattr(few, "read", lambda con, cut: None)
        streamed = _ask(store, kql)
    assert _ask(store, kql) == streamed == [[0, {"a": 0}], [1, {"a": 1}], [3, {"a": 2}]]


def _noted(begin: Any, asked: list[Any]) -> Any:
    return lambda self, *rest: (asked.append(self), begin(self, *rest))[1]


LIST = 'to_json(list("t"."a"))'
STEPS = 'WITH "s2" AS (SELECT {} AS "a" FROM "s1" AS "t"), "s3" AS (SELECT {} AS "a" FROM "s2" AS "t") SELECT {} FROM "s3" AS "t"'


REPLACE = 'SELECT regexp_replace("t"."a", CAST($1 AS VARCHAR), CAST($2 AS VARCHAR), \'g\')'


@pytest.mark.parametrize(("sql", "parameters", "steps", "expected"), [
    (STEPS.format(LIST, LIST, '"t"."a"'), [], 2, True),
    (STEPS.format(LIST, '"t"."a"', "row_number() OVER ()"), [], 2, True),
    (STEPS.format(f"({LIST})[1 : CAST($1 AS BIGINT)]", '"t"."a"', '"t"."a"'), [], 2, True),
    (STEPS.format(LIST, LIST, LIST), [], 2, False),
    (STEPS.format(LIST, 'max("t"."a") OVER ()', '"t"."a"'), [], 2, False),
    (STEPS.format(LIST, '(SELECT max("a") FROM "s2")', '"t"."a"'), [], 2, False),
    (STEPS.format(LIST, '"t"."a"', '"t"."a"') + ' JOIN "s2" ON true', [], 2, False),
    (STEPS.format(LIST, '"t"."a"', '"t"."a"') + ' ASOF JOIN "s2" ON true', [], 2, False),
    (STEPS.format(LIST, '"t"."a"', '"t"."a"') + ' UNION ALL SELECT "a" FROM "s2"', [], 2, False),
    (STEPS.format(LIST, "repeat('a', 1000000000)", '"t"."a"'), [], 2, False),
    (STEPS.format(LIST, "unnest(\"t\".\"a\")", '"t"."a"'), [], 2, False),
    (STEPS.format(LIST, 'list_transform("t"."a", lambda x: x)', '"t"."a"'), [], 2, False),
    (STEPS.format(LIST, '["t"."a"]', '"t"."a"'), [], 2, False),
    (STEPS.format(LIST, '"t"."a" || "t"."a"', '"t"."a"'), [], 2, False),
    (STEPS.format(LIST, REPLACE[7:], '"t"."a"'), ["[0-9]", "#"], 2, False),
    ('SELECT 1 FROM "s1" AS "t" ASOF JOIN "s2" AS "u" ON true', [], 0, True),
    ('SELECT 1 FROM "s1" ASOF JOIN "s2" ON true ASOF JOIN "s3" ON true', [], 0, False),
    ('SELECT 1 FROM "s1" CROSS JOIN "s2"', [], 0, False),
    (STEPS.format(LIST, '"t"."a"', '"t"."a"'), [], None, False),
    (STEPS.format(", ".join([LIST] * 8), '"t"."a"', '"t"."a"'), [], 2, True),
    (STEPS.format(", ".join([LIST] * 9), '"t"."a"', '"t"."a"'), [], 2, False),
    ('SELECT quantile_disc("t"."a", 0.5) FROM "s1" AS "t" JOIN "s1" AS "u" ON true', [], None, True),
    (REPLACE, ["[0-9]", "#"], 0, True),
    (REPLACE, ["[0-9]", "12"], 0, False),
    (REPLACE, ["[0-9]", "\\"], 0, False),
    (REPLACE, ["(a{900}){900}", "#"], 0, False),
    (REPLACE.replace("$2", "$1"), ["[0-9]+"], 0, False),
    (REPLACE.replace("CAST($2 AS VARCHAR)", '"t"."a"'), ["[0-9]"], 0, False),
    (REPLACE.replace('"t"."a"', REPLACE[7:]), ["[0-9]", "#"], 0, False),
])  # fmt: skip
def test_what_may_run_on_few_rows(sql: str, parameters: list[Any], steps: int | None, expected: bool) -> None:
    """Each is not cheap on any number of rows, and those that multiply rows or texts not on few either."""
    assert cheap_on_few_rows(sql, parameters, 1, steps) is expected
    assert not cheap(sql, parameters)


@pytest.mark.parametrize("kql", [
    "Logs | summarize l = make_list(Message) | extend l = array_concat(l, l)",
    "let s = Logs | summarize l = make_list(Message) by Host; s | join kind=inner s on Host",
    "let s = Logs | summarize l = make_list(Message) by Host; union s, s",
    "let l = toscalar(Logs | summarize make_list(Message)); Logs | extend a = strcat(l, Host)",
    "Logs | summarize l = make_list(Fields) | mv-expand l",
    "Logs | summarize l = make_set(Fields)",
    "Logs | extend h = nodeset(Host) | summarize make_set(h)",
    "range x from 1 to 100000000 step 1 | summarize make_list(x)",
])  # fmt: skip
def test_what_multiplies_rows_or_texts_stays_in_its_own_process(kql: str) -> None:
    assert [_is_far_small(one) for one in compile_script(kql, CATALOG)] == [False]


def _is_far_small(one: Compiled) -> bool | None:
    return one.cut and one.cut.is_far_small


def test_the_tables_of_a_query_are_gone_after_it(store: duckdb.DuckDBPyConnection) -> None:
    con = store.cursor()
    for how in ({}, {"max_rows": 100_001, "max_bytes": 10}):
        run(con, "Logs | summarize make_list(Message) by Host", catalog=CATALOG, **how)
    assert run(con, "Logs | count", catalog=CATALOG).rows == [[LINES]]
    left = con.execute("SELECT view_name FROM duckdb_views() WHERE temporary AND NOT internal").fetchall()
    assert left == []


LISTED = ", ".join(f"l{n} = make_list(Message)" for n in range(4))
AGAIN = ", ".join(f"m{n} = make_set(tostring(l{n}))" for n in range(4))
REPLACED = "extend a = replace_regex(Message, '', '_') | extend b = strcat(a, a) | project a, b, c = strcat(b, b)"


@pytest.mark.parametrize(("kql", "repeated", "lines"), [
    (f"Logs | summarize {LISTED} | summarize {AGAIN}", 30, 4_000),
    (f"Logs | {REPLACED}", 160_000, 1),
    ("Logs | summarize " + ", ".join(f"percentile(Line, {n})" for n in range(90)) + " by Message", 10, 4_000),
])  # fmt: skip
def test_the_dearest_of_few_rows_stays_within_the_least_memory(kql: str, repeated: int, lines: int) -> None:
    """Texts that JSON writes six times as long, as many lists as are allowed, and a replacement at each character, doubled."""
    con, over, most = duckdb.connect(), threading.Event(), 0
    con.execute("CREATE SCHEMA kql")
    con.execute(
        'CREATE TABLE kql."Logs" AS SELECT TIMESTAMP \'2026-03-01\' AS "Time", \'gpu\' AS "Host", \'{}\' AS "Fields", '
        f'repeat(chr(1) || \'"\\\', {repeated}) || i AS "Message", i AS "Line" FROM range({lines}) t(i)'
    )
    (one,) = compile_script(kql, CATALOG)
    assert one.cut is not None and one.cut.is_far_small and few.read(con, one.cut) is not None
    before = anonymous()

    def measure() -> None:
        nonlocal most
        while not over.wait(0.002):
            most = max(most, anonymous() - before)

    watching = threading.Thread(target=measure)
    watching.start()
    began = time.thread_time()
    try:
        run(con, kql, catalog=CATALOG, max_rows=100_000, max_bytes=64 * 2**20, timeout_s=120.0)
    finally:
        over.set()
        watching.join()
    assert 0 < most < LEAST and time.thread_time() - began < 5
