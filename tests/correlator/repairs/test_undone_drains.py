"""A node that somebody gave back is not advised about again until its device has reported a new fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from correlator.repairs.drain_advice import shadow
from correlator.repairs.drain_candidates import candidates
from correlator.repairs.repairs import Repair, advise, repairs
from correlator.repairs.undone_drains import hold, undone_drains
from parsers.record import frame
from queries import reports
from store import open_store
from store.door import Door
from tests.correlator.repairs.test_drain_advice import at, cables, drained, link
from tests.replaced_model import replace_model

#: Nodes that were drained and given back.
GIVEN_BACK = ("n8", "n9", "n10")


def slurmctld(host: str, minutes: float, message: str) -> dict[str, Any]:
    (row,) = link(
        host, "", minutes, side="slurm.node", message=message, entities=json.dumps({"nodes": [host]}), layer="slurmctld"
    )
    return row | {"event": "slurm.node_up", "event_id": f"up{host}", "device": None}


@pytest.fixture(scope="module")
def store() -> Iterator[Door]:
    """Links that stay down. Only n9 has another fault after it was given back, and n10 came back by itself."""
    hosts = [f"n{n}" for n in range(20)]
    events = [
        *link("n8", "rdma0", 0), *link("n9", "rdma0", 0, 3000.0), *link("n9", "rdma0", 100), *link("n10", "rdma0", 0), *link("n18", "rdma0", 25, 1.0), *link("n19", "rdma0", 700, 1.0),
        slurmctld("n8", 43.2, "update_node: node n8 state set to IDLE"), slurmctld("n10", 43.2, "node n10 returned to service"),
    ]  # fmt: skip
    states = [{"cluster": "c", "host": h, "time": at(-600), "state": "idle", "source": "poll"} for h in hosts]
    for host in GIVEN_BACK:
        back = {**drained(host, 43.2, ""), "state": "idle", "reason": None}
        states += [drained(host, 20, "bad cable", actor="dora(1207)"), back]
    with open_store(None) as made:
        frames = {
            "events": pl.DataFrame(events, infer_schema_length=None),
            "node_states": pl.DataFrame(states, infer_schema_length=None),
        }
        replace_model(made, frames)
        made.append({"links": cables(hosts)})
        yield made


def test_what_somebody_judged_is_not_advised_again_without_a_new_fault(store: Door) -> None:
    """n8 was given back while its link was down, n9 before it failed again; n10 came back without anybody's word."""
    found = shadow(store)
    assert [(one.host, one.at) for one in found.advice if one.host == "n8"] == [("n8", at(10))]
    assert [one.at for one in found.advice if one.host == "n9"] == [at(110), at(10)]
    assert len([one for one in found.advice if one.host == "n10"]) == 2
    (held,) = found.held
    why = "resumed by somebody at 2026-03-01 00:43 UTC; new evidence would be needed"
    assert (held.host, held.device, held.why) == ("n8", "rdma0", why)
    tables = reports.run(store, "drain-advice").section("advice").tables
    assert [(row["node"], row["why"]) for row in tables[1].rows] == [("n8", why)]
    (listed,) = (one for one in repairs(store).repairs if one.host == "n8")
    assert listed.command is None and listed.action.endswith(f"The node was {why} to drain it again.")
    assert {one.host: one.held for one in candidates(store, "c")}["n8"] == why


@pytest.mark.parametrize(
    ("later", "is_held"),
    [
        ([], True),
        ([*link("n8", "rdma0", 45, authority="local")], True),
        ([*link("n8", "rdma0", 45, authority="job"), *link("n8", "rdma0", 46, authority="network")], True),
        ([{**link("n8", "rdma0", 45, authority="local")[0], "event": "nic.module_event"}], True),
        ([*link("n8", "rdma0", 45, side="nic.link")], False),
        ([*link("leaf1", "Ethernet8", 45, side="switch.port", authority="device")], False),
        ([{**link("n8", "rdma0", 45)[0], "event": "nic.module_event"}], False),
        # A user's line soon before does not make the kernel's a repetition of what was judged.
        ([*link("n8", "rdma0", 44.9, authority="local"), *link("n8", "rdma0", 45)], False),
    ],
)  # fmt: skip
def test_only_lines_that_no_user_can_write_are_new_evidence(later: list[dict[str, Any]], is_held: bool) -> None:
    """n8 was given back at minute 43 while its link was down."""
    events = [
        *link("n8", "rdma0", 40),
        *later,
        *link("n19", "rdma0", 90, 1.0),
        slurmctld("n8", 43.2, "update_node: node n8 state set to IDLE"),
    ]
    for number, event in enumerate(events):
        event["event_id"] = str(number)
    back = {**drained("n8", 43.2, ""), "state": "idle", "reason": None}
    states = [{"cluster": "c", "host": "n8", "time": at(-600), "state": "idle", "source": "poll"}, drained("n8", 41, "bad cable", actor="dora(1207)"), back]  # fmt: skip
    with open_store(None) as made:
        frames = {"events": pl.DataFrame(events, infer_schema_length=None), "node_states": pl.DataFrame(states)}
        replace_model(made, frames)
        cable = {
            "cluster": "c",
            "host": "n8",
            "device": "rdma0",
            "switch": "leaf1",
            "switch_port": "Ethernet8",
            "plane": "0",
        }
        made.append({"links": frame("links", [cable])})
        (one,) = (one for one in repairs(made).repairs if one.host == "n8")
    assert (bool(one.held), one.command is None) == (is_held, is_held)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("drained", 0, 10, "not logged by Slurm")], "resumed by somebody at 2026-03-01 00:10 UTC"),
        ([("drained", 0, 10, "alice(1001)")], "resumed by alice at 2026-03-01 00:10 UTC"),
        ([("drained", 0, 10, None)], "resumed by somebody at 2026-03-01 00:10 UTC"),
        ([("drained", 0, 10, "slurmctld")], ""),
        ([("down", 0, 10, "alice(1001)")], ""),
        ([("drained", 0, None, None)], ""),
        ([("drained", 0, 10, None), ("drained", 10, None, None)], ""),
        ([("drained", 0, 10, None), ("down", 10, 20, "bob(3)")], "resumed by bob at 2026-03-01 00:20 UTC"),
        ([("drained", 0, 10, "bob(3)"), ("drained", 30, 40, "eve(4)")], "resumed by eve at 2026-03-01 00:40 UTC"),
    ],
)  # fmt: skip
def test_who_gave_a_node_back(rows: list[tuple[str, int, int | None, str | None]], expected: str) -> None:
    ledger = [
        {"cluster": "c", "host": "n1", "state": state, "begin": at(begin), "end": None if end is None else at(end), "undone_by": by}
        for state, begin, end, by in rows
    ]  # fmt: skip
    repair = Repair("link", "c", "n1", "rdma0", down=True, newest_fault=at(0))
    advise(repair)
    hold(repair, undone_drains(ledger))
    assert repair.held == (f"{expected}; new evidence would be needed" if expected else "")
    repair.newest_fault = at(50)
    repair.held = ""
    advise(repair)
    hold(repair, undone_drains(ledger))
    assert repair.held == "" and repair.command, "a fault after it is new evidence"
