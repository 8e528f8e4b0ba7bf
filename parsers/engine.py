"""Lines in, rows of ``LOGS`` out: one per line, in order, whatever the bytes are.

A batch goes through three passes, each over whole columns: formats split the headers (the cheap test of each format over
what is left), one multi-literal search finds the lines that any pattern could fit, and only for those the regexes run.
The batch of one line is the same code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from parsers import clock, usual
from parsers.compiled import once
from parsers.entities import job_ids, step_name, tags_of
from parsers.formats import BUILT_IN, all_formats
from parsers.formats.base import HEADER, JOB_SOURCES, SLURM, Format, accepted, conform, nothing
from parsers.index import Meaning, PatternIndex
from parsers.lines import Array, LineBuffer, each_once, joined
from parsers.patterns import Catalogue, Pattern, dumps, load
from parsers.record import LOGS, Origin, empty
from parsers.usual import Usual

#: Longer than any line that a pattern is for: the rest of a line of megabytes is kept but not searched.
SEARCHED = 16_384
#: For so few lines no index of the catalogue is made.
FEW = 100
#: Lines whose parsing needs every compiled function: usual headers, one of Slurm's files without a tag, one that the regex
#: reads, and an event, of which none is found without a search for texts.
SAMPLES = (
    "Jan 15 10:00:01 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "[2026-01-15T10:00:01.123] error: Nodes node[01-02] not responding",
    "2026-01-15 10:00:01,123 slurmctld: sched: Allocate JobId=17 NodeList=node01",
    "<30>1 2026-01-15T10:00:01.5Z node01 sshd 17 - - session opened",
    "no header at all",
)
#: What a header may say that becomes an entity.
_NUMBERS = '{"facility_num"'  # a priority in numbers: facility and severity are columns already
_ALWAYS = ("uptime_s", "step_tag", "extra")
_HEADERS = (*_ALWAYS, "stamp", "host", "unit", "pid")
#: Who and what at the start of kernel messages: ``mlx5_core 0000:53:00.0 eth0: text``.
_DEVICE = re.compile(
    r"(?:(?P<driver>[a-z][\w-]+) )?(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])"
    r"(?: (?P<port>[A-Za-z][\w.-]*))?(?: \(.*?\))?: "
)
_JOB_WORDS = (b"jobid", b"job_id", b"stepid", b"job")
_JOB = r"(?i)\b(?:JobId=|job_id=|StepId=|job=)(\d+(?:_\d+)?(?:\+\d+)?(?:\(\d+\))?)"


def prepare() -> None:
    """Compiles what is compiled, once on a machine. Whoever parses comes here by itself; a process that is to be quick from
    its first line on calls it before."""
    once(_use_all)


def _use_all() -> None:
    """Calls every compiled function."""
    lines = [line.encode() for line in SAMPLES] * (FEW // len(SAMPLES) + 1)
    LineParser()._parsed(LineBuffer.of_lines(lines), Origin(), 1)


class LineParser:
    """Parses batches of lines. Safe to use from several threads; holds no state between batches.

    ``header_entities``: also put into ``entities`` what the header said (host, stamp, uptime, pid, program), for readers
    of the JSON alone.
    """

    def __init__(self, catalogue: Catalogue | None = None, *, header_entities: bool = False) -> None:
        self.catalogue = catalogue if catalogue is not None else load()
        self._index = PatternIndex(self.catalogue)
        self.formats: tuple[Format, ...] = all_formats()
        self.header_entities = header_entities
        self._plug_ins = self.formats[: -len(BUILT_IN)]
        self._beginnings = {id(form): _beginnings(form) for form in self.formats}

    def parse(self, lines: list[bytes], origin: Origin, first_line: int = 1) -> pl.DataFrame:
        """One row per line. ``first_line`` numbers the first of them. Never raises for what a line contains."""
        return self._parse(LineBuffer.of_lines(lines), origin, first_line)

    def parse_data(self, data: bytes, origin: Origin, first_line: int = 1) -> pl.DataFrame:
        """One row per line that :func:`parsers.lines.split` makes of ``data``; cheaper than cutting first."""
        return self._parse(LineBuffer.of_data(data), origin, first_line)

    def _parse(self, buffer: LineBuffer, origin: Origin, first_line: int) -> pl.DataFrame:
        prepare()
        return self._parsed(buffer, origin, first_line)

    def _parsed(self, buffer: LineBuffer, origin: Origin, first_line: int) -> pl.DataFrame:
        if not len(buffer):
            return empty("logs")
        texts = buffer.lines()
        usual_ones = usual.read(buffer, origin, header=self.header_entities)
        frame = self._headers(usual_ones, texts, origin)
        numbers = pl.Series("line", np.arange(first_line, first_line + len(buffer), dtype=np.int64))
        frame = frame.hstack([texts.alias("raw"), buffer.unfit().alias("raw_bytes"), numbers])
        classified, found = self._classify(frame, origin)
        return _to_logs(self._entities(classified, usual_ones, found, origin), origin)

    def explain(self, line: bytes, origin: Origin) -> list[str]:
        """Why this format and which pattern, in sentences for a person."""
        text = line.decode(errors="replace")
        frame = pl.DataFrame({"i": pl.Series([0], dtype=pl.UInt32), "text": [text]})
        out = []
        for form in self._formats_for(origin):
            if not accepted(form, frame["text"])[0]:
                continue
            found = conform(form.read(frame, origin))
            if found.is_empty():
                out.append(f"not {form.name}: looked like it ({form.why}), but the rest does not fit")
                continue
            row = found.row(0, named=True)
            out.append(f"format {row['format']}: {form.why}; source {row['source']}, time {row['time'] or 'none'}")
            best = self.catalogue.match((row["message"] or "")[:SEARCHED], row["source"])
            if best is None:
                out.append("event other: no pattern of the catalogue fits the message")
            else:
                entry, entities = best
                where = f" (text from {entry.reference})" if entry.reference else ""
                out.append(
                    f"event {entry.event}: pattern {entry.id} of {entry.file}{where}; entities {dumps(entities) or 'none'}"
                )
            break
        return out

    def _formats_for(self, origin: Origin) -> tuple[Format, ...]:
        if origin.source in JOB_SOURCES:
            return tuple(form for form in self.formats if form.for_jobs)
        return self.formats

    def _headers(self, usual_ones: Usual, texts: pl.Series, origin: Origin) -> pl.DataFrame:
        """Every line's header columns, in the order of the lines: the usual ones at once, the rest by their formats."""
        taken, frame = usual_ones.taken, usual_ones.frame
        for form in self._plug_ins:  # these are asked before the built-in formats
            taken &= ~accepted(form, texts).to_numpy()
        if taken.all():
            return frame
        others = pl.concat(self._by_formats(usual_ones.buffer, texts, np.flatnonzero(~taken), origin))
        if not taken.any():
            return others.sort("i")
        # Putting few lines into columns costs a quarter of sorting all.
        at = others["i"]
        return pl.DataFrame([_placed(frame[name], at, others[name]) for name in HEADER])

    def _by_formats(self, buffer: LineBuffer, texts: pl.Series, left: Array, origin: Origin) -> list[pl.DataFrame]:
        """The lines ``left``, each read by the first format that can."""
        parts = []
        done = np.zeros(len(buffer), np.bool_)
        first = np.where(buffer.ends > buffer.starts, buffer.data[buffer.starts], 0)
        for form in self._formats_for(origin):
            likely = left[self._beginnings[id(form)][first[left]]]
            if not len(likely):
                continue
            its = texts.gather(likely)
            fits = np.flatnonzero(accepted(form, its).to_numpy())
            if not len(fits):
                continue
            rows = [pl.Series("i", likely[fits].astype(np.uint32)), its.gather(fits).alias("text")]
            found = form.read(pl.DataFrame(rows), origin)
            if found.is_empty():
                continue
            parts.append(conform(found))
            done[found["i"]] = True
            left = left[~done[left]]
            if not len(left):
                break
        return parts

    def _classify(self, frame: pl.DataFrame, origin: Origin) -> tuple[pl.DataFrame, dict[int, dict[str, Any]]]:
        """Adds ``event`` and the pattern's severity and tags; also what the pattern found, by line of the batch."""
        found: dict[int, dict[str, Any]] = {}
        best: dict[int, Pattern] = {}
        for at, entry, entities in self._meanings(frame["message"].str.slice(0, SEARCHED), frame["source"]):
            best[at], found[at] = entry, entities
        events = pl.Series("event", ["other"]).new_from_index(0, len(frame))
        severities = frame["severity"]
        if best:
            at_lines = np.fromiter(best, np.uint32, len(best))
            events = events.scatter(at_lines, [entry.event for entry in best.values()])
            named = zip(severities[at_lines].to_list(), best.values(), strict=True)
            severities = severities.scatter(at_lines, [written or entry.severity for written, entry in named])
        frame = frame.hstack([events, _tags(frame, best, found, origin)])
        return frame.replace_column(frame.get_column_index("severity"), severities), found

    def _meanings(self, messages: pl.Series, sources: pl.Series) -> Iterator[Meaning]:
        if len(messages) > FEW or self._index.made:
            yield from self._index.meanings(messages, sources)
            return
        for at, (message, source) in enumerate(zip(messages.to_list(), sources.to_list(), strict=True)):
            means = self.catalogue.match(message or "", source)
            if means is not None:
                yield at, *means

    def _entities(
        self, frame: pl.DataFrame, usual_ones: Usual, found: dict[int, dict[str, Any]], origin: Origin
    ) -> pl.DataFrame:
        """``entities`` and ``job_id``: the pattern's, the header's, and what stands at the start of the message.

        Only lines with an event (or, on request, with anything in the header) become Python objects; of the others the
        uptime stays, from which boots are computed, and the job.
        """
        named = _jobs_named(frame)
        numbers = _job_numbers(frame["step_tag"], named, origin)
        frame = frame.hstack([named, numbers, _uptimes(frame["uptime_s"])])
        wanted = pl.Series(np.fromiter(found, np.uint32, len(found)))
        if self.header_entities:
            said = pl.any_horizontal(pl.col(*_HEADERS, "_job").is_not_null())
            odd = pl.col("source").is_null() | (pl.col("source") == "kernel") | pl.col("i").is_in(wanted.implode())
            wanted = frame.filter(said | odd)["i"]
        if not len(wanted):
            return frame
        texts, jobs = [], []
        names = ("i", "message", "source", "_job", *(_HEADERS if self.header_entities else _ALWAYS))
        rows = pl.DataFrame([frame[name].gather(wanted) for name in names])
        if not self.header_entities:
            rows = _with_extra(rows, usual_ones)
        # A third of what iter_rows takes.
        for values in zip(*(column.to_list() for column in rows), strict=True):
            row = dict(zip(names, values, strict=True))
            merged = _merge(row, found.get(row["i"]), self.header_entities)
            texts.append(dumps(merged))
            jobs.append(_job_number(merged.get("job_id"), origin))
        return frame.with_columns(
            frame["entities"].scatter(wanted, pl.Series(texts, dtype=pl.String)),
            frame["job_id"].scatter(wanted, pl.Series(jobs, dtype=pl.Int64)),
        )


def _beginnings(form: Format) -> Array:
    """By the first byte of a line (0: no byte at all) whether the format may accept it."""
    may_begin = np.full(256, not form.first)
    may_begin[128:] = True
    may_begin[list(form.first.encode())] = True
    return may_begin


def _with_extra(rows: pl.DataFrame, usual_ones: Usual) -> pl.DataFrame:
    """``extra`` of lines whose header was usual, which is made for these lines only."""
    lines = rows["i"].to_numpy()
    at = np.flatnonzero(usual_ones.taken[lines])
    return rows.with_columns(rows["extra"].scatter(at, usual_ones.extra(lines[at])))


def _placed(column: pl.Series, at: pl.Series, values: pl.Series) -> pl.Series:
    """``column`` with ``values`` at the places ``at``."""
    if column.null_count() == len(column) and values.null_count() == len(values):
        return column
    return column.scatter(at, values)


def _tags(frame: pl.DataFrame, best: dict[int, Pattern], found: dict[int, dict[str, Any]], origin: Origin) -> pl.Series:
    """The tags of the header, of the pattern and of an odd time. Few lines have any."""
    tags = {at: some for at, entry in best.items() if (some := entry.tags + tags_of(found[at]))}
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


def _jobs_named(frame: pl.DataFrame) -> pl.Series:
    """The job as Slurm's lines write it; only these are searched."""
    jobs = nothing("_job", pl.String, len(frame))
    source = frame["source"]
    # A sixth of what is_in takes on texts.
    at = reduce(or_, (source == name for name in (*SLURM, "prolog", "epilog"))).arg_true()
    if not len(at):
        return jobs
    messages = frame["message"][at]
    # Most lines name none, and looking for the words costs a tenth of the regex.
    worded = pl.Series(_worded(messages).astype(np.uint32))
    return jobs.scatter(at.gather(worded), messages.gather(worded).str.extract(_JOB))


def _worded(messages: pl.Series) -> Array:
    """Which of ``messages`` hold ``JobId=``, ``job_id=``, ``StepId=`` or ``job=`` in any case (and, seldom, others)."""
    edges, data = joined(messages)
    signs = np.flatnonzero(data == ord("="))
    # The eight letters before each sign as one number. "| 32" makes small letters, whatever they were.
    padded = np.concatenate([np.zeros(8, np.uint8), data])
    eights = np.ndarray((len(data) + 1,), "V8", buffer=padded, strides=(1,))
    before = eights[signs].view(">u8").astype(np.uint64) | _small(b"\0" * 8)
    fits = np.zeros(len(signs), np.bool_)
    for word in _JOB_WORDS:
        fits |= before & np.uint64((1 << 8 * len(word)) - 1) == _small(word)
    return each_once(np.searchsorted(edges, signs[fits], side="right") - 1)


def _small(letters: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(bytes(letter | 32 for letter in letters), "big"))


def _job_numbers(tags: pl.Series, named: pl.Series, origin: Origin) -> pl.Series:
    """``job_id`` of every line: of its step's tag, of the job that it names (the raw number of an array's task), or of the
    file."""
    numbers = pl.Series("job_id", [origin.job_id], dtype=pl.Int64).new_from_index(0, len(tags))
    if tags.null_count() == named.null_count() == len(tags):
        return numbers
    at = (tags.is_not_null() | named.is_not_null()).arg_true()
    written = pl.DataFrame([tags[at].alias("tag"), named[at].alias("job")]).select(
        pl.coalesce(
            pl.col("tag").str.extract(r"^(\d+)"), pl.col("job").str.extract(r"\((\d+)\)$"),
            pl.col("job").str.extract(r"^(\d+)"),
        ).alias("raw")
    )  # fmt: skip
    raw = written.select(
        pl.when(pl.col("raw").str.len_bytes() < 18).then("raw").cast(pl.Int64, strict=False)
    ).to_series()
    return numbers.scatter(at, raw if origin.job_id is None else raw.fill_null(origin.job_id))


def _uptimes(seconds: pl.Series) -> pl.Series:
    """``entities`` of lines with an uptime, from which boots are computed; null for all others."""
    texts = nothing("entities", pl.String, len(seconds))
    if seconds.null_count() == len(seconds):
        return texts
    at = seconds.is_not_null().arg_true()
    said = (
        seconds[at].alias("s").to_frame().select(pl.concat_str(pl.lit('{"uptime_s": '), "s", pl.lit("}"))).to_series()
    )
    return texts.scatter(at, said)


def _merge(row: dict[str, Any], found: dict[str, Any] | None, header: bool) -> dict[str, Any]:
    """The header's entities first: what the pattern found wins over them."""
    merged: dict[str, Any] = {}
    source = row["source"]
    if source is None or source == "kernel":
        device = _DEVICE.match(row["message"] or "")
        if device:
            merged = {name: value for name, value in device.groupdict().items() if value is not None}
    if row["uptime_s"] is not None:
        merged["uptime_s"] = row["uptime_s"]
    if header:
        program = row["unit"] if row["unit"] != "kernel" else None
        pid = row["pid"] if program is not None else None
        values = {"timestamp": row["stamp"], "host": row["host"], "program": program, "daemon_pid": pid, "pid": pid}
        merged.update((name, value) for name, value in values.items() if value is not None)
    if row["extra"] and (header or not row["extra"].startswith(_NUMBERS)):
        merged.update(json.loads(row["extra"]))
    if row["_job"]:
        merged |= job_ids(row["_job"])
    if row["step_tag"]:
        job, _, step = row["step_tag"].partition(".")
        merged |= job_ids(job)
        if step:
            merged["step_id"] = step_name(step)
    if found:
        merged.update(found)
    return merged


def _job_number(text: Any, origin: Origin) -> int | None:
    if isinstance(text, str) and text.isdigit() and len(text) < 18:
        return int(text)
    return origin.job_id


def _to_logs(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Header columns -> exactly LOGS' columns, with what the origin knows where the line was silent."""
    received = pl.coalesce("received", pl.lit(origin.received, pl.Datetime("us")))
    timeless = pl.col("time").is_null()
    # kmsg lines of a shared ring buffer have no host on purpose; anything else is of the host that the path names.
    shared = (pl.col("format") == "kmsg") & pl.col("raw").str.starts_with("{")
    values = {
        # An uptime without a known boot stays without a time: the boot may become known later.
        "time": pl.when(timeless & pl.col("uptime_s").is_not_null()).then(None).otherwise(pl.coalesce("time", received)),
        "time_quality": pl.when(timeless).then(pl.lit("received")).otherwise("quality"),
        "received_time": received, "resolution_us": pl.when(~timeless).then("resolution_us"), "cluster": pl.lit(origin.cluster),
        "host": pl.when(shared).then("host").otherwise(pl.coalesce("host", pl.lit(origin.host))), "file": pl.lit(origin.path),
    }  # fmt: skip
    return frame.select(
        values.get(name, pl.col(name)).cast(kind).alias(name) if name in values or name in frame.columns
        else pl.lit(None).cast(kind).alias(name) for name, kind in LOGS.items()
    )  # fmt: skip
