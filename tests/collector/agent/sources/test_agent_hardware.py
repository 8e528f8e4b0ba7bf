"""What the machine's devices report: InfiniBand ports, memory, heat and buses, GPUs, exporters."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from made_host import Host, asked, parsed, tables, values

from collector.agent.sources.software import METRIC
from correlator.model.gauges import GAUGES
from parsers.engine import LineParser
from store.questions.software import METRIC as STORED


def infiniband(host: Host, state: str, downed: int) -> None:
    top = "/sys/class/infiniband/mlx5_3/ports/1"
    host.put(f"{top}/state", f"4: {state}\n")
    host.put(f"{top}/phys_state", "5: LinkUp\n" if state == "ACTIVE" else "2: Polling\n")
    host.put(f"{top}/rate", "400 Gb/sec (4X NDR)\n")
    host.put(f"{top}/counters/link_downed", f"{downed}\n")
    host.put(f"{top}/counters/port_rcv_data", "99999\n")
    host.put(f"{top}/counters/symbol_error", "N/A (no PMA)\n")
    host.put(f"{top}/hw_counters/out_of_sequence", "5\n")
    vendor = host.put(
        "/sys/devices/pci0000:3a/0000:3b:00.0/vendor", "0x15b3"
    )  # as in a real /sys, `device` leads there
    device = host.root / "sys/class/infiniband/mlx5_3/device"
    if not device.is_symlink():
        device.symlink_to(vendor.parent)


def test_the_axis_asks_for_the_names_of_the_agents_counters(host: Host) -> None:
    infiniband(host, "ACTIVE", 2)
    for name in ("symbol_error", "port_rcv_errors"):
        host.put(f"/sys/class/infiniband/mlx5_3/ports/1/counters/{name}", "7\n")
    (first,) = asked(host.runner("infiniband"))
    wanted = {metric for gauge in GAUGES.values() for metric in gauge.metrics if metric.startswith("infiniband_")}
    assert len(wanted) == 2 and wanted <= {metric for metric, _ in values(first)}


def test_infiniband_states_are_events_and_counters_have_their_growth(host: Host, parser: LineParser) -> None:
    infiniband(host, "ACTIVE", 2)
    runner = host.runner("infiniband")
    (first,) = asked(runner)
    assert values(first) == {
        ("infiniband_port_active", "mlx5_3"): 1.0, ("infiniband_port_link_up", "mlx5_3"): 1.0, ("infiniband_port_rate_gbps", "mlx5_3"): 400.0,
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
        ("infiniband_port_active", "mlx5_3"): 0.0, ("infiniband_port_link_up", "mlx5_3"): 0.0, ("infiniband_link_downed_total", "mlx5_3"): 3.0,
        ("infiniband_link_downed_increase", "mlx5_3"): 1.0,
    }  # fmt: skip
    kept = json.loads(json.dumps(runner.positions))
    infiniband(host, "ACTIVE", 3)
    again = host.runner("infiniband", kept)
    assert [r["event"] for r in parsed(parser, asked(again))] == ["nic.link_up"], "also over a restart"


REAL = Path(__file__).resolve().parents[5] / "shared/data/raw/telemetry/sysfs_ib_gpud"


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/data/raw is not here")
@pytest.mark.parametrize("tree", sorted(REAL.iterdir()) if REAL.is_dir() else [], ids=lambda tree: tree.name)
def test_real_trees_of_infiniband_hosts(tree: Path, host: Host) -> None:
    """/sys of real hosts is read port by port; a file that is not a number stops nothing."""
    folder = host.root / "sys/class"
    folder.mkdir(parents=True)
    (folder / "infiniband").symlink_to(tree)
    ports = {(p.parent.parent.name) for p in tree.glob("*/ports/*") if p.name.isdigit()}
    (row,) = asked(host.runner("infiniband"))
    found = values(row)
    for device in ports:
        state = next(tree.glob(f"{device}/ports/*/state")).read_text()
        assert found["infiniband_port_active", device] == float("ACTIVE" in state)
        counters = next(tree.glob(f"{device}/ports/*/counters"), None)
        if counters is not None:
            downed = (counters / "link_downed").read_text()
            assert found["infiniband_link_downed_total", device] == int(downed)
    assert {device for _, device in found} == ports
    assert not [name for name, _ in found if "packets" in name or "_data" in name], "traffic belongs elsewhere"


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


def test_half_a_number_is_no_sample(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that sends no length and disconnects in the middle: 1234 would be 12."""
    monkeypatch.setattr("collector.agent.sources.scrape.Scrape._get", lambda *_: "DCGM_A 5\nDCGM_B 12")
    (found,) = asked(host.runner("scrape", urls=["http://127.0.0.1:9/metrics"]))
    assert {name for name, _ in values(found)} == {"DCGM_A"}


def test_another_nodes_gpus_are_not_this_nodes(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kubernetes Service may answer with any node's exporter."""
    text = (
        'DCGM_A{gpu="0",Hostname="aks-1.internal"} 41\nDCGM_B{gpu="0",Hostname="gpu01"} 42\n'
        'DCGM_C{gpu="0",Hostname="aks-2"} 43\nDCGM_D{gpu="0"} 44\nDCGM_E{gpu="0",Hostname="aks-10"} 45\n'
    )
    monkeypatch.setattr("collector.agent.sources.scrape.Scrape._get", lambda *_: text)
    host.context.node_names = {"aks-1": "gpu01", "aks-2": "gpu02"}
    runner = host.runner("scrape", urls=["http://127.0.0.1:9/metrics"], own_only=True)
    body = b"".join(reading.body for reading in runner.poll())
    assert set(re.findall(rb"DCGM_.", body)) == {b"DCGM_A", b"DCGM_B", b"DCGM_D"}
    assert "2 samples of another node" in runner.status.detail and "aks-2" in runner.status.detail


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


def test_what_the_node_runs_is_told_when_it_changes(host: Host) -> None:
    assert METRIC == STORED, "the store finds it by this name"
    host.put("/proc/sys/kernel/osrelease", "6.8.0-1015-azure\n")
    nvrm = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (root@x)\nGCC version:  gcc 12.3.0\n"
    host.put("/proc/driver/nvidia/version", nvrm.format("570.86.15"))
    host.put("/sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n")
    host.put("/etc/os-release", 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nIMAGE_ID=hpc\nIMAGE_VERSION="2026.11.3"\n')
    runner = host.runner("software")

    def told() -> dict[tuple[str, str | None], str]:
        labels = [
            json.loads(row["labels"])
            for one in asked(runner)
            for row in tables(one)["metrics"].to_dicts()
            if row["metric"] == METRIC
        ]
        return {(one["name"], one.get("device")): one["version"] for one in labels}

    assert told() == {
        ("kernel", None): "6.8.0-1015-azure", ("nvidia_driver", None): "570.86.15", ("nic_firmware", "mlx5_0"): "28.39.1002",
        ("os", None): "Ubuntu 24.04.1 LTS", ("image", None): "hpc 2026.11.3",
    }  # fmt: skip
    host.wait(61)
    assert told() == {}
    host.put("/proc/driver/nvidia/version", nvrm.format("575.12.03"))
    host.wait(61)
    assert told() == {("nvidia_driver", None): "575.12.03"}
