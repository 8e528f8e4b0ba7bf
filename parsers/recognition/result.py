"""The recognised type of a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recognition:
    """The recognised type of a file.

    ``kind``: "lines", a document kind of ``parsers.documents``, "binary", "script" (kept as an artifact only) or
    "skip". ``source`` is a hint for lines. ``host``, ``job_id`` and ``restarts`` come from the path. ``artifact`` is
    script, env, stdout or stderr for a file that a job left. ``reason`` explains the result to a person. ``of_job``: a
    job's file, which refers to ``job_id`` or to no job. ``claimed``: the job ID is in the file's own name, which its
    user chose, and not in a folder of the collector's.
    """

    kind: str
    source: str | None = None
    host: str | None = None
    job_id: int | None = None
    restarts: int | None = None
    artifact: str | None = None
    reason: str = ""
    of_job: bool = False
    claimed: bool = False
