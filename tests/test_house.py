"""The rules of the code base: which package may import which, and that every extension is listed, sound and documented."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

from benchmarks import house
from correlator.edges import load
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

#: Folders of tests that are no package, and what they test instead.
BESIDE_THE_ROOMS = {
    "tests": "rules that hold for all rooms",
    "cluster": "a real Slurm, with agents and a service",
    "deploy": "units, images and the chart in deploy/",
    "correlator/engine": "correlator/engine.py and what it runs: situations and captures, from rows to verdicts",
}
#: Code on compute nodes imports nothing of ours (the agent: nothing but itself).
ALONE = ("collector/hooks.py", "collector/agent/")
#: A file of this length is usually two things.
MAX_LINES = 510
#: Files beside the detectors that are not detectors: what they share, and their registry.
SHARED_BY_DETECTORS = {"world", "registry", "power_saving", "link_tracks", "gpu_holders", "standstills"}


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
        ({"requires": ["good luck"]}, "unknown requirement 'good luck'"),
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


@pytest.mark.parametrize("room", ["parsers", "correlator"])
def test_every_data_file_is_in_the_wheel(room: str) -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    files = {p.relative_to(ROOT / room) for p in (ROOT / room).rglob("*") if p.suffix in (".toml", ".csv")}
    packed = {p.relative_to(ROOT / room) for glob in data[room] for p in (ROOT / room).glob(glob)}
    assert files == packed
