"""When a line was written: its timestamp, else its sender's time, else its arrival; a line with only an uptime waits."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from collector.event_time import at_entry

T0 = datetime(2026, 1, 1)
US = pl.Datetime("us")


def at(second: float | None) -> datetime | None:
    return None if second is None else T0 + timedelta(seconds=second)


@pytest.mark.parametrize(("quality", "stamp", "sent", "read", "time", "becomes", "sender"), [
    ("line", 1, None, None, 1, "line", None), ("line", 1, 2, 3, 1, "line", 3), ("inferred", 1, 2, None, 1, "inferred", None),
    ("received", 60, 2, 3, 2, "line", 3), ("received", 60, None, 3, 3, "received", 3), ("received", 60, None, None, 50, "received", None),
    # An uptime alone: the time that its parser could not determine.
    ("received", None, None, 3, None, "received", 3), ("received", None, 2, 3, 2, "line", 3), ("received", None, None, None, None, "received", None),
    ("inferred", None, 2, None, None, "inferred", None),
])  # fmt: skip
def test_the_time_of_a_line(
    quality: str, stamp: float | None, sent: float | None, read: float | None, time: float | None, becomes: str, sender: float | None
) -> None:  # fmt: skip
    """Received at 50; the batch's newest line at 60, which a parser takes as the time of a line without one."""
    types = {
        "time": US, "time_quality": pl.String, "resolution_us": pl.Int64, "received_time": US, "sender_time": US,
        "sent": pl.Int64, "read": pl.Int64, "received": pl.Int64,
    }  # fmt: skip
    epoch = [
        None if s is None else round((at(s) - datetime(1970, 1, 1)).total_seconds() * 1e6) for s in (sent, read, 50)
    ]  # type: ignore[operator]
    rows = pl.DataFrame([[at(stamp), quality, None, at(60), None, *epoch]], schema=types, orient="row")
    knows = sent is not None or read is not None
    for sender_knows in {knows, True}:
        columns = at_entry(
            pl.col("sent"), pl.col("read"), pl.col("received"), newest=T0 + timedelta(seconds=60), sender_knows=sender_knows
        )  # fmt: skip
        found = rows.with_columns(**columns).row(0, named=True)
        assert (found["time"], found["time_quality"], found["sender_time"]) == (at(time), becomes, at(sender))
        assert found["received_time"] == at(50)
        assert found["resolution_us"] == (1_000 if quality == "received" and sent is not None else None)
