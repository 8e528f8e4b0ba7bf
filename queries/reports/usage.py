"""The report ``usage``: who computed how much, how often it failed, how long it waited."""

from __future__ import annotations

from queries.reports.model import Column, Figure, Section, Table
from queries.reports.reader import Reader
from queries.reports.report import Report
from store.questions import ended

#: What to group by: column of ``model.runs`` and its heading.
GROUPS = {"user": "User", "account": "Account", "partition": "Partition"}


def build(reader: Reader) -> list[Section]:
    """One table per way to group."""
    total = reader.one(ended.usage_totals(reader.period))
    figures = (Figure("Jobs ended", total["jobs"]), Figure("GPU-hours", total["gpu_hours"], "hours"),
               Figure("Median wait", total["wait_s"], "seconds", "from submission to start"))  # fmt: skip
    tables = tuple(_table(reader, column, title) for column, title in GROUPS.items())
    return [
        Section(
            "usage",
            "Usage",
            "Jobs that ended in the period, with all GPU-hours of each. The wait is that of the last start.",
            figures,
            tables,
        )
    ]


def _table(reader: Reader, column: str, title: str) -> Table:
    rows = reader.rows(ended.usage(reader.period, column))
    columns = [
        Column("of", title, "name"), Column("gpu_hours", "GPU-hours", "hours", bar=True), Column("jobs", "Jobs", "count"),
        Column("badly", "Ended badly", "count"), Column("rate", "Share", "share"), Column("infra", "Cluster at fault", "count"),
        Column("wait_s", "Median wait", "seconds"),
    ]  # fmt: skip
    return reader.table(f"By {title.lower()}", columns, rows, empty="No job ended in this period.")


REPORT = Report(
    "usage", "Usage", "GPU-hours, jobs, failure rate and waiting time by user, account and partition.", build
)
