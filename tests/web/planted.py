"""A store in which every text that belongs to a user contains a secret of that user.

Three people have runs of every kind: a number that was used once, an array, a run that was requeued, a number that all
three had one after the other, a run whose owner is disputed; one incident that hit two of them, one for each alone;
nodes that they share. Texts of columns that no test names get a secret as well, so a new column or table is covered at
once.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from correlator.model import false_lines
from store import open_store
from store.duckdb.intake_schema import STATEMENTS
from store.duckdb.store import DuckStore
from web.reading import Reader
from web.replaying import Made

DAY = datetime(2026, 11, 20)
USERS = ("alice", "bob", "carol")
#: Owner of administrators' texts and those without an owner: not for any user.
SITE = "site"
NODES = {"alice": "gpu01", "bob": "gpu02", "carol": "gpu03"}
SHARED, CLUSTER = "gpu09", "mini"
#: Columns that hold JSON.
JSON = {"entities", "labels", "refs", "document"}
#: The number that all three had.
REUSED = 700
INCIDENTS = {"I-both": ("alice", "bob"), "I-alice": ("alice",), "I-bob": ("bob",), "I-carol": ("carol",)}


def at(hour: float) -> datetime:
    return DAY + timedelta(hours=hour)


class Planted:
    def __init__(self, store: DuckStore) -> None:
        self.store, self.connection = store, store.cursor()
        #: Secret -> its owner and its place.
        self.secrets: dict[str, tuple[str, str]] = {}
        self.keys: dict[str, list[str]] = {user: [] for user in (*USERS, SITE)}
        self._counter = itertools.count(10_000)
        columns = store.rows(
            "SELECT schema_name || '.' || table_name AS t, column_name AS c, data_type AS k FROM duckdb_columns()"
            " WHERE database_name = current_database() AND NOT internal ORDER BY column_index"
        )
        self.columns: dict[str, dict[str, str]] = {}
        for row in columns:
            self.columns.setdefault(row["t"], {})[row["c"]] = row["k"]

    def secret(self, owner: str, place: str) -> str:
        made = f"zq{owner}{next(self._counter)}qz"
        self.secrets[made] = (owner, place)
        return made

    def row(self, table: str, owner: str, **given: Any) -> None:
        values: dict[str, Any] = {}
        for name, kind in self.columns[table].items():
            if name in given:
                values[name] = given[name]
            elif (table, name) == ("model.events", "authority"):  # one of a few words of ours
                values[name] = "local"
            elif kind == "VARCHAR":
                made = self.secret(owner, f"{table}.{name}")
                values[name] = json.dumps({"state": made, "nodes": [made], "reason": made}) if name in JSON else made
            elif kind == "VARCHAR[]":
                values[name] = [self.secret(owner, f"{table}.{name}")]
        assert not given.keys() - values.keys(), given.keys() - values.keys()
        names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))


def build(p: Planted) -> None:
    for place, user in enumerate(USERS):
        incident = next(name for name, hit in INCIDENTS.items() if user in hit)
        run(p, user, str(100 + place), 100 + place, 10, nodes=[NODES[user], SHARED], incident=incident)
        for task in (0, 1):
            run(
                p,
                user,
                f"{200 + 10 * place}_{task}",
                201 + 10 * place + task,
                12,
                array_job_id=200 + 10 * place,
                array_task_id=task,
            )
        run(p, user, str(300 + place), 300 + place, 13, incident=f"I-{user}")
        run(p, user, f"{300 + place}#1", 300 + place, 14, attempt=1)
    for user, hour, key in (("bob", 8, f"{REUSED}@2026-11-20T08:00:00"), ("carol", 9, f"{REUSED}@2026-11-20T09:00:00"), ("alice", 11, str(REUSED))):  # fmt: skip
        run(p, user, key, REUSED, hour)
        # Files and lines whose run, and therefore owner, is unknown.
        unknown = {"cluster": CLUSTER, "job_id": REUSED}
        p.row("raw.artifacts", user, **unknown, restarts=0, kind="script", taken_at=None)
        p.row(
            "raw.logs", user, **unknown, time=None, source="job_stdout", time_quality="received", line=99, event="other"
        )
    run(p, SITE, "800", 800, 15, disputed=True)
    for name, hit in INCIDENTS.items():
        incident_of(p, name, hit)
    shared_node(p)
    #: Indices of other tables, and those filled above with consistent values.
    known = {"model.runs", "model.incidents", "kept.feedback", "raw.archive", "raw.log_segments", "raw.log_words"}
    for table in p.columns:  # every other table as well, whatever reads it
        schema = table.partition(".")[0]
        if schema in ("raw", "model", "kept", "intake") and table not in known and not is_view(p, table):
            for user in USERS:
                p.row(table, user, **({"cluster": CLUSTER} if "cluster" in p.columns[table] else {}))


def is_view(p: Planted, table: str) -> bool:
    schema, _, name = table.partition(".")
    found = p.connection.execute("SELECT 1 FROM duckdb_views() WHERE schema_name = ? AND view_name = ?", [schema, name])
    return found.fetchone() is not None


def run(
    p: Planted, user: str, key: str, job_id: int, hour: float, *, nodes: list[str] | None = None, incident: str | None = None,
    attempt: int = 0, disputed: bool = False, array_job_id: int | None = None, array_task_id: int | None = None,
) -> None:  # fmt: skip
    """A run with its files, lines and events, each text a secret of its user."""
    p.keys[user].append(key)
    start, end = at(hour), at(hour + 0.5)
    nodes = nodes or [NODES.get(user, "gpu04")]
    about = {"cluster": CLUSTER, "job_id": job_id}
    output, ctld = f"e-{key}-out", f"e-{key}-ctld"
    file = p.secret(user, "output file")
    words = {table: p.secret(user, f"message of {table}") for table in ("output", "ctld")}
    document = {
        "category": "infra.network", "incident_id": incident, "confidence": 0.9, "final": True, "your_code": False, "state": "NODE_FAIL",
        "headline": "Your job died because a node lost its network, not because of your code.",
        "summary": f"Job {key} ended NODE_FAIL: its own output says: {words['output']}",
        "user": user, "name": p.secret(user, "verdict name"), "nodes": ",".join(nodes), "gpus": 4,
        "root_cause": {"event": "nic.link_down", "code": None, "host": SHARED, "device": "eth0"},
        "grounds": [f"It printed {words['output']}."], "doubts": [], "change_my_mind": "", "chain": [],
        "rivals": [{"cause": "slurmd crash", "host": nodes[0], "device": None, "rejected": "it ran"}],
        "advice": [{"text": f"Tell {user} to submit again.", "command": None, "users": [user]}],
        "evidence": [evidence(output, start, words["output"], file), evidence(ctld, start, f"JobId={job_id} {words['ctld']}", "ctld.log")],
        "of tomorrow": p.secret(user, "unknown field of a verdict"),
    }  # fmt: skip
    p.row(
        "model.runs", user, run_key=key, **about, user=None if disputed else user, attempt=attempt, array_job_id=array_job_id,
        array_task_id=array_task_id, state="NODE_FAIL", submit=start, start=start, end=end, nodes=nodes, node_list=",".join(nodes),
        category="infra.network", incident_id=incident, document=json.dumps(document), gpus=4, exit_code=1, exit_signal=0,
    )  # fmt: skip
    recorded = {**about, "submit": start, "start": start, "end": end, "nodes": nodes, "state": "NODE_FAIL"}
    p.row("raw.jobs", user, **recorded, source="sacct", user=None if disputed else user, restarts=attempt)
    p.row("raw.steps", user, **recorded, step_id="0")
    version = p.secret(user, "software of a node") if nodes[0] != SHARED else None
    p.row("raw.metrics", user, cluster=CLUSTER, host=nodes[0], time=start, metric="node_software_info", device=None, file=None,
          labels=json.dumps({"name": "kernel", "version": version}))  # fmt: skip
    for kind in ("script", "env", "stdout"):
        p.row("raw.artifacts", user, **about, restarts=attempt, kind=kind, taken_at=end, truncated=False)
    p.row("raw.settings", user, cluster=CLUSTER, scope=f"job:{job_id}" + (f"#{attempt}" if attempt else ""))
    p.row("raw.environments", user, **about, restarts=attempt, step="0", seen_at=start)
    line = {
        **about,
        "time": start + timedelta(minutes=5),
        "received_time": start + timedelta(minutes=5),
        "time_quality": "line",
    }
    p.row("raw.logs", user, **line, source="job_stdout", file=file, line=1, event="job.nccl_error", message=words["output"], host=nodes[0])  # fmt: skip
    p.row("raw.logs", user, **line, source="slurmctld", file="ctld.log", line=job_id, host="ctl")
    p.row("raw.logs", user, **line | {"job_id": None}, source="kernel", file="kern.log", line=job_id, host=SHARED)
    event = {**line, "resolution_us": 1, "count": 1, "severity": "error", "incident_id": incident}
    p.row("model.events", user, **event, event_id=output, layer="job", source="job_stdout", event="job.nccl_error", file=file, line=1,
          host=nodes[0], message=words["output"])  # fmt: skip
    p.row("model.events", user, **event, event_id=ctld, layer="slurmctld", source="slurmctld", event="slurm.job_node_fail", file="ctld.log",
          line=job_id, host="ctl", message=f"JobId={job_id} {words['ctld']}")  # fmt: skip
    for kind in (
        "kernel.oom_kill",
        "sys.service_failed",
        "kernel.segfault",
    ):  # of a process, on a node that others use too
        p.row(
            "model.events",
            user,
            **event | {"job_id": None},
            event_id=f"e-{key}-{kind}",
            layer="kernel",
            event=kind,
            host=SHARED,
        )
    name = p.secret(user, "process beside a device")
    p.row("model.events", user, **event | {"job_id": None}, event_id=f"e-{key}-xid", layer="gpu", event="gpu.xid", host=SHARED, file="kern.log",
          line=1, source="kernel", unit=None, device="0000:3b:00", refs=None,
          message=f"NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name={name}, GPU has fallen off the bus.")  # fmt: skip
    path = p.secret(user, "path in a line about a disk")
    p.row("model.events", user, **event | {"job_id": None}, event_id=f"e-{key}-io", layer="storage", event="storage.io_error", host=SHARED,
          file="kern.log", line=1, source="kernel", unit=None, device=f"/scratch/{path}", refs=None, message=f"error on /scratch/{path}")  # fmt: skip
    for author in USERS:
        p.row("kept.feedback", author if author != user else SITE, cluster=CLUSTER, run_key=key, incident_id=incident, answer="wrong",
              category="app.error", given_at=end, said_category="infra.network", said_event="nic.link_down", said_host=None, said_confidence=0.9)  # fmt: skip


def evidence(event_id: str, time: datetime, message: str, source: str) -> dict[str, Any]:
    return {"id": event_id, "time": f"{time.isoformat()}Z", "host": "ctl", "event": "x", "message": message, "source": source, "line": 1,
            "layer": "job", "role": "effect", "also": []}  # fmt: skip


def incident_of(p: Planted, name: str, hit: tuple[str, ...]) -> None:
    start, end = at(10.1), at(10.4)
    keys = [(user, key) for user in hit for key in p.keys[user]]
    secrets = {
        user: [p.secret(user, f"{part} of {name}") for part in ("title", "says", "unknown", "job name", "span")]
        for user in hit
    }
    other = next(user for user in USERS if user not in hit) if name != "I-both" else "carol"
    survivors = p.secret(other, "why spared")
    events = [evidence(f"e-{key}-{kind}", start, p.secret(user, "message in an incident"), p.secret(user, "source in an incident"))
              for user, key in keys for kind in ("out", "ctld", "xid", "io", "kernel.oom_kill")]  # fmt: skip
    link = p.secret(SITE, "line that is in no table")
    document = {
        "id": name, "start": f"{start.isoformat()}Z", "end": f"{end.isoformat()}Z", "detected_at": None, "severity": "impact", "category": "infra.network",
        "root_cause": {"event": "nic.link_down", "code": None, "host": SHARED, "device": "eth0"},
        "title": "eth0 of gpu09 lost its link. " + " ".join(f"Job {key} of {user} ended ({secrets[user][0]})." for user, key in keys),
        "headline": f"jobs {', '.join(key for _, key in keys)} ended", "confidence": 0.9, "status": "final",
        "candidates": [{"event": "nic.link_down", "host": SHARED, "device": "eth0", "probability": 0.9}, *(
            {"event": "x", "host": NODES[user], "device": p.secret(user, "candidate"), "probability": 0.1} for user in hit if len(hit) > 1 and user != hit[0])],
        "hosts": [SHARED, *NODES.values()],
        "jobs": [{"job_id": key, "confidence": 0.9, "state": "NODE_FAIL", "user": user, "name": secrets[user][3], "nodes": NODES[user], "gpus": 4}
                 for user, key in keys],
        "slowed_jobs": [key for _, key in keys], "unaffected_count": 1,
        "unaffected_jobs": [{"job_id": p.keys[other][0], "state": "COMPLETED", "why": survivors}],
        "chain": [{"step": n, "cause": f"e-{name}-link", "effect": f"e-{key}-{kind}", "edge": "E03", "lag_s": 1.0, "window_s": [0, 5],
                   "because": p.secret(user, "because") if len(hit) > 1 and user != hit[0] else "x", "text": "An edge.", "effect_fact": "run.node_fail",
                   "effect_says": f"job {key} of {user} ended {secrets[user][1]}", "effect_host": NODES[user],
                   "others": {"where": "behind leaf1", "hit": [p.secret(user, "hit")], "spared": [p.secret(user, "spared")], "hit_count": 1}}
                  for n, ((user, key), kind) in enumerate(itertools.product(keys, ("out", "io")))],
        "events": [*events, evidence(f"e-{name}-link", start, link, link)],
        "spans": [{"lane": f"{NODES[user]} kernel", "layer": "kernel", "host": NODES[user], "device": None, "start": f"{start.isoformat()}Z",
                   "end": f"{end.isoformat()}Z", "kind": "late", "text": f"job {key} of {user} {secrets[user][4]}"} for user, key in keys],
        "rivals": [{"cause": f"job {key} of {user}", "host": NODES[user], "device": None, "rejected": f"{user} says {secrets[user][1]}"} for user, key in keys],
        "grounds": [f"1 other job behind leaf1 ({secrets[user][0]}) ran on." for user in hit[:0]] + [f"job {key} says {secrets[user][1]}" for user, key in keys],
        "doubts": [f"{user} was late: {secrets[user][1]}" for user in hit],
        "waits_for": [f"until 03:12 UTC: {user} was late: {secrets[user][1]}" for user in hit],
        "advice": [{"text": f"Tell {', '.join(hit)} to submit again.", "command": None, "users": list(hit)},
                   *({"text": f"Ask {user}.", "command": f"cat /home/{user}/{secrets[user][1]}"} for user in hit),
                   *({"text": "See the script.", "command": f"cat /home/{user}/{secrets[user][1]}"} for user in hit)],
        "gpu_hours_lost": 1.0, "of tomorrow": {user: secrets[user][2] for user in hit},
    }  # fmt: skip
    p.row("model.incidents", SITE, incident_id=name, cluster=CLUSTER, start=start, end=end, severity="impact", category="infra.network",
          root_event="nic.link_down", root_host=SHARED, root_device="eth0", document=json.dumps(document))  # fmt: skip
    p.row("kept.aliases", SITE, cluster=CLUSTER, alias=f"{name}-former", incident_id=name, since=start)
    for number, former in enumerate((name, f"{name}-former")):
        p.row(
            "kept.triage",
            SITE,
            cluster=CLUSTER,
            incident_id=former,
            state="acknowledged",
            signed=True,
            at=at(11 + number),
        )
    p.row("model.events", SITE, event_id=f"e-{name}-link", time=start, time_quality="line", resolution_us=1, received_time=start, cluster=CLUSTER,
          host=SHARED, source="kernel", unit=None, layer="link", event="nic.link_down", severity="error", device="eth0", job_id=None,
          message="igb eth0: NIC Link is Down", count=1, incident_id=name, file="kern.log", line=7)  # fmt: skip


def shared_node(p: Planted) -> None:
    """Administrators' texts about a node that several users had: reasons and their authors, and lines that were shown to
    be false."""
    for host in (SHARED, *NODES.values()):
        p.row("model.events", SITE, event_id=f"f-{host}", time=at(10.2), time_quality="line", resolution_us=1, received_time=at(10.2), cluster=CLUSTER,
              host=host, source="kernel", unit=None, layer=false_lines.LAYER, event=false_lines.FORGED, severity="warning", device=None, job_id=None,
              count=1, incident_id=None, file="kern.log", line=9)  # fmt: skip
    for hour in (10.2, 12.2, 13.2):
        for host in (SHARED, *NODES.values()):
            p.row(
                "model.node_states",
                SITE,
                time=at(hour),
                until=at(hour + 0.1),
                cluster=CLUSTER,
                host=host,
                state="drain",
                source="scontrol",
            )
            stated = {
                "nodes": [host],
                "state": "DRAIN",
                "reason": p.secret(SITE, "reason"),
                "actor": p.secret(SITE, "actor"),
            }
            for kind in ("slurm.node_drain", "slurm.node_reason"):
                p.row("model.events", SITE, event_id=f"e-{host}-{hour}-{kind}", time=at(hour), cluster=CLUSTER, host="ctl", source="slurmctld",
                      unit=None, layer="slurmctld", event=kind, incident_id="I-both", time_quality="line", entities=json.dumps(stated), file="ctld.log",
                      line=3, message=f"update_node: node {host} reason set to: {stated['reason']}", severity="info")  # fmt: skip


@contextmanager
def planted() -> Iterator[Planted]:
    with open_store(None) as store:
        with store.transaction() as connection:
            for statement in STATEMENTS:
                connection.execute(statement)
        made = Planted(store)
        with store.transaction() as made.connection:
            build(made)
        yield made


class Played:
    """Replays that hold everything of an incident at each of their moments, for ``app.state.replays``: others' too."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    def known(self, row: dict[str, Any]) -> Made:
        document = row["document"]
        runs = [self._read.run(str(job["job_id"])) for job in document["jobs"]]
        ended = [{"id": None, "event": "job.end", "message": f"Job {run['job_id']} ended {run['name']}", "run": run["own_key"]} for run in runs]  # fmt: skip
        moments = [
            {
                "time": f"2026-11-20T1{n}:00:00.000000Z", "lines": 7, "more": 1, "arrived": [*document["events"], *ended],
                "incident": {**document, "confidence": 0.5 + n / 4},
                "verdicts": {run["own_key"]: run["document"] | {"confidence": 0.5 + n / 4} for run in runs},
            }
            for n in range(2)
        ]  # fmt: skip
        made: dict[str, Any] = {
            "incident_id": row["incident_id"], "moments": moments, "lines": 14, "assumed": 3, "since": "2026-11-20", "until": "2026-11-21",
            "left_out": [], "jobs_left_out": 0, "differs": [f"{document['title']} {run['name']}" for run in runs],
        }  # fmt: skip
        return Made("", document=made)

    of = known
