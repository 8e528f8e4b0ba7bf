"""Octet-counted syslog frames (RFC 6587, 3.4.1) in received bytes: where they begin and end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

#: Most digits of a count; a blank follows.
DIGITS = 7
#: Some senders add line ends that they do not count.
_COUNT = re.compile(rb"\n*(?:([1-9]\d{0,6}) )?")


class _Frame(NamedTuple):
    """Where a frame's count is (``place``; if it is missing, ``begin`` is below zero), and where the frame begins and
    ends."""

    place: int
    begin: int
    end: int


def whole(data: bytes) -> tuple[int, bool, int]:
    """Where the last whole frame ends, with its trailing line ends; whether a count follows; and the number of whole
    frames."""
    for number, frame in enumerate(_frames(data)):
        if frame.begin < 0 or frame.end > len(data):
            return frame.place, frame.begin >= 0, number
    raise AssertionError("the last of the frames is never whole")


def frames(data: bytes) -> list[bytes]:
    """The frames without counts and without trailing line ends and NULs; frames that are empty then are dropped. The
    last one may be truncated."""
    found = [data[frame.begin : frame.end].rstrip(b"\n\r\0") for frame in _frames(data) if frame.begin >= 0]
    return [frame for frame in found if frame]


def _frames(data: bytes) -> Iterator[_Frame]:
    """The frames, ending with one that is truncated or missing."""
    end = 0
    while end <= len(data):
        counted = _COUNT.match(data, end)
        assert counted is not None  # it matches the empty string, too
        if counted[1] is None:
            yield _Frame(counted.end(), -1, -1)
            return
        end = counted.end() + int(counted[1])
        yield _Frame(counted.start(1), counted.end(), end)
