"""Octet-counted frames of syslog (RFC 6587, 3.4.1) in bytes that were received: where they begin and end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

#: A count has at most so many digits, and a blank behind them.
DIGITS = 7
#: Some senders add line ends that they do not count.
_COUNT = re.compile(rb"\n*(?:([1-9]\d{0,6}) )?")


class _Frame(NamedTuple):
    """Where a frame's count stands (``place``; or would stand: ``begin`` below zero), and where the frame begins and ends."""

    place: int
    begin: int
    end: int


def whole(data: bytes) -> tuple[int, bool]:
    """Where the last whole frame ends, with the line ends behind it; and whether a count stands there."""
    for frame in _frames(data):
        if frame.begin < 0 or frame.end > len(data):
            return frame.place, frame.begin >= 0
    raise AssertionError("the last of the frames is never whole")


def frames(data: bytes) -> list[bytes]:
    """The frames without their counts, without line ends and NULs at their ends, and without those that are empty then. The
    last one may be cut."""
    found = [data[frame.begin : frame.end].rstrip(b"\n\r\0") for frame in _frames(data) if frame.begin >= 0]
    return [frame for frame in found if frame]


def _frames(data: bytes) -> Iterator[_Frame]:
    """The frames, and at last one that is cut or none at all."""
    end = 0
    while end <= len(data):
        counted = _COUNT.match(data, end)
        assert counted is not None  # it matches nothing, too
        if counted[1] is None:
            yield _Frame(counted.end(), -1, -1)
            return
        end = counted.end() + int(counted[1])
        yield _Frame(counted.start(1), counted.end(), end)
