"""The context of the one real incident of ``fixture.py``: states, settings, an attack, a wide and a dense incident."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import duckdb

DAY = "2026-11-21T"


def insert(con: duckdb.DuckDBPyConnection, table: str, *rows: Mapping[str, Any]) -> None:
    """Rows may have different columns: those that one lacks are null. One statement for all of them, which is what costs."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    names = ", ".join(f'"{name}"' for name in columns)
    places = ", ".join(f"({', '.join('?' * len(columns))})" for _ in rows)
    con.execute(f"INSERT INTO {table} ({names}) VALUES {places}", [row.get(name) for row in rows for name in columns])


def surroundings(con: duckdb.DuckDBPyConnection) -> None:
    """Node states, job settings, artifacts and cabling."""
    states = [("00:30:13.548", None, name, "mixed", None, "poll") for name in ("gpu01", "gpu02", "gpu03", "gpu04")]
    states += [
        ("00:30:40.152", "00:30:52.709", "gpu02", "mixed*", "no answer", "poll"),
        ("00:30:52.709", "00:32:45.327", "gpu02", "DOWN*", "Not responding", "sacctmgr"),
        ("00:32:45.327", None, "gpu02", "idle", None, "poll"),
        ("00:30:55.611", None, "gpu01", "idle", None, "poll"),
        ("00:31:14.619", None, "gpu03", "idle", None, "poll"),
        ("00:31:14.619", None, "gpu04", "idle", None, "poll"),
    ]
    rows = [
        {"cluster": "mini", "time": DAY + time, "until": DAY + until if until else None, "host": host, "state": state,
         "reason": reason, "actor": "slurm", "source": source}
        for time, until, host, state, reason, source in states
    ]  # fmt: skip
    insert(con, "model.node_states", *rows)
    variables = {
        "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_ACCOUNT": "ml", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_NTASKS": "2",
        "HF_TOKEN": "hf_never_shown", "SLURM_JOB_WORK_DIR": "/home/alice",
    }  # fmt: skip
    of_job = {"cluster": "mini", "scope": "job:15", "source": "env"}
    insert(con, "raw.settings", *({**of_job, "name": name, "value": value} for name, value in variables.items()))
    script = {"job_id": 15, "restarts": 0, "kind": "script", "path": "/home/alice/hit.sh", "host": "ctl", "truncated": False,
              "content": "#!/bin/bash\n#SBATCH -N 2\nsrun python3 /home/jobs/ring.py 100 10\n"}  # fmt: skip
    insert(con, "raw.artifacts", {"cluster": "mini", **script})
    link = {"host": "gpu02", "device": "eth0", "switch": "leaf01", "switch_port": "m-gpu02", "plane": "mgmt"}
    insert(con, "raw.links", {"cluster": "mini", **link})


def wide(store: Any, nodes: int) -> None:
    """A switch takes the two links of each of many nodes; the chain folds the links under the first of them."""
    began = datetime.fromisoformat(DAY + "02:00:00")
    events: list[dict[str, Any]] = []
    chain = []

    def event(key: str, layer: str, host: str, kind: str, device: str, role: str, second: float) -> None:
        time = (began + timedelta(seconds=second)).isoformat() + "Z"
        events.append({"id": key, "time": time, "host": host, "event": kind, "layer": layer, "device": device,
                       "role": role, "message": kind, "source": f"{host}/syslog", "line": 1})  # fmt: skip

    event("root", "switch", "leaf01", "switch.reboot", "leaf01", "cause", 0)
    for n in range(nodes):
        event(f"l{n}", "link", f"n{n:02d}", "nic.link_down", "eth0", "effect", 1 + n / 10)
        chain.append(
            {"cause": "root", "effect": f"l{n}", "edge": "E02", "effect_fact": "link.outage", "lag_s": 1 + n / 10}
        )
    spans = [{"layer": "link", "host": f"n{n:02d}", "device": "eth1", "kind": "no_carrier", "text": "no carrier, 9 s",
              "start": began.isoformat() + "Z", "end": (began + timedelta(seconds=9)).isoformat() + "Z"} for n in range(nodes)]  # fmt: skip
    document = {"title": "leaf01 failed", "events": events, "chain": chain, "spans": spans, "hosts": ["leaf01"]}
    row = {"incident_id": "I9", "cluster": "mini", "start": began, "end": began + timedelta(seconds=10), "severity": "impact",
           "category": "infra.network", "root_event": "switch.failure", "root_host": "leaf01",
           "document": json.dumps(document)}  # fmt: skip
    insert(store.con, "model.incidents", row)


def hostile(con: duckdb.DuckDBPyConnection) -> None:
    """A benign incident on gpu04 whose every text is an attack; nothing of it may become markup."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    at = datetime.fromisoformat(DAY + "00:10:00")
    line = {
        "time": at, "time_quality": "line", "received_time": at, "resolution_us": 1000, "cluster": "mini", "host": "gpu04",
        "source": "syslog", "severity": "error", "message": evil, "event": "other", "raw": evil, "file": "hosts/gpu04/syslog",
        "line": 1,
    }  # fmt: skip
    insert(con, "raw.logs", line)
    nobody = {"host": None, "source": None, "message": "said by nobody", "file": "loose.txt"}
    insert(con, "raw.logs", {**line, **nobody})
    event = {
        "id": "x1", "time": f"{at.isoformat()}Z", "host": "gpu04", "event": "nic.error", "message": evil, "layer": "link",
        "device": "eth0", "severity": "error", "role": "cause", "source": "hosts/gpu04/syslog", "line": 1,
    }  # fmt: skip
    document = {
        "title": evil, "events": [event], "status": "provisional", "hosts": ["gpu04"], "doubts": [evil], "waits_for": [evil],
        "advice": [{"text": evil, "command": evil}], "confidence": 0.5, "jobs": [],
    }  # fmt: skip
    row = {
        "incident_id": "I0", "cluster": "mini", "start": at, "end": at + timedelta(seconds=3), "severity": "benign",
        "category": "infra.network", "root_event": "nic.error", "root_host": "gpu04", "root_device": "eth0",
        "document": json.dumps(document),
    }  # fmt: skip
    insert(con, "model.incidents", row)


def dense(con: duckdb.DuckDBPyConnection, count: int) -> None:
    """Many more context events on gpu01 and ctl, to test that the axis stays responsive."""
    # By the engine: to insert a row of Python's takes half a millisecond.
    con.execute(
        'INSERT INTO model.events (event_id, time, host, source, layer, event, severity, message, file, line, "count")'
        " SELECT 'd' || n, ?::TIMESTAMP + to_microseconds(n * 165000000 // ?), ['gpu01', 'ctl', 'gpu02'][n % 3 + 1], source, source,"
        " 'other', 'info', 'made for the test', 'dense.log', 1, 1"
        " FROM (SELECT range AS n, ['slurmd', 'slurmctld', 'kernel'][n % 3 + 1] AS source FROM range(?))",
        [DAY + "00:30:10", count, count],
    )
