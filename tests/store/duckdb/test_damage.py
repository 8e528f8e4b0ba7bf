"""A write-ahead log with flipped bytes is reported, kept, and never ignored.

The remains of a kill are removed, and reported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from store import open_store
from store.duckdb import commit_mark as mark
from store.duckdb import damage, log_head
from store.duckdb.open_store import DATABASE
from store.errors import StoreError
from tests.faultline.command import faultline
from tests.measured import Measured

#: Stores facts, and is killed: everything since the first checkpoint is in the log.
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


def entries(log: bytes, start: int) -> list[int]:
    """Where each entry begins."""
    found, at = [], start
    while at < len(log):
        found.append(at)
        at += log_head.ENTRY + int.from_bytes(log[at : at + 8], "little")
    assert at == len(log)
    return found


def places(log: bytes) -> dict[str, int]:
    """The flipped bytes, by name.

    They are every kind of byte of the head, and low and high bytes of the lengths of some entries.
    """
    head = log_head.read_head(log)
    assert head is not None
    first = head.database_at.start
    # A byte of the identifier from 0x80 on takes two. The engine keeps bit 0 of the second, which the flip of 0x5A does
    # not affect.
    second_bytes = [at for at in head.database_at if log[at - 1] >= 0x80 and at > first]
    first_bytes = [at for at in head.database_at if at not in second_bytes]
    assert len(first_bytes) == 16
    found = {
        "count of the identifier": first - 1, "database, first byte": first, "database, last byte": first_bytes[-1],
        "field of the checkpoint": head.database_at.stop, "checkpoint": head.checkpoint_at[0], "end": head.length - 2,
    }  # fmt: skip
    if second_bytes:  # all but one identifier in 65,536 has one
        found["database, ignored bits"] = second_bytes[0]
    starts = entries(log, head.length)
    for name, start in {"first": starts[0], "middle": starts[len(starts) // 2], "last": starts[-1]}.items():
        found |= {f"length of the {name} entry, byte {byte}": start + byte for byte in (0, 1, 4, 7)}
    return found


@pytest.mark.parametrize(
    "everywhere", [False, pytest.param(True, marks=pytest.mark.long)], ids=["the head and one entry", "everywhere"]
)
def test_no_flipped_byte_makes_the_engine_leave_out_a_part_of_its_log_unstated(
    everywhere: bool, tmp_path: Path, killed: tuple[bytes, bytes, bytes], measured: Measured
) -> None:
    """Whatever byte is flipped, one of three holds.

    The store is refused, all facts are there, or it reports what is missing.
    """
    outcomes: dict[str, list[str]] = {"refused": [], "nothing lost": [], "loss reported": []}
    for name, at in places(killed[1]).items():
        if not everywhere and ("first entry" in name or "last entry" in name):
            continue
        folder = lay(tmp_path / f"at {at}", killed, at)
        before = damage.wal_of(folder / DATABASE).read_bytes()
        with capture_logs() as stated:
            try:
                store = open_store(folder)
            except StoreError as error:
                assert "--without-log" in str(error) and damage.wal_of(folder / DATABASE).read_bytes() == before, name
                outcomes["refused"].append(name)
                continue
        reports = [line["reason"] for line in stated if line["event"] == "lines may be missing in the store"]
        with store:
            if all(store.fact(f"fact {number}") == "x" * 100 for number in range(20)):
                assert store.lost == [] and not reports and not list(folder.glob("*.damaged-*")), name
                outcomes["nothing lost"].append(name)
                continue
            (text,) = store.lost
            assert "committed transactions are missing" in text and "spool" in text, name
            assert reports == [text], name
            (aside,) = folder.glob("*.damaged-*")
            assert aside.name in text and aside.read_bytes() == before and aside.stat().st_mode & 0o077 == 0, name
            store.set_fact("after", "all")
        with capture_logs() as stated, open_store(folder) as store:
            assert len(store.lost) == 1, "kept until the note is removed, and not twice"
            assert not [line for line in stated if line["event"] == "lines may be missing in the store"]
        mark.note_of(folder / DATABASE).unlink()
        outcomes["loss reported"].append(name)
    texts = "; ".join(f"{k}: {', '.join(v)}" for k, v in outcomes.items())
    measured(f"flips of the log's head and lengths: {texts}")
    assert set(outcomes["nothing lost"]) <= {"database, ignored bits"}, "every other byte matters"
    assert outcomes["refused"] and outcomes["loss reported"]


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1), st.binary(max_size=40))
def test_a_head_is_read_whatever_its_random_bytes_are(database: bytes, checkpoint: int, behind: bytes) -> None:
    """The engine's layout, written here independently; the identifier may contain the two bytes that end an object."""

    def varint(value: int) -> bytes:
        return (bytes([value & 0x7F | 0x80]) + varint(value >> 7)) if value > 0x7F else bytes([value])

    numbers = b"".join(varint(byte) for byte in database)
    data = b"d\0be\0\x02f\0\x10" + numbers + b"g\0" + varint(checkpoint) + b"\xff\xff"
    head = log_head.read_head(data + behind)
    assert head is not None and (head.version, head.database, head.checkpoint) == (2, database, checkpoint)
    assert head.length == len(data) <= log_head.LONGEST
    assert data[head.database_at.start : head.database_at.stop] == numbers
    assert all(log_head.read_head(data[:end]) is None for end in range(len(data))), "torn while it was written"


def test_an_end_that_a_crash_tore_off_is_no_loss(tmp_path: Path, killed: tuple[bytes, bytes, bytes]) -> None:
    """What was never committed: half an entry after the last commit."""
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
def test_a_damaged_log_is_stated_with_what_to_do_and_kept(
    tmp_path: Path, killed: tuple[bytes, bytes, bytes], at: int
) -> None:
    folder = lay(tmp_path / "data", killed, at)
    log = damage.wal_of(folder / DATABASE)
    before = log.read_bytes()
    with pytest.raises(StoreError) as raised:
        open_store(folder)
    stated = str(raised.value)
    assert str(log) in stated and "damaged" in stated and "spool" in stated
    assert f"faultline archive --without-log --data {folder}" in stated
    assert log.read_bytes() == before, "nothing is written over"


def test_it_goes_on_from_the_checkpoint_when_told_to(tmp_path: Path, killed: tuple[bytes, bytes, bytes]) -> None:
    folder = lay(tmp_path / "data", killed, 80)
    before = damage.wal_of(folder / DATABASE).read_bytes()
    done = faultline("archive", "--without-log", "--data", folder)
    assert done.returncode == 0, done.stderr
    (aside,) = folder.glob("*.damaged-*")
    assert str(aside).encode() in done.stdout and aside.read_bytes() == before
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


def test_what_queries_spilled_before_a_kill_is_removed_and_stated(tmp_path: Path) -> None:
    left = tmp_path / "data" / f"{DATABASE}.tmp" / "duckdb_temp_storage_DEFAULT-0.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(1000))
    with capture_logs() as stated, open_store(tmp_path / "data"):
        assert not left.exists()
    (line,) = [line for line in stated if "killed" in line["event"]]
    assert line["files"] == 1 and line["bytes"] == 1000


def test_half_a_batch_set_aside_is_removed_and_stated(tmp_path: Path) -> None:
    from collector.quarantine import Quarantine

    (tmp_path / ".abc.draft").write_bytes(b"half")
    with capture_logs() as stated:
        Quarantine(tmp_path)
    assert not list(tmp_path.iterdir()) and stated[0]["files"] == 1
