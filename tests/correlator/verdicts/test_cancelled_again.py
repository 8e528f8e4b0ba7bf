"""Jobs that Slurm requeued and somebody cancelled before they ran again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.correlator.situations import conclude

HEADER = "JobIDRaw|JobName|User|UID|Partition|State|ExitCode|Submit|Start|End|NodeList|Reason"
DAY = "2026-02-28T"
LAUNCH = f"[{DAY}09:00:00.100] Launching batch job 400 for UID 2003"


@pytest.mark.parametrize(
    ("cancelled", "slurmd", "sure"),
    [("10:20:00", False, True), ("10:00:20", False, False), ("10:00:20", True, True)],
    ids=[
        "twenty minutes later",
        "at once, without slurmd's log",
        "at once, and slurmd's log tells of no launch that failed",
    ],
)
def test_root_or_the_slurmd_of_the_run_before(tmp_path: Path, cancelled: str, slurmd: bool, sure: bool) -> None:
    """A slurmd that may not requeue a job cancels it at once: it is no rival for what root does later."""
    rows = [
        HEADER,
        f"501|solve|eve|2001|gpu|REQUEUED|0:0|{DAY}09:59:00|{DAY}10:00:00|{DAY}10:00:01|gpu07|None",
        f"501|solve|eve|2001|gpu|CANCELLED by 0|0:0|{DAY}10:00:01|Unknown|{DAY}{cancelled}|None assigned|JobHeldAdmin",
    ]
    for name, lines in (("accounting/sacct.txt", rows), ("nodes/gpu07/slurmd.log", [LAUNCH] if slurmd else [])):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text("".join(f"{line}\n" for line in lines))
    (last,) = (v for key, v in conclude(tmp_path)["verdicts"].items() if key != "501")
    assert last["category"] == "user.cancel" and (last["confidence"] > 0.8) is sure
    assert ("or a slurmd that could not launch it" in last["summary"]) is not sure
    assert last["summary"].endswith("; its run before, 501, had ended REQUEUED on gpu07.")
