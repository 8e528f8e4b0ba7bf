"""Odd words on the command line: each is answered in one line that says what is wrong, as the contract has it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from faultline import __version__
from faultline.cli import run
from faultline.entry import main
from tests.faultline.command import faultline


@pytest.mark.parametrize(("arguments", "said"), [
    (["incidents", "--since", "99999999999d"], "99999999999d"), (["query", "Jobs", "--server", "http://[bad"], "http://[bad"),
    (["query", "Jobs", "--server", "ftp://127.0.0.1:1"], "http"), (["query", "Jobs", "--server", "file:///etc/hostname"], "http"),
    (["query", "Jobs", "--max-rows", "99999999999999999999"], "--max-rows"), (["ingest", ""], "empty path"),
    (["ingest", "/etc/hostname", "--data", ""], "empty path"), (["incidents", "--data", ""], "empty path"),
    (["store", "info", "--data", ""], "empty path"), (["backup", "/tmp/copy", "--data", ""], "empty path"),
    (["backup", ""], "empty path"), (["verify", ""], "empty path"), (["restore", ""], "empty path"),
])  # fmt: skip
def test_what_cannot_be_meant_is_one_line(arguments: list[str], said: str) -> None:
    done = faultline(*arguments)
    said_so = done.stderr.decode()
    assert (done.returncode, said_so.count("\n")) == (2, 1) and said in said_so
    assert "a fault of Faultline" not in said_so


@pytest.mark.parametrize(
    "arguments",
    [["slurm"], ["slurm", "nothing"], ["agent", "status", "--nothing"], ["slurm", "verify", "--format", "x"]],
)
def test_a_wrong_command_line_on_a_node_is_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["faultline", *arguments])
    assert main() == 2
    said = capsys.readouterr().err
    assert said.startswith("faultline: ") and said.count("\n") == 1 and "--help" in said


def test_the_version_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"faultline {__version__}\n"


@pytest.mark.parametrize("options", [[], ["--explain"]])
def test_a_dash_is_standard_input(options: list[str]) -> None:
    done = faultline("parse", "-", *options, stdin=b"eth0: Link down\n")
    assert (done.returncode, json.loads(done.stdout)["raw"]) == (0, "eth0: Link down")


def test_a_named_path_that_is_no_file_is_not_passed_over(tmp_path: Path) -> None:
    """A FIFO in a tree is left alone; one that somebody named was meant to be read."""
    log, fifo = tmp_path / "logs" / "plain.log", tmp_path / "fifo"
    log.parent.mkdir()
    log.write_text("a line\n")
    os.mkfifo(fifo)
    alone = faultline("ingest", fifo, "--data", tmp_path / "data")
    assert alone.returncode == 2 and b"a FIFO" in alone.stderr
    beside = faultline("ingest", log.parent, fifo, "--data", tmp_path / "data")
    assert beside.returncode == 1 and b"a FIFO" in beside.stderr
