"""Other runs that a cause reached and that ran on are evidence against it; those that it ended are evidence for it.

Each truth was written before the correlator ran. ``LEAF`` has ten runs on two nodes each below it; run 1 is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from correlator.engine import conclude_world
from correlator.evidence.exposure import LOOKED_AT, factor_of
from correlator.evidence.weigh import BaseRates, Weigher
from correlator.facts.world import World
from correlator.incidents.steps import others_say
from correlator.model.fact_index import by_kind
from correlator.model.measurements import Throttled
from correlator.model.nouns import Run
from correlator.site.first_seen import first_seen
from correlator.verdicts.judge import judge
from correlator.verdicts.verdict import Verdict
from tests.correlator.making import T0, event, run, world
from tests.correlator.situations import EDGES, disk, down, lost_peers, lustre, node_fail, out, said, set_down, xid

NODES = [f"n{i}" for i in range(1, 21)]
CABLES = [
    {"host": h, "device": d, "switch": s, "switch_port": f"Ethernet{i}"}
    for i, h in enumerate(NODES) for d, s in (("eth0", "tor"), ("ib0", "leaf12"))
]  # fmt: skip
RETRY = "NCCL WARN NET/IB: Got completion with status=IBV_WC_RETRY_EXC_ERR(12)"
NO_WORDS = out(61, "job.exit_error", "srun: error: n2: task 3: Exited with exit code 1")


def of(job: int) -> list[str]:
    return NODES[2 * job - 2 : 2 * job]


def me(end: float = 62, state: str = "FAILED", **row: Any) -> Run:
    return run(1, of(1), -3000, end, state, **row)


def others(
    first: int, last: int, end: float | None = 3000, state: str = "COMPLETED", start: float = -3000
) -> list[Run]:
    return [run(job, of(job), start, end, state) for job in range(first, last + 1)]


def lost(length: float = 60, device: str = "ib0", hosts: list[str] = NODES) -> list[Any]:
    return [e for i, h in enumerate(hosts) for e in down(0.01 * i, h, device, length)]


def hit(first: int, last: int) -> tuple[list[Any], list[Run]]:
    """Runs that lost their peers as well."""
    reported = [e for job in range(first, last + 1) for e in out(50 + 0.1 * job, "job.nccl_error", RETRY, job=job)]
    return reported, others(first, last, 62, "FAILED")


def paces(jobs: list[Run], slow: set[int]) -> dict[tuple[int, int], list[tuple[float, float]]]:
    return {
        (j.job_id, 0): [(T0 - 2900 + i * 60, 5.0 if j.job_id in slow and i > 48 else 2.0) for i in range(90)] for j in jobs
    }  # fmt: skip


@dataclass(frozen=True)
class Situation:
    """``true``: category and host of the root, None if no host is to be named; ``sure``: the range of the confidence."""

    name: str
    make: Callable[[], World]
    true: tuple[str | tuple[str, ...], str | None]
    sure: tuple[float, float] = (0.0, 1.0)
    more: dict[str, Any] = field(default_factory=dict)


def _world(lines: list[Any], runs: list[Run], **more: Any) -> World:
    # A quiet day around it: base rates need exposure.
    quiet = [event("sys.service_started", at, "ctl", "chrony", source="syslog") for at in (-43200.0, 43200.0)]
    return world([*lines, *quiet], runs, links=CABLES, **more)


def _own_retries(timeout: int) -> World:
    where = _world([*lost(), *lost_peers(50)], [me(), *others(2, 10)])
    for job in range(2, 11):
        where.site.job_settings[str(job)] = {"NCCL_IB_TIMEOUT": str(timeout)}
    return where


def _planes() -> World:
    where = _world([*lost(), *lost_peers(50)], [me(), *others(2, 10)])
    for job in range(2, 11):
        where.site.job_settings[str(job)] = {"NCCL_MRC_PLANES": "4", "NCCL_IB_TIMEOUT": "14"}
    return where


def _some_hit(last: int, of_all: int = 10) -> World:
    reported, ended = hit(1, last)
    return _world([*lost(), *reported], [*ended, *others(last + 1, of_all)])


def _shared_node(runs: list[Run], lines: list[Any], **more: Any) -> World:
    return _world(lines, runs, **more)


BESIDE = run(2, ["n1", "n3"], -3000, 3000, "COMPLETED")
EIO = "OSError: [Errno 5] Input/output error: '/lustre/fs1/x'"
CLIENTS = tuple(NODES[:16])


def _storage(ended: int, of_all: int = 8, lines: list[Any] | None = None, text: str = EIO) -> World:
    reported = [e for job in range(1, ended + 1) for e in out(120 + job, "job.exit_error", text, job=job)]
    runs = [run(j, of(j), -3000, 122 + j, "FAILED") for j in range(1, ended + 1)]
    return _world([*lustre(0, CLIENTS), *(lines or []), *reported], [*runs, *others(ended + 1, of_all)])


EVICTED = [
    event("storage.lustre_error", 100, h, "This client was evicted by fs1-OST0001", lustre_target="fs1-OST0001")
    for h in of(1)
]


def _slow(slow: set[int], lines: list[Any], **more: Any) -> World:
    runs = [me(2400, "TIMEOUT", time_limit_s=5400), *others(2, 8)]
    return _world(lines, runs, progress=paces(runs, slow), **more)


HOT = [Throttled("n2", "00000000:9A:00.0", T0, T0 + 2390, T0 - 240, None, 9)]
STALLED = [e for i in range(12) for e in lustre(i * 200.0, CLIENTS)]

NET, GPU, NODE, STORE, SCHED = "infra.network", "infra.gpu", "infra.node", "infra.storage", "infra.scheduler"
NOT_OURS = ("unknown", "app.error")

SITUATIONS = [
    Situation("a leaf flaps, one of ten runs out of GPU memory", lambda: _world(
        [*lost(), *out(61, "job.cuda_error", "RuntimeError: CUDA out of memory")], [me(), *others(2, 10)]), ("app.error", None), (0.9, 1)),
    Situation("a leaf flaps, one of ten exits with a code and no word", lambda: _world([*lost(), *NO_WORDS], [me(), *others(2, 10)]),
              (NOT_OURS, None), (0, 0.85)),
    Situation("the same, of four", lambda: _world([*lost(), *NO_WORDS], [me(), *others(2, 4)]), (NOT_OURS, None), (0, 0.7)),
    Situation("the same, alone behind the leaf", lambda: _world([*lost(), *NO_WORDS], [me()]), (NET, "leaf12"), (0.9, 1)),
    Situation("the others are on one node each", lambda: _world(
        [*lost(), *NO_WORDS], [me(), *(run(j, of(j)[:1], -3000, 3000, "COMPLETED") for j in range(2, 11))]), (NET, "leaf12"), (0.9, 1)),
    Situation("the others began when it was over", lambda: _world([*lost(), *NO_WORDS], [me(), *others(2, 10, start=61)]), (NET, "leaf12"), (0.9, 1)),
    Situation("the others ended well before it could be seen", lambda: _world([*lost(), *NO_WORDS], [me(), *others(2, 10, end=20)]),
              (NET, "leaf12"), (0.9, 1)),
    Situation("the others were cancelled meanwhile", lambda: _world([*lost(), *NO_WORDS], [me(), *others(2, 10, end=70, state="CANCELLED")]),
              (NET, "leaf12"), (0.9, 1)),
    Situation("the others retry for two minutes", lambda: _own_retries(22), (NET, "leaf12"), (0.9, 1)),
    Situation("the others retry for half a second", lambda: _own_retries(14), ((NET, "unknown"), "leaf12"), (0, 0.85)),
    Situation("the others spread over four planes", _planes, (NET, "leaf12"), (0.9, 1)),
    Situation("a leaf is lost, ten of ten lose their peers", lambda: _some_hit(10), (NET, "leaf12"), (0.95, 1)),
    Situation("nine of ten", lambda: _some_hit(9), (NET, "leaf12"), (0.95, 1)),
    Situation("five of ten", lambda: _some_hit(5), (NET, "leaf12"), (0.9, 1)),
    Situation("one of six, by its own words of the network", lambda: _some_hit(1, 6), ((NET, "unknown"), "leaf12"), (0, 0.9)),
    Situation("a leaf is lost, one node panics: its neighbours lost no peer", lambda: _world(
        [*lost(400), event("kernel.panic", 5, "n1", "Kernel panic - not syncing"), *set_down(350, "n1"), *node_fail(350)],
        [me(350, "NODE_FAIL"), *others(2, 10)]), (NODE, "n1"), (0.9, 1)),
    Situation("Slurm's switch is lost, all nodes go DOWN", lambda: _world(
        [*lost(900, "eth0"), *set_down(350, *NODES), *(e for j in range(1, 11) for e in node_fail(350, j, of(j)[0]))],
        others(1, 10, 350, "NODE_FAIL")), (NET, "tor"), (0.95, 1)),
    Situation("Slurm's switch flaps, one node of twenty goes DOWN, its slurmd had died", lambda: _world(
        [*lost(900, "eth0"), event("slurm.daemon_fatal", 20, "n1", "fatal: out of memory", source="slurmd"), *set_down(350, "n1"), *node_fail(350)],
        [me(350, "NODE_FAIL"), *others(2, 10)]), (SCHED, "n1"), (0.9, 1)),
    Situation("the same without a word of why", lambda: _world(
        [*lost(900, "eth0"), *set_down(350, "n1"), *node_fail(350)], [me(350, "NODE_FAIL"), *others(2, 10)]), (NODE, "n1"), (0, 0.9)),
    Situation("the controller's link is lost, all nodes go DOWN", lambda: _world(
        [*down(0, "ctl", "eth0", 900), *set_down(350, *NODES), *(e for j in range(1, 11) for e in node_fail(350, j, of(j)[0]))],
        others(1, 10, 350, "NODE_FAIL")), (NET, "ctl"), (0.95, 1)),
    Situation("the controller's link is lost, one node of twenty goes DOWN", lambda: _world(
        [*down(0, "ctl", "eth0", 900), *set_down(350, "n1"), *node_fail(350)], [me(350, "NODE_FAIL"), *others(2, 10)]), (NODE, "n1"), (0, 0.9)),
    Situation("slurmctld restarts, all run on, one fails", lambda: _world(
        [event("slurm.daemon_start", 30, "ctl", "slurmctld version 24.05 started", source="slurmctld"), *NO_WORDS], [me(), *others(2, 10)]),
              ("app.error", None), (0.8, 1)),
    Situation("a node's rail is lost, the other run on it goes on", lambda: _shared_node([me(), BESIDE], [*down(0, "n1", "ib0", 60), *NO_WORDS]),
              ((NET, "unknown"), "n1"), (0, 0.85)),
    Situation("a GPU breaks, the run on the node's other GPUs goes on", lambda: _shared_node([me(8), BESIDE], xid(0, 79)), (GPU, "n1"), (0.9, 1)),
    Situation("a local disk breaks, one of two runs used it", lambda: _shared_node(
        [me(9), BESIDE], [*disk(0), *out(8, "job.exit_error", "OSError: [Errno 5] Input/output error: '/local/x'")]), (NODE, "n1"), (0.85, 1)),
    Situation("a file system stalls, half of the runs get errors", lambda: _storage(4), (STORE, "fs1"), (0.9, 1)),
    Situation("it stalls, one of eight gives up by its own error", lambda: _storage(1, text="TypeError: 'NoneType' object is not iterable"),
              ("app.error", None), (0.9, 1)),
    Situation("one client is evicted, the others wait", lambda: _storage(1, lines=EVICTED), (STORE, "fs1"), (0.95, 1)),
    Situation("the storage stalls and a GPU of the slowed run is hot; the others keep their pace", lambda: _slow({1}, STALLED, throttling=HOT),
              (GPU, "n2"), (0.8, 1)),
    Situation("the storage stalls and all are slowed, a GPU of one is hot", lambda: _slow(set(range(1, 9)), STALLED, throttling=HOT),
              ((STORE, GPU), None), (0, 0.9)),
]  # fmt: skip


def verdicts(where: World, *, alone: bool = False) -> dict[str, Verdict]:
    """``alone``: as if edges ignored other runs."""
    edges = [replace(e, shared=False) for e in EDGES] if alone else EDGES
    return {v.run.key: v for v in judge(where, Weigher(where, edges))}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_what_is_true(situation: Situation) -> None:
    found = verdicts(situation.make())["1"]
    categories, host = situation.true
    assert found.category in ((categories,) if isinstance(categories, str) else categories), found.reason
    if found.root is not None and host is not None:
        assert found.root.host == host
    low, high = situation.sure
    assert low <= found.confidence <= high


@pytest.mark.parametrize("name", [
    "a leaf flaps, one of ten exits with a code and no word", "Slurm's switch flaps, one node of twenty goes DOWN, its slurmd had died",
    "the same without a word of why", "the controller's link is lost, one node of twenty goes DOWN", "one of six, by its own words of the network",
    "a node's rail is lost, the other run on it goes on",
])  # fmt: skip
def test_those_that_ran_on_lower_the_weight(name: str) -> None:
    """Without them the cause that they share would be blamed, or with the confidence as if it had ended them."""
    where = next(s for s in SITUATIONS if s.name == name).make()
    alone, found = verdicts(where, alone=True)["1"], verdicts(where)["1"]
    assert said(found) != said(alone) or found.confidence < alone.confidence - 0.05


def test_the_mean_of_what_became_of_them() -> None:
    edge = replace(next(e for e in EDGES if e.id == "E07"), prior=0.8, prior_runs=4.0)
    assert factor_of(edge, 0, 0) == pytest.approx(1.0)
    # Beta(3.2, 0.8): two that ran on make it Beta(3.2, 2.8), whose odds are 3.2 / 2.8 instead of 4.
    assert factor_of(edge, 0, 2) == pytest.approx(3.2 / 2.8 / 4.0)
    assert factor_of(edge, 3, 2) == pytest.approx(6.2 / 2.8 / 4.0)
    assert factor_of(edge, 3, 0) > 1.0 > factor_of(edge, 0, 1)
    assert 0.0 < factor_of(replace(edge, prior=1.0), 0, 1) < 0.5  # even "always" is open to evidence


def document(where: World) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    rates = BaseRates(by_kind(where.facts), first_seen(where.events, where.runs).values(), where.first)
    found = conclude_world(where, EDGES, rates).result
    return found.verdicts["1"], found.incidents


def test_a_verdict_names_those_that_ran_on() -> None:
    verdict, incidents = document(_some_hit(1, 8))
    reported = "7 other jobs behind leaf12 (2, 3, 4 and 4 more) ran on: weight x 0.028"
    assert reported in verdict["grounds"]
    assert reported in next(i for i in incidents if i["id"] == verdict["incident_id"])["grounds"]
    assert "one of the 7 jobs behind leaf12 that ran on was hurt as well" in verdict["change_my_mind"]
    (row,) = [step["others"] for step in verdict["chain"] if step["others"]]
    assert (row["spared_count"], row["hit_count"], row["spared"][0]) == (7, 0, "2")


def test_a_rival_is_rejected_for_those_that_ran_on() -> None:
    verdict, _ = document(_world([*lost(), *NO_WORDS], [me(), *others(2, 10)]))
    assert any(
        "9 other jobs behind leaf12 (2, 3, 4 and 6 more) ran on: weight x" in r["rejected"] for r in verdict["rivals"]
    )
    assert "one of the 9 jobs behind leaf12" in verdict["change_my_mind"]


def test_those_that_were_hit_are_reported_too() -> None:
    verdict, _ = document(_some_hit(10))
    assert any(
        g.startswith("9 other jobs behind leaf12 (2, 3, 4 and 6 more) were hit as well: weight x")
        for g in verdict["grounds"]
    )


def test_who_still_runs_counts_once_a_minute_has_passed() -> None:
    """Until then it is unknown whether they will be ended as well."""

    def judged_until(last: float) -> Verdict:
        lines = [*lost(), *lost_peers(50), event("sys.service_started", last, "ctl", "chrony", source="syslog")]
        return verdicts(world(lines, [me(), *others(2, 10, end=None, state="RUNNING")], links=CABLES))["1"]

    early, late = judged_until(70), judged_until(120)
    assert early.confidence > late.confidence + 0.1 and early.category == NET


def test_a_thousand_runs_behind_one_cause_are_not_all_looked_at() -> None:
    runs = [
        run(
            j,
            ["n1", "n2"] if j == 1 else ["n3", "n4"],
            -3000,
            62 if j == 1 else 3000,
            "FAILED" if j == 1 else "COMPLETED",
        )
        for j in range(1, 1001)
    ]
    found = verdicts(_world([*lost(), *lost_peers(50)], runs))["1"]
    counted = [h.others for c in [*([found.chain] if found.chain else []), *found.others] for h in c.hops if h.others]
    assert counted and all(len(o.survivors) <= 101 for o in counted)


def test_of_many_that_were_reached_some_are_looked_at_and_the_page_says_so() -> None:
    crowd = [run(job, of(1 + job % 9), -3000, 3000, "COMPLETED") for job in range(2, 342)]
    where = _world([*lost(), *lost_peers(60)], [me(), *crowd])
    weigher = Weigher(where, EDGES)
    judge(where, weigher)
    (lag,) = [h for f in where.facts_of("job.comm_error") for h in weigher.into(f)[0] if h.others and "leaf12" in h.others.where and h.cause.kind == "switch.outage"]  # fmt: skip
    assert (
        lag.others is not None
        and lag.others.reached == 340
        and len(lag.others.survivors) == lag.others.asked <= LOOKED_AT
    )
    (stated_of_it,) = others_say([lag])
    assert f"({lag.others.asked} looked at of 340 that it reached)" in stated_of_it


def _flaps(count: int, length: float = 60.0) -> World:
    """A rail that is lost repeatedly, and in the end the run as well."""
    earlier = [e for n in range(count) for e in down(-1700.0 + 320 * n, "n1", "ib0", -1700.0 + length + 320 * n)]
    return _world([*earlier, *down(0, "n1", "ib0", 60), *lost_peers(60)], [me()])


@pytest.mark.parametrize(("world_of", "before"), [
    (lambda: _flaps(0), None), (lambda: _flaps(1), 1), (lambda: _flaps(5), 5), (lambda: _flaps(5, 3.0), None),
], ids=["never before", "once before", "five times before", "only short ones before"])  # fmt: skip
def test_what_the_run_itself_had_been_through_speaks_as_others_do(world_of: Callable[[], World], before: int | None) -> None:  # fmt: skip
    where = world_of()
    weigher = Weigher(where, EDGES)
    verdicts = judge(where, weigher)
    (effect,) = where.facts_of("job.comm_error")
    (hop,) = weigher.into(effect)[0]
    assert (hop.others.before if hop.others else None) == before
    assert said(verdicts[0])[:2] == ("infra.network", "link.outage"), "the run's own words speak of the network"
    if before and hop.others:
        assert hop.others.factor == pytest.approx(factor_of(hop.edge, 0, before))
        assert "it had itself run on through the same" in others_say([hop])[0]
