"""Programs that could not reach a host which is no part of their run: it was lost, refused them, or is none at all."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.evidence.weigh import Weigher
from correlator.site.site import Inventory
from correlator.verdicts.judge import judge
from correlator.verdicts.kernel_words import Limits
from correlator.verdicts.verdict import Unproven
from tests.correlator.field import APP, BOOT, FELL_OFF, KEY_ERROR, UNKNOWN, InOneStore, Situation, ended, heard, wrong
from tests.correlator.making import event, run, world
from tests.correlator.situations import EDGES

CLIENT = (ended(nodes="gpu01", start="-20min"),)
PANIC = "{} gpu04 kernel: Kernel panic - not syncing: Fatal exception"
BOOTED = f"{{}} gpu04 kernel: {BOOT}"


def client(words: str, at: str = "-1s") -> str:
    return f"{at} {{0}} stderr: ConnectionError: no features from {words}"


REFUSED = client("gpu04:27000: [Errno 111] Connection refused")
FAILED_UNIT = [
    "-60s gpu04 systemd[1]: lmgrd.service: Main process exited, code=killed, status=11/SEGV",
    "-60s gpu04 systemd[1]: lmgrd.service: Failed with result 'signal'.",
]
KILLED = (
    "-60s gpu04 kernel: Out of memory: Killed process 4711 (lmgrd) total-vm:100kB, anon-rss:100kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0"
)
IB = "mlx5_core 0000:17:00.0 ib0"
DOWN = f"{{}} gpu04 kernel: {IB}: Link down"

SITUATIONS = [
    heard("lost while it is asked", [PANIC.format("-20s"), client("gpu04:24567: timed out")], CLIENT, (UNKNOWN,)),
    heard("by its name on the fabric", [PANIC.format("-20s"), client("gpu04-hsn:24567: timed out")], CLIENT, (UNKNOWN,)),
    heard("by its whole name", [PANIC.format("-2min"), client("gpu04.our.site:80: No route to host")], CLIENT, (UNKNOWN,)),
    heard("cut off", ["-20s gpu04 kernel: mlx5_core 0000:17:00.0 ib0: Link down", client("ib-gpu04: timed out")], CLIENT, (UNKNOWN,)),
    # what only looks like it
    heard("another host was lost", [PANIC.format("-20s"), client("gpu05:24567: timed out")], CLIENT, (APP,)),
    heard("lost after the error", [PANIC.format("40s"), client("gpu04:24567: timed out")], CLIENT, (APP,)),
    heard("lost before the run began", [PANIC.format("-10min"), client("gpu04:24567: timed out")], (ended(nodes="gpu01", start="-5min"),), (APP,)),
    heard("back for long", [PANIC.format("-14min"), BOOTED.format("-12min"), client("gpu04:24567: timed out")], CLIENT, (APP,)),
    heard("its own error as well", [PANIC.format("-20s"), client("gpu04:24567: timed out", "-2s"), KEY_ERROR], CLIENT, (APP,)),
    heard("an error that names it by the way", [PANIC.format("-20s"), "-1s {0} stderr: KeyError: 'gpu04'"], CLIENT, (APP,)),
    heard("a host that is none", [PANIC.format("-20s"), client("gpu40:24567: timed out")], CLIENT, (APP,)),
    # refused
    heard("refused by a host that is well", [REFUSED], CLIENT, (UNKNOWN,)),
    heard("refused where a service failed", [*FAILED_UNIT, REFUSED], CLIENT, (UNKNOWN,)),
    heard("refused where the kernel killed the server", [KILLED, REFUSED], CLIENT, (UNKNOWN,)),
    heard("refused by a host that lost a GPU long before", [f"-20min gpu04 kernel: {FELL_OFF}", REFUSED], (ended(nodes="gpu01", start="-2h"),), (UNKNOWN,)),
    heard("refused by a host of which nothing was collected", [client("gpu09-hsn:24567: [Errno 111] Connection refused")],
          (*CLIENT, ended("COMPLETED", nodes="gpu09")), (UNKNOWN, None)),
    heard("refused by a host that lost a GPU", [f"-60s gpu04 kernel: {FELL_OFF}", client("gpu04:80: [Errno 111] Connection refused")], CLIENT, (UNKNOWN,)),
    heard("refused by a node of its own", [client("gpu02:24567: [Errno 111] Connection refused")], (ended(nodes="gpu[01-02]"),), (UNKNOWN,)),
    # a network that was lost without cutting the host off from it
    heard("cut off for two seconds, long before", [DOWN.format("-5min"), f"-298s gpu04 kernel: {IB}: Link up", client("gpu04:80 timed out")], CLIENT, (APP,)),
    heard("cut off for two seconds, right before", [DOWN.format("-4s"), f"-2s gpu04 kernel: {IB}: Link up", client("gpu04:80 timed out")], CLIENT, (APP,)),
    heard("cut off until right before", [DOWN.format("-40s"), f"-3s gpu04 kernel: {IB}: Link up", client("gpu04:80 timed out")], CLIENT, (UNKNOWN,)),
    heard("a port of no use went down", ["-5min gpu04 kernel: ixgbe 0000:17:00.0 eno8: NIC Link is Down", client("gpu04:80 timed out")], CLIENT, (APP,)),
]  # fmt: skip
FOUND = InOneStore(SITUATIONS)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_programs_that_name_a_host_elsewhere(situation: Situation) -> None:
    assert wrong(situation, *FOUND[situation.name]) == []


def test_the_doubt_names_the_host_and_the_moment() -> None:
    summary = FOUND["by its name on the fabric"][1][0]["summary"]
    assert "gpu04-hsn:24567: timed out; gpu04, which it names, panicked at" in summary
    assert "nothing but its own output tells" in summary


def test_a_refused_connection_only_adds_that_nothing_listened() -> None:
    summary = FOUND["refused by a host that is well"][1][0]["summary"]
    assert (
        "no program of gpu04, which it names, listened at that port: nothing tells whether one should have" in summary
    )


def category(lines: list[Any], words: str, **more: Any) -> str:
    error = event("job.exit_error", 99, None, f"ConnectionError: {words}", source="job_stderr", job_id=1)
    alive = [event("kernel.mce", t, n, "EDAC MC: Ver: 3.0.0") for t in (-800, 800) for n in ("n1", "n4")]
    where = world([*alive, error, *lines], [run(1, ["n1"], -100, 100), run(2, ["n4"], -500, 500, "COMPLETED", user="bob")], **more)  # fmt: skip
    return judge(where, Weigher(where, EDGES))[0].category


PANICKED = [event("kernel.panic", 80, "n4", "Kernel panic - not syncing: Fatal exception")]


def test_a_host_is_known_by_its_address_in_slurm_conf() -> None:
    inventory = Inventory([{"name": "NodeName:n4", "value": "NodeAddr=10.0.0.4", "scope": ""}], [], [])
    assert category(PANICKED, "10.0.0.4:80 timed out", inventory=inventory) == "unknown"
    assert category(PANICKED, "10.0.0.5:80 timed out", inventory=inventory) == "app.error"


def test_a_loss_that_a_user_of_the_host_can_have_made_up_changes_no_verdict_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert category(PANICKED, "n4:80 timed out") == "unknown"
    monkeypatch.setattr(Limits, "of_cause", lambda *_: Unproven(0.7, "kern.log", "n4", "they carry no uptime"))
    assert category(PANICKED, "n4:80 timed out") == "app.error"
