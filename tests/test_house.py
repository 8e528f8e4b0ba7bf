"""The rules of the code base: which package may import which, and that every extension is listed, sound and documented."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from benchmarks import dead_names, house
from correlator.edges import load
from correlator.edges import scopes as places
from correlator.edges.conditions import registry as requirements
from correlator.edges.conditions.declaration import declared
from correlator.edges.conditions.registry import CONDITIONS
from correlator.edges.scopes import SCOPES
from correlator.facts import registry
from parsers import documents, formats
from parsers.formats.base import Format
from parsers.pattern import BUILT_IN
from parsers.patterns import load as catalogue_of
from tests.syntax_trees import nodes_of, statements_of, tree_of

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("parsers", "store", "collector", "correlator", "queries", "web", "faultline")

#: Allowed imports, as docs/architecture.md draws them.
MAY_IMPORT: dict[str, set[str]] = {
    "parsers": set(),
    "store": {"parsers"},
    "collector": {"parsers", "store"},
    "correlator": {"parsers", "store"},
    "queries": {"parsers", "store", "correlator"},
    "web": {"parsers", "store", "collector", "correlator", "queries"},
    "faultline": {"parsers", "store", "collector", "correlator", "queries", "web"},
}

#: Package -> its distributions; reads the metadata of all that is installed, in the process that needs it.
DISTRIBUTIONS = cache(packages_distributions)
#: A test installs them for itself, in an environment of its own (tests/deploy/rendered.py).
OF_A_TEST = {"helm-python", "kubernetes-validate"}
#: Folders of tests that are no package, and what they test instead.
BESIDE_THE_ROOMS = {
    "tests": "rules that hold for all rooms",
    "cluster": "a real Slurm, with agents and a service",
    "deploy": "units, images and the chart in deploy/",
    "scenarios_outside": "a simulated cluster that knows nothing of the product",
    "correlator/engine": "correlator/engine.py and what it runs: situations and captures, from rows to verdicts",
}
#: Code on compute nodes imports nothing of ours (the agent: nothing but itself).
ALONE = ("collector/hooks.py", "collector/agent/")
#: A file of this length is usually two things.
MAX_LINES = 510
#: Files beside the detectors that are not detectors: what they share, and their registry.
SHARED_BY_DETECTORS = {
    "world",
    "registry",
    "named_processes",
    "power_saving",
    "link_tracks",
    "gpu_drains",
    "gpu_hangs",
    "gpu_holders",
    "held_back",
    "standstills",
    "host_names",
}


def sources() -> list[Path]:
    return sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Full names of all modules that a file imports, inside functions too."""
    found: set[str] = set()
    for node in statements_of(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: line {node.lineno}: write the full name of the module"
            found.add(node.module or "")
    return found


def named_in(path: Path) -> set[str]:
    """The same, and the names that are imported from them: ``store.duckdb`` of ``from store import duckdb``."""
    return imports(path) | {
        f"{node.module}.{alias.name}"
        for node in statements_of(path)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name.split(".")[0] in ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    allowed = MAY_IMPORT[room] | {room}
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / room).rglob("*.py")
        for name in ours(path)
        if name.split(".")[0] not in allowed
    }
    assert not wrong


#: Requirements that the code names in strings: NVML is loaded where there is a GPU, and uvicorn takes these two itself.
BY_NAME = {"nvidia-ml-py": "collector/agent/sources/nvml.py", "httptools": "", "uvloop": ""}
#: Packages whose top name belongs to several distributions.
SHARED_NAMES = {"chdb": "chdb", "google": "protobuf", "opentelemetry": "opentelemetry-proto"}


def distribution(module: str) -> str:
    """The distribution that brings a module, in the spelling of pyproject.toml."""
    top = module.split(".")[0]
    return SHARED_NAMES.get(top) or DISTRIBUTIONS().get(top, [top])[0].lower().replace("_", "-")


def foreign(paths: Iterable[Path]) -> set[str]:
    """The distributions that files import, inside functions too."""
    names = {
        name for path in paths for name in imports(path) if name.split(".")[0] not in (*ROOMS, *sys.stdlib_module_names)
    }
    return {distribution(name) for name in names}


def required(extra: str) -> set[str]:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return {re.split(r"[<>=;\[ ]", one)[0] for one in extras[extra]}


def test_what_the_product_imports_is_what_it_requires() -> None:
    """Both ways: a package that another one happens to bring may go with that one's next version."""
    on_nodes = [path for path in sources() if path.is_relative_to(ROOT / "collector/agent")]
    declared = required("agent") | required("gpu")
    assert foreign(on_nodes) | {"nvidia-ml-py"} == declared
    others = set(sources()) - set(on_nodes)
    assert foreign(others) == required("server") - BY_NAME.keys()
    for name, path in BY_NAME.items():
        assert not path or "pynvml" in (ROOT / path).read_text(encoding="utf-8"), name


def test_what_the_tests_import_is_required_for_development() -> None:
    here = {p.stem for folder in ("tests", "benchmarks", "docs") for p in (ROOT / folder).rglob("*.py")} | {
        "tests",
        "benchmarks",
    }
    paths = [p for folder in ("tests", "benchmarks") for p in (ROOT / folder).rglob("*.py")]
    names = {
        n for path in paths for n in imports(path) if n.split(".")[0] not in (*ROOMS, *sys.stdlib_module_names, *here)
    }
    declared = required("dev") | required("server") | required("agent") | OF_A_TEST
    assert {distribution(name) for name in names} <= declared


def test_no_circle_of_imports() -> None:
    """Imports under TYPE_CHECKING and inside functions included.

    ``make lint`` is stricter: no folder may import a sibling folder that imports it back (pyproject.toml).
    """
    trees = {path: tree_of(path) for path in sources()}
    assert not [sorted(group) for group in house.components(house.imports(ROOT, trees)) if len(group) > 1]


def test_every_room_is_held_free_of_circles_by_make_lint() -> None:
    """The contract of import-linter names all packages and has no exceptions."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (acyclic,) = [contract for contract in contracts if contract["type"] == "acyclic_siblings"]
    assert set(acyclic) == {"name", "type", "ancestors"} and set(acyclic["ancestors"]) == set(ROOMS)


def test_the_engine_of_the_store_is_named_where_a_store_is_opened_and_nowhere_else() -> None:
    """Everything else names the protocol (``store.door``), in types too.

    So a second engine is one more line in ``store``.
    """
    knows = {ROOT / "store" / "__init__.py", *(ROOT / "store" / "duckdb").glob("*.py")}
    wrong = {
        f"{path.relative_to(ROOT)} names {name}"
        for path in sources()
        if path not in knows
        for name in (
            *(n for n in imports(path) if n.startswith("store.duckdb")),
            *re.findall(r"\bDuck(?:Store|Writer)\b", path.read_text("utf-8")),
        )
    }
    assert not wrong


def test_nobody_outside_the_store_holds_a_connection_of_it() -> None:
    """KQL included: a store takes a query (``run_kql``) and gives it the connection."""
    held = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for room in ("collector", "correlator", "queries", "web", "faultline")
        for path in (ROOT / room).rglob("*.py")
        if "cursor()" in path.read_text("utf-8") and ROOT / "queries" / "kql" not in path.parents
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cursor"
    ]
    assert not held


def test_the_wall_around_queries_stands_in_no_circle_of_imports() -> None:
    """``run`` imports it, and nothing that it imports imports ``run``."""
    places = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sources()}
    for wall in [m for m in places if m.startswith("queries.kql.wall.") and not m.endswith("__init__")]:
        seen: set[str] = set()
        todo = [wall]
        while todo:
            text = places[todo.pop()]
            found = {f"{n.module}.{a.name}" for n in statements_of(text)
                     if isinstance(n, ast.ImportFrom) for a in n.names}  # fmt: skip
            new = (found | imports(text)) & set(places) - seen
            seen |= new
            todo += new
        assert not seen & {wall, "queries.kql.run"}, f"{wall} imports what imports it"


def test_the_tests_mirror_the_rooms() -> None:
    """A test lies in the folder of the package that it tests.

    Every room of the correlator has tests of its own, and none lies beside the rooms.
    """
    tests = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    tests = [test for test in tests if test.parts[0] != "captures"]
    folders = {test.parent.as_posix().replace(".", "tests") for test in tests}
    packages = {folder for folder in folders if (ROOT / folder / "__init__.py").exists()}
    assert folders - packages == set(BESIDE_THE_ROOMS)
    rooms = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "correlator").glob("*/__init__.py")}
    assert not rooms - folders, "rooms of the correlator without a test"
    assert "correlator" not in folders, "each of its tests belongs to one room, or to its engine"
    names = [test.name for test in tests]
    assert len(names) == len(set(names)), "a test file is named by its last part alone (tests/conftest.py, docs)"


def test_what_runs_on_compute_nodes_imports_nothing_of_ours() -> None:
    wrong = set()
    for path in sources():
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(ALONE):
            wrong |= {f"{place} imports {name}" for name in ours(path) if not name.startswith("collector.agent")}
    assert not wrong


#: The module that configures the log, and the only one that uses the standard library's ``logging``.
LOG_SET_UP = "parsers/logs.py"


def test_one_module_sets_the_log_up_and_all_log_with_structlog() -> None:
    """From the syntax trees: an import of ``logging``, or more of structlog than ``get_logger``, is in one file only."""
    wrong = set()
    for path in sources():
        place = path.relative_to(ROOT).as_posix()
        if place == LOG_SET_UP:
            continue
        # An attribute of structlog is in an expression, and needs the name in the text.
        for node in (nodes_of if "structlog" in path.read_text(encoding="utf-8") else statements_of)(path):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if "logging" in {name.split(".")[0] for name in [*names, module]}:
                wrong.add(f"{place}:{node.lineno} imports logging")
            if module.split(".")[0] == "structlog" or any(name.startswith("structlog.") for name in names):
                wrong.add(f"{place}:{node.lineno} imports parts of structlog")
            if (
                isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                and node.value.id == "structlog" and node.attr != "get_logger"
            ):  # fmt: skip
                wrong.add(f"{place}:{node.lineno} uses structlog.{node.attr}")
    assert not wrong
    assert "structlog.configure(" in (ROOT / LOG_SET_UP).read_text()


def test_no_drawer_and_no_file_too_long() -> None:
    assert not [str(p) for p in sources() if p.name in ("utils.py", "util.py", "helpers.py", "misc.py")]
    long = {p.relative_to(ROOT).as_posix(): n for p in sources() if (n := len(p.read_text().splitlines())) >= MAX_LINES}
    assert not long


def test_no_function_too_long() -> None:
    assert not house.long_functions({path: tree_of(path) for path in sources()})


#: A shorter body may be the same by chance.
A_BODY = 56
#: Bodies that stand in two files, by the name of the function or class, and why.
WRITTEN_TWICE = {
    "quoted_data": "reads the TOML file beside its own module",
    "_first": "the first of some labels that is there: Prometheus' and Loki's",
    "_To": "what a receiver passes through its functions: OTLP's and Loki's",
}


def bodies(paths: Iterable[Path]) -> dict[str, dict[Path, str]]:
    """The body of each function and class, without its docstring and its indentation -> file -> its name there."""
    found: dict[str, dict[Path, str]] = {}
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in statements_of(path):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            if body and node.end_lineno is not None:
                text = "\n".join(line.strip() for line in lines[body[0].lineno - 1 : node.end_lineno])
                if len(text) >= A_BODY:
                    found.setdefault(text, {})[path] = node.name
    return found


def test_no_function_and_no_class_is_written_twice() -> None:
    """What runs on compute nodes imports nothing of ours, and has its own."""
    here = [path for path in sources() if not path.relative_to(ROOT).as_posix().startswith(ALONE)]
    twice = [places for places in bodies(here).values() if len(places) > 1]
    known = [next((name for name in places.values() if name in WRITTEN_TWICE), None) for places in twice]
    assert [places for places, name in zip(twice, known, strict=True) if name is None] == []
    assert {*known} == WRITTEN_TWICE.keys(), "no longer written twice"


#: A shorter constant may be the same by chance.
A_CONSTANT = 50
#: Constants that stand in two files, and why.
STATED_TWICE = {
    "SEVERITIES": "OpenTelemetry's levels: the columns of the receiver, and objects in files (parsers/formats/envelopes.py)"
}


def constants(paths: Iterable[Path]) -> dict[str, dict[Path, str]]:
    """The value of each constant of a module as it is written -> file -> its name there."""
    found: dict[str, dict[Path, str]] = {}
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                written = " ".join(line.strip() for line in lines[node.lineno - 1 : node.end_lineno])
                name, _, value = written.partition(" = ")
                if len(value) >= A_CONSTANT:
                    found.setdefault(value, {})[path] = name
    return found


def test_no_constant_is_written_twice() -> None:
    """A list in two files becomes two lists; what runs on compute nodes has its own."""
    here = [path for path in sources() if not path.relative_to(ROOT).as_posix().startswith(ALONE)]
    twice = [places for places in constants(here).values() if len(places) > 1]
    known = [next((name for name in places.values() if name in STATED_TWICE), None) for places in twice]
    assert [places for places, name in zip(twice, known, strict=True) if name is None] == []
    assert {*known} == STATED_TWICE.keys(), "no longer written twice"


def test_a_body_that_stands_twice_is_found(tmp_path: Path) -> None:
    lines = "    low: float\n    high: float\n    count: int\n    stated: float\n    right: float\n"
    for name, docstring in (("one", '    """A."""\n'), ("two", "")):
        (tmp_path / f"{name}.py").write_text(f"class {name.title()}:\n{docstring}{lines}", encoding="utf-8")
    (twice,) = bodies(sorted(tmp_path.glob("*.py"))).values()
    assert [*twice.values()] == ["One", "Two"]


def test_the_catalogue_is_clean() -> None:
    assert [str(p) for p in catalogue_of().check()] == []


def test_the_edges_are_clean() -> None:
    found, problems = load.load()
    assert problems == []
    assert len(found) > 20


def test_a_broken_example_is_named_by_file_entry_and_reason(tmp_path: Path) -> None:
    """A pattern was edited and its example no longer holds."""
    broken = tmp_path / "site.toml"
    broken.write_text(
        '[[pattern]]\nid = "site-pump"\nevent = "site.pump_stopped"\nliteral = "pump stopped"\n'
        "regex = 'pump stopped on (?P<device>\\w+)$'\n"
        'example = { line = "pump stopped on cdu3", entities = { device = "cdu4" } }\n'
    )
    (problem,) = catalogue_of([broken]).check()
    text = str(problem)
    assert "site.toml" in text and "site-pump" in text and "cdu4" in text and "cdu3" in text


@pytest.mark.parametrize("path", sorted(BUILT_IN.glob("*.toml")), ids=lambda p: p.stem)
def test_breaking_a_built_in_example_is_noticed(path: Path, tmp_path: Path) -> None:
    """The check really reads each file: the first example with another text is detected."""
    catalogue = catalogue_of()
    entry = next(e for e in catalogue.entries if Path(e.file).name == path.name and e.examples)
    text = path.read_text(encoding="utf-8")
    example = entry.examples[0].text
    spoiled = text.replace(example.replace("\\", "\\\\").replace('"', '\\"'), "nothing of the kind")
    if spoiled == text:
        spoiled = text.replace(example, "nothing of the kind")
    assert spoiled != text, f"{entry.id}: example not found as written"
    copy = tmp_path / path.name
    copy.write_text(spoiled.replace(f'id = "{entry.id}"', 'id = "site-spoiled"'), encoding="utf-8")
    reasons = [p for p in catalogue_of([copy]).check() if "site-spoiled" in str(p)]
    assert reasons and path.name in str(reasons[0]) and "nothing of the kind" in " ".join(map(str, reasons))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scope": "same galaxy"}, "unknown scope 'same galaxy'"),
        ({"window": "[0s, SlurmTimeout]"}, "SlurmTimeout"),
        ({"window": "[60s, 0s]"}, "ends before it begins"),
        ({"prior": 1.5}, "not in (0, 1]"),
        ({"requires": ["good luck"]}, "unknown requirement 'good luck'; known: a step lost its node, "),
        ({"wndow": "x"}, "unknown key 'wndow'"),
        ({"cause": ["run.failed"], "effect": ["job.comm_error"]}, "cycle"),
    ],
)
def test_a_broken_edge_is_named_by_file_entry_and_reason(change: dict[str, object], says: str, tmp_path: Path) -> None:
    edge: dict[str, object] = {
        "id": "SITE1", "cause": ["disk.error"], "effect": ["run.failed"], "scope": "same node",
        "window": "[0s, 60s]", "prior": 0.5, "text": "a test", **change,
    }  # fmt: skip
    path = tmp_path / "site.toml"
    path.write_text("[[edge]]\n" + "".join(f"{k} = {v!r}\n" for k, v in edge.items()))
    problems = [str(p) for p in load.load([path])[1]]
    assert any(says in p for p in problems), problems
    assert says == "cycle" or any("site.toml" in p and "SITE1" in p for p in problems)


def test_every_format_file_is_listed() -> None:
    listed = {id(f) for f in formats.all_formats()}
    for path in (ROOT / "parsers/formats").glob("[a-z]*.py"):
        module = importlib.import_module(f"parsers.formats.{path.stem}")
        own = {n: v for n, v in vars(module).items() if isinstance(v, Format) and n.isupper()}
        assert {n for n, v in own.items() if id(v) not in listed} == set(), f"{path.name}: not in all_formats()"


def test_every_document_file_is_listed() -> None:
    listed = set(map(id, documents.REGISTRY.values()))
    for path in (ROOT / "parsers/documents").glob("[a-z]*.py"):
        module = importlib.import_module(f"parsers.documents.{path.stem}")
        if hasattr(module, "DOCUMENT"):
            assert id(module.DOCUMENT) in listed, f"{path.name}: not in REGISTRY"


def folders_of_the_correlator() -> list[Path]:
    """Every folder with code or data, at any depth."""
    files = [p for pattern in ("*.py", "*.toml") for p in (ROOT / "correlator").rglob(pattern)]
    return sorted({p.parent for p in files} - {ROOT / "correlator"})


@pytest.mark.parametrize("folder", folders_of_the_correlator(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_each_room_says_what_it_knows_and_what_it_must_not(folder: Path) -> None:
    """``make lint`` holds the imports to it (``tool.importlinter``); this holds the words."""
    said = ast.get_docstring(tree_of(folder / "__init__.py")) or ""
    assert said.startswith("Knows "), said
    assert re.search(r"(?:^|[.:] |\n)Must not \w+ ", said), said


def test_the_table_of_rooms_leaves_no_cell_empty_and_no_room_out() -> None:
    """docs/architecture.md: each room of the correlator, what it knows, what it must not know."""
    table = (ROOT / "docs/architecture.md").read_text("utf-8").split("| room of the correlator |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert not [row for row in rows if len(row) != 3 or not all(row)]
    rooms = {p.name + "/" for p in folders_of_the_correlator() if p.parent == ROOT / "correlator"}
    assert {f"`{name}`" for name in rooms} <= {row[0] for row in rows}


def test_every_subject_is_run() -> None:
    facts = ROOT / "correlator/facts"
    for path in sorted([*facts.glob("[a-z]*.py"), *facts.glob("[a-z]*/detector.py")]):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.stem in SHARED_BY_DETECTORS:
            continue
        module = importlib.import_module(name)
        assert module.DETECTORS and module.KINDS, f"{name} has no detectors or declares no kinds"
        assert module in registry.BUILT_IN, f"{name}: not run by {registry.__name__}"


def test_every_scope_and_requirement_is_used_by_an_edge() -> None:
    found, _ = load.load()
    assert {e.scope for e in found} == set(SCOPES)
    unused = set(CONDITIONS) - {r for e in found for r in e.requires}
    assert not unused


def test_every_requirement_is_declared_beside_its_test_and_says_what_it_means() -> None:
    """The registry gathers them; a package may bring a bare function, whose docstring then says it."""
    for path in (ROOT / "correlator/edges/conditions").glob("[a-z]*.py"):
        module = importlib.import_module(f"correlator.edges.conditions.{path.stem}")
        assert path.stem in ("declaration", "registry") or module in requirements.MODULES, path.name
    for name, condition in CONDITIONS.items():
        assert condition.name == name and condition.summary.endswith("."), name
        home = next(m for m in requirements.MODULES if m.CONDITIONS.get(name) is condition)
        assert condition.test.__module__ == home.__name__, name

    def wet(world: object, cause: object, effect: object) -> None:
        """The tray is wet.

        It was not dried.
        """

    bare = declared("tray still wet", wet)
    assert (bare.name, bare.summary, bare.test) == ("tray still wet", "The tray is wet.", wet)


def test_every_scope_is_declared_beside_its_test_and_says_what_it_means() -> None:
    """A package may bring a bare function here too."""
    for name, scope in SCOPES.items():
        assert scope.name == name and scope.summary.endswith("."), name
        assert scope.test.__module__ == places.__name__, name
    assert len({scope.test for scope in SCOPES.values()}) == len(SCOPES)
    tables = [name for name, value in vars(places).items() if isinstance(value, dict) and not name.startswith("__")]
    assert tables == ["SCOPES"], "what depends on a scope is a field of its declaration"


def test_a_scopes_or_requirements_name_is_written_beside_its_test_only() -> None:
    """What depends on one is a field of its declaration; edges name it in their files."""
    names = (CONDITIONS.keys() | SCOPES.keys()) - {
        "several nodes"
    }  # a place is called that as well (facts/environment)
    beside = {*(ROOT / "correlator/edges/conditions").iterdir(), Path(places.__file__)}
    mentioning = [p for p in sources() if p not in beside and any(f'"{n}"' in p.read_text("utf-8") for n in names)]
    elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value!r}"
        for path in mentioning
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert not elsewhere


@pytest.mark.parametrize("room", ["parsers", "correlator"])
def test_every_data_file_is_in_the_wheel(room: str) -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = {p.relative_to(ROOT / room) for p in (ROOT / room).rglob("*") if p.suffix in (".toml", ".csv")}
    packed = {p.relative_to(ROOT / room) for glob in data[room] for p in (ROOT / room).glob(glob)}
    assert files == packed


@pytest.mark.long
def test_no_name_is_dead_but_those_that_a_person_read() -> None:
    """What vulture reports is in ``benchmarks/dead_names.toml``, and what is there is still reported."""
    found = dead_names.reported(ROOT, (*ROOMS, "docs"))
    assert found is not None, "vulture is missing: pip install -c constraints.txt -e '.[dev]'"
    used, kept, used_before = dead_names.listed()
    assert found - used - kept - used_before == set(), "unused: delete it, or say in the list what uses it"
    assert (used | kept) - found == set(), "in use, or gone: take it from the list"


def test_a_cycle_hides_floors(tmp_path: Path) -> None:
    """A cycle of two between a top and a bottom, one import of which is in a function."""
    texts = {"top": "from parsers import one\n", "one": "from parsers import two\n", "bottom": "",
             "two": "from parsers import bottom\n\n\ndef f():\n    from parsers import one\n"}  # fmt: skip
    (tmp_path / "parsers").mkdir()
    for name, text in texts.items():
        (tmp_path / "parsers" / f"{name}.py").write_text(text)
    shape = dict(house.shape_of_imports(tmp_path, house.trees_of(tmp_path)))
    floors = [value for name, value in shape.items() if "floors" in name or "the same" in name]
    assert floors == [3, 4, 4]


def test_make_bench_runs_every_benchmark_that_needs_no_argument() -> None:
    (listed,) = re.findall(r"^BENCH := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = {
        path.stem: path for path in (ROOT / "benchmarks").glob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    }  # fmt: skip
    assert set(listed.split()) == {name for name, path in commands.items() if not _needs_an_argument(path)}


def _needs_an_argument(path: Path) -> bool:
    """Whether its parser of the command line has an argument that must be given."""
    for call in (node for node in nodes_of(path) if isinstance(node, ast.Call)):
        options = {one.arg: one.value.value for one in call.keywords if isinstance(one.value, ast.Constant)}
        if options.get("required"):
            return True
        named = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        is_argument = isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        if (
            is_argument
            and isinstance(named, str)
            and not named.startswith("-")
            and options.get("nargs") not in ("*", "?")
        ):
            return True
    return False


#: The pictures show the shape of the imports. With a tenth more modules it may be another: draw them again.
PICTURE_IS_OLD = 0.1


@pytest.mark.parametrize("room", ["correlator", "queries"])
def test_the_pictures_of_the_imports_are_of_this_tree(room: str) -> None:
    """The text beside a picture has the number in the picture, and that is the tree's within a tenth."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (beside,) = re.findall(rf"!\[The[^\]]* now: ([^\]]*)\]\(imports-{room}-now\.svg\)", page)
    picture = (ROOT / "docs" / f"imports-{room}-now.svg").read_text(encoding="utf-8")
    (title,) = re.findall(r"^<title>(.*)</title>$", picture, re.MULTILINE)
    drawn = int(title.split(" modules")[0])
    assert f"{drawn} modules" in beside and ("no circle" in beside) == ("no circle" in title)
    assert picture.count("</title></circle>") == drawn, "a dot a module"
    assert abs(len(list((ROOT / room).rglob("*.py"))) / drawn - 1) < PICTURE_IS_OLD
