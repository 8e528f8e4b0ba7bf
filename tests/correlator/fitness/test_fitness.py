"""Fit, doubtful or unfit: a table of situations, and the same from stored rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.ingest import Ingest
from correlator.engine import correlate
from correlator.fitness import rules
from correlator.fitness.model import Fitness, NodeFitness
from correlator.fitness.reading import answer, answers
from correlator.fitness.rules import GraveLine, NodeIncident, Situation, judged
from correlator.incidents import lemons
from correlator.model.kinds import Grave, Kind, NoAttrs
from correlator.repairs.model import Repair
from parsers import extensions
from parsers.record import frame
from store import open_store
from store.door import Door
from tests.line_parser import line_parser
from tests.replaced_model import replace_model

NOW = datetime(2026, 5, 4, 12, 0)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def line(xid: int | None, minutes: float = 60, **more: Any) -> GraveLine:
    event = "gpu.lost" if xid is None else "gpu.xid"
    return GraveLine(
        event, f"Xid {xid}", ago(minutes), ago(minutes), "0000:1b:00", xid, **{"authority": "kernel", **more}
    )


def incident(ended: float = 60, **more: Any) -> NodeIncident:
    values: dict[str, Any] = {"rooted": True, "is_open": False, **more}
    return NodeIncident("I-1", "a disk of gpu07 failed", ago(ended + 5), ago(ended), **values)


def link(**more: Any) -> Repair:
    return Repair("link", "c", "gpu07", "ib0", "gpu07", last=ago(30), first=ago(600), **more)


#: A node of which all is well.
WELL: dict[str, Any] = {
    "state": "IDLE",
    "state_since": ago(900),
    "had_jobs": True,
    "has_agent": True,
    "last_seen": ago(1),
}

SITUATIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    # what is known beside WELL -> the answer, and a part of its first reason
    "all is well": ({}, "fit", ""),
    "no state, but jobs": ({"state": None}, "fit", ""),
    "neither state nor job": ({"state": None, "had_jobs": False}, "doubtful", "nothing shows that Slurm has a node"),
    "down": ({"state": "DOWN*", "reason": "Not responding"}, "unfit", "has set it DOWN or failed: Not responding"),
    "failing": ({"state": "FAILING"}, "unfit", "has set it DOWN or failed"),
    "drained": ({"state": "IDLE+DRAIN", "reason": "fan of row 4"}, "unfit", "Slurm drains it: fan of row 4"),
    "silent to Slurm": ({"state": "idle*"}, "doubtful", "gets no answer"),
    "in maintenance": ({"state": "IDLE+MAINTENANCE"}, "doubtful", "maintenance"),
    "saves power": ({"state": "IDLE+POWERED_DOWN"}, "doubtful", "does not have it up"),
    "completing": ({"state": "IDLE+COMPLETING"}, "fit", ""),
    "reserved": ({"state": "RESERVED"}, "fit", ""),
    "a GPU is lost": ({"lines": [line(None)]}, "unfit", "GPU 0000:1b:00 is lost"),
    "Xid 79": ({"lines": [line(79)]}, "unfit", "Xid 79"),
    "Xid 95": ({"lines": [line(95)]}, "unfit", "reset the GPU"),
    "Xid 79, rebooted": ({"lines": [line(79)], "booted": ago(30)}, "fit", ""),
    "Xid 79 after a boot": ({"lines": [line(79)], "booted": ago(90)}, "unfit", "Xid 79"),
    "Xid 79, undrained by a person": ({"lines": [line(79)], "undrained": ago(30)}, "doubtful", "out of DRAIN since, without a reboot"),
    "Xid 79 after that": ({"lines": [line(79)], "undrained": ago(90)}, "unfit", "Xid 79"),
    "Xid 79 of any user": ({"lines": [line(79, proven=False, authority="local")]}, "doubtful", "any user of gpu07 could have written"),
    "Xid 79 of nobody known": ({"lines": [line(79, proven=False, authority=None)]}, "doubtful", "its writer is not known"),
    "one fault of three sources": (
        {"lines": [line(None, 58), line(79, 60, proven=False, authority="local"), line(79), GraveLine("gpu.xid", "x", ago(60), ago(60), "00000000:1B:00.0", 79)]},
        "unfit", "Xid 79",
    ),
    "a program's Xid": ({"lines": [line(13), line(31), line(43)]}, "fit", ""),
    "an unlisted Xid": ({"lines": [line(9999)]}, "fit", ""),
    "a check failed": ({"validations": [line(None, source="healthagent")]}, "doubtful", "healthagent reported a failed check"),
    "a check failed before the boot": ({"validations": [line(None, source="nhc")], "booted": ago(1)}, "fit", ""),
    "a link is down": ({"repairs": [link(down=True)]}, "unfit", "ib0 has no carrier"),
    "one of eight planes is down": ({"repairs": [link(down=True, planes=8)]}, "doubtful", "7 other planes"),
    "a link is down still, undrained": ({"repairs": [link(down=True)], "undrained": ago(5)}, "unfit", "no carrier"),
    "a link flaps more than others": ({"repairs": [link(flaps=9, outlier=True)]}, "doubtful", "comes and goes, 9 times"),
    "a link flapped, undrained": ({"repairs": [link(flaps=9, outlier=True)], "undrained": ago(5)}, "fit", ""),
    "a link flaps as others do": ({"repairs": [link(flaps=2)]}, "fit", ""),
    "a GPU corrects too much": ({"repairs": [replace(link(errors=50, outlier=True), kind="gpu")]}, "doubtful", "corrected 50 errors"),
    "an open incident": ({"incidents": [incident(is_open=True)]}, "doubtful", "an open incident has its cause here"),
    "an open incident, rebooted": ({"incidents": [incident(is_open=True)], "booted": ago(2)}, "fit", ""),
    "an incident that ended": ({"incidents": [incident()]}, "doubtful", "nothing shows that it was repaired"),
    "an incident of two days ago": ({"incidents": [incident(2880)]}, "fit", ""),
    "an incident, undrained since": ({"incidents": [incident()], "undrained": ago(20)}, "fit", ""),
    "caught in another's incident": ({"incidents": [incident(rooted=False)]}, "fit", ""),
    "something of another's lasts": ({"incidents": [incident(rooted=False, lasts="no carrier")]}, "doubtful", "no carrier"),
    "a lemon": ({"lemon": True}, "doubtful", "more incidents than chance explains"),
    "nobody reports of it": ({"has_agent": False, "last_seen": None}, "doubtful", "nothing that it writes is collected"),
    "its agent is silent": ({"last_seen": ago(11)}, "doubtful", "nothing arrived from its agent for 11 min"),
    "no agent, a line an hour ago": ({"has_agent": False, "last_seen": ago(61)}, "fit", ""),
    "no agent, silent": ({"has_agent": False, "last_seen": ago(60 * 72)}, "doubtful", "for 3 days"),
    "down and lost": ({"state": "DOWN", "lines": [line(79)], "lemon": True}, "unfit", "Xid 79"),
}  # fmt: skip


def situation(**more: Any) -> Situation:
    return Situation("gpu07", "gpu07", "c", **{**WELL, **more})


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_has_its_answer(name: str) -> None:
    known, verdict, reason = SITUATIONS[name]
    found = judged(situation(**known), NOW)
    assert (found.verdict, bool(found.reasons)) == (verdict, bool(reason)), found.reasons
    assert reason in (found.reasons[0].text if found.reasons else "")
    document = found.document(1.26, "service")
    assert list(document) == ["node", "fitness", "reasons", "age_s", "by"] and document["age_s"] == 1.3
    assert all(list(one) == ["text", "evidence", "since"] for one in document["reasons"])
    assert json.loads(json.dumps(document)) == document


@given(st.sets(st.sampled_from(sorted(SITUATIONS)), min_size=1, max_size=6))
def test_more_that_is_known_against_a_node_never_makes_it_fitter(names: set[str]) -> None:
    """Lists of evidence are joined; what is no list is that of the last one."""
    order = list(Fitness)
    lists = ("lines", "validations", "incidents", "repairs")
    joined: dict[str, Any] = {name: [] for name in lists}
    for name in sorted(names):
        for key, value in SITUATIONS[name][0].items():
            if key in lists:
                joined[key] = joined[key] + value
    alone = {key: judged(situation(**{key: joined[key]}), NOW).verdict for key in lists}
    assert judged(situation(**joined), NOW).verdict == max(alone.values(), key=order.index)


def _declared(monkeypatch: pytest.MonkeyPatch, says: Any) -> None:
    """A package declares an event of its own as grave."""
    known = rules.grave()
    pumps = Kind("pump.stopped", "node", "Stopped.", NoAttrs, grave={"pump.stopped": Grave(says)})
    every = {**known, "pump.stopped": (pumps.grave["pump.stopped"], pumps)}
    monkeypatch.setattr(rules, "grave", lambda: every)


def test_two_faults_without_a_device_are_two_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    _declared(monkeypatch, lambda device, xid: "a pump stopped")
    lines = [replace(line(n), device=None) for n in (None, 79)]
    stopped = GraveLine("pump.stopped", "pump 3 stopped", ago(50), ago(50), authority="kernel")
    found = judged(situation(lines=[*lines, stopped]), NOW)
    assert sorted(reason.text[:14] for reason in found.reasons) == ["a GPU reported", "a pump stopped"]


def test_a_package_that_raises_is_a_doubt_about_its_node_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(device: str | None, xid: int | None) -> str:
        raise KeyError("pump")

    logged: list[str] = []
    monkeypatch.setattr(extensions, "warn_once", lambda text, error=None: logged.append(text))
    _declared(monkeypatch, raises)
    stopped = GraveLine("pump.stopped", "pump 3 stopped", ago(50), ago(50), authority="kernel")
    found = judged(situation(lines=[stopped]), NOW)
    assert (found.verdict, [one.evidence for one in found.reasons]) == (Fitness.DOUBTFUL, ["pump 3 stopped"])
    assert logged == ["kind of fact pump.stopped: what it says of pump.stopped raised KeyError: 'pump'"]
    assert judged(situation(lines=[line(79), stopped]), NOW).verdict == Fitness.UNFIT


def test_a_gpu_has_one_reason_and_each_gpu_its_own() -> None:
    lines = [
        line(None, 58),
        line(79, 60, proven=False, authority="local"),
        line(79),
        replace(line(79), device="0000:1B:00.0"),
    ]
    (reason,) = judged(situation(lines=lines), NOW).reasons
    assert "reported Xid 79" in reason.text
    assert len(judged(situation(lines=[*lines, replace(line(119), device="0000:3b:00.0")]), NOW).reasons) == 2


def test_what_slurm_knows_is_no_reason_to_drain() -> None:
    """Slurm keeps jobs from a node that is down or drained; one taken out of DRAIN must not be refused for having been in it."""
    assert not judged(situation(state="DRAINED"), NOW).should_drain
    assert not judged(situation(lemon=True), NOW).should_drain
    assert judged(situation(lines=[line(79)]), NOW).should_drain
    assert judged(situation(state="DRAINED", lines=[line(79)]), NOW).should_drain


# -- from stored rows ---------------------------------------------------------------------------------------------------


@pytest.fixture
def store() -> Iterator[Door]:
    with open_store(None) as opened:
        yield opened


def event(kind: str, host: str | None, minutes: float, **more: Any) -> dict[str, Any]:
    return {
        "event_id": f"{kind}{host}{minutes}", "time": ago(minutes), "resolution_us": 1000, "cluster": "c", "host": host, "source": "kernel",
        "event": kind, "device": None, "severity": "error", "message": f"{kind} there", "entities": "{}", "count": 1, "incident_id": None,
        "authority": "kernel", "layer": "kernel", **more,
    }  # fmt: skip


def state(host: str, minutes: float, name: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "cluster": "c",
        "host": host,
        "time": ago(minutes),
        "state": name,
        "reason": reason,
        "source": "scontrol",
        **more,
    }


def fill(store: Door, events: list[dict[str, Any]], states: list[dict[str, Any]], incidents: list[dict[str, Any]] | None = None) -> None:  # fmt: skip
    tables = {"events": events, "node_states": states, "incidents": incidents or []}
    replace_model(store, {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in tables.items() if rows})


def said(found: NodeFitness | None) -> tuple[str, list[str]]:
    assert found is not None
    return str(found.verdict), [reason.text for reason in found.reasons]


def test_the_answers_come_from_lines_states_incidents_and_lemons(store: Door) -> None:
    hosts = [f"n{number}" for number in range(8)]
    xid = {"entities": json.dumps({"xid": 79}), "device": "0000:1b:00"}
    fill(
        store,
        [
            *(event("nic.link_up", host, 3, severity="info") for host in hosts), event("gpu.xid", "n1", 50, **xid),
            event("gpu.xid", "n2", 50, **xid), event("kernel.boot", "n2", 40), event("gpu.xid", "n3", 50, authority="local", **xid),
            event("gpu.xid", "n4", 50, **xid), event("gpu.xid", "n6", 50, authority="local", incident_id="I-9", **xid),
            event("sys.service_failed", "n7", 20, source="healthagent", message="FAIL nvlink"),
        ],
        [
            *(state(host, 600, "idle") for host in hosts), state("n4", 45, "idle+drain", "Xid 79"), state("n4", 30, "idle"),
            state("n5", 10, "down*", "Not responding"),
        ],
        [{
            "incident_id": "I-9", "cluster": "c", "start": ago(50), "end": ago(49), "severity": "impact", "category": "infra.gpu",
            "root_event": "gpu.xid", "root_host": "n6", "document": json.dumps({"confidence": 0.95, "title": "a GPU failed", "status": "final"}),
        }],
    )  # fmt: skip
    store.set_fact(lemons.FACT, lemons.written([("c", ["n0"])]))
    found = {name: said(one) for name, one in answers(store, NOW).nodes.items()}
    assert found["n0"] == ("doubtful", ["it is the cause of more incidents than chance explains"])
    assert found["n1"][0] == "unfit" and "Xid 79" in found["n1"][1][0]
    assert found["n2"] == ("fit", [])
    assert found["n3"][0] == "doubtful" and "any user of n3" in found["n3"][1][0]
    assert found["n4"][0] == "doubtful" and "out of DRAIN" in found["n4"][1][0]
    assert found["n5"] == ("unfit", ["Slurm has set it DOWN or failed: Not responding"])
    assert found["n6"][0] == "unfit" and len(found["n6"][1]) == 2  # the incident proves the line
    assert found["n7"] == ("doubtful", ["healthagent reported a failed check"])
    assert answer(store, "n9", NOW) is None


HEALTHAGENT = """\
2026-05-04 10:00:00,000 - healthagent - INFO - Updated health report for {0}: {{'status': 'Error', 'description': 'ib1 is not up'}}
2026-05-04 10:01:00,000 - healthagent - ERROR - munge.service Service unhealthy
"""
PASSES = """\
2026-05-04 11:00:00,000 - healthagent - INFO - Updated health report for Network: {'status': 'OK', 'last_update': 'x'}
2026-05-04 11:00:01,000 - healthagent - INFO - munge.service Service Recovered
"""


def test_what_healthagent_tests_is_a_doubt_until_it_says_that_it_passes(store: Door, tmp_path: Path) -> None:
    files = {
        "n1": HEALTHAGENT.format("Network"),
        "n2": HEALTHAGENT.format("Network") + PASSES,
        "n3": HEALTHAGENT.format("GPU") + PASSES,
    }
    for host, text in files.items():
        (tmp_path / "nodes" / host).mkdir(parents=True)
        (tmp_path / "nodes" / host / "healthagent.log").write_text(text)
    Ingest(store, parser=line_parser()).run([tmp_path])
    correlate(store)
    found = {
        name: [text for text in said(one)[1] if "check" in text] for name, one in answers(store, NOW).nodes.items()
    }
    assert found["n1"] == [
        "healthagent reported a failed check (munge.service)", "healthagent reported a failed check (network)",
    ]  # fmt: skip
    assert found["n2"] == []
    assert found["n3"] == ["healthagent reported a failed check (gpu)"], "another check that passes says nothing of it"
    forged = PASSES.replace("2026-05-04 11:00:00,000 - ", "May  4 11:30:00 n3 ").replace("Network", "GPU")
    (tmp_path / "nodes/n3/syslog").write_text(forged.splitlines()[0] + "\n")
    Ingest(store, parser=line_parser()).run([tmp_path])
    correlate(store)
    assert "healthagent reported a failed check (gpu)" in said(answer(store, "n3", NOW))[1], "any user can write that"


def test_rows_of_another_cluster_say_nothing_of_a_node(store: Door) -> None:
    xid = {"entities": json.dumps({"xid": 79}), "cluster": "west"}
    fill(store, [event("nic.link_up", "n1", 3), event("nic.link_up", "n1", 3, cluster="west", event_id="w"), event("gpu.xid", "n1", 50, **xid)],
         [state("n1", 60, "idle"), state("n1", 60, "idle", cluster="west")])  # fmt: skip
    found = answers(store, NOW).nodes
    assert (found["n1@c"].verdict, found["n1@west"].verdict) == ("fit", "unfit")


def test_what_still_lasts_in_anothers_incident_is_a_doubt(store: Door) -> None:
    span = {"host": "n1", "kind": "no_carrier", "text": "no carrier, still so when the data ends"}
    document = {
        "title": "tor-1 failed",
        "confidence": 0.9,
        "status": "final",
        "spans": [span, {**span, "host": "n2", "text": "no carrier, 4.0 s"}],
    }
    fill(store, [event("nic.link_up", host, 3) for host in ("n1", "n2")], [state(host, 60, "idle") for host in ("n1", "n2")], [{
        "incident_id": "I-2", "cluster": "c", "start": ago(20), "end": ago(10), "severity": "impact", "category": "infra.network",
        "root_event": "switch.failure", "root_host": "tor-1", "document": json.dumps(document),
    }])  # fmt: skip
    assert said(answer(store, "n1", NOW)) == ("doubtful", ["no carrier in incident I-2, and no sign that it ended"])
    assert said(answer(store, "n2", NOW)) == ("fit", [])


def test_an_old_store_keeps_what_was_last_known(store: Door) -> None:
    fill(store, [event("gpu.lost", "n1", 60 * 24 * 90)], [state("n1", 60 * 24 * 91, "idle")])
    verdict, reasons = said(answer(store, "n1", NOW))
    assert verdict == "unfit" and reasons[0].startswith("a GPU is lost") and "90 days" in reasons[1]


def test_the_agents_silence_counts_where_there_is_an_agent(store: Door) -> None:
    fill(
        store,
        [event("nic.link_up", host, 3) for host in ("n1", "n2")],
        [state(host, 60, "idle") for host in ("n1", "n2")],
    )
    store.open_intake()
    with store.write() as writer:
        from store.tables import NODES

        for host, minutes in (("n1", 1), ("n2", 45)):
            writer.change(
                NODES.insert().values(host=host, cluster="c", first_seen=ago(500), last_seen=ago(minutes), boots=0)
            )
    assert said(answer(store, "n1", NOW)) == ("fit", [])
    assert said(answer(store, "n2", NOW)) == ("doubtful", ["nothing arrived from its agent for 45 min"])


def test_a_link_that_is_down_comes_from_the_repair_list(store: Door) -> None:
    down = event("nic.link_down", "n1", 90, device="ib0", severity="warning")
    fill(
        store,
        [down, *(event("nic.link_up", host, 3, device="ib1") for host in ("n1", "n2"))],
        [state("n1", 60, "idle"), state("n2", 60, "idle")],
    )
    store.append(
        {
            "links": frame(
                "links",
                [
                    {"cluster": "c", "host": f"n{n}", "device": "ib0", "switch": "leaf", "switch_port": str(n)}
                    for n in (1, 2)
                ],
            )
        }
    )
    assert said(answer(store, "n1", NOW)) == ("unfit", ["ib0 has no carrier"])
    assert said(answer(store, "n2", NOW)) == ("fit", [])
