"""Attributes of facts: one type wherever they are declared, and no consumer reads them by a text."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from correlator.facts import registry
from correlator.model.attrs import Attr, attr, by_name, draft_of, no_attrs, with_attr

ROOT = Path(__file__).resolve().parents[3]


def declared() -> Iterator[tuple[str, str, Any]]:
    """(module, name of the constant, type) of every attribute that a module of the correlator declares."""
    for path in sorted((ROOT / "correlator").rglob("*.py")):
        if ": Attr[" not in path.read_text(encoding="utf-8"):
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name, hint in inspect.get_annotations(module, eval_str=True).items():
            if get_origin(hint) is Attr:
                yield module.__name__, name, get_args(hint)[0]


ATTRIBUTES = list(declared())


def members(hint: Any) -> frozenset[Any]:
    """A type as the set of types whose union it is."""
    if get_origin(hint) in (Union, types.UnionType):
        return frozenset().union(*(members(part) for part in get_args(hint)))
    return frozenset({hint})


def types_of_kinds() -> dict[str, frozenset[Any]]:
    """Attribute -> its types in all built-in kinds, as one set."""
    found: defaultdict[str, frozenset[Any]] = defaultdict(frozenset)
    for kind in registry.kinds().values():
        for name, hint in get_type_hints(kind.attrs).items():
            found[name] |= members(hint)
    return dict(found)


@pytest.mark.parametrize(("module", "name", "hint"), ATTRIBUTES, ids=[name for _, name, _ in ATTRIBUTES])
def test_its_type_is_that_of_the_kinds_that_have_it(module: str, name: str, hint: Any) -> None:
    value = getattr(importlib.import_module(module), name)
    assert value == name.lower() and type(value) is str, "a plain text: a dict is asked no slower"
    assert members(hint) == types_of_kinds()[value]


def test_each_is_declared_once() -> None:
    names = [name for _, name, _ in ATTRIBUTES]
    assert len(names) > 50 and len(set(names)) == len(names)


def read_by_text(text: str) -> list[int]:
    """Lines on which a source text reads or sets an attribute of a fact by a literal text."""
    found: list[int] = []
    if not re.search(r"\.\s*attrs\b", text):
        return found  # most files: they need not be parsed
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Subscript):
            of, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            of, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            of, key = node.comparators[0], node.left
        else:
            continue
        if isinstance(of, ast.Attribute) and of.attr == "attrs" and isinstance(key, ast.Constant | ast.JoinedStr):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(("text", "is_read"), [
    ('fact.attrs["hosts"]', True), ('a.root.attrs.get("hosts", ())', True), ('"hosts" in fact.attrs', True),
    ('draft.attrs["hosts"] = []', True), ("fact.attrs.get(HOSTS)", False), ("fact.attrs[HOSTS]", False), ('attrs["hosts"]', False),
    ('row["attrs"]', False),
])  # fmt: skip
def test_what_counts_as_reading_by_a_text(text: str, is_read: bool) -> None:
    """A detector that fills the TypedDict of its kind names keys by texts, which mypy checks."""
    assert bool(read_by_text(text)) == is_read


def test_nobody_reads_attributes_by_a_text() -> None:
    rooms = [path for room in ("correlator", "queries", "web", "faultline") for path in (ROOT / room).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in rooms if read_by_text(path.read_text(encoding="utf-8"))}
    assert len(rooms) > 200
    assert not found


def test_a_changed_copy_leaves_the_attributes_as_they_were() -> None:
    key: Attr[int] = attr("count")
    first = with_attr(no_attrs(), key, 1)
    second = with_attr(first, key, 2)
    draft = draft_of(second)
    draft[key] = 3
    assert [dict(by_name(attrs)) for attrs in (first, second, draft)] == [{"count": 1}, {"count": 2}, {"count": 3}]


WRONG = {
    "fact.attrs.get(attributes.HOST)": 'Module has no attribute "HOST"',
    "a: str = fact.attrs[attributes.HOSTS]": 'expression has type "list[str]", variable has type "str"',
    "b: float = fact.attrs.get(attributes.TIMEOUT)": 'expression has type "object", variable has type "float"',
    'fact.attrs["hosts"]': 'Invalid index type "str" for "Attrs"',
    'fact.attrs.get("hosts")': 'No overload variant of "get" of "Attrs" matches argument type "str"',
    "draft.attrs[attributes.PROMOTED] = 3": 'Cannot infer value of type parameter "T" of "__setitem__"',
}


@pytest.mark.long
def test_mypy_names_a_wrong_key_and_a_wrong_type(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT}\nfollow_imports = silent\n", encoding="utf-8")
    head = [
        "from correlator.model import attributes", "from correlator.model.nouns import Draft, Fact",
        "def f(fact: Fact, draft: Draft) -> None:",
    ]  # fmt: skip
    (tmp_path / "consumer.py").write_text("\n".join([*head, *(f"    {line}" for line in WRONG)]), encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "consumer.py"]
    done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == len(WRONG), done.stdout + done.stderr
    for number, (error, says) in enumerate(zip(errors, WRONG.values(), strict=True), len(head) + 1):
        assert error.startswith(f"consumer.py:{number}: ") and says in error
