"""What the kernel of a node said is what is said of the node: a processor that was stuck is no panic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from correlator.facts.nodes.kinds import is_lockup
from correlator.facts.registry import short_of, title_of
from tests.correlator.making import event, facts, world

SOFT = "watchdog: BUG: soft lockup - CPU#9 stuck for 26s! [ksoftirqd/9:61]"
PANIC = "Kernel panic - not syncing: softlockup: hung tasks"


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ([SOFT], "a processor of n4 was stuck in the kernel (soft lockup)"),
        (["NMI watchdog: Watchdog detected hard LOCKUP on cpu 2", SOFT], "a processor of n4 locked up (hard lockup)"),
        (["rcu: INFO: rcu_sched self-detected stall on CPU"], "a processor of n4 was stuck in the kernel (RCU stall)"),
        (["BUG: workqueue lockup - pool cpus=3 stuck for 51s!"], "a work queue of the kernel of n4 was stuck (workqueue lockup)"),
        ([SOFT, PANIC], "the kernel of n4 panicked"),
        ([PANIC], "the kernel of n4 panicked"),
    ],
    ids=["soft", "hard and soft", "rcu", "workqueue", "soft, then a panic", "panic"],
)  # fmt: skip
def test_the_cause_is_called_what_the_kernel_called_it(lines: list[str], title: str) -> None:
    events = [
        replace(event("kernel.panic" if text == PANIC else "kernel.lockup", float(at), "n4", text), severity="crit")
        for at, text in enumerate(lines)
    ]
    where = world(events)
    found = facts(where, "node.panic")
    assert [title_of(fact) for fact in found] == [title] and short_of(found[0]) == title
    assert is_lockup(found[0]) == (PANIC not in lines)
