"""Programs that start no more processes: a limit that jobs of a node share, one of their own, and words without the kernel's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlator.field import APP, UNKNOWN, Situation, concluded, ended, heard, wrong

NO_FORK = "-1s {0} stderr: bash: fork: Resource temporarily unavailable"
NO_THREAD = "-1s {0} stderr: RuntimeError: can't start new thread"
REFUSED = "{} gpu07 kernel: cgroup: fork rejected by pids controller in {}"
SHARED, OWN = "/system.slice/slurmd.service", "/system.slice/slurmstepd.scope/job_{0}/step_0/user/task_0"


def alone(**more: Any) -> dict[str, Any]:
    return ended(nodes="gpu07", start="-10min", user="eve", **more)


SITUATIONS = [
    heard("the node's limit for slurmd, which all its jobs share", [REFUSED.format("-3s", SHARED), NO_FORK], (alone(),), (UNKNOWN,), at_most=0.7),
    heard("threads, and a limit of the whole slice", [REFUSED.format("-3s", "/system.slice"), NO_THREAD], (alone(),), (UNKNOWN,), at_most=0.7),
    heard("a group that the kernel does not name", [REFUSED.format("-3s", "").rstrip(), NO_FORK], (alone(),), (UNKNOWN,), at_most=0.7),
    heard("a limit of the job's own group", [REFUSED.format("-3s", OWN), NO_FORK], (alone(),), (APP,)),
    heard("a limit of a user's sessions", [REFUSED.format("-3s", "/user.slice/user-1007.slice"), NO_FORK], (alone(),), (APP,)),
    *(heard(f"the limit of a service beside slurmd: {unit}", [REFUSED.format("-3s", f"/system.slice/{unit}"), NO_FORK], (alone(),), (APP,))
      for unit in ("cron.service", "nginx.service")),
    heard("an hour before it began", [REFUSED.format("-70min", SHARED), NO_FORK], (alone(),), (APP,)),
    heard("on another node", [REFUSED.format("-3s", SHARED).replace("gpu07", "gpu08"), NO_FORK], (alone(),), (APP,)),
    heard("a program that fails by something else", [REFUSED.format("-3s", SHARED), "-1s {0} stderr: KeyError: 'train_loss'"], (alone(),), (APP,)),
    heard("a program that prints the kernel's line", ["-3s {0} stderr: " + REFUSED.split("kernel: ")[1].format(SHARED), NO_FORK], (alone(),), (APP,)),
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation(situation: Situation) -> None:
    assert wrong(situation, *concluded([situation])[situation.name]) == []


def test_the_verdict_names_the_group() -> None:
    _, (verdict,) = concluded(SITUATIONS[:1])[SITUATIONS[0].name]
    assert f"the control group {SHARED}, which it shares with others, had reached its limit" in verdict["summary"]
