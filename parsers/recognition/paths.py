"""What the path alone says of a file: its host and its job."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

from parsers.recognition.result import Recognition

PACKED = (".gz", ".xz", ".zst", ".bz2")


def inner_path(path: Path | str, root: Path | None) -> tuple[PurePosixPath, int]:
    """The path below ``root`` without compression suffixes, and how many of its folders are ``root``'s own."""
    whole, above = PurePosixPath(path), 0
    if root is not None:
        base = PurePosixPath(root)
        # A folder's own name may be significant ("captures/oom", "nodes/gpu01"): its parents stay visible.
        if whole != base and whole.is_relative_to(base):
            # All of them inside a job's folder: a user chose the names there.
            job = next(
                (at for at, (a, b) in enumerate(pairwise(base.parts)) if a == "jobs" and _NUMBER.fullmatch(b)), None
            )
            kept = base.parts[job:] if job is not None else base.parts[-2:]
            whole, above = PurePosixPath(*kept) / whole.relative_to(base), len(kept)
    while whole.suffix in PACKED:
        whole = whole.with_suffix("")
    return whole, above


_HOST_FOLDERS = frozenset({"hosts", "nodes", "switches", "metrics"})
#: A job ID: more digits are not one, and would not fit into the store.
_NUMBER = re.compile(r"[0-9]{1,18}")
_JOB_OUTPUT = re.compile(
    r"(?:(?P<name>.+)-|slurm-|job[-_.]?)(?P<job>[0-9]{1,18})(?:_[0-9]+|\.[0-9]+)?\.(?P<kind>out|err|log)", re.DOTALL
)
_JOB_FILES = {
    "stdout": "stdout", "stderr": "stderr", "script.sh": "script", "script": "script", "env": "env",
    "stdout.log": "stdout", "stderr.log": "stderr", "environment": "env",
}  # fmt: skip


def place_of(path: PurePosixPath, above: int, whole_tree: bool) -> Recognition:
    """What the path alone gives: host and job."""
    parts = path.parts
    jobs = _jobs_folder(parts, above, whole_tree)
    machines = parts if jobs is None else parts[: jobs + 1]
    host = None
    for folder, below in pairwise(machines):
        if folder in _HOST_FOLDERS and below != parts[-1] and below != "jobs":
            host = below
        elif folder == "controller" and host is None:
            host = "controller"
    if jobs is not None:
        return replace(_below_jobs(parts[jobs + 1 :]), host=host)
    output = _JOB_OUTPUT.fullmatch(parts[-1]) if parts else None
    if output and parts[-1].startswith("slurm-"):
        return replace(_claimed(output), host=host)
    source = "switch" if "switches" in parts[:-1] else None
    return Recognition("", source=source, host=host)


def _jobs_folder(parts: tuple[str, ...], above: int, whole_tree: bool) -> int | None:
    """The index of the jobs folder in ``parts``, whose first ``above`` are the path that the user named and its parent.
    It is the first of that name: a deeper one was created by a user. A single path (not ``whole_tree``) is not known to
    be in a log tree."""
    for at, part in enumerate(parts[:-1]):
        below = parts[at + 1]
        if part != "jobs":
            continue
        if _NUMBER.fullmatch(below) and at + 2 < len(parts):
            return at
        if (whole_tree and at >= above - 1) or (at + 2 == len(parts) and _JOB_OUTPUT.fullmatch(below)):
            return at
    return None


def _below_jobs(below: tuple[str, ...]) -> Recognition:
    """JOBID[/restart-N]/FILE and NAME-JOBID.out below the jobs folder; anything else is job output."""
    name = below[-1]
    if len(below) == 1:
        output = _JOB_OUTPUT.fullmatch(name)
        return _claimed(output) if output else Recognition("", source="job_stdout", of_job=True)
    if not _NUMBER.fullmatch(below[0]):
        return Recognition("", source="job_stdout", of_job=True)
    again = re.fullmatch(r"restart-([0-9]{1,9})", below[1]) if len(below) > 2 else None
    artifact = _JOB_FILES.get(name)
    if len(below) > 2 + bool(again) and artifact not in ("stdout", "stderr"):
        artifact = None
    source = None if artifact in ("script", "env") else "job_stdout"
    return Recognition(
        "", source=source, job_id=int(below[0]), restarts=int(again[1]) if again else 0, artifact=artifact, of_job=True
    )


def _claimed(output: re.Match[str]) -> Recognition:
    artifact = "stderr" if output["kind"] == "err" else "stdout"
    return Recognition("", source="job_stdout", job_id=int(output["job"]), artifact=artifact, of_job=True, claimed=True)
