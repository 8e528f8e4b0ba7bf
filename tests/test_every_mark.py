"""The mark ``every(n)``: which cases of a table stay in ``make test``."""

from __future__ import annotations

import pytest

from tests.conftest import mark_every


class Item:
    def __init__(self, test: str, case: int, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.marks = f"{test}[{case}]", list(marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark.mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark)


def test_the_first_case_of_each_test_and_every_nth_after_it_stay() -> None:
    third = pytest.mark.every(3)
    items = [
        *(Item("a", n, third) for n in range(5)),
        Item("b", 0, third, pytest.mark.long),  # long by itself: not counted
        *(Item("b", n, third) for n in range(1, 3)),
        *(Item("c", n) for n in range(2)),
    ]
    mark_every(items)  # type: ignore[arg-type]
    stay = [item.nodeid for item in items if item.get_closest_marker("long") is None]
    assert stay == ["a[0]", "a[3]", "b[1]", "c[0]", "c[1]"]
