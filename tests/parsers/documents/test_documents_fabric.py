"""Output of tools about InfiniBand ports and links, GPUs and network cards. All data here is synthetic."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.documents import read
from parsers.documents.journal_export import pretty_records
from parsers.engine import LineParser
from parsers.recognise import recognise
from parsers.record import Origin
from tests.parsers.documents.test_documents import rows

HERE = Origin(host="n1", received=datetime(2026, 3, 1, 12))
IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 10
"""
IBSTATUS = "Infiniband device 'mlx5_2' port 1 status:\n\tdefault gid:\t fe80::1\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t 200 Gb/sec (4X HDR)\n"
DEVINFO = "hca_id:\tmlx5_3\n\ttransport:\t\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n\t\t\tsm_lid:\t\t\t0\n"
LINKINFO = """CA: n7 mlx5_0:
      0xa088c20300000001      9    1[  ] ==( 4X       106.25 Gbps Active/  LinkUp)==>       2    7[  ] "MF0;leaf07:MQM9700/U1" ( )
Switch: 0xfc6a1c0300000002 MF0;leaf07:MQM9700/U1:
           2    7[  ] ==( 4X       106.25 Gbps Active/  LinkUp)==>       9    1[  ] "n7 mlx5_0" ( )
           2    8[  ] ==( 1X     26.5625 Gbps Active/  LinkUp)==>      10    1[  ] "n8 mlx5_2" ( Could be 4X Could be 106.25 Gbps)
           2    9[  ] ==(                Down/ Polling)==>             [  ] "" ( )
"""
NETDISCOVER = """#
# Topology file: generated on Sun Mar  1 10:00:00 2026
#
vendid=0x2c9
switchguid=0xfc6a1c0300000002(fc6a1c0300000002)
Switch\t65 "S-fc6a1c0300000002"\t\t# "MF0;leaf07:MQM9700/U1" enhanced port 0 lid 2 lmc 0
[7]\t"H-a088c20300000001"[1](a088c20300000001) \t\t# "n7 mlx5_0" lid 9 4xNDR
[33]\t"S-fc6a1c0300000009"[3]\t\t# "MF0;spine01:MQM9700/U1" lid 3 4xNDR

vendid=0x2c9
Ca\t1 "H-a088c20300000001"\t\t# "n7 mlx5_0"
[1](a088c20300000001) \t"S-fc6a1c0300000002"[7]\t\t# lid 9 lmc 0 "MF0;leaf07:MQM9700/U1" lid 2 4xNDR
"""
PERFQUERY = "# Port counters: Lid 9 port 1 (CapMask: 0x1600)\nPortSelect:......................1\nSymbolErrorCounter:..............65535\nLinkDownedCounter:...............3\n"
PERFQUERY += "VL15Dropped:.....................0\n"
ERRORS = """Errors for "MF0;leaf07:MQM9700/U1"
   GUID 0xfc6a1c0300000002 port ALL: [SymbolErrorCounter == 12]
   GUID 0xfc6a1c0300000002 port 8: [SymbolErrorCounter == 12] [LinkDownedCounter == 2]
"""
MLXLINK = """
Operational Info
----------------
State                              : \x1b[31mPolling\x1b[0m
Physical state                     : ETH_AN_FSM_ENABLE
Speed                              : N/A
Width                              : 4x

Troubleshooting Info
--------------------
Status Opcode                      : 15
Group Opcode                       : PHY FW
Recommendation                     : Bad signal integrity

Module Info
Temperature [C]                    : 78 [-10..80]
Rx Power Current [dBm]             : 1,1,1,1 [-15..6]
Link Down Counter                  : 14
"""
SETTINGS = (
    "Settings for ens1f0np0:\n\tSupported ports: [ FIBRE ]\n\tSpeed: 100000Mb/s\n\tDuplex: Full\n\tLink detected: no\n"
)
DRIVER = (
    "driver: mlx5_core\nversion: 24.10-1.1.4\nfirmware-version: 28.43.1014 (MT_0000000838)\nbus-info: 0000:17:00.0\n"
)
MODULE = """	Identifier                                : 0x1e (QSFP+ or later with CMIS)
	Module temperature                        : 81.25 degrees C / 178.25 degrees F
	Module voltage                            : 3.2500 V
	Laser bias current (Channel 2)            : 7.250 mA
	Rcvr signal avg optical power (Channel 2) : 0.0500 mW / -13.01 dBm
	Module temperature high alarm             : On
	Module temperature high warning           : On
	Laser rx power low alarm (Channel 2)      : On
	Module temperature high alarm threshold   : 80.00 degrees C / 176.00 degrees F
"""
DMON = "#Date       Time        gpu    pwr  gtemp  mtemp     sm \n#YYYYMMDD   HH:MM:SS    Idx      W      C      C      % \n 20260301   10:00:01      3    412     61      -     97 \n"
PMON = "# gpu         pid   type     sm    mem    command \n# Idx           #    C/G      %      %    name \n    0       4123     C     55      -    python\n"
PMON += "    1          -     -      -      -    -\n"
LIST = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1111-22)\n  MIG 1g.10gb     Device  0: (UUID: MIG-3333-44)\n"
TOPO = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\nGPU0\t X \tNV18\tPIX\t0-47\t0\nGPU1\tNV18\t X \tSYS\t0-47\t0\nNIC0\tPIX\tSYS\t X \n\nLegend:\n\n  X    = Self\n"
TABLE = """Sun Mar  1 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    4 |
| N/A   61C    P0            412W /  700W |    8192MiB /  81559MiB |     97%      Default |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |                 ERR! |
| ERR!  ERR!  ERR!             N/A / ERR! |       0MiB /  81559MiB |    ERR!      Default |
+-----------------------------------------+------------------------+----------------------+
"""
DIAG = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
+---------------------------+------------------------------------------------+
"""
CASES: list[tuple[str, str, dict[str, float], list[str]]] = [
    ("ibstat", IBSTAT, {"infiniband_port_active@mlx5_0": 1, "infiniband_port_rate_gbps@mlx5_0": 400, "infiniband_port_active@mlx5_1": 0,
                        "infiniband_port_link_up@mlx5_1": 0}, []),
    ("ibstatus", IBSTATUS, {"infiniband_port_active@mlx5_2": 1, "infiniband_port_link_up@mlx5_2": 1, "infiniband_port_rate_gbps@mlx5_2": 200}, []),
    ("ibv_devinfo", DEVINFO, {"infiniband_port_active@mlx5_3": 0}, []),
    ("iblinkinfo", LINKINFO, {"infiniband_switch_port_up@leaf07/8": 1, "infiniband_switch_port_up@leaf07/9": 0}, ["fabric.link_errors"]),
    ("ibnetdiscover", NETDISCOVER, {}, []),
    ("perfquery", PERFQUERY, {"infiniband_symbol_error_total@lid 9": 65535, "infiniband_link_downed_total@lid 9": 3, "infiniband_VL15_dropped_total@lid 9": 0}, []),
    ("ibqueryerrors", ERRORS, {"infiniband_symbol_error_total@leaf07/8": 12, "infiniband_link_downed_total@leaf07/8": 2}, ["fabric.link_errors"]),
    ("mlxlink", MLXLINK, {"infiniband_port_active@mlx5_0": 0, "mlxlink_temperature_c@mlx5_0": 78, "mlxlink_link_down_counter@mlx5_0": 14}, ["fabric.link_errors"]),
    ("mlxlink", MLXLINK.replace(": 15", ": 1024").replace("Bad signal integrity", "Cable is unplugged"), {}, []),
    ("ethtool_settings", SETTINGS, {"net_carrier@ens1f0np0": 0, "net_speed@ens1f0np0": 100000}, []),
    ("ethtool_driver", DRIVER, {"ethtool_driver_info@mlx5_0": 1}, []),
    ("ethtool_module", MODULE, {"ethtool_module_module_temperature_celsius@mlx5_0": 81.25, "ethtool_module_laser_bias_current_milliamperes@mlx5_0": 7.25,
                                "ethtool_module_rcvr_signal_avg_optical_power_dbm@mlx5_0": -13.01, "ethtool_module_module_voltage_volts@mlx5_0": 3.25,
                                "ethtool_module_laser_rx_power_low_alarm@mlx5_0": 1}, ["nic.module_event"]),
    ("nvidia_smi_dmon", DMON, {"nvidia_smi_dmon_pwr@3": 412, "nvidia_smi_dmon_sm@3": 97}, []),
    ("nvidia_smi_pmon", PMON, {"nvidia_smi_pmon_sm@0": 55}, []),
    ("nvidia_smi_list", LIST, {"nvidia_smi_gpu_info@0": 1, "nvidia_smi_mig_info@0": 1}, []),
    ("nvidia_smi_topo", TOPO, {"nvidia_smi_topology_nvlinks@1": 0, "nvidia_smi_topology_nvlinks@0": 0}, []),
    ("nvidia_smi_table", TABLE, {"nvidia_smi_temperature_gpu@0": 61, "nvidia_smi_power_draw_watts@0": 412, "nvidia_smi_utilization_gpu_ratio@0": 0.97,
                                 "nvidia_smi_ecc_errors_uncorrected_volatile_total@0": 4, "nvidia_smi_memory_used_bytes@1": 0}, ["gpu.lost", "gpu.lost"]),
    ("dcgm_diag", DIAG, {"dcgm_diag_pass@0": 1, "dcgm_diag_pass@1": 0}, ["gpu.driver_error", "gpu.driver_error"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "wanted", "events"), CASES, ids=[case[0] for case in CASES])
def test_samples_and_events(kind: str, text: str, wanted: dict[str, float], events: list[str]) -> None:
    origin = HERE.but(path=f"tools/{kind.partition('_')[0]}.mlx5_0.txt")
    found = {f"{row['metric']}@{row['device']}": row["value"] for row in rows(kind, text, "metrics", origin)}
    assert {name: found.get(name) for name in wanted} == pytest.approx(wanted)
    logs = rows(kind, text, "logs", origin)
    assert [row["event"] for row in logs if row["event"] != "other"] == events
    assert [row["raw"] for row in logs] == text.splitlines()


@pytest.mark.parametrize(("kind", "text"), [case[:2] for case in CASES], ids=[case[0] for case in CASES])
def test_recognised_by_content(kind: str, text: str) -> None:
    assert recognise("nodes/n1/output.txt", text.encode()).kind == kind


@given(st.text(max_size=200), st.sampled_from([case[:2] for case in CASES]))
def test_anything_among_the_lines_costs_no_line(odd: str, case: tuple[str, str]) -> None:
    kind, text = case
    data = (text + odd + "\n" + text).encode("utf-8", "surrogatepass")
    parsed = read(kind, data, HERE)
    assert not parsed.warnings and len(parsed.rows("logs")) == data.count(b"\n")


def test_links_of_the_fabric() -> None:
    named = [("n7", "mlx5_0", "leaf07", "7"), ("n8", "mlx5_2", "leaf07", "8")]
    for kind, text, wanted in (("iblinkinfo", LINKINFO, named), ("ibnetdiscover", NETDISCOVER, named[:1])):
        links = rows(kind, text, "links", HERE)
        assert [(row["host"], row["device"], row["switch"], row["switch_port"]) for row in links] == wanted


def test_a_link_slower_than_its_ends_names_both() -> None:
    (row,) = [row for row in rows("iblinkinfo", LINKINFO, "logs", HERE) if row["event"] != "other"]
    assert json.loads(row["entities"]) == {
        "ibdev": "mlx5_2", "peer_node": "n8", "reason": "Could be 4X Could be 106.25 Gbps", "sw_port": "8", "switch": "leaf07",
    }  # fmt: skip


def test_a_driver_is_known_by_name_firmware_and_address() -> None:
    (row,) = rows("ethtool_driver", DRIVER, "metrics", HERE)
    assert json.loads(row["labels"])["bus_info"] == "0000:17:00.0"


def test_the_time_of_a_table_is_its_own() -> None:
    for kind, text in (("nvidia_smi_table", TABLE), ("nvidia_smi_dmon", DMON)):
        assert {row["time"].replace(second=0) for row in rows(kind, text, "metrics", HERE)} == {
            datetime(2026, 3, 1, 10)
        }


TOPOLOGIES = """---
- topology: main
  cluster_default: true
  tree:
    switches:
      - switch: spine
        children: leaf[1-2]
      - {switch: leaf1, nodes: "n[1-2]"}
      - nodes: n3   # its name comes behind
        switch: leaf2
- topology: racks
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[1-2]
"""


def test_topology_yaml() -> None:
    assert recognise("etc/topology.yaml", TOPOLOGIES.encode()).kind == "topology_yaml"
    found = [(row["switch"], row["child"], row["kind"]) for row in rows("topology_yaml", TOPOLOGIES, "topology", HERE)]
    assert found == [
        ("spine", "leaf1", "switch"), ("spine", "leaf2", "switch"), ("leaf1", "n1", "node"), ("leaf1", "n2", "node"), ("leaf2", "n3", "node"),
        ("b1", "n1", "node"), ("b1", "n2", "node"),
    ]  # fmt: skip


PRETTY = """{
\t"__REALTIME_TIMESTAMP" : "1772359200123456",
\t"_HOSTNAME" : "n2",
\t"_TRANSPORT" : "kernel",
\t"MESSAGE" : "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
}
{
\t"__REALTIME_TIMESTAMP" : "1772359201000000",
\t"SYSLOG_IDENTIFIER" : "app",
\t"MESSAGE" : "fine"
}
"""


def test_journal_in_pretty_json() -> None:
    assert recognise("journal.json", PRETTY.encode()).kind == "journal_pretty"
    first, second = rows("journal_pretty", PRETTY, "logs", HERE)
    assert (first["event"], first["host"], first["line"], second["line"], second["message"]) == (
        "gpu.xid",
        "n2",
        1,
        7,
        "fine",
    )


@given(st.lists(st.sampled_from([*PRETTY.splitlines(), "", "{", "}", "x", '"a": 1']), max_size=30))
def test_any_lines_as_pretty_json_are_kept(lines: list[str]) -> None:
    data = "\n".join(lines).encode()
    kept = b"\n".join(raw for _, raw, _ in pretty_records(data))
    assert [line for line in kept.split(b"\n") if line.strip()] == [line.encode() for line in lines if line.strip()]


def test_ibdiagnet_goes_on_below_its_marks() -> None:
    text = (
        "---------------------------------------------\nSummary\n-I- Discovering ... 12 nodes discovered.\n"
        "-E- lid=0x0004 dev=4129 n01/mlx5_0/P1\n        symbol_error_counter            : 512          (threshold=200)\n"
    )
    found = recognise("ibdiagnet2.log", text.encode())
    assert (found.kind, found.source) == ("lines", "ibdiagnet")
    logs = LineParser().parse_data(text.encode(), HERE.but(source=found.source))
    assert logs["format"].to_list() == ["continuation", "continuation", "ibdiagnet", "ibdiagnet", "continuation"]
    assert logs["event"].to_list() == ["other"] * 3 + ["fabric.link_errors"] * 2


def parsed(line: str) -> dict[str, Any]:
    return LineParser().parse([line.encode()], Origin()).row(0, named=True)


def test_junos_names_what_happened_in_the_message_id() -> None:
    head = '<28>1 2026-02-28T16:29:24.123Z leaf1 mib2d 2043 SNMP_TRAP_LINK_DOWN [junos@2636.1.1.1.2.29 admin-status="up(1)" interface-name="et-0/0/3"]'
    for text in (f"{head} ifIndex 5, ifAdminStatus up(1), ifOperStatus down(2), ifName et-0/0/3", head):
        row = parsed(text)
        assert row["event"] == "switch.port_down" and json.loads(row["entities"])["port"] == "et-0/0/3"
        assert row["message"].startswith("SNMP_TRAP_LINK_DOWN: ") and row["source"] == "switch"


def test_a_blank_between_date_and_time() -> None:
    row = parsed("2026-02-28 16:29:24,250 gpu01 app[7]: x")
    assert (row["host"], row["unit"], row["pid"], row["message"], row["format"]) == ("gpu01", "app", 7, "x", "rfc3164")
    assert row["time"] == datetime(2026, 2, 28, 16, 29, 24, 250_000)
    for own in (
        "2026-02-28 16:29:24,250 INFO app[7]: x",
        "2026-02-28 16:29:24 rank 3: x",
        "2026-02-28 16:29:24 trainer: x",
    ):
        assert parsed(own)["host"] is None
