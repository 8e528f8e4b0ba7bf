"""Breaks a simulated cluster in realistic ways, beside misleading coincidences, and records what was broken.

python benchmarks/simulators/scenario.py SEED FOLDER      writes FOLDER/logs and FOLDER/truth.json
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.simulators.cluster import BEGIN, HOURS, Job, Rack
from benchmarks.simulators.faults import LINK, LOST, RETRIES, Hardware

OWN_ERRORS = (
    ['Traceback (most recent call last):', '  File "/home/u/train.py", line 41, in <module>', "    main()", "KeyError: 'labels'"],
    ['Traceback (most recent call last):', '  File "/home/u/train.py", line 12, in main', "ModuleNotFoundError: No module named 'apex'"],
    ['Traceback (most recent call last):', '  File "/home/u/model.py", line 88, in forward', "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 256x10)"],
    ["AssertionError: loss is nan at step 4410"],
    ["RuntimeError: CUDA error: device-side assert triggered", "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."],
    ["FileNotFoundError: [Errno 2] No such file or directory: '/lustre/work/u/data/shard-00017.tar'"],
    ["OSError: [Errno 122] Disk quota exceeded: '/lustre/work/u/ckpt/last.pt'"],
    ["slurmstepd: error: execve(): /home/u/run.sh: Permission denied"],
    ["Fatal Python error: Segmentation fault", "Current thread 0x00007f1 (most recent call first):"],
)  # fmt: skip

#: Long lines, as their programs write them.
MMU_FAULT = (
    "NVRM: Xid (PCI:{pci}): {code}, pid={pid}, name=python3, Ch 00000008, intr 00000000. "
    "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2e_00000000"
)
OOM_KILL = (
    "Memory cgroup out of memory: Killed process {pid} (python3) total-vm:812345678kB, anon-rss:498123456kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:1234 pgtables:999kB oom_score_adj:0"
)
SLOW_REPLY = (
    "Lustre: 3412:0:(client.c:2289:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent 1/real 1] "
    "req@ffff9 x17/t0(0) o4->{target}-osc-ffff8f@10.3.0.5@o2ib:6/4 lens 488/448 e 0 to 1 dl 1 ref 2"
)
CONNECTION_LOST = (
    "Lustre: {target}-osc-ffff8f: Connection to {target} (at 10.3.0.5@o2ib) was lost; "
    "in progress operations using this service will wait for recovery to complete"
)


class Breaker(Hardware):
    """Chooses which fault happens to which job."""

    #: Are some nodes' clocks off by minutes?
    clocks_off = True

    # -- what users do and Slurm does on purpose ----------------------------------------------------------------------
    def own_error(self, job: Job, trap: str = "") -> None:
        job.err += [*self.random.choice(OWN_ERRORS), *self.srun(job, job.nodes[0])]
        if len(job.nodes) > 1 and self.random.random() < 0.5:
            job.err.append(
                f"{job.nodes[1]}:101:202 [0] NCCL WARN socketProgress: Connection closed by remote peer {job.nodes[0]}<50000>"
            )
        self.ends(job, "FAILED", "app.error", trap=trap)

    def own_crash(self, job: Job) -> None:
        """A wild pointer on the GPU: an Xid of the application, which no repair fixes."""
        node, r = job.nodes[0], self.random
        line = MMU_FAULT.format(pci=r.choice(self.c.pci[node]), code=r.choice((31, 13)), pid=r.randrange(2000, 90000))
        self.c.kernel(job.end - r.uniform(0.5, 4), node, line)
        job.err += ["RuntimeError: CUDA error: an illegal memory access was encountered", *self.srun(job, node)]
        self.ends(job, "FAILED", "app.error", trap="xid of the application")

    def oom(self, job: Job) -> None:
        r = self.random
        if r.random() < 0.5:
            node = r.choice(job.nodes)
            self.c.kernel(job.end - 1.5, node, OOM_KILL.format(pid=r.randrange(2000, 90000)))
            self.c.slurmd(
                job.end - 1.2,
                node,
                f"[{job.id}.0] error: Detected 1 oom_kill event in StepId={job.id}.0. Some of the step tasks have been OOM Killed.",
            )
            job.err += [
                f"slurmstepd: error: Detected 1 oom_kill event in StepId={job.id}.0. Some of the step tasks have been OOM Killed.",
                *self.srun(job, node, "Out Of Memory"),
            ]
            self.ends(job, "OUT_OF_MEMORY", "app.oom", trap="memory")
            job.exit = (0, 125)
        else:
            job.err += [
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB. GPU 3 has a total capacity of 79.10 GiB of which 3.21 GiB is free.",
                *self.srun(job, job.nodes[0]),
            ]
            self.ends(job, "FAILED", "app.oom")

    def time_limit(self, job: Job) -> None:
        job.limit_s = int((job.end - job.start) // 60) * 60
        self.c.ctl(job.end - 0.5, f"Time limit exhausted for {job.pj}")
        job.err.append(
            f"slurmstepd: error: *** JOB {job.id} ON {job.nodes[0]} CANCELLED AT {self._t(job.end)} DUE TO TIME LIMIT ***"
        )
        self.ends(job, "TIMEOUT", "app.timeout")

    def scancel(self, job: Job, trap: str = "") -> None:
        self.c.ctl(job.end - 0.3, f"_slurm_rpc_kill_job: REQUEST_KILL_JOB {job.pj} uid 1234")
        job.err.append(f"slurmstepd: error: *** JOB {job.id} ON {job.nodes[0]} CANCELLED AT {self._t(job.end)} ***")
        self.ends(job, "CANCELLED", "user.cancel", trap=trap)
        job.state = "CANCELLED by 1234"

    def preempted(self, job: Job) -> None:
        self.c.ctl(job.end - 0.2, f"preempted {job.pj} has been killed to reclaim resources for JobId={job.id + 4000}")
        job.err.append(
            f"slurmstepd: error: *** JOB {job.id} ON {job.nodes[0]} CANCELLED AT {self._t(job.end)} DUE TO PREEMPTION ***"
        )
        self.ends(job, "PREEMPTED", "sched.preempt")

    def nobody_knows(self, job: Job) -> None:
        """Peers are lost, although nothing of the cluster was broken."""
        job.err += [RETRIES.format(host=job.nodes[0], gpu=0, hca="mlx5_3"), *self.srun(job, job.nodes[0])]
        self.ends(job, "FAILED", "unknown", trap="network words only")

    # -- traps: something louder beside an innocent end -----------------------------------------------------------------
    def trap(self, job: Job) -> None:
        """The job ends by its own doing, and something unrelated happens on its nodes."""
        node = self.random.choice(job.nodes)
        near = job.end - self.random.uniform(2, 50)
        kind = self.random.choice(tuple(TRAPS))
        TRAPS[kind](self, job, node, near)
        self.scancel(job, kind) if kind == "scancel" else self.own_error(job, kind)

    def _flap(self, job: Job, node: str, near: float) -> None:
        rail = self.random.randrange(4)
        self.link(node, rail, near, near + self.random.uniform(0.5, min(2.5, job.end - near + 1)))
        self._benign_flap(node, near, near + 2, self.c.rack_of[node].rails[rail])

    def _management_flap(self, job: Job, node: str, near: float) -> None:
        self.link(node, None, near, near + self.random.uniform(1, 14))
        self._benign_flap(node, near, near + 9, "eth0")

    def _benign_flap(self, node: str, begin: float, end: float, device: str) -> None:
        self.incident("short flap", "infra.network", LINK, node, begin, end, device=device, severity="benign")

    def _remapped_row(self, job: Job, node: str, near: float) -> None:
        self._xid(near, node, self.random.choice(self.c.pci[node]), 63,
                  "Row Remapper: New row marked for remapping, reset gpu to activate.")  # fmt: skip

    def _other_gpu(self, job: Job, node: str, near: float) -> None:
        """A GPU is lost on an idle node."""
        idle = [n for n in self.c.nodes if n not in job.nodes and self.c.runs_on(n, near) is None]
        other = self.random.choice(idle or [""])
        if not other:
            return
        pci = self.c.pci[other][0]
        self._xid(near, other, pci, 79, "GPU has fallen off the bus.")
        self.incident("idle xid79", "infra.gpu", LOST, other, near, near, device=pci.split(":")[1], severity="benign")

    def _xid(self, at: float, node: str, pci: str, code: int, text: str) -> None:
        self.c.kernel(at, node, f"NVRM: Xid (PCI:{pci}): {code}, pid='<unknown>', name=<unknown>, {text}")

    def _corrected(self, job: Job, node: str, near: float) -> None:
        text = "PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
        self.c.kernel(near, node, f"nvidia {self.c.pci[node][1]}.0: {text}")

    def _flap_after(self, job: Job, node: str, near: float) -> None:
        self.link(node, self.random.randrange(4), job.end + self.random.uniform(8, 60), job.end + 200, 3)

    def _edac(self, job: Job, node: str, near: float) -> None:
        place = "CPU_SrcID#0_MC#3_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1 offset:0x0 grain:32 syndrome:0x0)"
        self.c.kernel(near, node, f"EDAC MC3: 1 CE memory read error on {place}")

    # -- faults of many ---------------------------------------------------------------------------------------------------
    def _cut_short(self, rack: Rack, at: float, late: Callable[[], float], nodes: list[str]) -> list[Job]:
        """Jobs that a fault at ``at`` ends.

        Those that would end meanwhile end before it; those that would begin do not.
        """
        hit: list[Job] = []
        for job in list(self.c.jobs):
            if not set(job.nodes) & set(nodes) or job.id in self.touched:
                continue
            if job.start < at - 120 and job.end > at:
                job.end = at + late()
                hit.append(job)
            elif at - 120 <= job.start <= at + 3 * self.c.timeout + 900:
                self.c.jobs.remove(job)
        return hit

    def rack_switch(self, rack: Rack) -> None:
        at = BEGIN + self.random.uniform(0.3, 0.8) * HOURS * 3600
        delay = self.down_delay()
        jobs = self._cut_short(rack, at, lambda: delay, list(rack.nodes))
        back = at + delay + self.random.uniform(60, 300)
        for node in rack.nodes:
            self.link(
                node,
                None,
                at + self.random.uniform(0, 1.5),
                back + self.random.uniform(0, 5),
                self.random.choice((1, 3, 3)),
            )
        reported = self.incident(
            "rack_switch",
            "infra.network",
            ["switch_failure"],
            rack.tor,
            at,
            back,
            hosts=list(rack.nodes),
            switch=rack.tor,
        )
        for job in jobs:
            self.set_down(job, job.nodes, back=back + 4.0)
            self.ends(job, "NODE_FAIL", "infra.network", reported)
        if not jobs:
            reported["severity"] = "degraded"

    def storage(self) -> None:
        r = self.random
        at = BEGIN + r.uniform(0.2, 0.8) * HOURS * 3600
        target = f"work-OST{r.randrange(24):04x}"
        nodes = [n for n in self.c.nodes if r.random() < 0.9]
        until = at + r.uniform(200, 700)
        for node in nodes:
            self.c.kernel(at + r.uniform(1, 40), node, SLOW_REPLY.format(target=target))
            self.c.kernel(at + r.uniform(40, 60), node, CONNECTION_LOST.format(target=target))
            self.c.kernel(
                until + r.uniform(0, 20),
                node,
                f"Lustre: {target}-osc-ffff8f: Connection restored to 10.3.0.5@o2ib (at 10.3.0.5@o2ib)",
            )
        reported = self.incident(
            "storage",
            "infra.storage",
            ["lustre_ost_outage"],
            "oss-05",
            at,
            until,
            device=target,
            hosts=nodes,
            severity="degraded",
        )
        for job in [
            j
            for j in self.c.jobs
            if j.start < at - 300 and j.end > at + 60 and j.id not in self.touched and set(j.nodes) <= set(nodes)
        ]:
            if r.random() > 0.35:
                continue
            job.end = at + r.uniform(110, 190)
            for node in job.nodes:
                self.c.kernel(
                    job.end - r.uniform(3, 8),
                    node,
                    f"LustreError: 167-0: {target}-osc-ffff8f: This client was evicted by {target}; in progress operations using this service will fail.",
                )
            job.err += [
                f"OSError: [Errno 5] Input/output error: '/lustre/work/{job.user}/ckpt/{job.id}.pt'",
                *self.srun(job, job.nodes[0]),
            ]
            reported["severity"] = "impact"
            self.ends(job, "FAILED", "infra.storage", reported)

    def controller_restarts(self) -> None:
        at = BEGIN + self.random.uniform(0.2, 0.9) * HOURS * 3600
        self.c.ctl(at, "Terminate signal (SIGINT or SIGTERM) received")
        self.c.ctl(at + 12, f"slurmctld version {self.c.version} started on cluster made")
        for job in self.c.jobs:
            if job.start < at < job.end:
                self.c.ctl(at + 12.5, f"Recovered {job.pj} Assoc=4")

    # -- all together -----------------------------------------------------------------------------------------------------
    def break_things(self) -> None:
        r = self.random
        for node in self.c.nodes:  # some clocks are far off; chrony does not run there
            if r.random() < 0.08:
                off = r.choice((-1, 1)) * r.uniform(15, 240)
                self.c.offset[node] = off if self.clocks_off else self.c.offset[node]
        self.c.noise()
        if r.random() < 0.7:
            self.storage()
        if r.random() < 0.6:
            self.rack_switch(r.choice(self.c.racks))
        if r.random() < 0.5:
            self.controller_restarts()
        single = [(self.management_link, 3, 1), (self.fabric_link, 4, 2), (self.gpu, 6, 1), (self.bus, 1, 1), (self.panic, 3, 1), (self.slurmd_dies, 1, 1),
                  (self.munge_dies, 1, 1), (self.admin_sets_down, 1, 1), (self.local_disk, 1, 1), (self.prolog, 1, 1), (self.own_error, 10, 1), (self.own_crash, 2, 1),
                  (self.oom, 4, 1), (self.time_limit, 4, 1), (self.scancel, 4, 1), (self.preempted, 3, 1), (self.nobody_knows, 2, 2), (self.trap, 10, 1)]  # fmt: skip
        for job in sorted(self.c.jobs, key=lambda j: r.random()):
            if job.id in self.touched or r.random() > 0.55:
                continue
            long_enough = job.end - job.start > 1.7 * self.c.timeout + 720
            fit = [(f, w) for f, w, least in single if len(job.nodes) >= least and (long_enough or f not in (self.management_link, self.panic, self.slurmd_dies, self.munge_dies, self.fabric_link))
                   and not (f == self.fabric_link and self.c.rack_of[job.nodes[0]].fabric == "planes")]  # fmt: skip
            r.choices([f for f, _ in fit], [w for _, w in fit])[0](job)
        for job in self.c.jobs:
            self.c.lifecycle(job)
            self.c.output(job)

    def truth(self, seed: int) -> dict[str, Any]:
        return {
            "seed": seed,
            "incidents": self.incidents,
            "verdicts": self.verdicts,
            "lemons": self.lemons,
            "jobs_total": len(self.c.jobs),
        }


#: What happens beside an innocent end, by its name in the truth; a cancelled job has a flap beside it.
TRAPS: dict[str, Callable[[Breaker, Job, str, float], None]] = {
    "flap": Breaker._flap, "management flap": Breaker._management_flap, "xid 63": Breaker._remapped_row,
    "other GPU": Breaker._other_gpu, "corrected": Breaker._corrected, "after": Breaker._flap_after,
    "edac": Breaker._edac, "scancel": Breaker._flap,
}  # fmt: skip

#: What was not collected, at random: of the whole site, and of single nodes.
MISSING = ("inventory", "topology.conf", "slurm.conf", "/env", "switches", "accounting")


def make(seed: int, folder: Path, *, clocks_off: bool = True) -> dict[str, Any]:
    """Writes ``folder/logs`` and ``folder/truth.json``; returns the truth.

    Without ``clocks_off`` all clocks are correct.
    """
    made = Breaker(seed)
    made.clocks_off = clocks_off
    made.break_things()
    r = random.Random(seed + 5)
    drop = {name for name in MISSING if r.random() < 0.12}
    drop |= {f"nodes/{n}/" for n in made.c.nodes if r.random() < 0.04}
    made.c.write(folder / "logs", drop, r.choice((0.0, 0.0, 0.01, 0.02)), r.choice((0.0, 0.01)))
    truth = made.truth(seed)
    truth["missing"] = sorted(drop)
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))
    return truth


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    make(int(sys.argv[1]), Path(sys.argv[2]))
