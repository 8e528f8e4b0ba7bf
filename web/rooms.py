"""The pages of the top bar: built-in ones and those of installed packages, which come through the same door.

A package offers a page by an entry point of the group ``faultline.pages`` that names a :class:`Page`. Whoever may read the
whole cluster may ask its routes; what reads a person's own jobs only needs a rule of its own (``web.access.rights``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from fastapi import APIRouter

log = logging.getLogger("faultline.web")


@dataclass(frozen=True)
class Page:
    """``name``: its address below / and, capitalised, its word in the top bar. ``router``: its routes; None where they stand
    with others. ``templates``: the folder of its Jinja templates, if it has any of its own."""

    name: str
    router: APIRouter | None = None
    templates: Path | None = None


#: In the order of the top bar.
BUILT_IN = tuple(Page(name) for name in ("incidents", "jobs", "nodes", "repairs", "explore", "reports", "sources"))


@cache
def all_pages() -> tuple[Page, ...]:
    """Built-in pages, then those of installed packages by name. One that does not load, or whose name is taken, is logged and
    left out: the others still show why a job died."""
    found = {page.name: page for page in BUILT_IN}
    for point in sorted(entry_points(group="faultline.pages"), key=lambda point: point.name):
        try:
            page = point.load()
        except Exception as error:
            log.warning("page %s of %s does not load: %s", point.name, point.value, error)
            continue
        if not isinstance(page, Page) or page.name in found:
            log.warning("page %s of %s is none, or its name is taken: it is left out", point.name, point.value)
            continue
        found[page.name] = page
    return tuple(found.values())


def names() -> tuple[str, ...]:
    """The pages of the top bar, as their addresses call them."""
    return tuple(page.name for page in all_pages())
