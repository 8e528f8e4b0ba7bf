"""Timestamps are parsed alike, however many there are."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import clock, regexes
from parsers.record import Origin
from tests.examples import examples

_STAMPS = st.one_of(
    st.sampled_from([
        "2026-01-15T10:00:60.5Z", "2026-01-15 10:00:60,12", "2026-02-30T10:00:00Z", "2026-01-15T10:00:61", "2026-1-5 1:00:00",
        "2026-01-15T10:00:00.1234567891Z", "2026-01-15T24:00:00", "2026-01-15T10:00:00 +0200", "x", "", "2026-01-15T10:00:00UTC",
        "9999-12-31T23:59:60Z", "2026-01-15T10:00:00.", "2026-01-15T10:00:00-99:99",
    ]),
    st.from_regex(r"\A20\d\d-[01]\d-[0-3]\d[T ][0-2]\d:[0-6]\d:[0-6]\d([.,]\d{1,10})?(Z|[+-]\d\d:?\d\d)?\Z"),
)  # fmt: skip


@given(st.lists(st.none() | _STAMPS, min_size=1, max_size=6))
@settings(max_examples=examples(30), deadline=None)
def test_few_stamps_are_read_as_many(stamps: list[str | None]) -> None:
    column = pl.Series("iso", stamps, dtype=pl.String)
    many = pl.concat([column, pl.Series("iso", ["2026-01-15T10:00:00Z"] * regexes.MANY)])
    origin = Origin(timezone="Europe/Berlin", timezone_known=True)
    assert clock.iso(column, origin).equals(clock.iso(many, origin).head(len(stamps)))
