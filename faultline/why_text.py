"""The story of one job, as text: the verdict and what to do, the chain with its raw lines, the rivals.

Standard library only: the bare package prints it too. ``faultline.terminal`` adds colours.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from correlator.model.certainty import asks_for, stated
from correlator.model.slowdown import sentence
from parsers.writers import in_words

#: Lines shown at the beginning and at the end of a long event.
BLOCK_LINES = 4


class Out(Protocol):
    """Where the story goes. The text is untrusted: whoever prints it escapes what controls a terminal."""

    @property
    def columns(self) -> int | None:
        """The width of the terminal; None in a pipe, where a paragraph is one line."""

    def line(self, *parts: tuple[str, str]) -> None:
        """Prints a line of texts with their styles ("", "bold", "dim", "cyan")."""


def without_verdict(key: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """One sentence about a job without a verdict. ``runs``: each with ``run_key`` and ``state``.

    >>> without_verdict("15", [{"run_key": "15", "state": "COMPLETED"}])
    'Job 15 needs no explanation: 15 COMPLETED.'
    >>> without_verdict("15", [{"run_key": "15", "state": None}])
    'Job 15 has not ended, by what has arrived; accounting may be a minute behind.'
    """
    if not any(run["state"] for run in runs):
        return f"Job {key} has not ended, by what has arrived; accounting may be a minute behind."
    states = ", ".join(f"{run['run_key']} {run['state'] or 'not ended'}" for run in runs)
    return f"Job {key} needs no explanation: {states}."


def slowed_in_words(slowed: Sequence[Mapping[str, Any]]) -> list[str]:
    """What made a job slower (``slowed`` of the API), a sentence each; times are UTC."""
    return [
        sentence(one, short_time(one["start"])[:19] or None, f"{short_time(one['end'])[:19]} UTC" if one["end"] else None)
        for one in slowed
    ]  # fmt: skip


def why(
    out: Out, key: str, verdict: dict[str, Any], incident: dict[str, Any] | None, differs: dict[str, Any] | None = None,
    slowed: Sequence[Mapping[str, Any]] = (),
) -> None:  # fmt: skip
    """The verdict and what to do, the chain with raw lines, and the rivals: most important first. ``differs``: what was
    otherwise in the last run that ended well (``since_last_good`` of the API). ``slowed``: what made it slower before."""
    say(out, f"Job {key}: {verdict['headline']}", style="bold")
    say(out, verdict["summary"])
    for text in slowed_in_words(slowed):
        say(out, text)
    certainty = stated(verdict["category"], verdict["confidence"])
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
        heading(out, "What it rests on")
        for event in verdict["evidence"]:
            line(out, event)
    listing(out, "Grounds", verdict["grounds"])
    listing(out, "Rivals rejected", [f"{r['cause']}: {r['rejected']}" for r in verdict["rivals"]])
    listing(out, "Not known", verdict["doubts"])
    if differs:
        more = [f"and {differs['more']} more"] if differs["more"] else []
        title = f"Otherwise than in {differs['run']}, the last run of this name that ended well (context, no cause)"
        listing(out, title, [*differs["sentences"], *more])
    out.line()
    say(out, f"{asks_for(verdict['category'])}: {verdict['change_my_mind']}", style="dim")


def chain(out: Out, hops: list[dict[str, Any]], events: dict[str, dict[str, Any]]) -> None:
    """Cause and effect in order, each with its raw line; between them the lag, its limit, and the reason."""
    heading(out, "Chain of evidence")
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


def say(out: Out, text: str, indent: int = 0, hang: int | None = None, style: str = "") -> None:
    """Prints a paragraph. On a terminal its further lines are indented by ``hang`` (default: like the first); in a pipe
    it is one line."""
    if out.columns is None:
        out.line((" " * indent + text, style))
        return
    further = " " * (indent if hang is None else hang)
    text = textwrap.fill(
        text, out.columns, initial_indent=" " * indent, subsequent_indent=further, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    out.line((text, style))


def line(out: Out, event: dict[str, Any]) -> None:
    """Time and place, the text, the location of the raw line (on the first line if the terminal has room), and who can
    have written it."""
    place = f"{event['source']}:{event['line']}" if event["line"] else str(event["source"])
    head = f"  {short_time(event['time'])[11:]}  {event['host'] or '-':<8} {event['event']}"
    beside = out.columns is not None and len(head) + 3 + len(place) <= out.columns
    out.line((head, ""), (f"   {place}" if beside else "", "dim"))
    for text in _event_lines(event):
        out.line((f"     {text}", ""))  # the terminal wraps it, so that copying does not break it
    by = in_words(event.get("authority"), event["host"])
    if below := "; ".join(part for part in ("" if beside else place, by) if part):
        out.line((f"     {below}", "dim"))


def advised(out: Out, advice: list[dict[str, Any]]) -> None:
    """The advice; a command is alone on its line, unbroken, so that it can be copied."""
    if advice:
        heading(out, "What to do")
    for item in advice:
        say(out, f"- {item['text']}", 2, 4)
        if item["command"]:
            out.line((f"      {item['command']}", ""))


def heading(out: Out, text: str) -> None:
    out.line((f"\n{text}", "bold"))


def listing(out: Out, title: str, rows: list[str]) -> None:
    if rows:
        heading(out, title)
        for row in rows:
            say(out, f"- {row}", 2, 4)


def short_time(text: str | None) -> str:
    return "" if text is None else text.replace("T", " ")[:23]


def _measured(hop: dict[str, Any], end: str) -> str:
    """A link of the chain without a line: it was measured or inferred."""
    when = str(hop.get("effect_time") or "")[11:23] if end == "effect" else ""
    host = hop.get("effect_host") if end == "effect" else ""
    words = hop.get(f"{end}_says") or hop.get(f"{end}_fact")
    return "  ".join(part for part in (when, host, f"{words} (measured, not logged)") if part)


def _length(seconds: float) -> str:
    """Seconds in a readable form: long windows in days."""
    return f"{seconds / 86400:g} days" if abs(seconds) >= 172800 else f"{seconds:g} s"


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
