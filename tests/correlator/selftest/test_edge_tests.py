"""The tests that edges carry: every built-in edge has meaningful ones, and a broken one is reported precisely."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from correlator.edges import load as edges
from correlator.selftest import run as cases
from correlator.selftest import situations
from correlator.selftest.case import Case
from faultline.cli import app
from parsers.patterns import Catalogue, load

EDGES = edges.load()[0]


@cache
def built_in() -> dict[str, list[Case]]:
    found, wrong = cases.gather(edges.entries(), {edge.id: edge for edge in EDGES})
    assert wrong == []
    return {edge.id: [case for case in found if case.edge.id == edge.id] for edge in EDGES}


@cache
def catalogue() -> Catalogue:
    return load()


def failures(some: list[Case]) -> list[str]:
    return [f"{case.edge.id} {case}: {why}" for case, why in cases.outcomes(some, catalogue()) if why]


def of_lag(case: Case) -> bool:
    return case.lag is not None


def test_the_lags_and_the_first_situation_of_each_built_in_edge_are_as_expected() -> None:
    some: list[Case] = []
    for found in built_in().values():
        some += [*filter(of_lag, found), *[case for case in found if not of_lag(case)][:1]]
    assert len(some) > 2 * len(EDGES) and failures(some) == []


@pytest.mark.long
def test_all_tests_of_the_built_in_edges_pass() -> None:
    count, left, problems = cases.check()
    assert problems == [] and (count, left) == (sum(map(len, built_in().values())), 0)


SITES_PATTERN = """[[pattern]]
id = "site-fan"
event = "site.fan"
literal = ["fan wall"]
regex = 'fan wall (?P<device>\\w+) stopped'
example = "fan wall f3 stopped"
"""
SITES_EDGE = """[[edge]]
id = "SITE-1"
cause = ["node.reboot"]
effect = ["link.outage"]
scope = "same node"
window = "[0s, 10s]"
prior = 0.5
text = "a boot takes links with it"
tests = [
  { lag = "5s", holds = true },
  { lines = ["0s gpu07 kernel: mlx5_core 0000:3b:00.0 ib0: Link down"], holds = false },
]
"""


@pytest.mark.parametrize(("files", "tried"), [((), 0), (("patterns",), None), (("edges",), 1)])
def test_check_runs_every_test_that_a_site_can_change(
    files: tuple[str, ...], tried: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern may take any edge's lines; an edge of its own changes no other edge's tests. ``tried``: tests with lines."""
    (tmp_path / "patterns.toml").write_text(SITES_PATTERN)
    (tmp_path / "edges.toml").write_text(SITES_EDGE)
    config = tmp_path / "faultline.toml"
    config.write_text("".join(f'{name} = ["{tmp_path / name}.toml"]\n' for name in files))
    ran: list[Case] = []

    def keep(some: list[Case], _: Catalogue) -> list[tuple[Case, str]]:
        ran.extend(some)
        return [(case, "") for case in some]

    monkeypatch.setattr(situations, "outcomes_of_lines", keep)
    lines = sum(not of_lag(case) for found in built_in().values() for case in found)
    printed = CliRunner().invoke(app, ["check", "--config", str(config)]).output
    assert len(ran) == (lines if tried is None else tried)
    assert (f"{lines} tests of the release were not run" in printed) == (tried is not None)
    ran.clear()
    printed = CliRunner().invoke(app, ["check", "--config", str(config), "--every-test"]).output
    assert len(ran) == lines + (tried or 0) and "were not run" not in printed


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.id)
def test_every_built_in_edge_is_tested_inside_and_outside_its_window_and_with_two_configurations(
    edge: edges.Edge,
) -> None:
    lags = list(filter(of_lag, built_in()[edge.id]))
    assert {case.holds for case in lags} == {True, False}
    if edge.because:
        assert len({tuple(case.settings.items()) for case in lags if case.settings}) >= 2
    # A bound that is moved far away, or a window that shrinks to nothing, makes one of them fail.
    for window in ("[-1000d, 1000d]", "[999d, 1000d]", "[-1000d, -999d]"):
        assert failures([replace(case, edge=replace(edge, window=window)) for case in lags])
    if edge.because:  # so does one that ignores the configuration
        low, high = (
            f(case.lag for case in lags if case.holds and case.lag is not None) for f in (min, max)
        )  # includes all that holds
        assert failures([replace(case, edge=replace(edge, window=f"[{low}s, {high}s]")) for case in lags])


#: Facts behind these come from telemetry, from many reported steps or from Slurm's list of controllers: more than a few
#: lines.
UNTOLD = {"E03C", "E09", "E14D", "E15", "E16", "E28", "E29", "E31D", "E31L", "E31N", "E31P", "E31Q", "E43", "E64"}
#: No application's Xid requires a reboot or a reset: the other requirement fails first.
COVERED = {(edge, "hardware xid") for edge in ("E18D", "E26R", "E63T")}


@pytest.mark.long
def test_a_requirement_that_somebody_takes_away_is_noticed_on_log_lines() -> None:
    on_lines = {name: [case for case in found if not of_lag(case)] for name, found in built_in().items()}
    assert {name for name, found in on_lines.items() if not found} == UNTOLD
    changed = [
        replace(case, edge=replace(edge, requires=tuple(r for r in edge.requires if r != forgotten)), why="")
        for edge in EDGES for forgotten in edge.requires for case in on_lines[edge.id] if not case.holds
    ]  # fmt: skip
    noticed = {(c.edge.id, c.edge.requires) for c, why in cases.outcomes(changed, catalogue()) if "but does" in why}
    missed = {
        (edge.id, forgotten) for edge in EDGES for forgotten in edge.requires
        if edge.id not in UNTOLD and (edge.id, tuple(r for r in edge.requires if r != forgotten)) not in noticed
    }  # fmt: skip
    assert missed == COVERED


def test_the_service_reads_the_edges_and_none_of_their_tests() -> None:
    read, whole = edges._read((), tests=False)[0], edges.entries()
    assert all(whole[name].table["tests"] for name in whole)
    assert {name: entry.table for name, entry in read.items()} == {
        name: {key: reported for key, reported in entry.table.items() if key != "tests"}
        for name, entry in whole.items()
    }


def site(path: Path, tests: str, **change: Any) -> Path:
    edge = {"id": "SITE1", "cause": ["link.outage"], "effect": ["node.down"], "scope": "same node", "prior": 0.5, "text": "a test",
            "window": "[2*SlurmdTimeout/3, 5*SlurmdTimeout/3 + MessageTimeout]", "requires": ["management link"], **change}  # fmt: skip
    path.write_text("[[edge]]\n" + "".join(f"{k} = {v!r}\n" for k, v in edge.items()) + f"tests = {tests}\n")
    return path


LOST = '"0s gpu01 kernel: mlx5_core 0000:17:00.0 eth0: Link down"'
FABRIC = LOST.replace("eth0", "ib0")
DOWN = '"250s ctl slurmctld: error: Nodes gpu01 not responding, setting DOWN"'


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        # Failures: which test, what was expected, what was found.
        ('[{ settings = { SlurmdTimeout = 300 }, lag = "20s", holds = true }]',
         "test 1 (lag 20s, SlurmdTimeout=300): expected to hold, but does not: 20 s lies outside 200 to 510 s"),
        ('[{ lag = "250s", holds = true }, { settings = { SlurmdTimeout = "24s" }, lag = "36s", holds = false }]',
         "test 2 (lag 36s, SlurmdTimeout=24): expected not to hold, but does: 36 s lies inside 16 to 50 s"),
        (f"[{{ lines = [{FABRIC}, {DOWN}], holds = true }}]",
         "test 1 (2 lines): expected to hold, but does not: link lost (ib0 of gpu01) did not cause node set DOWN (gpu01): ib0 of gpu01 carries"),
        (f"[{{ lines = [{LOST}, {DOWN}], holds = false }}]",
         "expected not to hold, but does: link lost (eth0 of gpu01) caused node set DOWN (gpu01) 250.0 s later, 200 to 510 s allowed"),
        (f"[{{ lines = [{FABRIC}, {DOWN}], holds = false, why = 'was back' }}]", "not because 'was back': link lost (ib0 of gpu01)"),
        (f"[{{ lines = [{LOST.replace('gpu01', 'gpu02')}, {DOWN}], holds = true }}]", "related by the scope 'same node'"),
        (f"[{{ lines = [{LOST}], holds = false }}]", "its lines tell of no node.down, only of link.outage: the edge was not tried"),
        (f"[{{ lines = [{DOWN.replace('250s', '9h')}, {LOST}], holds = true }}]", "came 32400.0 s after link lost (eth0 of gpu01), far from"),
        # Syntax errors: where, and what was probably meant.
        ('[{ lagg = "20s", holds = true }]', "test 1: unknown key 'lagg'; did you mean 'lag'?"),
        ('[{ lag = "20s" }]', "test 1: a test needs holds"),
        ('[{ lag = "20s", holds = "yes" }]', "holds must be true or false, not 'yes'"),
        ("[{ holds = true }]", "give it either a lag or lines"),
        (f'[{{ lag = "20s", lines = [{LOST}], holds = true }}]', "give it either a lag or lines"),
        ('[{ lag = "20sec", holds = true }]', "'20sec' is no time; write a number and one of us, ms, s, min, h, d"),
        ('[{ lag = true, holds = true }]', "True is no time"),
        ('[{ settings = { SlurmTimeout = 300 }, lag = "20s", holds = true }]', "unknown setting 'SlurmTimeout'; did you mean 'SlurmdTimeout'?"),
        ('[{ settings = { SlurmdTimeout = "5 minutes" }, lag = "20s", holds = true }]', "SlurmdTimeout: '5 minutes' is no time"),
        ('[{ settings = { KillWait = 30 }, lag = "20s", holds = true }]', "does not depend on KillWait; it names MessageTimeout, SlurmdTimeout"),
        ('[{ lag = "20s", why = "x", holds = false }]', "why: of use beside lines only"),
        (f"[{{ lines = [{LOST}, {DOWN}], why = 'x', holds = true }}]", "it belongs to holds = false"),
        ('[{ lines = ["0s something happened"], holds = true }]', "write it as 'OFFSET HOST SOURCE: TEXT'"),
        ('[{ lines = ["soon gpu01 kernel: x"], holds = true }]', "'soon' is no time"),
        ('[{ lines = ["0s gpu01 stderr: x"], holds = true }]', "before stderr stands the number of the job"),
        (f"[{{ lines = [{LOST}], jobs = [{{ id = 7 }}], holds = true }}]", "a job needs nodes, start, end, state"),
        (f"[{{ lines = [{LOST}], jobs = [{{ id = '7', nodes = 'n', start = '0s', end = '1s', state = 'FAILED' }}], holds = true }}]", "id must be a whole number"),
        (f"[{{ lines = [{LOST}], settings = {{ PrintedTimeout = 600 }}, holds = true }}]", "PrintedTimeout is what the lines print"),
        (f"[{{ lines = [{LOST}], settings = {{ NCCL_IB_TIMEOUT = '20s' }}, holds = true }}]", "it counts something and has no unit"),
        ('"250s"', "tests must be a list of tables, not '250s'"),
        ('["250s"]', "test 1: a test must be a table, not '250s'"),
    ],
)  # fmt: skip
def test_a_test_that_fails_or_cannot_be_read_is_reported_with_what_was_expected_and_found(
    tests: str, says: str, tmp_path: Path
) -> None:
    path = site(tmp_path / "site.toml", tests)
    read, faults = edges.rules([path])
    assert faults == [] and "SITE1" in {e.id for e in read.edges}, "the service reads no tests"
    entry = edges.entries([path])["SITE1"]
    found, wrong = cases.gather({"SITE1": entry}, {e.id: e for e in read.edges})
    reported = [str(problem) for _, _, problem in wrong] + failures(found)
    assert len(reported) == 1 and says in reported[0] and "SITE1" in reported[0]


def test_what_stands_is_tested_with_the_sites_own_patterns(tmp_path: Path) -> None:
    """A site's edge replaces one and its tests; a line may be of an event that only the site's patterns know."""
    pattern = tmp_path / "patterns.toml"
    pattern.write_text(
        '[[pattern]]\nid = "site-nic"\nevent = "nic.link_down"\nliteral = "cable out"\nregex = "(?P<port>\\\\w+): cable out"\nexample = "eth0: cable out"\n'
    )
    own = load([pattern])
    assert [str(p) for p in own.check()] == []
    path = site(
        tmp_path / "site.toml", f"[{{ lines = ['0s gpu01 kernel: eth0: cable out', {DOWN}], holds = true }}]", id="E03"
    )
    by_id = {e.id: e for e in edges.load([path])[0]}
    found, _ = cases.gather({"E03": edges.entries([path])["E03"]}, by_id)
    assert [case.file for case in found] == ["site.toml"], "the tests of the edge that it replaces are gone with it"

    def reported(known: Catalogue) -> list[str]:
        return [why for _, why in cases.outcomes(found, known) if why]

    assert reported(own) == [] and "no link.outage" in reported(catalogue())[0]


def test_the_tests_that_the_page_shows_hold_for_the_edge_that_it_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "correlation.md").read_text(encoding="utf-8")
    reported = [re.sub("^    ", "", block, flags=re.M) for block in re.findall(r"(?:^(?:    .*)?\n)+", page, re.M)]
    (edge,), (tests,), (rate,) = (
        [b for b in reported if begin in b] for begin in ("SITE-CDU1", "tests = [", "[[base_rate]]")
    )
    path = tmp_path / "site.toml"
    path.write_text(edge.split('[[edge]]\nid = "E24"')[0].strip() + "\n" + tests + rate, encoding="utf-8")
    rules, problems = edges.rules([path])
    found, wrong = cases.gather({"SITE-CDU1": edges.entries([path])["SITE-CDU1"]}, {e.id: e for e in rules.edges})
    assert problems == wrong == [] and rules.innocent == {"gpu.xid": 0.41}
    assert len(found) == 4 and failures(found) == []


def test_check_runs_the_tests_of_edge_files_and_fails_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no store, no configuration
    monkeypatch.setattr(situations, "outcomes_of_lines", lambda *_: iter(()))  # they are run above
    right = site(tmp_path / "right.toml", '[{ lag = "250s", holds = true }]')
    wrong = site(tmp_path / "wrong.toml", '[{ lag = "250s", holds = false }]', id="SITE2")
    run = CliRunner().invoke(
        app, ["check", "--every-test", "--edges", str(right), "--edges", str(wrong)], standalone_mode=False
    )
    assert run.exception is None and run.return_value == 1
    count = sum(map(len, built_in().values()))
    assert f"{len(EDGES) + 2} causal edges, 0 wrong; {count + 2} tests, 1 failed" in run.stdout
    (reported,) = [line for line in run.stdout.splitlines() if line.startswith("WRONG")]
    assert "wrong.toml: edge SITE2: test 1 (lag 250s): expected not to hold, but does: 250 s lies inside" in reported
    missing = CliRunner().invoke(app, ["check", "--edges", str(tmp_path / "none.toml")], standalone_mode=False)
    assert "none.toml: no such edge file" in str(missing.exception)


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ("[0s, SlurmdTimeout*MessageTimeout]", "(SlurmdTimeout * MessageTimeout) is no time"),
        ("[0s, SlurmdTimeout/MessageTimeout]", "(SlurmdTimeout / MessageTimeout) is no time"),
        ("[0s, NCCL_IB_TIMEOUT]", "NCCL_IB_TIMEOUT is no time"),
        ("[0s, NCCL_IB_TIMEOUT + 10s]", "(NCCL_IB_TIMEOUT + 10s): one of the two is a time"),
        ("[0s, max(2*NCCL_IB_RETRY_CNT, KillWait)]", "one of the two is a time"),
        ("[0s, 1s * 2^KillWait]", "(2 ^ KillWait): times have no powers"),
        ("[0s, 4.096us * 2^NCCL_IB_TIMEOUT * NCCL_IB_RETRY_CNT]", None),
        ("[0, 2*60 + SlurmdTimeout/3 + 10]", None),
    ],
)
def test_a_bound_of_a_window_must_be_a_time(window: str, says: str | None, tmp_path: Path) -> None:
    problems = [str(p) for p in edges.load([site(tmp_path / "site.toml", "[]", window=window)])[1]]
    assert (problems == []) if says is None else (len(problems) == 1 and says in problems[0])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[egde]]\nid = 'X'\n", "site.toml: edge -: unknown table 'egde'; known: [[edge]], [[base_rate]]"),
        ("[edge]\nid = 'X'\n", "site.toml: edge -: write [[edge]] in two brackets"),
        ("[[base_rate]]\nkind = 'gpu.xidd'\ninnocent = 0.5\n", "base rate of gpu.xidd: unknown kind of fact 'gpu.xidd' in kind; did you mean 'gpu.xid'?"),
        ("[[base_rate]]\nkind = 'gpu.xid'\n", "base rate of gpu.xid: missing key 'innocent'"),
        ("[[base_rate]]\nkind = 'gpu.xid'\ninocent = 1\ninnocent = 1\n", "unknown key 'inocent'"),
        ("[[base_rate]]\nkind = 'gpu.xid'\ninnocent = 0\n", "innocent 0 is no share in (0, 1]"),
        ("[[base_rate]]\nkind = 'gpu.xid'\ninnocent = '50%'\n", "innocent '50%' is no share"),
    ],
)  # fmt: skip
def test_what_no_file_may_say_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    rules, problems = edges.rules([path])
    assert len(problems) == 1 and says in str(problems[0]) and rules.innocent == {}
