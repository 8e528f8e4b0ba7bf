"""Two clusters in one store that both ran a job 15: neither hides the other, on the command line and on the pages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fastapi.testclient import TestClient

from collector.identity import cluster_aliases
from collector.ingest import Ingest, Options
from collector.ledger import Ledger
from correlator.engine import correlate, result
from correlator.incidents import lemons
from correlator.site.senders import SENDING_SETTING
from faultline.cli import run
from faultline.cluster_doubts import two_names
from faultline.config import validate
from faultline.receiving import Receiving
from faultline.service import Service
from parsers.engine import LineParser
from queries import reports
from store import open_store
from store.duckdb.store import DuckStore
from web.app import create_app

CAPTURES = Path(__file__).parents[1] / "captures"
PAGE = {"accept": "text/html"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """East lost gpu02's link; west is the same cluster without one of its logs, so less is known."""
    folder = tmp_path_factory.mktemp("clusters")
    capture, parser = CAPTURES / "mgmt_flap_long", LineParser()
    west = [capture / "slurm" / "sacct.psv", capture / "hosts" / "ctl", capture / "jobs"]
    with open_store(folder) as store:
        Ingest(store, Options(cluster="east"), parser=parser).run([capture])
        Ingest(store, Options(cluster="west"), parser=parser).run(west)
        # What only west's log host has counts, since no user can send to it.
        correlate(store, settings={SENDING_SETTING: False})
    return folder


@pytest.fixture(scope="module")
def pages(data: Path) -> Iterator[TestClient]:
    with open_store(data, read_only=True) as store:
        yield TestClient(create_app(store))


def test_each_run_has_its_verdict(data: Path) -> None:
    with open_store(data, read_only=True) as store:
        found = result(store)
        runs = store.rows("SELECT DISTINCT cluster, run_key FROM model.runs WHERE document IS NOT NULL")
    assert len(found["verdicts"]) == len(runs)
    assert {key: v["cluster"] for key, v in found["verdicts"].items() if "15" in key} == {
        "15": "east",
        "15@west": "west",
    }
    stated = {i["cluster"]: [job["job_id"] for job in i["jobs"]] for i in found["incidents"] if i["jobs"]}
    assert stated == {"east": ["15"], "west": ["15@west"]}


@pytest.mark.parametrize(("asked", "key", "cluster"), [
    ("15", "15", "east"), ("15@east", "15", "east"), ("15@west", "15@west", "west"),
])  # fmt: skip
def test_why_says_whose_run_it_is(
    data: Path, asked: str, key: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["why", asked, "--data", str(data), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    reported: dict[str, Any] = json.loads(out)
    assert (reported["job_id"], reported["verdict"]["cluster"], reported["incident"]["cluster"]) == (
        key,
        cluster,
        cluster,
    )
    other = {"15": "15@west", "15@west": "15"}[key]
    assert err == f"faultline: this is the run of cluster {cluster}; there is also {other}\n"


def test_a_cluster_that_has_no_such_run_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "15@north", "--data", str(data)]) == 2
    assert "15@north" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "cluster"), [("15", "east"), ("15@east", "east"), ("15@west", "west")])
def test_a_page_is_of_one_run(pages: TestClient, key: str, cluster: str) -> None:
    reported = pages.get(f"/api/v1/jobs/{key}").json()
    assert {reported["cluster"], *(run["cluster"] for run in reported["runs"])} == {cluster}
    page = pages.get(f"/jobs/{key}", headers={"accept": "text/html"})
    assert page.status_code == 200 and page.text.count('id="rn"') == 1


def test_lists_lead_to_both(pages: TestClient) -> None:
    listed = {row["run_key"]: row["cluster"] for row in pages.get("/api/v1/jobs?q=15").json()["jobs"]}
    assert listed == {"15": "east", "15@west": "west"}
    for incident in pages.get("/api/v1/incidents").json()["incidents"]:
        for job in incident["jobs"]:
            assert pages.get(f"/api/v1/jobs/{job['job_id']}").json()["cluster"] == incident["cluster"]
            assert f"/jobs/{job['job_id'].replace('@', '%40')}" in pages.get(f"/incidents/{incident['id']}").text


def test_hosts_of_the_same_name_are_two_nodes(pages: TestClient) -> None:
    listed = {row["name"]: (row["host"], row["cluster"]) for row in pages.get("/api/v1/nodes").json()["nodes"]}
    assert (listed["gpu02@east"], listed["gpu02@west"]) == (("gpu02", "east"), ("gpu02", "west"))
    assert listed["gpu03"] == ("gpu03", "east"), "one cluster's host keeps its name"
    first = pages.get("/api/v1/nodes?limit=2").json()
    rest = pages.get("/api/v1/nodes", params={"cursor": first["next"]}).json()
    assert [row["name"] for row in (*first["nodes"], *rest["nodes"])] == list(listed)


@pytest.mark.parametrize("cluster", ["east", "west"])
def test_a_node_has_its_own_clusters_runs_incidents_states_and_events(pages: TestClient, cluster: str) -> None:
    reported = pages.get(f"/api/v1/nodes/gpu02@{cluster}").json()
    assert (
        {run["cluster"] for run in reported["jobs"]}
        == {incident["cluster"] for incident in reported["incidents"]}
        == {cluster}
    )
    ids = {event["event_id"] for event in reported["recent_events"]}
    other = pages.get(f"/api/v1/nodes/gpu02@{'west' if cluster == 'east' else 'east'}").json()
    assert not ids & {event["event_id"] for event in other["recent_events"]}
    assert {"east": 6, "west": 3}[cluster] == len(ids), "west's own logs of gpu02 were not loaded"
    risk = pages.get(f"/api/v1/nodes/gpu02@{cluster}/risk").json()
    assert {item["id"] for item in risk["incidents"]} <= {item["id"] for item in reported["incidents"]}
    page = pages.get(f"/nodes/gpu02@{cluster}", headers=PAGE).text
    assert f"<h1>gpu02@{cluster}</h1>" in page and page.count('class="inc ') == len(reported["incidents"])
    assert pages.get("/api/v1/nodes/gpu03@east").json()["name"] == "gpu03", "the cluster may be said where it need not"


def test_a_name_that_two_clusters_use_is_asked_back(pages: TestClient) -> None:
    answer = pages.get("/api/v1/nodes/gpu02")
    assert (
        answer.status_code == 404 and answer.json()["detail"] == "2 clusters have a node gpu02: gpu02@east, gpu02@west."
    )
    page = pages.get("/nodes/gpu02", headers=PAGE).text
    assert 'href="/nodes/gpu02%40east"' in page and 'href="/nodes/gpu02%40west"' in page
    found = pages.get("/search?q=gpu02", headers=PAGE, follow_redirects=False)
    assert found.status_code == 200 and 'href="/nodes/gpu02%40west"' in found.text, (
        "no cluster's node is opened as the one"
    )
    assert pages.get("/search?q=gpu03", follow_redirects=False).headers["location"] == "/nodes/gpu03"


def test_pages_of_a_cluster_lead_to_its_nodes(pages: TestClient) -> None:
    for incident in pages.get("/api/v1/incidents").json()["incidents"]:
        text = pages.get(f"/incidents/{incident['id']}", headers=PAGE).text
        assert f'href="/nodes/{incident["root_cause"]["host"]}%40{incident["cluster"]}"' in text
        assert f'data-cluster="{incident["cluster"]}"' in text, "the lines at the cursor are of the same cluster"
    for key, cluster in (("15", "east"), ("15@west", "west")):
        text = pages.get(f"/jobs/{key}", headers=PAGE).text
        other = {"east": "west", "west": "east"}[cluster]
        assert f"/nodes/gpu02%40{cluster}" in text and f"%40{other}" not in text.replace(f"/jobs/15%40{other}", "")


def test_lines_of_a_host_can_be_asked_by_cluster(pages: TestClient) -> None:
    def of(**more: str) -> set[str]:
        return {row["cluster"] for row in pages.get("/api/v1/lines", params={"host": "ctl", **more}).json()["lines"]}

    assert of() == {"east", "west"} and of(cluster="west") == {"west"}


#: For each: the clusters named by lines, accounting and other evidence, the setting, what is the same, what is doubted.
NAMES: dict[str, tuple[list[str | None], list[str], list[str], str | None, list[str], list[str]]] = {
    "one cluster under two names": (["west"], ["mini"], [], "west", ["mini"], []),
    "lines without a name are the setting's": (["west", None], ["mini"], ["mini", "west"], "west", ["mini"], []),
    "the same but for Slurm's small letters": (["West", "east"], ["west", "east"], ["east"], "West", ["west"], []),
    "accounting has both": (["west"], ["mini", "west"], [], "west", [], ["mini"]),
    "accounting has two others": (["west"], ["mini", "other"], [], "west", [], ["mini", "other"]),
    "a third is named by states of nodes": (["west"], ["mini"], ["east"], "west", [], ["mini"]),
    "lines of another cluster": (["west", "east"], ["mini"], [], "west", [], ["mini"]),
    "each has its lines": (["west", "mini"], ["mini"], [], "west", [], []),
    "no line of the setting": (["mini"], ["mini"], [], "west", [], []),
    "nothing is configured": (["west"], ["mini"], [], None, [], []),
    "they agree": (["west"], ["west"], [], "west", [], []),
}


def named(
    store: DuckStore, lines: Sequence[str | None], jobs: Sequence[str], states: Sequence[str] = (), node: str = "n1"
) -> None:
    con = store.cursor()
    for name in lines:
        con.execute("INSERT INTO raw.logs (cluster, host, message) VALUES (?, 'n1', 'x')", [name])
    for name in jobs:
        con.execute("INSERT INTO raw.jobs (cluster, job_id, nodes) VALUES (?, 15, [?])", [name, node])
    for name in states:
        con.execute("INSERT INTO raw.node_states (cluster, host) VALUES (?, 'n1')", [name])


@pytest.mark.parametrize("case", NAMES)
def test_one_cluster_under_two_names_gets_one_where_nothing_speaks_for_a_second(case: str) -> None:
    lines, jobs, states, configured, same, doubted = NAMES[case]
    with open_store(None) as store:
        named(store, lines, jobs, states)
        reported = two_names(store, configured)
        assert [text.partition("accounting tells of ")[2].split(",")[0] for text in reported] == [
            repr(n) for n in doubted
        ]
        assert all(f"write cluster = {name!r}" in text for name, text in zip(doubted, reported, strict=True))
        assert cluster_aliases.unite(store, configured) == dict.fromkeys(same, configured)
        left = {
            row["cluster"]
            for row in store.rows("SELECT cluster FROM raw.jobs UNION SELECT cluster FROM raw.node_states")
        }
        assert left == {configured if name in same else name for name in (*jobs, *states)}


@pytest.mark.parametrize(
    ("sql", "doubted"),
    [
        ("UPDATE raw.logs SET host = 'elsewhere'", True),  # no node of its jobs logs under the setting's name
        ("INSERT INTO intake.sources (host, first_seen, last_seen) VALUES ('n1', '2026-11-21 10:00', '2026-11-21 10:04')", True),
        ("INSERT INTO intake.sources (host, first_seen, last_seen) VALUES ('n1', '2026-11-21 10:00', '2026-11-21 10:06')", False),
        ("INSERT INTO intake.nodes (host, cluster) VALUES ('n1', 'mini')", True),  # reported by an agent itself
        ("INSERT INTO intake.nodes (host, cluster) VALUES ('n1', NULL)", False),
    ],
)  # fmt: skip
def test_a_second_cluster_that_has_not_spoken_much_yet_keeps_its_name(sql: str, doubted: bool) -> None:
    with open_store(None) as store:
        Ledger(store, "spool")  # creates the tables of the receiving side
        named(store, ["west"], ["mini"])
        store.cursor().execute(sql)
        assert bool(two_names(store, "west")) is doubted
        assert cluster_aliases.unite(store, "west") == ({} if doubted else {"mini": "west"})


def test_what_comes_under_the_other_name_later_is_the_same_until_lines_say_otherwise() -> None:
    with open_store(None) as store:
        named(store, ["west"], ["mini"])
        assert cluster_aliases.unite(store, "west") == {"mini": "west"}
        named(store, [], ["mini"])  # loaded from a file meanwhile
        assert cluster_aliases.unite(store, "west") == {"mini": "west"} and two_names(store, "west") == []
        assert store.rows("SELECT DISTINCT cluster FROM raw.jobs") == [{"cluster": "west"}]
        rows = pl.DataFrame({"cluster": ["mini", None, "east"]})
        assert cluster_aliases.renamed(rows, {"mini": "west"})["cluster"].to_list() == ["west", None, "east"]
        assert cluster_aliases.unite(store, "north") == {}, "the setting was changed"
        assert cluster_aliases.unite(store, "west") == {"mini": "west"}, "and put back"
    with open_store(None) as store:
        named(store, ["west"], ["mini"])
        cluster_aliases.unite(store, "west")
        named(store, ["mini"], ["mini"])
        assert cluster_aliases.unite(store, "west") == {}, "it has lines of its own"


@pytest.mark.long
def test_a_service_gives_jobs_and_lines_of_its_cluster_one_name_and_goes_on_so(tmp_path: Path) -> None:
    config = validate({"data": str(tmp_path), "cluster": "west", "syslog": []}, "test")
    with open_store(tmp_path) as store:
        named(store, ["west"], ["mini"])
    store = open_store(tmp_path)
    receiving = Receiving(config, listeners=False)
    running = Service(config, store, receiving)
    try:
        running.start()
        accounting = "JobID|Cluster|State|NodeList|Submit|Start|End\n16|mini|COMPLETED|n1|2026-11-21T10:00:00|2026-11-21T10:00:00|2026-11-21T10:01:00\n"
        record = {
            "document": "sacct",
            "stream": "sacct",
            "host": "ctl",
            "raw": accounting,
            "read": "2026-11-21T16:40:00Z",
        }
        receiving.keep(json.dumps(record).encode() + b"\n", "k1")
        assert receiving.pipeline is not None and receiving.pipeline.drain(120)
        reported = store.rows("SELECT DISTINCT cluster, job_id FROM raw.jobs ORDER BY job_id")
        assert reported == [{"cluster": "west", "job_id": 15}, {"cluster": "west", "job_id": 16}]
    finally:
        running.stop()
        store.close()


def test_hosts_of_one_name_are_two_on_the_repair_list_with_the_jobs_that_each_hurt(pages: TestClient) -> None:
    listed = {(one["host"], one["cluster"]): one for one in pages.get("/api/v1/repairs").json()["repairs"]}
    east, west = listed["gpu02", "east"], listed["gpu02", "west"]
    assert (east["node"], east["ended"]) == ("gpu02@east", ["15"])
    assert (west["node"], west["ended"]) == ("gpu02@west", ["15@west"])
    page = pages.get("/repairs", headers=PAGE).text
    for name in ("/nodes/gpu02%40east", "/nodes/gpu02%40west", "/jobs/15%40west", '/jobs/15"'):
        assert name in page, name


def test_a_lemon_is_one_clusters_node(data: Path) -> None:
    with open_store(None) as store:
        con = store.cursor()
        for cluster in ("east", "west"):
            con.execute(
                "INSERT INTO model.events (event_id, cluster, host, event) VALUES (?, ?, 'gpu02', 'x')",
                [cluster, cluster],
            )
            con.execute(
                "INSERT INTO model.incidents (incident_id, cluster, start, severity, root_event, root_host, document) "
                "VALUES (?, ?, '2026-11-21', 'impact', 'gpu.xid', 'gpu02', '{}')", [cluster, cluster],
            )  # fmt: skip
        store.set_fact(lemons.FACT, lemons.written([("east", ["gpu02"]), ("west", [])]))
        assert result(store)["lemons"] == ["gpu02@east"]
        section = reports.run(store, "failure-patterns").section("nodes")
        assert {row["cluster"]: row["lemon"] for row in section.tables[0].rows} == {"east": True, "west": False}
        assert section.notes == ("Lemons over all that is stored: gpu02@east.",)
        store.set_fact(lemons.FACT, '["gpu02"]')  # as earlier versions wrote it
        assert result(store)["lemons"] == ["gpu02"]
