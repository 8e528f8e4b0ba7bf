"""Corrects times written in another zone than slurmctld's log, or by a wrong clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, FromClause, and_, case, func, literal

from store.functions import const, earlier, epoch, one_of


@dataclass(frozen=True)
class Shift:
    """Times between ``start`` and ``end`` (epoch seconds, as written) are ``ahead`` by this many seconds, in ``file``
    (for a source without files, its name); None: in any file."""

    file: str | None
    start: float
    end: float
    ahead: float


@dataclass(frozen=True)
class WrittenTimes:
    """Maps written times to true ones. ``shifts``: for rows about jobs, the first match counts; ``exact``: sources
    whose times are true; ``log_ahead``: by how many seconds timestamps without a zone in slurmctld's log are ahead."""

    shifts: Sequence[Shift] = ()
    exact: Sequence[str] = ()
    log_ahead: float = 0.0

    def of_job(self, rows: FromClause, name: str) -> ColumnElement[Any]:
        """A time in rows about jobs, as true time."""
        column = rows.c[name]
        if not self.shifts:
            return column
        file, written = func.coalesce(rows.c.file, rows.c.source), epoch(column)
        cases: list[Any] = [(one_of(rows.c.source, self.exact), const(0))]
        for shift in self.shifts:
            within = written.between(shift.start, shift.end)
            cases.append((within if shift.file is None else and_(file == shift.file, within), literal(shift.ahead)))
        return earlier(column, case(*cases, else_=const(0)))

    def of_line(self, lines: FromClause, name: str = "time") -> ColumnElement[Any]:
        """The timestamp of a line of slurmctld's log, as true time."""
        if not self.log_ahead:
            return lines.c[name]
        ahead = case((lines.c.time_quality == const("inferred"), literal(self.log_ahead)), else_=const(0))
        return earlier(lines.c[name], ahead)


#: All times unchanged.
AS_WRITTEN = WrittenTimes()
