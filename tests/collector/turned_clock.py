"""A wall clock that a test changes while a process runs (libfaketime; Debian: faketime).

The kernel's monotonic clock is left alone, as it is when a real clock is set. libfaketime 0.9.10 then breaks
clock_nanosleep, which Python's sleep uses, so the process gets another sleep. It reads the file when more whole seconds
have passed than its cache may last, so with 0 once a second: reading it on every query of the time, which every wait
for a lock makes, cost an idle service a whole core.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
needs_faketime = pytest.mark.skipif(LIBRARY is None, reason="faketime is not installed")
#: Seconds after which a change is visible.
SEEN_S = 1.5
_SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds) and None\n"


class Clock:
    """``environment`` is for the process; ``turn("+2h")`` shows it a clock that far from the real one."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SLEEP)
        self.turn("+0")
        self.environment = {
            "LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(self._file), "FAKETIME_CACHE_DURATION": "0",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        }  # fmt: skip

    def turn(self, offset: str) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(offset)
        new.replace(self._file)
