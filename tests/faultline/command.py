"""The ``faultline`` command in this process, with its own streams and environment: a process would take a second to
start.

What only a process shows (pipes that close, terminals, signals) is in test_streams, test_terminal and
test_query_command.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultline.cli import run


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: bytes
    stderr: bytes


def faultline(*arguments: object, stdin: bytes = b"", cwd: Path | None = None, **environment: str) -> Done:
    """Runs the command to its end. Uses no service unless ``--server`` or ``FAULTLINE_SERVER`` is given."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in {"FAULTLINE_SERVER": "", **environment}.items():
            patch.setenv(name, value)
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        if cwd is not None:
            patch.chdir(cwd)
        code = run([str(argument) for argument in arguments])
        out.flush()
        err.flush()
    return Done(code, out.buffer.getvalue(), err.buffer.getvalue())  # type: ignore[attr-defined]
