"""A random search over writes, rotations, looks and kills: whatever their order, every line comes once.

The agent also looks in the middle of a rotation, and a kill loses what it has not stored yet. FAULTLINE_SEED=n repeats
one trial; FAULTLINE_TRIALS sets how many there are.
"""

from __future__ import annotations

import gzip
import os
import random
import secrets
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from collector.agent import wire
from collector.agent.source import Reading
from tests.collector.agent.sources.test_agent_files import Following, numbers
from tests.measured import Measured

SEED = os.environ.get("FAULTLINE_SEED")
TRIALS = 1 if SEED else int(os.environ.get("FAULTLINE_TRIALS", "150"))


class Host:
    """A log that is written and rotated, and an agent that looks at it now and then, while it is alive."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance, self.log = random.Random(seed), folder / "app.log"
        self.words = self.chance.choice(["", "", " of the log, long enough to be told from others"])
        self.written = self.generation = 0
        self.rotations = self.chance.choice(
            [("rename", "packed", "copied", "copied and packed"), ("shifted", "shifted and packed")]
        )
        self.write(10)
        self.agent = Following(str(self.log), rescan_s=self.chance.choice([0.2, 1.0, 10.0]))
        self.alive, self.read = True, list[Reading]()
        while not self.agent.lines:
            self.look()
        time.sleep(0.02)  # the file system's coarse clock

    def write(self, count: int) -> None:
        with self.log.open("a") as stream:
            stream.writelines(f"line {self.written + n}{self.words}\n" for n in range(1, count + 1))
        self.written += count

    def look(self) -> None:
        """One turn of the agent; what it read is mostly stored, together."""
        self.agent.time += self.chance.choice([0.0, 0.06, 0.3, 1.1, 40.0])
        for reading in self.agent.runner.poll():
            self.read.append(reading)
            if self.chance.random() < 0.02:  # a batch is full
                self.store()
        if self.chance.random() < 0.7:
            self.store()

    def store(self) -> None:
        for reading in self.read:
            self.agent.positions |= reading.positions
            for row in wire.records(reading.body):
                self.agent.lines += row["lines"].split("\n") if "lines" in row else []
                self.agent.blind += [row["blind"]["reason"]] if "blind" in row else []
        self.agent.positions = {key: value for key, value in self.agent.positions.items() if value is not None}
        self.read = []

    def start(self) -> None:
        self.agent.restart(clean=False)
        self.alive = True

    def kill(self) -> None:
        self.alive, self.read = False, []

    def act(self) -> None:
        """Something happens."""
        kind = self.chance.choices(["write", "rotate", "look", "kill", "nothing"], [35, 25, 20, 10, 10])[0]
        if kind == "write":
            self.write(self.chance.choice([1, 2, 10, 300, 6000]))
        elif kind == "rotate":
            self.rotate(self.chance.choice(self.rotations))
        elif kind == "look" and self.alive:
            self.look()
        elif kind == "kill" and self.alive:
            self.kill()
        elif kind == "kill":
            self.start()
            self.look()
        if self.chance.random() < 0.5:
            time.sleep(0.015)

    def rotate(self, how: str) -> None:
        self.generation += 1
        old = self.log.with_name(f"app.log-{20260000 + self.generation}")
        if how.startswith("copied"):
            old.write_bytes(self.log.read_bytes())
            self.meanwhile()
            os.truncate(self.log, 0)
        else:
            if how.startswith("shifted"):
                old = self.shift()
            self.log.rename(old)
            self.meanwhile()
            self.log.touch()
        if how == "shifted and packed":
            old = self.log.with_name("app.log.2")
        if how.endswith("packed") and old.exists():
            self.meanwhile()
            packed = old.with_name(f"{old.name}.gz")
            packed.write_bytes(gzip.compress(old.read_bytes()))
            self.meanwhile()
            shutil.copystat(old, packed)
            old.unlink()

    def shift(self) -> Path:
        """Renames app.log.1 to app.log.2 and so on; returns the name that is free now."""
        older = [path for path in self.log.parent.iterdir() if path.name.startswith("app.log.")]
        for path in sorted(older, key=lambda path: -int(path.name.split(".")[2])):
            number, _, packed = path.name.removeprefix("app.log.").partition(".")
            path.rename(path.with_name(f"app.log.{int(number) + 1}{packed and '.'}{packed}"))
        return self.log.with_name("app.log.1")

    def meanwhile(self) -> None:
        if self.alive and self.chance.random() < 0.3:
            self.look()

    def end(self) -> None:
        """The agent reads all that is left."""
        if not self.alive:
            self.start()
        time.sleep(0.03)
        for _ in range(60 + self.generation):
            self.agent.time += 1.1
            self.read += self.agent.runner.poll()
            self.store()
        self.agent.runner.close()


def lived(folder: Path, seed: int) -> Host:
    """A host after one trial."""
    folder.mkdir()
    host = Host(folder, seed)
    for _ in range(host.chance.randint(5, 25)):
        host.act()
    host.end()
    return host


def test_a_log_that_was_not_found_yet_when_its_generations_were_judged(tmp_path: Path) -> None:
    """The search found it: the log was rotated twice between two looks, and the agent was killed before the second one
    was stored. The new log's archive was as old as its lines, older than the judgement, and passed for read."""
    host = lived(tmp_path / "log", 288020081)
    assert sorted(numbers(host.agent.lines)) == list(range(1, host.written + 1)) and not host.agent.blind


@pytest.mark.long
def test_every_line_comes_once_whatever_the_order(tmp_path: Path, measured: Measured) -> None:
    lines = rotations = 0
    for trial in range(TRIALS):
        seed = int(SEED or secrets.randbelow(1 << 31))
        folder = tmp_path / str(trial)
        host = lived(folder, seed)
        wanted, found = Counter(range(1, host.written + 1)), Counter(numbers(host.agent.lines))
        lost, twice = wanted - found, found - wanted
        stated = f"FAULTLINE_SEED={seed}: {len(lost)} lost, first {min(lost, default=0)}; {len(twice)} twice, first {min(twice, default=0)}"
        assert not lost and not twice and not host.agent.blind, (
            f"{stated}; {host.agent.blind}; {sorted(p.name for p in folder.iterdir())}"
        )
        lines, rotations = lines + host.written, rotations + host.generation
        shutil.rmtree(folder)
    measured(f"{TRIALS} trials, {rotations} rotations, {lines:,} lines: 0 lost, 0 twice")
