"""The job page: a run's output is its own, and no cause is called an effect."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient

from web.app import create_app

START = datetime.fromisoformat("2026-11-21T00:20:00")


def printed(
    store: fixture.FakeStore, job: int, file: str, texts: list[str], start: datetime | None = START, first: int = 1
) -> None:
    """Lines of output, a second from one another; without a start they have no time at all."""
    for number, text in enumerate(texts, first):
        time = start + timedelta(seconds=number) if start else None
        row = {"time": time, "time_quality": "inferred", "received_time": START, "cluster": "mini", "host": "gpu03",
               "source": "job_stdout", "message": text, "raw": text, "event": "other", "job_id": job, "tags": [],
               "file": file, "line": number}  # fmt: skip
        fixture.insert(store.con, "raw.logs", row)


def kept(store: fixture.FakeStore, job: int, restarts: int, path: str, file: str | None = None) -> None:
    row = {
        "cluster": "mini",
        "job_id": job,
        "restarts": restarts,
        "kind": "stdout",
        "path": path,
        "truncated": False,
        "file": file,
    }
    fixture.insert(store.con, "raw.artifacts", row)


def first_run_of_14(store: fixture.FakeStore) -> None:
    row = {"run_key": "14", "cluster": "mini", "job_id": 14, "attempt": 0, "state": "NODE_FAIL", "nodes": ["gpu03"],
           "start": START - timedelta(hours=1), "end": START - timedelta(minutes=5)}  # fmt: skip
    fixture.insert(store.con, "model.runs", row)


def page(store: fixture.FakeStore, key: str) -> str:
    return TestClient(create_app(store)).get(f"/jobs/{key}").text


def test_a_run_shows_its_own_files_and_not_those_of_another_run() -> None:
    store = fixture.build()
    first_run_of_14(store)
    printed(store, 14, "jobs/14/stdout", ["the first run's words"], START - timedelta(hours=1))
    printed(store, 14, "jobs/14/restart-1/stdout", ["the second run's words"])
    kept(store, 14, 0, "jobs/14/stdout")
    kept(store, 14, 1, "jobs/14/restart-1/stdout")
    assert "the first run" in page(store, "14") and "the second run" not in page(store, "14")
    assert "the second run" in page(store, "14%231") and "the first run" not in page(store, "14%231")


def test_runs_that_print_to_one_file_are_parted_by_their_starts() -> None:
    store = fixture.build()
    first_run_of_14(store)
    printed(store, 14, "jobs/x-14.out", ["before"], START - timedelta(minutes=30))
    printed(store, 14, "jobs/x-14.out", ["after"], first=2)
    assert "before" in page(store, "14") and ">after<" not in page(store, "14")
    assert ">after<" in page(store, "14%231") and ">before<" not in page(store, "14%231")


def test_files_are_known_by_the_host_that_the_agent_names_with_them() -> None:
    store = fixture.build()
    first_run_of_14(store)
    printed(store, 14, "gpu03:/home/a/0.out", ["the first run's words"], None)
    printed(store, 14, "gpu03:/home/a/all.out", ["words of both runs"], None)
    for restarts, path in ((0, "/home/a/0.out"), (0, "/home/a/all.out"), (1, "/home/a/all.out")):
        kept(store, 14, restarts, path, file=f"gpu03:{path}")
    assert "the first run" in page(store, "14") and "words of both" in page(store, "14")
    assert "the first run" not in page(store, "14%231") and "words of both" in page(store, "14%231")


def test_output_without_times_and_without_other_runs_is_shown() -> None:
    store = fixture.build()
    printed(store, 16, "jobs/16/stderr", ["no stamp on this"], None)
    assert "no stamp on this" in page(store, "16")


def test_each_file_is_told_by_name_with_how_much_of_it_is_shown() -> None:
    store = fixture.build()
    for rank in range(6):
        printed(store, 14, f"jobs/14/rank-{rank}.out", [f"line {n}" for n in range(45)])
    text = re.sub(r"\s+", " ", page(store, "14%231"))
    assert text.count("last 40 of 45 lines") == 4 and "and 2 more files" in text and "line 4<" not in text


@pytest.mark.parametrize(("yours", "said"), [(True, False), (False, True), (None, False)])
def test_a_line_is_called_an_effect_only_where_the_cause_lies_elsewhere(yours: Any, said: bool) -> None:
    store = fixture.build()
    printed(store, 16, "jobs/16/stdout", ["RuntimeError: boom"])
    document = {
        "your_code": yours,
        "evidence": [{"source": "jobs/16/stdout", "line": 1, "time": "2026-11-21T00:20:01Z"}],
    }
    store.con.execute("UPDATE model.runs SET document = ? WHERE run_key = '16'", [json.dumps(document)])
    assert ("This line is the effect" in page(store, "16")) is said


def test_what_was_measured_is_evidence_before_lines_of_something_else() -> None:
    """The evidence of a job that GPUs' heat slowed was six lines about a processor's temperature."""
    store = fixture.build()
    sides = {
        "cause": {"": "cpu", "_fact": "gpu.thermal", "_host": "n1", "_time": "2026-11-21T00:16:12Z", "_says": "8 GPUs held back by heat"},
        "effect": {"": None, "_fact": "job.slow", "_run": "16", "_time": "2026-11-21T00:16:14Z", "_says": "steps took 4 s instead of 2 s"},
    }  # fmt: skip
    step = {f"{side}{key}": value for side, has in sides.items() for key, value in has.items()}
    line = {"id": "cpu", "source": "n1/syslog", "line": 1, "host": "n1", "message": "CPU34: Core temperature", "event": "kernel.thermal",
            "time": "2026-11-21T00:04:55Z", "role": "cause"}  # fmt: skip
    document = {"evidence": [line], "chain": [step | {"cause_pm_s": 0.0, "effect_pm_s": 61.0, "lag_s": 2.0}]}
    store.con.execute("UPDATE model.runs SET document = ? WHERE run_key = '16'", [json.dumps(document)])
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page(store, "16")))
    evidence = text[text.index("Evidence 1 line") :]
    assert evidence.index("8 GPUs held back by heat gpu.thermal, no line, began by 00:16:12") < evidence.index("CPU34")
    document["chain"][0] |= {"cause_time": line["time"], "cause": "cpu"}  # the line tells of it
    store.con.execute("UPDATE model.runs SET document = ? WHERE run_key = '16'", [json.dumps(document)])
    assert "no line" not in page(store, "16")


def test_a_node_that_slurm_lost_has_a_card_and_the_others_are_named() -> None:
    store = fixture.build()
    names = [f"n{n:03d}" for n in range(60)]
    store.con.execute("UPDATE model.runs SET nodes = ?, node_count = 60, document = '{}' WHERE run_key = '16'", [names])
    state = {
        "time": "2026-11-21T00:31:14.5",
        "cluster": "mini",
        "host": "n050",
        "state": "DOWN*",
        "reason": "Not responding",
    }
    fixture.insert(store.con, "model.node_states", state)
    text = re.sub(r"\s+", " ", page(store, "16"))
    assert "Slurm: DOWN* at 00:31:14, Not responding." in text and "against 59 other nodes" in text
    assert text.index(">n050<") < text.index(">n000<")


def test_a_node_that_a_line_accuses_is_not_without_evidence_even_if_the_line_does_not_count() -> None:
    store = fixture.build()
    row = store.con.execute(
        "SELECT run_key, nodes, document FROM model.runs WHERE document IS NOT NULL LIMIT 1"
    ).fetchone()
    key, nodes, document = row[0], list(row[1]), json.loads(row[2])
    document["evidence"] = []
    claim = f"gpu.xid (0000:41:00 of {nodes[0]}, 00:20:00 UTC)"
    document["rivals"] = [
        {"cause": claim, "host": nodes[0], "device": "0000:41:00", "rejected": "the file does not show who wrote it"}
    ]
    store.con.execute("UPDATE model.runs SET document = ? WHERE run_key = ?", [json.dumps(document), key])
    store.con.execute("DELETE FROM model.node_states")
    found = page(store, key)
    (quiet,) = re.findall(r"(?s)No evidence against.*?</div>", found) or [""]
    assert f"Considered and rejected: {claim}." in " ".join(found.split())
    assert f">{nodes[0]}<" not in quiet and all(f">{other}<" in quiet for other in nodes[1:])


def test_a_state_that_two_records_show_is_reported_once() -> None:
    store = fixture.build()
    first_run_of_14(store)
    for second in (0, 1):
        row = {"time": START - timedelta(minutes=6, seconds=-second), "cluster": "mini", "host": "gpu03",
               "state": "down*", "reason": "Not responding"}  # fmt: skip
        fixture.insert(store.con, "model.node_states", row)
    assert len(re.findall(r"Slurm: down\* at", page(store, "14"))) == 1


def test_a_provisional_verdict_says_until_when_it_waits_and_for_what() -> None:
    store, waits = fixture.build(), "until 03:12 UTC for lines of gpu07"
    for table, key, name in (("runs", "15", "run_key"), ("incidents", "I1", "incident_id")):
        (text,) = store.con.execute(f"SELECT document FROM model.{table} WHERE {name} = ?", [key]).fetchone() or ("{}",)
        document = json.loads(text) | {"final_at": "2026-11-21T03:11:30.000000Z", "waits_for": [waits]}
        document |= {"final": False} if table == "runs" else {"status": "provisional"}
        store.con.execute(f"UPDATE model.{table} SET document = ? WHERE {name} = ?", [json.dumps(document), key])
    assert f"may still change {waits}" in page(store, "15")
    client = TestClient(create_app(store))
    assert f"May still change {waits}." in client.get("/incidents/I1").text
    found = [client.get(path).json() for path in ("/api/v1/jobs/15/verdict", "/api/v1/incidents/I1")]
    assert [one["waits_for"] for one in found] == [[waits]] * 2 and found[0]["final_at"]


def test_a_job_that_an_incident_slowed_names_it_and_the_node() -> None:
    """The page of a running job that was 2.4 times slower by a bad link said "No evidence against 8 nodes"."""
    store = fixture.build()
    document: dict[str, Any] = {
        "title": "mlx5_2 of gpu03 corrupted data. Job 16 became 2.4 times slower.", "slowed_jobs": ["16"],
        "events": [{"id": "e", "time": "2026-11-21T00:30:30Z", "host": "gpu03", "event": "nic.link_errors", "role": "cause"}],
    }  # fmt: skip
    row = {"incident_id": "I-slow", "cluster": "mini", "start": START, "end": None, "severity": "degraded", "root_event": "nic.link_errors",
           "root_host": "gpu03", "document": json.dumps(document)}  # fmt: skip
    fixture.insert(store.con, "model.incidents", row)
    client = TestClient(create_app(store))
    assert client.get("/api/v1/jobs/16").json()["slowed_by"] == ["I-slow"]
    assert client.get("/api/v1/jobs/15").json()["slowed_by"] == []
    text = re.sub(r"\s+", " ", client.get("/jobs/16").text)
    assert 'The incident: <a href="/incidents/I-slow">mlx5_2 of gpu03 corrupted data.' in text
    assert "nic.link_errors at 00:30:30" in text and "No evidence against 1 other node:" in text
    # The subnet manager tells of the port: the line is the controller's, the root is the node.
    document["events"][0]["host"] = "ctl"
    store.con.execute("UPDATE model.incidents SET document = ? WHERE incident_id = 'I-slow'", [json.dumps(document)])
    text = re.sub(r"\s+", " ", client.get("/jobs/16").text)
    assert "nic.link_errors at 00:20:00" in text and "No evidence against 1 other node:" in text
