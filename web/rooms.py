"""The pages of the top bar: built-in ones and those of installed packages, through the same extension point.

A package offers a page by an entry point of the group ``faultline.pages`` that names a :class:`Page`. Its routes
require the right to read the whole cluster; a route for a person's own jobs only needs a rule of its own
(``web.access.rights``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter

from parsers import extensions

GROUP = "faultline.pages"


@dataclass(frozen=True)
class Page:
    """A page of the top bar.

    ``name`` is its address below / and, capitalised, its label. ``router`` holds its routes; None if they are
    elsewhere. ``templates`` is the folder of its Jinja templates, if it has its own.
    """

    name: str
    router: APIRouter | None = None
    templates: Path | None = None


#: In the order of the top bar.
BUILT_IN = tuple(
    Page(name)
    for name in ("incidents", "jobs", "nodes", "fleet", "repairs", "dashboards", "explore", "reports", "sources")
)


@cache
def all_pages() -> tuple[Page, ...]:
    """Built-in pages, then those of installed packages by name.

    A page that does not load, or whose name is taken, is logged and left out: the others still show why a job died.
    """
    return tuple(extensions.named(GROUP, Page, BUILT_IN, check=_check).values())


def _check(page: Page) -> None:
    """Raises ``TypeError`` or ``ValueError`` for a page that the application could not take in."""
    if page.router is not None:
        extensions.expect(page.router, APIRouter)
    if page.templates is not None and not Path(page.templates).is_dir():
        raise ValueError(f"templates {page.templates}: no such folder")


def package_of(endpoint: object) -> str | None:
    """The extension whose page has this route function, as messages call it; None for built-in routes."""
    for page in all_pages():
        if page.router is not None and any(
            getattr(route, "endpoint", None) is endpoint for route in page.router.routes
        ):
            return extensions.brought_by(GROUP, page.name)
    return None


def names() -> tuple[str, ...]:
    """The names of the pages in the top bar, as in their addresses."""
    return tuple(page.name for page in all_pages())
