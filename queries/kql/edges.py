"""Where a term ends. ASCII rules are used where all rows of a statement allow it: they are faster than those of Unicode.

R3: a term ends where letters and digits end. As a pattern that is a class of 700 ranges, which the engine compiles for
each edge while it plans and again when it runs, 2 to 3 ms an edge: more than all else of a small statement. But
whether the characters of ASCII are letters takes three ranges. So ``run`` first compiles a form that decides every row
whose term has ASCII, or an end of the text, on both sides, and that stops with an error at the first row which needs
the whole class. Then the statement is compiled and run anew with the class, at most twice the work, and its text is
remembered. Nothing is decided by the shorter form that the class would decide otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from queries.kql.errors import CannotExpress, KqlError

#: R3: what is no letter and no digit.
TERM_EDGE = r"[^\p{L}\p{N}]"
#: Those of them that are in ASCII; and a superset of all of them, which also has the letters and digits beyond ASCII.
SURE_EDGE, POSSIBLE_EDGE = r"[\x00-/:-@\[-`{-\x7f]", "[^0-9A-Za-z]"
#: The engine's error for a row that needs the class.
UNDECIDED = "a term beside a character beyond ASCII"
_CURRENT = threading.local()


class AsciiFirst:
    """A context for compiling one query in this thread: terms may be recognised by the ASCII rules if ``may`` says so, which
    is asked once, when the first is met. ``used``: whether one was."""

    def __init__(self, may: Callable[[], bool]) -> None:
        self._ask = may
        self._may: bool | None = None
        self.used = False
        self._outer: AsciiFirst | None = None

    def __enter__(self) -> AsciiFirst:
        self._outer = getattr(_CURRENT, "edges", None)
        _CURRENT.edges = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _CURRENT.edges = self._outer

    def use(self) -> bool:
        """Whether the term that is being compiled takes the shorter form."""
        if self._may is None:
            self._may = self._ask()
        self.used = self.used or self._may
        return self._may


def ascii_first() -> bool:
    """Whether the term that this thread compiles takes the shorter form."""
    current: AsciiFirst | None = getattr(_CURRENT, "edges", None)
    return current is not None and current.use()


def undecided(problem: KqlError) -> bool:
    """Did a statement stop because a row needs the class?"""
    return isinstance(problem, CannotExpress) and UNDECIDED in str(problem)
