"""What logs are full of when nothing is wrong."""

from oc_core import Sim
from oc_gpu import drain
from oc_site import USERS
from oc_switch import port_line


def small_talk(sim: Sim) -> tuple[str, int, str]:
    """A program, its pid or 0, and a line of no interest."""
    rng = sim.rng
    peer = f"10.1.0.{rng.randint(2, 20)} port {rng.randint(30000, 60000)}"
    talk: tuple[tuple[str, int, tuple[str, ...]], ...] = (
        (
            "CRON",
            0,
            (
                "(root) CMD (/usr/lib/sysstat/sa1 1 1)",
                "(root) CMD (test -x /usr/sbin/anacron)",
                "(root) CMD (/opt/site/bin/push_facts)",
            ),
        ),
        (
            "sshd",
            0,
            (f"Connection closed by {peer} [preauth]", f"Accepted publickey for ops from {peer} ssh2: RSA SHA256:9xk"),
        ),
        (
            "chronyd",
            1010,
            ("Selected source 10.1.0.1 (ntp1)", f"System clock wrong by {rng.uniform(-1.4, 1.4):.6f} seconds"),
        ),
        (
            "systemd",
            1,
            (
                "Starting Daily man-db regeneration...",
                "logrotate.service: Succeeded.",
                "Started Session 4412 of user root.",
            ),
        ),
        ("nvidia-persistenced", 1822, ("device 0000:19:00.0 - registered",)),
        (
            "telegraf",
            2011,
            (
                "I! [agent] flush ok",
                "E! [inputs.nvidia_smi] Error in plugin: exit status 15: context deadline exceeded",
            ),
        ),
        (
            "kernel",
            0,
            (
                "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate to 79000",
                "TCP: request_sock_TCP: Possible SYN flooding on port 29500. Sending cookies.",
                "docker0: port 1(veth1a2b3c) entered disabled state",
            ),
        ),
        ("nhc", 0, ("Health check completed successfully (0s)",)),
        ("systemd-networkd", 733, ("docker0: Lost carrier", "lo: Configured", "docker0: Gained carrier")),
    )
    prog, pid, lines = rng.choice(talk)
    return prog, pid, rng.choice(lines)


def node_noise(sim: Sim) -> None:
    """Cron, ssh, clocks, mail, containers and the odd scare on every host."""
    rng, site, log = sim.rng, sim.site, sim.log
    for node in site.nodes:
        for _ in range(rng.randint(12, 45)):
            t = rng.uniform(site.start, site.end)
            prog, pid, text = small_talk(sim)
            if prog == "kernel":
                log.kern(node, t, text, "info")
            else:
                log.daemon(node, t, prog, text, "info", pid)


def scares(sim: Sim) -> None:
    """Lines of errors that hurt nobody: unused ports, mlx5's refused registers, gone users."""
    rng, site, log = sim.rng, sim.site, sim.log
    for _ in range(rng.randint(15, 40)):
        node, t = rng.choice(site.nodes), rng.uniform(site.start, site.end)
        log.kern(
            node,
            t,
            f"mlx5_core 0000:2a:00.0: mlx5_cmd_out_err:{rng.choice((808, 813))}:(pid {rng.randint(900, 90000)}): ACCESS_REG(0x805) op_mod(0x1) failed, status bad "
            f"parameter(0x3), syndrome (0x3d1ea8), err(-22)",
            "err",
        )
    for _ in range(rng.randint(4, 10)):
        switch, t = (
            rng.choice([site.leaf(g, p) for g in range(site.groups) for p in (0, 1)]),
            rng.uniform(site.start, site.end),
        )
        port = "IB1/38" if switch.startswith("ib") else site.port(37)
        port_line(sim, switch, port, t, False)
        port_line(sim, switch, port, t + rng.uniform(2, 900), True)
    for group in range(site.groups):
        for plane in (0, 1):
            for _ in range(rng.randint(4, 12)):
                log.switch(
                    site.leaf(group, plane),
                    rng.uniform(site.start, site.end),
                    "sshd",
                    "info",
                    f"Accepted publickey for admin from 10.1.0.{rng.randint(2, 20)} port {rng.randint(30000, 60000)} ssh2",
                )
    for _ in range(rng.randint(2, 5)):
        node, t = rng.choice(site.nodes), rng.uniform(site.start, site.end)
        log.kern(node, t, "nvidia-modeset: WARNING: GPU:0: Unable to read EDID for display device DP-0", "warning")
        log.kern(
            node,
            t + 200,
            f"x86/split lock detection: #AC: python3/{rng.randint(900, 90000)} took a split_lock trap at address: 0x7f00deadbeef",
            "warning",
        )


def controller_noise(sim: Sim) -> None:
    """slurmctld's usual talk: bad requests, limits, a slow database."""
    rng, site, log = sim.rng, sim.site, sim.log
    for _ in range(rng.randint(25, 60)):
        t, uid = rng.uniform(site.start, site.end), 1201 + rng.randrange(len(USERS))
        log.ctl(
            t,
            rng.choice(
                (
                    "_slurm_rpc_submit_batch_job: Invalid partition name specified",
                    "_slurm_rpc_submit_batch_job: Invalid account or account/partition combination specified",
                    "_slurm_rpc_submit_batch_job: Requested node configuration is not available",
                    f"error: Security violation, REQUEST_KILL_JOB RPC for JobId={sim.next_id + 3} from uid {uid}",
                    "sched: _schedule: 214 job candidates, QOSMaxGRESPerUser",
                    f"_slurm_rpc_kill_job: job_str_signal() uid={uid} JobId={sim.next_id - 999} sig=9 returned: Job/step already completing or completed",
                    "error: slurm_receive_msg [10.1.0.17:48212]: Zero Bytes were transmitted or received",
                    "_slurm_rpc_create_reservation reservation=maint_jan accounts=root nodes=ALL users=(null)",
                )
            ),
        )
    t = rng.uniform(site.start + 900, site.end - 900)
    log.ctl(t, "error: _conn_readable: persistent connection for fd 9 experienced error[104]: Connection reset by peer")
    log.ctl(t + 0.1, "error: Sending PersistInit msg: Connection refused")
    log.ctl(t + 0.2, "slurmdbd: agent queue size 214")
    log.ctl(t + 20, "slurmdbd: Successfully connected to slurmdbd")
    log.ctl(rng.uniform(site.start, site.end), "Processing Reconfiguration Request")
    if site.fabric == "ib":
        for _ in range(rng.randint(10, 30)):
            log.opensm(rng.uniform(site.start, site.end), "0x02 -> SUBNET UP")


def idle_events(sim: Sim) -> None:
    """Drains and reboots at times on hosts without work, never a cause."""
    for _ in range(sim.rng.randint(1, 3)):

        def one() -> None:
            idle = sim.idle()
            if idle:
                drain(sim, sim.rng.choice(idle), sim.now, "NHC: check_hw_mem:  RAM 0 less than minimum", 1500)

        sim.at(sim.rng.uniform(sim.site.start + 600, sim.site.end - 1800), one)


def silence(sim: Sim, name: str, begin: float, end: float) -> None:
    """A dead host says nothing, neither what was foreseen nor what would follow from its jobs."""
    for book in (sim.log.sys, sim.log.slurmd):
        book[name] = [x for x in book[name] if not begin < x.t < end]
    sim.log.quiet.append((name, begin + 3, end))


def everything(sim: Sim) -> None:
    """All of it."""
    node_noise(sim)
    scares(sim)
    controller_noise(sim)
    idle_events(sim)
