"""What to take along on the next round through the hall: the repair list, as a section and as the report ``repairs``."""

from __future__ import annotations

from typing import Any

from correlator.repairs.model import Repair, RepairList
from correlator.repairs.repairs import DAYS
from correlator.repairs.repairs import repairs as listed
from queries.reports.model import Column, Figure, Section
from queries.reports.reader import Reader
from queries.reports.report import Report
from queries.reports.wording import stretch

_COLUMNS = (
    Column("urgency", "Urgency", "name"), Column("host", "Host", "name"), Column("device", "Device", "name"), Column("far_end", "Other end", "name"),
    Column("plane", "Plane", "name"), Column("flaps", "Flaps", "count", bar=True), Column("warnings", "Warnings", "count"),
    Column("down_s", "Down in all", "seconds"), Column("down", "Still down", "flag"), Column("expected", "Typical", "name"),
    Column("outlier", "More than chance", "flag"), Column("runs", "Jobs meanwhile", "count"), Column("slowed", "Slowed", "count"),
    Column("ended", "Ended", "count"), Column("last", "Last", "time"), Column("action", "Do"),
)  # fmt: skip


def repairs(reader: Reader) -> Section:
    """Devices that come and go or correct errors, the most urgent first."""
    found = listed(reader.store, reader.since, reader.until)
    table = reader.table("", _COLUMNS, [_row(one) for one in found.repairs], empty="No device needs a hand.")
    return Section(
        "repairs", "Repair list", _lead(found), figures=_figures(found.repairs), tables=(table,),
        notes=(
            "Typical: what an ordinary device of the same role had in this time. More than chance: as many or more would be there with a "
            "probability below that of naming one good device in five lists. Outages that a switch, a reboot or planned work explains do not count.",
        ),
    )  # fmt: skip


def _lead(found: RepairList) -> str:
    when = f", {stretch(found.since, found.until)}" if found.since and found.until else ""
    return (
        f"Single flaps and corrected errors raise no alarm; this is what to look at on the next round{when}. Both ends of a cable are one row. "
        "now: down, or it hurt jobs more than once or more than chance explains; soon: it hurt a job, or chance does not explain it; watch: the rest."
    )


def _figures(found: list[Repair]) -> tuple[Figure, ...]:
    count = {word: sum(one.urgency == word for one in found) for word in ("now", "soon", "watch")}
    return (
        Figure("now", count["now"]), Figure("soon", count["soon"]), Figure("watch", count["watch"]),
        Figure("flaps in all", sum(one.flaps for one in found)),
    )  # fmt: skip


def _row(one: Repair) -> dict[str, Any]:
    far = f"{one.switch} {one.switch_port or ''}".strip() if one.switch and one.switch != one.host else None
    return one.document() | {
        "far_end": far, "warnings": one.errors + one.optics, "expected": f"{one.expected:.2f}", "slowed": len(one.slowed), "ended": len(one.ended),
    }  # fmt: skip


REPORT = Report(
    "repairs",
    "Repair list",
    f"Links that flap and devices that correct errors: how often, whom it hurt, what to do; the last {DAYS:g} days unless set otherwise.",
    lambda reader: [repairs(reader)],
)
