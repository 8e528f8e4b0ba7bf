"""Root events of the daemons that Slurm needs on a host, and of a wrong reboot."""

from oc_core import End, Run, Sim
from oc_ends import lose_nodes, rebooted, returned
from oc_gpu import drain
from oc_host import busy, registered_after_boot
from oc_noise import silence


def slurmd_dies(sim: Sim) -> bool:
    """slurmd crashes and nobody restarts it in time."""
    node = busy(sim)
    if not node:
        return False
    rng, t, log = sim.rng, sim.now, sim.log
    inc = sim.incident(
        "slurmd_crash",
        "infra.scheduler",
        ("slurmd_crash",),
        node.name,
        None,
        needle="slurmd.service",
        where=f"nodes/{node.name}",
    )
    if rng.random() < 0.5:
        log.kern(
            node,
            t - 0.5,
            f"slurmd[{rng.randint(2000, 9000)}]: segfault at 18 ip 00007f8b12c4d1f3 sp 00007f8b0c5fdc10 error 4 in libslurmfull.so[7f8b12b5f000+1b1000]",
            "info",
        )
    word = rng.choice(("code=dumped, status=11/SEGV", "code=killed, status=9/KILL"))
    log.daemon(node, t, "systemd", f"slurmd.service: Main process exited, {word}", "notice", 1)
    log.daemon(
        node,
        t + 0.1,
        "systemd",
        f"slurmd.service: Failed with result '{'core-dump' if 'SEGV' in word else 'signal'}'.",
        "warning",
        1,
    )
    lose_nodes(sim, [node.name], inc, back=2400)
    back = t + sim.site.timeout * 1.6 + rng.uniform(100, 900)
    log.daemon(node, back, "systemd", "Started Slurm node daemon.", pid=1)
    log.slurm(node, back + 0.2, f"slurmd version {sim.site.slurm} started")
    returned(sim, node.name, back + 2)
    return True


def munge(sim: Sim) -> bool:
    """munged dies, or a clock step of minutes makes every credential invalid."""
    node = busy(sim)
    if not node:
        return False
    t, log = sim.now, sim.log
    inc = sim.incident(
        "munge_dead",
        "infra.node",
        ("munge_failure", "munge_failed", "sys_service_failed"),
        node.name,
        None,
        needle="munge",
        where=f"nodes/{node.name}",
    )
    log.daemon(node, t, "systemd", "munge.service: Main process exited, code=killed, status=9/KILL", "notice", 1)
    log.daemon(node, t + 0.1, "systemd", "munge.service: Failed with result 'signal'.", "warning", 1)
    for n in range(4):
        log.slurm(node, t + 20 + n * 47, "error: If munged is up, restart with --num-threads=10")
        log.slurm(
            node,
            t + 20.01 + n * 47,
            'error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
        )
        log.slurm(
            node,
            t + 20.02 + n * 47,
            "error: slurm_send_node_msg: auth_g_create: RESPONSE_PING_SLURMD has authentication error: Invalid authentication credential",
        )
    for n in range(2):
        log.ctl(
            t + 40 + n * sim.site.timeout / 3,
            f"error: slurm_receive_msgs: [[{node.name}.{sim.site.domain}]:6818] failed: Zero Bytes were transmitted or received",
        )
    lose_nodes(sim, [node.name], inc, back=2400)
    return True


def own_reboot(sim: Sim) -> bool:
    """An administrator reboots the wrong host over ssh while jobs run on it."""
    node = busy(sim)
    if not node:
        return False
    rng, t, log = sim.rng, sim.now, sim.log
    inc = sim.incident(
        "wrong_host_rebooted",
        "infra.node",
        ("node_reboot", "admin_action", "maintenance"),
        node.name,
        None,
        needle="Rebooting",
        where=f"nodes/{node.name}",
    )
    log.daemon(
        node,
        t - 12,
        "sshd",
        f"Accepted publickey for root from 10.1.0.{rng.randint(4, 90)} port {rng.randint(33000, 60000)} ssh2: ED25519 SHA256:Q1l7",
        pid=rng.randint(2000, 90000),
    )
    log.daemon(node, t - 0.3, "systemd-logind", "The system will reboot now!", pid=1402)
    log.daemon(node, t - 0.2, "systemd-logind", "System is rebooting.", pid=1402)
    log.slurm(node, t + 1, "Slurmd shutdown completing")
    log.daemon(node, t + 4, "systemd-shutdown", "Rebooting.", pid=1)
    boot = t + rng.uniform(140, 230)
    silence(sim, node.name, t + 5, boot)
    rebooted(sim, node.name, boot)
    registered_after_boot(sim, node, boot + 33, boot)
    victims = sim.on(node)
    for run in victims:
        run.doomed, run.stall = True, t

        def kill(run: Run = run) -> None:
            sim.finish(run, End("NODE_FAIL", "infra.node", "1:0", "NodeDown", inc, failed=node.name))

        sim.at(boot + 33.001, kill)
    node.up = False
    sim.at(boot + 30, lambda: sim.down(node, 1500))
    inc["nodes_down"].append(node.name)
    return True


def stuck_kill(sim: Sim) -> bool:
    """A job past its limit leaves a process that will not die: the node is drained, the job was only too slow."""
    runs = sim.running(("single", "notebook", "array"))
    if not runs:
        return False
    run = sim.rng.choice(runs)
    node, job = run.nodes[0], run.job
    sim.incident(
        "kill_task_failed",
        "infra.scheduler",
        ("kill_task_failed",),
        node.name,
        None,
        "benign",
        needle="Kill task failed",
        where="controller/slurmctld.log",
    )
    sim.finish(run, End("CANCELLED", "user.cancel", "0:15", by=job.uid))
    t = sim.now
    book, step = sim.log.slurmd, f"[{job.jid}.0] done with job"
    book[node.name] = [x for x in book[node.name] if x.text != step]
    sim.log.slurm(
        node,
        t + 62,
        f"[{job.jid}.0] error: *** STEP {job.jid}.0 STEPD TERMINATED ON {node.name} AT {sim.site.stamp(t + 62).strftime('%Y-%m-%dT%H:%M:%S')} DUE TO JOB NOT ENDING WITH SIGNALS ***",
    )
    sim.log.ctl(t + 62.1, f"error: slurmd error running JobId={job.jid} on node(s)={node.name}: Kill task failed")
    drain(sim, node, t + 62.2, "Kill task failed", 2400)
    return True


KINDS = {
    "slurmd_crash": (slurmd_dies, 2),
    "munge_dead": (munge, 2),
    "wrong_host_rebooted": (own_reboot, 1),
    "kill_task_failed": (stuck_kill, 2),
}
