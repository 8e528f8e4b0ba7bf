"""Names and prose use the field's standard terms. Words that are not, and that reviews kept finding, do not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax_trees import nodes_of

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("parsers", "store", "collector", "correlator", "queries", "web", "faultline", "benchmarks")
#: What to write in place of each: reported, sent or shown; stated; seen; output; used; sources; typical; unhurt; growth.
GONE = re.compile(r"(?:^|_)(told|said|heard|unheard|printed|spent|voices?|usual|spared|grown)(?:_|$)", re.IGNORECASE)
#: Names of data, which stores and answers have, and what a program does print.
KEPT = {
    "correlator/facts/munge.py": {"said"},
    "correlator/facts/slurmd.py": {"said"},
    "correlator/facts/nodes/kinds.py": {"said_by", "SAID_BY"},
    "correlator/model/attributes.py": {"SAID"},
    "correlator/edges/conditions/hangs.py": {"printed_timeout", "no_printed_timeout"},
}


#: The same words in prose: docstrings, comments and pages of docs. "Printed" is left out, as programs print; "spent" is kept
#: out, as time is used. A part of a name is no word: a kind of fact (``gpu.told``), a way to end (``requeued-untold``).
GONE_IN_PROSE = re.compile(
    r"(?<![\w.-])(told|said|heard|untold|unheard|spent|voices?|usual|spared|grown)(?![\w-])", re.IGNORECASE
)
#: What prose may quote, and why.
QUOTED = (
    re.compile(r"(`+)[^`\n]+\1"),  # names of data, settings and commands
    re.compile(r", and said so\."),  # docs/edges.md: a sentence of verdicts
    re.compile(r"attributes: .*"),  # docs/kinds.md: names of data
)
COMMENTS = {
    "js": r"//(?!/)[^\n]*|/\*.*?\*/", "css": r"/\*.*?\*/", "html": r"\{#.*?#\}|<!--.*?-->", "toml": r"(?:^|\s)#.*", "kql": r"//.*",
    "sh": r"(?:^|\s)#.*",
}  # fmt: skip


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


def python_prose(source: str) -> Iterator[str]:
    """The comments and docstrings of Python code."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node, clean=False) or ""


def prose(path: Path) -> Iterator[str]:
    """What is written in a file for people: a page as a whole, without its code; of code the comments and docstrings."""
    text, kind = path.read_text(encoding="utf-8"), path.suffix[1:]
    if kind == "py":
        yield from python_prose(text)
    elif kind == "md":
        yield re.sub(r"^```.*?^```|^(?: {4}|\t).*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    else:
        yield from re.findall(
            COMMENTS[kind], text, re.MULTILINE | re.DOTALL if kind in ("css", "html", "js") else re.MULTILINE
        )


def coined_in_prose(path: Path) -> list[str]:
    """The lines of prose that use such a word."""
    found: list[str] = []
    if not GONE_IN_PROSE.search(path.read_text(encoding="utf-8")):
        return found  # most files: reading code for its comments takes a second a megabyte
    for part in prose(path):
        for quoted in QUOTED:
            part = quoted.sub("", part)
        found += [line.strip() for line in part.splitlines() if GONE_IN_PROSE.search(line)]
    return found


def written() -> Iterator[Path]:
    """All files of the rooms and the docs that hold prose, without the change log (history) and what others wrote."""
    yield ROOT / "README.md"
    yield from (ROOT / "docs").rglob("*.md")
    for room in (*ROOMS, "deploy"):
        for kind in ("py", *COMMENTS):
            yield from (path for path in (ROOT / room).rglob(f"*.{kind}") if not {"vendor", "capture"} & {*path.parts})


def test_no_prose_uses_one() -> None:
    files = [*written()]
    wrong = {path.relative_to(ROOT).as_posix(): lines for path in files if (lines := coined_in_prose(path))}
    assert len(files) > 500
    assert not wrong, (
        f"write reported, logged, received, used, typical or the like, or quote a name by backticks: {wrong}"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("made.py", 'def f():\n    """What Slurm said of it."""\n'), ("made.py", "x = 1  # the usual case\n"),
        ("made.md", "A node was heard of.\n"), ("made.js", "f();  // told to readers\n"), ("made.js", "/* one\n told */\n"), ("made.css", "/* told\n by colour */\n"),
        ("made.html", "<p>{# told to\n readers #}\n"), ("made.toml", "a = 1  # its voices\n"), ("made.sh", "# time spent\n"),
    ],
)  # fmt: skip
def test_each_kind_of_prose_is_seen(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert len(coined_in_prose(path)) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("made.py", 'x = "what it said"\nsaid_by = 1  # ``gpu.told``, `said`, requeued-untold\n'), ("made.md", "`heard`\n\n    it said\n"),
        ("made.js", "f('it said nothing');\n"), ("made.toml", 'text = "and said so"\n'),
    ],
)  # fmt: skip
def test_texts_and_names_of_data_are_not_prose(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert coined_in_prose(path) == []


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
    [
        "def told(): ...",
        "class LastHeard: ...",
        "x = lambda said: 1",
        "one.usual = 2",
        "for spent_s in (): ...",
        "unheard = 1",
    ],
)
def test_each_kind_of_name_is_seen(source: str, tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(source)
    assert len(coined(path)) == 1
