"""Runs a replay in a process of its own, which is killed at its deadline and has a limit of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from correlator.replay.neighbourhood import Neighbourhood
from correlator.replay.replay import Subject

_ROOT = Path(__file__).parents[2]
QUESTION, ANSWER = "question.json", "answer.json"
#: A replay takes two seconds of CPU for 300 lines, and 20 s for a day of 48 nodes at 28 moments; a busy machine takes five times as long.
LIMIT_S = 300.0
#: What the process may allocate, bytes.
MEMORY = 2 * 2**30


class ReplayFailedError(Exception):
    """The process ended without an answer; the text says why."""


def replayed(
    near: Neighbourhood, subject: Subject, settings: Mapping[str, object] | None = None, edge_paths: Sequence[Path] = (),
    limit_s: float = LIMIT_S,
) -> dict[str, Any]:  # fmt: skip
    """The fields of a ``Replay``. Raises ``ReplayFailedError``."""
    with tempfile.TemporaryDirectory(prefix="faultline-replay-") as name:
        folder = Path(name)
        for table, rows in near.tables.items():
            rows.write_ipc(folder / f"{table}.arrow")
        question = {
            "tables": list(near.tables), "since": near.since, "until": near.until, "left_out": near.left_out,
            "delays": [[host, source, seconds] for (host, source), seconds in near.delays.items()],
            "subject": asdict(subject), "settings": dict(settings or {}), "edge_paths": [str(path) for path in edge_paths],
            "memory": MEMORY,
        }  # fmt: skip
        (folder / QUESTION).write_text(json.dumps(question, default=str))
        near.tables.clear()  # the process has them now
        _run(folder, limit_s)
        found: dict[str, Any] = json.loads((folder / ANSWER).read_text())
    return found


def _run(folder: Path, limit_s: float) -> None:
    """Starts the process and waits for its end, or ends it."""
    env = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    env |= {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # others reserve a gigabyte at once, which the limit would count
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "correlator.replay", str(folder)], env=env, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=errors, stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise ReplayFailedError(f"it did not end within {limit_s:g} s") from None
        finally:
            process.kill()
            process.wait()
    if code != 0 or not (folder / ANSWER).exists():
        words = (folder / "stderr").read_text(errors="replace").strip().splitlines()
        raise ReplayFailedError(f"it ended with status {code}: {words[-1] if words else 'it said nothing'}")
