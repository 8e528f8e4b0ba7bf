"""What a dashboard is: a title, and panels that each show the answer to one query."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

#: A page is this many columns wide.
COLUMNS = 12
#: How an answer is shown; ``table``: its rows only. The others are kinds of ``render``.
CHARTS = (
    "table", "card", "timechart", "linechart", "anomalychart", "areachart", "stackedareachart", "columnchart", "barchart",
    "piechart", "scatterchart",
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """What is wrong with a file: the file, the line if one is known, the entry (empty: the whole file), the reason, and
    what to do."""

    file: Path
    line: int | None
    entry: str
    reason: str
    do: str

    def __str__(self) -> str:
        place = f"{self.file}{f':{self.line}' if self.line else ''}"
        return f"{place}: {f'{self.entry}: ' if self.entry else ''}{self.reason}; {self.do}"


@dataclass(frozen=True)
class Panel:
    """One panel. ``query`` is KQL that names all its values; ``line``: where the KQL begins in its file. ``problem``: why
    there is nothing to ask; then ``query`` is empty."""

    title: str
    query: str = ""
    description: str = ""
    chart: str = ""
    width: int = COLUMNS
    #: How the range of the page applies to the query. ``within``: every table is limited to it; ``until``: only its end
    #: is, so that the newest state before it is found; ``none``: not at all.
    range: str = "within"
    saved: str = ""
    #: Parameters of the query that follow the page's range: ``since`` is how far back it begins, ``step`` the width of a
    #: bin.
    ranged: tuple[str, ...] = ()
    file: Path | None = None
    line: int | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. ``range`` is used if the address has none; ``refresh_s``: seconds after which panels are asked again,
    0: never. ``origin``: who brought it."""

    name: str
    title: str
    file: Path
    description: str = ""
    range: str = "now-24h"
    refresh_s: int = 0
    panels: tuple[Panel, ...] = ()
    origin: str = "built in"
    problem: Problem | None = None
    problems: tuple[Problem, ...] = field(default=())
