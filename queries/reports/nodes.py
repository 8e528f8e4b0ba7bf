"""Nodes: where incidents accumulate, and which nodes were taken out of service, for how long and why."""

from __future__ import annotations

from correlator.incidents.lemons import FACT, read
from queries.reports.model import Column, Section
from queries.reports.reader import Reader
from store.questions import causes, out_of_service


def nodes(reader: Reader) -> Section:
    """Nodes by incidents, with the lemons that the correlator named."""
    lemons = set(read(reader.store.fact(FACT)))
    rows = reader.rows(causes.by_node(reader.period))
    for row in rows:
        row["lemon"] = (row["cluster"], row["host"]) in lemons or (None, row["host"]) in lemons
    columns = [
        Column("host", "Node", "name"), Column("rooted", "Incidents begun here", "count", bar=True), Column("impact", "With impact", "count"),
        Column("touched", "Others that touched it", "count"), Column("jobs", "Jobs hurt", "count"), Column("gpu_hours", "GPU-hours lost", "hours"),
        Column("causes", "Causes", "name"), Column("lemon", "Lemon", "flag"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    named = ", ".join(sorted({reader.called(host, cluster) for cluster, host in lemons}))
    note = f"Lemons over all that is stored: {named}." if lemons else "No node is a lemon."
    return Section(
        "nodes", "Nodes with most incidents", "A lemon is a node at which three or more incidents with impact began in its own hardware or "
        "links. It is judged over everything stored, not only this period.",
        tables=(reader.table("", columns, rows, empty="No incident on any node."),), notes=(note,),
    )  # fmt: skip


def unavailable(reader: Reader) -> Section:
    """Nodes out of service, by reason."""
    columns = [
        Column("host", "Node", "name"), Column("state", "State", "name"), Column("reason", "Reason"), Column("actor", "Set by", "name"),
        Column("times", "Times", "count"), Column("out_s", "Out of service", "seconds", bar=True), Column("since", "Still so since", "time"),
        Column("first_seen", "First", "time"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    rows = reader.rows(out_of_service.by_node(reader.period))
    return Section(
        "unavailable", "Nodes out of service", "Periods of DRAIN, DOWN, FAIL, INVAL and MAINT, and reboots that Slurm issued, as in the "
        "table Drains. Still so since: no return was seen, and the time counts up to the newest record of the cluster.",
        tables=(reader.table("", columns, rows, empty="No node was seen out of service."),),
    )  # fmt: skip
