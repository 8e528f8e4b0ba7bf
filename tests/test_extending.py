"""docs/extending.md, performed: its examples are installed as a package, word for word, and each one is used.

The package is real: modules and metadata in a folder of the path. Everything happens in two other processes, which find
the examples by their entry points only: one runs the commands that the sections show, the other is a service.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from collector.receivers.base import Run
from correlator.edges import load as edges
from correlator.edges.scopes import SCOPES
from correlator.model.nouns import Revision
from parsers.documents.document import Gathered
from queries.kql.functions import declaration
from tests.collector.running import Running
from web.reading import Reader

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")

#: Sections of the page whose example uses an entry point: section -> group.
GROUPS = {
    "A format": "formats", "A document": "documents", "A kind of fact": "facts", "A report": "reports",
    "A KQL function": "kql_functions", "A notifier": "notifiers", "A receiver": "receivers", "A page": "pages",
    "A dashboard": "dashboards",
}  # fmt: skip

#: What the sections say to run: section, command (as shown there), and files that it needs beside those of the section.
#: All of a section run in one folder, which has its ``logs``.
COMMANDS = (
    ("A package", "faultline check"),
    ("An event pattern", "echo 'Feb 28 16:29:24 lh cdu: cdu: pump stopped on cdu3' | faultline parse"),
    ("An event pattern",
     "echo 'Feb 28 16:29:24 lh cdu: cdu: pump stopped on cdu3' | faultline parse --catalogue site.toml --explain"),
    ("An event pattern", "faultline check --config /etc/faultline/faultline.toml"),
    ("An event pattern", "faultline ingest logs --data D --config /etc/faultline/faultline.toml"),
    ("An event pattern",
     "faultline query 'Events | where Event == \"site.cdu_stopped\" | project Time, Host, Fields' --data D"),
    ("A format", "echo 'BMC|2026-02-28T16:29:24Z|gpu02|Fan 3 failed' | faultline parse --explain"),
    ("A document", "faultline ingest logs --data D"),
    ("A document", "faultline query 'Metrics | where Metric == \"slot_temperature\"' --data D"),
    ("A causal edge", "faultline ingest logs --data D --config faultline.toml"),
    ("A causal edge", "faultline why 501 --data D"),
    ("A kind of fact", "faultline ingest logs --data D"),
    ("A kind of fact", "faultline why 501 --data D"),
    ("A report", "faultline report incident-hosts --data D"),
    ("A KQL function", "faultline query 'print celsius(212.0), rack_of(\"gx0123\")' --data D"),
)  # fmt: skip

#: Runs commands in turn: folder and line from stdin, exit code and output of each to stdout.
USE = """
import io, json, os, shlex, sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from correlator.incidents.stored import result
from correlator.selftest import situations
from fastapi.testclient import TestClient
from faultline.cli import run as command
from store import open_store
from web.app import create_app

# The lines of built-in edges take eight seconds: tests/correlator/selftest/test_edge_tests.py tries them. The package's
# edges are tried by delays.
situations.outcomes_of_lines = lambda *_: iter(())

def run(folder, line):
    words, sys.stdin = shlex.split(line), sys.__stdin__
    if words[0] == "echo":
        sys.stdin, words = io.TextIOWrapper(io.BytesIO(words[1].encode() + b"\\n")), words[3:]
    os.chdir(folder)
    printed = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with redirect_stdout(printed), redirect_stderr(printed):
        code = command(words[1:])
    return code, printed.buffer.getvalue().decode()

used = {"commands": [run(*one) for one in json.load(sys.__stdin__)]}
with open_store(Path(sys.argv[1])) as store:
    (incident,) = result(store)["incidents"]
    with TestClient(create_app(store)) as client:
        axis = client.get("/api/v1/axis/" + incident["id"]).json()
        used["page"] = client.get("/incidents/" + incident["id"]).text
    used["incident"], used["lanes"] = incident, [(lane["layer"], lane["label"]) for lane in axis["lanes"]]
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


class Site(NamedTuple):
    """A folder like site-packages with the package, and a folder for each section's commands."""

    folder: Path
    work: dict[str, Path]


def shown_files(title: str, names: str) -> Iterator[tuple[str, str]]:
    """Files that a section shows with their name before them and four spaces before each line."""
    for name, text in re.findall(rf"`({names})`[^`\n]*:\n\n((?:(?:    .*)?\n)+?)(?=\n?\S)", section(title)):
        yield name, textwrap.dedent(text)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder, packaged = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("site") / "our_package"
    for title in GROUPS:
        ((_, target),) = entry_points(title).items()
        put(folder / (target.split(":")[0].replace(".", "/") + ".py"), blocks(title, "python")[0])
    packaged = folder / "our_package"
    put(packaged / "templates" / "failing.html", blocks("A page", "html")[0])
    put(packaged / "dashboards" / "cooling.toml", blocks("A dashboard", "toml")[0])
    for name, text in shown_files("A kind of fact", r"leak_\w+\.toml"):
        put(packaged / name, text)
    lines = []
    for group, points in declared().items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    info = folder / "our_package-1.0.dist-info"
    put(info / "METADATA", "Metadata-Version: 2.1\nName: our-package\nVersion: 1.0\n")
    put(info / "entry_points.txt", "\n".join(lines))
    work = {title: tmp_path_factory.mktemp("work") for title in ("A page", *(title for title, _ in COMMANDS))}
    for title in ("A causal edge", "A kind of fact"):
        for name, text in shown_files(title, r"logs/\S+"):
            put(work[title] / name, text)
            # The page of the example shows the last days.
            put(work["A page"] / name, text.replace("2026-02-28", f"{datetime.now(UTC) - timedelta(days=1):%F}"))
    pattern, etc = blocks("An event pattern", "toml")[0], work["An event pattern"]
    (setting,) = re.findall(r"`(patterns = .*?)`", section("An event pattern"))
    put(etc / "site.toml", pattern)
    put(etc / "patterns.d" / "site.toml", pattern)
    put(etc / "faultline.toml", setting.replace("/etc/faultline", str(etc)))
    put(etc / "logs" / "messages", "Feb 28 16:29:24 lh cdu: cdu: pump stopped on cdu3\n")
    put(work["A causal edge"] / "site.toml", blocks("A causal edge", "toml")[0])
    put(work["A causal edge"] / "faultline.toml", 'edges = ["site.toml"]\n')
    put(work["A document"] / "logs" / "rack7.slots", "gx07=41\nnonsense\n")
    work["A report"] = work["A KQL function"] = work["A causal edge"]  # a store with an incident
    return Site(folder, work)


@pytest.fixture(scope="module")
def used(site: Site) -> dict[str, Any]:
    """What the commands print, and the incident of the kind of fact."""
    for title, line in COMMANDS:
        assert line in " ".join(section(title).split()), f"{title} does not show this command: {line}"
    done = subprocess.run(
        [sys.executable, "-c", USE, str(site.work["A kind of fact"] / "D")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site.folder), str(ROOT)])},
        input=json.dumps([
            [str(site.work[title]), line.replace("/etc/faultline", str(site.work[title]))] for title, line in (*COMMANDS, ("A page", "faultline ingest logs --data D"))
        ]), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["commands"] = dict(zip(COMMANDS, found["commands"], strict=False))
    return found


def printed(used: dict[str, Any], title: str, begins: str = "", *, code: int = 0) -> str:
    """The output of the one command of a section that begins so."""
    ((found, text),) = [
        value for (of, line), value in used["commands"].items() if of == title and line.startswith(begins)
    ]
    assert found == code, text
    return str(text)


@pytest.fixture(scope="module")
def served(site: Site, used: dict[str, Any]) -> Iterator[Running]:
    """A service with the package over a store with a failed run, which tells the notifier of the page of each incident."""
    (notify,) = re.findall(
        r"(?:^    .*\n)*^    kind = \"site.wall\"\n(?:^    .*\n)*", section("A notifier"), re.MULTILINE
    )
    wall = site.folder / "wall"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site.folder), str(ROOT)]))
        service = Running(
            site.work["A page"] / "D", extra=textwrap.dedent(notify).replace("/var/lib/wall", str(wall)), syslog=()
        )
        service.start()
    try:
        yield service
    finally:
        service.stop()


def curl(service: Running, title: str) -> tuple[int, Any]:
    """Sends what a section's curl command sends; its data are in it, or in the echo before it."""
    shown = re.sub(r"(?<=\|)\n +|\\\n +", " ", section(title)).splitlines()
    (line,) = [one.strip() for one in shown if re.match(r"    (?:echo .*\| )?curl ", one)]
    words = shlex.split(line.replace("$(date -u +%FT%TZ)", f"{datetime.now(UTC):%FT%TZ}"), comments=True)
    options = dict(pairwise(words))
    headers = dict(words[place + 1].split(": ", 1) for place, word in enumerate(words) if word == "-H")
    body = options["--data-binary"] if options["--data-binary"] != "@-" else options["echo"]
    path = next(word for word in words if word.startswith("http://")).removeprefix("http://localhost:8514")
    return service.post(path, body.encode(), **headers)


def until(seconds: float, ask: Any) -> Any:
    """The first answer that is not empty; the last one if none came in time."""
    end = time.monotonic() + seconds
    while not (found := ask()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def test_the_example_of_every_section_was_used(used: dict[str, Any]) -> None:
    assert set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == {
        *GROUPS, "A package", "An event pattern", "A causal edge"
    }  # fmt: skip
    assert all(len(entry_points(title)) == 1 for title in GROUPS)


def test_the_project_file_declares_what_the_sections_show() -> None:
    shown = {f"faultline.{group}": entry_points(title) for title, group in GROUPS.items()}
    assert declared() == {**shown, "faultline.patterns": {"coolant": "our_package.coolant_leak:PATTERNS"}}


def test_every_scope_is_listed() -> None:
    table = section("A causal edge").split("| scope |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `(.+?)` \| (.+) \|$", table, re.MULTILINE)
    assert sorted(listed) == sorted((scope.name, scope.summary) for scope in SCOPES.values())


def test_every_key_of_an_edge_is_listed() -> None:
    shown = {key for table in blocks("A causal edge", "toml") for key in tomllib.loads(table)["edge"][0]}
    table = section("A causal edge").split("| key |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert shown | listed == edges._KEYS - {"judged"}  # that one is written by Faultline


def test_every_letter_of_an_argument_is_explained() -> None:
    (explained,) = re.findall(r"The letters are (.*?)\. `s\?`", " ".join(section("A KQL function").split()))
    assert sorted(re.findall(r"`(\w)` \w", explained)) == sorted(set("sSzxlnrimbtpgdDhao_c"))
    assert all(declaration._ARGUMENT.fullmatch(letter) for letter in re.findall(r"`(\w)` \w", explained))


def test_the_calls_that_are_shown_have_the_arguments_of_the_code() -> None:
    shown = dict(re.findall(r"^    found\.(\w+)\((.*?)\)", section("A document"), re.MULTILINE))
    assert list(shown) == ["keep", "keep_unread", "sample"]
    for name, arguments in shown.items():
        there = inspect.signature(getattr(Gathered, name)).parameters
        for one in arguments.split(", "):
            word, _, default = one.lstrip("*").partition("=")
            assert word in there and (there[word].default is None) == (default == "None"), (name, one)
    assert "`Revision(of=fact, fact=better)`" in section("A kind of fact") and {
        *inspect.signature(Revision).parameters
    } == {"of", "fact"}


def test_check_counts_what_is_installed(used: dict[str, Any]) -> None:
    begins = re.search(r"faultline check +# (extensions.*), \.\.\.", section("A package"))
    text = printed(used, "A package")
    assert begins and begins[1] in text
    for noun in ("format", "fact", "kql function", "notifier", "page", "pattern", "receiver", "report"):
        assert f", 1 {noun}" in text.splitlines()[1]
    assert "all is well" in text


def test_a_pattern_finds_its_event_in_the_line_that_is_shown(used: dict[str, Any]) -> None:
    title = "An event pattern"
    before, after = used["commands"][COMMANDS[1]][1], used["commands"][COMMANDS[2]][1]
    assert json.loads(before)["event"] == "other" and "site-cdu-stopped" not in before
    row = json.loads(after.splitlines()[0])
    assert (row["event"], row["severity"], row["entities"]["device"]) == ("site.cdu_stopped", "error", "cdu3")
    assert "pattern site-cdu-stopped of site.toml" in after
    assert "all is well" in printed(used, title, "faultline check")
    assert re.search(r"^syslog +1 +1 +1 +0$", printed(used, title, "faultline ingest"), re.MULTILINE), "an event"
    assert re.search(r" lh +.*cdu3", printed(used, title, "faultline query"))


def test_a_format_reads_its_line(used: dict[str, Any]) -> None:
    row, text = printed(used, "A format").split("\n", 1)
    assert (json.loads(row)["host"], json.loads(row)["source"]) == ("gpu02", "bmc")
    assert "format site_bmc: a line of our BMC poller" in text


def test_a_document_is_counted_and_its_rows_are_stored(used: dict[str, Any]) -> None:
    text = printed(used, "A document", "faultline ingest")
    assert re.search(r"^site_slots +1 ", text, re.MULTILINE) and "line 2: not host=degrees" in text
    assert re.search(r" gx07 +slot_temperature +41\.0", printed(used, "A document", "faultline query"))


def test_the_lines_shown_for_an_edge_give_a_verdict_that_names_it(used: dict[str, Any]) -> None:
    assert "SITE-DISK1: +300.000 s, allowed 0 s to 600 s" in printed(used, "A causal edge", "faultline why")


def test_the_lines_shown_for_a_kind_give_verdict_incident_and_lane(used: dict[str, Any]) -> None:
    why, incident = printed(used, "A kind of fact", "faultline why"), used["incident"]
    promised = re.findall(r"`([^`]+)`", section("A kind of fact").split("The verdict is ")[1].split("\n\n")[0])
    assert len(promised) == 3 and [text for text in promised if text not in why] == []
    assert "because coolant leaked into its node, not because of your code" in why and "COOLANT1: +300.000 s" in why
    assert incident["title"].startswith("coolant leaked into tray 3 of gpu07. Job 501 ended FAILED")
    assert incident["advice"][0]["text"] == "Close the valve of gpu07 and dry tray 3."
    assert ["gpu", "gpu07  tray 3"] in used["lanes"]
    assert "coolant leaked into tray 3 of gpu07" in used["page"]


def test_the_methods_that_are_named_exist() -> None:
    named = re.search(r"`read` has (.*?)\. `web/reading", section("A page"), re.DOTALL)
    assert named and [name for name in re.findall(r"`(\w+)`", named[1]) if not hasattr(Reader, name)] == []
    described = re.search(r"`Run\(lines, received\)`.*?`source` of", section("A receiver"), re.DOTALL)
    assert described and set(re.findall(r"`(\w+)`", described[0])) - {"source"} == {*Run._fields} - {"lines"}


def test_a_function_and_a_report_answer(used: dict[str, Any]) -> None:
    assert re.search(r"^100(\.0)? +gx01$", printed(used, "A KQL function"), re.MULTILINE)
    assert "| gpu07 | 1 |" in printed(used, "A report")


def test_a_receiver_takes_lines_which_can_be_queried(served: Running) -> None:
    shown = " ".join(section("A receiver").split())
    kql = re.search(r"faultline query '([^']*)' --server", shown)
    assert kql and curl(served, "A receiver") == (200, {"status": "stored"})
    assert served.post("/bmc/localhost", b"Fan 3 failed")[0] == 422
    found = until(120, lambda: served.query(kql[1]))
    assert [row[1:] for row in found] == [["gpu02", "Fan 3 failed"]]


def test_a_dashboard_shows_the_rows_of_its_panels(served: Running) -> None:
    """Those of the receiver, whose test is above; asked for again, the same batch is stored once more."""
    curl(served, "A receiver")
    (address,) = re.findall(r"`http://localhost:8514(/dashboards/\w+)`", section("A dashboard"))
    assert f"curl 'http://localhost:8514{address}?tables=yes'" in section("A dashboard")

    def page() -> str:
        text = served.get(f"{address}?from=&to=&tables=yes")[1].decode()
        return text if "<td>gpu02</td>" in text else ""

    assert "<h1>Cooling</h1>" in until(120, page)


def test_a_notifier_sends_the_incident_of_the_line(site: Site, served: Running) -> None:
    assert curl(served, "A notifier")[0] == 200
    wall = site.folder / "wall"
    text = until(120, lambda: wall.exists() and wall.read_text())
    assert text and "nvme0n1" in text and "gpu07" in text


def test_a_page_counts_failed_runs(served: Running) -> None:
    (address,) = set(re.findall(r"http://localhost:8514(/failing)", section("A page")))
    (query,) = re.findall(r"`(\?from=now-7d)`", section("A page"))
    page = until(120, lambda: (text := served.get(address + query)[1].decode()) and "<td>eve</td>" in text and text)
    assert page and 'href="/failing' in served.get("/incidents")[1].decode()
