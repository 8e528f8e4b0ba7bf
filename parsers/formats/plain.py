"""The last resort: a line without any header that we know."""

from __future__ import annotations

import polars as pl

from parsers.formats.base import Format, severity_of_level
from parsers.record import Origin


def _read(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    # "kernel: text" is what is left when somebody cut the stamp off.
    message = pl.col("text").str.replace(r"^kernel: (?:\[ *\d+\.\d+\] )?", "")
    cut = pl.col("text").str.starts_with("kernel: ")
    return frame.with_columns(
        message.alias("message"), pl.lit("plain").alias("format"), severity_of_level(message).alias("severity"),
        pl.when(cut).then(pl.lit("kernel")).otherwise(pl.lit(origin.source)).alias("source"),
    )  # fmt: skip


PLAIN = Format("plain", "no header that we know", pl.col("text").is_not_null(), _read)
