"""What operators are told to do: no command names what Slurm does not know, and none drains a node that has no need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import cause_of
from correlator.incidents import sentences
from correlator.incidents.incident import Incident
from correlator.model.attributes import END_UNSEEN
from correlator.model.nouns import Event, Fact
from correlator.repairs.repairs import repairs
from correlator.site.senders import configured_nodes
from parsers.xid import xids
from store import open_store
from tests.correlator.making import T0, event, facts, run, world
from tests.correlator.test_liars import ALL, unpacked
from tests.line_parser import line_parser

DRAIN = "scontrol update nodename=n1 state=drain reason='link eth0 down'"


def outage(end: float | None = 4.0, host: str = "n1", *, unseen: bool = False, events: tuple[Event, ...] = ()) -> Fact:
    attrs = {END_UNSEEN: True} if unseen else {}
    until = None if end is None else T0 + end
    return LINK_OUTAGE.fact(T0, until, 0.1, host=host, device="eth0", attrs=attrs, events=events)


def advised(root: Fact, *, slowed: bool = False, flaps: int = 0, down: bool = False) -> list[tuple[str, str | None]]:
    members = [NODE_DOWN.fact(T0 + 5, None, 0.1, host="n1")] if down else []
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
        (outage(), {"slowed": True, "flaps": 1}, "Drain n1 when it is idle", DRAIN),
        (outage(None), {}, "Drain n1 when it is idle", DRAIN),
        (outage(None, unseen=True), {}, "Nothing now: no job was hurt", None),
        (
            outage(None, "leaf1", events=(event("switch.port_down", 0, "leaf1", source="switch"),)), {},
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


def disagreeing(place: Path) -> list[str]:
    """Incidents whose command names no node of Slurm's, or drains for a link of which the repair list says to do nothing."""
    with open_store(None) as store, unpacked(place) as tree:
        Ingest(store, parser=line_parser()).run([tree])
        correlate(store)
        found, listed = result(store), repairs(store).repairs
        settings = store.rows("SELECT * FROM raw.settings")
        nodes = {node for row in store.rows("SELECT nodes FROM raw.jobs") for node in row["nodes"] or ()}
    nodes |= configured_nodes(settings)
    idle = {(r.host, r.device) for r in listed if r.action.startswith("Nothing")}
    wrong = []
    for one in found["incidents"]:
        root = one["root_cause"]
        # The list waits a while before it says that a link is down.
        lost = {(span["host"], span["device"]) for span in one["spans"] if span["end"] is None}
        for row in one["advice"]:
            command = row["command"] or ""
            named = command.partition("nodename=")[2].split(" ")[0]
            if named and nodes and named not in nodes:
                wrong.append(f"{place.name}: {command}: no node of Slurm's")
            if "state=drain" in command and (root["host"], root["device"]) in idle - lost:
                wrong.append(f"{place.name}: {command}: the repair list says to do nothing")
    return wrong


SOME = ("mgmt_flap_short", "mgmt_flap_long", "switch_down", "fabric_flap")


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=[] if place.name in SOME else [pytest.mark.long], id=place.name)
        for kind in ("captures", "archived captures", "second party", "scenarios")
        for place in ALL[kind]
    ],
)
def test_commands_name_nodes_and_agree_with_the_repair_list(place: Path) -> None:
    assert not disagreeing(place)
