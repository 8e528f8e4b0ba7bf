"""The indexes that a tick updates equal those built from all conclusions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from correlator.incidents.lemons import Roots, counts, rooted
from correlator.live.lookup import Spans
from correlator.live.merge import _by_start
from correlator.live.patch import _event
from tests.correlator.making import event

NODES = st.sampled_from(["n1", "n2"])
INCIDENTS = st.lists(
    st.builds(
        lambda number, host, kind, severity, job: {
            "id": f"I-{number}", "root_cause": {"event": kind, "host": host}, "severity": severity, "jobs": [{"job_id": str(job)}] if job else [],
        },
        st.integers(0, 99), NODES, st.sampled_from(["gpu.xid", "nic.link_down", "app.error"]), st.sampled_from(["impact", "benign"]), st.integers(0, 3),
    ),
    max_size=12, unique_by=lambda i: i["id"],
)  # fmt: skip


@given(before=INCIDENTS, more=INCIDENTS, data=st.data())
def test_roots_without_some_incidents_and_with_others(before: list[dict[str, Any]], more: list[dict[str, Any]], data: st.DataObject) -> None:  # fmt: skip
    gone = data.draw(st.sets(st.integers(0, max(0, len(before) - 1)))) if before else set()
    stays = [i for n, i in enumerate(before) if n not in gone]
    known = Roots.of(before)
    reported = known.but((rooted(before[n]) for n in gone), map(rooted, more))
    assert {p: len(jobs) for p, jobs in reported.stories.items() if jobs} == counts([*stays, *more])
    assert {p: len(jobs) for p, jobs in known.stories.items()} == counts(before), "the former ones are as they were"


def spans(places: list[tuple[int, int]]) -> Spans:
    start = np.array([float(s) for s, _ in places])
    names = np.array([f"I-{n}" for _, n in places], object)
    return Spans(names, start, start, start, start, start + 1.0, start, {}, {}, {})


PLACES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8)


@given(kept=PLACES, taken=PLACES)
def test_incidents_that_are_concluded_anew_go_where_they_belong(kept: list[tuple[int, int]], taken: list[tuple[int, int]]) -> None:  # fmt: skip
    both = sorted(kept) + sorted(taken)
    order = _by_start(spans(both), len(kept))
    listed = both if order is None else [both[n] for n in order]
    assert listed == sorted(both)


def test_which_incidents_have_lines_in_a_stretch_of_time() -> None:
    known = spans([(0, 1), (10, 2), (20, 3)])
    assert known.within([(11.0, 12.0)]).tolist() == [False, True, False]
    assert known.within([(0.5, 0.6), (19.0, 20.0)]).tolist() == [True, False, True]
    assert known.within([]).tolist() == [False] * 3


def test_an_event_is_found_by_its_time_and_id() -> None:
    events = [event("nic.link_down", 1.0, "n1"), event("nic.link_down", 2.0, "n1"), event("nic.link_down", 2.0, "n2")]
    assert [_event(events, e.id, e.time) for e in events] == events
    assert _event(events, events[0].id, 2.0) is None
