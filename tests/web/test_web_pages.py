"""Pages as text: honest states, hostile lines, headers, and nothing that depends on an inline script."""

from __future__ import annotations

import json
import re
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient

from web.app import create_app
from web.pages import HERE
from web.shaping import brief, sentences, span, window

PAGES = ("/", "/incidents", "/incidents/I0", "/incidents/I1", "/jobs", "/jobs/15", "/jobs/14%231", "/jobs/16", "/nodes",
         "/nodes/gpu02", "/nodes/gpu04", "/repairs", "/fleet?incident=I0", "/reports", "/explore", "/dashboards", "/dashboards/network?tables=yes", "/search?q=script", "/nowhere")  # fmt: skip
HTML = {"accept": "text/html"}


@pytest.mark.parametrize("path", PAGES)
def test_no_page_lets_a_line_become_markup(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=HTML)
    assert answer.status_code in {200, 404}
    assert "<script>alert" not in answer.text and "<img src=x" not in answer.text
    # The policy forbids inline script and style, so a page that has some is broken.
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=[\"']|\sstyle=[\"']", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy and "default-src 'none'" in policy


def test_hostile_query_text_stays_text(client: TestClient) -> None:
    answer = client.get("/explore", params={"q": "</textarea><script>alert(1)</script>"}, headers=HTML)
    assert "<script>alert" not in answer.text and "&lt;/textarea&gt;" in answer.text


def test_incident_says_its_sentence_its_lag_and_its_doubts(client: TestClient) -> None:
    text = client.get("/incidents/I1").text
    for words in ("eth0 of gpu02 lost its link for 60.0 s.", "16–50 s", "SlurmdTimeout=24", "Almost certain",
                  "Known only at 00:31:18", "clocks agree", "Kernel uptime runs on"):  # fmt: skip
        assert words in text
    assert "Provisional" in client.get("/incidents/I0").text


def test_job_says_whether_it_was_the_users_code_and_keeps_secrets(client: TestClient) -> None:
    text = client.get("/jobs/15").text
    assert "not because of your code" in text and "not your code" in text and "hf_never_shown" not in text
    unknown = client.get("/jobs/14%231").text
    assert "is not known" in unknown and "not your code" not in unknown
    assert ">Not known</b>" in unknown and not re.search(r">\s*0\.2\b", unknown), "no confidence in a cause"
    listed = client.get("/jobs").text
    assert "0.97" in listed and ">0.2<" not in listed


def test_secrets_are_withheld_from_the_api_too(client: TestClient) -> None:
    assert "hf_never_shown" not in client.get("/api/v1/jobs/15").text


def test_missing_things_say_what_to_do(client: TestClient) -> None:
    answer = client.get("/jobs/999", headers=HTML)
    assert answer.status_code == 404 and "There is no job run 999." in answer.text and "list of jobs" in answer.text
    assert "in the address" in client.get("/jobs?from=soon", headers=HTML).text


def test_an_empty_store_gives_reasons_and_not_errors() -> None:
    store = fixture.build()
    for table in ("model.incidents", "model.runs", "model.events", "model.node_states", "raw.logs"):
        store.con.execute(f"DELETE FROM {table}")
    empty = TestClient(create_app(store))
    for path in ("/", "/jobs", "/nodes", "/sources"):
        text = empty.get(path).text
        assert "Nothing is stored yet" in text and "agent enroll --server http://testserver" in text, path
    assert "No accounting is loaded" in empty.get("/jobs").text
    assert "How to load some" in empty.get("/search?q=x").text


def test_a_store_without_incidents_says_what_is_in_it_and_which_jobs_failed() -> None:
    store = fixture.build()
    store.con.execute("DELETE FROM model.incidents")
    text = TestClient(create_app(store)).get("/").text
    assert "No incident in what is stored" in text and "/jobs?state=failed" in text and "agent enroll" not in text
    for table in ("raw.logs", "model.events"):
        store.con.execute(f"DELETE FROM {table}")
    assert "No log line is stored" in TestClient(create_app(store)).get("/").text


@pytest.mark.parametrize(
    ("path", "meant"),
    [("/jobs/15%237", "/jobs/15"), ("/jobs/165", "/jobs/15"), ("/nodes/gpu20", "/nodes/gpu02"), ("/nodes/gpu02.example.org", "/nodes/gpu02"),
     ("/incidents/i", "/incidents/I1"), ("/job/15", "/jobs/15"), ("/node", "/nodes"), ("/search?q=gpu022", "/nodes/gpu02"),
     ("/jobs?q=166", "/jobs/16"), ("/nodes?q=gpux02", "/nodes/gpu02")],
)  # fmt: skip
def test_what_is_not_there_names_what_may_be_meant(client: TestClient, path: str, meant: str) -> None:
    text = client.get(path, headers=HTML).text
    assert re.search(rf'Did you mean.*?href="{re.escape(meant)}"', text, re.S), text[-1500:]


def test_programs_are_told_what_may_be_meant_too(client: TestClient) -> None:
    near = client.get("/api/v1/nodes/gpu20").json()["suggestions"]
    assert {"text": "node gpu02", "href": "/nodes/gpu02"} in near
    assert "suggestions" not in client.get("/zzz", headers={"accept": "application/json"}).json()


@pytest.mark.parametrize("said", ["15", "JobId=15", "job 15", "Job:15"])
def test_a_job_is_found_as_lines_and_people_name_it(client: TestClient, said: str) -> None:
    answer = client.get("/search", params={"q": said}, follow_redirects=False)
    assert answer.status_code == 303 and answer.headers["location"] == "/jobs/15"


def test_a_task_of_an_array_names_its_sisters_the_failed_ones_first() -> None:
    store = fixture.build()
    store.con.execute("UPDATE model.runs SET array_job_id = 900, array_task_id = job_id")
    text = TestClient(create_app(store)).get("/jobs/16").text
    tasks = text[text.index('id="arr"') :]
    ends = re.findall(r'<td class="(?:k-impact)?">(\w+)</td>', tasks)
    assert "NODE_FAIL" in ends[:2] and ends.count("COMPLETED") < len(ends)


def test_a_broken_document_is_a_doubt_and_not_a_500(client: TestClient) -> None:
    store = fixture.build()
    store.con.execute("UPDATE model.incidents SET document = '{}' WHERE incident_id = 'I1'")
    bare = TestClient(create_app(store))
    assert "nic.link_down on gpu02" in bare.get("/incidents/I1").text
    assert bare.get("/api/v1/axis/I1").status_code == 200


def test_theme_is_pinned_by_address_then_cookie(client: TestClient) -> None:
    assert 'data-theme="light"' in client.get("/?theme=light").text
    assert 'data-theme="dark"' in client.get("/", cookies={"theme": "dark"}).text
    client.cookies.clear()
    assert "data-theme" not in client.get("/?theme=%22%3E").text


def test_search_opens_what_it_names_exactly(client: TestClient) -> None:
    for words, place in (
        ("15", "/jobs/15"),
        ("14#1", "/jobs/14%231"),
        ("gpu02", "/nodes/gpu02"),
        ("I1", "/incidents/I1"),
    ):
        answer = client.get("/search", params={"q": words}, follow_redirects=False)
        assert answer.status_code == 303 and answer.headers["location"] == place
    assert "No route to host" in client.get("/search", params={"q": "No route"}).text


@pytest.mark.parametrize(
    ("pair", "words"),
    [([16, 50], "16–50 s"), ([-300.0, 300.0], "−300 to 300 s"), ([-1.0, 2.0], "−1 to 2 s"), ([0.0, 14 * 86400.0], "0–14 days"),
     ([-86400.0, 14 * 86400.0], "−1 to 14 days"), (None, ""), ([1], "")],
)  # fmt: skip
def test_a_window_that_begins_before_its_cause_is_no_chain_of_dashes(pair: Any, words: str) -> None:
    assert window(pair) == words


def test_a_line_of_no_known_host_has_an_empty_place_for_it(client: TestClient) -> None:
    text = client.get("/search", params={"q": "said by nobody"}).text
    assert "loose.txt" in text and ">None" not in text and "None</" not in text


SPANS = [(0.0002, "200 µs"), (0.003, "3 ms"), (34.973, "35.0 s"), (-0.001, "−1 ms"), (900, "15 min")]


@pytest.mark.parametrize(("seconds", "words"), [*SPANS, (9000, "2 h 30 min"), (None, "unknown")])
def test_durations_as_people_say_them(seconds: float | None, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["COMPLETED", "ran on other nodes"], "COMPLETED. Ran on other nodes."),
        (["Both ends saw it.", "5 of 5 lags fit"], "Both ends saw it. 5 of 5 lags fit."),
        (["went on", None, ""], "Went on."),
        ([], ""),
        (None, ""),
    ],
)
def test_facts_in_a_row_read_as_sentences(texts: list[str] | None, words: str) -> None:
    assert sentences(texts) == words


def test_jobs_of_an_incident_are_reported_in_sentences_and_counted_whole() -> None:
    store = fixture.build()
    survivors = [{"job_id": str(900 + n), "state": "COMPLETED", "why": "ran on other nodes"} for n in range(11)]
    hit = [{"job_id": "15", "name": "train", "user": "ann", "state": "NODE_FAIL", "gpus": 8, "confidence": 0.97}]
    document = {"jobs": hit, "slowed_jobs": ["15", "16"], "unaffected_jobs": survivors, "unaffected_count": 40}
    store.con.execute("UPDATE model.incidents SET document = ? WHERE incident_id = 'I1'", [json.dumps(document)])
    text = re.sub(r"\s+", " ", TestClient(create_app(store)).get("/incidents/I1").text)
    for words in ("1 hit, 1 slowed, 40 untouched", "ann, 8 GPU", "Almost certain because of this.",
                  "COMPLETED. Ran on other nodes.", "3 more untouched; 29 others are not listed"):  # fmt: skip
        assert words in text
    assert text.count("<b>15 train</b>") == 1 and text.count("Slowed, not ended.") == 1


def test_many_devices_are_the_first_and_how_many_more(client: TestClient) -> None:
    store = fixture.build()
    names = ",".join(f"0000:{n:02x}:00.0" for n in range(40))
    store.con.execute("UPDATE model.incidents SET root_device = ? WHERE incident_id = 'I1'", [names])
    made = TestClient(create_app(store))
    for path in ("/", "/incidents/I1"):
        assert "0000:00:00.0 and 39 more" in made.get(path).text


@pytest.mark.parametrize("folder", ["templates", "static"])
def test_the_structure_of_a_page_can_be_read(folder: str) -> None:
    """Templates, scripts and styles are written for readers: no line is longer than a Python line may be."""
    files = [
        path
        for path in (HERE / folder).rglob("*")
        if path.suffix in {".html", ".js", ".css"} and "vendor" not in path.parts
    ]
    long = [
        f"{path.name}:{n}"
        for path in files
        for n, text in enumerate(path.read_text().splitlines(), 1)
        if len(text) > 120
    ]
    assert files and long == []


def page_of(store: fixture.FakeStore, path: str) -> str:
    return re.sub(r"\s+", " ", TestClient(create_app(store)).get(path).text)


def test_a_list_of_runs_without_accounting_says_what_it_lacks(client: TestClient) -> None:
    store = fixture.build()
    assert "No accounting is loaded" not in page_of(store, "/jobs")
    store.con.execute('UPDATE model.runs SET "user" = NULL')
    store.con.execute("""UPDATE model.runs SET "end" = NULL, state = 'RUNNING' WHERE run_key = '16'""")
    text = page_of(store, "/jobs")
    assert "these runs come from slurmctld&#39;s log" in text and "sacct --parsable2" in text
    assert "has not ended" in text


def test_a_rival_that_nothing_rejects_is_not_counted_as_rejected() -> None:
    store = fixture.build()
    rivals = [{"cause": "panic", "host": "a", "rejected": "no boot line"},
              {"cause": "link lost", "host": "b", "rejected": "not rejected: it may have ended the run as well"}]  # fmt: skip
    store.con.execute(
        "UPDATE model.incidents SET document = ? WHERE incident_id = 'I1'", [json.dumps({"rivals": rivals})]
    )
    text = page_of(store, "/incidents/I1")
    assert "1 rejected, 1 not" in text and text.index("link lost") < text.index("panic")


@pytest.mark.parametrize(("qualities", "in_head", "in_lines"), [(["inferred"], 1, 0), (["inferred", "line"], 0, 1)])
def test_times_that_are_all_inferred_are_stated_to_be_so_once(
    qualities: list[str], in_head: int, in_lines: int
) -> None:
    store = fixture.build()
    evidence = [{"time": f"2026-11-21T00:30:{n}0Z", "host": "a", "message": "x", "time_quality": q, "source": "a/b"}
                for n, q in enumerate(qualities)]  # fmt: skip
    store.con.execute("UPDATE model.runs SET document = ? WHERE run_key = '16'", [json.dumps({"evidence": evidence})])
    text = page_of(store, "/jobs/16")
    assert text.count("all times inferred") == in_head and text.count(">time inferred<") == in_lines


@pytest.mark.long
def test_operators_answers_stand_on_the_job_and_on_its_incident() -> None:
    store = fixture.build()
    assert "1 answer<" not in page_of(store, "/incidents/I1")
    store.con.execute(
        "CREATE SCHEMA kept; CREATE TABLE kept.feedback (cluster VARCHAR, run_key VARCHAR, incident_id VARCHAR, answer VARCHAR, category VARCHAR,"
        " event VARCHAR, host VARCHAR, device VARCHAR, note VARCHAR, author VARCHAR, given_at TIMESTAMP,"
        " said_category VARCHAR, said_event VARCHAR)"
    )
    answer = {"cluster": "mini", "run_key": "15", "incident_id": "I1", "answer": "wrong", "category": "infra.gpu", "event": "gpu.xid",
              "author": "ann", "note": "<b>seen</b> by eye", "said_category": "infra.network"}  # fmt: skip
    fixture.insert(store.con, "kept.feedback", answer)
    for path in ("/jobs/15", "/incidents/I1"):
        text = page_of(store, path)
        assert "it was infra.gpu gpu.xid; the verdict was infra.network" in text and "&lt;b&gt;seen" in text
    assert '<a href="/jobs/15"><b>15</b></a>' in page_of(store, "/incidents/I1").split("1 answer<")[1]
    assert "1 answer<" not in page_of(store, "/jobs/16") and "1 answer<" not in page_of(store, "/incidents/I0")


def test_a_search_that_finds_exactly_as_many_as_are_shown_says_how_many() -> None:
    """It said "first 10; narrow the words" of ten, as if there were more."""
    store = fixture.build()
    for count, note in ((10, ">10 <"), (11, "first 10; narrow the words or the range")):
        store.con.execute("DELETE FROM model.runs")
        fixture.insert(store.con, "model.runs", *(
            {"run_key": str(n), "job_id": n, "cluster": "mini", "attempt": 0, "name": "sought", "state": "COMPLETED", "start": "2026-11-21T00:30:00"}
            for n in range(100, 100 + count)
        ))  # fmt: skip
        panel = re.sub(r"\s*\n\s*", "", page_of(store, "/search?q=sought").split("<h2>Jobs</h2>")[1][:120])
        assert note in panel, count


def test_the_list_says_first_what_the_range_cost_and_whether_it_is_over() -> None:
    store = fixture.build()
    document = {"title": "A died. Job 15 ended FAILED. Jobs 3, 4#1 and 9 more were untouched.", "gpu_hours_lost": 2.25,
                "jobs": [{"job_id": "15"}, {"job_id": "16"}], "slowed_jobs": ["15", "17"]}  # fmt: skip
    store.con.execute("UPDATE model.incidents SET document = ? WHERE incident_id = 'I1'", [json.dumps(document)])
    text = page_of(store, "/")
    assert "1 incident in all that is stored ended 2 job runs." in text
    assert "1 job run was slowed." in text and "2.2 GPU-hours lost in all." in text
    assert "A died. Job 15 ended FAILED.</h2>" in text and "None is under way." in text
    store.con.execute("""UPDATE model.incidents SET "end" = NULL WHERE incident_id = 'I1'""")
    assert "1 incident still under way." in page_of(store, "/")
    store.con.execute("UPDATE model.incidents SET severity = 'benign'")
    assert "No incident in all that is stored ended a job." in page_of(store, "/")


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("X failed. Job 16 was untouched.", "X failed."),
        ("X failed. Jobs 1, 2_3 and 4#1 were untouched.", "X failed."),
        ("Nobody was untouched.", "Nobody was untouched."),
        ("Job 16 was untouched. It went on.", "Job 16 was untouched. It went on."),
        (None, ""),
    ],
)
def test_a_list_leaves_out_what_an_incident_did_not_touch(title: str | None, words: str) -> None:
    assert brief(title) == words
