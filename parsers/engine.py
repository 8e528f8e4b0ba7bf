"""Lines in, rows of ``LOGS`` out: one per line, in order, whatever the bytes are.

A batch goes through three passes over whole columns: formats split the headers (each format's cheap test over the
remaining lines), one multi-literal search finds the lines that any pattern could match, and the regexes run only on
those. A batch of one line uses the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl

from parsers import (
    authority,
    claims,
    clock,
    cut_quotes,
    events,
    fast_headers,
    future,
    levels,
    near,
    prefilter,
    regexes,
    required,
)
from parsers.compiled import folder, once, release
from parsers.fast_headers import FastHeaders
from parsers.formats import BUILT_IN, all_formats
from parsers.formats.base import (
    HEADER,
    JOB_SOURCES,
    SLURM,
    ByLine,
    Format,
    Row,
    accepted,
    as_frame,
    conform,
    nothing,
    one_of,
)
from parsers.index import Found, PatternIndex, one_by_one
from parsers.lines import Array, LineBuffer, codes, counted, each_once, joined, numbered, tally
from parsers.patterns import Catalogue, load
from parsers.record import FIRST_MOMENT, LAST_MOMENT, LOGS, Origin, empty
from parsers.speakers import CLAIMS

#: Longer than any line that a pattern targets: the rest of a line of megabytes is kept but not searched.
SEARCHED = 16_384
#: For at most this many lines, no index of the catalogue is built.
FEW = 100
#: Lines whose parsing calls every compiled function: plain headers, one of Slurm's files without a tag, one for the
#: regex reader, and an event that only the text search finds.
SAMPLES = (
    "Jan 15 10:00:01 node01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "[2026-01-15T10:00:01.123] error: Nodes node[01-02] not responding",
    "2026-01-15 10:00:01,123 slurmctld: sched: Allocate JobId=17 NodeList=node01",
    "<30>1 2026-01-15T10:00:01.5Z node01 sshd 17 - - session opened",
    "no header at all",
)
_JOB_WORDS = (b"jobid", b"job_id", b"stepid", b"job")
#: The job that a line refers to when it contains user text, never one that the text names.
_JOB = (
    r"(?i)(?:\bsetting [\w ]+ to .* for )?\b(?:JobId=|job_id=|StepId=|job=)(\d+(?:_\d+)?(?:\+\d+)?(?:\(\d+\))?)"
    r"|\b(?:execve\(\): |chdir to |(?:invalid|unknown|bad) (?:partition|account|qos|reservation|license|feature|constraint)).*"
)


def prepare() -> None:
    """Compiles the machine code, once per machine. Parsing calls it automatically; a process that must be fast from its
    first line calls it earlier."""
    once(_make)


def _make() -> None:
    _use_all()
    required.keep(folder())


def _use_all(catalogue: Catalogue | None = None) -> None:
    """Calls every compiled function."""
    lines = [line.encode() for line in SAMPLES] * (FEW // len(SAMPLES) + 1)
    LineParser(catalogue)._parsed(LineBuffer.of_data(b"\n".join(lines)), Origin(), 1)
    example = codes(pl.Series(["", "a", None]))  # operations of workers on rows
    counted(example.which, len(example.names))
    group, firsts = numbered(example.which)
    some = np.zeros(len(group), np.bool_)
    tally(group, len(firsts), group, group, some, some, some, some, group, 0)


class LineParser:
    """Parses batches of lines. Safe to use from several threads; batches do not affect each other.

    ``header_entities``: also puts the header's values (host, timestamp, uptime, pid, program) into ``entities``, for
    readers of the JSON alone.
    """

    def __init__(self, catalogue: Catalogue | None = None, *, header_entities: bool = False) -> None:
        self.catalogue = catalogue if catalogue is not None else load()
        self._index = PatternIndex(self.catalogue)
        self._memory = events.Memory()
        self.formats: tuple[Format, ...] = all_formats()
        self.header_entities = header_entities
        self._plug_ins = self.formats[: -len(BUILT_IN)]

    def prepare(self) -> None:
        """Does at once what the first lines would otherwise wait for, in a process that only parses."""
        prepare()
        means = self.catalogue.match(SAMPLES[0].partition("kernel: ")[2], "kernel")
        _use_all(Catalogue((means[0],) if means else ()))  # an index of one entry is built at once
        self._index.prepare()
        cut_quotes.prepare()
        release()

    def parse(self, lines: list[bytes], origin: Origin, first_line: int = 1) -> pl.DataFrame:
        """One row per line; ``first_line`` is the number of the first. Never raises for a line's content."""
        return self._parse(LineBuffer.of_lines(lines), origin, first_line)

    def parse_data(self, data: bytes | Sequence[bytes], origin: Origin, first_line: int = 1) -> pl.DataFrame:
        """One row per line that :func:`parsers.lines.split` makes of ``data`` (pieces that end with a line end,
        concatenated); cheaper than splitting first."""
        return self._parse(LineBuffer.of_data(data), origin, first_line)

    def _parse(self, buffer: LineBuffer, origin: Origin, first_line: int) -> pl.DataFrame:
        prepare()
        return self._parsed(buffer, origin, first_line)

    def _parsed(self, buffer: LineBuffer, origin: Origin, first_line: int) -> pl.DataFrame:
        if not len(buffer):
            return empty("logs")
        texts = buffer.lines()
        fast = fast_headers.read(buffer, origin, header=self.header_entities)
        frame = authority.standing(self._headers(fast, texts, origin), origin)
        numbers = pl.Series("line", np.arange(first_line, first_line + len(buffer), dtype=np.int64))
        frame = frame.hstack([texts.alias("raw"), buffer.unfit().alias("raw_bytes"), numbers])
        named = _jobs_named(frame)
        jobs = _job_numbers(frame["step_tag"], named, origin)
        frame = frame.hstack([named, jobs, _uptimes(frame["uptime_s"])])
        return _to_logs(self._with_events(frame, fast, origin), origin)

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
            sure = ", year, zone or boot inferred" if row["quality"] == "inferred" else ""
            moment = f"{row['time']} UTC{sure}" if row["time"] else "none"
            out.append(f"format {row['format']}: {form.why}; source {row['source']}, time {moment}")
            message = (row["message"] or "")[:SEARCHED]
            best = self.catalogue.match(message, row["source"], origin.source in JOB_SOURCES)
            if best is None:
                out.append("event other: no pattern of the catalogue fits the message")
                out += [
                    f"pattern {entry.id} matches, but is for lines of {', '.join(sorted(entry.sources))}; this one is of {row['source']}"
                    for entry in self.catalogue.of_other_sources(message, row["source"])
                ]
                out += map(str, near.near(self.catalogue, message, row["source"]))
            else:
                entry = best[0]
                where = f" (text from {entry.reference})" if entry.reference else ""
                file = "/".join(Path(entry.file).parts[-2:])
                by = f" by {row['unit']}" if row["unit"] else ""
                parsed = self.parse([line], origin).row(0, named=True)
                entities = parsed["entities"] or "none"  # the header's too
                out.append(f"event {parsed['event']}: pattern {entry.id} of {file}{where}; entities {entities}")
                out += [
                    f"it only claims {tag.removeprefix(CLAIMS)}: a line of {row['source']}{by} may not report that (parsers/speakers.toml)"
                    for tag in parsed["tags"] or () if tag.startswith(CLAIMS)
                ]  # fmt: skip
            break
        return out

    def _formats_for(self, origin: Origin) -> tuple[Format, ...]:
        if origin.source in JOB_SOURCES:
            return tuple(form for form in self.formats if form.for_jobs)
        return self.formats

    def _headers(self, fast: FastHeaders, texts: pl.Series, origin: Origin) -> pl.DataFrame:
        """Every line's header columns, in line order: plain headers at once, the rest by their formats."""
        taken, frame = fast.taken, fast.frame
        for form in self._plug_ins:  # these run before the built-in formats
            asked = accepted(form, texts).to_numpy()
            fast.formats[asked & taken] = prefilter.ANY
            taken &= ~asked
        if taken.all():
            return frame
        others = pl.concat(self._by_formats(fast, texts, np.flatnonzero(~taken), origin))
        if not taken.any():
            return others.sort("i")
        # Inserting a few lines into columns costs a quarter of sorting all.
        at = others["i"]
        return pl.DataFrame([_placed(frame[name], at, others[name]) for name in HEADER])

    def _by_formats(self, fast: FastHeaders, texts: pl.Series, left: Array, origin: Origin) -> list[pl.DataFrame]:
        """The lines ``left``, each read by the first format that can."""
        parts: list[pl.DataFrame] = []
        rows: list[Row] = []
        done = np.zeros(len(texts), np.bool_)
        for form in self._formats_for(origin):
            if not len(left):
                break
            fits = _accepted(form, left, texts, fast.formats)
            if len(fits) < regexes.MANY and isinstance(form.read, ByLine):
                some, later = form.read.rows(fits.tolist(), texts[fits].to_list(), origin)
                # Rows of single lines are converted to columns for all formats at once: the conversion takes longer
                # than parsing.
                rows += some
                done[[row["i"] for row in some]] = True
                fits, reader = np.array(later, np.int64), form.read.of_many
            else:
                reader = form.read
            if len(fits) and reader is not None:
                found = reader(pl.DataFrame([pl.Series("i", fits, dtype=pl.UInt32), texts[fits].alias("text")]), origin)
                if not found.is_empty():
                    parts.append(conform(found))
                    done[found["i"]] = True
            left = left[~done[left]]
        return [*parts, as_frame(rows, origin)] if rows else parts

    def _with_events(self, frame: pl.DataFrame, fast: FastHeaders, origin: Origin) -> pl.DataFrame:
        """Adds the meaning of lines: ``event`` and ``tags``, and for lines with an event severity, ``entities`` and
        job."""
        buffer, messages = fast.buffer, frame["message"]
        if (buffer.ends - buffer.starts).max() > SEARCHED:
            messages = messages.str.slice(0, SEARCHED)
        found = self._found(messages, frame["source"], origin.source in JOB_SOURCES)
        if self.header_entities:
            line_events = events.with_headers(frame, fast, found, origin)
        else:
            line_events = events.alone(frame, fast, found, origin, self._memory)
        within = cut_quotes.lines_within(frame)
        line_events = claims.mark(line_events, frame, origin, within)
        if within:
            frame = cut_quotes.of_users(frame, within)
        written = levels.written(frame["severity"], frame["source"], messages)
        if (sure := written > levels.SURE).any():
            frame = frame.with_columns(levels.filled(frame["severity"], np.where(sure, written, 0)))
        frame = events.added(frame, line_events, origin)
        return frame.with_columns(levels.filled(frame["severity"], written))

    def _found(self, messages: pl.Series, sources: pl.Series, of_job: bool) -> Found:
        """The rows that may have an event, and the meaning of those that have."""
        if len(messages) > FEW or self._index.made:
            return self._index.find(messages, sources, of_job)
        return one_by_one(self.catalogue, messages, sources, of_job)


def _accepted(form: Format, lines: Array, texts: pl.Series, formats: Array) -> Array:
    """Those of ``lines`` that pass the format's test. ``formats``: per line, the bits of the formats that may read
    it."""
    asked: Array = lines[formats[lines] & prefilter.bit(form) != 0]
    return asked[accepted(form, texts[asked]).to_numpy()] if len(asked) else asked


def _placed(column: pl.Series, at: pl.Series, values: pl.Series) -> pl.Series:
    """``column`` with ``values`` at the positions ``at``."""
    if column.null_count() == len(column) and values.null_count() == len(values):
        return column
    return column.scatter(at, values)


def _jobs_named(frame: pl.DataFrame) -> pl.Series:
    """The job in Slurm's notation; only Slurm's lines are searched."""
    jobs = nothing("_job", pl.String, len(frame))
    at = one_of(frame["source"], (*SLURM, "prolog", "epilog")).arg_true()
    if not len(at):
        return jobs
    messages = frame["message"][at]
    # Most lines name none, and searching for the keywords costs a tenth of the regex.
    worded = pl.Series(_worded(messages).astype(np.uint32))
    return jobs.scatter(at[worded], messages[worded].str.extract(_JOB))


def _worded(messages: pl.Series) -> Array:
    """Which of ``messages`` contain ``JobId=``, ``job_id=``, ``StepId=`` or ``job=`` in any case (and, rarely,
    others)."""
    edges, data = joined(messages)
    signs = np.flatnonzero(data == ord("="))
    # The eight bytes before each sign as one number. "| 32" converts letters to lower case.
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
    """``job_id`` of every line: from its step's tag, from the job that it names (the raw number of an array task), or
    from the file."""
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
    uptimes = (
        seconds[at].alias("s").to_frame().select(pl.concat_str(pl.lit('{"uptime_s": '), "s", pl.lit("}"))).to_series()
    )
    return texts.scatter(at, uptimes)


def _of_the_calendar(frame: pl.DataFrame) -> pl.DataFrame:
    """Drops times outside the calendar, which a timestamp at its edge becomes through its zone: a store that contains
    one no longer opens."""
    for name in ("time", "sender_time", "received"):
        if frame[name].null_count() == len(frame):
            continue
        times = frame[name].cast(pl.Int64)
        is_one = times.is_between(FIRST_MOMENT, LAST_MOMENT)
        if not is_one.all():
            frame = frame.with_columns(pl.when(is_one).then(name).alias(name))
    return frame


def _held(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Drops times later than the moment at which the line was read (parsers.future). Tags were set before."""
    moment = origin.received or origin.latest
    read_at = pl.lit(moment, pl.Datetime("us"))
    newest, earliest = (cast("datetime | None", one) for one in (frame["time"].max(), frame["received"].min()))
    if earliest is not None:  # a log host's time of receipt of the line
        frame = frame.with_columns(
            pl.when((pl.col("received") > read_at + clock.AHEAD).fill_null(False))
            .then(None)
            .otherwise("received")
            .alias("received")
        )
    limit = min((one for one in (moment, earliest) if one is not None), default=None)
    if (
        newest is None or limit is None or newest <= limit + clock.AHEAD
    ):  # of whole columns, since it is nearly always so
        return frame
    ahead = (pl.col("time") > pl.min_horizontal("received", read_at) + clock.AHEAD).fill_null(False)
    if not frame.select(ahead.any()).item():
        return frame
    return frame.with_columns(
        pl.when(ahead).then("time").otherwise("sender_time").alias("sender_time"),
        pl.when(ahead).then(None).otherwise("time").alias("time"),
    )


def _to_logs(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Header columns -> exactly LOGS' columns, filled from the origin where the line gives nothing."""
    frame = _held(_of_the_calendar(frame), origin)
    received = pl.coalesce("received", pl.lit(origin.received, pl.Datetime("us")))
    timeless = pl.col("time").is_null()
    # kmsg lines of a shared ring buffer have no host on purpose; any other line belongs to the host in the path.
    shared = (pl.col("format") == "kmsg") & pl.col("raw").str.starts_with("{")
    values = {
        # An uptime without a known boot stays without a time: the boot may become known later.
        "time": pl.when(timeless & pl.col("uptime_s").is_not_null()).then(None).otherwise(pl.coalesce("time", received)),
        "time_quality": pl.when(timeless).then(pl.lit("received")).otherwise("quality"),
        "received_time": received, "resolution_us": pl.when(~timeless).then("resolution_us"), "cluster": pl.lit(origin.cluster),
        "host": pl.when(shared).then("host").otherwise(pl.coalesce("host", pl.lit(origin.host))), "file": pl.lit(origin.path),
    }  # fmt: skip
    rows = frame.select(
        values.get(name, pl.col(name)).cast(kind).alias(name) if name in values or name in frame.columns
        else pl.lit(None).cast(kind).alias(name) for name, kind in LOGS.items()
    )  # fmt: skip
    if origin.latest is None or origin.received is not None:  # received over a network: collector/decoding.py
        return rows
    return future.held_lines(rows, origin.latest, pl.lit(None, pl.Datetime("us")))
