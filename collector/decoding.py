"""Spooled batches -> rows, in a worker process: read, decode, parse, and add what the transport knows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from collector import event_time
from collector.exchange import Packed
from collector.identity.entry import host_of_line, named_in_line
from collector.json_objects import merged, renamed
from collector.receivers import GROUP, all_receivers
from collector.receivers.base import Decoded, Lines, Payload, Run, moment_of
from collector.receivers.refusals import Poison
from collector.receivers.wrapped import whole
from collector.segment_file import payload_of
from collector.senders import Limits
from parsers import accounts, authority, extensions, future, speakers
from parsers.engine import LineParser, prepare
from parsers.formats.base import JOB_SOURCES, one_of
from parsers.lines import Array, Codes, codes, counted, numbered, tally
from parsers.record import conform
from store.line_frames import CODED, logs_for_storage

#: Lines that are parsed at once: parsing takes some 700 bytes for each meanwhile, however short they are, and the form in
#: which they are returned 110. The lines of an ordinary piece of the spool are fewer.
MOST_AT_ONCE = 100_000
#: A line counts as late if it arrives more than this long after it was written, in seconds.
LATE_S = 60.0

_RUN_TYPES: dict[str, Any] = {
    "lines": pl.UInt32, "received": pl.Int64, "host": pl.String, "file": pl.String, "time": pl.Int64, "read": pl.Int64,
    "severity": pl.String, "unit": pl.String, "pid": pl.Int64, "facility": pl.String, "fields": pl.String,
    "tags": pl.String, "transport": pl.String,
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One spooled record as a worker needs it."""

    path: str
    offset: int
    size: int
    crc: int
    meta: dict[str, Any]
    stored: tuple[tuple[int, int], ...] = ()


@dataclass
class Outcome:
    """The result of some records, or a part of it (``more``: others follow). Rows are in the store's form, those of one
    table in order and in one or more parts; ``poison`` lists records by position."""

    tables: list[tuple[str, Packed]] = field(default_factory=list)
    #: Of the lines in each part of them.
    stats: list[Packed] = field(default_factory=list)
    blind: list[dict[str, Any]] = field(default_factory=list)
    status: list[dict[str, Any]] = field(default_factory=list)
    poison: list[tuple[int, str]] = field(default_factory=list)
    lines: int = 0
    more: bool = False


def worker(patterns: tuple[Path, ...]) -> Callable[[Any], Iterator[Outcome]]:
    """The work function of a pipeline worker (``collector.workers``): its parser reloads changed pattern files by
    itself."""
    from parsers.watched import WatchedCatalogue

    prepare()  # before the first piece: one worker of a new installation compiles, and the others wait for it
    watched = WatchedCatalogue(patterns)
    parser = LineParser(watched.catalogue)
    parser.prepare()
    all_receivers()

    def answer(jobs: Sequence[Job]) -> Iterator[Outcome]:
        nonlocal parser
        if watched.refresh():
            parser = LineParser(watched.catalogue)
        return in_parts(jobs, parser)

    return answer


def work(jobs: Sequence[Job], parser: LineParser, most: int = MOST_AT_ONCE) -> Outcome:
    """Like :func:`in_parts`, as a whole."""
    whole = Outcome()
    for part in in_parts(jobs, parser, most):
        for name in ("tables", "stats", "blind", "status", "poison"):
            getattr(whole, name).extend(getattr(part, name))
        whole.lines += part.lines
    return whole


def in_parts(jobs: Sequence[Job], parser: LineParser, most: int = MOST_AT_ONCE) -> Iterator[Outcome]:
    """Decodes and parses ``jobs``. What cannot be decoded is poison; an error of the parser itself is raised. ``most``:
    the lines that are parsed at once; each part has so many or a little more, and need not be kept while the next is
    made."""
    outcome = Outcome()
    decoded_of = _decoded(jobs, outcome)
    newest = moment_of(max((_received(job) for job in jobs), default=0))
    tables: dict[str, list[pl.DataFrame]] = {}
    for decoded in decoded_of.values():
        outcome.blind += decoded.blind
        outcome.status += decoded.status
        for parsed in decoded.parsed:
            for name, data in future.held_tables(parsed.tables, newest, newest, newest).items():
                if data.height:
                    tables.setdefault(name, []).append(conform(name, data))
    logs = tables.pop("logs", [])
    for frames in _together(_all_rows(decoded_of, parser, most), logs, most):
        if outcome.tables:
            outcome.more = True
            yield outcome
            outcome = Outcome()
        how: Any = "diagonal_relaxed" if logs else "vertical"
        _add_lines(outcome, pl.concat(frames, how=how) if len(frames) > 1 else frames[0])
    for name, parts in tables.items():
        rows = pl.concat(parts, how="diagonal_relaxed") if len(parts) > 1 else parts[0]
        outcome.tables.append((name, Packed.of(conform(name, rows))))
    yield outcome


def _decoded(jobs: Sequence[Job], outcome: Outcome) -> dict[Limits | None, Decoded]:
    """What ``jobs`` contain, by the limits of their senders. What cannot be decoded becomes poison of ``outcome``."""
    decoded_of: dict[Limits | None, Decoded] = {}
    receivers = all_receivers()
    for place, job in enumerate(jobs):
        kind = str(job.meta.get("kind"))
        try:
            if kind == "damaged" or kind not in receivers:
                raise Poison("the spool is damaged here" if kind == "damaged" else f"no receiver is called {kind!r}")
            own = Decoded()
            payload = Payload(payload_of(job.path, job.offset, job.size, job.crc), job.meta, job.stored)
            receivers[kind].decode(payload, own)
            limits = Limits.of(job.meta)
            if limits is not None and (reason := limits.refused(own)) is not None:
                raise Poison(reason)
            _merge(own, decoded_of.setdefault(limits, Decoded()))
        except Exception as error:  # anything a sender managed to send: set it aside with the reason
            why = str(error) if isinstance(error, Poison) else extensions.described(error)
            if not isinstance(error, Poison) and (name := extensions.brought_by(GROUP, kind)) is not None:
                why = f"{name} raised {why}"
                extensions.warn_once(f"{why} in decode; the batch is set aside", error)
            outcome.poison.append((place, whole(why[:500])))
    return decoded_of


def _all_rows(decoded_of: dict[Limits | None, Decoded], parser: LineParser, most: int) -> Iterator[pl.DataFrame]:
    """All lines, parsed."""
    for limits, decoded in decoded_of.items():
        for group in decoded.groups.values():
            if group.runs:
                for rows in _rows(group, parser, most):
                    yield rows if limits is None else limits.lines(rows)


def _together(parsed: Iterator[pl.DataFrame], last: list[pl.DataFrame], most: int) -> Iterator[list[pl.DataFrame]]:
    """Frames to be stored as one, of ``most`` lines or a little more: one frame costs less than several small ones, and
    the store's form takes half of a frame's memory. ``last``: those that follow."""
    frames: list[pl.DataFrame] = []
    for frame in chain(parsed, last):
        frames.append(frame)
        if sum(map(len, frames)) >= most:
            yield frames
            frames = []
    if frames:
        yield frames


def _add_lines(outcome: Outcome, rows: pl.DataFrame) -> None:
    stored = logs_for_storage(rows)
    repeated = _repeated(stored)
    stored = _numbered(stored, repeated["file"])
    outcome.lines += rows.height
    outcome.stats.append(Packed.of(_stats(stored, rows, repeated)))
    outcome.tables.append(("logs", Packed.of(stored, repeated)))


def _received(job: Job) -> int:
    received = job.meta.get("received")
    return received if isinstance(received, int) else time.time_ns() // 1000


def _repeated(stored: pl.DataFrame) -> dict[str, Codes]:
    """The columns with repeating texts. A file mostly follows from its host."""
    found = {column: codes(stored[column]) for column in CODED if column != "file"}
    return found | {"file": codes(stored["file"], found["host"])}


def _merge(own: Decoded, into: Decoded) -> None:
    for key, group in own.groups.items():
        known = into.groups.get(key)
        if known is None:
            into.groups[key] = group
        else:
            known.lines += group.lines
            known.data += group.data
            known.runs += group.runs
    into.parsed += own.parsed
    into.blind += own.blind
    into.status += own.status


def _rows(group: Lines, parser: LineParser, most: int = MOST_AT_ONCE) -> Iterator[pl.DataFrame]:
    """The parser's rows, completed with what the transport knows where the lines give nothing. ``most`` lines are
    parsed at once, which limits the memory of doing so; the rows are the same whatever it is."""
    newest, first_line = moment_of(group.received), 1
    right: frozenset[str] | None = None
    for part in group.slices(most):
        rows = _completed(part, parser, newest, first_line)
        first_line += len(rows)
        if part is not group and right is None and future.is_any_ahead(rows, newest):
            # Whether a stamp is right depends on all stamps of its host. It is rare: then all lines are read twice.
            right = frozenset[str]().union(
                *(future.right_hosts(_completed(one, parser, newest, 1), newest) for one in group.slices(most))
            )
        rows = future.held_lines(rows, newest, pl.col("received_time"), right or ())
        yield _by_channel(rows, group.origin.source).drop("_named", "_peer")


def _completed(group: Lines, parser: LineParser, newest: datetime, first_line: int) -> pl.DataFrame:
    """The rows of some lines of a group whose last line was received at ``newest``. Besides LOGS' columns they have
    ``_transport``, the host that the line names (``_named``) and the sender's (``_peer``)."""
    runs = _runs(group.runs)
    rows = group.parse(parser, newest, first_line)
    # Values that all runs share are set once; only the rest is spread over the lines.
    differs = [name for name in Run._fields if name != "lines" and runs[name].n_unique() > 1]
    columns = {
        name: pl.col(f"_{name}") if name in differs else pl.lit(runs[name][0], _RUN_TYPES[name]) for name in Run._fields
    }  # fmt: skip
    spread = rows
    if differs:
        some = runs.select(pl.col(name).alias(f"_{name}") for name in differs)
        if len(runs) < len(rows):
            some = some[np.repeat(np.arange(len(runs), dtype=np.uint32), runs["lines"].to_numpy())]
        spread = rows.hstack(some)
    values = _overlay(columns, named_in_line(rows["host"]), newest, runs)
    values |= {"_named": pl.col("host"), "_peer": columns["host"]}
    if runs["file"][0] is None and not {"file", "transport"} & set(differs):
        del values["file"]
        spread = spread.with_columns(**values)
        spread = spread.with_columns(_files(spread["host"], runs["transport"][0]))
    else:
        spread = spread.with_columns(**values)
    if runs["tags"].null_count() < len(runs) or runs["fields"].null_count() < len(runs):
        spread = _with_fields(spread.with_columns(columns["fields"].alias("_fields"), columns["tags"].alias("_tags")))
    return spread.select([*rows.columns, "_transport", "_named", "_peer"])


#: A syslog line starts with a priority; a line without one was not written by a syslog daemon.
_SYSLOG = "syslog"
_HEADED = ("rfc3164", "rfc5424")


def _by_channel(rows: pl.DataFrame, known: str | None) -> pl.DataFrame:
    """``rows`` (of :func:`_completed`) with what the transport shows about a line's writer (parsers/authority.py).
    ``known``: the source that the sender gave.

    A syslog line that names another host keeps its sender's address (``sender``): the correlator knows who that is."""
    at = (rows["event"] != "other").arg_true()
    if not len(at):
        return rows
    # Few lines mean something: only these are examined.
    some = rows[at, ["event", "source", "format", "facility", "entities", "_transport", "_named", "_peer"]]
    claimed = _of_persons(some)
    if known is None:  # from some program of an unknown user
        claimed |= one_of(some["source"], JOB_SOURCES) & ~some["event"].str.starts_with("job.")
    sent = some["_transport"].str.starts_with(_SYSLOG).fill_null(False)
    if sent.any():
        headless = ~one_of(some["format"], _HEADED) | some["facility"].is_null()
        claimed |= sent & headless & (some["source"] != "switch").fill_null(True)
    claimed = claimed.fill_null(False)
    if claimed.any():
        mask = pl.repeat(False, len(rows), eager=True).scatter(at.filter(claimed), True)
        rows = authority.silenced(rows, mask)
    if not sent.any():
        return rows
    sender = some["_peer"]
    foreign = (sent & ~claimed & (some["_named"] != sender)).fill_null(False)
    if not foreign.any():
        return rows
    fields = ('{"sender": "' + sender.filter(foreign) + '"}').alias("_fields")
    return rows.with_columns(
        rows["entities"].scatter(at.filter(foreign), merged(some["entities"].filter(foreign), fields))
    )


def _of_persons(rows: pl.DataFrame) -> pl.Series:
    """Which of ``rows`` a journal shipper attributes to a person's process, and mean what no person may report."""
    found = rows["entities"].str.contains_any(list(accounts.MARKS), ascii_case_insensitive=True).arg_true()
    texts = zip(found.to_list(), rows["entities"][found].to_list(), rows["event"][found].to_list(), strict=True)
    at = [
        row
        for row, entities, event in texts
        if not speakers.may_speak("person", event) and accounts.writer(json.loads(entities))
    ]
    mask = np.zeros(len(rows), np.bool_)
    mask[at] = True
    return pl.Series(mask)


def _files(hosts: pl.Series, transport: str | None) -> pl.Series:
    """The streams of lines that came over one ``transport``, as :func:`_overlay` names them; each name is made once."""
    kind, hosts_once = (transport or "?").partition("/")[0], codes(hosts)
    names = [f"{kind}:{'?' if name is None else name}" for name in hosts_once.names.to_list()]
    return pl.Series("file", names, dtype=pl.String)[hosts_once.which]


def _runs(runs: Sequence[Run | pl.DataFrame]) -> pl.DataFrame:
    """All runs as one table."""
    tables = []
    for is_table, some in groupby(runs, key=lambda run: isinstance(run, pl.DataFrame)):
        if is_table:
            tables += [_complete(table) for table in some if isinstance(table, pl.DataFrame)]
        else:
            columns = dict(zip(Run._fields, zip(*some, strict=True), strict=True))
            tables.append(pl.DataFrame(columns, schema=_RUN_TYPES))
    return pl.concat(tables) if len(tables) > 1 else tables[0]


def _complete(table: pl.DataFrame) -> pl.DataFrame:
    """A table of runs of one line each with all columns."""
    # A request may be a table of its own: an expression over it would wake Polars' threads for each.
    missing = (
        pl.Series(name, [1 if name == "lines" else None], kind).new_from_index(0, len(table))
        for name, kind in _RUN_TYPES.items()
        if name not in table.columns
    )
    columns = {column.name: column for column in (*table.get_columns(), *missing)}
    return pl.DataFrame([columns[name] for name in _RUN_TYPES])


def _overlay(
    columns: dict[str, pl.Expr], own_host: pl.Expr, newest: datetime, runs: pl.DataFrame
) -> dict[str, pl.Expr]:
    """What the transport knows, by column: for host and time, the line's own value takes precedence."""
    host = host_of_line(own_host, columns["host"])
    known = {name for name in _RUN_TYPES if runs[name].null_count() < len(runs)}
    out = {
        "host": host,
        "file": pl.coalesce(columns["file"], pl.concat_str(columns["transport"].fill_null("?").str.replace(r"/.*", ""), pl.lit(":"), host.fill_null("?"))),
        "_transport": columns["transport"],
        **event_time.at_entry(
            columns["time"], columns["read"], columns["received"], newest=newest, sender_knows=bool(known & {"time", "read"})
        ),
    }  # fmt: skip
    for name in ("severity", "unit", "pid", "facility"):
        if name in known:
            out[name] = pl.coalesce(name, columns[name])
    return out


#: What only a line itself shows of its machine's clock, and only a connection of who sent it. A record's attributes have any names.
_OURS = ("uptime_s", "sender")


def _with_fields(rows: pl.DataFrame) -> pl.DataFrame:
    """Merges the transport's fields under those that the parser found, and adds its tags. Fields with the names of ``_OURS`` are
    called ``given_`` so."""
    tags, added = pl.col("tags"), pl.col("_tags").str.json_decode(pl.List(pl.String))
    none = pl.lit([], dtype=pl.List(pl.String))
    return rows.with_columns(
        merged(rows["entities"], renamed(rows["_fields"], {name: f"given_{name}" for name in _OURS})),
        pl.when(pl.col("_tags").is_null())
        .then(tags)
        .otherwise(pl.concat_list(tags.fill_null(none), added.fill_null(none))),
    )


def _numbered(rows: pl.DataFrame, files: Codes) -> pl.DataFrame:
    """``line`` counts from 1 within this batch and stream; the store adds its own count at insertion."""
    return rows.with_columns(pl.Series("line", counted(files.which, len(files.names))))


def _stats(stored: pl.DataFrame, rows: pl.DataFrame, repeated: Mapping[str, Codes]) -> pl.DataFrame:
    """Inventory statistics per host, source and stream. ``lag_s`` is received minus written; ``rows``: the stored ones
    before the transport's values were added; ``repeated``: columns of the stored ones."""
    keys = ("host", "source", "file")
    key = np.zeros(len(stored), np.int64)
    for name in keys:
        key = key * len(repeated[name].names) + repeated[name].which
    group, firsts = numbered(key)
    received, written = (stored[name].cast(pl.Int64) for name in ("received_time", "time"))
    # A time taken from the receiver does not measure lateness.
    timed = _codes_that_fit(repeated["time_quality"], lambda quality: quality not in (None, "received")) & _not_null(
        written
    )
    unparsed = _codes_that_fit(repeated["format"], lambda form: form == "plain") & _codes_that_fit(
        repeated["source"], lambda name: name is None
    )
    means = _codes_that_fit(repeated["event"], lambda event: event not in (None, "other"))
    boots = _codes_that_fit(repeated["event"], lambda event: event == "kernel.boot")
    ahead = future.held(rows).to_numpy()
    found = tally(
        group, len(firsts), received.to_numpy(), written.fill_null(0).to_numpy(), timed,
        unparsed, means, boots, stored["raw"].str.len_bytes().to_numpy(), int(LATE_S * 1e6),
    )  # fmt: skip
    last, known = found["last_timed"], found["timed"]
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(stored))
    transports = rows["_transport"] if "_transport" in rows.columns else nothing
    us = pl.Datetime("us")
    return pl.DataFrame({
        **{name: repeated[name].names[repeated[name].which[firsts]] for name in keys},
        "transport": _of_each(transports, group, firsts, slice(None, None, -1)),
        "cluster": _of_each(stored["cluster"], group, firsts, slice(None)),
        **{name: pl.Series(found[name]) for name in ("lines", "events", "unparsed", "bytes")},
        **{name: pl.Series(found[name]).cast(us) for name in ("first_seen", "last_seen")},
        "last_time": _where(known, pl.Series(found["last_time"]).cast(us)),
        "lag_s": _where(last, pl.Series(found["lag"]) / 1e6), "max_lag_s": _where(known, pl.Series(found["max_lag"]) / 1e6),
        **{name: pl.Series(found[name]) for name in ("late", "boots")},
        "ahead": pl.Series(np.bincount(group[ahead], minlength=len(firsts)).astype(np.int64)),
    })  # fmt: skip


def _of_each(values: pl.Series, group: Array, firsts: Array, direction: slice) -> pl.Series:
    """The last known value (``direction`` backwards: the first) of each group."""
    if values.null_count() == len(values):
        return values[: len(firsts)]
    # Of several values written to one place, the last one stays.
    places = np.flatnonzero(_not_null(values))[direction]
    at = np.full(len(firsts), -1, np.int64)
    at[group[places]] = places
    return _where(at >= 0, values[np.maximum(at, 0)])


def _codes_that_fit(column: Codes, fits: Callable[[str | None], bool]) -> Array:
    """The rows in which the text of a column ``fits``."""
    some: Array = np.array([fits(name) for name in column.names.to_list()], np.bool_)[column.which]
    return some


def _not_null(values: pl.Series) -> Array:
    count = values.null_count()
    if count in (0, len(values)):
        return np.full(len(values), count == 0)
    return values.is_not_null().to_numpy()


def _where(known: Array, values: pl.Series) -> pl.Series:
    """``values``, null where not ``known``."""
    return values if known.all() else values.scatter(np.flatnonzero(~known), None)


def summed(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Several statistics as one, later ones after earlier ones."""
    return parts[0] if len(parts) == 1 else by_source(pl.concat(parts))


def by_source(stats: pl.DataFrame) -> pl.DataFrame:
    """One row per source, later rows of ``stats`` after earlier ones."""
    last = pl.col("cluster", "lag_s").drop_nulls().last()
    added = pl.col("lines", "events", "unparsed", "bytes", "late", "boots", "ahead").sum()
    return stats.group_by("host", "source", "file", maintain_order=True).agg(
        pl.col("transport").drop_nulls().first(), last, added, pl.col("first_seen").min(),
        pl.col("last_seen", "last_time", "max_lag_s").max(),
    )  # fmt: skip
