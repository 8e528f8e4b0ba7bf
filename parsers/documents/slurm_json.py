"""Slurm's JSON: ``sacct --json`` and slurmrestd's jobs and nodes, in the formats of 22.05 to 25.x.

Newer versions wrap numbers ({"set", "infinite", "number"}) and list states (["CANCELLED"]); both forms are accepted. What
differs between the versions v0.0.38 to v0.0.43 is in tests/parsers/slurm_json.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from parsers.documents import fields
from parsers.documents.document import Document, Gathered, Row
from parsers.hostlist import expand
from parsers.job_states import NOT_ENDED, NOT_STARTED, base_state
from parsers.json_text import loads
from parsers.record import Origin, Parsed


def number(value: Any) -> int | None:
    """A plain or wrapped number; None if it is not set or infinite."""
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, float):
        return int(value)
    return fields.integer(value)


def _time(value: Any) -> datetime | None:
    return fields.epoch_time(number(value))


def _state(value: Any) -> str | None:
    """The base state, without flags such as COMPLETING that are listed with it."""
    return base_state([str(name) for name in (value if isinstance(value, list) else [value]) if name])


def _exit(value: Any) -> tuple[int | None, int | None]:
    """(exit code, signal); a signalled process has code 0, as sacct prints it."""
    if not isinstance(value, dict):
        # slurmctld's plain form is a wait status.
        status = number(value)
        return (None, None) if status is None else ((status >> 8) & 0xFF, status & 0x7F)
    if "number" in value:
        return _exit(number(value))
    signal = value.get("signal")
    if isinstance(signal, dict):
        signal = number(signal.get("id", signal.get("signal_id")))
    code = number(value.get("return_code"))
    signal = fields.integer(signal)
    if code is None and signal is None:
        return None, None
    return code or 0, signal or 0


def _ended(value: Any, state: str | None) -> tuple[int | None, int | None]:
    """(exit code, signal) of a run or a step that ended in ``state``.

    Up to v0.0.39 (and in the first v0.0.40), whose status is one word, every code is shown as {"status": "SUCCESS",
    "return_code": 0} if the process ended by itself: then a 0 of what failed says nothing.
    """
    code, signal = _exit(value)
    return (None, None) if state == "FAILED" and (code, signal) == (0, 0) and _is_vague(value) else (code, signal)


def _derived(value: Any) -> str | None:
    """The highest exit code of the steps, as sacct prints it; None if it is not known."""
    code, signal = _exit(value)
    return None if code is None or ((code, signal) == (0, 0) and _is_vague(value)) else f"{code}:{signal}"


def _is_vague(value: Any) -> bool:
    return isinstance(value, dict) and value.get("status") == "SUCCESS"


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return ",".join(str(item) for item in value) or None
    return fields.present(str(value)) if value not in (None, "") else None


def _tres(listed: Any) -> str | None:
    """[{"type": "gres", "name": "gpu", "count": 4}, ...] as sacct prints it: "gres/gpu=4,..."."""
    if not isinstance(listed, list):
        return None
    known = [(t, number(t.get("count")) or 0) for t in listed if isinstance(t, dict) and t.get("type")]
    named = ((f"{t['type']}/{t['name']}" if t.get("name") else str(t["type"]), count) for t, count in known)
    return fields.tres(",".join(f"{name}={count}{'M' * (name == 'mem')}" for name, count in named))


def _reserved(reservation: Any) -> str | None:
    """The name of a reservation; v0.0.38 writes 0 if there is none."""
    name = reservation.get("name") if isinstance(reservation, dict) else None
    return _text(name) if isinstance(name, str) else None


def _of_one_node(detail: Any) -> str | None:
    """The resources of a run on its node; None if it has several, each with its own."""
    return str(detail[0]) if isinstance(detail, list) and len(detail) == 1 else None


def _array(job: dict[str, Any]) -> Row:
    array = job.get("array") or {}
    parent = number(array.get("job_id", job.get("array_job_id"))) or None
    task = number(array.get("task_id", job.get("array_task_id")))
    return {"array_job_id": parent, "array_task_id": task if parent else None}


def _read_sacct(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    for job in _listed(data, "jobs", gathered):
        when = job.get("time") or {}
        if "time" not in job or "job_state" in job:
            _controller_job(job, gathered)
            continue
        state = job.get("state") or {}
        code, signal = _ended(job.get("exit_code"), _state(state.get("current")))
        tres = _tres((job.get("tres") or {}).get("allocated"))
        hosts = expand(str(job.get("nodes") or ""))
        limit = number(when.get("limit"))
        submit = _time(when.get("submission"))
        cluster = job.get("cluster") or (job.get("association") or {}).get("cluster")
        gathered.add("jobs", _array(job) | {
            "cluster": cluster, "job_id": number(job.get("job_id")), "restarts": number(job.get("restart_cnt")),
            "db_index": number(job.get("db_index")), "name": _text(job.get("name")), "user": _text(job.get("user")),
            "account": _text(job.get("account")), "partition": _text(job.get("partition")),
            "qos": _text(job.get("qos")), "state": _state(state.get("current")),
            "cancelled_by": _text(job.get("kill_request_user")), "reason": _text(state.get("reason")),
            "exit_code": code, "exit_signal": signal,
            "derived_exit_code": _derived(job.get("derived_exit_code")), "submit": submit,
            "start": _time(when.get("start")), "end": _time(when.get("end")),
            "time_limit_s": None if limit is None else limit * 60, "node_list": job["nodes"] if hosts else None,
            "nodes": list(hosts) or None, "gpus": fields.gpus(tres), "tres": tres, "reservation": _reserved(job.get("reservation")),
            "work_dir": _text(job.get("working_directory")),
            "std_out": _text(job.get("stdout_expanded") or job.get("stdout")),
            "std_err": _text(job.get("stderr_expanded") or job.get("stderr")),
            "submit_line": _text(job.get("submit_line")), "failed_node": _text(job.get("failed_node")),
            "flags": _text(job.get("flags")), "source": "sacct_json",
        })  # fmt: skip
        for step in job.get("steps") or []:
            _step(step, number(job.get("job_id")), cluster, submit, gathered)
    return gathered.parsed()


def _step(step: Any, job_id: int | None, cluster: Any, submit: datetime | None, gathered: Gathered) -> None:
    name = step.get("step") or {}
    when = step.get("time") or {}
    label = str(name.get("id", "")) if not isinstance(name.get("id"), dict) else str(name["id"].get("step_id", ""))
    code, signal = _ended(step.get("exit_code"), _state(step.get("state")))
    nodes = step.get("nodes") or {}
    hosts = expand(str(nodes.get("range") or "")) or tuple(str(host) for host in nodes.get("list") or [])
    gathered.add("steps", {
        "cluster": cluster, "job_id": job_id, "submit": submit, "step_id": label.rpartition(".")[2],
        "name": _text(name.get("name")), "state": _state(step.get("state")), "exit_code": code, "exit_signal": signal,
        "start": _time(when.get("start")), "end": _time(when.get("end")), "node_list": nodes.get("range"),
        "nodes": list(hosts) or None,
    })  # fmt: skip


def _read_rest_jobs(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    for job in _listed(data, "jobs", gathered):
        _controller_job(job, gathered)
    return gathered.parsed()


def _controller_job(job: dict[str, Any], gathered: Gathered) -> None:
    state = _state(job.get("job_state"))
    begun, ended = state not in NOT_STARTED, state not in NOT_ENDED
    code, signal = _ended(job.get("exit_code"), state)
    hosts = expand(str(job.get("nodes") or ""))
    limit = number(job.get("time_limit"))
    reason = f"{job.get('state_reason') or ''} {job.get('state_description') or ''}"
    waits_for = fields.waits_for(reason, _text(job.get("required_nodes"))) if state == "PENDING" else None
    gathered.add("jobs", _array(job) | {
        "waits_for": waits_for, "observed_at": (gathered.origin.received or gathered.origin.reference) if waits_for else None,
        "cluster": _text(job.get("cluster")), "job_id": number(job.get("job_id")),
        "restarts": number(job.get("restart_cnt")), "name": _text(job.get("name")),
        "user": _text(job.get("user_name")), "uid": number(job.get("user_id")), "account": _text(job.get("account")),
        "partition": _text(job.get("partition")), "qos": _text(job.get("qos")), "state": state,
        "reason": _text(job.get("state_reason")), "exit_code": code, "exit_signal": signal,
        "derived_exit_code": _derived(job.get("derived_exit_code")),
        "submit": _time(job.get("submit_time")), "start": _time(job.get("start_time")) if begun else None,
        "end": _time(job.get("end_time")) if ended else None, "time_limit_s": None if limit is None else limit * 60,
        "node_list": job["nodes"] if hosts else None, "nodes": list(hosts) or None,
        "gpus": fields.gpus(job.get("tres_alloc_str")), "tres": fields.tres(job.get("tres_alloc_str")),
        "gpu_index": fields.gpu_index(_of_one_node(job.get("gres_detail"))), "work_dir": _text(job.get("current_working_directory")),
        "std_out": _text(job.get("standard_output")), "std_err": _text(job.get("standard_error")),
        "requeue": job.get("requeue"), "failed_node": _text(job.get("failed_node")),
        "reservation": _text(job.get("resv_name")), "flags": _text(job.get("flags")), "source": "slurmrestd",
    })  # fmt: skip


def _read_rest_nodes(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    seen_at = origin.received or origin.reference
    for node in _listed(data, "nodes", gathered):
        # Up to v0.0.38 the base state and its flags are separate ("idle", ["DRAIN"]), later both are in one list.
        listed = node.get("state")
        names = listed if isinstance(listed, list) else [listed or "", *(node.get("state_flags") or [])]
        state = "+".join(str(name) for name in names)
        host = _text(node.get("name"))
        gathered.add("node_states", {
            "time": _time(node.get("reason_changed_at")) or seen_at, "cluster": _text(node.get("cluster_name")),
            "host": host, "state": state.lower() or None, "reason": _text(node.get("reason")),
            "actor": _text(node.get("reason_set_by_user")), "source": "slurmrestd",
        })  # fmt: skip
        names_of = fields.other_names(
            host or "", NodeAddr=_text(node.get("address")), NodeHostName=_text(node.get("hostname"))
        )
        for name, other in names_of if host else ():
            cluster = _text(node.get("cluster_name"))
            gathered.add(
                "settings",
                {"cluster": cluster, "scope": f"node:{host}", "name": name, "value": other, "source": "slurmrestd"},
            )
        booted = _time(node.get("boot_time"))
        if booted:
            gathered.add("boots", {
                "host": host, "boot_time": booted, "error_us": 1_000_000, "source": "slurmrestd",
            })  # fmt: skip
    return gathered.parsed()


def _read_rest_partitions(kind: str, data: bytes, origin: Origin) -> Parsed:
    """Partitions as settings, named and written as in slurm.conf."""
    gathered = Gathered(kind, origin)
    for part in _listed(data, "partitions", gathered):
        states = (part.get("partition") or {}).get("state") or []
        minutes = number((part.get("maximums") or {}).get("time"))
        value = {
            "Nodes": (part.get("nodes") or {}).get("configured"), "State": states[0] if states else None,
            "MaxTime": "UNLIMITED" if minutes is None else str(minutes),
        }  # fmt: skip
        gathered.add("settings", {
            "scope": "cluster", "cluster": _text(part.get("cluster")), "name": f"PartitionName:{part.get('name')}",
            "value": " ".join(f"{key}={text}" for key, text in value.items() if text), "source": "slurmrestd",
        })  # fmt: skip
    return gathered.parsed()


def _read_rest_ping(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    cluster = ((loads(data).get("meta") or {}).get("slurm") or {}).get("cluster")
    for ping in _listed(data, "pings", gathered):
        shared = {
            "time": origin.received or origin.reference, "cluster": cluster, "host": _text(ping.get("hostname")),
            "labels": json.dumps({"mode": ping.get("mode")}),
        }  # fmt: skip
        # "ping" up to v0.0.38.
        up = "UP" in (ping.get("pinged"), ping.get("ping")) or ping.get("responding") is True
        gathered.add("metrics", shared | {"metric": "slurmctld_ping_up", "value": float(up)})
        if number(ping.get("latency")) is not None:
            gathered.add(
                "metrics",
                shared | {"metric": "slurmctld_ping_latency_us", "value": float(number(ping["latency"]) or 0)},
            )
    return gathered.parsed()


def _listed(data: bytes, name: str, gathered: Gathered) -> list[dict[str, Any]]:
    answer = loads(data)
    for problem in answer.get("errors") or []:
        if isinstance(problem, dict):
            gathered.warn(f"Slurm reported: {problem.get('description') or problem.get('error')}")
    return [item for item in answer.get(name) or [] if isinstance(item, dict)]


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    return _READERS[kind](kind, data, origin)


_READERS = {
    "sacct_json": _read_sacct, "rest_jobs": _read_rest_jobs, "rest_nodes": _read_rest_nodes,
    "rest_partitions": _read_rest_partitions, "rest_ping": _read_rest_ping,
}  # fmt: skip
DOCUMENT = Document(kinds=tuple(_READERS), read=_read)
