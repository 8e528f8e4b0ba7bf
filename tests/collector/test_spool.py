"""What is acknowledged is on disk and read back once, whatever was torn, damaged or refused."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.segment_file import FIRST_MAGIC, FIRST_RECORD, Position, Record, payload_of
from collector.sequence import MAX_RANGES, Ranges, StreamKey, read_key
from collector.spool import Spool, SpoolBroken, SpoolFull, SpoolHeld
from tests.examples import examples

BEGIN = Position(0, 0)


def payloads(records: list[Record]) -> list[bytes]:
    return [payload_of(r.path, r.payload_offset, r.payload_bytes, r.payload_crc) for r in records]


def everything(spool: Spool) -> list[Record]:
    return list(spool.read(BEGIN, 1 << 40))


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.binary(max_size=300), max_size=12), segment=st.integers(50, 600))
def test_batches_come_back_in_order_across_segments_and_restarts(batches: list[bytes], segment: int, tmp_path_factory: pytest.TempPathFactory) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("spool")
    half = len(batches) // 2
    for part in (batches[:half], batches[half:]):
        spool = Spool(folder, segment_bytes=segment)
        for batch in part:
            spool.append({"kind": "x", "size": len(batch)}, batch).result(120)
        spool.close()
    spool = Spool(folder, segment_bytes=segment)
    found = everything(spool)
    assert payloads(found) == batches and [r.meta["size"] for r in found] == [len(b) for b in batches]
    for at, record in enumerate(found):  # from any position on, the rest
        assert payloads(list(spool.read(record.end, 1 << 40))) == batches[at + 1 :]
    spool.commit(spool.synced)
    assert everything(spool) == [] and spool.waiting_bytes == 0
    spool.close()


def test_what_waits_is_reported_as_it_is_unpacked(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert spool.waiting_unpacked == 0
    spool.append({"kind": "x"}, b"a" * 10_000).result(120)
    assert spool.waiting_bytes == pytest.approx(spool.waiting_unpacked) and spool.waiting_bytes > 10_000
    spool.append({"kind": "x", "encoding": "zstd", "unpacked": 500_000}, b"b" * 10_000).result(120)
    assert spool.waiting_unpacked == pytest.approx(510_000, rel=0.01)
    spool.commit(spool.synced)
    assert spool.waiting_unpacked == 0
    spool.close()


@pytest.mark.parametrize("cut", [1, 399, 401, 415, 430])
def test_a_torn_end_is_cut_off_and_what_was_acknowledged_stays(cut: int, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append({"kind": "x"}, b"whole").result(120)
    spool.append({"kind": "x"}, b"torn" * 100).result(120)
    spool.close()
    (segment,) = (p for p in tmp_path.glob("*.seg") if p.stat().st_size > FIRST_RECORD)
    os.truncate(segment, segment.stat().st_size - cut)
    spool = Spool(tmp_path)
    assert payloads(everything(spool)) == [b"whole"]
    spool.append({"kind": "x"}, b"next").result(120)
    assert payloads(everything(spool)) == [b"whole", b"next"]
    spool.close()


def test_a_segment_that_is_written_over_gives_back_nothing_of_what_it_held(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=1000, min_free_bytes=0)
    for round_ in range(30):  # batches of one size: former records are exactly where new ones end
        for number in range(3):
            spool.append({"kind": "x"}, b"%04d" % (3 * round_ + number) * 100).result(120)
        found = payloads(everything(spool))
        assert found[-3:] == [b"%04d" % (3 * round_ + number) * 100 for number in range(3)]
        spool.commit(everything(spool)[-1].start)
        assert len(everything(spool)) <= 4
    assert list(tmp_path.glob("*.spare"))
    before = payloads(everything(spool))
    (spool.folder / "copy").mkdir()
    for path in [*tmp_path.glob("*.seg"), *tmp_path.glob("*.spare"), tmp_path / "id"]:  # as after kill -9
        (spool.folder / "copy" / path.name).write_bytes(path.read_bytes())
    spool.close()
    for folder in (tmp_path / "copy", tmp_path):
        again = Spool(folder, segment_bytes=1000, min_free_bytes=0)
        assert payloads(everything(again)) == before
        again.close()


def test_a_write_torn_in_a_segment_that_is_written_over_is_cut_off(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=2000, min_free_bytes=0)
    for number in range(8):
        spool.append({"kind": "x"}, b"%04d" % number * 100).result(120)
    spool.commit(everything(spool)[-1].start)
    spool.close()
    assert list(tmp_path.glob("*.spare"))
    spool = Spool(tmp_path, segment_bytes=2000, min_free_bytes=0)
    spool.append({"kind": "x"}, b"whole").result(120)
    spool.append({"kind": "x"}, b"torn" * 50).result(120)
    *_, torn = everything(spool)
    data = Path(torn.path).read_bytes()
    assert len(data) > torn.end.offset, "the file's former records lie behind"
    spool.close()
    Path(torn.path).write_bytes(data[: torn.end.offset - 20] + b"?" * 20 + data[torn.end.offset :])
    spool = Spool(tmp_path)
    assert payloads(everything(spool))[-1] == b"whole"
    spool.append({"kind": "x"}, b"next").result(120)
    assert payloads(everything(spool))[-2:] == [b"whole", b"next"]
    spool.close()


def test_a_segment_of_a_version_before_is_read(tmp_path: Path) -> None:
    described, payload = b'{"kind":"x"}', b"of old"
    lengths = b"\xf5FL1" + struct.pack("<II", len(described), len(payload))
    head = lengths + struct.pack("<II", zlib.crc32(described, zlib.crc32(lengths)), zlib.crc32(payload))
    (tmp_path / "000000000001.seg").write_bytes(FIRST_MAGIC + head + described + payload)
    spool = Spool(tmp_path)
    spool.append({"kind": "x"}, b"new").result(120)
    assert payloads(everything(spool)) == [b"of old", b"new"]
    spool.close()


def test_files_that_wait_to_be_written_over_give_way_when_the_disk_fills(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=300, min_free_bytes=0)
    for _ in range(4):
        spool.append({"kind": "x"}, b"a" * 400).result(120)
    spool.commit(everything(spool)[-1].start)
    assert list(tmp_path.glob("*.spare"))
    spool.min_free_bytes = 1 << 60
    with pytest.raises(SpoolFull, match="free on the disk"):
        spool.append({"kind": "x"}, b"b")
    assert not list(tmp_path.glob("*.spare"))
    spool.close()


def test_damage_in_the_middle_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for text in (b"first", b"second", b"third"):
        spool.append({"kind": "x"}, text).result(120)
    second = everything(spool)[1]
    with Path(second.path).open("r+b") as file:
        file.seek(second.offset + 5)
        file.write(b"\xff\xff\xff")
    found = everything(spool)
    assert [r.meta["kind"] for r in found] == ["x", "damaged", "x"]
    assert payloads([found[0], found[2]]) == [b"first", b"third"]
    with Path(second.path).open("r+b") as file:  # the payload's own checksum
        file.seek(found[2].payload_offset)
        file.write(b"T")
    with pytest.raises(ValueError, match="checksum"):
        payloads([everything(spool)[2]])
    spool.close()


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, "full"), (errno.EROFS, "read-only"), (errno.EIO, "error")])
def test_a_refused_write_acknowledges_nothing_keeps_nothing_and_goes_on(number: int, says: str, tmp_path: Path) -> None:
    broken = False

    def fsync(handle: int) -> None:
        if broken:
            raise OSError(number, os.strerror(number))
        os.fdatasync(handle)

    spool = Spool(tmp_path, fsync=fsync)
    spool.append({"kind": "x"}, b"before").result(120)
    broken = True
    with pytest.raises(SpoolBroken, match=says):
        spool.append({"kind": "x"}, b"refused").result(120)
    assert spool.trouble is not None and says in spool.trouble
    with pytest.raises(SpoolFull):
        spool.append({"kind": "x"}, b"too soon")
    broken = False
    spool._retry_at = 0.0
    spool.append({"kind": "x"}, b"after").result(120)
    assert spool.trouble is None
    spool.close()
    spool = Spool(tmp_path)
    assert payloads(everything(spool)) == [b"before", b"after"]
    spool.close()


def test_nothing_is_taken_beyond_the_limits(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a", max_waiting_bytes=1000, min_free_bytes=0)
    spool.append({"kind": "x"}, b"a" * 2000).result(120)
    with pytest.raises(SpoolFull, match="behind") as full:
        spool.append({"kind": "x"}, b"b")
    assert full.value.retry_s > 0
    spool.commit(spool.synced)
    spool.append({"kind": "x"}, b"b").result(120)
    spool.close()
    tight = Spool(tmp_path / "b", min_free_bytes=1 << 60)
    with pytest.raises(SpoolFull, match="free on the disk"):
        tight.append({"kind": "x"}, b"b")
    tight.close()


def test_a_sender_that_waits_no_longer_takes_nobody_elses_batch_along(tmp_path: Path) -> None:
    """asyncio cancels a future with the task that waits for it; the writing thread must survive that."""
    spool = Spool(tmp_path)
    with spool._lock:  # the writer has not seen it yet
        assert not spool.append({"kind": "x"}, b"first").cancel()
    spool.append({"kind": "x"}, b"second").result(120)
    assert payloads(everything(spool)) == [b"first", b"second"], "what was taken is kept"
    spool.close()


def test_two_services_do_not_share_a_spool_and_a_new_one_has_its_own_name(tmp_path: Path) -> None:
    first = Spool(tmp_path / "a")
    with pytest.raises(SpoolHeld, match="another service"):
        Spool(tmp_path / "a")
    other = Spool(tmp_path / "b")
    assert first.id != other.id
    first.close()
    again = Spool(tmp_path / "a")
    assert again.id == first.id
    again.close()
    other.close()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=40))
def test_ranges_are_the_set_of_what_was_added(spans: list[tuple[int, int]]) -> None:
    ranges, numbers = Ranges(), set()
    for first, length in spans:
        assert ranges.covers(first, first + length) == (set(range(first, first + length + 1)) <= numbers)
        ranges.add(first, first + length)
        numbers |= set(range(first, first + length + 1))
    assert {n for a, b in ranges.items for n in range(a, b + 1)} == numbers
    assert all(b + 1 < c for (_, b), (c, _) in zip(ranges.items, ranges.items[1:], strict=False))
    assert Ranges.read(str(ranges)) == ranges


def test_too_many_holes_are_closed_from_the_oldest() -> None:
    ranges = Ranges.of(range(0, 4 * MAX_RANGES, 2))
    assert len(ranges.items) == MAX_RANGES and ranges.items[0][0] == 0
    assert ranges.covers(1, 1) and not ranges.covers(4 * MAX_RANGES - 3, 4 * MAX_RANGES - 3)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("gpu01/logs/1763741000/42", StreamKey("gpu01", "logs", "1763741000", 42, 42)),
        ("a%2Fb/s/e/0", StreamKey("a%2Fb", "s", "e", 0, 0)),
        ("gpu01/logs/1/x", None), ("gpu01/logs/1", None), ("a b/c/d/1", None), ("f81d4fae-7dec-11d0", None),
    ],
)  # fmt: skip
def test_keys_are_read_or_taken_as_they_are(text: str, key: StreamKey | None) -> None:
    assert read_key(text) == key
