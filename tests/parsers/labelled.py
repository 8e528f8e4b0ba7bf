"""How well labelled lines are parsed: events, false alarms, entities, syslog headers.

    python tests/parsers/labelled.py [FOLDER]

FOLDER holds ``*.jsonl`` files of ``{"id", "line", "expected": {"event", "entities"}}``; default
``../shared/data/lines`` beside the repository. Prints a table per file, the confusion table of events, and every
difference. Each line is parsed alone: no line may need its neighbours.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from parsers.engine import LineParser
from parsers.formats.base import FACILITIES, SEVERITIES
from parsers.record import Origin

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "lines"
#: The lines' years are inferred as if they were read then.
REFERENCE = datetime(2026, 11, 21)
#: The labels' names of header shapes -> our formats.
_SHAPES = {
    "rfc3164": "rfc3164", "rfc3164+iso": "rfc3164", "rfc3164-aix": "rfc3164", "cisco": "rfc3164", "rfc5424": "rfc5424",
    "rfc5424-no-pri": "rfc5424", "rfc5424-lenient": "rfc5424", "invalid": "plain", "journald-json": "journald",
    "json-wrapped-rfc3164": "json", "tai64n": "tai64n",
}  # fmt: skip
#: Labels that we consider wrong or that no parser of the single line could produce, with the reason.
DISPUTED = {
    "nxos/ios": "the label names two systems; the line is NX-OS's and we say so",
    "sonic": "FRR writes this line on every system it runs on; nothing in it says SONiC",
    "gw2.fin1": "the line's host is re0-gw2.fin1; elsewhere the labels keep such a host and put the device into host_norm, as we do",
}


@dataclass
class Score:
    """The counts; differences as (id, name, wanted, got)."""

    lines: int = 0
    right: int = 0
    others: int = 0
    false_alarms: int = 0
    entities: int = 0
    entities_right: int = 0
    headers: int = 0
    headers_right: int = 0
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: list[tuple[str, str, Any, Any]] = field(default_factory=list)

    def add(self, other: Score) -> None:
        for name in (
            "lines",
            "right",
            "others",
            "false_alarms",
            "entities",
            "entities_right",
            "headers",
            "headers_right",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.confusion += other.confusion
        self.differences += other.differences


def cases(file: Path) -> Iterator[dict[str, Any]]:
    for text in file.read_text(encoding="utf-8").splitlines():
        case = json.loads(text)
        if "expected" in case:
            yield case


def _header_value(name: str, row: dict[str, Any], entities: dict[str, Any]) -> Any:
    """Our value where a label has ``name``, in the label's terms."""
    since = row["time"] - datetime(1970, 1, 1) if row["time"] else timedelta()
    values = {
        "host": row["host"], "app": row["unit"], "msg": row["message"] or None,
        "facility_num": FACILITIES.index(row["facility"]) if row["facility"] else None,
        "severity_num": SEVERITIES.index(row["severity"]) if row["severity"] else None,
        "pid": str(row["pid"]) if row["pid"] is not None else entities.get("pid"),
        "year": row["time"] and row["time"].year, "month": row["time"] and row["time"].month,
        "epoch_ms": since // timedelta(milliseconds=1), "timestamp_us": since // timedelta(microseconds=1),
        "timestamp_local": row["time"] and row["time"].isoformat(timespec="milliseconds"),
    }  # fmt: skip
    return values[name] if name in values else entities.get(name)


def _score_header(case: dict[str, Any], row: dict[str, Any], entities: dict[str, Any], score: Score) -> None:
    for name, wanted in case["expected"]["entities"].get("header", {}).items():
        if name == "inner":
            continue
        if name == "fmt":
            wanted, got = _SHAPES[wanted], row["format"]
            if wanted == "plain":  # stored whole, and flagged
                got = got if row["tags"] and row["raw"] == case["line"] else "not flagged"
        else:
            got = _header_value(name, row, entities)
            wanted = wanted or None if name == "msg" else wanted
        score.headers += 1
        score.headers_right += got == wanted
        if got != wanted:
            score.differences.append((case["id"], f"header.{name}", wanted, got))


def score_file(file: Path, parser: LineParser) -> Score:
    score = Score()
    for case in cases(file):
        row = parser.parse([case["line"].encode()], Origin(reference=REFERENCE)).row(0, named=True)
        entities = json.loads(row["entities"] or "{}")
        wanted = case["expected"]["event"]
        score.lines += 1
        score.right += row["event"] == wanted
        score.others += wanted == "other"
        score.false_alarms += wanted == "other" and row["event"] != "other"
        score.confusion[wanted, row["event"]] += 1
        if row["event"] != wanted:
            score.differences.append((case["id"], "event", wanted, row["event"]))
        for name, value in case["expected"].get("entities", {}).items():
            if name != "header":
                score.entities += 1
                score.entities_right += str(entities.get(name)) == str(value)
                if str(entities.get(name)) != str(value):
                    score.differences.append((case["id"], name, value, entities.get(name)))
        if "header" in case["expected"].get("entities", {}):
            _score_header(case, row, entities, score)
    return score


def share(part: int, whole: int) -> str:
    return f"{part}/{whole} {part / whole:.4f}" if whole else "-"


def main(folder: Path) -> int:
    parser = LineParser(header_entities=True)
    total = Score()
    print(f"{'file':28} {'events':>16} {'false alarms':>16} {'entities':>18} {'headers':>16}")
    for file in sorted(folder.glob("*.jsonl")):
        score = score_file(file, parser)
        if score.lines:
            total.add(score)
            _print_row(file.name, score)
    _print_row("all", total)
    print("\nconfusion (wanted -> got, where they differ or occur often)")
    for (wanted, got), count in total.confusion.most_common():
        print(f"{count:6} {wanted:28} -> {got}{'' if wanted == got else '   <- wrong'}")
    print("\ndifferences (id, what, wanted, got, why we think the label is wrong)")
    for identity, name, wanted, got in total.differences:
        print(f"  {identity} {name}: {wanted!r} / {got!r}  {DISPUTED.get(str(wanted), '')}")
    return 0 if total.right == total.lines else 1


def _print_row(name: str, score: Score) -> None:
    print(
        f"{name:28} {share(score.right, score.lines):>16} {share(score.false_alarms, score.others):>16} "
        f"{share(score.entities_right, score.entities):>18} {share(score.headers_right, score.headers):>16}"
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
