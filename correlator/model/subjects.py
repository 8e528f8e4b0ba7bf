"""Subjects of facts from other packages, which entry points of the group ``faultline.facts`` name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from correlator.model.kinds import Kind, misplaced, unfilled
from parsers import extensions

GROUP = "faultline.facts"


@cache
def packages() -> Mapping[str, ModuleType]:
    """The modules of installed packages, by the names that messages give their entry points.

    Found once, because listing what is installed reads files. A module that cannot be used is named in the log and left
    out as a whole.
    """
    return dict(extensions.load(GROUP, _admit))


def installed() -> tuple[ModuleType, ...]:
    """The modules of installed packages, by the names of their entry points."""
    return tuple(packages().values())


def _admit(offered: object, extension: extensions.Extension) -> tuple[str, ModuleType]:
    module = extensions.expect(offered, ModuleType)
    missing = [name for name in ("KINDS", "DETECTORS") if not hasattr(module, name)]
    if missing:
        raise ValueError(f"{module.__name__} has no {' and no '.join(missing)}")
    for kind in module.KINDS:
        extensions.expect(kind, Kind)
        if wrong := [*misplaced(kind), *unfilled(kind)]:
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
    """Event -> layer, for the events that kinds of installed packages name as their own."""
    return {event: kind.layer for module in installed() for kind in module.KINDS for event in kind.events}


def edge_files() -> tuple[Path, ...]:
    """The files of causal edges of installed packages (``EDGES`` of their modules)."""
    return tuple(Path(path) for module in installed() for path in getattr(module, "EDGES", ()))
