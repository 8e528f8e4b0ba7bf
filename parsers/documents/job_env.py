"""The environment of a job (KEY=VALUE lines): variables that affect its fate become settings, the rest is hidden."""

from __future__ import annotations

import re

from parsers.documents.document import Document, Gathered, split_lines
from parsers.record import Origin, Parsed

#: Only variables with these prefixes keep their values: a job's environment is full of secrets.
KEPT_PREFIXES = (
    "SLURM_", "NCCL_", "RCCL_", "TORCH_", "UCX_", "CUDA_VISIBLE_DEVICES", "OMP_", "MASTER_", "FI_", "GLOO_", "WORKDIR", "PWD",
)  # fmt: skip
_SECRET = re.compile(r"token|secret|passw|key|credential|auth", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"(?i)(?:token|secret|passw\w*|api_?key)\s*[=:]|://[^/\s:@]+:[^/\s@]+@|-----BEGIN ")
_ENTRY = re.compile(r"(?:export\s+|declare -x\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.DOTALL)
REDACTED = "redacted"


def kept_value(name: str, value: str) -> str:
    """The value if its variable may be kept, else "redacted"."""
    allowed = name.startswith(KEPT_PREFIXES) and not _SECRET.search(name) and not _SECRET_VALUE.search(value)
    return value if allowed else REDACTED


def entries(data: bytes) -> list[tuple[int, str, str]]:
    """(line, name, value) of ``env`` output; a line that starts no variable continues the previous value."""
    if b"\0" in data:
        pieces = [(1, piece.decode("utf-8", "replace")) for piece in data.split(b"\0")]
    else:
        pieces = [(line.number, line.text) for line in split_lines(data)]
    found: list[tuple[int, str, str]] = []
    for number, text in pieces:
        entry = _ENTRY.fullmatch(text)
        if entry:
            value = entry["value"].strip('"') if text.startswith("decl") else entry["value"]
            found.append((number, entry["name"], value))
        elif found and text:
            line, name, value = found[-1]
            found[-1] = (line, name, f"{value}\n{text}")
    return found


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    found = entries(data)
    named = {name: value for _, name, value in found}
    number = origin.job_id
    if number is None and named.get("SLURM_JOB_ID", "").isdigit():
        number = int(named["SLURM_JOB_ID"])
    restarts = origin.restarts
    count = named.get("SLURM_RESTART_COUNT") or named.get("SLURM_JOB_RESTART_COUNT") or ""
    if restarts is None and count.isdigit():
        restarts = int(count)
    scope = f"job:{number}#{restarts}" if restarts else f"job:{number}"
    for line, name, value in found:
        kept = kept_value(name, value)
        if kept != REDACTED and number is not None:
            gathered.add("settings", {"scope": scope, "name": name, "value": kept}, line)
    if number is None:
        gathered.warn("no job id in the path or in SLURM_JOB_ID: its settings belong to no job")
    gathered.add("artifacts", {
        "job_id": number, "restarts": restarts, "kind": "env", "path": origin.path, "host": origin.host,
        "content": "".join(f"{name}={kept_value(name, value)}\n" for _, name, value in found), "truncated": False,
        "taken_at": origin.received,
    })  # fmt: skip
    return gathered.parsed()


DOCUMENT = Document(kinds=("job_env",), read=_read)
