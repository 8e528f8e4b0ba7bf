"""Terminal output of an operator: ``squeue``, ``sinfo`` and ``sdiag``, dated by their own first lines."""

from __future__ import annotations

import re
from datetime import datetime

from parsers.documents import fields, tables
from parsers.documents.document import Document, Gathered, Line, split_lines
from parsers.hostlist import expand
from parsers.job_states import JOB_STATES
from parsers.record import Origin, Parsed

_DATE = re.compile(r"(?:[A-Z][a-z]{2} )([A-Z][a-z]{2} +\d+ [\d:]{8} \d{4})")
_SDIAG_COUNT = re.compile(r"^\s*([A-Z][A-Za-z /()_-]*?):\s+(\d+)\s*$")


def _date(text: str, origin: Origin) -> datetime | None:
    found = _DATE.search(text)
    if not found:
        return None
    try:
        moment = datetime.strptime(" ".join(found[1].split()), "%b %d %H:%M:%S %Y")
    except ValueError:
        return None
    return fields.local_time(moment.isoformat(), origin.timezone)


def _table(lines: list[Line], *keys: str) -> tuple[int, tables.Table] | None:
    """(index, table) of the header line that names one of ``keys``."""
    for index, line in enumerate(lines[:5]):
        found = tables.header(line.text)
        if found and set(keys) & set(found.names):
            return index, found
    return None


def _read_sinfo(gathered: Gathered, lines: list[Line], seen: datetime | None) -> None:
    table = _table(lines, "NODELIST", "HOSTNAMES")
    for line in lines:
        gathered.keep(line, seen)
    if table is None or "STATE" not in table[1].names:
        return
    for line in lines[table[0] + 1 :]:
        row = table[1].row(line.text)
        addresses = (
            {"NodeAddr": row.get("NODE_ADDR"), "NodeHostName": row.get("HOSTNAMES")} if row.get("NODELIST") else {}
        )
        for name, other in fields.other_names(row.get("NODELIST", ""), **addresses):
            gathered.add("settings", {"scope": f"node:{row['NODELIST']}", "name": name, "value": other}, line.number)
        for host in expand(row.get("NODELIST") or row.get("HOSTNAMES", "")):
            gathered.add("node_states", {
                "time": seen, "host": host, "state": row.get("STATE", "").lower() or None,
                "reason": fields.present((row.get("REASON") or "").strip()), "source": "sinfo",
            }, line.number)  # fmt: skip


def _read_squeue(gathered: Gathered, lines: list[Line], seen: datetime | None) -> None:
    table = _table(lines, "JOBID")
    for index, line in enumerate(lines):
        row = table[1].row(line.text) if table and index > table[0] else {}
        number = fields.job_id(row.get("JOBID", ""))
        gathered.keep(line, seen, number.raw if number else None)
        if number is None or number.step or number.raw is None:
            continue
        where = row.get("NODELIST(REASON)") or row.get("NODELIST") or ""
        hosts = () if where.startswith("(") else expand(where)
        # Screen columns are truncated: only complete state names are trusted.
        state = row.get("STATE", "")
        gathered.add("jobs", {
            "job_id": number.raw, "array_job_id": number.array_job,
            "state": state if state in JOB_STATES else None,
            "node_list": where if hosts else None, "nodes": list(hosts) or None, "observed_at": seen,
            "reason": where.strip("()") if where.startswith("(") else fields.present(row.get("REASON")),
            # Only of jobs that have no nodes is the reason in place of their list.
            "waits_for": fields.waits_for(where if where.startswith("(") else row.get("REASON") if state == "PENDING" else None),
        }, line.number)  # fmt: skip


def _read_sdiag(gathered: Gathered, lines: list[Line], seen: datetime | None) -> None:
    section = ""
    for line in lines:
        gathered.keep(line, seen)
        found = _SDIAG_COUNT.match(line.text)
        if found:
            name = re.sub(r"\W+", "_", f"sdiag_{section}{found[1]}".lower()).strip("_")
            host, value = gathered.origin.host, float(found[2])
            gathered.add("metrics", {"time": seen, "host": host, "metric": name, "value": value})
        elif line.text.startswith("Main schedule"):
            section = "main_"
        elif line.text.startswith("Backfilling"):
            section = "backfill_"
        elif line.text.startswith("Remote Procedure"):
            break


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    lines = split_lines(data)
    seen = next((date for line in lines[:4] if (date := _date(line.text, origin))), None)
    readers = {"sinfo": _read_sinfo, "squeue": _read_squeue, "sdiag": _read_sdiag}
    readers[kind](gathered, lines, seen or origin.received or origin.reference)
    return gathered.parsed()


DOCUMENT = Document(kinds=("sinfo", "squeue", "sdiag"), read=_read)
