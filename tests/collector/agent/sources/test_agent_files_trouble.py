"""Following files when something goes wrong with one of them: all others are read on, and nothing is lost or repeated.

Every case was found by reading, and lost or repeated lines before.
"""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.agent import rotation
from collector.agent.sources import files
from tests.collector.agent.sources.test_agent_files import (
    ROTATIONS,
    Following,
    by_copytruncate,
    by_rename,
    by_rename_with_date,
    numbers,
    write,
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    write(path, 1, 100)
    return path


def refusing(monkeypatch: pytest.MonkeyPatch, bad: Path, code: int) -> None:
    """Every operation on a file and its handles fails, as on a file server that lost it or a disk that cannot read it."""

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(what: Any, *more: Any, **others: Any) -> Any:
            try:
                path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else str(what)  # noqa: PTH115
            except OSError:
                path = ""
            if path == str(bad):
                raise OSError(code, os.strerror(code))
            return call(what, *more, **others)

        return asked

    for name in ("open", "stat", "fstat", "pread"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_cannot_be_read_stops_no_other_and_is_read_on_afterwards(
    code: int, restarted: bool, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = log.with_name("b.log")
    write(other, 1001, 1010)
    followed = Following(str(log.parent / "*.log")).poll()
    with monkeypatch.context() as patched:
        refusing(patched, log, code)
        write(log, 101, 150)
        write(other, 1011, 1020)
        if restarted:
            followed.restart()
        followed.poll(3, step=5)
        assert numbers(followed.lines)[110:] == list(range(1011, 1021))
        status = followed.runner.status
        assert status.state == "error" and str(log) in status.detail and os.strerror(code) in status.detail
    followed.poll()
    assert sorted(numbers(followed.lines)) == [*range(1, 151), *range(1001, 1021)]
    assert followed.blind == [] and followed.runner.status.state == "ok"


def test_a_file_that_was_never_readable_is_stated(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, log, errno.EACCES)
    followed = Following(str(log)).poll()
    assert followed.runner.status.state == "error" and str(log) in followed.runner.status.detail


def test_a_device_with_another_number_is_the_same_device(log: Path) -> None:
    """After a boot, and on file servers: the log was reported as gone, and read again from its start."""
    followed = Following(str(log)).poll()
    followed.runner.close()
    (key, place) = next((k, v) for k, v in followed.positions.items() if k.startswith("files:"))
    del followed.positions[key]
    followed.positions[key.replace("|", "|9")] = {**place, "device": int(f"9{place['device']}")}
    write(log, 101, 120)
    followed.restart().poll().restart().poll()
    assert numbers(followed.lines) == list(range(1, 121)) and followed.blind == []
    assert len([k for k in followed.positions if k.startswith("files:")]) == 1


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_log_whose_file_system_comes_late_is_read_on(restarts: int, log: Path) -> None:
    followed = Following(str(log)).poll()
    away = log.parent.rename(log.parent.with_name("elsewhere"))
    log.parent.mkdir()
    write(log.with_name("x.log"), 1, 1)
    for _ in range(restarts):
        followed.restart().poll()
    shutil.rmtree(log.parent)
    away.rename(log.parent)
    write(log, 101, 110)
    followed.poll(60, step=5)
    assert numbers(followed.lines) == list(range(1, 111))
    assert len(followed.blind) == 1 and not [key for key in followed.positions if key.startswith("gone:")]


def test_a_log_that_gets_its_name_back_is_followed(log: Path) -> None:
    followed = Following(str(log)).poll()
    log.rename(log.with_name("kept.aside"))
    followed.poll(3, step=40)
    log.with_name("kept.aside").rename(log)
    followed.poll(2, step=40)
    write(log, 101, 110)
    followed.poll()
    assert numbers(followed.lines) == list(range(1, 111))


@pytest.mark.parametrize("pattern", ["", "*"])
def test_a_daemon_that_is_quiet_and_writes_on_into_the_renamed_file(pattern: str, log: Path) -> None:
    """It was not signalled to reopen its log: what it logs an hour later is in the former one."""
    followed = Following(str(log) + pattern).poll()
    stream = log.open("a")
    by_rename(log)
    log.touch()
    followed.poll(3, step=1200)
    stream.write("line 101 an hour later\n")
    stream.flush()
    followed.poll()
    assert numbers(followed.lines) == list(range(1, 102))
    write(log, 102, 103)  # and in the end it was signalled
    followed.poll(3, step=40)
    if pattern:  # its last lines, after even that
        stream.write("line 104 of a daemon that ends\n")
        stream.flush()
        followed.poll()
        assert 104 in numbers(followed.lines)
    stream.close()
    assert sorted(numbers(followed.lines)) == list(range(1, 105 if pattern else 104))


def test_half_a_line_of_a_quiet_log_waits_for_its_other_half(log: Path) -> None:
    followed = Following(str(log)).poll(3, step=40)
    with log.open("a") as stream:
        stream.write("line 101 of")
    followed.poll(1)
    with log.open("a") as stream:
        stream.write(" a quiet log\n")
    followed.poll()
    assert followed.lines[-1] == "line 101 of a quiet log"


def test_a_file_that_is_written_anew_with_the_same_length_is_noticed(log: Path) -> None:
    followed = Following(str(log)).poll()
    size = log.stat().st_size
    write(log, 901, 1000, mode="w")
    os.truncate(log, size)
    followed.poll()
    assert set(numbers(followed.lines)) >= set(range(901, 995))
    assert any("truncated" in reason for reason in followed.blind)


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_globs_that_match_copies_read_nothing_twice(state: str, log: Path) -> None:
    followed = Following(str(log) + "*").poll()
    if state == "stopped":
        followed.runner.close()
    write(log, 101, 150)
    shutil.copyfile(log, log.with_name("app.log.1"))
    if state == "running":
        followed.poll(4)
    os.truncate(log, 0)
    write(log, 151, 160)
    if state == "stopped":
        followed.restart()
    followed.poll(4, step=40)
    shutil.copyfile(log, log.with_name("app.log-20261121"))  # a manual copy of a log that continues
    followed.poll(4, step=40).restart().poll(4, step=40)
    write(log, 161, 170)
    followed.poll(4, step=40)
    assert sorted(numbers(followed.lines)) == list(range(1, 171)) and followed.blind == []


def test_a_daemon_that_goes_on_behind_what_was_truncated_leaves_a_hole(log: Path) -> None:
    """Without O_APPEND: gigabytes of NULs were delivered as lines."""
    stream = log.open("r+")
    stream.seek(0, os.SEEK_END)
    followed = Following(str(log)).poll()
    by_copytruncate(log)
    stream.seek(3 << 30)
    stream.write("line 101 behind three gigabytes of nothing\n")
    stream.flush()
    followed.poll(4)
    assert numbers(followed.lines) == list(range(1, 102))
    (reason,) = followed.blind
    assert f"{3 << 30} NULs" in reason
    stream.close()


def test_room_that_was_made_for_lines_is_no_hole(log: Path) -> None:
    followed = Following(str(log)).poll()
    size = log.stat().st_size
    os.truncate(log, size + 100_000)
    followed.poll(3, step=40)
    with log.open("r+b") as stream:
        stream.seek(size)
        stream.write(b"line 101 in its place\n")
    followed.poll()
    assert numbers(followed.lines[:101]) == list(range(1, 102)) and followed.blind == []


def test_an_archive_in_the_making_is_not_taken_for_a_new_log(log: Path) -> None:
    """A compressor that gets no CPU for some seconds: the existing half was read as new lines."""
    followed = Following(str(log)).poll()
    by_rename(log)
    write(log, 101, 110)
    followed.poll(3, step=40)
    packed = gzip.compress(log.with_name("app.log.1").read_bytes())
    log.with_name("app.log.1.gz").write_bytes(packed[: len(packed) // 2])
    followed.poll(5)
    log.with_name("app.log.1.gz").write_bytes(packed)
    log.with_name("app.log.1").unlink()
    followed.poll(5)
    assert numbers(followed.lines) == list(range(1, 111)) and followed.blind == []


@pytest.mark.parametrize("rotate", ROTATIONS)
@pytest.mark.parametrize("unread", [1, 10_000])
def test_an_agent_killed_after_every_look_loses_and_repeats_nothing(
    log: Path, rotate: Callable[[Path], None], unread: int
) -> None:
    """The last line of an archive, shorter than what identifies a place, left a place that no file fitted: a file read
    to its end was reported as gone."""
    followed = Following(str(log)).poll()
    followed.runner.close()
    write(log, 101, 100 + unread)
    rotate(log)
    write(log, 101 + unread, 110 + unread)
    for _ in range(8):
        followed.restart(clean=False).poll(1)
    assert sorted(numbers(followed.lines)) == list(range(1, 111 + unread))
    assert followed.blind == []


@pytest.mark.parametrize("restarted", [False, True])
def test_archives_made_long_after_their_generations_were_read_are_not_read(restarted: bool, tmp_path: Path) -> None:
    """logrotate's delaycompress packs yesterday's generation. After a restart it was read again, as a new one; so were
    those of more than 32 logs without a restart."""
    logs = [tmp_path / f"app{n}.log" for n in range(40)]
    for n, log in enumerate(logs):
        write(log, 100 * n, 100 * n + 9)
    followed = Following(f"{tmp_path}/*.log").poll()
    for n, log in enumerate(logs):
        by_rename(log)
        write(log, 100 * n + 10, 100 * n + 19)
    followed.poll(4).poll(4, step=40)
    if restarted:
        followed.restart().poll()
    for n, log in enumerate(logs):
        first, second = log.with_suffix(".log.1"), log.with_suffix(".log.2")
        first.rename(second)
        by_rename(log)
        write(log, 100 * n + 20, 100 * n + 29)
        with second.open("rb") as plain, gzip.open(f"{second}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        shutil.copystat(second, f"{second}.gz")
        second.unlink()
    followed.poll(4).poll(4, step=40)
    assert sorted(numbers(followed.lines)) == [100 * n + line for n in range(40) for line in range(30)]
    assert followed.blind == []
    kept = Counter(key.partition(":")[0] for key in followed.positions)
    assert kept["files"] == kept["read"] == 40, "the live files and the newest generations"


@pytest.mark.parametrize("reused", [False, True])
def test_an_agent_killed_before_an_archive_was_judged_knows_it_afterwards(log: Path, reused: bool) -> None:
    """``reused``: where the file system allows it, the copy gets the inode of the generation that was packed."""
    followed = Following(str(log)).poll()
    by_rename(log)
    write(log, 101, 110)
    followed.poll(4).poll(4, step=40)
    two = log.with_name("app.log.1").rename(log.with_name("app.log.2"))
    two.with_name("app.log.2.gz").write_bytes(gzip.compress(two.read_bytes()))  # with a time of its own
    two.unlink()
    if not reused:
        log.with_name("another").touch()
    followed.poll(1)
    by_copytruncate(log)  # its copy is known at once: the list of those judged is stored, without the one removed
    write(log, 111, 120)
    followed.poll(1, step=0.2).restart(clean=False).poll(6)
    assert numbers(followed.lines) == list(range(1, 121)) and followed.blind == []


@pytest.mark.parametrize("lines", [2, 200])
def test_a_generation_that_was_begun_and_not_read_is_found_in_its_archive(log: Path, lines: int) -> None:
    """A batch was full between the start of a generation and its lines, and the agent was killed: packed meanwhile, the
    generation counted as read."""
    followed = Following(str(log)).poll()
    followed.runner.close()
    by_rename_with_date(log)
    write(log, 101, 100 + lines)
    by_rename(log)
    write(log, 101 + lines, 110 + lines)
    followed.restart().poll(1)
    followed.time += 1.1
    for reading in followed.runner.poll():
        if reading.body:
            break
        followed.positions |= reading.positions
    two = log.with_name("app.log.1")
    with two.open("rb") as plain, gzip.open(f"{two}.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    shutil.copystat(two, f"{two}.gz")
    two.unlink()
    followed.restart(clean=False).poll(6)
    assert sorted(numbers(followed.lines)) == list(range(1, 111 + lines)) and followed.blind == []


@pytest.mark.parametrize("ahead_s", [0, 3600], ids=["a sound clock", "a clock that was set back"])
def test_generations_that_came_while_the_agent_was_down_are_read_whatever_its_clock_showed(
    log: Path, ahead_s: int
) -> None:
    """With a clock that had been ahead, the first of two rotations looked older than what had been judged, and was
    lost without a word."""
    followed = Following(str(log)).poll()
    by_rename(log)
    write(log, 101, 110)
    followed.poll(4).poll(4, step=40)
    followed.runner.close()
    followed.positions[f"generations:{log}"]["at"] += ahead_s
    for first in (111, 121):
        write(log, first, first + 9)
        log.rename(log.with_name(f"app-{20261000 + first}.log"))
    write(log, 131, 140)
    followed._begin()
    followed.poll(6)
    assert sorted(numbers(followed.lines)) == list(range(1, 141)) and followed.blind == []


def test_a_file_with_the_inode_of_a_generation_of_which_nothing_was_read_is_new(log: Path) -> None:
    """An empty file is rotated, read to its end and removed. A file system that gives its inode to a log that rotates
    between two looks lost that log's lines."""
    followed = Following(str(log)).poll()
    by_rename_with_date(log)
    log.touch()
    followed.poll()
    by_rename(log)
    write(log, 101, 110)
    followed.poll(4).poll(4, step=40)
    write(log.with_name("app.log.1"), 111, 120)
    log.with_name("app.log.1").rename(log.with_name("app-20261122.log"))
    followed.poll(6)
    assert numbers(followed.lines) == list(range(1, 121)) and followed.blind == []


def test_a_generation_that_nobody_may_open_is_reported(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Following(str(log)).poll()
    followed.runner.close()
    write(log, 101, 120)
    by_rename(log)
    write(log, 121, 130)
    opened = files.open_safely

    def refuse(path: Path) -> int:
        if path.name == "app.log.1":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path)

    monkeypatch.setattr(files, "open_safely", refuse)
    followed.restart().poll()
    (reason,) = followed.blind
    assert "app.log.1" in reason and "Permission denied" in reason


def test_where_only_what_is_new_is_wanted_the_first_file_is_new(tmp_path: Path) -> None:
    followed = Following(str(tmp_path / "*.log"), from_start=False).poll()
    write(tmp_path / "a.log", 1, 3)
    followed.poll(3, step=70)
    assert numbers(followed.lines) == [1, 2, 3]


def test_a_folder_of_many_logs_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was listed for each of them: ten thousand logs in one folder took minutes."""
    for number in range(200):
        write(tmp_path / f"job-{number}.out", number, number)
    listed = [0]
    scandir = os.scandir

    def counted(*path: Any) -> Any:
        listed[0] += 1
        return scandir(*path)

    monkeypatch.setattr(os, "scandir", counted)
    followed = Following(str(tmp_path / "*.out")).poll(2)
    assert sorted(numbers(followed.lines)) == list(range(200))
    assert listed[0] < 10


def test_of_very_many_the_quiet_ones_are_looked_at_less_often(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MANY", 1)
    write(log.with_name("b.log"), 1001, 1001)
    followed = Following(str(log.parent / "*.log"), rescan_s=10.0).poll(2)
    followed.poll(1, step=700)
    write(log, 101, 101)
    followed.poll(1)
    assert 101 not in numbers(followed.lines)
    followed.poll(1, step=10)
    assert 101 in numbers(followed.lines)
    write(log, 102, 102)
    followed.poll(1)
    assert 102 in numbers(followed.lines), "now it speaks"


@pytest.mark.parametrize(
    ("name", "logs"),
    [
        ("app.log.1", {"app.log"}), ("app.log-20261121.gz", {"app.log", "app.log-20261121"}), ("slurmd.log", set()),
        ("slurm-20261121.log", {"slurm.log"}), ("app.log.2026-11-21_10", {"app.log", "app.log.2026", "app.log.2026-11", "app.log.2026-11-21"}),
        ("app.log.old", {"app.log"}), ("app.log.py", set()), ("app.log.gz", {"app.log"}), ("job-12.out", {"job.out"}), ("1", set()),
    ],
)  # fmt: skip
def test_of_which_logs_a_file_may_be_a_generation(name: str, logs: set[str]) -> None:
    assert rotation.logs_of(name) == logs
