"""A store with every way in which a node goes out of service and returns, from the lines and tables of one day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from collector.ingest import Ingest, Options
from correlator.engine import correlate
from queries.kql import Query
from store import open_store
from store.door import Door
from tests.line_parser import line_parser

NOW = datetime(2026, 11, 21)

#: gx01: drained by a health check, another reason by a person, resumed. gx02: DOWN by slurmctld, then drained, back by
#: itself. gx03: drained for good. gx04: a reason that claims an author. gx05: twice in one day, once by Slurm's own
#: decision. gx06: only a job and a compute node claim that it was drained.
CONTROLLER = """\
[2026-11-20T08:00:00.100] update_node: node gx01 reason set to: NHC: check_fs_mount: /scratch not mounted
[2026-11-20T08:00:00.100] update_node: node gx01 state set to DRAINING
[2026-11-20T08:10:00.000] update_node: node gx01 reason set to: waiting for the storage team
[2026-11-20T08:30:00.000] update_node: node gx01 state set to IDLE
[2026-11-20T09:00:00.000] error: Nodes gx02 not responding, setting DOWN
[2026-11-20T09:05:00.000] update_node: node gx02 reason set to: bad cable
[2026-11-20T09:05:00.000] update_node: node gx02 state set to DRAINED
[2026-11-20T09:20:00.000] Issuing reboot request for nodes gx02
[2026-11-20T09:25:00.000] node_did_resp: node gx02 returned to service
[2026-11-20T10:00:00.400] update_node: node gx03 reason set to: Xid 79
[2026-11-20T10:00:00.400] update_node: node gx03 state set to DRAINED
[2026-11-20T10:00:00.700] error: Nodes gx08 not responding
[2026-11-20T11:00:00.000] update_node: node gx04 reason set to: RMA [root@2026-11-20T10:59:00]
[2026-11-20T11:00:00.000] update_node: node gx04 state set to DOWN
[2026-11-20T11:10:00.000] update_node: node gx04 state set to IDLE
[2026-11-20T12:00:00.000] error: job_epilog_complete: JobId=7 epilog error on gx05, draining the node
[2026-11-20T12:00:00.000] drain_nodes: node gx05 state set to DRAIN
[2026-11-20T12:20:00.000] update_node: node gx05 state set to IDLE
[2026-11-20T13:00:00.000] update_node: node gx05 state set to FAILING
[2026-11-20T13:00:30.000] update_node: node gx05 state set to IDLE
[2026-11-20T16:00:00.400] update_node: node gx07 reason set to: the last record
"""
FILES = {
    "controller/slurmctld.log": CONTROLLER,
    "nodes/gx06/slurmd.log": "[2026-11-20T14:00:00.000] update_node: node gx06 state set to DRAINED\n",
    "jobs/slurm-7.out": "[2026-11-20T14:00:00.000] update_node: node gx06 state set to DOWN\n",
    # scontrol and accounting know the user; accounting has whole seconds, and ends a row where the next one begins.
    "slurm/nodes.txt": "NodeName=gx03 Arch=x86_64 CoresPerSocket=1 State=IDLE+DRAIN Reason=Xid 79 [root@2026-11-20T10:00:00]\n",
    "slurm/events.psv": "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    "made|gx02|2026-11-20T09:00:00|2026-11-20T09:05:00|DOWN*|Not responding|slurm(64030)\n"
    "made|gx02|2026-11-20T09:05:00|2026-11-20T09:25:00|DRAIN|bad cable|dora(1207)\n",
}


def build(folder: Path, files: Mapping[str, str] = FILES) -> Door:
    """The store, in memory, with conclusions."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    store = open_store(None)
    Ingest(store, Options(cluster="made"), parser=line_parser()).run([folder])
    correlate(store)
    return store


def answer(store: Door, query: str, **given: Any) -> list[list[Any]]:
    return store.run_kql(Query(query, now=NOW, **given)).rows
