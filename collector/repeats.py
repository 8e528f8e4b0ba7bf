"""Batches without a key of their own: a repeat of one whose answer was lost is told from one that is merely the same.

Elasticsearch's bulk API without ids, and plain posts, have nothing that names a batch. Their senders (rsyslog's
omelasticsearch, Fluent Bit, Vector) send the same bytes again when they got no answer. Equal bytes alone prove nothing: a
heartbeat looks the same every time. So the same bytes from the same sender count as a repeat only while an answer may have
been lost: the first try was not answered in this process, or it was among the last that the process before took in.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from collections import OrderedDict
from pathlib import Path

from collector.receivers.base import Request
from collector.spool import SEGMENT_MAGIC, Spool, scan

#: An answer leaves as soon as its batch is synced; what was spooled longer than this before the end was answered.
LAST_S = 30.0
#: Batches without an answer that are remembered. Senders hold back one or a few each.
MOST = 20_000
_PREFIX = "content"


class Repeats:
    """Keys for batches by their content. One per process; the event loop alone uses it."""

    def __init__(self, spool: Spool | None = None) -> None:
        #: Digest -> key of the batch whose answer did not go out (yet).
        self._open: OrderedDict[str, str] = OrderedDict()
        self._mine = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        if spool is not None:
            self._recall(spool)

    def key(self, request: Request) -> tuple[str, str]:
        """(digest, key): the former key where these bytes may be a repeat, else a new one."""
        about = f"{request.peer}\n{request.path}\n{request.headers.get('content-encoding', '')}\n".encode()
        digest = hashlib.blake2b(about + request.body, digest_size=16).hexdigest()
        known = self._open.get(digest)
        if known is None:
            known = self._open[digest] = f"{_PREFIX} {digest} {self._mine}.{next(self._numbers)}"
            if len(self._open) > MOST:
                self._open.popitem(last=False)
        return digest, known

    def answered(self, digest: str) -> None:
        """The sender has its answer: the same bytes from now on are something new."""
        self._open.pop(digest, None)

    def _recall(self, spool: Spool) -> None:
        """What the processes before may not have answered: from their last segments, and from what they recalled."""
        kept = spool.folder / "unanswered.json"
        try:
            found: dict[str, str] = dict(json.loads(kept.read_text()))
        except (OSError, ValueError):
            found = {}
        taken: list[tuple[int, str]] = []
        newest = 0
        for path in sorted(spool.folder.glob("*.seg"))[:-1]:  # the last is this process's own
            for record in scan(path, int(path.stem), len(SEGMENT_MAGIC), path.stat().st_size, check=False):
                received = int(record.meta.get("received") or 0)
                newest = max(newest, received)
                key = record.meta.get("key")
                if isinstance(key, str) and key.startswith(f"{_PREFIX} "):
                    taken.append((received, key))
        found |= {key.split()[1]: key for received, key in taken if received >= newest - LAST_S * 1e6}
        self._open.update(list(found.items())[-MOST:])
        if found:
            _write(kept, json.dumps(dict(self._open)))


def _write(path: Path, text: str) -> None:
    """Whole or not at all; a disk that refuses costs only the memory of it."""
    try:
        draft = path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(path)
    except OSError:
        return
