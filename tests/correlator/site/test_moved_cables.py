"""A cable that was moved: every event is judged by the cabling that was believed at its time."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.site.cabling import cabling
from correlator.site.site import build_site
from store import open_store
from tests.correlator.making import T0, event, facts, world

OLD, NEW = T0 - 86400.0, T0 + 86400.0


def told(at: float | None, host: str, device: str, switch: str, port: str | None, source: str = "lldpctl_json", plane: str = "") -> dict[str, Any]:  # fmt: skip
    moment = None if at is None else datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    return {"host": host, "device": device, "switch": switch, "switch_port": port, "plane": plane, "rail": "", "source": source, "time": moment}  # fmt: skip


BEFORE = told(OLD, "n1", "eth0", "leaf1", "Ethernet5", plane="2")
AFTER = told(NEW, "n1", "eth0", "leaf2", "Ethernet7")


@pytest.mark.parametrize(
    "rows", list(permutations([BEFORE, AFTER, told(NEW + 60, "n1", "eth0", "leaf2", "Ethernet7")]))
)
def test_where_a_nic_was_plugged_in(rows: Any) -> None:
    """Independent of the order of rows."""
    site = build_site("c", [], cabling(rows), [], ["n1"])
    assert site.far_end("leaf1", "Ethernet5", T0) == ("n1", "eth0"), "as was believed then"
    assert site.far_end("leaf1", "Ethernet5", NEW + 1) is None, "the port is empty now"
    assert site.far_end("leaf2", "Ethernet7", NEW + 1) == ("n1", "eth0")
    assert site.far_end("leaf2", "Ethernet7", T0) is None
    assert [site.cable_at("n1", "eth0", t)["switch"] for t in (OLD - 9e6, T0, NEW, NEW + 9e6)] == ["leaf1", "leaf1", "leaf2", "leaf2"]  # fmt: skip
    assert site.members_at("leaf1", T0) == {"n1"} and not site.members_at("leaf1", NEW)
    assert site.cables["n1", "eth0"]["switch"] == "leaf2" and site.role("n1", "eth0") == "fabric", (
        "its plane is the NIC's"
    )


@pytest.mark.parametrize(
    ("rows", "switches"),
    [
        ([BEFORE, told(NEW, "n1", "eth0", "leaf1.fabric.example", "Et5")], {"leaf1"}),
        ([BEFORE, told(NEW, "n1", "eth0", "leaf1", None)], {"leaf1"}),
        ([BEFORE, told(NEW, "n1", "eth0", "leaf1", "Ethernet6")], {"leaf1"}),
        ([told(OLD, "n1", "eth0", "rack7-left", "5", "links_csv"), AFTER], {"rack7-left", "leaf2"}),
        ([told(OLD, "n1", "eth0", "leaf1", "5", "links_csv"), told(OLD, "n2", "eth0", "leaf2", "7", "links_csv"), AFTER], {"leaf2"}),
        ([BEFORE, told(OLD, "n1", "eth0", "leaf2", "Ethernet7")], {"leaf1", "leaf2"}),
        ([BEFORE, AFTER, told(NEW + 60, "n1", "eth0", "leaf1", "Ethernet5")], {"leaf1"}),
        ([told(None, "n1", "eth0", "leaf1", "Ethernet5"), AFTER], {"leaf2"}),
    ],
    ids=["another spelling", "no port", "another port of it", "two names of a switch", "inventory, then LLDP", "one moment", "and back", "no time"],
)  # fmt: skip
def test_what_a_later_word_denies(rows: Any, switches: set[str]) -> None:
    found = cabling(rows)
    assert {s for s, hosts in found.members.items() if "n1" in hosts} >= switches
    assert not {s for s, hosts in found.members.items() if "n1" in hosts} - switches - {"leaf1.fabric.example"}


def test_a_port_that_another_node_was_plugged_into() -> None:
    found = cabling([BEFORE, AFTER, told(NEW + 10, "n7", "eth0", "leaf1", "Ethernet5")])
    assert [found.far_end("leaf1", "Ethernet5", t) for t in (T0, NEW + 20)] == [("n1", "eth0"), ("n7", "eth0")]  # fmt: skip
    # No row says where the first one went: the last row about the port counts.
    found = cabling([BEFORE, told(NEW, "n7", "eth0", "leaf1", "Ethernet5")])
    assert [found.far_end("leaf1", "Ethernet5", t) for t in (T0, NEW)] == [("n1", "eth0"), ("n7", "eth0")]


def test_two_links_that_shared_a_cable_once_are_two_outages() -> None:
    lines = [event("nic.link_down", 172800, "n1", "eth0: Link down", port="eth0"),
             event("switch.port_down", 172800.2, "leaf1", "Ethernet5 down", source="switch", port="Ethernet5")]  # fmt: skip
    found = world(lines, links=[BEFORE, AFTER], hosts=["n1"])
    assert [(f.host, f.attrs["ends"]) for f in facts(found, "link.outage")] == [("n1", ["nic"]), ("leaf1", ["switch"])]
    assert len(facts(world(lines, links=[BEFORE], hosts=["n1"]), "link.outage")) == 1


CSV = "node,nic,switch,port\n"


def test_a_later_inventory(tmp_path: Path) -> None:
    """Two inventories, the second one after a cable was moved: the port's events before and after belong to two nodes."""
    for name, day, rows in (("first", 10, "n1,eth0,leaf1,Ethernet5\n"), ("second", 20, "n1,eth0,leaf2,Ethernet7\nn7,eth0,leaf1,Ethernet5\n")):  # fmt: skip
        place = tmp_path / name / "inventory" / "links.csv"
        place.parent.mkdir(parents=True)
        place.write_text(CSV + rows)
        moment = datetime(2026, 3, day, tzinfo=UTC).timestamp()
        os.utime(place, (moment, moment))
    log = tmp_path / "logs" / "switches" / "leaf1" / "syslog"
    log.parent.mkdir(parents=True)
    log.write_text("".join(
        f"2026-03-{day}T10:0{minute}:00.0+00:00 leaf1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet5, changed state to {state}\n"
        for day in (15, 25) for minute, state in ((0, "down"), (1, "up"))
    ))  # fmt: skip
    for node in ("n1", "n7"):
        kernel = tmp_path / "logs" / "nodes" / node / "syslog"
        kernel.parent.mkdir(parents=True)
        kernel.write_text(f"2026-03-01T10:00:00.0+00:00 {node} kernel: EDAC MC: Ver: 3.0.0\n")
    with open_store(None) as store:
        for name in ("first", "second", "logs"):
            Ingest(store, workers=0).run([tmp_path / name])
        correlate(store)
        found = result(store)["incidents"]
    assert [(i["start"][:10], i["root_cause"]["host"]) for i in sorted(found, key=lambda i: str(i["start"]))] == [("2026-03-15", "n1"), ("2026-03-25", "n7")]  # fmt: skip
