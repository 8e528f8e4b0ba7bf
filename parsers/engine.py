"""Lines in, rows of ``LOGS`` out: one per line, in order, whatever the bytes are.

A batch goes through three passes, each over whole columns: formats split the headers (the cheap test of each format over
what is left), one multi-literal search finds the lines that any pattern could fit, and only for those the regexes run.
The batch of one line is the same code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from parsers import usual
from parsers.entities import job_ids, step_name, tags_of, tidy
from parsers.formats import BUILT_IN, all_formats
from parsers.formats.base import JOB_SOURCES, SLURM, Format, conform
from parsers.lines import LineBuffer
from parsers.patterns import Catalogue, Pattern, dumps, load
from parsers.record import LOGS, Origin, empty

#: Longer than any line that a pattern is for: the rest of a line of megabytes is kept but not searched.
SEARCHED = 16_384
#: Batches up to this many lines are searched in Python.
FEW = 100
#: What a header may say that becomes an entity.
_NUMBERS = '{"facility_num"'  # a priority in numbers: facility and severity are columns already
_HEADERS = ("uptime_s", "step_tag", "extra", "stamp", "host", "unit", "pid")
#: Who and what at the start of kernel messages: ``mlx5_core 0000:53:00.0 eth0: text``.
_DEVICE = re.compile(
    r"(?:(?P<driver>[a-z][\w-]+) )?(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])"
    r"(?: (?P<port>[A-Za-z][\w.-]*))?(?: \(.*?\))?: "
)
_JOB = r"(?i)\b(?:JobId=|job_id=|StepId=|job=)(\d+(?:_\d+)?(?:\+\d+)?(?:\(\d+\))?)"


class LineParser:
    """Parses batches of lines. Safe to use from several threads; holds no state between batches.

    ``header_entities``: also put into ``entities`` what the header said (host, stamp, uptime, pid, program), for readers
    of the JSON alone.
    """

    def __init__(self, catalogue: Catalogue | None = None, *, header_entities: bool = False) -> None:
        self.catalogue = catalogue if catalogue is not None else load()
        self.formats: tuple[Format, ...] = all_formats()
        self.header_entities = header_entities
        self._plug_ins = self.formats[: -len(BUILT_IN)]

    def parse(self, lines: list[bytes], origin: Origin, first_line: int = 1) -> pl.DataFrame:
        """One row per line. ``first_line`` numbers the first of them. Never raises for what a line contains."""
        return self._parse(LineBuffer.of_lines(lines), origin, first_line)

    def parse_data(self, data: bytes, origin: Origin, first_line: int = 1) -> pl.DataFrame:
        """One row per line that :func:`parsers.lines.split` makes of ``data``; cheaper than cutting first."""
        return self._parse(LineBuffer.of_data(data), origin, first_line)

    def _parse(self, buffer: LineBuffer, origin: Origin, first_line: int) -> pl.DataFrame:
        if not len(buffer):
            return empty("logs")
        texts = buffer.lines()
        frame = self._headers(buffer, texts, origin)
        frame = frame.with_columns(
            texts.alias("raw"), buffer.unfit().alias("raw_bytes"),
            pl.int_range(first_line, first_line + len(buffer), dtype=pl.Int64).alias("line"),
        )  # fmt: skip
        classified, found = self._classify(frame)
        return _to_logs(self._entities(classified, found, origin), origin)

    def explain(self, line: bytes, origin: Origin) -> list[str]:
        """Why this format and which pattern, in sentences for a person."""
        text = line.decode(errors="replace")
        frame = pl.DataFrame({"i": pl.Series([0], dtype=pl.UInt32), "text": [text]})
        out = []
        for form in self._formats_for(origin):
            if not frame.select(form.accepts).to_series()[0]:
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

    def _headers(self, buffer: LineBuffer, texts: pl.Series, origin: Origin) -> pl.DataFrame:
        """Every line's header columns, in the order of the lines: the usual ones at once, the rest by their formats."""
        taken, usual_ones = usual.read(buffer, origin, header=self.header_entities)
        if self._plug_ins:  # these are asked before the built-in formats
            claimed = texts.to_frame("text").select(pl.any_horizontal(form.accepts for form in self._plug_ins))
            taken = taken & ~claimed.to_series().fill_null(False).to_numpy()
            usual_ones = usual_ones.filter(pl.Series(taken).gather(usual_ones["i"]))
        if len(usual_ones) == len(buffer):
            return usual_ones
        left = pl.Series("i", np.flatnonzero(~taken).astype(np.uint32))
        parts = self._by_formats(pl.DataFrame([left, texts.gather(left).alias("text")]), origin)
        return pl.concat([usual_ones, *parts]).sort("i")

    def _by_formats(self, left: pl.DataFrame, origin: Origin) -> list[pl.DataFrame]:
        parts = []
        # One query that asks every format costs less than 24 small ones; on many lines the early formats save the later
        # ones most of the work.
        asked = len(left) <= FEW
        forms = self._formats_for(origin)
        tests = left.select(form.accepts.alias(str(at)) for at, form in enumerate(forms)) if asked else left.clear()
        for at, form in enumerate(forms):
            if asked and not tests[str(at)].any():
                continue
            accepted = left.filter(form.accepts)
            if accepted.is_empty():
                continue
            found = conform(form.read(accepted, origin))
            if found.is_empty():
                continue
            parts.append(found)
            if len(found) == len(left):
                break
            left = left.join(found.select("i"), on="i", how="anti", maintain_order="left")
        return parts

    def _classify(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[int, dict[str, Any]]]:
        """Adds ``event`` and the pattern's severity and tags; also what the pattern found, by line of the batch."""
        rows: list[tuple[int, str, str | None, tuple[str, ...]]] = []
        found: dict[int, dict[str, Any]] = {}
        for at, message, source, needles in self._hits(frame):
            best = self._best(message, source, needles)
            if best is not None:
                entry, entities = best
                rows.append((at, entry.event, entry.severity, (*entry.tags, *tags_of(entities))))
                found[at] = entities
        events = pl.DataFrame(
            rows, schema={"i": pl.UInt32, "event": pl.String, "named_severity": pl.String, "tags": pl.List(pl.String)},
            orient="row",
        )  # fmt: skip
        joined = frame.join(events, on="i", how="left", maintain_order="left")
        assert len(joined) == len(frame)
        joined = joined.with_columns(
            pl.col("event").fill_null("other"), pl.coalesce("severity", "named_severity").alias("severity"),
            pl.col("tags").fill_null([]),
        )  # fmt: skip
        if joined["tag"].null_count() < len(joined):
            both = pl.concat_list("tags", pl.col("tag").str.split(","))
            joined = joined.with_columns(
                pl.when(pl.col("tag").is_not_null()).then(both).otherwise("tags").alias("tags")
            )
        return joined, found

    def _hits(self, frame: pl.DataFrame) -> Iterator[tuple[int, str, str | None, list[str]]]:
        """The lines that contain a literal of some pattern for their source, with those literals.

        Each source is searched for its own patterns' literals only: "jobid=" says nothing in slurmctld's log, and every
        hit less is a regex less.
        """
        searched = frame.select("i", pl.col("message").str.slice(0, SEARCHED), "source")
        if len(searched) <= FEW:  # building the automaton costs more than looking for every literal
            for at, message, source in searched.iter_rows():
                lower = (message or "").lower()
                needles = [literal for literal in self.catalogue.literals_of(source) if literal in lower]
                if needles:
                    yield at, message, source, needles
            return
        for (source,), part in searched.group_by("source"):
            literals = self.catalogue.literals_of(source)
            if not literals:
                continue
            needles_of = pl.Series("needles", literals, dtype=pl.String)
            hits = part.with_columns(
                pl.col("message").str.extract_many(needles_of.implode(), ascii_case_insensitive=True, overlapping=True).alias("needles")
            ).filter(pl.col("needles").list.len() > 0)  # fmt: skip
            yield from hits.select("i", "message", "source", "needles").iter_rows()

    def _best(self, message: str, source: str | None, needles: list[str]) -> tuple[Pattern, dict[str, Any]] | None:
        table = self.catalogue.by_literal
        names = {needle.lower() for needle in needles}
        if len(names) == 1:
            candidates: Any = table.get(next(iter(names)), ())
        else:
            found = {entry.order: entry for name in names for entry in table.get(name, ())}
            candidates = [found[order] for order in sorted(found)]
        for entry in candidates:
            raw = entry.match(message, source)
            if raw is not None:
                return entry, tidy(raw)
        return None

    def _entities(self, frame: pl.DataFrame, found: dict[int, dict[str, Any]], origin: Origin) -> pl.DataFrame:
        """``entities`` and ``job_id``: the pattern's, the header's, and what stands at the start of the message.

        Only lines with an event (or, on request, with anything in the header) become Python objects; of the others the
        uptime stays, from which boots are computed, and the job.
        """
        frame = frame.with_columns(_jobs_named(frame))
        tagged = pl.col("step_tag").str.extract(r"^(\d+)")
        raw = pl.coalesce(tagged, pl.col("_job").str.extract(r"\((\d+)\)$"), pl.col("_job").str.extract(r"^(\d+)"))
        job = pl.when(raw.str.len_bytes() < 18).then(raw).cast(pl.Int64, strict=False)
        uptime = pl.concat_str(pl.lit('{"uptime_s": '), pl.col("uptime_s").cast(pl.String), pl.lit("}"))
        frame = frame.with_columns(
            pl.coalesce(job, pl.lit(origin.job_id, pl.Int64)).alias("job_id"), uptime.alias("entities")
        )
        wanted = pl.col("event") != "other"
        if found:
            wanted |= pl.col("i").is_in(pl.Series(list(found), dtype=pl.UInt32).implode())
        if self.header_entities:
            wanted |= pl.any_horizontal(pl.col(*_HEADERS, "_job").is_not_null())
            wanted |= pl.col("source").is_null() | (pl.col("source") == "kernel")
        names_of = ("i", "message", "source", "_job", *_HEADERS)
        texts: list[tuple[int, str | None, int | None]] = []
        for values in frame.filter(wanted).select(names_of).iter_rows():
            row = dict(zip(names_of, values, strict=True))
            merged = _merge(row, found.get(row["i"]), self.header_entities)
            texts.append((row["i"], dumps(merged), _job_number(merged.get("job_id"), origin)))
        if not texts:
            return frame
        names = {"i": pl.UInt32, "_entities": pl.String, "_number": pl.Int64}
        frame = frame.join(
            pl.DataFrame(texts, schema=names, orient="row").with_columns(pl.lit(True).alias("_made")),
            on="i", how="left", maintain_order="left",
        )  # fmt: skip
        return frame.with_columns(
            pl.when("_made").then("_entities").otherwise("entities").alias("entities"),
            pl.when("_made").then("_number").otherwise("job_id").alias("job_id"),
        )


def _jobs_named(frame: pl.DataFrame) -> pl.Series:
    """The job as Slurm's lines write it; only these are searched."""
    at = frame["source"].is_in([*SLURM, "prolog", "epilog"]).fill_null(False).arg_true()
    nothing = pl.repeat(None, len(frame), dtype=pl.String, eager=True).alias("_job")
    return nothing.scatter(at, frame["message"].gather(at).str.extract(_JOB)) if len(at) else nothing


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
