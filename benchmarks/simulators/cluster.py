"""A simulated cluster: racks, nodes, cables, a schedule of jobs, and the log files that such a site has on its log
host.

Everything differs by seed: names, sizes, Slurm's timeouts and version, the syslog format and zone of each kind of node,
drivers, switches, clocks; and how much of it was collected. ``faults`` breaks it and records what it broke.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from parsers.hostlist import fold

#: 2026-04-14 06:00:00 UTC, a Tuesday.
BEGIN = 1776146400.0
HOURS = 5.0

#: Retries of the transport, NCCL_IB_TIMEOUT -> seconds (4.096 us x 2^t x 7).
BUDGET_S = {t: 4.096e-6 * 2**t * 7 for t in (18, 20, 22)}


@dataclass
class Job:
    """One job as scheduled; a fault may change ``state``, ``end`` and its output."""

    id: int
    nodes: list[str]
    start: float
    end: float
    name: str
    user: str
    state: str = "COMPLETED"
    exit: tuple[int, int] = (0, 0)
    limit_s: int = 0
    array: tuple[int, int] | None = None
    ib_timeout: int = 20
    gpus: int = 8
    err: list[str] = field(default_factory=list)
    slow_from: float | None = None
    planned: bool = True
    attempt: int = 0

    @property
    def key(self) -> str:
        name = f"{self.array[0]}_{self.array[1]}" if self.array else str(self.id)
        return f"{name}#{self.attempt}" if self.attempt else name

    @property
    def pj(self) -> str:
        """The job id in slurmctld's notation."""
        return f"JobId={self.array[0]}_{self.array[1]}({self.id})" if self.array else f"JobId={self.id}"


@dataclass(frozen=True)
class Rack:
    """Nodes of one rack: their log format, the driver of their NICs, their fabric."""

    name: str
    nodes: tuple[str, ...]
    tor: str
    leaves: tuple[str, ...]
    form: str
    zone_h: float
    driver: str
    fabric: str
    rails: tuple[str, ...]
    switch_form: str


class Cluster:
    """The site of one seed and everything it logged."""

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        self.timeout = r.choice((60, 120, 300, 300, 600))
        self.message_timeout = r.choice((10, 10, 30))
        self.version = r.choice(("21.08.8-2", "22.05.11", "23.02.7", "23.11.10", "24.05.4", "25.05.1"))
        style = r.choice(("gpu-{:03d}", "cn{:04d}", "hgx{:02d}", "dgx-b{:02d}-x"))
        self.racks: list[Rack] = []
        number = 1
        for place in range(r.choice((2, 3, 3))):
            nodes = tuple(style.format(number + i) for i in range(r.choice((8, 10, 12))))
            number += len(nodes)
            fabric = r.choice(("ib", "roce", "planes"))
            rails = tuple(f"mlx5_{i}" for i in range(4)) if fabric == "ib" else tuple(f"rdma{i}" for i in range(4))
            kind = "ibleaf" if fabric == "ib" else "leaf"
            leaves = tuple(f"{kind}-{chr(97 + place)}{i}" if fabric == "planes" else f"{kind}-{chr(97 + place)}" for i in range(4))  # fmt: skip
            self.racks.append(Rack(
                chr(97 + place), nodes, f"tor-{chr(97 + place)}", leaves, r.choice(("rfc3164", "iso", "rfc5424", "rfc3164")),
                r.choice((0.0, 0.0, 5.5, -5.0)), r.choice(("bnxt_en", "ice", "ixgbe", "mlx5")), fabric, rails, r.choice(("eos", "sonic", "nxos")),
            ))  # fmt: skip
        self.nodes = [n for rack in self.racks for n in rack.nodes]
        self.rack_of = {n: rack for rack in self.racks for n in rack.nodes}
        self.offset = {n: r.gauss(0, 0.2) for n in self.nodes}
        self.lines: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        self.dead: list[tuple[str, float, float]] = []
        self.jobs: list[Job] = []
        self.pci = {n: [f"0000:{b:02x}:00" for b in sorted(r.sample(range(0x10, 0xF0), 8))] for n in self.nodes}
        self.next_id = r.randrange(1000, 900_000)
        self.pid = 2000
        self.conf: list[str] = []

    # -- log lines ----------------------------------------------------------------------------------------------------
    def ctl(self, at: float, text: str) -> None:
        stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        self.lines["controller/slurmctld.log"].append((at, f"[{stamp}] {text}"))

    def slurmd(self, at: float, node: str, text: str) -> None:
        shown = at + self.offset[node]
        stamp = datetime.fromtimestamp(shown, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        self.lines[f"nodes/{node}/slurmd.log"].append((at, f"[{stamp}] {text}"))

    def system(self, at: float, node: str, program: str, text: str, pri: int = 4) -> None:
        """A line of the node's system log, in its rack's format; ``program`` "kernel" has no process id."""
        rack = self.rack_of[node]
        shown = at + self.offset[node]
        self.pid += 7
        pid = "" if program == "kernel" else str(self.pid % 60000)
        tag = program if not pid else f"{program}[{pid}]"
        if program == "kernel":
            text = f"[{at - BEGIN + 400_000:.6f}] {text}"
        if rack.form == "rfc3164":
            line = f"{datetime.fromtimestamp(shown, UTC):%b %e %H:%M:%S} {node} {tag}: {text}"
        else:
            zone = timezone(timedelta(hours=rack.zone_h))
            stamp = datetime.fromtimestamp(shown, zone).isoformat(timespec="microseconds")
            line = (
                f"{stamp} {node} {tag}: {text}"
                if rack.form == "iso"
                else f"<{pri}>1 {stamp} {node} {program} {pid or '-'} - - {text}"
            )
        self.lines[f"nodes/{node}/{'messages' if rack.form == 'rfc3164' else 'syslog'}"].append((at, line))
        if program == "kernel" and rack.form == "iso":  # as Debian configures rsyslog
            self.lines[f"nodes/{node}/kern.log"].append((at, line))

    def kernel(self, at: float, node: str, text: str) -> None:
        """A line of the kernel. Syslog does not prove that it is: ``dmesg -T`` was collected as well."""
        self.system(at, node, "kernel", text)
        shown = datetime.fromtimestamp(at + self.offset[node], UTC)
        self.lines[f"nodes/{node}/dmesg"].append((at, f"[{shown:%a %b %e %H:%M:%S %Y}] {text}"))

    def switch(self, at: float, rack: Rack, switch: str, port: str, up: bool) -> None:
        stamp = datetime.fromtimestamp(at, UTC)
        state = "up" if up else "down"
        if rack.switch_form == "eos":
            text = f"{stamp:%b %e %H:%M:%S} {switch} Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface {port}, changed state to {state}"
        elif rack.switch_form == "sonic":
            text = f"{stamp:%b %e %H:%M:%S}.{stamp.microsecond:06d} {switch} NOTICE swss#orchagent: :- updatePortOperStatus: Port {port} oper state set from {'down to up' if up else 'up to down'}"
        else:
            reported = (
                "%ETHPORT-5-IF_UP: Interface {} is up in mode trunk"
                if up
                else "%ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface {} is down (Link failure)"
            )
            text = f"{stamp:%b %e %H:%M:%S} {switch} : {stamp:%Y %b %e %H:%M:%S}.{stamp.microsecond // 1000:03d} UTC: {reported.format(port)}"
        self.lines[f"switches/{switch}/syslog"].append((at, text))

    def port(self, node: str, rail: int | None) -> tuple[str, str]:
        """(switch, port) of a node's cable; ``rail`` None is the management network."""
        rack = self.rack_of[node]
        place = rack.nodes.index(node) + 1
        name = {"eos": "Ethernet{}", "sonic": "Ethernet{}", "nxos": "Ethernet1/{}"}[rack.switch_form]
        if rail is None:
            return rack.tor, name.format(place * (4 if rack.switch_form == "sonic" else 1))
        leaf = rack.leaves[rail]
        own = place if rack.fabric == "planes" else place * 4 + rail
        return leaf, name.format(own * (4 if rack.switch_form == "sonic" else 1))

    # -- jobs ---------------------------------------------------------------------------------------------------------
    def schedule(self) -> None:
        """Jobs one after the other on every rack's nodes; a job is within one rack."""
        r = self.random
        for rack in self.racks:
            free = dict.fromkeys(rack.nodes, BEGIN + r.uniform(60, 600))
            while min(free.values()) < BEGIN + HOURS * 3600 - 1800:
                count = min(len(rack.nodes), r.choice((1, 1, 2, 2, 3, 4, 6)))
                nodes = sorted(free, key=lambda n: free[n])[:count]
                start = max(free[n] for n in nodes) + r.uniform(5, 200)
                end = start + r.uniform(900, 5400)
                for node in nodes:
                    free[node] = end
                job = Job(self.next_id, sorted(nodes), start, end, r.choice(("train", "eval", "sweep", "md", "cfd")), r.choice(("ana", "bo", "cy", "dee", "eli")),
                          limit_s=int((end - start) // 60 + r.randrange(20, 300)) * 60, ib_timeout=r.choice((18, 20, 20, 22)), gpus=8 if count > 1 else r.choice((1, 4, 8)))  # fmt: skip
                if r.random() < 0.12:
                    job.array = (self.next_id - 3, r.randrange(1, 9))
                self.jobs.append(job)
                self.next_id += r.randrange(1, 6)

    def runs_on(self, node: str, at: float) -> Job | None:
        return next((j for j in self.jobs if node in j.nodes and j.start <= at < j.end), None)

    def lifecycle(self, job: Job) -> None:
        """What Slurm logs for every job: submission, start, end."""
        r = self.random
        if not job.attempt:
            self.ctl(
                job.start - r.uniform(1, 900),
                f"_slurm_rpc_submit_batch_job: {job.pj} InitPrio={r.randrange(1000, 4_000_000)} usec={r.randrange(300, 3000)}",
            )
        how = (
            "sched: Allocate {} NodeList={} #CPUs={} Partition=gpu"
            if r.random() < 0.7
            else "sched/backfill: _start_job: Started {0} in gpu on {1}"
        )
        self.ctl(job.start, how.format(job.pj, fold(job.nodes), 64 * len(job.nodes)))
        self.slurmd(job.start + r.uniform(0.2, 0.8), job.nodes[0], f"Launching batch job {job.id} for UID 1234")
        for node in job.nodes:
            self.slurmd(
                job.start + r.uniform(1, 1.6),
                node,
                f"launch task StepId={job.id}.0 request from UID:1234 GID:1234 HOST:10.1.0.1 PORT:{r.randrange(30000, 60000)}",
            )
        code = job.exit[0] if not job.exit[1] else 128 + job.exit[1]
        if job.state in ("COMPLETED", "FAILED"):
            self.ctl(job.end - 0.02, f"_job_complete: {job.pj} WEXITSTATUS {code}")
            self.ctl(job.end - 0.01, f"_job_complete: {job.pj} done")
        if job.state == "OUT_OF_MEMORY":
            self.ctl(job.end - 0.02, f"_job_complete: {job.pj} OOM failure")
            self.ctl(job.end - 0.01, f"_job_complete: {job.pj} done")
        for node in job.nodes:
            self.slurmd(job.end + r.uniform(0.1, 2), node, f"[{job.id}.0] done with job")

    def output(self, job: Job) -> None:
        r = self.random
        pace, at, step = r.uniform(0.4, 3.0), job.start + 20.0, 0
        folder = f"jobs/{job.id}" + (f"/restart-{job.attempt}" if job.attempt else "")
        offset = self.offset[job.nodes[0]]
        # All ranks wait for a dead one.
        end = min([job.end, *(since for node, since, _ in self.dead if node in job.nodes and job.start < since)])
        while at < end - 5:
            shown = pace * (r.uniform(2.0, 3.0) if job.slow_from is not None and at >= job.slow_from else 1.0)
            step += int(90 / shown)
            stamp = datetime.fromtimestamp(at + offset, UTC).strftime("%Y-%m-%d %H:%M:%S")
            self.lines[f"{folder}/stdout"].append(
                (at, f"[{stamp}] step {step} loss {r.uniform(1, 9):.3f} iter_time {shown * r.uniform(0.97, 1.03):.3f}s")
            )
            at += 90.0
        if job.state == "COMPLETED":
            self.lines[f"{folder}/stdout"].append((job.end, "finished."))
        self.lines[f"{folder}/stderr"] = [(job.end, line) for line in job.err]

    def noise(self) -> None:
        """Lines that every day's logs are full of."""
        r = self.random
        for node in self.nodes:
            for _ in range(int(HOURS * 17)):
                at = BEGIN + r.uniform(0, (HOURS + 2) * 3600)
                program, text = r.choice((
                    ("sshd", "Accepted publickey for ana from 10.9.0.4 port 40022 ssh2: ED25519 SHA256:abc"), ("CRON", "(root) CMD (run-parts /etc/cron.hourly)"),
                    ("systemd", "Starting Daily apt download activities..."), ("dhclient", "DHCPACK of 10.1.0.9 from 10.1.255.1"),
                    ("kernel", "audit: type=1400 audit(1.2:3): apparmor=\"STATUS\" operation=\"profile_replace\""), ("nhc", "Node Health Check passed"),
                    ("chronyd", "Selected source 10.1.255.2"),
                ))  # fmt: skip
                self.system(at, node, program, text, 6)

    # -- writing ------------------------------------------------------------------------------------------------------
    def write(self, folder: Path, drop: set[str], loss: float, doubled: float) -> None:
        """Writes files under ``folder``; those whose path begins with one of ``drop`` were not collected.

        A share of the daemons' lines is lost or duplicated. Lines are in the order in which they were written, not
        quite sorted.
        """
        r = self.random
        for node, since, until in self.dead:
            for name, stated in self.lines.items():
                if name.startswith(f"nodes/{node}/"):
                    stated[:] = [(at, text) for at, text in stated if not since < at < until]
        files = {
            name: [text for _, text in sorted((at + r.uniform(0, 0.4), text) for at, text in stated)]
            for name, stated in self.lines.items()
            if not name.startswith("jobs/")
        }
        files |= {name: [text for _, text in stated] for name, stated in self.lines.items() if name.startswith("jobs/")}
        for name, lines in files.items():
            if not name.startswith("jobs/"):
                files[name] = [
                    x
                    for line in lines
                    if r.random() >= loss
                    for x in ([line, line] if r.random() < doubled else [line])
                ]
        files |= {
            "accounting/sacct.txt": self._sacct(),
            "slurm.conf": self._conf(),
            "inventory/links.csv": self._links(),
            "topology.conf": self._topology(),
        }
        for job in self.jobs:
            of_run = f"jobs/{job.id}" + (f"/restart-{job.attempt}" if job.attempt else "")
            files[f"{of_run}/env"] = [f"SLURM_JOB_ID={job.id}", f"SLURM_JOB_NODELIST={fold(job.nodes)}", f"NCCL_IB_TIMEOUT={job.ib_timeout}",
                                           *(["NCCL_NET_PLUGIN=mrc", "NCCL_MRC_PLANES=4"] if self.rack_of[job.nodes[0]].fabric == "planes" else [])]  # fmt: skip
        for name, lines in files.items():
            if not any(name.startswith(gone) or name.endswith(gone) for gone in drop):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(f"{line}\n" for line in lines))

    def _sacct(self) -> list[str]:
        def shown(at: float) -> str:
            return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%S")

        lines = [
            "JobID|JobIDRaw|JobName|User|Partition|State|ExitCode|Submit|Start|End|TimelimitRaw|NNodes|NodeList|AllocTRES|WorkDir"
        ]
        for job in sorted(self.jobs, key=lambda j: j.id):
            lines.append("|".join((
                job.key.split("#")[0], str(job.id), job.name, job.user, "gpu", job.state, f"{job.exit[0]}:{job.exit[1]}", shown(job.start - 1), shown(job.start), shown(job.end),
                str(job.limit_s // 60), str(len(job.nodes)), fold(job.nodes), f"cpu={64 * len(job.nodes)},gres/gpu={job.gpus * len(job.nodes)}", f"/lustre/work/{job.user}",
            )))  # fmt: skip
        return lines

    def _conf(self) -> list[str]:
        return ["ClusterName=made", *self.conf, f"SlurmdTimeout={self.timeout}", f"MessageTimeout={self.message_timeout}", "KillWait=30", "ReturnToService=1",
                f"NodeName={fold(self.nodes)} CPUs=64 Gres=gpu:8", f"PartitionName=gpu Nodes={fold(self.nodes)} Default=YES"]  # fmt: skip

    def _links(self) -> list[str]:
        rows = ["node,nic,switch,port"]
        for node in self.nodes:
            for rail in (None, 0, 1, 2, 3):
                switch, port = self.port(node, rail)
                rows.append(f"{node},{'eth0' if rail is None else self.rack_of[node].rails[rail]},{switch},{port}")
        return rows

    def _topology(self) -> list[str]:
        return [f"SwitchName={rack.tor} Nodes={fold(list(rack.nodes))}" for rack in self.racks] + [
            f"SwitchName=core Switches={','.join(rack.tor for rack in self.racks)}"
        ]
