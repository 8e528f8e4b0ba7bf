"""What increased or decreased in a period against the one of the same length before it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from parsers.moments import later
from queries.reports.model import Column, Section, Table
from queries.reports.reader import Reader
from store.questions import causes
from store.questions import ended as questions

_WORDS = ("new", "more often", "as often", "less often", "gone")

_LEAD = "Each number beside that of the period of the same length before. Benign incidents are left out."


def changes(reader: Reader) -> Section:
    """Figures and causes of the period beside those of the one before; requires a period with a start."""
    ends = reader.one(questions.first_and_last())
    until = reader.until or ends["last"]
    if reader.since is None or until is None or until <= reader.since:
        why = "The period has no beginning" if reader.since is None else "Nothing ended in this period"
        return Section(
            "changes", "Against the period before", _LEAD, notes=(f"{why}, so there is none to compare with.",)
        )
    since = reader.since
    length = until - since
    before = Reader(reader.store, later(since, -length), since)
    notes = _notes(ends["first"], before.since, since)
    return Section(
        "changes", "Against the period before", f"{_LEAD} That one began {before.since:%Y-%m-%d %H:%M}.",
        tables=(_figures(reader, before), _causes(reader, before)), notes=notes,
    )  # fmt: skip


def _notes(first: datetime | None, began: datetime | None, since: datetime) -> tuple[str, ...]:
    """A store that is younger than the period before makes everything look worse than it was."""
    if first is None or began is None or first < later(began, timedelta(hours=1)):
        return ()
    if first >= since:
        return ("The store holds nothing that ended in the period before: what is new here may be old.",)
    return (f"The store begins at {first:%Y-%m-%d %H:%M}, inside the period before: its numbers are too low.",)


def _figures(now: Reader, before: Reader) -> Table:
    found = [
        {**reader.one(questions.run_totals(reader.period)), **reader.one(questions.incident_totals(reader.period))}
        for reader in (now, before)
    ]
    for one in found:
        one["share"] = f"{one['badly'] / one['ended'] * 100:.1f} %" if one["ended"] else None
    names = {"ended": "Jobs ended", "badly": "Ended badly", "share": "Share that ended badly", "infra": "Cluster at fault",
             "unknown": "Unknown why", "impact": "Incidents with impact", "lost": "GPU-hours lost to incidents"}  # fmt: skip
    rows = [{"what": words, **_beside(found[0][name], found[1][name])} for name, words in names.items()]
    columns = (
        Column("what", "What", "name"),
        Column("now", "This period"),
        Column("before", "Before"),
        Column("change", "Change"),
    )
    return Table("Figures", columns, rows)


def _beside(now: Any, before: Any) -> dict[str, Any]:
    if isinstance(now, int | float) and isinstance(before, int | float):
        digits = 1 if isinstance(now, float) or isinstance(before, float) else 0
        return {"now": f"{now:.{digits}f}", "before": f"{before:.{digits}f}", "change": f"{now - before:+.{digits}f}"}
    return {"now": now, "before": before, "change": None}


def _causes(now: Reader, before: Reader) -> Table:
    """Causes in either period: new ones first, those that disappeared last, within each by cost."""
    key = ("cluster", "cause", "host", "device")
    sides = [
        {tuple(row[name] for name in key): row for row in reader.rows(causes.harmful(reader.period))}
        for reader in (now, before)
    ]
    rows = []
    for place in sides[0].keys() | sides[1].keys():
        new, old = (side.get(place, {"incidents": 0, "jobs": 0, "gpu_hours": 0.0}) for side in sides)
        rows.append({
            **dict(zip(key, place, strict=True)), "change": _word(new["incidents"], old["incidents"]),
            "incidents": new["incidents"], "incidents_before": old["incidents"], "jobs": new["jobs"],
            "gpu_hours": new["gpu_hours"], "gpu_hours_before": old["gpu_hours"],
        })  # fmt: skip
    rows.sort(key=lambda row: (_WORDS.index(row["change"]), -max(row["gpu_hours"], row["gpu_hours_before"]),
                               *(str(row[name] or "") for name in key)))  # fmt: skip
    columns = [
        Column("change", "Change", "name"), Column("cause", "Cause", "name"), Column("host", "Host", "name"),
        Column("device", "Device", "name"), Column("incidents", "Incidents", "count"), Column("incidents_before", "Before", "count"),
        Column("jobs", "Jobs hurt", "count"), Column("gpu_hours", "GPU-hours", "hours"), Column("gpu_hours_before", "Before", "hours"),
    ]  # fmt: skip
    return now.table("Causes that came and went", columns, rows, empty="No incident that did harm in either period.")


def _word(now: int, before: int) -> str:
    if not now or not before:
        return "new" if now else "gone"
    return "more often" if now > before else "as often" if now == before else "less often"
