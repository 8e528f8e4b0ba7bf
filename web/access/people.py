"""People and programs that send requests, and the roles that a site gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from web.access.scopes import ALL

#: In lists of roles: every known user, and the prefix of a group.
EVERYONE, GROUP = "*", "@"


class Role(IntEnum):
    """What may be done; each role includes the ones before it."""

    OWN = 1
    """One's own jobs, and the incidents that touched them."""
    READ = 2
    """Everything that is stored, and all questions."""
    OPERATE = 3
    """Also what changes something: answers to verdicts, batches that were set aside."""


@dataclass(frozen=True, slots=True)
class Person:
    """The user of a request. ``role`` is None for a known user without rights; ``scope`` is that of their token."""

    name: str
    role: Role | None
    groups: frozenset[str] = frozenset()
    scope: str = ALL


@dataclass(frozen=True, slots=True)
class Roles:
    """Names and @groups of each role, as the configuration lists them."""

    members: Mapping[Role, frozenset[str]]

    def of(self, name: str, groups: Iterable[str] = ()) -> Role | None:
        """The highest role of a name or one of its groups."""
        named = {EVERYONE, *(GROUP + group for group in groups)}
        if not name.startswith(GROUP):  # a name that a user chose elsewhere is never a group's
            named.add(name)
        return max((role for role, members in self.members.items() if members & named), default=None)

    def person(self, name: str, groups: Iterable[str] = ()) -> Person:
        kept = frozenset(groups)
        return Person(name, self.of(name, kept), kept)
