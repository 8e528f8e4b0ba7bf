"""What the events of a batch become: columns. Only lines that may have an event are ever Python objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from parsers import clock
from parsers.entities import job_ids, step_name, tags_of
from parsers.index import Meaning
from parsers.lines import Array
from parsers.patterns import Pattern, dumps
from parsers.record import Origin
from parsers.usual import Usual

#: What a header may say that becomes an entity on request only.
_HEADERS = ("stamp", "host", "unit", "pid")
_NUMBERS = '{"facility_num"'  # a priority in numbers: facility and severity are columns already
#: Who and what at the start of kernel messages: ``mlx5_core 0000:53:00.0 eth0: text``.
_DEVICE = re.compile(
    r"(?:(?P<driver>[a-z][\w-]+) )?(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])"
    r"(?: (?P<port>[A-Za-z][\w.-]*))?(?: \(.*?\))?: "
)
_Tags = dict[int, tuple[str, ...]]


#: A line, its event if it has one, and its entities.
_Event = tuple[int, Pattern | None, dict[str, Any]]


def alone(frame: pl.DataFrame, usual_ones: Usual, rows: Array, meanings: Iterator[Meaning]) -> Iterator[_Event]:
    """The events among ``rows`` (by place in ``meanings``), with what the rest of their lines says."""
    lines, (messages, kernel, uptimes, jobs, steps) = rows.tolist(), _columns(frame, rows)
    extras, more = frame["extra"].gather(rows).to_list(), usual_ones.says_more(rows).tolist()
    for at, entry, found in meanings:
        merged = _device(messages[at]) if kernel[at] else {}
        if uptimes[at] is not None:
            merged["uptime_s"] = uptimes[at]
        if more[at]:
            merged |= usual_ones.extra(lines[at])
        elif extras[at] is not None and not extras[at].startswith(_NUMBERS):
            merged |= json.loads(extras[at])
        _add_job(merged, jobs[at], steps[at])
        merged.update(found)
        yield lines[at], entry, merged


def with_headers(frame: pl.DataFrame, usual_ones: Usual, rows: Array, meanings: Iterator[Meaning]) -> Iterator[_Event]:
    """As :func:`alone`, and what the header says: of every line that has any."""
    found = {int(rows[at]): (entry, entities) for at, entry, entities in meanings}
    said = pl.any_horizontal(pl.col("uptime_s", "step_tag", "extra", "_job", *_HEADERS).is_not_null())
    odd = pl.col("source").is_null() | (pl.col("source") == "kernel")
    odd_ones = frame.select((said | odd).arg_true()).to_series().to_numpy()
    rows = np.union1d(np.union1d(odd_ones, np.flatnonzero(usual_ones.taken)), list(found)).astype(np.int64)
    columns = [frame[name].gather(rows).to_list() for name in ("extra", *_HEADERS)]
    for line, *values in zip(rows.tolist(), *_columns(frame, rows), *columns, strict=True):
        message, kernel, uptime, job, step, extra, stamp, host, unit, number = values
        merged = _device(message) if kernel else {}
        program = unit if unit != "kernel" else None
        pid = number if program is not None else None
        named = {"timestamp": stamp, "host": host, "program": program, "daemon_pid": pid, "pid": pid}
        merged |= {name: value for name, value in {"uptime_s": uptime, **named}.items() if value is not None}
        merged |= usual_ones.extra(line) if usual_ones.taken[line] else json.loads(extra or "{}")
        _add_job(merged, job, step)
        entry, entities = found.get(line, (None, {}))
        yield line, entry, merged | entities


def _columns(frame: pl.DataFrame, rows: Array) -> list[list[Any]]:
    """Of the rows: message, whether it may be the kernel's, uptime, job and step."""
    kernel = (frame["source"].gather(rows) == "kernel").fill_null(True)
    named = [frame[name].gather(rows).to_list() for name in ("message", "uptime_s", "_job", "step_tag")]
    return [named[0], kernel.to_list(), *named[1:]]


def _device(message: str | None) -> dict[str, Any]:
    """Which device a message of the kernel is about. Nearly all that name one have its address among the first words."""
    found = _DEVICE.match(message or "")
    return {name: value for name, value in found.groupdict().items() if value is not None} if found else {}


def _add_job(merged: dict[str, Any], job: str | None, step_tag: str | None) -> None:
    """What a line says of its job; the tag of a step's daemon is surer than its text."""
    if job:
        merged |= job_ids(job)
    if step_tag:
        job, _, step = step_tag.partition(".")
        merged |= job_ids(job)
        if step:
            merged["step_id"] = step_name(step)


def added(frame: pl.DataFrame, events: Iterator[_Event], origin: Origin) -> pl.DataFrame:
    """``frame`` with ``event`` and ``tags``, and with severity, ``entities`` and job of the lines in ``events``."""
    lines, texts, jobs, entries, with_event = [], [], [], [], []
    tags: _Tags = {}
    # What was read of a line becomes a text at once: thousands of dictionaries, kept, keep the collector of garbage busy.
    for line, entry, entities in events:
        lines.append(line)
        texts.append(dumps(entities))
        jobs.append(_job_number(entities.get("job_id"), origin))
        if entry is not None:
            with_event.append(line)
            entries.append(entry)
            if some := entry.tags + tags_of(entities):
                tags[line] = some
    severities = frame["severity"]
    named = pl.Series("event", ["other"]).new_from_index(0, len(frame))
    if entries:
        at = pl.Series(with_event, dtype=pl.UInt32)
        named = named.scatter(at, [entry.event for entry in entries])
        levels = pl.Series([entry.severity for entry in entries], dtype=pl.String)
        written = severities.gather(at)
        severities = severities.scatter(at, written.zip_with(written.is_not_null(), levels))
    said, numbers = frame["entities"], frame["job_id"]
    if lines:
        at = pl.Series(lines, dtype=pl.UInt32)
        said = said.scatter(at, pl.Series(texts, dtype=pl.String))
        numbers = numbers.scatter(at, pl.Series(jobs, dtype=pl.Int64))
    return frame.with_columns(severities, said, numbers, named, _tags(frame, tags, origin))


def _job_number(text: Any, origin: Origin) -> int | None:
    if isinstance(text, str) and text.isdigit() and len(text) < 18:
        return int(text)
    return origin.job_id


def _tags(frame: pl.DataFrame, tags: _Tags, origin: Origin) -> pl.Series:
    """The tags of events (given), of the header, and of an odd time. Few lines have any."""
    written = frame["tag"]
    if written.null_count() < len(written):
        said = written.is_not_null().arg_true()
        for at, text in zip(said.to_list(), written.gather(said).to_list(), strict=True):
            tags[at] = (*tags.get(at, ()), *text.split(","))
    for at, names in clock.marks(frame["time"], frame["raw"], origin).items():
        tags[at] = (*tags.get(at, ()), *names)
    sizes = np.zeros(len(frame) + 1, np.int64)
    for at, some in tags.items():
        sizes[at + 1] = len(some)
    # Through buffers: pa.array would load pandas, where it is installed, into every process that parses.
    flat = pl.Series([name for at in sorted(tags) for name in tags[at]], dtype=pl.String)
    texts = flat.to_arrow(compat_level=pl.CompatLevel.oldest())
    edges = [None, pa.py_buffer(np.cumsum(sizes))]
    made = pl.from_arrow(pa.Array.from_buffers(pa.large_list(texts.type), len(frame), edges, children=[texts]))
    assert isinstance(made, pl.Series)
    return made.alias("tags")
