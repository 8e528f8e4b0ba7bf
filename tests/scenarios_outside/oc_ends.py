"""What Slurm's daemons and srun say when a run ends."""

from oc_core import End, Incident, Run, Sim
from oc_site import hostlist


def when(sim: Sim, t: float) -> str:
    """Slurm's time in notices."""
    return sim.site.stamp(t).strftime("%Y-%m-%dT%H:%M:%S")


def notice(sim: Sim, run: Run, cause: str = "") -> None:
    """The line of stars, in stderr and slurmd.log."""
    head, job = run.nodes[0], run.job
    tail = f"CANCELLED AT {when(sim, sim.now)}{cause} ***"
    run.err.append((sim.now + 0.05, f"slurmstepd: error: *** JOB {job.jid} ON {head.name} {tail}"))
    sim.log.slurm(head, sim.now + 0.05, f"[{job.jid}.batch] error: *** JOB {job.jid} ON {head.name} {tail}")
    if len(run.nodes) > 1 or sim.rng.random() < 0.5:
        run.err.append((sim.now + 0.02, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."))
        run.err.append((sim.now + 0.04, f"slurmstepd: error: *** STEP {job.jid}.0 ON {head.name} {tail}"))
        for node in run.nodes[:6]:
            sim.log.slurm(node, sim.now + 0.03, f"[{job.jid}.0] error: *** STEP {job.jid}.0 ON {node.name} {tail}")


def node_failure(sim: Sim, run: Run, end: End) -> None:
    """A run that slurmctld killed because of a node."""
    job, log = run.job, sim.log
    if job.requeue:
        log.ctl(sim.now, f"requeue job {job.label} due to failure of node {end.failed}")
        log.ctl(sim.now + sim.rng.uniform(2, 9), f"Requeuing {job.label}")
    else:
        log.ctl(sim.now, f"Killing {job.label} on failed node {end.failed}")
    tail = f"CANCELLED AT {when(sim, sim.now)} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
    for node in run.nodes:
        if node.name != end.failed and node.up:
            log.slurm(node, sim.now + 0.04, f"[{job.jid}.0] error: *** STEP {job.jid}.0 ON {node.name} {tail}")
    if run.nodes[0].name != end.failed:
        run.err.append((sim.now, f"srun: error: Node failure on {end.failed}"))
        run.err.append((sim.now + 0.05, f"slurmstepd: error: *** STEP {job.jid}.0 ON {run.nodes[0].name} {tail}"))
        run.err.append((sim.now + 0.07, f"slurmstepd: error: *** JOB {job.jid} ON {run.nodes[0].name} {tail}"))


def say_end(sim: Sim, run: Run, end: End) -> None:
    """Lines of the end in every log that carries them."""
    job, log, now = run.job, sim.log, sim.now
    if end.state in ("COMPLETED", "FAILED", "OUT_OF_MEMORY"):
        exit_code, signal = (int(x) for x in end.code.split(":"))
        if end.state == "OUT_OF_MEMORY":
            log.ctl(now, f"_job_complete: {job.label} OOM failure")
        elif signal:
            log.ctl(now, f"_job_complete: {job.label} WTERMSIG {signal}")
        else:
            log.ctl(now, f"_job_complete: {job.label} WEXITSTATUS {exit_code}")
        log.ctl(now + 0.001, f"_job_complete: {job.label} done")
    elif end.state == "TIMEOUT":
        log.ctl(now - 0.2, f"Time limit exhausted for {job.label}")
        notice(sim, run, " DUE TO TIME LIMIT")
    elif end.state == "CANCELLED":
        log.ctl(now - 0.1, f"_slurm_rpc_kill_job: REQUEST_KILL_JOB {job.label} uid {end.by}")
        notice(sim, run)
        log.ctl(now + 0.6, f"_job_complete: {job.label} WTERMSIG 15")
        log.ctl(now + 0.602, f"_job_complete: {job.label} done")
    elif end.state == "PREEMPTED":
        notice(sim, run, " DUE TO PREEMPTION")
    elif end.state == "REQUEUED":
        notice(sim, run, " DUE TO JOB REQUEUE")
    elif end.state == "NODE_FAIL":
        node_failure(sim, run, end)
    for node in run.nodes:
        if node.up and node.name != end.failed:
            log.slurm(node, now + sim.rng.uniform(0.2, 0.9), f"[{job.jid}.0] done with job")
    if run.nodes[0].up and run.nodes[0].name != end.failed:
        log.slurm(run.nodes[0], now + 1.0, f"[{job.jid}.batch] done with job")


def lose_nodes(
    sim: Sim,
    names: list[str],
    inc: Incident,
    wait: tuple[float, float] | None = None,
    back: float = 1800.0,
    category: str = "",
) -> None:
    """slurmctld gives up nodes that stopped to answer now; their runs end NODE_FAIL then."""
    rng, timeout = sim.rng, sim.site.timeout
    low, high = wait or (1.05 * timeout, 1.45 * timeout)
    delay = rng.uniform(low, high)
    for name in names:
        sim.nodes[name].cut = True
    victims = [r for r in sim.runs if r.live and set(names) & set(r.held)]
    for run in victims:
        run.doomed = True
        run.stall = run.stall or sim.now
    if rng.random() < 0.5 and delay > 70:
        sim.log.ctl(sim.now + delay * 0.45, f"error: Nodes {hostlist(names)} not responding")

    def give_up() -> None:
        for run in victims:
            bad = next(n for n in names if n in run.held)
            for name in names:
                sim.nodes[name].up = False
            sim.finish(run, End("NODE_FAIL", category or inc["category"], "1:0", "NodeDown", inc, failed=bad))
        for run in [r for r in sim.runs if r.start and not r.end and set(names) & set(r.held)]:
            bad = next(n for n in names if n in run.held)
            sim.finish(run, End("NODE_FAIL", category or inc["category"], "1:0", "NodeDown", inc, failed=bad))
        for name in names:
            sim.down(sim.nodes[name], back)
            inc["nodes_down"].append(name)
        sim.log.ctl(sim.now + 0.003, f"error: Nodes {hostlist(names)} not responding, setting DOWN")

    sim.at(sim.now + delay, give_up)


def returned(sim: Sim, name: str, t: float) -> None:
    """A node that registers again after it was DOWN."""
    sim.log.ctl(t, f"Node {name} now responding")
    sim.log.ctl(t + 0.001, f"node {name} returned to service")


def rebooted(sim: Sim, name: str, t: float) -> None:
    """What a boot leaves in the node's logs and at slurmctld."""
    node, site, log = sim.nodes[name], sim.site, sim.log
    boot = t
    node.boots.append(boot)
    log.kern(
        node,
        boot,
        f"Linux version {site.kernel} (mockbuild@build) (gcc version 11.4.1) #1 SMP PREEMPT_DYNAMIC",
        "notice",
    )
    log.kern(
        node,
        boot + 0.1,
        f"Command line: BOOT_IMAGE=/vmlinuz-{site.kernel} root=UUID=1f6c ro iommu=pt crashkernel=512M",
        "info",
    )
    log.kern(
        node,
        boot + 9.4,
        f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {site.driver}  Release Build",
        "info",
    )
    log.daemon(node, boot + 31, "systemd", "Started Slurm node daemon.", pid=1)
    log.slurm(node, boot + 31.4, f"slurmd version {site.slurm} started")
    log.slurm(node, boot + 31.5, f"slurmd started on {site.stamp(boot + 31.5).strftime('%a, %d %b %Y %H:%M:%S %z')}")
    log.slurm(
        node,
        boot + 31.6,
        f"CPUs=96 Boards=1 Sockets=2 Cores=48 Threads=1 Memory=1031534 TmpDisk=1800000 Uptime={31} CPUSpecList=(null) FeaturesAvail=(null) FeaturesActive=(null)",
    )
