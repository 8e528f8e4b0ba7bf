"""A fault that only a line tells of which the run's own user can have written: its error blames no program if such a fault gives it as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.correlator.making import event, run, world
from tests.correlator.situations import judged, out, xid

TIMED_OUT = "RuntimeError: CUDA error: the launch timed out and was terminated"
BUS_ERROR = "Fatal Python error: Bus error"
SLOW = "RuntimeError: DataLoader timed out after 300 seconds."
XID = xid(-70, 79)
MCE = [event("kernel.mce", -5, "n1", "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0")]
NFS = [event("storage.nfs_error", -320, "n1", "nfs: server nas01 not responding, still trying", nfs_server="nas01")]


def verdict(lines: list[Any], words: str, *others: Any) -> Any:
    # In a syslog file without priorities: whoever had a job there can have written them.
    lines = [replace(line, authority="local", known_by="name") for line in lines]
    said = out(-1, "job.cuda_error" if "CUDA" in words else "job.exit_error", words)
    return judged(world([*lines, *said], [run(1, ["n1"], -2000, 0, user="ada"), *others]))["1"]


@pytest.mark.parametrize(
    ("lines", "words"), [(XID, TIMED_OUT), (MCE, BUS_ERROR), (NFS, SLOW)], ids=["GPU", "memory", "storage"]
)
def test_it_is_open_whose_error_it_is(lines: list[Any], words: str) -> None:
    found = verdict(lines, words)
    assert (found.category, found.confidence <= 0.5) == ("unknown", True) and "by what a line in" in found.reason


@pytest.mark.parametrize(
    ("lines", "words"), [(XID, "KeyError: 'loss'"), (MCE, TIMED_OUT), (NFS, BUS_ERROR), ([], TIMED_OUT)]
)
def test_an_error_that_such_a_fault_does_not_give_is_the_programs(lines: list[Any], words: str) -> None:
    assert verdict(lines, words).category == "app.error"


def test_lines_that_another_user_can_have_written_change_nothing() -> None:
    beside = run(2, ["n1"], -2000, 900, "COMPLETED", user="bob")
    assert verdict(XID, TIMED_OUT, beside).category == "app.error"
