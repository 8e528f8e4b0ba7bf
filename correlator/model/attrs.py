"""The typed attributes of facts: the type of each key of ``Fact.attrs``, for mypy.

At run time an :class:`Attr` is its name and ``Fact.attrs`` a dict, so a read costs as much as a dict lookup. For mypy
only an :class:`Attr` is a key: a literal name, a misspelt one and a wrong type are errors.

The TypedDict of a kind (``correlator.model.kinds.Kind``) declares its attributes. Those read outside the kind's own
file or folder are in ``correlator.model.attributes``, all others beside the kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar, cast, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")


class ReadAttr(str, Generic[T_co]):
    """A key for reading: where an object is expected, an ``Attr[str]`` is one."""


class Attr(ReadAttr[T], Generic[T]):
    """A key of ``Fact.attrs`` with a value of type ``T``; :func:`attr` makes it. At run time it is a plain string."""


def attr(name: str) -> Attr[Any]:
    """The attribute of this name.

    Its declaration gives its type: ``HOSTS: Attr[list[str]] = attr("hosts")``.
    """
    return cast("Attr[Any]", name)


class Attrs(Protocol):
    """The attributes of a fact, for mypy; a dict at run time. They are immutable."""

    @overload
    def get(self, key: ReadAttr[T], /) -> T | None: ...
    @overload
    def get(self, key: ReadAttr[T], default: D, /) -> T | D: ...
    @overload
    def get(self, key: ReadAttr[object], default: object = None, /) -> object:
        """Where only the truth of the value is asked for."""
        ...

    def __getitem__(self, key: ReadAttr[T], /) -> T:
        """Raises ``KeyError`` if the fact has no such attribute."""
        ...


class DraftAttrs(Attrs, Protocol):
    """The attributes of a fact that a detector is about to revise (``Draft``)."""

    def __setitem__(self, key: Attr[T], value: T, /) -> None: ...


def no_attrs() -> Attrs:
    """The attributes of a fact that has none."""
    return cast("Attrs", {})


def draft_of(attrs: Attrs) -> DraftAttrs:
    """A copy that may be changed."""
    return cast("DraftAttrs", dict(by_name(attrs)))


def with_attr(attrs: Attrs, key: Attr[T], value: T) -> Attrs:
    """The attributes with this one added or replaced."""
    changed = draft_of(attrs)
    changed[key] = value
    return changed


def by_name(attrs: Attrs) -> Mapping[str, Any]:
    """All attributes by name: for templates, and for copies."""
    return cast("Mapping[str, Any]", attrs)
