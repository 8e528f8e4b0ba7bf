"""A simulated cluster of one seed, through the real parser: no innocent cause is blamed, and what was broken is found."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.simulators import scenario
from tests.correlator.situations import conclude

#: A seed with 13 runs that ended badly; ``benchmarks/correlation.py --generate`` scores any number of seeds.
SEED = 6


def test_a_made_cluster(tmp_path: Path) -> None:
    truth = scenario.make(SEED, tmp_path)
    found = conclude(tmp_path / "logs")
    stated = {key: verdict["category"] for key, verdict in found["verdicts"].items()}
    assert stated == {key: verdict["category"] for key, verdict in truth["verdicts"].items()}
    root = {i["id"]: i["root_cause"]["host"] for i in found["incidents"]}
    blamed = {key: root.get(verdict["incident_id"]) for key, verdict in found["verdicts"].items()}
    broken = {i["id"]: i["root_cause"]["host"] for i in truth["incidents"]}
    assert blamed == {key: broken.get(verdict["incident"]) for key, verdict in truth["verdicts"].items()}


def test_a_seed_makes_the_same_cluster_again(tmp_path: Path) -> None:
    first, second = (scenario.make(SEED, tmp_path / name) for name in "ab")
    assert first == second
    files = [sorted(p.relative_to(tmp_path / n) for p in (tmp_path / n).rglob("*") if p.is_file()) for n in "ab"]
    assert files[0] == files[1]
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files[0])
    assert json.loads((tmp_path / "a" / "truth.json").read_text())["verdicts"]
