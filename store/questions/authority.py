"""Which lines count as slurmctld's: those from hosts that run it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, FromClause, and_, case, func, not_, or_, true

from store.functions import among, bound_list, const, contains, group_of, json_text, short_name
from store.tables import TEXT

#: Prefix of the files of lines that arrived over syslog: they are not a daemon's own file.
RELAYED = "syslog:"
#: Between an address and a host; occurs in neither.
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Speakers:
    """Which lines with slurmctld as their source count: those of its own files, and those of ``hosts``. Files of
    ``impostors`` do not count. Lines that came over syslog in the name of ``hosts`` count from ``relays`` and from the
    pairs (address, host) in ``allowed``. Where these are not known (None), they count unless ``addresses`` says that the
    sender is another node. What only a file of another host has, or one in ``log_host_folders``, counts if ``remote``.
    ``everybody``: all do."""

    hosts: Collection[str] = ()
    impostors: Collection[str] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    relays: Collection[str] = ()
    allowed: Collection[tuple[str, str]] | None = None
    everybody: bool = False
    remote: bool = True
    log_host_folders: Collection[str] = ()

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
        theirs = and_(among(line.host, self.hosts), self._sent_by_them(lines))
        return or_(own, theirs if self.remote else and_(theirs, not_(self._is_remote(lines))))

    def _is_remote(self, lines: FromClause) -> ColumnElement[bool]:
        another = _is_of_another(lines)
        if not self.log_host_folders:
            return another
        folder = group_of(func.coalesce(lines.c.file, const("")), _ANY_FOLDER)
        return or_(another, among(folder, self.log_host_folders))

    def _sent_by_them(self, lines: FromClause) -> ColumnElement[bool]:
        """The condition that a line of ``hosts`` was not sent by another one."""
        host, sender = lines.c.host, json_text(lines.c.entities, "$.sender")
        if self.allowed is not None:
            pairs = [_SEPARATOR.join(pair) for pair in self.allowed]
            return or_(sender.is_(None), among(func.concat(sender, const(_SEPARATOR), host), pairs))
        if not self.addresses:
            return true()
        nodes = func.map(bound_list(self.addresses, TEXT), bound_list(self.addresses.values(), TEXT))
        node: ColumnElement[Any] = func.map_extract_value(nodes, sender, type_=TEXT)
        is_own = func.coalesce(node, host) == host
        return or_(among(func.coalesce(sender, const("")), self.relays), is_own) if self.relays else is_own


#: The host in whose folder of a tree a file is (parsers/recognise.py).
_FOLDER = r"^.*(?:^|/)(?:hosts|nodes)/([^/]+)/"
_ANY_FOLDER = r"^(.*)/"


def _is_of_another(lines: FromClause) -> ColumnElement[bool]:
    """Is the file of a line one that was collected from another host than the one that it names?"""
    file, host = func.coalesce(lines.c.file, const("")), func.lower(short_name(lines.c.host))
    by_agent = func.lower(short_name(func.split_part(file, const(":/"), const(1))))
    in_folder = func.lower(short_name(group_of(file, _FOLDER)))
    owner = case((contains(file, ":/"), by_agent), else_=in_folder)
    return and_(owner != const(""), owner != host)
