"""Names that nothing uses, for ``house.py``: what vulture reports, less what a person found in use.

Vulture reads Python only, and looks for a name anywhere. So it reports what a library, a template or a text calls, and
misses a dead name that something else has, too. ``dead_names.toml`` lists what a person read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).with_suffix(".toml")
#: Functions that a framework calls by what decorates them: routes, commands, validators, dialects.
CALLED = (
    "@*.get", "@*.post", "@*.put", "@*.delete", "@*.middleware", "@*.exception_handler", "@*.command", "@*.add_middleware",
    "@*field_validator", "@*model_validator", "@compiles", "@CONDITIONS.named", "@SCOPES.named",
)  # fmt: skip


def reported(root: Path, folders: Iterable[str]) -> set[str] | None:
    """The names that vulture finds no use of in these folders; None if it is not installed."""
    try:
        from vulture import Vulture
    except ImportError:
        return None
    reader = Vulture(ignore_decorators=list(CALLED))
    reader.scavenge([str(root / folder) for folder in folders])
    return {str(item.name) for item in reader.get_unused_code(min_confidence=60)}


def listed() -> tuple[set[str], set[str], set[str]]:
    """The names that are in use, those that are not and are kept, and those in use that only 391db37 has."""
    tables = tomllib.loads(LIST.read_text(encoding="utf-8"))

    def names(table: str) -> set[str]:
        return {name for entry in tables[table] for name in entry["names"]}

    return names("used"), names("kept"), names("used_before")


def dead(root: Path, folders: Iterable[str]) -> set[str] | None:
    """The names that nothing uses, or only a test."""
    found = reported(root, folders)
    if found is None:
        return None
    used, _, used_before = listed()
    return found - used - used_before
