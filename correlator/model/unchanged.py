"""Facts as they were before another package's code saw them: what it changed is found, and undone.

For mypy, a fact and its attributes are read-only. A package need not be checked by mypy, and at run time attributes are
a dict, because a frozen mapping would cost every read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Any, NamedTuple

from correlator.model.attrs import Attrs, by_name
from correlator.model.nouns import Fact

#: The fields of a fact besides its attributes.
_FIELDS = ("kind", "start", "end", "sigma", "host", "device", "run", "events")
_fields_of = attrgetter(*_FIELDS)


class _Kept(NamedTuple):
    """A fact as it was: its fields, the object that held its attributes, and a copy of what was in it."""

    fact: Fact
    fields: tuple[Any, ...]
    held: Attrs
    attrs: Mapping[str, Any]


class Unchanged:
    """Remembers facts, their fields, and what is in their attributes: dicts, lists, tuples, sets and deques in each other,
    and those of classes made from them. Events and other objects are not followed.

    Facts whose attributes are packed are left as they are: to look at them would unpack them.
    """

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._listed: list[Fact] = []
        self._kept: dict[int, _Kept] = {}
        self.remember(facts)

    def remember(self, facts: Sequence[Fact]) -> None:
        """From now on, these are the facts; those that are known already stay as they were."""
        known = self._kept
        self._kept = {
            id(fact): known.get(id(fact)) or _Kept(fact, _fields_of(fact), fact.attrs, _copied(by_name(fact.attrs)))
            for fact in facts
            if type(fact) is Fact
        }
        self._listed = list(facts)

    def check(self, facts: Sequence[Fact]) -> None:
        """Raises ``ValueError`` if a fact was changed, removed or added."""
        for fact, fields, _, attrs in self._kept.values():
            if by_name(fact.attrs) != attrs:
                raise ValueError(f"it changed the attributes of a {fields[0]} of {_place(fields)}")
            if _fields_of(fact) != fields:
                raise ValueError(f"it changed a {fields[0]} of {_place(fields)}")
        if facts != self._listed:
            raise ValueError("it changed the list of facts")

    def restored(self) -> list[Fact]:
        """The facts, with the fields and attributes that they had."""
        for fact, fields, held, attrs in self._kept.values():
            if _fields_of(fact) != fields or fact.attrs is not held:
                for name, value in zip((*_FIELDS, "attrs"), (*fields, held), strict=True):
                    object.__setattr__(fact, name, value)
            changed: Any = held
            if changed != attrs:
                changed.clear()
                changed.update(_copied(attrs))
        return list(self._listed)


def _place(fields: tuple[Any, ...]) -> str:
    _, _, _, _, host, _, run, _ = fields
    return str(host or run or "no host")


#: What can be changed, or can hold what can be.
_HOLDERS = (dict, list, tuple, set, deque)


def _copied(value: Any) -> Any:
    """A copy that shares no list, dict, set or deque with the value."""
    if isinstance(value, tuple):
        items = [_copied(one) if isinstance(one, _HOLDERS) else one for one in value]
        if all(one is other for one, other in zip(items, value, strict=True)):
            return value
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    if not isinstance(value, _HOLDERS):
        return value
    made = copy(value)  # a Counter remains one
    if isinstance(made, (dict, list, deque)):
        places: Any = list(made.items()) if isinstance(made, dict) else enumerate(list(made))
        for at, one in places:
            if isinstance(one, _HOLDERS):
                made[at] = _copied(one)
    return made
