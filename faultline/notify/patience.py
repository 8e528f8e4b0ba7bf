"""How long a change must last before it is sent to a target: what comes and goes is no news."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

#: The wait doubles with each message of a thread, up to this many times.
MOST_DOUBLED = 7


@dataclass
class Patience:
    """The pending changes of all targets, by target and subject. Times in seconds of ``monotonic``."""

    monotonic: Callable[[], float]
    _pending: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    _asked: set[tuple[str, str]] = field(default_factory=set)

    def has_lasted(self, target: str, name: str, state: str, wait_s: float, times: int = 1) -> bool:
        """Whether a subject has been in ``state`` for ``wait_s`` seconds, doubled for each of the ``times`` that the target
        was notified of it, but the first."""
        now, key = self.monotonic(), (target, name)
        last, since = self._pending.get(key, ("", now))
        if last != state:
            since = now
        self._pending[key] = state, since
        self._asked.add(key)
        return now - since >= wait_s * float(2 ** min(max(times - 1, 0), MOST_DOUBLED))

    def forget_others(self, targets: set[str]) -> None:
        """Ends a round about ``targets``: what was not asked about in it is as it was, and begins anew when it changes."""
        for key in [key for key in self._pending if key[0] in targets and key not in self._asked]:
            del self._pending[key]
        self._asked.clear()
