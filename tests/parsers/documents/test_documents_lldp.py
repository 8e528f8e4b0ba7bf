"""LLDP neighbours of hosts and switches, in every spelling, become links. All data here is synthetic."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.documents import read
from parsers.documents.lldp import BETWEEN, HOSTS, NAMELESS, OPEN
from parsers.recognise import recognise
from parsers.record import Origin
from tests.parsers.documents.test_documents import rows

HERE = Origin(path="nodes/gpu7/lldp.txt", host="gpu7", received=datetime(2026, 3, 1, 12))
LEAF = HERE.but(path="switches/leaf3/lldp.txt", host="leaf3")

PLAIN = """\
-------------------------------------------------------------------------------
LLDP neighbors:
-------------------------------------------------------------------------------
Interface:    ens1f0np0, via: LLDP, RID: 1, Time: 3 days, 02:10:44
  Chassis:
    ChassisID:    mac 0c:29:ef:aa:00:10
    SysName:      leaf3.lab.example
    SysDescr:     Arista Networks EOS version 4.30.1F running on an
                  Example Switch
    MgmtIP:       10.0.0.3
    Capability:   Bridge, on
    Capability:   Router, on
  Port:
    PortID:       ifname Ethernet7
    PortDescr:    gpu7 rail 0
    TTL:          120
-------------------------------------------------------------------------------
Interface:    ens2f0np0, via: LLDP, RID: 2, Time: 3 days, 02:10:40
  Chassis:
    ChassisID:    mac 0c:29:ef:aa:00:11
    SysName:      leaf4
    Capability:   Bridge, on
  Port:
    PortID:       local 509
    PortDescr:    et-0/0/9
    TTL:          120
-------------------------------------------------------------------------------
"""
ON_SONIC = """\
admin@leaf3:~$ show lldp neighbors
-------------------------------------------------------------------------------
LLDP neighbors:
-------------------------------------------------------------------------------
Interface:    Ethernet0, via: LLDP, RID: 3, Time: 0 day, 00:10:44
  Chassis:
    ChassisID:    mac b8:59:9f:00:00:01
    SysName:      gpu7
    SysDescr:     Ubuntu 22.04.4 LTS Linux 5.15.0-1 x86_64
    Capability:   Bridge, on
    Capability:   Station, off
  Port:
    PortID:       mac b8:59:9f:00:00:01
    PortDescr:    ens1f0np0
Interface:    Ethernet120, via: LLDP, RID: 4, Time: 0 day, 00:10:44
  Chassis:
    ChassisID:    mac 0c:29:ef:aa:00:20
    SysName:      spine1
    SysDescr:     SONiC Software Version: SONiC.202311
  Port:
    PortID:       local etp3
    PortDescr:    Ethernet24
"""
PAIRS = """\
lldp.ens1f0np0.via=LLDP
lldp.ens1f0np0.rid=1
lldp.ens1f0np0.chassis.mac=0c:29:ef:aa:00:10
lldp.ens1f0np0.chassis.name=leaf3.lab.example
lldp.ens1f0np0.chassis.descr=Cumulus Linux version 5.9.1
lldp.ens1f0np0.chassis.Bridge.enabled=on
lldp.ens1f0np0.port.ifname=swp7
lldp.ens1f0np0.port.descr=swp7
lldp.bond0.100.via=LLDP
lldp.bond0.100.chassis.name=leaf4
lldp.bond0.100.port.ifname=Gi1/0/9
"""
JSON = """{"lldp": {"interface": [
  {"ens1f0np0": {"via": "LLDP", "rid": "1", "age": "3 days, 02:10:44",
    "chassis": {"leaf3.lab.example": {"id": {"type": "mac", "value": "0c:29:ef:aa:00:10"}, "descr": "Cumulus Linux",
      "capability": [{"type": "Bridge", "enabled": true}, {"type": "Router", "enabled": true}]}},
    "port": {"id": {"type": "ifname", "value": "swp7"}, "descr": "swp7", "ttl": "120"}}},
  {"ens2f0np0": {"via": "LLDP", "rid": "2", "chassis": {"leaf4": {"id": {"type": "mac", "value": "0c:29:ef:aa:00:11"}}},
    "port": {"id": {"type": "local", "value": "etp2"}, "descr": "Ethernet8"}}}]}}
"""
JSON_OF_ONE = """{"lldp": {"interface": {"ens1f0np0": {"chassis": {"leaf3": {"id": {"type": "mac", "value": "0c:29:ef:aa:00:10"},
  "capability": {"type": "Bridge", "enabled": true}}}, "port": {"id": {"type": "ifname", "value": "swp7"}}}}}}
"""
JSON0 = """{"lldp": [{"interface": [{"name": "ens1f0np0", "via": "LLDP", "chassis": [{"id": [{"type": "mac", "value": "0c:29:ef:aa:00:10"}],
  "name": [{"value": "leaf3"}], "descr": [{"value": "Cumulus Linux"}], "capability": [{"type": "Bridge", "enabled": true}]}],
  "port": [{"id": [{"type": "ifname", "value": "swp7"}], "descr": [{"value": "swp7"}]}]}]}]}
"""
XML = """<?xml version="1.0" encoding="UTF-8"?>
<lldp label="LLDP neighbors">
 <interface label="Interface" name="ens1f0np0" via="LLDP" rid="1" age="3 days, 02:10:44">
  <chassis label="Chassis"><id label="ChassisID" type="mac">0c:29:ef:aa:00:10</id><name label="SysName">leaf3.lab.example</name>
   <descr label="SysDescr">Cisco NX-OS(tm) n9000</descr><capability label="Capability" type="Bridge" enabled="on"/></chassis>
  <port label="Port"><id label="PortID" type="ifname">Ethernet1/7</id><descr label="PortDescr">to gpu7</descr></port>
 </interface>
</lldp>
"""
NETWORKCTL = """\
LINK             CHASSIS ID        SYSTEM NAME      CAPS        PORT ID           PORT DESCRIPTION
ens1f0np0        0c:29:ef:aa:00:10 leaf3.lab        ..b.r...... Ethernet7         n/a
eno1             0c:29:ef:aa:00:99 Mgmt-Sw-2540-24… ..b........ 10                10

Capability Flags:
o - Other; p - Repeater;  b - Bridge; w - WLAN Access Point; r - Router;
t - Telephone; d - DOCSIS cable device; a - Station; c - Customer VLAN;

2 neighbors listed.
"""
NEW_NETWORKCTL = """\
LINK      CHASSIS-ID        SYSTEM-NAME CAPS        PORT-ID   PORT-DESCRIPTION
ens1f0np0 0c:29:ef:aa:00:10 leaf3       ..b.r...... Ethernet7 -
eno1      0c:29:ef:aa:00:99 -           ...........  10       -
"""
SONIC = """\
admin@leaf3:~$ show lldp table
Capability codes: (R) Router, (B) Bridge, (O) Other
LocalPort    RemoteDevice      RemotePortID       Capability    RemotePortDescr
-----------  ----------------  -----------------  ------------  -----------------------
Ethernet0    gpu7              b8:59:9f:00:00:01  BR            ens1f0np0
Ethernet4    gpu8              b8:59:9f:00:00:02  R             Interface   8 as enp5s0
Ethernet8                      b8:59:9f:00:00:03
Ethernet12   gpu9              b8:59:9f:00:00:04  O
Ethernet120  spine1            etp3               BR            Ethernet24
eth0         mgmt-switch       swp9               BR            swp9
--------------------------------------------------
Total entries displayed:  6
"""
CUMULUS = """\
cumulus@leaf3:mgmt:~$ net show lldp

LocalPort  Speed  Mode       RemoteHost       RemotePort
---------  -----  ---------  ---------------  -----------------
eth0       1G     Mgmt       oob-mgmt-switch  swp10
swp1       100G   Trunk/L2   gpu7.lab         ens1f0np0
swp2       100G   Trunk/L2   gpu8             44:38:39:00:00:32
swp49      400G   Default    leaf4            swp49
"""
NVUE = """\
Interface  Speed  Type      Remote Host      Remote Port
---------  -----  --------  ---------------  -----------
+ eth0     1G     eth       oob-mgmt-switch  swp10
+ swp1s0   100G   swp       gpu7             ens1f0np0
+ swp2     100G   swp
"""
EOS = """\
leaf3#show lldp neighbors
Last table change time   : 0:00:02 ago
Number of table inserts  : 3

Port       Neighbor Device ID             Neighbor Port ID           TTL
---------- ---------------------------------- ---------------------- ---
Et1        gpu7.lab.example               ens1f0np0                  120
Et2        gpu8                           b859.9f00.0002             120
Et49/1     spine1.lab                     Ethernet1/1                120
Ma1        mgmt-switch                    Gi1/0/3                    120
"""
EOS_JSON = """leaf3#show lldp neighbors | json
{"tablesInserts": 3, "lldpNeighbors": [
  {"port": "Ethernet1", "neighborDevice": "gpu7", "neighborPort": "ens1f0np0", "ttl": 120},
  {"port": "Ethernet49/1", "neighborDevice": "spine1", "neighborPort": "Ethernet1/1", "ttl": 120}]}
"""
JUNOS = """\
ann@leaf3> show lldp neighbors
Local Interface    Parent Interface    Chassis Id          Port info          System Name
et-0/0/1           -                   b8:59:9f:00:00:01   ens1f0np0          gpu7
et-0/0/2:1         ae3                 b8:59:9f:00:00:02   Interface   8 as enp5s0 gpu8
xe-0/0/47          -                   0c:29:ef:aa:00:20   et-0/0/30          spine1
"""
OLD_JUNOS = """\
Local Interface    Chassis Id        Port info          System Name
ge-0/0/1           b8:59:9f:00:00:01 eno1               gpu7
"""
NXOS = """\
Capability codes:
  (R) Router, (B) Bridge, (T) Telephone, (C) DOCSIS Cable Device
  (W) WLAN Access Point, (P) Repeater, (S) Station, (O) Other
Device ID            Local Intf      Hold-time  Capability  Port ID
gpu7                 Eth1/1          120        S           ens1f0np0
gpu-with-a-long-name-8.lab
                     Eth1/2          120        BR          b859.9f00.0002
cr-spine.lab.example  Eth1/49          120        BR           Fo1/0/8
gpu9.lab.example.com  Eth1/3         120                    eno1
fw1                  Eth1/50         120                    ethernet1/9
Total entries displayed: 5
"""
IOS = """\
Device ID           Local Intf     Hold-time  Capability      Port ID
gpu7.lab            Gi1/0/1        120        S               eno1
gpu-with-a-long-nameGi1/0/2        120        S               eno1
"""

CASES = [
    ("lldpctl", PLAIN, HERE, [("gpu7", "ens1f0np0", "leaf3", "Ethernet7"), ("gpu7", "ens2f0np0", "leaf4", "et-0/0/9")], []),
    ("lldpctl", ON_SONIC, Origin(), [("gpu7", "ens1f0np0", "leaf3", "Ethernet0")], []),
    ("lldpctl_keyvalue", PAIRS, HERE, [("gpu7", "ens1f0np0", "leaf3", "swp7"), ("gpu7", "bond0.100", "leaf4", "GigabitEthernet1/0/9")], []),
    ("lldpctl_json", JSON, HERE, [("gpu7", "ens1f0np0", "leaf3", "swp7"), ("gpu7", "ens2f0np0", "leaf4", "Ethernet8")], []),
    ("lldpctl_json", JSON_OF_ONE, HERE, [("gpu7", "ens1f0np0", "leaf3", "swp7")], []),
    ("lldpctl_json", JSON0, HERE, [("gpu7", "ens1f0np0", "leaf3", "swp7")], []),
    ("lldpctl_xml", XML, HERE, [("gpu7", "ens1f0np0", "leaf3", "Ethernet1/7")], []),
    ("networkctl_lldp", NETWORKCTL, HERE, [("gpu7", "ens1f0np0", "leaf3", "Ethernet7")], [f"1 of 2 neighbours {NAMELESS}"]),
    ("networkctl_lldp", NEW_NETWORKCTL, HERE, [("gpu7", "ens1f0np0", "leaf3", "Ethernet7")], [f"1 of 2 neighbours {NAMELESS}"]),
    ("sonic_lldp", SONIC, Origin(), [
        ("gpu7", "ens1f0np0", "leaf3", "Ethernet0"), ("gpu8", "enp5s0", "leaf3", "Ethernet4"), ("gpu9", "", "leaf3", "Ethernet12"),
    ], [f"1 of 6 neighbours {NAMELESS}"]),
    ("cumulus_lldp", CUMULUS, Origin(), [("gpu7.lab", "ens1f0np0", "leaf3", "swp1"), ("gpu8", "", "leaf3", "swp2")], []),
    ("cumulus_lldp", NVUE, LEAF, [("gpu7", "ens1f0np0", "leaf3", "swp1s0")], []),
    ("eos_lldp", EOS, Origin(), [("gpu7.lab.example", "ens1f0np0", "leaf3", "Ethernet1"), ("gpu8", "", "leaf3", "Ethernet2")], []),
    ("eos_lldp_json", EOS_JSON, Origin(), [("gpu7", "ens1f0np0", "leaf3", "Ethernet1")], []),
    ("junos_lldp", JUNOS, Origin(), [("gpu7", "ens1f0np0", "leaf3", "et-0/0/1")], ["a row whose cells"]),
    ("junos_lldp", OLD_JUNOS, LEAF, [("gpu7", "eno1", "leaf3", "ge-0/0/1")], []),
    ("nxos_lldp", NXOS, LEAF, [("gpu7", "ens1f0np0", "leaf3", "Ethernet1/1"), ("gpu9.lab.example.com", "eno1", "leaf3", "Ethernet1/3")],
     [f"1 of 5 neighbours {OPEN}"]),
    ("nxos_lldp", IOS, LEAF, [("gpu7.lab", "eno1", "leaf3", "GigabitEthernet1/0/1")], [f"1 of 2 neighbours {NAMELESS}"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "origin", "wanted", "said"), CASES, ids=[case[0] for case in CASES])
def test_neighbours_become_links(
    kind: str, text: str, origin: Origin, wanted: list[tuple[str, ...]], said: list[str]
) -> None:
    assert recognise("x/y", text.encode()).kind == kind
    parsed = read(kind, text.encode(), origin)
    links = parsed.rows("links").to_dicts()
    assert [(row["host"], row["device"], row["switch"], row["switch_port"]) for row in links] == wanted
    assert {(row["plane"], row["rail"], row["source"]) for row in links} == {(None, None, kind)}
    assert len(parsed.warnings) == len(said)
    assert all(text in warning for text, warning in zip(said, parsed.warnings, strict=True))


@pytest.mark.parametrize(("kind", "text"), [case[:2] for case in CASES if case[0][-4:] not in ("json", "_xml")])
def test_lines_of_a_table_are_kept(kind: str, text: str) -> None:
    assert [row["raw"] for row in rows(kind, text, "logs", HERE)] == text.splitlines()


@given(st.text(max_size=200), st.sampled_from([case[:2] for case in CASES]))
def test_anything_in_a_file_loses_no_line_and_raises_nothing(odd: str, case: tuple[str, str]) -> None:
    kind, text = case
    data = (text + odd + "\n" + text).encode("utf-8", "surrogatepass")
    parsed = read(kind, data, HERE)
    assert parsed.warnings or parsed.rows("links").height or kind == "cumulus_lldp"
    if kind[-4:] not in ("json", "_xml"):
        assert parsed.rows("logs").height == data.count(b"\n")


@pytest.mark.parametrize(("text", "why"), [
    ('{"lldp": {}}', "no LLDP neighbour"),
    (JSON_OF_ONE.replace("swp7", "eth1"), HOSTS),
    (JSON_OF_ONE.replace("swp7", "3").replace("true", "false"), OPEN),
    (JSON_OF_ONE.replace("leaf3", "0c:29:ef:aa:00:10"), NAMELESS),
    (JSON_OF_ONE.replace("ens1f0np0", "swp51"), BETWEEN),
])  # fmt: skip
def test_a_file_without_a_link_says_why(text: str, why: str) -> None:
    parsed = read("lldpctl_json", text.encode(), HERE)
    assert parsed.rows("links").is_empty()
    (warning,) = parsed.warnings
    assert why in warning


def test_a_chassis_without_a_name_is_not_given_one() -> None:
    text = '{"lldp": {"interface": {"eno1": {"chassis": {"id": {"type": "mac", "value": "0c:29:ef:aa:00:10"}}, "port": {"id": {"type": "ifname", "value": "swp3"}}}}}}'
    parsed = read("lldpctl_json", text.encode(), HERE)
    assert parsed.rows("links").is_empty() and NAMELESS in parsed.warnings[0]


@pytest.mark.parametrize(("path", "host", "switch"), [
    ("inventory/show_lldp_neighbors.leaf9.txt", None, "leaf9"),
    ("leaf-9_lldp_table.txt", None, "leaf-9"),
    ("lldp/leaf9.rack2.txt", None, "leaf9.rack2"),
    ("lldp.txt", "leaf9", "leaf9"),
    ("notes.txt", None, None),
    ("lldp.txt", None, None),
])  # fmt: skip
def test_whose_table_it_is_may_stand_in_the_path(path: str, host: str | None, switch: str | None) -> None:
    text = EOS.split("\n", 1)[1]
    parsed = read("eos_lldp", text.encode(), Origin(path=path, host=host))
    links = parsed.rows("links").to_dicts()
    assert {row["switch"] for row in links} == ({switch} if switch else set())
    assert bool(parsed.warnings) == (switch is None)


def test_two_neighbours_behind_one_port_are_two() -> None:
    neighbour = {"chassis": {"leaf1": {"id": {}}}, "port": {"id": {"type": "ifname", "value": "swp1"}}}
    text = json.dumps(
        {"lldp": {"interface": [{"eno1": neighbour}, {"eno1": neighbour | {"chassis": {"leaf2": {"id": {}}}}}]}}
    )
    assert [row["switch"] for row in rows("lldpctl_json", text, "links", HERE)] == ["leaf1", "leaf2"]
