"""The compiled scanners of pieces of a line equal the expressions they replace, and never leave the buffer."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import clock, fast_headers, regexes, stamps
from parsers.formats import slurm
from parsers.head import ROW
from parsers.lines import Array, LineBuffer
from parsers.record import Origin
from tests.examples import examples

ORIGIN = Origin(reference=datetime(2026, 6, 1, 12))


def text_of(letters: str, words: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.sampled_from(words), st.sampled_from(letters)), max_size=12).map("".join)


@given(text_of("019._+]b", ("15", ".batch", ".extern", ".TBD", ".interactive", "batch", "+1", ".0")))
@settings(max_examples=examples(75), deadline=None)
def test_step_tags_are_those_of_the_expression(text: str) -> None:
    buffer = LineBuffer.of_lines([b"[2026-06-01T12:00:00] [" + text.encode() + b"] x"])
    rows = _rows(buffer)
    whole = text.partition("]")[0]  # what follows the first bracket is not part of the tag
    want = regexes.compiled(rf"^{slurm.STEP_TAG}$").match(whole) is not None and whole == text
    assert (int(rows["tag_length"][0]) == len(text)) == (want and bool(text))


def _rows(buffer: LineBuffer) -> Array:
    rows = np.zeros(len(buffer), ROW)
    fast_headers._read_headers(buffer.data, buffer.starts, buffer.ends, rows, stamps.clock_of(ORIGIN), False)
    return rows


@pytest.mark.parametrize(
    "zone",
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "No/Where"],
)
def test_wall_clock_times_mean_what_they_mean_to_the_clock(zone: str) -> None:
    """Around every change of the offset in seven years, in steps of ten minutes, and once a week in three centuries."""
    steps = pl.lit(datetime(2009, 1, 1)) + pl.int_range(7 * 365 * 24 * 6) * timedelta(minutes=10)
    weeks = pl.lit(datetime(1901, 1, 1)) + pl.int_range(15_500) * timedelta(days=7)
    wall = pl.concat(pl.select(times).to_series() for times in (steps, weeks))
    want = clock.to_utc(wall, zone).to_physical().fill_null(stamps.NO_TIME)
    stretches = stamps.clock_of(ORIGIN.but(timezone=zone)).zone
    got = [stamps.to_utc(moment, stretches) for moment in wall.to_physical()[:: 97 if zone != "Pacific/Apia" else 1]]
    assert got == want[:: 97 if zone != "Pacific/Apia" else 1].to_list()


_LEAVES = """
import random, sys
from datetime import datetime
import numpy as np
from parsers import fast_headers
from parsers.lines import LineBuffer
from parsers.record import Origin
pieces = eval(sys.stdin.read())
chance = random.Random(7)
origin = Origin(reference=datetime(2026, 6, 1, 12), timezone="Europe/Berlin", boots=(datetime(2026, 5, 1),))
for batch in range(300):
    lines = []
    for _ in range(chance.randrange(1, 12)):
        line = b"".join(chance.choice(pieces) for _ in range(chance.randrange(4)))
        cut = chance.randrange(len(line) + 1)
        lines.append(chance.choice((line, line[:cut], line[cut:], chance.randbytes(cut), b"[" * 5000, b"9" * 5000, b"")))
    for buffer in (LineBuffer.of_lines(lines), LineBuffer.of_data(b"\\n".join(lines))):
        found = fast_headers.read(buffer, origin, header=True)
        assert len(found.frame) == len(buffer) and buffer.lines().len() == len(buffer)
print("looked at", batch + 1)
"""


@pytest.mark.long
def test_no_reader_leaves_the_buffer(tmp_path: Path) -> None:
    """With every index checked, which only code compiled for it does."""
    import test_fast_headers as plain

    pieces = [
        piece.encode()
        for piece in (
            *plain.STAMPS,
            *plain.TAILS,
            *plain.UPTIMES,
            *plain.FABRIC,
            *plain.JOURNAL,
            "<30>",
            "<30>1 ",
            "[",
            "] ",
        )
    ]
    root = Path(stamps.__file__).parents[1]
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", _LEAVES], input=repr(pieces), env=environment, capture_output=True, text=True, timeout=1200
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout == "looked at 300\n"
