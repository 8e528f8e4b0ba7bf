"""The map of all nodes: what it draws is what the API says, and that is what the store has of that moment."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from fastapi.testclient import TestClient

from store import open_store
from store.duckdb.store import DuckStore
from web.app import create_app
from web.fleet import places
from web.fleet.measures import MEASURES
from web.fleet.model import fleet
from web.fleet.nodes import Nodes
from web.fleet.picture import PITCH, SIDE, arrange, picture
from web.reading import Reader
from web.shaping import state_kind

DAY = datetime(2026, 11, 20)
#: Moments at which nothing, something and everything is known.
TIMES = [DAY - timedelta(hours=1), *(DAY + timedelta(minutes=m) for m in (0, 30, 31, 60))]
NODES = [f"n{n}" for n in range(1, 41)]
#: Named by Slurm's topology only.
SILENT = "n41"
WORDS = ("IDLE", "allocated", "MIXED+DRAIN", "DOWN*", "mixed*", "UNKNOWN", "idle~", "UP")


def at(minute: float) -> datetime:
    return DAY + timedelta(minutes=minute)


def states() -> list[dict[str, Any]]:
    """A state of each node every twenty minutes; every seventh ends after ten, and one is told twice at its time."""
    rows = [
        {"time": at(20 * turn), "until": at(20 * turn + 10) if (n + turn) % 7 == 0 else None, "cluster": "c", "host": host,
         "state": WORDS[(3 * n + turn) % len(WORDS)], "reason": "why" if n % 5 == 0 else None, "source": "poll"}
        for turn in range(4) for n, host in enumerate(NODES) if (n + turn) % 9
    ]  # fmt: skip
    return [*rows, {**rows[5], "until": rows[5]["time"], "state": "DOWN"}]


def incident(name: str, host: str, start: float, end: float | None, **document: Any) -> dict[str, Any]:
    return {"incident_id": name, "cluster": "c", "start": at(start), "end": None if end is None else at(end), "severity": "impact",
            "category": "infra.gpu", "root_event": "gpu.xid", "root_host": host, "document": json.dumps({"hosts": [host], **document})}  # fmt: skip


def insert(store: DuckStore, table: str, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    columns, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    with store.transaction() as connection:
        connection.executemany(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})", [list(row.values()) for row in rows]
        )


@pytest.fixture(scope="module")
def store() -> Iterator[DuckStore]:
    with open_store(None) as made:
        assert isinstance(made, DuckStore)
        insert(made, "model.node_states", states())
        insert(made, "raw.topology", [
            {"cluster": "c", "switch": f"leaf{1 + n // 16}", "child": host, "kind": "node"} for n, host in enumerate([*NODES, SILENT])
        ])  # fmt: skip
        insert(made, "raw.links", [
            {"cluster": "c", "host": host, "device": f"mlx5_{rail}", "switch": f"rail{rail}", "plane": f"p{rail}", "time": at(0)}
            for n, host in enumerate(NODES) for rail in range(3 if n else 2)
        ])  # fmt: skip
        insert(made, "raw.metrics", [
            {"time": at(minute), "cluster": "c", "host": host, "metric": "DCGM_FI_DEV_GPU_TEMP", "device": str(gpu), "value": 40.0 + n + gpu}
            for n, host in enumerate(NODES[:30]) for gpu in (0, 1) for minute in (27, 29)
        ])  # fmt: skip
        insert(made, "model.concluded_facts", [
            {"cluster": "c", "fact_id": f"f{n}", "kind": "link.outage", "host": "n2", "start": at(n), "attributes": "{}"} for n in range(5)
        ])  # fmt: skip
        chain = [{
            "cause": "e", "effect": None, "edge": "X", "cause_fact": "gpu.xid", "cause_host": "n3", "cause_time": "2026-11-20T00:21:00Z", "cause_pm_s": 0,
            "effect_fact": "node.down", "effect_host": "n9", "effect_time": "2026-11-20T00:22:30Z", "effect_pm_s": 0,
        }]  # fmt: skip
        insert(made, "model.incidents", [
            *(incident(f"I-{n}", "n5", n, n + 1, jobs=[{"job_id": str(n)}]) for n in range(3)),
            incident("I-open", "n3", 21, None, chain=chain, hosts=["n3", "n9"]), incident("I-one", "n7", 5, 6),
        ])  # fmt: skip
        insert(made, "model.runs", [{"run_key": "1", "cluster": "c", "job_id": 1, "nodes": NODES, "start": at(0)}])
        yield made


@pytest.fixture(scope="module")
def client(store: DuckStore) -> TestClient:
    return TestClient(create_app(store))


def drawn(client: TestClient, **asked: str) -> dict[str, tuple[str, str | None]]:
    """Class and text of each node, as the API has them."""
    found = client.get("/api/v1/fleet", params=asked).json()
    nodes, texts = found["nodes"], found["texts"]
    assert len(set(nodes["name"])) == len(nodes["name"]) == sum(group["nodes"] for group in found["groups"])
    assert Counter(nodes["class"]) == Counter(
        {n: one["nodes"] for n, one in enumerate(found["classes"]) if one["nodes"]}
    )
    return {
        name: (found["classes"][kind]["name"], None if says is None else texts[says])
        for name, kind, says in zip(nodes["name"], nodes["class"], nodes["says"], strict=True)
    }


@pytest.mark.parametrize("moment", TIMES, ids=str)
def test_states_are_those_of_the_store_at_that_moment_and_every_square_is_a_node(
    client: TestClient, moment: datetime
) -> None:
    last: dict[str, dict[str, Any]] = {}
    for row in sorted(states(), key=lambda row: (row["time"], row["until"] or datetime.max)):
        if row["time"] <= moment:
            last[row["host"]] = row
    expected = dict.fromkeys((*NODES, SILENT), ("unknown", None))
    for host, row in last.items():
        if row["until"] is None or row["until"] > moment:
            text = f"{row['state']}, {row['reason']}" if row["reason"] else row["state"]
            expected[host] = (state_kind(row["state"]), text)
    assert drawn(client, at=f"{moment.isoformat()}Z") == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [(text, "unknown") for text in ("UNKNOWN", "FUTURE", "", "bogus", "UNKNOWN+DYNAMIC_NORM")]
    + [("UNKNOWN*", "silent"), ("IDLE+POWERED_DOWN", "off"), ("idle~", "off"), ("DOWN~", "down"), ("drng", "drain"), ("idle*", "silent"),
       ("maint", "drain"), ("resv", "up"), ("comp", "busy"), ("mix-", "busy"), ("IDLE+REBOOT_REQUESTED", "drain"), ("up", "up")],
)  # fmt: skip
def test_what_slurm_does_not_know_is_never_idle(text: str, word: str) -> None:
    assert state_kind(text) == word


def test_a_node_that_only_the_log_put_back_runs_what_accounting_has_on_it() -> None:
    """slurmctld logs that a node is IDLE again, and not that a job begins on it."""
    log = {"time": at(0), "cluster": "c", "source": "slurmctld", "state": "IDLE"}
    with open_store(None) as made:
        assert isinstance(made, DuckStore)
        insert(made, "model.node_states", [
            *({**log, "host": f"n{n}"} for n in range(1, 5)), {**log, "host": "n5", "state": "DOWN"}, {**log, "host": "n6", "source": "poll"},
        ])  # fmt: skip
        insert(made, "model.events", [{"time": at(20), "cluster": "c", "event_id": "e", "host": "n1", "event": "x"}])
        run = {"cluster": "c", "job_id": 1, "start": at(1), "end": None, "user": "ann"}
        insert(made, "model.runs", [
            {**run, "run_key": "1", "nodes": ["n1", "n2", "n5", "n6", "n7"]}, {**run, "run_key": "2", "job_id": 2, "nodes": ["n2"]},
            {**run, "run_key": "3", "job_id": 3, "nodes": ["n3"], "end": at(5)},
            {**run, "run_key": "4", "job_id": 4, "nodes": ["n4"], "user": None},
        ])  # fmt: skip
        found = drawn(TestClient(create_app(made)), at=f"{at(9).isoformat()}Z")
        early = drawn(TestClient(create_app(made)), at=f"{at(2).isoformat()}Z")
    assert found | early == found | {"n3": ("busy", "job 3")}
    assert found == {
        "n1": ("busy", "job 1"), "n2": ("busy", "2 jobs"), "n3": ("up", "IDLE"), "n4": ("up", "IDLE"), "n5": ("down", "DOWN"),
        "n6": ("idle", "IDLE"), "n7": ("busy", "job 1"),
    }  # fmt: skip


def test_a_run_that_accounting_had_no_end_of_when_it_was_last_collected_does_not_run_for_ever() -> None:
    idle = {"time": at(0), "cluster": "c", "source": "slurmctld", "state": "IDLE", "host": "n1"}
    with open_store(None) as made:
        assert isinstance(made, DuckStore)
        insert(made, "model.node_states", [idle, {**idle, "cluster": "d", "host": "n2"}])
        insert(made, "model.events", [{"time": at(600), "cluster": "c", "event_id": "e", "host": "n1", "event": "x"}])
        run = {
            "cluster": "c",
            "job_id": 1,
            "submit": at(0),
            "start": at(1),
            "end": None,
            "user": "ann",
            "nodes": ["n1"],
        }
        insert(made, "model.runs", [
            {**run, "run_key": "1"}, {**run, "run_key": "2", "job_id": 2, "submit": at(60), "start": at(61), "end": at(90), "nodes": ["n9"]},
            # What another cluster's accounting has, and what only slurmctld's log tells of, is no news of this one's.
            {**run, "run_key": "3", "job_id": 3, "cluster": "d", "start": at(400), "nodes": ["n2"]},
            {**run, "run_key": "4", "job_id": 4, "user": None, "start": at(500), "nodes": ["n9"]},
        ])  # fmt: skip
        client = TestClient(create_app(made))
        found = {minute: drawn(client, at=f"{at(minute).isoformat()}Z") for minute in (2, 95, 200, 405)}
    assert [found[minute]["n1"] for minute in found] == [*[("busy", "job 1")] * 2, *[("up", "IDLE")] * 2]
    assert found[405]["n2"] == ("busy", "job 3")


def of_log(made: DuckStore) -> None:
    """n1 and n2 run jobs of which slurmctld's log says nothing, n3 runs none; a poll says that n4 is idle, and that n5's DOWN is over."""
    log = {"time": at(0), "cluster": "c", "source": "slurmctld", "state": "IDLE", "until": None}
    insert(made, "model.node_states", [
        *({**log, "host": f"n{n}"} for n in (1, 2, 3)), {**log, "host": "n4", "source": "poll"},
        {**log, "host": "n5", "state": "DOWN", "source": "sacctmgr", "until": at(3)},
    ])  # fmt: skip
    insert(made, "model.events", [{"time": at(9), "cluster": "c", "event_id": "e", "host": "n1", "event": "x"}])
    run = {
        "cluster": "c",
        "job_id": 1,
        "attempt": 0,
        "submit": at(1),
        "start": at(1),
        "end": None,
        "user": "ann",
        "state": "RUNNING",
    }
    insert(made, "model.runs", [
        {**run, "run_key": "1", "nodes": ["n1", "n2", "n4"]}, {**run, "run_key": "2", "job_id": 2, "start": at(4), "nodes": ["n2"]},
    ])  # fmt: skip


def test_map_list_page_and_api_say_the_same_of_a_node() -> None:
    """The list and the page showed IDLE, as slurmctld's log has it, of nodes that the map showed running jobs."""
    with open_store(None) as made:
        assert isinstance(made, DuckStore)
        of_log(made)
        client = TestClient(create_app(made))
        of_map = drawn(client)
        rows = {row["name"]: row for row in client.get("/api/v1/nodes").json()["nodes"]}
        assert {name: row["service"] for name, row in rows.items()} == {
            name: kind for name, (kind, _) in of_map.items()
        }
        assert {name: (row["state"], row["running_jobs"]) for name, row in rows.items()} == {
            "n1": ("ALLOCATED", 1), "n2": ("ALLOCATED", 2), "n3": ("IDLE", 0), "n4": ("IDLE", 0), "n5": (None, 0),
        }  # fmt: skip
        assert rows["n2"]["since"].startswith(f"{at(1).isoformat()}"), "since its first job began"
        chips = {"n1": "ALLOCATED", "n2": "ALLOCATED", "n3": "in service", "n4": "IDLE", "n5": "not reported"}
        listed = client.get("/nodes", headers={"accept": "text/html"}).text
        for name, row in rows.items():
            one = client.get(f"/api/v1/nodes/{name}").json()
            assert all(one[field] == row[field] for field in ("service", "state", "since", "running_jobs"))
            page = client.get(f"/nodes/{name}", headers={"accept": "text/html"}).text
            head = page[page.index("<h1>") : page.index("Lines in Explore")]
            cells = listed[listed.index(f"<b>{name}</b>") :]
            for part in (head, cells[: cells.index("</tr>")]):
                text = re.sub(r"<[^>]*>", " ", part)
                assert chips[name] in text and not any(
                    chip in text for chip in {*chips.values(), "DOWN"} - {chips[name]}
                )


def test_a_job_runs_on_a_quiet_cluster_for_as_long_as_an_agent_reads_accounting() -> None:
    """Nobody submits a job for hours; accounting has no news, and is collected."""
    with open_store(None) as made:
        assert isinstance(made, DuckStore)
        of_log(made)
        insert(made, "model.events", [{"time": at(600), "cluster": "c", "event_id": "f", "host": "n1", "event": "x"}])
        client = TestClient(create_app(made))
        made.open_intake()
        assert drawn(client)["n1"] == ("up", "IDLE"), "accounting was last heard of ten hours ago"
        report = {"host": "ctl", "first_seen": at(0), "last_seen": at(599), "status_at": at(599), "boots": 1}
        names = {"accounting": "ok", "nodes": "absent"}

        def reported(**more: Any) -> str:
            with made.transaction() as connection:
                connection.execute("DELETE FROM intake.nodes")
            status = {"sources": [{"name": name, "state": state, "detail": ""} for name, state in names.items()]}
            insert(made, "intake.nodes", [{**report, "cluster": "c", "status": json.dumps(status), **more}])
            return drawn(client)["n1"][0]

        assert reported() == "busy"
        assert client.get("/api/v1/nodes/n1").json()["running_jobs"] == 1
        assert reported(status_at=at(500)) == "up" and reported(cluster="d") == "up" and reported(status="{") == "up"
        names["accounting"] = "error"
        assert reported() == "up"
        names |= {"slurmrestd": "ok"}
        assert reported() == "busy"


def test_switches_and_controllers_are_no_nodes_of_slurms() -> None:
    with open_store(None) as made:
        assert isinstance(made, DuckStore)
        insert(
            made,
            "raw.topology",
            [{"cluster": "c", "switch": "leaf1", "child": host, "kind": "node"} for host in NODES[:3]],
        )
        insert(
            made,
            "model.events",
            [{"time": at(1), "cluster": "c", "event_id": "e", "host": "spine1", "layer": "switch", "event": "x"}],
        )
        client = TestClient(create_app(made))
        assert client.get("/api/v1/fleet").json()["slurm_nodes"] == 3
        page = client.get("/fleet", headers={"accept": "text/html"}).text
    assert "3 nodes and 1 other host, each a square" in page and "Map of 3 nodes and 1 other host" in page


def test_other_measures_say_unknown_of_nodes_that_nobody_had_heard_of(client: TestClient) -> None:
    before, after = f"{TIMES[0].isoformat()}Z", f"{at(30).isoformat()}Z"
    for measure in MEASURES:
        assert {word for word, _ in drawn(client, measure=measure, at=before).values()} == {"unknown"}, measure
    of = {measure: drawn(client, measure=measure, at=after) for measure in MEASURES}
    assert {found[SILENT][0] for found in of.values()} == {"unknown"}
    assert (of["flaps"]["n2"][0], of["flaps"]["n4"][0]) == ("many", "none")
    assert (of["lemon"]["n5"], of["lemon"]["n4"]) == (("lemon", "3 of gpu, chance 0.0001"), ("none", None))
    assert (of["incidents"]["n3"], of["incidents"]["n9"], of["incidents"]["n5"][0]) == (
        ("impact", "I-open"),
        ("impact", "I-open"),
        "none",
    )
    # The hottest device; a sample older than five minutes is no temperature.
    assert [of["temperature"][name][0] for name in ("n1", "n10", "n30", "n31")] == ["cool", "mild", "warm", "unknown"]
    assert {word for word, _ in drawn(client, measure="temperature", at=f"{at(35).isoformat()}Z").values()} == {
        "unknown"
    }


@pytest.mark.parametrize("columns", [12, 40])
@pytest.mark.parametrize("by", ["switch", "plane", "name"])
def test_the_picture_draws_each_node_once_in_its_class(store: DuckStore, by: str, columns: int) -> None:
    found = fleet(Reader(store), at=at(30), measure="state", by=by, incident=None)
    made = picture(found, columns)
    looks = {one.look: one.name for one in found.measure.classes}
    seen: dict[tuple[int, int], str] = {}
    for look, path in made.paths:
        for x, y, long in re.findall(r"M(\d+) (\d+)h(\d+)", path):
            for number in range((int(long) + PITCH - SIDE) // PITCH):
                place = (int(x) + PITCH * number, int(y) - SIDE // 2)
                assert place not in seen and place[0] + SIDE <= made.width and place[1] + SIDE <= made.height
                seen[place] = looks[look]
    corners = [
        (block.x + PITCH * (n % block.columns), block.y + PITCH * (n // block.columns)) for block in made.blocks for n in range(block.count)
    ]  # fmt: skip
    assert [seen.pop(corner) for corner in corners] == found.nodes["class"].to_list() and not seen


def test_groups_never_overlap_and_keep_to_the_width() -> None:
    blocks, height = arrange([(f"rack{n}", n % 37 + 1) for n in range(60)], 50)
    boxes = [(b.x, b.y, b.x + b.columns * PITCH, b.y + -(-b.count // b.columns) * PITCH) for b in blocks]
    for n, (x0, y0, x1, y1) in enumerate(boxes):
        assert x1 <= 50 * PITCH and y1 <= height
        assert not [b for b in boxes[:n] if b[0] < x1 and x0 < b[2] and b[1] < y1 and y0 < b[3]]


@pytest.mark.parametrize(
    ("hosts", "racks"),
    [
        (("gpu-r01-n1", "gpu-r01-n2", "gpu-r02-n1"), ["gpu-r01", "gpu-r01", "gpu-r02"]),
        (("x1000c0s0b0n0", "x1000c0s1b0n0", "x1001c0s0b0n0"), ["x1000", "x1000", "x1001"]),
        (("rack7node1", "rack7node2", "rack8node1"), ["rack7", "rack7", "rack8"]),
        (("gpu01", "gpu02", "server12"), []),  # no rack: r is a letter of the name
        (("r1n1", "r1n2"), []),  # one rack arranges nothing
    ],
)
def test_racks_are_read_from_names_that_have_them(store: DuckStore, hosts: tuple[str, ...], racks: list[str]) -> None:
    named = pl.DataFrame({"name": hosts, "host": hosts}).with_columns(
        pl.lit("c").alias("cluster"), pl.lit(value=True).alias("of_slurm")
    )
    found = places.grouped(Reader(store), Nodes(named, DAY), "rack")
    if not racks:
        assert found.by != "rack" and found.missing == "No rack is known of any node."
    else:
        assert (
            dict(found.groups.iter_rows()) == dict(zip(hosts, racks, strict=True))
            and found.source == "the names of nodes"
        )


def test_the_map_says_from_what_it_grouped(client: TestClient) -> None:
    found = client.get("/api/v1/fleet").json()
    assert (found["grouped"]["by"], [(one["name"], one["nodes"]) for one in found["groups"]]) == (
        "switch", [("leaf1", 16), ("leaf2", 16), ("leaf3", 9)],
    )  # fmt: skip
    assert found["nodes"]["name"][:3] == ["n1", "n2", "n3"] and found["nodes"]["name"][9] == "n10"
    planes = client.get("/api/v1/fleet?by=plane").json()
    assert [one["name"] for one in planes["groups"]] == ["p0, p1 and 1 more, to p2", "p0, p1", places.ELSEWHERE]
    assert planes["grouped"]["known"] == len(NODES)
    text = client.get("/fleet?by=rack").text
    assert "No rack is known of any node. Grouped by switch instead." in text and "from Slurm&#39;s topology" in text


def test_the_page_draws_without_a_script_and_hatches_what_is_not_known(client: TestClient) -> None:
    text = client.get("/fleet", params={"at": f"{at(30).isoformat()}Z"}).text
    assert 'class="cell unknown"' in text and '<pattern id="unknown"' in text
    assert text.count('<path class="cell') < 40 and 'href="/nodes/n' in text
    assert client.get(f"/nodes/{SILENT}").status_code == 200
    assert "/fleet?at=2026-11-20T00%3A25%3A00Z" in text  # five minutes earlier


def test_an_incident_lights_up_the_nodes_that_it_had_reached(client: TestClient) -> None:
    found = client.get("/api/v1/fleet?incident=I-open").json()
    assert [(one["name"], one["after_s"]) for one in found["spread"]["hurt"]] == [("n3", 0.0), ("n9", 90.0)]
    later = client.get("/api/v1/fleet?at=2027-01-01").json()  # nothing is recorded of it: the last moment that is
    assert later["at"] == later["last"] == f"{TIMES[-1].isoformat()}Z"
    names = found["nodes"]["name"]
    assert [names[one["node"]] for one in found["spread"]["hurt"]] == ["n3", "n9"]
    frames = [
        sum(path.count("M") for path in re.findall(r'<path class="hurt h\d" d="([^"]+)"', client.get(
            "/fleet", params={"incident": "I-open", "at": f"{at(minute).isoformat()}Z"}).text))
        for minute in (20, 21, 22, 23)
    ]  # fmt: skip
    assert frames == [0, 1, 1, 2]
    assert client.get("/api/v1/fleet?incident=none").status_code == 404


def test_an_empty_store_has_an_empty_map() -> None:
    with open_store(None) as empty:
        client = TestClient(create_app(empty))
        assert client.get("/api/v1/fleet").json()["nodes"]["name"] == []
        assert "Nothing is stored yet" in client.get("/fleet").text
        assert client.get("/api/v1/fleet?at=soon").status_code == 400
        assert client.get("/api/v1/fleet?measure=luck").status_code == 422
