"""The mark ``one_of_each(kind=...)``: which cases of a table stay in ``make test``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import mark_one_of_each


class Item:
    def __init__(self, test: str, values: dict[str, Any], *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.callspec = f"{test}[{values}]", SimpleNamespace(params=values)
        self.marks = list(marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark.mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark)


def short(*items: Item) -> list[str]:
    mark_one_of_each(items)  # type: ignore[arg-type]
    return [item.nodeid.replace("'", "") for item in items if item.get_closest_marker("long") is None]


OF_COLOR = pytest.mark.one_of_each(kind=lambda color: color)


def test_the_first_case_of_each_kind_stays() -> None:
    cases = [Item("a", {"color": color, "size": n}, OF_COLOR) for n, color in enumerate(("red", "red", "blue", "red"))]
    assert short(*cases) == ["a[{color: red, size: 0}]", "a[{color: blue, size: 2}]"]


def test_each_test_has_kinds_of_its_own_and_others_stay_as_they_are() -> None:
    items = [Item("a", {"color": "red"}, OF_COLOR), Item("b", {"color": "red"}, OF_COLOR)]
    unmarked = [Item("c", {"color": "red"}), Item("c", {"color": "red"})]
    assert len(short(*items, *unmarked)) == 4


def test_a_case_that_is_long_by_itself_represents_no_kind() -> None:
    first, second = (
        Item("a", {"color": "red", "n": 1}, OF_COLOR, pytest.mark.long),
        Item("a", {"color": "red", "n": 2}, OF_COLOR),
    )
    assert short(first, second) == ["a[{color: red, n: 2}]"]


def test_a_kind_may_be_made_of_several_values() -> None:
    of_both = pytest.mark.one_of_each(kind=lambda color, live: (color, live))
    cases = [Item("a", {"color": "red", "live": live, "n": n}, of_both) for n, live in enumerate((False, True, True))]
    assert short(*cases) == ["a[{color: red, live: False, n: 0}]", "a[{color: red, live: True, n: 1}]"]
