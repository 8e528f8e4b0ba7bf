"""Who may write over syslog in a controller's name: its own addresses and the site's relays, and nobody else.

A user of a login node, which slurm.conf does not name, sends what slurmctld would write. Nobody's verdict changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from _pytest.mark.structures import ParameterSet

from collector.decoding import _rows
from collector.identity.hosts import HostNames
from collector.ingest import Ingest
from collector.receivers import all_receivers
from collector.receivers.base import Decoded, Payload, micros
from correlator.engine import conclude_cluster, correlate
from correlator.live.ticker import Ticker
from correlator.site.senders import RELAYS_SETTING, controllers, senders
from queries.kql import Query
from store import disowned, open_store
from store.door import Door
from store.line_frames import logs_for_storage
from store.tables import NODES, SETTINGS
from tests.line_parser import line_parser

CONFIGURATION = (
    "ClusterName=c\nSlurmctldHost={}\nNodeName=gx[01-04] NodeAddr=10.0.0.[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n"
)
ACCOUNTING = (
    "JobID|JobIDRaw|User|UID|JobName|State|ExitCode|Submit|Start|End|NodeList|NNodes|Cluster\n"
    "42|42|bob|1002|train|NODE_FAIL|0:0|2026-02-28T10:00:00|2026-02-28T10:00:00|2026-02-28T10:20:00|gx02|1|c\n"
)
LINE = "<27>Feb 28 10:19:58 ctl slurmctld[77]: update_node: node gx02 reason set to: bad ram\n" \
       "<27>Feb 28 10:19:59 ctl slurmctld[77]: error: Nodes gx02 not responding, setting DOWN\n"  # fmt: skip
LOGIN, OWN, RELAY = "10.9.9.9", "10.0.0.250", "10.0.0.200"


def loaded(store: Door, folder: Path, controller: str = "ctl") -> Ingest:
    (folder / "accounting").mkdir()
    (folder / "slurm.conf").write_text(CONFIGURATION.format(controller))
    (folder / "accounting" / "sacct.txt").write_text(ACCOUNTING)
    ingest = Ingest(store, parser=line_parser())
    ingest.run([folder])
    return ingest


def sent(store: Door, address: str, text: str = LINE, transport: str = "udp") -> None:
    """Stores what a receiver makes of ``text`` from this address."""
    into, at = Decoded(), micros("2026-02-28T10:20:05Z")
    known = {"received": at, "parts": [[address, False, transport, len(text.encode()), False, "UTC"]]}
    all_receivers()["syslog"].decode(Payload(text.encode(), known), into)
    for group in into.groups.values():
        rows = pl.concat(_rows(group, line_parser())).drop("_transport")
        store.append({"logs": logs_for_storage(rows.with_columns(cluster=rows["cluster"].fill_null("c")))})


def rows_of(store: Door, query: str) -> list[list[Any]]:
    return store.run_kql(Query(query)).rows


def downs(store: Door) -> list[list[Any]]:
    """What people see as events: the hosts whose lines say that a node is DOWN."""
    return rows_of(store, "Events | where Event == 'slurm.node_down' | project Host")


def in_both_ways(cases: list[tuple[Any, ...]], by_ticks: set[int], ids: list[str] | None = None) -> list[ParameterSet]:
    """Each case at once and by ticks. Ticks say what a full pass says: ``make test`` shows it with those ``by_ticks``,
    one that counts and one that does not, and takes the others at once."""
    return [
        pytest.param(*case, live, id=f"{ids[n] if ids else n}-{'by ticks' if live else 'at once'}",
                     marks=pytest.mark.long if live != (n in by_ticks) else ())
        for n, case in enumerate(cases) for live in (False, True)
    ]  # fmt: skip


@pytest.mark.one_of_each(
    kind=lambda controller, address, settings, counts, live: (
        (live, counts) if live else (controller, address, bool(settings))
    )
)
@pytest.mark.parametrize(
    ("controller", "address", "settings", "counts", "live"),
    in_both_ways([
        ("ctl", LOGIN, {}, False),
        ("ctl", "127.0.0.1", {}, False),
        ("ctl", "10.0.0.1", {}, False),
        (f"ctl({OWN})", LOGIN, {}, False),
        (f"ctl({OWN})", OWN, {}, True),
        ("ctl", RELAY, {RELAYS_SETTING: ("10.0.0.200/30",)}, True),
        ("ctl", LOGIN, {RELAYS_SETTING: ("10.0.0.200/30",)}, False),
    ], {0, 4}),
)  # fmt: skip
def test_slurmctlds_words_count_from_its_address_and_from_relays(
    tmp_path: Path, controller: str, address: str, settings: dict[str, Any], counts: bool, live: bool
) -> None:
    with open_store(None) as store:
        loaded(store, tmp_path, controller)
        ticker = Ticker(store, settings=settings)
        if live:
            ticker.tick()
        sent(store, address)
        if live:
            ticker.tick()
        else:
            correlate(store, settings=settings)
        found = conclude_cluster(store, "c", ticker._rules, settings).result
        assert downs(store) == ([["ctl"]] if counts else [])
        assert any("slurmctld" in e.source for e in found.events) is counts
        told = disowned.senders(store.fact(disowned.FACT))
        assert [text.partition(" ")[0] for text in told] == ([] if counts else [address])


def test_the_service_looks_up_the_controllers_addresses(tmp_path: Path) -> None:
    from faultline.controller_addresses import ControllerAddresses

    with open_store(None) as store:
        loaded(store, tmp_path)
        asked: list[str] = []

        def resolve(name: str) -> list[str]:
            asked.append(name)
            return [OWN]

        looking = ControllerAddresses(store, resolve)
        looking.look()
        looking.look()
        assert asked == ["ctl", "ctl"]
        addresses = sa.select(SETTINGS.c["cluster", "name", "value"]).where(SETTINGS.c.scope == "address")
        assert store.ask(addresses) == [{"cluster": "c", "name": OWN, "value": "ctl"}]
        sent(store, OWN)
        sent(store, LOGIN)
        correlate(store)
        assert downs(store) == [["ctl"]]


def test_a_name_that_nobody_knows_is_logged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from faultline.controller_addresses import ControllerAddresses

    with open_store(None) as store:
        loaded(store, tmp_path)
        looking = ControllerAddresses(store, lambda name: [])
        looking.look()
        looking.look()
    assert "".join(capsys.readouterr()).count("the address of a controller is not known") == 1


FORGED = "<2>Feb 28 10:19:58 gx02 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.mark.one_of_each(kind=lambda agents, counts, live: (live, counts) if live else str(agents))
@pytest.mark.parametrize(
    ("agents", "counts", "live"),
    in_both_ways([
        ({"gx03": "10.1.0.3"}, False),
        ({"gx03": "10.1.0.3", "gx04": "10.1.0.3"}, True),  # a proxy's
        ({"gx02": "10.1.0.3"}, True),
        ({}, True),
    ], {0, 2}, ["an agent of another node", "a proxy", "its own agent", "nobody"]),
)  # fmt: skip
def test_an_address_from_which_an_agent_reports_speaks_for_its_node(
    tmp_path: Path, agents: dict[str, str], counts: bool, live: bool
) -> None:
    """slurm.conf has only the addresses of the other network; a job of gx03 sends a packet as the kernel of gx02."""
    with open_store(None) as store:
        loaded(store, tmp_path)
        ticker = Ticker(store)
        if live:
            ticker.tick()
        statuses = [f'{{"address": "{address}"}}' for address in agents.values()]
        columns = {"cluster": ["c"] * len(agents), "host": list(agents), "status": statuses}
        store.open_intake()
        with store.write() as writer:
            writer.insert(NODES, pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)))
        sent(store, "10.1.0.3", FORGED)
        if live:
            ticker.tick()
        else:
            correlate(store)
        found = conclude_cluster(store, "c", ticker._rules, {}).result
        assert any(e.kind == "gpu.xid" for e in found.events) is counts


def _down(second: int) -> str:
    return f"<3>Feb 28 10:19:{second:02} gx02 kernel: mlx5_core 0000:c4:00.0 eth0: Link down\n"


@pytest.mark.parametrize(
    ("first", "live"),
    [
        pytest.param("forged", True, id="forged, by ticks"),
        pytest.param("true", False, id="true, at once"),
        pytest.param("forged", False, id="forged, at once", marks=pytest.mark.long),
        pytest.param("true", True, id="true, by ticks", marks=pytest.mark.long),
    ],
)
def test_nobody_takes_over_a_line_by_repeating_it(tmp_path: Path, live: bool, first: str) -> None:
    """Lines of one second about one device are copies of one event. A job of gx03 says every second that the link of gx02
    went down, so that the moment at which it does would be within an older event, or the event another host's."""
    forged = "".join(map(_down, range(5, 58)))
    with open_store(None) as store:
        loaded(store, tmp_path)
        ticker = Ticker(store)
        if live:
            ticker.tick()
        for address, text in sorted([("10.0.0.2", _down(40)), ("10.0.0.3", forged)], reverse=first == "forged"):
            sent(store, address, text)
            if live:
                ticker.tick()
        if not live:
            correlate(store)
        shown = rows_of(
            store, "Events | where Event == 'nic.link_down' | project Host, format_datetime(Time, 'HH:mm:ss')"
        )
        found = conclude_cluster(store, "c", ticker._rules, {}).result
    assert shown == [["gx02", "10:19:40"]]
    assert [(e.host, e.count, e.entities["sender"]) for e in found.events if e.kind == "nic.link_down"] == [
        ("gx02", 1, "10.0.0.2")
    ]


@pytest.mark.parametrize("live", [pytest.param(False, marks=pytest.mark.long), True], ids=["at once", "by ticks"])
def test_nobody_takes_over_slurmctlds_words_by_repeating_them(tmp_path: Path, live: bool) -> None:
    """The file gives the same moment with a finer clock, and a stranger sends the same text."""
    own = "[2026-02-28T10:19:59.250] error: Nodes gx02 not responding, setting DOWN\n"
    with open_store(None) as store:
        ingest = loaded(store, tmp_path)
        ticker = Ticker(store)
        if live:
            ticker.tick()
        sent(store, LOGIN)
        if live:
            ticker.tick()
        (tmp_path / "slurmctld.log").write_text(own)
        ingest.run([tmp_path / "slurmctld.log"])
        if live:
            ticker.tick()
        else:
            correlate(store)
        found = conclude_cluster(store, "c", ticker._rules, {}).result
    downs_found = [e for e in found.events if e.kind == "slurm.node_down"]
    assert [(e.own, e.count, "sender" in e.entities) for e in downs_found] == [(True, 1, False)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("SlurmctldHost", "ctl1(10.0.0.1)"), ("SlurmctldHost", "ctl2 (10.0.0.2)")], {"10.0.0.1": "ctl1", "10.0.0.2": "ctl2"}),
        ([("ControlMachine", "ctl1"), ("ControlAddr", "10.0.0.1"), ("BackupController", "ctl2"), ("BackupAddr", "10.0.0.2")],
         {"10.0.0.1": "ctl1", "10.0.0.2": "ctl2"}),
        ([("SlurmctldHost", "ctl1")], {}),
    ],
)  # fmt: skip
def test_addresses_of_controllers_in_slurm_conf(rows: list[tuple[str, str]], expected: dict[str, str]) -> None:
    settings = [{"scope": "cluster", "name": name, "value": value} for name, value in rows]
    assert senders(settings).controllers == expected
    assert set(expected.values()) <= controllers(settings)


@pytest.mark.parametrize(
    ("nodes", "text", "expected"),
    [
        ("n[1-2]", "CPUs=4 NodeAddr=10.0.0.[1-2] NodeHostname=b[1-2]", {"10.0.0.1": "n1", "10.0.0.2": "n2"}),
        ("n[3,1]", "NodeAddr=10.0.0.[7,9]", {"10.0.0.7": "n3", "10.0.0.9": "n1"}),
        ("n2,n1", "NodeAddr=10.0.0.1,10.0.0.2", {"10.0.0.1": "n2", "10.0.0.2": "n1"}),
        ("n[1-2]", "NodeAddr=10.0.0.1", {}),
        ("DEFAULT", "NodeAddr=10.0.0.1", {}),
    ],
)
def test_addresses_of_nodes_in_slurm_conf(nodes: str, text: str, expected: dict[str, str]) -> None:
    """Slurm reads its lists in parallel, in the order in which they are written. So does what names rows."""
    settings = [{"cluster": "c", "scope": "cluster", "name": f"NodeName:{nodes}", "value": text}]
    assert senders(settings).nodes == expected
    others = HostNames.of_inventory(settings, ()).others.get("c", {})
    assert {name: node for name, node in others.items() if name.startswith("10.")} == expected


@pytest.mark.parametrize("given", [["10.0.0.0/16"], ["relay01"], [f"10.0.{n}.0/25" for n in range(3)], 5])
def test_relays_are_few_addresses(given: Any) -> None:
    with pytest.raises(ValueError):
        senders([], {RELAYS_SETTING: given})
