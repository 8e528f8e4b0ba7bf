"""The agent's spool: every batch is delivered or reported as lost, whatever is killed, cut off or full."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_disks import fill, needs_root, small_disk

from collector.agent.batch import Loss
from collector.agent.failure import AgentError
from collector.agent.spool import AgentSpool
from tests.examples import examples

KB = 1024


def opened(folder: Path, cap: int = 1024 * KB) -> AgentSpool:
    spool = AgentSpool(folder, cap, report)
    spool.open(lambda: "epoch-1", 1000.0)
    return spool


def report(loss: Loss) -> bytes:
    return json.dumps(loss.as_json()).encode()


def crash(spool: AgentSpool) -> None:
    """As after kill -9: nothing is written, only the kernel releases the lock."""
    assert spool._lock_file is not None and spool._answers is not None
    spool._lock_file.close()
    os.close(spool._answers)


def drained(spool: AgentSpool) -> tuple[list[int], int, list[int]]:
    """(sequences delivered with lines, lines reported as lost, all sequences seen)."""
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


def test_a_damaged_batch_is_reported_as_a_loss_under_its_own_number(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("left", [b"not json", b'{"epoch": "epoch-1", "acknowledged": 9}', None])
def test_a_spool_without_its_state_goes_on_by_its_segments(tmp_path: Path, left: bytes | None) -> None:
    spool = opened(tmp_path)
    for n in range(1, 5):
        spool.append(b"x", {"files": 1}, 1000.0, {"a": n})
    spool.acknowledge(2)
    crash(spool)
    (tmp_path / "state.json").unlink()
    if left is not None:
        (tmp_path / "state.json").write_bytes(left)
    again = AgentSpool(tmp_path, 1024 * KB, report)
    again.open(lambda: "epoch-2", 2000.0)
    assert again.epoch == "epoch-1" and again.positions() == {"a": 4}
    assert drained(again) == ([3, 4], 0, [3, 4])


def test_batches_of_nobody_knows_which_epoch_are_reported_as_lost(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.append(b"x", {"files": 3}, 1000.0)
    spool.append(b"y", {"files": 4, "kmsg": 1}, 1007.0)
    crash(spool)
    (tmp_path / "state.json").write_text("not json")
    (tmp_path / "acknowledged").write_text("")
    again = AgentSpool(tmp_path, 1024 * KB, report)
    again.open(lambda: "epoch-2", 2000.0)
    reported = again.first()
    assert again.epoch == "epoch-2" and reported is not None and reported.lost is not None
    assert (reported.lost["lines"], reported.lost["since"], reported.lost["until"]) == (
        {"files": 7, "kmsg": 1},
        1000.0,
        1007.0,
    )
    assert list(tmp_path.glob("*.orphan-*")), "the batches are kept for a person"


@pytest.mark.parametrize("place", ["magic", "length", "header"])
def test_a_damaged_frame_is_reported_and_those_behind_it_are_delivered(tmp_path: Path, place: str) -> None:
    spool = opened(tmp_path)
    ends = []
    for n in range(1, 6):
        spool.append(b"x%d" % n, {"files": 1}, 1000.0 + n, {"a": n})
        ends.append(spool.size)
    spool.checkpoint()
    crash(spool)
    (segment,) = tmp_path.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[ends[1] + {"magic": 1, "length": 6, "header": 40}[place]] ^= 0xFF
    segment.write_bytes(data)
    for again in (opened(tmp_path), spool):  # found at a start, and by a running agent
        lost = []
        while (batch := again.first()) is not None:
            lost += [(batch.sequence, batch.lost)] * (batch.lost is not None)
            again.acknowledge(batch.sequence)
        ((number, reported),) = lost
        assert number == 3, "under its own number: the service knows whether it has it"
        assert reported is not None and (reported["since"], reported["until"], reported["lines"]) == (
            1002.0,
            1004.0,
            {},
        )
        assert again.acknowledged == 5 and again.append(b"new", {}, 1010.0) == 6
        crash(again)
        if again is not spool:
            spool = AgentSpool(tmp_path, 1024 * KB, report)
            (tmp_path / "acknowledged").write_text("")
            spool.open(lambda: "never", 1000.0)
            segment.write_bytes(data)


def test_segments_that_somebody_removed_are_told_and_their_numbers_not_used_again(tmp_path: Path) -> None:
    spool = opened(tmp_path, 512 * KB)
    for n in range(30):
        spool.append(random.Random(n).randbytes(10 * KB), {"files": 1}, 1000.0 + n)
    spool.acknowledge(4)
    spool.checkpoint()
    crash(spool)
    for segment in tmp_path.glob("*.seg"):
        segment.unlink()
    again = opened(tmp_path, 512 * KB)
    reported = again.first()
    assert reported is not None and reported.lost is not None
    assert (reported.lost["first"], reported.lost["last"]) == (5, 30)
    again.acknowledge(reported.sequence)
    assert again.first() is None and again.append(b"new", {}, 1010.0) == 31


@needs_root
def test_a_full_disk_does_not_keep_what_is_delivered(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        spool = opened(disk / "spool", 3072 * KB)
        for n in range(60):
            spool.append(random.Random(n).randbytes(30 * KB), {"files": 1}, 1000.0, {f"log{n}": n})
        spool.sync()
        filler = fill(disk)
        with pytest.raises(OSError, match="No space"):
            spool.append(b"x" * 300 * KB, {"files": 1}, 1000.0)
        before = spool.size
        assert drained(spool)[0] == list(range(1, 61))
        assert spool.size < before / 4, "the disk has room again"
        assert spool.append(b"x" * 30 * KB, {"files": 1}, 1000.0) == 61
        crash(spool)
        filler.unlink()
        assert opened(disk / "spool", 3072 * KB).positions() == {f"log{n}": n for n in range(60)}


@needs_root
@pytest.mark.parametrize("room", [1, 3, 6])
def test_a_batch_that_the_disk_takes_a_part_of_is_refused(tmp_path: Path, room: int) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        spool = opened(disk / "spool")
        spool.append(b"whole", {"files": 1}, 1000.0, {"a": 1})
        filler = fill(disk)
        with filler.open("r+b") as file:
            file.truncate(filler.stat().st_size - room * 4 * KB)
        with pytest.raises(OSError, match="No space"):
            spool.append(random.Random(1).randbytes(40 * KB), {"files": 1}, 1000.0, {"a": 2})
        assert spool.positions() == {"a": 1} and drained(spool) == ([1], 0, [1])
        crash(spool)
        assert opened(disk / "spool").positions() == {"a": 1}


@needs_root
def test_what_is_reported_as_lost_on_a_full_disk_is_not_delivered_too(tmp_path: Path) -> None:
    """The cap is reached, and the disk refuses the segment that is to be rewritten without what was dropped."""
    with small_disk(tmp_path / "disk", 4) as disk:
        spool = opened(disk / "spool", 2048 * KB)
        for n in range(60):
            spool.append(random.Random(n).randbytes(30 * KB), {"files": 1}, 1000.0)
        fill(disk)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                spool.append(b"x" * 300 * KB, {"files": 1}, 1000.0)
        delivered, lost, _ = drained(spool)
        assert lost > 0 and len(delivered) + lost == 60


def test_what_was_delivered_before_a_crash_is_not_reported_as_lost(tmp_path: Path) -> None:
    """Found by the test below: the answers since the last state file were lost, and the spool overflowed."""
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
    """Found by the test below: after dropped batches the first that waits is not the next number."""
    spool = opened(tmp_path, 96 * KB)
    for n in range(9):
        spool.append(random.Random(n).randbytes(20 * KB), {"files": 1}, 1000.0)
    spool.acknowledge(1)
    first = spool.first()
    assert first is not None and first.sequence > 2
    for n in range(9):
        spool.append(random.Random(n).randbytes(20 * KB), {"files": 1}, 1000.0)
    assert spool.first() == first, "its answer may be on the way"


@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(st.sampled_from(["append", "append", "append", "big", "take", "crash"]), max_size=120),
    st.integers(0, 2**32),
)
def test_whatever_happens_each_line_is_delivered_or_reported_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: int
) -> None:
    """Appending beyond the cap, acknowledging and crashing in any order: delivered + reported as lost = appended."""
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
            # The service stores it; whether the answer arrives is random.
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
