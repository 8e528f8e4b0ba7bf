"""``state.json`` of the agent's spool: written so that neither a crash nor a full disk loses the one before."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class State:
    """``acknowledged`` is the last batch that the server has, ``next`` the first number that is free, ``positions`` the
    read positions by key, each with the batch that reached it."""

    epoch: str
    acknowledged: int
    next: int
    dropped_lines: int
    positions: dict[str, tuple[int, Any]]


def read(folder: Path) -> State | None:
    """None if there is no state yet, or a damaged one, which means the same."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
        positions = {key: (int(seq), value) for key, (seq, value) in state["positions"].items()}
        numbers = int(state["acknowledged"]), int(state["next"]), int(state.get("dropped_lines", 0))
        return State(str(state["epoch"]), *numbers, positions)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return None


def write(folder: Path, state: State) -> None:
    """Replaces the state on disk. Raises ``OSError``."""
    document = {
        "epoch": state.epoch, "acknowledged": state.acknowledged, "next": state.next,
        "dropped_lines": state.dropped_lines, "positions": state.positions,
    }  # fmt: skip
    text = json.dumps(document, separators=(",", ":")).encode()
    new = folder / "state.json.new"
    new.touch()
    with new.open("r+b") as stream:
        stream.write(text)  # overwrites the blocks that it already has
        stream.truncate()
        os.fsync(stream.fileno())
    new.replace(folder / "state.json")
    sync_folder(folder)
    _reserve(folder, 2 * len(text))


def _reserve(folder: Path, size: int) -> None:
    """Reserves the blocks of the next state file now: on a full disk, delivered segments could not be removed
    otherwise."""
    with contextlib.suppress(OSError), (folder / "state.json.new").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, size + 4096)


def sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
