"""Lines in, rows out: nothing lost, nothing raised, and a batch is nothing but its lines."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import labelled
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.engine import LineParser
from parsers.lines import split
from parsers.patterns import Catalogue, load
from parsers.record import LOGS, Origin
from tests.examples import examples

ORIGIN = Origin(host="n1", reference=datetime(2026, 6, 1), received=datetime(2026, 6, 1))
PARSER = LineParser(header_entities=True)
SEEDS = [
    b"<34>1 2026-01-01T00:00:00Z h app 1 - - x", b"Jan  1 00:00:00 h kernel: [1.5] eth0: link down", b"[2026-01-01T00:00:00.1] [7.0] error: x",
    b'{"MESSAGE": "x", "PRIORITY": "3"}', b"6,1,2,-;text", b"<189>: 2026 Jan 1 00:00:00 UTC: %X-1-Y: z", b"[  1.0] a", b"[99] x", b"",
]  # fmt: skip
LINE = st.one_of(st.binary(max_size=80).map(lambda b: b.replace(b"\n", b"")), st.sampled_from(SEEDS))


def parse(*lines: bytes, **changes: object) -> pl.DataFrame:
    return PARSER.parse(list(lines), ORIGIN.but(**changes))


def test_catalogue_is_sound() -> None:
    assert [str(problem) for problem in load().check()] == []


def test_entries_are_found_by_how_their_literals_begin() -> None:
    shipped = load().entries
    catalogue = Catalogue(
        (replace(shipped[0], literals=("ok", "x")), *shipped, replace(shipped[1], literals=("t", "longer")))
    )
    texts = [example.text for entry in shipped for example in entry.examples][::20]
    for text in (*texts, "", "x", "it is ok", "o", "LONGER"):
        wanted = [entry for entry in catalogue.entries if any(literal in text.lower() for literal in entry.literals)]
        assert catalogue._with_literal_in(text) == wanted


def test_a_broken_site_entry_is_named(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(
        '[[pattern]]\nid = "mine"\nevent = "site.x"\nliteral = ["abc"]\nregex = "abc \\\\d"\nexample = "abc x"\n'
    )
    problem = load([file]).check()[0]
    assert (problem.file, problem.entry) == (str(file), "mine") and "does not match" in problem.reason


@given(st.lists(LINE, min_size=1, max_size=12), st.integers(0, 12))
@settings(max_examples=examples(12), deadline=None)
def test_any_bytes(lines: list[bytes], cut: int) -> None:
    whole = PARSER.parse(lines, ORIGIN)
    assert whole.schema == pl.Schema(LOGS) and len(whole) == len(lines)
    for line, raw, exact in zip(lines, whole["raw"], whole["raw_bytes"], strict=True):
        assert (exact if exact is not None else raw.encode()) == line
    parts = [part for part in (lines[:cut], lines[cut:]) if part]
    numbers = [1] if len(parts) == 1 else [1, cut + 1]
    again = pl.concat(PARSER.parse(part, ORIGIN, first) for part, first in zip(parts, numbers, strict=True))
    assert whole.equals(again)
    assert PARSER.parse(lines[::-1], ORIGIN).drop("line").equals(whole.reverse().drop("line"))


def test_split_keeps_what_is_no_line_end() -> None:
    assert split(b"a\r\nb\rc\n\0d").lines == [b"a", b"b\rc", b"\0d"]
    assert split(b"a\n").lines == [b"a"] and split(b"").lines == []


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (
            b"[2026-03-04T05:06:07.890] [15.0] error: X",
            {"source": "slurmstepd", "format": "slurm", "job_id": 15, "message": "error: X"},
        ),
        (
            b"Mar  4 05:06:07 n2 kernel: [5.5] igb 0000:02:00.0 eth1: igb: eth1 NIC Link is Down",
            {"event": "nic.link_down", "host": "n2"},
        ),
        (
            b"2026-03-04T05:06:07+00:00 n2 slurmstepd-n2[9]: error: x",
            {"source": "slurmstepd", "pid": 9, "severity": "error"},
        ),
        (b"[2026-03-04T05:06:07.1] Killing JobId=9 on failed node n4", {"event": "slurm.job_node_fail", "job_id": 9}),
        (b"srun: error: Node failure on n4", {"event": "job.node_failure", "source": "job_stdout"}),
        (b"[   7.25] nothing", {"time": None, "time_quality": "received", "format": "dmesg"}),
    ],
)
def test_headers(line: bytes, want: dict[str, object]) -> None:
    row = parse(line).row(0, named=True)
    assert {name: row[name] for name in want} == want


def test_uptime_counts_from_the_last_boot_that_fits() -> None:
    boots = (datetime(2026, 5, 1), datetime(2026, 5, 31, 23, 59))
    assert parse(b"[ 10.0] x", boots=boots)["time"][0] == datetime(2026, 5, 31, 23, 59, 10)
    assert parse(b"[ 86400.0] x", boots=boots)["time"][0] == datetime(2026, 5, 2)


@pytest.mark.parametrize("company", [0, 200])  # parsed by the format, and among many by position
def test_numbers_of_a_kernel_record_may_begin_with_zeros(company: int) -> None:
    rows = parse(b"6,007,02345678,-;eth0: link down", *[b"6,1,2,-;text"] * company)
    assert json.loads(rows["entities"][0]).items() >= {"kmsg_seq": 7, "kmsg_usec": 2345678}.items()


def test_the_year_is_the_newest_that_is_not_in_the_future() -> None:
    times = parse(b"Dec 31 23:59:59 h a: x", b"Jun  1 00:00:00 h a: x", b"Feb 29 00:00:00 h a: x")["time"]
    assert [time.year for time in times] == [2025, 2026, 2024]


@pytest.mark.long
@pytest.mark.skipif(not labelled.FOLDER.exists(), reason="the labelled lines are not on this machine")
def test_accuracy_on_labelled_lines() -> None:
    parser = LineParser(header_entities=True)
    total = labelled.Score()
    for file in labelled.FOLDER.glob("*.jsonl"):
        total.add(labelled.score_file(file, parser))
    wrong = [
        difference for difference in total.differences if difference[1] == "event" or difference[1].startswith("header")
    ]
    assert total.right / total.lines >= 0.97, wrong
    assert total.false_alarms / total.others <= 0.01, wrong
    assert total.headers_right == total.headers, wrong
    assert total.entities_right / total.entities >= 0.95
