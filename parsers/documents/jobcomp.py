"""Slurm's job completion file (``JobCompType=jobcomp/filetxt``): one line per ended run."""

from __future__ import annotations

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, split_lines
from parsers.documents.scontrol import pairs
from parsers.hostlist import expand
from parsers.record import Origin, Parsed


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    for line in split_lines(data):
        row = pairs(line.text)
        number = fields.integer(row.get("JobId"))
        if number is None:
            gathered.keep_unread(line, "no JobId=")
            continue
        submit, start, end = (
            fields.local_time(row.get(name), origin.timezone) for name in ("SubmitTime", "StartTime", "EndTime")
        )
        user, uid = fields.user(row.get("UserId"))
        state, cancelled_by = fields.state(row.get("JobState"))
        code, signal = fields.exit_pair(row.get("ExitCode"))
        hosts = expand(row.get("NodeList", ""))
        minutes = fields.integer(row.get("TimeLimit"))
        gathered.keep(line, end or start or submit, number)
        gathered.add("jobs", {
            "job_id": number, "cluster": fields.present(row.get("Cluster")), "name": row.get("Name") or None,
            "array_job_id": fields.integer(row.get("ArrayJobId")),
            "array_task_id": fields.integer(row.get("ArrayTaskId")),
            "user": user, "uid": uid, "account": row.get("Account") or None, "partition": row.get("Partition") or None,
            "qos": row.get("QOS") or None, "state": state, "cancelled_by": cancelled_by, "exit_code": code,
            "exit_signal": signal, "derived_exit_code": row.get("DerivedExitCode") or None, "submit": submit,
            "start": start, "end": end, "time_limit_s": minutes * 60 if minutes is not None else None,
            "node_list": row.get("NodeList") if hosts else None, "nodes": list(hosts) or None,
            "gpus": fields.gpus(row.get("Tres")), "tres": fields.tres(row.get("Tres")), "work_dir": row.get("WorkDir") or None,
            "reservation": row.get("ReservationName") or None,
        }, line.number)  # fmt: skip
    return gathered.parsed()


DOCUMENT = Document(kinds=("jobcomp",), read=_read)
