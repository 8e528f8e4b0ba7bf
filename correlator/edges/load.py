"""Causal edges as data: ``*.toml`` here, and a site's own files. See docs/correlation.md for the keys.

A file has ``[[edge]]`` tables, and ``[[base_rate]]`` tables with the share of a kind of fact that causes nothing. An
edge's ``tests`` are read only by ``selftest/run.py`` for ``faultline check``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from correlator.edges.conditions.registry import conditions
from correlator.edges.scopes import former as former_scopes
from correlator.edges.scopes import scopes
from correlator.edges.window_values import example_values
from correlator.facts.registry import kinds as kinds_of_facts
from correlator.model.nouns import PRIOR_RUNS, Edge
from correlator.model.subjects import edge_files
from correlator.site import windows
from parsers import extensions

HERE = Path(__file__).parent

_KEYS = {
    "id",
    "cause",
    "effect",
    "scope",
    "window",
    "prior",
    "judged",
    "requires",
    "text",
    "reference",
    "anchor",
    "disabled",
    "density",
    "blocks",
    "shared",
    "prior_runs",
    "tests",
}

_RATE_KEYS = {"kind", "innocent", "reference"}

#: Settings of windows that count something; all others are times.
COUNTS = frozenset({"NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"})

#: How delays spread over the window: evenly, or most of them soon after the cause.
DENSITIES = ("even", "early")


@dataclass(frozen=True)
class Problem:
    """What is wrong with an entry, and where."""

    file: str
    entry: str
    reason: str
    table: str = "edge"

    def __str__(self) -> str:
        return f"{self.file}: {self.table} {self.entry}: {self.reason}"


@dataclass(frozen=True)
class Entry:
    """An edge as written in its file."""

    path: Path
    table: dict[str, Any]


@dataclass(frozen=True)
class Rules:
    """The combined content of all files.

    ``innocent``: kind of fact -> the share of them that caused nothing, if given.
    """

    edges: list[Edge]
    innocent: Mapping[str, float] = field(default_factory=dict)


def load(extra: Sequence[Path] = ()) -> tuple[list[Edge], list[Problem]]:
    """The edges alone."""
    found, problems = rules(extra)
    return found.edges, problems


def rules(extra: Sequence[Path] = ()) -> tuple[Rules, list[Problem]]:
    """Built-in edges, those of installed packages and a site's files.

    A later file replaces an edge of the same id, or disables it. A faulty entry of a package's file is logged and skipped,
    and is not among the problems.
    """
    found, innocent, problems = _read(extra, tests=False)
    edges = [_edge(entry.path, entry.table) for _, entry in sorted(found.items())]
    return Rules(edges, innocent), problems + _cycles(edges)


def replaced(extra: Sequence[Path] = ()) -> list[str]:
    """Built-in edges that other files replace by using their ids, one line of text per file.

    That may be on purpose, or an id copied by mistake.
    """
    built_in = {str(table.get("id")) for path in HERE.glob("*.toml") for table in _tables(path, tests=False)[0]["edge"]}
    lines = []
    for path in [*edge_files(), *extra]:
        tables, _ = _tables(path, tests=False)
        ids = sorted({str(table.get("id")) for table in tables["edge"] if not table.get("disabled")} & built_in)
        if ids:
            lines.append(f"{path.name} replaces the built-in {'edge' if len(ids) == 1 else 'edges'} {', '.join(ids)}")
    return lines


def entries(extra: Sequence[Path] = ()) -> dict[str, Entry]:
    """The edges as written in their files, by id, without invalid ones."""
    return _read(extra, tests=True)[0]


def _read(extra: Sequence[Path], *, tests: bool) -> tuple[dict[str, Entry], dict[str, float], list[Problem]]:
    built_in, rates, wrong = _built_in(tests)
    found, innocent, problems = dict(built_in), dict(rates), list(wrong)
    _add_packages(found, innocent)
    for path in extra:
        problems += _add(path, found, innocent, True)
    return found, innocent, problems


@cache
def _built_in(tests: bool) -> tuple[Mapping[str, Entry], Mapping[str, float], Sequence[Problem]]:
    """The content of the files here. Read once: they are part of the code, and reading takes a sixth of a small pass."""
    found: dict[str, Entry] = {}
    innocent: dict[str, float] = {}
    problems: list[Problem] = []
    for path in sorted(HERE.glob("*.toml")):
        problems += _add(path, found, innocent, tests)
    return found, innocent, problems


def _add_packages(found: dict[str, Entry], innocent: dict[str, float]) -> None:
    """Adds the files of installed packages. No package replaces an entry of another: the first is used."""
    firsts: dict[str, str] = {}
    for path, called in edge_files().items():
        mine: dict[str, Entry] = {}
        rates: dict[str, float] = {}
        try:
            problems = _add(path, mine, rates, True, found)
        except (ValueError, TypeError) as error:  # a value of a type that the checks do not expect
            problems = [Problem(path.name, "-", extensions.described(error))]
            mine, rates = {}, {}
        for name in [name for name in mine if name in firsts]:
            problems.append(Problem(path.name, name, f"the id is taken by {firsts[name]}"))
            del mine[name]
        for kind in [kind for kind in rates if f"rate {kind}" in firsts]:
            problems.append(Problem(path.name, kind, f"there is one of {firsts[f'rate {kind}']}", "base rate of"))
            del rates[kind]
        together = [_edge(entry.path, entry.table) for entry in (found | mine).values()] if mine else []
        if cycles := _cycles(together):
            problems.append(Problem(path.name, "-", "; ".join(map(str, cycles))))
            mine = {}
        for problem in problems:
            extensions.warn_once(f"{called}: {problem}; it is left out")
        firsts |= dict.fromkeys([*mine, *(f"rate {kind}" for kind in rates)], called)
        found |= mine
        innocent |= rates


def _add(
    path: Path, found: dict[str, Entry], innocent: dict[str, float], tests: bool, others: dict[str, Entry] | None = None
) -> list[Problem]:
    """Adds the entries of a file to ``found`` and ``innocent``, and returns its problems.

    It may disable edges of ``others`` too.
    """
    tables, problems = _tables(path, tests)
    for table in map(with_names_of_today, tables["edge"]):
        name = str(table.get("id", "?"))
        if table.get("disabled"):
            for entries in (found, others or {}):
                entries.pop(name, None)
            continue
        if name in found and path.parent == HERE:
            problems.append(Problem(path.name, name, "the id is used twice"))
        wrong = _problems(path, name, table)
        problems += wrong
        if not wrong:
            found[name] = Entry(path, table)
    for table in tables["base_rate"]:
        wrong = _rate_problems(path, table)
        problems += wrong
        if not wrong:
            innocent[table["kind"]] = float(table["innocent"])
    return problems


def with_names_of_today(table: dict[str, Any]) -> dict[str, Any]:
    """An edge without former names of its scope and requirements. Values of wrong types are left to the checks."""
    scope, requires = table.get("scope"), table.get("requires")
    if isinstance(scope, str) and (today := former_scopes().get(scope)):
        table = table | {"scope": today}
    known = conditions()
    former = {one.formerly: name for name, one in known.items() if one.formerly and one.formerly not in known}
    if isinstance(requires, list) and any(isinstance(r, str) and r in former for r in requires):
        table = table | {"requires": [former.get(r, r) if isinstance(r, str) else r for r in requires]}
    return table


#: The tests of an edge as written in the files here: most of their text, and unused by the service.
_TESTS = re.compile(r"^tests = \[\n(?:  .*\n)*\]\n", re.MULTILINE)


def _tables(path: Path, tests: bool) -> tuple[dict[str, list[dict[str, Any]]], list[Problem]]:
    """A file's tables by name. A misspelt name would silently disable what is below it."""
    found: dict[str, list[dict[str, Any]]] = {"edge": [], "base_rate": []}
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text if tests else _TESTS.sub("", text))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return found, [Problem(str(path), "-", str(error))]
    problems = []
    for name, tables in document.items():
        if name not in found:
            problems.append(
                Problem(path.name, "-", f"unknown table {name!r}; known: {', '.join(f'[[{n}]]' for n in found)}")
            )
        elif not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            problems.append(Problem(path.name, "-", f"write [[{name}]] in two brackets"))
        else:
            found[name] = tables
    return found, problems


def _rate_problems(path: Path, table: dict[str, Any]) -> list[Problem]:
    found = [f"unknown key {key!r}" for key in table if key not in _RATE_KEYS]
    found += [f"missing key {key!r}" for key in ("kind", "innocent") if key not in table]
    if not found:
        found += _unknown_kinds("kind", [table["kind"]])
        share = table["innocent"]
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            found.append(f"innocent {share!r} is no share in (0, 1]")
    return [Problem(path.name, str(table.get("kind", "?")), reason, "base rate of") for reason in found]


def _edge(path: Path, entry: dict[str, Any]) -> Edge:
    return Edge(
        id=entry["id"], cause=tuple(entry["cause"]), effect=tuple(entry["effect"]), scope=entry["scope"],
        window=entry["window"], prior=float(entry["prior"]), requires=tuple(entry.get("requires", ())),
        because=tuple(sorted(windows.names(entry["window"]))), text=entry["text"], reference=entry.get("reference", ""),
        anchor=entry.get("anchor", "start"), file=path.name, density=entry.get("density", "even"), blocks=bool(entry.get("blocks")),
        shared=is_shared(entry), prior_runs=float(entry.get("prior_runs", PRIOR_RUNS)),
    )  # fmt: skip


def is_shared(entry: Mapping[str, Any]) -> bool:
    """Are other runs evidence about this edge? By its scope, unless it sets that itself."""
    scope = scopes().get(entry["scope"])
    return bool(entry.get("shared", scope is not None and scope.shared and not entry.get("blocks")))


def _problems(path: Path, name: str, entry: dict[str, Any]) -> list[Problem]:
    found = [f"unknown key {key!r}" for key in entry if key not in _KEYS]
    found += [
        f"missing key {key!r}"
        for key in ("id", "cause", "effect", "scope", "window", "prior", "text")
        if key not in entry
    ]
    if found:
        return [Problem(path.name, name, reason) for reason in found]
    found += [reason for key in ("cause", "effect") for reason in _unknown_kinds(key, entry[key])]
    if entry["scope"] not in scopes():
        found.append(f"unknown scope {entry['scope']!r}; known: {', '.join(sorted(scopes()))}")
    known = conditions()
    found += [
        f"unknown requirement {r!r}; known: {', '.join(sorted(known))}"
        for r in entry.get("requires", ())
        if r not in known
    ]
    if entry.get("density", "even") not in DENSITIES:
        found.append(f"unknown density {entry['density']!r}; known: {', '.join(DENSITIES)}")
    for key in ("prior", "judged"):
        if not 0 < float(entry.get(key, 1)) <= 1:
            found.append(f"{key} {entry[key]} is not in (0, 1]")
    reaching = [name for name, scope in sorted(scopes().items()) if scope.reaches]
    if entry.get("shared") and entry["scope"] not in reaching:
        found.append(f"scope {entry['scope']!r} reaches one run only; shared: {', '.join(reaching)}")
    if not float(entry.get("prior_runs", PRIOR_RUNS)) > 0:
        found.append(f"prior_runs {entry['prior_runs']} is not above 0")
    try:
        low, high, _ = windows.window(entry["window"], example_values())
        if low > high:
            found.append(f"window {entry['window']} ends before it begins")
        windows.check_units(entry["window"], COUNTS)
    except windows.ExpressionError as error:
        found.append(f"window: {error}")
    return [Problem(path.name, name, reason) for reason in found]


def _unknown_kinds(key: str, named: object) -> list[str]:
    """An edge whose kind no detector concludes would silently never hold."""
    if not isinstance(named, list) or not named or not all(isinstance(kind, str) for kind in named):
        return [f"{key} must be a list of kinds of facts, not {named!r}"]
    known = kinds_of_facts()
    of_event = {kind.cause.event: name for name, kind in reversed(list(known.items())) if kind.cause}
    reasons = []
    for kind in (k for k in named if k not in known):
        if kind in of_event:
            hint = f"{kind!r} is an event, edges join facts: did you mean {of_event[kind]!r}?"
        elif near := get_close_matches(kind, sorted(known), n=1):
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"known: {', '.join(sorted(known))}"
        reasons.append(f"unknown kind of fact {kind!r} in {key}; {hint}")
    return reasons


def _cycles(edges: list[Edge]) -> list[Problem]:
    """Kinds of facts must not cause themselves."""
    graph: dict[str, set[str]] = {}
    for edge in (e for e in edges if not e.blocks):
        for cause in edge.cause:
            graph.setdefault(cause, set()).update(edge.effect)
    done: set[str] = set()

    def walk(kind: str, path: tuple[str, ...]) -> list[Problem]:
        if kind in path:
            return [Problem("edges", " -> ".join([*path[path.index(kind) :], kind]), "the edges form a cycle")]
        if kind in done:
            return []
        found = [p for following in sorted(graph.get(kind, ())) for p in walk(following, (*path, kind))]
        done.add(kind)
        return found

    return [p for kind in sorted(graph) for p in walk(kind, ())]
