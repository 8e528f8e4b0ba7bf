"""A second engine is one object beside the first (``store.engine``): what is done with a folder goes to the engine whose
store is there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import store
from store.door import Copy, Door
from store.duckdb.engine import DuckEngine
from store.engine import Engine
from tests.store.memory_engine import MemoryStore

#: What each function of ``store`` is called with, for a folder or an open store there.
CALLED: dict[str, Any] = {
    "open_store": lambda folder: (folder,), "migrate": lambda folder: (folder,), "compact": lambda folder: (folder,),
    "is_mostly_free": lambda folder: (Opened(folder), 7), "sizes": lambda folder: (Opened(folder),),
    "restore": lambda folder: (folder, folder / "into"), "read_copy": lambda folder: (folder,),
    "verify_copy": lambda folder: (Copy(folder, {}),), "set_log_aside": lambda folder: (folder,),
}  # fmt: skip


class Opened(MemoryStore):
    """An open store of the other engine."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


@dataclass
class Other:
    """An engine that notes what it is asked for. Its stores are folders with a file ``other``."""

    asked: list[str] = field(default_factory=list)

    def is_store(self, folder: Path) -> bool:
        return (folder / "other").exists()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.asked.append(name)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Other]:
    engine = Other()
    monkeypatch.setitem(store.ENGINES, "other", lambda: engine)
    yield engine


@pytest.mark.parametrize("name", CALLED)
def test_what_is_done_with_a_folder_goes_to_the_engine_of_its_store(name: str, other: Other, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    getattr(store, name)(*CALLED[name](tmp_path))
    assert other.asked == ["open" if name == "open_store" else name] and store.is_store(tmp_path)


def test_every_part_of_an_engine_is_reached_through_the_store() -> None:
    parts = {name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")}
    assert parts == {*CALLED, "open", "is_store"} - {"open_store"}
    assert parts == {name for name, _ in inspect.getmembers(DuckEngine, inspect.isfunction) if not name.startswith("_")}


def test_new_stores_and_those_in_memory_are_the_first_engines(other: Other, tmp_path: Path) -> None:
    for folder in (None, tmp_path / "new"):
        with store.open_store(folder) as opened:
            assert isinstance(opened, Door)
    assert other.asked == [] and store.is_store(tmp_path / "new") and not store.is_store(tmp_path)
