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
import re
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
        #: The replacement for the words at a position, `{}` for them, and the position: a suggestion once the text is
        #: known.
        self.rewritten: tuple[str, Span] | None = None

    def locate(self, text: str) -> KqlError:
        """Attaches the query text once it is known; the first text wins, so inner errors keep theirs."""
        if not self.text:
            self.text = text
        if self.rewritten and self.suggestion is None:
            form, place = self.rewritten
            words = text[place.start : place.end].strip()
            self.suggestion = form.replace("{}", words) if re.fullmatch(r"[\w.:/-]+", words) else None
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
        placed = bool(self.text) and self.span != NOWHERE  # an error at run time has no position in the text
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


class NotImplementedYet(KqlError):  # noqa: N818 - the name is shown to users
    """KQL has this; Faultline does not yet."""


class CannotExpress(KqlError):  # noqa: N818
    """The engine cannot give Kusto's answer exactly, so none is given."""


class QueryTimeout(KqlError):  # noqa: N818
    """The time limit ended the query."""


class KqlRuntimeError(KqlError):
    """The engine stopped while running the query."""


#: What other tools call the columns of the cluster's tables, lower case.
SYNONYMS = {
    "timestamp": ("Time", "TimeGenerated"), "ts": ("Time", "TimeGenerated"), "datetime": ("Time", "TimeGenerated"),
    "hostname": ("Host", "Computer"), "node": ("Host", "Computer"), "nodename": ("Host", "Computer"), "computer": ("Host",),
    "level": ("Severity", "SeverityLevel"), "job": ("JobId",), "text": ("Message", "SyslogMessage", "RawData"),
    "line": ("Message", "RawData"), "raw": ("RawData", "Message"), "program": ("Unit", "ProcessName"), "type": ("Event",),
    "restart": ("Attempt",), "restarts": ("Attempt",), "reason": ("Category",), "cause": ("RootCause",), "gpu": ("Gpus", "Device"),
    "username": ("User",), "jobname": ("Name",),
}  # fmt: skip


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None if no name is close enough.

    It is the same name in other case, another tool's word for it, a similar one, one that begins with it, or one that
    it abbreviates (Msg: Message).
    """
    names = list(known)
    low = name.lower()
    plain = low.replace("_", "")
    same = [n for n in names if n.lower() in (low, plain)]
    synonyms = [n for n in SYNONYMS.get(plain, ()) if n in names]
    # The name as written is compared before the name in lower case: WHERE is similar to where, Host more to Host than
    # to hosts.
    like = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    lowered = {n.lower(): n for n in reversed(names)}
    like_low = [lowered[n] for n in difflib.get_close_matches(low, list(lowered), n=1, cutoff=0.7)]
    begins = sorted((n for n in names if len(plain) > 1 and n.lower().startswith(plain)), key=len)
    short = sorted((n for n in names if len(plain) > 2 and _abbreviates(plain, n.lower())), key=len)
    return next(iter([*same, *synonyms, *like, *like_low, *begins, *short]), None)


def _abbreviates(short: str, name: str) -> bool:
    """Are the letters of ``short`` contained in ``name`` in this order, from its first on?"""
    rest = iter(name)
    return short[:1] == name[:1] and len(name) <= 4 * len(short) and all(letter in rest for letter in short)
