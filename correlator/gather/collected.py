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
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from correlator.gather.kernel_copies import is_own_system_log
from correlator.gather.telemetry import KERNEL_SOURCES
from correlator.site.open_lines import short
from parsers.writers import LOCAL, NO_USERS
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
        found: dict[tuple[str, str], tuple[float, float]] = {}
        for family, host, first, last in self.spans.iter_rows():
            key = (family, short(host))
            known = found.get(key, (first, last))
            found[key] = (min(first, known[0]), max(last, known[1]))
        return found

    @cached_property
    def reporting_hosts(self) -> frozenset[str]:
        """The hosts that any line of a kernel or a system names, whoever wrote it."""
        return hosts_of(self.spans)

    def has(self, families: Iterable[str], host: str, time: float) -> bool:
        """Was any of these sources of a host collected around ``time``?"""
        spans = (self._of.get((family, short(host))) for family in families)
        return any(span[0] - BEGINS_S <= time <= span[1] + AROUND_S for span in spans if span)

    def but(self, more: pl.DataFrame | None, *, telemetry: bool = False) -> Collected:
        """With further lines."""
        spans = self.spans if more is None or more.is_empty() else joined([self.spans, more])
        return Collected(spans, self.telemetry or telemetry)

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


def nothing() -> pl.DataFrame:
    """No spans."""
    return pl.DataFrame(schema=_SCHEMA)


def hosts_of(spans: pl.DataFrame) -> frozenset[str]:
    """The hosts that lines of a kernel or a system name, among ``spans``."""
    return frozenset(spans.filter(pl.col("family") == NAMED)["host"].to_list())


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
    rows = plain(rows).filter(pl.col("host").is_not_null() & (pl.col("host") != ""))
    if rows.is_empty():
        return nothing()
    rows = rows.with_columns(writers.authority_of_writers(rows))
    families = pl.Series("family", list(_families(rows)), pl.String)
    named = rows.filter(pl.col("source").is_in(KERNEL_SOURCES)).with_columns(family=pl.lit(NAMED))
    # What has no timestamp in a syslog daemon's file is a further line of somebody's message.
    timed = rows.with_columns(families, untimed=pl.when(authority=LOCAL).then(0).otherwise("untimed"))
    timed = timed.filter(pl.col("first").is_not_null() | (pl.col("untimed") > 0)).drop_nulls("family")
    untimed = pl.col("untimed") > 0
    return (
        pl.concat([timed, named.cast(timed.schema)])
        .select(
            "family", "host",
            *(
                pl.when(untimed).then(pl.lit(bound)).otherwise(pl.col(name).dt.epoch("us") / 1e6).alias(name)
                for name, bound in (("first", float("-inf")), ("last", float("inf")))
            ),
        )
        .group_by("family", "host").agg(*_SPAN)
    )  # fmt: skip


def _families(rows: pl.DataFrame) -> Iterable[str | None]:
    """What the lines of each group show to have been collected; None: nothing."""
    for authority, host, source, file in rows.select("authority", "host", "source", "file").iter_rows():
        if not shows_its_log(authority, (file,), host):
            yield None
        else:
            yield "kernel" if authority == LOCAL else _FAMILY_OF[source]


def asked(store: Asks, cluster: str | None, new: sa.ColumnElement[bool] | None = None) -> pl.DataFrame:
    """The spans of all stored lines of a cluster; with ``new``, of the lines that it selects."""
    return _spans(store.ask_frame(hosts.spans_by_writer(cluster, SOURCES, new)))
