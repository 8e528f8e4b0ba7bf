"""A list that shares all but its end with the previous one behaves like a list."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from correlator.model import append_only_list
from correlator.model.append_only_list import AppendOnlyList


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_only_list, "BLOCK", 4)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("more", [0, 1, 4, 9])
def test_it_is_the_list_that_it_stands_for(length: int, more: int) -> None:
    items, fresh = list(range(0, 10 * length, 10)), list(range(1000, 1000 + more))
    before = AppendOnlyList(items)
    for cut in range(length + 1):
        after, wanted = before.but(cut, fresh), items[:cut] + fresh
        assert (list(after), len(after), list(before)) == (wanted, len(wanted), items)
        assert [after[n] for n in range(-len(wanted), len(wanted))] == [*wanted, *wanted]
        assert bisect_left(after, 45) == bisect_left(wanted, 45)
        for first in range(-2, len(wanted) + 2):
            assert (after[first:], after[:first]) == (wanted[first:], wanted[:first])
            for end in range(first, len(wanted) + 2):
                assert after[first:end] == wanted[first:end]


@pytest.mark.parametrize("place", [3, -4])
def test_no_place_outside_is_given(place: int) -> None:
    with pytest.raises(IndexError):
        AppendOnlyList([1, 2, 3])[place]


def test_what_is_made_from_it_shares_its_full_blocks() -> None:
    before = AppendOnlyList(range(10))
    after = before.but(9, [90, 91])
    assert [a is b for a, b in zip(before._blocks, after._blocks, strict=False)] == [True, True, False]
    assert list(after.but(10, [100])) == [*range(9), 90, 100]  # a change after a change
