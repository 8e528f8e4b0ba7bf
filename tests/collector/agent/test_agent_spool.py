"""The agent's spool: every batch is delivered or told as lost, whatever is killed, cut off or full."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.agent.failure import AgentError
from collector.agent.spool import Loss, Spool

KB = 1024


def opened(folder: Path, cap: int = 1024 * KB) -> Spool:
    spool = Spool(folder, cap, report)
    spool.open(lambda: "epoch-1", 1000.0)
    return spool


def report(loss: Loss) -> bytes:
    return json.dumps(loss.as_json()).encode()


def crash(spool: Spool) -> None:
    """As kill -9 leaves it: nothing is written down, only the kernel lets the lock go."""
    assert spool._lock_file is not None and spool._answers is not None
    spool._lock_file.close()
    os.close(spool._answers)


def drained(spool: Spool) -> tuple[list[int], int, list[int]]:
    """(sequences delivered with lines, lines told as lost, all sequences seen)."""
    delivered, lost, seen = [], 0, []
    while (batch := spool.first()) is not None:
        seen.append(batch.sequence)
        if batch.lost:
            lost += sum(json.loads(batch.payload)["lines"].values())
        else:
            delivered.append(batch.sequence)
        spool.acknowledge(batch.sequence)
    return delivered, lost, seen


def test_batches_come_back_in_order_and_once(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for n in range(5):
        spool.append(b"payload %d" % n, {"files": 10}, 1000.0 + n, {"files:a": n})
    first = spool.first()
    assert first is not None and (first.sequence, first.payload, first.lines) == (1, b"payload 0", {"files": 10})
    assert drained(spool)[0] == [1, 2, 3, 4, 5]
    assert spool.first() is None


def test_positions_and_numbers_survive_kill_minus_nine(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for n in range(1, 4):
        spool.append(b"x", {"files": 1}, 1000.0, {"a": n, "gone": n})
    spool.append(b"x", {"files": 1}, 1000.0, {"gone": None})
    spool.sync()
    crash(spool)
    again = opened(tmp_path)
    assert again.epoch == "epoch-1"
    assert again.positions() == {"a": 3}
    assert again.append(b"y", {"files": 1}, 1001.0) == 5


def test_positions_survive_the_removal_of_their_segments(tmp_path: Path) -> None:
    spool = opened(tmp_path, 64 * KB)
    spool.append(b"x", {"files": 1}, 1000.0, {"early": 1})
    for n in range(40):
        spool.append(random.Random(n).randbytes(4 * KB), {"files": 1}, 1000.0, {"late": n})
        batch = spool.first()
        assert batch is not None
        spool.acknowledge(batch.sequence)
    crash(spool)
    assert opened(tmp_path).positions() == {"early": 1, "late": 39}


@pytest.mark.parametrize("cut", [1, 3, 10, 16, 40, 80])
def test_a_batch_that_a_crash_cut_off_was_never_there(tmp_path: Path, cut: int) -> None:
    spool = opened(tmp_path)
    spool.append(b"whole", {"files": 1}, 1000.0, {"a": 1})
    spool.sync()
    size = spool.size
    spool.append(b"cut off" * 10, {"files": 1}, 1000.0, {"a": 2})
    crash(spool)
    (segment,) = tmp_path.glob("*.seg")
    with segment.open("r+b") as stream:
        stream.truncate(size + cut)
    again = opened(tmp_path)
    assert again.positions() == {"a": 1}, "its lines are read again"
    assert again.append(b"new", {}, 1001.0) == 2, "and its number was never sent"


def test_a_damaged_batch_is_told_as_a_loss_under_its_own_number(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for text in (b"first ", b"second", b"third "):
        spool.append(text, {"kmsg": 7}, 1000.0)
    (segment,) = tmp_path.glob("*.seg")
    segment.write_bytes(segment.read_bytes().replace(b"second", b"sXcond"))
    delivered, lost, seen = drained(spool)
    assert (delivered, lost, seen) == ([1, 3], 7, [1, 2, 3])


def test_full_drops_the_oldest_but_the_first_and_counts_exactly(tmp_path: Path) -> None:
    spool = opened(tmp_path, 512 * KB)
    for n in range(300):
        spool.append(random.Random(n).randbytes(5 * KB), {"files": 3, "kmsg": 1}, 1000.0 + n)
        assert spool.size <= 512 * KB
    delivered, lost, seen = drained(spool)
    assert delivered[0] == 1, "the first may have reached the service before its answer was lost"
    assert delivered[-1] == max(seen), "the newest is what explains the present"
    assert len(delivered) > 80, "most of the cap is used"
    assert 4 * len(delivered) + lost == 4 * 300


def test_the_report_of_a_loss_names_kinds_and_times(tmp_path: Path) -> None:
    spool = opened(tmp_path, 256 * KB)
    for n in range(100):
        spool.append(random.Random(n).randbytes(5 * KB), {"files": 3, "kmsg": 1}, 1000.0 + n)
    losses = []
    while (batch := spool.first()) is not None:
        if batch.lost:
            losses.append(json.loads(batch.payload))
        spool.acknowledge(batch.sequence)
    assert min(loss["since"] for loss in losses) == 1001.0
    assert max(loss["until"] for loss in losses) < 1099.0, "what is delivered is not in the blind period"
    assert all(loss["lines"]["files"] == 3 * loss["lines"]["kmsg"] for loss in losses)
    assert {loss["reason"] for loss in losses} == {"spool full"}


def test_a_second_agent_is_refused(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    with pytest.raises(AgentError, match="another agent"):
        opened(tmp_path)
    spool.close()
    opened(tmp_path)


def test_a_spool_without_its_state_takes_new_numbers(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append(b"x", {"files": 1}, 1000.0)
    crash(spool)
    (tmp_path / "state.json").write_text("not json")
    again = Spool(tmp_path, 1024 * KB, report)
    again.open(lambda: "epoch-2", 2000.0)
    assert again.epoch == "epoch-2" and again.first() is None
    assert list(tmp_path.glob("*.orphan-*")), "the batches are kept for a person"


def test_what_was_delivered_before_a_crash_is_not_told_as_lost(tmp_path: Path) -> None:
    """Found by the test below: the answers since the last state file were forgotten, and the spool overflowed."""
    spool = opened(tmp_path, 96 * KB)
    for n in range(25):
        spool.append(random.Random(n).randbytes(2 * KB), {"files": 1}, 1000.0)
    for sequence in range(1, 11):
        spool.acknowledge(sequence)
    crash(spool)
    spool = opened(tmp_path, 96 * KB)
    for n in range(8):
        spool.append(random.Random(n).randbytes(20 * KB), {"files": 1}, 1000.0)
    delivered, lost, _ = drained(spool)
    assert 10 + len(delivered) + lost == 33


def test_a_crash_between_the_report_of_a_loss_and_the_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = opened(tmp_path, 96 * KB)

    def power_cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(spool, "_remove_range", power_cut)
    appended = 0
    with pytest.raises(KeyboardInterrupt):
        for n in range(20):
            spool.append(random.Random(n).randbytes(20 * KB), {"files": 1}, 1000.0, {"a": n})
            appended += 1
    spool.sync()
    crash(spool)
    again = opened(tmp_path, 96 * KB)
    assert again.positions() == {"a": appended - 1}
    delivered, lost, _ = drained(again)
    assert lost > 0 and len(delivered) + lost == appended


def test_the_first_that_waits_is_kept_also_behind_a_gap(tmp_path: Path) -> None:
    """Found by the test below: behind dropped batches the first that waits is not the next number."""
    spool = opened(tmp_path, 96 * KB)
    for n in range(9):
        spool.append(random.Random(n).randbytes(20 * KB), {"files": 1}, 1000.0)
    spool.acknowledge(1)
    first = spool.first()
    assert first is not None and first.sequence > 2
    for n in range(9):
        spool.append(random.Random(n).randbytes(20 * KB), {"files": 1}, 1000.0)
    assert spool.first() == first, "its answer may be on the way"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["append", "append", "append", "big", "take", "crash"]), max_size=120),
    st.integers(0, 2**32),
)
def test_whatever_happens_each_line_is_delivered_or_told_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: int
) -> None:
    """Appending beyond the cap, acknowledging and crashing in any order: delivered + told as lost = appended."""
    folder = tmp_path_factory.mktemp("spool")
    chance = random.Random(seed)
    spool = opened(folder, 96 * KB)
    appended = 0
    delivered: dict[int, int] = {}
    lost = 0
    for step in steps:
        if step in ("append", "big"):
            lines = chance.randint(1, 9)
            spool.append(chance.randbytes(20 * KB if step == "big" else 2 * KB), {"files": lines}, 1000.0)
            spool.sync()
            appended += lines
        elif step == "take" and (batch := spool.first()) is not None:
            # The service stores it; whether the answer arrives is chance.
            if batch.sequence not in delivered:
                delivered[batch.sequence] = sum(batch.lines.values())
                lost += sum(json.loads(batch.payload)["lines"].values()) if batch.lost else 0
            if chance.random() < 0.7:
                spool.acknowledge(batch.sequence)
        elif step == "crash":
            crash(spool)
            spool = opened(folder, 96 * KB)
    while (batch := spool.first()) is not None:
        if batch.sequence not in delivered:
            delivered[batch.sequence] = sum(batch.lines.values())
            lost += sum(json.loads(batch.payload)["lines"].values()) if batch.lost else 0
        spool.acknowledge(batch.sequence)
    assert sum(delivered.values()) + lost == appended
    crash(spool)
