"""`faultline query` as people use it: pipes, files of several statements, saved queries, parameters, history, plans."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultline.cli import run

ROOT = Path(__file__).parents[2]
FLAP = Path(__file__).parent.parent / "captures" / "mgmt_flap_long"


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def query(*arguments: object, stdin: str = "", history: Path | str = "") -> Done:
    """The command in this process, with its streams and its environment."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("FAULTLINE_SERVER", "")
        patch.setenv("FAULTLINE_HISTORY", str(history))
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run(["query", *map(str, arguments)])
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    assert run(["ingest", str(FLAP), "--data", str(folder)]) == 0
    return folder


def test_a_query_comes_through_a_pipe(data: Path) -> None:
    for arguments in (("-",), (), ("--file", "-")):
        done = query(*arguments, "--data", data, "--format", "csv", stdin="print a = 1, b = 'x'")
        assert (done.returncode, done.stdout) == (0, "a,b\n1,x\n")
    command = [sys.executable, "-m", "faultline.entry", "query", "--data", str(data), "--format", "csv"]
    piped = subprocess.run(command, input=b"print a = 1", capture_output=True, cwd=ROOT, timeout=120)
    assert piped.stdout == b"a\n1\n"


@pytest.mark.long
def test_a_query_in_a_process_of_its_own_leaves_nothing_on_stderr(data: Path) -> None:
    """The forking process ends after the command: its stderr is the command's."""
    command = [sys.executable, "-m", "faultline.entry", "query", "--data", str(data), "--format", "csv"]
    text = b"print a = convert_length(1.0, 'Meter', 'Centimeter')"
    done = subprocess.run(command, input=text, capture_output=True, cwd=ROOT, timeout=120)
    assert (done.stdout, done.stderr) == (b"a\n100.0\n", b"")


def test_several_statements_answer_in_order(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "two.kql"
    file.write_text("let n = 2; // shared\nprint a = n;\nprint b = n + 1;\n")
    assert query("--file", file, "--data", data, "--format", "csv").stdout == "a\n2\n\nb\n3\n"
    answers = [
        json.loads(line) for line in query("--file", file, "--data", data, "--format", "json").stdout.splitlines()
    ]
    assert [a["rows"] for a in answers] == [[[2]], [[3]]]
    assert query("--file", file, "--data", data, "--format", "ndjson").stdout == '{"a": 2}\n{"b": 3}\n'


def test_parameters_are_typed_as_declared(data: Path) -> None:
    text = "declare query_parameters(n:long, t:timespan = 1h, s:string = 'x'); print n + 1, t, s"
    done = query(text, "-p", "n=4", "-p", "t=2d", "-p", "s='; drop", "--data", data, "--format", "csv")
    assert done.stdout.splitlines()[1] == "5,2.00:00:00,'; drop"
    missing = query(text, "--data", data)
    assert missing.returncode == 2 and "'n' has no value" in missing.stderr


def test_saved_queries_are_listed_and_run(data: Path) -> None:
    listed = query("--list").stdout
    assert "link_flaps_by_port\tLink flaps by port\tsince:timespan = 7d, least:long = 2\n" in listed
    done = query("--saved", "failed_jobs_explained", "-p", "since=40000d", "--data", data, "--format", "ndjson")
    assert any(json.loads(line)["JobId"] == 15 for line in done.stdout.splitlines())
    wrong = query("--saved", "no_such", "--data", data)
    assert wrong.returncode == 2 and "--list" in wrong.stderr


def test_rows_end_at_the_limit_and_time_ends_a_query(data: Path) -> None:
    done = query("range n from 1 to 9 step 1", "--max-rows", "3", "--data", data, "--format", "csv")
    assert done.stdout == "n\n1\n2\n3\n" and "truncated after 3 rows" in done.stderr
    endless = "range a from 1 to 99999 step 1 | extend k = 1 | join kind=inner (range b from 1 to 99999 step 1 | extend k = 1) on k"
    slow = query(f"{endless} | summarize sum(a * b)", "--timeout", "0.2", "--data", data)
    assert slow.returncode == 2 and "longer than 0.2 s" in slow.stderr


def test_the_plan_is_shown_and_nothing_runs(data: Path) -> None:
    done = query('Logs | where Message has "node failure" | count', "--explain", "--data", data)
    assert done.returncode == 0
    assert "columns: Count:long" in done.stdout and "SELECT" in done.stdout and "plan:" in done.stdout


def test_history_keeps_what_was_asked(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "history.ndjson"
    query("print a = 1", "--data", data, history=file)
    query("print\n b = 2", "--data", data, history=file)
    query("print broken(", "--data", data, history=file)
    shown = [line.split("\t")[1:] for line in query("--history", history=file).stdout.splitlines()]
    assert shown == [["1", "print a = 1"], ["1", "print b = 2"]]
    assert file.stat().st_mode & 0o077 == 0
    assert query("--history").stdout == ""


def test_history_in_a_persons_home_is_shown_in_a_pipe_and_not_written_by_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("FAULTLINE_HISTORY", "FAULTLINE_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "faultline" / "queries.ndjson"
    assert run(["query", "print a = 1", "--data", str(data)]) == 0
    assert not file.exists()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert run(["query", "print b = 2", "--data", str(data)]) == 0
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    capsys.readouterr()
    assert run(["query", "--history"]) == 0
    assert "print b = 2" in capsys.readouterr().out


def test_a_file_given_as_a_query_is_told_how_to_run_it(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "q.kql"
    file.write_text("Logs | count")
    done = query(file, "--data", data)
    assert done.returncode == 2 and f"--file {file}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("print 1", "--saved", "x"), "give one of"),
        (("print 1", "--format", "xml"), "--format xml"),
        (("print 1", "-p", "novalue"), "NAME=VALUE"),
        (("--file", "/nowhere.kql"), "cannot be read"),
        (("-",), "holds no query"),
        (("print 1", "--max-rows", "0"), "max-rows"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_exit_2(arguments: tuple[str, ...], message: str, data: Path) -> None:
    done = query(*arguments, "--data", data)
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_a_service_is_asked_and_its_errors_have_a_place(data: Path) -> None:
    """The same command against a running service: several statements, a plan, an error with its position."""
    import socket
    import threading
    import time

    import uvicorn

    from store import open_store
    from web.app import create_app

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open_store(data) as store:
        server = uvicorn.Server(uvicorn.Config(create_app(store), port=port, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        address = f"http://127.0.0.1:{port}"
        try:
            assert query("print a = 1; print b = 2", "--server", address, "--format", "csv").stdout == "a\n1\n\nb\n2\n"
            assert "plan:" in query("Logs | count", "--explain", "--server", address).stdout
            wrong = query("Logs\n| whre Host == 'x'", "--server", address)
            assert wrong.returncode == 2
            assert "line 2, column 3: unknown operator 'whre'; did you mean where?" in wrong.stderr
        finally:
            server.should_exit = True
            thread.join()


def test_a_wrong_query_is_told_in_one_line_where_nobody_looks(data: Path) -> None:
    done = query("Jobs\n| where Foo == 1", "--data", data)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("faultline: line 2, column 9: unknown name 'Foo'; there is Cluster, JobId, Attempt,")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_sees_where_in_the_query_it_is(data: Path) -> None:
    with redirect_stderr(Terminal()) as shown:
        assert run(["query", "Jobs\n| where Foo == 1", "--data", str(data)]) == 2
    assert shown.getvalue().endswith("\n  | where Foo == 1\n          ^^^\n")
