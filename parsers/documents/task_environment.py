"""What a step of a job ran with, as the agent read it from the job's task prolog: JSON with ``job_id``, ``restarts``, ``step``,
``read_at`` (epoch seconds) and ``variables`` (names and values, allow-listed and without secrets).

All of it is the user's word. It is shown as that; no fact about the cluster follows from it.
"""

from __future__ import annotations

import re

from parsers.documents import fields
from parsers.documents.document import Document, Gathered
from parsers.json_text import loads
from parsers.record import Origin, Parsed

#: The agent sends less; whoever may send documents can send anything.
MOST, MOST_VALUE = 400, 8192
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.%()]{0,199}", re.ASCII)
_STEP = re.compile(r"batch|interactive|[0-9]{1,9}", re.ASCII)


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    document = loads(data)
    job, step, variables = fields.integer(document.get("job_id")), document.get("step"), document.get("variables")
    if job is None or not _STEP.fullmatch(str(step)) or not isinstance(variables, dict):
        gathered.warn("no environment of a step: job_id, step or variables is missing")
        return gathered.parsed()
    seen = fields.epoch_text(document.get("read_at")) or origin.received
    shared = {
        "job_id": job,
        "restarts": fields.integer(document.get("restarts")) or 0,
        "step": str(step),
        "host": origin.host,
    }
    for name, value in sorted(variables.items())[:MOST]:
        if _NAME.fullmatch(name) and isinstance(value, str):
            gathered.add("environments", {**shared, "name": name, "value": value[:MOST_VALUE], "seen_at": seen})
    return gathered.parsed()


DOCUMENT = Document(kinds=("task_environment",), read=_read)
