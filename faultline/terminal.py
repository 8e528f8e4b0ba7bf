"""Output of commands for people: tables, the story of one job, folded node lists. JSON for machines is elsewhere."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from faultline.printing import exact
from parsers.visible import visible
from parsers.writers import in_words

#: Lines shown at the beginning and at the end of a long event.
BLOCK_LINES = 4


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


def short_time(text: str | None) -> str:
    return "" if text is None else text.replace("T", " ")[:23]


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


def _measured(hop: dict[str, Any], end: str) -> str:
    """A link of the chain without a line: it was measured or inferred."""
    when = str(hop.get("effect_time") or "")[11:23] if end == "effect" else ""
    host = hop.get("effect_host") if end == "effect" else ""
    words = hop.get(f"{end}_says") or hop.get(f"{end}_fact")
    return "  ".join(part for part in (when, host, f"{words} (measured, not logged)") if part)


def _length(seconds: float) -> str:
    """Seconds in a readable form: long windows in days."""
    return f"{seconds / 86400:g} days" if abs(seconds) >= 172800 else f"{seconds:g} s"


def why(key: str, verdict: dict[str, Any], incident: dict[str, Any] | None) -> None:
    """The verdict and what to do, the chain with raw lines, and the rivals: most important first."""
    out = console()
    say(out, f"Job {key}: {verdict['headline']}", style="bold")
    say(out, verdict["summary"])
    certainty = f"{verdict['category']}, confidence {verdict['confidence']:.2f}"
    place = f", incident {incident['id']}" if incident else ""
    waits = "; ".join(verdict.get("waits_for") or ["while lines arrive"])
    say(
        out,
        f"{certainty}{place}, {'final' if verdict['final'] else f'provisional: it may change {waits}'}",
        style="dim",
    )
    advised(out, verdict["advice"])
    events = {e["id"]: e for e in [*(incident["events"] if incident else ()), *verdict["evidence"]]}
    if verdict["chain"]:
        chain(out, verdict["chain"], events)
    elif verdict["evidence"]:
        out.print(Text("\nWhat it rests on", style="bold"))
        for event in verdict["evidence"]:
            line(out, event)
    listing(out, "Grounds", verdict["grounds"])
    listing(out, "Rivals rejected", [f"{r['cause']}: {r['rejected']}" for r in verdict["rivals"]])
    listing(out, "Not known", verdict["doubts"])
    print()
    say(out, f"What would change this verdict: {verdict['change_my_mind']}", style="dim")


def chain(out: Console, hops: list[dict[str, Any]], events: dict[str, dict[str, Any]]) -> None:
    """Cause and effect in order, each with its raw line; between them the lag, its limit, and the reason."""
    out.print(Text("\nChain of evidence", style="bold"))
    shown: set[str] = set()
    for step, hop in enumerate(hops):
        for end in ("cause", "effect"):
            if end == "effect":
                low, high = hop["window_s"]
                reason = f" from {hop['because']}" if hop["because"] else ""
                window = f"allowed {_length(low)} to {_length(high)}{reason}"
                say(out, f"{hop['edge']}: {hop['lag_s']:+.3f} s, {window}", 5, style="cyan")
                say(out, hop["text"], 5, style="dim")
            event = events.get(hop[end] or "")
            if event is not None and event["id"] not in shown:
                shown.add(event["id"])
                line(out, event)
            elif event is None and (end == "effect" or step == 0):
                say(out, _measured(hop, end), 2)


def say(out: Console, text: str, indent: int = 0, hang: int | None = None, style: str = "") -> None:
    """Prints a paragraph. On a terminal its further lines are indented by ``hang`` (default: like the first); in a pipe
    it is one line."""
    if sys.stdout.isatty():
        further = " " * (indent if hang is None else hang)
        text = textwrap.fill(
            text, out.width, initial_indent=" " * indent, subsequent_indent=further, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        out.print(Text(text, style=style), soft_wrap=True)
    else:
        out.print(Text(" " * indent + text, style=style))


def line(out: Console, event: dict[str, Any]) -> None:
    """Time and place, the text, the location of the raw line (on the first line if the terminal has room), and who can
    have written it."""
    place = f"{event['source']}:{event['line']}" if event["line"] else str(event["source"])
    head = f"  {short_time(event['time'])[11:]}  {event['host'] or '-':<8} {event['event']}"
    beside = sys.stdout.isatty() and len(head) + 3 + len(place) <= out.width
    out.print(Text.assemble(head, (f"   {place}" if beside else "", "dim")))
    for text in _event_lines(event):
        out.print(Text(f"     {text}"), soft_wrap=True)  # the terminal wraps it, so that copying does not break it
    by = in_words(event.get("authority"), event["host"])
    if below := "; ".join(part for part in ("" if beside else place, by) if part):
        out.print(Text(f"     {below}", style="dim"), soft_wrap=True)


def advised(out: Console, advice: list[dict[str, Any]]) -> None:
    """The advice; a command is alone on its line, unbroken, so that it can be copied."""
    if advice:
        out.print(Text("\nWhat to do", style="bold"))
    for item in advice:
        say(out, f"- {item['text']}", 2, 4)
        if item["command"]:
            out.print(Text(f"      {item['command']}"), soft_wrap=True)


def _event_lines(event: dict[str, Any]) -> list[str]:
    """The text of an event; for a long block its beginning and its end, and always its own line."""
    rows = event.get("lines") or []
    if not rows:
        return [event["message"]]
    own = next((place for place, row in enumerate(rows) if row["line"] == event["line"]), 0)
    shown = [p for p in range(len(rows)) if p < BLOCK_LINES or p >= len(rows) - BLOCK_LINES or abs(p - own) <= 1]
    lines: list[str] = []
    for before, place in zip([-1, *shown], shown, strict=False):
        if place > before + 1:
            lines.append(f"... {place - before - 1} lines")
        lines.append(rows[place]["text"].rstrip())
    return lines


def listing(out: Console, heading: str, rows: list[str]) -> None:
    if rows:
        out.print(Text(f"\n{heading}", style="bold"))
        for row in rows:
            say(out, f"- {row}", 2, 4)
