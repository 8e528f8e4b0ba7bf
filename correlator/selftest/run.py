"""The tests that edges carry as data, run only by ``faultline check``.

A test states for one delay, or for a few log lines, whether its edge holds there:

    tests = [
      { settings = { SlurmdTimeout = 300 }, lag = "250s", holds = true },
      { lines = ["0s gpu01 kernel: ...", "5s 7 stderr: ..."], jobs = [{ ... }], holds = false, why = "already back" },
    ]

A delay is compared with the window, exactly. Lines are processed like all lines (``situations.py``). Every setting that
a test does not name has its default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from correlator.edges.load import COUNTS, HERE, Entry, Problem, entries, rules
from correlator.edges.window_values import derived_values
from correlator.facts.jobs.kinds import COMM_ERROR
from correlator.model.attributes import TIMEOUT
from correlator.model.attrs import no_attrs, with_attr
from correlator.model.nouns import Edge, Fact
from correlator.selftest.case import Case, Job, Line
from correlator.site import windows
from correlator.site.site import JOB_SETTINGS, SETTINGS, Site
from correlator.site.windows import ExpressionError, Value

if TYPE_CHECKING:
    from parsers.patterns import Catalogue

#: The timeout that the program itself logged is in windows like a setting.
LOGGED_TIMEOUT = "PrintedTimeout"

_KNOWN = {*SETTINGS, *JOB_SETTINGS, LOGGED_TIMEOUT}
_KEYS = ("settings", "lag", "lines", "jobs", "links", "holds", "why")
_JOB_KEYS = ("id", "nodes", "start", "end", "state", "exit_code", "signal", "user", "cancelled_by", "env")
_LINK_KEYS = ("host", "device", "switch", "port", "plane")

_LINE = re.compile(r"(?P<at>\S+) (?P<place>\S+) (?P<source>[A-Za-z][\w.-]*)(?:\[(?P<pid>\d+)\])?: (?P<text>.*\S.*)")


def check(
    extra: Sequence[Path] = (), catalogue: Catalogue | None = None, *, as_released: bool = False
) -> tuple[int, int, list[Problem]]:
    """Runs the tests of all edges in force. Returns how many ran, how many did not, and what is invalid or fails.

    ``catalogue``: the site's event patterns, for its lines. ``as_released``: patterns and facts are those of the release; then
    the tests with lines of its own edges are not run. Each of them tries one edge alone, so a site's edges change none of them.
    """
    edges = {edge.id: edge for edge in rules(extra)[0].edges}
    tables = entries(extra)
    every, wrong = gather(tables, edges)
    released = {name for name, entry in tables.items() if as_released and entry.path.parent == HERE}
    cases = [case for case in every if case.lag is not None or case.edge.id not in released]
    failed = [
        (c.edge.id, c.number, Problem(c.file, c.edge.id, f"{c}: {why}")) for c, why in outcomes(cases, catalogue) if why
    ]
    return (
        len(cases),
        len(every) - len(cases),
        [problem for _, _, problem in sorted([*wrong, *failed], key=lambda entry: entry[:2])],
    )


def outcomes(cases: Iterable[Case], catalogue: Catalogue | None = None) -> Iterator[tuple[Case, str]]:
    """The results of tests: what was expected, what was found and why; empty if a test passed.

    Tests with lines are run together, because a store is made for them.
    """
    with_lines = []
    for case in cases:
        if case.lag is None:
            with_lines.append(case)
        else:
            yield case, _of_lag(case)
    if with_lines:
        from correlator.selftest.situations import outcomes_of_lines

        yield from outcomes_of_lines(with_lines, catalogue)


def _of_lag(case: Case) -> str:
    assert case.lag is not None
    low, high, _ = windows.window(case.edge.window, values_of(case.settings))
    inside = low <= case.lag <= high
    if inside == case.holds:
        return ""
    where = (
        f"{case.lag:g} s lies {'inside' if inside else 'outside'} {low:g} to {high:g} s, the window {case.edge.window}"
    )
    return f"expected {'to hold, but does not' if case.holds else 'not to hold, but does'}: {where}"


def values_of(settings: Mapping[str, float]) -> dict[str, Value]:
    """All values that windows may name: from the test, else the default."""
    defaults = {name: settings.get(name, default) for name, (default, _) in {**SETTINGS, **JOB_SETTINGS}.items()}
    site = Site(None, {name: Value.of(defaults[name]) for name in SETTINGS})
    values = {**site.settings, **{name: Value.of(defaults[name]) for name in JOB_SETTINGS}}
    return derived_values(
        values,
        Fact(COMM_ERROR.name, 0.0, None, 0.0, attrs=with_attr(no_attrs(), TIMEOUT, settings.get(LOGGED_TIMEOUT))),
    )


# -- reading -----------------------------------------------------------------------------------------------------------
def gather(tables: Mapping[str, Entry], edges: Mapping[str, Edge]) -> tuple[list[Case], list[tuple[str, int, Problem]]]:
    """The tests of edges, and errors in their syntax, by edge and number of the test."""
    cases: list[Case] = []
    wrong: list[tuple[str, int, Problem]] = []
    for name, entry in sorted(tables.items()):
        listed = entry.table.get("tests", [])
        if not isinstance(listed, list):
            listed, reason = [], f"tests must be a list of tables, not {listed!r}"
            wrong.append((name, 0, Problem(entry.path.name, name, reason)))
        for number, table in enumerate(listed, 1):
            try:
                cases.append(read(entry.path.name, edges[name], number, table))
            except ValueError as error:  # an ExpressionError is one
                wrong.append((name, number, Problem(entry.path.name, name, f"test {number}: {error}")))
    return cases, wrong


def read(file: str, edge: Edge, number: int, table: object) -> Case:
    """One test from an edge's file. Raises ``ValueError`` that says what is wrong."""
    keys = _keys("a test", table, _KEYS, ("holds",))
    if ("lag" in keys) == ("lines" in keys):
        raise ValueError("give it either a lag or lines")
    if not isinstance(keys["holds"], bool):
        raise ValueError(f"holds must be true or false, not {keys['holds']!r}")
    settings = _settings(keys.get("settings", {}))
    if "lag" in keys:
        _only_of_lines(edge, keys, settings)
        return Case(file, edge, number, settings, keys["holds"], lag=windows.duration(keys["lag"]))
    if "why" in keys and keys["holds"]:
        raise ValueError("why says what speaks against the edge; it belongs to holds = false")
    if LOGGED_TIMEOUT in settings:
        raise ValueError(f"{LOGGED_TIMEOUT} is what the lines print; leave it out of settings")
    return Case(
        file, edge, number, settings, keys["holds"], None, tuple(map(_line, _list("lines", keys["lines"]))),
        tuple(map(_job, _list("jobs", keys.get("jobs", [])))), tuple(map(_link, _list("links", keys.get("links", [])))),
        str(keys.get("why", "")),
    )  # fmt: skip


def _only_of_lines(edge: Edge, keys: Mapping[str, Any], settings: Mapping[str, float]) -> None:
    idle = [key for key in ("jobs", "links", "why") if key in keys]
    if idle:
        raise ValueError(f"{', '.join(idle)}: of use beside lines only, a lag is held against the window")
    named = set(edge.because)
    if "IbRetryBudget" in named:
        named |= COUNTS
    for name in settings:
        if name not in named:
            raise ValueError(
                f"the window does not depend on {name}; it names {', '.join(sorted(named)) or 'no setting'}"
            )


def _keys(what: str, table: object, known: Sequence[str], needed: Sequence[str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ValueError(f"{what} must be a table, not {table!r}")
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            raise ValueError(f"unknown key {key!r}; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"))  # fmt: skip
    missing = [key for key in needed if key not in table]
    if missing:
        raise ValueError(f"{what} needs {', '.join(missing)}")
    return table


def _list(name: str, value: object) -> list[Any]:
    if not isinstance(value, list) or (name == "lines" and not value):
        raise ValueError(f"{name} must be a list with something in it, not {value!r}")
    return value


def _settings(table: object) -> dict[str, float]:
    if not isinstance(table, dict):
        raise ValueError(f"settings must be a table, not {table!r}")
    found = {}
    for name, value in table.items():
        if name not in _KNOWN:
            near = get_close_matches(name, sorted(_KNOWN), n=1)
            raise ValueError(f"unknown setting {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(_KNOWN))}"))  # fmt: skip
        if name in COUNTS and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{name} {value!r}: it counts something and has no unit; write a number")
        try:
            found[name] = windows.duration(value)
        except ExpressionError as error:
            raise ValueError(f"{name}: {error}") from error
    return found


def _line(value: object) -> Line:
    match = _LINE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"line {value!r}: write it as 'OFFSET HOST SOURCE: TEXT', or 'OFFSET JOB stderr: TEXT'")
    place, source = match["place"], match["source"]
    if source in ("stdout", "stderr") and not place.isdigit():
        raise ValueError(f"line {value!r}: before {source} stands the number of the job")
    return Line(windows.duration(match["at"]), place, source, match["text"], match["pid"])


def _job(table: object) -> Job:
    keys = _keys("a job", table, _JOB_KEYS, ("id", "nodes", "start", "end", "state"))
    env = keys.get("env", {})
    if not isinstance(env, dict):
        raise ValueError(f"job {keys['id']}: env must be a table, not {env!r}")
    for name in ("id", "exit_code", "signal"):
        if name in keys and (isinstance(keys[name], bool) or not isinstance(keys[name], int)):
            raise ValueError(f"job {keys['id']}: {name} must be a whole number, not {keys[name]!r}")
    return Job(
        keys["id"], str(keys["nodes"]), windows.duration(keys["start"]), windows.duration(keys["end"]),
        str(keys["state"]), keys.get("exit_code"), keys.get("signal"), keys.get("user"), {n: str(v) for n, v in env.items()},
        keys.get("cancelled_by"),
    )  # fmt: skip


def _link(table: object) -> dict[str, str]:
    return {k: str(v) for k, v in _keys("a link", table, _LINK_KEYS, ("host", "device", "switch")).items()}
