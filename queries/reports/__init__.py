"""Failure-pattern reports over a store: what breaks, where, how often, and what it costs.

    >>> document = run(store, "failure-patterns", since=None, until=None)
    >>> page = render(document, "html")

A third party adds a report with an entry point of the group ``faultline.reports`` that names a ``Report``; docs/reports.md
shows one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from parsers import extensions
from queries.reports.as_html import html
from queries.reports.as_json import json_text
from queries.reports.as_markdown import markdown
from queries.reports.drains import REPORT as DRAIN_ADVICE
from queries.reports.failure_patterns import REPORT as FAILURE_PATTERNS
from queries.reports.failures import ReportFailed, failure
from queries.reports.model import Column, Document, Figure, Section, Span, Table, Timeline, as_utc
from queries.reports.reader import Reader
from queries.reports.repairs import REPORT as REPAIRS
from queries.reports.report import Report
from queries.reports.usage import REPORT as USAGE

if TYPE_CHECKING:
    from store.door import Door

GROUP = "faultline.reports"

#: The reports that come with Faultline. A new one is a module and a line here.
BUILT_IN = (FAILURE_PATTERNS, REPAIRS, DRAIN_ADVICE, USAGE)

_FORMATS = {"html": html, "md": markdown, "json": json_text}


class ReportError(ValueError):
    """There is no such report or format; the text names the existing ones."""


@cache
def all_reports() -> Mapping[str, Report]:
    """Every report by its name, built-in ones first.

    Packages are loaded on first use and not on import, because a package's own module imports this one.
    """
    return extensions.named(GROUP, Report, BUILT_IN)


def listing() -> list[dict[str, str]]:
    """Name, title and description of every report."""
    return [{"name": r.name, "title": r.title, "description": r.description} for r in all_reports().values()]


def run(store: Door, name: str, *, since: datetime | None = None, until: datetime | None = None) -> Document:
    """Builds a report. Runs and incidents count if they ended at or after ``since`` and before ``until``.

    Raises ``ReportError`` for an unknown name or a wrong period, and ``ReportFailed`` if a package's report raises.
    """
    report = all_reports().get(name)
    if report is None:
        raise ReportError(f"no report {name!r}; there are: {', '.join(sorted(all_reports()))}")
    start, end = as_utc(since), as_utc(until)
    if start is not None and end is not None and start >= end:
        raise ReportError(f"--since {start} is not before --until {end}")
    called = extensions.brought_by(GROUP, name)
    reader = Reader(store, start, end, called or f"report {name}")
    if called is None:
        sections = tuple(report.build(reader))
    else:
        try:
            sections = tuple(extensions.expect(section, Section) for section in report.build(reader))
        except Exception as error:
            raise failure(called, report, error) from error
    return Document(report.name, report.title, report.description, start, end, sections)


def render(document: Document, format: str) -> str:
    """The document as ``html`` (one self-contained page), ``md`` (GitHub tables) or ``json`` (all rows)."""
    if format not in _FORMATS:
        raise ReportError(f"no format {format!r}; there are: {', '.join(_FORMATS)}")
    return _FORMATS[format](document)


__all__ = [
    "BUILT_IN",
    "Column",
    "Document",
    "Figure",
    "Reader",
    "Report",
    "ReportError",
    "ReportFailed",
    "Section",
    "Span",
    "Table",
    "Timeline",
    "all_reports",
    "listing",
    "render",
    "run",
]
