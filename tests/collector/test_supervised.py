"""Threads that must live: an error in one is survived and reported; if it cannot be survived, it ends the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_disks import fill, needs_root, small_disk

from collector import supervised
from collector.spool import Spool, SpoolBroken, SpoolFull
from collector.supervised import Supervised


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "PAUSE_S", 0.0)


def test_a_thread_that_fails_is_begun_anew() -> None:
    tries: list[int] = []
    reported: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise MemoryError
        done.set()

    thread = Supervised("test", work, reported.append)
    thread.start()
    assert done.wait(240)
    thread.join(120)
    assert len(reported) == 3 and not thread.is_dead


def test_one_that_fails_again_and_again_gives_up_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    stated: list[str] = []
    monkeypatch.setattr(supervised, "give_up", stated.append)

    def work() -> None:
        raise OSError(24, "Too many open files")

    thread = Supervised("test", work)
    thread.start()
    thread.join(120)
    assert thread.is_dead and len(stated) == 1 and "open files" in stated[0]


def test_giving_up_ends_the_process_with_an_exit_code() -> None:
    code = "from collector.supervised import end_process; end_process('the thread that stores has ended')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == supervised.EXIT_CODE and "the thread that stores has ended" in done.stderr


def test_the_spool_survives_what_is_no_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "spool", min_free_bytes=0)
    original: Any = spool._append_all

    def fails(_batch: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(spool, "_append_all", fails)
    with pytest.raises(SpoolBroken, match="out of memory"):
        spool.append({"kind": "ingest"}, b"a").result(120)
    assert "out of memory" in (spool.trouble or "")
    monkeypatch.setattr(spool, "_append_all", original)
    until(lambda: spool.trouble is None)  # by itself, although nothing is sent
    spool.append({"kind": "ingest"}, b"b").result(120)
    spool.close()


def test_a_spool_whose_thread_is_gone_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "spool", min_free_bytes=0)

    def fails() -> None:
        raise MemoryError

    monkeypatch.setattr(spool, "_probe", fails)
    monkeypatch.setattr("collector.spool.PROBE_S", 0.001)
    spool._broken = "the disk is full"
    with spool._lock:
        spool._lock.notify_all()
    until(lambda: spool.ended is not None)
    with pytest.raises(SpoolFull, match="has ended"):
        spool.append({"kind": "ingest"}, b"a")
    assert "has ended" in (spool.trouble or "")


@needs_root
def test_a_full_disk_is_reported_before_anybody_sends_and_over_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        spool = Spool(disk / "spool", min_free_bytes=1 << 20)
        assert spool.trouble is None
        filler = fill(disk)
        until(lambda: spool.trouble is not None)
        assert "MB free" in (spool.trouble or "")
        with pytest.raises(SpoolFull):
            spool.append({"kind": "ingest"}, b"a")
        filler.unlink()
        until(lambda: spool.trouble is None)
        spool.append({"kind": "ingest"}, b"a").result(120)
        spool.close()


@needs_root
def test_a_disk_that_fills_under_a_write_is_tried_again_by_itself(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        spool = Spool(disk / "spool", min_free_bytes=0)
        filler = fill(disk)
        with pytest.raises(SpoolBroken, match="full"):
            spool.append({"kind": "ingest"}, b"a" * 100_000).result(120)
        assert "full" in (spool.trouble or "")
        filler.unlink()
        until(lambda: spool.trouble is None)
        assert spool.append({"kind": "ingest"}, b"a" * 100_000).result(120)
        spool.close()


@needs_root
def test_a_read_only_disk_is_reported_before_anybody_sends(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        spool = Spool(disk / "spool", min_free_bytes=0)
        spool.close()
        spool = Spool(disk / "spool", min_free_bytes=0)
        # The spool holds its files open, so the disk is bind-mounted elsewhere, and that mount is what turns read-only.
        spool.folder = tmp_path / "again"
        spool.folder.mkdir()
        mount = ["mount", "--bind", "-o", "ro", str(disk / "spool"), str(spool.folder)]
        subprocess.run(mount, check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(spool.folder)], check=True)
        try:
            until(lambda: spool.trouble is not None)
            assert "read-only" in (spool.trouble or "")
        finally:
            subprocess.run(["umount", "-l", str(spool.folder)], check=True)
        spool.folder = disk / "spool"
        until(lambda: spool.trouble is None)
        spool.close()
