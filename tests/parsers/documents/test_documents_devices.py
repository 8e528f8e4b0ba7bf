"""Output of tools about GPUs, links and the journal. All data here is synthetic."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.documents import read
from parsers.documents.journal_export import records
from parsers.record import Origin
from tests.parsers.documents.test_documents import rows

HERE = Origin(host="n1", received=datetime(2026, 3, 1, 12))
SMI_XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><timestamp>Sun Mar  1 10:00:00 2026</timestamp><driver_version>570.1</driver_version>
<gpu id="00000000:5E:00.0"><uuid>GPU-11111111-2222</uuid><minor_number>3</minor_number>
<performance_state>P2</performance_state><temperature><gpu_temp>45 C</gpu_temp><gpu_temp_max>N/A</gpu_temp_max></temperature>
<clocks_event_reasons><clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown></clocks_event_reasons>
</gpu></nvidia_smi_log>
"""
SMI_Q = """
==============NVSMI LOG==============

Timestamp                                 : Sun Mar  1 10:00:00 2026
Attached GPUs                             : 1
GPU 00000000:5E:00.0
    Product Name                          : H
    Minor Number                          : 3
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 2
    Temperature
        GPU Current Temp                  : 45 C
    Retired Pages
        Pending Page Blacklist            : Yes
"""
SMI_CSV = "timestamp, index, pci.bus_id, temperature.gpu, utilization.gpu [%], memory.used [MiB], name\n2026/03/01 10:00:00.250, 3, 00000000:5E:00.0, 45, 50 %, 2 MiB, H\n"


def samples(kind: str, text: str | bytes, origin: Origin = HERE) -> dict[str, Any]:
    return {f"{row['metric']}@{row['device']}": row["value"] for row in rows(kind, text, "metrics", origin)}


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        ("nvidia_smi_xml", SMI_XML, {"nvidia_smi_temperature_gpu_temp@3": 45.0, "nvidia_smi_performance_state@3": 2.0,
                                     "nvidia_smi_clocks_event_reasons_clocks_event_reason_hw_thermal_slowdown@3": 1.0}),
        ("nvidia_smi_q", SMI_Q, {"nvidia_smi_ecc_errors_volatile_dram_uncorrectable@3": 2.0, "nvidia_smi_temperature_gpu_current_temp@3": 45.0,
                                 "nvidia_smi_retired_pages_pending_page_blacklist@3": 1.0}),
        ("nvidia_smi_csv", SMI_CSV, {"nvidia_smi_temperature_gpu@3": 45.0, "nvidia_smi_utilization_gpu_ratio@3": 0.5,
                                     "nvidia_smi_memory_used_bytes@3": 2097152.0}),
        ("nvidia_smi_nvlink", "GPU 3: H (UUID: GPU-11)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n", {"nvidia_smi_nvlink_gbytes_per_second@3": 0.0}),
        ("dcgm_dmon", "#Entity   GPUTL   TEMP\nID\nGPU 3     50      N/A\n", {"dcgm_dmon_gputl@3": 50.0}),
        ("dcgm_diag", "| Diagnostic | Result |\n+---\n| Memory | Pass - All |\n| PCIe | Fail - GPUs: 2, 3 |\n| NVLink | Skip - All |\n",
         {"dcgm_diag_pass@None": 1.0, "dcgm_diag_pass@2": 0.0, "dcgm_diag_pass@3": 0.0}),
        ("dcgm_health", "Health Monitor Report\n| Overall Health | Failure |\n| GPU ID: 3 | Warning |\n| -> NVLink | Failure |\n",
         {"dcgm_health@None": 2.0, "dcgm_health@3": 2.0}),
        ("ethtool_statistics", "NIC statistics:\n     rx_packets: 12\n     [0]: tx_cqe: 3\n", {"ethtool_rx_packets_total@unknown": 12.0, "ethtool_0_tx_cqe_total@unknown": 3.0}),
        ("sysfs_dump", "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:4\n/sys/class/infiniband/mlx5_0/ports/1/state:1: DOWN\n"
                       "/sys/class/net/eth0/carrier_changes:7\n", {"infiniband_link_downed_total@mlx5_0": 4.0, "infiniband_port_active@mlx5_0": 0.0,
                                                                  "net_carrier_changes_total@eth0": 7.0}),
    ],
)  # fmt: skip
def test_samples(kind: str, text: str, wanted: dict[str, float]) -> None:
    found = samples(kind, text)
    assert {name: found.get(name) for name in wanted} == wanted
    assert not [name for name, value in found.items() if value is None]
    assert [row["raw"] for row in rows(kind, text, "logs", HERE)] == text.splitlines()


def test_the_time_is_nvidia_smis_own() -> None:
    for kind, text in (("nvidia_smi_xml", SMI_XML), ("nvidia_smi_q", SMI_Q)):
        assert {row["time"] for row in rows(kind, text, "metrics", HERE)} == {datetime(2026, 3, 1, 10)}
    assert rows("nvidia_smi_csv", SMI_CSV, "metrics", HERE)[0]["time"] == datetime(2026, 3, 1, 10, 0, 0, 250_000)


def test_a_gpu_is_known_by_index_address_and_uuid() -> None:
    labels = json.loads(rows("nvidia_smi_xml", SMI_XML, "metrics", HERE)[0]["labels"])
    assert labels == {"gpu": "3", "pci_bus_id": "00000000:5E:00.0", "UUID": "GPU-11111111-2222"}


def test_xml_with_entities_is_kept_and_not_read() -> None:
    parsed = read("nvidia_smi_xml", b'<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log>&b;</nvidia_smi_log>', HERE)
    assert not len(parsed.rows("metrics")) and len(parsed.rows("logs")) == 1 and parsed.warnings


def test_a_file_of_sysfs_is_what_its_path_says() -> None:
    port = "hosts/n1/sys/class/infiniband/mlx5_0/ports/1"
    for name, text, metric, value in (
        ("counters/symbol_error", "12", "infiniband_symbol_error_total", 12.0), ("rate", "400 Gb/sec (4X NDR)", "infiniband_port_rate_gbps", 400.0),
        ("state", "4: ACTIVE", "infiniband_port_active", 1.0), ("phys_state", "3: Disabled", "infiniband_port_link_up", 0.0),
    ):  # fmt: skip
        found = samples("sysfs_file", text + "\n", HERE.but(path=f"{port}/{name}"))
        assert found == {f"{metric}@mlx5_0": value}
    assert samples("sysfs_file", "InfiniBand\n", HERE.but(path=f"{port}/link_layer")) == {}


JOURNAL = (
    b"__CURSOR=s=1;i=2\n__REALTIME_TIMESTAMP=1772359200123456\n_HOSTNAME=n2\nPRIORITY=3\n_TRANSPORT=kernel\n"
    b"MESSAGE=NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.\n\n"
    b"__CURSOR=s=1;i=3\n__REALTIME_TIMESTAMP=1772359201000000\nSYSLOG_IDENTIFIER=app\nMESSAGE\n" + (8).to_bytes(8, "little") + b"two\n\xfflin\n\n"
)  # fmt: skip


def test_journal_export() -> None:
    first, second = rows("journal_export", JOURNAL, "logs", HERE)
    assert (first["event"], first["host"], first["severity"], first["line"]) == ("gpu.xid", "n2", "error", 1)
    assert first["time"] == datetime(2026, 3, 1, 10, 0, 0, 123_456)
    assert second["message"] == "two\n�lin" and second["line"] == 8
    assert (first["raw"].encode() + b"\n\n" + second["raw_bytes"]).strip() == JOURNAL.strip()


@given(st.binary(max_size=300))
def test_any_bytes_as_a_journal(data: bytes) -> None:
    assert all(fields for _, _, fields in records(data))


def test_a_table_of_sinfo_between_bars() -> None:
    text = "AVAIL|HOSTNAMES|STATE|REASON |NODELIST |STATE |\nup|n3|drain*|bad cable |n3 |drained* |\n"
    (state,) = rows("sinfo", text, "node_states", HERE)
    assert (state["host"], state["state"], state["reason"]) == ("n3", "drain*", "bad cable")
