"""Root events of GPUs."""

from oc_collective import abort
from oc_core import End, Incident, Job, Run, Sim
from oc_own import new_job
from oc_site import Node

NOT_READY = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() "
    "that might have already set an error? Error 802: system not yet initialized"
)
ECC = ("gpu_ecc", "gpu_xid_48", "gpu_xid_63", "gpu_xid_64", "gpu_xid_94", "gpu_xid_95", "gpu_xid_140")


def pick(
    sim: Sim, kinds: tuple[str, ...] = ("train", "single", "mpi", "array", "notebook"), nodes: int = 1
) -> tuple[Run, int, Node, int] | None:
    """A running job, one of its nodes (never the first of many, mostly), and a GPU it holds there."""
    runs = sim.running(kinds, nodes)
    if not runs:
        return None
    run = sim.rng.choice(runs)
    place = sim.rng.randrange(len(run.nodes))
    node = run.nodes[place]
    return run, place, node, sim.rng.choice(run.held[node.name])


def xid(sim: Sim, node: Node, gpu: int, t: float, code: int, text: str, pid: bool = True) -> None:
    """One Xid line in the words of the site's driver."""
    who = ""
    if pid:
        n = sim.rng.randint(20000, 900000)
        who = "pid='<unknown>', name=<unknown>, " if sim.rng.random() < 0.3 else f"pid={n}, name=python3, "
    sim.log.kern(node, t, f"NVRM: Xid (PCI:{node.bdf(gpu)}): {code}, {who}{text}", "err")


def others(sim: Sim, run: Run, node: Node, gpu: int, inc: Incident, local: list[str], chance: float = 1.0) -> None:
    """Other runs that hold the same GPU or, when the whole node suffers, the node."""
    for other in sim.on(node):
        if other is not run and (gpu < 0 or gpu in other.held[node.name]) and sim.rng.random() < chance:
            abort(sim, other, inc, other.nodes.index(node), 5, sim.rng.uniform(8, 60), "closed", local=local)


def fallen(sim: Sim, node: Node, gpu: int, tell: float, aer: bool) -> None:
    """The kernel's words when a GPU has gone."""
    where = node.bdf(gpu)
    if aer:
        sim.log.kern(
            node,
            tell - 0.4,
            f"pcieport {where[:5]}{where[5:7]}:01.0: AER: Uncorrected (Fatal) error received: {where}.0",
            "err",
        )
    xid(sim, node, gpu, tell, 79, "GPU has fallen off the bus.", sim.rng.random() < 0.6)
    sim.log.kern(node, tell + 0.01, f"NVRM: GPU {where}.0: GPU has fallen off the bus.", "err")
    sim.log.kern(
        node,
        tell + 0.4,
        [
            "NVRM: A GPU crash dump has been created. If possible, please run",
            "NVRM: nvidia-bug-report.sh as root to collect this data before",
            "NVRM: the NVIDIA kernel module is unloaded.",
        ][0],
        "err",
    )
    if sim.site.driver.startswith(("55", "56", "57")):
        xid(
            sim,
            node,
            gpu,
            tell + 0.5,
            154,
            "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            False,
        )


def bus(sim: Sim) -> bool:
    """A GPU falls off the bus; on some nodes the kernel says it long after the ranks scream."""
    got = pick(sim)
    if not got:
        return False
    run, place, node, gpu = got
    rng, t = sim.rng, sim.now
    where = node.bdf(gpu)
    inc = sim.incident(
        "gpu_off_bus",
        "infra.gpu",
        ("gpu_xid_79", "gpu_fallen_off_bus", "gpu_lost", "pcie_aer"),
        node.name,
        where.split(":")[1],
        needle=f"Xid (PCI:{where}): 79",
        where=f"nodes/{node.name}",
    )
    late = run.job.kind == "train" and len(run.nodes) > 1 and rng.random() < 0.4
    wait = sim.site.torch_timeout + rng.uniform(10, 60) if late else rng.uniform(6, 70)
    tell = t + (wait - 20 if late else 0.2)
    fallen(sim, node, gpu, tell, not late and rng.random() < 0.4)
    local = [
        f"RuntimeError: CUDA error: {rng.choice(('unspecified launch failure', 'unknown error', 'the launch timed out and was terminated'))}",
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    ]
    abort(
        sim,
        run,
        inc,
        place,
        wait - 22 if late else rng.uniform(2, 9),
        wait,
        "watchdog" if late else "closed",
        local=local,
    )
    drain(sim, node, t + max(wait, 60) + rng.uniform(20, 300), "NHC: check_nvsmi_healthmon:  nvidia-smi failed")
    return True


def drain(sim: Sim, node: Node, t: float, reason: str, back: float = 5400.0) -> None:
    """The health check drains a node; people bring it back later."""

    def now() -> None:
        node.drained = True
        sim.log.ctl(sim.now, f"update_node: node {node.name} reason set to: {reason}")
        sim.log.ctl(
            sim.now + 0.001,
            f"update_node: node {node.name} state set to {'DRAINING' if len(node.free) < 8 else 'DRAINED'}",
        )

    def resume() -> None:
        node.drained = False
        if node.up:
            sim.log.ctl(sim.now, f"update_node: node {node.name} state set to IDLE")
        sim.schedule()

    sim.at(t, now)
    sim.at(t + back, resume)


def ecc(sim: Sim) -> bool:
    """Uncorrectable memory: 48 with 63/64, or contained 94, or uncontained 95."""
    got = pick(sim)
    if not got:
        return False
    run, place, node, gpu = got
    rng, t, where = sim.rng, sim.now, node.bdf(gpu)
    code = rng.choice((48, 94, 95))
    inc = sim.incident(
        "gpu_uncorrectable_ecc",
        "infra.gpu",
        (f"gpu_xid_{code}", *ECC),
        node.name,
        where.split(":")[1],
        needle=f"Xid (PCI:{where}): {code}",
        where=f"nodes/{node.name}",
    )
    if code == 48:
        xid(
            sim,
            node,
            gpu,
            t,
            48,
            f"An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition {rng.randint(0, 7)}, subpartition {rng.randint(0, 1)}.",
        )
        xid(
            sim,
            node,
            gpu,
            t + 0.02,
            63,
            f"Row Remapper: New row (0x{rng.randint(0, 0xFFFFFFFF):016x}) marked for remapping, reset gpu to activate.",
        )
    else:
        xid(
            sim,
            node,
            gpu,
            t,
            code,
            f"{'Contained' if code == 94 else 'Uncontained'}: CE User Channel (0x9). RST: No, D-RST: No",
        )
    xid(sim, node, gpu, t + 0.2, 45, f"Ch 0000000{rng.randint(8, 9)}")
    local = [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    ]
    if code == 95 and rng.random() < 0.5:
        local[0] = "RuntimeError: CUDA error: an illegal memory access was encountered"
    abort(sim, run, inc, place, rng.uniform(2, 12), rng.uniform(5, 40), "closed", local=local)
    return True


def nvlink(sim: Sim) -> bool:
    """An NVLink dies under a job."""
    got = pick(sim, ("train", "mpi"))
    if not got:
        return False
    run, place, node, gpu = got
    rng, t, where = sim.rng, sim.now, node.bdf(gpu)
    inc = sim.incident(
        "nvlink_fatal",
        "infra.gpu",
        ("gpu_xid_74", "nvlink_error", "gpu_sxid_20034", "gpu_sxid_22013", "gpu_sxid_12028"),
        node.name,
        where.split(":")[1],
        needle=f"Xid (PCI:{where}): 74",
        where=f"nodes/{node.name}",
    )
    link = rng.randint(0, 17 if node.kind == "h100" else 11)
    if rng.random() < 0.5:
        sim.log.kern(
            node,
            t - 0.1,
            f"nvidia-nvswitch{rng.randint(0, 3)}: SXid (PCI:0000:{rng.choice(('05', '06', '07'))}:00.0): 20034, Fatal, Link {link} LTSSM Fault Up",
            "err",
        )
    xid(
        sim,
        node,
        gpu,
        t,
        74,
        f"NVLink: fatal error detected on link {link}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        rng.random() < 0.5,
    )
    xid(sim, node, gpu, t + 0.8, 45, "Ch 00000010")
    local = [
        rng.choice(
            (
                "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
                "torch.distributed.DistBackendError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
            )
        )
    ]
    abort(sim, run, inc, place, rng.uniform(2, 12), rng.uniform(6, 50), "closed", local=local)
    return True


def gsp(sim: Sim) -> bool:
    """The GPU's system processor hangs: the peers' timeouts, and the kernel's word every 45 s or so."""
    got = pick(sim, ("train",), 2)
    if not got:
        return False
    run, place, node, gpu = got
    rng, t, where = sim.rng, sim.now, node.bdf(gpu)
    inc = sim.incident(
        "gsp_timeout",
        "infra.gpu",
        ("gpu_xid_119", "gpu_gsp", "gpu_xid_120", "gpu_driver_error"),
        node.name,
        where.split(":")[1],
        needle=f"Xid (PCI:{where}): 119",
        where=f"nodes/{node.name}",
    )
    wait = sim.site.torch_timeout + rng.uniform(10, 40)
    begin = t + rng.choice((7, 45, wait + 25))
    for n in range(rng.randint(2, 5)):
        xid(
            sim,
            node,
            gpu,
            begin + n * 45,
            119,
            f"Timeout after 45s of waiting for RPC response from GPU{gpu} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800{rng.randint(100, 999)} 0x{rng.randint(4, 64):x}).",
        )
    abort(sim, run, inc, place, wait - 8, wait, "watchdog")
    drain(sim, node, t + wait + 200, "gpu: nvidia-smi hangs")
    return True


def thermal(sim: Sim) -> bool:
    """A hot GPU slows a training until its time limit."""
    runs = [
        r
        for r in sim.running(("train",), 2)
        if r.job.limit * 60 + r.start < sim.site.end - 60 and r.job.limit * 60 + r.start - sim.now > 2400
    ]
    if not runs:
        return False
    run = sim.rng.choice(runs)
    node = sim.rng.choice(run.nodes)
    gpu = sim.rng.randrange(8)
    inc = sim.incident(
        "gpu_thermal_straggler",
        "infra.gpu",
        ("gpu_thermal", "node_thermal"),
        node.name,
        node.bdf(gpu).split(":")[1],
        needle="HW Thermal Slowdown",
        where=f"nodes/{node.name}",
    )
    run.doomed = True
    run.slow.append((sim.now, 2.6))
    inc["jobs_slowed"].append(run.key)
    inc["extra"]["gpu"] = gpu
    over = run.start + run.job.limit * 60 + sim.rng.uniform(1, 29)
    t = sim.now + 40
    while t < over:
        sim.log.daemon(
            node,
            t,
            "nv-hostengine",
            f"GPU {gpu} ({node.bdf(gpu)}.0): clocks throttled, reasons: HW Thermal Slowdown; temperature {sim.rng.randint(89, 95)} C",
            "warning",
            1733,
        )
        t += sim.rng.uniform(280, 620)

    def end() -> None:
        sim.finish(run, End("TIMEOUT", "infra.gpu", "0:0", "TimeLimit", inc))

    sim.at(over, end)
    return True


def fabric_manager(sim: Sim) -> bool:
    """nv-fabricmanager dies on an NVSwitch node: what starts afterwards cannot initialise CUDA."""
    nodes = [
        n
        for n in sim.site.nodes
        if n.kind == "h100" and n.up and not n.cut and not n.drained and sim.on(n) and len(n.free) >= 1
    ]
    if not nodes:
        return False
    node = sim.rng.choice(nodes)
    rng, t = sim.rng, sim.now
    inc = sim.incident(
        "fabric_manager_dead",
        "infra.gpu",
        ("nvlink_error", "fabric_manager", "sys_service_failed", "gpu_driver_error", "gpu_fabric_error"),
        node.name,
        None,
        needle="nvidia-fabricmanager.service",
        where=f"nodes/{node.name}",
    )
    sim.log.daemon(
        node,
        t,
        "nv-fabricmanager",
        "detected NVSwitch fatal error 20009 on fid 0 on NVSwitch pci bus id 00000000:06:00.0 physical id 2 port 31",
        "err",
        2417,
    )
    sim.log.daemon(
        node,
        t + 2,
        "systemd",
        "nvidia-fabricmanager.service: Main process exited, code=exited, status=1/FAILURE",
        "notice",
        1,
    )
    sim.log.daemon(
        node, t + 2.1, "systemd", "nvidia-fabricmanager.service: Failed with result 'exit-code'.", "warning", 1
    )
    for _ in range(rng.randint(1, 3)):
        job = new_job(sim, "single", partition=node.kind, gpus=1, plan="ok", qos="normal")

        def later(job: Job = job) -> None:
            run = sim.submit(job)
            if len(node.free) and node.up and not node.cut and not node.drained:
                sim.begin(run, [node])
                abort(
                    sim,
                    run,
                    inc,
                    0,
                    1,
                    rng.uniform(12, 40),
                    "closed",
                    local=[NOT_READY],
                )

        sim.at(t + rng.uniform(60, 700), later)
    drain(sim, node, t + 1100, "fabricmanager down")
    return True


def remap(sim: Sim) -> bool:
    """A row is remapped while a job goes on: benign."""
    got = pick(sim)
    if not got:
        return False
    _, _, node, gpu = got
    code = sim.rng.choice((63, 92))
    sim.incident(
        "gpu_memory_repaired",
        "infra.gpu",
        (f"gpu_xid_{code}", "gpu_ecc"),
        node.name,
        node.bdf(gpu).split(":")[1],
        "benign",
        needle=f": {code}, ",
        where=f"nodes/{node.name}",
    )
    text = (
        f"Row Remapper: New row (0x{sim.rng.randint(0, 0xFFFFFFFF):016x}) marked for remapping, reset gpu to activate."
        if code == 63
        else "High single-bit ECC error rate"
    )
    xid(sim, node, gpu, sim.now, code, text, False)
    return True


KINDS = {
    "gpu_off_bus": (bus, 3),
    "gpu_uncorrectable_ecc": (ecc, 3),
    "nvlink_fatal": (nvlink, 2),
    "gsp_timeout": (gsp, 2),
    "gpu_thermal_straggler": (thermal, 2),
    "fabric_manager_dead": (fabric_manager, 2),
    "gpu_memory_repaired": (remap, 2),
}
