"""What the steps of a run ran with, and what of it differs from the last run that ended well.

All of it is the user's word: it is shown as that, and beside a verdict, never as its cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from store.questions import job_files as questions
from web import job_software
from web.job_files import its_time
from web.reading import Reader, Row

#: Variables that differ from run to run by themselves: numbers, places and ports that Slurm or a launcher assigns.
_BY_CHANCE = re.compile(
    r"CUDA_VISIBLE_DEVICES|MASTER_(?:ADDR|PORT)|PMIX_(?:RANK|NAMESPACE|SERVER_.*|HOSTNAME|SYSTEM_TMPDIR|VERSION|.*DSTORE.*)"
    r"|OMPI_(?!MCA_(?!orte_|ess_|initial_|pmix_)).*|NVIDIA_VISIBLE_DEVICES|ENROOT_(?:PID|ROOTFS)|SINGULARITY_BIND.*|TORCH_.*(?:RUN_ID|STORE).*"
)
#: Of Slurm's own, those that the user asked for.
_ASKED = re.compile(
    r"SLURM_(?:CPUS_PER_(?:TASK|GPU)|NTASKS(?:_PER_.*)?|NNODES|GPUS(?:_PER_.*)?|MEM_PER_.*|CONTAINER.*|MPI_TYPE|DISTRIBUTION|CPU_BIND_TYPE"
    r"|THREADS_PER_CORE|HINT|EXPORT_ENV)"
)
#: At most this many differences are shown; the number of the others is.
MOST_CHANGES = 20


def steps(read: Reader, run: Row, attempts: Sequence[Row]) -> dict[str, dict[str, str]]:
    """Step -> its variables. ``attempts``: all runs of its number (``Reader.attempts``)."""
    rows = read.ask(
        questions.environments(run["job_id"], run["cluster"], int(run["attempt"] or 0), *its_time(run, attempts))
    )
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row["step"], {})[row["name"]] = row["value"]
    return dict(
        sorted(found.items(), key=lambda item: (not item[0].isdigit(), int(item[0]) if item[0].isdigit() else 0))
    )


def since_last_good(
    read: Reader, run: Row, own: Mapping[str, Mapping[str, str]], verdict: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The last run of this user and job name that ended well, and what differs: ``run``, ``changes`` and ``more``, the
    number of further ones; ``nodes``: sentences about the nodes' software (``web.job_software``). None if there is no such
    run, or nothing differs."""
    began = run["start"] or run["submit"]
    if not own or not run["user"] or not run["name"] or began is None:
        return None
    good = read.one(questions.last_good(run["user"], run["name"], run["cluster"], began))
    if good is None:
        return None
    before = read.ask(questions.environments(good["job_id"], good["cluster"], int(good["attempt"] or 0)))
    theirs: dict[str, dict[str, str]] = {}
    for row in before:
        theirs.setdefault(row["step"], {})[row["name"]] = row["value"]
    changes = differences(theirs, own, good["job_id"], run["job_id"])
    nodes = job_software.sentences(
        job_software.changes(job_software.at_start(read, good), job_software.at_start(read, run), verdict)
    )
    if not changes and not nodes:
        return None
    more = max(0, len(changes) - MOST_CHANGES)
    return {"run": good["run_key"], "changes": changes[:MOST_CHANGES], "more": more, "nodes": nodes}


def differences(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]], job_before: int, job_after: int
) -> list[dict[str, str | None]]:
    """What differs in the steps that both runs have: ``name``, ``before`` and ``after``, each once; None: not set.

    Values that contain the job's own number are equal if they differ in nothing else.
    """
    found: dict[tuple[str, str | None, str | None], None] = {}
    for step in after:
        old, new = before.get(step), after[step]
        if old is None:
            continue
        for name in sorted({*old, *new}):
            if _is_by_chance(name):
                continue
            one, other = old.get(name), new.get(name)
            if _plain(one, job_before) != _plain(other, job_after):
                found[name, one, other] = None
    return [{"name": name, "before": one, "after": other} for name, one, other in found]


def sentence(change: Mapping[str, str | None]) -> str:
    """One difference in words."""
    name, before, after = change["name"], change["before"], change["after"]
    if before is None:
        return f"{name} is set now: {after}"
    if after is None:
        return f"{name} is not set any more; it was {before}"
    return f"{name} changed: {before} -> {after}"


def document(
    read: Reader, run: Row, attempts: Sequence[Row], verdict: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The environment of a run for the API: ``source`` says whose word it is. None if none was kept."""
    own = steps(read, run, attempts)
    if not own:
        return None
    changed = since_last_good(read, run, own, verdict)
    if changed is not None:
        changed["sentences"] = [*changed["nodes"], *(sentence(change) for change in changed["changes"])]
    return {"source": "user", "steps": own, "since_last_good": changed}


def _is_by_chance(name: str) -> bool:
    if name.startswith("SLURM"):
        return not _ASKED.fullmatch(name)
    return bool(_BY_CHANCE.fullmatch(name))


def _plain(value: str | None, job: int) -> str | None:
    return None if value is None else re.sub(rf"(?<![0-9]){job}(?![0-9])", "JOB", value)
