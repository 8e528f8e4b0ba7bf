"""An event keeps all its lines, however they arrived."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.record import Origin
from store import blocks, open_store
from store.questions import lines as questions
from tests.examples import examples
from tests.line_parser import line_parser

PARSER = line_parser()
JOB = {"source": "job_stdout", "path": "jobs/7/stdout", "job_id": 7}

TRACEBACK = """loading
Traceback (most recent call last):
  File "/opt/run.py", line 9, in <module>
    load(path)
    ^^^^^^^^^^
ValueError: bad header

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/run.py", line 12, in <module>
    main()
RuntimeError: CUDA error: unspecified launch failure
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
step 5 loss 2.0"""

RANKS = """[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/run.py", line 3, in <module>
[rank0]:   File "/opt/run.py", line 3, in <module>
epoch 1 of 9
[rank0]:     step()
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank1]:     step()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank1]: bye"""

STACK = """what went before
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG 0 Rank 3] Process group watchdog thread terminated with exception: NCCL error: remote process exited
Exception raised from checkForNCCLErrorsInternal at /src/ProcessGroupNCCL.cpp:1723 (most recent call first):
frame #0: c10::Error::Error() + 0x57 (0x7f00 in /opt/libc10.so)
frame #1: clone + 0x43 (0x7f01 in /lib/libc.so.6)

srun: error: n3: task 3: Aborted (core dumped)"""

PROLOG = """[2026-03-02T04:11:09.001] [88.batch] done with job
[2026-03-02T04:11:10.001] error: prolog failed: rc:1 output:check_mount: /scratch is not mounted

[2026-03-02T04:11:10.002] error: [job 88] prolog failed status=1:0
[2026-03-02T04:11:10.003] debug:  nothing more"""

XID = """Mar  2 04:11:10 g1 kernel: [77.1] NVRM: Xid (PCI:0000:0f:00): 119, pid=4, name=py, Timeout after 6s of waiting for RPC response from GPU4 GSP!
Mar  2 04:11:10 g1 kernel: [77.1] NVRM: GPU4 RPC history (CPU -> GSP):
Mar  2 04:11:10 g1 systemd[1]: Started Session 4 of User eva.
Mar  2 04:11:10 g1 kernel: [77.1] NVRM:     entry function                   data0
Mar  2 04:11:10 g1 kernel: [77.1] CPU: 0 PID: 4 Comm: py Tainted: P           OE
Mar  2 04:11:10 g1 kernel: [77.1] Call Trace:
Mar  2 04:11:10 g1 kernel: [77.1]  os_dump_stack+0xe/0x14 [nvidia]
Mar  2 04:11:12 g1 kernel: [79.4] docker0: port 1(veth1) entered blocking state
Mar  2 04:11:12 g1 kernel: [79.4]  orphan+0xe/0x14 [nvidia]"""

CASES = [
    (TRACEBACK, JOB, 13, [*range(2, 16)]),
    (TRACEBACK, JOB, 6, [*range(2, 7)]),
    (RANKS, JOB, 7, [1, 4, 6, 7]),
    (RANKS, JOB, 9, [2, 3, 8, 9]),
    (STACK, JOB, 3, [3, 4, 5, 6]),
    (STACK, JOB, 8, [8]),
    (PROLOG, {"source": "slurmd", "path": "nodes/n1/slurmd.log"}, 2, [2, 3]),
    (PROLOG, {"source": "slurmd", "path": "nodes/n1/slurmd.log"}, 4, [4]),
    (XID, {"path": "nodes/g1/syslog"}, 1, [1, 2, 4, 5, 6, 7]),
    (XID, {"path": "nodes/g1/syslog"}, 3, [3]),
]


def stored(text: str, origin: dict[str, object], cuts: list[int]) -> list[dict[str, object]]:
    """The lines of ``text`` as rows, stored in batches that end at ``cuts``, the last batch first."""
    lines = text.encode().split(b"\n")
    edges = sorted({0, *(cut % len(lines) for cut in cuts), len(lines)})
    with open_store(None) as store:
        for low, high in reversed(list(pairwise(edges))):
            store.add(
                {
                    "logs": PARSER.parse(lines[low:high], Origin(**origin), low + 1).with_columns(
                        file=pl.lit(origin["path"])
                    )
                }
            )  # type: ignore[arg-type]
        return store.ask(questions.between(str(origin["path"]), 1, len(lines)))


@pytest.mark.parametrize(("text", "origin", "line", "wanted"), CASES)
def test_block(text: str, origin: dict[str, object], line: int, wanted: list[int]) -> None:
    assert [row["line"] for row in blocks.block(stored(text, origin, []), line)] == wanted


@settings(max_examples=examples(3), deadline=None)
@given(cuts=st.lists(st.integers(1, 20), max_size=6), case=st.sampled_from(CASES))
def test_cutting_into_batches_changes_nothing(
    cuts: list[int], case: tuple[str, dict[str, object], int, list[int]]
) -> None:
    text, origin, line, wanted = case
    assert [row["line"] for row in blocks.block(stored(text, origin, cuts), line)] == wanted


def test_attach_names_only_blocks_of_several_lines() -> None:
    with open_store(None) as store:
        for text, origin in ((TRACEBACK, JOB), (PROLOG, {"source": "slurmd", "path": "nodes/n1/slurmd.log"})):
            lines = text.encode().split(b"\n")
            store.add({"logs": PARSER.parse(lines, Origin(**origin)).with_columns(file=pl.lit(origin["path"]))})  # type: ignore[arg-type]
        events = [
            {"source": "jobs/7/stdout", "line": 13}, {"source": "nodes/n1/slurmd.log", "line": 2},
            {"source": "nodes/n1/slurmd.log", "line": 4}, {"source": "gone.log", "line": 1}, {"source": "slurmctld", "line": None},
        ]  # fmt: skip
        blocks.attach(store, events)
    assert [len(event.get("lines", ())) for event in events] == [14, 2, 0, 0, 0]
    assert events[1]["lines"][1] == {"line": 3, "text": ""}
