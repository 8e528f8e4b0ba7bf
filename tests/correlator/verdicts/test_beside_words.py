"""A run's own words about a part of its node, beside logs about the same part or another one. Each truth was written before
the correlator ran."""

from __future__ import annotations

import pytest

from tests.correlator.field import (
    ANY,
    ECC,
    FELL_OFF,
    UNKNOWN,
    InOneStore,
    Situation,
    concluded,
    down,
    ended,
    heard,
    wrong,
)

ONE = (
    ended(nodes="gpu01", user="alice", gpus=1),
    ended("COMPLETED", nodes="gpu02", user="alice", end="-20min"),
    *(ended("COMPLETED", nodes="gpu01", user=other, end="30min") for other in ("bob", "carol")),
)
READ_ONLY = "{} {{0}} stderr: OSError: [Errno 30] Read-only file system: '/local/run/ckpt.pt'"
IO = "-2s {0} stderr: OSError: [Errno 5] Input/output error: '/local/run/ckpt.pt'"
TOLD_ECC = f"{{}} {{{{0}}}} stderr: {ECC}"
#: The disk of gpu01 fails at a moment.
DISK = (
    "{} gpu01 kernel: blk_update_request: I/O error, dev nvme1n1, sector 41943040",
    "{} gpu01 kernel: EXT4-fs (nvme1n1): Remounting filesystem read-only",
)
BROKEN = ("infra.node", "node.disk_error", "gpu01")
REST = (None, None, None)
TWO = (ended(nodes="gpu[01-02]", user="alice", gpus=2),)


def disk(at: str) -> list[str]:
    return [line.format(at) for line in DISK]


SITUATIONS = [
    heard("read-only, and its disk failed before", [*disk("-20s"), READ_ONLY.format("-2s")], ONE, (BROKEN, *REST)),
    heard("read-only, and its disk failed long after", [READ_ONLY.format("-59s"), *disk("-5s")], ONE, (UNKNOWN, *REST)),
    heard("read-only, and a GPU fell off the bus", [f"-20s gpu01 kernel: {FELL_OFF}", READ_ONLY.format("-2s")], ONE, (UNKNOWN, *REST)),
    heard("input/output errors, and a GPU fell off the bus", [f"-20s gpu01 kernel: {FELL_OFF}", IO], ONE, (UNKNOWN, *REST)),
    heard("an ECC error, and a link is lost after it", [TOLD_ECC.format("-60s"), *down("-40s", "gpu01", "ib0")], TWO, (UNKNOWN,)),
    heard("an ECC error, and a link was lost before it", [*down("-40s", "gpu01", "ib0"), TOLD_ECC.format("-2s")], TWO, (UNKNOWN,)),
]  # fmt: skip

FOUND = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *FOUND[situation.name]) == []


LOST_GPU = f"-3s gpu01 kernel: {FELL_OFF}"
ASSERTED = heard(
    "its own assertion on a GPU, and another's GPU fell off the bus",
    [LOST_GPU, "-1s {0} stderr: RuntimeError: CUDA error: device-side assert triggered"],
    ONE,
    (("app.error", None, None), *REST),
)
ADVISED = heard(
    "an error of CUDA with PyTorch's advice about assertions, and its GPU fell off the bus",
    [
        LOST_GPU,
        "-1s {0} stderr: RuntimeError: CUDA error: unspecified launch failure",
        "-1s {0} stderr: RuntimeError: Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    ],
    ONE[:2],
    ((ANY, ANY, ANY), None),
)


def test_an_assertion_of_the_programs_own_is_surer_than_other_words_beside_a_lost_gpu() -> None:
    found = concluded([ASSERTED, ADVISED])
    assert wrong(ASSERTED, *found[ASSERTED.name]) == []
    assert found[ASSERTED.name][1][0]["confidence"] > 0.8
    advised = found[ADVISED.name][1][0]
    assert advised["category"] != "app.error" or advised["confidence"] < 0.9
