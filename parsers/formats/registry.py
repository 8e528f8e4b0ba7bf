"""Every format, in the order in which it is tried.

``parsers.formats`` registers the built-in ones when it is imported. Formats that read a line inside a line get all of
them here, themselves included, and import none.
"""

from __future__ import annotations

from functools import lru_cache

from parsers import extensions
from parsers.formats.base import Format
from parsers.formats.guarded import guarded

GROUP = "faultline.formats"

_built_in: tuple[Format, ...] = ()


def register(built_in: tuple[Format, ...]) -> None:
    """Sets the built-in formats, in their order; the last of them accepts anything."""
    global _built_in
    _built_in = built_in
    all_formats.cache_clear()


@lru_cache(maxsize=1)
def all_formats() -> tuple[Format, ...]:
    """Every format in the order in which it is tried, those of installed packages first; the last accepts anything."""
    found: dict[str, Format] = {}

    def admit(offered: object, extension: extensions.Extension) -> None:
        form = guarded(offered, extension)
        extensions.claim(extension, (form.name,), {*found, *(one.name for one in _built_in)})
        found[form.name] = form

    extensions.load(GROUP, admit)
    return (*found.values(), *_built_in)


def installed_names() -> frozenset[str]:
    """The names of the formats of installed packages."""
    return frozenset(one.name for one in all_formats() if extensions.brought_by(GROUP, one.name))
