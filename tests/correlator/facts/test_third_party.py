"""A package adds a kind of fact from one folder, and touches nothing else.

The folder has its pattern, detector, edge, texts, lane and doc row.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from correlator.facts import registry
from correlator.model import subjects
from parsers import extensions

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(__file__).parents[1] / "coolant_leak"

#: Concludes about one situation, writes the pages of docs and prints the result, in a process that finds the package by
#: its entry points only.
ASK = """
import json
import sys
from datetime import timedelta
from correlator.edges.load import rules
from correlator.engine import conclude_cluster, load_edges
from correlator.selftest.case import Case, Job, Line
from correlator.selftest.situations import BEGINNING, cluster_of, tables_of
from parsers.engine import LineParser
from store import open_store
from web import axis, job_software

edges = load_edges()
leak = next(edge for edge in edges.edges if edge.id == "COOLANT1")
lines = (Line(0.0, "gpu01", "kernel", "coolant leak detected in tray 3"), Line(30.0, "gpu01", "kernel", "coolant dried in tray 3"))
jobs = (Job(7, "gpu[01-02]", -600.0, 60.0, "FAILED", exit_code=1), Job(8, "gpu03", -600.0, 900.0, "COMPLETED"))
beside = Job(9, "gpu01", -600.0, 900.0, "COMPLETED")
wet, dry = (Case("t", leak, 1, {}, True, lines=lines[:count], jobs=jobs) for count in (1, 2))
shared = Case("t", leak, 1, {}, True, lines=lines[:1], jobs=(*jobs, beside))
with open_store(None) as store:
    store.add(tables_of([wet, dry, shared], LineParser()))
    found, other, third = (conclude_cluster(store, cluster_of(number), edges).result for number in (0, 1, 2))
(incident,) = found.incidents
start, end, last = BEGINNING, BEGINNING + timedelta(hours=1), BEGINNING
drawn = axis.build({"document": incident}, events=[], states=[], runs=[], beats=[], start=start, end=end, t0=BEGINNING)
lanes = [(lane["layer"], lane["label"]) for lane in drawn["lanes"]]
versions = ({"gpu01": {"tray_firmware": old, "bios": old}} for old in ("1", "2"))
fits = [one["name"] for one in job_software.changes(*versions, found.verdicts["7"]) if one["fits"]]
sys.path.insert(0, "docs")
import generate
written = {}
for arguments in (["--to", sys.argv[1]], ["--check"]):
    sys.argv[1:] = arguments
    written[arguments[0]] = generate.main()
print(json.dumps({"written": written, "others": third.verdicts["7"], "fits": fits, "incident": incident, "verdict": found.verdicts["7"], "lanes": lanes, "dry": other.verdicts["7"]}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages, in which the package is installed."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(FOLDER, folder / "coolant_leak", ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / "coolant_leak-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: coolant-leak\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[faultline.facts]\ncoolant = coolant_leak\n\n[faultline.patterns]\ncoolant = coolant_leak:PATTERNS\n"
    )
    return folder


def run(site: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    done = subprocess.run([sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where that process writes the pages."""
    return tmp_path_factory.mktemp("pages") / "not yet there"


@pytest.fixture(scope="module")
def told(site: Path, pages: Path) -> dict[str, Any]:
    return json.loads(run(site, "-c", ASK, str(pages)))


def test_the_verdict_names_the_leak(told: dict[str, Any]) -> None:
    verdict = told["verdict"]
    assert (verdict["category"], verdict["root_cause"]) == (
        "infra.node", {"event": "node.coolant_leak", "code": None, "host": "gpu01", "device": None}
    )  # fmt: skip
    assert verdict["headline"] == "Your job died because coolant leaked into its node, not because of your code."
    assert verdict["summary"].startswith("coolant leaked into tray 3 of gpu01; job 7 ended FAILED")
    assert verdict["change_my_mind"].startswith("A dry tray: then the sensor is at fault.")
    assert [step["edge"] for step in verdict["chain"]] == ["COOLANT1"]


def test_the_incident_says_what_happened_and_what_to_do(told: dict[str, Any]) -> None:
    incident = told["incident"]
    assert incident["title"].startswith("coolant leaked into tray 3 of gpu01. Job 7 ended FAILED 60.0 s later.")
    assert "coolant leak in gpu01: job 7 FAILED" in incident["headline"]
    assert incident["advice"][0] == {
        "text": "Close the valve of gpu01, power it off and dry tray 3.",
        "command": "scontrol update nodename=gpu01 state=down reason='coolant leak'",
    }


def test_a_requirement_of_its_own_rejects_it_with_a_reason(told: dict[str, Any]) -> None:
    assert told["dry"]["category"] == "app.error"
    assert [(row["cause"].split(" (")[0], row["rejected"]) for row in told["dry"]["rivals"]] == [
        ("node.coolant_leak", "tray 3 of gpu01 was dry again")
    ]


def test_its_own_scope_tells_which_other_runs_are_evidence(told: dict[str, Any]) -> None:
    """A job that ran on beside the wet one, on the node that the scope says a cause reaches."""
    assert told["verdict"]["chain"][0]["others"] is None
    assert "1 other job under that tray (9) ran on" in json.dumps(told["others"])


def test_software_that_it_names_is_said_to_fit(told: dict[str, Any]) -> None:
    assert told["fits"] == ["tray_firmware"]


def test_its_line_stands_on_its_lane(told: dict[str, Any]) -> None:
    assert ["cooling", "gpu01  tray 3"] in told["lanes"]


def test_the_generated_docs_have_its_row(told: dict[str, Any], pages: Path) -> None:
    assert told["written"]["--to"] == 0
    kinds, edges = ((pages / name).read_text() for name in ("kinds.md", "edges.md"))
    assert "### coolant.leak\n\nCoolant leaked into a tray of a node.\n\n- lane: cooling\n" in kinds
    assert "- user: your job died because coolant leaked into its node\n" in kinds
    assert "### COOLANT1: `coolant.leak` → `run.failed`" in edges
    assert "| under the tray | The run is on the node of the tray. | unless the edge says `shared = false` |\n" in edges
    assert "| tray still wet | The tray was not dried before the run ended. |\n" in edges


def test_the_generated_docs_have_todays_names_and_need_no_docstring(
    site: Path, told: dict[str, Any], pages: Path, tmp_path: Path
) -> None:
    """The package's edge file has the former names of a scope in which other runs are evidence, and of a requirement."""
    former = tmp_path / "site"
    shutil.copytree(site, former, ignore=shutil.ignore_patterns("__pycache__"))
    module, edges = former / "coolant_leak" / "__init__.py", former / "coolant_leak" / "edges.toml"
    declared = module.read_text().replace(
        'reached="under that tray",', 'reached="under that tray", formerly="below it",'
    )
    declared = declared.replace("before the run ended.", 'before the run ended.", formerly="wet tray', 1)
    module.write_text(declared.split("\n", 2)[2])
    edges.write_text(
        edges.read_text().replace('"under the tray"', '"below it"').replace('"tray still wet"', '"wet tray"')
    )
    run(former, "docs/generate.py", "--to", str(tmp_path / "pages"))
    page, today = ((folder / "edges.md").read_text() for folder in (tmp_path / "pages", pages))
    assert "\n- scope: under the tray\n" in page and "\n- requires: tray still wet\n" in page
    assert page == today
    assert "\n## coolant_leak\n\n### coolant.leak\n" in (tmp_path / "pages" / "kinds.md").read_text()


def test_the_committed_docs_do_not_depend_on_what_is_installed(told: dict[str, Any]) -> None:
    assert told["written"]["--check"] == 0


def test_a_module_without_declarations_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Point:
        name, value = "coolant", "json"

        @staticmethod
        def load() -> object:
            return json

    subjects.packages.cache_clear()
    monkeypatch.setattr(extensions, "entry_points", lambda group: [Point])
    monkeypatch.setattr(extensions, "_warned", {})
    monkeypatch.setattr(extensions, "_known", {})
    try:
        assert subjects.installed() == ()
    finally:
        subjects.packages.cache_clear()
    logged = capsys.readouterr().err
    assert "kinds of facts coolant (json)" in logged and "json has no KINDS and no DETECTORS" in logged


def test_built_in_and_installed_subjects_have_one_form() -> None:
    for subject in registry.subjects():
        assert subject.KINDS and subject.DETECTORS and (subject.__doc__ or "").strip(), subject.__name__
