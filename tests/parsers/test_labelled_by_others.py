"""Lines that somebody wrote and labelled who had not read the parser (2026-11-28 and -30; labels first). Of the first 289, 254 were
read as labelled before anything was changed for them, of 458 of the second day 433, of 521 of that day's evening 460; most of the others
are matters of opinion, or words that no program writes (28 of the evening's are left out for that). Lines of the family
``harmless``, and those of the evening with the event ``other``, look like a fault and are none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parsers.record import Origin
from tests.line_parser import line_parser

#: Syslog files say what their lines are; others are known by their place.
_OF_PLACE = ("job_stdout", "slurmctld", "slurmd", "slurmdbd", "kernel", "switch", "fabricmanager", "opensm")
#: By family: lines and those that are read as labelled.
EXPECTED = {
    "labelled_by_others": {
        "gpu": (28, 27), "job_output": (55, 47), "kernel": (57, 57), "services": (27, 22), "slurm": (48, 41), "storage": (32, 31), "switch": (42, 39),
    },
    "labelled_again": {
        "gpu": (29, 29), "harmless": (340, 340), "job_output": (58, 58), "kernel": (95, 95), "network": (42, 42), "services": (37, 37), "slurm": (94, 94),
        "storage": (14, 14), "switch": (42, 42),
    },
    "labelled_third": {
        "amd_intel": (38, 38), "bmc": (48, 47), "cloud": (37, 31), "infiniband": (50, 49), "job": (50, 50), "kernel": (46, 46), "nic": (44, 44),
        "nvidia": (44, 44), "slurm": (44, 44), "storage": (55, 55), "switch": (55, 55), "system": (58, 50),
    },
}  # fmt: skip


def events_of(kind: str, texts: list[str]) -> list[str]:
    """The events of lines from one kind of source."""
    origin = Origin(path="x")
    if kind in _OF_PLACE:
        origin = origin.but(source=kind, job_id=7 if kind == "job_stdout" else None)
    return line_parser().parse([text.encode() for text in texts], origin)["event"].to_list()


@pytest.mark.parametrize("name", EXPECTED)
def test_lines_that_a_second_party_labelled(name: str) -> None:
    cases: list[dict[str, Any]] = [
        json.loads(line) for line in Path(__file__).with_name(f"{name}.jsonl").read_text("utf-8").splitlines()
    ]
    lines, right = Counter[str](), Counter[str]()
    for kind in {one["source_kind"] for one in cases}:
        found = [one for one in cases if one["source_kind"] == kind]
        for one, event in zip(found, events_of(kind, [one["line"] for one in found]), strict=True):
            lines[one["family"]] += 1
            right[one["family"]] += event in (one["expected"]["event"], *one.get("also", ()))
    assert {family: (lines[family], right[family]) for family in sorted(lines)} == EXPECTED[name]
