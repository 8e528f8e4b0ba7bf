"""Loads extensions from installed packages: the one loader of entry points, whatever their group.

One rule applies to all groups. An extension that does not import, has the wrong type or cannot work is logged (group,
name, value, package, reason) and skipped; everything else continues. One that raises in use is logged by
:func:`warn_once`. ``faultline check`` prints what :func:`known` and :func:`warnings` return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, TypeVar


class Named(Protocol):
    """An object with a ``name``."""

    @property
    def name(self) -> str: ...


T = TypeVar("T")
N = TypeVar("N", bound=Named)

#: Group of entry points -> the word for one of its members.
GROUPS = {
    "faultline.formats": "format", "faultline.documents": "document", "faultline.patterns": "patterns",
    "faultline.facts": "kinds of facts", "faultline.detectors": "detectors", "faultline.kql_functions": "KQL functions",
    "faultline.kql_engines": "KQL engine", "faultline.reports": "report", "faultline.notifiers": "notifier",
    "faultline.receivers": "receiver", "faultline.pages": "page",
}  # fmt: skip

#: More distinct warnings than this help nobody.
MOST_WARNINGS = 1000

_known: dict[tuple[str, str, str], Extension] = {}
_warned: dict[str, None] = {}


@dataclass(frozen=True)
class Extension:
    """One entry point, and why it is skipped; ``problem`` is empty if it is used."""

    group: str
    name: str
    value: str
    package: str
    problem: str = ""

    @property
    def called(self) -> str:
        """Its name in messages: ``format bmc (our_package.bmc:BMC) of our-package``."""
        return f"{GROUPS.get(self.group, self.group)} {self.name} ({self.value}) of {self.package}"

    def __str__(self) -> str:
        return f"{self.called}: {self.problem or 'loaded'}"


def load(group: str, admit: Callable[[object, Extension], T]) -> list[T]:
    """The objects that the entry points of ``group`` offer, by name. ``admit`` returns the part to use, or raises
    ``TypeError`` or ``ValueError`` with the reason why an object cannot be used."""
    found = []
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        extension = Extension(group, point.name, point.value, _package(point))
        problem = ""
        try:
            offered = point.load()
        except Exception as error:  # a broken package must not stop the others
            problem = f"does not load: {described(error)}"
        else:
            try:
                found.append(admit(offered, extension))
            except (TypeError, ValueError) as error:
                problem = str(error)
            except Exception as error:
                problem = described(error)
        if problem:
            extension = replace(extension, problem=f"{problem}; it is left out")
            warn_once(str(extension))
        _known[group, point.name, point.value] = extension
    return found


def of_type(kind: type[T]) -> Callable[[object, Extension], T]:
    """An ``admit`` function for objects of one class."""

    def admit(found: object, extension: Extension) -> T:
        return expect(found, kind)

    return admit


def expect(found: object, kind: type[T]) -> T:
    """Returns ``found`` if it is of this class. Raises ``TypeError`` that names both classes."""
    if not isinstance(found, kind):
        raise TypeError(f"is of type {type(found).__name__}, not {kind.__name__}")
    return found


def named(group: str, kind: type[N], built_in: Iterable[N]) -> dict[str, N]:
    """Objects of this class with a ``name``, keyed by it: built-in ones first, then those of packages, which may not
    reuse a name."""
    found = {one.name: one for one in built_in}

    def admit(offered: object, _extension: Extension) -> None:
        one = expect(offered, kind)
        if one.name in found:
            raise ValueError(f"the name {one.name!r} is taken")
        found[one.name] = one

    load(group, admit)
    return found


def known() -> list[Extension]:
    """Every entry point loaded in this process, by group and name."""
    return [_known[key] for key in sorted(_known)]


def warn_once(text: str, error: Exception | None = None) -> None:
    """Logs a warning, with the traceback of ``error`` if given; the same text is logged once per process."""
    if text not in _warned and len(_warned) < MOST_WARNINGS:
        _warned[text] = None
        # Imported only here: the logging library costs worker processes 12 MB, and most sites have no failing packages.
        import structlog

        from parsers import logs

        if not logs.is_set_up():  # a worker process
            logs.set_up()
        structlog.get_logger().warning(text, exc_info=error)


def warnings() -> list[str]:
    """The warnings logged in this process, in order."""
    return list(_warned)


def described(error: BaseException) -> str:
    """The class and message of an exception: ``KeyError: 'gpu'``."""
    return f"{type(error).__name__}: {error}"


def _package(point: EntryPoint) -> str:
    dist = getattr(point, "dist", None)
    return dist.name if dist is not None else "an unnamed package"
