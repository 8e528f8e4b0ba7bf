"""The liar's test: whatever a user writes, nobody else's verdict changes, and no node or link is blamed that was not.

In two captures and a simulated cluster a user with one job on one node (``liars.py``) writes examples of all
patterns of the catalogue through every channel that a user has. What docs/security.md leaves open is tested as the limit
that it states: a user of a node can make a line in the name of that node's kernel, which gives others' verdicts a
confidence of at most 0.5, on that node.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.simulators import scenario
from tests.correlator.liars import (
    SHARED_SURE,
    Limit,
    Stage,
    Way,
    concluded,
    harm,
    lies,
    staged,
    ways,
)
from tests.measured import Measured

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "tests" / "captures"
#: Each text goes one way in this many. The turn is another one for each tree, so together they take every way.
SHARE = 384
#: Of the channels for which docs/security.md states a limit, each tree gets one kind in its turn, one tree in this many.
LIMITED = 3


class Count:
    """What a test compared."""

    def __init__(self) -> None:
        self.trees, self.lines, self.verdicts, self.skipped = 0, 0, 0, 0
        self.harmed: list[str] = []
        self.begun = time.process_time()

    def __str__(self) -> str:
        return (
            f"{self.trees} trees ({self.skipped} without a run on a node with a syslog), {self.lines} lines injected, {self.verdicts} verdicts "
            f"compared, changed: {len(self.harmed)}; {time.process_time() - self.begun:.0f} s of CPU"
        )


def rounds(stage: Stage) -> Iterator[tuple[Limit | None, list[Way]]]:
    """What is written together: all channels of which nothing is left open, then those that are, by what it is."""
    channels = ways(stage)
    limits = {
        "": None, "near kernel": Limit(stage.near, SHARED_SURE), "near daemon": Limit(stage.near, 1.0, 1.0),
        "far kernel": Limit(stage.far, SHARED_SURE), "far daemon": Limit(stage.far, 1.0, 1.0), "switch": Limit(stage.switch, 1.0),
    }  # fmt: skip
    for bound, limit in limits.items():
        if some := [way for way in channels if way.bound == bound]:
            yield limit, some


def tell(place: Path, turn: int, count: Count, share: int = SHARE) -> None:
    """Judges one tree without and with the lies."""
    with TemporaryDirectory() as folder:
        stage = staged(place, Path(folder))
        if stage is None:
            count.skipped += 1
            return
        peace, quiet = concluded(stage, {})
        count.trees += 1
        unlimited, *limited = rounds(stage)
        chosen = [limited[turn // LIMITED % len(limited)]] if turn % LIMITED == 0 else []
        for limit, some in (unlimited, *chosen):
            few = share if limit is None else max(1, share // 16)
            told = lies(stage, some, few, turn)
            found, stored = concluded(stage, told)
            count.lines += stored - quiet
            count.verdicts += len(peace["verdicts"])
            name = place.name.removesuffix(".tar.xz")
            count.harmed += [
                f"{name} ({some[0].bound or 'nothing open'}): {what}" for what in harm(peace, found, limit)
            ]


@pytest.mark.parametrize("name", ["job_faults", "endings/exit_codes_small"])
def test_no_lie_changes_anothers_verdict(name: str) -> None:
    count = Count()
    tell(CAPTURES / name, 3, count)
    print(count)
    assert count.trees == 1 and count.lines > 300 and count.verdicts >= 2
    assert not count.harmed, "\n".join(count.harmed)


@pytest.mark.long
def test_no_lie_changes_anothers_verdict_in_a_simulated_cluster(tmp_path: Path, measured: Measured) -> None:
    scenario.make(7, tmp_path)
    count = Count()
    tell(tmp_path / "logs" if (tmp_path / "logs").is_dir() else tmp_path, 3, count)
    measured(str(count))
    assert count.trees == 1 and not count.harmed, "\n".join(count.harmed)


def test_the_same_words_of_the_kernels_own_ring_do_change_it(tmp_path: Path) -> None:
    """The comparison can fail: root's channel."""
    stage = staged(CAPTURES / "endings" / "exit_codes_small", tmp_path)
    assert stage is not None
    peace, _ = concluded(stage, {})
    ring = f"hosts/{stage.near}/dmesg.log"
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
    lines = [f"[{datetime.fromisoformat(at):%a %b %e %H:%M:%S %Y}] {xid}" for at in stage.moments]
    found, _ = concluded(stage, {ring: lines})
    assert harm(peace, found)
