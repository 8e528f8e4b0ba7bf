"""Lines as drivers, daemons, switches and jobs write them, with their heads: ``heldout.txt``.

The lines were written, and each was given its event, before the parser ran on them: they measure the catalogue where
the catalogue's own examples cannot. A heading ``# family`` opens a group; a line is ``event[/other event that is right
too] || name=value;name=value or - || the whole line as in a file``. Lines marked ``other`` are harmless near misses. No
line has a known source: all are recognised by their heads and words.
"""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from parsers.record import Origin
from tests.line_parser import line_parser


class Case(NamedTuple):
    events: tuple[str, ...]
    entities: dict[str, str]
    line: str


def heldout() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    family = ""
    for row in Path(__file__).with_name("heldout.txt").read_text(encoding="utf-8").splitlines():
        if row.startswith("# ") and " || " not in row:
            family = row[2:]
            continue
        events, entities, line = row.split(" || ", 2)
        named = {} if entities == "-" else dict(pair.split("=", 1) for pair in entities.split(";"))
        found[family].append(Case(tuple(events.split("/")), named, line))
    return found


def as_text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


CASES = heldout()


@pytest.mark.parametrize("family", sorted(CASES))
def test_heldout(family: str) -> None:
    cases = CASES[family]
    rows = line_parser().parse([case.line.encode() for case in cases], Origin(reference=datetime(2026, 6, 1)))
    wrong: list[tuple[Any, ...]] = []
    for case, event, text, job_id in zip(cases, rows["event"], rows["entities"], rows["job_id"], strict=True):
        got = {"job_id": job_id, **json.loads(text or "{}")}
        if event not in case.events:
            wrong.append((case.events, event, case.line))
        wrong += [
            (name, value, got.get(name), case.line)
            for name, value in case.entities.items()
            if as_text(got.get(name)) != value
        ]
    assert wrong == []


def test_there_is_as_much_harmless_as_harmful() -> None:
    """A catalogue that calls everything a failure must not pass: the near misses are half of the measurement."""
    harmless = sum(case.events == ("other",) for cases in CASES.values() for case in cases)
    assert harmless > 400
    assert sum(map(len, CASES.values())) - harmless > 700
