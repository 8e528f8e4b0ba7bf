"""What ``faultline check`` says of installed extensions: every group is loaded, counted by package, and what is wrong is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from parsers import extensions


def load_all() -> None:
    """Loads the extensions of all groups, as the parts that use them do. Raises ``ValueError`` where two packages declare one kind
    of fact."""
    from collector.receivers import all_receivers
    from correlator.facts import registry as facts
    from faultline.notify import notifiers
    from parsers import documents, patterns
    from parsers.formats import all_formats
    from queries import reports
    from queries.kql.engines import engines
    from queries.kql.functions import registry as functions
    from web.rooms import all_pages

    loaders: tuple[Callable[[], object], ...] = (
        all_formats, patterns.installed, facts.subjects, facts.detectors, all_receivers, notifiers, engines,
        functions.registry, all_pages,
    )  # fmt: skip
    for load in loaders:
        load()
    assert documents.INSTALLED is not None and reports.REPORTS  # both are loaded as they are imported
    facts.kinds()


def counted() -> list[str]:
    """A line for each package: how many extensions of which group it brings."""
    packages: dict[str, Counter[str]] = {}
    for one in extensions.known():
        packages.setdefault(one.package, Counter())[one.group] += 1
    return [
        f"{package}: {', '.join(f'{count} {_plural(group, count)}' for group, count in counts.items())}"
        for package, counts in sorted(packages.items())
    ] or ["none installed"]


def wrong() -> list[str]:
    """What does not load, and what failed since then while it was tried."""
    left_out = [str(one) for one in extensions.known() if one.problem]
    return [*left_out, *(text for text in extensions.warnings() if text not in left_out)]


def _plural(group: str, count: int) -> str:
    name = group.removeprefix("faultline.").replace("_", " ")
    return name.removesuffix("s") if count == 1 else name
