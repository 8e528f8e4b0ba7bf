"""Subjects of facts from other packages, which entry points of the group ``faultline.facts`` name.

``correlator.facts.registry`` registers the built-in kinds when it is imported, because no package may declare one of them
again. This module is below it, because ``correlator.gather`` needs the lanes of packages' events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from correlator.model.kinds import LANES, Kind, Lane, misplaced, unfilled
from parsers import extensions

GROUP = "faultline.facts"

#: Attribute of a module with names for its edges -> the word for one of them.
WORDS = {"CONDITIONS": "requirement", "SCOPES": "scope"}


_built_in: frozenset[str] = frozenset()


def register(built_in: Iterable[Kind[Any]]) -> None:
    """Sets the built-in kinds of facts."""
    global _built_in
    _built_in = frozenset(kind.name for kind in built_in)
    for cached in (packages, layers):
        cached.cache_clear()


@cache
def packages() -> Mapping[str, ModuleType]:
    """The modules of installed packages, by the names that messages give their entry points.

    Found once, because listing what is installed reads files. A module that cannot be used is logged and skipped as a
    whole, because its edges and detectors need its kinds. That includes a module that declares a kind, requirement or
    scope that already exists.
    """
    taken = {f"kind of fact {name}" for name in _built_in} | {f"lane {name}" for name in LANES}

    def admit(offered: object, extension: extensions.Extension) -> tuple[str, ModuleType]:
        called, module = _admit(offered, extension)
        names = [f"kind of fact {kind.name}" for kind in module.KINDS]
        names += [f"lane {lane.name}" for lane in getattr(module, "LANES", ())]
        names += [f"{word} {name}" for attribute, word in WORDS.items() for name in getattr(module, attribute, ())]
        extensions.claim(extension, names, taken, "declaration")
        taken.update(names)
        return called, module

    return dict(extensions.load(GROUP, admit))


def installed() -> tuple[ModuleType, ...]:
    """The modules of installed packages, by the names of their entry points."""
    return tuple(packages().values())


def _admit(offered: object, extension: extensions.Extension) -> tuple[str, ModuleType]:
    module = extensions.expect(offered, ModuleType)
    missing = [name for name in ("KINDS", "DETECTORS") if not hasattr(module, name)]
    if missing:
        raise ValueError(f"{module.__name__} has no {' and no '.join(missing)}")
    lanes = [extensions.expect(lane, Lane) for lane in getattr(module, "LANES", ())]
    for lane in lanes:
        if lane.after not in LANES:
            raise ValueError(f"lane {lane.name}: there is no lane {lane.after!r} to follow, but {', '.join(LANES)}")
    for kind in module.KINDS:
        extensions.expect(kind, Kind)
        if wrong := [*misplaced(kind, [*LANES, *(lane.name for lane in lanes)]), *unfilled(kind)]:
            raise ValueError(f"kind {kind.name}: {'; '.join(wrong)}")
    for detector in module.DETECTORS:
        if not callable(detector):
            raise TypeError(f"DETECTORS holds a {type(detector).__name__}, not a function")
    for path in getattr(module, "EDGES", ()):
        if not Path(path).is_file():
            raise ValueError(f"EDGES names {path}, which is no file")
    return extension.called, module


@cache
def layers() -> Mapping[str, str]:
    """Event -> layer, for the events that kinds of installed packages name as their own; the first kind wins."""
    found: dict[str, str] = {}
    for kind in (kind for module in installed() for kind in module.KINDS):
        found = dict.fromkeys(kind.events, kind.layer) | found
    return found


def lanes() -> tuple[Lane, ...]:
    """The lanes that installed packages add to the time axis."""
    return tuple(lane for module in installed() for lane in getattr(module, "LANES", ()))


def edge_files() -> Mapping[Path, str]:
    """The edge files of installed packages (``EDGES`` of their modules) -> the entry point's name in messages."""
    return {Path(path): called for called, module in packages().items() for path in getattr(module, "EDGES", ())}
