"""The tables queries may read: names, columns, KQL types, and the DuckDB relation behind each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column as KQL sees it."""

    name: str
    kql_type: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `relation` is trusted SQL from our own catalogue, never from a user.

    `in_order`: it is read in the order in which it was written, as the engine does with a plain table; the store's
    lines are in segments, and in files by day. `narrower`: the relation without the columns `costly`, whose expressions
    the engine would bind and optimize even for statements that do not read them. `filled`: in the store's own engine the
    relation has no null strings; of others, nulls are made empty by the statement.
    """

    name: str
    columns: tuple[Column, ...]
    relation: str
    in_order: bool = True
    costly: frozenset[str] = frozenset()
    narrower: str = ""
    filled: bool = False


@dataclass(frozen=True)
class Catalog:
    """Every table of one database, by its case-sensitive name."""

    tables: dict[str, Table]

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables.values())


#: Tables whose views make nulls empty, each in the way that suits the column (store.duckdb.logs_view).
_FILLED = frozenset({"Logs"})
_NARROWER = {"Logs": (frozenset({"Authority"}), 'kql."LogLines"')}


def _table(name: str, columns: str) -> Table:
    """`columns` is "Name type" pairs; a name alone is a string."""
    made = []
    for part in columns.split(","):
        column, _, kind = part.strip().partition(" ")
        made.append(Column(column, kind or "string"))
    costly, narrower = _NARROWER.get(name, (frozenset[str](), ""))
    relation, filled = f'kql."{name}"', name in _FILLED
    return Table(name, tuple(made), relation, in_order=False, costly=costly, narrower=narrower, filled=filled)


_RAW = "TimeGenerated datetime, RawData, Computer, FilePath"
_TABLES = {
    "Logs": "Time datetime, ReceivedTime datetime, Cluster, Host, Source, Unit, Pid long, Facility, Severity, Message, "
    "Event, JobId long, Fields dynamic, File, Line long, Authority",
    "Events": "EventId, Time datetime, Cluster, Host, Event, Severity, Device, JobId long, Message, Fields dynamic, "
    "IncidentId, Authority",
    "Jobs": "Cluster, JobId long, Attempt long, ArrayJobId long, ArrayTaskId long, Name, User, Account, Partition, "
    "State, ExitCode long, Signal long, Submit datetime, Start datetime, End datetime, NodeList, Nodes dynamic, "
    "NodeCount long, Gpus long, Category, IncidentId, Confidence real",
    "NodeStates": "Time datetime, Cluster, Host, State, Reason, Actor",
    "Drains": "Cluster, Host, State, Actor, Owner, Reason, Begin datetime, End datetime, Evidence dynamic, UndoneBy, "
    "Seconds real, Times long, JobsWaiting long",
    "Metrics": "Time datetime, Cluster, Host, Metric, Value real, Device, Labels dynamic",
    "Incidents": "IncidentId, Cluster, Start datetime, End datetime, Severity, Category, RootCause, RootHost, "
    "RootDevice, Hosts dynamic, Jobs dynamic, GpuHoursLost real",
    "Facts": "Cluster, Kind, Subject, Host, Device, Run, Begin datetime, End datetime, Sigma real, Attributes dynamic, "
    "Evidence dynamic",
    "Environments": "Cluster, JobId long, Attempt long, Step, Host, Name, Value, Seen datetime",
    "Links": "Host, Device, Switch, SwitchPort, Plane, Rail",
    "Syslog": "TimeGenerated datetime, Computer, Facility, SeverityLevel, ProcessName, ProcessID long, SyslogMessage, "
    "HostIP",
}
_RAW_TABLES = [
    "slurmctld",
    "slurmd",
    "slurmdb",
    "slurmrestd",
    "slurmjobs",
    "syslog",
    "dmesg",
    "jetpack",
    "jetpackd",
    "healthagent",
]

CATALOG = Catalog(
    {name: _table(name, columns) for name, columns in _TABLES.items()}
    | {f"{name}_raw_CL": _table(f"{name}_raw_CL", _RAW) for name in _RAW_TABLES}
)
