"""Output on a terminal: widths, colours, order; and a pipe gets the same words without them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from faultline.cli import run
from tests.faultline.command import faultline

FLAP = Path(__file__).parent.parent / "captures" / "mgmt_flap_long"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}}
    return {
        **kept,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "FAULTLINE_SERVER": "",
        "TERM": "xterm-256color",
        **more,
    }


class Screen:
    """A terminal: what is written to :attr:`end` is read at once, as a terminal does."""

    def __init__(self) -> None:
        self._reader, self.end = os.openpty()
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            while part := os.read(self._reader, 65536):
                self._parts.append(part)
        except OSError:  # Linux's way to report that the other end is closed
            pass

    def text(self) -> str:
        """All that was written, once the other end is closed."""
        self._thread.join(120)
        os.close(self._reader)
        return b"".join(self._parts).decode().replace("\r\n", "\n")


@cache
def at_terminal(*arguments: object, columns: int = 80, **more: str) -> str:
    """Standard output of the command on a terminal with this many columns; cached, since the store does not change."""
    screen = Screen()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(screen.end, "w", encoding="utf-8") as out:
        for name in ("NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        for name, value in {"FAULTLINE_SERVER": "", "TERM": "xterm-256color", "COLUMNS": str(columns), **more}.items():
            patch.setenv(name, value)
        patch.setattr("sys.stdout", out)
        run([str(argument) for argument in arguments])
    return screen.text()


def in_a_process(*arguments: object, columns: int = 80) -> str:
    """As :func:`at_terminal`, with a process that has the terminal as its input and output."""
    screen = Screen()
    command = [sys.executable, "-m", "faultline.entry", *map(str, arguments)]
    child = subprocess.Popen(
        command, stdout=screen.end, stdin=screen.end, stderr=subprocess.PIPE, env=environment(COLUMNS=str(columns))
    )
    os.close(screen.end)
    child.communicate(timeout=120)
    return screen.text()


@dataclass(frozen=True)
class Piped:
    returncode: int
    stdout: str
    stderr: str


def piped(*arguments: object) -> Piped:
    done = faultline(*arguments)
    return Piped(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    assert piped("ingest", FLAP, "--data", folder).returncode == 0
    return folder


@pytest.mark.parametrize("columns", [60, 80])
def test_incidents_at_a_terminal_are_two_readable_parts_each(data: Path, columns: int) -> None:
    text = ESCAPE.sub("", at_terminal("incidents", "--data", data, columns=columns))
    head, *sentence = text.splitlines()
    assert re.match(r"I-\w{10}  impact    2026-11-21 00:30:17", head) and "nic.link_down on gpu02" in " ".join(
        text.split()
    )
    assert all(len(line) <= columns for line in text.splitlines()) and sentence[-1].startswith("    ")
    assert "which ended job 15 as NODE_FAIL" in " ".join(text.split())


def test_why_fits_a_terminal_says_first_what_to_do_and_leaves_lines_whole(data: Path) -> None:
    text = ESCAPE.sub("", at_terminal("why", "15", "--data", data))
    lines = text.splitlines()
    assert lines[0].startswith("Job 15: Your job died because a node lost its network")
    order = [lines.index(words) for words in ("What to do", "Chain of evidence", "Grounds", "Rivals rejected")]
    assert order == sorted(order) and order[0] < 8 and len(lines) <= 60
    whole = ("scontrol", "mgmt_flap_long/", "igb 0000", "error: Nodes", "Killing JobId")
    assert [line for line in lines if len(line) > 80 and not any(words in line for words in whole)] == []
    # Continuation lines are indented below their beginning.
    after = lines.index(next(line for line in lines if line.startswith("  - Check cable")))
    assert lines[after + 1].startswith("    ") and not lines[after + 1].startswith("  - ")


def test_a_pipe_has_the_same_words_one_paragraph_a_line_and_no_colours(data: Path) -> None:
    reported = piped("why", "15", "--data", data).stdout
    assert (
        "\x1b" not in reported
        and "\n  - Check cable, transceiver and switch port of eth0 of gpu02 in the next window.\n" in reported
    )
    assert " ".join(ESCAPE.sub("", at_terminal("why", "15", "--data", data)).split()) == " ".join(reported.split())


def test_a_process_at_a_terminal_writes_the_same(data: Path) -> None:
    assert in_a_process("why", "15", "--data", data) == at_terminal("why", "15", "--data", data)


def test_colours_are_for_terminals_that_want_them(data: Path) -> None:
    assert "\x1b[" in at_terminal("why", "15", "--data", data)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", at_terminal("why", "15", "--data", data, NO_COLOR="1"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["incident"], 2, "Did you mean 'incidents'? Try 'faultline --help'."),
        (["incidents", "--format", "jsn"], 2, "did you mean json?"),
        (["incidents", "--host", "gpu2"], 0, "did you mean gpu02?"),
        (["incidents", "--since", "2026-11-30"], 0, "none of the 1 stored matches"),
        (["incidents", "--since", "2026-11-30", "--until", "2026-11-01"], 2, "is not before --until"),
        (["report", "usage", "--since", "2026-11-30", "--until", "2026-11-01"], 2, "is not before --until"),
        (["report", "usge"], 2, "did you mean usage?"),
        (["why", "151"], 2, "did you mean 15"),
        (["why", "nonsense"], 2, "was its accounting"),
        (["query", "--saved", "flaps_by_swich"], 2, "did you mean flaps_by_switch?"),
        (["query", "Events | where Msg has 'x'"], 2, "did you mean Message?"),
    ],
)
def test_what_is_wrong_is_one_line_that_says_what_may_be_meant(
    data: Path, arguments: list[str], code: int, said: str
) -> None:
    done = piped(*arguments, "--data", data) if arguments != ["incident"] else piped(*arguments)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("named", ["15", "JobId=15", "job 15", "15.batch", "15.0"])
def test_a_job_may_be_named_as_slurm_names_it(data: Path, named: str) -> None:
    assert piped("why", named, "--data", data).stdout.startswith("Job 15: ")


def test_no_command_at_all_shows_the_commands() -> None:
    done = piped()
    assert done.returncode == 2 and "incidents" in done.stdout and done.stderr == ""
