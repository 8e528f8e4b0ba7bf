"""The gate's route: an agent asks about its own node only, and few nodes an hour may refuse jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fastapi.testclient import TestClient

from collector.agent.gate.answer_file import here
from collector.agent.gate.keeper import DRAIN, Keeper
from collector.agent.sender import Answer as Response
from collector.agent.source import Context
from collector.senders import Limits, Sender, digest_of
from faultline.config import Gate as Settings
from faultline.config import validate
from faultline.failure import CommandError
from faultline.node_gate import FRESH_S, GRANT_S, GRANTS_FILE, HOUR_S, Grants
from faultline.receiving import Front, Receiving
from faultline.service import Service, build_app
from store import open_store

NOW = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
NODES = [f"gpu{number:02}" for number in range(1, 11)]
#: Lost a GPU; the others are well, but gpu10, which is drained.
LOST = NODES[:4]


def before(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def fill(folder: Path) -> None:
    shared = {
        "cluster": "c",
        "source": "kernel",
        "layer": "kernel",
        "authority": "kernel",
        "count": 1,
        "resolution_us": 1000,
        "message": "m",
    }
    events = [{**shared, "event_id": f"u{n}", "time": before(1), "host": n, "event": "nic.link_up"} for n in NODES]
    events += [{**shared, "event_id": f"x{n}", "time": before(9), "host": n, "event": "gpu.lost"} for n in LOST]
    states = [{"cluster": "c", "host": n, "time": before(60), "state": "IDLE", "source": "scontrol"} for n in NODES]
    states.append({"cluster": "c", "host": "gpu10", "time": before(30), "state": "IDLE+DRAIN", "source": "scontrol"})
    with open_store(folder) as store:
        store.replace_model({"events": pl.DataFrame(events), "node_states": pl.DataFrame(states)})


class Site:
    """A service without a socket; ``ask`` is a request as an agent sends it."""

    def __init__(
        self, folder: Path, senders: Sequence[Sender] | None = None, tokens: Sequence[str] = (), **gate: Any
    ) -> None:
        fill(folder)
        self.config = validate({"data": str(folder), "ingest": {"tokens": list(tokens)}, "gate": gate}, "test")
        self.store = open_store(folder)
        self.receiving = Receiving(self.config, listeners=False)
        if senders is not None:
            self.receiving.intake._senders = lambda: senders
        self.front = Front(self.receiving, "the store is not open yet")

    def open(self) -> Any:
        app = build_app(Service(self.config, self.store, self.receiving))
        self.front.pages, self.front.node_gate = app, app.state.node_gate
        return app

    def ask(self, path: str, token: str = "", method: str = "GET") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return TestClient(self.front, base_url="http://127.0.0.1").request(method, path, headers=headers)

    def drain(self, node: str, more: str = "") -> dict[str, Any]:
        return dict(self.ask(f"/api/v1/gate/{node}?drain=yes{more}").json()["drain"])

    def close(self) -> None:
        self.receiving.close()
        self.store.close()


@pytest.fixture
def sites() -> Iterator[list[Site]]:
    made: list[Site] = []
    yield made
    for site in made:
        site.close()


@pytest.fixture
def site(tmp_path: Path, sites: list[Site]) -> Site:
    sites.append(Site(tmp_path, nodes_per_hour=3, share_per_hour=0.2))
    sites[0].open()
    return sites[0]


def test_the_answer_is_that_of_the_fitness_route_with_the_grant_beside_it(site: Site) -> None:
    found = site.ask("/api/v1/gate/gpu01").json()
    assert found.pop("drain") == {"granted": False, "until_s": 0.0, "why": "the agent does not ask for it"}
    there = site.ask("/api/v1/nodes/gpu01/fitness").json()
    assert found.pop("age_s") >= 0 and there.pop("age_s") >= 0 and found == there and found["fitness"] == "unfit"
    assert site.ask("/api/v1/gate/gpu99").status_code == 404
    wrong = site.ask("/api/v1/gate/gpu01", method="POST")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")


def test_few_nodes_an_hour_may_refuse_jobs(site: Site) -> None:
    """Ten nodes, of which a fifth is two: less than the three that are allowed in any case."""
    assert [site.drain(node)["granted"] for node in LOST] == [True, True, False, False]
    assert site.drain("gpu01") == {"granted": True, "until_s": GRANT_S, "why": ""}  # asked again, it is the same grant
    assert site.drain("gpu03")["why"] == "2 nodes were refused within the hour, and [gate] allows 2"
    assert (
        "faultline_gate_granted 2.0\n" in (text := site.ask("/metrics").text)
        and "faultline_gate_withheld 2.0\n" in text
    )
    assert 'faultline_node_not_fit{fitness="unfit",node="gpu01"} 1.0' in text


def test_only_what_slurm_does_not_know_is_a_reason_to_refuse(site: Site) -> None:
    assert site.ask("/api/v1/gate/gpu10").json()["fitness"] == "unfit"
    for node in ("gpu05", "gpu10"):
        assert site.drain(node) == {
            "granted": False,
            "until_s": 0.0,
            "why": "it is not unfit for a reason that Slurm does not know of",
        }
    assert site.drain("gpu05", "&unfit=yes")["granted"]  # what its agent sees


def test_an_old_answer_grants_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert site.front.node_gate is not None
    memory = site.front.node_gate._memory
    answers, _ = memory.latest()
    monkeypatch.setattr(memory, "latest", lambda: (answers, FRESH_S + 1))
    assert site.drain("gpu01") == {"granted": False, "until_s": 0.0, "why": "the answer is 301 s old"}


def test_before_the_store_is_open_there_is_no_answer(tmp_path: Path, sites: list[Site]) -> None:
    sites.append(Site(tmp_path))
    assert sites[0].ask("/api/v1/gate/gpu01").status_code == 503


def sender(name: str, hosts: tuple[str, ...] = (), clusters: tuple[str, ...] = (), ended: bool = False) -> Sender:
    end = datetime.now(UTC) + timedelta(days=-1 if ended else 1)
    return Sender(name, digest_of(f"t-{name}"), end, Limits(name, hosts, clusters))


SENDERS = (
    sender("one", ("gpu01",)), sender("rack", ("gpu[01-03]",)), sender("any"), sender("old", ("gpu01",), ended=True),
    sender("west", ("gpu01",), ("west",)), sender("other", ("gpu011",)),
)  # fmt: skip
#: Token and what it asks -> the status.
RIGHTS = {
    ("one", "gpu01"): 200, ("one", "gpu01?cluster=c"): 200, ("one", "gpu02"): 403, ("one", "gpu99"): 403, ("one", "gpu01@c"): 403,
    ("rack", "gpu03"): 200, ("rack", "gpu04"): 403, ("any", "gpu01"): 403, ("old", "gpu01"): 403, ("west", "gpu01?cluster=c"): 403,
    ("west", "gpu01"): 404, ("west", "gpu01?cluster=west"): 404, ("one", "gpu01?cluster=west"): 404,
    ("other", "gpu01"): 403, ("shared", "gpu01"): 403, ("stranger", "gpu01"): 403, ("", "gpu01"): 401,
}  # fmt: skip


def test_an_agents_token_asks_for_its_own_node_only(tmp_path: Path, sites: list[Site]) -> None:
    sites.append(Site(tmp_path, SENDERS, tokens=["t-shared"]))
    sites[0].open()
    found = {}
    for name, asked in RIGHTS:
        answer = sites[0].ask(f"/api/v1/gate/{asked}", f"t-{name}" if name else "")
        found[name, asked] = answer.status_code
        if answer.status_code != 200:
            assert set(answer.json()) >= {"status", "detail", "do"} and "fitness" not in answer.text
    assert found == RIGHTS


def test_the_agent_understands_the_answer_and_its_prolog_refuses(site: Site, tmp_path: Path) -> None:
    def ask(path: str) -> Response:
        answer = site.ask(path)
        return Response(answer.status_code, text=answer.text)

    boot = Path("/proc/sys/kernel/random/boot_id").read_text()  # the hook reads this host's
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text(boot)
    said = {}
    for node in ("gpu01", "gpu05", "gpu10", "gpu99"):
        keeper = Keeper(
            Context(host=node, root=tmp_path), tmp_path / node, ask, cluster="c", mode=DRAIN, chance=lambda: 0.0
        )
        keeper.open()
        keeper.turn()
        word = here(str(tmp_path / node))
        said[node] = (word.verdict, word.refuses)
    assert said == {
        "gpu01": ("unfit", True),
        "gpu05": ("fit", False),
        "gpu10": ("unfit", False),
        "gpu99": ("doubtful", False),
    }


# -- grants -------------------------------------------------------------------------------------------------------------


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_grants_end_after_an_hour_and_outlive_a_restart(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / GRANTS_FILE
    grants = Grants(Settings(nodes_per_hour=2, share_per_hour=1), file, clock)
    assert [grants.ask(node, "c", 100)[0] for node in ("a", "b", "c")] == [True, True, False]
    assert grants.ask("a", "west", 100)[0] and grants.counts() == (3, 1)  # another cluster has its own
    grants = Grants(Settings(nodes_per_hour=2, share_per_hour=1), file, clock)
    assert [grants.ask(node, "c", 100)[0] for node in ("c", "a")] == [False, True]
    clock.now += HOUR_S
    assert [grants.ask(node, "c", 100)[0] for node in ("c", "d", "a")] == [True, True, False]
    assert {tuple(row[:2]) for row in json.loads(file.read_text())} == {("c", "c"), ("c", "d")}


@pytest.mark.parametrize(("most", "share", "nodes", "granted"), [
    (0, 1.0, 1000, 0), (5, 0.0, 1000, 1), (5, 0.02, 100, 2), (5, 0.02, 10, 1), (5, 0.02, 1000, 5), (5, 1.0, 3, 3),
])  # fmt: skip
def test_the_number_and_the_share_both_bound_the_grants(
    tmp_path: Path, most: int, share: float, nodes: int, granted: int
) -> None:
    grants = Grants(Settings(nodes_per_hour=most, share_per_hour=share), tmp_path / GRANTS_FILE)
    assert sum(grants.ask(f"n{number}", None, nodes)[0] for number in range(20)) == granted


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["c", "n"]]', '{"a": 1}'])
def test_grants_that_cannot_be_read_are_taken_for_spent(tmp_path: Path, text: str) -> None:
    clock, file = Clock(), tmp_path / GRANTS_FILE
    file.write_text(text)
    grants = Grants(Settings(), file, clock)
    assert not grants.ask("a", "c", 100)[0] and "cannot be read" in grants.ask("a", "c", 100)[1]
    clock.now += HOUR_S
    assert grants.ask("a", "c", 100)[0]


def test_a_grant_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    grants = Grants(Settings(), tmp_path / "missing" / GRANTS_FILE)
    granted, why = grants.ask("a", "c", 100)
    assert not granted and "cannot be written" in why and grants.counts() == (0, 0)


def test_the_configuration_is_checked() -> None:
    assert validate({}, "f").gate == Settings(nodes_per_hour=2, share_per_hour=0.02)
    for gate in ({"nodes_per_hour": -1}, {"share_per_hour": 1.1}, {"share": 0.1}):
        with pytest.raises(CommandError, match=r"f: gate\."):
            validate({"gate": gate}, "f")
