"""Processes behind the wall that are kept for the next statement: which are, and what is left in them."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pytest

from queries.kql import Catalog, Column, Table, run
from queries.kql.errors import KqlError, KqlRuntimeError, QueryTimeout
from queries.kql.wall import children, few, remote_query
from queries.kql.wall.children import KEPT
from queries.kql.wall.cutting import BoundSql, Cut
from tests.queries.kql.functions.test_site_functions import DECLARE, Install, installed  # noqa: F401 - a fixture

CATALOG = Catalog({"Logs": Table("Logs", (Column("Host", "string"), Column("Line", "long")), 'kql."Logs"')})
SMALL = "Logs | take 3 | extend a = strrep(Host, 2) | count"


@pytest.fixture(scope="module")
def store() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE SCHEMA kql")
    con.execute('CREATE TABLE kql."Logs" AS SELECT \'gpu\' || i AS "Host", i AS "Line" FROM range(30000) t(i)')
    return con


@pytest.fixture(autouse=True)
def none_kept() -> Iterator[None]:
    KEPT.clear()
    yield
    KEPT.clear()


def _ask(store: duckdb.DuckDBPyConnection, kql: str, **how: Any) -> list[list[Any]]:
    return run(store.cursor(), kql, catalog=CATALOG, **how).rows


def _inside(store: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """The answer of SQL that no query can express."""
    found, _ = remote_query.ask(
        store.cursor(), Cut((), BoundSql(sql, [])), max_rows=None, max_bytes=None, deadline=None, timeout_s=None
    )
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _pids() -> list[int | None]:
    return [one.pid for one in KEPT._children]


def _until(is_so: Callable[[], bool]) -> None:
    since = time.monotonic()
    while not is_so():
        assert time.monotonic() - since < 120
        time.sleep(0.01)


def _is_gone(pid: int | None) -> bool:
    return not Path(f"/proc/{pid}").exists()


STREAMED = "Logs | extend a = strrep(Host, 2) | summarize n = count(), most = max(a)"


@pytest.mark.parametrize(
    "kql", [SMALL, STREAMED, "range x from 1 to 10 step 1 | extend h = nodeset(tostring(x)) | count"]
)
def test_a_process_answers_one_statement_after_another(store: duckdb.DuckDBPyConnection, kql: str) -> None:
    first = _ask(store, kql)
    (pid,) = _pids()
    assert pid and [_ask(store, kql) for _ in range(3)] == [first] * 3 and _pids() == [pid]
    (child,) = KEPT._children
    assert Path(child.folder).is_dir()
    KEPT.clear()
    _until(lambda: _is_gone(pid))
    assert not Path(child.folder).exists()


def test_nothing_of_a_statement_is_left_for_the_next(store: duckdb.DuckDBPyConnection) -> None:
    """Neither its tables, streamed or sent, nor open pipes; the settings stay locked."""
    _ask(store, SMALL)
    (pid,) = _pids()
    files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    _ask(store, STREAMED)
    _ask(store, STREAMED + " | extend m = strrep(most, 2)")
    tables = "SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"
    assert _inside(store, tables) == []
    assert _inside(
        store, "SELECT current_setting('lock_configuration'), current_setting('enable_external_access')"
    ) == [(True, False)]
    assert _pids() == [pid] and len(os.listdir(f"/proc/{pid}/fd")) == files  # noqa: PTH208
    with pytest.raises(KqlError, match="no files and no network"):
        _inside(store, "SELECT * FROM read_text('/etc/hostname')")


@pytest.mark.parametrize(("name", "most"), [("SMALL", -(2**40)), ("SHORT_S", -1.0)])
def test_a_process_that_came_near_its_limits_is_not_kept(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, name: str, most: float
) -> None:
    monkeypatch.setattr(remote_query, name, most)
    assert _ask(store, SMALL) == [[3]] and _pids() == []


def test_a_process_whose_statement_failed_is_not_kept(store: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(KqlError):
        _inside(store, "SELECT error('no')")
    assert _pids() == []
    with pytest.raises(QueryTimeout):
        _ask(store, "range x from 1 to 100000000000 step 1 | summarize sum(x)", timeout_s=0.5)
    assert _pids() == []


def test_a_process_in_which_a_site_function_ran_is_not_kept(
    store: duckdb.DuckDBPyConnection,
    installed: Install,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It could keep what it saw."""
    remember = "SEEN = []\ndef remember(text):\n    SEEN.append(text)\n    return ' '.join(SEEN)\n"
    installed(remember + DECLARE + "[Function('remember', 'Seen.', Body('s', 'string', remember))]\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    children.FORKER.stop()  # the next one finds the package
    try:
        for host in ("a", "b"):
            assert _ask(store, f"print remember('{host}')") == [[host]]
        assert _pids() == []
    finally:
        children.FORKER.stop()


def test_other_limits_need_another_process(store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask(store, SMALL)
    monkeypatch.setenv("FAULTLINE_QUERY_MEMORY", "300MB")
    _ask(store, SMALL)
    assert len(set(_pids())) == 2
    monkeypatch.setenv("FAULTLINE_QUERY_MEMORY", "400MB")
    oldest = _pids()[0]
    _ask(store, SMALL)
    assert len(_pids()) == children.MOST_KEPT and oldest not in _pids()
    _until(lambda: _is_gone(oldest))


def test_the_memory_of_a_kept_process_has_the_same_end(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLINE_QUERY_MEMORY", "256MB")
    for _ in range(3):
        _ask(store, SMALL)
    with pytest.raises(KqlRuntimeError, match="more memory"):
        _ask(store, "print strlen(strrep('A', 400000000))")
    assert _pids() == []


def test_a_process_that_waited_long_or_ended_is_not_asked(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ask(store, SMALL)
    (first,) = _pids()
    assert first
    os.kill(first, signal.SIGKILL)
    _until(lambda: _is_gone(first))
    assert _ask(store, SMALL) == [[3]]
    (second,) = _pids()
    monkeypatch.setattr(children, "KEPT_S", -1.0)
    assert _ask(store, SMALL) == [[3]] and second not in _pids()
    _until(lambda: _is_gone(second))


def test_rows_that_are_streamed_reach_a_kept_process(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few, "read", lambda con, cut: None)
    first = _ask(store, STREAMED)
    (pid,) = _pids()
    assert [_ask(store, STREAMED) for _ in range(3)] == [first] * 3 and _pids() == [pid]


def test_a_service_with_a_thousand_connections_answers(store: duckdb.DuckDBPyConnection) -> None:
    """Found by reading: ``select`` takes no file handle above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_024):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert _ask(store, SMALL) == [[3]] and KEPT._children[0].socket.fileno() > 1_023
        KEPT.clear()


def test_a_process_imports_nothing_from_the_current_folder(
    store: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks a query in a user's folder would run that user's code."""
    for name in ("selectors", "types", "queries"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    children.FORKER.stop()
    assert _ask(store, SMALL) == [[3]]
    assert not (tmp_path / "ran").exists()


def test_a_process_that_ends_before_it_sent_its_number_is_not_said_to_want_memory(
    store: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the machine has no room for another process: the answer was that the query took too much memory."""

    def send(fds: list[int]) -> None:
        for fd in fds:
            threading.Timer(0.2, os.close, [os.dup(fd)]).start()

    monkeypatch.setattr(children.FORKER, "send", send)
    with pytest.raises(KqlRuntimeError, match="did not start"):
        _inside(store, "SELECT 1")
