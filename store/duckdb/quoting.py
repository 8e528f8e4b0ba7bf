"""Texts in SQL of ours where a parameter cannot stand: a view has none."""

from __future__ import annotations


def quoted(text: str | None) -> str:
    """A text as a literal; None is null."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
