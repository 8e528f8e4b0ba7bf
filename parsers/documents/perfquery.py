"""Error counters of InfiniBand ports: ``perfquery`` (all counters of a port) and ``ibqueryerrors`` (counters above a
threshold).

The metrics have the names of the same counters in /sys: ``infiniband_symbol_error_total``. Counters count from the last
reset, so a number alone is not an event; ``ibqueryerrors`` prints only what it considers a fault:
``fabric.link_errors``.
"""

from __future__ import annotations

import re

from parsers.documents.document import Document, Gathered, Line, StatedEvent, split_lines
from parsers.documents.infiniband_links import switch_name
from parsers.record import Origin, Parsed

_HEAD = re.compile(r"# (?:Port|Extended Port|Port extended) counters: (?:Lid|LID) (?P<lid>\d+) port (?P<port>\d+)")
_COUNTER = re.compile(r"(?P<name>[A-Z]\w+):\.+(?P<value>\d+)\s*$")
_SELECTORS = frozenset({"PortSelect", "CounterSelect", "CounterSelect2"})
_ERRORS_OF = re.compile(r'Errors for (?:0x[0-9a-f]+ )?"(?P<name>[^"]*)"')
_ERRORS = re.compile(r"\s+GUID (?P<guid>0x[0-9a-f]+) port (?P<port>\d+|ALL): *(?P<list>\[.*)")
_PAIR = re.compile(r"\[(?P<name>[A-Z]\w+) == (?P<value>\d+)")


def _metric(name: str) -> str:
    """``LinkDownedCounter`` -> ``infiniband_link_downed_total``; ``VL15Dropped`` keeps its upper case, as in /sys."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Counter")).lower().replace("vl15", "VL15")
    return f"infiniband_{words}_total"


def _read_perfquery(gathered: Gathered, lines: list[Line]) -> None:
    lid, port = "", ""
    for line in lines:
        gathered.keep(line, gathered.time)
        head = _HEAD.match(line.text)
        if head:
            lid, port = head["lid"], head["port"]
        found = _COUNTER.match(line.text)
        if found and found["name"] not in _SELECTORS:
            gathered.sample(
                _metric(found["name"]), float(found["value"]), f"lid {lid}" if lid else None, lid=lid, port=port
            )


def _read_errors(gathered: Gathered, lines: list[Line]) -> None:
    name = ""
    for line in lines:
        headed = _ERRORS_OF.match(line.text)
        name = headed["name"] if headed else name
        found = _ERRORS.match(line.text)
        pairs = _PAIR.findall(found["list"]) if found else []
        link_errors = None
        # "ALL" is the sum of the ports, which are all listed below it.
        if found and pairs and found["port"] != "ALL":
            here = switch_name(name).split(" ")
            link_errors = StatedEvent("fabric.link_errors", {
                "guid": found["guid"], "sw_port": found["port"], "peer_node": here[0], "ibdev": here[1] if len(here) > 1 else None,
                "reason": ", ".join(f"{counter} {value}" for counter, value in pairs),
            })  # fmt: skip
            for counter, value in pairs:
                gathered.sample(
                    _metric(counter), float(value), f"{here[0]}/{found['port']}", guid=found["guid"], port=found["port"]
                )
        gathered.keep(line, gathered.time, stated=link_errors)


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    (_read_perfquery if kind == "perfquery" else _read_errors)(gathered, split_lines(data))
    return gathered.parsed()


DOCUMENT = Document(kinds=("perfquery", "ibqueryerrors"), read=_read)
