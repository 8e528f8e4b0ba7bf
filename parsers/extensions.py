"""Loads extensions from installed packages: the one loader of entry points, whatever their group.

One rule applies to all groups. An extension that does not import, has the wrong type or cannot work is logged (group,
name, value, package, reason) and skipped; everything else continues. One that raises in use is logged by
:func:`warn_once`. ``faultline check`` and the sources page show :func:`problems`.

If two extensions use the same name, the first is used, in the order of their packages' names: every machine with the same
packages then uses the same one. Skipping both would let any new package disable a working one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

T = TypeVar("T")

#: Group of entry points -> the word for one of its members.
GROUPS = {
    "faultline.formats": "format", "faultline.documents": "document", "faultline.patterns": "patterns",
    "faultline.facts": "kinds of facts", "faultline.detectors": "detectors", "faultline.kql_functions": "KQL functions",
    "faultline.kql_engines": "KQL engine", "faultline.reports": "report", "faultline.notifiers": "notifier",
    "faultline.receivers": "receiver", "faultline.pages": "page",
    "faultline.dashboards": "dashboards",
}  # fmt: skip

#: More distinct warnings than this help nobody.
MOST_WARNINGS = 1000

_known: dict[tuple[str, str, str, str], Extension] = {}
#: Group and a name in it -> the extension that defines it.
_brought: dict[tuple[str, str], Extension] = {}
_warned: dict[str, None] = {}
_is_quiet = False


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
    """The objects that the entry points of ``group`` offer, in the order of package names, then their own. ``admit`` returns
    the part to use, or raises ``TypeError`` or ``ValueError`` with the reason why an object cannot be used."""
    found = []
    for point in sorted(entry_points(group=group), key=_place):
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
        _known[group, extension.package, point.name, point.value] = extension
    return found


def expect(found: object, kind: type[T]) -> T:
    """Returns ``found`` if it is of this class. Raises ``TypeError`` that names both classes."""
    if not isinstance(found, kind):
        raise TypeError(f"is of type {type(found).__name__}, not {kind.__name__}")
    return found


def named(
    group: str, kind: type[T], built_in: Iterable[T], *, by: str = "name", check: Callable[[T], None] | None = None
) -> dict[str, T]:
    """Objects of this class keyed by their attribute ``by``: built-in ones first, then those of packages, which may not
    reuse a name. ``check`` raises ``TypeError`` or ``ValueError`` for an object that cannot be used."""
    found = {getattr(one, by): one for one in built_in}

    def admit(offered: object, extension: Extension) -> None:
        one = expect(offered, kind)
        if check is not None:
            check(one)
        name = getattr(one, by)
        claim(extension, (name,), found, by)
        found[name] = one

    load(group, admit)
    return found


def claim(extension: Extension, names: Iterable[str], taken: Collection[str], what: str = "name") -> None:
    """Records that ``extension`` defines these names in its group. Raises ``ValueError`` if one of them is ``taken``, and
    records none then; ``what`` is the word for a name in that message."""
    names = tuple(names)
    for name in names:
        if name in taken:
            owner = brought_by(extension.group, name)
            raise ValueError(f"the {what} {name!r} is taken by {owner or 'a built-in one'}")
    for name in names:
        _brought[extension.group, name] = extension


def brought_by(group: str, name: str) -> str | None:
    """The extension that defines this name, as messages call it; None for built-in names."""
    extension = _brought.get((group, name))
    return extension.called if extension is not None else None


def known() -> list[Extension]:
    """Every entry point loaded in this process, by group, package and name."""
    return [_known[key] for key in sorted(_known)]


def warn_once(text: str, error: Exception | None = None) -> None:
    """Logs a warning, with the traceback of ``error`` if given; the same text is logged once per process."""
    if text not in _warned and len(_warned) < MOST_WARNINGS:
        _warned[text] = None
        if _is_quiet:
            return
        # Imported only here: the logging library costs worker processes 12 MB, and most sites have no failing packages.
        import structlog

        from parsers import logs

        if not logs.is_set_up():  # a worker process
            logs.set_up()
        structlog.get_logger().warning(text, exc_info=error)


def problems() -> list[str]:
    """One line for each skipped extension, then for each other warning of this process, in order."""
    left_out = [str(one) for one in known() if one.problem]
    return [*left_out, *(text for text in _warned if text not in left_out)]


def be_quiet() -> None:
    """Stops logging in this process. Its parent loads the same extensions, and has logged their problems."""
    global _is_quiet
    _is_quiet = True


class Logged:
    """The warnings of this process, as an argument of a new process, which does not log the same text again. It must be the
    first argument: unpickling the others may load extensions."""

    def __reduce__(self) -> tuple[Callable[[tuple[str, ...]], None], tuple[tuple[str, ...]]]:
        return _note_logged, (tuple(_warned),)


def _note_logged(texts: tuple[str, ...]) -> None:
    _warned.update(dict.fromkeys(texts))


def described(error: BaseException) -> str:
    """The class and message of an exception: ``KeyError: 'gpu'``."""
    return f"{type(error).__name__}: {error}"


def _place(point: EntryPoint) -> tuple[str, str, str]:
    """By the distribution's name as package indexes compare it: no matter how it is written."""
    return re.sub(r"[-_.]+", "-", _package(point)).lower(), point.name, point.value


def _package(point: EntryPoint) -> str:
    dist = getattr(point, "dist", None)
    return dist.name if dist is not None else "an unnamed package"
