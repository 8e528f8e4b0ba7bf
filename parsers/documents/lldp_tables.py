"""LLDP neighbours as tables: ``networkctl lldp`` of hosts; SONiC, Cumulus (NCLU and NVUE), Arista EOS, Junos, NX-OS and IOS.

The words of its header identify a table. Its cells are aligned with them, or with the rule of dashes if there is one; a
cell wider than its column shifts the rest of its row, which is then split into words. Arista's JSON is handled here
too: it is the same table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from parsers.documents.document import Document, Gathered, Line, split_lines
from parsers.documents.lldp import Neighbour, gather, speaker
from parsers.json_text import loads
from parsers.record import Origin, Parsed


@dataclass(frozen=True)
class Table:
    """``header``: pattern of its first line. ``columns``: our field -> the column's heading. ``switch``: only switches
    print it."""

    header: re.Pattern[str]
    columns: dict[str, str]
    switch: bool = True


TABLES: dict[str, Table] = {
    "networkctl_lldp": Table(
        re.compile(r"(?:INDEX\s+)?LINK\s+CHASSIS[ -]ID\s+SYSTEM[ -]NAME\s.*PORT[ -]ID"),
        {"local": "LINK", "system": "SYSTEM NAME|SYSTEM-NAME", "capabilities": "CAPS", "port": "PORT ID|PORT-ID",
         "port_text": "PORT DESCRIPTION|PORT-DESCRIPTION"},
        switch=False,
    ),
    "sonic_lldp": Table(
        re.compile(r"LocalPort\s+RemoteDevice\s+RemotePortID"),
        {"local": "LocalPort", "system": "RemoteDevice", "port": "RemotePortID", "capabilities": "Capability", "port_text": "RemotePortDescr"},
    ),
    "cumulus_lldp": Table(
        re.compile(r"LocalPort\s+Speed\s+Mode\s+RemoteHost\s+RemotePort|Interface\s.*\bRemote Host\s+Remote Port"),
        {"local": "LocalPort|Interface", "system": "RemoteHost|Remote Host", "port": "RemotePort|Remote Port"},
    ),
    "eos_lldp": Table(
        re.compile(r"Port\s+Neighbor Device ID\s+Neighbor Port ID\s+TTL"),
        {"local": "Port", "system": "Neighbor Device ID", "port": "Neighbor Port ID"},
    ),
    "junos_lldp": Table(
        re.compile(r"Local Interface\s+(?:Parent Interface\s+)?Chassis Id\s+Port info\s+System Name"),
        {"local": "Local Interface", "port": "Port info", "system": "System Name"},
    ),
    "nxos_lldp": Table(
        re.compile(r"Device ID\s+Local Intf\s+Hold-time\s+Capability\s+Port ID"),
        {"system": "Device ID", "local": "Local Intf", "capabilities": "Capability", "port": "Port ID"},
    ),
}  # fmt: skip

#: Two blanks separate columns, and a heading may contain one; newer systemd separates columns by one blank and joins
#: words by hyphens.
_HEADING, _JOINED = re.compile(r"\S+(?: \S+)*"), re.compile(r"\S+")
#: ``Interface   8 as enp5s0f0`` is one cell.
_ONE_CELL = re.compile(r"Interface +(?=\d+ as )")
_RULE = re.compile(r"[- ]*-[- ]*")
_CAPABILITIES = re.compile(r"[A-Za-z .,]+")


def header_of(line: str) -> str | None:
    """The kind of table whose header this line is."""
    return next((kind for kind, table in TABLES.items() if table.header.match(line.strip())), None)


def _places(heading: str, rule: str) -> tuple[list[int], list[str]]:
    """Where the columns begin, and their headings. ``rule``: the dashes below the header; empty if there are none."""
    named = list((_JOINED if "CHASSIS-ID" in heading else _HEADING).finditer(heading))
    dashes = [part.start() for part in re.finditer(r"-+", rule)]
    starts = dashes if len(dashes) == len(named) else [cell.start() for cell in named]
    return starts, [cell[0] for cell in named]


def _cells(text: str, starts: list[int]) -> list[str] | None:
    """The cells of a row. None if a cell is wider than its column and the number of words does not fit."""
    parted = re.split(r" {2,}", _ONE_CELL.sub("Interface ", text.strip()))
    if len(parted) == len(starts) and text[:1] != " ":
        return parted
    if all(start == 0 or start >= len(text) or text[start - 1] == " " for start in starts):
        return [text[start:end].strip() for start, end in zip(starts, [*starts[1:], len(text) + 1], strict=True)]
    words = text.split()
    return words if len(words) == len(starts) else None


def _letters(text: str, kind: str) -> frozenset[str] | None:
    """Capabilities in the notations of tables: ``BR``, ``B, R``, and networkctl's ``..b.r......`` (a means Station
    there)."""
    if not _CAPABILITIES.fullmatch(text):
        return None
    letters = frozenset(text.upper()) - set(" .,")
    return frozenset("S" if one == "A" else one for one in letters - {"S"}) if kind == "networkctl_lldp" else letters


def _read_table(gathered: Gathered, kind: str, lines: list[Line]) -> list[Neighbour]:
    table = TABLES[kind]
    found: list[Neighbour] = []
    starts: list[int] = []
    columns: dict[str, int] = {}
    for line, below in zip(lines, [*lines[1:], None], strict=True):
        gathered.keep(line, gathered.time)
        if table.header.match(line.text.strip()):
            ruled = below is not None and _RULE.fullmatch(below.text) is not None
            starts, named = _places(line.text, below.text if below is not None and ruled else "")
            columns = {ours: place for ours, theirs in table.columns.items()
                       for place, heading in enumerate(named) if heading in theirs.split("|")}  # fmt: skip
        elif columns and not _AROUND.match(line.text):
            cells = _cells(line.text.rstrip(), starts)
            if cells is None:
                gathered.warn(f"a row whose cells cannot be separated: {line.text.strip()[:80]!r}", line.number)
            else:
                found += _neighbour({ours: cells[place] for ours, place in columns.items()}, kind, line)
    return found


def _neighbour(cells: dict[str, str], kind: str, line: Line) -> list[Neighbour]:
    """The neighbour in a row; none for a port without a neighbour (NVUE lists all its ports)."""
    local = cells.get("local", "").removeprefix("+ ")
    able = _letters(cells.get("capabilities", ""), kind)
    if not local or not (cells.get("system") or cells.get("port")):
        return []
    return [Neighbour(
        local, system=cells.get("system", ""), port=cells.get("port", ""), port_text=cells.get("port_text", ""),
        capabilities=able, line=line.number,
    )]  # fmt: skip


#: Text around the rows: totals, legends, further prompts.
_AROUND = re.compile(
    r"\s*$|[- ]+$|Total |Capability |Last table|Number of|\d+ (?:neighbor|LLDP)|[a-z] - |\s*\(\w\) |.*[#>$]\s*$"
)


#: A row of NX-OS and IOS. A long name is on the line above, or pushes the row to the right.
_NXOS_ROW = re.compile(
    r"(?P<system>\S.*?)?\s+(?P<local>[A-Za-z]+[\d/.:]+)\s+(?P<hold>\d+)\s+(?:(?P<able>[RBTCWPSO](?:[ ,]*[RBTCWPSO])*)\s+)?(?P<port>\S.*)"
)
#: IOS truncates a name at this length and appends the next column directly: the missing rest is unknown.
_IOS_CUT = 20
_IOS_ROW = re.compile(rf"(?P<system>\S{{{_IOS_CUT}}})(?P<local>[A-Z][A-Za-z]+[\d/.]+)\s+(?P<hold>\d+)\s")


def _read_nxos(gathered: Gathered, lines: list[Line]) -> list[Neighbour]:
    found: list[Neighbour] = []
    above, started = "", False
    for line in lines:
        gathered.keep(line, gathered.time)
        if TABLES["nxos_lldp"].header.match(line.text.strip()):
            started = True
            continue
        if not started or _AROUND.match(line.text):
            continue
        cut = _IOS_ROW.match(line.text)
        row = None if cut else _NXOS_ROW.fullmatch(line.text.rstrip())
        if cut:
            found.append(Neighbour(cut["local"], system=cut["system"] + "…", line=line.number))
        elif row is None:
            above = line.text.strip()
        else:
            able = _letters(row["able"], "nxos_lldp") if row["able"] else None
            found.append(Neighbour(
                row["local"], system=row["system"] or above, port=row["port"].strip(), capabilities=able, line=line.number,
            ))  # fmt: skip
            above = ""
    return found


def _read_eos_json(data: bytes) -> list[Neighbour]:
    document = loads(data[max(0, data.find(b"{")) :].rsplit(b"}", 1)[0] + b"}")
    answers = document.get("result", [document])  # eAPI wraps the answers of its commands
    return [
        Neighbour(
            str(row["port"]), system=str(row.get("neighborDevice") or ""), port=str(row.get("neighborPort") or ""),
        )
        for answer in answers for row in answer.get("lldpNeighbors", [])
    ]  # fmt: skip


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    lines = split_lines(data)
    if kind == "eos_lldp_json":
        neighbours = _read_eos_json(data)
    elif kind == "nxos_lldp":
        neighbours = _read_nxos(gathered, lines)
    else:
        neighbours = _read_table(gathered, kind, lines)
    only_switches = kind == "eos_lldp_json" or TABLES[kind].switch
    gather(gathered, speaker(gathered, [line.text for line in lines[:5]]), neighbours, at_switch=only_switches)
    return gathered.parsed()


DOCUMENT = Document(kinds=(*TABLES, "eos_lldp_json"), read=_read)
