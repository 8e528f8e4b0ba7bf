"""Files are decompressed by their first bytes before anything is read."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest
import zstandard

from collector.files import Pieces, opened

TEXT = "Feb 28 16:29:24 gx7 kernel: ens3: Link down\nünï 漢字 \U0001f600\n" * 3_000


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(), gzip.compress(TEXT.encode()), lzma.compress(TEXT.encode()), bz2.compress(TEXT.encode()),
        zstandard.ZstdCompressor().compress(TEXT.encode()),
        b"\xff\xfe" + TEXT.encode("utf-16-le"), b"\xfe\xff" + TEXT.encode("utf-16-be"),
    ],
    ids=["plain", "gz", "xz", "bz2", "zst", "utf-16-le", "utf-16-be"],
)  # fmt: skip
def test_unpacked(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "messages"
    path.write_bytes(data)
    with opened(path) as stream:
        assert stream.read() == TEXT.encode()
    pieces = Pieces(path)
    assert b"".join(pieces) + pieces.tail == TEXT.encode()


def test_a_cut_character_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_bytes(b"\xff\xfe" + "ab".encode("utf-16-le") + b"\x3d")
    with opened(path) as stream:
        assert stream.read().decode() == "ab\ufffd"


FRAMES = [
    b"<13>1 2026-11-21T10:00:00Z n app 1 - - a",
    b"<13>1 2026-11-21T10:00:01Z n app 1 - - " + b"b" * 70_000,
    b"<13>c 7",
]


@pytest.mark.parametrize(
    ("rest", "lines"),
    [(b"", []), (b"99 <13>cut", [b"99 <13>cut"]), (b"no count <13>d\n5 <6>ab", [b"no count <13>d", b"5 <6>ab"])],
)
def test_octet_counted_frames_in_a_file_are_lines(rest: bytes, lines: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "captured"
    path.write_bytes(b"".join(b"%d %b" % (len(frame), frame) for frame in FRAMES) + rest)
    with opened(path) as stream:
        assert stream.read().removesuffix(b"\n").split(b"\n") == FRAMES + lines
    path.write_bytes(b"9 <13>one line of its own\n9 <13>and another\n")
    with opened(path) as stream:
        assert stream.read() == path.read_bytes()
