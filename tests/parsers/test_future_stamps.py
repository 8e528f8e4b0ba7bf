"""A timestamp of the year 2099 in a line that arrived today."""

from datetime import datetime, timedelta

import pytest

from parsers.engine import LineParser
from parsers.record import Origin

NOW = datetime(2026, 11, 24, 1, 0)


@pytest.fixture(scope="module")
def parser() -> LineParser:
    return LineParser()


@pytest.mark.parametrize("line", [
    b"<30>1 2099-01-01T00:00:00Z n1 a - - - x", b"2099-01-01T00:00:00Z n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, gone",
    b"[2099-01-01T00:00:00.000] error: Nodes n1 not responding", b"9999-12-31T23:59:59.999999-23:59 n1 kernel: x",
    b'{"_HOSTNAME":"n1","MESSAGE":"x","__REALTIME_TIMESTAMP":"4070908800000000"}',
])  # fmt: skip
def test_it_gets_the_time_at_which_it_came(parser: LineParser, line: bytes) -> None:
    found = parser.parse(
        [line, b"2026-11-24T00:59:00Z n1 kernel: usual"], Origin(path="syslog", received=NOW, reference=NOW)
    )
    odd, common = found.row(0, named=True), found.row(1, named=True)
    assert (odd["time"], odd["time_quality"], odd["received_time"]) == (NOW, "received", NOW)
    assert odd["sender_time"] is None or odd["sender_time"] > NOW
    assert odd["raw"] == line.decode()
    assert common["time"] == NOW - timedelta(minutes=1)


def test_a_clock_that_runs_ahead_a_little_is_kept(parser: LineParser) -> None:
    found = parser.parse([b"2026-11-24T13:00:00Z n1 kernel: x"], Origin(path="syslog", received=NOW, reference=NOW))
    assert found["time"][0] == NOW + timedelta(hours=12)


def test_a_line_of_a_file_has_no_time(parser: LineParser) -> None:
    lines = [b"2099-01-01T00:00:00Z n1 kernel: x", b"2026-11-24T00:59:00Z n1 kernel: usual"]
    odd, common = parser.parse(lines, Origin(path="syslog", reference=NOW, latest=NOW)).iter_rows(named=True)
    assert (odd["time"], odd["sender_time"], odd["time_quality"]) == (None, datetime(2099, 1, 1), "received")
    assert odd["tags"] == ["future"]
    assert common["time"] == NOW - timedelta(minutes=1)


def test_a_log_hosts_own_stamp_is_held_as_well(parser: LineParser) -> None:
    line = b"2099-01-01T00:00:00.000000+00:00 2099-01-01T00:00:00.000000+00:00 n1 kernel: x"
    row = parser.parse([line], Origin(path="syslog", received=NOW, reference=NOW)).row(0, named=True)
    assert (row["time"], row["received_time"]) == (NOW, NOW)


def test_who_only_reads_a_stream_sees_what_is_written(parser: LineParser) -> None:
    found = parser.parse([b"2099-01-01T00:00:00Z n1 kernel: x"], Origin(path="syslog", reference=NOW))
    assert found["time"][0] == datetime(2099, 1, 1) and list(found["tags"][0]) == ["future"]
