"""``ethtool DEV``, ``ethtool -i DEV`` and ``ethtool -m DEV`` (a module's optics), as metrics; alarms of a module as events.

The interface is named in "Settings for", else in the file's name (``ethtool-m.eth0.txt``). ``net_carrier`` and
``net_speed`` (Mbit/s) have their names from /sys. An active module alarm is ``nic.module_event``; warnings, and missing
light, which every unplugged fibre shows, are metrics only.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from parsers.documents.document import Gathered, Line, StatedEvent, of_lines
from parsers.record import Origin

#: The interface in a file's name: "ethtool.eth0.txt", "ethtool_-m_ens1f0".
INTERFACE = re.compile(r"ethtool(?:[-_. ]*[Sim])?[-_. ]+(?P<device>[a-z][\w]*?\d\w*)(?:\.(?:txt|log|out))?$")
_PAIR = re.compile(r"\s*(?P<name>[A-Za-z][^:]*?)\s*: ?(?P<value>.*?)\s*$")
_NUMBER = re.compile(r"(?P<value>[-+]?\d+(?:\.\d+)?) ?(?P<unit>degrees C|mA|mW|V|dBm)\b")
_LANE = re.compile(r" \(Channel (?P<lane>\d+)\)")
_ENDINGS = {"degrees C": "celsius", "mA": "milliamperes", "mW": "milliwatts", "V": "volts", "dBm": "dbm"}
_NO_LIGHT = re.compile(r"(?i)(?:rx power|tx (?:power|bias)|bias current|output power).* low")


def _device(origin: Origin) -> str:
    found = INTERFACE.search(PurePosixPath(origin.path or "").name)
    return found["device"] if found else "unknown"


def _read_settings(gathered: Gathered, lines: list[Line]) -> None:
    device = _device(gathered.origin)
    for line in lines:
        gathered.keep(line, gathered.time)
        found = _PAIR.match(line.text)
        if line.text.startswith("Settings for "):
            device = line.text.removeprefix("Settings for ").strip().rstrip(":")
        elif found and found["name"] == "Link detected":
            gathered.sample("net_carrier", float(found["value"].startswith("yes")), device, device=device)
        elif found and found["name"] == "Speed" and (speed := re.match(r"(\d+)Mb/s", found["value"])):
            gathered.sample("net_speed", float(speed[1]), device, device=device)


def _read_driver(gathered: Gathered, lines: list[Line]) -> None:
    device = _device(gathered.origin)
    driver: dict[str, str] = {}
    for line in lines:
        gathered.keep(line, gathered.time)
        found = _PAIR.match(line.text)
        if found and found["name"] in ("driver", "version", "firmware-version", "bus-info"):
            driver[found["name"]] = found["value"]
    gathered.sample(
        "ethtool_driver_info", 1.0, device, device=device, driver=driver.get("driver"), version=driver.get("version"),
        firmware_version=driver.get("firmware-version"), bus_info=driver.get("bus-info"),
    )  # fmt: skip


def _read_module(gathered: Gathered, lines: list[Line]) -> None:
    device = _device(gathered.origin)
    for line in lines:
        found = _PAIR.match(line.text)
        if found is None:
            gathered.keep(line, gathered.time)
            continue
        lane = _LANE.search(found["name"])
        name = _LANE.sub("", found["name"])
        metric = "ethtool_module_" + re.sub(r"\W+", "_", name.lower()).strip("_")
        number = lane["lane"] if lane else None
        module_event = None
        if found["value"] in ("On", "Off"):
            on = found["value"] == "On"
            gathered.sample(metric, float(on), device, device=device, lane=number)
            if on and name.endswith(" alarm") and not _NO_LIGHT.search(name):
                port = None if device == "unknown" else device
                module_event = StatedEvent(
                    "nic.module_event", {"port": port, "module_event": found["name"], "lane": number}
                )
        elif "threshold" not in name:
            # Power is printed twice, in mW and in dBm: each has its metric.
            for value in _NUMBER.finditer(found["value"]):
                gathered.sample(
                    f"{metric}_{_ENDINGS[value['unit']]}", float(value["value"]), device, device=device, lane=number
                )
        gathered.keep(line, gathered.time, stated=module_event)


DOCUMENT = of_lines({
    "ethtool_settings": _read_settings, "ethtool_driver": _read_driver, "ethtool_module": _read_module,
})  # fmt: skip
