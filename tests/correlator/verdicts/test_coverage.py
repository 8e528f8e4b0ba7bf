"""What was not collected makes a verdict less sure, what was there and saw nothing denies it, and neither blames anybody."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks.simulators.coverage import OPTIONAL, SWITCHES, Seen, cases
from correlator.edges import load as edge_files
from correlator.engine import correlate, result
from correlator.evidence.calibration import (
    LEAST_LOSS,
    LEVELS,
    NAMED,
    UNLOGGED,
    calibrated,
    covered,
    factors,
    fit_left,
    lines,
)
from correlator.evidence.weigh import Weigher
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.gather import silences
from correlator.gather.collected import AROUND_S, Collected, asked, joined, spans_in
from correlator.live.ticker import Ticker
from correlator.model.kinds import misplaced
from correlator.selftest import situations
from correlator.site.site import SETTINGS
from correlator.verdicts.judge import judge
from correlator.verdicts.verdict import Verdict
from store import open_store
from tests.correlator.field import ALIVE, KILLED, LEAF, SET_DOWN, Situation, _case, ended
from tests.correlator.field import down as down_lines
from tests.correlator.making import T0, event, world
from tests.correlator.rows import answer, rows_of
from tests.correlator.situations import LINKS, down, judged, lost_peers, one, said, xid
from tests.line_parser import line_parser

ROOT = Path(__file__).resolve().parents[3]
CAPTURES = ROOT / "tests" / "captures"


def collected(*places: tuple[str, str], telemetry: bool = True) -> Collected:
    return Collected(dict.fromkeys(places, (T0 - 86_400.0, T0 + 86_400.0)), telemetry)


ALL = [("kernel", "n1"), ("kernel", "n2"), ("switch", "leaf-p1"), ("slurmctld", "ctl")]


# -- what was not collected ----------------------------------------------------------------------------------------------
#: Slurm's configuration, seen whole.
SETTINGS_SEEN = {name: default for name, (default, _) in SETTINGS.items()}


def flapped(*places: tuple[str, str], settings: Mapping[str, object] = SETTINGS_SEEN) -> Verdict:
    """Job 1 loses its peers while ib0 of n1 is down."""
    told = [
        *down(0, "n1", "ib0", 200), *lost_peers(60),
        event("slurm.job_failed", 62, "ctl", "JobId=1 failed", source="slurmctld", job_id=1),
    ]  # fmt: skip
    where = world(told, [one(62)], links=LINKS, settings=settings, collected=collected(*places), asked=True)
    return judged(where)["1"]


def test_each_witness_that_was_not_collected_costs_confidence_and_is_named() -> None:
    found = [flapped(*ALL), flapped(*(p for p in ALL if p[0] != "switch"))]
    assert [said(v) for v in found] == [("infra.network", "link.outage", "n1")] * 2
    assert [[m.words for m in v.missing] for v in found] == [[], ["the log of switch leaf-p1"]]
    assert found[1].confidence == pytest.approx(found[0].confidence * factors()[0])
    unset = flapped(*ALL, settings={"": 0})
    assert [m.words for m in unset.missing] == ["Slurm's configuration"] and unset.confidence < found[0].confidence


def test_a_source_is_no_witness_weeks_after_its_last_line() -> None:
    some = collected(("kernel", "n1"))
    assert some.has(("kernel",), "N1.cluster", T0) and not some.has(("kernel",), "n2", T0)
    assert not some.has(("kernel",), "n1", T0 + 86_400.0 + AROUND_S + 1)
    later = {("kernel", "n1"): (T0 + 30 * 86_400.0, T0 + 30 * 86_400.0)}
    assert some.new_in(later) == {"kernel n1", "kernel *"}  # it may have been collected all the time
    assert some.but(later).has(("kernel",), "n1", T0 + 15 * 86_400.0)
    assert not some.new_in(dict.fromkeys(later, (T0, T0))), "what goes on is nothing new"


def test_a_run_whose_nodes_have_no_logs_is_not_surer() -> None:
    for family in ("app", "unknown"):
        for raw in (0.3, 0.5, 0.63, 0.68, 0.9):
            assert calibrated(f"{family}.x", raw, unlogged=True) <= calibrated(f"{family}.x", raw)
    assert any(name.endswith(UNLOGGED) for name in lines())


def test_factors_fall_and_never_make_a_cause_nobodys() -> None:
    said_to_be = [covered(0.99, missing) for missing in range(LEVELS + 4)]
    assert said_to_be == sorted(said_to_be, reverse=True) and len(set(said_to_be)) == len(said_to_be)
    assert said_to_be[-1] > 0.85, "a small site with a single log still gets a verdict"
    assert all(covered(value, 9) >= min(value, NAMED) for value in (0.3, 0.5, 0.51, 0.6))


def test_factors_are_the_shares_that_were_right() -> None:
    def some(missing: int, one_wrong_in: int) -> list[tuple[int, bool]]:
        return [(missing, n % one_wrong_in > 0) for n in range(4000)]

    one, two, more = fit_left([*some(0, 4001), *some(1, 20), *some(2, 10)])
    assert (one, two) == (pytest.approx(0.95, abs=0.002), pytest.approx(0.9, abs=0.002)) and more < two
    assert fit_left([*some(0, 10), *some(1, 20)])[0] == 1.0 - LEAST_LOSS, "none makes it surer"
    rising = fit_left([*some(0, 4001), *some(1, 10), *some(2, 4001)])
    assert rising == sorted(rising, reverse=True) and rising[0] == pytest.approx(0.95, abs=0.01)


def test_a_kind_names_sources_that_there_are() -> None:
    assert not misplaced(LINK_OUTAGE)
    assert any("kernl" in wrong for wrong in misplaced(replace(LINK_OUTAGE, witnesses=("kernl",))))  # type: ignore[arg-type]


# -- what was there and saw nothing --------------------------------------------------------------------------------------
def seen(*lines: Any) -> Seen:
    return Seen(lines, ())


def port_down(at: float, host: str = "n1") -> Any:
    port = f"Ethernet{host[1:]}"
    return event("switch.port_down", at, "leaf-p1", f"{port} down", source="switch", port=port)


def written_by(lines: list[Any], known_by: str) -> list[Any]:
    return [replace(line, known_by=known_by) if line.source == "kernel" else line for line in lines]


def claimed(known_by: str, answers: Any) -> Verdict:
    told = written_by([*down(0, "n1", "ib0", 200), *lost_peers(60)], known_by)
    # Root's job: users' lines beside jobs of users count for nothing, whatever a switch says.
    run = one(62, user="root")
    return judged(world(told, [run], links=LINKS, collected=collected(*ALL), silences=answers, asked=True))["1"]


def test_a_switch_that_saw_nothing_denies_what_a_user_can_write() -> None:
    found = claimed("facility", seen(port_down(-500, "n2")))
    assert found.category == "unknown" and found.root is None
    assert any("leaf-p1 logs the loss of its ports" in r.reason for r in found.rejections)
    assert said(claimed("facility", seen(port_down(1)))) == ("infra.network", "link.outage", "n1")


def test_the_kernels_ring_is_believed_less_surely_against_the_switch() -> None:
    denied, seen_by_both = claimed("", seen(port_down(-500, "n2"))), claimed("", seen(port_down(1)))
    assert said(denied) == said(seen_by_both) == ("infra.network", "link.outage", "n1")
    assert denied.against and not seen_by_both.against and denied.confidence < seen_by_both.confidence


@pytest.mark.parametrize(
    ("rows", "habit", "own", "denies"),
    [
        ([-60, 90], True, True, True),
        ([-60, 90], False, True, False),  # it never logs its ports
        ([-60, 90], True, False, False),  # packets in its name
        ([-60], True, True, False),  # its log ends before
        ([90], True, True, False),
        ([-901, 90], True, True, False),
        ([-60, 601], True, True, False),
    ],
)
def test_a_switch_denies_only_if_its_log_was_there(rows: list[float], habit: bool, own: bool, denies: bool) -> None:
    class Answers(Seen):
        def around(self, switch: str, since: float, until: float) -> list[Mapping[str, Any]]:
            found = [{"t": T0 + at, "event": None, "port": None, "message": None, "is_own": own} for at in rows]
            return [row for row in found if since <= row["t"] <= until]

        def logs_ports(self, switch: str, since: float, until: float) -> bool:
            return habit

    assert silences.denies_link(Answers((), ()), silences.Link("n1", "ib0", "leaf-p1", "Ethernet1"), T0) is denies


@pytest.mark.parametrize(("port", "text"), [("Et1", ""), ("swp1", ""), ("swp9", "swp9 (n1 ib0)"), (None, "fan failed")])
def test_a_line_that_may_be_about_the_port_is_no_silence(port: str | None, text: str) -> None:
    entities = {"port": port} if port else {}
    line = event("switch.port_down", 5, "leaf-p1", text, source="switch", **entities)
    assert not silences.denies_link(seen(line), silences.Link("n1", "ib0", "leaf-p1", "Ethernet1"), T0)


def test_a_gauge_that_did_not_change_denies_an_xid() -> None:
    written = written_by(xid(0, 79), "facility")

    def told(answers: Any) -> Verdict:
        run = one(8, user="root")
        return judged(world(written, [run], collected=collected(*ALL), silences=answers, asked=True))["1"]

    assert said(told(None)) == ("infra.gpu", "gpu.xid", "n1")
    assert told(seen()).root is None and any("telemetry" in r.reason for r in told(seen()).rejections)


# -- taking sources away, one after the other ----------------------------------------------------------------------------
def place_of(verdict: Verdict) -> tuple[str, str | None, str | None, str | None]:
    root = verdict.root
    return (verdict.category, root and root.kind, root and root.host, root and root.device)


@pytest.mark.parametrize("first", [pytest.param(0, id="few"), *(pytest.param(n, marks=pytest.mark.long) for n in range(60, 1000, 200))])  # fmt: skip
def test_fewer_sources_never_make_a_situation_surer_nor_blame_anybody(first: int) -> None:
    edges, _ = edge_files.load()
    fell = 0
    for seed in range(first, first + (60 if first == 0 else 200)):
        known: dict[Any, float] = {}
        for case in cases(seed):
            if any(e.known_by for e in case.world.events):
                break  # of a liar: without a witness, lies are believed
            verdict = next(v for v in judge(case.world, Weigher(case.world, edges)) if v.run.key == "1")
            place = place_of(verdict)
            if place in known and verdict.root is not None:
                assert verdict.confidence <= known[place], (seed, case.away)
                fell += verdict.confidence < known[place]
            known.setdefault(place, verdict.confidence)
            known[place] = verdict.confidence
            blamed, (category, host) = verdict.category.startswith("infra."), case.situation.truth
            if len(case.away) == 0:
                wrong = blamed and not category.startswith("infra.")
            elif blamed and not wrong:
                assert category.startswith("infra."), (seed, case.away, place)
                assert host is None or verdict.root is None or verdict.root.host in (host, None, *SWITCHES), (
                    seed,
                    case.away,
                )
    assert fell


#: The files of each source of a capture, in the order in which they are taken away.
FILES = {
    "switch": r"leaf\d+/", "configuration": r"slurm\.conf|config\.txt|topology\.conf", "slurmd": r"slurmd\.log",
    "kernel": r"hosts/(?!leaf|ctl)[^/]*/(?!slurmd)|central\.log",
}  # fmt: skip


def lacking(folder: Path, away: list[str]) -> dict[str, pl.DataFrame]:
    rows = dict(rows_of(folder))
    if away:
        gone = re.compile("|".join(FILES[name] for name in away))
        kept = pl.Series([not gone.search(file or "") for file in rows["logs"]["file"]])
        rows["logs"] = rows["logs"].filter(kept)
    if "configuration" in away:
        rows["settings"] = rows["settings"].clear()
    return rows


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("fabric_flap_long", 1),
        *(pytest.param(n, len(FILES), marks=pytest.mark.long) for n in ("fabric_flap_long", "mgmt_flap_long", "mgmt_flap_requeue", "switch_down")),
    ],
)  # fmt: skip
def test_a_capture_with_fewer_sources_is_less_sure_and_blames_nobody_else(name: str, steps: int) -> None:
    told: list[dict[str, Any]] = []
    for count in range(steps + 1):
        with open_store(None) as store:
            store.add(lacking(CAPTURES / name, list(FILES)[:count]))
            correlate(store)
            told.append(result(store)["verdicts"])
    whole = told[0]
    assert whole, "the capture has a verdict"
    for before, after in itertools.pairwise(told):
        for key, verdict in after.items():
            root, was = verdict["root_cause"], before.get(key)
            if root is None or was is None:
                continue
            assert whole[key]["root_cause"] is not None, f"{key}: blamed only without sources: {verdict['summary']}"
            if root == was["root_cause"]:
                assert verdict["confidence"] <= was["confidence"], f"{key}: {verdict['doubts']}"
    first = next(v for v in whole.values() if v["root_cause"])
    same = [v for some in told for v in some.values() if v["root_cause"] == first["root_cause"]]
    assert same[-1]["confidence"] < first["confidence"]
    assert any("Would be surer with" in doubt for doubt in same[-1]["doubts"])


# -- the store and ticks -------------------------------------------------------------------------------------------------
def test_spans_of_lines_are_those_that_the_store_gives() -> None:
    logs = rows_of(CAPTURES / "fabric_flap_long")["logs"]
    cluster = logs["cluster"].unique().to_list()
    with open_store(None) as store:
        store.add({"logs": logs})
        whole = joined([asked(store, name) for name in cluster])
    parts = joined([spans_in(logs[:200]), spans_in(logs[200:])])
    assert parts == whole and len(parts) > 6


def test_a_source_that_begins_later_changes_no_verdict_before_it_nor_asks_for_a_full_pass() -> None:
    """The switch writes its first line days after the verdict: its log of that time was not there."""
    told = (*ALIVE, *down_lines("-250s", "gpu01", "eth0", "-2s"), SET_DOWN, KILLED)
    reported = Situation("", (*told, "40h tor1 switchd: fan 1 speed 4000"), (ended("NODE_FAIL"),), (None,), links=LEAF)
    rows = situations.tables_of([_case(reported, 0)], line_parser())
    of_switch = rows["logs"]["host"] == "tor1"
    # Its own file: a packet in its name would show nothing.
    own = pl.when(pl.col("host") == "tor1").then(pl.lit("switches/tor1/messages")).otherwise("file")
    logs = rows["logs"].with_columns(own.alias("file"))
    assert of_switch.sum() == 1
    with open_store(None) as store:
        ticker = Ticker(store)
        store.add({**rows, "logs": logs.filter(~of_switch)})
        ticker.tick()
        (before,) = result(store)["verdicts"].values()
        store.add({"logs": logs.filter(of_switch)})
        assert not ticker.tick().full
        ticked = answer(store)
        (after,) = result(store)["verdicts"].values()
        correlate(store)
        assert ticked == answer(store)
    assert any("the log of switch tor1" in doubt for doubt in before["doubts"])
    assert (after["doubts"], after["confidence"]) == (before["doubts"], before["confidence"])


def test_optional_sources_are_what_the_simulator_takes_away() -> None:
    assert [len(case.away) for case in cases(0)] == [0, 1, 2, len(OPTIONAL)]
