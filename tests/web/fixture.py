"""A store of one real incident, filled by hand: the management link of gpu02 was down for 60 s (Slurm 22.05).

``mgmt_flap_long.txt`` holds the lines as the cluster wrote them. Events, spans and the verdict were written by a person
who knew what was done to the cluster. ``python tests/web/fixture.py PORT`` serves the pages over it.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
from around import DAY, dense, hostile, insert, surroundings
from expected_capture import ADVICE, ALSO, CHAIN, DOUBTS, EVENTS, GROUNDS, RIVALS, SPANS, TITLE

from store.duckdb.querying import Asks
from store.duckdb.visible import View

HERE = Path(__file__).parent
LATE = {"hosts/gpu02/syslog": "2026-11-21T00:31:18.146506", "hosts/gpu02/slurmd.log": "2026-11-21T00:31:18.146506"}


def lines() -> dict[tuple[str, int], dict[str, Any]]:
    """The capture's lines by file and number, with the header split off."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    file, number, last = "", 0, None
    for text in (HERE / "mgmt_flap_long.txt").read_text().splitlines():
        if text.startswith("== "):
            file, number, last = text[3:], 0, None
            continue
        number += 1
        row = {**line(file, text, last), "file": file, "line": number, "raw": text, "cluster": "mini"}
        last, found[file, number] = row["time"], row
    return found


def line(file: str, text: str, last: datetime | None) -> dict[str, Any]:
    """One line; a line of job output without a timestamp takes the time of the one before, and is marked so."""
    host = "gpu01" if file.startswith("jobs/") else file.split("/")[1]
    source = {"slurmctld.log": "slurmctld", "slurmd.log": "slurmd", "syslog": "syslog"}.get(
        file.rsplit("/", 1)[1], "job_stdout"
    )
    job = re.search(r"JobId=(\d+)|job[= ](\d+)|\[(\d+)\.|StepId=(\d+)", text)
    stamped = re.match(r"\[?(\d{4}-\d\d-\d\dT[\d:.]+)(?:\+00:00)?\]? (.*)", text)
    time = datetime.fromisoformat(stamped[1]) if stamped else last
    body = stamped[2] if stamped else text
    unit = None
    if source == "syslog":
        _, unit, body = re.match(r"(\S+) ([^:\[]+)[^:]*: (.*)", body).groups()  # type: ignore[union-attr]
        source = ("switch" if host == "leaf01" else "kernel") if unit == "kernel" else "syslog"
    job_id = (
        int(re.search(r"-(\d+)\.out", file)[1])
        if source == "job_stdout"
        else int(next(filter(None, job.groups())))
        if job
        else None
    )  # type: ignore[index]
    late = LATE.get(file)
    received = datetime.fromisoformat(late) if late and "00:30:17" < f"{time:%H:%M:%S.%f}" < "00:31:18.1" else time
    return {
        "time": time,
        "time_quality": "line" if stamped else "inferred",
        "received_time": received,
        "host": host,
        "source": source,
        "unit": unit,
        "severity": "error" if "error" in body else "info",
        "message": body,
        "event": "other",
        "job_id": job_id,
        "resolution_us": 1 if source in {"kernel", "switch", "syslog"} else 1000,
        "tags": [],
    }


def events(con: duckdb.DuckDBPyConnection, logs: dict[tuple[str, int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Fills the events and returns them in the form of the incident's document."""
    reported, rows = [], []
    for key, file, number, layer, event, severity, device, job, role in EVENTS:
        log = logs[file, number]
        log["event"] = event
        also = ALSO.get(key, [])
        row = {
            name: log[name]
            for name in (
                "time",
                "time_quality",
                "resolution_us",
                "received_time",
                "cluster",
                "host",
                "source",
                "unit",
                "message",
                "file",
                "line",
            )
        }
        row |= {
            "event_id": key,
            "layer": layer,
            "event": event,
            "severity": severity,
            "device": device,
            "job_id": job,
            "count": 1 + len(also),
            "incident_id": "I1" if role != "context" else None,
            "refs": json.dumps([{"file": file, "line": number}]),
        }
        rows.append(row)
        if role != "context":
            reported.append(
                {
                    "id": key,
                    "time": f"{log['time'].isoformat()}Z",
                    "host": log["host"],
                    "event": event,
                    "message": log["message"],
                    "source": file,
                    "line": number,
                    "layer": layer,
                    "device": device,
                    "severity": severity,
                    "role": role,
                    "received_time": f"{log['received_time'].isoformat()}Z",
                    "time_quality": log["time_quality"],
                    "resolution_s": log["resolution_us"] / 1e6,
                    "also": also,
                    "count": 1 + len(also),
                }
            )
    insert(con, "model.events", *rows)
    return reported


def incident(reported: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("step", "cause", "effect", "edge", "lag_s", "window_s", "because", "text")
    spans = ("lane", "layer", "host", "device", "start", "end", "kind", "text")
    return {
        "id": "I1",
        "start": DAY + "00:30:17.735336Z",
        "end": DAY + "00:32:45.327000Z",
        "detected_at": None,
        "severity": "impact",
        "category": "infra.network",
        "title": TITLE,
        "confidence": 0.97,
        "status": "final",
        "root_cause": {"event": "nic.link_down", "code": None, "host": "gpu02", "device": "eth0"},
        "candidates": [{"event": "nic.link_down", "host": "gpu02", "device": "eth0", "probability": 0.97}],
        "hosts": ["gpu02", "leaf01", "ctl", "gpu01"],
        "slowed_jobs": [],
        "gpu_hours_lost": 0.17,
        "jobs": [
            {
                "job_id": "15",
                "confidence": 0.97,
                "state": "NODE_FAIL",
                "user": "alice",
                "name": "hit",
                "nodes": "gpu[01-02]",
                "gpus": 4,
            }
        ],
        "unaffected_jobs": [
            {"job_id": "16", "state": "COMPLETED", "why": "No node in common; 595 steps at an even 10 a second."}
        ],
        "chain": [dict(zip(names, step, strict=True)) for step in CHAIN],
        "events": reported,
        "spans": [
            {**dict(zip(spans, item, strict=True)), "start": f"{DAY}{item[4]}Z", "end": f"{DAY}{item[5]}Z"}
            for item in SPANS
        ],
        "rivals": [{"cause": cause, "host": host, "device": None, "rejected": why} for cause, host, why in RIVALS],
        "advice": ADVICE,
        "grounds": GROUNDS,
        "doubts": DOUBTS,
    }


def verdict(document: dict[str, Any], logs: dict[tuple[str, int], dict[str, Any]]) -> dict[str, Any]:
    reported = {item["id"]: item for item in document["events"]}
    spoken = logs["jobs/hit-15.out", 10]
    evidence = [
        {name: reported[key][name] for name in ("time", "host", "event", "message", "source", "line")}
        for key in ("e2", "e3", "e4")
    ]
    evidence.append(
        {
            "time": f"{spoken['time'].isoformat()}Z",
            "host": "gpu01",
            "event": "job.node_failure",
            "message": spoken["message"],
            "source": "jobs/hit-15.out",
            "line": 10,
        }
    )
    return {
        "category": "infra.network",
        "incident_id": "I1",
        "confidence": 0.97,
        "final": True,
        "your_code": False,
        "headline": "Your job died because a node lost its network, not because of your code.",
        "summary": "The management cable of gpu02 was dead for 60 seconds from 00:30:17 UTC. After 35 seconds "
        "without an answer Slurm gave the node up and ended job 15 on both of its nodes.",
        "chain": document["chain"],
        "rivals": document["rivals"],
        "doubts": document["doubts"][:1],
        "grounds": [
            "The switch and the node's network card both logged the loss, 0.2 ms apart.",
            "Slurm waits 16 to 50 s on this cluster before it gives a node up. It took 35 s.",
            "No sign of a crash, a reboot, lack of memory, or an error of your program. Job 16 next door finished.",
        ],
        "advice": [
            {
                "text": "Submit again; nothing in your script has to change.",
                "command": "sbatch -N 2 --gres=gpu:h100:2 /home/alice/hit.sh",
            }
        ],
        "evidence": evidence,
    }


def runs(con: duckdb.DuckDBPyConnection, stated: dict[str, Any]) -> None:
    base = {
        "cluster": "mini",
        "attempt": 0,
        "account": "ml",
        "partition": "gpu",
        "exit_code": 0,
        "exit_signal": 0,
        "submit": DAY + "00:30:13",
        "start": DAY + "00:30:13",
        "node_count": 2,
        "gpus": 4,
        "gpu_index": "0-1",
        "time_limit_s": 600,
    }
    hit = {
        "run_key": "15",
        "job_id": 15,
        "name": "hit",
        "user": "alice",
        "state": "NODE_FAIL",
        "end": DAY + "00:30:52",
        "node_list": "gpu[01-02]",
        "nodes": ["gpu01", "gpu02"],
        "work_dir": "/home/alice",
        "category": "infra.network",
        "incident_id": "I1",
        "confidence": 0.97,
        "document": json.dumps(stated),
        "submit_line": "sbatch --parsable -J hit -o /home/alice/%x-%j.out -N 2 --gres=gpu:h100:2 --no-requeue",
    }
    survivors = {
        "run_key": "16",
        "job_id": 16,
        "name": "bystander",
        "user": "bob",
        "state": "COMPLETED",
        "end": DAY + "00:31:14",
        "node_list": "gpu[03-04]",
        "nodes": ["gpu03", "gpu04"],
    }
    again = {
        "run_key": "14#1",
        "job_id": 14,
        "attempt": 1,
        "name": "<script>alert(1)</script>",
        "user": "mallory",
        "state": "FAILED",
        "start": DAY + "00:20:00",
        "end": DAY + "00:21:00",
        "exit_code": 1,
        "nodes": ["gpu03"],
        "node_list": "gpu03",
        "document": json.dumps({"category": "unknown", "confidence": 0.2, "final": True}),
    }
    insert(con, "model.runs", *({**base, **row} for row in (hit, survivors, again)))


class FakeStore(Asks):
    """The store interface that pages use, over an in-memory DuckDB."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self.con.cursor()

    def info(self) -> dict[str, object]:
        return {"cluster": "mini"}

    def seen_by(self, user: str) -> View:
        return View(self, user)


def build(many: int = 0) -> FakeStore:
    con = duckdb.connect(":memory:")
    con.execute((HERE / "schema.sql").read_text())
    logs = lines()
    document = incident(events(con, logs))
    insert(con, "raw.logs", *logs.values())
    insert(
        con,
        "model.incidents",
        {
            "incident_id": "I1",
            "cluster": "mini",
            "start": document["start"],
            "end": document["end"],
            "severity": "impact",
            "category": "infra.network",
            "root_event": "nic.link_down",
            "root_host": "gpu02",
            "root_device": "eth0",
            "document": json.dumps(document),
        },
    )
    runs(con, verdict(document, logs))
    surroundings(con)
    hostile(con)
    if many:
        dense(con, many)
    return FakeStore(con)


@cache
def shared() -> FakeStore:
    """One for all tests of a process that do not write to it."""
    return build()


if __name__ == "__main__":
    import uvicorn

    from web.app import create_app

    uvicorn.run(
        create_app(build(int(sys.argv[2]) if len(sys.argv) > 2 else 0)), port=int(sys.argv[1]), log_level="warning"
    )
