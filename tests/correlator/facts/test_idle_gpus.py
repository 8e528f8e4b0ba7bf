"""GPUs that worked and then did nothing until a time limit, processes and tasks that waited in the kernel, and what only
looks like that. Each truth was written before the correlator ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import polars as pl
import pytest

from correlator.conclusions import Conclusions
from correlator.engine import correlate, result
from correlator.live.ticker import Ticker
from correlator.verdicts.still_runs import ADVICE, HEADLINE, STUCK_HEADLINE
from store import open_store
from tests.correlator.facts.test_standstills import BACK, LOST, UNKILLED, wrote
from tests.correlator.field import (
    ANY,
    IB0,
    TIMELIMIT,
    UNKNOWN,
    Situation,
    at,
    concluded,
    down,
    ended,
    heard,
    tables_of,
    wrong,
)
from tests.correlator.rows import answer

TIMEOUT = ("app.timeout", None, None)
STORAGE = ("infra.storage", "storage.outage", ANY)
#: Two hours, until minute 0.
ONE = (ended("TIMEOUT", start="-2h", nodes="gpu01", time_limit_s=7200, gpus=8),)
TWO = (ended("TIMEOUT", start="-2h", nodes="gpu[01-02]", time_limit_s=7200, gpus=16),)
#: The same without GPUs, and beside another user's job with eight, which ends an hour before it.
NO_GPUS = (ended("TIMEOUT", start="-2h", nodes="gpu[01-02]", time_limit_s=7200, gpus=0),)
BESIDE = (
    ended("TIMEOUT", start="-2h", nodes="gpu[01-02]", time_limit_s=7200, gpus=2, user="alice"),
    ended("COMPLETED", start="-119min", end="-60min", nodes="gpu01", gpus=7, user="bob"),
)


def sample(minute: float, value: float, host: str, metric: str, device: str = "0") -> Mapping[str, Any]:
    return {
        "time": at(60.0 * minute),
        "host": host,
        "metric": metric,
        "value": value,
        "device": device,
        "source": "agent",
    }


def gpus(idle_from: int, *hosts: str, until: int = 0, device: str = "0") -> tuple[Mapping[str, Any], ...]:
    """A sample a minute of a GPU that works until minute ``idle_from``."""
    return tuple(
        sample(m, 97.0 if m < idle_from else 0.0, host, "DCGM_FI_DEV_GPU_UTIL", device)
        for host in hosts or ("gpu01",) for m in range(-119, until + 1)
    )  # fmt: skip


def ratios(idle_from: int) -> tuple[Mapping[str, Any], ...]:
    return tuple(sample(m, 0.97 if m < idle_from else 0.0, "gpu01", "nvidia_smi_utilization_gpu_ratio") for m in range(-119, 1))  # fmt: skip


def data(still_from: int, metric: str = "infiniband_port_rcv_data_total") -> tuple[Mapping[str, Any], ...]:
    """A counter that grows until minute ``still_from``, and then by a few words a minute."""
    return tuple(sample(m, 1e9 * min(m, still_from) + m, "gpu01", metric, "mlx5_0/1") for m in range(-119, 1))


def pulses(*every: Iterable[int]) -> tuple[Mapping[str, Any], ...]:
    busy = {m for some in every for m in some}
    return tuple(sample(m, 97.0 if m in busy else 0.0, "gpu01", "DCGM_FI_DEV_GPU_UTIL") for m in range(-119, 1))


HUNG = "{} gpu01 kernel: INFO: task python3:4242 blocked for more than 122 seconds."
AGAIN = (HUNG.format("-50min"), HUNG.format("-48min"))

SITUATIONS = [
    heard("its GPUs stop", [TIMELIMIT], ONE, (TIMEOUT,), metrics=gpus(-60), at_most=0.7),
    heard("its GPUs stop, as ratios", [TIMELIMIT], ONE, (TIMEOUT,), metrics=ratios(-60), at_most=0.7),
    heard("the GPUs of all its nodes stop", [TIMELIMIT], TWO, (TIMEOUT,), metrics=gpus(-60, "gpu01", "gpu02"), at_most=0.7),
    heard("its GPUs and its data stop", [TIMELIMIT], ONE, (TIMEOUT,), metrics=(*gpus(-60), *data(-60)), at_most=0.7),
    heard("its GPUs stop with the file server", [LOST, TIMELIMIT], ONE, (STORAGE,), metrics=gpus(-89)),
    heard("its GPUs stop long before the file server", [LOST.replace("-90", "-50"), TIMELIMIT], ONE, (TIMEOUT,), metrics=gpus(-90), at_most=0.7),
    heard("its GPUs stop minutes before the file server", [LOST.replace("-90", "-50"), TIMELIMIT], ONE, (STORAGE,), metrics=gpus(-57), at_most=0.75),
    heard("its GPUs stop with the fabric's link", [*down("-60min", "gpu01", "ib0"), TIMELIMIT], TWO, (IB0,), metrics=gpus(-60, "gpu01", "gpu02")),
    heard("its output stops with the fabric's link", [*wrote(-119, -60), *down("-60min", "gpu01", "ib0"), TIMELIMIT], TWO, (IB0,)),
    # no standstill
    heard("its GPUs work to the end", [TIMELIMIT], ONE, (TIMEOUT,), metrics=gpus(1)),
    heard("its GPUs never worked", [TIMELIMIT], ONE, (TIMEOUT,), metrics=gpus(-200)),
    heard("another GPU of its node works", [TIMELIMIT], ONE, (TIMEOUT,), metrics=(*gpus(-60), *gpus(1, device="1"))),
    heard("the GPUs of its other node work", [TIMELIMIT], TWO, (TIMEOUT,), metrics=(*gpus(-60), *gpus(1, "gpu02"))),
    heard("its other node is not measured", [TIMELIMIT], TWO, (TIMEOUT,), metrics=gpus(-60)),
    heard("its GPUs stop, and it writes data", [TIMELIMIT], ONE, (TIMEOUT,), metrics=(*gpus(-60), *data(0))),
    heard("its GPUs stop for five minutes", [TIMELIMIT], ONE, (TIMEOUT,), metrics=gpus(-5)),
    heard("its GPUs work now and then", [TIMELIMIT], ONE, (TIMEOUT,), metrics=pulses(range(-119, -30, 20))),
    heard("its GPUs worked at its beginning only", [TIMELIMIT], ONE, (TIMEOUT,), metrics=pulses(range(-119, -110))),
    heard("samples end with its work", [TIMELIMIT], ONE, (TIMEOUT,), metrics=gpus(-60, until=-30)),
    heard("its GPUs stop after the link was back", [*down("-60min", "gpu01", "ib0", "-59.9min"), TIMELIMIT], TWO, (TIMEOUT,),
          metrics=gpus(-60, "gpu01", "gpu02"), at_most=0.7),
    # no standstill, although the GPUs of its nodes stop
    heard("its GPUs stop, and it writes on", [*wrote(-119, -1), TIMELIMIT], ONE, (TIMEOUT,), metrics=gpus(-60)),
    heard("its GPUs stop with the fabric's link, and it writes on", [*wrote(-119, -1), *down("-60min", "gpu01", "ib0"), TIMELIMIT], TWO, (TIMEOUT,),
          metrics=gpus(-60, "gpu01", "gpu02")),
    heard("it has no GPUs, and those of its nodes stop with the link", [*down("-60min", "gpu01", "ib0"), TIMELIMIT], NO_GPUS, (TIMEOUT,),
          metrics=gpus(-60, "gpu01", "gpu02")),
    heard("another's job worked on the GPUs until the link was lost", [*down("-60min", "gpu01", "ib0"), TIMELIMIT], BESIDE, (TIMEOUT, None),
          metrics=gpus(-60, "gpu01", "gpu02")),
    # what waits in the kernel
    heard("its processes cannot be killed", [TIMELIMIT, UNKILLED], ONE, (UNKNOWN,), at_most=0.7),
    heard("the same, and its output went on to its limit", [*wrote(-119, 1), TIMELIMIT, UNKILLED], ONE, (TIMEOUT,)),
    heard("a task of its node does not go on", [*AGAIN, TIMELIMIT], ONE, (TIMEOUT,), at_most=0.7),
    heard("a task of its node does not go on at its end", [HUNG.format("-5min"), TIMELIMIT], ONE, (TIMEOUT,), at_most=0.7),
    heard("the same, and its output went on", [*wrote(-119, -1), *AGAIN, TIMELIMIT], ONE, (TIMEOUT,)),
    heard("the same, and its GPUs worked on", [*AGAIN, TIMELIMIT], ONE, (TIMEOUT,), metrics=gpus(1)),
    heard("the same, and it moved data", [*AGAIN, TIMELIMIT], ONE, (TIMEOUT,), metrics=(*gpus(-60), *data(0))),
    heard("a task of its node once did not go on, long before", [HUNG.format("-50min"), TIMELIMIT], ONE, (TIMEOUT,)),
    heard("two tasks of its node once did not go on, long before", [AGAIN[0], AGAIN[1].replace("4242", "4243"), TIMELIMIT], ONE, (TIMEOUT,)),
    heard("a task of another node does not go on", [HUNG.format("-50min").replace("gpu01", "gpu03"), TIMELIMIT], ONE, (TIMEOUT,)),
    heard("a task did not go on before it began", [HUNG.format("-150min"), TIMELIMIT], ONE, (TIMEOUT,)),
    heard("the file server is back, and its processes cannot be killed", [LOST, BACK.format("-40min"), TIMELIMIT, UNKILLED], ONE, (UNKNOWN,), at_most=0.7),
]  # fmt: skip

#: Those of which nothing shows that they stood still: as sure as any time limit.
SURE = {
    "its GPUs stop, and it writes on", "its GPUs stop with the fabric's link, and it writes on", "it has no GPUs, and those of its nodes stop with the link",
    "another's job worked on the GPUs until the link was lost",
    "its GPUs work to the end", "its GPUs never worked", "another GPU of its node works", "the GPUs of its other node work",
    "its other node is not measured", "its GPUs stop, and it writes data", "its GPUs stop for five minutes", "its GPUs work now and then",
    "its GPUs worked at its beginning only", "samples end with its work", "the same, and its output went on to its limit",
    "the same, and its output went on", "the same, and its GPUs worked on", "the same, and it moved data", "a task of its node once did not go on, long before",
    "two tasks of its node once did not go on, long before", "a task of another node does not go on", "a task did not go on before it began",
}  # fmt: skip


@cache
def found() -> dict[str, tuple[Conclusions, list[Any]]]:
    return concluded(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *found()[situation.name]) == []


def test_without_a_standstill_a_time_limit_is_as_sure_as_any_and_more_time_is_advised() -> None:
    for name in SURE:
        verdict = found()[name][1][0]
        assert verdict["confidence"] > 0.9, f"{name}: {verdict['summary']}"
        assert "--time" in verdict["advice"][0]["text"] and verdict["headline"] != HEADLINE, name


def test_nobody_is_told_to_ask_for_more_time_who_stood_still() -> None:
    for name in ("its GPUs stop", "its GPUs and its data stop"):
        (verdict,) = found()[name][1]
        assert (verdict["headline"], verdict["advice"][0]["text"]) == (HEADLINE, ADVICE), name
    (verdict,) = found()["its processes cannot be killed"][1]
    assert verdict["headline"] == STUCK_HEADLINE and verdict["advice"][0]["command"] is None


def test_a_task_that_may_be_anothers_is_a_doubt_only() -> None:
    (plain,) = found()["its GPUs work to the end"][1]
    for name in ("a task of its node does not go on", "a task of its node does not go on at its end"):
        (verdict,) = found()[name][1]
        assert (verdict["headline"], verdict["advice"]) == (plain["headline"], plain["advice"]), name


def test_a_task_in_lines_that_only_claim_to_be_the_kernels_is_none() -> None:
    """Any user writes such lines to the system log, where rsyslog keeps no facility."""
    (one,) = [s for s in SITUATIONS if s.name == "a task of its node does not go on"]
    tables = tables_of([one])
    logs = tables["logs"].with_columns(
        format=pl.lit("syslog"), facility=pl.lit(None, pl.String), file=pl.lit("hosts/gpu01/messages")
    )
    with open_store(None) as store:
        store.add({**tables, "logs": logs})
        correlate(store)
        (verdict,) = result(store)["verdicts"].values()
    assert verdict["category"] == "app.timeout" and verdict["confidence"] > 0.9


def test_gpus_that_stop_long_before_the_storage_did_not_wait_for_it() -> None:
    """The storage is lost 50 min before the limit: GPUs that stop with it show that the run waited, others reject it."""
    with_it, before, shown = (
        found()[f"its GPUs stop {when} the file server"][1][0] for when in ("with", "long before", "minutes before")
    )
    assert before["category"] == "app.timeout" and with_it["confidence"] > 0.8
    assert shown["category"] == "infra.storage" and shown["confidence"] <= 0.75


def test_the_words_say_which_sign_there_is() -> None:
    def summary(name: str) -> str:
        return str(found()[name][1][0]["summary"])

    assert "its GPUs, which had worked, did nothing in the last 61 min" in summary("its GPUs stop")
    assert "the kernel of gpu01 had logged 50 min before that python3 did not go on" in summary("a task of its node does not go on")  # fmt: skip
    assert "its processes on gpu01 waited in the kernel" in summary("its processes cannot be killed")


def test_samples_that_come_late_say_the_same_by_ticks() -> None:
    (one,) = [s for s in SITUATIONS if s.name == "its GPUs stop"]
    tables = tables_of([one])
    samples = tables.pop("metrics")
    parts = [{"metrics": samples[:40]}, tables, {"metrics": samples[100:]}, {"metrics": samples[40:100]}]
    with open_store(None) as store:
        ticker = Ticker(store)
        for part in parts:
            store.add(part)
            ticker.tick()
        ticked = answer(store)
        correlate(store)
        assert ticked == answer(store)
        (verdict,) = result(store)["verdicts"].values()
    assert "did nothing in the last 61 min" in verdict["summary"]
