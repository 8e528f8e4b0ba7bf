"""Behind the wall: what is cut, that answers stay the same, and that time, memory and bytes are limited."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pytest

from queries.kql import Catalog, Column, KqlError, KqlRuntimeError, QueryTimeout, Table, run
from queries.kql.compile import compile_script
from queries.kql.wall import forking, guarding, remote_query
from queries.kql.wall.children import KEPT, Child
from queries.kql.wall.judging import cheap
from queries.kql.wall.memory import Shares, memory_budget
from tests.queries.attacks import ATTACKS, Attack, doubling_union, nested_lets

#: The maximum time of an attack: the limit is a second, and the machine may be busy with other things.
LIMIT_S, PATIENCE_S = 1.0, 120.0
LOGS = Table("Logs", (Column("Time", "datetime"), Column("Host", "string"), Column("Message", "string"), Column("Line", "long"),
                      Column("Fields", "dynamic")), 'kql."Logs"')  # fmt: skip
CATALOG = Catalog({"Logs": LOGS})


@pytest.fixture(scope="module")
def store() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE SCHEMA kql")
    con.execute(
        'CREATE TABLE kql."Logs" AS SELECT TIMESTAMP \'2026-03-01\' + to_seconds(i) AS "Time", \'gpu\' || (i % 7) AS "Host", '
        "'step ' || i || ' loss' AS \"Message\", i AS \"Line\", '{\"a\": ' || i || '}' AS \"Fields\" FROM range(20000) t(i)"
    )
    return con


def _ask(store: duckdb.DuckDBPyConnection, kql: str, **how: Any) -> Any:
    return run(store.cursor(), kql, catalog=CATALOG, **how)


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.quick], ids=lambda a: f"{a.kind}: {a.name}")
def test_an_attack_ends(store: duckdb.DuckDBPyConnection, attack: Attack) -> None:
    """On the old code most of these took minutes, and gigabytes of this process."""
    began = time.monotonic()
    parameters = attack.body.get("parameters")
    try:
        result = _ask(
            store, attack.kql, parameters=parameters, max_rows=attack.body.get("max_rows", 10_000),
            max_bytes=64 * 2**20, timeout_s=LIMIT_S,
        )  # fmt: skip
        assert result.table.nbytes <= 64 * 2**20
    except KqlError as error:
        assert "hole in the checks" not in error.message
    assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize("kql", [
    "Logs | where Host == 'gpu3' and Message has 'loss' | summarize n = count(), last = max(Time) by Host",
    "Logs | where Message matches regex @'step \\d+ loss' | top 5 by Time desc | project Time, Host",
    "Logs | extend x = tolong(extract(@'step (\\d+)', 1, Message)) | summarize max(x) by bin(Time, 1h)",
    "Logs | summarize count() by tostring(Fields.a) | count",
    "Logs | project Host | join kind=inner (Logs | summarize count() by Host) on Host | count",
    "Logs | summarize count() by format_datetime(Time, 'yyyy-MM-dd HH:mm')",
    "Logs | summarize count() by strcat(Host, ' at ', Line, ': ', Host)",
])  # fmt: skip
def test_what_dashboards_ask_runs_beside_the_store(kql: str) -> None:
    assert [one.cut for one in compile_script(kql, CATALOG)] == [None]


@pytest.mark.parametrize(("kql", "answer"), [
    ("Logs | where Host == 'gpu3' | extend a = strrep(Message, 3) | summarize sum(strlen(a))", [[108462]]),
    ("Logs | where Line < 3 | extend p = parse_url(Message) | project Line, tostring(Fields.a) | sort by Line asc",
     [[0, "0"], [1, "1"], [2, "2"]]),
    ("let t = Logs | where Line < 5 | extend a = strcat(Host, '-', Message, Host, Message); t | join kind=inner t on Line | count", [[5]]),
    ("Logs | where Line < 2 | extend l = range(1, 3, 1) | mv-expand l | summarize count() by Host | sort by Host asc",
     [["gpu0", 3], ["gpu1", 3]]),
    ("Logs | serialize | extend n = row_number(), s = strrep('x', 2) | where n == 7 | project Line, s", [[6, "xx"]]),
])  # fmt: skip
def test_answers_are_the_same_behind_the_wall(store: duckdb.DuckDBPyConnection, kql: str, answer: Any) -> None:
    (one,) = compile_script(kql, CATALOG)
    assert one.cut is not None and len(one.cut.near) == 1, "only the cheap steps read the store"
    got = _ask(store, kql, timeout_s=120, max_rows=100, max_bytes=2**20).rows
    direct = store.cursor().execute(one.sql, one.parameters).fetchall() if "kqlpy" not in one.sql else None
    assert got == answer or direct == [tuple(r) for r in got]


@pytest.mark.parametrize(("kql", "words"), [
    ("Broken | extend a = strrep(Message, 3) | summarize sum(strlen(a))", "a value cannot be computed"),  # a stream into the wall
    ("range x from 1 to 20000 step 1 | extend a = strrep('a', iff(x > 15000, 400000000, 1)) | project a = strcat(a, a, a, a, a, a)", "memory"),
    ("Broken", "a value cannot be computed"),  # beside the store
])  # fmt: skip
def test_an_error_amid_the_rows_is_no_end_of_them(store: duckdb.DuckDBPyConnection, kql: str, words: str) -> None:
    """What the engine reports while rows stream is the query's error, at no place an answer that lacks the rest."""
    store.execute(
        'CREATE OR REPLACE VIEW kql."Broken" AS SELECT "Line", '
        'CASE WHEN "Line" = 15000 THEN error(\'boom\') ELSE "Message" END AS "Message" FROM kql."Logs"'
    )
    broken = Table("Broken", (Column("Line", "long"), Column("Message", "string")), 'kql."Broken"')
    with pytest.raises(KqlRuntimeError, match=words):
        run(store.cursor(), kql, catalog=Catalog({"Logs": LOGS, "Broken": broken}), max_rows=200_000, max_bytes=2**24)


def test_a_stream_ends_only_after_its_error_is_known(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that reads it may end well before the thread that feeds it goes on."""
    known: list[bool] = []
    fed = remote_query._Feeder
    new_stream = remote_query.pa.ipc.new_stream

    def stream(file: Any, schema: Any) -> Any:
        writer = new_stream(file, schema)

        class Closing:
            def __enter__(self) -> Any:
                return writer.__enter__()

            def __exit__(self, *given: Any) -> None:
                known.append(feeder.problem is not None)
                writer.__exit__(*given)

        return Closing()

    monkeypatch.setattr(remote_query.pa.ipc, "new_stream", stream)
    stream_of = SimpleNamespace(statement=SimpleNamespace(sql="SELECT CASE WHEN i = 9000 THEN error('boom') ELSE i END FROM range(20000) t(i)", parameters=[]))  # fmt: skip
    read, write = os.pipe()
    feeder = fed(store, cast("Any", stream_of), write, 0)
    with os.fdopen(read, "rb") as sink:
        feeder.start()
        sink.read()
    feeder.stop()
    assert known == [True] and isinstance(feeder.problem, duckdb.Error)


def test_the_limit_holds_within_one_expression(store: duckdb.DuckDBPyConnection) -> None:
    """One chunk of such cells takes minutes, in which nothing can interrupt the engine."""
    began = time.monotonic()
    with pytest.raises((QueryTimeout, KqlRuntimeError)):
        _ask(
            store,
            "Logs | summarize sum(strlen(replace_string(strrep(Message, 100000), 's', Message)))",
            timeout_s=LIMIT_S,
        )
    assert time.monotonic() - began < PATIENCE_S


HOGS = {
    "a list of all": "range x from 1 to 100000000 step 1 | summarize array_length(make_list(x, 100000000))",
    "texts that double": "range x from 1 to 3 step 1 | extend a = strrep('a', 1000000)" + " | extend a = strcat(a, a)" * 12 + " | summarize max(strlen(a))",
    "a body in Python": "print l = range(1, 1000000, 1)" + " | extend l = array_concat(l, l)" * 8 + " | project array_sort_asc(l)",
    "groups beside the store": "Logs | join kind=inner (Logs) on Host | summarize n = count() by Line, Line1 | extend a = strrep('x', n) | count",
}  # fmt: skip


MINUTES = (
    "range x from 1 to 100000000 step 1 | summarize sum(strlen(replace_string(strrep('ab', 3000), 'a', tostring(x))))"
)


def _worked_s(pid: str) -> float:
    """CPU seconds of a process."""
    try:
        reported = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    return sum(map(int, reported.rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def _private(pid: int) -> int:
    """Bytes that would be freed if the process ended."""
    try:
        reported = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in reported.splitlines() if line.startswith(("Private_", "Swap:")))


@pytest.mark.parametrize("kql", HOGS.values(), ids=HOGS.keys())
def test_memory_has_an_end_and_is_reported(
    store: duckdb.DuckDBPyConnection, kql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forked process's private memory never exceeds the budget: the kernel grants no more."""
    monkeypatch.setenv("FAULTLINE_QUERY_MEMORY", "256MB")
    remote_query.FORKER.start()
    assert remote_query.FORKER._process is not None
    forker, over, most = remote_query.FORKER._process.pid, threading.Event(), 0
    children = Path(f"/proc/{forker}/task/{forker}/children")

    def held() -> int:
        return max(map(_private, map(int, children.read_text().split())), default=0)

    until = time.monotonic() + PATIENCE_S
    while held() > 256e6 and time.monotonic() < until:  # one of another test, with another budget, is still ending
        time.sleep(0.01)

    def measure() -> None:
        nonlocal most
        while not over.wait(0.005):
            most = max(most, held())

    watching = threading.Thread(target=measure)
    watching.start()
    try:
        with pytest.raises(KqlRuntimeError, match="more memory than it may use"):
            _ask(store, kql, timeout_s=120)
    finally:
        over.set()
        watching.join()
    assert most <= 256e6
    assert _ask(store, "print strlen(strrep('a', 10))", timeout_s=120).rows == [[10]], "the next one has what it needs"


@pytest.mark.parametrize("is_slow", [False, True], ids=["the process is there", "the process comes later"])
def test_a_query_whose_time_is_over_before_it_is_watched_leaves_no_process(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    """Compiling it took all its time, or the machine is busy. Nobody else would end this one: it works for minutes."""
    remote_query.FORKER.start()
    assert remote_query.FORKER._process is not None
    forker, wait = remote_query.FORKER._process.pid, remote_query.Asked._wait
    children = Path(f"/proc/{forker}/task/{forker}/children")

    def later(self: remote_query.Asked) -> Any:
        while not is_slow and not any(_worked_s(pid) > 0.1 for pid in children.read_text().split()):
            time.sleep(0.01)
        self._deadline = time.monotonic()
        return wait(self)

    with monkeypatch.context() as patch:
        patch.setattr(remote_query.Asked, "_wait", later)
        if is_slow:
            os.kill(forker, signal.SIGSTOP)
        try:
            with pytest.raises(QueryTimeout):
                _ask(store, MINUTES, timeout_s=600)
        finally:
            os.kill(forker, signal.SIGCONT)
    KEPT.clear()
    assert _ask(store, "print strlen(strrep('a', 10))", timeout_s=120).rows == [[10]], "it has forked both"
    KEPT.clear()
    since = time.monotonic()
    while children.read_text().split():
        assert time.monotonic() - since < PATIENCE_S
        time.sleep(0.01)


#: Beyond the greatest number of a process (Linux: 2^22).
NOBODYS = 2**22 + 1


@pytest.mark.parametrize("is_known", [False, True], ids=["before its number", "after its number"])
def test_a_process_that_ends_before_it_read_its_question_is_an_error_of_the_query(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """The kernel ends one without memory at any time. Closing a socket with unread data resets it."""

    def began(self: remote_query.Asked) -> None:
        mine, its = socket.socketpair()
        self._child = Child(mine, "", ())
        mine.sendall(b"part of a question that nobody reads")
        if is_known:
            its.sendall(forking.PID_FRAME.pack(forking.PID, NOBODYS))
        its.close()

    monkeypatch.setattr(remote_query.Asked, "_begin", began)
    with pytest.raises(KqlRuntimeError, match="more memory" if is_known else "did not start: .* no memory left"):
        _ask(store, "print strlen(strrep('a', 10))", timeout_s=120)


@pytest.mark.parametrize("memory", [256 * 10**6, 512 * 10**6, 10**9, 64 * 10**9])
@pytest.mark.parametrize("most_bytes", [None, 0, 64 * 2**20])
@pytest.mark.parametrize("is_near_growing", [False, True])
def test_shares_of_the_memory_leave_a_tenth(memory: int, most_bytes: int | None, is_near_growing: bool) -> None:
    shares = Shares.of(memory, most_bytes, is_near_growing)
    assert shares.answer + shares.near + shares.far <= 0.9 * memory
    assert shares.engine < shares.far <= shares.limit, "the engine writes to disk before the kernel refuses it memory"
    assert shares.limit - shares.far <= 0.1 * memory, "stacks are reserved, but could be written to"


def test_a_memory_that_is_too_small_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_QUERY_MEMORY", "100MB")
    with pytest.raises(KqlRuntimeError, match="FAULTLINE_QUERY_MEMORY=100MB: a query needs at least 256 MB"):
        memory_budget()


def test_rows_of_a_large_answer_are_fetched_as_they_are_asked_for(store: duckdb.DuckDBPyConnection) -> None:
    """An answer of 100 GB ends at its byte limit, beside the store and behind the wall; it is never held whole."""
    wide = "Logs | join kind=inner (Logs) on Host | project Message, Message1"
    for kql in (wide, wide + " | extend a = strrep(Message, 20)"):
        result = _ask(store, kql, max_rows=1_000_000_000, max_bytes=2**20, timeout_s=120)
        assert result.cut_at == "bytes" and result.table.nbytes <= 2 * 2**20


def test_tables_of_one_query_share_its_bytes(store: duckdb.DuckDBPyConnection) -> None:
    result = _ask(store, "Logs; " * 5, max_rows=100_000, max_bytes=1_000_000, timeout_s=120)
    assert sum(one.table.nbytes for one in (result, *result.others)) <= 1_500_000


def test_an_answer_ends_at_its_bytes(store: duckdb.DuckDBPyConnection) -> None:
    for kql in ("Logs", "Logs | extend a = strrep(Message, 20)"):
        result = _ask(store, kql, max_rows=1_000_000, max_bytes=200_000, timeout_s=120)
        assert result.truncated and result.cut_at == "bytes" and result.table.nbytes < 2_000_000
    assert _ask(store, "Logs | take 20", max_rows=10, max_bytes=2**20, timeout_s=120).cut_at == "rows"


def test_who_goes_away_takes_the_process_along(store: duckdb.DuckDBPyConnection) -> None:
    stopped = threading.Event()
    threading.Timer(0.5, stopped.set).start()
    began = time.monotonic()
    with pytest.raises(KqlRuntimeError, match="cancelled"):
        _ask(store, "range x from 1 to 100000000000 step 1 | summarize sum(x)", timeout_s=300, stopped=stopped)
    assert time.monotonic() - began < 240


def test_the_forking_process_is_started_again_when_it_is_gone(store: duckdb.DuckDBPyConnection) -> None:
    remote_query.FORKER.start()
    process = remote_query.FORKER._process
    assert process is not None
    process.kill()
    process.wait()
    assert _ask(store, "range x from 1 to 3 step 1 | count", timeout_s=120).rows == [[3]]


def test_each_statement_behind_the_wall_draws_its_own_random_numbers(store: duckdb.DuckDBPyConnection) -> None:
    """Forked processes share the state of the process that forked them."""
    kql = "Logs | take 1 | extend s = strrep('x', 2) | project s, rand(), new_guid()"
    first, second = (_ask(store, kql).rows[0] for _ in range(2))
    assert first[0] == second[0] == "xx"
    assert first[1] != second[1] and first[2] != second[2]


def test_the_forking_process_runs_no_thread_of_the_engine(store: duckdb.DuckDBPyConnection) -> None:
    """A lock that another thread holds at the fork is never released in the child."""
    _ask(store, "Logs | take 1 | extend s = strrep('x', 2)")
    assert remote_query.FORKER._process is not None
    tasks = Path(f"/proc/{remote_query.FORKER._process.pid}/task")
    names = [(task / "comm").read_text() for task in tasks.iterdir()]
    main = (tasks / str(remote_query.FORKER._process.pid) / "comm").read_text()
    assert names.count(main) == 1, "threads of the engine have the name of the process"


@pytest.mark.parametrize(("grown", "pages", "asked", "struck"), [
    ([0, 20, 40], [], 0, False),
    ([0, 200, 700], [100], 1, False),
    ([0, 200, 900], [100, 600], 2, False),
    ([0, 200, 900], [100, 100], 2, True),
    ([0, 900], [0, 0], 2, True),
])  # fmt: skip
def test_the_guard_asks_the_engine_for_its_pages_only_if_memory_grew(
    monkeypatch: pytest.MonkeyPatch, grown: list[int], pages: list[int], asked: int, struck: bool
) -> None:
    """Megabytes: what the process gained at each look, and the engine's pages of tables whenever it is asked."""
    mega, left, now = 10**6, list(pages), [1_000]

    def taken(_con: duckdb.DuckDBPyConnection) -> int:
        return (now[0] - left.pop(0)) * mega

    monkeypatch.setattr(guarding, "taken", taken)
    monkeypatch.setattr(guarding, "anonymous", lambda: now[0] * mega)
    with duckdb.connect() as con:
        one = guarding.Guarded(con, 1_000 * mega)
        for more in grown:
            now[0] = 1_000 + more
            one.look()
    assert (len(pages) - len(left), one.struck) == (asked, struck)


def test_bounds_of_the_text_say_which_and_what_to_do() -> None:
    with pytest.raises(KqlError, match=r"reads its own steps more than \d+ times.*materialize"):
        compile_script(doubling_union(21), CATALOG)
    with pytest.raises(KqlError, match=r"(unfolds in|grows )to more than \d+ parts"):
        compile_script(nested_lets(8, 8), CATALOG)


@pytest.mark.parametrize(("sql", "parameters", "expected"), [
    ('SELECT lower("t"."a") FROM "s1" AS "t"', [], True),
    ("SELECT repeat('a', 1000000000)", [], False),
    ("SELECT a_function_of_tomorrow(1)", [], False),
    ("SELECT regexp_matches(\"t\".\"a\", CAST($1 AS VARCHAR))", ["ab+c"], True),
    ("SELECT regexp_matches(\"t\".\"a\", CAST($1 AS VARCHAR))", ["((a{0,900}){0,900}){0,900}"], False),
    ('SELECT regexp_matches("t"."a", "t"."b")', [], False),
    ('SELECT "t"."repeat(" FROM "s1" AS "t"', [], True),
    ("SELECT 1 FROM a CROSS JOIN b", [], False),
    ("SELECT [1, 2]", [], False),
    ('SELECT 1 FROM kql."Logs" AS t WHERE "t"."$block" IN (SELECT unnest(CAST($1 AS INTEGER[])))', [[1, 2]], True),
    ("SELECT unnest(CAST($1 AS INTEGER[]))", [[1, 2]], False),
    ('SELECT "t"."a" || CAST($1 AS VARCHAR) || "t"."b" || CAST($1 AS VARCHAR) || "t"."c"', ["-"], True),
    ('SELECT "t"."a" || CAST($1 AS VARCHAR) || "t"."b" || CAST($1 AS VARCHAR) || "t"."c"', ["-" * 101], False),
    ('SELECT "t"."a" || "t"."a" || "t"."a" || "t"."a"', [], False),
    ('SELECT "t"."a"' + " || CAST($1 AS VARCHAR)" * 20, ["-"], True),
    ('SELECT "t"."a"' + " || CAST($1 AS VARCHAR)" * 21, ["-"], False),
    ("SELECT printf('%02d', month(\"t\".\"a\"))", [], True),
    ("SELECT printf('%s', \"t\".\"a\")", [], False),
    ("SELECT printf(CAST($1 AS VARCHAR), 1)", ["%099999999d"], False),
    ("SELECT \"t\".\"printf('%02d'\", repeat('a', 10)", [], False),
])  # fmt: skip
def test_what_is_not_known_to_be_cheap_is_dear(sql: str, parameters: list[Any], expected: bool) -> None:
    assert cheap(sql, parameters) is expected
