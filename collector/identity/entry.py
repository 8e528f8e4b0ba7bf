"""The host of a line as it comes in: what the line says, else what its transport knows. Imports nothing of the store: workers
that parse use it."""

from __future__ import annotations

import polars as pl

#: What every host may call itself.
EVERYBODY = ("localhost", "localhost.localdomain")


def named_in_line(hosts: pl.Series) -> pl.Expr:
    """The host that a line names (column ``host``, its values ``hosts``), unless that is what every host calls itself."""
    sizes = hosts.str.len_bytes()
    if not any((sizes == len(name)).any() for name in EVERYBODY):  # nearly always, and a fifth of the work
        return pl.col("host")
    return pl.when(~pl.col("host").str.to_lowercase().is_in(EVERYBODY)).then("host")


def host_of_line(in_line: pl.Expr, of_transport: pl.Expr) -> pl.Expr:
    """Whose a line is: the host it names, else the one its transport names, else whatever it calls itself."""
    return pl.coalesce(in_line, of_transport, "host")
