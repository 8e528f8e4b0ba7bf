"""What bodies hold that have not arrived completely, by sender.

If all of them together hold too much, the sender that holds most loses its largest body: its memory is free at once, and
its sender gets 429 for what follows. Whoever stops in the middle of many bodies therefore keeps nobody else out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collector.spool import SpoolFull

#: Limit in bytes of all incomplete bodies together: a thousand senders that stop midway hold no more.
MOST_ARRIVING = 512 * 1024 * 1024


class Held:
    """The bytes of one body. ``forget`` frees them."""

    def __init__(self, arriving: Arriving, sender: str, forget: Callable[[], object]) -> None:
        self.sender, self.forget = sender, forget
        self.size = 0
        self.is_lost = False
        self._arriving = arriving

    def resize(self, size: int) -> None:
        """Counts ``size`` bytes from now on. Raises ``SpoolFull`` if this body was or is the one to go."""
        self.check()
        self._arriving.resize(self, size)
        self.check()

    def check(self) -> None:
        """Raises ``SpoolFull`` if the body was lost."""
        if self.is_lost:
            raise SpoolFull("too many senders are in the middle of their batches", 1.0)


class Arriving:
    """All bodies of one service; used from one event loop."""

    def __init__(self) -> None:
        self.size = 0
        self._bodies: dict[Held, None] = {}
        self._of: Counter[str] = Counter()

    @contextmanager
    def body(self, sender: str | None, forget: Callable[[], object]) -> Iterator[Held]:
        """A body of ``sender`` (an address) while it arrives."""
        held = Held(self, sender or "", forget)
        self._bodies[held] = None
        try:
            yield held
        finally:
            self.resize(held, 0)
            del self._bodies[held]

    def resize(self, held: Held, size: int) -> None:
        """Counts ``size`` bytes for a body. Makes room if all together are too many, at the cost of this one or another."""
        change = size - held.size
        held.size = size
        self.size += change
        self._of[held.sender] += change
        if not self._of[held.sender]:
            del self._of[held.sender]
        while change > 0 and self.size > MOST_ARRIVING:
            self._lose(self._largest(held))

    def _largest(self, growing: Held) -> Held:
        """The largest body of the sender that holds most; of equal ones, the one that grows."""
        ((sender, _),) = self._of.most_common(1)
        return max((one for one in self._bodies if one.sender == sender), key=lambda one: (one.size, one is growing))

    def _lose(self, held: Held) -> None:
        held.is_lost = True
        held.forget()
        self.resize(held, 0)
