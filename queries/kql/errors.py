"""What the query language says when it says no.

KqlError(ValueError)          base: message, line, column, length, suggestion
|-- KqlSyntaxError            the text is not KQL
|-- KqlBindError              names or types do not fit
|-- NotImplementedYet         KQL has it, Faultline does not yet
|-- CannotExpress             this engine cannot answer it exactly
|-- QueryTimeout              the time limit ended it
`-- KqlRuntimeError           the engine stopped while running it
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters in the query text."""

    start: int
    end: int


NOWHERE = Span(0, 0)


class KqlError(ValueError):
    """One problem in one query, at one place."""

    def __init__(self, message: str, span: Span = NOWHERE, *, suggestion: str | None = None, text: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.suggestion = suggestion
        self.text = text

    def locate(self, text: str) -> KqlError:
        """Attach the query text once it is known; the first text wins, so inner errors keep theirs."""
        if not self.text:
            self.text = text
        return self

    @property
    def line(self) -> int:
        """Line of the offending text, from 1."""
        return self.text.count("\n", 0, self.span.start) + 1

    @property
    def column(self) -> int:
        """Column of the offending text, from 1."""
        return self.span.start - (self.text.rfind("\n", 0, self.span.start) + 1) + 1

    @property
    def length(self) -> int:
        """How many characters are at fault, at least 1 and never past the end of the line."""
        end = self.text.find("\n", self.span.start)
        end = len(self.text) if end < 0 else end
        return max(1, min(self.span.end, end) - self.span.start)

    def __str__(self) -> str:
        placed = bool(self.text) and self.span != NOWHERE  # what happens while running has no place in the text
        head = f"line {self.line}, column {self.column}: {self.message}" if placed else self.message
        if self.suggestion:
            head += f"; did you mean {self.suggestion}?"
        if not placed:
            return head
        lines = self.text.split("\n")
        shown = lines[self.line - 1] if self.line <= len(lines) else ""
        return f"{head}\n  {shown}\n  {' ' * (self.column - 1)}{'^' * self.length}"


class KqlSyntaxError(KqlError):
    """The text does not parse."""


class KqlBindError(KqlError):
    """A name is unknown or a type does not fit."""


class NotImplementedYet(KqlError):  # noqa: N818 - the name is what a user reads
    """KQL has this; Faultline does not yet."""


class CannotExpress(KqlError):  # noqa: N818
    """The engine behind cannot give Kusto's answer, so none is given."""


class QueryTimeout(KqlError):  # noqa: N818
    """The time limit ended the query."""


class KqlRuntimeError(KqlError):
    """The engine stopped while running the query."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, if one is close enough to be worth saying."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return found[0] if found else None
