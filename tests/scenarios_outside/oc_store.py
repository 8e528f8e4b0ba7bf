"""Root events of shared storage, and of those who run Slurm."""

from oc_collective import abort
from oc_core import End, Incident, Run, Sim
from oc_ends import rebooted
from oc_gpu import drain
from oc_host import busy
from oc_noise import silence
from oc_own import folder, new_job
from oc_site import Node

OUTAGE = ("lustre_ost_outage", "storage_outage", "storage_lustre_error", "storage_nfs_error", "nfs_outage")


def lustre_words(sim: Sim, target: str, server: int, t: float, seconds: float, clients: list[Node]) -> None:
    """What clients and the server say about a target that went away and came back."""
    rng, log, fs = sim.rng, sim.log, sim.site.fsname
    nid = f"10.9.0.{20 + server}@{'o2ib' if sim.site.fabric == 'ib' else 'tcp'}"
    name = sim.site.servers[server]
    log.server(
        name, t - 2, "LustreError: 9011:0:(ldlm_lib.c:2886:target_stop_recovery_thread()) aborting recovery", "err"
    )
    log.server(
        name,
        t - 1,
        f"LDISKFS-fs error (device dm-{server}): ldiskfs_lookup:1817: inode #{rng.randint(1000, 90000)}: comm ll_ost_io00_01{rng.randint(1, 9)}: deleted inode referenced",
        "crit",
    )
    log.server(
        name,
        t + seconds - 20,
        f"Lustre: {fs}-{target}: Recovery over after 1:{rng.randint(10, 59)}, of {len(clients)} clients {len(clients)} recovered and 0 were evicted.",
        "notice",
    )
    for node in clients:
        lag = rng.uniform(0, 45)
        log.kern(
            node,
            t + lag,
            f"Lustre: {rng.randint(2000, 9000)}:0:(client.c:2308:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent {int(t)}/real "
            f"{int(t)}]  req@00000000{rng.randint(0, 0xFFFFFFFF):08x} x17{rng.randint(10**12, 9 * 10**12)}/t0(0) "
            f"o4->{fs}-{target}-osc-ffff{rng.randint(0, 0xFFFFFFFF):08x}@{nid}:6/4 lens 4584/448 e 0 to 1 dl {int(t) + 45} ref 2 fl Rpc:X/0/ffffffff rc 0/-1 job:''",
            "warning",
        )
        log.kern(
            node,
            t + lag + 0.01,
            f"Lustre: {fs}-{target}-osc-ffff{rng.randint(0, 0xFFFFFFFF):08x}: Connection to {fs}-{target} (at {nid}) was lost; in progress operations using this "
            f"service will wait for recovery to complete",
            "warning",
        )
        log.kern(
            node,
            t + seconds + rng.uniform(0, 25),
            f"Lustre: {fs}-{target}-osc-ffff{rng.randint(0, 0xFFFFFFFF):08x}: Connection restored to {nid} (at {nid})",
            "notice",
        )


def nfs_words(sim: Sim, server: int, t: float, seconds: float, clients: list[Node], soft: bool) -> None:
    """The same for a filer; soft mounts give up, hard ones wait."""
    name = sim.site.servers[server]
    for node in clients:
        lag = sim.rng.uniform(60, 75)
        sim.log.kern(
            node, t + lag, f"nfs: server {name} not responding, {'timed out' if soft else 'still trying'}", "err"
        )
        if seconds > lag:
            sim.log.kern(node, t + seconds + sim.rng.uniform(0, 6), f"nfs: server {name} OK", "notice")


def eviction(sim: Sim, run: Run, target: str, t: float) -> None:
    """A client that recovery left behind."""
    for node in run.nodes[:2]:
        text = f"LustreError: 167-0: {target}-osc-ffff{sim.rng.randint(0, 0xFFFFFFFF):08x}: This client was evicted by {target}; in progress operations using this service will fail."
        sim.log.kern(node, t, text, "err")


def storage_outage(sim: Sim) -> bool:
    """A server is away for many minutes: some jobs get errors, some hang past it, the rest wait and go on."""
    runs = sim.running()
    if len(runs) < 4:
        return False
    rng, site, t = sim.rng, sim.site, sim.now
    server, seconds, soft = rng.randrange(4), rng.uniform(420, 1100), rng.random() < 0.5
    clients = [n for n in site.nodes if n.up]
    target = f"OST{rng.randint(0, 15):04x}" if site.storage == "lustre" else site.servers[server]
    device = f"{site.fsname}-{target}" if site.storage == "lustre" else site.servers[server]
    inc = sim.incident(
        "storage_server_outage",
        "infra.storage",
        OUTAGE,
        site.servers[server],
        device,
        hosts=[site.servers[server], *[n.name for n in clients]],
        needle=target,
        where=f"nodes/{next(n.name for n in clients if not n.lost)}",
    )
    if site.storage == "lustre":
        lustre_words(sim, target, server, t, seconds, clients)
    else:
        nfs_words(sim, server, t, seconds, clients, soft)
    for run in rng.sample(runs, max(1, len(runs) // 4)):
        path = f"{folder(sim, run.job)}/ckpt/step_{rng.randint(1, 99)}000.pt"
        if run.job.kind == "train" and len(run.nodes) > 1 and rng.random() < 0.5 and site.torch_timeout < seconds:
            abort(
                sim,
                run,
                inc,
                0,
                site.torch_timeout + rng.uniform(1, 9),
                site.torch_timeout + rng.uniform(12, 60),
                "watchdog",
            )
        else:
            wait = rng.uniform(100, 400)
            run.stall = t
            if site.storage == "nfs" and not soft:
                lines = ["RuntimeError: DataLoader timed out after 300 seconds"]
                wait = rng.uniform(305, 400)
            else:
                lines = [
                    f"OSError: [Errno {rng.choice(('5] Input/output error', '110] Connection timed out'))}: '{path}'"
                ]
            if site.storage == "lustre":
                eviction(sim, run, device, t + wait - 3)
            later(sim, run, inc, wait, lines)
    inc["end"] = t + seconds
    return True


def later(sim: Sim, run: Run, inc: Incident, wait: float, lines: list[str]) -> None:
    """Dooms a run now, its own error comes at the end of the wait."""
    run.doomed = True

    def fail() -> None:
        abort(sim, run, inc, 0, 2, 5, "closed", local=lines)

    sim.at(sim.now + wait, fail)


def storage_blink(sim: Sim) -> bool:
    """The server hesitates for a minute or two, all goes on."""
    rng, site, t = sim.rng, sim.site, sim.now
    server, seconds = rng.randrange(4), rng.uniform(70, 110)
    clients = rng.sample([n for n in site.nodes if n.up], min(12, len(site.nodes)))
    witness = next((n.name for n in clients if not n.lost), "")
    target = f"OST{rng.randint(0, 15):04x}" if site.storage == "lustre" else site.servers[server]
    inc = sim.incident(
        "storage_blink",
        "infra.storage",
        OUTAGE,
        site.servers[server],
        target,
        "benign",
        hosts=[site.servers[server], *[n.name for n in clients]],
        needle=target,
        where=f"nodes/{witness}",
    )
    if site.storage == "lustre":
        for node in clients:
            nid = f"10.9.0.{20 + server}@{'o2ib' if site.fabric == 'ib' else 'tcp'}"
            sim.log.kern(
                node,
                t + rng.uniform(0, 5),
                f"Lustre: {site.fsname}-{target}-osc-ffff{rng.randint(0, 0xFFFFFFFF):08x}: Connection to {site.fsname}-{target} (at {nid}) was lost; in progress "
                f"operations using this service will wait for recovery to complete",
                "warning",
            )
            sim.log.kern(
                node,
                t + seconds + rng.uniform(0, 5),
                f"Lustre: {site.fsname}-{target}-osc-ffff{rng.randint(0, 0xFFFFFFFF):08x}: Connection restored to {nid} (at {nid})",
                "notice",
            )
    else:
        for node in clients:
            sim.log.kern(
                node, t + rng.uniform(60, 65), f"nfs: server {site.servers[server]} not responding, still trying", "err"
            )
            sim.log.kern(node, t + seconds + rng.uniform(0, 4), f"nfs: server {site.servers[server]} OK", "notice")
    inc["end"] = t + seconds
    return True


def evicted(sim: Sim) -> bool:
    """One Lustre client is evicted, or one NFS mount goes stale: that node's job loses its files."""
    runs = sim.running(("train", "single", "mpi"))
    if not runs:
        return False
    rng, site = sim.rng, sim.site
    run = rng.choice(runs)
    place = rng.randrange(len(run.nodes))
    node, t = run.nodes[place], sim.now
    path = f"{folder(sim, run.job)}/data/part-{rng.randint(0, 999):05d}.parquet"
    if site.storage == "lustre":
        target = f"{site.fsname}-MDT0000"
        net = "o2ib" if site.fabric == "ib" else "tcp"
        inc = sim.incident(
            "client_evicted",
            "infra.storage",
            (*OUTAGE, "lustre_eviction"),
            node.name,
            target,
            needle="was evicted by",
            where=f"nodes/{node.name}",
        )
        sim.log.kern(
            node,
            t,
            f"LustreError: 167-0: {target}-mdc-ffff{rng.randint(0, 0xFFFFFFFF):08x}: This client was evicted by {target}; in progress operations using this service will fail.",
            "err",
        )
        sim.log.kern(
            node,
            t + 0.3,
            f"LustreError: {rng.randint(2000, 90000)}:0:(file.c:5040:ll_inode_revalidate_fini()) {site.fsname}: revalidate FID [0x2000{rng.randint(4096, 65535):x}:0x1:0x0] error: rc = -5",
            "err",
        )
        sim.log.kern(
            node,
            t + 1.5,
            f"Lustre: {target}-mdc-ffff{rng.randint(0, 0xFFFFFFFF):08x}: Connection restored to 10.9.0.10@{net} (at 10.9.0.10@{net})",
            "notice",
        )
        line = f"OSError: [Errno {rng.choice(('108] Cannot send after transport endpoint shutdown', '5] Input/output error'))}: '{path}'"
    else:
        inc = sim.incident(
            "nfs_mount_lost",
            "infra.storage",
            OUTAGE,
            node.name,
            site.servers[0],
            needle="NFS",
            where=f"nodes/{node.name}",
        )
        sim.log.kern(node, t, f"NFS: server {site.servers[0]} error: fileid changed", "err")
        sim.log.kern(node, t + 0.2, "NFS: __nfs4_reclaim_open_state: Lock reclaim failed!", "err")
        line = f"OSError: [Errno {rng.choice(('116] Stale file handle', '5] Input/output error'))}: '{path}'"
    abort(sim, run, inc, place, rng.uniform(3, 20), rng.uniform(6, 40), "closed", local=[line])
    return True


def prolog(sim: Sim) -> bool:
    """The prolog fails on a node: a job is requeued and held, or cancelled by Slurm; the node is drained."""
    nodes = [n for n in sim.site.nodes if n.up and not n.cut and not n.drained and len(n.free) >= 1]
    if not nodes:
        return False
    node, rng = sim.rng.choice(nodes), sim.rng
    job = new_job(sim, "single", partition=node.kind, gpus=1, qos="normal", plan="ok")
    run = sim.submit(job)
    inc = sim.incident(
        "prolog_failed",
        "infra.scheduler",
        ("prolog_failure", "prolog_failed"),
        node.name,
        None,
        needle="prolog failed",
        where=f"nodes/{node.name}/slurmd.log",
    )
    sim.begin(run, [node], launch=False)
    run.doomed, run.stall = True, run.start - 1
    sim.log.slurm(node, sim.now + 4, f"error: prolog failed: rc:1 output:gpu count {rng.randint(4, 7)}, want 8")
    sim.log.slurm(node, sim.now + 4.01, f"error: [job {job.jid}] prolog failed status=1:0")
    sim.log.ctl(sim.now + 4.1, f"error: Prolog launch failure, JobId={job.jid}")
    sim.log.ctl(
        sim.now + 4.11,
        f"error: validate_node_specs: Prolog or job env setup failure on node {node.name}, draining the node",
    )
    sim.log.ctl(sim.now + 4.12, f"drain_nodes: node {node.name} state set to DRAIN")
    drain(sim, node, sim.now + 4.15, "Prolog error", 4000)

    def end() -> None:
        sim.finish(run, End("CANCELLED", "infra.scheduler", "0:0", "None", inc, by=0))

    sim.at(sim.now + 4.3, end)
    return True


def epilog(sim: Sim) -> bool:
    """The epilog fails after a good job: only the node suffers."""
    runs = sim.running(("single", "array", "notebook"))
    if not runs:
        return False
    run = sim.rng.choice(runs)
    node, t = run.nodes[0], sim.now
    sim.incident(
        "epilog_failed",
        "infra.scheduler",
        ("epilog_failure",),
        node.name,
        None,
        "benign",
        needle="epilog error",
        where="controller/slurmctld.log",
    )
    sim.finish(run, End("COMPLETED", ""))
    sim.log.slurm(node, t + 2, "error: epilog failed: rc:2 output:cleanup of /dev/shm failed")
    sim.log.slurm(node, t + 2.01, f"error: [job {run.job.jid}] epilog failed status=2:0")
    sim.log.ctl(t + 2.1, f"error: job_epilog_complete: {run.job.label} epilog error on {node.name}, draining the node")
    drain(sim, node, t + 2.2, "Epilog error", 3000)
    return True


def admin_down(sim: Sim) -> bool:
    """scontrol update state=down on a node with jobs."""
    node = busy(sim)
    if not node:
        return False
    reason = sim.rng.choice(("swap DIMM B2, ticket 4471", "vendor on site", "move to rack 12", "RMA gpu 3"))
    inc = sim.incident(
        "admin_sets_down",
        "infra.scheduler",
        ("admin_action", "node_admin_down", "maintenance"),
        node.name,
        None,
        needle=f"{node.name} state set to DOWN",
        where="controller/slurmctld.log",
    )
    sim.log.ctl(sim.now - 0.01, f"update_node: node {node.name} reason set to: {reason}")
    sim.log.ctl(sim.now, f"update_node: node {node.name} state set to DOWN")
    for run in sim.on(node):
        sim.finish(run, End("NODE_FAIL", "infra.scheduler", "1:0", "NodeDown", inc, failed=node.name))
    sim.down(node, 3600)
    inc["nodes_down"].append(node.name)
    return True


def preemption(sim: Sim) -> bool:
    """A job of a high QOS takes the nodes of a low one."""
    runs = [r for r in sim.running() if r.job.qos == "low"]
    if not runs:
        return False
    run = sim.rng.choice(runs)
    job = new_job(
        sim,
        run.job.kind if run.job.kind != "array" else "single",
        partition=run.job.partition,
        nnodes=run.job.nnodes,
        gpus=run.job.gpus,
        qos="high",
        plan="ok",
        requeue=False,
    )
    new = sim.submit(job)
    verb = "requeued" if run.job.requeue else "killed"
    sim.log.ctl(sim.now + 0.9, f"preempted {run.job.label} has been {verb} to reclaim resources for JobId={job.jid}")
    nodes = run.nodes
    sim.finish(run, End("PREEMPTED", "sched.preempt", "0:15", "None"))
    if all(len(n.free) >= job.gpus and n.up for n in nodes):
        sim.begin(new, nodes)
    return True


def ctld_restart(sim: Sim) -> bool:
    """slurmctld restarts or is reconfigured; jobs go on."""
    t, log = sim.now, sim.log
    sim.incident(
        "slurmctld_restart",
        "infra.scheduler",
        ("slurmctld_restart",),
        sim.site.controller,
        None,
        "benign",
        needle="slurmctld version",
        where="controller/slurmctld.log",
    )
    log.ctl(t - 9, "Terminate signal (SIGINT or SIGTERM) received")
    log.ctl(t - 8.9, "Saving all slurm state")
    log.ctl(t, f"slurmctld version {sim.site.slurm} started on cluster c{sim.site.seed}")
    for run in [r for r in sim.runs if r.live][:40]:
        log.ctl(t + 1, f"Recovered {run.job.label} Assoc={sim.rng.randint(10, 90)}")
    log.ctl(t + 2, f"Recovered information about {len(sim.queue)} jobs")
    return True


def planned_reboot(sim: Sim) -> bool:
    """scontrol reboot of idle nodes, or a drain for maintenance: nobody is hurt."""
    nodes = sim.idle()
    if not nodes:
        return False
    node, t, rng = sim.rng.choice(nodes), sim.now, sim.rng
    sim.incident(
        "planned_reboot",
        "infra.node",
        ("maintenance", "node_reboot", "admin_action"),
        node.name,
        None,
        "benign",
        needle="reboot",
        where="controller/slurmctld.log",
    )
    node.drained = True
    sim.log.ctl(t, f"reboot request from uid=0 for nodes {node.name}: kernel update")
    sim.log.ctl(t + 0.01, f"reboot request queued for nodes {node.name}")
    sim.log.ctl(t + 6, f"Queueing reboot request for nodes {node.name}")
    sim.log.slurm(node, t + 7, "Node reboot request being processed")
    sim.log.daemon(node, t + 9, "systemd-logind", "System is rebooting.", pid=1402)
    boot = t + rng.uniform(150, 260)
    silence(sim, node.name, t + 10, boot)
    rebooted(sim, node.name, boot)
    sim.log.ctl(boot + 34, f"Node {node.name} now responding")
    sim.log.ctl(boot + 34.01, f"node {node.name} returned to service")

    def back() -> None:
        node.drained = False
        sim.schedule()

    sim.at(boot + 40, back)
    return True


def maintenance(sim: Sim) -> bool:
    """A drain with a reason and a resume, over a running job that ends well."""
    node = busy(sim, 0.2)
    if not node:
        return False
    sim.incident(
        "maintenance_drain",
        "infra.node",
        ("maintenance", "admin_action"),
        node.name,
        None,
        "benign",
        needle=f"{node.name} state set to DRAIN",
        where="controller/slurmctld.log",
    )
    drain(
        sim,
        node,
        sim.now + 0.1,
        sim.rng.choice(("fan replacement planned", "BIOS update", "check cable port 3", "ticket 5120 ask Petra")),
        sim.rng.uniform(1800, 5000),
    )
    return True


def admin_requeue(sim: Sim) -> bool:
    """root requeues jobs off nodes that shall be serviced."""
    runs = [r for r in sim.running(("train",), 2) if r.job.requeue]
    if not runs:
        return False
    run = sim.rng.choice(runs)
    inc = sim.incident(
        "admin_requeue",
        "infra.scheduler",
        ("admin_action", "maintenance", "slurm_job_requeue"),
        run.nodes[0].name,
        None,
        "noeffect",
        needle="equeue",
        where="controller/slurmctld.log",
        hosts=[n.name for n in run.nodes],
    )
    sim.log.ctl(sim.now - 0.1, f"_slurm_rpc_requeue: Requeue of {run.job.label} by uid=0")
    sim.log.ctl(sim.now + 3, f"Requeuing {run.job.label}")
    sim.finish(
        run, End("REQUEUED", "infra.scheduler", "0:15", "None", inc, ambiguous=True, note="root's scontrol requeue")
    )
    return True


KINDS = {
    "storage_server_outage": (storage_outage, 1),
    "storage_blink": (storage_blink, 2),
    "client_evicted": (evicted, 2),
    "prolog_failed": (prolog, 2),
    "epilog_failed": (epilog, 2),
    "admin_sets_down": (admin_down, 2),
    "preemption": (preemption, 4),
    "slurmctld_restart": (ctld_restart, 1),
    "planned_reboot": (planned_reboot, 2),
    "maintenance_drain": (maintenance, 2),
    "admin_requeue": (admin_requeue, 1),
}
