"""Short time limits, of which a wait for storage took most: what the same program did elsewhere decides."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.edges.conditions import storage
from correlator.facts.jobs.kinds import RUN_TIMEOUT
from correlator.facts.storage_hangs import Wait, ended_elsewhere
from tests.correlator.field import ANY, TIMELIMIT, InOneStore, Situation, ended, heard, wrong
from tests.correlator.making import T0, run, world

TIMEOUT = ("app.timeout", None, None)
STORAGE = ("infra.storage", "storage.outage", ANY)
LOST = "-53s gpu01 kernel: nfs: server nas1 not responding, still trying"
WAITED = (LOST, TIMELIMIT, "5s gpu01 kernel: nfs: server nas1 OK")
SHORT = {"start": "-66s", "nodes": "gpu01", "user": "ada", "name": "stores", "time_limit_s": 60}
OURS = ended("TIMEOUT", **SHORT)


def elsewhere(start: str, end: str = "-20s", state: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    return ended(state, end=end, start=start, **{"nodes": "gpu02", "user": "ada", "name": "stores", **more})


SITUATIONS = [
    heard("the same program ends elsewhere in time", WAITED, (elsewhere("-56s"), OURS), (None, STORAGE), at_most=0.85),
    heard("without any other", WAITED, (OURS,), (TIMEOUT,), at_most=0.7),
    heard("another user's", WAITED, (elsewhere("-56s", user="ben"), OURS), (None, TIMEOUT)),
    heard("another program", WAITED, (elsewhere("-56s", name="loop"), OURS), (None, TIMEOUT)),
    heard("it takes longer than the limit elsewhere", WAITED, (elsewhere("-2min"), OURS), (None, TIMEOUT)),
    heard("it would have had time enough", WAITED, (elsewhere("-30s"), OURS), (None, TIMEOUT)),
    heard("one of two takes longer", WAITED, (elsewhere("-56s"), elsewhere("-2min", nodes="gpu03"), OURS), (None, None, TIMEOUT)),
    heard("on more nodes", WAITED, (elsewhere("-56s", nodes="gpu[02-03]"), OURS), (None, TIMEOUT)),
    heard("the output goes on meanwhile", [*(f"-{s}s {{1}} stdout: loaded shard {s}" for s in range(64, 5, -3)), *WAITED],
          (elsewhere("-56s"), OURS), (None, TIMEOUT)),
    heard("a wait of seconds", [LOST.replace("-53s", "-12s"), TIMELIMIT], (elsewhere("-56s"), OURS), (None, TIMEOUT)),
    heard("another node's wait", [line.replace("gpu01", "gpu03") for line in WAITED], (elsewhere("-56s"), OURS), (None, TIMEOUT)),
]  # fmt: skip
FOUND = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_short_limits_beside_storage_that_does_not_answer(situation: Situation) -> None:
    assert wrong(situation, *FOUND[situation.name]) == []


def test_what_was_compared_is_told() -> None:
    doubts = FOUND["the same program ends elsewhere in time"][1][1]["doubts"]
    assert any("of the same name took 36 s elsewhere" in doubt for doubt in doubts)
    assert "nas1 did not answer its node for 53 of its 66 s" in FOUND["without any other"][1][0]["summary"]


class Unread(list[Any]):
    """All runs of a cluster: a comparison for each of many timed-out runs must not look at each of them."""

    def __iter__(self) -> Any:
        raise AssertionError("looked at all runs of the cluster")


def test_a_run_is_compared_with_those_of_its_user_and_name_only() -> None:
    mine = run(1, ["n1"], 0, 66, "TIMEOUT", user="ada", name="stores")
    same = run(2, ["n2"], 10, 46, "COMPLETED", user="ada", name="stores")
    others = [run(n, ["n2"], 10, 200, "COMPLETED", user="ben", name="stores") for n in range(3, 9)]
    where = world([], [mine, same, *others])
    assert where.completed_as  # one look at all runs, for all that are compared
    where.runs = Unread(where.runs)
    found = ended_elsewhere(where, where.run[mine.key], Wait(T0 + 13, T0 + 66, 0.8, None, silent=False, stuck=False))
    assert found is not None
    assert (found.run.key, found.took) == (same.key, 36.0)


def test_a_long_wait_asks_nothing_of_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError("compared for nothing")

    monkeypatch.setattr(storage, "ended_elsewhere", asked)
    long = Wait(T0 + 10, T0 + 100, 0.9, None, silent=True, stuck=False)
    monkeypatch.setattr(storage, "wait_of", lambda *_: long)
    mine = run(1, ["n1"], 0, 100, "TIMEOUT", user="ada", name="stores")
    where = world([], [mine])
    end = RUN_TIMEOUT.fact(T0 + 100, None, 0.5, "n1", run=mine.key, attrs={})
    assert storage.stood_still(where, end, end) is None
