"""Lines about bonds and bridges, which any user can make the kernel write about a device of her own, under any name.

erin's job runs on gpu01 and gpu02, mallory's on gpu01.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from correlator.engine import correlate
from correlator.gather.own_devices import is_about_own_device
from correlator.live.ticker import Ticker
from correlator.selftest import situations
from correlator.site.senders import USERS_SETTING
from parsers.record import Origin, frame
from store import open_store
from tests.correlator.field import KILLED, SET_DOWN, WATCHDOG, Situation, down, ended, heard, tables_of, wrong
from tests.correlator.rows import answer
from tests.line_parser import line_parser

BOND = "bond0: (slave eth0): link status definitely down, disabling slave"
DRIVER = "mlx5_core 0000:17:00.0 eth0: Link down"
LOST = f"-250s gpu01 kernel: {BOND}"
STUCK = f"-5s {{0}} stderr: {WATCHDOG}"
ERINS = ended(user="erin")
BESIDE = ended("COMPLETED", nodes="gpu01", user="mallory", end="1min")
BEFORE = ended("COMPLETED", nodes="gpu01", user="mallory", start="-3h", end="-2h")
NOBODY = ended(nodes="gpu[01-02]", user="root")
UNKNOWN = ("unknown", None, None)
LINK = ("infra.network", "nic.link_down", "gpu01")
SILENT = ("infra.node", "node.unresponsive", "gpu01")
NODE_FAIL = ended("NODE_FAIL", user="erin")
NO_LINK = ("nic.link_down", "nic.link_flap", "switch.port_down")

SITUATIONS = [
    heard("a bond, beside another's job", (LOST, STUCK), (ERINS, BESIDE), (UNKNOWN, None), NO_LINK),
    heard("a bond, of the only user", (LOST, STUCK), (ERINS,), (UNKNOWN,), NO_LINK),
    heard("a bridge", ("-250s gpu01 kernel: sw0: port 4(eth0) entered disabled state", STUCK), (ERINS, BESIDE), (UNKNOWN, None), NO_LINK),
    heard("a node is given up for another reason", (LOST, SET_DOWN, KILLED), (NODE_FAIL, BESIDE), (SILENT, None), NO_LINK),
    heard("a node of one user is given up", (LOST, SET_DOWN, KILLED), (NODE_FAIL, BEFORE), (LINK, None)),
    heard("with its driver's line", (*down("-250.1s", "gpu01", "eth0"), LOST, SET_DOWN, KILLED), (NODE_FAIL, BESIDE), (LINK, None)),
    heard("with its driver's line, later", (LOST, *down("-249s", "gpu01", "eth0"), SET_DOWN, KILLED), (NODE_FAIL, BESIDE), (LINK, None)),
]  # fmt: skip


def concluded(situation: Situation, more: Sequence[dict[str, Any]] = (), **settings: object) -> tuple[Any, list[Any]]:
    """In one pass; ticks must say the same. ``more``: lines of a syslog file."""
    tables = tables_of([situation])
    if more:
        tables["logs"] = frame("logs", [*tables["logs"].to_dicts(), *more])
    with open_store(None) as store:
        ticker = Ticker(store, settings={"SlurmdTimeout": "300", **settings})
        for table in ("jobs", "logs"):  # accounting first: whoever was there is known
            store.add({table: tables[table]})
            ticker.tick()
        ticked = answer(store)
        (found,) = correlate(store, settings={"SlurmdTimeout": "300", **settings})
        assert ticked == answer(store)
    return found, [found.verdicts.get(str(7000 + n)) for n in range(len(situation.jobs))]


def event_of(message: str) -> str:
    lines = [f"<3>Nov 21 09:55:50 gpu01 kernel: {message}".encode()]
    (found,) = line_parser().parse(lines, Origin(reference=situations.BEGINNING))["event"]
    return str(found)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_a_situation(situation: Situation) -> None:
    assert not wrong(situation, *concluded(situation))


def test_where_nobody_is_it_is_a_lost_link() -> None:
    found, _ = concluded(replace(SITUATIONS[0], jobs=(NOBODY,), true=(None,)))
    assert [(i["root_cause"]["event"], i["root_cause"]["device"]) for i in found.incidents] == [
        ("nic.link_down", "eth0")
    ]


def test_the_verdict_says_why_the_line_does_not_count() -> None:
    _, (verdict, _) = concluded(SITUATIONS[0])
    assert any("a user made in a namespace of their own" in doubt for doubt in verdict["doubts"])


@pytest.mark.parametrize("later_s", [0, 5], ids=["at once", "soon"])
@pytest.mark.parametrize("closed", [False, True], ids=["users write syslog", "they do not"])
def test_it_supports_no_driver_line_that_a_user_wrote(closed: bool, later_s: float) -> None:
    """``logger -t kernel`` in the same second: two lines of hers prove nothing. Where no user can write to syslog, it is the kernel's."""
    row = next(r for r in tables_of([SITUATIONS[0]])["logs"].to_dicts() if r["message"] == BOND)
    entities = '{"port": "eth0", "driver": "mlx5_core", "pci": "0000:17:00.0"}'
    forged = {**row, "time": row["time"] + timedelta(seconds=later_s), "message": DRIVER, "raw": DRIVER, "event": event_of(DRIVER), "entities": entities,
              "format": "rfc3164", "facility": None, "file": "nodes/gpu01/syslog", "line": 1}  # fmt: skip
    found, _ = concluded(SITUATIONS[0], [forged], **({USERS_SETTING: False} if closed else {}))
    assert bool(found.incidents) is closed


@pytest.mark.parametrize(
    ("message", "hers"),
    [
        (BOND, True),
        ("bonding: bond0: link status definitely down for interface eth1, disabling it", True),
        ("mlx5_core: (slave eth0): link status definitely down, disabling slave", True),
        (DRIVER, False),
        ("mlx4_en: eth4: Link Down", False),
        ("igb 0000:02:00.0 eth2: igb: eth2 NIC Link is Down", False),
        ("bnx2 0000:01:00.0 em1: NIC Copper Link is Down", False),
        ("mlx5_core 0000:9a:00.0 mlx5_3: Port: 1 Link DOWN", False),
    ],
)
def test_whose_device_a_line_can_be_about(message: str, hers: bool) -> None:
    assert event_of(message) == "nic.link_down"
    assert is_about_own_device("nic.link_down", "kernel", message) is hers
