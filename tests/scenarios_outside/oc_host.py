"""Root events of hosts: kernels, power, memory, disks, daemons."""

from oc_collective import abort
from oc_core import Incident, Sim
from oc_ends import lose_nodes, rebooted
from oc_gpu import drain
from oc_noise import silence
from oc_site import Node

DEAD = ("node_unresponsive", "node_power", "node_reboot", "kernel_panic", "node_down")


def busy(sim: Sim, multi: float = 0.5) -> Node | None:
    """A node with work, often of a job over many nodes."""
    runs = sim.running(nodes=2) if sim.rng.random() < multi else []
    runs = runs or sim.running()
    nodes = [n for n in sim.rng.choice(runs).nodes if not n.cut] if runs else []
    return sim.rng.choice(nodes) if nodes else None


def screams(sim: Sim, node: Node, inc: Incident) -> None:
    """Before slurmctld notices, some jobs over many nodes die by themselves."""
    for run in sim.on(node):
        if len(run.nodes) > 1 and run.nodes[0] is not node and sim.rng.random() < 0.45:
            first = sim.rng.uniform(3, 60)
            abort(sim, run, inc, run.nodes.index(node), first, first + sim.rng.uniform(5, 40), "closed")


def registered_after_boot(sim: Sim, node: Node, t: float, boot: float) -> None:
    """slurmctld learns of the boot."""
    sim.log.ctl(
        t,
        f"validate_node_specs: Node {node.name} unexpectedly rebooted boot_time={int(boot)} last response={int(boot) - 200}",
    )


def last_words(sim: Sim, node: Node, t: float, boot: float) -> None:
    """A panic's text on the console, or what pstore kept of it."""
    rng, log = sim.rng, sim.log
    if rng.random() < 0.5:
        cause = rng.choice(
            (
                "BUG: unable to handle page fault for address: ffffb1a3c0f51008",
                "watchdog: BUG: soft lockup - CPU#41 stuck for 26s! [kworker/41:2:3321]",
                "general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] SMP NOPTI",
            )
        )
        log.kern(node, t, cause, "emerg")
        log.kern(
            node,
            t + 0.3,
            f"Kernel panic - not syncing: {'Fatal exception' if 'lockup' not in cause else 'softlockup: hung tasks'}",
            "emerg",
        )
    else:
        log.daemon(
            node,
            boot + 25,
            "systemd-pstore",
            "PStore dmesg-erst-7351240012 moved to /var/lib/systemd/pstore/735124001/dmesg.txt",
            pid=801,
        )
        log.daemon(
            node,
            boot + 26,
            "kdump-save",
            "vmcore saved: Kernel panic - not syncing: Fatal exception in interrupt",
            "err",
            812,
        )


def panic(sim: Sim) -> bool:
    """A kernel panics; half of the sites keep its words (netconsole or pstore), which come after the boot."""
    node = busy(sim)
    if not node:
        return False
    rng, t = sim.rng, sim.now
    told = rng.random() < 0.6
    inc = sim.incident(
        "kernel_panic",
        "infra.node",
        ("kernel_panic", "node_reboot", *(() if told else ("node_unresponsive", "node_power", "node_down"))),
        node.name,
        None,
        needle="Linux version",
        where=f"nodes/{node.name}",
    )
    boot = t + rng.uniform(260, 420)
    silence(sim, node.name, t, boot)
    if told:
        last_words(sim, node, t, boot)
    screams(sim, node, inc)
    lose_nodes(
        sim,
        [node.name],
        inc,
        (sim.site.timeout * 0.9, boot - t + 30) if boot - t + 30 > sim.site.timeout * 0.9 else None,
        back=2400,
    )
    rebooted(sim, node.name, boot)
    registered_after_boot(sim, node, boot + 40 + sim.site.timeout * 0.6, boot)
    inc["end"] = boot
    return True


def power(sim: Sim) -> bool:
    """A host goes dark and stays dark."""
    node = busy(sim)
    if not node:
        return False
    inc = sim.incident(
        "host_dark",
        "infra.node",
        DEAD,
        node.name,
        None,
        needle=f"{node.name} not responding, setting DOWN",
        where="controller/slurmctld.log",
    )
    screams(sim, node, inc)
    lose_nodes(sim, [node.name], inc, back=30000)
    silence(sim, node.name, sim.now, sim.site.end + 9999)
    node.bad_until = sim.site.end
    return True


def overheated(sim: Sim) -> bool:
    """The kernel shuts a host down for its temperature."""
    node = busy(sim)
    if not node:
        return False
    t, log = sim.now, sim.log
    silence(sim, node.name, t, sim.site.end + 9999)
    inc = sim.incident(
        "critical_temperature",
        "infra.node",
        ("node_thermal", "node_power", "node_reboot", "node_unresponsive", "kernel_thermal"),
        node.name,
        None,
        needle="critical temperature",
        where=f"nodes/{node.name}",
    )
    for cpu in sim.rng.sample(range(96), 3):
        log.kern(
            node,
            t - sim.rng.uniform(5, 40),
            f"CPU{cpu}: Package temperature above threshold, cpu clock throttled (total events = {sim.rng.randint(2, 900)})",
            "crit",
        )
    log.kern(node, t, "thermal thermal_zone0: critical temperature reached (105 C), shutting down", "emerg")
    log.daemon(node, t + 1, "systemd", "Shutting down.", pid=1)
    log.slurm(node, t + 2, "Slurmd shutdown completing")
    screams(sim, node, inc)
    lose_nodes(sim, [node.name], inc, back=9000)
    return True


def memory_ue(sim: Sim) -> bool:
    """An uncorrectable memory error kills the process that touched the page."""
    node = busy(sim)
    if not node or not sim.on(node):
        return False
    rng, t, log = sim.rng, sim.now, sim.log
    run = rng.choice(sim.on(node))
    pid, page = rng.randint(20000, 900000), f"0x{rng.randint(0x1000000, 0xFFFFFFF):x}"
    inc = sim.incident(
        "memory_uncorrected",
        "infra.node",
        ("kernel_mce", "node_mce", "memory_error", "node_memory_error", "mce"),
        node.name,
        None,
        needle="hardware memory corruption",
        where=f"nodes/{node.name}",
    )
    log.kern(node, t, "mce: [Hardware Error]: Machine check events logged", "warning")
    log.kern(
        node,
        t + 0.01,
        f"EDAC MC{rng.randint(0, 7)}: 1 UE memory read error on CPU_SrcID#0_MC#{rng.randint(0, 3)}_Chan#1_DIMM#0 (channel:1 slot:0 "
        f"page:0x{rng.randint(0x100000, 0xFFFFFF):x} offset:0x{rng.randint(0, 4095):x} grain:32)",
        "err",
    )
    log.kern(
        node,
        t + 0.1,
        f"Memory failure: {page}: Sending SIGBUS to python:{pid} due to hardware memory corruption",
        "err",
    )
    log.kern(
        node,
        t + 0.11,
        f"Memory failure: {page}: recovery action for dirty LRU page: Recovered",
        "err",
    )
    place = run.nodes.index(node)
    abort(
        sim,
        run,
        inc,
        place,
        rng.uniform(3, 20),
        rng.uniform(6, 40),
        "closed",
        local=["Fatal Python error: Bus error", "Current thread 0x00007f12a7fff700 (most recent call first):"],
    )
    return True


def scratch_disk(sim: Sim) -> bool:
    """The local NVMe gives up."""
    node = busy(sim, 0.3)
    if not node or not sim.on(node):
        return False
    rng, t, log = sim.rng, sim.now, sim.log
    run = rng.choice(sim.on(node))
    dev = f"nvme{rng.randint(0, 3)}n1"
    inc = sim.incident(
        "local_nvme_dead",
        "infra.node",
        ("local_disk_error", "nvme_error", "filesystem_error"),
        node.name,
        dev,
        needle=f"dev {dev}",
        where=f"nodes/{node.name}",
    )
    log.kern(
        node, t - 31, f"nvme {dev[:5]}: I/O {rng.randint(1, 900)} QID {rng.randint(1, 60)} timeout, aborting", "warning"
    )
    log.kern(
        node, t - 1, f"nvme {dev[:5]}: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "warning"
    )
    sectors = rng.randint(100000, 90000000)
    log.kern(
        node,
        t,
        f"blk_update_request: I/O error, dev {dev}, sector {sectors} op 0x1:(WRITE) flags 0x800 phys_seg 4 prio class 0"
        if sim.site.kernel.startswith(("4.", "5."))
        else f"I/O error, dev {dev}, sector {sectors} op 0x1:(WRITE) flags 0x800 phys_seg 4 prio class 2",
        "err",
    )
    if rng.random() < 0.5:
        log.kern(node, t + 0.2, f"XFS ({dev}): log I/O error -5", "alert")
        log.kern(node, t + 0.3, f"XFS ({dev}): Filesystem has been shut down due to log error (0x2).", "alert")
    else:
        log.kern(
            node,
            t + 0.2,
            f"EXT4-fs error (device {dev}): ext4_journal_check_start:83: comm python: Detected aborted journal",
            "crit",
        )
        log.kern(node, t + 0.3, f"EXT4-fs ({dev}): Remounting filesystem read-only", "crit")
    abort(
        sim,
        run,
        inc,
        run.nodes.index(node),
        rng.uniform(2, 9),
        rng.uniform(4, 30),
        "closed",
        local=[
            f"OSError: [Errno {rng.choice(('5] Input/output error', '30] Read-only file system'))}: '/local/{run.job.jid}/shard_{rng.randint(0, 400):05d}.tar'"
        ],
    )
    return True


def disk_full(sim: Sim) -> bool:
    """The node's root or spool fills with others' leavings: what runs or starts there fails."""
    node = busy(sim, 0.2)
    if not node or not sim.on(node):
        return False
    rng, t, log = sim.rng, sim.now, sim.log
    run = rng.choice(sim.on(node))
    inc = sim.incident(
        "node_disk_full",
        "infra.node",
        ("disk_full",),
        node.name,
        None,
        needle="No space left on device",
        where=f"nodes/{node.name}",
    )
    log.daemon(
        node,
        t - 20,
        "rsyslogd",
        "file '/var/log/audit.log'[9] write error - see https://www.rsyslog.com/solving-rsyslog-write-errors/ for help OS error: No space left on device [v8.2102.0]",
        "err",
        1201,
    )
    log.daemon(
        node,
        t - 4,
        "systemd-journald",
        "Failed to write entry (22 items, 701 bytes), ignoring: No space left on device",
        "err",
        611,
    )
    log.slurm(node, t + 3, "error: write /var/spool/slurmd/cred_state.new error No space left on device")
    abort(
        sim,
        run,
        inc,
        run.nodes.index(node),
        2,
        rng.uniform(4, 30),
        "closed",
        local=[f"OSError: [Errno 28] No space left on device: '/tmp/torch_{rng.randint(1000, 9999)}/cache.bin'"],
    )
    drain(sim, node, t + rng.uniform(60, 400), "NHC: check_fs_free:  / has only 0kB free (0%), minimum is 1%")
    return True


def corrected(sim: Sim) -> bool:
    """Corrected errors of memory or PCIe: nothing comes of them."""
    node = busy(sim)
    if not node:
        return False
    rng, t, log = sim.rng, sim.now, sim.log
    if rng.random() < 0.5:
        gpu = rng.randrange(8)
        sim.incident(
            "aer_corrected",
            "infra.node",
            ("pcie_aer",),
            node.name,
            node.bdf(gpu),
            "benign",
            needle="AER: Correct",
            where=f"nodes/{node.name}",
        )
        for n in range(rng.randint(1, 6)):
            log.kern(
                node,
                t + n * 20,
                f"pcieport {node.bdf(gpu)[:7]}:01.0: AER: Corrected error received: {node.bdf(gpu)}.0",
                "warning",
            )
            log.kern(
                node,
                t + n * 20 + 0.01,
                f"nvidia {node.bdf(gpu)}.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
                "warning",
            )
            log.kern(
                node,
                t + n * 20 + 0.02,
                f"nvidia {node.bdf(gpu)}.0:   device [10de:2330] error status/mask=00000001/00002000",
                "warning",
            )
    else:
        sim.incident(
            "memory_corrected",
            "infra.node",
            ("kernel_mce", "memory_error"),
            node.name,
            None,
            "benign",
            needle="CE memory read error",
            where=f"nodes/{node.name}",
        )
        log.kern(
            node,
            t,
            f"EDAC MC{rng.randint(0, 7)}: {rng.randint(1, 9)} CE memory read error on CPU_SrcID#1_MC#2_Chan#0_DIMM#0 (channel:0 slot:0 "
            f"page:0x{rng.randint(0x100000, 0xFFFFFF):x} offset:0x40 grain:32 syndrome:0x0)",
            "warning",
        )
    return True


KINDS = {
    "kernel_panic": (panic, 2),
    "host_dark": (power, 2),
    "critical_temperature": (overheated, 1),
    "memory_uncorrected": (memory_ue, 2),
    "local_nvme_dead": (scratch_disk, 2),
    "node_disk_full": (disk_full, 2),
    "corrected_errors": (corrected, 3),
}
