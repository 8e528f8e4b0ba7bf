"""Causal edges as data: ``*.toml`` here, and a site's own files. See docs/correlation.md for the keys."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from correlator import expressions
from correlator.model import PRIOR_RUNS, Edge

HERE = Path(__file__).parent

_KEYS = {
    "id",
    "cause",
    "effect",
    "scope",
    "window",
    "prior",
    "requires",
    "text",
    "reference",
    "anchor",
    "disabled",
    "density",
    "blocks",
    "shared",
    "prior_runs",
}


#: How delays spread over the window: evenly, or most of them soon after the cause.
DENSITIES = ("even", "early")


@dataclass(frozen=True)
class Problem:
    """What is wrong with an entry, and where."""

    file: str
    entry: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: edge {self.entry}: {self.reason}"


def load(extra: Sequence[Path] = ()) -> tuple[list[Edge], list[Problem]]:
    """Built-in edges and a site's files. A later file replaces an edge of the same id, or disables it."""
    edges: dict[str, Edge] = {}
    problems: list[Problem] = []
    for path in [*sorted(HERE.glob("*.toml")), *extra]:
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8")).get("edge", [])
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            problems.append(Problem(str(path), "-", str(error)))
            continue
        for entry in entries:
            name = str(entry.get("id", "?"))
            if entry.get("disabled"):
                edges.pop(name, None)
                continue
            if name in edges and path.parent == HERE:
                problems.append(Problem(path.name, name, "the id is used twice"))
            found = _problems(path, name, entry)
            problems += found
            if not found:
                edges[name] = _edge(path, entry)
    problems += _cycles(list(edges.values()))
    return [edges[name] for name in sorted(edges)], problems


def _edge(path: Path, entry: dict[str, Any]) -> Edge:
    return Edge(
        id=entry["id"], cause=tuple(entry["cause"]), effect=tuple(entry["effect"]), scope=entry["scope"],
        window=entry["window"], prior=float(entry["prior"]), requires=tuple(entry.get("requires", ())),
        because=tuple(sorted(expressions.names(entry["window"]))), text=entry["text"], reference=entry.get("reference", ""),
        anchor=entry.get("anchor", "start"), file=path.name, density=entry.get("density", "even"), blocks=bool(entry.get("blocks")),
        shared=is_shared(entry), prior_runs=float(entry.get("prior_runs", PRIOR_RUNS)),
    )  # fmt: skip


def is_shared(entry: Mapping[str, Any]) -> bool:
    """Does what became of other runs tell of this edge? Unless it says so itself, by its scope."""
    from correlator.scopes import ONE_NODE, REACH

    return bool(entry.get("shared", entry["scope"] in REACH.keys() - {ONE_NODE} and not entry.get("blocks")))


def _problems(path: Path, name: str, entry: dict[str, Any]) -> list[Problem]:
    from correlator import conditions, scopes

    found = [f"unknown key {key!r}" for key in entry if key not in _KEYS]
    found += [
        f"missing key {key!r}"
        for key in ("id", "cause", "effect", "scope", "window", "prior", "text")
        if key not in entry
    ]
    if found:
        return [Problem(path.name, name, reason) for reason in found]
    found += [reason for key in ("cause", "effect") for reason in _unknown_kinds(key, entry[key])]
    if entry["scope"] not in scopes.SCOPES:
        found.append(f"unknown scope {entry['scope']!r}; known: {', '.join(sorted(scopes.SCOPES))}")
    found += [f"unknown requirement {r!r}" for r in entry.get("requires", ()) if r not in conditions.CONDITIONS]
    if entry.get("density", "even") not in DENSITIES:
        found.append(f"unknown density {entry['density']!r}; known: {', '.join(DENSITIES)}")
    if not 0 < float(entry["prior"]) <= 1:
        found.append(f"prior {entry['prior']} is not in (0, 1]")
    if entry.get("shared") and entry["scope"] not in scopes.REACH:
        found.append(f"scope {entry['scope']!r} reaches one run only; shared: {', '.join(sorted(scopes.REACH))}")
    if not float(entry.get("prior_runs", PRIOR_RUNS)) > 0:
        found.append(f"prior_runs {entry['prior_runs']} is not above 0")
    try:
        low, high, _ = expressions.window(entry["window"], conditions.example_values())
        if low > high:
            found.append(f"window {entry['window']} ends before it begins")
    except expressions.ExpressionError as error:
        found.append(f"window: {error}")
    return [Problem(path.name, name, reason) for reason in found]


def _unknown_kinds(key: str, named: object) -> list[str]:
    """An edge that names a kind that no detector concludes would never hold, and nobody would notice."""
    from correlator import causes, facts

    if not isinstance(named, list) or not named or not all(isinstance(kind, str) for kind in named):
        return [f"{key} must be a list of kinds of facts, not {named!r}"]
    known = facts.kinds()
    of_event = {cause.event: kind for kind, cause in reversed(causes.CAUSES.items())}
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
