"""Where a term ends. ASCII rules are used where all rows of a statement allow it: they are faster than those of Unicode.

R3: a term ends where letters and digits end. As a pattern that is a class of 700 ranges, which the engine compiles for
each edge while it plans and again when it runs, 2 to 3 ms an edge: more than all else of a small statement. But
whether the characters of ASCII are letters takes three ranges, 0.6 ms with cold caches. So ``run`` compiles the first
``Form`` that has not failed: each stops with an error at the first row that it cannot decide, then the statement is
compiled and run anew with the next one, and its text is remembered. Nothing is decided by a shorter form that the class
would decide otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType

from queries.kql.errors import CannotExpress, KqlError

#: R3: what is no letter and no digit.
TERM_EDGE = r"[^\p{L}\p{N}]"
#: Those of them that are in ASCII; and a superset of all of them, which also has the letters and digits beyond ASCII.
SURE_EDGE, POSSIBLE_EDGE = r"[\x00-/:-@\[-`{-\x7f]", "[^0-9A-Za-z]"
#: The engine's error for a row that a form does not decide.
UNDECIDED = "a term beside a character beyond ASCII"
_CURRENT = threading.local()


class Form(IntEnum):
    """How a term's ends are recognised, the shortest first."""

    #: One pattern of ASCII edges: it decides the rows that match, and those that are ASCII throughout.
    ASCII_ROWS = 0
    #: Two patterns: they decide the rows whose terms have ASCII, or an end of the text, on both sides.
    ASCII_SIDES = 1
    #: One pattern with the whole class: it decides all rows.
    LETTERS = 2


class AsciiFirst:
    """A context for compiling one query in this thread: terms may be recognised by the ASCII rules of ``form`` if ``may``
    says so, which is asked once, when the first is met. ``used``: whether one was."""

    def __init__(self, may: Callable[[], bool], form: Form = Form.ASCII_ROWS) -> None:
        self.form = form
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


def form_of_terms() -> Form:
    """The form of the term that this thread compiles."""
    current: AsciiFirst | None = getattr(_CURRENT, "edges", None)
    return current.form if current is not None and current.use() else Form.LETTERS


def undecided(problem: KqlError) -> bool:
    """Did a statement stop because a row needs a longer form?"""
    return isinstance(problem, CannotExpress) and UNDECIDED in str(problem)
