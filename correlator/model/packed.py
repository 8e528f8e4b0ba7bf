"""Objects that give up most of their values, compressed together, until somebody asks for one.

An event of a long history takes eight hundred bytes, and almost none is looked at again. A packed object stays the same
object, so whatever refers to it is right as it is. Its class is one that restores the values when one is missing; the
class of the others is as it was, so reading them costs nothing more.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import lru_cache
from io import BytesIO
from operator import attrgetter
from sys import intern
from threading import Lock, local
from typing import Any, Generic, TypeVar

import zstandard

#: Objects that are compressed together: as places they are numbers that Python shares. Restoring one reads them all, a
#: third of a millisecond.
TOGETHER = 256

#: Blocks whose values are kept while objects are restored: what belongs together is near each other.
_BLOCKS_KEPT = 16

#: A block of ordinary events is a tenth of this before it is compressed.
_BLOCK_BYTES = 1 << 19


class Packable:
    """What a packed object is restored from. Unset until it is packed for the first time."""

    __slots__ = ("_block", "_place")
    _block: Block
    _place: int


_set_block, _set_place = (vars(Packable)[name].__set__ for name in ("_block", "_place"))
P = TypeVar("P", bound=Packable)


class Block:
    """The values of several objects, compressed."""

    __slots__ = ("data",)

    def __init__(self, rows: list[Any]) -> None:
        """Raises ``NotPlainError``."""
        self.data = _tools.packed(rows)


class NotPlainError(Exception):
    """A value holds an object that others refer to as well: a copy of it would be another one."""


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:  # for whatever is no number, text or collection of these
        raise NotPlainError(type(value))


class _Tools(local):
    """Packs values with one pickler and one compressor per thread, which are not thread-safe: new ones for each block
    would take a fifth of its time."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(1)  # a third of the time of zlib, and smaller
        self._renew()

    def _renew(self) -> None:
        self._to = BytesIO()
        self._pickler = _Pickler(self._to, protocol=5)

    def packed(self, value: object) -> bytes:
        """Raises ``NotPlainError``."""
        try:
            self._pickler.dump(value)
            return self._compressor.compress(self._to.getvalue())
        finally:
            self._clear()

    def _clear(self) -> None:
        """Holds no values and, after an unusually large block, little memory."""
        if self._to.tell() > _BLOCK_BYTES:
            self._renew()
        else:
            self._pickler.clear_memo()
            self._to.seek(0)
            self._to.truncate()


_tools = _Tools()


@lru_cache(maxsize=_BLOCKS_KEPT)
def rows_of(block: Block) -> list[Any]:
    """The values of a block, which are kept until ``pack_restored``."""
    found: list[Any] = pickle.loads(zstandard.decompress(block.data))
    return found


#: Other threads read conclusions, too. A restored object gets its class last, a packed one first: whoever reads meanwhile
#: finds either a value or the class that restores it.
_lock = Lock()
_restored: list[tuple[Packing[Any], Packable]] = []


class Packing(Generic[P]):
    """How objects of a class are packed: without the values of ``names``. Those of ``shared`` are texts; they stay, and
    equal ones become one object. ``row`` names the values of a block's rows: ``names`` and maybe others. The class
    ``packed`` calls ``value`` where an attribute is missing. ``refers`` tells of some objects, for less than an attempt to
    pack them takes, that their values are not plain."""

    def __init__(
        self, plain: type[P], packed: type[P], names: Sequence[str], shared: Sequence[str], row: Sequence[str] = (),
        refers: Callable[[P], bool] | None = None,
    ) -> None:  # fmt: skip
        self._plain, self._packed, self._names, self._shared = plain, packed, frozenset(names), shared
        assert len(shared) > 1  # else attrgetter returns no tuple
        self._row, self._refers = tuple(row or names), refers
        self._values, self._texts = attrgetter(*self._row), attrgetter(*shared)
        self._delete = [getattr(plain, name).__delete__ for name in names]

    def pack(self, objects: Sequence[P]) -> None:
        """Those that were never packed; others stay as they are, and so do those with values that are not plain."""
        new = [one for one in objects if not hasattr(one, "_block")]
        if self._refers:
            new = [one for one in new if not self._refers(one)]
        for first in range(0, len(new), TOGETHER):
            self._pack(new[first : first + TOGETHER])

    def _pack(self, some: list[P]) -> None:
        rows = list(map(self._values, some))
        try:
            block = Block(rows)
        except NotPlainError:
            plain = [_is_plain(row) for row in rows]
            some = [one for one, is_plain in zip(some, plain, strict=True) if is_plain]
            block = Block([row for row, is_plain in zip(rows, plain, strict=True) if is_plain])
        self.pack_as(some, block)

    def pack_as(self, objects: Sequence[P | None], block: Block) -> None:
        """Packs objects whose values are the rows of a block, in its order; None where one is not needed. What was packed
        in this block before stays as it is: ``pack_restored`` packs what was restored of it."""
        with _lock:
            for place, one in enumerate(objects):
                if one is None or getattr(one, "_block", None) is block:
                    continue
                for name, text in zip(self._shared, self._texts(one), strict=True):
                    if text is not None and (same := intern(text)) is not text:
                        object.__setattr__(one, name, same)
                _set_block(one, block)
                _set_place(one, place)
                self.again(one)

    def again(self, one: P) -> None:
        """Packs a restored one. Under the lock."""
        if type(one) is self._plain:
            object.__setattr__(one, "__class__", self._packed)
            for delete in self._delete:
                delete(one)

    def value(self, one: P, name: str) -> Any:
        """The value of ``name``, which a packed object lacks; all others are restored with it. Raises ``AttributeError``."""
        if name not in self._names:
            raise AttributeError(f"{self._plain.__name__} has no attribute {name}")
        with _lock:
            row = rows_of(one._block)[one._place]
            values = dict(zip(self._row, row if len(self._row) > 1 else (row,), strict=True))
            if type(one) is self._packed:
                for each in self._names:
                    object.__setattr__(one, each, values[each])
                object.__setattr__(one, "__class__", self._plain)
                _restored.append((self, one))
            return values[name]


def _is_plain(value: object) -> bool:
    try:
        _Pickler(BytesIO(), protocol=5).dump(value)
    except NotPlainError:
        return False
    return True


def pack_restored() -> int:
    """Packs all that were restored since the last call, which takes no compressing. Returns how many there were."""
    with _lock:
        for packing, one in _restored:
            packing.again(one)
        count = len(_restored)
        _restored.clear()
        rows_of.cache_clear()
        return count
