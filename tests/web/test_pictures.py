"""A picture is a claim, and so is a command beside it: what the page of an incident shows is so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.repairs.repairs import repairs
from correlator.site.senders import configured_nodes
from store import open_store
from store.duckdb.store import DuckStore
from tests.correlator.test_liars import ALL, unpacked
from tests.line_parser import line_parser
from web.app import create_app
from web.axis import CLOCKS_S

SOME = ("mgmt_flap_long", "mgmt_flap_short", "switch_down", "munge_dies", "slurmd_killed")
PLACES = [place for kind in ("captures", "archived captures", "second party", "scenarios") for place in ALL[kind]]


def backwards(axis: dict[str, Any]) -> list[dict[str, Any]]:
    """The arrows that go back in time, or to where they came from."""
    at = {mark["id"]: mark["t"] for mark in axis["marks"]}
    return [a for a in axis["arrows"] if a["from"] == a["to"] or at[a["from"]] > at[a["to"]] + CLOCKS_S]


def disagreeing(store: DuckStore, incidents: list[dict[str, Any]]) -> list[str]:
    """Commands that name no node of Slurm's, or drain it for a link of which the repair list says to do nothing."""
    nodes = {node for row in store.rows("SELECT nodes FROM raw.jobs") for node in row["nodes"] or ()}
    nodes |= configured_nodes(store.rows("SELECT * FROM raw.settings"))
    idle = {(r.host, r.device) for r in repairs(store).repairs if r.action.startswith("Nothing")}
    wrong = []
    for incident in incidents:
        root = incident["root_cause"]
        # The list waits a while before it says that a link is down.
        lost = {(span["host"], span["device"]) for span in incident["spans"] if span["end"] is None}
        for command in (row["command"] or "" for row in incident["advice"]):
            named = command.partition("nodename=")[2].split(" ")[0]
            if named and nodes and named not in nodes:
                wrong.append(f"{command}: no node of Slurm's")
            if "state=drain" in command and (root["host"], root["device"]) in idle - lost:
                wrong.append(f"{command}: the repair list says to do nothing")
    return wrong


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(p, marks=[] if p.name in SOME else [pytest.mark.long], id=f"{p.parent.name}-{p.name}")
        for p in PLACES
    ],
)
def test_arrows_and_commands(place: Path) -> None:
    with open_store(None) as store, unpacked(place) as tree:
        Ingest(store, parser=line_parser()).run([tree])
        correlate(store)
        client, incidents = TestClient(create_app(store)), result(store)["incidents"]
        for incident in incidents:
            assert not backwards(client.get(f"/api/v1/axis/{incident['id']}").json()), incident["id"]
        assert not disagreeing(store, incidents)
