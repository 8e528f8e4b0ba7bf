"""A report as GitHub-flavoured Markdown, for tickets and wikis."""

from __future__ import annotations

import re

from parsers.visible import visible
from queries.reports.model import SHOWN, Column, Document, Section, Table
from queries.reports.wording import period, worded

#: Characters that Markdown or HTML inside it would interpret.
_SIGNS = re.compile(r"([\\`*_{}\[\]<>|~#&])")

_LEFT = {"text", "name", "time", "flag"}


def markdown(document: Document) -> str:
    """``document`` as Markdown text."""
    lines = [f"# {plain(document.title)}", "", plain(document.description), ""]
    lines += [f"Period: {period(document.since, document.until)}. All times are UTC.", ""]
    for section in document.sections:
        lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"


def plain(text: str) -> str:
    """Text that renders literally: one line, with every special character of Markdown and HTML escaped."""
    return _SIGNS.sub(r"\\\1", visible(" ".join(text.split()))).replace("\\<", "&lt;").replace("\\>", "&gt;")


def _section(section: Section) -> list[str]:
    lines = [f"## {plain(section.title)}", "", plain(section.lead), ""]
    for figure in section.figures:
        note = f" ({plain(figure.note)})" if figure.note else ""
        lines.append(f"- {plain(figure.label)}: **{plain(worded(figure.value, figure.kind))}**{note}")
    if section.figures:
        lines.append("")
    for table in section.tables:
        lines += _table(table)
    for note in section.notes:
        lines.append(f"- {plain(note)}")
    return [*lines, ""] if section.notes else lines


def _table(table: Table) -> list[str]:
    lines = [f"### {plain(table.title)}", ""] if table.title else []
    if not table.rows:
        return [*lines, plain(table.empty), ""]
    lines.append("| " + " | ".join(plain(column.title) for column in table.columns) + " |")
    lines.append("| " + " | ".join(_rule(column) for column in table.columns) + " |")
    for row in table.rows[:SHOWN]:
        lines.append("| " + " | ".join(plain(worded(row[c.key], c.kind)) for c in table.columns) + " |")
    if len(table.rows) > SHOWN:
        lines += ["", f"{len(table.rows) - SHOWN} more rows in the JSON form."]
    lines.append("")
    return [*lines, plain(table.note), ""] if table.note else lines


def _rule(column: Column) -> str:
    return "---" if column.kind in _LEFT else "---:"
