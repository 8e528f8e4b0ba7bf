"""The output of ``nvidia-smi``: ``-q``, ``-q -x``, ``--query-gpu=... --format=csv`` and ``nvlink -s``, as metrics.

Every number becomes ``nvidia_smi_<its path>``: "Temperature / GPU Current Temp : 45 C" and ``<temperature><gpu_temp>45
C`` alike. Yes and Active are 1, No and Not Active 0; "N/A" gives no sample. Values keep the unit that nvidia-smi
prints, except in CSV, whose columns are named and scaled as in nvidia_gpu_exporter.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from datetime import datetime
from xml.etree import ElementTree

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, split_lines
from parsers.record import Origin, Parsed

_NUMBER = re.compile(r"(?P<value>[-+]?(?:0x[0-9a-fA-F]+|\d+(?:\.\d+)?))\s*(?P<unit>[A-Za-z%/]+(?:/s)?)?")
_WORDS = {
    "yes": 1.0, "no": 0.0, "active": 1.0, "not active": 0.0, "enabled": 1.0, "disabled": 0.0, "true": 1.0, "false": 0.0,
}  # fmt: skip
#: CSV unit -> (suffix of the metric's name, factor).
_UNITS = {
    "%": ("ratio", 0.01), "MiB": ("bytes", 1048576.0), "W": ("watts", 1.0), "MHz": ("clock_hz", 1e6), "ms": ("seconds", 0.001),
    "us": ("seconds", 1e-6),
}  # fmt: skip
_GPU = re.compile(r"GPU (?P<pci>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_LINKS_OF = re.compile(r"GPU (?P<index>\d+): (?P<name>.*?) \(UUID: (?P<uuid>GPU-[0-9a-f-]+)\)")
_LINK = re.compile(r"\s+Link (?P<link>\d+): (?P<state>.*)$")


def _name(path: tuple[str, ...]) -> str:
    return "nvidia_smi_" + "_".join(re.sub(r"\W+", "_", part.strip().lower()).strip("_") for part in path)


def number(text: str) -> float | None:
    """ "45 C" -> 45.0, "Active" -> 1.0, "P2" -> 2.0, "0x40" -> 64.0; None for texts and for "N/A"."""
    value = text.strip()
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if re.fullmatch(r"P\d{1,2}", value):
        return float(value[1:])
    found = _NUMBER.fullmatch(value)
    if not found:
        return None
    digits = found["value"]
    return float(int(digits, 16)) if "0x" in digits else float(digits)


def _stamp(text: str | None, origin: Origin) -> datetime | None:
    """ "Thu Mar 14 20:45:34 2024" or "2024/03/14 20:45:34.123" -> naive UTC."""
    words = " ".join((text or "").split())
    for shape in ("%a %b %d %H:%M:%S %Y", "%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S"):
        try:
            return fields.local_time(datetime.strptime(words, shape).isoformat(), origin.timezone)
        except ValueError:
            continue
    return None


class _Gpu:
    """The samples of one GPU during reading: its index and UUID may come after the first of them."""

    def __init__(self, pci: str | None) -> None:
        self.pci, self.index, self.uuid = pci, None, None  # type: tuple[str | None, str | None, str | None]
        self.samples: list[tuple[str, float]] = []

    def take(self, path: tuple[str, ...], text: str) -> None:
        if path[-1].lower().replace(" ", "_") in ("minor_number", "index"):
            self.index = text.strip() if text.strip().isdigit() else self.index
        elif path[-1].lower().replace(" ", "_") in ("uuid", "gpu_uuid") and text.strip().startswith("GPU-"):
            self.uuid = text.strip()
        value = number(text)
        if value is not None:
            self.samples.append((_name(path), value))

    def put(self, gathered: Gathered, time: datetime | None) -> None:
        named = {"gpu": self.index, "pci_bus_id": self.pci, "UUID": self.uuid}
        labels = json.dumps({name: text for name, text in named.items() if text}, sort_keys=True)
        for metric, value in self.samples:
            gathered.add("metrics", {
                "time": time, "host": gathered.origin.host, "metric": metric, "value": value,
                "device": self.index or self.pci, "labels": labels,
            })  # fmt: skip


def _read_xml(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    if b"<!ENTITY" in data:
        raise ValueError("declares entities, which nvidia-smi never does")
    root = ElementTree.fromstring(data)
    time = _stamp(root.findtext("timestamp"), origin) or origin.received or origin.reference
    for element in root.findall("gpu"):
        gpu = _Gpu(element.get("id"))
        for path, text in _leaves(element, ()):
            gpu.take(path, text)
        gpu.put(gathered, time)
    for line in split_lines(data):
        gathered.keep(line, time)
    return gathered.parsed()


def _leaves(element: ElementTree.Element, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for child in element:
        path = (*above, child.tag)
        if len(child):
            yield from _leaves(child, path)
        elif child.text and child.text.strip():
            yield path, child.text


def _read_text(kind: str, data: bytes, origin: Origin) -> Parsed:
    """``nvidia-smi -q``: the indentation gives the depth."""
    gathered = Gathered(kind, origin)
    lines = split_lines(data)
    stamped = next((line.text.partition(":")[2] for line in lines if line.text.startswith("Timestamp")), None)
    time = _stamp(stamped, origin) or origin.received or origin.reference
    gpu: _Gpu | None = None
    sections: list[tuple[int, str]] = []
    for line in lines:
        gathered.keep(line, time)
        found = _GPU.match(line.text)
        if found:
            if gpu:
                gpu.put(gathered, time)
            gpu, sections = _Gpu(found["pci"]), []
            continue
        depth = len(line.text) - len(line.text.lstrip())
        if gpu is None or not line.text.strip() or depth == 0:
            continue
        sections = [section for section in sections if section[0] < depth]
        key, colon, value = line.text.strip().partition(" : ")
        if colon:
            gpu.take((*(name for _, name in sections), key.strip()), value)
        else:
            sections.append((depth, line.text.strip()))
    if gpu:
        gpu.put(gathered, time)
    return gathered.parsed()


def _read_csv(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    lines = [line for line in split_lines(data) if line.text.strip()]
    rows = [next(csv.reader([line.text], skipinitialspace=True)) for line in lines]
    header = [re.fullmatch(r"(?P<name>[\w.]+)(?: \[(?P<unit>[^\]]+)\])?", cell.strip()) for cell in rows[0]]
    gathered.keep(lines[0])
    for line, row in zip(lines[1:], rows[1:], strict=True):
        if len(row) != len(header):
            gathered.keep_unread(line, f"{len(row)} fields, header has {len(header)}")
            continue
        named = {cell["name"]: value.strip() for cell, value in zip(header, row, strict=True) if cell}
        time = _stamp(named.get("timestamp"), origin) or origin.received or origin.reference
        gathered.keep(line, time)
        gpu = _Gpu(named.get("pci.bus_id") or named.get("gpu_bus_id"))
        gpu.index, gpu.uuid = named.get("index"), named.get("uuid") or named.get("gpu_uuid")
        for cell, value in zip(header, row, strict=True):
            if cell and cell["name"] not in (
                "timestamp",
                "index",
                "uuid",
                "gpu_uuid",
                "pci.bus_id",
                "gpu_bus_id",
                "serial",
            ):
                _sample(gpu, cell, value)
        gpu.put(gathered, time)
    return gathered.parsed()


def _sample(gpu: _Gpu, cell: re.Match[str], text: str) -> None:
    value = number(text)
    if value is None:
        return
    ending, factor = _UNITS.get(cell["unit"] or "", ("", 1.0))
    name = _name((cell["name"],))
    gpu.samples.append((f"{name}_{ending}" if ending else name, value * factor))


def _read_nvlink(kind: str, data: bytes, origin: Origin) -> Parsed:
    """``nvidia-smi nvlink -s``: the speed of each link in GB/s; 0 for an inactive one."""
    gathered = Gathered(kind, origin)
    time = origin.received or origin.reference
    gpu: re.Match[str] | None = None
    for line in split_lines(data):
        gathered.keep(line, time)
        gpu = _LINKS_OF.match(line.text) or gpu
        link = _LINK.match(line.text)
        if gpu is None or link is None:
            continue
        speed = re.match(r"([\d.]+) GB/s", link["state"])
        gathered.add("metrics", {
            "time": time, "host": origin.host, "metric": "nvidia_smi_nvlink_gbytes_per_second",
            "value": float(speed[1]) if speed else 0.0, "device": gpu["index"],
            "labels": json.dumps({"UUID": gpu["uuid"], "gpu": gpu["index"], "nvlink": link["link"]}, sort_keys=True),
        })  # fmt: skip
    return gathered.parsed()


_READERS = {
    "nvidia_smi_xml": _read_xml, "nvidia_smi_q": _read_text, "nvidia_smi_csv": _read_csv, "nvidia_smi_nvlink": _read_nvlink,
}  # fmt: skip


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    return _READERS[kind](kind, data, origin)


DOCUMENT = Document(kinds=tuple(_READERS), read=_read)
