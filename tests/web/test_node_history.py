"""The page of a node: a strip of its states, what was measured, its lemon score; each as the API and the rows have it."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient

from correlator.facts import registry
from correlator.incidents import lemons
from correlator.model.gauges import GAUGES
from store.questions import fleet, incidents, runs
from web.app import create_app
from web.node_history import MEASURED, WIDE, families, measures, risk, strip
from web.reading import Reader
from web.timerange import Range

T0 = datetime(2026, 11, 21, 4)


def at(minute: float) -> datetime:
    return T0 + timedelta(minutes=minute)


def state(minute: float, text: str, until: float | None = None, source: str = "poll", **more: Any) -> dict[str, Any]:
    end = None if until is None else at(until)
    return {"host": "a", "time": at(minute), "until": end, "state": text, "reason": None, "actor": None, "source": source, **more}  # fmt: skip


def drawn(states: list[dict[str, Any]], within: Range | None = None, newest: float | None = 100) -> list[Any]:
    """Kind, first and last minute of each bar, by its place."""
    found = strip(states, within or Range(), None if newest is None else at(newest))
    assert found is not None
    scale = (found["end"] - found["start"]).total_seconds() / 60 / WIDE
    begun = (found["start"] - T0).total_seconds() / 60
    for part in found["parts"]:
        assert 0 <= part["x"] <= part["x"] + part["wide"] <= WIDE + 0.01
    return [
        (part["kind"], round(begun + part["x"] * scale, 1), round(begun + (part["x"] + part["wide"]) * scale, 1))
        for part in found["parts"]
    ]


@pytest.mark.parametrize(
    ("states", "within", "expected"),
    [
        ([state(0, "idle"), state(40, "down*")], Range(), [("idle", 0, 40), ("down", 40, 100)]),
        # Nobody says a state between minute 20 and 60: there is no bar.
        ([state(0, "mixed", 20), state(60, "drained", 100)], Range(), [("busy", 0, 20), ("drain", 60, 100)]),
        # What began before the range begins with it, and nothing is drawn after it.
        ([state(0, "idle"), state(40, "down")], Range(at(30), at(50)), [("idle", 30, 40), ("down", 40, 50)]),
        # slurmctld's log does not say when jobs run: its IDLE is not idle.
        ([state(0, "IDLE", source="slurmctld"), state(50, "DOWN", source="slurmctld")], Range(), [("up", 0, 50), ("down", 50, 100)]),
        # Not longer than the state below it.
        ([state(0, "idle", 90), state(30, "down", 40)], Range(), [("idle", 0, 30), ("down", 30, 40)]),
    ],
)  # fmt: skip
def test_a_strip_has_the_states_of_the_rows(states: list[Any], within: Range, expected: list[Any]) -> None:
    assert drawn(states, within) == expected


def test_a_strip_says_how_long_and_by_whom() -> None:
    found = strip([state(0, "drained", 30, reason="fan", actor="ada"), state(30, "idle")], Range(), at(100))
    assert found is not None
    assert [(one["words"], one["seconds"]) for one in found["kinds"]] == [("drained", 1800), ("idle", 4200)]
    assert found["parts"][0]["words"] == "drained fan by ada, from 2026-11-21 04:00:00 to 2026-11-21 04:30:00"
    assert strip([], Range(), at(1)) is None and strip([state(5, "idle")], Range(), None) is None


@pytest.fixture(scope="module")
def store() -> fixture.FakeStore:
    store = fixture.build()
    newest = Reader(store).newest()
    assert newest is not None
    for gpu, degrees in (("nvidia0", (40, 72, 61)), ("nvidia1", (35, 36, 90))):
        for n, value in enumerate(degrees):
            sample(store, newest - timedelta(minutes=10 * (3 - n)), GAUGES["temperature"].metrics[0], gpu, value)
    for n, value in enumerate((3, 3, 10)):
        sample(store, newest - timedelta(minutes=10 * (3 - n)), GAUGES["symbol_errors"].metrics[0], "mlx5_0", value)
    for n, value in enumerate((5, 0)):  # it began again
        sample(store, newest - timedelta(minutes=10 * (3 - n)), GAUGES["replays"].metrics[0], "nvidia0", value)
    sample(store, newest - MEASURED - timedelta(minutes=1), GAUGES["power"].metrics[0], "nvidia0", 700)  # too long ago
    return store


def sample(
    store: fixture.FakeStore, at: datetime, metric: str, device: str, value: float, host: str = "gpu02", **labels: str
) -> None:
    fixture.insert(store.con, "raw.metrics", {
        "time": at, "cluster": "mini", "host": host, "metric": metric, "value": value, "device": device,
        "labels": json.dumps(labels, sort_keys=True) if labels else None,
    })  # fmt: skip


SYMBOLS, OTHER_SYMBOLS = GAUGES["symbol_errors"].metrics
REPLAYS, DEGREES = GAUGES["replays"].metrics[0], GAUGES["temperature"].metrics[0]


@pytest.mark.parametrize(
    ("series", "grew"),
    [
        ([(SYMBOLS, {}, {0: 5, 1: 0, 2: 9})], None),
        ([(SYMBOLS, {}, {0: 0, 1: 8, 2: 0, 3: 9})], None),  # below its first value at no time
        ([(SYMBOLS, {}, {0: 5, 1: 5, 2: 9})], 4),
        ([(SYMBOLS, {}, {0: 5, 2: 9}), (OTHER_SYMBOLS, {}, {0: 5, 2: 8})], 4),  # two sources of one counter
        ([(SYMBOLS, {"port": "1"}, {0: 100, 2: 104}), (SYMBOLS, {"port": "2"}, {1: 3, 3: 5})], 6),
        ([(REPLAYS, {"UUID": "GPU-1", "gpu": "0"}, {0: 1, 2: 4}), (REPLAYS, {"UUID": "GPU-1", "Hostname": "gpu02"}, {1: 2, 3: 4})], 3),
        ([(REPLAYS, {"gpu": "0", "hpc_job": "15"}, {0: 1, 1: 3}), (REPLAYS, {"gpu": "0", "hpc_job": "16"}, {2: 4, 3: 6})], 5),
        ([(REPLAYS, {"gpu": "0", "hpc_job": "15"}, {0: 1, 1: 3}), (REPLAYS, {"gpu": "0", "hpc_job": "16"}, {2: 0, 3: 6})], None),
    ],
    ids=["below the first", "between two rises", "rising", "two sources", "two ports", "one counter by two sources", "labels with the job",
         "reset between two jobs"],
)  # fmt: skip
def test_what_a_counter_grew_by_is_so_or_is_not_said(series: list[Any], grew: float | None) -> None:
    store = fixture.build()
    read = Reader(store)
    newest = read.newest()
    assert newest is not None
    for metric, labels, values in series:
        for n, value in values.items():
            sample(store, newest - timedelta(minutes=10 - n), metric, "x", value, **labels)
    (found,) = measures(read, read.node("gpu02"), newest)
    assert (found["grew"], found["devices"]) == (grew, 1)


def test_the_last_value_is_of_every_port_and_of_no_job_before() -> None:
    store = fixture.build()
    read = Reader(store)
    newest = read.newest()
    assert newest is not None
    for n, (job, degrees) in enumerate((("15", 80), ("15", 82), ("16", 40), ("16", 41))):
        sample(store, newest - timedelta(minutes=10 - n), DEGREES, "0", degrees, gpu="0", hpc_job=job)
    for port, value in (("1", 100), ("2", 3)):
        sample(store, newest - timedelta(minutes=5), SYMBOLS, "mlx5_0", value, port=port)
    degrees_, symbols = measures(read, read.node("gpu02"), newest)
    assert (degrees_["last"], degrees_["all"]) == ([41, 41], [40, 82])
    assert (symbols["last"], symbols["grew"]) == ([3, 100], 0)


def incident(store: fixture.FakeStore, name: str, jobs: list[str], cluster: str = "mini", **more: Any) -> None:
    """An incident of gpu02 that ended some jobs, with the runs that blame it."""
    fixture.insert(store.con, "model.incidents", {
        "incident_id": name, "cluster": cluster, "start": T0, "severity": "impact", "category": "infra.network",
        "root_event": "nic.link_down", "root_host": "gpu02", "document": json.dumps({"jobs": [{"job_id": job} for job in jobs]}), **more,
    })  # fmt: skip
    for job in jobs:
        fixture.insert(store.con, "model.runs", {
            "run_key": job, "cluster": cluster, "job_id": int(job.split("#")[0]), "attempt": 0, "incident_id": name, "nodes": ["gpu02"],
        })  # fmt: skip


class Listening(Reader):
    """Keeps the text of each query."""

    def __init__(self, store: fixture.FakeStore) -> None:
        super().__init__(store)
        self.asked: list[str] = []

    def ask(self, question: Any) -> list[dict[str, Any]]:
        self.asked.append(str(question))
        return super().ask(question)


def test_the_lemon_score_reads_no_documents_and_no_other_cluster() -> None:
    store = fixture.build()
    incident(store, "J1", ["100", "101"])
    incident(store, "J2", ["100#1"])  # the same job again counts once
    incident(store, "J3", ["102"])
    incident(store, "J4", ["103"], cluster="other")
    incident(store, "J5", ["104"], severity="degraded")
    incident(store, "J6", ["105"], root_event="app.error")
    incident(store, "J7", ["106"], root_host="gpu03")
    read = Listening(store)
    node = read.node("gpu02@mini")
    read.asked.clear()
    (family,) = families(read, node)
    assert family["incidents"] == 3  # the capture's own, J1 and J3
    assert not any("document" in text for text in read.asked)
    rows = [row for row in read.store.ask(fleet.rooted(registry.families(), clusters=["mini"])) if row["root_host"] == "gpu02"]  # fmt: skip
    assert {row["incident_id"] for row in rows} == {"I1", "J1", "J2", "J3"}
    whole = [json.loads(row["document"]) | {"id": row["incident_id"], "severity": row["severity"],
                                            "root_cause": {"event": row["root_event"], "host": row["root_host"]}}
             for row in read.ask(incidents.named(["I1", *(f"J{n}" for n in (1, 2, 3, 5, 6, 7))]))]  # fmt: skip
    nodes = int(read.ask(runs.node_count("mini"))[0]["n"])
    assert [family] == lemons.risk(whole, nodes)["gpu02"], "as the documents have it"


def test_measured_values_are_those_of_the_rows(store: fixture.FakeStore) -> None:
    read = Reader(store)
    found = {one["name"]: one for one in measures(read, read.node("gpu02"), read.newest())}
    assert list(found) == ["temperature", "PCIe replays", "symbol errors"]
    hot = found["temperature"]
    assert (hot["last"], hot["all"], hot["devices"]) == ([61, 90], [35, 90], 2)
    assert found["symbol errors"]["grew"] == 7 and found["PCIe replays"]["grew"] is None
    assert measures(read, read.node("gpu02"), None) == []


def test_the_page_shows_them_and_the_score_that_the_api_has(store: fixture.FakeStore) -> None:
    read, client = Reader(store), TestClient(create_app(store))
    scored = client.get("/api/v1/nodes/gpu02/risk").json()
    assert scored == risk(read, read.node("gpu02")) and scored["families"] == families(read, read.node("gpu02"))
    assert scored["families"], "an incident began here"
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", client.get("/nodes/gpu02").text))
    (family,) = scored["families"]
    score = page[page.index("Lemon score") :]
    assert f"{family['family']} {family['incidents']} {round(family['expected'], 2):g}" in score
    assert f"{family['probability']:.2g}" in score
    measured = page[page.index("Measured") :]
    assert "61 to 90 °C 35 to 90 °C" in measured and "10 +7" in measured and "began again" in measured
    assert "power" not in measured, "that was more than a day before"
    other = client.get("/nodes/gpu01").text
    assert "No incident that ended a job began on this node" in other and 'id="measures"' not in other
