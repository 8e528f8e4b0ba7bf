"""Answers on a terminal: a table if there is room, else field by field, and nothing cut."""

from __future__ import annotations

import re

import pytest

from queries.kql.screen import fits, show

LONG = "mlx5_core 0000:12:00.0 enp18s0f0np0: Link down " * 3


def plain(columns: list[tuple[str, str]], rows: list[list[str]], room: int) -> list[str]:
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", show(columns, rows, room)).splitlines()]


@pytest.mark.parametrize(
    ("widths", "room", "readable"),
    [([27, 7, 300], 80, True), ([27] * 15, 80, False), ([27] * 15, 256, True), ([3] * 12, 80, True), ([3] * 14, 80, False)],
)  # fmt: skip
def test_a_table_needs_room_for_its_columns(widths: list[int], room: int, readable: bool) -> None:
    assert fits(widths, room) is readable


@pytest.mark.parametrize("room", [40, 80, 200])
@pytest.mark.parametrize("count", [2, 15])
def test_nothing_is_cut_and_nothing_is_wider_than_the_terminal(room: int, count: int) -> None:
    columns = [(f"Column{n}", "string") for n in range(count)]
    shown = plain(columns, [[LONG] * count, ["x"] * count], room)
    assert max(map(len, shown)) <= room and "…" not in "".join(shown)
    letters = "".join(re.findall(r"\w", "".join(shown)))
    assert letters.count("n") >= count * LONG.count("n")
    assert (shown[0].startswith("┏")) is fits([len(LONG)] * count, room)


def test_a_row_of_many_fields_leaves_out_the_empty_ones() -> None:
    columns = [(f"Column{n}", "long") for n in range(40)]
    shown = plain(columns, [["", "7", *[""] * 38], [*[""] * 39, "8"]], 80)
    assert [line.split("─")[0].strip() for line in shown] == ["row 1", "Column1  7", "row 2", "Column39  8"]
