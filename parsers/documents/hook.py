"""What a prolog or epilog learned about its job: the environment that Slurm gave it.

It comes in two forms: our own hook writes ``hook_spool`` (NUL-separated, with a header), and ``hook_env`` is the plain
output of ``env`` from a site's script (``15.epilog.gpu02.713.env``).

A file of the event ``jobcomp`` is what ``jobcomp/script`` passed to its script: a record of an ended run, as accounting has it.

A task prolog runs as the job's user, with the user's environment: none of it is trusted as Slurm's. The agent reports
only, as ``task_hook`` (JSON: ``job_id``, ``owner_uid``, ``read_at``), which uid owned a file that named which job.
"""

from __future__ import annotations

import re

from parsers.documents import fields, job_env
from parsers.documents.document import Document, Gathered, Line, StatedEvent
from parsers.hostlist import expand
from parsers.json_text import loads
from parsers.record import Origin, Parsed

MAGIC = b"faultline-hook/1\n"
_CONTEXTS = {
    "prolog_slurmd": "prolog", "epilog_slurmd": "epilog", "prolog_slurmctld": "prologslurmctld",
    "epilog_slurmctld": "epilogslurmctld", "prolog_task": "taskprolog",
}  # fmt: skip


def read_spool(data: bytes) -> dict[str, str]:
    """The variables of a file of our own hook, header included. Raises ValueError for any other file."""
    if not data.startswith(MAGIC):
        raise ValueError(f"does not begin with {MAGIC.decode().strip()}")
    pieces = data[len(MAGIC) :].decode("utf-8", "replace").split("\0")
    return {name: value for name, equals, value in (piece.partition("=") for piece in pieces) if equals}


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    if kind == "task_hook":
        return _users_word(gathered, data, origin)
    if kind == "hook_spool":
        env = read_spool(data)
    else:
        env = {name: value for _, name, value in job_env.entries(data)}
    number = fields.integer(env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID"))
    if number is None:
        gathered.warn("no SLURM_JOB_ID: not the environment of a job's hook")
        return gathered.parsed()
    if _event(env) == "taskprolog":
        gathered.warn("a task prolog's environment is a user's: nothing of it is taken (agents tell it as task_hook)")
        return gathered.parsed()
    if kind == "hook_spool" and _event(env) == "gate":
        _refusal(gathered, env, number, origin)
        return gathered.parsed()
    gathered.add("jobs", _completion(env, number) if _event(env) == "jobcomp" else _observation(env, number, origin))
    return gathered.parsed()


def _users_word(gathered: Gathered, data: bytes, origin: Origin) -> Parsed:
    """Records that a uid named a job, and nothing about the job: no reader takes it for more
    (``correlator.gather.ownership``)."""
    document = loads(data)
    number, uid = fields.integer(document.get("job_id")), fields.integer(document.get("owner_uid"))
    if number is None or uid is None:
        gathered.warn("no task prolog's word: job_id or owner_uid is missing")
        return gathered.parsed()
    seen = fields.epoch_text(document.get("read_at")) or origin.received
    gathered.add(
        "jobs", {"job_id": number, "uid": uid, "observed_at": seen, "source": "task_hook", "host": origin.host}
    )
    return gathered.parsed()


#: What the gate printed of a reason: "  - GPU 1 is lost [NVRM: Xid ..., since 2026-11-21T16:00:00Z]"; the brackets hold the evidence.
_REASON, _EVIDENCE = "  - ", " ["
_SINCE = re.compile(r"\bsince (\d{4}-\d\d-\d\dT\d\d:\d\d)\S*Z\]$")
#: An agent older than the hooks wrote evidence in round brackets, in which a reason itself may have some: nothing distinguishes them.
_WITHHELD = "reason withheld (the agent is older than its hooks)"


def _refusal(gathered: Gathered, env: dict[str, str], number: int, origin: Origin) -> None:
    """A job that Faultline's gate refused (deploy/slurm/faultline-gate.sh), as a line: by which check, and since when.

    Only root's prolog leaves such a record in a spool where users cannot write; one from anywhere else is a claim. The job's user sees
    this line. So it has the gravest reason without what the gate quotes as evidence, which may be about other users' processes; the
    lesser reasons may name other users' jobs (incidents), and are only counted.
    """
    if origin.of_person or "task-hooks/" in (origin.path or ""):
        gathered.warn("a refusal of the gate that a user can have written: nothing of it is taken")
        return
    first, *reasons = env.get("FAULTLINE_GATE_ANSWER", "").splitlines() or [""]
    reason, since = _without_evidence(reasons[0].removeprefix(_REASON)) if reasons else ("", None)
    if not first.startswith("unfit ") or not reason:
        gathered.warn("no refusal of the gate: it does not say why the node is unfit")
        return
    host = origin.host or env.get("FAULTLINE_HOST") or env.get("SLURMD_NODENAME")
    more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    text = f"Faultline's gate refused job {number}: {first}: {reason}{f', since {since}Z' if since else ''}{more}"
    entities: dict[str, object] = {"nodes": [host], "reason": reason, "since": since}
    gathered.keep(
        Line(1, text.encode(), text), fields.epoch_text(env.get("FAULTLINE_TIME")), number, host, 1_000,
        StatedEvent("sys.gate_refused", entities, "error"),
    )  # fmt: skip


def _without_evidence(reason: str) -> tuple[str, str | None]:
    """What the gate found, and since when. A reason of an unknown form is not given: it may quote a line."""
    text, bracket, evidence = reason.partition(_EVIDENCE)
    if bracket and reason.endswith("]"):
        return text, since[1] if (since := _SINCE.search(evidence)) else None
    return (_WITHHELD if "(" in reason or "[" in reason else reason), None


def _event(env: dict[str, str]) -> str:
    return env.get("FAULTLINE_EVENT") or _CONTEXTS.get(env.get("SLURM_SCRIPT_CONTEXT", ""), "")


def _observation(env: dict[str, str], number: int, origin: Origin) -> dict[str, object]:
    event = _event(env)
    seen = fields.epoch_text(env.get("FAULTLINE_TIME"))
    ended = event in ("epilog", "epilogslurmctld")
    begun = event in ("prolog", "prologslurmctld")
    # SLURM_NODELIST in slurmd's epilog lacks the node that failed: only slurmctld's own list is the job's.
    hosts = expand(env.get("SLURM_JOB_NODELIST", ""))
    code, signal = fields.exit_pair(env.get("SLURM_JOB_EXIT_CODE2"))
    array = fields.integer(env.get("SLURM_ARRAY_JOB_ID"))
    return {
        "cluster": env.get("SLURM_CLUSTER_NAME") or None, "job_id": number, "array_job_id": array,
        "array_task_id": fields.integer(env.get("SLURM_ARRAY_TASK_ID")) if array else None,
        "restarts": fields.integer(env.get("SLURM_JOB_RESTART_COUNT") or env.get("SLURM_RESTART_COUNT")),
        "name": env.get("SLURM_JOB_NAME"), "user": env.get("SLURM_JOB_USER"),
        "uid": fields.integer(env.get("SLURM_JOB_UID")), "account": env.get("SLURM_JOB_ACCOUNT"),
        "partition": env.get("SLURM_JOB_PARTITION"), "qos": env.get("SLURM_JOB_QOS"), "exit_code": code,
        "exit_signal": signal, "start": fields.epoch_text(env.get("SLURM_JOB_START_TIME")) or (seen if begun else None),
        "end": (fields.epoch_text(env.get("SLURM_JOB_END_TIME")) or seen) if ended else None,
        "node_list": env["SLURM_JOB_NODELIST"] if hosts else None, "nodes": list(hosts) or None,
        "gpu_index": _gpu_index(env), "work_dir": env.get("SLURM_JOB_WORK_DIR"),
        "std_out": env.get("SLURM_JOB_STDOUT"), "std_err": env.get("SLURM_JOB_STDERR"),
        "reservation": env.get("SLURM_JOB_RESERVATION"), "observed_at": seen or origin.received, "source": "hook",
        "host": env.get("FAULTLINE_HOST") or env.get("SLURMD_NODENAME") or origin.host,
    }  # fmt: skip


def _gpu_index(env: dict[str, str]) -> str | None:
    """The numbers of the job's GPUs on this node; None for slices of GPUs (MIG), which Slurm numbers as if they were GPUs."""
    return None if "MIG-" in env.get("CUDA_VISIBLE_DEVICES", "") else env.get("SLURM_JOB_GPUS")


#: deploy/slurm/jobcomp.sh puts this before the names of jobcomp/script's variables (slurm src/plugins/jobcomp/script).
COMPLETION = "SLURM_JOBCOMP_"
#: NO_VAL of a job that is in no array.
_NO_VAL = 4294967294


def _completion(env: dict[str, str], number: int) -> dict[str, object]:
    """What slurmctld tells its completion script: times in seconds since 1970, the limit in minutes or as "1-00:00:00"."""
    values = {name.removeprefix(COMPLETION): value for name, value in env.items() if name.startswith(COMPLETION)}
    state, cancelled_by = fields.state(values.get("JOBSTATE"))
    code, signal = fields.exit_pair(values.get("EXITCODE"))
    hosts = expand(values.get("NODES", ""))
    task = fields.integer(values.get("ARRAYTASKID"))
    array = fields.integer(values.get("ARRAYJOBID")) if task not in (None, _NO_VAL) else None
    return {
        "cluster": values.get("CLUSTER") or None, "job_id": number, "array_job_id": array or None, "array_task_id": task if array else None,
        "name": values.get("JOBNAME") or None, "user": values.get("USERNAME") or None, "uid": fields.integer(values.get("UID")),
        "account": values.get("ACCOUNT") or None, "partition": values.get("PARTITION") or None, "qos": values.get("QOS") or None,
        "state": state, "cancelled_by": cancelled_by, "exit_code": code, "exit_signal": signal,
        "derived_exit_code": values.get("DERIVED_EC") or None, "submit": fields.epoch_text(values.get("SUBMIT")),
        "start": fields.epoch_text(values.get("START")), "end": fields.epoch_text(values.get("END")),
        "time_limit_s": fields.duration_s(values.get("LIMIT")), "node_list": values["NODES"] if hosts else None,
        "nodes": list(hosts) or None,
        "work_dir": values.get("WORK_DIR") or None, "std_out": values.get("STDOUT") or None, "std_err": values.get("STDERR") or None,
        "reservation": values.get("RESERVATION") or None, "source": "jobcomp",
    }  # fmt: skip


DOCUMENT = Document(kinds=("hook_spool", "hook_env", "task_hook"), read=_read)
