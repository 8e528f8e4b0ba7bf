"""What a prolog or epilog saw of its job: the environment Slurm gave it.

Two wrappings of the same: ``hook_spool`` is written by our own hook (NUL-separated, with a header), ``hook_env`` is
the plain output of ``env`` that a site's script left (``15.epilog.gpu02.713.env``).
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import PurePosixPath

from parsers.documents import fields, job_env
from parsers.documents.document import Document, Gathered
from parsers.hostlist import expand
from parsers.record import Origin, Parsed

MAGIC = b"faultline-hook/1\n"
_PATTERN = re.compile(r"%(?P<width>\d*)(?P<letter>[%AaJjNnstuxb])")
_CONTEXTS = {
    "prolog_slurmd": "prolog", "epilog_slurmd": "epilog", "prolog_slurmctld": "prologslurmctld",
    "epilog_slurmctld": "epilogslurmctld", "prolog_task": "taskprolog",
}  # fmt: skip
#: Slurm pads to at most ten digits.
_WIDEST = 10


def resolve_pattern(pattern: str, env: dict[str, str]) -> str:
    """Slurm's file name pattern -> the batch script's file: "%x-%5j.out" -> "hit-00002.out".

    Knows %A %a %b %J %j %N %n %s %t %u %x %% and zero padding. A backslash switches replacement off, as in sbatch.
    A letter whose value is not in ``env`` stays as it is, so that the result never names a wrong file.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID")
    array = env.get("SLURM_ARRAY_JOB_ID") or job
    task = env.get("SLURM_ARRAY_TASK_ID")
    hosts = expand(env.get("SLURM_JOB_NODELIST") or "") or expand(env.get("SLURMD_NODENAME", ""))
    values = {
        "%": "%", "A": array, "a": task or "4294967294", "J": job, "j": job, "N": hosts[0] if hosts else None, "n": "0",
        "s": "batch", "t": "0", "u": env.get("SLURM_JOB_USER"), "x": env.get("SLURM_JOB_NAME"),
        "b": str(int(task) % 10) if task and task.isdigit() else "0",
    }  # fmt: skip

    def replaced(found: re.Match[str]) -> str:
        value = values[found["letter"]]
        if value is None:
            return found[0]
        width = min(int(found["width"] or 0), _WIDEST)
        return value.rjust(width, "0") if value.isdigit() else value

    return _PATTERN.sub(replaced, pattern)


def hook_artifacts(environment: dict[str, str]) -> dict[str, str]:
    """The files a job writes, by kind: {"stdout": PATH, "stderr": PATH}; both the same where Slurm joins them.

    Relative paths are relative to the job's working directory. A path with a letter left unresolved is left out.
    """
    folder = environment.get("SLURM_JOB_WORK_DIR", "")
    default = "slurm-%A_%a.out" if environment.get("SLURM_ARRAY_TASK_ID") else "slurm-%j.out"
    stdout = environment.get("SLURM_JOB_STDOUT") or default
    files = {"stdout": stdout, "stderr": environment.get("SLURM_JOB_STDERR") or stdout}
    paths = {}
    for kind, pattern in files.items():
        path = resolve_pattern(pattern, environment)
        if "\\" not in pattern and _PATTERN.search(pattern.replace("%%", "")) and _PATTERN.search(path):
            continue
        full = str(PurePosixPath(folder) / path)
        if full.startswith("/") and full != "/dev/null":
            paths[kind] = full
    return paths


def read_spool(data: bytes) -> dict[str, str]:
    """The variables of a file of our own hook, header included. Raises ValueError if it is none."""
    if not data.startswith(MAGIC):
        raise ValueError(f"does not begin with {MAGIC.decode().strip()}")
    pieces = data[len(MAGIC) :].decode("utf-8", "replace").split("\0")
    return {name: value for name, equals, value in (piece.partition("=") for piece in pieces) if equals}


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    if kind == "hook_spool":
        env = read_spool(data)
    else:
        env = {name: value for _, name, value in job_env.entries(data)}
    number = fields.integer(env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID"))
    if number is None:
        gathered.warn("no SLURM_JOB_ID: not the environment of a job's hook")
        return gathered.parsed()
    gathered.add("jobs", _observation(env, number, origin))
    return gathered.parsed()


def _observation(env: dict[str, str], number: int, origin: Origin) -> dict[str, object]:
    event = env.get("FAULTLINE_EVENT") or _CONTEXTS.get(env.get("SLURM_SCRIPT_CONTEXT", ""), "")
    seen = _epoch(env.get("FAULTLINE_TIME"))
    ended = event in ("epilog", "epilogslurmctld")
    begun = event in ("prolog", "prologslurmctld")
    # SLURM_NODELIST of slurmd's epilog lacks the node that failed: only slurmctld's own list is the job's.
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
        "exit_signal": signal, "start": _epoch(env.get("SLURM_JOB_START_TIME")) or (seen if begun else None),
        "end": (_epoch(env.get("SLURM_JOB_END_TIME")) or seen) if ended else None,
        "node_list": env["SLURM_JOB_NODELIST"] if hosts else None, "nodes": list(hosts) or None,
        "gpu_index": env.get("SLURM_JOB_GPUS"), "work_dir": env.get("SLURM_JOB_WORK_DIR"),
        "std_out": env.get("SLURM_JOB_STDOUT"), "std_err": env.get("SLURM_JOB_STDERR"),
        "reservation": env.get("SLURM_JOB_RESERVATION"), "observed_at": seen or origin.received, "source": "hook",
        "host": env.get("FAULTLINE_HOST") or env.get("SLURMD_NODENAME") or origin.host,
    }  # fmt: skip


def _epoch(text: str | None) -> datetime | None:
    try:
        return fields.epoch_time(float(text)) if text else None
    except ValueError:
        return None


DOCUMENT = Document(kinds=("hook_spool", "hook_env"), read=_read)
