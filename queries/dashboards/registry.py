"""All dashboards: shipped ones, those of installed packages, and a site's own, through the same reader.

A package offers dashboards by an entry point of the group ``faultline.dashboards``: a list of paths of files or folders
(``*.toml``). A site names its own in the configuration (``dashboards``). A name that is taken is reported, and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from parsers import extensions
from queries.dashboards.model import Dashboard, Problem
from queries.dashboards.reading import read
from queries.kql.errors import KqlError
from queries.saved import Saved, files, problem_parts

GROUP = "faultline.dashboards"
SHIPPED = Path(__file__).parent / "shipped"


@cache
def installed() -> tuple[tuple[str, tuple[Path, ...]], ...]:
    """Files of packages, with the name of the entry point in messages."""
    return tuple(extensions.load(GROUP, _paths))


def _paths(offered: object, extension: extensions.Extension) -> tuple[str, tuple[Path, ...]]:
    if not isinstance(offered, (list, tuple)) or not all(isinstance(path, (str, Path)) for path in offered):
        raise TypeError(f"is of type {type(offered).__name__}, not a list of paths")
    return extension.called, tuple(Path(path) for path in offered)


def all_dashboards(site: Sequence[Path], library: Mapping[str, Saved]) -> tuple[dict[str, Dashboard], list[Problem]]:
    """Dashboards by name, and everything that is wrong with their files. Files are read each time: a change needs no
    restart."""
    found: dict[str, Dashboard] = {}
    problems: list[Problem] = []
    groups = [("built in", (SHIPPED,)), *installed(), ("this site", tuple(site))]
    for origin, paths in groups:
        for file in files(paths, "*.toml"):
            one = read(file, library, origin)
            if one.name in found:
                taken = f"the name {one.name!r} is taken by {found[one.name].file}"
                called = origin if paths not in ((SHIPPED,), tuple(site)) else ""
                problems.append(Problem(file, None, called, taken, "rename the file; this one is left out"))
                continue
            found[one.name] = one
            problems += one.problems
    return found, problems


def faults(dashboards: Mapping[str, Dashboard], validate: Callable[[str], object]) -> list[Problem]:
    """What is wrong with the queries of panels. ``validate`` raises ``KqlError``."""
    out = []
    for one in dashboards.values():
        for number, panel in enumerate(one.panels, 1):
            if panel.problem is not None:
                continue
            try:
                validate(panel.query)
            except KqlError as error:
                line, reason, do = problem_parts(error)
                place = (panel.line or 1) + line - 1 if line else panel.line
                out.append(Problem(panel.file or one.file, place, f"panel {number} ({panel.title})", reason, do))
    return out
