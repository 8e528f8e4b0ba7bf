"""The cluster in motion: a clock, a first-fit scheduler, runs, incidents, and how a run ends."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oc_log import Log
from oc_site import Node, Site, hostlist

Incident = dict[str, Any]


@dataclass
class Job:
    """What a user asked for."""

    jid: int
    name: str
    user: str
    uid: int
    account: str
    partition: str
    qos: str
    kind: str
    nnodes: int
    gpus: int
    limit: int
    submit: float
    requeue: bool
    plan: str
    seconds: float
    array: tuple[int, int] | None = None
    depends: int = 0

    @property
    def label(self) -> str:
        """As Slurm's %pJ prints it."""
        return f"JobId={self.array[0]}_{self.array[1]}({self.jid})" if self.array else f"JobId={self.jid}"

    @property
    def shown(self) -> str:
        """As sacct's JobID shows it."""
        return f"{self.array[0]}_{self.array[1]}" if self.array else str(self.jid)


@dataclass
class Run:
    """One life of a job."""

    job: Job
    restart: int
    submit: float
    start: float = 0.0
    end: float = 0.0
    nodes: list[Node] = field(default_factory=list)
    held: dict[str, list[int]] = field(default_factory=dict)
    state: str = ""
    code: str = "0:0"
    reason: str = "None"
    step_state: str = ""
    stall: float = 0.0
    slow: list[tuple[float, float]] = field(default_factory=list)
    out: list[tuple[float, str]] = field(default_factory=list)
    err: list[tuple[float, str]] = field(default_factory=list)
    doomed: bool = False

    @property
    def key(self) -> str:
        """As truth and verdicts name it."""
        return self.job.shown + (f"#{self.restart}" if self.restart else "")

    @property
    def live(self) -> bool:
        """Runs, and nothing has sealed its fate."""
        return bool(self.start) and not self.end and not self.doomed


@dataclass
class End:
    """How a run ends, and the truth about it."""

    state: str
    category: str
    code: str = "0:0"
    reason: str = "None"
    incident: Incident | None = None
    trap: bool = False
    accept: tuple[str, ...] = ()
    ambiguous: bool = False
    note: str = ""
    by: int = -1
    failed: str = ""


class Sim:
    """State of everything."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.rng = random.Random(f"sim{site.seed}")
        self.log = Log(site, random.Random(f"log{site.seed}"))
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.now = site.start
        self.queue: list[Run] = []
        self.runs: list[Run] = []
        self.incidents: list[Incident] = []
        self.verdicts: dict[str, Incident] = {}
        self.completed: list[str] = []
        self.done: dict[int, str] = {}
        self.next_id = self.rng.randint(3000, 900000)
        self.nodes = {n.name: n for n in site.nodes}

    def at(self, t: float, do: Callable[[], None]) -> None:
        """Something to do at a time."""
        self.count += 1
        heapq.heappush(self.heap, (t, self.count, do))

    def go(self) -> None:
        """Lets time pass to the end of the window."""
        while self.heap and self.heap[0][0] <= self.site.end:
            self.now, _, do = heapq.heappop(self.heap)
            do()

    def number(self) -> int:
        """The next job id."""
        self.next_id += 1
        return self.next_id

    # --- scheduling ---

    def submit(self, job: Job, restart: int = 0) -> Run:
        """Puts a run into the queue."""
        run = Run(job, restart, self.now)
        self.runs.append(run)
        self.queue.append(run)
        if not restart and not (job.array and job.array[1] > 0):
            shown = job.array[0] if job.array else job.jid
            self.log.ctl(
                self.now,
                f"_slurm_rpc_submit_batch_job: JobId={shown} InitPrio={4294901000 - shown % 1000} usec={self.rng.randint(280, 3900)}",
            )
        self.at(self.now + self.rng.uniform(0.3, 2.5), self.schedule)
        return run

    def usable(self, node: Node, job: Job) -> bool:
        """Whether a node may take a job."""
        if not node.up or node.cut or node.drained or node.kind != job.partition:
            return False
        return len(node.free) == 8 if job.nnodes > 1 else len(node.free) >= job.gpus

    def schedule(self) -> None:
        """First fit for everyone in the queue."""
        for run in list(self.queue):
            job = run.job
            if job.depends:
                state = self.done.get(job.depends)
                if state is None:
                    continue
                if state != "COMPLETED":
                    self.broken_chain(run)
                    continue
            places = [n for n in self.site.nodes if self.usable(n, job)]
            if job.nnodes == 1:
                places.sort(key=lambda n: (len(n.free), self.site.nodes.index(n)))
                places = places[:3]
                self.rng.shuffle(places)
            elif len(places) > job.nnodes:
                cut = self.rng.randint(0, len(places) - job.nnodes)
                places = places[cut:]
            if len(places) >= job.nnodes:
                self.begin(run, places[: job.nnodes])

    def broken_chain(self, run: Run) -> None:
        """A dependency that can never be satisfied any more."""
        self.queue.remove(run)
        run.start = 0.0
        run.end = self.now
        run.state, run.reason = "CANCELLED", "DependencyNeverSatisfied"
        self.log.ctl(self.now, f"_kill_dependency: {run.job.label} dependency condition never satisfied")
        self.verdicts[run.key] = {
            "job_id": run.job.jid,
            "run": 0,
            "state": "CANCELLED",
            "category": "app.error",
            "incident": None,
            "end": self.now,
            "trap": True,
            "ambiguous": True,
            "note": "dependency never satisfied",
        }
        self.done[run.job.jid] = "CANCELLED"

    def begin(self, run: Run, nodes: list[Node], launch: bool = True) -> None:
        """Starts a run on nodes; without launch the daemons are not told."""
        self.queue.remove(run)
        rng, log, job = self.rng, self.log, run.job
        run.nodes, run.start = nodes, self.now
        for node in nodes:
            run.held[node.name] = [node.free.pop(0) for _ in range(job.gpus)]
        names = hostlist([n.name for n in nodes])
        cpus = len(nodes) * job.gpus * 12
        if rng.random() < 0.7:
            log.ctl(self.now, f"sched: Allocate {job.label} NodeList={names} #CPUs={cpus} Partition={job.partition}")
        else:
            log.ctl(self.now, f"sched/backfill: _start_job: Started {job.label} in {job.partition} on {names}")
        if not launch:
            return
        head = nodes[0]
        log.slurm(head, self.now + 0.2, f"Launching batch job {job.jid} for UID {job.uid}")
        for node in nodes:
            log.slurm(
                node,
                self.now + rng.uniform(0.6, 1.4),
                f"launch task StepId={job.jid}.0 request from UID:{job.uid} GID:{job.uid} HOST:{head.ip} PORT:{rng.randint(33000, 60000)}",
            )
            if rng.random() < 0.3:
                log.daemon(
                    node,
                    self.now + 0.1,
                    "slurm_prolog",
                    f"job {job.jid} user {job.user}: gpu check passed, {job.gpus} devices",
                )
        from oc_own import start_life

        start_life(self, run)

    # --- ends ---

    def finish(self, run: Run, end: End) -> None:
        """Ends a run now and writes down the truth."""
        if run.end or not run.start:
            return
        run.end, run.state, run.code, run.reason = self.now, end.state, end.code, end.reason
        for node in run.nodes:
            node.free = sorted(node.free + run.held[node.name])
        from oc_ends import say_end

        say_end(self, run, end)
        self.done[run.job.jid] = end.state
        if end.state == "COMPLETED":
            self.completed.append(run.key)
        else:
            self.judge(run, end)
        if (
            (end.state == "NODE_FAIL" and run.job.requeue)
            or end.state in ("REQUEUED",)
            or (end.state == "PREEMPTED" and run.job.requeue)
        ):
            self.done.pop(run.job.jid, None)
            wait = self.rng.uniform(121, 150)
            self.at(self.now + wait, lambda: self.again(run))
        self.at(self.now + 2, self.schedule)

    def judge(self, run: Run, end: End) -> None:
        """The truth of a run that did not complete."""
        inc = end.incident
        verdict = {
            "job_id": run.job.jid,
            "run": run.restart,
            "state": end.state,
            "category": end.category,
            "incident": inc["id"] if inc else None,
            "end": self.now,
            "trap": end.trap,
        }
        if end.by >= 0:
            verdict["by"] = end.by
        if end.accept:
            verdict["accept_categories"] = list(end.accept)
        if end.ambiguous or (inc and inc["extra"].get("lost")):
            verdict["ambiguous"] = True
        if end.note:
            verdict["note"] = end.note
        self.verdicts[run.key] = verdict
        if inc:
            if run.key not in inc["jobs"]:
                inc["jobs"].append(run.key)
            inc["job_states"][run.key] = end.state
            inc["end"] = max(inc["end"], self.now)

    def again(self, run: Run) -> None:
        """A requeued job comes back to the queue."""
        if self.now < self.site.end - 600:
            self.submit(run.job, run.restart + 1)

    # --- faults ---

    def incident(
        self,
        kind: str,
        category: str,
        events: tuple[str, ...],
        host: str,
        device: str | None = None,
        severity: str = "impact",
        hosts: list[str] | None = None,
        needle: str = "",
        where: str = "",
        switch: str | None = None,
    ) -> Incident:
        """Writes down a root event; the first of the events is its own name, all are accepted."""
        node = self.nodes.get(host)
        lost = (
            bool(node and node.lost and not where.startswith(("controller", "jobs")) and "slurmd.log" not in where)
            or host == self.site.mute_switch
        )
        inc: Incident = {
            "id": f"T{len(self.incidents) + 1:03d}",
            "kind": kind,
            "severity": severity,
            "category": category,
            "root_cause": {"event_type": events[0], "accept": list(events), "host": host, "device": device},
            "switch": switch,
            "start": self.now,
            "end": self.now,
            "start_iso": self.site.stamp(self.now).isoformat(),
            "hosts": hosts or [host],
            "nodes_down": [],
            "jobs": [],
            "jobs_slowed": [],
            "jobs_not_affected": [],
            "extra": {"needle": needle, "where": where, "lost": lost},
            "job_states": {},
        }
        self.incidents.append(inc)
        if severity in ("benign", "degraded"):
            names = set(inc["hosts"])
            inc["jobs_not_affected"] = [r.key for r in self.runs if r.live and names & set(r.held)]
        return inc

    def running(self, kinds: tuple[str, ...] = (), nodes: int = 1, age: float = 240.0) -> list[Run]:
        """Live runs of kinds, on at least so many nodes."""
        return [
            r
            for r in self.runs
            if r.live and len(r.nodes) >= nodes and (not kinds or r.job.kind in kinds) and self.now - r.start > age
        ]

    def on(self, node: Node) -> list[Run]:
        """Live runs on a node."""
        return [r for r in self.runs if r.live and node.name in r.held]

    def idle(self) -> list[Node]:
        """Nodes in service without jobs."""
        return [n for n in self.site.nodes if n.up and not n.cut and not n.drained and len(n.free) == 8]

    def down(self, node: Node, seconds: float) -> None:
        """Out of service now, back after a while."""
        node.up = False
        node.bad_until = self.now + seconds

        def back() -> None:
            node.up, node.cut = True, False
            self.schedule()

        self.at(self.now + seconds, back)
