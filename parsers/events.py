"""Turns the events of a batch into columns. Only lines that may have an event ever become Python objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import polars as pl

from parsers import clock, subjects
from parsers.entities import job_ids, step_name, tags_of
from parsers.fast_headers import FastHeaders
from parsers.formats.base import JOB_SOURCES
from parsers.index import Found
from parsers.line_events import Events, Tags
from parsers.lines import Array
from parsers.pattern import Pattern
from parsers.patterns import around, dumps, written
from parsers.record import Origin
from parsers.tag_lists import lists_of

#: Header values that become entities only on request.
_HEADERS = ("stamp", "host", "unit", "pid")
_NUMBERS = '{"facility_num"'  # a numeric priority: facility and severity already have columns
#: Number of remembered texts in each of two generations; longer texts are not remembered.
_REMEMBERED, _LONGEST = 4_096, 512
#: A text, its line's source, the job that it names, and whether the line is known to be job output.
_TextKey = tuple[str, str | None, str | None, bool]


class _TextMeaning:
    """The meaning of a text on every line that consists of it: its entities are built and serialised once.

    ``jobs``: the job that the text names. The values of the pattern ``found`` take precedence over it, and both over
    those of a line's header.
    """

    def __init__(self, entry: Pattern, device: dict[str, Any], jobs: dict[str, str], found: dict[str, Any]) -> None:
        self.entry, self._device, self._jobs, self._found = entry, device, jobs, found
        self._whole = device | jobs | found if device or jobs else found
        self.job = _number(self._whole.get("job_id"))
        self.tags = entry.tags + tags_of(self._whole)
        self._alone: str | None = None
        self._around: tuple[str, str] | None = None
        self._again = False

    def text(self, uptime: float | None) -> str | None:
        """Its entities as JSON on a line whose header gives nothing, or only the host's uptime."""
        if uptime is None or "uptime_s" in self._whole:
            if self._alone is None:
                self._alone = dumps(self._whole)
            return self._alone
        if not self._again:
            self._again = True
            return dumps({**self._whole, "uptime_s": uptime})
        if self._around is None:
            self._around = around("uptime_s", self._whole)
        return written(uptime).join(self._around)

    def on(self, uptime: float | None, extra: dict[str, Any], step_tag: str | None) -> dict[str, Any]:
        """Its entities on a line whose header gives more."""
        uptime_entity = {} if uptime is None else {"uptime_s": uptime}
        return self._device | uptime_entity | extra | self._jobs | _of_step(step_tag) | self._found


class Memory:
    """The meanings of the last batches' texts: the same texts recur. Safe to use from several threads."""

    def __init__(self) -> None:
        self._young: dict[_TextKey, _TextMeaning | None] = {}
        self._old: dict[_TextKey, _TextMeaning | None] = {}

    def known(self, key: _TextKey, make: Callable[[], _TextMeaning | None]) -> _TextMeaning | None:
        """The meaning of a text, from memory or from ``make``; None for a text without one."""
        # Another thread may replace them; their content stays valid.
        young, old = self._young, self._old
        if key in young:
            return young[key]
        text_meaning = old[key] if key in old else make()
        if len(key[0]) <= _LONGEST:
            if len(young) >= _REMEMBERED:
                self._young, self._old = {}, young
            self._young[key] = text_meaning
        return text_meaning


def alone(frame: pl.DataFrame, fast: FastHeaders, found: Found, origin: Origin, memory: Memory) -> Events:
    """The events of lines with a meaning, completed from the rest of each line."""
    numbers, text_meanings = _text_meanings(frame, found, memory, origin.source in JOB_SOURCES)
    which = numbers[found.which]
    lines, which = found.rows[which >= 0], which[which >= 0]
    meanings = [text_meanings[number] for number in which.tolist()]
    uptimes, extras, steps = (frame[name][lines] for name in ("uptime_s", "extra", "step_tag"))
    texts = [text_meaning.text(uptime) for text_meaning, uptime in zip(meanings, uptimes.to_list(), strict=True)]
    jobs = [origin.job_id] * len(meanings)
    if not _of_one_job(origin):
        jobs = [origin.job_id if (job := text_meaning.job) is None else job for text_meaning in meanings]
    tags = {
        line: text_meaning.tags
        for line, text_meaning in zip(lines.tolist(), meanings, strict=True)
        if text_meaning.tags
    }
    more = fast.has_extra(lines)
    odd = steps.is_not_null() | (extras.is_not_null() & ~extras.str.starts_with(_NUMBERS))
    own = np.flatnonzero(more | odd.fill_null(False).to_numpy())
    headers = (column[own].to_list() for column in (uptimes, extras, steps))
    for at, uptime, extra, step in zip(own.tolist(), *headers, strict=True):
        line = int(lines[at])
        header = fast.extra(line) if more[at] else {} if extra is None else json.loads(extra)
        merged = meanings[at].on(uptime, header, step)
        texts[at], jobs[at] = dumps(merged), _job_number(merged.get("job_id"), origin)
        tags[line] = meanings[at].entry.tags + tags_of(merged)
    return Events(lines.tolist(), texts, jobs, lines.tolist(), [text_meaning.entry for text_meaning in meanings], tags)


def _text_meanings(frame: pl.DataFrame, found: Found, memory: Memory, of_job: bool) -> tuple[Array, list[_TextMeaning]]:
    """Per distinct text the number of its meaning (below zero: none), and the meanings."""
    sources, jobs = (frame[name][found.firsts].to_list() for name in ("source", "_job"))
    numbers = np.full(len(found.firsts), -1, np.int64)
    text_meanings: list[_TextMeaning] = []
    for at, key in enumerate(zip(found.texts, sources, jobs, repeat(of_job), strict=False)):
        text_meaning = memory.known(key, partial(_meant, found, at, key))
        if text_meaning is not None:
            numbers[at] = len(text_meanings)
            text_meanings.append(text_meaning)
    return numbers, text_meanings


def _meant(found: Found, at: int, key: _TextKey) -> _TextMeaning | None:
    means = found.meaning(at)
    if means is None:
        return None
    text, source, job, _ = key
    return _TextMeaning(means[0], subjects.of(text, source), job_ids(job) if job else {}, means[1])


def with_headers(frame: pl.DataFrame, fast: FastHeaders, found: Found, origin: Origin) -> Events:
    """Like :func:`alone`, plus the header's values, for every line that has any."""
    means = {at: (entry, entities) for at, _, entry, entities in found.meanings}
    known = {line: means[at] for line, at in zip(found.rows.tolist(), found.which.tolist(), strict=True) if at in means}
    has_header = pl.any_horizontal(pl.col("uptime_s", "step_tag", "extra", "_job", *_HEADERS).is_not_null())
    odd = pl.col("source").is_null() | (pl.col("source") == "kernel")
    odd_ones = frame.select((has_header | odd).arg_true()).to_series().to_numpy()
    rows = np.union1d(np.union1d(odd_ones, np.flatnonzero(fast.taken)), list(known)).astype(np.int64)
    names = ("message", "uptime_s", "_job", "step_tag", "extra", *_HEADERS)
    columns = [frame[name][rows].to_list() for name in names]
    out = Events(rows.tolist(), [], [], [], [], {})
    for line, source, *values in zip(out.lines, frame["source"][rows].to_list(), *columns, strict=True):
        message, uptime, job, step, extra, stamp, host, unit, number = values
        program = unit if unit != "kernel" else None
        pid = number if program is not None else None
        header = {
            "uptime_s": uptime,
            "timestamp": stamp,
            "host": host,
            "program": program,
            "daemon_pid": pid,
            "pid": pid,
        }
        merged = subjects.of(message, source)
        merged |= {name: value for name, value in header.items() if value is not None}
        merged |= fast.extra(line) if fast.taken[line] else json.loads(extra or "{}")
        merged |= (job_ids(job) if job else {}) | _of_step(step)
        entry, entities = known.get(line, (None, {}))
        merged |= entities
        out.texts.append(dumps(merged))
        out.jobs.append(_job_number(merged.get("job_id"), origin))
        if entry is not None:
            out.with_event.append(line)
            out.entries.append(entry)
            if some := entry.tags + tags_of(merged):
                out.tags[line] = some
    return out


def _of_step(step_tag: str | None) -> dict[str, str]:
    """The entities in a step daemon's tag, which is more reliable than its text."""
    if not step_tag:
        return {}
    job, _, step = step_tag.partition(".")
    return job_ids(job) | ({"step_id": step_name(step)} if step else {})


def added(frame: pl.DataFrame, events: Events, origin: Origin) -> pl.DataFrame:
    """``frame`` with ``event`` and ``tags``, and with severity, ``entities`` and job of the lines in ``events``."""
    severities = frame["severity"]
    named = pl.Series("event", ["other"]).new_from_index(0, len(frame))
    if events.entries:
        at = pl.Series(events.with_event, dtype=pl.UInt32)
        named = named.scatter(at, pl.Series([entry.event for entry in events.entries], dtype=pl.String))
        levels = pl.Series([entry.severity for entry in events.entries], dtype=pl.String)
        own = severities[at]
        severities = severities.scatter(at, own.zip_with(own.is_not_null(), levels))
    entities, numbers = frame["entities"], frame["job_id"]
    if events.lines:
        at = pl.Series(events.lines, dtype=pl.UInt32)
        entities = entities.scatter(at, pl.Series(events.texts, dtype=pl.String))
        numbers = numbers.scatter(at, pl.Series(events.jobs, dtype=pl.Int64))
    return frame.with_columns(severities, entities, numbers, named, _tags(frame, events.tags, origin))


def _job_number(text: Any, origin: Origin) -> int | None:
    number = None if _of_one_job(origin) else _number(text)
    return origin.job_id if number is None else number


def _of_one_job(origin: Origin) -> bool:
    """Whether all lines are of one job's output: they refer to that job, whatever number they name."""
    return bool((origin.job_id or origin.of_job) and origin.source in JOB_SOURCES)


def _number(text: Any) -> int | None:
    """A job's number, where ``text`` is one."""
    return int(text) if isinstance(text, str) and text.isdigit() and len(text) < 18 else None


def _tags(frame: pl.DataFrame, tags: Tags, origin: Origin) -> pl.Series:
    """The tags of events (given), of the header, and of an anomalous time. Few lines have any."""
    written = frame["tag"]
    if written.null_count() < len(written):
        tagged = written.is_not_null().arg_true()
        for at, text in zip(tagged.to_list(), written[tagged].to_list(), strict=True):
            tags[at] = (*tags.get(at, ()), *text.split(","))
    for at, names in clock.marks(frame["time"], frame["raw"], origin).items():
        tags[at] = (*tags.get(at, ()), *names)
    sizes = np.zeros(len(frame), np.int64)
    for at, some in tags.items():
        sizes[at] = len(some)
    return lists_of(pl.Series([name for at in sorted(tags) for name in tags[at]], dtype=pl.String), sizes)
