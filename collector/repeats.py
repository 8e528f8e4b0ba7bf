"""Recognises repeated batches that have no key: distinguishes a repeat after a lost answer from a batch that is merely
equal.

Nothing names a batch in Elasticsearch's bulk API without IDs, or in plain posts. Their senders repeat a batch when they
got no answer: Fluent Bit and Vector send the same bytes, rsyslog's omelasticsearch the same documents, one by one.
Equal bytes alone prove nothing: a heartbeat is always the same. So they count as a repeat only while an answer may have
been lost: the first attempt was not answered in this process, or it was among the last that the previous process
accepted.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from collector.receivers.base import Request
from collector.receivers.elasticsearch import is_dated, parts_of
from collector.receivers.refusals import Refused
from collector.receivers.unpacking import unpack
from collector.segment_file import FIRST_RECORD, Record, payload_of, scan
from collector.spool import Spool

#: An answer is sent as soon as its batch is synced; anything spooled longer than this before the end was answered.
LAST_S = 5.0
#: Most unanswered batches and documents that are remembered. Senders hold back one or a few batches each.
MOST, MOST_PARTS = 20_000, 200_000
_PREFIX = "content"


class Repeats:
    """Keys for batches by content. One per process; used by the event loop only."""

    def __init__(self, spool: Spool | None = None) -> None:
        #: Digest -> key of the batch whose answer has not been sent (yet).
        self._open: OrderedDict[str, str] = OrderedDict()
        #: Digest of a document -> how often it occurs in unanswered batches.
        self._parts: Counter[str] = Counter()
        self._mine = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        if spool is not None:
            self._recall(spool)

    def key(self, request: Request) -> tuple[str, str, bool]:
        """(digest, key, known): the earlier key if these bytes may be a repeat, else a new one."""
        about = f"{request.peer}\n{request.path}\n{request.headers.get('content-encoding', '')}\n".encode()
        digest = hashlib.blake2b(about + request.body, digest_size=16).hexdigest()
        known = self._open.get(digest)
        if known is not None:
            return digest, known, True
        made = self._open[digest] = f"{_PREFIX} {digest} {self._mine}.{next(self._numbers)}"
        if len(self._open) > MOST:
            self._open.popitem(last=False)
        return digest, made, False

    def answered(self, digest: str) -> None:
        """Records that the sender has its answer: from now on the same bytes are something new."""
        self._open.pop(digest, None)

    def unanswered(self, peer: str | None, parts: Iterable[bytes]) -> None:
        """Records that the batch is on disk and its sender does not know: its documents may come again, also
        individually."""
        self._parts.update(_digest(peer, part) for part in parts)
        while len(self._parts) > MOST_PARTS:
            del self._parts[next(iter(self._parts))]

    @property
    def has_parts(self) -> bool:
        """Whether any document may come again individually."""
        return bool(self._parts)

    def fresh(self, peer: str | None, parts: list[bytes]) -> list[bytes]:
        """``parts`` without repeats; each remembered one counts once. Undated documents are never repeats."""
        if not self._parts:
            return parts
        kept = []
        for part in parts:
            digest = _digest(peer, part)
            if self._parts[digest] > 0 and is_dated(part):
                self._parts[digest] -= 1
            else:
                kept.append(part)
        self._parts = +self._parts
        return kept

    # -- over restarts -------------------------------------------------------------------------------------------

    def _recall(self, spool: Spool) -> None:
        """Loads what previous processes may not have answered: from their last segments, and from what they had
        loaded."""
        kept = spool.folder / "unanswered.json"
        batches: dict[str, str] = {}
        documents: dict[str, list[str]] = {}
        try:
            found: dict[str, Any] = json.loads(kept.read_text())
            batches, documents = dict(found["batches"]), dict(found["documents"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none yet, or damaged
        for record in _last(spool):
            key = str(record.meta["key"])
            batches[key.split()[1]] = key
            if record.meta.get("kind") == "elasticsearch" and record.meta.get("form") == "bulk":
                peer = record.meta.get("peer")
                documents[key] = [_digest(None if peer is None else str(peer), part) for part in _parts(record)]
        self._open.update(list(batches.items())[-MOST:])
        while sum(map(len, documents.values())) > MOST_PARTS:
            del documents[next(iter(documents))]
        for digests in documents.values():
            self._parts.update(digests)
        if batches or documents:
            _write(kept, json.dumps({"batches": dict(self._open), "documents": documents}))


def _last(spool: Spool) -> list[Record]:
    """Batches with a content key that arrived just before the previous process ended."""
    taken: list[tuple[int, Record]] = []
    newest = 0
    for path in sorted(spool.folder.glob("*.seg"))[:-1]:  # the last belongs to this process
        for record in scan(path, int(path.stem), FIRST_RECORD, path.stat().st_size):
            received = int(record.meta.get("received") or 0)
            newest = max(newest, received)
            if str(record.meta.get("key")).startswith(f"{_PREFIX} "):
                taken.append((received, record))
    return [record for received, record in taken if received >= newest - LAST_S * 1e6]


def _parts(record: Record) -> list[bytes]:
    try:
        data = payload_of(record.path, record.payload_offset, record.payload_bytes, record.payload_crc)
        return list(parts_of(unpack(data, record.meta.get("encoding"))))
    except (OSError, ValueError, Refused):
        return []


def _digest(peer: str | None, part: bytes) -> str:
    return hashlib.blake2b(f"{peer}\n".encode() + part, digest_size=16).hexdigest()


def _write(path: Path, text: str) -> None:
    """Writes the file completely or not at all; if the disk refuses, only this memory is lost."""
    try:
        draft = path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(path)
    except OSError:
        return
