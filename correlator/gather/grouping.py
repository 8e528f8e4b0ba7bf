"""Which rows about a job are about the same run of it.

Accounting and slurmctld's own lines make runs. A hook sees a run from one node only: its row adds to the run that it fits.
Where accounting or slurmctld have spoken of the job, a hook's row alone makes no run beside theirs: a lost node runs its
epilog after the requeue, with the restart count of the run that follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import Any

from correlator.clocks.clocks import ZONE_S
from correlator.gather.ownership import differ, names_user
from correlator.gather.run_endings import LOGGED_START_S, SAME_START_S
from parsers.job_states import MAY_RUN_AGAIN

#: Precedence of sources for a field: accounting knows the end, dumps taken in between do not. Any shipper can send what
#: jobcomp/elasticsearch sends: it comes last.
RANK = {
    "sacct": 0,
    "sacct_json": 1,
    "slurmrestd": 2,
    "jobcomp": 3,
    "scontrol": 4,
    "squeue": 5,
    "hook": 6,
    "log": 7,
    "jobcomp_json": 8,
}

#: Sources that see a run from one side only.
_OBSERVERS = ("hook", "log")

#: Fields by which a row is assigned to one of several runs of a job.
_MOMENTS = {"start", "end", "submit", "observed_at"}


#: How long after the end of its run an epilog may run: those of failed nodes run when slurmctld reaches the node again.
EPILOG_S = 1800.0

#: A prolog runs just before the start, by the clock of its node.
PROLOG_S = 30.0

Row = dict[str, Any]


def grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows about one job by run, in no order of runs. The order of ``rows`` and repeated rows change nothing."""
    founding: list[Row] = []
    rest: list[Row] = []
    hooks: list[Row] = []
    for row in rows:
        if row.get("source") == "hook":
            hooks.append(row)
        else:
            (founding if row.get("source") != "log" and ("start" in row or "submit" in row) else rest).append(row)
    groups: list[list[Row]] = []
    for row in _in_order(founding):
        _add(groups, next((g for g in groups if _same_run(g, row)), None), row)
    moved: dict[int, list[Row]] | None = None
    for row in _in_order(rest):
        home = _group_for(groups, row) if groups else None
        if home is None and groups and row.get("source") == "log":
            moved = _moved_alike(groups, rest) if moved is None else moved
            home = moved.get(id(row))
        if home is not None or not groups or _MOMENTS & row.keys():
            _add(groups, home, row)
    if hooks:
        _add_hooks(groups, hooks)
    return groups


def _add(groups: list[list[Row]], home: list[Row] | None, row: Row) -> None:
    if home is None:
        groups.append([row])
    else:
        home.append(row)


def _add_hooks(groups: list[list[Row]], hooks: list[Row]) -> None:
    """Adds each hook's row to its run. Prologs come first, because they report the restart count of their own run."""
    known = list(groups)
    for row in sorted(hooks, key=lambda r: ("end" in r, r.get("restarts", 0), order(r))):
        epilog = "end" in row
        home = _group_of_epilog(groups, row) if epilog else _group_for(groups, row)
        if home is not None:
            home.append(_what_it_adds(home, row) if any(home is group for group in known) else _own_count(home, row))
        elif not known:
            if not groups or _MOMENTS & row.keys():  # without any time it could belong to any of several runs
                groups.append([row])
        elif _MOMENTS & row.keys() and names_user(row) and all(differ(row, r) for r in chain(*known) if names_user(r)):
            groups.append([row])  # another user's: the job id was used again


def _what_it_adds(group: list[Row], row: Row) -> Row:
    """A hook's row without what accounting or slurmctld know better."""
    moments = ("start", "end")
    known: set[str] = {name for other in group if other.get("source") != "hook" for name in moments if name in other}
    if "end" in row:
        again = any(other.get("state") in MAY_RUN_AGAIN for other in group)
        if again:  # slurmctld may have begun the next run: its count, and no exit code yet
            known |= {"restarts", "exit_code", "exit_signal"}
        row = _own_count(group, row)
    return {name: value for name, value in row.items() if name not in known}


def _own_count(group: list[Row], row: Row) -> Row:
    """An epilog's row without its restart count if the run has one that an epilog did not report."""
    if "end" in row and any("restarts" in other and not _is_epilog(other) for other in group):
        return {name: value for name, value in row.items() if name != "restarts"}
    return row


def _is_epilog(row: Row) -> bool:
    return row.get("source") == "hook" and "end" in row


def _group_of_epilog(groups: list[list[Row]], row: Row) -> list[Row] | None:
    """The run that an epilog's row belongs to: the last one that had begun on its node."""
    end, host, restarts = row["end"], row.get("host"), row.get("restarts")
    nodes = {id(group): {node for r in group for node in r.get("nodes", ())} for group in groups}
    is_node = any(host in names for names in nodes.values())  # and not the controller
    best: tuple[bool, float, list[Row]] | None = None
    for group in groups:
        starts = [r["start"] for r in group if "start" in r]
        ends = [r["end"] for r in group if "end" in r and not _is_epilog(r)]
        counts = {r["restarts"] for r in group if "restarts" in r and not _is_epilog(r)}
        own = {r["restarts"] for r in group if "restarts" in r and _is_epilog(r)}
        if not starts and not ends and any("submit" in r for r in group):
            continue  # it waits
        if is_node and nodes[id(group)] and host not in nodes[id(group)]:
            continue
        if restarts is not None and counts and not counts & {restarts, restarts - 1}:
            continue
        if restarts is not None and not counts and not starts and own and restarts not in own:
            continue  # only epilogs show both runs
        begin, finish = min(starts or ends or [end]), max(ends or [end])
        early, after = (begin - end).total_seconds(), (end - finish).total_seconds()
        if (
            early > PROLOG_S
            or after > EPILOG_S
            or (after > 60 and names_user(row) and any(differ(row, r) for r in group))
        ):
            continue
        begun = early <= SAME_START_S
        place = (begun, -early if not begun else begin.timestamp(), group)
        if best is None or place[:2] > best[:2]:
            best = place
    return None if best is None else best[2]


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    moment = row.get("start") or row.get("submit") or row.get("end") or datetime.max
    return (
        moment,
        RANK.get(row.get("source", ""), 9),
        row.get("db_index") or 0,
        str(row.get("file")),
        row.get("line") or 0,
    )


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=order) if len(rows) > 1 else rows


def _same_run(group: list[dict[str, Any]], row: dict[str, Any]) -> bool:
    for other in group:
        submitted = "submit" in other and "submit" in row
        if submitted and other.get("db_index") and row.get("db_index"):
            if other["db_index"] == row["db_index"] and other["submit"] == row["submit"]:
                return True
            continue
        if "start" in other and "start" in row:
            if abs((other["start"] - row["start"]).total_seconds()) <= SAME_START_S:
                return True
        elif submitted and other["submit"] == row["submit"]:
            return True
    return False


def _group_for(groups: list[list[Row]], row: Row) -> list[Row] | None:
    """The run that a prolog's or a log's row belongs to: by restart count, else by time."""
    moment = row.get("start") or row.get("end") or row.get("submit") or row.get("observed_at")
    best: tuple[float, list[dict[str, Any]]] | None = None
    for group in groups:
        starts = [r["start"] for r in group if "start" in r]
        ends = [r["end"] for r in group if "end" in r]
        if row.get("source") == "log" and starts and abs(min(starts) - row["start"]).total_seconds() > LOGGED_START_S:
            continue  # slurmctld allocated nodes to it at another time: another run
        if "restarts" in row:
            restarts = {r["restarts"] for r in group if "restarts" in r}
            if restarts and row["restarts"] not in restarts:
                continue
        if moment is None:
            return group if len(groups) == 1 else None
        begin = min(starts or [r["submit"] for r in group if "submit" in r] or [moment])
        finish = max(ends or [moment])
        before, after = (begin - moment).total_seconds(), (moment - finish).total_seconds()
        distance = max(before, after, 0.0)
        if after > 60 and names_user(row) and any(differ(row, other) for other in group):
            continue  # another user's, after the end of this run: the job id was used again
        # Epilogs run after the end, those of failed nodes minutes after; a prolog runs just before the start.
        if before <= PROLOG_S and after <= EPILOG_S and (best is None or distance < best[0]):
            best = (distance, group)
    return None if best is None else best[1]


def _moved_alike(groups: list[list[dict[str, Any]]], rest: Iterable[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The runs that slurmctld's log shows at other times than accounting, because its timestamps are off.

    By the id() of the log's row. All rows that fit no run must have been moved by the same time, each with its begin
    and its end, on the nodes of a run of which the log shows nothing else. If several times are possible, the least.
    """
    logged = [row for row in rest if row.get("source") == "log" and {"start", "end", "nodes"} <= row.keys()]
    homes = [_group_for(groups, row) for row in logged]
    free = [group for group in groups if not any(home is group for home in homes)]
    strays = [row for row, home in zip(logged, homes, strict=True) if home is None]
    fits = [[(moved, g) for g in free if (moved := _moved_by(g, row)) is not None] for row in strays]
    possible: list[tuple[float, list[list[dict[str, Any]]]]] = []
    for moved, _ in fits[0] if fits else ():
        found = [next((g for by, g in some if abs(by - moved) <= SAME_START_S), None) for some in fits]
        if all(group is not None for group in found):
            possible.append((abs(moved), [group for group in found if group is not None]))
    if not possible:
        return {}
    _, chosen = min(possible, key=itemgetter(0))
    return {id(row): group for row, group in zip(strays, chosen, strict=True)}


def _moved_by(group: Iterable[dict[str, Any]], row: dict[str, Any]) -> float | None:
    """By how many seconds a row of the log is later than a run of accounting; None if it cannot be that run."""
    for known in group:
        if known.get("source") in _OBSERVERS or not {"start", "end", "nodes"} <= known.keys():
            continue
        begun, ended = ((row[name] - known[name]).total_seconds() for name in ("start", "end"))
        if set(known["nodes"]) == set(row["nodes"]) and abs(begun) < ZONE_S and abs(begun - ended) <= SAME_START_S:
            return float(begun)
    return None
