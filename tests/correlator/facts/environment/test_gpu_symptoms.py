"""What only programs with a GPU meet on a node: jobs without one tell nothing of it."""

from __future__ import annotations

import pytest

from correlator.facts.environment.symptoms import symptom_of
from correlator.facts.world import World
from tests.correlator.making import event, run, world
from tests.correlator.situations import judged, said

NOT_READY = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"

#: User, node, GPUs, and the error; None: it ended well.
Job = tuple[str, str, int, str | None]


def situation(*jobs: Job) -> World:
    runs = [
        run(n, [node], -10.0, float(n), "FAILED" if error else "COMPLETED", user=user, gpus=gpus, name="train", exit_code=int(bool(error)))
        for n, (user, node, gpus, error) in enumerate(jobs, 1)
    ]  # fmt: skip
    lines = [
        event("job.cuda_error", n - 0.5, None, error, source="job_stderr", job_id=n)
        for n, (*_, error) in enumerate(jobs, 1)
        if error
    ]
    return world(lines, runs)


ELSEWHERE: list[Job] = [("alice", "n1", 1, None), ("bob", "n1", 1, None)]


def failed_of_two_users(error: str) -> list[Job]:
    return [("alice", "n3", 1, error), ("bob", "n3", 1, error)]


@pytest.mark.parametrize(("error", "category"), [(NOT_READY, "infra.gpu"), (MISMATCH, "infra.node")])
def test_a_job_without_a_gpu_that_is_well_there_clears_nothing(error: str, category: str) -> None:
    verdicts = judged(situation(*failed_of_two_users(error), ("olga", "n3", 0, None), *ELSEWHERE))
    for job in ("1", "2"):
        assert said(verdicts[job]) == (category, "node.environment", "n3")


def test_a_job_with_a_gpu_that_is_well_there_does() -> None:
    verdicts = judged(situation(*failed_of_two_users(NOT_READY), ("olga", "n3", 1, None), *ELSEWHERE))
    assert said(verdicts["1"])[0] == "unknown"


def test_jobs_without_a_gpu_elsewhere_show_nothing() -> None:
    verdicts = judged(
        situation(
            *failed_of_two_users(NOT_READY),
            ("alice", "n1", 0, None),
            ("bob", "n1", 0, None),
            ("olga", "n2", 0, None),
        )
    )
    assert said(verdicts["1"])[0] == "unknown"


@pytest.mark.parametrize(
    "jobs", [[("alice", "n3", 1, NOT_READY)] * 3, [("alice", "n3", 1, NOT_READY), ("bob", "n4", 1, NOT_READY)]]
)
def test_one_users_word_and_two_nodes_blame_no_node(jobs: list[Job]) -> None:
    assert said(judged(situation(*jobs, *ELSEWHERE))["1"])[0] == "unknown"


def test_cudas_error_of_gpus_that_wait_for_their_fabric() -> None:
    for text in (NOT_READY, "cudaErrorSystemNotReady", "CUDA_ERROR_SYSTEM_NOT_READY"):
        found = symptom_of(text)
        assert found is not None and found[0].name == "fabric", text


def test_programs_without_a_gpu_that_meet_it_are_compared_with_all() -> None:
    jobs: list[Job] = [("alice", "n3", 0, MISMATCH), ("bob", "n3", 0, MISMATCH), ("alice", "n1", 0, None)]
    assert said(judged(situation(*jobs, ("olga", "n2", 1, None)))["1"]) == ("infra.node", "node.environment", "n3")
