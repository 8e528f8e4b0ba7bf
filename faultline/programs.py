"""Programs that the service calls, of Slurm or of the site: each has a time limit, and ends when the service ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

#: How often it is looked whether the service ends, in seconds.
LOOK_S = 0.2


class ServiceEndsError(Exception):
    """The service ends, so the program was killed or not begun. What it did is not known."""


def finished(
    argv: Sequence[str], timeout_s: float, stdin: bytes = b"", *, stderr: int = subprocess.STDOUT,
    ended: threading.Event | None = None, env: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:  # fmt: skip
    """Exit code, standard output and standard error of a program. All of its processes are killed at the time limit, or as
    soon as ``ended`` is set. ``stderr``: as in ``subprocess.Popen``; by default it is part of the output.

    Raises ``subprocess.TimeoutExpired``, ``OSError`` and ``ServiceEndsError``.
    """
    if ended is not None and ended.is_set():
        raise ServiceEndsError("the service ends")
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True, env=env
    )
    try:
        out, error = _communicated(process, timeout_s, stdin, ended)
    except BaseException:
        _kill(process)
        raise
    return process.returncode, out.decode("utf-8", "replace"), (error or b"").decode("utf-8", "replace")


def _communicated(
    process: subprocess.Popen[bytes], timeout_s: float, stdin: bytes, ended: threading.Event | None
) -> tuple[bytes, bytes | None]:
    end, given = time.monotonic() + timeout_s, stdin
    while True:
        left = max(0.0, end - time.monotonic())
        try:
            return process.communicate(given, timeout=left if ended is None else min(LOOK_S, left))
        except subprocess.TimeoutExpired:
            if ended is not None and ended.is_set():
                raise ServiceEndsError("the service ends") from None
            if time.monotonic() >= end:
                raise
            given = b""  # what is left of it, communicate knows


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with suppress(subprocess.TimeoutExpired):  # one that the kernel cannot end (state D) is left behind
        process.wait(timeout=2)
    for pipe in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


__all__ = ["ServiceEndsError", "finished"]
