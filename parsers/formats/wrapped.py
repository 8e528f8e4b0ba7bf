"""Lines inside lines: prefixes of container runtimes, ``kubectl logs``, ``logcli``, Ray, a byte order mark and a crash.

The prefix is removed, and the rest is parsed like any line; the runtime's time stays, since it has an explicit zone and
the program's own often does not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from parsers import regexes
from parsers.formats.base import (
    HEADER,
    JOB_SOURCES,
    LATER,
    ByLine,
    Format,
    Row,
    accepted,
    accepts_text,
    conform,
    groups,
    nothing,
    timed,
)
from parsers.formats.registry import all_formats
from parsers.record import Origin

_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
#: The container runtime interface's log: time, stream, F(ull) or P(artial). ``kubectl logs --timestamps`` has only the
#: time, and it is not syslog if a launcher's label or a traceback follows.
_CRI = rf"(?s)^(?P<iso>{_STAMP}) (?:stdout|stderr) [FP](?: (?P<rest>.*))?$"
_STAMPED = rf"(?s)^(?P<iso>{_STAMP}) (?P<rest>(?:\[(?:rank|default|trainer|worker)\d+\]|Traceback \(most|\S+:\d+:\d+ \[\d+\] ).*)$"
#: A console recorder puts its own time before the kernel's.
_CONSOLE = (
    r"(?s)^\[?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\]? "
    r"(?P<rest>(?:<\d{1,3}>)?\[ *\d+\.\d{6}\] .*)$"
)
#: ``logcli query``'s plain form: time, labels, line.
_LOGCLI = rf'(?s)^(?P<iso>{_STAMP}) \{{(?P<labels>(?:\w+="(?:[^"\\]|\\.)*"(?:, ?)?)*)\}} ?(?P<rest>.*)$'
_LABELLED_HOST = r'(?:^|[, ])(?:host|hostname|node|node_name|nodename|instance)="([^":]+)'
#: A machine that lost power leaves NULs in the unwritten blocks, and the next line after them. ``journalctl -o
#: json-seq`` and ``-o json-sse`` put a record separator or "data: " before each object. ``mpirun --timestamp-output``
#: puts the time before its label.
_MPIRUN = r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4})?"
_PREFIX = (
    r"(?s)^(?:\ufeff|\x00+|\x1e+|data: |\[pod/[\w.-]+/[\w.-]+\] |\((?:\w+ pid=\d+(?:, ip=[\d.a-f:]+)?|raylet|gcs_server)\) |"
    rf"{_MPIRUN}\[(?:[\w.-]+@)?\d+,(?P<rank>\d+)\]<std(?:err|out)>: ?)(?P<rest>.*)$"
)
#: A line of megabytes may consist of prefixes, and each takes several calls of Python's stack: what follows this many
#: is kept as it is.
_MOST_NESTED = 64
_nested = threading.local()


@contextmanager
def _formats_inside(origin: Origin) -> Iterator[tuple[Format, ...]]:
    """The formats for a line inside a line: behind too many prefixes only the last one, which accepts anything."""
    depth = getattr(_nested, "depth", 0)
    _nested.depth = depth + 1
    try:
        formats = all_formats()
        if depth >= _MOST_NESTED:
            formats = formats[-1:]
        yield tuple(form for form in formats if form.for_jobs) if origin.source in JOB_SOURCES else formats
    finally:
        _nested.depth = depth


def read_inner(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """HEADER's columns of ``frame`` (i, text), each line read by the first format that can."""
    left, parts = frame, []
    with _formats_inside(origin) as formats:
        for form in formats:
            if left.is_empty():
                break
            fitting = accepted(form, left["text"])
            if not fitting.any():
                continue
            found = conform(form.read(left.filter(fitting), origin))
            if len(found):
                parts.append(found)
                left = left.join(found.select("i"), on="i", how="anti", maintain_order="left")
    return pl.concat(parts) if parts else pl.DataFrame([nothing(name, kind, 0) for name, kind in HEADER.items()])


def _inner_row(text: str, origin: Origin) -> Row:
    """Like :func:`read_inner`, for one line; ``LATER`` where a format reads frames only."""
    with _formats_inside(origin) as formats:
        for form in formats:
            if not accepts_text(form, text):
                continue
            row = form.read.line(text, origin) if isinstance(form.read, ByLine) else LATER
            if row is not None:
                return row
    return LATER


def with_outer(inner: pl.DataFrame, outer: pl.DataFrame, format_name: str | None = None) -> pl.DataFrame:
    """``inner`` with the time of ``outer`` (i, time, quality, resolution_us) where it has one."""
    both = inner.join(outer, on="i", how="left", suffix="_outer")
    known = pl.col("time_outer").is_not_null()
    times = [
        pl.when(known).then(f"{name}_outer").otherwise(name).alias(name)
        for name in ("time", "quality", "resolution_us")
    ]
    unread = pl.col("tag").eq("unparsed")
    named = [pl.lit(format_name).alias("format")] if format_name else []
    return conform(both.with_columns(*times, *named, pl.when(~unread).then("tag").alias("tag")))


def _read_container(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    parts = []
    for shape, name in ((_CRI, "container"), (_STAMPED, "container"), (_CONSOLE, None)):
        found = groups(frame, shape)
        if found.is_empty():
            continue
        outer = timed(found.with_columns(pl.col("iso").alias("stamp")), origin).select(
            "i", "time", "quality", "resolution_us"
        )
        inner = read_inner(found.select("i", pl.col("rest").fill_null("").alias("text")), origin)
        parts.append(with_outer(inner, outer, name))
    return pl.concat(parts) if parts else frame.clear()


def _read_logcli(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """The time is Loki's; the host is the line's own, or that of a label."""
    found = groups(frame, _LOGCLI).filter(pl.col("rest").is_not_null())
    if found.is_empty():
        return found
    outer = timed(found.with_columns(pl.col("iso").alias("stamp")), origin)
    inner = read_inner(found.select("i", pl.col("rest").alias("text")), origin)
    both = with_outer(inner, outer.select("i", "time", "quality", "resolution_us"), "logcli")
    label = found.select("i", pl.col("labels").str.extract(_LABELLED_HOST).alias("_host"))
    return conform(both.join(label, on="i", how="left").with_columns(pl.coalesce("host", "_host").alias("host")))


def _read_prefixed(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _PREFIX).filter(pl.col("rest").is_not_null())
    if found.is_empty():
        return found
    bom = found["text"].str.starts_with("\ufeff")
    inner = read_inner(found.select("i", pl.col("rest").alias("text")), origin).join(
        found.select("i", "rank", bom.alias("_bom")), on="i", how="left"
    )
    # Only a job's launcher labels its output: an unknown line after a label is the job's.
    plain = pl.col("format").eq("plain") & ~pl.col("_bom")
    label = pl.concat_str(pl.lit('{"rank": '), "rank")
    more = pl.concat_str(label, pl.lit(", "), pl.col("extra").str.strip_prefix("{"))
    return conform(
        inner.with_columns(
            pl.when(plain).then(pl.lit("job_output")).otherwise("format").alias("format"),
            pl.when(plain).then(pl.lit(origin.source or "job_stdout")).otherwise("source").alias("source"),
            pl.when(~plain).then("tag").alias("tag"),
            pl.coalesce(more, pl.concat_str(label, pl.lit("}")), "extra").alias("extra"),
        )
    )


def _prefixed_line(text: str, origin: Origin) -> Row | None:
    """Like :func:`_read_prefixed`, for one line: a batch has few of them, and reading frames takes longer."""
    found = regexes.compiled(_PREFIX).search(text)
    if found is None:
        return None
    row = _inner_row(found["rest"], origin)
    if row is LATER or row.get("format") is None:
        return LATER
    row = dict(row)
    if row["format"] == "plain" and not text.startswith("\ufeff"):
        row |= {"format": "job_output", "source": origin.source or "job_stdout", "tag": None}
    if (rank := found["rank"]) is not None:
        extra = row.get("extra")
        row["extra"] = f'{{"rank": {rank}}}' if extra is None else f'{{"rank": {rank}, {extra.removeprefix("{")}'
    return row


CONTAINER = Format(
    "container",
    "a container runtime's time, stream and F or P; kubectl's time in front of a launcher's label; a console's in front of dmesg",
    rf"^{_STAMP} (?:(?:stdout|stderr) [FP](?: |$)|\[(?:rank|default|trainer|worker)\d+\]|Traceback |\S+:\d+:\d+ \[\d+\] )"
    r"|^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]? (?:<\d{1,3}>)?\[ *\d+\.\d{6}\] ",
    _read_container,
    for_jobs=True,
)
LOGCLI = Format(
    "logcli",
    "a time and Loki's labels in braces, as logcli prints them",
    rf'^{_STAMP} \{{(?:\}}|\w+=")',
    _read_logcli,
)
PREFIXED = Format(
    "prefixed",
    "a label in front of a line: kubectl's pod, Ray's actor, mpirun's [job,rank]<stream>, a byte order mark, NULs left by a crash",
    rf"^(?:\ufeff|\x00|\x1e|data: \{{|\[pod/|\((?:\w+ pid=\d+|raylet\)|gcs_server\))|{_MPIRUN}\[(?:[\w.-]+@)?\d+,\d+\]<std)",
    ByLine(_prefixed_line, _read_prefixed),
    for_jobs=True,
)
