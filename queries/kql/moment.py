"""The one moment of a query, and what of its compiled form moves with it.

Most saved queries and rules say ``ago(1d)``. Their SQL is the same each time; only parameters differ, by as much as the
moments differ. So they need not be compiled again, as long as nothing else was made of the moment. ``Now`` proves it: it
can be shifted by a timespan, and everything else that reads it is noted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from parsers.moments import utc

_EPOCH = datetime(1970, 1, 1)
#: isinstance() reads the class, and shifting reads the moment: neither depends on the value.
_SILENT = frozenset(("__class__", "moment"))


class Moment:
    """R9: now() is one moment for the whole query.

    ``may_move``: ``read`` gives a ``Now``, for a compiled form that is used again later. ``asked`` is true if the
    compiled form depends on the moment by more than a ``Now`` among its parameters.
    """

    def __init__(self, at: datetime | None = None, *, may_move: bool = False) -> None:
        self.at = utc(at or datetime.now(UTC))
        self._may_move = may_move
        self.asked = False

    def read(self) -> datetime:
        """Naive, in UTC."""
        if self._may_move:
            return _now(self, self.at)
        self.asked = True
        return self.at


class Now(datetime):
    """now(), or a moment at a fixed distance from it."""

    moment: Moment

    def __getattribute__(self, name: str) -> Any:
        if name not in _SILENT:
            _note(self)
        return object.__getattribute__(self, name)

    def __add__(self, other: Any) -> Any:
        if type(other) is timedelta:
            return _now(self.moment, at(self, timedelta()) + other)
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is timedelta:
            return _now(self.moment, at(self, timedelta()) - other)
        _note(self)
        return datetime.__sub__(self, other)


def _now(moment: Moment, value: datetime) -> Now:
    made = Now(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    object.__setattr__(made, "moment", moment)
    return made


def _note(now: Now) -> None:
    moment = cast("Moment | None", object.__getattribute__(now, "__dict__").get("moment"))
    if moment is not None:
        moment.asked = True


def _noted(name: str) -> Any:
    method = getattr(datetime, name)

    def reads(self: Now, *rest: Any) -> Any:
        _note(self)
        return method(self, *rest)

    return reads


for _name in (
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__str__", "__repr__", "__format__",
    "__reduce__", "__reduce_ex__", "__rsub__",
):  # fmt: skip
    setattr(Now, _name, _noted(_name))


def at(value: Any, later: timedelta) -> Any:
    """A parameter when its query's moment is that much later; others than ``Now`` are as they were.

    Raises ``OverflowError``.
    """
    if type(value) in (list, tuple):
        return [at(one, later) for one in value]
    if type(value) is not Now:
        return value
    return _EPOCH + datetime.__sub__(value, _EPOCH) + later
