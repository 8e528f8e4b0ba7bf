"""``faultline trace LINE_ID``: one line's way, from the moment it tells of to the verdicts that cite it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from faultline.backends import Backend
from faultline.failure import CommandError
from faultline.terminal import console
from parsers.engine import LineParser
from parsers.patterns import load
from parsers.record import Origin
from parsers.visible import visible

#: What can have written a line, by its authority (parsers/writers.py), in words.
_WRITERS = {
    "kernel": "the kernel, by its own ring", "daemon": "a daemon, by its own file or the journal's trusted fields", "device": "a switch or another device",
    "root": "root of that host", "local": "any user of that host", "job": "the job's user", "network": "anybody who reaches the port",
    "unverified": "nothing shows who",
}  # fmt: skip
Row = dict[str, Any]


def show(backend: Backend, line_id: str, form: str) -> None:
    """Prints the answer as ``form``: text or json. Raises ``CommandError`` for a line that is not stored."""
    found = about(backend, line_id)
    if form == "json":
        print(json.dumps(found, indent=1, sort_keys=True))
    else:
        _print(found)


def about(backend: Backend, line_id: str) -> Row:
    """The line's way. ``line_id``: FILE:LINE as pages and ``why`` print it, or the id of an event.

    ``times``: when it was written (by its own clock), received, and known; ``read``: how it was read, in sentences;
    ``event``, ``incidents`` and ``verdicts``: what was made of it. What is not known is null.
    """
    conclusions = backend.result()
    file, number = _place(line_id, conclusions)
    row = backend.line(file, number)
    if row is None:
        raise CommandError(f"{line_id}: no line {number} of {file} is stored; faultline sources lists the files")
    cited = [one for one in _events(conclusions) if _is_of(one[2], file, number)]
    event = next((entry for _, _, entry in cited), None)
    return {
        "id": f"{file}:{number}", "file": file, "line": number, "raw": row["raw"], "message": row["message"],
        "times": {
            "event": row["time"], "quality": row["time_quality"], "received": row["received_time"],
            "clock_offset_s": event["clock_offset_s"] if event else None,
        },
        "from": {name: row[name] for name in ("cluster", "host", "source", "unit", "job_id")},
        "authority": row["authority"] or None, "read": _explained(row),
        "event": None if row["event"] in (None, "", "other") else {"type": row["event"], "id": event["id"] if event else None},
        "incidents": [{"id": name, "role": entry["role"]} for kind, name, entry in cited if kind == "incident"],
        "verdicts": [{"job_id": name, "role": entry["role"]} for kind, name, entry in cited if kind == "verdict"],
    }  # fmt: skip


def _place(line_id: str, conclusions: Mapping[str, Any]) -> tuple[str, int]:
    file, _, number = line_id.rpartition(":")
    if file and number.isascii() and number.isdigit():
        return file, int(number)
    for _, _, event in _events(conclusions):
        if event["id"] == line_id and event.get("line") is not None:
            return str(event["source"]), int(event["line"])
    raise CommandError(f"{line_id}: neither FILE:LINE nor the id of an event that an incident or a verdict cites")


def _events(conclusions: Mapping[str, Any]) -> Iterator[tuple[str, str, Row]]:
    """Every line that is cited: by what ("incident" or "verdict"), by which, and the event."""
    for incident in conclusions["incidents"]:
        yield from (("incident", incident["id"], event) for event in incident["events"])
    for name, verdict in conclusions["verdicts"].items():
        yield from (("verdict", name, event) for event in verdict.get("evidence") or ())


def _is_of(event: Mapping[str, Any], file: str, number: int) -> bool:
    """Is the line the event's, or a copy of it?"""
    places = [(event["source"], event["line"]), *((copy["source"], copy["line"]) for copy in event.get("also") or ())]
    return (file, number) in places


def _explained(row: Mapping[str, Any]) -> list[str]:
    """How the present parser reads the line alone; one of a block, or of a file with a header of its own, may differ."""
    origin = Origin(path=row["file"], host=row["host"], source=row["source"], timezone="UTC", timezone_known=True)
    return LineParser(load([]), header_entities=True).explain(str(row["raw"] or row["message"] or "").encode(), origin)


def _print(found: Row) -> None:
    times, place = found["times"], found["from"]
    _line(f"{found['id']}  {found['raw'] or found['message']}")
    _line(f"  written    {times['event'] or 'at no known time'} ({times['quality'] or 'quality not known'})")
    if times["clock_offset_s"]:
        _line(f"             its host's clock was {times['clock_offset_s']:+.3f} s off; the event was moved by that")
    _line(f"  received   {times['received'] or 'not by a service: read from a file afterwards'}")
    where = [f"{name} {place[name]}" for name in ("cluster", "host", "source", "unit") if place[name]]
    _line(
        f"  of         {', '.join(where) or 'nobody known'}" + (f", job {place['job_id']}" if place["job_id"] else "")
    )
    _line(
        f"  authority  {found['authority'] or 'not known'}: {_WRITERS.get(found['authority'] or '', 'nothing shows who')} can have written it"
    )
    for at, text in enumerate(found["read"]):
        _line(f"  {'read' if not at else '':<9}  {text}")
    event = found["event"]
    _line(f"  event      {event['type'] if event else 'none'}" + (f" ({event['id']})" if event and event["id"] else ""))
    for one in found["incidents"]:
        _line(f"  cited by   incident {one['id']}, as {one['role']}")
    for one in found["verdicts"]:
        _line(f"  cited by   the verdict on job {one['job_id']}, as {one['role']}")
    if not found["incidents"] and not found["verdicts"]:
        _line("  cited by   nothing")


def _line(text: str) -> None:
    """A line whose text is untrusted: no markup of the console's is read in it."""
    console().print(visible(text), markup=False, soft_wrap=True)
