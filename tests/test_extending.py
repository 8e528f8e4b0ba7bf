"""docs/extending.md, performed: its examples are installed as a package, word for word, and each one is used.

The package is real: modules and metadata in a folder of the path. Everything happens in one other process, which finds
the examples by their entry points only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest

from collector.receivers.base import Run
from correlator.edges.scopes import SCOPES
from web.reading import Reader

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")

#: Sections of the page whose example uses an entry point: section -> group.
GROUPS = {
    "A format": "formats", "A document": "documents", "A kind of fact": "facts", "A report": "reports",
    "A KQL function": "kql_functions", "A notifier": "notifiers", "A receiver": "receivers", "A page": "pages",
    "A dashboard": "dashboards",
}  # fmt: skip

USE = """
import io, json, sys
from contextlib import redirect_stdout
from pathlib import Path
from fastapi.testclient import TestClient
from collector.ingest import Ingest
from collector.receivers import all_receivers
from correlator.edges.load import load as edges
from correlator.engine import correlate
from correlator.facts import registry
from faultline.cli import run as command
from faultline.notify import notifiers
from faultline.notify.message import Message
from parsers.engine import LineParser
from parsers.patterns import load as patterns
from queries import reports
from queries.kql import Query
from store import open_store
from web.app import create_app

folder, root = Path(sys.argv[1]), Path(sys.argv[2])
used = {}
with open_store(None) as store:
    Ingest(store).run([root / "faultline/capture/mgmt_flap_long"])
    Ingest(store).run([folder / "rack7.slots", folder / "bmc.log"])
    correlate(store)
    client = TestClient(create_app(store))
    used["document"] = store.run_kql(Query("Metrics | where Metric == 'slot_temperature' | project Host, Value")).rows
    used["format"] = store.run_kql(Query("Logs | where Source == 'bmc' | project Host, Message")).rows
    used["KQL"] = store.run_kql(Query("print celsius(212.0), rack_of('gx0123')")).rows
    used["report"] = reports.render(reports.run(store, "incident-hosts"), "md")
    used["page"] = client.get("/failing").text
    used["top bar"] = client.get("/incidents").text
    used["dashboard"] = client.get("/dashboards/cooling?from=&to=&tables=yes").text
used["pattern"] = [str(p) for p in patterns([folder / "0.toml"]).check()]
used["edge"] = [str(p) for p in edges([folder / "1.toml"])[1]]
used["kind"] = "coolant.leak" in registry.kinds()
notifiers()["site.wall"].sender({"path": str(folder / "wall")})(Message("I-1", "opened", "impact", "a link", "http://x"))
used["notifier"] = (folder / "wall").read_text()
with open_store(folder / "edge") as store:
    Ingest(store).run([folder / "logs"])
    correlate(store, edge_paths=[folder / "1.toml"])
found = io.StringIO()
with redirect_stdout(found):
    command(["why", "501", "--data", str(folder / "edge")])
used["why"] = found.getvalue()
used["receiver"] = all_receivers()["site.bmc"].what
print(json.dumps(used))
"""


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)


def entry_points(title: str) -> dict[str, str]:
    """Name -> module and attribute, from the section."""
    found: dict[str, str] = {}
    for shown in re.findall(r"^    \[project\.entry-points.*?(?=\n\n)", section(title), re.MULTILINE | re.DOTALL):
        points = tomllib.loads(textwrap.dedent(shown))["project"]["entry-points"]
        found |= points.get(f"faultline.{GROUPS[title]}", {})
    return found


def declared() -> dict[str, dict[str, str]]:
    """The entry points of the page's pyproject.toml: group -> name -> module and attribute."""
    (shown,) = blocks("A package", "toml")
    points: dict[str, dict[str, str]] = tomllib.loads(shown)["project"]["entry-points"]
    return points


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of each example."""
    folder = tmp_path_factory.mktemp("site")
    for title in GROUPS:
        ((_, target),) = entry_points(title).items()
        (code,) = blocks(title, "python")
        module = folder / (target.split(":")[0].replace(".", "/") + ".py")
        module.parent.mkdir(exist_ok=True)
        module.write_text(code, encoding="utf-8")
    lines = []
    for group, points in declared().items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    (folder / "our_package" / "templates").mkdir()
    (template,) = blocks("A page", "html")
    (folder / "our_package" / "templates" / "failing.html").write_text(template, encoding="utf-8")
    (folder / "our_package" / "dashboards").mkdir()
    (dashboard,) = blocks("A dashboard", "toml")
    (folder / "our_package" / "dashboards" / "cooling.toml").write_text(dashboard, encoding="utf-8")
    for number, title in enumerate(("An event pattern", "A causal edge")):
        (folder / f"{number}.toml").write_text(blocks(title, "toml")[0], encoding="utf-8")
    info = folder / "our_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    (folder / "logs").mkdir()
    for name, text in re.findall(r"`logs/(\S+)`:\n\n((?:    .*\n)+)", section("A causal edge")):
        (folder / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "logs" / name).write_text(textwrap.dedent(text))
    (folder / "rack7.slots").write_text("gx07=41\nnonsense\n")
    (folder / "bmc.log").write_text("BMC|2026-02-28T16:29:24Z|gx07|Fan 3 failed\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", USE, str(folder), str(ROOT)], env=environment, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_example_of_every_section_was_used(used: dict[str, Any]) -> None:
    assert set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == {
        *GROUPS, "A package", "An event pattern", "A causal edge"
    }  # fmt: skip
    assert all(len(entry_points(title)) == 1 for title in GROUPS)


def test_the_project_file_declares_what_the_sections_show() -> None:
    shown = {f"faultline.{group}": entry_points(title) for title, group in GROUPS.items()}
    assert declared() == {**shown, "faultline.patterns": {"coolant": "coolant_leak:PATTERNS"}}


def test_every_scope_is_listed() -> None:
    listed = re.findall(r"^\| `(.+)` \|", section("A causal edge"), re.MULTILINE)
    assert sorted(listed) == sorted(SCOPES) and len(listed) == len(set(listed))


def test_the_lines_shown_for_an_edge_give_a_verdict_that_names_it(used: dict[str, Any]) -> None:
    assert "SITE-DISK1: +300.000 s, allowed 0 s to 600 s" in used["why"]


def test_the_methods_that_are_named_exist() -> None:
    named = re.search(r"`read` has (.*?)\. `web/reading", section("A page"), re.DOTALL)
    assert named and [name for name in re.findall(r"`(\w+)`", named[1]) if not hasattr(Reader, name)] == []
    described = re.search(r"`Run\(lines, received\)`.*?`source` of", section("A receiver"), re.DOTALL)
    assert described and set(re.findall(r"`(\w+)`", described[0])) - {"source"} == {*Run._fields} - {"lines"}


def test_lines_and_documents_are_read(used: dict[str, Any]) -> None:
    assert used["pattern"] == []
    assert used["format"] == [["gx07", "Fan 3 failed"]]
    assert used["document"] == [["gx07", 41.0]]


def test_facts_and_edges_are_known(used: dict[str, Any]) -> None:
    assert used["kind"] is True and used["edge"] == []


def test_questions_reports_and_pages_answer(used: dict[str, Any]) -> None:
    assert used["KQL"] == [[100.0, "gx01"]]
    assert "gpu02" in used["report"]
    assert "<td>alice</td>" in used["page"] and 'href="/failing"' in used["top bar"]


def test_a_dashboard_shows_the_rows_of_its_panels(used: dict[str, Any]) -> None:
    assert "<h1>Cooling</h1>" in used["dashboard"] and "<td>gx07</td>" in used["dashboard"]


def test_messages_go_out_and_batches_come_in(used: dict[str, Any]) -> None:
    assert used["notifier"] == "[impact] New: a link http://x\n"
    assert used["receiver"] == "events of management controllers"
