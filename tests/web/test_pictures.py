"""A picture is a claim: what the time axis of an incident draws is so."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from collector.ingest import Ingest
from correlator.engine import correlate, result
from store import open_store
from tests.correlator.test_liars import ALL, unpacked
from tests.line_parser import line_parser
from web.app import create_app
from web.axis import CLOCKS_S

SOME = ("mgmt_flap_long", "switch_down", "munge_dies", "slurmd_killed")
PLACES = [
    place for kind in ("captures", "archived captures", "endings", "second party", "scenarios") for place in ALL[kind]
]


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(p, marks=[] if p.name in SOME else [pytest.mark.long], id=f"{p.parent.name}-{p.name}")
        for p in PLACES
    ],
)
def test_no_arrow_goes_back_in_time_or_to_where_it_came_from(place: Path) -> None:
    with open_store(None) as store, unpacked(place) as tree:
        Ingest(store, parser=line_parser()).run([tree])
        correlate(store)
        client = TestClient(create_app(store))
        for incident in result(store)["incidents"]:
            axis = client.get(f"/api/v1/axis/{incident['id']}").json()
            at = {mark["id"]: mark["t"] for mark in axis["marks"]}
            for arrow in axis["arrows"]:
                assert arrow["from"] != arrow["to"] and at[arrow["from"]] <= at[arrow["to"]] + CLOCKS_S, (
                    incident["id"],
                    arrow,
                )
