"""Which device is attached to which switch of an InfiniBand fabric, from ``iblinkinfo`` and ``ibnetdiscover``: links.

``iblinkinfo`` also reports links that run narrower or slower than both ends could ("Could be 4X"):
``fabric.link_errors``. For a port that is down it prints only switch and number, and most such ports are empty: a
metric, not an event.
"""

from __future__ import annotations

import re

from parsers.documents.document import Gathered, Line, StatedEvent, of_lines

#: ``MF0;leaf01:MQM9700/U1``: a managed switch describes itself with its host name in the middle.
_MANAGED = re.compile(r"[A-Z0-9]+;(?P<name>[^:;]+)(?::.*)?")
_NODE = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]*?)\s+(?P<device>(?:mlx|hfi|qib|ibp|rocep|bnxt_re|HCA-)[\w.-]*)")


def switch_name(description: str) -> str:
    """The name of a switch in its description."""
    found = _MANAGED.fullmatch(description.strip())
    return found["name"] if found else description.strip()


def _link(gathered: Gathered, line: Line, node: str, switch: str, port: str) -> None:
    found = _NODE.match(node.strip())
    if found:
        gathered.add("links", {
            "host": found["host"], "device": found["device"], "switch": switch, "switch_port": port,
        }, line.number)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- iblinkinfo

_SWITCH = re.compile(r"Switch:?\s+0x[0-9a-f]+ (?P<name>.+?):\s*$")
_CA = re.compile(r"CA:\s+(?P<name>.+?):\s*$")
_LINE = re.compile(
    r'(?:(?P<guid>0x[0-9a-f]+)\s+)?(?:"\s*(?P<near>[^"]*)"\s+)?(?P<lid>\d+)\s+(?P<port>\d+)\[\s*\] ==\((?P<state>[^)]*)\)==>\s*'
    r'(?:0x[0-9a-f]+\s+)?(?:(?P<peer_lid>\d+)\s+(?P<peer_port>\d+))?\s*\[\s*\]\s+"\s*(?P<far>[^"]*)"\s+\((?P<hint>[^)]*)\)'
)  # fmt: skip


def _read_iblinkinfo(gathered: Gathered, lines: list[Line]) -> None:
    switch: str | None = None
    for line in lines:
        headed = _SWITCH.match(line.text)
        switch = switch_name(headed["name"]) if headed else None if _CA.match(line.text) else switch
        found = _LINE.match(line.text.strip())
        if found is None:
            gathered.keep(line, gathered.time)
            continue
        here = switch_name(found["near"]) if found["near"] and not _NODE.match(found["near"]) else switch
        gathered.keep(line, gathered.time, stated=_slow(found, here))
        if here is None:
            continue
        active = float("LinkUp" in found["state"])
        gathered.sample("infiniband_switch_port_up", active, f"{here}/{found['port']}", switch=here, port=found["port"])
        if found["far"]:
            _link(gathered, line, found["far"], here, found["port"])


def _slow(found: re.Match[str], switch: str | None) -> StatedEvent | None:
    if "Could be" not in found["hint"]:
        return None
    peer = _NODE.match(found["far"])
    return StatedEvent("fabric.link_errors", {
        "switch": switch, "sw_port": found["port"], "reason": " ".join(found["hint"].split()),
        "peer_node": peer["host"] if peer else switch_name(found["far"]), "ibdev": peer["device"] if peer else None,
    })  # fmt: skip


# ------------------------------------------------------------------------------------------------------- ibnetdiscover

_SECTION = re.compile(r'(?P<what>Switch|Ca|Rt)\s+\d+\s+"[^"]+"\s+# "(?P<name>[^"]*)"')
_ROW = re.compile(
    r'\[(?P<port>\d+)\](?:\([0-9a-f]+\))?\s+"(?P<kind>[HSR])-[0-9a-f]+"\[\d+\](?:\([0-9a-f]+\))?\s+# "(?P<far>[^"]*)"'
)


def _read_ibnetdiscover(gathered: Gathered, lines: list[Line]) -> None:
    switch: str | None = None
    for line in lines:
        gathered.keep(line, gathered.time)
        headed = _SECTION.match(line.text)
        if headed:
            switch = switch_name(headed["name"]) if headed["what"] == "Switch" else None
        row = _ROW.match(line.text)
        if row and switch and row["kind"] == "H":
            _link(gathered, line, row["far"], switch, row["port"])


DOCUMENT = of_lines({
    "iblinkinfo": _read_iblinkinfo, "ibnetdiscover": _read_ibnetdiscover,
})  # fmt: skip
