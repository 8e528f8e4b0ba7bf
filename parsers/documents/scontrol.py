"""``scontrol show job`` and ``scontrol show node``, one record per line (``-o``) or in blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, Line, split_lines
from parsers.hostlist import expand
from parsers.job_states import NOT_ENDED, NOT_STARTED
from parsers.record import Origin, Parsed

_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z0-9_:/.]*)=")
_STARTS = re.compile(r"\s*(?:JobId|NodeName)=")
#: Free text fields, with the key that follows them: a "Key=" inside must not be taken for a field.
_FREE_TEXT = (
    re.compile(r"(?:^|\s)(?P<key>JobName)=(?P<value>.*) UserId=", re.DOTALL),
    re.compile(r"(?:^|\s)(?P<key>Name)=(?P<value>.*) JobState=", re.DOTALL),
    re.compile(
        r"(?:^|\s)(?P<key>Reason)=(?P<value>.*?\[\S+@\d{4}-\d\d-\d\dT[\d:]+\])(?=\s|$)", re.DOTALL
    ),
)  # fmt: skip
#: Components of a heterogeneous job stand between the name and the user.
_HET_SET = re.compile(r"\s+(?:Het|Pack)JobIdSet=[\d,-]+$")
_SIGNED_REASON = re.compile(r"(?P<reason>.*?)\s*\[(?P<actor>\S+)@(?P<time>\d{4}-\d\d-\d\dT[\d:]+)\]", re.DOTALL)


def pairs(text: str) -> dict[str, str]:
    """ "JobId=2 OS=Linux 6.18 #1 SMP State=IDLE" -> key -> value; a value extends to the next key."""
    row: dict[str, str] = {}
    for pattern in _FREE_TEXT:
        found = pattern.search(text)
        if found:
            row[found["key"]] = _HET_SET.sub("", found["value"].rstrip()).strip()
            text = text[: found.start()] + " " + text[found.end("value") :]
    keys = list(_KEY.finditer(text))
    for index, key in enumerate(keys):
        stop = keys[index + 1].start() if index + 1 < len(keys) else len(text)
        row.setdefault(key[1], text[key.end() : stop].strip())
    return row


def _records(lines: list[Line], gathered: Gathered) -> Iterator[tuple[list[Line], dict[str, str]]]:
    """Blocks: from a line that starts with JobId= or NodeName= to the next such line or an empty one."""
    block: list[Line] = []
    script = False
    for line in lines:
        if script and not _STARTS.match(line.text):
            gathered.keep(line)  # "-dd" prints the job's script below its record
            continue
        script = False
        if (_STARTS.match(line.text) or not line.text.strip()) and block:
            yield block, pairs("\n".join(piece.text for piece in block))
            block = []
        if _STARTS.match(line.text) or (block and line.text.strip()):
            block.append(line)
            script = line.text.strip() == "BatchScript="
            if script:
                yield block, pairs("\n".join(piece.text for piece in block))
                block = []
        elif not line.text.strip():
            gathered.keep(line)
        else:
            gathered.keep_unread(line, "not part of a record")
    if block:
        yield block, pairs("\n".join(piece.text for piece in block))


def _read_jobs(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    for lines, row in _records(split_lines(data), gathered):
        number = fields.integer(row.get("JobId"))
        if number is None:
            for line in lines:
                gathered.keep_unread(line, "no JobId=")
            continue
        submit, start, end = (
            fields.local_time(row.get(name), origin.timezone) for name in ("SubmitTime", "StartTime", "EndTime")
        )
        state = fields.state(row.get("JobState"))[0]
        # A future time is the scheduler's estimate, not a time of the job.
        start = None if state in NOT_STARTED else start
        end = None if state in NOT_ENDED else end
        for line in lines:
            gathered.keep(line, end or start or submit, number)
        gathered.add("jobs", _job(row) | {
            "job_id": number, "state": state, "submit": submit, "start": start, "end": end, "source": "scontrol",
            **_waiting(state, row, origin),
        }, lines[0].number)  # fmt: skip
    return gathered.parsed()


def _waiting(state: str | None, row: dict[str, str], origin: Origin) -> dict[str, object]:
    nodes = fields.waits_for(row.get("Reason"), row.get("ReqNodeList")) if state == "PENDING" else None
    return {"waits_for": nodes, "observed_at": origin.received or origin.reference} if nodes else {}


def _job(row: dict[str, str]) -> dict[str, object]:
    user, uid = fields.user(row.get("UserId"))
    code, signal = fields.exit_pair(row.get("ExitCode"))
    hosts = expand(row.get("NodeList", ""))
    return {
        "array_job_id": fields.integer(row.get("ArrayJobId")), "array_task_id": fields.integer(row.get("ArrayTaskId")),
        "restarts": fields.integer(row.get("Restarts")), "name": row.get("JobName"), "user": user, "uid": uid,
        "account": fields.present(row.get("Account")), "partition": fields.present(row.get("Partition")),
        "qos": fields.present(row.get("QOS")), "reason": fields.present(row.get("Reason")), "exit_code": code,
        "exit_signal": signal, "derived_exit_code": fields.present(row.get("DerivedExitCode")),
        "time_limit_s": fields.duration_s(row.get("TimeLimit")), "node_list": row["NodeList"] if hosts else None,
        "nodes": list(hosts) or None, "gpus": fields.gpus(row.get("AllocTRES") or row.get("TRES")),
        "tres": fields.tres(row.get("AllocTRES") or row.get("TRES")),
        # No GPU numbers, though "scontrol -d" prints them: a user's comment or path may look like that line, and they
        # decide about the jobs of others. slurmrestd's document says which field is which (json_forms).
        "work_dir": fields.present(row.get("WorkDir")), "std_out": fields.present(row.get("StdOut")),
        "std_err": fields.present(row.get("StdErr")), "submit_line": fields.present(row.get("SubmitLine")),
        "requeue": {"1": True, "0": False}.get(row.get("Requeue", "")),
        "failed_node": fields.present(row.get("FailedNode")), "reservation": fields.present(row.get("Reservation")),
    }  # fmt: skip


def _read_nodes(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    seen_at = origin.received or origin.reference
    for lines, row in _records(split_lines(data), gathered):
        host = fields.present(row.get("NodeName"))
        if host is None:
            for line in lines:
                gathered.keep_unread(line, "no NodeName=")
            continue
        reason, actor, since = signed_reason(row.get("Reason"), origin.timezone)
        for line in lines:
            gathered.keep(line, since, host=host)
        if row.get("State"):
            gathered.add("node_states", {
                "time": since or seen_at, "host": host, "state": row["State"].lower(), "reason": reason,
                "actor": actor, "source": "scontrol",
            }, lines[0].number)  # fmt: skip
        for name, other in fields.other_names(host, NodeAddr=row.get("NodeAddr"), NodeHostName=row.get("NodeHostName")):
            gathered.add("settings", {"scope": f"node:{host}", "name": name, "value": other}, lines[0].number)
        booted = fields.local_time(row.get("BootTime"), origin.timezone)
        if booted:
            # slurmd computes it as now minus uptime, both in whole seconds.
            gathered.add("boots", {
                "host": host, "boot_time": booted, "error_us": 1_000_000, "source": "scontrol_node",
            })  # fmt: skip
    return gathered.parsed()


def signed_reason(text: str | None, timezone: str) -> tuple[str | None, str | None, datetime | None]:
    """ "Epilog error [slurm@2026-11-21T00:46:41]" -> (reason, who, when)."""
    found = _SIGNED_REASON.match(text or "")
    if not found:
        return fields.present(text), None, None
    return found["reason"] or None, found["actor"], fields.local_time(found["time"], timezone)


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    return (_read_jobs if kind == "scontrol_jobs" else _read_nodes)(kind, data, origin)


DOCUMENT = Document(kinds=("scontrol_jobs", "scontrol_nodes"), read=_read)
