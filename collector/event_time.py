"""When a line was written, as well as that is known when it comes in. All who ask for the time of a line go this way:

1. *Its stamp*, in the zone that it names, else in that of the configuration (``parsers.record.Origin``), else in UTC
   (``parsers.clock``, ``parsers.zones``). ``time_quality`` says which: "line" or "inferred".
2. Without a stamp the time that its *sender* has for it, else when the sender read it, else when it was received (here).
3. A line that says only for how long its machine is up has no time until its boot is known (``collector.identity.boots``).
4. What lies after the moment at which it came is no time (``parsers.future``).

What is stored is never moved. Which clocks were off, and which stamps were in another zone than they were taken for, is an
estimate by the evidence of all lines and of accounting: ``correlator.clocks`` applies it to events, and to rows about jobs.
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

_US = pl.Datetime("us")


def at_entry(
    sent: pl.Expr, read: pl.Expr, received: pl.Expr, *, newest: datetime, sender_knows: bool
) -> dict[str, pl.Expr]:
    """Columns of parsed lines (``time``, ``time_quality``, ``resolution_us``, ``received_time``, ``sender_time``) with what the sender
    knew: the time that it ``sent`` for a line, when it ``read`` it, when it was ``received`` (microseconds). ``newest``: when the
    last of the lines was received, by which they were parsed; ``sender_knows``: any line has a time that was sent or read."""
    sent, read, received = (column.cast(_US) for column in (sent, read, received))
    unstamped = pl.col("time_quality") == "received"
    # A line with nothing but an uptime has no time: its boot may become known, unless the sender knew it.
    waits = pl.col("time").is_null()
    by_newest = pl.col("received_time") == pl.lit(newest, _US)
    found = {"received_time": pl.when(by_newest).then(received).otherwise("received_time")}
    if not sender_knows:
        return found | {"time": pl.when(unstamped & ~waits).then(received).otherwise("time")}
    known = unstamped & sent.is_not_null()
    return found | {
        "time": pl.when(unstamped & waits)
        .then(sent)
        .when(unstamped)
        .then(pl.coalesce(sent, read, received))
        .otherwise("time"),
        "time_quality": pl.when(known).then(pl.lit("line")).otherwise("time_quality"),
        "resolution_us": pl.when(known).then(1_000).otherwise("resolution_us"),
        "sender_time": pl.coalesce("sender_time", read),
    }
