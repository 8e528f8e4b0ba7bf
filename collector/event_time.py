"""When a line was written, as far as that is known on arrival. Every line's time is determined in this order:

1. *Its timestamp*, in the zone that it names, else in the configured one (``parsers.record.Origin``), else in UTC
   (``parsers.clock``, ``parsers.zones``). ``time_quality`` is "line" or "inferred".
2. Without a timestamp, the time that its *sender* gives for it, else when the sender read it, else when it was received
   (here).
3. A line with only an uptime has no time until its boot is known (``collector.identity.boots``).
4. A time after the line's arrival is rejected (``parsers.future``).

Stored times are never changed. Which clocks were wrong, and which timestamps were in a different zone than assumed, is
estimated from all lines and accounting: ``correlator.clocks`` applies the result to events, and to rows about jobs.
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

_US = pl.Datetime("us")


def at_entry(
    sent: pl.Expr, read: pl.Expr, received: pl.Expr, *, newest: datetime, sender_knows: bool
) -> dict[str, pl.Expr]:
    """Columns of parsed lines (``time``, ``time_quality``, ``resolution_us``, ``received_time``, ``sender_time``),
    completed with the sender's times: ``sent`` for the line, ``read`` by the sender, ``received`` here (microseconds).
    ``newest``: when the last of the lines was received, the reference for parsing; ``sender_knows``: some line has a
    sent or read time."""
    sent, read, received = (column.cast(_US) for column in (sent, read, received))
    unstamped = pl.col("time_quality") == "received"
    # A line with only an uptime has no time: its boot may become known later, unless the sender knew the time.
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
