"""What jobs print: their own stamps in front, labels of srun, colours, and lines that only job output has."""

from __future__ import annotations

import polars as pl

from parsers.formats.base import Format, groups, timed
from parsers.record import Origin

_COLOUR = r"\x1b\[[0-9;?]*[A-Za-z]"
_STAMPED = r"(?s)^(?:\d{1,5}: ?)?\[?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)\]?(?P<rest>[ ,:|-].*)?$"
#: srun and slurmstepd on a job's stderr, NCCL, PyTorch, UCX, Open MPI, a shell's report of a dead child.
_MARKS = (
    r"^(?:\d{1,5}: ?)?(?:srun: |slurmstepd(?:-[\w.-]+)?: |salloc: |sbatch: |s(?:info|queue|control|acct): |"
    r"[\w.-]+:\d+:\d+ \[\d+\] (?:[^ ]+ )?NCCL |[\w.-]+:\d+:\d+ \[\d+\] \S+:\d+ NCCL |(?:\[\d+\] )?\[rank\d+\]:|"
    r"\[[\w.-]+:\d+(?::\d+:\d+)?\] |Traceback \(most|terminate called|mpirun|ORTE |prterun|\S+: line \d+: +\d+ |"
    r"torch\.|[A-Z]\w*(?:Error|Exception)(?::|$)|RuntimeError: |[EWI]\d{4} \d\d:\d\d:\d\d\.\d+ |CUDA (?:error|kernel errors)|"
    r"Compile with `TORCH|enroot-|pyxis: )"
)
_SOURCES = ("job_stdout", "job_stderr", "job_output")


def _clean(column: str) -> pl.Expr:
    return pl.col(column).str.replace_all(_COLOUR, "").str.replace(r"^\d{1,5}: ", "")


def _source(origin: Origin) -> str:
    return origin.source if origin.source in _SOURCES and origin.source else "job_stdout"


def _read_stamped(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    found = groups(frame, _STAMPED)
    found = timed(found.with_columns(pl.col("iso").alias("stamp")), origin)
    rest = pl.col("rest").fill_null("").str.replace_all(_COLOUR, "").str.replace(r"^[ ,:|-]+", "")
    # "gpu01 rank0 step 50": the node that a rank writes of itself.
    host = rest.str.extract(r"^([A-Za-z][\w.-]*) rank ?\d+ ")
    return found.with_columns(
        rest.alias("message"),
        host.alias("host"),
        pl.lit(_source(origin)).alias("source"),
        pl.lit("job_output").alias("format"),
    )


def _read_marked(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    if origin.source not in (*_SOURCES, None):
        return frame.clear()
    message = _clean("text")
    return frame.with_columns(
        message.alias("message"), pl.lit(_source(origin)).alias("source"), pl.lit("plain").alias("format"),
        message.str.extract(r"^([\w.-]+):\d+:\d+ \[\d+\] ").alias("host"),
    )  # fmt: skip


_text = pl.col("text")
STAMPED = Format(
    "job_output",
    "a program's own ISO stamp",
    _text.str.contains(r"^(?:\d{1,5}: ?)?\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"),
    _read_stamped,
)
MARKED = Format(
    "plain",
    "words that only job output has",
    _text.str.contains(_MARKS) | _text.str.contains("\x1b[", literal=True),
    _read_marked,
)
