"""Big and many files: several processes produce the same as one, and what was stored before a crash is not read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector import ingest as ingesting
from collector import line_files
from collector.ingest import Ingest, Report
from collector.line_files import LONG_LINE
from collector.workers import Counted, ParserPool, ParsingFailed, Piece
from parsers.engine import LineParser
from parsers.record import Origin
from store import open_store
from store.duckdb.store import DuckStore
from tests.line_parser import line_parser

PARSER = line_parser()


def line(number: int) -> str:
    return f"2026-02-28T16:{number // 60 % 60:02d}:{number % 60:02d}.000000+00:00 gpu02 sshd[42]: session {number} opened\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for host in range(5):
        folder = tmp_path / "nodes" / f"gpu{host:02d}"
        folder.mkdir(parents=True)
        (folder / "syslog").write_text("".join(line(n) for n in range(host, 1000, host + 1)))
        (folder / "kern.log").write_bytes(b"Mar  1 00:00:00 n kernel: \xff x\r\nno end" if host else b"")
    return tmp_path


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, tasks and transactions so small that a file of 1,000 lines needs many."""
    monkeypatch.setattr("collector.files.CHUNK", 2_000)
    monkeypatch.setattr("collector.files.BLOCK", 1_000)
    monkeypatch.setattr(line_files, "TASK_BYTES", 5_000)
    monkeypatch.setattr(ingesting, "COMMIT_ROWS", 150)


def ingest(store: DuckStore, path: Path, workers: int = 0) -> Report:
    return Ingest(store, parser=PARSER, workers=workers).run([path])


def contents(store: DuckStore) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows = store.rows("SELECT * EXCLUDE (block) FROM raw.logs ORDER BY file, line")
    return rows, store.rows("SELECT * EXCLUDE (ingested_at) FROM raw.files ORDER BY path")


@pytest.mark.usefixtures("small_parts")
@pytest.mark.long
def test_two_processes_in_parts_give_what_one_gives_at_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(None) as parts:
        report = ingest(parts, tree, workers=2)
        in_parts = contents(parts)
    monkeypatch.undo()
    with open_store(None) as whole:
        assert ingest(whole, tree).by_source() == report.by_source()
        assert contents(whole) == in_parts
        assert {f.status for f in ingest(whole, tree).files} <= {"unchanged", "stored"}
        assert contents(whole)[0] == in_parts[0], "nothing is stored twice"


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("transactions", [*(pytest.param(n, marks=pytest.mark.long) for n in (0, 2, 6, 8, 10)), 4])
def test_a_crash_between_transactions_is_gone_on_from(
    tree: Path, monkeypatch: pytest.MonkeyPatch, transactions: int
) -> None:
    with open_store(None) as store:
        left = [transactions]
        real = store.append

        def add(*arguments: Any) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            real(*arguments)

        monkeypatch.setattr(store, "append", add)
        with pytest.raises(KeyboardInterrupt):
            ingest(store, tree)
        monkeypatch.setattr(store, "append", real)
        ingest(store, tree)
        got = contents(store)[0]
    with open_store(None) as whole:
        ingest(whole, tree)
        assert got == contents(whole)[0]


def test_lines_of_a_batch_that_kills_parsers_are_given_up_by_name(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ParserPool.submit_counted

    def deadly(pool: ParserPool, *pieces: Piece) -> Any:
        if any("gpu03" in str(piece.origin.path) for piece in pieces):
            raise ParsingFailed("two parser processes died")
        return real(pool, *pieces)

    class Later:
        def __init__(self, *arguments: Any) -> None:
            self.arguments = arguments

        def result(self) -> Counted:
            found: Counted = deadly(*self.arguments).result()
            return found

    monkeypatch.setattr(ParserPool, "submit_counted", lambda pool, *pieces: Later(pool, *pieces))
    with open_store(None) as store:
        report = ingest(store, tree)
        (trouble, other) = report.troubled
        assert trouble.path.parent.name == other.path.parent.name == "gpu03"
        assert "cannot be parsed from line 1 on" in trouble.warnings[-1]
        assert not store.rows("SELECT * FROM raw.logs WHERE file LIKE '%gpu03%'")
        monkeypatch.undo()
        ingest(store, tree)
        assert store.rows("SELECT count(*) AS n FROM raw.logs WHERE file LIKE '%gpu03%'") == [{"n": 252}]


def test_a_fault_of_the_parser_costs_the_file_and_not_the_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small tree is parsed in this process. The file is read once the fault is mended."""
    real = LineParser.parse_data

    def faulty(parser: LineParser, data: bytes, origin: Origin, first_line: int = 1) -> pl.DataFrame:
        if "gpu03" in str(origin.path):
            raise KeyError("a fault of ours")
        return real(parser, data, origin, first_line)

    monkeypatch.setattr(LineParser, "parse_data", faulty)
    with open_store(None) as store:
        report = ingest(store, tree)
        assert {file.path.parent.name for file in report.troubled} == {"gpu03"}
        assert all("a fault of ours" in file.warnings[-1] for file in report.troubled)
        others = store.rows("SELECT count(*) AS n FROM raw.logs")[0]["n"]
        monkeypatch.undo()
        ingest(store, tree)
        assert others > 1000 and store.rows("SELECT count(*) AS n FROM raw.logs") == [{"n": others + 252}]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_long_lines_are_named_by_their_number(tmp_path: Path, end: str) -> None:
    long = line(0).rstrip() + "x" * LONG_LINE
    (tmp_path / "syslog").write_bytes((line(1) + long + "\n" + line(2) + long + end).encode())
    with open_store(None) as store:
        (found,) = ingest(store, tmp_path).files
    assert [warning.split(" is ")[0] for warning in found.warnings] == ["line 2", "line 4"]
    assert all(f"{len(long):,} bytes" in warning for warning in found.warnings)
