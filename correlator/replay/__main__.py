"""The process of one replay: ``python -m correlator.replay FOLDER``.

FOLDER has the rows (``NAME.arrow``) and ``question.json``; the answer is written there as ``answer.json``. It may be killed at
any time: it holds nothing that anything else needs, and ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import polars as pl

from correlator.replay.neighbourhood import Neighbourhood
from correlator.replay.process import ANSWER, QUESTION
from correlator.replay.replay import Subject, replay

_PDEATHSIG = 1
#: Nice steps below the service: nobody's page waits for a core because of a replay.
_NICER = 10


def main(folder: Path) -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICER)
    question = json.loads((folder / QUESTION).read_text())
    resource.setrlimit(resource.RLIMIT_DATA, (question["memory"],) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    near = Neighbourhood(
        {name: pl.read_ipc(folder / f"{name}.arrow") for name in question["tables"]},
        datetime.fromisoformat(question["since"]), datetime.fromisoformat(question["until"]),
        {(host, source): seconds for host, source, seconds in question["delays"]}, question["left_out"],
    )  # fmt: skip
    found = replay(
        near, Subject(**question["subject"]), question["settings"], [Path(path) for path in question["edge_paths"]]
    )
    (folder / ANSWER).write_text(json.dumps(asdict(found), default=datetime.isoformat))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
