"""What the kernel reports: its messages, link events and carrier counters, drivers' counters."""

from __future__ import annotations

import array
import contextlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest
from made_host import BOOT, NOW, Host, asked, parsed, rows, values

from collector.agent import wire
from collector.agent.runner import Runner
from collector.agent.source import Context
from collector.agent.sources import ethtool, kinds, netlink
from collector.agent.sources.netlink import IFF_RUNNING, IFF_UP
from parsers.engine import LineParser


@contextlib.contextmanager
def kernel(host: Host) -> Iterator[int]:
    """A stub for /dev/kmsg: one record a read, as the device gives them (a pipe in packet mode)."""
    reader, writer = os.pipe2(os.O_DIRECT)
    path = host.root / "dev/kmsg"
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(f"/proc/self/fd/{reader}")
    try:
        yield writer
    finally:
        os.close(writer)
        os.close(reader)


def test_kernel_messages_carry_the_wall_clock_and_gaps_are_counted(host: Host, parser: LineParser) -> None:
    with kernel(host) as device:
        runner = host.runner("kmsg")
        os.write(
            device,
            b"6,100,4000000000,-;mlx5_core 0000:53:00.0 eth0: Link down\n SUBSYSTEM=pci\n DEVICE=+pci:0000:53:00.0\n",
        )
        os.write(device, b"4,101,4000500000,-,caller=T1;a second message\n")
        found = asked(runner)
        assert [row["raw"] for row in found] == [
            "6,100,4000000000,-;mlx5_core 0000:53:00.0 eth0: Link down", "4,101,4000500000,-,caller=T1;a second message",
        ]  # fmt: skip
        assert found[0]["time"] == "2026-11-21T16:13:20.000000Z", "16:30 less the 1,000 s since"
        (event, _) = parsed(parser, found)
        assert (event["event"], event["source"]) == ("nic.link_down", "kernel")
        os.write(device, b"6,110,4900000000,-;after the gap\n")
        gap, line = asked(runner)
        assert gap["blind"]["lines"] == 8 and "overwritten" in gap["blind"]["reason"]
        assert gap["blind"]["to"] == line["time"]
        runner.close()


def test_a_restart_in_the_same_boot_goes_on_behind_the_last_message(host: Host) -> None:
    with kernel(host) as device:
        positions = {"kmsg": {"boot": BOOT, "next": 101, "time": NOW - 60}}
        runner = host.runner("kmsg", positions)
        for number in (99, 100, 101, 105):
            os.write(device, b"6,%d,4900000000,-;message\n" % number)
        found = asked(runner)
        assert [row["raw"].split(",")[1] for row in found if "raw" in row] == ["101", "105"]
        assert [row["blind"]["lines"] for row in found if "blind" in row] == [3]
        runner.close()


def test_another_boot_begins_anew(host: Host) -> None:
    with kernel(host) as device:
        runner = host.runner("kmsg", {"kmsg": {"boot": "another", "next": 50_000, "time": NOW}})
        os.write(device, b"5,0,0,-;Linux version 6.1.0\n")
        assert [row["raw"] for row in asked(runner)] == ["5,0,0,-;Linux version 6.1.0"]
        runner.close()


def test_a_kernel_clock_that_ran_away_is_measured(host: Host) -> None:
    """The kernel's timestamps are 5 s behind; messages read as they arrive show it."""
    with kernel(host) as device:
        runner = host.runner("kmsg")
        asked(runner)
        for number in range(3):
            host.wait(10)
            os.write(device, b"6,%d,%d,-;message\n" % (number, (host.uptime - 5.0) * 1e6))
            (row,) = asked(runner)
        assert row["time"] == wire.stamp(host.time)
        runner.close()


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_wall_clock_that_is_set_dates_no_message_back(step: float, host: Host) -> None:
    """Found by reading: after a step forward, kernel messages were an hour early for an hour."""
    with kernel(host) as device:
        runner = host.runner("kmsg")
        asked(runner)
        for number in range(4):
            host.wait(10)
            host.time += step if number == 2 else 0
            os.write(device, b"6,%d,%d,-;message\n" % (number, host.uptime * 1e6))
            (row,) = asked(runner)
            assert row["time"] == wire.stamp(host.time), number
        runner.close()


def root_in_a_network_of_its_own() -> bool:
    done = subprocess.run(["unshare", "--net", "ip", "link", "add", "type", "veth"], capture_output=True, check=False)
    return done.returncode == 0


FLAPS = """
import json, subprocess, sys, time
from collector.agent import wire
from collector.agent.runner import Runner
from collector.agent.source import Context
from collector.agent.sources.links import SOURCE

def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)

ip("link", "add", "hsn0", "type", "veth", "peer", "name", "port")
ip("link", "set", "hsn0", "up"); ip("link", "set", "port", "up")
time.sleep(1.2)
positions = json.loads(sys.argv[1])
runner = Runner(SOURCE, {**SOURCE.options, "exclude": ["lo", "port"], "poll_s": 0.5}, Context(), positions)
def polled(seconds):
    end = time.time() + seconds
    while time.time() < end:
        for reading in runner.poll():
            for row in wire.records(reading.body):
                print(json.dumps(row), flush=True)
        time.sleep(0.05)
polled(0.7)
ip("link", "set", "port", "down"); polled(1.5)
ip("link", "set", "port", "up"); polled(1.5)
print(json.dumps({"mark": runner.positions["links"]}))
runner.close()
ip("link", "set", "port", "down"); time.sleep(1.2); ip("link", "set", "port", "up"); time.sleep(1.2)
runner = Runner(SOURCE, {**SOURCE.options, "exclude": ["lo", "port"], "poll_s": 0.5}, Context(), runner.positions)
polled(0.7)
assert runner.status.state == "ok", runner.status
"""


@pytest.mark.skipif(not root_in_a_network_of_its_own(), reason="needs root and ip: makes a network of its own")
def test_a_flap_is_an_event_and_one_that_nobody_watched_is_counted(parser: LineParser) -> None:
    """A real veth pair in a network namespace: the carrier is lost and regained, once watched and once not."""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", FLAPS, "{}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    mark = next(n for n, row in enumerate(found) if "mark" in row)
    watched, unwatched = parsed(parser, found[:mark]), parsed(parser, found[mark + 1 :])
    assert [row["event"] for row in watched] == ["nic.link_down", "nic.link_up"]
    assert all(json.loads(row["entities"])["port"] == "hsn0" and row["time_quality"] == "line" for row in watched)
    assert [row["event"] for row in unwatched] == ["nic.link_down", "nic.link_up"]
    assert all("counted, not announced: 1 carrier losses" in row["raw"] for row in unwatched)
    counters = [row for row in found[:mark] if row.get("document") == "link_counters"]
    first, last = values(counters[0]), values(counters[-1])
    assert last["link_carrier_down_count", "hsn0"] - first["link_carrier_down_count", "hsn0"] == 1
    assert ("link_carrier_up_count", "hsn0") in last


def test_link_messages_are_read_as_pyroute2_reads_them() -> None:
    """The whole table of this host, once with each reader."""
    pyroute2 = pytest.importorskip("pyroute2")
    with pyroute2.IPRoute() as route:
        theirs = {link["index"]: link for link in route.get_links()}
    ours = {link.index: link for link in netlink.dump()}
    assert ours.keys() == theirs.keys() and ours
    for index, link in ours.items():
        their = theirs[index]
        assert link.name == their.get_attr("IFLA_IFNAME")
        assert link.flags == their["flags"]
        assert link.operstate == their.get_attr("IFLA_OPERSTATE")
        assert (link.changes, link.ups, link.downs) == tuple(
            their.get_attr(f"IFLA_CARRIER_{name}") for name in ("CHANGES", "UP_COUNT", "DOWN_COUNT")
        )
        stats = their.get_attr("IFLA_STATS64")
        assert dict(link.stats)["rx_dropped"] <= stats["rx_dropped"]
        assert dict(link.stats)["tx_carrier_errors"] == stats["tx_carrier_errors"]


def test_driver_counters_of_this_host_are_read_without_a_program() -> None:
    kind = kinds(only=["ethtool"])["ethtool"]
    runner = Runner(kind, {**kind.options, "match": ".", "skip": "^$"}, Context(), {})
    found = rows(runner.poll())
    if runner.status.state == "absent":
        pytest.skip(f"no network device with counters here: {runner.status.detail}")
    assert runner.status.state == "ok", runner.status
    assert all(name.startswith("ethtool_") and name.endswith("_total") for name, _ in values(found[0]))


def test_a_list_with_a_hole_shows_no_loss(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: a link that one list omitted was compared with the counters at the agent's start."""
    link = netlink.Link(2, "hsn0", IFF_UP | IFF_RUNNING, "UP", ups=5, downs=4)
    lists = [[link], [], [link]]
    monkeypatch.setattr(netlink, "listen", Silent)
    monkeypatch.setattr(netlink, "dump", lambda: lists.pop(0))
    runner = host.runner("links", {"links": {"boot": BOOT, "time": NOW, "counts": {"hsn0": [2, 3, 2, True]}}})
    first = asked(runner)
    assert "2 carrier losses" in next(row["lines"] for row in first if "lines" in row)
    for _ in range(2):
        host.wait(6)
        assert not [row for row in asked(runner) if "lines" in row]


class Silent:
    """A socket on which no event comes."""

    def fileno(self) -> int:
        return 0

    def recv(self, size: int) -> bytes:
        raise BlockingIOError

    def close(self) -> None: ...


def test_a_list_of_links_that_changed_meanwhile_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[list[int] | None] = [None, None, [7]]

    def dump() -> list[int]:
        found = lists.pop(0)
        if found is None:
            list(netlink.parse(struct.pack("=IHHII", 32, netlink.RTM_NEWLINK, 0x12, 1, 0) + bytes(16)))
        return found or []

    monkeypatch.setattr(netlink, "_dump", dump)
    assert netlink.dump() == [7]  # type: ignore[comparison-overlap]


def test_a_driver_whose_counters_become_more_writes_into_no_other_memory(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by reading: the kernel writes as many as there are, not as many as there is room for."""
    host.put("/sys/class/net/eth0/device/x", "")
    driver = {"names": ["rx_errors"]}

    def ask(handle: int, name: str, data: array.array[int]) -> None:
        (command,) = struct.unpack_from("=I", data)
        names = driver["names"]
        if command == ethtool._GSSET_INFO:
            struct.pack_into("=Q", data, 8, 1 << 1)
            struct.pack_into("=I", data, 16, len(names))
            driver["names"] = driver.pop("soon", names)  # the set changes between the requests
            return
        text = b"".join(n.encode().ljust(32, b"\0") for n in names)
        held = text if command == ethtool._GSTRINGS else struct.pack(f"={len(names)}Q", *range(1, len(names) + 1))
        begin = 12 if command == ethtool._GSTRINGS else 8
        assert len(data) >= begin + len(held), "written behind the end of the buffer"
        struct.pack_into("=I", data, begin - 4, len(names))
        data[begin : begin + len(held)] = array.array("B", held)

    monkeypatch.setattr(ethtool, "_ask", ask)
    runner = host.runner("ethtool")
    assert values(asked(runner)[0]) == {("ethtool_rx_errors_total", "eth0"): 1}
    driver["soon"] = ["rx_errors", *(f"tx_errors_{n}" for n in range(200))]
    host.wait(31)
    rows(runner.poll())
    host.wait(61)
    assert len(values(asked(runner)[0])) >= 200
