"""Runs of several users that ended alike in the same moment: none of their programs is blamed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from correlator.verdicts.verdict import Verdict
from tests.correlator.making import event, run, world
from tests.correlator.situations import judged

BUS, SEGV, KILL = 7, 11, 9
LOST = "ValueError: cannot parse header of shard 17"


@dataclass(frozen=True)
class Job:
    """``signal`` 0: it failed with exit code 1. ``words``: the error that it printed."""

    user: str
    node: str
    signal: int = 0
    words: str = ""
    lasted: float = 600.0
    end: float = 0.0


def first_of(*jobs: Job) -> Verdict:
    runs = [
        run(n, [job.node], job.end - job.lasted, job.end, user=job.user, exit_code=0 if job.signal else 1, exit_signal=job.signal)
        for n, job in enumerate(jobs, 1)
    ]  # fmt: skip
    lines = [
        event("job.exit_error", job.end - 0.5, None, job.words, source="job_stderr", job_id=n)
        for n, job in enumerate(jobs, 1)
        if job.words
    ]
    return judged(world(lines, runs))["1"]


ALICE = Job("alice", "n1", BUS)
SEG = Job("alice", "n1", SEGV)
SAID = Job("alice", "n1", words=LOST)

GONE = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
TMP = Job("alice", "n1", words=GONE.format("/tmp/scratch.alice"))
BOBS = Job("bob", "n1", words=GONE.format("/tmp/b/model.bin"), lasted=4000.0)
CAROLS = Job("carol", "n1", words="cp: cannot stat '/tmp/c/x.npy': No such file or directory", lasted=900.0)

OPEN = {
    "two users by SIGBUS, begun together": [ALICE, Job("bob", "n2", BUS)],
    "one or two seconds later": [ALICE, Job("bob", "n2", BUS, end=2.0)],
    "by another signal, begun apart": [SEG, Job("bob", "n2", SEGV, lasted=4000.0), Job("carol", "n3", SEGV, lasted=900.0)],
    "three users with the same words": [
        SAID, Job("bob", "n2", words=LOST, lasted=4000.0), Job("carol", "n3", words=LOST.replace("17", "18"), lasted=900.0),
    ],
    "three users lose files of /tmp of one node": [TMP, BOBS, CAROLS],
    "or cannot read them": [
        TMP, BOBS, Job("carol", "n1", words="PermissionError: [Errno 13] Permission denied: '/tmp/c/x'", lasted=900.0),
    ],
    "or files of their own folders, by the same error": [
        replace(TMP, words=GONE.format("/scratch/alice/x")), replace(BOBS, words=GONE.format("/scratch/bob/x")),
        replace(CAROLS, words="cp: cannot stat ‘/scratch/carol/x.npy’: No such file or directory"),
    ],
}  # fmt: skip

#: What several mistakes, one user's or one node's, explain as well.
BLAMED = {
    "alone": [ALICE],
    "one user": [ALICE, Job("alice", "n2", BUS)],
    "one other user by another signal, who may die when she does": [
        SEG, Job("bob", "n2", SEGV, lasted=4000.0), Job("bob", "n3", SEGV, lasted=900.0),
    ],
    "one node": [ALICE, Job("bob", "n1", BUS)],
    "seconds apart": [ALICE, Job("bob", "n2", BUS, end=5.0)],
    "another signal": [ALICE, Job("bob", "n2", SEGV)],
    "a common beginning": [SEG, Job("bob", "n2", SEGV), Job("carol", "n3", SEGV)],
    "only an exit code": [Job("alice", "n1"), Job("bob", "n2", lasted=4000.0), Job("carol", "n3", lasted=900.0)],
    "words of one other user, who may lie": [SAID, Job("bob", "n2", words=LOST, lasted=4000.0)],
    "words of a course": [SAID, *(Job(user, f"n{n}", words=LOST) for n, user in enumerate(("bob", "carol", "dave"), 2))],
    "other words": [
        SAID, Job("bob", "n2", words="KeyError: 'loss'", lasted=4000.0), Job("carol", "n3", words="IndexError: x", lasted=900.0),
    ],
    "a file of one other user, who may die when she does": [TMP, BOBS],
    "files in other folders": [TMP, replace(BOBS, words=GONE.format("/home/bob/x")), CAROLS],
    "files in /tmp of other nodes": [TMP, replace(BOBS, node="n2"), replace(CAROLS, node="n3")],
    "folders below those that they began in": [
        replace(TMP, words=GONE.format("data/train/a.pt")), replace(BOBS, words=GONE.format("data/train/x.pt")),
        replace(CAROLS, words="cat: my/train/z.txt: No such file or directory"),
    ],
    "their own folders, by several errors": [
        replace(TMP, words=GONE.format("/home/alice/a.pt")), replace(BOBS, words="PermissionError: [Errno 13] Permission denied: '/home/eve/x'"),
        replace(CAROLS, words="bash: /home/carol/run.sh: No such file or directory"),
    ],
    "a path that the program never had": [replace(TMP, lasted=3.0), BOBS, CAROLS],
    "they began together": [TMP, replace(BOBS, lasted=600.0), replace(CAROLS, lasted=600.0)],
    "seconds apart from the others": [TMP, replace(BOBS, end=6.0), replace(CAROLS, end=7.0)],
}  # fmt: skip


@pytest.mark.parametrize("jobs", OPEN.values(), ids=OPEN)
def test_it_is_left_open(jobs: list[Job]) -> None:
    found = first_of(*jobs)
    assert found.category == "unknown" and found.confidence <= 0.5
    assert "in the same moment" in found.reason


@pytest.mark.parametrize("jobs", BLAMED.values(), ids=BLAMED)
def test_its_program_is_blamed(jobs: list[Job]) -> None:
    assert first_of(*jobs).category == "app.error"


def test_a_cause_that_is_known_stays() -> None:
    """Memory of both nodes broke: that their programs ended alike adds nothing."""
    lost = [event("kernel.mce", -0.5, host, "Memory failure: 0x1d3f80: Sending SIGBUS to python3:44 due to hardware memory corruption") for host in ("n1", "n2")]  # fmt: skip
    runs = [run(n, [f"n{n}"], -600.0, 0.0, user=user, exit_code=0, exit_signal=BUS) for n, user in ((1, "alice"), (2, "bob"))]  # fmt: skip
    found = judged(world(lost, runs))["1"]
    assert found.category == "infra.node"


# -- a doubt -------------------------------------------------------------------------------------------------------------
NO_MODULE = "ModuleNotFoundError: No module named 'meshing_v3'"
STUDENT = Job("alice", "n1", words=NO_MODULE, lasted=4.0)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_two_users_with_the_same_error_may_share_a_broken_program(node: str) -> None:
    verdict = first_of(STUDENT, replace(STUDENT, user="bob", node=node, end=1.0))
    alone = first_of(STUDENT)
    assert (verdict.category, verdict.confidence) == (
        alone.category,
        alone.confidence,
    ) and alone.category == "app.error"
    (doubt,) = [doubt for doubt in verdict.doubts if "same error" in doubt]
    assert doubt.startswith("The same error ended job 2 of another user in the same moment")
    assert not any("same error" in doubt for doubt in alone.doubts)


@pytest.mark.parametrize(
    "other", [replace(STUDENT, node="n2"), replace(STUDENT, user="bob", end=60.0), replace(STUDENT, user="bob", words=LOST)],
    ids=["the same user", "another moment", "another error"],
)  # fmt: skip
def test_what_raises_no_such_doubt(other: Job) -> None:
    assert not any("same error" in doubt for doubt in first_of(STUDENT, other).doubts)
