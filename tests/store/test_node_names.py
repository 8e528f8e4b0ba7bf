"""The list of nodes: since when a state holds, however often it is polled."""

from __future__ import annotations

from datetime import datetime

import pytest

from store import open_store
from store.questions import nodes


@pytest.mark.parametrize(
    ("states", "since"),
    [
        (["idle"], 0),
        (["idle", "idle", "idle"], 0),  # polled: idle since the first of them
        (["idle", "DOWN*", "down*"], 1),  # spelled as in accounting and in scontrol
        (["idle", "down*", "idle", "idle"], 2),
        (["idle", None, "idle"], 2),  # unknown between
    ],
)
def test_a_state_holds_since_it_was_first_reported_without_another_between(
    states: list[str | None], since: int
) -> None:
    with open_store(None) as store:
        for minute, state in enumerate(states):
            row = [datetime(2026, 11, 21, 10, minute), state]
            store.cursor().execute(
                "INSERT INTO model.node_states (time, cluster, host, state) VALUES (?, 'c', 'n1', ?)", row
            )
        (node,) = store.ask(nodes.listed_nodes(limit=10))
    assert (node["state"], node["since"]) == (states[-1], datetime(2026, 11, 21, 10, since))
