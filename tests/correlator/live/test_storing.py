"""The transaction of a tick: what was begun is stored as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from correlator.live.patch import Storing
from store import open_store
from store.door import Writer
from store.errors import NoSuchTable
from store.tables import FACTS, STREAMS
from tests.correlator.rows import CAPTURES, FEW, concluded


def say(writer: Writer, name: str) -> None:
    writer.change(sa.insert(FACTS).values(name=name, value="told"))


def fail(writer: Writer) -> None:
    writer.ask(sa.select(STREAMS))  # nothing was ever received here


def test_what_is_committed_is_there() -> None:
    with open_store(None) as store:
        with Storing(store) as storing:
            storing.submit(say, "one")
            storing.submit(say, name="two")
            storing.commit()
        assert (store.fact("one"), store.fact("two")) == ("told", "told")


def test_what_is_left_or_given_up_is_not_there() -> None:
    with open_store(None) as store:
        with Storing(store) as storing:
            storing.submit(say, "left")
        with pytest.raises(KeyError), Storing(store) as storing:
            storing.submit(say, "broken off")
            raise KeyError
        with Storing(store) as storing:
            storing.submit(say, "given up")
            storing.give_up()
            store.set_fact("instead", "told")  # no lock is left behind
        assert [store.fact(n) for n in ("left", "broken off", "given up", "instead")] == [None, None, None, "told"]


def test_what_the_database_refuses_is_raised_and_nothing_is_stored() -> None:
    with open_store(None) as store:
        with pytest.raises(NoSuchTable), Storing(store) as storing:
            storing.submit(say, "before")
            storing.submit(fail)
            storing.commit()
        store.set_fact("behind", "told")
        assert (store.fact("before"), store.fact("behind")) == (None, "told")


def test_nothing_begun_is_nothing_stored() -> None:
    with open_store(None) as store, Storing(store) as storing:
        storing.commit()
        store.set_fact("free", "told")
        assert store.fact("free") == "told"


@pytest.mark.parametrize(
    "capture",
    [
        pytest.param(c, id=c.name, marks=() if c.name in FEW else pytest.mark.long)
        for c in CAPTURES
        if c.name in ("job_faults", *FEW)
    ],
)
def test_events_are_stored_in_their_order(capture: Path) -> None:
    """Queries that take any message of a group take the first one stored, so answers depend on the order."""
    with concluded(capture) as store:
        stored = store.rows(
            "SELECT time, event, coalesce(host, ''), coalesce(device, ''), event_id FROM model.events ORDER BY rowid"
        )
    found = [tuple(row.values()) for row in stored]
    assert len(found) > 10 and found == sorted(found)
