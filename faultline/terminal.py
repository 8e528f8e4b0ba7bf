"""Output of commands for people: tables, the story of one job, folded node lists. JSON for machines is elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from faultline import why_text
from faultline.printing import exact
from faultline.why_text import short_time
from parsers.visible import visible


class Console(RichConsole):
    """Colours and layout are ours; the text is untrusted."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def console() -> Console:
    """Colours on a terminal, plain text in a pipe, and never a wrapped log line there."""
    return Console(file=exact(sys.stdout), highlight=False, soft_wrap=not sys.stdout.isatty())


def errors() -> Console:
    return Console(file=exact(sys.stderr), highlight=False, soft_wrap=True)


def table(columns: list[str], rows: list[list[Any]], right: tuple[str, ...] = ()) -> None:
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    rows = [["" if value is None else visible(str(value), lines=False) for value in row] for row in rows]
    for row in rows:
        made.add_row(*(Text(value) for value in row))
    if sys.stdout.isatty():
        console().print(made)
        return
    cells = [columns, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def incidents(found: dict[str, Any]) -> None:
    rows = [
        [i["id"], i["severity"], short_time(i["start"]), i["root_cause"]["event"], i["root_cause"]["host"], i["root_cause"]["device"],
         ",".join(j["job_id"] for j in i["jobs"]), i["title"]]
        for i in found["incidents"]
    ]  # fmt: skip
    if not rows:
        print("No incidents.")
        return
    if sys.stdout.isatty():
        for row in rows:
            _incident(console(), *row)
        return
    table(["incident", "severity", "start (UTC)", "cause", "host", "device", "jobs", "what happened"], rows)


#: Most devices of an incident named in the list.
NAMED = 4
SEVERITY_STYLE = {"impact": "red", "degraded": "yellow"}


def _incident(out: Console, name: str, severity: str, start: str, event: str | None, host: str | None, device: str | None,
              _jobs: str, title: str) -> None:  # fmt: skip
    """The key facts in one line, then the sentence, which names the jobs: eight columns would be a word wide each."""
    head = Text(f"{name}  ")
    head.append(f"{severity:<8}", style=SEVERITY_STYLE.get(severity, "dim"))
    where = " ".join(part for part in (host, _few(device)) if part)
    head.append(f"  {start[:19]}  {event or 'cause unknown'}" + (f" on {where}" if where else ""))
    out.print(head)
    out.print(Padding(Text(title, style="dim"), (0, 0, 0, 4)))


def _few(joined: str | None) -> str:
    """Names joined by commas: the first few, and the number of the rest."""
    names = (joined or "").split(",")
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ",".join(names[:NAMED]) + more


class Styled:
    """The console as ``why_text`` writes to it."""

    def __init__(self) -> None:
        self._console = console()

    @property
    def columns(self) -> int | None:
        return self._console.width if sys.stdout.isatty() else None

    def line(self, *parts: tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)  # broken already, or to be copied unbroken


def why(
    key: str, verdict: dict[str, Any], incident: dict[str, Any] | None, differs: dict[str, Any] | None = None,
    slowed: Sequence[Mapping[str, Any]] = (),
) -> None:  # fmt: skip
    """The story of one job."""
    why_text.why(Styled(), key, verdict, incident, differs, slowed)
