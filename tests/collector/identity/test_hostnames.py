"""A host under any of its names is its node: in what is stored, queried and concluded, whatever came first."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa

from collector.identity.hosts import HostNames
from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.site.senders import controllers, senders
from parsers.record import conform
from store import open_store
from store.door import Door
from store.questions import settling
from store.tables import LINES
from tests.line_parser import line_parser

CONF = "ClusterName=ant\nSlurmdTimeout=60\nMessageTimeout=10\nNodeName=node[17-18] NodeAddr=10.0.3.[17-18] NodeHostname=rack2-u[7-8] CPUs=8\n"
SACCT = """JobID|JobName|User|Partition|State|ExitCode|Submit|Start|End|NodeList
41|fit|eva|gpu|NODE_FAIL|1:0|2026-03-02T04:00:00|2026-03-02T04:00:01|2026-03-02T04:12:10|node17
"""
CTLD = """[2026-03-02T04:12:10.000] error: Nodes node17 not responding, setting DOWN
[2026-03-02T04:12:10.001] Killing JobId=41 on failed node node17
"""
SYSLOG = "\n".join(
    f"2026-03-02T04:11:{second:02d}+00:00 {host} kernel: mlx5_core 0000:5e:00.0 eth0: Link {state}"
    for second, host, state in ((1, "10.0.3.17", "down"), (2, "rack2-u8", "down"), (3, "node18.ant.example", "up"), (4, "10.0.3.99", "up"))
)  # fmt: skip


def put(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def pieces(tmp_path: Path) -> list[Path]:
    return [
        put(tmp_path, "slurm.conf", CONF), put(tmp_path, "accounting/sacct.txt", SACCT),
        put(tmp_path, "controller/slurmctld.log", CTLD), put(tmp_path, "loghost/network.log", SYSLOG + "\n"),
    ]  # fmt: skip


def hosts(store: Door) -> list[tuple[str, str]]:
    kernels = sa.select(LINES.c.host, LINES.c.raw).where(LINES.c.source == "kernel").order_by(LINES.c.line)
    rows = store.ask(kernels)
    return [(row["host"], row["raw"].split()[1]) for row in rows]


#: Does the inventory come before the lines?
@pytest.mark.one_of_each(kind=lambda order: order.index(0) < order.index(3))
@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_the_order_of_inventory_and_lines_does_not_matter(pieces: list[Path], order: tuple[int, ...]) -> None:
    with open_store(None) as store:
        for place in order:
            Ingest(store, parser=line_parser()).run([pieces[place]])
        assert hosts(store) == [
            ("node17", "10.0.3.17"), ("node18", "rack2-u8"), ("node18", "node18.ant.example"), ("10.0.3.99", "10.0.3.99"),
        ]  # fmt: skip
        Ingest(store, parser=line_parser()).run(pieces)
        assert len(hosts(store)) == 4
        correlate(store)
        verdict = result(store)["verdicts"]["41"]
        assert verdict["category"] == "infra.network" and verdict["root_cause"]["host"] == "node17"


def test_scontrol_and_sinfo_show_names_too(tmp_path: Path) -> None:
    shown = "NodeName=n1 Arch=x86_64 CoresPerSocket=8\n   NodeAddr=10.9.0.1 NodeHostName=blade1 Version=25.05\n   State=IDLE\n"
    listed = (
        "Mon Mar 02 04:00:00 2026\nNODELIST   NODES PARTITION STATE NODE_ADDR HOSTNAMES\nn2 1 gpu* idle 10.9.0.2 n2\n"
    )
    files = [put(tmp_path, "scontrol_show_node.txt", shown), put(tmp_path, "sinfo.txt", listed)]
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run(files)
        names = HostNames.read(store)
    assert [names.meaning(None, h) for h in ("10.9.0.1", "blade1", "10.9.0.2", "n2")] == ["n1", "n1", "n2", None]


def test_controllers_and_switches_have_other_names_too(tmp_path: Path) -> None:
    """A log server writes ``leaf1.site.example`` where topology.conf says ``leaf1``: one switch, one controller."""
    files = [
        put(tmp_path, "slurm.conf", "ClusterName=c\nSlurmctldHost=head1(10.9.0.1)\nSlurmctldHost=head2\nNodeName=n[1-2] CPUs=4\n"),
        put(tmp_path, "topology.conf", "SwitchName=leaf1 Nodes=n[1-2]\n"),
        put(tmp_path, "links.csv", "node,interface,switch,switch_port\nn1,eth0,Tor7,Ethernet1\n"),
    ]  # fmt: skip
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run(files)
        names = HostNames.read(store)
    others = (
        "leaf1.site.example",
        "LEAF1",
        "tor7.site",
        "head1.site.example",
        "10.9.0.1",
        "head2.x",
        "leaf2.x",
        "localhost.x",
    )
    meant = [names.meaning("c", name) for name in others]
    assert meant == ["leaf1", "leaf1", "Tor7", "head1", "head1", "head2", None, None]


@pytest.mark.parametrize(
    ("line", "meanings"),
    [
        ("SlurmctldHost=head1 (10.9.0.1)", {"10.9.0.1": "head1", "head1.site": "head1"}),
        ("SlurmctldHost=head1( 10.9.0.1 )", {"10.9.0.1": "head1"}),
        ("ControlMachine=head1,head2", {"head1.site": "head1", "head2.site": "head2"}),
        ("SlurmctldHost=head1(fd00::1)", {"fd00::1": "head1"}),
    ],
)
def test_a_controller_is_read_in_one_way(line: str, meanings: dict[str, str], tmp_path: Path) -> None:
    """As of nodes' names, so of senders' addresses: an address behind a blank was a host of its own."""
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run(
            [put(tmp_path, "slurm.conf", f"ClusterName=c\n{line}\nNodeName=n1 CPUs=4\n")]
        )
        names, settings = HostNames.read(store), store.ask(settling.settings_about_hosts())
    assert {name: names.meaning("c", name) for name in meanings} == meanings
    assert controllers(settings) == set(meanings.values())
    addresses = {name: host for name, host in meanings.items() if name[0].isdigit() or ":" in name}
    assert senders(settings).controllers == addresses


def told(*settings: tuple[str, str], nodes: tuple[str, ...] = ()) -> HostNames:
    return HostNames.of_inventory(
        [{"cluster": "c", "scope": "cluster", "name": f"NodeName:{n}", "value": v} for n, v in settings],
        [{"cluster": "c", "host": n} for n in nodes],
    )


@pytest.mark.parametrize(
    ("settings", "nodes", "host", "node"),
    [
        ((("n[1-2]", "NodeAddr=10.0.0.[1-2]"),), (), "10.0.0.2", "n2"),
        ((("n[3,1]", "NodeAddr=10.0.0.[7,9] CPUs=2"),), (), "10.0.0.9", "n1"),
        ((("n01", "NodeHostname=box"),), (), "BOX", "n01"),
        ((), ("n1",), "n1.site.example", "n1"),
        ((), ("N1",), "n1", "N1"),
        ((), ("n1.site.example",), "n1", "n1.site.example"),
        ((("n[1-2]", "NodeHostname=box"),), (), "box", None),
        ((("n1", "NodeHostname=box"), ("n2", "NodeHostname=box")), (), "box", None),
        ((("n1", "NodeAddr=127.0.0.1"),), (), "127.0.0.1", None),
        ((("n1", "NodeAddr=n2"), ("n2", "CPUs=4")), ("n2",), "n2", None),
        ((), ("n1",), "10.0.0.1", None),
        ((), ("10",), "10.0.0.1", None),
        ((), ("10",), "10.0.0.1:9100", None),
        ((), ("10.0.0.1",), "10", None),
        ((("n2,n1", "NodeAddr=10.0.0.1,10.0.0.2"),), (), "10.0.0.1", "n2"),
        ((), ("n1",), "n1", None),
    ],
)
def test_meaning(settings: tuple[tuple[str, str], ...], nodes: tuple[str, ...], host: str, node: str | None) -> None:
    assert told(*settings, nodes=nodes).meaning("c", host) == node


def test_frames_get_names_by_their_cluster_and_polls_repeat_nothing() -> None:
    names = told(("n1", "NodeAddr=10.0.0.1"))
    rows = pl.DataFrame({"cluster": ["c", "d", "c", "c"], "host": ["10.0.0.1", "10.0.0.1", None, "n1.x"]})
    assert names.normal(conform("logs", rows))["host"].to_list() == ["n1", "10.0.0.1", None, "n1"]
    polled = pl.DataFrame(
        {
            "cluster": ["c"] * 3,
            "scope": ["node:n1", "node:n2", "cluster"],
            "name": ["NodeAddr"] * 2 + ["X"],
            "value": ["10.0.0.1", "10.0.0.2", "1"],
        }
    )
    assert names.normal(conform("settings", polled))["value"].to_list() == ["10.0.0.2", "1"]
