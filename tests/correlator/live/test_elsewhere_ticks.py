"""Verdicts that rest on what happened on other nodes (a lost host that output names, the same program elsewhere), while
lines come in: the last tick says what a full pass says, and no final verdict changes."""

from __future__ import annotations

import pytest

from correlator.engine import correlate, result
from store import open_store
from tests.correlator.facts import test_link_modules, test_short_waits
from tests.correlator.field import Situation, tables_of
from tests.correlator.replay import replay
from tests.correlator.verdicts import test_named_hosts

#: What happens elsewhere, in words of the situations' names.
WORDS = {
    test_named_hosts: ("lost while", "refused by a host"),
    test_short_waits: ("elsewhere in time", "one of two"),
    test_link_modules: ("two users", "unplugged"),
}
SITUATIONS = [s for file, words in WORDS.items() for s in file.SITUATIONS if any(word in s.name for word in words)]


def kind_of(situation: Situation) -> str:
    return next(file.__name__ for file, words in WORDS.items() if any(word in situation.name for word in words))


@pytest.mark.one_of_each(kind=kind_of)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_ticks_say_at_last_what_a_full_pass_says(situation: Situation) -> None:
    rows = tables_of([situation])
    with open_store(None) as store:
        store.add(rows)
        correlate(store)
        whole = result(store)["verdicts"]
    assert whole
    found = replay(rows, late_s=240.0, step_s=60.0, beyond_s=3000.0)
    assert found.changed == [] and found.opened == []
    for job, verdict in whole.items():
        shown = found.verdicts[job]
        assert (shown["category"], shown["summary"]) == (verdict["category"], verdict["summary"])
        assert shown["confidence"] == pytest.approx(verdict["confidence"])
