"""Who may report what is decided once per combination of pattern and writer: the same as for each line on its own."""

from __future__ import annotations

from datetime import datetime

import polars as pl
import pytest

from parsers import claims
from parsers.engine import LineParser
from parsers.record import Origin

ORIGIN = Origin(reference=datetime(2026, 6, 2), received=datetime(2026, 6, 2))
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
#: The same words of several writers, of whom only some may report them.
LINES = (
    f"<6>Jun  1 12:00:00 n1 kernel: {XID}",
    f"<14>Jun  1 12:00:00 n1 kernel: {XID}",
    f"<30>Jun  1 12:00:00 n1 alice[99]: {XID}",
    f"Jun  1 12:00:00 n1 kernel[17]: {XID}",
    "<30>Jun  1 12:00:00 n1 systemd[1]: slurmd.service: Failed with result 'exit-code'.",
    "<30>Jun  1 12:00:00 n1 systemd[4711]: slurmd.service: Failed with result 'exit-code'.",
    "[2026-06-01T12:00:00.123] error: Nodes n1 not responding",
    "[2026-06-01T12:00:00.123] [15.batch] error: Nodes n1 not responding",
    "Jun  1 12:00:00 n1 cron[7]: (alice) CMD (echo Out of memory: Killed process 1 (x))",
)  # fmt: skip


def meanings(rows: pl.DataFrame) -> list[tuple[object, ...]]:
    return rows.select("event", "tags", "job_id", "severity", "entities").rows()


@pytest.fixture(scope="module")
def parser() -> LineParser:
    return LineParser()


def test_many_events_are_decided_as_each_alone(parser: LineParser) -> None:
    alone = [meanings(parser.parse([line.encode()], ORIGIN))[0] for line in LINES]
    copies = claims._FEW // 2  # at least two lines of three are events or claims
    together = meanings(parser.parse([line.encode() for line in LINES * copies], ORIGIN))
    assert together == alone * copies
    events, tags = [event for event, *_ in alone], [some for _, some, *_ in alone]
    assert "gpu.xid" in events and ["claims:gpu.xid"] in tags  # both kinds of answers are among them
