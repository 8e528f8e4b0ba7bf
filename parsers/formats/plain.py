"""The last resorts: lines that continue the previous one, and lines without a known header.

Nothing is dropped here: the line is kept whole, and a tag marks it as not understood. ``unparsed``: no known header.
``malformed``: it has the priority of a syslog packet, and the rest is broken. ``multiline``: part of a block.
"""

from __future__ import annotations

import polars as pl

from parsers import regexes
from parsers.formats.base import EVERY_LINE, JOB_SOURCES, SLURM, SLURM_LEVELS, ByLine, Format, Row, severity_of_level
from parsers.record import Origin

#: What continues a log line: leading blanks, an empty line, or the frames of a traceback.
_GOES_ON = r"^(?:\s|$|Traceback \(most recent call last\):|Caused by: |\.\.\. \d+ more$|\x00+$)"

#: Files of one daemon each: every record begins with a header, so a line without one belongs to the previous record.
_DAEMONS = frozenset({*SLURM, "fabricmanager", "opensm", "ufm", "ibdiagnet", "jetpack", "jetpackd", "healthagent"})
#: What remains of a kernel line when somebody cut the timestamp off, and a broken priority.
_CUT = r"^kernel: (?:\[ *\d+\.\d+\] )?"
_MALFORMED = r"^<(?:-?\d|>)"


def _rest_line(text: str, origin: Origin) -> Row | None:
    if origin.source is None or origin.source in JOB_SOURCES:
        return None
    return {"message": text, "format": "continuation", "source": origin.source, "tag": "multiline"}


def _read_rest(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Applies only to a file whose lines are known to have headers: elsewhere leading blanks mean nothing."""
    if origin.source is None or origin.source in JOB_SOURCES:
        return frame.clear()
    return frame.with_columns(
        pl.col("text").alias("message"), pl.lit("continuation").alias("format"), pl.lit(origin.source).alias("source"),
        pl.lit("multiline").alias("tag"),
    )  # fmt: skip


def _line(text: str, origin: Origin) -> Row:
    """Like :func:`_read`, for one line."""
    message = regexes.compiled(_CUT).sub("", text, count=1)
    job, held = origin.source in JOB_SOURCES, origin.source in _DAEMONS
    tag = None if job else "multiline" if held else "unparsed"
    word, colon, _ = message.partition(": ")
    return {
        "message": message, "severity": SLURM_LEVELS.get(word) if colon else None,
        "format": "job_output" if job else "continuation" if held else "plain",
        "source": "kernel" if text.startswith("kernel: ") else origin.source,
        "tag": "malformed" if regexes.compiled(_MALFORMED).search(text) else tag,
    }  # fmt: skip


def _read(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    text = pl.col("text")
    message = text.str.replace(regexes.portable(_CUT), "")
    cut = text.str.starts_with("kernel: ")
    job, held = origin.source in JOB_SOURCES, origin.source in _DAEMONS
    tag = pl.lit(None, pl.String) if job else pl.lit("multiline" if held else "unparsed")
    return frame.with_columns(
        message.alias("message"), severity_of_level(message).alias("severity"),
        # Job output needs no header: it is parsed as far as possible.
        pl.lit("job_output" if job else "continuation" if held else "plain").alias("format"),
        pl.when(cut).then(pl.lit("kernel")).otherwise(pl.lit(origin.source)).alias("source"),
        pl.when(text.str.contains(regexes.portable(_MALFORMED))).then(pl.lit("malformed")).otherwise(tag).alias("tag"),
    )  # fmt: skip


REST = Format("continuation", "goes on from the line before it", _GOES_ON, ByLine(_rest_line, _read_rest))
PLAIN = Format("plain", "no header that we know", EVERY_LINE, ByLine(_line, _read), for_jobs=True)
