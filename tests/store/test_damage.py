"""A write-ahead log with flipped bytes: said, kept, and never taken for none. What a kill leaves: removed, and said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from store import damage, mark, open_store
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
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, bytes]:
    """Database, log and mark of a store that was killed."""
    folder = tmp_path_factory.mktemp("killed") / "data"
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False, timeout=300)
    return (
        (folder / DATABASE).read_bytes(),
        damage.wal_of(folder / DATABASE).read_bytes(),
        mark.mark_of(folder / DATABASE).read_bytes(),
    )


def lay(folder: Path, killed: tuple[bytes, bytes, bytes], at: int | None) -> Path:
    folder.mkdir(exist_ok=True)
    log = bytearray(killed[1])
    if at is not None:
        log[at] ^= 0x5A
    (folder / DATABASE).write_bytes(killed[0])
    damage.wal_of(folder / DATABASE).write_bytes(log)
    mark.mark_of(folder / DATABASE).write_bytes(killed[2])
    return folder


def test_a_whole_log_is_read(tmp_path: Path, killed: tuple[bytes, bytes, bytes]) -> None:
    with open_store(lay(tmp_path / "data", killed, None)) as store:
        assert store.fact("fact 19") is not None
        assert store.lost == [] and not list((tmp_path / "data").glob("*.damaged-*"))


def places(log: bytes) -> list[int]:
    """Head (database, checkpoint, end of it), and the low, middle and high bytes of the lengths of some entries."""
    found, at, entries = [33, 35, 36], log.index(b"\xff\xff") + 2, []
    while at < len(log):
        entries.append(at)
        at += 16 + int.from_bytes(log[at : at + 8], "little")
    for entry in (entries[0], entries[len(entries) // 2], entries[-1]):
        found += [entry, entry + 1, entry + 4, entry + 7]
    return found


def test_no_flipped_byte_makes_the_engine_leave_out_a_part_of_its_log_unsaid(
    tmp_path: Path, killed: tuple[bytes, bytes, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    refused, told = [], []
    for at in places(killed[1]):
        folder = lay(tmp_path / f"at {at}", killed, at)
        before = damage.wal_of(folder / DATABASE).read_bytes()
        with capture_logs() as said:
            try:
                store = open_store(folder)
            except StoreError as error:
                assert "--without-log" in str(error) and damage.wal_of(folder / DATABASE).read_bytes() == before, at
                refused.append(at)
                continue
        with store:
            assert store.fact("fact 19") is None, f"{at}: nothing was lost?"
            (text,) = store.lost
            assert "committed transactions are missing" in text and "spool" in text, at
            assert [line["reason"] for line in said if line["event"] == "lines may be missing in the store"] == [text]
            (aside,) = folder.glob("*.damaged-*")
            assert aside.name in text and aside.read_bytes() == before and aside.stat().st_mode & 0o077 == 0
            store.set_fact("after", "all")
        with capture_logs() as said, open_store(folder) as store:
            assert len(store.lost) == 1, "told until the note is removed, and not twice"
            assert not [line for line in said if line["event"] == "lines may be missing in the store"]
        mark.note_of(folder / DATABASE).unlink()
        told.append(at)
    with capsys.disabled():
        print(f"\nflips of the log's head and lengths: refused at {refused}, opened and told at {told}, unsaid 0")
    assert told


def test_an_end_that_a_crash_tore_off_is_no_loss(tmp_path: Path, killed: tuple[bytes, bytes, bytes]) -> None:
    """What was never committed: half an entry behind the last commit."""
    folder = lay(tmp_path / "data", killed, None)
    with damage.wal_of(folder / DATABASE).open("ab") as file:
        file.write((5000).to_bytes(8, "little") + bytes(100))
    with open_store(folder) as store:
        assert store.fact("fact 19") is not None and store.lost == []
    assert not list(folder.glob("*.damaged-*"))


def test_the_mark_is_ours_alone_and_never_ahead(tmp_path: Path) -> None:
    with open_store(tmp_path / "data") as store:
        with pytest.raises(ZeroDivisionError), store.transaction():
            raise ZeroDivisionError
        known = mark.read(tmp_path / "data" / DATABASE)
        assert known is not None and str(known.count) == store.fact(mark.FACT)
        store.set_fact("a", "b")
        known = mark.read(tmp_path / "data" / DATABASE)
        assert known is not None and str(known.count) == store.fact(mark.FACT)
    assert mark.mark_of(tmp_path / "data" / DATABASE).stat().st_mode & 0o777 == 0o600
    damage.wal_of(tmp_path / "data" / DATABASE).unlink(missing_ok=True)
    with open_store(tmp_path / "data") as store:
        assert store.lost == []


@pytest.mark.parametrize("at", [0, 1, 3, 6, -3])
def test_a_damaged_log_is_said_with_what_to_do_and_kept(
    tmp_path: Path, killed: tuple[bytes, bytes, bytes], at: int
) -> None:
    folder = lay(tmp_path / "data", killed, at)
    log = damage.wal_of(folder / DATABASE)
    before = log.read_bytes()
    with pytest.raises(StoreError) as raised:
        open_store(folder)
    said = str(raised.value)
    assert str(log) in said and "damaged" in said and "spool" in said
    assert f"faultline archive --without-log --data {folder}" in said
    assert log.read_bytes() == before, "nothing is written over"


def test_it_goes_on_from_the_checkpoint_when_told_to(tmp_path: Path, killed: tuple[bytes, bytes, bytes]) -> None:
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
