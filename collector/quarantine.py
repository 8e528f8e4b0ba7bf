"""Batches that could not be read: kept whole, with the reason, until somebody replays them."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from collector.receivers.base import moment_of
from collector.segment_file import Record, payload_of
from store.files import flush_folder, remove_left


class Quarantine:
    """A folder of set-aside batches: ``ID.batch`` holds a line of JSON (the description) and the payload as
    received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        remove_left(folder.glob(".*.draft"), "batches set aside")

    def put(self, record: Record, spool_id: str, reason: str, now: datetime) -> dict[str, Any]:
        """Sets a record aside, durably; returns its row of ``intake.quarantine``. Idempotent."""
        identity = str(record.meta.get("replay") or f"{spool_id[:8]}-{record.segment}-{record.offset}")
        try:
            payload = payload_of(record.path, record.payload_offset, record.payload_bytes, record.payload_crc)
        except ValueError:  # damaged: keep the bytes as they are
            with Path(record.path).open("rb") as file:
                payload = os.pread(file.fileno(), record.payload_bytes, record.payload_offset)
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f".{identity}.draft"
        with draft.open("wb") as file:
            file.write(json.dumps(record.meta, ensure_ascii=False).encode() + b"\n" + payload)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path(identity))
        for folder in (
            self.folder,
            self.folder.parent,
        ):  # the spool forgets the batch once the store knows that it is here
            flush_folder(folder)
        received = record.meta.get("received")
        key = record.meta.get("key")
        return {
            "id": identity, "kind": str(record.meta.get("kind")), "peer": record.meta.get("peer"), "reason": reason,
            "key": None if key is None else "/".join(map(str, key)) if isinstance(key, list) else str(key),
            "bytes": record.payload_bytes, "received": moment_of(int(received)) if received else None,
            "set_aside_at": now, "replayed_at": None,
        }  # fmt: skip

    def path(self, identity: str) -> Path:
        """The file of a batch."""
        return self.folder / f"{identity}.batch"

    def get(self, identity: str) -> tuple[dict[str, Any], bytes] | None:
        """Description and payload; None if there is no batch with that ID."""
        if not identity.replace("-", "").isalnum():
            return None
        try:
            head, _, payload = self.path(identity).read_bytes().partition(b"\n")
        except OSError:
            return None
        meta: dict[str, Any] = json.loads(head)
        return meta, payload

    def edition(self, identity: str) -> int:
        """Changes each time that a batch is set aside."""
        return self.path(identity).stat().st_mtime_ns

    def drop(self, identity: str) -> None:
        self.path(identity).unlink(missing_ok=True)
