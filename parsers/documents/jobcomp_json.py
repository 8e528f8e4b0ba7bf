"""The output of Slurm's ``jobcomp/elasticsearch``: one JSON object per ended run.

Times are UTC (the plugin formats them with gmtime), the time limit is in minutes.
"""

from __future__ import annotations

import json

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, split_lines
from parsers.hostlist import expand
from parsers.record import Origin, Parsed


def is_record(document: dict[str, object]) -> bool:
    """Whether this plugin made the object."""
    return "jobid" in document and "state" in document and "@end" in document


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    for line in split_lines(data):
        try:
            row = json.loads(line.text)
        except ValueError:
            row = None
        if not isinstance(row, dict) or (number := fields.integer(row.get("jobid"))) is None:
            gathered.keep_unread(line, "no object with jobid")
            continue
        submit, start, end = (fields.local_time(_text(row.get(name))) for name in ("@submit", "@start", "@end"))
        state, cancelled_by = fields.state(_text(row.get("state")))
        code, signal = fields.exit_pair(_text(row.get("exit_code")))
        hosts = expand(_text(row.get("nodes")) or "")
        minutes = fields.integer(row.get("time_limit"))
        gathered.keep(line, end or start or submit, number)
        gathered.add("jobs", {
            "job_id": number, "cluster": fields.present(_text(row.get("cluster"))), "name": _text(row.get("job_name")),
            "array_job_id": fields.integer(row.get("array_job_id")),
            "array_task_id": fields.integer(row.get("array_task_id")),
            "user": _text(row.get("username")), "uid": fields.integer(row.get("user_id")),
            "account": fields.present(_text(row.get("account"))), "partition": _text(row.get("partition")),
            "qos": fields.present(_text(row.get("qos"))), "state": state, "cancelled_by": cancelled_by,
            "exit_code": code, "exit_signal": signal, "derived_exit_code": _text(row.get("derived_ec")),
            "submit": submit, "start": start, "end": end, "time_limit_s": minutes * 60 if minutes is not None else None,
            "node_list": _text(row.get("nodes")) if hosts else None, "nodes": list(hosts) or None,
            "gpus": fields.gpus(_text(row.get("tres_alloc"))), "work_dir": _text(row.get("work_dir")),
            "std_out": _text(row.get("std_out")), "std_err": _text(row.get("std_err")),
            "reservation": fields.present(_text(row.get("reservation_name"))),
        }, line.number)  # fmt: skip
    return gathered.parsed()


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


DOCUMENT = Document(kinds=("jobcomp_json",), read=_read)
