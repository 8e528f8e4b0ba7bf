"""The ledger of ingested files."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select

from store.tables import FILES


def read_files(kind: str | None = None) -> Select[Any]:
    """Files of a ``kind``, or all: ``path``, ``cluster``, and how far each was read (``consumed`` bytes, their
    ``digest``, ``lines`` and the unterminated ``tail``)."""
    file = FILES.c
    found = select(file.path, file.cluster, file.source, file.consumed, file.digest, file.lines, file.tail)
    return found if kind is None else found.where(file.kind == kind)
