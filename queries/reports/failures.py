"""Error messages for the author of an installed package whose report raised."""

from __future__ import annotations

import traceback
from pathlib import Path

from sqlalchemy.sql.base import ReadOnlyColumnCollection

from parsers import extensions
from queries.reports.report import Report


class ReportFailed(Exception):  # noqa: N818  (what happened)
    """A package's report raised. The text names the entry point, the exception and the line of the package's code."""


def failure(called: str, report: Report, error: Exception) -> ReportFailed:
    """The error of a report that raised; ``called`` is its entry point as messages name it."""
    return ReportFailed(f"{called} raised {_described(error)}{_place(report, error)}")


def _described(error: Exception) -> str:
    """The exception in words; for a missing column also its table, because SQLAlchemy's error has only the name."""
    columns = getattr(error, "obj", None)
    if isinstance(error, AttributeError) and isinstance(columns, ReadOnlyColumnCollection):
        tables = ", ".join(
            sorted({str(column.table) for column in columns if getattr(column, "table", None) is not None})
        )
        return f"AttributeError: {tables} has no column {error.name!r}; there is {', '.join(columns.keys())}"
    return extensions.described(error)


def _place(report: Report, error: Exception) -> str:
    """The innermost line of the traceback in the module of ``build``; empty if ``build`` is no function."""
    file = getattr(getattr(report.build, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({Path(file).name} line {lines[-1]})" if file is not None and lines else ""
