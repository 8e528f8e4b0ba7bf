"""A write-ahead log with flipped bytes: said, kept, and never taken for none. What a kill leaves: removed, and said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from store import damage, open_store
from store.duckdb_store import DATABASE, StoreError

#: Stores facts, and is gone without a word: all since the first checkpoint lies in the log.
KILLED = """
import os, sys
from pathlib import Path
from store import open_store
store = open_store(Path(sys.argv[1]))
store.cursor().execute("CHECKPOINT")
for number in range(20):
    store.set_fact(f"fact {number}", "x" * 100)
os._exit(9)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Database and log of a store that was killed."""
    folder = tmp_path_factory.mktemp("killed") / "data"
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False, timeout=300)
    return (folder / DATABASE).read_bytes(), damage.wal_of(folder / DATABASE).read_bytes()


def lay(folder: Path, killed: tuple[bytes, bytes], at: int | None) -> Path:
    folder.mkdir(exist_ok=True)
    log = bytearray(killed[1])
    if at is not None:
        log[at] ^= 0x5A
    (folder / DATABASE).write_bytes(killed[0])
    damage.wal_of(folder / DATABASE).write_bytes(log)
    return folder


def test_a_whole_log_is_read(tmp_path: Path, killed: tuple[bytes, bytes]) -> None:
    with open_store(lay(tmp_path / "data", killed, None)) as store:
        assert store.fact("fact 19") is not None


@pytest.mark.parametrize("at", [0, 1, 3, 6, -3])
def test_a_damaged_log_is_said_with_what_to_do_and_kept(tmp_path: Path, killed: tuple[bytes, bytes], at: int) -> None:
    folder = lay(tmp_path / "data", killed, at)
    log = damage.wal_of(folder / DATABASE)
    before = log.read_bytes()
    with pytest.raises(StoreError) as raised:
        open_store(folder)
    said = str(raised.value)
    assert str(log) in said and "damaged" in said and "spool" in said
    assert f"faultline archive --without-log --data {folder}" in said
    assert log.read_bytes() == before, "nothing is written over"


def test_it_goes_on_from_the_checkpoint_when_told_to(tmp_path: Path, killed: tuple[bytes, bytes]) -> None:
    folder = lay(tmp_path / "data", killed, 80)
    before = damage.wal_of(folder / DATABASE).read_bytes()
    command = [sys.executable, "-m", "faultline.entry", "archive", "--without-log", "--data", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (aside,) = folder.glob("*.damaged-*")
    assert str(aside) in done.stdout and aside.read_bytes() == before
    with open_store(folder) as store:
        assert store.fact("fact 19") is None


def test_the_log_of_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    holder = "import sys; from pathlib import Path; from store import open_store; s = open_store(Path(sys.argv[1])); s.set_fact('a', 'b'); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(BlockingIOError):
            damage.set_aside(tmp_path / "data" / DATABASE)
        process.stdin.close()


def test_what_queries_spilled_before_a_kill_is_removed_and_said(tmp_path: Path) -> None:
    left = tmp_path / "data" / f"{DATABASE}.tmp" / "duckdb_temp_storage_DEFAULT-0.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(1000))
    with capture_logs() as said, open_store(tmp_path / "data"):
        assert not left.exists()
    (line,) = [line for line in said if "killed" in line["event"]]
    assert line["files"] == 1 and line["bytes"] == 1000


def test_half_a_batch_set_aside_is_removed_and_said(tmp_path: Path) -> None:
    from collector.quarantine import Quarantine

    (tmp_path / ".abc.draft").write_bytes(b"half")
    with capture_logs() as said:
        Quarantine(tmp_path)
    assert not list(tmp_path.iterdir()) and said[0]["files"] == 1
