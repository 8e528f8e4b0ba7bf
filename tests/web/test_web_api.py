"""The JSON API over one real incident: shapes of the contract, paging, errors, and refusals."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import datetime
from typing import Any

import polars as pl
import pytest
from fastapi.testclient import TestClient

from parsers.job_states import JOB_STATES
from store import open_store
from store.tables import RUNS
from web import chain
from web.app import create_app

V1 = "/api/v1"


def get(client: TestClient, path: str, **params: Any) -> Any:
    answer = client.get(V1 + path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_incident_has_the_contracts_members(client: TestClient) -> None:
    found = get(client, "/incidents/I1")
    assert found["root_cause"] == {"event": "nic.link_down", "code": None, "host": "gpu02", "device": "eth0"}
    assert found["chain"][0]["because"] == "SlurmdTimeout=24, MessageTimeout=10"
    assert {"candidates", "hosts", "jobs", "slowed_jobs", "events", "severity", "category"} <= set(found)


def test_incidents_filter_by_job_host_and_range(client: TestClient) -> None:
    def ids(**params: str) -> list[str]:
        return [item["id"] for item in get(client, "/incidents", **params)["incidents"]]

    assert ids() == ["I1", "I0"]
    assert ids(job="15") == ["I1"] and ids(job="16") == []
    assert ids(host="leaf01") == ["I1"] and ids(severity="benign") == ["I0"]
    assert ids(**{"from": "2026-11-21T00:32:00Z", "to": "2026-11-21T00:33:00Z"}) == ["I1"]  # overlaps its end
    assert ids(**{"to": "2026-11-21T00:05:00Z"}) == []


@pytest.mark.parametrize(("path", "name", "key"), [("/incidents", "incidents", "id"), ("/jobs", "jobs", "run_key"),
                                                   ("/nodes", "nodes", "name"), ("/reports", "reports", "name")])  # fmt: skip
def test_pages_of_one_give_every_row_once(client: TestClient, path: str, name: str, key: str) -> None:
    whole = [row[key] for row in get(client, path)[name]]
    seen, cursor = [], None
    for _ in range(len(whole) + 1):
        body = get(client, path, limit=1, **({"cursor": cursor} if cursor else {}))
        seen += [row[key] for row in body[name]]
        cursor = body["next"]
        if cursor is None:
            break
    assert seen == whole and len(set(seen)) == len(seen)


def test_a_restarted_run_is_found_by_its_encoded_key(client: TestClient) -> None:
    assert get(client, "/jobs/14%231")["attempt"] == 1
    assert get(client, "/jobs/15")["verdict"]["your_code"] is False


def test_a_job_that_ended_well_has_no_verdict_and_says_so(client: TestClient) -> None:
    answer = client.get(f"{V1}/jobs/16/verdict")
    assert answer.status_code == 404 and "COMPLETED" in answer.json()["detail"]


def test_lines_of_a_window_and_around_one(client: TestClient) -> None:
    body = get(client, "/lines", **{"from": "2026-11-21T00:30:52.7Z", "to": "2026-11-21T00:30:52.71Z", "host": "ctl"})
    assert [row["line"] for row in body["lines"]] == [7, 8, 3] and body["truncated"] is False
    near = get(client, "/lines", file="hosts/ctl/slurmctld.log", around_line=8, limit=2)["lines"]
    assert [row["line"] for row in near] == [6, 7, 8, 9, 10]
    assert get(client, "/lines", limit=3)["truncated"] is True


def test_axis_stands_on_the_first_evidence_and_numbers_like_the_chain(client: TestClient) -> None:
    axis = get(client, "/axis/I1")
    assert axis["t0"] == "2026-11-21T00:30:17.735336Z"
    assert [arrow["n"] for arrow in axis["arrows"]] == [3, 4, 5, 6, 7]
    assert [root["n"] for root in axis["roots"]] == [1, 2]
    groups = [lane["group"] for lane in axis["lanes"]]
    assert groups == sorted(groups, key=axis["groups"].index)
    bars = {band["job"]: band for band in axis["bands"] if band["kind"] == "job"}
    assert bars["15"]["ending"] == "bad" and bars["15"]["end"] == pytest.approx(
        34.972664
    )  # the line, not sacct's second
    assert {band["kind"] for band in axis["bands"]} >= {"no_carrier", "late", "down", "silent", "job"}


def test_late_streams_are_counted(client: TestClient) -> None:
    body = get(client, "/sources")
    assert body["late"] == sum(row["late"] for row in body["sources"]) > 0


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [("/incidents/none", 404, "none"), ("/jobs/999", 404, "999"), ("/nodes/none", 404, "none"),
     ("/jobs?from=soon", 400, "soon"),
          ("/jobs?cursor=zzz", 400, "cursor"), ("/jobs?limit=0", 422, "limit"), ("/lines?around_line=3", 400, "file"),
     ("/incidents?from=2026-01-02&to=2026-01-01", 400, "before"), ("/nothing", 404, "/api/v1/nothing")],
)  # fmt: skip
def test_errors_are_problem_details_that_name_what_is_wrong(
    client: TestClient, path: str, status: int, word: str
) -> None:
    answer = client.get(V1 + path)
    assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status and word in body["detail"] and body["title"]


def test_values_are_bound_and_never_become_sql(client: TestClient) -> None:
    for evil in ("' OR 1=1 --", "x'; DROP TABLE raw.logs; --", "%"):
        assert get(client, "/lines", host=evil)["lines"] == []
        assert client.get(f"{V1}/jobs/{evil}").status_code == 404
    assert get(client, "/lines", limit=1)["lines"]


def test_query_error_has_its_place(client: TestClient) -> None:
    answer = client.post(f"{V1}/query", json={"query": "Logs\n| where Hots == 1"})
    assert answer.status_code == 400 and answer.headers["content-type"] == "application/problem+json"
    assert {name: answer.json()[name] for name in ("line", "column", "length", "message", "suggestion")} == {
        "line": 2, "column": 9, "length": 4, "message": "unknown name 'Hots'", "suggestion": "Host"}  # fmt: skip


def test_a_query_that_is_not_sent_as_json_is_told_so(client: TestClient) -> None:
    answer = client.post(f"{V1}/query", content='{"query": "Jobs"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 415 and "application/json" in answer.json()["do"]
    broken = client.post(f"{V1}/query", content="{x", headers={"content-type": "application/json"})
    assert broken.status_code == 422 and "double quotes" in broken.json()["detail"]


@pytest.mark.parametrize("packed", [gzip.compress(b'{"query": "Jobs"}'), b"{}"], ids=["packed", "not packed"])
def test_a_packed_query_is_refused_by_the_packings_name(client: TestClient, packed: bytes) -> None:
    """Only receivers unpack; ``{}`` is text, whatever its header says."""
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = client.post(f"{V1}/query", content=packed, headers=headers)
    assert answer.status_code == 415 and "gzip" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"query": "print ['\ud800']"}, 422),
        ({"query": "print 1", "\ud800": 1}, 422),
        ({"query": "print x", "parameters": {"\ud800": 1}}, 400),
        ({"query": r"print ['\ud800'] = 1"}, 200),
    ],
)
def test_half_a_character_is_no_error_of_ours(client: TestClient, body: dict[str, Any], status: int) -> None:
    """The problem repeated the name, and could not be written as UTF-8."""
    sent = client.post(f"{V1}/query", content=json.dumps(body), headers={"content-type": "application/json"})
    assert sent.status_code == status


def test_query_passes_limits_on_and_keeps_json_valid(client: TestClient) -> None:
    query = "declare query_parameters(n:long); range i from 1 to n step 1 | extend x = real(nan)"
    body: dict[str, Any] = {"query": query, "parameters": {"n": 9}, "max_rows": 2}
    answer = client.post(f"{V1}/query", json=body)
    assert answer.headers["content-type"] == "application/json"
    document = json.loads(answer.text, parse_constant=lambda word: pytest.fail(word))
    assert document.pop("elapsed_ms") > 0
    assert document == {
        "columns": [{"name": "i", "type": "long"}, {"name": "x", "type": "real"}], "rows": [[1, "NaN"], [2, "NaN"]],
        "truncated": True,
    }  # fmt: skip
    slow = {"query": "range i from 1 to 100000000 step 1 | summarize count() by i * 7 % 99999989", "timeout_s": 0.05}
    assert client.post(f"{V1}/query", json=slow).status_code == 504


def test_query_is_validated_unrun_with_its_parameters(client: TestClient) -> None:
    query = "declare query_parameters(n:long); range i from 1 to n step 1"
    body = {"query": query, "parameters": {"n": 10**12}, "validate_only": True}
    document = client.post(f"{V1}/query", json=body).json()
    assert document["columns"] == [{"name": "i", "type": "long"}] and document["rows"] == []


def test_openapi_health_and_metrics(client: TestClient) -> None:
    paths = client.get(f"{V1}/openapi.json").json()["paths"]
    assert f"{V1}/incidents/{{incident_id}}" in paths and f"{V1}/query" in paths
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["rows"]["model.incidents"] == 2
    client.get(f"{V1}/incidents/I1")
    assert 'route="/api/v1/incidents/{incident_id}"' in client.get("/metrics").text


def test_an_axis_that_did_not_change_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/api/v1/axis/I1")
    again = client.get("/api/v1/axis/I1", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"") and first.json()["marks"]
    assert client.get("/api/v1/axis/I1", headers={"if-none-match": '"other"'}).status_code == 200


def test_the_table_of_a_large_incident_has_the_chain_and_the_first_rows() -> None:
    events = [{"id": f"E{n:05}", "time": f"2026-11-21T00:00:00.{n:06}Z", "role": "symptom"} for n in range(10_000)]
    events[9_000]["role"] = "cause"
    document = {"events": events, "chain": [{"cause": "E09000", "effect": "E09900", "lag_s": 0.0009}]}
    rows = chain.table_rows(document)
    ids = [item["id"] for item, *_ in rows]
    assert len(ids) == chain.TABLE_ROWS and ids == sorted(ids) and ids[-2:] == ["E09000", "E09900"]
    assert rows[-1][1] == document["chain"][0] and rows[-1][2] == pytest.approx(0.0009)


@pytest.mark.parametrize(("method", "path", "allow"), [
    ("PUT", "/api/v1/jobs/15/feedback", "GET, HEAD, POST"), ("GET", "/api/v1/query", "POST"), ("DELETE", "/jobs/15", "GET, HEAD"),
    ("POST", "/healthz", "GET, HEAD"), ("HEAD", "/api/v1/tail", "GET"),
])  # fmt: skip
def test_a_method_that_is_none_is_reported_those_that_are(
    client: TestClient, method: str, path: str, allow: str
) -> None:
    for accept in ("application/json", "text/html"):
        answer = client.request(method, path, headers={"accept": accept})
        assert (answer.status_code, answer.headers["allow"]) == (405, allow)


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/nodes", "/jobs/15", "/static/app.js", "/nothing"])
def test_the_head_of_an_answer_is_the_answer_without_its_body(client: TestClient, path: str) -> None:
    head, whole = client.head(path), client.get(path)
    assert (head.status_code, head.headers["content-type"]) == (whole.status_code, whole.headers["content-type"])
    assert head.content == b"" and whole.content


def cursor_of(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize("path", ["incidents", "jobs", "nodes", "repairs", "sources"])
@pytest.mark.parametrize(
    "parts", [("x", "y"), ("2026-01-01", 5), (5,), (None,), ({"a": 1},), (True,), (None, None), ()]
)
def test_a_forged_cursor_is_the_clients_mistake(client: TestClient, path: str, parts: tuple[object, ...]) -> None:
    answer = client.get(f"/api/v1/{path}", params={"cursor": cursor_of(*parts)})
    assert answer.status_code == 400 or (path, parts) == ("repairs", (5,)), answer.text
    nested = base64.urlsafe_b64encode(b"[" * 40_000).decode()
    assert client.get(f"/api/v1/{path}", params={"cursor": nested}).status_code == 400


def test_a_range_that_ends_before_it_begins_is_stated_so(client: TestClient) -> None:
    stated = client.get("/api/v1/incidents?from=2026-11-22&to=2026-11-21").json()["detail"]
    assert stated == "to='2026-11-21' is before from='2026-11-22'; give the earlier time first"


@pytest.mark.parametrize(("asked", "near"), [("99", []), ("155", ["15"]), ("1", [])])
def test_a_short_number_is_near_to_few_others(client: TestClient, asked: str, near: list[str]) -> None:
    found = client.get(f"/api/v1/jobs/{asked}").json().get("suggestions", [])
    assert [item["text"].removeprefix("job ") for item in found if item["text"] in ("job 15", "job 16")] == near


def test_failed_jobs_are_those_that_ended_and_not_well() -> None:
    """A suspended or resizing job is still active."""
    store = open_store(None)
    states = [*JOB_STATES, ""]
    with store.write() as writer:
        writer.insert(RUNS, pl.DataFrame({
            "run_key": [str(100 + place) for place in range(len(states))], "job_id": [100 + place for place in range(len(states))],
            "state": states, "start": [datetime(2026, 11, 21, 0, place) for place in range(len(states))],
        }))  # fmt: skip
    client = TestClient(create_app(store), raise_server_exceptions=False)
    listed = {row["state"] for row in get(client, "/jobs", state="failed", limit=100)["jobs"]}
    assert not listed & {"SUSPENDED", "RESIZING", "RUNNING", "PENDING", "CONFIGURING", "COMPLETING", "COMPLETED", ""}
    assert listed >= {"FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED", "PREEMPTED", "OUT_OF_MEMORY", "REQUEUED"}
    page = client.get("/jobs?state=failed").text
    assert "NODE_FAIL" in page and "SUSPENDED" not in page and "RESIZING" not in page
    assert [row["state"] for row in get(client, "/jobs", state="SUSPENDED")["jobs"]] == ["SUSPENDED"]
