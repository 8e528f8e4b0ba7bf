"""``sacctmgr show event -p``: when a node was down or drained, from when to when, and who set it."""

from __future__ import annotations

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, split_lines
from parsers.hostlist import expand
from parsers.record import Origin, Parsed


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    lines = split_lines(data)
    at = next((index for index, line in enumerate(lines) if "|timestart" in line.text.lower()), None)
    if at is None:
        raise ValueError("no header with TimeStart")
    names = [name.strip().lower() for name in lines[at].text.split("|")]
    for line in lines[: at + 1]:
        gathered.keep(line)
    for line in lines[at + 1 :]:
        values = line.text.split("|")
        if len(values) > len(names) and "reason" in names:
            spot, extra = names.index("reason"), len(values) - len(names)
            values[spot : spot + extra + 1] = ["|".join(values[spot : spot + extra + 1])]
        if len(values) != len(names):
            gathered.keep_unread(line, f"{len(values)} fields, header has {len(names)}")
            continue
        row = dict(zip(names, values, strict=True))
        start = fields.local_time(row.get("timestart"), origin.timezone)
        hosts = expand(row.get("nodename", ""))
        gathered.keep(line, start, host=hosts[0] if len(hosts) == 1 else None)
        # A row without a node is the cluster itself ("Cluster Registered TRES"), which is no fault.
        for host in hosts:
            gathered.add("node_states", {
                "time": start, "until": fields.local_time(row.get("timeend"), origin.timezone),
                "cluster": row.get("cluster") or None, "host": host, "state": (row.get("state") or "").lower() or None,
                "reason": row.get("reason") or None, "actor": row.get("user") or None,
            }, line.number)  # fmt: skip
    return gathered.parsed()


DOCUMENT = Document(kinds=("sacctmgr_events",), read=_read)
