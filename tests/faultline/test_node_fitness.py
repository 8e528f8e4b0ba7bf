"""One answer about a node: of the API, the page, the command (with and without a service) and the metric."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from correlator.fitness.model import Answers, Fitness, NodeFitness, Reason
from faultline.fitness_metrics import MOST_NAMED, FitnessMetrics
from faultline.node import about, show
from faultline.remote import Service
from store import open_store
from tests.faultline.command import faultline
from web.app import create_app
from web.fitness import KEPT_S, STALE_S, Memory
from web.metrics import exposition

NOW = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
XID = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus <b>&"


def before(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gpu01 lost a GPU, gpu02 is drained, gpu03 is well; job 7 of alice died on gpu01."""
    folder = tmp_path_factory.mktemp("store")
    shared = {
        "cluster": "c",
        "source": "kernel",
        "layer": "kernel",
        "authority": "kernel",
        "count": 1,
        "resolution_us": 1000,
    }
    events = [
        {**shared, "event_id": f"e{host}", "time": before(2), "host": host, "event": "nic.link_up", "severity": "info", "message": "up"}
        for host in ("gpu01", "gpu02", "gpu03")
    ] + [{
        **shared, "event_id": "x", "time": before(30), "host": "gpu01", "event": "gpu.xid", "severity": "error", "message": XID,
        "device": "0000:1b:00", "entities": json.dumps({"xid": 79}), "incident_id": "I-1",
    }]  # fmt: skip
    states = [
        {"cluster": "c", "host": host, "time": before(60), "state": "IDLE", "source": "scontrol"} for host in ("gpu01", "gpu02", "gpu03")
    ] + [{"cluster": "c", "host": "gpu02", "time": before(20), "state": "IDLE+DRAIN", "reason": "fan", "actor": "root(0)", "source": "scontrol"}]  # fmt: skip
    document = {
        "id": "I-1", "title": "a GPU of gpu01 failed, which ended job 7", "status": "provisional", "confidence": 0.9, "hosts": ["gpu01"],
        "jobs": [{"job_id": "7"}], "advice": [{"text": "Drain gpu01.", "command": "scontrol update"}, {"text": "Tell alice.", "users": ["alice"]}],
    }  # fmt: skip
    incident = {
        "incident_id": "I-1", "cluster": "c", "start": before(30), "end": before(29), "severity": "impact", "category": "infra.gpu",
        "root_event": "gpu.xid", "root_host": "gpu01", "root_device": "0000:1b:00", "document": json.dumps(document),
    }  # fmt: skip
    with open_store(folder) as store:
        store.replace_model({
            "events": pl.DataFrame(events, infer_schema_length=None), "node_states": pl.DataFrame(states, infer_schema_length=None),
            "incidents": pl.DataFrame([incident]),
        })  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[TestClient]:
    with open_store(data, read_only=True) as store:
        app = create_app(store)
        app.state.metrics.add(FitnessMetrics(app.state.fitness))
        yield TestClient(app)


def test_the_route_has_exactly_the_promised_shape(client: TestClient) -> None:
    found = client.get("/api/v1/nodes/gpu01/fitness").json()
    assert set(found) == {"node", "fitness", "reasons", "age_s", "by"}
    assert (found["node"], found["fitness"], found["by"]) == ("gpu01", "unfit", "service") and found["age_s"] >= 0
    assert [set(reason) for reason in found["reasons"]] == [{"text", "evidence", "since"}] * 2
    assert found["reasons"][0]["evidence"] == XID and found["reasons"][1]["evidence"] == "incident I-1"
    assert client.get("/api/v1/nodes/gpu03/fitness").json()["reasons"] == []
    answer = client.get("/api/v1/nodes/gpu99/fitness")
    assert answer.status_code == 404 and answer.headers["content-type"] == "application/problem+json"


def test_the_page_shows_the_answer_and_its_reasons(client: TestClient) -> None:
    page = client.get("/nodes/gpu01", headers={"accept": "text/html"}).text
    assert "Unfit" in page and "NVIDIA recommends: reboot the node" in page
    assert "<b>&" not in page and "&lt;b&gt;&amp;" in page
    assert "Slurm drains it: fan" in client.get("/nodes/gpu02", headers={"accept": "text/html"}).text
    assert "Nothing is known against it" in client.get("/nodes/gpu03", headers={"accept": "text/html"}).text


def test_the_command_says_the_same_without_a_service(data: Path) -> None:
    def answered(name: str) -> dict[str, Any]:
        done = faultline("node", name, "--data", data, "--format", "json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    found = answered("gpu01")
    assert (found["node"], found["fitness"], found["by"], found["state"]) == ("gpu01", "unfit", "store", "IDLE")
    assert [one["id"] for one in found["incidents"]] == ["I-1"]
    assert [one["text"] for one in found["advice"]] == ["Drain gpu01."]  # what is for alice is not for the node
    drained = answered("gpu02")
    assert [(s["state"], s["actor"], s["reason"]) for s in drained["states"]] == [
        ("IDLE+DRAIN", "root(0)", "fan"),
        ("IDLE", None, None),
    ]
    text = faultline("node", "gpu02", "--data", data).stdout.decode()
    assert text.startswith("gpu02 is unfit for a job") and "by root(0)  fan" in text
    unknown = faultline("node", "gpu99", "--data", data)
    assert unknown.returncode == 2 and b"gpu99" in unknown.stderr and unknown.stderr.count(b"\n") == 1


def test_a_service_gives_the_command_the_same(data: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(_: Service, path: str, body: dict[str, Any] | None = None) -> bytes:
        asked.append(path)
        return client.get(path).content

    monkeypatch.setattr(Service, "ask", ask)
    there = json.loads(faultline("node", "gpu02", "--server", "http://there", "--format", "json").stdout)
    here = json.loads(faultline("node", "gpu02", "--data", data, "--format", "json").stdout)
    assert there.pop("by") == "service" and here.pop("by") == "store"
    assert there.pop("age_s") >= 0 and here.pop("age_s") >= 0 and there == here
    assert asked == ["/api/v1/nodes/gpu02/fitness", "/api/v1/nodes/gpu02", "/api/v1/repairs?q=gpu02&limit=500"]


def test_the_metric_counts_all_and_names_who_is_not_fit(client: TestClient) -> None:
    client.get("/api/v1/nodes/gpu01/fitness")
    lines = client.get("/metrics").text.splitlines()
    shown = [one for one in lines if one.startswith(("faultline_nodes{", "faultline_node_not_fit{"))]
    assert shown == [
        'faultline_nodes{fitness="fit"} 1.0', 'faultline_nodes{fitness="doubtful"} 0.0', 'faultline_nodes{fitness="unfit"} 2.0',
        'faultline_node_not_fit{fitness="unfit",node="gpu01"} 1.0', 'faultline_node_not_fit{fitness="unfit",node="gpu02"} 1.0',
    ]  # fmt: skip


def test_a_whole_hall_without_power_is_no_flood_of_series() -> None:
    doubt, bad = (Reason(verdict, "x", "y") for verdict in (Fitness.DOUBTFUL, Fitness.UNFIT))
    many = {f"n{n:04}": NodeFitness(f"n{n:04}", f"n{n:04}", None, (doubt if n % 2 else bad,)) for n in range(4000)}
    switch = NodeFitness("tor", "tor", None, (bad,), runs_jobs=False)

    class Held(Memory):
        def known(self) -> tuple[Answers, float]:
            return Answers(NOW, {**many, "tor": switch}), 3.0

    text = exposition(FitnessMetrics(Held(None)))  # type: ignore[arg-type]
    assert text.count("faultline_node_not_fit{") == MOST_NAMED == text.count('fitness="unfit",node=')
    assert 'faultline_nodes{fitness="unfit"} 2000.0' in text and 'node="tor"' not in text

    class Forbidden(Memory):
        def known(self) -> tuple[Answers, float]:
            raise AssertionError("computed when it was registered")

    CollectorRegistry().register(FitnessMetrics(Forbidden(None)))  # type: ignore[arg-type]


def test_answers_are_kept_for_a_while_and_say_how_old_they_are(data: Path) -> None:
    moment = [100.0]
    with open_store(data, read_only=True) as store:
        memory = Memory(store, clock=lambda: moment[0])
        first, age = memory.latest()
        moment[0] += KEPT_S / 2
        assert memory.latest() == (first, KEPT_S / 2) and age == 0.0 and memory._renewing is None
        moment[0] += KEPT_S
        assert memory.latest() == (first, KEPT_S * 1.5)  # nobody waits for the next ones
        assert memory._renewing is not None
        memory._renewing.join()
        second, age = memory.latest()
        assert second is not first and age == 0.0
        moment[0] += STALE_S
        third, age = memory.latest()
        assert third is not second and age == 0.0


def test_a_node_that_is_newer_than_the_answers_is_in_the_next_ones(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for whoever asks next: a new node's agent asks every two minutes only."""
    moment, known = [100.0], [{"gpu01"}]
    monkeypatch.setattr(
        "web.fitness.answers",
        lambda _, now: Answers(now, {name: NodeFitness(name, name, "c") for name in sorted(known[0])}),
    )
    with open_store(data, read_only=True) as store:
        memory = Memory(store, clock=lambda: moment[0])
        assert memory.of("gpu01") is not None
        known[0] = {"gpu01", "gpu02"}
        moment[0] += KEPT_S - 1
        assert memory.of("gpu02") is None  # names that nobody knows must not make it compute
        moment[0] += 1
        assert memory.of("gpu02") is not None


class Told:
    """A backend that answers what a test says."""

    def __init__(self, *answers: Any) -> None:
        self.node = lambda name: answers


def test_the_command_gives_each_advice_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The repair list says what to do about a link that an incident is about as well, with both of its ends."""
    action = "Check cable, module and switch port of gpu01 ib0 and leaf01 7 in the next window."
    reasons = [
        {"text": f"ib0 comes and goes, 3 times: {action}", "evidence": "the repair list, gpu01 ib0", "since": None},
        {"text": "an open incident has its cause here", "evidence": "incident I-1", "since": None},
    ]
    incidents = [
        {"id": name, "status": "provisional", "severity": "impact", "title": name, "start": "2026-11-21T14:00:00Z",
         "root_cause": {"host": "gpu01", "device": device}, "advice": [{"text": f"Check cable of {device}.", "command": None}]}
        for name, device in (("I-1", "ib0"), ("I-2", "ib1"))
    ]  # fmt: skip
    node = {
        "host": "gpu01",
        "cluster": "c",
        "state": "IDLE",
        "reason": "",
        "since": None,
        "states": [],
        "incidents": incidents,
    }
    repairs = [
        {"device": "ib0", "urgency": "soon", "incidents": ["I-1"], "action": action, "command": "ethtool -m ib0"}
    ]
    backend: Any = Told(
        {"node": "gpu01", "fitness": "doubtful", "reasons": reasons, "age_s": 1.0, "by": "store"}, node, repairs
    )
    assert [one["text"] for one in about(backend, "gpu01")["advice"]] == ["Check cable of ib1.", action]
    show(backend, "gpu01", "text")
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        printed.count(action) == 1
        and "Check cable of ib0" not in printed
        and "ib0 comes and goes, 3 times (" in printed
    )


def test_a_scrape_waits_for_no_answer(data: Path) -> None:
    with open_store(data, read_only=True) as store:
        memory = Memory(store)
        assert exposition(FitnessMetrics(memory)) == ""
        assert memory._renewing is not None
        memory._renewing.join()
        assert 'faultline_nodes{fitness="unfit"} 2.0' in exposition(FitnessMetrics(memory))


def test_a_store_that_does_not_answer_leaves_the_answers_and_they_grow_old(data: Path) -> None:
    moment = [100.0]
    with open_store(data, read_only=True) as store:
        memory = Memory(store, clock=lambda: moment[0])
        first, _ = memory.latest()
    moment[0] += KEPT_S  # it is closed now
    with capture_logs() as log:
        assert memory.known() == (first, KEPT_S)
        assert memory._renewing is not None
        memory._renewing.join()
    assert [entry["event"] for entry in log] == ["the fitness of nodes was not computed"]
    assert memory.known() == (first, KEPT_S)
    memory._renewing.join()
