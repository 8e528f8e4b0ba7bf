"""What the drivers, daemons and libraries of many versions write, and what it means: ``spellings.txt``.

Each line is ``event|writer|text``, written from the formats in their sources; ``other`` lines are near misses.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pytest

from parsers.engine import LineParser
from parsers.record import Origin

#: Writer -> (the prefix of its text, the source of its files).
WRITERS = {
    "kernel": ("Feb 28 16:29:24 n1 kernel: ", None), "syslog": ("Feb 28 16:29:24 n1 healthagent[9]: ", None), "ctld": ("[2026-02-28T16:29:24.123] ", "slurmctld"),
    "slurmd": ("[2026-02-28T16:29:24.123] ", "slurmd"), "job": ("", "job_stdout"), "switch": ("<189>Feb 28 16:29:24 sw1 Ebra: ", "switch"), "raw": ("", None),
}  # fmt: skip


def spellings() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in Path(__file__).with_name("spellings.txt").read_text(encoding="utf-8").splitlines():
        event, writer, text = line.split("|", 2)
        found[writer].append((event, text))
    return found


@pytest.mark.parametrize("writer", sorted(WRITERS))
def test_spellings(writer: str) -> None:
    front, source = WRITERS[writer]
    cases = spellings()[writer]
    assert len(cases) > 10
    rows = LineParser().parse(
        [(front + text).encode() for _, text in cases], Origin(source=source, reference=datetime(2026, 6, 1))
    )
    wrong = [(event, got, text) for (event, text), got in zip(cases, rows["event"], strict=True) if got != event]
    assert wrong == []
