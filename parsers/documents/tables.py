"""Tables that Slurm's commands print: which columns a header names, and how a line is cut into them.

``squeue`` and ``sinfo`` print any columns in any order: right-aligned (their default), padded on the right (``--Format``),
between blanks or between a delimiter (``-o "%i|%T"``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: One column's name as ``squeue`` and ``sinfo`` head it: always in capitals.
_NAME = re.compile(r"[A-Z][A-Z0-9_/:*()-]*(?: [A-Z][A-Z0-9_/:*()-]*)*")
_DELIMITERS = ("|", ";", "\t", ",")
#: Columns of which at least one stands beside JOBID (squeue), or beside NODELIST or HOSTNAMES (sinfo).
_OF_SQUEUE = frozenset({
    "PARTITION", "NAME", "USER", "ST", "STATE", "TIME", "TIME_LIMIT",
    "NODES", "NODELIST", "NODELIST(REASON)", "REASON", "ACCOUNT", "QOS", "PRIORITY",
    "START_TIME", "END_TIME", "SUBMIT_TIME", "ARRAY_JOB_ID", "EXEC_HOST",
})  # fmt: skip
_OF_SINFO = frozenset(["STATE", "STATECOMPACT", "STATELONG", "PARTITION", "AVAIL", "REASON"])
_COMMA = re.compile(r",(?![^\[\]]*\])")


@dataclass(frozen=True)
class Table:
    """``names`` of the columns, the ``delimiter`` ("" for blanks) and where each name ``starts``."""

    names: tuple[str, ...]
    delimiter: str
    starts: tuple[int, ...]

    def row(self, line: str) -> dict[str, str]:
        """Column -> cell, stripped; of two columns with one name the first. Cells that the line lacks are left out."""
        row: dict[str, str] = {}
        for name, cell in zip(self.names, self._cells(line), strict=False):
            row.setdefault(name, cell.strip())
        return row

    def _cells(self, line: str) -> list[str]:
        if self.delimiter == ",":
            return _COMMA.split(line)  # a hostlist has commas of its own: gpu[01,03]
        if self.delimiter:
            return line.split(self.delimiter)
        words = line.split()
        aligned = self.starts[0] == 0 and all(line[start - 1 : start] in (" ", "") for start in self.starts[1:])
        if len(words) != len(self.names) and aligned:
            # A cell is empty or has blanks inside: the places of the names tell, where nothing stands across them.
            return [line[start:stop] for start, stop in zip(self.starts, [*self.starts[1:], None], strict=True)]
        return line.split(None, len(self.names) - 1)


def header(line: str) -> Table | None:
    """The table whose header ``line`` is, if it can be one of ``squeue`` or ``sinfo``."""
    delimiter = next((sign for sign in _DELIMITERS if sign in line), "")
    if delimiter:
        names = [name.strip() for name in line.strip("\r\n").split(delimiter)]
        while names and not names[-1]:
            names.pop()
        starts: tuple[int, ...] = ()
    else:
        found = list(re.finditer(r"\S+", line))
        names, starts = [piece[0] for piece in found], tuple(piece.start() for piece in found)
    if len(names) < 2 or not all(_NAME.fullmatch(name) for name in names):
        return None
    return Table(tuple(names), delimiter, starts)


def kind(line: str) -> str | None:
    """ "squeue" or "sinfo" for the header of their tables."""
    made = header(line)
    names = set(made.names) if made else set()
    if "JOBID" in names and names & _OF_SQUEUE:
        return "squeue"
    return "sinfo" if names & {"NODELIST", "HOSTNAMES"} and names & _OF_SINFO else None
