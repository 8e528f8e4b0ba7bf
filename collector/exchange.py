"""Messages between the service and a worker: a pickle through the pipe, and large buffers in shared memory.

A piece of lines returns as some 15 MB of rows. A pipe would copy them into and out of the kernel, 64 kB at a time, into
fresh memory every time, and the writer would wait until the other side reads. So the sender keeps a few *rooms*,
anonymous in-memory files, and sends their numbers and offsets. A room is free again when the last array in it is gone
on the other side, which that side reports with its next message.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from parsers.lines import Codes
from store import line_frames

#: Fewer bytes than this go through the pipe.
LEAST_ROOM = 256 * 1024
#: Spare factor for a new room: the next message has about the same size, not exactly.
SPARE = 1.25
#: Most rooms; a buffer that finds none free goes through the pipe. A body of a million lines fills ten.
MOST_ROOMS = 24
_ALIGNED = 64


class Packed:
    """A frame in transit between processes, as Arrow: its buffers are written straight into a room, beside the pickle.
    Of all-null columns only the position is sent."""

    def __init__(self, table: pa.Table, nulls: Sequence[tuple[int, str, pl.DataType]] = ()) -> None:
        self._table, self._nulls = table, nulls

    @classmethod
    def of(cls, frame: pl.DataFrame, coded: Mapping[str, Codes] | None = None) -> Packed:
        """``coded``: columns known to have repeating texts; they arrive in the form of ``store.line_frames.coded``."""
        coded, count = coded or {}, len(frame)
        own = [column for column in frame.get_columns() if column.name not in coded]
        some = [column for column in own if not count or column.null_count() < count] or own[:1]
        coded_names = {column.name for column in some} | coded.keys()
        nulls = [(at, name, kind) for at, (name, kind) in enumerate(frame.schema.items()) if name not in coded_names]
        table = _once(pl.DataFrame(some).rechunk())
        for at, name in enumerate(name for name in frame.columns if name in coded_names):
            if name in coded:
                table = table.add_column(at, _field(name), _dictionary(coded[name]))
        return cls(table.combine_chunks(), nulls)

    def frame(self) -> pl.DataFrame:
        """The frame. Its columns point into the received bytes: nothing is copied."""
        frame = pl.from_arrow(self._table)
        assert isinstance(frame, pl.DataFrame)
        for at, name, kind in self._nulls:
            frame.insert_column(at, _null(kind, len(frame)).alias(name))
        return frame

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self._table, self._nulls)


def _null(kind: pl.DataType, length: int) -> pl.Series:
    """A column of nulls: a slice of one that all columns of this type share, since creating nulls costs as much as
    copying them."""
    known = _nulls_of(kind, 1 << 17) if length <= 1 << 17 else _nulls_of.__wrapped__(kind, length)
    return known[:length]


@lru_cache(maxsize=32)
def _nulls_of(kind: pl.DataType, length: int) -> pl.Series:
    return pl.Series([None], dtype=kind).new_from_index(0, length)


@cache  # as many as there are columns of lines
def _field(name: str) -> pa.Field:
    """The Arrow field of a coded column."""
    sample = line_frames.coded(pl.DataFrame({name: ["x"]}))
    return sample.to_arrow(compat_level=pl.CompatLevel.newest()).schema.field(name)


def _dictionary(codes: Codes) -> pa.Array:
    which, names = codes
    known = None
    if names.null_count():
        texts = names.to_list()
        null = texts.index(None)
        known = pa.py_buffer(np.packbits(which != null, bitorder="little"))
        texts[null] = ""
        names = pl.Series(texts, dtype=pl.String)
    indices = pa.Array.from_buffers(pa.uint32(), len(which), [known, pa.py_buffer(which)])
    return pa.DictionaryArray.from_arrays(indices, names.to_arrow(compat_level=pl.CompatLevel.newest()))


def _once(frame: pl.DataFrame) -> pa.Table:
    """The frame as Arrow. Columns that are views of the same bytes (a host lies in its line) would each carry all of
    them: the first one does, ``raw`` before others, and the rest get bytes of their own."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    carried: set[int] = set()
    for name in sorted(frame.columns, key=lambda name: name != "raw"):
        if frame.schema[name] != pl.String:
            continue
        lies_in = {part.address for chunk in table[name].chunks for part in chunk.buffers()[2:] if part is not None}
        if lies_in & carried:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, frame[name].to_arrow(compat_level=pl.CompatLevel.oldest()))
        carried |= lies_in
    return table


class _Message(NamedTuple):
    """A message in the pipe. ``sizes`` of the buffers that belong to ``head``, which are in ``room`` or follow (0);
    ``new``: the size of a room that is sent along; ``gone``: rooms that no longer exist; ``read``: rooms of the other
    side whose buffers are no longer needed."""

    sizes: list[int]
    room: int
    new: int
    gone: list[int]
    read: list[int]
    head: bytes


class _Room(NamedTuple):
    handle: int
    size: int


class Exchange:
    """One side of a pipe. One thread sends and one receives; any thread may drop received arrays."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._rooms: dict[int, _Room] = {}
        self._free: deque[int] = deque()
        self._number = 0
        #: When each room was written to (monotonic seconds); nothing for one that has no memory.
        self._filled: dict[int, float] = {}
        self._theirs: dict[int, mmap.mmap] = {}
        self._read: deque[int] = deque()
        #: Rooms of ``_read`` whose memory was returned already.
        self._emptied: set[int] = set()

    def send(self, message: Any) -> int:
        """Sends a message, and returns the bytes of its large buffers. Raises ``OSError`` if the other side is gone."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
        sizes = [view.nbytes for view in views]
        needed = sum(_aligned(size) for size in sizes)
        room, new, gone = self._room(needed) if needed >= LEAST_ROOM else (0, 0, [])
        if room:
            at, self._filled[room] = 0, time.monotonic()
            for view in views:
                self._fill(room, at, view)
                at += _aligned(view.nbytes)
        read = [self._read.popleft() for _ in range(len(self._read))]
        self._emptied.clear()
        self.pipe.send_bytes(pickle.dumps(tuple(_Message(sizes, room, new, gone, read, head)), protocol=5))
        if new:
            send_handle(self.pipe, self._rooms[room].handle, None)
        if not room:
            for view in views:
                while view:
                    view = view[os.write(self.pipe.fileno(), view) :]
        return needed

    def receive(self) -> Any:
        """Receives a message. Raises ``EOFError`` or ``OSError`` if the other side is gone."""
        message = _Message(*pickle.loads(self.pipe.recv_bytes()))
        self._free.extend(message.read)
        for number in message.gone:
            self._theirs.pop(number, None)  # unmapped when nothing uses it any more
        if message.new:
            handle = recv_handle(self.pipe)
            try:
                self._theirs[message.room] = mmap.mmap(handle, message.new)
            finally:
                os.close(handle)
        buffers = self._in_room(message) if message.room else [self._piped(size) for size in message.sizes]
        return pickle.loads(message.head, buffers=buffers)

    def _room(self, size: int) -> tuple[int, int, list[int]]:
        """A free room for this many bytes (0: there is none), its size if it is new, and the rooms given up for it."""
        gone: list[int] = []
        while self._free:
            number = self._free.pop()
            if self._rooms[number].size >= size:
                return number, 0, gone
            self._drop(number)
            gone.append(number)
        if len(self._rooms) >= MOST_ROOMS:
            return 0, 0, gone
        capacity = int(size * SPARE) // mmap.PAGESIZE * mmap.PAGESIZE + mmap.PAGESIZE
        try:
            handle = _nameless_file(capacity)
        except OSError:  # no memory, or no more files: slower, but it works
            return 0, 0, gone
        self._number += 1
        self._rooms[self._number] = _Room(handle, capacity)
        return self._number, capacity, gone

    def _fill(self, number: int, at: int, view: memoryview) -> None:
        """Writes with file calls: mapped here too, the room would count twice as memory of the service."""
        while view:
            count = os.pwrite(self._rooms[number].handle, view, at)
            view, at = view[count:], at + count

    def _drop(self, number: int) -> None:
        os.close(self._rooms.pop(number).handle)
        self._filled.pop(number, None)

    def _in_room(self, message: _Message) -> list[memoryview]:
        whole = np.frombuffer(self._theirs[message.room], np.uint8)
        # Everything made of the buffers holds this array: when it is collected, the last of them is gone.
        weakref.finalize(whole, self._read.append, message.room).atexit = False
        buffers, at = [], 0
        for size in message.sizes:
            buffers.append(whole[at : at + size].data)
            at += _aligned(size)
        return buffers

    def _piped(self, size: int) -> Any:
        buffer = np.empty(size, np.uint8)
        view: memoryview = buffer.data
        while view:  # read in a loop: Connection would allocate new memory of the whole size with every read
            count = os.readv(self.pipe.fileno(), [view])
            if not count:
                raise EOFError
            view = view[count:]
        return buffer

    def release(self, unused_s: float = 0.0) -> None:
        """Returns the memory of rooms that were not used for so many seconds to the system; they stay rooms. Both sides call
        it with 0 when nothing is to be done: what this one has read the other one learns with its next message, which may
        be hours away."""
        until = time.monotonic() - unused_s
        for number in list(self._free):
            if self._filled.get(number, math.inf) <= until:
                del self._filled[number]
                room = self._rooms[number]
                os.ftruncate(room.handle, 0)
                os.ftruncate(room.handle, room.size)
        for number in set(self._read) - self._emptied if not unused_s else ():
            self._emptied.add(number)
            if (mapped := self._theirs.get(number)) is not None and hasattr(mmap, "MADV_REMOVE"):
                with suppress(OSError):  # a file system that cannot make holes
                    mapped.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Ends this side. Received arrays stay valid as long as somebody holds them."""
        self.pipe.close()
        self._theirs.clear()
        for number in list(self._rooms):
            self._drop(number)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _nameless_file(size: int) -> int:
    """A file in memory, or on disk if the system has none; gone with its last user."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("faultline", os.MFD_CLOEXEC)
    else:  # pragma: no cover
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    try:
        os.ftruncate(handle, size)
    except OSError:
        os.close(handle)
        raise
    return handle
