"""The output of Slurm's ``jobcomp/elasticsearch`` and ``jobcomp/kafka``: one JSON object per ended run.

Both make it with the same function (slurm src/plugins/jobcomp/common/jobcomp_common.c). Times are UTC (gmtime), the time
limit is in seconds. With ``enable_job_start`` (25.05) Kafka also gets a record of each run that starts, without a state.
"""

from __future__ import annotations

from collections.abc import Mapping

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, split_lines
from parsers.hostlist import expand
from parsers.json_text import loads
from parsers.record import Origin, Parsed


def is_record(document: Mapping[str, object]) -> bool:
    """Whether one of these plugins made the object."""
    if "jobid" not in document:
        return False
    return ("state" in document and "@end" in document) or _is_start(document)


def _is_start(document: Mapping[str, object]) -> bool:
    return document.get("state") is None and {"@start", "@submit", "user_id", "partition"} <= document.keys()


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    for line in split_lines(data):
        try:
            row = loads(line.text)
        except ValueError:
            row = None
        if not isinstance(row, dict) or (number := fields.integer(row.get("jobid"))) is None:
            gathered.keep_unread(line, "no object with jobid")
            continue
        submit, start, end = (fields.local_time(_text(row.get(name))) for name in ("@submit", "@start", "@end"))
        state, cancelled_by = fields.state(_text(row.get("state")))
        if _is_start(row):
            state, end = "RUNNING", None
        code, signal = fields.exit_pair(_text(row.get("exit_code")))
        hosts = expand(_text(row.get("nodes")) or "")
        gathered.keep(line, end or start or submit, number)
        gathered.add("jobs", {
            "job_id": number, "cluster": fields.present(_text(row.get("cluster"))), "name": _text(row.get("job_name")),
            "array_job_id": fields.integer(row.get("array_job_id")),
            "array_task_id": fields.integer(row.get("array_task_id")),
            "user": _text(row.get("username")), "uid": fields.integer(row.get("user_id")),
            "account": fields.present(_text(row.get("account"))), "partition": _text(row.get("partition")),
            "qos": fields.present(_text(row.get("qos"))), "state": state, "cancelled_by": cancelled_by,
            "exit_code": code, "exit_signal": signal, "derived_exit_code": _text(row.get("derived_ec")),
            "submit": submit, "start": start, "end": end, "time_limit_s": fields.integer(row.get("time_limit")),
            "node_list": _text(row.get("nodes")) if hosts else None, "nodes": list(hosts) or None,
            "gpus": fields.gpus(_text(row.get("tres_alloc"))), "tres": fields.tres(_text(row.get("tres_alloc"))),
            "failed_node": fields.present(_text(row.get("failed_node"))), "work_dir": _text(row.get("work_dir")),
            "std_out": _text(row.get("std_out")), "std_err": _text(row.get("std_err")),
            "reservation": fields.present(_text(row.get("reservation_name"))),
        }, line.number)  # fmt: skip
    return gathered.parsed()


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


DOCUMENT = Document(kinds=("jobcomp_json",), read=_read)
