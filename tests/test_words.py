"""Names are the field's standard terms. Those that were not, and that reviews kept finding, do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax_trees import nodes_of

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("parsers", "store", "collector", "correlator", "queries", "web", "faultline", "benchmarks")
#: What to write in place of each: reported, sent or shown; stated; seen; output; used; sources; typical; unhurt; growth.
GONE = re.compile(r"(?:^|_)(told|said|heard|printed|spent|voices?|usual|spared|grown)(?:_|$)", re.IGNORECASE)
#: Names of data, which stores and answers have, and what a program does print.
KEPT = {
    "correlator/facts/munge.py": {"said"},
    "correlator/facts/slurmd.py": {"said"},
    "correlator/facts/nodes/kinds.py": {"said_by", "SAID_BY"},
    "correlator/model/attributes.py": {"SAID"},
    "correlator/edges/conditions/hangs.py": {"printed_timeout", "no_printed_timeout"},
}


def defined(path: Path) -> Iterator[str]:
    """The names that a file gives: functions, classes, arguments, variables and attributes."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def coined(path: Path) -> set[str]:
    return {name for name in defined(path) if GONE.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))}


def test_no_name_is_one_of_the_words_that_are_gone() -> None:
    found = {path.relative_to(ROOT).as_posix(): names for room in ROOMS for path in (ROOT / room).rglob("*.py") if (names := coined(path))}  # fmt: skip
    assert {
        place: names - KEPT.get(place, set()) for place, names in found.items() if names - KEPT.get(place, set())
    } == {}
    assert {place: names for place, names in KEPT.items() if names - found.get(place, set())} == {}, (
        "gone: take it from the list"
    )


def test_no_file_is_named_so() -> None:
    files = [
        path for room in ROOMS for suffix in ("py", "html", "js", "css", "toml", "kql")
        for path in (ROOT / room).rglob(f"*.{suffix}") if "vendor" not in path.parts
    ]  # fmt: skip
    assert files and [str(path) for path in files if GONE.search(path.stem)] == []


@pytest.mark.parametrize(
    "source",
    ["def told(): ...", "class LastHeard: ...", "x = lambda said: 1", "one.usual = 2", "for spent_s in (): ..."],
)
def test_each_kind_of_name_is_seen(source: str, tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(source)
    assert len(coined(path)) == 1
