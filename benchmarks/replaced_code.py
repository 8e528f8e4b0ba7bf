"""Own code that a library replaced, for ``house.py``: what it was at 391db37, and what does the work now.

A person declared the table; the lines and the importing files are counted. A definition is named as it was at 391db37,
so a checkout from before that, or from long after, may not have it.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import NamedTuple


class Replaced(NamedTuple):
    """``own``: files, or definitions in them (``file:Class.method``). ``module``: what is imported in their place; empty
    for what is no import. ``library``: its name for people."""

    what: str
    own: tuple[str, ...]
    library: str
    module: str = ""


TABLE = (
    Replaced(
        "the text of /metrics",
        (
            "web/metrics.py:Counters.render", "faultline/service.py:Service.metrics",
            "faultline/notify/telling.py:Telling.metrics", "faultline/receiving.py:Receiving.metrics",
        ),
        "prometheus-client", "prometheus_client",
    ),
    Replaced(
        "hashes of passwords",
        tuple(f"web/access/users.py:{name}" for name in ("hashed_password", "password_fits", "_scrypt", "_kept")),
        "argon2-cffi", "argon2",
    ),
    Replaced(
        "writing TOML",
        ("web/access/users.py:Users.save", "correlator/learning.py:_table", "correlator/learning.py:_toml"),
        "tomli-w", "tomli_w",
    ),
    Replaced(
        "protobuf of Loki's push",
        ("collector/receivers/loki.py:_fields", "collector/receivers/loki.py:_varint", "collector/columnar/loki_entries.py"),
        "protobuf", "google.protobuf",
    ),
    Replaced("frames of syslog with octet counts", ("collector/columnar/octets.py",), "the standard library's re"),
    Replaced("merging of JSON objects", ("collector/columnar/members.py",), "the standard library's json"),
    Replaced("rules of imports", ("tests/test_house.py:test_imports_point_one_way",), "import-linter"),
)  # fmt: skip


def before(root: Path) -> list[tuple[str, str]]:
    """What is replaced, and the lines that it took in this checkout."""
    found = []
    for entry in TABLE:
        sizes = {name: size for name in entry.own if (size := _lines(root, name))}
        files = {name.partition(":")[0] for name in sizes}
        found.append((entry.what, f"{sum(sizes.values())} lines in {_files(len(files))}" if sizes else "not there"))
    return found


def now(root: Path, trees: dict[Path, ast.Module]) -> list[tuple[str, str]]:
    """What is replaced, and what does it in this checkout."""
    found = []
    for entry in TABLE:
        text = entry.library
        if entry.module:
            text += f" in {_files(sum(_imports(tree, entry.module) for tree in trees.values()))}"
        elif entry.library == "import-linter":
            text += f", {_contracts(root)} contracts"
        found.append((entry.what, text))
    return found


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _lines(root: Path, name: str) -> int:
    file, _, definition = name.partition(":")
    path = root / file
    if not path.exists():
        return 0
    text = path.read_text(encoding="utf-8")
    if not definition:
        return len(text.splitlines())
    body: list[ast.stmt] = ast.parse(text).body
    for part in definition.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        named = [node for node in body if isinstance(node, kinds) and node.name == part]
        if not named:
            return 0
        body = named[0].body
    return (named[0].end_lineno or 0) - named[0].lineno + 1


def _imports(tree: ast.Module, module: str) -> bool:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return any(f"{name}.".startswith(f"{module}.") for name in names)


def _contracts(root: Path) -> int:
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return len(settings["tool"].get("importlinter", {}).get("contracts", ()))
