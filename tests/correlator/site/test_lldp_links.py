"""LLDP's cables join a switch's lines with a node's, and identify the switch that took its links down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from store import open_store
from tests.line_parser import line_parser

#: Node -> its port on leaf03, and on leaf04 for its other NIC.
PORTS = {f"gpu0{n}": n for n in range(1, 6)}
DOWN, UP = "2026-03-01T10:00:00.0+00:00", "2026-03-01T10:01:30.2+00:00"


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def of_hosts(root: Path) -> None:
    """``lldpctl -f json`` of every node; the switches announce their full names."""
    for node, port in PORTS.items():
        received = [
            {device: {"via": "LLDP", "chassis": {f"{leaf}.fabric.example": {"id": {"type": "mac", "value": "0c:29:ef:aa:00:10"}}},
                      "port": {"id": {"type": "ifname", "value": f"Ethernet{port}"}}}}
            for device, leaf in (("ens1np0", "leaf03"), ("ens2np0", "leaf04"))
        ]  # fmt: skip
        put(root, f"nodes/{node}/lldpctl.json", json.dumps({"lldp": {"interface": received}}))


def of_switches(root: Path) -> None:
    """``show lldp neighbors`` of both switches."""
    for leaf, device in (("leaf03", "ens1np0"), ("leaf04", "ens2np0")):
        put(root, f"switches/{leaf}/lldp.txt", "Port       Neighbor Device ID       Neighbor Port ID    TTL\n---------- ------------------------ ------------------- ---\n")  # fmt: skip
        for node, port in PORTS.items():
            put(root, f"switches/{leaf}/lldp.txt", f"Et{port}        {node:24} {device}             120\n")


def lost(root: Path, leaf: str, node: str, device: str | None) -> None:
    """A link is lost for 90 s: the switch logs its port and, if ``device`` is given, the node its NIC."""
    for moment, state in ((DOWN, "down"), (UP, "up")):
        put(root, f"switches/{leaf}/syslog", f"{moment} {leaf} Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet{PORTS[node]}, changed state to {state}\n")  # fmt: skip
        if device:
            put(
                root, f"nodes/{node}/syslog", f"{moment} {node} kernel: mlx5_core 0000:53:00.0 {device}: Link {state}\n"
            )


def concluded(root: Path) -> list[dict[str, Any]]:
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([root])
        correlate(store)
        incidents: list[dict[str, Any]] = result(store)["incidents"]
        return incidents


@pytest.mark.parametrize("told", [of_hosts, of_switches])
def test_both_ends_of_a_link_are_one_outage(told: Any, tmp_path: Path) -> None:
    told(tmp_path)
    lost(tmp_path, "leaf03", "gpu02", "ens1np0")
    lost(tmp_path, "leaf04", "gpu04", None)
    first, second = sorted(concluded(tmp_path), key=lambda i: str(i["root_cause"]["host"]))
    assert (first["root_cause"]["host"], first["root_cause"]["device"]) == ("gpu02", "ens1np0")
    assert {e["host"] for e in first["events"]} == {"gpu02", "leaf03"}
    # Only the switch logged it, and its neighbours show which node is connected.
    assert (second["root_cause"]["host"], second["root_cause"]["device"]) == ("gpu04", "ens2np0")
    assert {e["host"] for e in second["events"]} == {"leaf04"}


def test_without_neighbours_nobody_knows_what_hangs_on_a_port(tmp_path: Path) -> None:
    lost(tmp_path, "leaf04", "gpu04", None)
    (only,) = concluded(tmp_path)
    assert only["root_cause"]["host"] == "leaf04"


@pytest.mark.parametrize("told", [of_hosts, of_switches])
def test_the_switch_that_took_the_links_is_named(told: Any, tmp_path: Path) -> None:
    told(tmp_path)
    for node in PORTS:
        for moment, state in ((DOWN, "down"), (UP, "up")):
            put(
                tmp_path,
                f"nodes/{node}/syslog",
                f"{moment} {node} kernel: mlx5_core 0000:53:00.0 ens2np0: Link {state}\n",
            )
    (only,) = concluded(tmp_path)
    assert (only["root_cause"]["event"], only["root_cause"]["host"]) == ("switch.failure", "leaf04")
    assert set(PORTS) <= set(only["hosts"])


def test_a_port_that_logged_nobody_is_no_spare(tmp_path: Path) -> None:
    """LLDP lists what answered: InfiniBand and silent switches are cabled all the same."""
    of_hosts(tmp_path)
    for moment, state in ((DOWN, "down"), (UP, "up")):
        put(tmp_path, "nodes/gpu02/syslog", f"{moment} gpu02 kernel: mlx5_core 0000:5e:00.0 ens9np0: Link {state}\n")
    (only,) = concluded(tmp_path)
    assert (only["root_cause"]["host"], only["root_cause"]["device"]) == ("gpu02", "ens9np0")
