"""A file of a job as the agent fetched it for a hook: JSON with ``job_id``, ``restarts``, ``kind`` (script, stdout, stderr),
``path``, ``content``, ``truncated`` and ``ran_at`` (of the hook, epoch seconds)."""

from __future__ import annotations

from parsers.documents import fields
from parsers.documents.document import Document, Gathered
from parsers.json_text import loads
from parsers.record import Origin, Parsed

_KINDS = ("script", "stdout", "stderr")


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    document = loads(data)
    job = fields.integer(document.get("job_id"))
    if job is None or document.get("kind") not in _KINDS or not isinstance(document.get("content"), str):
        gathered.warn(f"no file of a job: job_id {document.get('job_id')!r}, kind {document.get('kind')!r}")
        return gathered.parsed()
    gathered.add("artifacts", {
        "job_id": job, "restarts": fields.integer(document.get("restarts")), "kind": document["kind"], "path": document.get("path"),
        "host": origin.host, "content": document["content"], "truncated": bool(document.get("truncated")), "taken_at": fields.epoch_text(document.get("ran_at")) or origin.received,
    })  # fmt: skip
    return gathered.parsed()


DOCUMENT = Document(kinds=("job_file",), read=_read)
