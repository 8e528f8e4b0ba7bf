"""A fabric manager that ended: by systemd's lines where no user can have written them."""

from __future__ import annotations

from correlator.engine import conclude_world
from correlator.evidence.weigh import BaseRates
from correlator.facts.world import World
from correlator.model.fact_index import by_kind
from correlator.model.nouns import Event, Run
from correlator.site.first_seen import first_seen
from tests.correlator.making import event, facts, run, world
from tests.correlator.situations import EDGES, judged, said

NOT_READY = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"


def ended(at: float = 0.0) -> list[Event]:
    unit = "nvidia-fabricmanager.service"
    return [
        event("gpu.fabric_error", at, "n3", f"{unit}: Main process exited, code=killed, status=11/SEGV", source="syslog"),
        event("gpu.fabric_error", at + 0.01, "n3", f"{unit}: Failed with result 'signal'.", source="syslog"),
    ]  # fmt: skip


def failed(number: int, at: float, text: str = NOT_READY, node: str = "n3", user: str = "alice") -> tuple[Run, Event]:
    one = run(number, [node], at - 5.0, at, user=user, gpus=1, exit_code=1)
    return one, event("job.cuda_error", at - 0.5, None, text, source="job_stderr", job_id=number)


def situation(*failures: tuple[Run, Event], lines: list[Event] | None = None) -> World:
    return world([*(ended() if lines is None else lines), *(e for _, e in failures)], [r for r, _ in failures])


def test_gpu_programs_that_begin_later_are_its_victims() -> None:
    where = situation(failed(1, 100.0), failed(2, 900.0, user="bob"))
    for job in ("1", "2"):
        assert said(judged(where)[job]) == ("infra.gpu", "gpu.fabric_manager", "n3")
    assert not facts(where, "node.environment")


def test_it_is_an_incident_without_any_victim() -> None:
    where = world(ended(), [run(1, ["n3"], -100, 3000, "COMPLETED", user="olga", gpus=0)])
    rates = BaseRates(by_kind(where.facts), first_seen(where.events, where.runs).values(), where.first)
    (incident,) = conclude_world(where, EDGES, rates).result.incidents
    assert (incident["category"], incident["root_cause"]["host"], incident["jobs"]) == ("infra.gpu", "n3", [])


def test_another_error_another_node_and_another_time_are_not_its() -> None:
    for other in (
        failed(1, 100.0, "RuntimeError: CUDA error: an illegal memory access was encountered"),
        failed(1, 100.0, node="n4"),
        failed(1, 7200.0),
    ):
        assert said(judged(situation(other))["1"])[0] != "infra.gpu"


def test_one_that_started_again_is_not_why() -> None:
    again = event("sys.service_started", 50.0, "n3", "Started NVIDIA fabric manager service.", source="syslog")
    assert said(judged(situation(failed(1, 100.0), lines=[*ended(), again]))["1"])[0] == "unknown"


def test_other_errors_of_the_fabric_are_no_end_of_it() -> None:
    text = (
        "detected NVSwitch non-fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:a1:00.0 physical id 2 port 9"
    )
    assert not facts(world([event("gpu.fabric_error", 0, "n3", text, source="syslog")]), "gpu.fabric_manager")
