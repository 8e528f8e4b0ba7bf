"""A long list that changes only at its end: earlier items are shared from state to state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar, overload

T = TypeVar("T")

#: The number of items in a block; all blocks but the last are full.
BLOCK = 4096


class AppendOnlyList(Sequence[T]):
    """A list made from an earlier one by ``but`` shares that one's full blocks: creating and freeing it takes time only
    for what is new.

    A copied list would increment, and later decrement, the reference count of each of hundreds of thousands of items.
    """

    __slots__ = ("_blocks", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._blocks: list[Sequence[T]] = _cut(list(items))
        self._length = sum(map(len, self._blocks))

    def but(self, cut: int, more: Sequence[T]) -> AppendOnlyList[T]:
        """The first ``cut`` items, then ``more``."""
        full, rest = divmod(cut, BLOCK)
        last = self._blocks[full][:rest] if rest else []
        made: AppendOnlyList[T] = AppendOnlyList()
        made._blocks = [*self._blocks[:full], *_cut([*last, *more])]
        made._length = cut + len(more)
        return made

    @property
    def blocks(self) -> Sequence[Sequence[T]]:
        """All items in order; all blocks but the last have the same length."""
        return self._blocks

    def hold(self, count: int, smaller: Callable[[list[T]], Sequence[T]]) -> None:
        """Holds full blocks of the first ``count`` items as ``smaller`` makes them of a list; those that it made before
        stay. Lists that ``but`` makes of this one share them."""
        for place in range(count // BLOCK):
            if isinstance(block := self._blocks[place], list):
                self._blocks[place] = smaller(block)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            first, end, step = place.indices(self._length)
            if step != 1:
                return [self[n] for n in range(first, end, step)]
            blocks = self._blocks[first // BLOCK : -(-end // BLOCK)] if first < end else []
            skipped = first // BLOCK * BLOCK
            return list(chain.from_iterable(blocks))[first - skipped : end - skipped]
        if not -self._length <= place < self._length:
            raise IndexError(place)
        block, inside = divmod(place % self._length, BLOCK)
        return self._blocks[block][inside]


def _cut(items: list[T]) -> list[Sequence[T]]:
    return [items[first : first + BLOCK] for first in range(0, len(items), BLOCK)]
