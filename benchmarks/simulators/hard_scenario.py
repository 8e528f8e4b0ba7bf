"""A simulated cluster with harder faults.

Many failures at once, several planes, runs that restart, stragglers, faults that overlap, more clocks that are wrong
and more sources that are missing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.simulators.cluster import BEGIN, HOURS, Job, Rack
from benchmarks.simulators.faults import LINK
from benchmarks.simulators.scenario import Breaker

POWER = ["node_power", "node_reboot", "node_unresponsive", "node_down"]
HOT = "CPU{cpu}: Package temperature above threshold, cpu clock throttled (total events = {n})"

#: The share of simulated clusters in which the whole cluster is cut off without a line from a switch.
CONTROLLER_SHARE = 0.12


class HardBreaker(Breaker):
    """Like ``Breaker``, with the faults that ``scenario`` leaves out."""

    # -- several planes -----------------------------------------------------------------------------------------------
    def plane_port(self, job: Job) -> None:
        """One of four ports: a quarter of the bandwidth for a while, and no harm."""
        node, rail = self.random.choice(job.nodes), self.random.randrange(4)
        at = job.start + self.random.uniform(0.2, 0.6) * (job.end - job.start)
        until = min(at + self.random.uniform(30, 900), job.end - 20)
        self.link(node, rail, at, until)
        self._benign_flap(node, at, until, self.c.rack_of[node].rails[rail])
        self.touched.add(job.id)

    def nic_lost(self, job: Job) -> None:
        """All ports of a card within a second."""
        node, r = self.random.choice(job.nodes), self.random
        at = job.end - r.uniform(35, 70) * (1 if job.ib_timeout == 20 else 0.25 if job.ib_timeout == 18 else 4)
        for rail in range(4):
            self.link(node, rail, at + r.uniform(0, 0.8), job.end + 200 + rail)
        peer = next(n for n in job.nodes if n != node)
        job.err += [f"{peer}:52111:52444 [0] NCCL WARN NET/MRC: no path to peer 10.2.0.7<41000> left after retries: network error",
                    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error", *self.srun(job, peer)]  # fmt: skip
        reported = self.incident("nic_lost", "infra.network", LINK, node, at, job.end)
        self.ends(job, "FAILED", "infra.network", reported)

    def leaf(self, rack: Rack) -> None:
        """A leaf of the fabric: all rails of a rack, or one plane of it, which ends no run."""
        r = self.random
        at, plane = BEGIN + r.uniform(0.25, 0.75) * HOURS * 3600, r.randrange(4)
        rails = [plane] if rack.fabric == "planes" else list(range(4))
        jobs = (
            [] if rack.fabric == "planes" else self._cut_short(rack, at, lambda: r.uniform(125, 180), list(rack.nodes))
        )
        until = at + r.uniform(240, 900)
        ends = r.choice((1, 3, 3))
        for node in rack.nodes:
            for rail in rails:
                self.link(node, rail, at + r.uniform(0, 1.5), until + r.uniform(0, 5), ends)
        name = rack.leaves[plane]
        reported = self.incident(
            "leaf",
            "infra.network",
            ["switch_failure", "plane_failure"],
            name,
            at,
            until,
            hosts=list(rack.nodes),
            switch=name,
            severity="degraded",
        )
        for job in jobs:
            if len(job.nodes) == 1:
                self.touched.add(job.id)
                continue
            reported["severity"] = "impact"
            job.err += [
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error",
                *self.srun(job, job.nodes[0]),
            ]
            self.ends(job, "FAILED", "infra.network", reported)

    # -- many at once -------------------------------------------------------------------------------------------------
    def rack_power(self, rack: Rack) -> None:
        """A power feed of a rack: its machines are gone at one moment, and back minutes later."""
        r = self.random
        nodes = list(rack.nodes)[: r.choice((5, 6, len(rack.nodes)))]
        at, delay = BEGIN + r.uniform(0.3, 0.8) * HOURS * 3600, self.down_delay()
        jobs = self._cut_short(rack, at, lambda: delay, nodes)
        back = at + delay + r.uniform(200, 400)
        for node in nodes:
            if r.random() < 0.8:
                self.link(node, None, at + r.uniform(0, 0.4), back - 10, 2)
            up = back + r.uniform(0, 100)
            self.c.dead.append((node, at - 0.01, up - 0.5))
            self._boots(node, up)
            self.c.ctl(
                up + 14,
                f"validate_node_specs: Node {node} unexpectedly rebooted boot_time={int(up - 27)} last response={int(at - r.uniform(0, self.c.timeout / 3))}",
            )
        reported = self.incident(
            "rack_power",
            "infra.node",
            POWER,
            "",
            at,
            back + 100,
            hosts=nodes,
            severity="impact" if jobs else "degraded",
        )
        reported["root_cause"]["host"] = None
        for job in jobs:
            self.set_down(job, [n for n in job.nodes if n in nodes])
            self.ends(job, "NODE_FAIL", "infra.node", reported)

    def controller_link(self) -> None:
        """The controller receives no messages."""
        at, delay = BEGIN + 0.85 * HOURS * 3600, self.down_delay()
        jobs = self._cut_short(self.c.racks[0], at, lambda: delay, self.c.nodes)
        until = at + delay + 40
        form = "Apr 14 {} ctl01 kernel: [12345.678] ixgbe 0000:81:00.0 eth0: NIC Link is {}"
        self.c.lines["nodes/ctl01/messages"] += [
            (at, form.format(self._t(at)[11:], "Down")),
            (until, form.format(self._t(until)[11:], "Up 10 Gbps, Flow Control: RX/TX")),
        ]
        reported = self.incident(
            "controller_link", "infra.network", LINK, "ctl01", at, until, device="eth0", hosts=["ctl01"]
        )
        for job in jobs:
            self.set_down(job, list(job.nodes), back=until + self.random.uniform(5, 60))
            self.ends(job, "NODE_FAIL", "infra.network", reported)

    # -- one job ------------------------------------------------------------------------------------------------------
    def hot_straggler(self, job: Job) -> None:
        node, r = self.random.choice(job.nodes), self.random
        job.slow_from = job.start + r.uniform(0.3, 0.45) * (job.end - job.start)
        for n in range(8):
            self.c.kernel(
                job.slow_from + (job.end - job.slow_from) * n / 8 + r.uniform(0, 20),
                node,
                HOT.format(cpu=r.randrange(64), n=n * 411 + 7),
            )
        reported = self.incident(
            "hot_straggler", "infra.node", ["gpu_thermal", "node_thermal"], node, job.slow_from, job.end
        )
        self._limit(job)
        self.ends(job, "TIMEOUT", "infra.node", reported)

    def straggler(self, job: Job) -> None:
        """Slow to the end, and nothing collected shows why."""
        job.slow_from = job.start + self.random.uniform(0.3, 0.45) * (job.end - job.start)
        self._limit(job)
        self.ends(job, "TIMEOUT", "app.timeout", trap="straggler")

    def _limit(self, job: Job) -> None:
        job.limit_s = int((job.end - job.start) // 60) * 60
        self.c.ctl(job.end - 0.5, f"Time limit exhausted for {job.pj}")
        job.err.append(
            f"slurmstepd: error: *** JOB {job.id} ON {job.nodes[0]} CANCELLED AT {self._t(job.end)} DUE TO TIME LIMIT ***"
        )

    def quick_reboot(self, job: Job) -> None:
        """Back before slurmctld notices: detected when slurmd registers."""
        node, r = self.random.choice(job.nodes), self.random
        off = min(self.c.timeout * 0.6, r.uniform(45, 150))
        at = job.end - off
        self.c.dead.append((node, at, job.end - 12))
        self._boots(node, job.end - 11.8)
        self.c.ctl(
            job.end - 0.002,
            f"validate_node_specs: Node {node} unexpectedly rebooted boot_time={int(job.end - 38)} last response={int(at - 5)}",
        )
        self.c.ctl(job.end - 0.001, f"Killing {job.pj} on failed node {node}")
        job.err.append(f"srun: error: Node failure on {node}")
        self.c.ctl(self.back_by(job, 300), f"update_node: node {node} state set to IDLE")
        reported = self.incident(
            "quick_reboot",
            "infra.node",
            ["node_reboot", "node_power", "node_unresponsive", "kernel_panic"],
            node,
            at,
            job.end,
        )
        self.ends(job, "NODE_FAIL", "infra.node", reported)

    def requeued(self, job: Job) -> None:
        """The link of a node ends the first run; the second one is good, or fails by the program's own error."""
        r, end = self.random, job.end
        job.array = None
        first = job.start + 0.5 * (job.end - job.start)
        job.end = first
        node, at = r.choice(job.nodes), first - self.down_delay()
        back = first + r.uniform(5, 60)
        self.link(node, None, at, back - 3, 3)
        reported = self.incident("requeued", "infra.network", LINK, node, at, back, device="eth0")
        self.c.ctl(first - 0.001, f"requeue job {job.pj} due to failure of node {node}")
        self.c.ctl(first, f"error: Nodes {node} not responding, setting DOWN")
        self.c.ctl(back, f"node {node} returned to service")
        self.c.ctl(back + 1, f"error: Registered {job.pj} StepId={job.id}.extern in state NODE_FAIL on node {node}")
        job.err.append(f"srun: error: Node failure on {node}")
        self.ends(job, "NODE_FAIL", "infra.network", reported)
        again = Job(
            job.id,
            job.nodes,
            first + 131,
            end,
            job.name,
            job.user,
            limit_s=job.limit_s,
            ib_timeout=job.ib_timeout,
            gpus=job.gpus,
            attempt=1,
        )
        self.c.jobs.append(again)
        if r.random() < 0.5:
            self.own_error(again, "second run")

    def ends_as_link_goes(self, job: Job) -> None:
        """Its own error; a moment later its node's link is lost, and the node with it."""
        node = self.random.choice(job.nodes)
        at = job.end + self.random.uniform(0.1, 2)
        delay = self.down_delay()
        back = at + delay + 30
        later = [j for j in self.c.jobs if node in j.nodes and job.end < j.start < back + 60]
        if any(other.id in self.touched for other in later):
            return self.own_error(job)
        for other in later:
            self.c.jobs.remove(other)
            self.touched.add(other.id)
        self.link(node, None, at, back)
        self.c.ctl(at + delay, f"error: Nodes {node} not responding, setting DOWN")
        self.c.ctl(back + 5, f"node {node} returned to service")
        self.incident("lost after", "infra.network", LINK, node, at, back, device="eth0", severity="degraded")
        self.own_error(job, "link after the end")

    def kill_fails(self, job: Job) -> None:
        node = self.random.choice(job.nodes)
        self.scancel(job, "kill task failed")
        at = job.end + 62
        self.c.slurmd(
            at,
            node,
            f"error: *** STEP {job.id}.0 STEPD TERMINATED ON {node} AT {self._t(at)} DUE TO JOB NOT ENDING WITH SIGNALS ***",
        )
        self.c.ctl(at + 0.3, f"update_node: node {node} reason set to: Kill task failed")
        self.c.ctl(at + 0.3, f"update_node: node {node} state set to DRAINING")

    def survived(self, job: Job) -> None:
        """An NVLink error and a loss of the management link below SlurmdTimeout, and the run goes on."""
        node, r = self.random.choice(job.nodes), self.random
        at = job.start + 0.4 * (job.end - job.start)
        pci = r.choice(self.c.pci[node])
        self._xid(at, node, pci, 74, "NVLINK: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")
        self.incident(
            "xid74",
            "infra.gpu",
            ["gpu_xid_74", "nvlink_error"],
            node,
            at,
            at,
            device=pci.split(":")[1],
            severity="benign",
        )
        until = at + 60 + r.uniform(0.3, 0.6) * self.c.timeout
        self.link(node, None, at + 60, until)
        self._benign_flap(node, at + 60, until, "eth0")
        self.touched.add(job.id)

    def gpu_beside_flap(self, job: Job) -> None:
        """The conspicuous one is innocent: another node's fabric link flaps while a GPU fails."""
        other = self.random.choice(job.nodes)
        at = job.end - self.random.uniform(5, 40)
        rail = self.random.randrange(4)
        for k in range(3):
            self.link(other, rail, at + 6 * k, at + 6 * k + 1.5)
        self._benign_flap(other, at, at + 14, self.c.rack_of[other].rails[rail])
        self.gpu(job)

    def slurmd_stopped(self, job: Job) -> None:
        node, at = self.random.choice(job.nodes), job.end - self.down_delay()
        back = self.back_by(job, self.random.uniform(60, 500))
        self.c.system(at - 0.1, node, "systemd", "Stopping slurmd.service - Slurm node daemon...", 30)
        self.c.slurmd(at, node, "Slurmd shutdown completing")
        self.c.slurmd(back - 1, node, f"slurmd version {self.c.version} started")
        reported = self.incident("slurmd_stopped", "infra.scheduler", ["admin_action", "slurmd_crash"], node, at, back)
        self.set_down(job, [node], back=back)
        self.ends(job, "NODE_FAIL", "infra.scheduler", reported)

    def lemon(self) -> str | None:
        """One node whose GPU fails under three jobs of different users."""
        wanted = [
            n for n in self.c.nodes if len([j for j in self.c.jobs if n in j.nodes and j.id not in self.touched]) >= 4
        ]
        if not wanted:
            return None
        node = self.random.choice(wanted)
        jobs = [j for j in self.c.jobs if node in j.nodes and j.id not in self.touched][:4]
        nodes = {j.id: j.nodes for j in jobs}
        for job in jobs:
            job.nodes = [node]
            self.gpu(job)
            job.nodes = nodes[job.id]
        return node

    # -- all together -------------------------------------------------------------------------------------------------
    def break_things(self) -> None:
        r = self.random
        self.c.conf = ["SlurmctldHost=ctl01(10.1.0.1)"]
        for node in self.c.nodes:
            if r.random() < 0.25:
                self.c.offset[node] = r.choice((-1, 1)) * r.uniform(5, 280)
        self.c.noise()
        racks = list(self.c.racks)
        r.shuffle(racks)
        if r.random() < 0.6:
            self.storage()
        for rack, fault in zip(racks, r.sample((self.rack_switch, self.leaf, self.rack_power), 3), strict=False):
            if r.random() < 0.7:
                fault(rack)
        if r.random() < CONTROLLER_SHARE:
            self.controller_link()
        elif r.random() < 0.5:
            self.controller_restarts()
        self.lemons = [name] if r.random() < 0.4 and (name := self.lemon()) else []
        for job in sorted(self.c.jobs, key=lambda j: r.random()):
            if job.id not in self.touched and r.random() < 0.6:
                choices = self._fit(job)
                r.choices([f for f, _ in choices], [w for _, w in choices])[0](job)
        for job in self.c.jobs:
            self.c.lifecycle(job)
            self.c.output(job)

    def _fit(self, job: Job) -> list[tuple[Callable[[Job], None], int]]:
        """What may happen to this job, and how often."""
        planes = self.c.rack_of[job.nodes[0]].fabric == "planes"
        several = len(job.nodes) > 1
        found: list[tuple[Callable[[Job], None], int]] = [
            (self.gpu, 3), (self.bus, 1), (self.own_error, 8), (self.own_crash, 1), (self.oom, 2), (self.time_limit, 2), (self.scancel, 2),
            (self.preempted, 2), (self.trap, 8), (self.local_disk, 1), (self.prolog, 1), (self.admin_sets_down, 1), (self.survived, 3), (self.kill_fails, 1),
            (self.ends_as_link_goes, 2),
        ]  # fmt: skip
        if several:
            found += [(self.nobody_knows, 1), (self.gpu_beside_flap, 2)]
            found += [(self.plane_port, 4), (self.nic_lost, 2)] if planes else []
        if job.end - job.start > 2400:
            found += [(self.straggler, 2), (self.hot_straggler, 2), (self.quick_reboot, 1)]
        if job.end - job.start > 1.7 * self.c.timeout + 720:
            found += [
                (self.management_link, 2),
                (self.panic, 2),
                (self.slurmd_dies, 1),
                (self.slurmd_stopped, 1),
                (self.munge_dies, 1),
            ]
            found += [(self.fabric_link, 3)] if several and not planes else []
        if 0.5 * (job.end - job.start) > 1.7 * self.c.timeout + 720:
            found.append((self.requeued, 4))
        return found


#: What was not collected, at random: of the whole site, and of single nodes.
MISSING = {
    "inventory": 0.3,
    "topology.conf": 0.3,
    "slurm.conf": 0.2,
    "/env": 0.15,
    "switches": 0.25,
    "accounting": 0.12,
    "controller": 0.08,
}


def missing(seed: int, nodes: list[str]) -> set[str]:
    """Prefixes of paths that are missing."""
    r = random.Random(seed + 5)
    drop = {name for name, share in MISSING.items() if r.random() < share}
    if {"accounting", "controller"} <= drop:
        drop.discard("accounting")
    return drop | {f"nodes/{n}/" for n in nodes if r.random() < 0.06}


def make(seed: int, folder: Path) -> dict[str, Any]:
    """Writes ``folder/logs`` and ``folder/truth.json``; returns the truth."""
    made = HardBreaker(seed)
    made.break_things()
    r = random.Random(seed + 6)
    drop = missing(seed, made.c.nodes)
    made.c.write(folder / "logs", drop, r.choice((0.0, 0.01, 0.02)), r.choice((0.0, 0.01)))
    truth = made.truth(seed) | {"missing": sorted(drop)}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))
    return truth
