"""What is asked in Python and in SQL gets one answer: the short name of a host, and whether two boots are the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import example, given
from hypothesis import strategies as st

from parsers import host_names
from store import open_store
from store.boots import SAME_BOOT_S, boot_before, is_same_boot, same_boot
from store.duckdb.store import DuckStore
from store.functions import short_name, unnested
from store.questions.kernel_lines import SAME_CLOCK_S, ends_before, fits_clock
from store.tables import TEXT, TIME

T0 = datetime(2026, 2, 28)


@pytest.fixture(scope="module")
def store() -> Iterator[DuckStore]:
    with open_store(None) as opened:
        yield opened


def values(given: list[Any], kind: Any) -> sa.Subquery:
    return sa.select(unnested(given, kind).label("value")).subquery("given")


@given(
    st.lists(st.text(st.sampled_from("..::019afA%-_ é\n"), max_size=12) | st.ip_addresses().map(str), min_size=40, max_size=60)
)  # fmt: skip
@example(["", ".", "10.0.0.1:9100", "gpu01.site:9100", "::ffff:10.0.0.1", "-1.2", "/a.b", "10.0.0.1\n"])
def test_the_short_name_of_a_host(store: DuckStore, names: list[str]) -> None:
    rows = values([*names, None], TEXT)
    found = store.ask(sa.select(rows.c.value.label("host"), short_name(rows.c.value).label("short")))
    assert len(found) == len(names) + 1
    assert all(row["short"] == (row["host"] if row["host"] is None else host_names.short_name(row["host"])) for row in found)  # fmt: skip


@given(st.lists(st.integers(-200_000_000, 200_000_000), min_size=8, max_size=8))
@example([0, 60_000_000, 60_000_001, -60_000_000, -60_000_001, 1, 59_999_999, 120_000_000])
def test_the_same_boot(store: DuckStore, micros: list[int]) -> None:
    times = [T0 + timedelta(microseconds=one) for one in micros]
    one, other = values(times, TIME).alias("one"), values(times, TIME).alias("other")
    columns = one.c.value.label("one"), other.c.value.label("other")
    asked = sa.select(*columns, same_boot(*columns).label("same"), boot_before(*columns).label("before"))
    found = store.ask(asked.select_from(one.join(other, sa.true())))
    assert len(found) == len(times) ** 2
    for row in found:
        ago = (row["other"] - row["one"]).total_seconds()
        assert row["same"] == is_same_boot(*(row[name].replace(tzinfo=UTC).timestamp() for name in ("one", "other")))
        assert row["before"] == (ago > SAME_BOOT_S) and (row["before"] or row["same"] or ago < 0)


@given(st.floats(1.7e9, 1.8e9), st.floats(-60, 60))
@example(1_700_000_005.0, 14.9)
@example(1_700_000_005.0, 15.1)
@example(1_700_000_005.0, -14.9)
@example(1_700_000_005.0, -15.1)
@example(1_700_000_009.9, 19.9)
def test_a_lines_uptime_fits_a_clock_more_narrowly_than_boots_are_the_same(boot: float, off: float) -> None:
    """A group of ``clocks`` is known by its number: a line fits in it, and up to its width beside it."""
    group = boot // SAME_CLOCK_S
    assert fits_clock(group, boot + off) == (group - 1 <= (boot + off) / SAME_CLOCK_S <= group + 2)
    assert is_same_boot(boot, boot + off) or not fits_clock(group, boot + off)


def test_a_clock_that_ended_before_a_boot() -> None:
    assert ends_before({"boot": 170_000_000.0, "last": 1_700_000_500.0}, 1_700_000_900.0)
    assert not ends_before({"boot": 170_000_000.0, "last": 1_700_000_901.0}, 1_700_000_900.0)
    assert not ends_before({"boot": 170_000_090.0, "last": 1_700_000_500.0}, 1_700_000_900.0)
