"""Another process that holds a store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store import open_store
from store.duckdb.open_store import DATABASE

#: DuckDB's lock is all that others meet. To import the rest of a store would take half a second of CPU more.
HOLD = "import sys, duckdb; held = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, which has the store of ``folder`` open; it is made if it is not there."""
    open_store(folder).close()
    command = [sys.executable, "-c", HOLD, str(folder / DATABASE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        yield process
        process.communicate()
