"""An answer on a terminal: a ruled table if its columns fit, else each row as a list of its fields.

Nothing is cut: a text that does not fit continues on the next line.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

#: A column narrower than this (and than its widest cell) cannot be read.
READABLE = 14
#: Between two columns are a rule and two spaces; one more rule ends the line.
RULES = 3


def fits(widths: Sequence[int], room: int) -> bool:
    """Can a ruled table of columns with these widest cells be read in ``room`` characters?"""
    return sum(min(width, READABLE) + RULES for width in widths) + 1 <= room


def show(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], room: int | None = None) -> str:
    """``columns`` are names and KQL types; ``room`` is the terminal's width by default."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=io.StringIO(), force_terminal=True, width=room)
    widths = [max([len(name), *(len(row[n]) for row in rows)]) for n, (name, _) in enumerate(columns)]
    with console.capture() as captured:
        if fits(widths, console.width):
            table = Table()
            for name, kind in columns:
                number = kind in ("int", "long", "real", "decimal")
                table.add_column(Text(name), justify="right" if number else "left", overflow="fold")
            for row in rows:
                table.add_row(*(Text(cell) for cell in row))
            console.print(table)
        else:
            for place, row in enumerate(rows, 1):
                console.rule(f"row {place}", align="left", style="dim")
                console.print(_fields([name for name, _ in columns], row))
    return captured.get()


def _fields(names: Sequence[str], row: Sequence[str]) -> object:
    """One row as a field a line; empty fields are left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2), pad_edge=False)
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, cell in zip(names, row, strict=True):
        if cell:
            grid.add_row(Text(name), Text(cell))
    return grid
