"""Following files: every way in which logs are rotated, with the agent running, stopped or killed in the middle."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from collector.agent import rotation, wire
from collector.agent.failure import Missing
from collector.agent.runner import Runner
from collector.agent.source import Context
from collector.agent.sources.files import SOURCE


class Following:
    """The source as the agent runs it, with its own clock. ``crash`` drops all but stored positions."""

    def __init__(self, *paths: str, **options: Any) -> None:
        self.time = 1_000_000.0
        self.options = {**SOURCE.options, "paths": list(paths), "rescan_s": 1.0, **options}
        self.positions: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        self.lines: list[str] = []
        self.blind: list[str] = []
        #: By path.
        self.owners: dict[str, str] = {}
        self._begin()

    def _begin(self) -> None:
        context = Context(monotonic=lambda: self.time)
        self.runner = Runner(SOURCE, self.options, context, json.loads(json.dumps(self.positions)))

    def poll(self, times: int = 3, step: float = 1.1) -> Following:
        for _ in range(times):
            self.time += step
            for reading in self.runner.poll():
                for key, value in reading.positions.items():
                    self.positions[key] = value
                    if value is None:
                        del self.positions[key]
                for row in wire.records(reading.body):
                    self.lines += row.get("lines", "").split("\n") if "lines" in row else []
                    self.blind += [row["blind"]["reason"]] if "blind" in row else []
                    self.owners |= {row["path"]: row["owner"]} if "owner" in row else {}
        time.sleep(0.03)  # what is written from now on has a later time, by the file system's coarse clock too
        return self

    def restart(self, clean: bool = True) -> Following:
        if clean:
            self.runner.close()
        self._begin()
        return self


def write(path: Path, first: int, last: int, mode: str = "a") -> None:
    with path.open(mode) as stream:
        stream.writelines(f"line {n} of the log, long enough to be told from others\n" for n in range(first, last + 1))


def numbers(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    write(path, 1, 100)
    return path


def test_what_is_appended_comes_once(log: Path) -> None:
    followed = Following(str(log)).poll()
    write(log, 101, 150)
    followed.poll()
    assert numbers(followed.lines) == list(range(1, 151))


def test_a_line_without_its_end_waits_for_it(log: Path) -> None:
    followed = Following(str(log)).poll()
    with log.open("a") as stream:
        stream.write("line 101 of")
    followed.poll()
    assert numbers(followed.lines)[-1] == 100
    with log.open("a") as stream:
        stream.write(" the log\n")
    followed.poll()
    assert followed.lines[-1] == "line 101 of the log"


def test_a_last_line_without_its_end_comes_after_half_a_minute(log: Path) -> None:
    followed = Following(str(log)).poll()
    with log.open("a") as stream:
        stream.write("line 101 panic")
    followed.poll(step=20)
    assert followed.lines[-1] == "line 101 panic"


# ------------------------------------------------------------------------------- rotations, running and stopped


def by_rename(log: Path) -> None:
    log.rename(log.with_suffix(".log.1"))


def by_rename_with_date(log: Path) -> None:
    log.rename(log.with_name("app-20261121.log"))


def by_rename_and_gzip(log: Path) -> None:
    packed = log.with_name("app.log.1.gz")
    with log.open("rb") as plain, gzip.open(packed, "wb") as stream:
        shutil.copyfileobj(plain, stream)
    shutil.copystat(log, packed)
    log.unlink()


def by_rename_and_xz(log: Path) -> None:
    packed = log.with_name("app.log.1.xz")
    packed.write_bytes(lzma.compress(log.read_bytes()))
    shutil.copystat(log, packed)
    log.unlink()


def by_rename_and_zstd(log: Path) -> None:
    packed = log.with_name("app.log-20261121.zst")
    packed.write_bytes(zstandard.compress(log.read_bytes()))
    shutil.copystat(log, packed)
    log.unlink()


def by_copytruncate(log: Path) -> None:
    shutil.copyfile(log, log.with_name("app.log.1"))
    os.truncate(log, 0)


def by_copytruncate_and_gzip(log: Path) -> None:
    log.with_name("app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    os.truncate(log, 0)


ROTATIONS = [
    by_rename, by_rename_with_date, by_rename_and_gzip, by_rename_and_xz, by_rename_and_zstd, by_copytruncate,
    by_copytruncate_and_gzip,
]  # fmt: skip


@pytest.mark.parametrize("rotate", ROTATIONS)
@pytest.mark.parametrize("unread", [0, 1, 500])
@pytest.mark.parametrize("state", ["running", "stopped", "killed"])
def test_rotation_loses_and_repeats_nothing(log: Path, rotate: Callable[[Path], None], unread: int, state: str) -> None:
    followed = Following(str(log)).poll()
    if state != "running":
        followed.runner.close()
    write(log, 101, 100 + unread)
    rotate(log)
    write(log, 101 + unread, 300 + unread)
    if state != "running":
        followed.restart()
    followed.poll(6)
    assert sorted(numbers(followed.lines)) == list(range(1, 301 + unread))
    assert followed.blind == []
    followed.restart(clean=state != "killed").poll(3)
    write(log, 301 + unread, 301 + unread)
    followed.poll(3, step=40)
    assert sorted(numbers(followed.lines)) == list(range(1, 302 + unread)), "nothing again after a restart"


@pytest.mark.parametrize("rotate", [by_rename, by_copytruncate])
def test_several_generations_while_the_agent_is_away(log: Path, rotate: Callable[[Path], None]) -> None:
    followed = Following(str(log)).poll()
    followed.runner.close()
    first, second = log.with_name("app.log.1"), log.with_name("app.log.2")
    write(log, 101, 200)
    rotate(log)
    write(log, 201, 300)
    first.rename(second)
    rotate(log)
    packed = second.with_name("app.log.2.gz")
    packed.write_bytes(gzip.compress(second.read_bytes()))
    shutil.copystat(second, packed)
    second.unlink()
    write(log, 301, 400)
    followed.restart().poll(10)
    assert sorted(numbers(followed.lines)) == list(range(1, 401))
    assert followed.blind == []


@pytest.mark.parametrize("rotate", ROTATIONS)
def test_two_rotations_between_two_looks(log: Path, rotate: Callable[[Path], None]) -> None:
    followed = Following(str(log)).poll()
    generations: list[Path] = []
    for begin in (101, 201):
        write(log, begin, begin + 99)
        rotate(log)
        for fresh in set(log.parent.iterdir()) - {log} - set(generations):
            packed = fresh.suffix if fresh.suffix in (".gz", ".xz", ".zst") else ""
            generations.append(fresh.rename(log.with_name(f"app.log-{begin}{packed}")))
    write(log, 301, 310)
    followed.poll(8)
    assert sorted(numbers(followed.lines)) == list(range(1, 311))
    assert followed.blind == []


@pytest.mark.parametrize("rotate", [by_copytruncate, by_rename_and_gzip])
def test_a_log_that_was_empty_when_last_seen(log: Path, rotate: Callable[[Path], None]) -> None:
    """Nothing was read of it, so no content can be compared: its generation is new all the same."""
    followed = Following(str(log)).poll()
    by_rename_with_date(log)
    log.touch()
    followed.poll()
    write(log, 101, 200)
    rotate(log)
    write(log, 201, 210)
    followed.poll(6)
    assert sorted(numbers(followed.lines)) == list(range(1, 211))


def test_history_that_was_there_before_the_agent_is_not_read(log: Path) -> None:
    write(log.with_name("app.log.1"), 900, 950)
    followed = Following(str(log)).poll(6)
    assert numbers(followed.lines) == list(range(1, 101))


def test_a_daemon_that_writes_on_into_the_renamed_file(log: Path) -> None:
    followed = Following(str(log)).poll()
    stream = log.open("a")
    by_rename(log)
    write(log, 200, 210)
    followed.poll()
    stream.write("line 101 after the rename\n")
    stream.close()
    followed.poll()
    assert 101 in numbers(followed.lines)
    assert sorted(numbers(followed.lines)) == [*range(1, 102), *range(200, 211)]


def test_globs_that_match_generations_read_nothing_twice(log: Path) -> None:
    followed = Following(str(log) + "*").poll()
    by_rename(log)
    write(log, 101, 150)
    followed.poll(4, step=40)
    followed.restart().poll(4, step=40)
    by_rename_with_date(log)
    write(log, 151, 160)
    followed.poll(4, step=40)
    assert sorted(numbers(followed.lines)) == list(range(1, 161))


def test_a_file_that_is_rewritten_beyond_the_old_place_is_noticed(log: Path) -> None:
    """Size alone would not show it: the new content is longer than what was read."""
    followed = Following(str(log)).poll()
    write(log, 500, 700, mode="w")
    followed.poll()
    assert numbers(followed.lines) == [*range(1, 101), *range(500, 701)]
    assert any("truncated" in reason for reason in followed.blind)


def test_what_was_removed_unread_is_reported(log: Path) -> None:
    followed = Following(str(log)).poll()
    followed.runner.close()
    write(log, 101, 200)
    log.unlink()
    write(log, 300, 310)
    followed.restart().poll()
    assert numbers(followed.lines) == [*range(1, 101), *range(300, 311)]
    (reason,) = followed.blind
    assert "app.log" in reason and "byte" in reason


def test_a_new_file_with_the_inode_of_a_removed_one(log: Path) -> None:
    followed = Following(str(log)).poll()
    place = next(iter(followed.positions.values()))
    followed.runner.close()
    write(log, 300, 400, mode="w")  # same inode, other content
    followed.positions[f"files:{log}|x"] = {**place, "done": True}
    followed.restart().poll()
    assert numbers(followed.lines)[100:] == list(range(300, 401))


def test_an_archive_that_has_the_inode_of_an_empty_generation_is_another_file(log: Path) -> None:
    """A random search in CI found it: 303 lines came twice after a kill."""
    archive = log.with_name("app.log.2.gz")
    archive.write_bytes(gzip.compress(log.read_bytes()))
    status = archive.stat()
    place = rotation.Place(str(log), status.st_dev, status.st_ino)
    assert rotation.find(place.begun(b"")) is None
    assert rotation.find(place.begun(log.read_bytes()[: rotation.HEAD_BYTES])) == archive, (
        "one that the agent had begun"
    )
    assert rotation.find(place) == archive, "the same, as earlier versions stored it"


def test_archives_that_begin_alike_are_each_read_after_a_kill(tmp_path: Path) -> None:
    """Both were found while the agent was away, and nothing of them was read when it was killed again."""
    log, banner = tmp_path / "app.log", b"# a banner without a time\n" * 100
    for generation in (2, 1):
        lines = banner + b"".join(b"line %d\n" % (generation * 100 + n) for n in range(20))
        log.with_name(f"app.log.{generation}.gz").write_bytes(gzip.compress(lines))
    followed = Following(str(log))
    for path in sorted(tmp_path.iterdir()):
        status = path.stat()
        place = rotation.Place(str(log), status.st_dev, status.st_ino).begun(banner[: rotation.HEAD_BYTES])
        followed.positions[place.key()] = place.as_json()
    log.write_bytes(b"line 1\n")
    followed.restart(clean=False).poll(6)
    numbered = numbers([line for line in followed.lines if line.startswith("line")])
    assert sorted(numbered) == [1, *range(100, 120), *range(200, 220)]


def test_from_the_end_on_when_asked(log: Path) -> None:
    followed = Following(str(log), from_start=False).poll()
    write(log, 101, 102)
    followed.poll()
    assert numbers(followed.lines) == [101, 102]


def test_files_that_appear_later_are_read_from_their_start(tmp_path: Path) -> None:
    write(tmp_path / "a.log", 1, 3)
    followed = Following(str(tmp_path / "*.log"), from_start=False).poll()
    write(tmp_path / "b.log", 4, 6)
    followed.poll()
    assert numbers(followed.lines) == [4, 5, 6]


def test_bytes_that_are_no_text_and_long_lines_are_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "odd.log"
    path.write_bytes(b"caf\xe9 \xff\x00\r\n" + b"x" * 700_000 + b"\nend\n")
    context = Context()
    runner = Runner(SOURCE, {**SOURCE.options, "paths": [str(path)]}, context, {})
    rows = [row for _ in range(5) for reading in runner.poll() for row in wire.records(reading.body)]
    import base64

    data = b"\n".join(
        base64.b64decode(row["lines_base64"]) if "lines_base64" in row else row["lines"].encode() for row in rows
    )
    assert data + b"\n" == path.read_bytes()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_read_as_lines_wherever_it_is_cut(encoding: str, tmp_path: Path) -> None:
    path, lines = (
        tmp_path / "bmc.log",
        ["Fan 3 失败 \u0a00\u000b", "\u010a\u0a0a two", "three"],
    )  # halves that look like line ends
    data = "".join(f"{line}\n" for line in ("\ufeff" + lines[0], *lines[1:])).encode(encoding)
    runner = Runner(SOURCE, {**SOURCE.options, "paths": [str(path)], "rescan_s": 0.0}, Context(), {})
    found: list[str] = []
    for at in range(0, len(data), 5):
        with path.open("ab") as log:
            log.write(data[at : at + 5])
        found += [row["lines"] for reading in runner.poll() for row in wire.records(reading.body) if "lines" in row]
    assert "\n".join(found).split("\n") == lines


def test_no_file_is_a_status() -> None:
    runner = Runner(SOURCE, {**SOURCE.options, "paths": ["/nowhere/at-all/*.log"]}, Context(), {})
    assert list(runner.poll()) == []
    assert runner.status.state == "absent" and "/nowhere/at-all/*.log" in runner.status.detail
    with pytest.raises(Missing):
        next(_polled(runner))


def _polled(runner: Runner) -> Iterator[object]:
    source = SOURCE.make(Context(), {**SOURCE.options, "paths": ["/nowhere/at-all/*.log"]})
    source.open({})
    return iter(source.poll())


def test_only_numbers_dates_and_old_make_a_generation(tmp_path: Path) -> None:
    """slurmd.log is not an earlier slurm.log."""
    from collector.agent.rotation import siblings

    for name in (
        "slurm.log.1",
        "slurm.log-20261121.gz",
        "slurm-20261121.log",
        "slurm.log.old",
        "slurmd.log",
        "slurm.log.py",
    ):
        (tmp_path / name).write_text("x")
    found = {path.name for path in siblings(tmp_path / "slurm.log")}
    assert found == {"slurm.log.1", "slurm.log-20261121.gz", "slurm-20261121.log", "slurm.log.old"}
