"""LLDP neighbours in the output of lldpd's client: ``lldpctl`` and ``lldpcli show neighbors``, plain, JSON, XML,
key=value.

Cumulus and SONiC use the same client (``show lldp neighbors``), so the reporting device may be a switch. The spellings
are those of lldpd's src/client: ``json`` uses the name of an interface or a chassis as a key, and makes a list only if
there are several; ``json0`` always has a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from parsers.documents.document import Document, Gathered, Line, split_lines
from parsers.documents.lldp import Neighbour, gather, speaker
from parsers.json_text import loads
from parsers.record import Origin, Parsed

#: A prompt is above the output that was copied with it.
_PROMPT_LINES = 5


def _letters(capabilities: list[tuple[str, bool]]) -> frozenset[str] | None:
    """First letters of the enabled capabilities; None if none are given."""
    return frozenset(name[:1].upper() for name, on in capabilities if on) if capabilities else None


# ---------------------------------------------------------------------------------------------------------------- plain

_INTERFACE = re.compile(r"Interface:\s+(?P<name>[^\s,]+)(?:,|\s*$)")
_VALUE = re.compile(r"\s+(?P<name>ChassisID|SysName|SysDescr|PortID|PortDescr|Capability):\s+(?P<value>\S.*?)\s*$")


def _of_plain(lines: list[Line]) -> list[Neighbour]:
    found: list[Neighbour] = []
    able: list[list[tuple[str, bool]]] = []
    for line in lines:
        headed = _INTERFACE.match(line.text)
        if headed:
            found.append(Neighbour(headed["name"], line=line.number))
            able.append([])
        pair = _VALUE.match(line.text)
        if not found or pair is None:
            continue
        name, value = pair["name"], pair["value"]
        if name == "Capability":
            kind, _, state = value.partition(",")
            able[-1].append((kind.strip(), state.strip() == "on"))
        elif name == "PortID":
            found[-1].port_kind, _, found[-1].port = value.partition(" ")
        elif name == "SysName":
            found[-1].system = value
        elif name == "SysDescr":
            found[-1].system_text = value
        elif name == "PortDescr":
            found[-1].port_text = value
    for neighbour, capabilities in zip(found, able, strict=True):
        neighbour.capabilities = _letters(capabilities)
    return found


# ------------------------------------------------------------------------------------------------------------ key=value

_PAIR = re.compile(r"lldp\.(?P<interface>.+?)\.(?P<key>via|rid|age|(?:chassis|port)\..+?)=(?P<value>.*)")


def _of_pairs(lines: list[Line]) -> list[Neighbour]:
    found: list[Neighbour] = []
    able: list[list[tuple[str, bool]]] = []
    for line in lines:
        pair = _PAIR.fullmatch(line.text.strip())
        if pair is None:
            continue
        # Several neighbours of one interface follow each other; each begins with its protocol.
        if not found or found[-1].local != pair["interface"] or pair["key"] == "via":
            found.append(Neighbour(pair["interface"], line=line.number))
            able.append([])
        _take_pair(found[-1], able[-1], pair["key"], pair["value"].strip())
    for neighbour, capabilities in zip(found, able, strict=True):
        neighbour.capabilities = _letters(capabilities)
    return found


def _take_pair(neighbour: Neighbour, able: list[tuple[str, bool]], key: str, value: str) -> None:
    if key == "chassis.name":
        neighbour.system = value
    elif key == "chassis.descr":
        neighbour.system_text = value
    elif key == "port.descr":
        neighbour.port_text = value
    elif key.startswith("chassis.") and key.endswith(".enabled"):
        able.append((key.split(".")[1], value == "on"))
    elif key in ("port.ifname", "port.mac", "port.local", "port.ifalias", "port.ip", "port.unhandled"):
        neighbour.port_kind, neighbour.port = key.split(".")[1], value


# ----------------------------------------------------------------------------------------------------------------- JSON


def _of_json(data: bytes) -> list[Neighbour]:
    document = loads(data)["lldp"]
    return [
        _of_object(name, facts)
        for part in (document if isinstance(document, list) else [document])
        for name, facts in _interfaces(part.get("interface", []))
    ]


def _interfaces(listed: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, fields) of every neighbour: ``{"eth0": ...}``, a list of such, or ``[{"name": "eth0", ...}]``."""
    for entry in listed if isinstance(listed, list) else [listed]:
        if isinstance(entry.get("name"), str):
            yield entry["name"], entry
        else:
            for name, facts in entry.items():
                for one in facts if isinstance(facts, list) else [facts]:
                    yield name, one


def _of_object(local: str, facts: dict[str, Any]) -> Neighbour:
    name, chassis = _chassis(_first(facts.get("chassis")) or {})
    port = _first(facts.get("port")) or {}
    port_id = _first(port.get("id")) or {}
    able = chassis.get("capability") or []
    return Neighbour(
        local, system=name, system_text=_text(chassis.get("descr")),
        port=_text(port_id), port_kind=str(port_id.get("type") or ""), port_text=_text(port.get("descr")),
        capabilities=_letters([
            (str(one.get("type")), one.get("enabled") in (True, "on")) for one in (able if isinstance(able, list) else [able])
        ]),
    )  # fmt: skip


def _chassis(document: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a chassis and its fields. ``json`` makes the name a key, and omits it if there is none."""
    if "id" in document or "name" in document:
        return _text(document.get("name")), document
    for name, facts in document.items():
        if isinstance(facts, dict):
            return name, facts
    return "", document


def _first(value: Any) -> Any:
    return (value[0] if value else None) if isinstance(value, list) else value


def _text(value: Any) -> str:
    value = _first(value)
    return str((value.get("value") if isinstance(value, dict) else value) or "")


# ------------------------------------------------------------------------------------------------------------------ XML


def _of_xml(data: bytes) -> list[Neighbour]:
    found = []
    for interface in ElementTree.fromstring(data.strip()).iter("interface"):
        port = interface.find("port/id")
        able = [(str(c.get("type")), c.get("enabled") == "on") for c in interface.iterfind("chassis/capability")]
        found.append(Neighbour(
            str(interface.get("name")), system=interface.findtext("chassis/name") or "",
            system_text=interface.findtext("chassis/descr") or "",
            port=(port.text or "") if port is not None else "", port_kind=str(port.get("type")) if port is not None else "",
            port_text=interface.findtext("port/descr") or "", capabilities=_letters(able),
        ))  # fmt: skip
    return found


# --------------------------------------------------------------------------------------------------------------- reading

_TEXTS = {"lldpctl": _of_plain, "lldpctl_keyvalue": _of_pairs}
_TREES = {"lldpctl_json": _of_json, "lldpctl_xml": _of_xml}


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    lines = split_lines(data)
    first = [line.text for line in lines[:_PROMPT_LINES]]
    if kind in _TEXTS:
        neighbours = _TEXTS[kind](lines)
        for line in lines:
            gathered.keep(line, gathered.time)
    else:
        # A shell prompt may precede a document that was copied with it.
        start = data.find(b"{" if kind == "lldpctl_json" else b"<")
        neighbours = _TREES[kind](data[max(0, start) :])
    gather(gathered, speaker(gathered, first), neighbours)
    return gathered.parsed()


DOCUMENT = Document(kinds=(*_TEXTS, *_TREES), read=_read)
