"""Resolves the files that a job writes from the file name patterns that Slurm passes to its hooks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

_PATTERN = re.compile(r"%(?P<width>\d*)(?P<letter>[%AaJjNnstuxb])")
#: Slurm pads to at most ten digits.
_WIDEST = 10
_BRACKETS = re.compile(r"\[([^\],-]+)[^\]]*\]")


def first_host(nodes: str) -> str | None:
    """The first host of a Slurm host list; None for an empty one. (The agent has no node set library.)

    >>> first_host("gpu[07-09,12],login1")
    'gpu07'
    """
    head = re.match(r"(?:[^\[,]|\[[^\]]*\])*", nodes.strip())
    return (_BRACKETS.sub(r"\1", head[0]) if head else "") or None


def batch_host(env: Mapping[str, str]) -> str | None:
    """The node that a job's output comes from: the one that runs its batch script."""
    return first_host(env.get("SLURM_JOB_NODELIST", "")) or env.get("SLURMD_NODENAME") or env.get("FAULTLINE_HOST")


def resolve_pattern(pattern: str, env: Mapping[str, str]) -> str:
    """Slurm's file name pattern -> the batch script's file: "%x-%5j.out" -> "hit-00002.out".

    Supports %A %a %b %J %j %N %n %s %t %u %x %% and zero padding. A backslash turns replacement off, as in sbatch. A
    letter whose value is not in ``env`` stays as it is, so that the result never names a wrong file.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID")
    array = env.get("SLURM_ARRAY_JOB_ID") or job
    task = env.get("SLURM_ARRAY_TASK_ID")
    values = {
        "%": "%", "A": array, "a": task or "4294967294", "J": job, "j": job,
        "N": first_host(env.get("SLURM_JOB_NODELIST") or "") or first_host(env.get("SLURMD_NODENAME", "")), "n": "0",
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


def output_files(environment: Mapping[str, str]) -> dict[str, str]:
    """The files a job writes, by kind: {"stdout": PATH, "stderr": PATH}; both the same if Slurm joins them.

    Relative paths are relative to the job's working directory. A path with an unresolved letter is omitted.
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
