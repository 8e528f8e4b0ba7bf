"""Senders and what each may send: a token of ``[ingest]`` may expire, and may be limited to hosts, clusters and kinds
of data.

The door refuses an unknown or expired token. A token's limits travel with its batches (``Limits``), because only a
worker reads their content: a document of another host or cluster, or data of another kind, is poison and goes to
quarantine with the reason; a line that names another host keeps its text, loses that name, and means no event (it
``claims`` one). A line must not be poison: any user of a node can write one, and the node's other lines would be
quarantined with it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import authority
from parsers.formats.base import JOB_SOURCES
from parsers.host_names import short_name
from parsers.hostlist import expand

if TYPE_CHECKING:
    from collector.receivers.base import Decoded

#: Kinds of data: log lines, job output, samples, what a machine's own commands and hooks report, and what Slurm reports
#: about the whole cluster: accounting, slurm.conf, topology.
LINES, OUTPUT, METRICS, DOCUMENTS, CLUSTER = "lines", "output", "metrics", "documents", "cluster"
KINDS = (LINES, OUTPUT, METRICS, DOCUMENTS, CLUSTER)
_OF_TABLES = {"logs": LINES, "metrics": METRICS, "artifacts": OUTPUT, "topology": CLUSTER, "steps": CLUSTER}
#: Sources of rows about jobs that are a node's own hooks.
_HOOKS = ("hook", "task_hook")
#: Tag of lines that named a host or a cluster outside their sender's limits.
TAG = "foreign"


class SenderError(ValueError):
    """A sender's definition is unusable; the text gives the reason."""


@dataclass(frozen=True)
class Limits:
    """A sender's limits; empty: none. ``hosts`` are Slurm host lists or shell patterns."""

    name: str
    hosts: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.hosts or self.clusters or self.kinds)

    def as_meta(self) -> dict[str, Any]:
        """The limits in the form stored with a batch in the spool."""
        return {"name": self.name, "hosts": self.hosts, "clusters": self.clusters, "kinds": self.kinds}

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Limits | None:
        """The limits of a batch's sender; None if it has none."""
        limits = meta.get("limits")
        if not isinstance(limits, dict):
            return None
        return cls(str(limits["name"]), *(tuple(map(str, limits[part])) for part in ("hosts", "clusters", "kinds")))

    def spelled(self, host: str) -> tuple[str, ...]:
        """The names among the hosts that differ from this one in nothing but case. Patterns are no names."""
        return _by_lower_case(self.hosts).get(host.lower(), ())

    def stands_for(self, host: str, cluster: str | None) -> bool:
        """Whether the sender is bound to this host; to any host if it is bound to none."""
        hosts, clusters = self._hosts(), self._clusters()
        return (hosts is None or hosts(host)) and (cluster is None or clusters is None or clusters(cluster))

    def refused(self, decoded: Decoded) -> str | None:
        """Why a batch's content may not be stored; None if it may."""
        sent = {
            OUTPUT if group.origin.source in JOB_SOURCES else LINES for group in decoded.groups.values() if group.runs
        }
        for parsed in decoded.parsed:
            for table, rows in parsed.tables.items():
                if not rows.height:
                    continue
                sent |= _kinds_of(table, rows)
                for column, ours in (("host", self._hosts()), ("cluster", self._clusters())):
                    if ours is not None and column in rows.columns:
                        odd = [name for name in rows[column].drop_nulls().unique().sort().to_list() if not ours(name)]
                        if odd:
                            return f"sender {self.name!r} does not stand for the {column} {odd[0]!r}"
        if self.kinds and (others := sorted(sent - set(self.kinds))):
            return f"sender {self.name!r} may send {', '.join(self.kinds)}, and sent {others[0]}"
        return None

    def lines(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Parsed lines (LOGS' columns) without the names of hosts and clusters outside the sender's limits. Job output
        may name another host: ranks do, and parsers/authority.py decides what such lines may claim. A line of
        slurmctld's must name its host: a file without one would count as the controller's."""
        foreign = pl.Series([False]).new_from_index(0, len(rows))
        if self.hosts:
            foreign = (rows["host"].is_null() & (rows["source"] == "slurmctld")).fill_null(False)
        for column, ours in (("host", self._hosts()), ("cluster", self._clusters())):
            if ours is None:
                continue
            odd = [name for name in rows[column].drop_nulls().unique().to_list() if not ours(name)]
            if odd:
                theirs = rows[column].is_in(odd).fill_null(False)
                if column == "host":
                    theirs = theirs & ~rows["source"].is_in(JOB_SOURCES).fill_null(False)
                foreign = foreign | theirs
                rows = rows.with_columns(pl.when(~pl.lit(theirs)).then(column).alias(column))
        if not foreign.any():
            return rows
        tags = pl.col("tags").fill_null(pl.lit([], dtype=pl.List(pl.String)))
        tagged = tags.list.set_union(pl.lit([TAG], dtype=pl.List(pl.String)))
        return authority.silenced(rows, foreign).with_columns(
            pl.when(pl.lit(foreign)).then(tagged).otherwise("tags").alias("tags")
        )

    def _hosts(self) -> Any:
        return (lambda name: _is_one(name, self.hosts)) if self.hosts else None

    def _clusters(self) -> Any:
        return (lambda name: name in self.clusters) if self.clusters else None


def _kinds_of(table: str, rows: pl.DataFrame) -> set[str]:
    """The kinds of data that a document's rows are."""
    if table == "jobs":
        return {DOCUMENTS if source in _HOOKS else CLUSTER for source in rows["source"].unique()}
    if table == "settings":
        of_job = rows["scope"].str.starts_with("job:").fill_null(False).unique()
        return {DOCUMENTS if own else CLUSTER for own in of_job}
    return {_OF_TABLES.get(table, DOCUMENTS)}


def _is_one(host: str, hosts: tuple[str, ...]) -> bool:
    names, patterns = _names(hosts)
    short = short_name(host)
    return host in names or short in names or any(fnmatchcase(host, p) or fnmatchcase(short, p) for p in patterns)


@lru_cache(maxsize=256)
def _names(hosts: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    patterns = tuple(one for one in hosts if "*" in one or "?" in one)
    return frozenset(name for one in hosts if one not in patterns for name in expand(one)), patterns


@lru_cache(maxsize=256)
def _by_lower_case(hosts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(_names(hosts)[0]):
        found[name.lower()] = (*found.get(name.lower(), ()), name)
    return found


@dataclass(frozen=True)
class Sender:
    """A token for sending: ``digest`` ("sha256:HEX"), expiry (None: never), limits, its last characters."""

    name: str
    digest: str
    expires: datetime | None = None
    limits: Limits = Limits("")
    ends: str = ""

    def is_over(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now

    @classmethod
    def of_token(cls, token: str, document: Mapping[str, Any], name: str) -> Sender:
        """A token of the configuration with its settings. Raises ``SenderError``."""
        return cls.read(name, {"hash": digest_of(token), **document})

    @classmethod
    def read(cls, name: str, document: object) -> Sender:
        """Parses an entry of a senders file. Raises ``SenderError``."""
        if not isinstance(document, Mapping) or not str(document.get("hash", "")).startswith("sha256:"):
            raise SenderError("not written by `faultline access`; make it anew with it")
        if unknown := set(document) - {"hash", "ends", "expires", "hosts", "clusters", "data"}:
            raise SenderError(f"{min(unknown)} is unknown; there are expires, hosts, clusters and data")
        expires = document.get("expires")
        if expires is not None and not (isinstance(expires, datetime) and expires.tzinfo is not None):
            raise SenderError("expires is no time with a zone, such as 2027-11-24T00:00:00Z")
        hosts, clusters, kinds = (_texts(part, document.get(part, ())) for part in ("hosts", "clusters", "data"))
        if odd := set(kinds) - set(KINDS):
            raise SenderError(f"data {min(odd)!r} is unknown; there are {', '.join(KINDS)}")
        limits = Limits(name, hosts, clusters, kinds)
        return cls(
            name, str(document["hash"]), expires and expires.astimezone(UTC), limits, str(document.get("ends", ""))
        )

    def written(self) -> dict[str, Any]:
        """The entry for a senders file."""
        document: dict[str, Any] = {"hash": self.digest, "ends": self.ends}
        if self.expires is not None:
            document["expires"] = self.expires
        parts = {"hosts": self.limits.hosts, "clusters": self.limits.clusters, "data": self.limits.kinds}
        return document | {name: list(values) for name, values in parts.items() if values}


def _texts(name: str, given: object) -> tuple[str, ...]:
    if (
        isinstance(given, str)
        or not isinstance(given, Iterable)
        or not all(isinstance(one, str) and one for one in given)
    ):
        raise SenderError(f"{name} is no list of texts")
    return tuple(given)


def digest_of(token: str) -> str:
    """Tokens are random: one round of SHA-256 protects them as well as many would."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


def found(token: str, senders: Iterable[Sender]) -> Sender | None:
    """The owner of a token, even of an expired one; every one is compared, so that the time taken reveals nothing."""
    digest = digest_of(token).encode()
    matching = [one for one in senders if hmac.compare_digest(digest, one.digest.encode())]
    return matching[0] if matching else None
