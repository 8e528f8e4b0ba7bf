"""Tables printed by Slurm's commands: finds the columns in a header, and splits lines into them.

``squeue`` and ``sinfo`` print any columns in any order: right-aligned (their default), padded on the right
(``--Format``), separated by blanks or by a delimiter (``-o "%i|%T"``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: One column name of ``squeue`` and ``sinfo``: always in upper case.
_NAME = re.compile(r"[A-Z][A-Z0-9_/:*()-]*(?: [A-Z][A-Z0-9_/:*()-]*)*")
_DELIMITERS = ("|", ";", "\t", ",")
#: At least one of these columns accompanies JOBID (squeue), or NODELIST or HOSTNAMES (sinfo).
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
        """Column -> cell, stripped; of two columns with one name the first. Cells that the line lacks are omitted."""
        row: dict[str, str] = {}
        for name, cell in zip(self.names, self._cells(line), strict=False):
            row.setdefault(name, cell.strip())
        return row

    def _cells(self, line: str) -> list[str]:
        if self.delimiter == ",":
            return _COMMA.split(line)  # a host list has commas of its own: gpu[01,03]
        if self.delimiter:
            return line.split(self.delimiter)
        words = line.split()
        aligned = self.starts[0] == 0 and all(line[start - 1 : start] in (" ", "") for start in self.starts[1:])
        if len(words) != len(self.names) and aligned:
            # A cell is empty or contains blanks: the column positions decide, if no text crosses them.
            return [line[start:stop] for start, stop in zip(self.starts, [*self.starts[1:], None], strict=True)]
        return line.split(None, len(self.names) - 1)


def header(line: str) -> Table | None:
    """The table whose header ``line`` is, if ``squeue`` or ``sinfo`` can have printed it."""
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
