"""The parser that remembers what it parsed says what the parser says, and nothing that depends on the moment is kept."""

from __future__ import annotations

from datetime import datetime, timedelta

from polars.testing import assert_frame_equal

from parsers.engine import LineParser
from parsers.record import Origin
from tests.line_parser import Remembering, line_parser

LINE = b"Feb 28 10:19:55 gx02 kernel: eth0: Link is Down\n2026-02-28T10:20:00+00:00 gx02 sshd[7]: x\n"
STAMPED = datetime(2026, 2, 28, 10, 20)
READ = Origin(path="a", host="gx02", reference=STAMPED, latest=STAMPED + timedelta(days=9))


def test_rows_are_those_of_the_parser_and_are_made_once() -> None:
    parser = Remembering()
    found = parser.parse_data(LINE, READ)
    assert_frame_equal(found, line_parser().parse_data(LINE, READ))
    assert parser.parse_data(LINE, READ.but(latest=STAMPED + timedelta(days=10))) is found
    assert isinstance(parser, LineParser)


def test_other_lines_places_and_numbers_are_parsed() -> None:
    parser = Remembering()
    parser.parse_data(LINE, READ)
    for data, origin, number in ((LINE * 2, READ, 1), (LINE, READ.but(path="b"), 1), (LINE, READ.but(host="gx03"), 1), (LINE, READ, 5)):  # fmt: skip
        assert_frame_equal(parser.parse_data(data, origin, number), line_parser().parse_data(data, origin, number))


def test_what_was_read_near_its_stamps_is_parsed_each_time() -> None:
    """A stamp after the moment of reading is held back."""
    parser = Remembering()
    parser.parse_data(LINE, READ)
    for before in (timedelta(hours=30), timedelta(0), timedelta(days=-1)):
        early = READ.but(latest=STAMPED - before)
        for _ in range(2):
            assert_frame_equal(parser.parse_data(LINE, early), line_parser().parse_data(LINE, early))
    assert_frame_equal(parser.parse_data(LINE, READ), line_parser().parse_data(LINE, READ))
