"""Which sources were collected of which host, and from when to when: what was not collected can be no witness.

A source of a host counts as collected at a moment if its first line is at most a quarter of an hour later, and its last
line at most a week earlier. It is that long because switches and healthy daemons may write nothing for days.

Only two kinds of lines show it: those that no user can have written (``parsers.writers.NO_USERS``), and those of a general
syslog file that was collected from the host itself. In such a file a user chooses the name of the program. So its lines
show that the system's log was collected, and never that a daemon's was. Packets that nothing confirms, uploads without a
file, log hosts' copies, a job's output and claims show nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from correlator.gather.kernel_copies import is_own_system_log
from correlator.gather.telemetry import KERNEL_SOURCES
from correlator.site.open_lines import log_host_folder
from parsers.formats.base import JOB_SOURCES
from parsers.host_names import short_key
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

#: Lines are compared with each other from so many on: it takes a millisecond, however few they are.
MANY_LINES = 5_000
#: What a line that means no event and is no claim shows depends on these columns alone, and on its time.
_EQUAL = ("host", "source", "format", "facility", "file")
_SEED = secrets.randbits(63)
#: The first and last time of lines, and how many have none.
_TIMED = ("first", "last", "untimed")

#: By family and short host: the minute of the first timestamp and the hour of the last (epoch seconds); infinite if a line
#: has none. For ``NAMED`` (the full host) and ``LOG_HOST`` (a folder) always infinite.
Spans = Mapping[tuple[str, str], tuple[float, float]]
_UNDATED = float("-inf")
_EVER = (_UNDATED, float("inf"))


def place(family: str, host: str) -> str:
    """The name of a source of a host in ``Uncollected`` looks; no host's name contains a space."""
    return f"{family} {host}"


#: The place of measurements of GPUs.
GPUS = place("telemetry", ANY)


@dataclass(frozen=True)
class Collected:
    """``spans`` of all lines. ``telemetry``: are there measurements of GPUs?"""

    spans: Spans = field(default_factory=dict)
    telemetry: bool = False

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
        spans = (self.spans.get((family, short_key(host))) for family in families)
        return any(span[0] - BEGINS_S <= time <= span[1] + AROUND_S for span in spans if span)

    def but(self, more: Spans | None, *, telemetry: bool = False) -> Collected:
        """With further lines."""
        longer = _longer(self.spans, more or {})
        if longer:
            found = Collected({**self.spans, **longer}, self.telemetry or telemetry)
            if longer.keys() <= self.spans.keys():  # mostly, lines of known sources: the names in them stay the same
                vars(found).update({name: known for name in _NAMES if (known := vars(self).get(name)) is not None})
            return found
        return replace(self, telemetry=True) if telemetry and not self.telemetry else self

    def new_in(self, more: Spans) -> frozenset[str]:
        """The sources that further lines show to have been collected at times that ``self`` does not cover.

        By ``place``, also for any host. Later lines of a source that goes on show nothing about earlier moments.
        """
        known, strange = self.spans, []
        for key, (first, _) in more.items():  # thousands in each tick
            if key[0] not in FAMILIES:
                continue
            span = known.get(key)
            if (
                (span is None or span[0] > first)
                if first == _UNDATED
                else (span is not None and first > span[1] + AROUND_S)
            ):
                strange.append(key)
        named = {place(family, host) for family, host in strange}
        return frozenset(named.union(place(family, ANY) for family in {family for family, _ in strange}))


#: What ``Collected`` computes once from the names in its spans.
_NAMES = ("reporting_hosts", "log_host_folders")


def hosts_of(spans: Spans) -> frozenset[str]:
    """The hosts that lines of a kernel or a system name, among ``spans``."""
    return frozenset(host for family, host in spans if family == NAMED)


def log_host_folders_of(spans: Spans) -> frozenset[str]:
    """The folders of ``LOG_HOST`` among ``spans``."""
    return frozenset(folder for family, folder in spans if family == LOG_HOST)


def shows_its_log(authority: str | None, files: Iterable[str | None], host: str) -> bool:
    """Does a line of a host, which is no claim, show that a log of that host was collected? ``files`` have the line."""
    return authority in NO_USERS or (authority == LOCAL and any(is_own_system_log(file, host) for file in files))


def joined(some: Iterable[Spans]) -> Spans:
    """All of them in one."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for spans in some:
        found.update(_longer(found, spans) if found else spans)
    return found


def _longer(known: Spans, more: Spans) -> dict[tuple[str, str], tuple[float, float]]:
    """The spans that further ones make longer."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    if more.items() <= known.items():  # there are thousands in each tick, and most lines add nothing
        return found
    for key, span in more.items():
        before = known.get(key)
        if before == span:
            continue
        if before is None:
            found[key] = span
        elif span[0] < before[0]:
            found[key] = (span[0], max(span[1], before[1]))
        elif span[1] > before[1]:
            found[key] = (before[0], span[1])
    return found


def spans_in(lines: pl.DataFrame) -> Spans:
    """The spans of log lines, given as the store gets them; needs the columns ``USED``."""
    ours = plain(_one_of_equal(lines))
    columns = writers.writer_expressions(ours)
    written = ours.select(writers.writer_number(columns), *_TIMED, pl.int_range(pl.len()).alias("row"))
    groups = written.group_by("writer").agg(
        pl.col("row").first(), pl.col("first").min(), pl.col("last").max(), pl.col("untimed").sum()
    )
    return _spans(groups, lambda some: ours[groups["row"][some]].select(columns))


def _one_of_equal(lines: pl.DataFrame) -> pl.DataFrame:
    """``USED`` of the lines that may show something, with ``_TIMED``. Of those that mean no event and are no claims, the
    ones with equal ``_EQUAL`` show the same whatever else they have: of many lines, one of each stands for all of them."""
    time, event, source = pl.col("time"), pl.col("event").ne("other"), pl.col("source")
    # Further events show nothing here, but who wrote them is asked next: it is decided for all of them together.
    shows = source.is_in(SOURCES) | (event & ~source.is_in(JOB_SOURCES))
    alone = pl.struct(time.alias("first"), time.alias("last"), time.is_null().cast(pl.UInt32).alias("untimed"))
    if lines.height < MANY_LINES:
        return lines.filter(shows).select(*USED, alone.alias("timed")).unnest("timed")
    row = pl.int_range(pl.len(), dtype=pl.UInt32).alias("row")
    # The numbers in place of texts (``store.line_frames.coded``) are enough to compare them.
    equal = [pl.col(name).to_physical().alias(name) for name in _EQUAL]
    is_alone = event.fill_null(False) | writers.claims_among(lines)
    marked = lines.select(*equal, time, is_alone.alias("is_alone"), row, shows.alias("shows")).filter("shows")
    some = marked.filter(~pl.col("is_alone")).group_by(pl.struct(_EQUAL).hash(seed=_SEED).alias("equal")).agg(
        pl.col("row").first(), time.min().alias("first"), time.max().alias("last"), time.null_count().alias("untimed")
    )  # fmt: skip
    found = pl.concat(
        [some.drop("equal"), marked.filter("is_alone").select("row", alone.alias("timed")).unnest("timed")]
    )
    return lines.select(USED)[found["row"]].with_columns([found[name] for name in _TIMED])


def asked(store: Asks, cluster: str | None, new: sa.ColumnElement[bool] | None = None) -> Spans:
    """The spans of all stored lines of a cluster; with ``new``, of the lines that it selects."""
    rows = plain(store.ask_frame(hosts.spans_by_writer(cluster, SOURCES, new)))
    groups = rows.select(writers.writer_number(map(pl.col, writers.WRITER_COLUMNS)), "first", "last", "untimed")
    return _spans(groups, lambda some: rows[some])


class _Shown(NamedTuple):
    """What lines of one writer show: the family and whether only if they have a timestamp, the host of ``NAMED`` and the
    folder of ``LOG_HOST``, if any."""

    family: tuple[str, str] | None = None
    timed: bool = False
    named: tuple[str, str] | None = None
    folder: tuple[str, str] | None = None


#: Most writers to remember: some kilobytes for each node.
_MOST = 100_000
_shown: dict[int, _Shown] = {}
#: From a whole minute to a whole hour: most lines of a source that goes on add nothing then.
_TIMES = (
    (pl.col("first").dt.epoch("s") // 60 * 60).cast(pl.Float64), ((pl.col("last").dt.epoch("s") // 3600 + 1) * 3600).cast(pl.Float64),
    pl.col("untimed"),
)  # fmt: skip


def _spans(groups: pl.DataFrame, writers_of: Callable[[list[int]], pl.DataFrame]) -> Spans:
    """Spans from ``writer_number``, ``first``, ``last`` (datetimes) and the number of ``untimed`` lines of groups of lines.
    ``writers_of`` gives the ``writer_columns`` of some. Most wrote before; each is looked at once."""
    keys = groups["writer"].to_list()
    shown = list(map(_shown.get, keys))
    if strange := [place for place, one in enumerate(shown) if one is None]:
        if len(_shown) > _MOST:
            _shown.clear()
        for place, found_now in zip(strange, _show(writers_of(strange)), strict=True):
            shown[place] = _shown[keys[place]] = found_now
    found: dict[tuple[str, str], tuple[float, float]] = {}
    times = groups.select(_TIMES)
    first, last, untimed = (times[name].to_list() for name in ("first", "last", "untimed"))
    for one, begins, ends, timeless in zip(shown, first, last, untimed, strict=True):
        family, timed, named, folder = one or _Shown()
        span = _EVER if timeless and not timed else None if begins is None else (begins, ends)
        if family is not None and span is not None:
            before = found.get(family)
            if before is None:
                found[family] = span
            elif before != span:
                found[family] = (min(span[0], before[0]), max(span[1], before[1]))
        if named is not None:
            found[named] = _EVER
        if folder is not None:
            found[folder] = _EVER
    return found


def _show(rows: pl.DataFrame) -> Iterator[_Shown]:
    """What the lines of each of some writers show."""
    names = ("host", "source", "file")
    for authority, host, source, file in zip(
        writers.authority_of_writers(rows).to_list(), *(rows[name].to_list() for name in names), strict=True
    ):
        if not host or source not in _FAMILY_OF:
            yield _Shown()
            continue
        family = (
            _FAMILY_OF[source] if authority in NO_USERS
            else "kernel" if authority == LOCAL and is_own_system_log(file, host)
            else None
        )  # fmt: skip
        folder = log_host_folder(file, host) if file and authority in (LOCAL, NETWORK) else None
        yield _Shown(
            (family, short_key(host)) if family else None,
            authority == LOCAL,  # without one, it is a further line of somebody's message in a syslog daemon's file
            (NAMED, host) if source in KERNEL_SOURCES else None,
            (LOG_HOST, folder) if folder else None,
        )  # fmt: skip
