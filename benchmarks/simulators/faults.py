"""Hardware and daemons that break under a job of a simulated cluster, and the truth about them.

The truth is written when a fault is made, in the form of the scenarios' ``score.py``. The logs of a fault follow real
lines and delays, not what the correlator searches for.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.simulators.cluster import BUDGET_S, Cluster, Job
from parsers.hostlist import fold

LINK = ["nic_link_flap", "nic_link_down"]
ECC = ["gpu_xid_48", "gpu_xid_94", "gpu_xid_95", "gpu_xid_63", "gpu_xid_140", "gpu_ecc"]
LOST = ["gpu_xid_79", "gpu_lost", "gpu_fallen_off_bus"]

#: Long lines, as their programs write them.
ICE_UP = (
    "ice 0000:81:00.0 eth0: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC, Negotiated FEC: RS-FEC, "
    "Autoneg Advertised: On, Autoneg Negotiated: True, Flow Control: None"
)
WATCHDOG = (
    "[rank{rank}]:[E0414 {clock}.123456789 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=55123, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600040 milliseconds before timing out."
)
RETRIES = (
    "{host}:52111:52444 [{gpu}] NCCL WARN NET/IB: Got completion from peer 10.2.0.7<41000> with status=IBV_WC_RETRY_EXC_ERR(12) "
    "opcode=IBV_WC_SEND(0) vendor_err=129 (Send) localGid fe80::1 hca {hca}"
)
PANIC = (
    "BUG: unable to handle page fault for address: ffff8f3c00000018",
    "CPU: 12 PID: 4411 Comm: kworker/12:1 Tainted: P OE 6.8.0-45-generic #45",
    "Kernel panic - not syncing: Fatal exception",
)


class Hardware:
    """The truth so far, and what breaks under a job: links, GPUs, machines, daemons, disks.

    Each fault is placed at the job's planned end.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed * 7919 + 1)
        self.c = Cluster(seed)
        self.c.schedule()
        self.incidents: list[dict[str, Any]] = []
        self.verdicts: dict[str, dict[str, Any]] = {}
        self.touched: set[int] = set()
        self.lemons: list[str] = []

    # -- truth --------------------------------------------------------------------------------------------------------
    def incident(self, kind: str, category: str, accept: list[str], host: str, start: float, end: float, *, device: str | None = None, severity: str = "impact",
                 hosts: list[str] | None = None, switch: str | None = None) -> dict[str, Any]:  # fmt: skip
        reported = {"id": f"T{len(self.incidents) + 1:03d}", "kind": kind, "severity": severity, "category": category, "switch": switch,
                "root_cause": {"event_type": accept[0], "accept": accept, "host": host, "device": device}, "start": start, "end": end,
                "hosts": hosts or [host], "jobs": [], "jobs_slowed": [], "jobs_not_affected": []}  # fmt: skip
        self.incidents.append(reported)
        return reported

    def ends(
        self,
        job: Job,
        state: str,
        category: str,
        incident: dict[str, Any] | None = None,
        *,
        code: int = 1,
        signal: int = 0,
        trap: str = "",
    ) -> None:
        job.state, job.exit = state, (code if state == "FAILED" and not signal else 0, signal)
        self.touched.add(job.id)
        self.verdicts[job.key] = {"job_id": job.id, "run": 0, "state": state, "category": category, "end": job.end, "trap": bool(trap), "kind": trap,
                                  "incident": incident["id"] if incident else None}  # fmt: skip
        if incident:
            incident["jobs"].append(job.key)
            incident["end"] = max(incident["end"], job.end)

    def srun(self, job: Job, node: str, how: str = "Exited with exit code 1") -> list[str]:
        return [
            f"srun: error: {node}: task {job.nodes.index(node) * job.gpus}: {how}",
            f"srun: Terminating StepId={job.id}.0",
        ]

    # -- links --------------------------------------------------------------------------------------------------------
    def link(self, node: str, rail: int | None, at: float, until: float, ends: int = 3) -> None:
        """Carrier lost and regained, as the driver and the switch log it.

        ``ends`` 1: the node only, 2: the switch only.
        """
        rack = self.c.rack_of[node]
        if ends & 1:
            if rail is None:
                down, up = {"bnxt_en": ("bnxt_en 0000:81:00.0 eth0: NIC Link is Down", "bnxt_en 0000:81:00.0 eth0: NIC Link is Up, 100000 Mbps full duplex, Flow control: none"),
                            "ice": ("ice 0000:81:00.0 eth0: NIC Link is Down", ICE_UP),
                            "ixgbe": ("ixgbe 0000:81:00.0 eth0: NIC Link is Down", "ixgbe 0000:81:00.0 eth0: NIC Link is Up 10 Gbps, Flow Control: RX/TX"),
                            "mlx5": ("mlx5_core 0000:81:00.0 eth0: Link down", "mlx5_core 0000:81:00.0 eth0: Link up")}[rack.driver]  # fmt: skip
            else:
                bdf, name = f"0000:{0x1A + 16 * rail:02x}:00.0", rack.rails[rail]
                ib = rack.fabric == "ib"
                down = f"mlx5_core {bdf} {name}: " + ("Port: 1 Link DOWN" if ib else "Link down")
                up = f"mlx5_core {bdf} {name}: " + ("Port: 1 Link ACTIVE" if ib else "Link up")
            self.c.kernel(at, node, down)
            self.c.kernel(until, node, up)
        if ends & 2 and not (rail is not None and rack.fabric == "ib"):  # an InfiniBand switch has no log of its own
            switch, port = self.c.port(node, rail)
            self.c.switch(at + self.random.uniform(-0.05, 0.3), rack, switch, port, False)
            self.c.switch(until + self.random.uniform(0, 0.4), rack, switch, port, True)

    def down_delay(self) -> float:
        """From the loss of a node to slurmctld's DOWN: measured 1.35 to 1.6 times SlurmdTimeout."""
        return self.c.timeout * self.random.uniform(1.35, 1.62) + self.c.message_timeout * self.random.uniform(0, 0.3)

    def set_down(self, job: Job, nodes: list[str], *, back: float | None = None) -> None:
        """slurmctld gives nodes up; the job ends in that transaction."""
        at, first = job.end, nodes[0]
        requeue = self.random.random() < 0.3
        self.c.ctl(
            at - 0.001,
            f"requeue job {job.pj} due to failure of node {first}"
            if requeue
            else f"Killing {job.pj} on failed node {first}",
        )
        self.c.ctl(at, f"error: Nodes {fold(nodes)} not responding, setting DOWN")
        for node in job.nodes:
            if node not in nodes:
                stamp = self._t(at)
                self.c.slurmd(
                    at + 0.05,
                    node,
                    f"[{job.id}.0] error: *** STEP {job.id}.0 ON {node} CANCELLED AT {stamp} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
                )
        job.err += [
            f"slurmstepd: error: *** JOB {job.id} ON {job.nodes[0]} CANCELLED AT {self._t(at)} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            f"srun: error: Node failure on {first}",
        ]
        if back is not None:
            for node in nodes:
                self.c.ctl(back, f"Node {node} now responding")
                self.c.ctl(back + 0.01, f"node {node} returned to service")

    @staticmethod
    def _t(at: float) -> str:
        from datetime import UTC, datetime

        return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%S")

    def back_by(self, job: Job, wanted: float) -> float:
        """When the job's nodes are back: before their next job begins."""
        later = [j.start for j in self.c.jobs if set(j.nodes) & set(job.nodes) and j.start >= job.end]
        return min([job.end + wanted, *(s - 2.0 for s in later)])

    # -- faults that end one job; each anchors itself at the job's planned end ----------------------------------------
    def management_link(self, job: Job) -> None:
        node, at = self.random.choice(job.nodes), job.end - self.down_delay()
        back = self.back_by(job, self.random.uniform(20, 400))
        self.link(node, None, at, back, self.random.choice((1, 2, 3, 3)))
        reported = self.incident("management_link", "infra.network", LINK, node, at, back, device="eth0", switch=None)
        self.set_down(job, [node], back=back)
        self.ends(job, "NODE_FAIL", "infra.network", reported)

    def fabric_link(self, job: Job) -> None:
        node, rail = self.random.choice(job.nodes), self.random.randrange(4)
        rack = self.c.rack_of[node]
        budget = BUDGET_S[job.ib_timeout]
        watchdog = self.random.random() < 0.3
        late = (
            600.0 + self.random.uniform(0, 8)
            if watchdog
            else budget * self.random.uniform(1.0, 2.5) + self.random.uniform(0.5, 6)
        )
        at = job.end - late - 3
        until = job.end + self.random.uniform(5, 300)
        self.link(node, rail, at, until, self.random.choice((1, 3, 3)))
        peer = next(n for n in job.nodes if n != node)
        if watchdog:
            job.err += [WATCHDOG.format(rank=k, clock=self._t(job.end - 3)[11:]) for k in (0, 9)]
            job.err += [
                "terminate called after throwing an instance of 'c10::DistBackendError'",
                *self.srun(job, peer, "Aborted (core dumped)"),
            ]
        else:
            hca = rack.rails[rail] if rack.fabric == "ib" else f"mlx5_{rail}"
            job.err += [RETRIES.format(host=peer, gpu=2 * rail, hca=hca),
                        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error", *self.srun(job, peer)]  # fmt: skip
        reported = self.incident("fabric_link", "infra.network", LINK, node, at, until, device=rack.rails[rail])
        self.ends(job, "FAILED", "infra.network", reported, code=134 if watchdog else 1)

    def gpu(self, job: Job) -> None:
        node, r = self.random.choice(job.nodes), self.random
        pci, code = r.choice(self.c.pci[node]), r.choice((79, 79, 48, 94, 95, 119))
        hang = code == 119 and len(job.nodes) > 1
        at = job.end - (600.0 + r.uniform(2, 20) if hang else r.uniform(1, 25))
        who = f"pid={r.randrange(2000, 90000)}, name=python3, "
        text = {79: f"{who}GPU has fallen off the bus.", 48: f"{who}DBE (double bit error) ECC Error", 94: f"{who}Contained: DRAM (0x1,0x1). RST: No, D-RST: No",
                95: f"{who}Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", 119: f"{who}Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76"}[code]  # fmt: skip
        self.c.kernel(at, node, f"NVRM: Xid (PCI:{pci}): {code}, {text}")
        if code in (48, 94):
            self.c.kernel(
                at + r.uniform(0.2, 3),
                node,
                f"NVRM: Xid (PCI:{pci}): 63, {who}Row Remapper: New row (0x00000000001d3f80) marked for remapping, reset gpu to activate.",
            )
        if hang:
            job.err += [WATCHDOG.format(rank=1, clock=self._t(job.end - 1)[11:])]
        elif code in (48, 94, 95):
            job.err += ["RuntimeError: CUDA error: uncorrectable ECC error encountered"]
        elif r.random() < 0.6:
            job.err += ["RuntimeError: CUDA error: unspecified launch failure"]
        job.err += self.srun(job, node)
        for other in job.nodes:
            if other != node and r.random() < 0.5:
                job.err.append(
                    f"{other}:101:202 [0] NCCL WARN socketProgress: Connection closed by remote peer {node}<50000>"
                )
        kind = {79: LOST, 119: ["gpu_xid_119", "gpu_xid_120"]}.get(code, ECC)
        reported = self.incident(f"xid{code}", "infra.gpu", kind, node, at, job.end, device=pci.split(":")[1])
        if r.random() < 0.4:
            self.c.ctl(
                job.end + r.uniform(1, 200),
                f"update_node: node {node} reason set to: NHC: check_nvsmi_healthmon: GPU {pci}.0 unhealthy",
            )
            self.c.ctl(job.end + 201, f"update_node: node {node} state set to DRAINED")
        self.ends(job, "FAILED", "infra.gpu", reported)

    def bus(self, job: Job) -> None:
        node, r = self.random.choice(job.nodes), self.random
        pci, at = r.choice(self.c.pci[node]), job.end - r.uniform(100, 500)
        for _ in range(r.randrange(6, 20)):
            bridge = f"pcieport {pci[:7]}00:01.0: AER: Corrected error message received from {pci}.0"
            own = f"nvidia {pci}.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
            self.c.kernel(at + r.uniform(0, job.end - at - 12), node, bridge if r.random() < 0.3 else own)
        self.c.kernel(
            job.end - 8,
            node,
            f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        )
        job.err += ["RuntimeError: CUDA error: unspecified launch failure", *self.srun(job, node)]
        reported = self.incident("bus", "infra.gpu", ["pcie_aer", *LOST], node, at, job.end, device=pci.split(":")[1])
        self.ends(job, "FAILED", "infra.gpu", reported)

    def panic(self, job: Job) -> None:
        node, at = self.random.choice(job.nodes), job.end - self.down_delay()
        silent = self.random.random() < 0.4
        if not silent:
            for i, text in enumerate(PANIC):
                self.c.kernel(at + 0.01 * i, node, text)
        back = max(self.back_by(job, self.random.uniform(60, 500)), job.end + 1.0)
        self._dead(node, at, back)
        self._boots(node, back - 15)
        self.c.ctl(
            back - 0.5,
            f"validate_node_specs: Node {node} unexpectedly rebooted boot_time={int(back - 42)} last response={int(at - self.random.uniform(0, self.c.timeout / 3))}",
        )
        kind = (
            ["node_unresponsive", "node_reboot", "node_power", "node_down", "kernel_panic"]
            if silent
            else ["kernel_panic", "node_panic", "node_reboot"]
        )
        reported = self.incident("power" if silent else "panic", "infra.node", kind, node, at, back)
        self.set_down(job, [node], back=back)
        self.ends(job, "NODE_FAIL", "infra.node", reported)

    def _dead(self, node: str, at: float, until: float) -> None:
        """A dead machine writes nothing, and its links are down at the switch."""
        self.c.dead.append((node, at + 0.5, until - 15.5))
        self.link(node, None, at + 0.2, until - 10, 2)

    def _boots(self, node: str, at: float) -> None:
        self.c.system(at, node, "kernel", "Linux version 6.8.0-45-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-13)")
        self.c.slurmd(at + 11, node, f"slurmd version {self.c.version} started")
        self.c.slurmd(
            at + 11.3,
            node,
            "CPUs=64 Boards=1 Sockets=2 Cores=32 Threads=1 Memory=1031000 TmpDisk=900000 Uptime=38 CPUSpecList=(null) FeaturesAvail=(null) FeaturesActive=(null)",
        )

    def slurmd_dies(self, job: Job) -> None:
        node, at = self.random.choice(job.nodes), job.end - self.down_delay()
        back = self.back_by(job, self.random.uniform(60, 500))
        self.c.kernel(
            at,
            node,
            "slurmd[3311]: segfault at 18 ip 000055d0c8a7b2f1 sp 00007ffd5b1f3a20 error 4 in slurmd[55d0c8a40000+9d000]",
        )
        self.c.system(at + 0.2, node, "systemd", "slurmd.service: Main process exited, code=dumped, status=11/SEGV", 27)
        self.c.system(at + 0.21, node, "systemd", "slurmd.service: Failed with result 'core-dump'.", 27)
        self.c.slurmd(back - 1, node, f"slurmd version {self.c.version} started")
        reported = self.incident("slurmd_dies", "infra.scheduler", ["slurmd_crash"], node, at, back)
        self.set_down(job, [node], back=back)
        self.ends(job, "NODE_FAIL", "infra.scheduler", reported)

    def munge_dies(self, job: Job) -> None:
        node, at = self.random.choice(job.nodes), job.end - self.down_delay()
        back = self.back_by(job, self.random.uniform(60, 500))
        self.c.system(at, node, "systemd", "munge.service: Main process exited, code=killed, status=9/KILL", 29)
        self.c.system(at + 0.1, node, "systemd", "munge.service: Failed with result 'signal'.", 29)
        for step in (0.3, 0.7):
            self.c.ctl(
                at + (job.end - at) * step,
                f"error: slurm_receive_msgs: [[{node}]:6818] failed: Socket timed out on send/recv operation",
            )
        reported = self.incident("munge_dies", "infra.node", ["munge_failure", "node_unresponsive"], node, at, back)
        self.set_down(job, [node], back=back)
        self.ends(job, "NODE_FAIL", "infra.node", reported)

    def admin_sets_down(self, job: Job) -> None:
        node = self.random.choice(job.nodes)
        self.c.ctl(job.end - 0.02, f"update_node: node {node} reason set to: replace psu2")
        self.c.ctl(job.end - 0.01, f"Killing {job.pj} on failed node {node}")
        self.c.ctl(job.end, f"update_node: node {node} state set to DOWN")
        back = self.back_by(job, 900)
        self.c.ctl(back, f"update_node: node {node} state set to IDLE")
        job.err.append(f"srun: error: Node failure on {node}")
        reported = self.incident("admin_sets_down", "infra.scheduler", ["admin_action"], node, job.end, back)
        self.ends(job, "NODE_FAIL", "infra.scheduler", reported)

    def local_disk(self, job: Job) -> None:
        node, r = self.random.choice(job.nodes), self.random
        at = job.end - r.uniform(3, 40)
        self.c.kernel(at, node, "nvme nvme1: I/O 214 QID 7 timeout, aborting")
        self.c.kernel(
            at + 0.6,
            node,
            "blk_update_request: I/O error, dev nvme1n1, sector 774401 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0",
        )
        self.c.kernel(at + 0.7, node, "EXT4-fs (nvme1n1): Remounting filesystem read-only")
        job.err += (
            [f"OSError: [Errno 30] Read-only file system: '/local/{job.id}/cache.bin'"] if r.random() < 0.7 else []
        )
        job.err += self.srun(job, node, "Exited with exit code 1" if job.err else "Killed")
        reported = self.incident(
            "local_disk",
            "infra.node",
            ["local_disk_error", "nvme_error", "filesystem_error"],
            node,
            at,
            job.end,
            device="nvme1",
        )
        self.ends(job, "FAILED", "infra.node", reported)

    def prolog(self, job: Job) -> None:
        node = self.random.choice(job.nodes)
        job.end = job.start + self.random.uniform(2, 6)
        self.c.slurmd(job.start + 1.5, node, f"error: [job {job.id}] prolog failed status=1:0")
        self.c.ctl(
            job.start + 1.6,
            f"error: validate_node_specs: Prolog or job env setup failure on node {node}, draining the node",
        )
        self.c.ctl(job.start + 1.61, f"drain_nodes: node {node} state set to DRAIN")
        if self.random.random() < 0.5:
            self.c.slurmd(job.end, node, f"Could not launch job {job.id} and not able to requeue it, cancelling job")
        back = self.back_by(job, 1200)
        self.c.ctl(back, f"update_node: node {node} state set to IDLE")
        reported = self.incident("prolog", "infra.scheduler", ["prolog_failure"], node, job.start, job.end)
        self.ends(job, "CANCELLED", "infra.scheduler", reported)
        job.state = "CANCELLED by 0"
