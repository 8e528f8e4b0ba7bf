"""What accounting has about one run: each source's record, where they contradict each other, its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from correlator.gather.contradictions import RECORDS, contradictions
from correlator.gather.grouping import grouped
from correlator.gather.run_endings import SAME_START_S
from correlator.gather.runs_fast import NOTHING
from parsers.job_states import SUCCEEDED, Phase, phase_of
from store.questions import job_rows
from web.reading import Reader, Row
from web.shaping import wire

#: Steps that are no program of the script.
_OF_SLURM = frozenset({"batch", "extern", "interactive"})
_SLACK = timedelta(seconds=SAME_START_S)
#: Most steps of a run that are listed; failed ones first.
MOST_STEPS = 100


def document(read: Reader, run: Row) -> dict[str, Any] | None:
    """``sources`` (each record), ``contradictions`` (sentences), ``derived_exit_code``, ``failed_node``, ``tres``, ``steps`` and
    ``note``: what its state hides. None if no source recorded the run."""
    records = _records(read, run)
    if not records:
        return None
    steps = _steps(read, run)
    derived = _first(records, "derived_exit_code")
    return {
        "sources": [_record(row) for row in records], "contradictions": [str(one) for one in contradictions(records)],
        "derived_exit_code": derived, "failed_node": _first(records, "failed_node"), "tres": _first(records, "tres"),
        "reservation": _first(records, "reservation"), "steps": [_step(row) for row in steps[:MOST_STEPS]], "steps_count": len(steps),
        "note": note(run, steps, derived),
    }  # fmt: skip


def note(run: Row, steps: Iterable[Row], derived: str | None) -> str | None:
    """What the state of a run hides: its script ended well, and a step of it did not."""
    if run["state"] not in SUCCEEDED:
        return None
    bad = [row for row in steps if _is_bad(row)]
    if not bad and derived in (None, "0:0"):
        return None
    if not bad:
        return f"Its script ended with 0, so that it is COMPLETED; the highest exit code of its steps was {derived} (DerivedExitCode)."
    named = ", ".join(
        f"{row['step_id']} ({row['name'] or 'no name'}) {row['state']} {_code(row) or ''}".rstrip() for row in bad[:3]
    )
    more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
    return f"Its script ended with 0, so that it is COMPLETED, although steps of it did not end well: {named}{more}."


def _is_bad(row: Row) -> bool:
    return row["step_id"] not in _OF_SLURM and bool(row["state"]) and phase_of(row["state"]) is Phase.FAILED


def _records(read: Reader, run: Row) -> list[Row]:
    """The records of this run, and of no other of its job."""
    rows = [
        {name: value for name, value in row.items() if value not in NOTHING}
        for row in read.ask(job_rows.rows_about(run["job_id"], run["cluster"]))
    ]  # fmt: skip
    groups = grouped(row for row in rows if row.get("source") in RECORDS)
    mine = next((group for group in groups if _is_of(group, run)), groups[0] if len(groups) == 1 else [])
    unlike = {
        str(sorted((name, str(value)) for name, value in row.items() if name not in ("file", "line"))): row
        for row in mine
    }
    return [unlike[key] for key in sorted(unlike)]


def _is_of(group: Iterable[Mapping[str, Any]], run: Row) -> bool:
    if run["start"] is None:
        return any(row.get("submit") == run["submit"] and "start" not in row for row in group)
    return any("start" in row and abs(row["start"] - run["start"]) <= _SLACK for row in group)


def _steps(read: Reader, run: Row) -> list[Row]:
    """The run's steps, each once, failed ones first."""
    found: dict[str, Row] = {}
    for row in read.ask(job_rows.steps_about(run["job_id"], run["cluster"])):
        start = row["start"]
        begun = start is None or run["start"] is None or start >= run["start"] - _SLACK
        if begun and (start is None or run["end"] is None or start <= run["end"] + _SLACK):
            found[row["step_id"]] = row
    return sorted(found.values(), key=lambda row: (not _is_bad(row), str(row["step_id"]).zfill(12)))


def _first(records: Iterable[Mapping[str, Any]], name: str) -> Any:
    return next((row[name] for row in records if row.get(name)), None)


def _code(row: Mapping[str, Any]) -> str | None:
    code = row.get("exit_code")
    return None if code is None else f"{code}:{row.get('exit_signal') or 0}"


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    named = {
        name: row.get(name)
        for name in ("source", "state", "start", "end", "derived_exit_code", "failed_node", "tres", "observed_at")
    }
    shown: dict[str, Any] = wire({**named, "exit_code": _code(row), "nodes": row.get("node_list")})
    return shown


def _step(row: Row) -> dict[str, Any]:
    named = {
        "step": row["step_id"],
        "name": row["name"],
        "state": row["state"],
        "start": row["start"],
        "end": row["end"],
    }
    shown: dict[str, Any] = wire({**named, "exit_code": _code(row), "nodes": row["node_list"]})
    return shown
