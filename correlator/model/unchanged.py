"""Facts as they were before another package's code saw them: what it changed is found, and undone.

For mypy, a fact and its attributes are read-only. A package need not be checked by mypy, and at run time attributes are
a dict, because a frozen mapping would cost every read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from correlator.model.attrs import by_name
from correlator.model.nouns import Fact


class Unchanged:
    """Remembers facts and what is in their attributes; events are not followed.

    Facts whose attributes are packed are left as they are: to look at them would unpack them.
    """

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._listed: list[Fact] = []
        self._kept: dict[int, tuple[Fact, Mapping[str, Any]]] = {}
        self.remember(facts)

    def remember(self, facts: Sequence[Fact]) -> None:
        """From now on, these are the facts; those that are known already stay as they were."""
        known, self._listed = self._kept, list(facts)
        self._kept = {
            id(fact): known.get(id(fact)) or (fact, _copied(by_name(fact.attrs)))
            for fact in facts
            if type(fact) is Fact
        }

    def check(self, facts: Sequence[Fact]) -> None:
        """Raises ``ValueError`` if a fact was changed, removed or added."""
        for fact, attrs in self._kept.values():
            if by_name(fact.attrs) != attrs:
                raise ValueError(f"it changed the attributes of a {fact.kind} of {fact.host or fact.run or 'no host'}")
        if facts != self._listed:
            raise ValueError("it changed the list of facts")

    def restored(self) -> list[Fact]:
        """The facts, with the attributes that they had."""
        for fact, attrs in self._kept.values():
            changed = cast("dict[str, Any]", fact.attrs)
            if changed != attrs:
                changed.clear()
                changed.update(_copied(attrs))
        return list(self._listed)


def _copied(value: Any) -> Any:
    """A copy that shares no list, dict or set with the value."""
    kind = type(value)
    if kind is dict:
        return {key: _copied(one) if type(one) in _HOLDERS else one for key, one in value.items()}
    if kind is list:
        return [_copied(one) if type(one) in _HOLDERS else one for one in value]
    if kind is tuple:
        return tuple(map(_copied, value))
    return set(value) if kind is set else value


#: What can be changed, or can hold what can be.
_HOLDERS = frozenset({dict, list, tuple, set})
