"""Ids of incidents: stable, and unique over a large cluster's year."""

from __future__ import annotations

from dataclasses import replace

from correlator.incidents.incidents import incident_id
from correlator.model.nouns import Fact

ROOT = Fact("gpu.xid", 1_790_000_000.25, 1_790_000_000.25, 0.1, "gpu-001", "0000:18:00.0", attrs={"code": 79})


def test_a_name_says_what_the_root_is_and_nothing_else() -> None:
    assert incident_id("a", ROOT) == incident_id("a", replace(ROOT, end=None, sigma=5.0, run="15"))
    others = [replace(ROOT, host="gpu-002"), replace(ROOT, device="0000:2a:00.0"), replace(ROOT, start=ROOT.start + 1)]
    assert len({incident_id("a", ROOT), incident_id("b", ROOT), *(incident_id("a", other) for other in others)}) == 5


def test_thirty_thousand_incidents_have_names_of_their_own() -> None:
    roots = [replace(ROOT, host=f"gpu-{i % 1000:04d}", start=ROOT.start + i) for i in range(30_000)]
    assert len({incident_id("a", root) for root in roots}) == len(roots)
