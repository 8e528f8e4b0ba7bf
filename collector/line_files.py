"""Files of lines on their way through the parser: pieces go in, rows and ledger entries come out in the same order.

Small files are batched and large ones split, so that several processes have work and nobody holds a whole file. The
ledger entry of a file in progress records how far its rows go: after a crash, reading continues there.
"""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import polars as pl

from collector.segment_file import weight
from collector.workers import Counted, Counts, ParserPool, ParsingFailed, Piece
from parsers.lines import count_of
from parsers.record import Origin
from store.door import FileEntry

#: Limits of one task of a worker: bytes, and files.
TASK_BYTES, TASK_PIECES = 4 * 1024 * 1024, 256
#: A line this long is stored whole and reported: nothing that writes logs writes it on purpose.
LONG_LINE = 1024 * 1024


@dataclass
class FileResult:
    """The result of one file. ``status``: stored, unchanged, skipped, unreadable, partial; "left" if reading it was
    refused."""

    path: Path
    kind: str
    source: str
    status: str
    lines: int = 0
    events: int = 0
    unparsed: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass
class LineFile:
    """A file in progress. ``entry`` is its ledger entry as far as its rows are known; ``number`` the next line's;
    ``artifact`` is stored with its last row."""

    result: FileResult
    origin: Origin
    entry: FileEntry
    number: int
    failed: bool = False
    artifact: pl.DataFrame | None = None


@dataclass(frozen=True)
class _Part:
    """A piece of a file and the file's state after it. The last part's piece is the unterminated line, if there is one:
    its row and the entry that records it are stored together."""

    file: LineFile
    piece: Piece | None
    consumed: int
    digest: str
    last: bool = False


class Sink(Protocol):
    """Receives the results."""

    def rows(self, rows: pl.DataFrame) -> None:
        """Rows of ``raw.logs`` in the store's form."""

    def progress(self, file: LineFile, done: bool) -> None:
        """Called when ``file.entry`` has advanced with the rows of the file."""

    def consistent(self) -> None:
        """All rows and entries so far belong together: they may be stored."""


class LineFiles:
    """Parses pieces of files on the pool's processes. Call :meth:`finish` after the last."""

    def __init__(self, pool: ParserPool, sink: Sink) -> None:
        self._pool = pool
        self._sink = sink
        self._parts: list[_Part] = []
        self._bytes = 0
        self._waiting: deque[tuple[Future[Counted], list[_Part]]] = deque()

    def add(self, file: LineFile, data: bytes, consumed: int, digest: str) -> None:
        """Adds the file's next whole lines; ``consumed`` and ``digest`` cover the file up to their end."""
        self._append(_Part(file, _piece(file, data), consumed, digest))

    def end(self, file: LineFile, tail: bytes, consumed: int, digest: str) -> None:
        """Ends ``file``; ``tail`` is its unterminated last line, empty if it has none."""
        self._append(_Part(file, _piece(file, tail) if tail else None, consumed, digest, last=True))

    def finish(self) -> None:
        """Waits for everything in progress."""
        self._submit()
        while self._waiting:
            self._take()

    def _append(self, part: _Part) -> None:
        self._parts.append(part)
        if part.piece:
            data = part.piece.data
            self._bytes += weight(data.count(b"\n"), len(data))
        if self._bytes >= TASK_BYTES or len(self._parts) >= TASK_PIECES:
            self._submit()

    def _submit(self) -> None:
        if not self._parts:
            return
        pieces = [part.piece for part in self._parts if part.piece]
        self._waiting.append((self._pool.submit_counted(*pieces), self._parts))
        self._parts, self._bytes = [], 0
        while len(self._waiting) > 2 * self._pool.workers:  # enough to keep workers busy, and no more in memory
            self._take()

    def _take(self) -> None:
        future, parts = self._waiting.popleft()
        try:
            found = future.result()
        except ParsingFailed:
            found = self._one_by_one(parts)
        if found.rows.height:
            self._sink.rows(found.rows)
        counts = iter(found.counts)
        for part in parts:
            self._note(part, next(counts) if part.piece else None)
        self._sink.consistent()

    def _one_by_one(self, parts: list[_Part]) -> Counted:
        """Parses parts one by one; a file that fails is given up from there on."""
        frames, counts = [], []
        for part in parts:
            if part.piece is None:
                continue
            if part.file.failed:
                counts.append(Counts(0, 0, 0))
                continue
            try:
                found = self._pool.submit_counted(part.piece).result()
            except ParsingFailed as error:
                part.file.failed = True
                part.file.result.status = "partial"
                part.file.result.warnings.append(f"cannot be parsed from line {part.piece.first_line} on: {error}")
                counts.append(Counts(0, 0, 0))
                continue
            frames += [found.rows] if found.rows.height else []
            counts += found.counts
        return Counted(pl.concat(frames) if frames else pl.DataFrame(), counts)

    def _note(self, part: _Part, counts: Counts | None) -> None:
        file, result = part.file, part.file.result
        if file.failed:
            return
        if counts is not None:
            result.lines += counts.lines
            result.events += counts.events
            result.unparsed += counts.unparsed
            if counts.source is not None and result.source == "plain":
                result.source = counts.source
                file.entry = replace(file.entry, source=counts.source)
        whole = counts.lines if counts is not None and not part.last else 0
        file.entry = replace(
            file.entry, consumed=part.consumed, digest=part.digest, events=result.events, unparsed=result.unparsed,
            lines=file.entry.lines + whole, warnings=tuple(result.warnings),
            tail=digest_of(bytes(part.piece.data)) if part.last and part.piece else None,  # type: ignore[arg-type]
        )  # fmt: skip
        self._sink.progress(file, part.last)


def digest_of(data: bytes) -> str:
    """The ledger's digest of a piece of content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _piece(file: LineFile, data: bytes) -> Piece:
    _name_long_lines(file, data)
    piece = Piece(data, file.origin, file.number)
    file.number += count_of(b"\n", data) + (not data.endswith(b"\n"))
    return piece


def _name_long_lines(file: LineFile, data: bytes) -> None:
    at = 0
    while at + LONG_LINE <= len(data):
        cut = data.rfind(b"\n", at, at + LONG_LINE)
        if cut >= 0:
            at = cut + 1
            continue
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        number = file.number + data.count(b"\n", 0, at)
        size = end - at - (data[end - 1 : end] == b"\r" and end < len(data))
        if size >= LONG_LINE:
            file.result.warnings.append(f"line {number} is {size:,} bytes long; stored whole")
        at = end + 1
