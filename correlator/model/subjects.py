"""Subjects of facts that other packages bring: what an entry point of the group ``faultline.facts`` names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from parsers import plugins

GROUP = "faultline.facts"


@cache
def installed() -> tuple[ModuleType, ...]:
    """The modules of installed packages, by the names of their entry points; found once, because asking what is installed
    reads files. Raises ``ValueError`` that names an entry point whose module declares nothing."""
    found: list[ModuleType] = []
    for point in plugins.installed(GROUP):
        module = point.load()
        missing = [name for name in ("KINDS", "DETECTORS") if not hasattr(module, name)]
        if missing:
            raise ValueError(f"entry point {point.name} of {GROUP}: {point.value} has no {' and no '.join(missing)}")
        found.append(module)
    return tuple(found)


@cache
def layers() -> Mapping[str, str]:
    """Event -> layer, for the events that kinds of installed packages name as their own."""
    return {event: kind.layer for module in installed() for kind in module.KINDS for event in kind.events}


def edge_files() -> tuple[Path, ...]:
    """The files of causal edges that installed packages bring (``EDGES`` of their modules)."""
    return tuple(Path(path) for module in installed() for path in getattr(module, "EDGES", ()))
