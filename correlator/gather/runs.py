"""From rows of many sources about jobs to runs: one per job and restart.

A requeued job keeps its id; its runs differ in start time, in slurmdbd's index, and (if given) in the restart count. A
cluster that was set up again counts its job ids from 1, so two rows of one id need not be two runs of one job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from correlator.clocks.clocks import (
    TRUE_ACCOUNTING_TIME,
    AccountingTime,
    Clocks,
    Offset,
    rows_in_true_time,
    shared_with_accounting,
)
from correlator.gather.contradictions import contradictions
from correlator.gather.grouping import RANK, grouped, order
from correlator.gather.of_runs import Witnesses
from correlator.gather.ownership import dispute
from correlator.gather.run_endings import (
    END_STATES,
    as_written,
    number_of,
    of_open_runs,
    of_unknown_runs,
    with_last_words,
)
from correlator.gather.runs_fast import ACCOUNTING, EMPTY, KEPT, NOTHING, is_given_up, plain_runs, stated_rows
from correlator.gather.standing import Controllers
from correlator.model.moments import moment_of, seconds_of
from correlator.model.nouns import Event, Run
from parsers.documents.fields import integer
from parsers.hostlist import expand, fold
from parsers.job_states import MAY_RUN_AGAIN, OPEN
from parsers.record import TABLES
from store.questions import job_rows
from store.questions.job_rows import COLUMNS
from store.tables import JOBS

if TYPE_CHECKING:
    from store.changes import Changes
    from store.door import Asks, Door

#: By how much slurmctld's clock was off that gives accounting its times; none if only other clocks were.
Moved = Sequence[Offset]

#: Without rows about jobs, and without relays.
ALL_WITNESSES = Witnesses()


def moved_by(off: Clocks, believed: Controllers) -> Moved | None:
    """What ``gather`` takes; None if no clock was off."""
    if not off.offsets:
        return None
    return shared_with_accounting(off.offsets, believed.hosts if len(believed.hosts) == 1 else believed.files)


def gather(
    store: Asks, cluster: str | None, events: list[Event], known: AccountingTime = TRUE_ACCOUNTING_TIME,
    stepped: bool = True, witnesses: Witnesses = ALL_WITNESSES, *, moved: Moved | None = None,
) -> list[Run]:  # fmt: skip
    """All runs of a cluster, ordered by job id and attempt.

    ``known``: the zones of accounting. ``stepped``: the store may have rows about steps. ``moved``: given if clocks were off.
    """
    steps = store.ask(job_rows.steps(cluster)) if stepped else []
    table = store.ask_frame(job_rows.job_rows(cluster), many=True)
    table, steps = known.corrected(table), known.corrected_steps(steps, table)
    if moved is not None:
        table, steps = rows_in_true_time(table, steps, events, moved)
    return of_table(table, steps, events, witnesses=witnesses)


def no_rows() -> pl.DataFrame:
    return pl.DataFrame(schema={name: TABLES["jobs"][name] for name in COLUMNS})


class Rows(NamedTuple):
    """The stored rows about some jobs and about their steps."""

    jobs: frozenset[int]
    table: pl.DataFrame
    steps: list[dict[str, Any]]


def rows_since(store: Door, cluster: str | None, new: Changes) -> pl.DataFrame:
    """The new rows about jobs."""
    return store.ask_frame(job_rows.new_job_rows(cluster, store.stored_since(JOBS, new)))


def rows_of(
    store: Door, cluster: str | None, jobs: frozenset[int], known: frozenset[int], new: Changes | None, rows: pl.DataFrame, stepped: bool = True
) -> Rows:  # fmt: skip
    """The rows about ``jobs``: the new ``rows``, and the stored ones of ``known`` jobs.

    Other jobs are known to have no rows that are not ``new``. ``stepped``: the store may have rows about steps.
    """
    rows = rows.filter(pl.col("job_id").is_in(list(jobs)))
    if known and new is not None:
        before = ~store.stored_since(JOBS, new)
        rows = pl.concat([rows, store.ask_frame(job_rows.job_rows_of(cluster, sorted(known), before))])
    steps: list[dict[str, Any]] = []
    if stepped and store.ask(job_rows.any_step()):
        steps = store.ask(job_rows.steps(cluster, sorted(jobs)))
    return Rows(jobs, rows, steps)


def gather_some(
    rows: Rows, events: Iterable[Event], prepared: Mapping[int, Run], witnesses: Witnesses = ALL_WITNESSES, *,
    moved: Moved | None = None,
) -> list[Run]:  # fmt: skip
    """The runs of some jobs. ``prepared``: runs made ahead from new rows (``prepared_runs``). ``moved``: given if clocks
    were off."""
    events = [e for e in events if e.job_id in rows.jobs]
    if moved is None:
        return of_table(rows.table, rows.steps, events, prepared, witnesses)
    return of_table(*rows_in_true_time(rows.table, rows.steps, events, moved), events, EMPTY, witnesses)


def of_table(
    table: pl.DataFrame, steps: list[dict[str, Any]], events: list[Event], prepared: Mapping[int, Run] = EMPTY,
    witnesses: Witnesses = ALL_WITNESSES,
) -> list[Run]:  # fmt: skip
    """Runs from rows about jobs and their steps, by job id. Pure.

    Equals ``assemble`` for all jobs, which is used only for those that ``plain_runs`` cannot handle.
    """
    runs, rest = plain_runs(table, events, {s["job_id"] for s in steps}, prepared)
    done = {run.job_id for run in runs}
    more = assemble(
        stated_rows(rest), steps, [e for e in events if e.job_id not in done] if done else events, witnesses
    )
    return sorted([*runs, *more], key=attrgetter("job_id")) if runs else more


def assemble(
    rows: list[dict[str, Any]], steps: list[dict[str, Any]], events: list[Event], witnesses: Witnesses = ALL_WITNESSES
) -> list[Run]:
    """Runs from rows in which no field is without a value. ``witnesses``: which events count.

    Pure: the order of rows and the number of copies do not matter.
    """
    events = witnesses.about(events)
    by_job: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_job[row["job_id"]].append(row)
    for row in _rows_from_events(events):
        by_job[row["job_id"]].append(row)
    unknown = of_unknown_runs([e for e in events if e.job_id not in by_job])
    for row in [*unknown, *of_open_runs(by_job, events)]:
        by_job[row["job_id"]].append(row)
    steps_of: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for step in steps:
        steps_of[step["job_id"]].append(step)
    submits: defaultdict[int, list[float]] = defaultdict(list)
    for event in events:
        if event.kind == "slurm.job_submit" and event.source == "slurmctld" and event.job_id is not None:
            submits[event.job_id].append(event.time)
    runs: list[Run] = []
    for job_id in sorted(by_job):
        runs += _runs_of_job(job_id, by_job[job_id], steps_of.get(job_id, ()), submits.get(job_id, ()))
    return runs


#: What only several rows about a run show together.
_OF_MANY = frozenset({"disputed", "contradicted", "exit_code_in_sacct"})


def _runs_of_job(
    job_id: int, rows: list[dict[str, Any]], steps: Sequence[dict[str, Any]], submits: Sequence[float]
) -> list[Run]:
    runs = [_merge(job_id, group) for group in grouped(rows)]
    if len(runs) > 1:
        runs.sort(key=lambda r: (r.submit or r.start or 0.0, r.start or r.end or 0.0))
    _number(runs, submits)
    for run in runs:
        run.steps = tuple(_steps_for(run, steps)) if steps else ()
        run.row = {name: value for name, value in run.row.items() if name in KEPT or name in _OF_MANY}
    return runs


def _believed(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorts by precedence. A dump taken while the run was active must not hide how it ended."""
    ranks = [(r.get("state", "") in OPEN, RANK.get(r.get("source", ""), 9)) for r in group]
    if len(group) == 2 and ranks[0] != ranks[1]:  # usually accounting and slurmctld's lines
        return group if ranks[0] < ranks[1] else group[::-1]
    if len(set(ranks)) == len(ranks):
        return [row for _, row in sorted(zip(ranks, group, strict=True), key=itemgetter(0))]
    return [
        row
        for *_, row in sorted(
            ((rank, order(row), row) for rank, row in zip(ranks, group, strict=True)), key=itemgetter(0, 1)
        )
    ]


def _merge(job_id: int, group: list[dict[str, Any]]) -> Run:
    if len(group) == 1:
        (merged,) = group
    else:
        merged = {}
        for row in reversed(_believed(group)):  # the source with the highest precedence overwrites the others
            merged |= row
        named = dispute(group)
        if named:  # no owner until an operator has decided
            merged = {name: value for name, value in merged.items() if name not in ("user", "uid")} | {
                "disputed": named
            }
        if differing := contradictions(group):
            merged["contradicted"] = [str(one) for one in differing]
        _restore_high_bit(merged, group)
    known = merged.get
    return Run(
        key=str(job_id), job_id=job_id, attempt=known("restarts") or 0, state=known("state") or "",
        nodes=tuple(map(intern, known("nodes") or ())), submit=seconds_of(known("submit")), start=seconds_of(known("start")),
        end=seconds_of(known("end")), row=merged,
    )  # fmt: skip


#: Exit codes of 128 and more lose this bit in slurmdbd (slurm src/sacct/print.c); completion records have it.
_HIGH_BIT = 128


def _restore_high_bit(merged: dict[str, Any], group: Iterable[Mapping[str, Any]]) -> None:
    code = merged.get("exit_code")
    if merged.get("state") == "FAILED" and code and code < _HIGH_BIT and not merged.get("exit_signal"):
        whole = code + _HIGH_BIT
        if any(row.get("exit_code") == whole and row.get("source") in ACCOUNTING for row in group):
            merged |= {"exit_code": whole, "exit_code_in_sacct": code}


def _number(runs: list[Run], submits: Sequence[float]) -> None:
    """Attempts and keys. ``15``, ``15#1``; an older job of a re-used id is ``1@2026-11-21T00:22:04``."""
    if len(runs) == 1:
        (run,) = runs
        run.attempt, run.key = int(run.row.get("restarts") or 0), _base_key(run)
        run.key += f"#{run.attempt}" if run.attempt else ""
        return
    chains: list[list[Run]] = []
    for run in runs:
        previous = chains[-1][-1] if chains else None
        if previous is not None and _is_restart(previous, run, submits):
            chains[-1].append(run)
        else:
            chains.append([run])
    for index, chain in enumerate(chains):
        counts = [run.row.get("restarts") for run in chain]
        attempts: list[int] = []
        for count in counts:
            attempts.append(int(count) if count is not None else attempts[-1] + 1 if attempts else 0)
        counted = all(
            one < later for one, later in pairwise(attempts)
        )  # a count that only one source gives may be late
        for place, run in enumerate(chain):
            run.attempt = attempts[place] if counted else place
            base = _base_key(run)
            if index < len(chains) - 1:
                moment = run.row.get("submit") or run.row.get("start") or run.row.get("end")
                base += f"@{moment:%Y-%m-%dT%H:%M:%S}" if moment else f"@{index}"
            run.key = base if run.attempt == 0 else f"{base}#{run.attempt}"


def _base_key(run: Run) -> str:
    array, task = run.row.get("array_job_id"), run.row.get("array_task_id")
    return f"{array}_{task}" if array is not None and task is not None else str(run.job_id)


#: Accounting cuts its times to whole seconds.
WHOLE_S = 1.0


def _is_restart(previous: Run, run: Run, submits: Sequence[float]) -> bool:
    restarts = run.row.get("restarts")
    if restarts and run.row.get("user") == previous.row.get("user"):
        return True
    if restarts == 0 and previous.row.get("restarts") == 0 and previous.state in ("COMPLETED",):
        return False
    if previous.state not in MAY_RUN_AGAIN and not previous.row.get("requeue_seen"):
        return False
    if any(
        previous.row.get(name) != run.row.get(name)
        for name in ("user", "name")
        if previous.row.get(name) and run.row.get(name)
    ):
        return False
    # The submission of the previous run itself may lie behind its end by less than that.
    begin, end = (previous.end or previous.start or 0.0) + WHOLE_S, run.start or run.submit or 0.0
    return not any(begin <= moment < end for moment in submits)


def _steps_for(run: Run, steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _rows_from_events(events: list[Event]) -> list[dict[str, Any]]:
    """Rows about runs from slurmctld's own lines: all there is while accounting is late or absent."""
    open_runs: dict[int, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    stating = (e for e in events if e.job_id is not None and e.source in ("slurmctld", "slurmd"))
    for event in sorted(stating, key=as_written):
        job = event.job_id
        assert job is not None
        if event.source != "slurmctld":
            row = open_runs.get(job)
            if (
                row is not None
                and event.source == "slurmd"
                and row["state"] == "RUNNING"
                and is_given_up(event.message)
            ):
                row["state"], row["end"], row["cancelled_by"] = "CANCELLED", moment_of(event.time), "0"
            continue
        row = open_runs.get(job)
        if row is None and event.kind != "slurm.job_start":
            continue
        if event.kind == "slurm.job_start":
            if row is not None:
                rows.append(row)
            open_runs[job] = _started(event)
            continue
        assert row is not None
        state = END_STATES.get(event.kind)
        if state is not None and row["state"] == "RUNNING":
            row["state"], row["end"] = state, moment_of(event.time)
            if event.kind == "slurm.job_failed" and (code := integer(event.entities.get("exit_code"))) is not None:
                row["exit_code"] = code
            row["unsaid"] = event.kind == "slurm.job_end" and event.entities.get("exit_code") is None
        if event.kind == "slurm.job_requeue":
            if row["state"] == "RUNNING":
                # "requeue job JobId=1 due to failure of node gpu02": accounting will call this run NODE_FAIL.
                failed = "failure of node" in event.message
                row["state"], row["end"] = "NODE_FAIL" if failed else "REQUEUED", moment_of(event.time)
            rows.append(open_runs.pop(job))
    rows += open_runs.values()
    return with_last_words(rows, events)


def _started(event: Event) -> dict[str, Any]:
    entities = event.entities
    nodes = list(entities.get("nodes") or expand(str(entities.get("nodelist") or "")))
    row = {
        "job_id": event.job_id, "source": "log", "start": moment_of(event.time), "state": "RUNNING", "nodes": nodes,
        "node_list": str(entities.get("nodelist") or "") or fold(nodes), "partition": entities.get("partition"),
        "array_job_id": number_of(entities.get("array_job_id")), "array_task_id": number_of(entities.get("array_task")),
    }  # fmt: skip
    return {name: value for name, value in row.items() if value not in NOTHING}
