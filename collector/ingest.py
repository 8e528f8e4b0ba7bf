"""``faultline ingest``: log trees and files into the store, each file once, all of it or nothing.

A tree is read in two passes. The first recognises files and learns what undated timestamps need: the cluster's name,
the newest full date in the tree, boot times. The second parses and stores. The result does not depend on the order of
files: what is learned late (a boot time, the cluster's name) is applied to the lines that waited for it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from collector import files as reading
from collector import tree
from collector.claims import Claims
from collector.identity.clusters import TreeCluster, named_in_file, named_in_tree
from collector.identity.hosts import HostNames
from collector.identity.identity import settle
from collector.line_files import FileResult, LineFile, LineFiles, digest_of
from collector.turned import Turned
from collector.workers import ParserPool
from parsers import clock, documents, future
from parsers.engine import LineParser
from parsers.future import EXACT
from parsers.recognise import recognise
from parsers.recognition.paths import PACKED
from parsers.recognition.result import Recognition
from parsers.record import JOB_OUTPUT, Origin, frame
from store.door import Door, FileEntry
from store.line_frames import logs_for_storage
from store.line_order import SEGMENT_ROWS
from store.questions import files as file_rows

#: Files are stored together in one transaction up to this many rows: a commit costs milliseconds, and trees have
#: thousands of files. Whole segments are stored in order at once, which saves writing them twice.
COMMIT_ROWS = 2 * SEGMENT_ROWS

#: From this many bytes of line files on, starting processes pays.
WORTH_PROCESSES = 24 * 1024 * 1024
#: The storing process cannot take more than these produce.
MOST_PROCESSES = 4
#: Assumed compression ratio of compressed logs.
_PACKED = 10

#: Limits for a job's files, unpacked: its output, and files that are kept whole.
JOB_OUTPUT_BYTES, JOB_FILE_BYTES = 8 * 1024**3, 16 * 1024**2
#: Head and tail of a job's output that are stored as its artifact.
KEEP_HEAD, KEEP_TAIL = 64 * 1024, 256 * 1024

#: A clock that is further behind than this gets noticed: the machine accepts no certificate.
CLOCK_BEHIND = timedelta(days=2 * 365)

_FULL_DATE = re.compile(rb"(20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d)")


@dataclass
class Report:
    files: list[FileResult] = field(default_factory=list)

    @property
    def troubled(self) -> list[FileResult]:
        return [f for f in self.files if f.status in ("unreadable", "partial")]

    def by_source(self) -> list[dict[str, Any]]:
        totals: dict[str, Counter[str]] = defaultdict(Counter)
        for file in self.files:
            if file.status in ("stored", "partial", "unchanged"):
                totals[file.source].update(files=1, lines=file.lines, events=file.events, unparsed=file.unparsed)
        return [
            {"source": source, **{k: totals[source][k] for k in ("files", "lines", "events", "unparsed")}}
            for source in sorted(totals)
        ]


@dataclass(frozen=True)
class Options:
    """The user's options about the input; each overrides what the content suggests."""

    cluster: str | None = None
    timezone: str | None = None
    host: str | None = None
    source: str | None = None


@dataclass
class _Found:
    """``clusters`` are the cluster names in the file, ``dates`` its newest full dates (:func:`_newest_dates`)."""

    path: Path
    what: Recognition
    clusters: tuple[str, ...] = ()
    dates: tuple[datetime, ...] = ()

    @property
    def name(self) -> str:
        """The path in the form that the store holds."""
        return str(_nameable(self.path))


def _nameable(path: Path) -> Path:
    """A path whose name is valid text: undecodable bytes in names of files and hosts become escapes."""
    return Path(os.fsencode(path).decode("utf-8", "backslashreplace"))


class Ingest:
    """One run of ``ingest`` over some paths. ``progress(done, total, path)`` is called per file."""

    def __init__(self, store: Door, options: Options | None = None, *, parser: LineParser | None = None,
                 patterns: Sequence[Path] = (), workers: int | None = None,
                 progress: Callable[[int, int, Path], None] | None = None) -> None:  # fmt: skip
        """``patterns``: the site's catalogue files. ``workers``: parsing processes; None: as many as the input
        justifies. ``parser`` is used if there are no processes."""
        self.store = store
        self.options = options or Options()
        self._parser = parser
        self._patterns = patterns
        self._workers = workers
        self.on_progress = progress
        self.report = Report()
        self._pending: dict[str, list[pl.DataFrame]] = defaultdict(list)
        self._entries: list[FileEntry] = []
        self._under_way: dict[int, LineFile] = {}
        self._rows = 0
        #: Per file, the timestamps that are held back (parsers.future).
        self._ahead: Counter[str] = Counter()
        self._turned = Turned(())
        self._newest: datetime | None = None
        self._latest = datetime.max
        self._names = HostNames()
        #: None if the tree's own files name no cluster or several.
        self._own_cluster: TreeCluster | None = None

    def run(self, paths: list[Path]) -> Report:
        found = self._look(tree.walk(paths))
        named = named_in_tree((item.what.kind, item.clusters) for item in found)
        cluster = self.options.cluster or next(iter(named), None)
        self._own_cluster = TreeCluster(named[0], cluster) if len(named) == 1 and cluster else None
        self._clock([date for item in found for date in item.dates])
        read_before = self.store.ask(file_rows.read_files())
        known = {(e["path"], e["cluster"]): e for e in read_before}
        self._turned = Turned(read_before)
        self._names = HostNames.read(self.store)
        with ParserPool(self._processes(found), self._patterns, parser=self._parser) as pool:
            self._lines_of = LineFiles(pool, self)
            claims = None
            # Jobs' files last: the others name the jobs' users.
            for index, item in enumerate(sorted(found, key=lambda item: item.what.of_job)):
                if self.on_progress:
                    self.on_progress(index, len(found), item.path)
                if item.what.of_job and claims is None:
                    claims = self._claims(paths, found)
                try:
                    refused = claims and _refused(item, claims)
                    origin = self._origin(item, cluster)
                except OSError as error:  # gone since the first pass
                    self._note(item, "unreadable", [f"cannot be read: {error}"])
                    continue
                earlier = known.get((item.name, cluster)) or known.get((item.name, None))
                try:
                    self._file(item, origin, earlier)
                    if refused:
                        self.report.files[-1].warnings.append(refused)
                except reading.BROKEN as error:
                    self._note(item, "unreadable", [f"cannot be read: {error}"])
            self._lines_of.finish()
        self._flush()
        for result in self.report.files:
            if ahead := self._ahead.get(os.fsdecode(result.path)):
                result.warnings.append(
                    f"{ahead:,} lines are stamped after they were read: they have no time (tag future)"
                )
        settle(self.store)
        self.store.seal(least=SEGMENT_ROWS // 4)
        return self.report

    def _processes(self, found: list[_Found]) -> int:
        """How many processes parse: none if the input is parsed before they have started."""
        if self._workers is not None:
            return self._workers
        sizes = [
            _size(item.path) * (_PACKED if item.path.suffix in PACKED else 1)
            for item in found if item.what.kind == "lines"
        ]  # fmt: skip
        return min(os.cpu_count() or 1, MOST_PROCESSES) if sum(sizes) >= WORTH_PROCESSES else 0

    def _look(self, entries: list[tree.Entry]) -> list[_Found]:
        found = []
        for entry in entries:
            if entry.why is not None:
                status = "unreadable" if entry.broken else "left"
                self._note(_Found(entry.path, Recognition("skip")), status, [f"not read: {entry.why}"])
                continue
            try:
                head = reading.head_of(entry.path)
                what = recognise(_nameable(entry.path), head, _nameable(entry.root))
                found.append(
                    _Found(
                        entry.path,
                        what,
                        named_in_file(what.kind, head, len(head) < reading.HEAD),
                        _newest_dates(entry.path, what, head),
                    )
                )
            except reading.BROKEN as error:
                self._note(_Found(entry.path, Recognition("unreadable")), "unreadable", [f"cannot be read: {error}"])
        return found

    def _clock(self, dates: list[datetime]) -> None:
        """Finds the reference time for timestamps without a year, and the latest time that a timestamp may have. That
        is now, unless all dates in the tree are later, though not by years: then this machine's clock is behind."""
        now = datetime.now(UTC).replace(tzinfo=None)
        past = [date for date in dates if date <= now + EXACT]
        soon = [date for date in dates if date <= now + CLOCK_BEHIND]
        self._newest = max(past or soon, default=None)
        self._latest = max(now, self._newest or now)

    def _claims(self, paths: list[Path], found: list[_Found]) -> Claims:
        ours = frozenset().union(*(tree.trusted(path.resolve()) for path in paths))
        foldered = {item.what.job_id for item in found if item.what.artifact and not item.what.claimed}
        named: dict[int, set[str]] = defaultdict(set)
        for item in found:
            if item.what.claimed and item.what.job_id is not None:
                named[item.what.job_id].add(_nameable(item.path).name)
        of_names = {job: frozenset(names) for job, names in named.items()}
        claims = Claims(ours, frozenset(job for job in foldered if job is not None), of_names)
        claims.learn(self.store, self._pending.get("jobs", ()))
        return claims

    def _origin(self, item: _Found, cluster: str | None) -> Origin:
        modified = datetime.fromtimestamp(item.path.stat().st_mtime, UTC).replace(tzinfo=None, microsecond=0)
        modified = min(modified, self._latest)
        return Origin(
            path=item.name, cluster=cluster, host=self.options.host or item.what.host,
            source=item.what.source if item.what.of_job else self.options.source or item.what.source,
            timezone=self.options.timezone or "UTC", timezone_known=self.options.timezone is not None,
            reference=self._newest or modified, latest=self._latest, job_id=item.what.job_id,
            restarts=item.what.restarts, of_job=item.what.of_job,
        )  # fmt: skip

    def _file(self, item: _Found, origin: Origin, earlier: Mapping[str, Any] | None) -> None:
        what = item.what
        if what.kind in ("skip", "binary"):
            status = "unreadable" if what.kind == "binary" else "left" if what.of_job else "skipped"
            self._note(item, status, [what.reason])
            return
        skip, first_line, old_tail = 0, 1, None
        is_moved = False
        if not earlier or reading.prefix_digest(item.path, earlier["consumed"]) != earlier["digest"]:
            earlier = self._turned.source_of(item.path, item.name, origin.cluster) if what.kind == "lines" else None
            is_moved = earlier is not None
        if earlier:
            skip, first_line, old_tail = earlier["consumed"], earlier["lines"] + 1, earlier["tail"]
            rest = _pieces(item, skip)
            unread = sum(len(piece) for piece in rest)
            if unread == len(rest.tail) and (digest_of(rest.tail) if rest.tail else None) == old_tail:
                self._note(item, "unchanged", [])
                source = origin.source or earlier["source"] or "plain"
                self.report.files[-1].source = source if what.kind == "lines" else what.kind
                if is_moved:  # its old name will be another file's
                    self._entries.append(_moved(item, origin, earlier))
                return
        pieces = _pieces(item, skip)
        entry = FileEntry(
            item.name, origin.cluster, origin.host, what.kind, origin.source, what.reason, skip, "", first_line - 1, 0, 0, (),
            replaces_tail=bool(old_tail) and what.kind == "lines" and not is_moved, tail_line=first_line,
        )  # fmt: skip
        if what.kind == "lines":
            self._lines(
                item,
                origin,
                pieces,
                LineFile(FileResult(item.path, "lines", origin.source or "plain", "stored"), origin, entry, first_line),
            )
            return
        result = self._document(item, origin, pieces, skip)
        if pieces.broken:
            result.status = "partial"
            result.warnings.append(f"ends in the middle ({pieces.broken}); what came before is stored")
        self.report.files.append(result)
        self._entries.append(replace(
            entry, consumed=pieces.consumed, digest=pieces.digest, lines=result.lines, events=result.events, unparsed=result.unparsed,
            warnings=tuple(result.warnings), tail=digest_of(pieces.tail) if pieces.tail else None,
        ))  # fmt: skip
        self.consistent()

    def _lines(self, item: _Found, origin: Origin, pieces: reading.Pieces, file: LineFile) -> None:
        """Submits a file of lines; its counts and its ledger entry come with its rows."""
        self.report.files.append(file.result)
        kept = _HeadTail()
        for data in pieces:
            whole = data[: len(data) - len(pieces.tail)] if pieces.tail else data
            if whole:
                self._lines_of.add(file, whole, pieces.consumed, pieces.digest)
            if item.what.artifact:
                kept.add(data)
        if pieces.broken:
            file.result.status = "partial"
            file.result.warnings.append(f"ends in the middle ({pieces.broken}); what came before is stored")
        if item.what.artifact and kept.size:
            file.artifact = _artifact(item, origin, kept)
        if file.number == file.entry.lines + 1 and not pieces.consumed:
            file.result.warnings.append("empty")
        self._lines_of.end(file, pieces.tail, pieces.consumed, pieces.digest)

    def rows(self, rows: pl.DataFrame) -> None:
        """Rows of a few files (collector.line_files.Sink)."""
        self._ahead.update(rows["file"].gather(future.held(rows)).to_list())
        self._pending["logs"].append(rows)
        self._rows += rows.height

    def progress(self, file: LineFile, done: bool) -> None:
        """Records how far a file has been read (collector.line_files.Sink)."""
        if done:
            self._under_way.pop(id(file), None)
            self._entries.append(file.entry)
            if file.artifact is not None:
                self._queue({"artifacts": file.artifact})
        else:
            self._under_way[id(file)] = file

    def consistent(self) -> None:
        """Marks a point where rows and entries belong together (collector.line_files.Sink)."""
        if self._rows >= COMMIT_ROWS:
            self._flush()

    def _document(self, item: _Found, origin: Origin, pieces: reading.Pieces, skip: int) -> FileResult:
        result = FileResult(item.path, item.what.kind, item.what.kind, "stored")
        data = b"".join(pieces)
        if skip:  # a document is read whole: it has changed, and its rows are merged by subject
            data = b"".join(_pieces(item, 0))
        if item.what.kind == "script":
            kept = _HeadTail()
            kept.add(data)
            self._queue({"artifacts": _artifact(item, origin, kept)})
            result.lines = data.count(b"\n")
            return result
        parsed = documents.read(item.what.kind, data, origin)
        result.warnings += parsed.warnings
        result.lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        if (stated := parsed.tables.get("logs")) is not None:
            result.events, result.unparsed = _events(stated), _unparsed(stated)
        tables = future.held_tables(parsed.tables, self._latest, origin.reference or self._latest, None)
        self._queue(tables)
        return result

    def _queue(self, tables: dict[str, pl.DataFrame]) -> None:
        for name, data in tables.items():
            if data.height:
                if name == "logs":
                    self._ahead.update(data["file"].gather(future.held(data)).to_list())
                self._pending[name].append(logs_for_storage(data) if name == "logs" else data)
                self._rows += data.height

    def _flush(self) -> None:
        """Stores all rows so far, with the entries of finished files and of those in progress."""
        entries = [*self._entries, *(file.entry for file in self._under_way.values())]
        if entries or self._rows:
            tables = {name: pl.concat(parts) for name, parts in self._pending.items()}
            if self._own_cluster is not None:
                tables = {name: self._own_cluster.place(data) for name, data in tables.items()}
            self.store.append({name: self._names.normal(data) for name, data in tables.items()}, entries)
        for file in self._under_way.values():  # the old tail is final now
            file.entry = replace(file.entry, replaces_tail=False)
        self._under_way.clear()
        self._pending.clear()
        self._entries.clear()
        self._rows = 0

    def _note(self, item: _Found, status: str, warnings: list[str]) -> None:
        self.report.files.append(FileResult(item.path, item.what.kind, item.what.kind, status, warnings=warnings))


def _moved(item: _Found, origin: Origin, earlier: Mapping[str, Any]) -> FileEntry:
    """The ledger's entry of a file whose lines are stored under its former name."""
    how = "moved from " + str(earlier["path"])
    return FileEntry(
        item.name, origin.cluster, origin.host, item.what.kind, origin.source, how, earlier["consumed"], earlier["digest"], earlier["lines"],
        0, 0, (), tail=earlier["tail"],
    )  # fmt: skip


def _pieces(item: _Found, skip: int) -> reading.Pieces:
    """A file in pieces; a job's file, whose size its user chose, only up to a limit."""
    most = JOB_OUTPUT_BYTES if item.what.kind == "lines" else JOB_FILE_BYTES
    return reading.Pieces(item.path, skip=skip, most=most if item.what.of_job else None)


def _size(path: Path) -> int:
    """The disk usage of a file: holes cost no work."""
    try:
        seen = path.lstat()
    except OSError:
        return 0
    return min(seen.st_size, seen.st_blocks * 512)


def _refused(item: _Found, claims: Claims) -> str | None:
    """Why a file does not belong to the job that its location suggests; it is then assigned to no job, or to the one that
    names it."""
    what = item.what
    if what.job_id is None or what.kind == "skip":
        return None
    uid = item.path.lstat().st_uid
    owner: int | None = what.job_id
    refused = claims.refused(what.job_id, uid, what.claimed)
    if refused:
        owner = None
    elif what.claimed:
        owner, refused = claims.owner(what.job_id, uid, _nameable(item.path).name)
    if owner is None:
        item.what = replace(what, kind="lines", source="job_stdout", job_id=None, restarts=None, artifact=None)
    else:
        item.what = replace(what, job_id=owner)
    return refused


class _HeadTail:
    """Collects the head and the tail of a stream."""

    def __init__(self) -> None:
        self.head, self.tail, self.size = b"", b"", 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if len(self.head) < KEEP_HEAD:
            take = KEEP_HEAD - len(self.head)
            self.head, data = self.head + data[:take], data[take:]
        self.tail = (self.tail + data)[-KEEP_TAIL:]

    def text(self) -> tuple[str, bool]:
        cut = self.size - len(self.head) - len(self.tail)
        middle = f"\n... {cut:,} bytes left out here ...\n".encode() if cut else b""
        return (self.head + middle + self.tail).decode("utf-8", "replace"), bool(cut)


def _artifact(item: _Found, origin: Origin, kept: _HeadTail) -> pl.DataFrame:
    text, truncated = kept.text()
    return frame("artifacts", [{
        "cluster": origin.cluster, "job_id": item.what.job_id, "restarts": item.what.restarts, "kind": item.what.artifact,
        "path": item.name, "host": origin.host, "content": text, "truncated": truncated, "file": origin.path,
    }])  # fmt: skip


def _events(logs: pl.DataFrame) -> int:
    return int((logs["event"] != "other").sum())


def _unparsed(logs: pl.DataFrame) -> int:
    if logs["tags"].null_count() == logs.height:
        return 0
    return logs.filter(pl.col("tags").list.contains("unparsed")).height


def _newest_dates(path: Path, what: Recognition, head: bytes) -> tuple[datetime, ...]:
    """Of the full dates in a log or in accounting: the newest past one, and the newest that may be in another zone or
    ahead of a slow local clock. Timestamps without a year belong near the newest date of the tree."""
    if what.kind not in ("lines", "sacct", "jobcomp") or what.source in JOB_OUTPUT:
        return ()
    dates = []
    for text in _ends(path, head):
        with contextlib.suppress(ValueError):
            dates.append(datetime.fromisoformat(text.decode()))
    now = datetime.now(UTC).replace(tzinfo=None)
    newest = (
        max((date for date in dates if date <= now + ahead), default=None)
        for ahead in (EXACT, clock.AHEAD, CLOCK_BEHIND)
    )
    return tuple(date for date in newest if date is not None)


def _ends(path: Path, head: bytes) -> Iterator[bytes]:
    yield from _FULL_DATE.findall(head)
    if path.suffix not in PACKED and path.lstat().st_size > reading.HEAD:
        with reading.plain(path) as stream:
            stream.seek(-reading.HEAD, 2)
            yield from _FULL_DATE.findall(stream.read(reading.HEAD))


__all__ = ["FileResult", "Ingest", "Options", "Report"]
