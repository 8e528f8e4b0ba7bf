"""The outside simulator keeps its own promises; nothing here runs the product."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("outside_cluster.py")


def made(seed: int, out: Path) -> dict:
    """Runs the simulator, gives its truth."""
    subprocess.run([sys.executable, str(PROGRAM), "--seed", str(seed), "--out", str(out)], check=True)
    return json.loads((out / "truth.json").read_text())


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A seed's folder and truth."""
    out = tmp_path_factory.mktemp(f"outside{request.param}")
    return out, made(request.param, out)


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    """Nothing but the seed decides."""
    for name in ("a", "b"):
        made(2, tmp_path / name)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(tmp_path / "b") for p in (tmp_path / "b").rglob("*") if p.is_file())
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


def test_every_run_has_a_truth(cluster: tuple[Path, dict]) -> None:
    """sacct's runs are the truth's runs, with the same states."""
    out, truth = cluster
    rows = (out / "logs/accounting/sacct.txt").read_text().splitlines()
    at = {name: i for i, name in enumerate(rows[0].split("|"))}
    seen = {}
    for row in (r.split("|") for r in rows[1:]):
        if "." not in row[at["JobID"]]:
            restart = row[at["Restarts"]]
            seen[row[at["JobID"]] + (f"#{restart}" if restart != "0" else "")] = row[at["State"]].split()[0]
    known = (
        {k: v["state"] for k, v in truth["verdicts"].items()}
        | dict.fromkeys(truth["completed"], "COMPLETED")
        | truth["unfinished"]
    )
    assert seen == known
    assert 120 <= len(seen) <= 300


def test_every_event_left_a_line(cluster: tuple[Path, dict]) -> None:
    """A root event can be found in the logs, unless its source is lost or it hurt nobody within the window."""
    out, truth = cluster
    for inc in truth["incidents"]:
        extra = inc["extra"]
        if extra["lost"] or inc["severity"] == "noeffect":
            continue
        place = out / "logs" / extra["where"]
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        assert any(extra["needle"] in p.read_text() for p in files), (inc["kind"], extra)


def test_truth_is_consistent(cluster: tuple[Path, dict]) -> None:
    """Blamed runs belong to their incident, and there is enough of everything."""
    _, truth = cluster
    by_id = {i["id"]: i for i in truth["incidents"]}
    for key, verdict in truth["verdicts"].items():
        if verdict["incident"]:
            inc = by_id[verdict["incident"]]
            assert key in inc["jobs"] and verdict["category"] == inc["category"]
        else:
            assert not verdict["category"].startswith("infra")
    assert 20 <= len(truth["incidents"]) <= 40
    assert len({i["kind"] for i in truth["incidents"]}) >= 18
    assert all(i["root_cause"]["event_type"] in i["root_cause"]["accept"] for i in truth["incidents"])
