"""Which batches are stored or with a worker: a batch that arrives again is not parsed again."""

from __future__ import annotations

from collector.decoding import Job
from collector.ledger import Ledger
from collector.pieces import Counts, Piece
from collector.receivers.base import moment_of
from collector.segment_file import Record
from collector.sequence import Ranges, StreamKey


class HandedOut:
    """The keys of the batches in progress, on top of those in the ledger."""

    def __init__(self, ledger: Ledger, counts: Counts) -> None:
        self._ledger, self._counts = ledger, counts
        self._streams: dict[tuple[str, str, str], Ranges] = {}
        self._opaque: set[str] = set()

    def add(self, record: Record, piece: Piece) -> bool:
        """Adds a record to the piece unless its key is stored or in progress."""
        key = record.meta.get("key")
        stored: tuple[tuple[int, int], ...] = ()
        if isinstance(key, list):
            named = StreamKey(str(key[0]), str(key[1]), str(key[2]), int(key[3]), int(key[4]))
            ranges = self._streams.get(named.name)
            if ranges is None:
                ranges = self._streams[named.name] = self._ledger.streams.get(named.name, Ranges()).copy()
            if ranges.covers(named.first, named.last):
                self._counts.duplicates += 1
                return False
            # A span may include entries that arrived before: decoding filters them.
            stored = ranges.within(named.first, named.last)
            ranges.add(named.first, named.last)
            piece.keys.append(named)
        elif isinstance(key, str):
            if key in self._ledger.keys or key in self._opaque:
                self._counts.duplicates += 1
                return False
            self._opaque.add(key)
            piece.opaque.append((key, moment_of(int(record.meta["received"]))))
        piece.records.append(record)
        piece.jobs.append(
            Job(record.path, record.payload_offset, record.payload_bytes, record.payload_crc, record.meta, stored)
        )
        return True

    def stored(self, piece: Piece) -> None:
        """The ledger knows the piece's batches now."""
        self._opaque.difference_update(key for key, _ in piece.opaque)

    def forget_streams(self) -> None:
        """With nothing in progress, what was handed out is what the ledger knows."""
        self._streams.clear()

    def clear(self) -> None:
        """Nothing that was in progress will be stored."""
        self._streams.clear()
        self._opaque.clear()
