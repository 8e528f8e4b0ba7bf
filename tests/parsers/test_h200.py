"""Lines of a real H200 (driver 580.159.04, PyTorch 2.11, CuPy 14.2, 27 November 2026) on which programs failed on purpose:
an assertion on the device, a wrong and a misaligned address, a stack that overflows, a trap, no memory, an exception under
torchrun. None of these is the GPU's fault, and no line may say so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from parsers.record import Origin
from tests.line_parser import line_parser

LINES = Path(__file__).parent / "h200"
#: What each program's output shows, and how often.
OUTPUT = {
    "assert": {"job.cuda_error": 3},
    "illegal": {"job.cuda_error": 3},
    "misaligned": {"job.cuda_error": 3},
    "stack": {"job.cuda_error": 3},
    "trap": {"job.cuda_error": 3},
    "oom": {"job.oom": 1},
    "torchrun": {"job.exit_error": 4},
}
#: NVIDIA's XIDs of the kernel's log, in order: each is documented as a program's fault.
XIDS = [43, 31, 13, 13, 13, 43, 13, 13, 43]


def _events(name: str, source: str) -> pl.DataFrame:
    rows = line_parser().parse((LINES / name).read_bytes().splitlines(), Origin(host="gpu01", source=source))
    return rows.filter(pl.col("event") != "other")


@pytest.mark.parametrize(("program", "expected"), OUTPUT.items())
def test_output_of_a_program_shows_its_own_fault(program: str, expected: dict[str, int]) -> None:
    rows = _events(f"{program}.out", "job_stdout")
    assert dict(Counter(rows["event"])) == expected


def test_the_kernel_reports_faults_of_programs_with_their_process_and_place() -> None:
    rows = _events("kernel.log", "kernel").with_columns(
        xid=pl.col("entities").str.json_path_match("$.xid").cast(pl.Int64),
        blamed=pl.col("entities").str.json_path_match("$.xid_class"),
        pci=pl.col("entities").str.json_path_match("$.pci"),
    )
    assert rows["event"].unique().to_list() == ["gpu.xid"]
    assert rows["xid"].to_list() == XIDS
    assert rows["blamed"].unique().to_list() == ["application"]
    assert rows["pci"].unique().to_list() == ["0000:00:06"]
