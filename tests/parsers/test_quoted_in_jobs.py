"""Source code, traces, records of chats and quotations in a job's output report nothing: every text of the catalogue in each."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from parsers.formats.base import JOB_SOURCES
from parsers.patterns import load
from parsers.record import Origin
from tests.line_parser import line_parser

CARRIERS = (
    "    raise RuntimeError(@)", "[rank3]:     raise RuntimeError(@) from None", "    assert status == 0, @", "+ echo @", "++ grep -c @ train.log",
    "2: + logger @", '{"prompt": @, "answer": "see the manual"}', '{"id": 7, "question": "what now?", "answer": @}', '[{"role": "user", "content": @}]',
    "> @", "User: @", "Assistant: the line @ means this:",
)  # fmt: skip


def texts() -> list[str]:
    """The examples of events that a job's output may have."""
    return [
        example.text
        for entry in load().entries
        if entry.event != "other" and not entry.anywhere and "job_stdout" in entry.sources
        for example in entry.examples
        if "\n" not in example.text
    ]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_quoted_text_in_a_jobs_output_reports_nothing(carrier: str) -> None:
    lines = [carrier.replace("@", json.dumps(text)) for text in texts()]
    origin = Origin(path="x", source=JOB_SOURCES[0], job_id=7, reference=datetime(2026, 6, 1))
    rows = line_parser().parse([line.encode() for line in lines], origin)
    assert [(got, line) for got, line in zip(rows["event"], lines, strict=True) if got != "other"] == []


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered", "job.cuda_error"),
        ('{"level": "error", "message": "CUDA error: device-side assert triggered"}', "job.cuda_error"),
        ("Exception: java.lang.OutOfMemoryError thrown from the UncaughtExceptionHandler in thread", "job.oom"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "job.oom"),
        ("worker 3 stopped by torch.OutOfMemoryError on cuda:0", "job.oom"),
        ("> RuntimeError: CUDA error: device-side assert triggered", "job.cuda_error"),
        ("> FATAL: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "job.oom"),
        ('{"level": "error", "prompt": "hi", "exception": "CUDA error: device-side assert triggered"}', "job.cuda_error"),
        ('{"role": "system", "error": "CUDA error: an illegal memory access was encountered"}', "job.cuda_error"),
        ("3: slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.", "job.oom"),
    ],
)  # fmt: skip
def test_what_a_program_prints_itself_counts(line: str, event: str) -> None:
    origin = Origin(path="x", source=JOB_SOURCES[0], job_id=7, reference=datetime(2026, 6, 1))
    assert line_parser().parse([line.encode()], origin)["event"].to_list() == [event]
