# ruff: noqa: N802 - the stand-in for NVML has NVML's names
"""Each source against a host made for it, and its records through the service's own parsers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from collector.agent import wire
from collector.agent.runner import Runner
from collector.agent.source import Context, Reading
from collector.agent.sources import BUILT_IN, kinds, netlink
from parsers import documents
from parsers.engine import LineParser
from parsers.patterns import load
from parsers.record import Origin

NOW = 1_795_278_600.0  # 2026-11-21T16:30:00Z
BOOT = "0d4f7c1e-0000-4000-8000-000000000001"


class Host:
    """A file system of its own, a clock, and programs that answer from files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.time = NOW
        self.uptime = 5000.0
        self.put("/proc/sys/kernel/random/boot_id", BOOT)
        self.context = Context(
            host="gpu01", root=root, now=lambda: self.time, uptime=lambda: self.uptime, monotonic=lambda: self.uptime
        )

    def put(self, name: str, text: str) -> Path:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str, script: str) -> str:
        """A program that runs ``script`` (sh)."""
        path = self.put(f"/bin/{name}", f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.uptime += seconds

    def runner(self, name: str, positions: dict[str, Any] | None = None, **options: Any) -> Runner:
        kind = kinds(only=[name])[name]
        return Runner(kind, {**kind.options, **options}, self.context, positions if positions is not None else {})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def rows(readings: Iterator[Reading]) -> list[dict[str, Any]]:
    return [row for reading in readings for row in wire.records(reading.body)]


def asked(runner: Runner) -> list[dict[str, Any]]:
    found = rows(runner.poll())
    assert runner.status.state == "ok", runner.status
    return found


@pytest.fixture(scope="session")
def parser() -> LineParser:
    return LineParser(load())


def parsed(parser: LineParser, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log rows that the service makes of line records."""
    made: list[dict[str, Any]] = []
    for row in found:
        text = row.get("lines") or (row.get("raw") if "document" not in row else None)
        if text is None:
            continue
        received = datetime.fromisoformat(row.get("read") or row["time"]).replace(tzinfo=None)
        origin = Origin(
            host="gpu01", source=row.get("source"), received=received, reference=received,
            timezone=row.get("timezone", "Europe/Berlin"), timezone_known="timezone" in row,
        )  # fmt: skip
        made += parser.parse([line.encode() for line in text.split("\n")], origin, 1).to_dicts()
    return made


def tables(row: dict[str, Any]) -> dict[str, pl.DataFrame]:
    """The tables that the service makes of a document record."""
    read = datetime.fromisoformat(row["read"]).replace(tzinfo=None)
    origin = Origin(
        host="gpu01", received=read, reference=read, timezone=row.get("timezone", "UTC"), path=row.get("path")
    )
    made = documents.read(row["document"], row["raw"].encode(), origin)
    assert made.warnings == []
    return made.tables


def values(row: dict[str, Any]) -> dict[tuple[str, str | None], float]:
    found = tables(row)["metrics"]
    return {(r["metric"], r["device"]): r["value"] for r in found.to_dicts()}


# ------------------------------------------------------------------------------------------------------------- kmsg


@contextlib.contextmanager
def kernel(host: Host) -> Iterator[int]:
    """A stand-in for /dev/kmsg: one record a read, as the device gives them (a pipe in packet mode)."""
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
    """The kernel's stamps are 5 s behind; messages read as they come show it."""
    with kernel(host) as device:
        runner = host.runner("kmsg")
        asked(runner)
        for number in range(3):
            host.wait(10)
            os.write(device, b"6,%d,%d,-;message\n" % (number, (host.uptime - 5.0) * 1e6))
            (row,) = asked(runner)
        assert row["time"] == wire.stamp(host.time)
        runner.close()


# ------------------------------------------------------------------------------------------------------------ links


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
    """A real veth pair in a network namespace: the carrier goes and comes, once watched and once not."""
    import sys

    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", FLAPS, "{}"], capture_output=True, text=True, check=False, timeout=60
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


# --------------------------------------------------------------------------------------------------- ethtool, IB, /sys


def test_driver_counters_of_this_host_are_read_without_a_program() -> None:
    kind = kinds(only=["ethtool"])["ethtool"]
    runner = Runner(kind, {**kind.options, "match": ".", "skip": "^$"}, Context(), {})
    found = rows(runner.poll())
    if runner.status.state == "absent":
        pytest.skip(f"no network device with counters here: {runner.status.detail}")
    assert runner.status.state == "ok", runner.status
    assert all(name.startswith("ethtool_") and name.endswith("_total") for name, _ in values(found[0]))


def infiniband(host: Host, state: str, downed: int) -> None:
    top = "/sys/class/infiniband/mlx5_3/ports/1"
    host.put(f"{top}/state", f"4: {state}\n")
    host.put(f"{top}/rate", "400 Gb/sec (4X NDR)\n")
    host.put(f"{top}/counters/link_downed", f"{downed}\n")
    host.put(f"{top}/counters/port_rcv_data", "99999\n")
    host.put(f"{top}/counters/symbol_error", "N/A (no PMA)\n")
    host.put(f"{top}/hw_counters/out_of_sequence", "5\n")
    host.put("/sys/class/infiniband/mlx5_3/device/vendor", "0x15b3")


def test_infiniband_states_are_events_and_counters_have_their_growth(host: Host, parser: LineParser) -> None:
    infiniband(host, "ACTIVE", 2)
    runner = host.runner("infiniband")
    (first,) = asked(runner)
    assert values(first) == {
        ("infiniband_port_active", "mlx5_3"): 1.0, ("infiniband_port_rate_gbps", "mlx5_3"): 400.0,
        ("infiniband_link_downed_total", "mlx5_3"): 2.0, ("infiniband_out_of_sequence_total", "mlx5_3"): 5.0,
    }  # fmt: skip
    host.wait(11)
    assert asked(runner) == [], "what does not change costs nothing"
    infiniband(host, "DOWN", 3)
    host.wait(11)
    line, counters = asked(runner)
    (event,) = parsed(parser, [line])
    assert event["event"] == "nic.link_down" and json.loads(event["entities"])["ibdev"] == "mlx5_3"
    assert values(counters) == {
        ("infiniband_port_active", "mlx5_3"): 0.0, ("infiniband_link_downed_total", "mlx5_3"): 3.0,
        ("infiniband_link_downed_increase", "mlx5_3"): 1.0,
    }  # fmt: skip
    kept = json.loads(json.dumps(runner.positions))
    infiniband(host, "ACTIVE", 3)
    again = host.runner("infiniband", kept)
    assert [r["event"] for r in parsed(parser, asked(again))] == ["nic.link_up"], "also over a restart"


def test_memory_heat_and_bus_errors_of_the_machine(host: Host) -> None:
    host.put("/sys/devices/system/edac/mc/mc0/ce_count", "7\n")
    host.put("/sys/devices/system/edac/mc/mc0/ue_count", "0\n")
    host.put("/sys/devices/system/edac/mc/mc0/dimm3/dimm_ce_count", "7\n")
    host.put("/sys/devices/system/edac/mc/mc0/dimm3/dimm_label", "CPU0_A4\n")
    host.put("/sys/class/thermal/thermal_zone0/temp", "61800\n")
    host.put("/sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n")
    host.put("/sys/devices/system/cpu/cpu0/topology/physical_package_id", "0")
    host.put("/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "12")
    host.put("/sys/bus/pci/devices/0000:53:00.0/class", "0x020700\n")
    for kind in ("correctable", "nonfatal", "fatal"):
        host.put(f"/sys/bus/pci/devices/0000:53:00.0/aer_dev_{kind}", f"RxErr 4\nTOTAL_ERR_{kind[:3].upper()} 4\n")
    (first,) = asked(host.runner("platform"))
    found = values(first)
    assert found["node_edac_correctable_errors_total", "mc0"] == 7
    assert found["node_edac_dimm_correctable_errors_total", "mc0/CPU0_A4"] == 7
    assert found["node_thermal_zone_temp", "x86_pkg_temp"] == 60
    assert found["node_cpu_package_throttles_total", "package0"] == 12
    assert found["pcie_aer_correctable_errors_total", "0000:53:00.0"] == 4


# ------------------------------------------------------------------------------------------------------------- NVML


class FakeNvml:
    """NVML with two GPUs, of which the second can be lost; names as in nvidia-ml-py."""

    NVML_NVLINK_MAX_LINKS = 2
    NVML_NVLINK_ERROR_DL_REPLAY, NVML_NVLINK_ERROR_DL_RECOVERY, NVML_NVLINK_ERROR_DL_CRC_FLIT = 0, 1, 2

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.xids: list[tuple[int, int]] = []
        self.replays = 3

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{'9B' if device else '1B'}:00.0")

    def nvmlDeviceGetUUID(self, device: int) -> str:
        return f"GPU-{device}"

    def nvmlDeviceGetName(self, device: int) -> bytes:
        return b"NVIDIA H100"

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlDeviceRegisterEvents(self, device: int, kinds: int, events: str) -> None:
        assert kinds == 8

    def nvmlEventSetWait_v2(self, events: str, timeout: int) -> SimpleNamespace:
        if not self.xids:
            raise self.NVMLError(10)
        device, xid = self.xids.pop(0)
        return SimpleNamespace(device=device, eventData=xid)

    def _alive(self, device: int) -> None:
        if device in self.lost:
            raise self.NVMLError(15)

    def nvmlDeviceGetTemperature(self, device: int, sensor: int) -> int:
        self._alive(device)
        return 61

    def nvmlDeviceGetPcieReplayCounter(self, device: int) -> int:
        self._alive(device)
        return self.replays

    def nvmlDeviceGetRemappedRows(self, device: int) -> tuple[int, int, int, int]:
        self._alive(device)
        return (1, 2, 1, 0)

    def nvmlDeviceGetNvLinkErrorCounter(self, device: int, link: int, counter: int) -> int:
        if link:
            raise self.NVMLError(3)
        return 40 + counter


def test_gpus_tell_xids_and_metrics_under_dcgms_names(host: Host, parser: LineParser) -> None:
    from collector.agent.sources.nvml import Nvml

    library = FakeNvml()
    source = Nvml(host.context, 30.0, 5.0, library)
    source.open({})
    (first,) = rows(source.poll())
    found = tables(first)["metrics"].to_dicts()
    by_name = {(r["metric"], r["device"]): r["value"] for r in found}
    assert by_name["DCGM_FI_DEV_GPU_TEMP", "1"] == 61 and by_name["DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "0"] == 2
    assert json.loads(found[0]["labels"])["pci_bus_id"] == "0000:1b:00.0"
    assert [
        json.loads(r["labels"])["link"] for r in found if r["metric"] == "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT"
    ] == ["0", "0"]
    library.xids = [(1, 79)]
    library.lost = {1}
    library.replays = 4
    host.wait(31)
    lines, metrics = rows(source.poll())
    events = parsed(parser, [lines])
    assert (events[0]["event"], json.loads(events[0]["entities"])["pci"]) == ("gpu.xid", "0000:9b:00")
    assert json.loads(events[0]["entities"])["xid"] == 79
    assert (events[1]["event"], json.loads(events[1]["entities"])["pci"]) == ("gpu.lost", "0000:9b:00.0")
    assert values(metrics) == {("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "0"): 4.0}, "only what changed, only who answers"
    host.wait(31)
    assert rows(source.poll()) == [], "a lost GPU is told once"


def test_without_library_or_driver_nvml_is_absent(host: Host) -> None:
    runner = host.runner("nvml")
    list(runner.poll())
    if runner.status.state == "ok":
        pytest.skip("this host has a GPU")
    assert runner.status.state == "absent" and runner.status.detail


# ---------------------------------------------------------------------------------------------- scrape, units, boot


def test_exporters_are_scraped_for_what_is_wanted(host: Host) -> None:
    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = b'# HELP x\nDCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="other"} 41\ngo_threads 5\n'
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    (found,) = asked(host.runner("scrape", urls=[url]))
    assert values(found) == {("DCGM_FI_DEV_GPU_TEMP", "0"): 41.0} and found["host"] == "gpu01"
    server.shutdown()
    server.server_close()
    gone = host.runner("scrape", urls=[url])
    list(gone.poll())
    assert gone.status.state == "absent" and url in gone.status.detail


def test_a_failed_unit_is_told_once_with_its_time(host: Host, parser: LineParser) -> None:
    host.put("/run/systemd/system/x", "")
    program = host.program(
        "systemctl",
        'case "$1" in list-units) echo "slurmd.service loaded failed failed Slurm node daemon";;\n'
        '*) echo Result=exit-code; echo "InactiveEnterTimestamp=Sat 2026-11-21 16:20:05 UTC"; echo InvocationID=ab12;; esac',
    )
    runner = host.runner("units", program=program)
    (event,) = parsed(parser, asked(runner))
    assert event["event"] == "sys.service_failed" and event["host"] == "gpu01"
    assert event["time"] == datetime(2026, 11, 21, 16, 20, 5)
    host.wait(31)
    assert asked(runner) == []
    assert asked(host.runner("units", json.loads(json.dumps(runner.positions)), program=program)) == []


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (None, None),
        ({"boot": BOOT, "alive": NOW - 30}, None),
        ({"boot": BOOT, "alive": NOW - 3600}, "not running"),
        ({"boot": "another", "alive": NOW - 30}, "rebooted"),
    ],
)
def test_time_without_an_agent_is_a_blind_period(host: Host, before: dict[str, Any] | None, told: str | None) -> None:
    found = asked(host.runner("boot", {"boot": before} if before else {}))
    assert [told in row["blind"]["reason"] for row in found] == ([True] if told else [])
    if before and told:
        assert found[0]["blind"]["from"] == wire.stamp(before["alive"])


# ------------------------------------------------------------------------------------------------------- journald


ENTRY = (
    '{"__CURSOR":"s=1;i=%x;b=2;m=3;t=4;x=5","__REALTIME_TIMESTAMP":"%d","MESSAGE":"munge.service: Failed with result '
    '\'exit-code\'.","SYSLOG_IDENTIFIER":"systemd","_HOSTNAME":"gpu01","PRIORITY":"4"}'
)


def test_the_journal_is_read_on_from_its_cursor(host: Host, parser: LineParser) -> None:
    host.put("/entries", "".join(ENTRY % (n, (NOW - 60 + n) * 1e6) + "\n" for n in (1, 2)))
    program = host.program(
        "journalctl",
        f'echo "$@" >> {host.root}/asked\ncase "$*" in *--follow*) cat {host.root}/entries; exec sleep 60;; esac',
    )
    runner = host.runner("journald", program=program)
    events = parsed(parser, _patiently(runner))
    assert [(r["event"], r["host"], r["source"]) for r in events] == [("sys.service_failed", "gpu01", "syslog")] * 2
    kept = runner.positions["journald"]
    assert kept["cursor"] == "s=1;i=2;b=2;m=3;t=4;x=5"
    runner.close()
    again = host.runner("journald", {"journald": kept}, program=program)
    _patiently(again)
    again.close()
    commands = (host.root / "asked").read_text().splitlines()
    assert "_TRANSPORT=syslog" in commands[0] and "_TRANSPORT=kernel" not in commands[0]
    assert any("--after-cursor=s=1;i=2;b=2;m=3;t=4;x=5" in command for command in commands)


def _patiently(runner: Runner) -> list[dict[str, Any]]:
    """What a child process gives, as soon as it gives something."""
    end = time.monotonic() + 20
    found: list[dict[str, Any]] = []
    while not found and time.monotonic() < end:
        found = rows(runner.poll())
        time.sleep(0.01)
    return found


def test_a_vacuumed_journal_is_a_blind_period(host: Host) -> None:
    oldest = ENTRY % (900, NOW * 1e6)
    host.put("/oldest", oldest)
    program = host.program("journalctl", f'case "$*" in *--follow*) exec sleep 60;; *) cat {host.root}/oldest;; esac')
    runner = host.runner("journald", {"journald": {"cursor": "gone", "time": NOW - 7200}}, program=program)
    (gap,) = asked(runner)
    assert gap["blind"]["from"] == wire.stamp(NOW - 7200) and gap["blind"]["to"] == wire.stamp(NOW)
    runner.close()


JOURNAL_REMOTE = "/lib/systemd/systemd-journal-remote"


@pytest.mark.skipif(
    not (shutil.which("journalctl") and Path(JOURNAL_REMOTE).exists()),
    reason="needs journalctl and systemd-journal-remote",
)
def test_a_real_journal(host: Host, tmp_path: Path, parser: LineParser) -> None:
    """journalctl itself over a journal made for it: no kernel lines, on from the cursor, no gap where there is none."""

    def entry(n: int, transport: str) -> str:
        at = int(NOW * 1e6) + n * 1_000_000
        return (
            f"__REALTIME_TIMESTAMP={at}\n__MONOTONIC_TIMESTAMP={n + 1}\n_BOOT_ID={'0123456789abcdef' * 2}\nPRIORITY=4\n"
            f"MESSAGE=line {n}\nSYSLOG_IDENTIFIER=sshd\n_TRANSPORT={transport}\n_HOSTNAME=gpu01\n\n"
        )

    def log(*entries: str) -> None:
        (tmp_path / "export").write_text("".join(entries))
        command = [JOURNAL_REMOTE, "-o", str(tmp_path / "system.journal"), str(tmp_path / "export")]
        subprocess.run(command, check=True, capture_output=True)

    log(entry(0, "syslog"), entry(1, "kernel"), entry(2, "journal"))
    program = host.program("journalctl", f'exec {shutil.which("journalctl")} --directory={tmp_path} "$@"')
    runner = host.runner("journald", program=program, first_hours=1e5)
    found = parsed(parser, _patiently(runner))
    assert [(r["message"], r["unit"], r["source"]) for r in found] == [
        ("line 0", "sshd", "syslog"),
        ("line 2", "sshd", "syslog"),
    ]
    kept = dict(runner.positions)
    runner.close()
    log(entry(3, "syslog"))
    again = host.runner("journald", kept, program=program)
    rows_ = _patiently(again)
    assert [r["message"] for r in parsed(parser, rows_)] == ["line 3"]
    assert not [row for row in rows_ if "blind" in row]
    again.close()


def test_a_journal_that_a_tailed_file_repeats_is_left_alone(host: Host) -> None:
    host.put("/var/log/syslog", "x")
    runner = host.runner("journald")
    list(runner.poll())
    assert runner.status.state == "absent" and "/var/log/syslog" in runner.status.detail


# ---------------------------------------------------------------------------------------------------- the controller

SACCT = """case "$1" in
--helpformat) echo "JobID JobIDRaw DBIndex Cluster User State ExitCode Submit Start End NodeList JobName";;
*) echo "$@" >> ROOT/asked; echo "JobID|JobIDRaw|DBIndex|Cluster|User|State|ExitCode|Submit|Start|End|NodeList|JobName"
cat ROOT/jobs;; esac"""


def test_accounting_tells_rows_that_are_new_or_changed(host: Host) -> None:
    program = host.program("sacct", SACCT.replace("ROOT", str(host.root)))
    job = "17|17|3|mini|alice|{}|0:0|2026-11-21T16:00:00|2026-11-21T16:00:01|{}|gpu[01-02]|ring\n"
    done = "16|16|2|mini|bob|COMPLETED|0:0|2026-11-21T15:00:00|2026-11-21T15:00:01|2026-11-21T15:10:01|gpu01|a|b\n"
    host.put("/jobs", done + job.format("RUNNING", "Unknown"))
    runner = host.runner("accounting", program=program)
    (first,) = asked(runner)
    assert sorted(r["state"] for r in tables(first)["jobs"].to_dicts()) == ["COMPLETED", "RUNNING"]
    host.wait(61)
    assert asked(runner) == []
    host.put("/jobs", done + job.format("NODE_FAIL", "2026-11-21T16:20:00"))
    host.wait(61)
    (changed,) = asked(runner)
    (row,) = tables(changed)["jobs"].to_dicts()
    assert (row["job_id"], row["state"], row["end"]) == (17, "NODE_FAIL", datetime(2026, 11, 21, 16, 20))
    looks = (host.root / "asked").read_text().splitlines()
    assert "--starttime=2026-11-19T16:30:00" in looks[0] and "--starttime=2026-11-21T16:15:00" in looks[1]
    assert "Restarts" not in looks[0], "a column that this sacct does not know is not asked for"


def test_the_job_completion_file_is_a_document(host: Host, tmp_path: Path) -> None:
    line = (
        "JobId={} UserId=alice(20001) GroupId=alice(20001) Name=ring JobState={} Partition=gpu TimeLimit=60 "
        "StartTime=2026-11-21T16:00:00 EndTime=2026-11-21T16:20:00 NodeList=gpu[01-02] NodeCnt=2 ExitCode=0:0\n"
    )
    path = host.put("/var/log/slurm/jobcomp.log", line.format(17, "NODE_FAIL") + line.format(18, "COMPLETED"))
    runner = host.runner("files", paths=["/var/log/slurm/*.log"])
    (first,) = asked(runner)
    assert [(r["job_id"], r["state"]) for r in tables(first)["jobs"].to_dicts()] == [
        (17, "NODE_FAIL"),
        (18, "COMPLETED"),
    ]
    with path.open("a") as stream:
        stream.write(line.format(19, "FAILED"))
    host.wait(1)
    (second,) = asked(runner)
    assert [(r["job_id"], r["state"]) for r in tables(second)["jobs"].to_dicts()] == [(19, "FAILED")]


NODE = (
    "NodeName={} Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 CPULoad={} State={} ThreadsPerCore=1 "
    "BootTime=2026-11-18T10:00:00 SlurmdStartTime=2026-11-21T10:00:00 {}\n"
)


def test_a_drain_is_told_with_its_author_and_load_is_no_news(host: Host) -> None:
    host.put("/nodes", NODE.format("gpu01", "0.1", "IDLE", "") + NODE.format("gpu02", "0.1", "IDLE", ""))
    host.put("/events", "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
             "mini|gpu02|2026-11-21T12:00:00|2026-11-21T12:30:00|DRAIN|bad cable|root(0)\n")  # fmt: skip
    scontrol, sacctmgr = (
        host.program("scontrol", f"cat {host.root}/nodes"),
        host.program("sacctmgr", f"cat {host.root}/events"),
    )
    runner = host.runner("nodes", scontrol=scontrol, sacctmgr=sacctmgr)
    states, ledger = asked(runner)
    assert {r["host"] for r in tables(states)["node_states"].to_dicts()} == {"gpu01", "gpu02"}
    (event,) = tables(ledger)["node_states"].to_dicts()
    assert (event["host"], event["reason"], event["actor"]) == ("gpu02", "bad cable", "root(0)")
    reason = "Reason=Kill task failed [root@2026-11-21T16:31:00]"
    host.put("/nodes", NODE.format("gpu01", "7.9", "IDLE", "") + NODE.format("gpu02", "0.1", "IDLE+DRAIN", reason))
    host.wait(16)
    (changed,) = asked(runner)
    (row,) = tables(changed)["node_states"].to_dicts()
    assert (row["host"], row["state"], row["actor"]) == ("gpu02", "idle+drain", "root")
    assert row["time"] == datetime(2026, 11, 21, 16, 31)


def test_slurm_conf_is_told_when_it_changes_and_without_passwords(host: Host) -> None:
    text = "ClusterName=mini\nSlurmctldHost=ctl\nSlurmdTimeout=300\nJobCompPass=secret\nAccountingStoragePass=secret\n"
    host.put("/etc/slurm/slurm.conf", text)
    host.put("/etc/slurm/topology.conf", "SwitchName=leaf01 Nodes=gpu[01-02]\n")
    runner = host.runner("slurm_conf", scontrol=str(host.root / "none"))
    conf, topology = asked(runner)
    assert "secret" not in conf["raw"]
    settings = {r["name"]: r["value"] for r in tables(conf)["settings"].to_dicts()}
    assert settings["SlurmdTimeout"] == "300"
    assert tables(topology)["topology"].height == 2
    host.wait(301)
    assert asked(runner) == []
    assert (
        asked(host.runner("slurm_conf", json.loads(json.dumps(runner.positions)), scontrol=str(host.root / "none")))
        == []
    )


def test_sdiag_without_its_long_tail(host: Host) -> None:
    text = (
        "sdiag output at Sat Nov 21 16:30:00 2026 (1795278600)\\nServer thread count:  3\\nAgent queue size:     0\\n"
    )
    program = host.program(
        "sdiag", f'printf "{text}Remote Procedure Call statistics by message type\\n\\tREQUEST count:9\\n"'
    )
    (found,) = asked(host.runner("sdiag", program=program))
    assert 3.0 in values(found).values()
    assert "REQUEST" not in found["raw"]


def test_a_program_that_fails_is_a_status_with_its_complaint(host: Host) -> None:
    program = host.program("sdiag", "echo slurm_load_ctl_conf error: Unable to contact slurm controller >&2; exit 1")
    runner = host.runner("sdiag", program=program)
    assert list(runner.poll()) == []
    assert runner.status.state == "error" and "Unable to contact slurm controller" in runner.status.detail


# ----------------------------------------------------------------------------------------------------------- the door


def test_every_source_has_one_name_and_explains_itself() -> None:
    for name, kind in kinds().items():
        assert kind.name == name and name in BUILT_IN
        assert kind.reads and kind.costs and kind.blind_to and kind.role in ("node", "controller")


def test_every_file_with_a_source_is_listed() -> None:
    import importlib

    folder = Path(netlink.__file__).parent
    modules = [f"collector.agent.sources.{path.stem}" for path in folder.glob("[a-z]*.py")]
    assert {m for m in modules if hasattr(importlib.import_module(m), "SOURCE")} == set(BUILT_IN.values())


def test_a_site_adds_a_source_with_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site_pump.py").write_text(
        "from collector.agent import wire\nfrom collector.agent.source import Reading, SourceKind\n"
        "class Pump:\n"
        "    interval = 1.0\n"
        "    def open(self, positions): pass\n"
        "    def poll(self):\n        yield Reading(wire.record(stream='pump', raw='pump stopped'), 1)\n"
        "    def close(self): pass\n"
        "SOURCE = SourceKind('pump', lambda context, options: Pump(), {'speed': 3}, 'a pump', 'nothing', 'its colour')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from collector.agent.config import validate

    enabled = validate(
        {"server": "http://x", "plugins": ["site_pump"], "sources": {"pump": {"speed": 4}}}, "t"
    ).enabled()
    kind, options = enabled["pump"]
    assert options == {"speed": 4}
    assert rows(Runner(kind, options, Context(), {}).poll()) == [{"stream": "pump", "raw": "pump stopped"}]
