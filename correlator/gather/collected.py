"""Which sources were collected of which host, and from when to when: what was not collected can be no witness.

A source of a host counts as collected at a moment if its first line is at most a quarter of an hour later, and its last
line at most a week earlier. It is that long because switches and healthy daemons may write nothing for days.

Only two kinds of lines show it: those that no user can have written (``parsers.writers.NO_USERS``), and those of a general
syslog file that was collected from the host itself. In such a file a user chooses the name of the program. So its lines
show that the system's log was collected, and never that a daemon's was. Packets that nothing confirms, uploads without a
file, log hosts' copies, a job's output and claims show nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from correlator.gather.kernel_copies import is_own_system_log
from correlator.gather.telemetry import KERNEL_SOURCES
from correlator.site.open_lines import log_host_folder, short
from parsers.writers import LOCAL, NETWORK, NO_USERS
from store.line_frames import plain
from store.questions import hosts, writers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from store.door import Asks

#: What was collected (``correlator.model.kinds.Source``) -> the sources of its lines. A switch may write any of
#: ``SWITCH``.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "kernel": KERNEL_SOURCES, "slurmd": ("slurmd", "slurmstepd"), "slurmctld": ("slurmctld",), "switch": ("switch", "ip_monitor"),
}  # fmt: skip
SWITCH = ("switch", "kernel")
#: Not what was collected from a host, but any kernel's or system's line that names it, whoever wrote it.
NAMED = "named"
#: A folder, in place of a host, whose syslog files a host keeps for itself and for others.
LOG_HOST = "log host"
SOURCES = tuple(source for sources in FAMILIES.values() for source in sources)
_FAMILY_OF = {source: family for family, sources in FAMILIES.items() for source in sources}

#: A source that was silent for longer may have been collected no longer (seconds).
AROUND_S = 7 * 86_400.0
#: A source begins this long before its first line (seconds): a tick looks 900 s back, so the first line of a source changes
#: no verdict before that.
BEGINS_S = 900.0

#: Any host.
ANY = "*"

#: The columns of lines that show what was collected.
USED = ("time", "host", "source", "format", "facility", "file", "event", "entities", "tags")
_SCHEMA = {"family": pl.String, "host": pl.String, "first": pl.Float64, "last": pl.Float64}
_SPAN = (pl.col("first").min(), pl.col("last").max())


def place(family: str, host: str) -> str:
    """The name of a source of a host in ``Uncollected`` looks; no host's name contains a space."""
    return f"{family} {host}"


#: The place of measurements of GPUs.
GPUS = place("telemetry", ANY)


@dataclass(frozen=True)
class Collected:
    """``spans``: family, host, and the first and last timestamp of its lines (epoch seconds); infinite if a line has none.

    ``telemetry``: are there measurements of GPUs?
    """

    spans: pl.DataFrame
    telemetry: bool = False

    @cached_property
    def _of(self) -> Mapping[tuple[str, str], tuple[float, float]]:
        return _extended({}, self.spans)

    @cached_property
    def reporting_hosts(self) -> frozenset[str]:
        """The hosts that any line of a kernel or a system names, whoever wrote it."""
        return hosts_of(self.spans)

    @cached_property
    def log_host_folders(self) -> frozenset[str]:
        """The folders where a host's own syslog files have lines of other hosts as well, whoever wrote them."""
        return log_host_folders_of(self.spans)

    def has(self, families: Iterable[str], host: str, time: float) -> bool:
        """Was any of these sources of a host collected around ``time``?"""
        spans = (self._of.get((family, short(host))) for family in families)
        return any(span[0] - BEGINS_S <= time <= span[1] + AROUND_S for span in spans if span)

    def but(self, more: pl.DataFrame | None, *, telemetry: bool = False) -> Collected:
        """With further lines."""
        if more is None or more.is_empty():
            return replace(self, telemetry=True) if telemetry and not self.telemetry else self
        found = Collected(joined([self.spans, more]), self.telemetry or telemetry)
        if known := self.__dict__.get("_of"):  # of thousands of sources, a tick changes some
            found.__dict__["_of"] = _extended(dict(known), more)
        return found

    def new_in(self, more: pl.DataFrame) -> frozenset[str]:
        """The sources that further lines show to have been collected at times that ``self`` does not cover.

        By ``place``, also for any host. Later lines of a source that goes on show nothing about earlier moments.
        """
        if more.is_empty():
            return frozenset()
        both = more.join(self.spans, on=["family", "host"], how="left", suffix="_known")
        first, last = pl.col("first_known"), pl.col("last_known")
        untimed = (pl.col("first") == float("-inf")) & (first.is_null() | (first > float("-inf")))
        strange = both.filter(untimed | (pl.col("first") > last + AROUND_S))
        rows = strange.select("family", "host").iter_rows()
        return frozenset(place(family, name) for family, host in rows for name in (short(host), ANY))


def _extended(
    known: dict[tuple[str, str], tuple[float, float]], spans: pl.DataFrame
) -> dict[tuple[str, str], tuple[float, float]]:
    """``known``, changed in place: the span of each source by family and short host, with further ones."""
    for family, host, first, last in spans.iter_rows():
        key = (family, short(host))
        if (before := known.get(key)) is None:
            known[key] = (first, last)
        elif first < before[0] or last > before[1]:
            known[key] = (min(first, before[0]), max(last, before[1]))
    return known


def nothing() -> pl.DataFrame:
    """No spans."""
    return pl.DataFrame(schema=_SCHEMA)


def hosts_of(spans: pl.DataFrame) -> frozenset[str]:
    """The hosts that lines of a kernel or a system name, among ``spans``."""
    return frozenset(spans.filter(pl.col("family") == NAMED)["host"].to_list())


def log_host_folders_of(spans: pl.DataFrame) -> frozenset[str]:
    """The folders of ``LOG_HOST`` among ``spans``."""
    return frozenset(spans.filter(pl.col("family") == LOG_HOST)["host"].to_list())


def shows_its_log(authority: str | None, files: Iterable[str | None], host: str) -> bool:
    """Does a line of a host, which is no claim, show that a log of that host was collected? ``files`` have the line."""
    return authority in NO_USERS or (authority == LOCAL and any(is_own_system_log(file, host) for file in files))


def joined(spans: Collection[pl.DataFrame]) -> pl.DataFrame:
    """One row for each family and host."""
    return pl.concat(spans).group_by("family", "host").agg(*_SPAN) if spans else nothing()


def spans_in(lines: pl.DataFrame) -> pl.DataFrame:
    """The spans of log lines, given as the store gets them; needs the columns ``USED``."""
    ours = plain(lines.filter(pl.col("source").cast(pl.String).is_in(SOURCES)).select(USED))
    time = pl.col("time")
    return _spans(
        ours.group_by(*writers.writer_expressions()).agg(
            time.min().alias("first"), time.max().alias("last"), time.null_count().alias("untimed")
        )
    )


def _spans(rows: pl.DataFrame) -> pl.DataFrame:
    """Spans from ``writers.writer_columns``, ``first``, ``last`` (datetimes) and the number of ``untimed`` lines."""
    rows = rows.filter(pl.col("host").is_not_null() & (pl.col("host") != ""))
    if rows.is_empty():
        return nothing()
    rows = rows.with_columns(writers.authority_of_writers(rows))
    # What has no timestamp in a syslog daemon's file is a further line of somebody's message.
    untimed = pl.when(authority=LOCAL).then(0).otherwise("untimed") > 0
    first, last = (pl.col(name).dt.epoch("us") / 1e6 for name in ("first", "last"))
    shown = rows.select(
        _families(rows), "host", "source",
        pl.when(untimed).then(float("-inf")).otherwise(first).alias("first"), pl.when(untimed).then(float("inf")).otherwise(last).alias("last"),
    )  # fmt: skip
    named = shown.filter(pl.col("source").is_in(KERNEL_SOURCES)).with_columns(
        pl.col("first").fill_null(float("-inf")), pl.col("last").fill_null(float("inf")), family=pl.lit(NAMED)
    )
    some = pl.concat([shown.filter(pl.col("family").is_not_null() & pl.col("first").is_not_null()), named])
    return pl.concat([some.group_by("family", "host").agg(*_SPAN), _log_hosts(rows)])


def _log_hosts(rows: pl.DataFrame) -> pl.DataFrame:
    pairs = rows.filter(pl.col("authority").is_in((LOCAL, NETWORK))).select("file", "host").unique().drop_nulls()
    folders = {folder for file, host in pairs.iter_rows() if (folder := log_host_folder(file, host)) is not None}
    ever = {"family": LOG_HOST, "first": float("-inf"), "last": float("inf")}
    return pl.DataFrame([{**ever, "host": folder} for folder in sorted(folders)], schema=_SCHEMA)


def _families(rows: pl.DataFrame) -> pl.Series:
    """What the lines of each group show to have been collected; null: nothing."""
    found: list[str | None] = [
        _FAMILY_OF[source] if authority in NO_USERS
        else "kernel" if authority == LOCAL and is_own_system_log(file, host)
        else None
        for authority, host, source, file in zip(*(rows[name].to_list() for name in ("authority", "host", "source", "file")), strict=True)
    ]  # fmt: skip
    return pl.Series("family", found, pl.String)


def asked(store: Asks, cluster: str | None, new: sa.ColumnElement[bool] | None = None) -> pl.DataFrame:
    """The spans of all stored lines of a cluster; with ``new``, of the lines that it selects."""
    return _spans(plain(store.ask_frame(hosts.spans_by_writer(cluster, SOURCES, new))))
