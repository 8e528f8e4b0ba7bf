"""The head of DuckDB's write-ahead log: which database and which checkpoint it belongs to, and where its entries begin.

The head has no fixed length: it is a serialized object whose numbers are varints, and the 16 random bytes that identify
the database are 16 such numbers, so each takes one byte or two. The first entry follows directly. Each entry of version
2 starts with its length and its checksum, 8 bytes each (``src/storage/wal_replay.cpp`` of DuckDB).
"""

from __future__ import annotations

from dataclasses import dataclass

#: Longest possible head: fields and end 12, varints of version and checkpoint 10 each, count 1, identifier 16 * 2.
LONGEST = 80
#: Header of each entry: its length and its checksum, eight bytes each.
ENTRY = 16
_TYPE, _VERSION, _DATABASE, _CHECKPOINT, _END = 100, 101, 102, 103, 0xFFFF
#: The entry type of a head ("version"), and the version that this module reads.
_HEAD_TYPE, _KNOWN = 98, 2
_IDENTIFIER = 16


class NotAHeadError(ValueError):
    """These bytes do not begin a write-ahead log."""


@dataclass(frozen=True)
class LogHead:
    """``database`` identifies the database file; ``checkpoint`` counts its checkpoints. The ranges give their byte
    positions. ``length`` is where the first entry begins."""

    version: int
    database: bytes
    checkpoint: int
    database_at: range
    checkpoint_at: range
    length: int


class _Cursor:
    """Reads the head's numbers in sequence. Raises ``EOFError`` at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def _byte(self) -> int:
        if self.at >= len(self.data):
            raise EOFError
        self.at += 1
        return self.data[self.at - 1]

    def field(self) -> int:
        return self._byte() | self._byte() << 8

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise NotAHeadError("a number has more than ten bytes")

    def expect(self, field: int) -> None:
        if (found := self.field()) != field:
            raise NotAHeadError(f"field {field} is missing at byte {self.at - 2}: found {found}")


def read_head(data: bytes) -> LogHead | None:
    """The head at the start of ``data``. None if ``data`` ends inside it (nothing was committed then), or if its
    version is unknown. Raises ``NotAHeadError`` if these bytes do not begin a log."""
    cursor = _Cursor(data)
    try:
        cursor.expect(_TYPE)
        if cursor.varint() != _HEAD_TYPE:
            raise NotAHeadError("the first entry is not a version")
        cursor.expect(_VERSION)
        version = cursor.varint()
        cursor.expect(_DATABASE)
        if version != _KNOWN:
            return None
        if cursor.varint() != _IDENTIFIER:
            raise NotAHeadError("the database's identifier has not 16 bytes")
        start = cursor.at
        # As in the engine: a value above one byte keeps its lower eight bits.
        database = bytes(cursor.varint() & 0xFF for _ in range(_IDENTIFIER))
        database_at = range(start, cursor.at)
        cursor.expect(_CHECKPOINT)
        start = cursor.at
        checkpoint = cursor.varint()
        checkpoint_at = range(start, cursor.at)
        cursor.expect(_END)
    except EOFError:
        return None
    return LogHead(version, database, checkpoint, database_at, checkpoint_at, cursor.at)
