"""Which lines count as slurmctld's: those from hosts that run it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, FromClause, and_, func, not_, or_, true

from store.functions import among, bound_list, const, json_text
from store.tables import TEXT

#: Prefix of the files of lines that arrived over syslog: they are not a daemon's own file.
RELAYED = "syslog:"


@dataclass(frozen=True)
class Speakers:
    """Which lines with slurmctld as their source count: those of its own files, and those of ``hosts``, unless they
    were sent from an address known to belong to another node (``addresses``). Files of ``impostors`` do not count.
    ``everybody``: all do."""

    hosts: Collection[str] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    impostors: Collection[str] = ()
    everybody: bool = False

    def count(self, lines: FromClause) -> ColumnElement[bool]:
        """The condition on lines."""
        if self.everybody:
            return true()
        line = lines.c
        own = and_(
            line.format == const("slurm"), not_(func.starts_with(func.coalesce(line.file, const("")), const(RELAYED)))
        )
        if self.impostors:
            own = and_(own, not_(among(func.coalesce(line.host, const("")), self.impostors)))
        of_hosts = among(line.host, self.hosts)
        if not self.addresses:
            return or_(own, of_hosts)
        nodes = func.map(bound_list(self.addresses, TEXT), bound_list(self.addresses.values(), TEXT))
        node: ColumnElement[Any] = func.map_extract_value(nodes, json_text(line.entities, "$.sender"), type_=TEXT)
        return or_(own, and_(of_hosts, func.coalesce(node, line.host) == line.host))
