"""The extensions of all groups: loads them, so that problems are reported, and counts them by package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from parsers import extensions


def load_all() -> None:
    """Loads the extensions of all groups, as the code that uses them does."""
    from collector.receivers import all_receivers
    from correlator.facts import registry as facts
    from faultline.notify import notifiers
    from parsers import documents, patterns
    from parsers.formats import all_formats
    from queries import dashboards, reports
    from queries.kql.engines import engines
    from queries.kql.functions import registry as functions
    from web.rooms import all_pages

    loaders: tuple[Callable[[], object], ...] = (
        all_formats, documents.installed, patterns.installed, reports.all_reports, facts.subjects, facts.detectors, all_receivers, notifiers, engines,
        functions.registry, all_pages, dashboards.installed,
    )  # fmt: skip
    for load in loaders:
        load()


def counted() -> list[str]:
    """A line for each package: how many extensions it provides in which group."""
    packages: dict[str, Counter[str]] = {}
    for one in extensions.known():
        packages.setdefault(one.package, Counter())[one.group] += 1
    return [
        f"{package}: {', '.join(f'{count} {_plural(group, count)}' for group, count in counts.items())}"
        for package, counts in sorted(packages.items())
    ] or ["none installed"]


def _plural(group: str, count: int) -> str:
    name = group.removeprefix("faultline.").replace("_", " ")
    return name.removesuffix("s") if count == 1 else name
