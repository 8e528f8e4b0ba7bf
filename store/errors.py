"""The exceptions of a store, whatever its engine. The text gives what, where and what to do."""

from __future__ import annotations

from pathlib import Path


class StoreError(Exception):
    """The store cannot do what was requested."""


class StoreHeld(StoreError):  # noqa: N818  (a state, shown to a person)
    """Another process holds the store. ``address`` is the address of its service, if it left one."""

    def __init__(self, folder: Path, address: str | None) -> None:
        self.address = address
        hint = (
            f"ask the service at {address} (--server {address})" if address else "stop it or use another --data folder"
        )
        super().__init__(f"{folder}: the store is held by another process; {hint}")


class LinesChanged(StoreError):  # noqa: N818  (a state, not an error)
    """Lines kept changing while they were archived: the day stays as it is, and the next round retries."""


class Unwanted(StoreError):  # noqa: N818  (a state, not an error)
    """What was begun is not wanted any more; nothing of it is left."""


class EngineError(StoreError):
    """The engine refused or failed a statement: a full disk, a lost file, memory, a bug of ours. The cause is
    chained."""


class NoSuchTable(EngineError):  # noqa: N818  (a state: older stores and a person's view lack some tables)
    """A table or column does not exist: an older version created the store, or the reader may not see it."""
