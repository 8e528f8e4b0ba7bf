"""What operators are told to do: no command names what Slurm does not know, and none drains a node that has no need."""

from __future__ import annotations

from typing import Any

import pytest

from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN, NODE_PANIC, NODE_REBOOT
from correlator.facts.registry import cause_of, root_event
from correlator.incidents import sentences
from correlator.incidents.incident import Incident
from correlator.model.attributes import END_UNSEEN, PLANNED, REASON
from correlator.model.nouns import Event, Fact
from parsers.xid import xids
from tests.correlator.making import T0, event, facts, run, world

DRAIN = "scontrol update nodename=n1 state=drain reason='link eth0 down'"


def outage(end: float | None = 4.0, host: str = "n1", *, unseen: bool = False, events: tuple[Event, ...] = ()) -> Fact:
    attrs = {END_UNSEEN: True} if unseen else {}
    until = None if end is None else T0 + end
    return LINK_OUTAGE.fact(T0, until, 0.1, host=host, device="eth0", attrs=attrs, events=events)


def advised(
    root: Fact, *, slowed: bool = False, flaps: int = 0, down: bool = False, back: float | None = None
) -> list[tuple[str, str | None]]:
    """``back``: how many seconds after T0 the node was back that Slurm set DOWN, if it was."""
    members = [NODE_DOWN.fact(T0 + 5, back and T0 + back, 0.1, host="n1")] if down else []
    runs = [run(1, ["n1"], -10, 100)] if slowed else []
    incident = Incident("I-1", root, "warning", "infra.network", members=members, flaps=[outage()] * flaps, slowed=runs)
    return [(row["text"], row["command"]) for row in sentences.advice(incident)]


CHECK = "Check cable, transceiver and switch port of eth0 of n1 in the next window."


@pytest.mark.parametrize(
    ("root", "more", "text", "command"),
    [
        (outage(), {}, "Nothing now: no job was hurt", None),
        (outage(), {"flaps": 5}, "Nothing now: no job was hurt", None),
        (outage(), {"slowed": True}, CHECK, None),
        (outage(), {"down": True}, CHECK, None),
        # The repair list has it as one loss to watch.
        (outage(), {"down": True, "back": 60.0}, "Nothing now: no job was hurt", None),
        (outage(), {"slowed": True, "flaps": 1}, "Drain n1 when it is idle", DRAIN),
        (outage(None), {}, "Drain n1 when it is idle", DRAIN),
        (outage(None, unseen=True), {}, "Nothing now: no job was hurt", None),
        (
            outage(None, "leaf1", events=(event("switch.port_down", 0, "leaf1", source="switch"),)), {},
            "Check cable and transceiver at eth0 of switch leaf1", None,
        ),
        # The repair list says of it that there is nothing to do.
        (outage(4.0, "leaf1", events=(event("switch.port_down", 0, "leaf1", source="switch"),)), {}, "Nothing now: no job was hurt", None),
        (
            outage(4.0, "leaf1", events=(event("switch.port_down", 0, "leaf1", source="switch"),)), {"slowed": True},
            "Check cable and transceiver at eth0 of switch leaf1", None,
        ),
        # Only the switch's log tells of it, and it is the node's link.
        (outage(None, events=(event("switch.port_down", 0, "leaf1", source="switch"),)), {}, "Drain n1", DRAIN),
    ],
)  # fmt: skip
def test_what_a_lost_link_calls_for(root: Fact, more: dict[str, Any], text: str, command: str | None) -> None:
    ((said, what),) = advised(root, **more)
    assert said.startswith(text) and what == command


@pytest.mark.parametrize("code", [code for code, xid in xids().items() if xid.advice and not xid.unused])
def test_no_xid_drains_a_node_where_nvidia_recommends_to_go_on(code: int) -> None:
    lines = [event("gpu.xid", 0, "n1", f"NVRM: Xid (PCI:0000:3a:00): {code}", xid=code, pci="0000:3a:00")]
    (fact,) = facts(world(lines), "gpu.xid")
    commands = [command for _, command in cause_of(fact).advice if command]
    assert bool(commands) == (xids()[code].action not in ("IGNORE", "RESTART_APP"))


@pytest.mark.parametrize(
    ("code", "more", "severity"),
    [
        pytest.param(79, "GPU has fallen off the bus.", "degraded", id="fallen off the bus"),
        pytest.param(48, "double-bit ECC error", "degraded", id="memory to be reset"),
        pytest.param(9999, "", "degraded", id="a code that NVIDIA does not list"),
        pytest.param(63, "row remapping", "benign", id="a spare row was taken"),
        pytest.param(79, "nonfatal", "benign", id="the driver calls it not fatal"),
    ],
)
def test_a_gpu_that_needs_a_repair_is_not_well_though_no_job_was_on_it(code: int, more: str, severity: str) -> None:
    lines = [event("gpu.xid", 0, "n1", f"NVRM: Xid (PCI:0000:3a:00): {code}, {more}", xid=code, pci="0000:3a:00")]
    (fact,) = facts(world(lines), "gpu.xid")
    cause = cause_of(fact)
    assert cause is not None and cause.unharmed == severity


@pytest.mark.parametrize(
    ("ends", "resumes"),
    [
        ([], True),
        ([None], True),
        ([60.0], False),
        ([60.0, None], True),
    ],
)
def test_a_node_that_is_back_in_service_is_not_to_be_put_back(ends: list[float | None], resumes: bool) -> None:
    """A node that had panicked answered again after four minutes, and Slurm took it back; the page said `state=resume`."""
    downs = [
        NODE_DOWN.fact(T0 + 5, None if end is None else T0 + 5 + end, 0.1, host=f"n{n}") for n, end in enumerate(ends)
    ]
    incident = Incident("I-1", NODE_PANIC.fact(T0, None, 0.1, host="n0"), "impact", "infra.node", members=downs)
    commands = [row["command"] for row in sentences.advice(incident)]
    assert ("scontrol update nodename=n0 state=resume" in commands) is resumes
    assert sentences.advice(incident)[0]["text"].startswith("Save the crash dump")


def test_an_end_that_nobody_saw_puts_no_node_back() -> None:
    down = NODE_DOWN.fact(T0 + 5, T0 + 60, 0.1, host="n0", attrs={END_UNSEEN: True})
    incident = Incident("I-1", NODE_PANIC.fact(T0, None, 0.1, host="n0"), "impact", "infra.node", members=[down])
    assert any("state=resume" in str(row["command"]) for row in sentences.advice(incident))


def test_planned_work_calls_for_no_search_for_a_fault() -> None:
    """Of a node that was rebooted for a new DIMM the page said to look for a power or hardware cause, and `state=resume` beside Copy."""
    root = NODE_REBOOT.fact(
        T0, T0 + 60, 0.1, host="n1", attrs={PLANNED: True, REASON: "planned maintenance: DIMM swap"}
    )
    assert root_event(root, 1) == "node.maintenance"
    assert sentences.advice(Incident("I-1", root, "benign", "infra.node")) == []
