"""States polled into JSON lines: ``{"t": "...", "node": "gpu01", "state": "idle", "reason": "none"}``."""

from __future__ import annotations

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, split_lines
from parsers.hostlist import expand
from parsers.json_text import loads
from parsers.record import Origin, Parsed


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    for line in split_lines(data):
        if not line.text.strip():
            continue
        try:
            row = loads(line.text)
        except ValueError as error:
            gathered.keep_unread(line, f"no JSON: {error}")
            continue
        if not isinstance(row, dict):
            gathered.keep_unread(line, "no JSON object")
            continue
        if "node" not in row:
            continue  # polled jobs: accounting has the same with the exact second
        time = fields.local_time(str(row.get("t") or row.get("time")), origin.timezone)
        for host in expand(str(row["node"])):
            gathered.add("node_states", {
                "time": time, "host": host, "state": str(row.get("state") or "").lower() or None,
                "reason": fields.present(str(row.get("reason") or "")), "actor": row.get("user"), "source": "poll",
            }, line.number)  # fmt: skip
    return gathered.parsed()


DOCUMENT = Document(kinds=("node_polls",), read=_read)
