"""From what many sources say about jobs to runs: one row per job and restart.

A requeued job keeps its id; its runs differ in start time, in slurmdbd's index, and (where told) in the restart count.
A cluster set up anew counts its job ids from 1 again, so two rows of one id need not be two runs of one job.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from correlator.events import seconds_of
from correlator.model import OPEN_STATES, Event, Run
from parsers.hostlist import expand, fold

if TYPE_CHECKING:
    from correlator.reads import Reads

#: Who is believed first about a field: accounting knows the end, dumps taken in between do not.
_RANK = {"sacct": 0, "sacct_json": 1, "slurmrestd": 2, "jobcomp": 3, "scontrol": 4, "squeue": 5, "hook": 6, "log": 7}

#: Start times of one run as two sources write them: whole seconds, rounded differently.
SAME_START_S = 2.0

#: A run that ended so may be followed by another run of the same job.
_REQUEUEABLE = frozenset(
    {"NODE_FAIL", "REQUEUED", "PREEMPTED", "BOOT_FAIL", "REQUEUE_HOLD", "REQUEUE_FED", "LAUNCH_FAILED"}
)


def gather(store: Reads, cluster: str | None, events: list[Event]) -> list[Run]:
    """All runs of a cluster, ordered by job id and attempt."""
    rows = store.rows("SELECT * FROM raw.jobs WHERE cluster IS NOT DISTINCT FROM ?", [cluster])
    steps = store.rows("SELECT * FROM raw.steps WHERE cluster IS NOT DISTINCT FROM ?", [cluster])
    return assemble(rows, steps, events)


def assemble(rows: list[dict[str, Any]], steps: list[dict[str, Any]], events: list[Event]) -> list[Run]:
    """Pure: the order of rows and their number of copies do not matter."""
    by_job: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in [*rows, *_rows_from_events(events)]:
        if row["job_id"] is not None:
            by_job[row["job_id"]].append(row)
    steps_of: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for step in steps:
        steps_of[step["job_id"]].append(step)
    submits: defaultdict[int, list[float]] = defaultdict(list)
    for event in events:
        if event.kind == "slurm.job_submit" and event.job_id is not None:
            submits[event.job_id].append(event.time)
    runs: list[Run] = []
    for job_id in sorted(by_job):
        runs += _runs_of_job(job_id, by_job[job_id], steps_of[job_id], submits[job_id])
    return runs


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    moment = row["start"] or row["submit"] or row["end"] or datetime.max
    return (moment, _RANK.get(row["source"], 9), row["db_index"] or 0, str(row["file"]), row["line"] or 0)


def _runs_of_job(
    job_id: int, rows: list[dict[str, Any]], steps: list[dict[str, Any]], submits: list[float]
) -> list[Run]:
    groups: list[list[dict[str, Any]]] = []
    timed = [r for r in rows if (r["start"] or r["submit"]) and r["source"] not in ("hook", "log")]
    for row in sorted(timed, key=_order):
        for group in groups:
            if _same_run(group, row):
                group.append(row)
                break
        else:
            groups.append([row])
    known = {id(r) for r in timed}
    for row in sorted((r for r in rows if id(r) not in known), key=_order):
        home = _group_for(groups, row)
        if home is None and groups and not (row["start"] or row["end"] or row["submit"] or row["observed_at"]):
            continue  # a hook's word without any time, and several runs it may be about: it tells nothing
        if home is None:
            groups.append([row])
        else:
            home.append(row)
    runs = [_merge(job_id, group) for group in groups]
    runs.sort(key=lambda r: (r.submit or r.start or 0.0, r.start or r.end or 0.0))
    _number(runs, submits)
    for run in runs:
        run.steps = tuple(_steps_for(run, steps))
    return runs


def _same_run(group: list[dict[str, Any]], row: dict[str, Any]) -> bool:
    for other in group:
        if other["db_index"] and row["db_index"] and other["submit"] and row["submit"]:
            if other["db_index"] == row["db_index"] and other["submit"] == row["submit"]:
                return True
            continue
        if other["start"] and row["start"]:
            if abs((other["start"] - row["start"]).total_seconds()) <= SAME_START_S:
                return True
        elif other["submit"] and row["submit"] and other["submit"] == row["submit"]:
            return True
    return False


def _group_for(groups: list[list[dict[str, Any]]], row: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The run that a hook's or a log's observation belongs to: by restart count, else by time."""
    moment = row["start"] or row["end"] or row["submit"] or row["observed_at"]
    best: tuple[float, list[dict[str, Any]]] | None = None
    for group in groups:
        starts = [r["start"] for r in group if r["start"]]
        ends = [r["end"] for r in group if r["end"]]
        restarts = {r["restarts"] for r in group if r["restarts"] is not None}
        if row["restarts"] is not None and restarts and row["restarts"] not in restarts:
            continue
        if moment is None:
            return group if len(groups) == 1 else None
        begin = min(starts or [r["submit"] for r in group if r["submit"]] or [moment])
        finish = max(ends or [moment])
        before, after = (begin - moment).total_seconds(), (moment - finish).total_seconds()
        distance = max(before, after, 0.0)
        # Epilogs come after the end, node failures' epilogs minutes after; a prolog comes just before the start.
        if before <= 30 and after <= 1800 and (best is None or distance < best[0]):
            best = (distance, group)
    return None if best is None else best[1]


def _merge(job_id: int, group: list[dict[str, Any]]) -> Run:
    ordered = sorted(group, key=lambda r: (_RANK.get(r["source"], 9), _order(r))) if len(group) > 1 else list(group)
    # A dump taken while the run was going on must not hide how it ended.
    ordered.sort(key=lambda r: not r["state"] or r["state"] in OPEN_STATES)
    merged: dict[str, Any] = {}
    for row in reversed(ordered):  # who is believed first has the last word
        merged.update({k: v for k, v in row.items() if v is not None and v != "" and v != []})
    nodes = tuple(merged.get("nodes") or ())
    return Run(
        key=str(job_id), job_id=job_id, attempt=merged.get("restarts") or 0, state=merged.get("state") or "",
        nodes=nodes, submit=seconds_of(merged.get("submit")), start=seconds_of(merged.get("start")),
        end=seconds_of(merged.get("end")), row=merged, sources=tuple(sorted({str(r["source"]) for r in group})),
    )  # fmt: skip


def _number(runs: list[Run], submits: list[float]) -> None:
    """Attempts and keys. ``15``, ``15#1``; an older job of a re-used id is ``1@2026-11-21T00:22:04``."""
    chains: list[list[Run]] = []
    for run in runs:
        previous = chains[-1][-1] if chains else None
        if previous is not None and _is_restart(previous, run, submits):
            chains[-1].append(run)
        else:
            chains.append([run])
    for index, chain in enumerate(chains):
        for place, run in enumerate(chain):
            told = run.row.get("restarts")
            run.attempt = (
                int(told) if told is not None and len({r.row.get("restarts") for r in chain}) == len(chain) else place
            )
            base = _base_key(run)
            if index < len(chains) - 1:
                moment = run.row.get("submit") or run.row.get("start") or run.row.get("end")
                base += f"@{moment:%Y-%m-%dT%H:%M:%S}" if moment else f"@{index}"
            run.key = base if run.attempt == 0 else f"{base}#{run.attempt}"


def _base_key(run: Run) -> str:
    array, task = run.row.get("array_job_id"), run.row.get("array_task_id")
    return f"{array}_{task}" if array is not None and task is not None else str(run.job_id)


def _is_restart(previous: Run, run: Run, submits: list[float]) -> bool:
    restarts = run.row.get("restarts")
    if restarts and run.row.get("user") == previous.row.get("user"):
        return True
    if restarts == 0 and previous.row.get("restarts") == 0 and previous.state in ("COMPLETED",):
        return False
    if previous.state not in _REQUEUEABLE and not previous.row.get("requeue_seen"):
        return False
    if any(
        previous.row.get(name) != run.row.get(name)
        for name in ("user", "name")
        if previous.row.get(name) and run.row.get(name)
    ):
        return False
    begin, end = previous.end or previous.start or 0.0, run.start or run.submit or 0.0
    return not any(begin < moment < end for moment in submits)


def _steps_for(run: Run, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    index = run.row.get("db_index")
    found = {}
    for step in sorted(steps, key=lambda s: (str(s["step_id"]), str(s["file"]), s["line"] or 0)):
        start = seconds_of(step["start"])
        by_time = (
            start is not None
            and run.start is not None
            and run.start - 2 <= start
            and (run.end is None or start <= run.end + 2)
        )
        by_index = index is not None and step["db_index"] == index
        if by_time and (by_index or index is None or step["db_index"] is None):
            found[step["step_id"]] = step
    return [found[name] for name in sorted(found)]


_EMPTY = dict.fromkeys((
    "array_job_id", "array_task_id", "restarts", "db_index", "name", "user", "uid", "account", "partition", "qos", "state",
    "cancelled_by", "reason", "exit_code", "exit_signal", "derived_exit_code", "submit", "start", "end", "time_limit_s",
    "node_list", "nodes", "gpus", "gpu_index", "work_dir", "std_out", "std_err", "submit_line", "requeue", "failed_node",
    "reservation", "flags", "observed_at", "host", "file", "line",
))  # fmt: skip


def _rows_from_events(events: list[Event]) -> list[dict[str, Any]]:
    """What slurmctld's own lines say of runs: all there is while accounting is late or absent."""
    open_runs: dict[int, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for event in events:
        job = event.job_id
        if job is None or event.source != "slurmctld":
            continue
        row = open_runs.get(job)
        if row is None and event.kind != "slurm.job_start":
            continue
        moment = datetime.fromtimestamp(event.time, UTC).replace(tzinfo=None)
        if event.kind == "slurm.job_start":
            if row is not None:
                rows.append(row)
            nodes = list(event.entities.get("nodes") or expand(str(event.entities.get("nodelist") or "")))
            row = {
                **_EMPTY,
                "job_id": job,
                "source": "log",
                "start": moment,
                "state": "RUNNING",
                "nodes": nodes,
                "node_list": str(event.entities.get("nodelist") or "") or fold(nodes),
            }
            row["partition"] = event.entities.get("partition")
            open_runs[job] = row
            continue
        assert row is not None
        state = _END_STATES.get(event.kind)
        if state is not None and row["state"] in ("RUNNING",):
            row["state"], row["end"] = state, moment
            if event.kind == "slurm.job_failed":
                row["exit_code"] = event.entities.get("exit_code")
        if event.kind == "slurm.job_requeue":
            if row["state"] == "RUNNING":
                # "requeue job JobId=1 due to failure of node gpu02": accounting will call this run NODE_FAIL.
                failed = "failure of node" in event.message
                row["state"], row["end"] = "NODE_FAIL" if failed else "REQUEUED", moment
            rows.append(open_runs.pop(job))
    return rows + list(open_runs.values())


_END_STATES = {
    "slurm.job_end": "COMPLETED", "slurm.job_failed": "FAILED", "slurm.job_node_fail": "NODE_FAIL",
    "slurm.job_cancelled": "CANCELLED", "slurm.job_timeout": "TIMEOUT", "slurm.job_preempted": "PREEMPTED",
    "slurm.job_oom": "OUT_OF_MEMORY",
}  # fmt: skip
