"""People and programs that ask, and the roles that a site gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from web.access.scopes import ALL

#: In lists of roles: everyone who is known at all, and the mark of a group.
EVERYONE, GROUP = "*", "@"


class Role(IntEnum):
    """What may be done; each role may do what those before it may."""

    OWN = 1
    """One's own jobs, and the incidents that touched them."""
    READ = 2
    """Everything that is stored, and all questions."""
    OPERATE = 3
    """Also what changes something: answers to verdicts, batches that were set aside."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks. ``role`` is None for somebody who is known here and has no rights; ``scope``: what their token is for."""

    name: str
    role: Role | None
    groups: frozenset[str] = frozenset()
    scope: str = ALL


@dataclass(frozen=True, slots=True)
class Roles:
    """Names and @groups of each role, as the configuration lists them."""

    members: Mapping[Role, frozenset[str]]

    def of(self, name: str, groups: Iterable[str] = ()) -> Role | None:
        """The highest role that a name or one of its groups has."""
        named = {EVERYONE, *(GROUP + group for group in groups)}
        if not name.startswith(GROUP):  # a name that somebody chose elsewhere is never a group's
            named.add(name)
        return max((role for role, members in self.members.items() if members & named), default=None)

    def person(self, name: str, groups: Iterable[str] = ()) -> Person:
        kept = frozenset(groups)
        return Person(name, self.of(name, kept), kept)
