"""The host of a line on arrival: the one that the line names, else the one that its transport knows. Imports nothing of
the store: parsing workers use it."""

from __future__ import annotations

import polars as pl

#: Names that every host may call itself.
EVERYBODY = ("localhost", "localhost.localdomain")


def named_in_line(hosts: pl.Series) -> pl.Expr:
    """The host that a line names (column ``host``, with values ``hosts``), unless every host calls itself that."""
    sizes = hosts.str.len_bytes()
    if not any((sizes == len(name)).any() for name in EVERYBODY):  # true for nearly all, at a fifth of the work
        return pl.col("host")
    return pl.when(~pl.col("host").str.to_lowercase().is_in(EVERYBODY)).then("host")


def host_of_line(in_line: pl.Expr, of_transport: pl.Expr) -> pl.Expr:
    """The host of a line: the one it names, else the one its transport names, else whatever name it gives."""
    return pl.coalesce(in_line, of_transport, "host")
