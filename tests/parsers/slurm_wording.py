"""In which releases of Slurm a message is worded so: read from the text in the daemons themselves.

    python tests/parsers/slurm_wording.py 22.05=FOLDER 24.11=FOLDER ...

FOLDER holds the unpacked packages of one release: slurmctld, slurmd (with slurmstepd), slurmdbd and the plugins. Writes
``slurm_wording.jsonl`` beside this file: one line for each message that the patterns understand, with our own values in
place of its ``%s`` and ``%u``, the daemon, the releases that hold its text, and what it is read as. Messages are found in
two ways: each text of a daemon with values put in, and each example of the catalogue.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from parsers.engine import LineParser
from parsers.pattern import GROUPS
from parsers.patterns import load
from parsers.record import Origin

TABLE = Path(__file__).with_name("slurm_wording.jsonl")
DAEMONS = ("slurmctld", "slurmd", "slurmstepd", "slurmdbd")
#: What they share: libslurmfull and the plugins. Any daemon may print it.
LIBRARY = "library"
#: Plugins whose text is the description of an interface, and no message.
_NO_MESSAGES = re.compile(r"data_parser|openapi|serializer|rest_auth|metrics")
#: A place in a format of C's printf, and of Slurm's own (%pJ, a job).
PLACE = re.compile(
    r"%(?:%|[-+ #0']*(?:\*|\d+)?(?:\.(?:\*|\d+)?)?(?:hh|h|ll|l|z|j|t|L)?(?:p[A-Za-z]|[diouxXeEfgGcspmMan]))"
)
#: The places of Slurm's own, first that a release has. Since 25.11 a job's id may be followed by its unique id.
_JOB_AND_SLUID = "JobId=901 SLUID=s4T0QG5KW8C400"
_OWN = {"J": "JobId=901", "S": "StepId=901.0", "s": "StepId=901.0", "A": "10.1.0.9:6818", "D": "fd:12"}
_NUMBERS = {"x": "1f", "X": "1f", "c": "s", "p": "0x7f", "m": "Permission denied", "M": "2026-01-02T03:04:05", "%": "%"}
#: What stands before a text -> what it may be, first that matches.
_TEXTS = (
    (r" event$", ("", "s")),
    (r"state set to(?: state)? $", ("DRAIN", "DOWN", "IDLE")),
    (r"(?i)(?:node|nodes|host|hosts|node\(s\)|nodelist|nodename)[ =:(\"'`]+$", ("gpu07",)),
    (r"(?i)\b(?:on|to|from|of|in|for) $", ("gpu07",)),
    (r"(?i)partition[ =(\"]*$", ("train",)),
    (r"/$|(?:file|path|program) $", ("/etc/x",)),
    (r"^JobId=901 (?:SLUID=\w+ )?$", ("prolog", "epilog")),
    (r"^\*\*\* $", ("STEP 901.0", "JOB 901")),
)
#: What a text says -> the name of the function that it begins with, where a pattern asks for it.
_FUNCTIONS = (
    (r"%p[JI] (?:done|WEXIT|WTERM|OOM|cancelled by)", "_job_complete"), (r"InitPrio", "_slurm_rpc_submit_batch_job"),
    (r"%pJ NodeList=%s %s|%pI NodeList=%s %s|JobId=%u NodeList=%s %s", "_slurm_rpc_allocate_resources"),
    (r"completion process took", "cleanup_completing"), (r"REQUEST_KILL_JOB", "_slurm_rpc_kill_job"),
    (r"exceeded deadline", "deadline_ok"), (r"^%s node=%s: %s", "_slurm_rpc_node_registration"),
    (r"^%s (?:failed )?for JobId=%u", "slurm_bb_data_in"), (r"Started %pJ", "_start_job"), (r"", "_func"),
)  # fmt: skip
#: What stands before the text of a log's line and is no part of the message.
_LEVEL = re.compile(r"^(?:error: |fatal: |debug\d?: +|sched: |slurmstepd: |slurmd: )+")
_FUNCTION = re.compile(r"^(?:_?[a-z][a-z0-9_]+: )+")
STAMP = "[2026-02-28T16:29:24.123] "


def values(place: str, before: str, text: str) -> tuple[str, ...]:
    """What may stand in a place of a message after ``before``; ``text``: all of it."""
    kind = place[-1]
    if len(place) > 2 and place[-2] == "p":
        return ("JobId=901", _JOB_AND_SLUID) if kind == "I" else (_OWN.get(kind, "gpu07"),)
    if kind in "diou":
        return ("901" if re.search(r"(?i)job(?:_?id)?[ =:]*$", before) else "7",)
    if kind == "s":
        if not before and text.startswith(("%s: ", "%s node=", "%s for JobId=%u failed", "%s failed for JobId=")):
            return (next(name for said, name in _FUNCTIONS if re.search(said, text)),)
        if text.startswith("%s=%s", text.find(before[-4:] + "%s=%s") + 4) and before.endswith(("on ", "from ")):
            return ("node(s)",)
        return next((texts for pattern, texts in _TEXTS if re.search(pattern, before)), ("abc",))
    return (_NUMBERS.get(kind, "1.5"),)


def lines_of(text: str) -> list[str]:
    """A daemon's text with values in its places."""
    lines, position = [""], 0
    for found in PLACE.finditer(text):
        between = text[position : found.start()]
        lines = [line + between + value for line in lines for value in values(found[0], line + between, text)]
        position = found.end()
    return [(line + text[position:]).replace("\n", " ").strip() for line in lines]


def texts_in(file: Path) -> list[bytes]:
    """The texts of a program or a library, each ends with a zero."""
    return [
        part for part in file.read_bytes().split(b"\0") if len(part) >= 8 and re.fullmatch(rb"[\x20-\x7e\t\n]+", part)
    ]


def read(folder: Path) -> dict[str, bytes]:
    """All texts of one release by daemon. A linker keeps a text that ends another one inside it."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.is_symlink():
            continue
        name = file.name.removesuffix("-wlm")
        if name in DAEMONS and file.parent.name == "sbin":
            found[name] += texts_in(file)
        elif ".so" in name and not _NO_MESSAGES.search(name):
            found[LIBRARY] += texts_in(file)
    return {name: b"\0".join(texts) + b"\0" for name, texts in found.items()}


def is_message(text: str) -> bool:
    """Whether a text may be a log's message."""
    return (
        " " in text.strip() and re.search(r"[A-Za-z]{3}", text) is not None and len(text) < 400
        and not re.match(r"(?i)(?:select|insert|update|delete|alter|create|drop) .*(?:from|into|set|table)\b|[{<]", text)
    )  # fmt: skip


@cache
def form_of(text: str) -> tuple[str, re.Pattern[str]] | None:
    """The longest fixed part of a text, and what matches its lines; None if too little of it is fixed."""
    parts = [part.replace("%%", "%") for part in PLACE.split(text)]
    longest = max(parts, key=len).strip("\n")
    if sum(len(re.findall(r"[A-Za-z]", part)) for part in parts) < 4 or len(longest.strip()) < 4:
        return None
    return longest, re.compile(r"(?s)\s*" + ".+?".join(re.escape(part.replace("\n", " ")) for part in parts) + r"\s*")


def bodies(line: str) -> Iterator[str]:
    """A line's message with and without the name of the function that Slurm puts before it."""
    body = _LEVEL.sub("", line)
    yield body
    if (shorter := _FUNCTION.sub("", body)) != body:
        yield shorter


class Releases:
    """The texts of some releases."""

    def __init__(self, folders: dict[str, Path]) -> None:
        blobs = {release: read(folder) for release, folder in folders.items()}
        self.texts: dict[str, dict[str, list[str]]] = {}
        for daemon in (*DAEMONS, LIBRARY):
            every = {text for blob in blobs.values() for text in blob.get(daemon, b"").split(b"\0") if text}
            self.texts[daemon] = {
                text.decode(): [release for release, blob in blobs.items() if text + b"\0" in blob.get(daemon, b"")]
                for text in sorted(every) if is_message(text.decode())
            }  # fmt: skip

    def with_line(self, line: str) -> dict[str, set[str]]:
        """The releases that hold the text of a line, by daemon."""
        found: dict[str, set[str]] = defaultdict(set)
        wanted = list(bodies(line))
        for daemon, texts in self.texts.items():
            for text, releases in texts.items():
                form = form_of(text)
                if form and form[0].replace("\n", " ") in line and any(form[1].fullmatch(body) for body in wanted):
                    found[daemon] |= set(releases)
        return found


def understood(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str, str, str]]:
    """Of lines by daemon: those that the catalogue gives a meaning, as (daemon, line, written, event). A text does not say its
    level: a line is written as an error if it means nothing as information."""
    catalogue, found = load(), []
    for daemon, line in lines:
        source = "slurmctld" if daemon == LIBRARY else daemon
        for written in (line, f"error: {line}", f"sched: {line}"):
            best = catalogue.match(written, source)
            if best is not None and best[0].event != "other":
                found.append((daemon, line, written, best[0].event))
                break
    return found


def parse(daemon: str, line: str, parser: LineParser) -> tuple[str, dict[str, Any]]:
    """What a daemon's line is read as: event and entities."""
    origin = Origin(source="slurmctld" if daemon == LIBRARY else daemon, reference=datetime(2026, 6, 1))
    row = parser.parse([(STAMP + line).encode()], origin).to_dicts()[0]
    return row["event"], {"job_id": row["job_id"], **json.loads(row["entities"] or "{}")}


def examples() -> Iterator[tuple[str, str]]:
    """The examples of the catalogue's patterns for Slurm's daemons."""
    for entry in load().entries:
        if (
            entry.sources
            and entry.sources & {*GROUPS["slurm"]}
            and entry.event.startswith(("slurm.", "sys.clock", "job.mpi"))
        ):
            yield from ((example.source or "slurmctld", example.text) for example in entry.examples)


def table(releases: Releases) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows, and the examples whose text none of the releases holds."""
    made: dict[tuple[str, str], set[str]] = defaultdict(set)
    for daemon, texts in releases.texts.items():
        for text, holding in texts.items():
            for line in lines_of(text) if form_of(text) else ():
                made[daemon, line] |= set(holding)
    rows: dict[str, dict[str, Any]] = {}
    parser = LineParser()
    unseen = []
    for line in dict.fromkeys(text for _, text in examples()):
        seen = releases.with_line(line)
        if not any(seen.values()):
            unseen.append(line)
    for daemon, original, line, event in understood(made):
        got, entities = parse(daemon, line, parser)
        if got != event:
            continue
        row = rows.setdefault(
            line,
            {
                "daemons": {},
                "event": event,
                "entities": {k: v for k, v in entities.items() if v is not None},
                "line": line,
            },
        )
        row["daemons"][daemon] = sorted({*row["daemons"].get(daemon, ()), *made[daemon, original]})
    return [rows[line] for line in sorted(rows, key=lambda line: (rows[line]["event"], line))], unseen


def main() -> None:
    folders = dict(one.split("=", 1) for one in sys.argv[1:])
    rows, unseen = table(Releases({release: Path(folder) for release, folder in folders.items()}))
    TABLE.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    print(len(rows), "messages;", len(unseen), "examples whose text is in none of them:")
    print("\n".join(unseen))


if __name__ == "__main__":
    main()
