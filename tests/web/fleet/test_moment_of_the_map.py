"""The map's present moment, and the last days of the list of repairs, are by times that no user chose."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from store import open_store
from store.duckdb.store import DuckStore
from store.questions import repair_list
from tests.web.fleet.test_fleet import insert
from web.fleet.model import fleet
from web.reading import Reader

NOON = datetime(2026, 11, 20, 12)
#: Slurm's answer holds until the next poll.
STATE = {
    "time": NOON,
    "until": NOON + timedelta(minutes=10),
    "cluster": "c",
    "host": "n1",
    "state": "ALLOCATED",
    "source": "poll",
}


def line(name: str, at: datetime, authority: str | None, incident: str | None = None) -> dict[str, Any]:
    return {"event_id": name, "time": at, "cluster": "c", "host": "n1", "event": "switch.port_down", "authority": authority,
            "incident_id": incident, "source": None}  # fmt: skip


#: Years before and after everything else.
LIES = [
    line("lie1", datetime(2016, 1, 1), "local"),
    line("lie2", datetime(2030, 1, 1), "local"),
    line("lie3", datetime(2029, 1, 1), "job"),
    line("lie4", datetime(2028, 1, 1), "network"),
]
#: What shows a line in slurmctld's name to be false has its time and name (correlator/evidence/forgeries.py).
LIES += [{**line("lie5", at, ""), "event": "security.forged_evidence", "source": "slurmctld"} for at in (datetime(2015, 1, 1), datetime(2031, 1, 1))]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "last"),
    [
        ([line("a", NOON + timedelta(minutes=1), "daemon")], NOON + timedelta(minutes=1)),
        (
            [line("a", NOON + timedelta(minutes=2), "local", "i1"), line("b", NOON, "kernel")],
            NOON + timedelta(minutes=2),
        ),
    ],
    ids=["a daemon's line", "a line that an incident rests on"],
)
def test_a_users_stamp_does_not_say_which_time_it_is(events: list[dict[str, Any]], last: datetime) -> None:
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        insert(store, "model.node_states", [STATE])
        insert(store, "model.events", [*events, *LIES])
        drawn = fleet(Reader(store), at=None, measure="state", by=None, incident=None)
        assert (drawn.first, drawn.last, drawn.at) == (NOON, last, last)
        assert drawn.nodes["says"].to_list() == ["ALLOCATED"]
        assert store.ask(repair_list.last_event())[0]["dated"] == last


def test_where_users_can_have_written_all_lines_these_tell_the_time() -> None:
    with open_store(None) as store:
        assert isinstance(store, DuckStore)
        insert(store, "model.events", [line("a", NOON, "local")])
        assert fleet(Reader(store), at=None, measure="state", by=None, incident=None).at == NOON
        assert store.ask(repair_list.last_event())[0]["dated"] == NOON
