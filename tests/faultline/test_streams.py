"""Conditions at the other end of a command: a reader that stops early, a locale without umlauts, a bug of ours."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faultline import cli

LINE = "Feb 28 16:29:24 gx01 sshd[42]: caf\u00e9 \u2603\n"


def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "faultline.entry", *arguments]
    settings = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings)


@pytest.mark.parametrize(
    "lines", [3, pytest.param(5_000, marks=pytest.mark.long)]
)  # less than a buffer and more than one
def test_a_reader_that_has_seen_enough_is_no_failure(lines: int, tmp_path: Path) -> None:
    file = tmp_path / "syslog"
    file.write_text(LINE * lines)
    running = start("parse", str(file))
    assert running.stdout is not None and running.stderr is not None
    running.stdout.close()
    assert running.stderr.read() == b""
    assert running.wait(240) == 0


def is_whole(out: bytes) -> bool:
    return bool(json.loads(out.decode("utf-8"))["message"] == "caf\u00e9 \u2603")


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_process_writes_machine_formats_as_utf8_in_any_locale(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "syslog"
    file.write_text(LINE)
    out, err = start("parse", str(file), PYTHONIOENCODING=encoding).communicate(timeout=240)
    assert err == b"" and is_whole(out)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_machine_formats_are_utf8_whatever_the_encoding_of_the_output(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "syslog"
    file.write_text(LINE)
    with pytest.raises(UnicodeEncodeError):
        LINE.encode(encoding)
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", out)
    assert cli.run(["parse", str(file)]) == 0
    out.flush()
    assert is_whole(out.buffer.getvalue())  # type: ignore[attr-defined]


def test_a_fault_of_ours_is_one_line_and_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("the disk\nis full")

    monkeypatch.setattr(cli, "app", broken)
    assert cli.run(["incidents"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("faultline: RuntimeError: the disk is full; ") and err.count("\n") == 1
    monkeypatch.setenv("FAULTLINE_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        cli.run(["incidents"])
