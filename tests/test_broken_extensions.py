"""Packages with mistakes: each is reported, with its entry point and the reason, and nothing else stops.

The package is real: modules and metadata in a folder of the path, and another process that finds them by their entry
points.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

#: Some twenty commands in processes of their own.
pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[1]

Python = Callable[[str], subprocess.CompletedProcess[str]]
Points = Mapping[str, Mapping[str, str]]


class Install(Protocol):
    """Installs a package of one module with these entry points (group -> name -> attribute).

    Returns a function that runs code with it.
    """

    def __call__(self, code: str, points: Points, name: str = ...) -> Python: ...


def installer(folder: Path) -> Install:
    """Installs packages in a folder."""

    def install(code: str, points: Points, name: str = "harbour") -> Python:
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        info = folder / f"{name}_site-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-site\nVersion: 1.0\n")
        lines = []
        for group, named in points.items():
            lines += [f"[faultline.{group}]", *(f"{point} = {value}" for point, value in named.items()), ""]
        (info / "entry_points.txt").write_text("\n".join(lines))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "FAULTLINE_SERVER": ""}

        def python(text: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-c", text], env=environment, cwd=folder, capture_output=True, text=True
            )

        return python

    return install


@pytest.fixture
def package(tmp_path: Path) -> Install:
    return installer(tmp_path)


#: Group -> attribute of the module below that is wrong, and the expected reason.
WRONG = {
    "formats": ("NUMBER", "is of type int, not Format"),
    "documents": ("SILENT", "recognises no file"),
    "patterns": ("NUMBER", "is of type int, not a list of paths"),
    "facts": ("NUMBER", "is of type int, not module"),
    "detectors": ("NUMBER", "is of type int, not a list of functions"),
    "kql_functions": ("NUMBER", "3 is no queries.kql.functions.declaration.Function"),
    "kql_engines": ("NUMBER", "is of type int, not Engine"),
    "reports": ("NUMBER", "is of type int, not Report"),
    "notifiers": ("NUMBER", "is of type int, not Notifier"),
    "receivers": ("NUMBER", "is of type int, not Receiver"),
    "dashboards": ("NUMBER", "is of type int, not a list of paths"),
    "pages": ("INCIDENTS", "the name 'incidents' is taken by a built-in one"),
}

MODULE = """
from parsers.documents.document import Document
from queries.kql.functions.declaration import Body, Function
from web.rooms import Page

NUMBER = 3
SILENT = Document(("harbour_list",), None)
INCIDENTS = Page("incidents")
GOOD = Function("harbour_tier", "The tier.", Body("s", "string", str.upper))
"""

WRONG_POINTS = {
    group: {f"odd_{group}": f"harbour:{attribute}", f"gone_{group}": "harbour:GONE"}
    | ({"good": "harbour:GOOD"} if group == "kql_functions" else {})
    for group, (attribute, _) in WRONG.items()
}

#: Something that raises while it is used: what another process does with it, and the result.
FAILING = """
from pathlib import Path
from typing import TypedDict

import polars as pl

from correlator.model.kinds import Cause, Kind
from parsers.documents.document import Document
from parsers.formats.base import Format, by_line

class Wipe(TypedDict):
    size: str

WIPE = Kind("scratch.wiped", "storage", "Wiped.", Wipe, cause=Cause("scratch.wiped", "infra.storage", "{gb} wiped", "x"))

import types
TEMPLATE = types.ModuleType("template")
TEMPLATE.KINDS, TEMPLATE.DETECTORS = (WIPE,), []

def wipes(world):
    raise KeyError("gb")

FILLED = Kind("scratch.filled", "storage", "Filled.", Wipe, cause=Cause("scratch.filled", "infra.storage", "{size:.0f} GB", "x"))

def fills(world):
    return [FILLED.fact(e.time, None, e.sigma, e.host, attrs={"size": "12 GB"}, events=(e,)) for e in world.events[:1]]

BRACED = Kind("scratch.braced", "storage", "Braces.", Wipe, cause=Cause("scratch.braced", "infra.storage", "{size} GB", "x"))

def braces(world):
    return [BRACED.fact(e.time, None, e.sigma, e.host, attrs={"size": "{12}"}, events=(e,)) for e in world.events[:1]]

DETECTING = types.ModuleType("detecting")
DETECTING.KINDS, DETECTING.DETECTORS = (FILLED, BRACED), [wipes, fills, braces]

def row(text, origin):
    a, b, c = text.split("|")
    return {"format": "door", "source": "door", "hostname": "h1", "message": c}

DOOR = Format("door", "a door", "^DOOR", by_line(row))

def frames(frame, origin):
    raise RuntimeError("no frame today")

FRAMES = Format("frames", "a frame", "^FRAME", frames)

def recognises(path, text):
    return {"a": "harbour_lists", "b": None}[path.stem]

LISTS = Document(("harbour_list",), lambda kind, data, origin: None, recognises)
"""

USE = """
import json
from pathlib import Path
from correlator.engine import correlate
from collector.ingest import Ingest
from parsers.engine import LineParser
from parsers.record import Origin
from parsers.recognise import recognise
from store import open_store
lines = [b"DOOR|1|first", b"DOOR without", b"DOOR without 2", b"FRAME 1", b"FRAME 2"]
logs = LineParser().parse(lines, Origin())
found = {"raw": logs["raw"].to_list(), "formats": logs["format"].to_list(), "host": logs["host"].to_list()}
found["kinds"] = [recognise(Path(name), b"one\\ntwo\\n").kind for name in ("a.txt", "b.txt", "c.txt")]
with open_store(None) as store:
    Ingest(store).run([Path(%r) / "faultline/capture/mgmt_flap_long"])
    (cluster,) = correlate(store)
found["doubts"] = [verdict["doubts"] for verdict in cluster.verdicts.values()]
print(json.dumps(found))
"""


def test_what_raises_while_it_is_used_is_named_and_nothing_else_stops(
    package: Install,
) -> None:
    done = package(
        FAILING,
        {
            "formats": {"door": "harbour:DOOR", "frames": "harbour:FRAMES"},
            "documents": {"lists": "harbour:LISTS"},
            "facts": {"detecting": "harbour:DETECTING", "template": "harbour:TEMPLATE"},
        },
    )(USE % str(ROOT))
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["raw"] == ["DOOR|1|first", "DOOR without", "DOOR without 2", "FRAME 1", "FRAME 2"]
    assert found["formats"][0] == "door" and len({*found["formats"][1:]} & {"door", "frames"}) == 0
    assert found["kinds"] == ["lines", "lines", "lines"]
    named = "detector wipes of kinds of facts detecting (harbour:DETECTING) of harbour-site raised KeyError: 'gb'"
    unfit = "detector fills of kinds of facts detecting (harbour:DETECTING) of harbour-site raised ValueError: Unknown format"
    assert found["doubts"]
    assert all(any(words in doubt for doubt in doubts) for doubts in found["doubts"] for words in (named, unfit))
    assert "braces" not in done.stderr  # what a value contains is no template
    for words in (
        "format door (harbour:DOOR) of harbour-site raised ValueError: not enough values to unpack",
        "format door (harbour:DOOR) of harbour-site: no format says 'hostname', which is dropped; there is time,",
        "format frames (harbour:FRAMES) of harbour-site raised RuntimeError: no frame today",
        "document lists (harbour:LISTS) of harbour-site: recognises(a.txt) gave 'harbour_lists', which is none of its kinds",
        "document lists (harbour:LISTS) of harbour-site: recognises(c.txt) raised KeyError: 'c'",
        "template (harbour:TEMPLATE) of harbour-site: kind scratch.wiped: title '{gb} wiped' names {gb}; there is behind,",
        named,
        unfit,
    ):
        assert done.stderr.count(words) == 1, (words, done.stderr[-3000:])


#: Two packages of this module use the same names in every group; their values show the package.
TWIN = """
from pathlib import Path
from typing import TypedDict

from fastapi import APIRouter
from correlator.model.kinds import Kind, NoAttrs
from faultline.notify.kind import Notifier
from collector.receivers.base import Receiver
from parsers.documents.document import Document
from parsers.formats.base import Format, by_line
from queries.kql.engines.engine import Engine
from queries.kql.functions.declaration import Function, Template
from queries.reports import Report
from web.rooms import Page

HERE = Path(__file__).parent
NAME = __name__

formats = Format("twin", NAME, "^TWIN", by_line(lambda text, origin: {"format": "twin", "source": NAME, "message": text}))
documents = Document(("twin_list",), None, lambda path, text: None)
patterns = [HERE / f"{NAME}_patterns.toml"]
kql_functions = Function("twin", NAME, Template("", "string", f"'{NAME}'"))
kql_engines = Engine("twin", None, {})
reports = Report("twin", NAME, NAME, lambda reader: [])
notifiers = Notifier("twin", NAME, {}, None)
receivers = Receiver("twin", NAME, None)
pages = Page("twin", APIRouter())
dashboards = [HERE / f"{NAME}_dashboards"]
KINDS = (Kind("twin.fact", "node", NAME, NoAttrs),)
DETECTORS = []
EDGES = [HERE / f"{NAME}_edges.toml"]
"""

TWIN_PATTERN = """
[[pattern]]
id = "twin"
event = "twin.{name}"
literal = "twin"
regex = "^twin"
example = "twin"
"""

TWIN_DASHBOARD = """
title = "Twin"
[[panel]]
title = "Lines"
kql = "Logs | count"
"""

TWIN_EDGE = """
[[edge]]
id = "TWIN{number}"
cause = ["twin.fact"]
effect = ["run.failed"]
scope = "same node"
window = "[0s, 1s]"
prior = 0.5
text = "text"
tests = []
"""

#: Group -> the message about the second package, whose entry point is called ``twin``.
TAKEN = {
    "format": "the name 'twin' is taken by format twin (alpha:formats) of alpha-site",
    "document": "the kind 'twin_list' is taken by document twin (alpha:documents) of alpha-site",
    "KQL functions": "the name 'twin' is taken by KQL functions twin (alpha:kql_functions) of alpha-site",
    "KQL engine": "the name 'twin' is taken by KQL engine twin (alpha:kql_engines) of alpha-site",
    "report": "the name 'twin' is taken by report twin (alpha:reports) of alpha-site",
    "notifier": "the name 'twin' is taken by notifier twin (alpha:notifiers) of alpha-site",
    "receiver": "the kind 'twin' is taken by receiver twin (alpha:receivers) of alpha-site",
    "page": "the name 'twin' is taken by page twin (alpha:pages) of alpha-site",
    "kinds of facts": "the declaration 'kind of fact twin.fact' is taken by kinds of facts twin (alpha) of alpha-site",
}

RUN = """
import io, json
from contextlib import redirect_stdout
from pathlib import Path
from faultline.cli import run

found = {}
for name, arguments in COMMANDS.items():
    out = io.StringIO()
    with redirect_stdout(out):
        code = run(arguments)
    found[name] = [code, out.getvalue()]
print(json.dumps(found))
"""


#: What fails, or is counted, only while it is used.
USED = """
from parsers.formats.base import Format, by_line
from queries.reports import Report
from store.tables import RUNS

def build(reader):
    return [RUNS.c.exitcode]

EXITS = Report("exits", "Exits", "Exits.", build)
ODD = Report("odd", "Odd", "No sections.", lambda reader: ["text"])

def door(text, origin):
    return {"format": "door", "source": "rdc", "message": text} if text.startswith("@") else None

DOOR = Format("door", "a door", "^@", by_line(door))
"""
USED_POINTS = {"reports": {"exits": "quay:EXITS", "odd": "quay:ODD"}, "formats": {"door": "quay:DOOR"}}

#: The tests of the built-in edges are not run here: tests/correlator/selftest/test_edge_tests.py does that.
FEW_TESTS = "from correlator.selftest import situations; situations.outcomes_of_lines = lambda *_: iter(())"


class Site(NamedTuple):
    """What each command printed on a machine with these packages, and their log."""

    printed: dict[str, str]
    logged: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Four packages on one machine, and all commands in one process: each start takes two seconds."""
    folder = tmp_path_factory.mktemp("site")
    install = installer(folder)
    groups = [group for group in WRONG if group not in ("detectors", "facts")]
    for name in ("beta", "alpha"):
        install(TWIN, {group: {"twin": f"{name}:{group}"} for group in groups} | {"facts": {"twin": name}}, name)
        (folder / f"{name}_patterns.toml").write_text(TWIN_PATTERN.format(name=name), encoding="utf-8")
        (folder / f"{name}_dashboards").mkdir()
        (folder / f"{name}_dashboards" / "twin.toml").write_text(TWIN_DASHBOARD, encoding="utf-8")
        (folder / f"{name}_edges.toml").write_text(TWIN_EDGE.format(number=1), encoding="utf-8")
    install(MODULE, WRONG_POINTS)
    python = install(USED, USED_POINTS, "quay")
    for name, lines in (("lines", "TWIN 1\n"), ("door.log", "@1\n@2\nother\n"), ("other.log", "@1\none\ntwo\n")):
        (folder / name).write_text(lines, encoding="utf-8")
    asked = {
        "parse": ["parse", "lines"],
        "ingest": ["ingest", "lines", str(ROOT / "faultline/capture/mgmt_flap_long"), "--data", "data"],
        "why": ["why", "15", "--data", "data"],
        "query": ["query", "print twin()", "--data", "data"],
        "report": ["report", "twin", "--data", "data"],
        "sources": ["sources", "--data", "data"],
        "first": ["ingest", "door.log", "other.log", "--data", "doors"],
        "again": ["ingest", "door.log", "other.log", "--data", "doors"],
        "exits": ["report", "exits", "--data", "doors"],
        "odd": ["report", "odd", "--data", "doors"],
        "check": ["check"],
    }
    done = python(f"COMMANDS = {asked!r}\n{FEW_TESTS}\n{RUN}")
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, tuple[int, str]] = json.loads(done.stdout)
    codes = {name: code for name, (code, _) in found.items()}
    assert codes == dict.fromkeys(asked, 0) | {"exits": 2, "odd": 2, "check": 1}, done.stderr[-3000:]
    return Site({name: printed for name, (_, printed) in found.items()}, done.stderr)


def test_check_names_every_extension_that_does_not_load_whatever_its_group(site: Site) -> None:
    lines = site.printed["check"].splitlines()
    wrong = [line for line in lines if line.startswith("WRONG") and "harbour-site" in line]
    assert not [
        group for group, (attribute, reason) in WRONG.items()
        if not any(f" odd_{group} (harbour:{attribute}) of harbour-site: {reason}" in line for line in wrong)
    ]  # fmt: skip
    gone = "does not load: AttributeError: module 'harbour' has no attribute 'GONE'; it is left out"
    assert not [g for g in WRONG if not any(f" gone_{g} (harbour:GONE) of harbour-site: {gone}" in w for w in wrong)]
    assert len(wrong) == 2 * len(WRONG)
    (counted,) = (line for line in lines if line.startswith("extensions     harbour-site"))
    assert counted.startswith("extensions     harbour-site: ") and "3 kql functions" in counted and "2 pages" in counted


def test_of_two_packages_that_bring_one_name_the_first_is_used_and_no_command_stops(site: Site) -> None:
    found, logged = site
    assert '"source": "alpha"' in found["parse"] and "alpha" in found["query"] and "alpha" in found["report"]
    assert "Your job died because" in found["why"]
    wrong = [line for line in found["check"].splitlines() if line.startswith("WRONG")]
    for group, reason in TAKEN.items():
        of_beta = f"{group} twin (beta"
        assert [line for line in wrong if of_beta in line and reason in line], (group, wrong)
        assert logged.count(f"{reason}; it is left out") == 1, group
    assert len([line for line in wrong if "beta-site" in line]) == len(TAKEN) + 2
    (dashboard,) = (line for line in wrong if "beta_dashboards" in line)
    assert "dashboards twin (beta:dashboards) of beta-site: the name 'twin' is taken by" in dashboard
    (pattern,) = (line for line in wrong if "beta_patterns.toml" in line)
    assert "patterns twin (beta:patterns) of beta-site" in pattern and "an entry of this id exists already" in pattern
    assert "extension: format twin (beta:formats) of beta-site: the name 'twin' is taken" in found["sources"]


def test_a_report_that_raises_is_named_with_its_line_and_the_columns_that_there_are(
    site: Site,
) -> None:
    (line,) = (line for line in site.logged.splitlines() if "report exits" in line)
    number = 1 + USED.splitlines().index("    return [RUNS.c.exitcode]")
    assert line.startswith(
        "faultline: report exits (quay:EXITS) of quay-site raised AttributeError: "
        "model.runs has no column 'exitcode'; there is run_key, cluster, job_id, "
    )
    assert line.endswith(f"(quay.py line {number})")
    assert "report odd (quay:ODD) of quay-site raised TypeError: is of type str, not Section" in site.logged


def test_ingest_counts_a_file_under_the_source_that_a_packages_format_gives_its_lines(
    site: Site,
) -> None:
    for printed in (site.printed["first"], site.printed["again"]):
        counts = {cells[0]: cells[1] for line in printed.splitlines() if len(cells := line.split()) > 2}
        assert (counts["rdc"], counts["plain"]) == ("1", "1"), printed
