"""What users do: their jobs, and the ends that nobody but they caused."""

from collections.abc import Callable
from typing import Any

from oc_core import End, Job, Run, Sim
from oc_plans import ERRORS, NAMES, PLANS, QUICK, SHAPES, SPANS
from oc_site import ACCOUNTS, USERS


def new_job(sim: Sim, kind: str, array: tuple[int, int] | None = None, **fixed: object) -> Job:
    """A job drawn for a kind."""
    rng = sim.rng
    user = rng.choice(USERS)
    plan = rng.choices([p for p, _ in PLANS[kind]], [w for _, w in PLANS[kind]])[0]
    seconds = rng.uniform(*SPANS[kind])
    if plan in QUICK:
        seconds = rng.uniform(25, 400)
    limit = max(10, int(seconds * rng.uniform(1.3, 3) / 600) * 10 + 10)
    values: dict[str, Any] = {
        "name": rng.choice(NAMES[kind]),
        "user": user,
        "uid": 1201 + USERS.index(user),
        "account": rng.choice(ACCOUNTS),
        "partition": rng.choice(("h100", "h100", "a100")),
        "qos": "low" if rng.random() < 0.12 else "normal",
        "nnodes": rng.choice(SHAPES[kind][0]),
        "gpus": rng.choice(SHAPES[kind][1]),
        "limit": limit,
        "requeue": kind == "train" and rng.random() < 0.55,
        "plan": plan,
        "seconds": seconds,
        "submit": sim.now,
    }
    values.update(fixed)
    return Job(jid=sim.number(), kind=kind, array=array, **values)


def folder(sim: Sim, job: Job) -> str:
    """Working folder of a job."""
    base = f"/{sim.site.fsname}" if sim.site.storage == "lustre" else sim.site.fsname
    return f"{base}/{job.user}/{job.name}"


def workload(sim: Sim) -> None:
    """Submissions over the window."""
    rng, site = sim.rng, sim.site
    total = rng.randint(110, 210)
    for _ in range(total):
        kind = rng.choices(("train", "mpi", "single", "notebook", "array"), (30, 12, 34, 10, 6))[0]
        t = site.start + 20 + rng.random() ** 1.5 * (site.end - site.start) * 0.85

        def one(kind: str = kind) -> None:
            if kind == "array":
                first = sim.next_id + 1
                same = {
                    k: getattr(new_job(sim, "array"), k)
                    for k in ("name", "user", "uid", "account", "partition", "gpus")
                }
                sim.next_id = first - 1
                for task in range(rng.randint(3, 8)):
                    sim.submit(new_job(sim, "array", (first, task), **same))
            elif kind == "single" and rng.random() < 0.12:
                prep = new_job(sim, "single", name="prep", seconds=rng.uniform(200, 900), qos="normal")
                sim.submit(prep)
                sim.submit(
                    new_job(sim, "train", name="train-after-prep", user=prep.user, uid=prep.uid, depends=prep.jid)
                )
            else:
                sim.submit(new_job(sim, kind))

        sim.at(t, one)


def start_life(sim: Sim, run: Run) -> None:
    """Plans a run's own end."""
    job = run.job
    plan = job.plan if not run.restart or sim.rng.random() < 0.3 else "ok"
    t = sim.now + (job.seconds if not run.restart else job.seconds * sim.rng.uniform(0.4, 0.9))
    limit = sim.now + job.limit * 60 + sim.rng.uniform(1, 29)
    if plan == "timeout":
        t = limit

    def over() -> None:
        if run.live:
            own_end(sim, run, plan)

    sim.at(min(t, limit), over)
    if t < limit:

        def late() -> None:
            if run.live:
                sim.finish(run, End("TIMEOUT", "app.timeout", "0:0", "TimeLimit"))

        sim.at(limit, late)


def own_end(sim: Sim, run: Run, plan: str) -> None:
    """The end that the plan says."""
    special: dict[str, Callable[[Sim, Run], None]] = {
        "err_xid31": xid_bug,
        "err_xid13": xid_bug,
        "oom_cgroup": oom_cgroup,
        "oom_cuda": oom_cuda,
        "desync": desync,
        "hang_unknown": hang_unknown,
        "mpi_abort": mpi_abort,
        "err_segv": segfault,
        "requeuehold": own_requeue,
        "killed": killed,
    }
    job = run.job
    if plan.startswith(("err_", "oom_", "cancel_", "timeout", "mpi_")) and sim.rng.random() < 0.16:
        from oc_decoy import decoy

        decoy(sim, run)
    simple = {
        "silent": End(
            "FAILED", "unknown", "1:0", "NonZeroExitCode", accept=("app.error",), note="script exits 1 without a word"
        ),
        "timeout": End("TIMEOUT", "app.timeout", "0:0", "TimeLimit"),
        "cancel_self": End("CANCELLED", "user.cancel", "0:15", by=job.uid),
        "cancel_other": End(
            "CANCELLED",
            "user.cancel",
            "0:15",
            by=1201 + (job.uid - 1200) % 12,
            note="cancelled by the account's coordinator",
        ),
        "cancel_admin": End(
            "CANCELLED",
            "user.cancel",
            "0:15",
            by=0,
            ambiguous=True,
            note="root's scancel without a reason: a person did it",
        ),
    }
    if plan in special:
        special[plan](sim, run)
    elif plan in ERRORS:
        code, lines = ERRORS[plan]
        task_fails(sim, run, [x.format(dir=folder(sim, job), jid=job.jid, name=job.name) for x in lines], code)
    elif plan in simple:
        sim.finish(run, simple[plan])
    else:
        run.out.append((sim.now - 1, f"done in {sim.now - run.start:.0f}s"))
        sim.finish(run, End("COMPLETED", ""))


def own_requeue(sim: Sim, run: Run) -> None:
    """scontrol requeue by the owner."""
    sim.log.ctl(sim.now - 0.1, f"_slurm_rpc_requeue: {run.job.label} requeued by uid {run.job.uid}")
    sim.finish(
        run, End("REQUEUED", "user.cancel", "0:15", by=run.job.uid, ambiguous=True, note="user's own scontrol requeue")
    )


def killed(sim: Sim, run: Run) -> None:
    """SIGKILL from nobody knows whom."""
    run.err.append((sim.now - 0.5, f"srun: error: {run.nodes[0].name}: task 0: Killed"))
    sim.finish(
        run,
        End(
            "FAILED",
            "unknown",
            "137:0",
            "NonZeroExitCode",
            accept=("app.oom", "app.error"),
            note="SIGKILL without a witness",
        ),
    )


def rank_of(run: Run, place: int) -> int:
    """Global rank of a task on the run's place-th node."""
    return place * run.job.gpus


def task_fails(sim: Sim, run: Run, lines: list[str], code: int, place: int = 0, state: str = "FAILED") -> None:
    """A task prints and exits; srun tells; the batch script passes the code on."""
    t, node = sim.now, run.nodes[place]
    prefix = f"[rank{rank_of(run, place)}]: " if run.job.kind == "train" and sim.rng.random() < 0.6 else ""
    for i, line in enumerate(lines):
        run.err.append((t - 2 + i * 0.01, prefix + line))
    if run.job.kind == "train" and len(run.nodes) > 1 and sim.rng.random() < 0.5:
        from oc_collective import nccl_closed

        nccl_closed(sim, run, t - 1.4, place)
    if run.job.kind in ("train", "mpi"):
        run.err.append(
            (
                t - 0.5,
                f"srun: error: {node.name}: task {place if run.job.kind == 'train' else rank_of(run, place)}: Exited with exit code {code}",
            )
        )
        if len(run.nodes) > 1:
            run.err.append((t - 0.4, f"srun: Terminating StepId={run.job.jid}.0"))
    sim.finish(run, End(state, "app.error", f"{code}:0", "NonZeroExitCode"))


def xid_bug(sim: Sim, run: Run) -> None:
    """An illegal access of the program itself: Xid 31 or 13, then 43 or 45."""
    rng, node = sim.rng, run.nodes[0]
    gpu = run.held[node.name][0]
    pid = rng.randint(20000, 900000)
    who = f"pid={pid}, name=python"
    if rng.random() < 0.6:
        text = f"NVRM: Xid (PCI:{node.bdf(gpu)}): 31, {who}, Ch 0000000{rng.randint(8, 9)}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_{rng.randint(0, 9)} "
        f"faulted @ 0x7f{rng.randint(16, 255):02x}_{rng.randint(0, 0xFFFFFFFF):08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    else:
        text = f"NVRM: Xid (PCI:{node.bdf(gpu)}): 13, {who}, Graphics SM Warp Exception on (GPC {rng.randint(0, 7)}, TPC {rng.randint(0, 8)}, SM {rng.randint(0, 1)}): Out Of Range Address"
    sim.log.kern(node, sim.now - 2.4, text, "err")
    if rng.random() < 0.5:
        sim.log.kern(node, sim.now - 2.3, f"NVRM: Xid (PCI:{node.bdf(gpu)}): 43, {who}, Ch 00000008", "err")
    lines = [
        "Traceback (most recent call last):",
        f'  File "{folder(sim, run.job)}/kernels.py", line 77, in run',
        "    torch.cuda.synchronize()",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    ]
    task_fails(sim, run, lines, 1)


def oom_cgroup(sim: Sim, run: Run) -> None:
    """The job's memory limit."""
    rng, place = sim.rng, sim.rng.randrange(len(run.nodes))
    node, job, t = run.nodes[place], run.job, sim.now
    pid, kb = rng.randint(20000, 900000), rng.randint(60, 400) * 1048576
    path = (
        f"/slurm/uid_{job.uid}/job_{job.jid}/step_0"
        if sim.site.kernel.startswith(("4.", "5.14"))
        else f"/system.slice/slurmstepd.scope/job_{job.jid}/step_0/user/task_0"
    )
    sim.log.kern(node, t - 3.0, "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0")
    sim.log.kern(node, t - 2.98, f"memory: usage {kb}kB, limit {kb}kB, failcnt {rng.randint(90, 9000)}", "info")
    sim.log.kern(
        node,
        t - 2.96,
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg={path},task_memcg={path},task=python,pid={pid},uid={job.uid}",
        "info",
    )
    sim.log.kern(
        node,
        t - 2.95,
        f"Memory cgroup out of memory: Killed process {pid} (python) total-vm:{kb + 9000000}kB, anon-rss:{kb - 4000}kB, file-rss:{rng.randint(1000, 90000)}kB, "
        f"shmem-rss:0kB, UID:{job.uid} pgtables:{kb // 500}kB oom_score_adj:0",
        "err",
    )
    sim.log.slurm(
        node,
        t - 0.9,
        f"[{job.jid}.0] error: Detected 1 oom_kill event in StepId={job.jid}.0. Some of the step tasks have been OOM Killed.",
    )
    run.err.append(
        (
            t - 0.9,
            f"slurmstepd: error: Detected 1 oom_kill event in StepId={job.jid}.0. Some of the step tasks have been OOM Killed.",
        )
    )
    run.err.append((t - 0.8, f"srun: error: {node.name}: task {place}: Out Of Memory"))
    run.step_state = "OUT_OF_MEMORY"
    sim.finish(run, End("OUT_OF_MEMORY", "app.oom", "0:125", "OutOfMemory"))


def oom_cuda(sim: Sim, run: Run) -> None:
    """The card's memory."""
    size = 79 if run.nodes[0].kind == "h100" else 39
    lines = [
        "Traceback (most recent call last):",
        f'  File "{folder(sim, run.job)}/train.py", line 188, in forward',
        "    h = self.mlp(h)",
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {sim.rng.randint(200, 3900)}.00 MiB. GPU 0 has a total capacity of "
        f"{size}.{sim.rng.randint(10, 60)} GiB of which {sim.rng.randint(20, 180)}.50 MiB is free. Including non-PyTorch memory, this process has {size - 1}.90 GiB memory in use.",
    ]
    task_fails(sim, run, lines, 1, sim.rng.randrange(len(run.nodes)))
    sim.verdicts[run.key]["category"] = "app.oom"


def desync(sim: Sim, run: Run) -> None:
    """The program's ranks disagree on the next collective."""
    from oc_collective import watchdog

    run.stall = sim.now - sim.site.torch_timeout
    watchdog(sim, run, sim.now - 8, range(len(run.nodes)))
    run.err.append(
        (
            sim.now - 6,
            f"[rank{rank_of(run, 1)}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank_of(run, 1)} is running collective: "
            f"CollectiveFingerPrint(SequenceNumber=4711, OpType=ALLGATHER, TensorShape=[1024]), but Rank 0 is running collective: "
            f"CollectiveFingerPrint(SequenceNumber=4711, OpType=ALLREDUCE, TensorShape=[1]).",
        )
    )
    task_fails(sim, run, [], 1, 1)


def hang_unknown(sim: Sim, run: Run) -> None:
    """All ranks wait, nothing anywhere says why."""
    from oc_collective import watchdog

    run.stall = sim.now - sim.site.torch_timeout
    watchdog(sim, run, sim.now - 8, range(len(run.nodes)))
    head = run.nodes[0]
    run.err.append((sim.now - 0.5, f"srun: error: {head.name}: task 0: Aborted (core dumped)"))
    sim.finish(run, End("FAILED", "unknown", "134:0", "NonZeroExitCode", note="hang without any trace"))


def mpi_abort(sim: Sim, run: Run) -> None:
    """The code calls MPI_Abort for its own reason."""
    rank = sim.rng.randrange(len(run.nodes) * 8)
    text = sim.rng.choice(
        (
            "LINCS WARNING: bonds that rotated more than 30 degrees",
            "ERROR: CFL criterion violated at level 47",
            "ZBRENT: fatal error in bracketing",
            "ERROR: Lost atoms: original 131072 current 131070",
        )
    )
    run.err.append((sim.now - 4, text))
    run.err.append((sim.now - 3.9, "Fatal error: step too large, simulation is unstable"))
    run.err.append((sim.now - 3, "--------------------------------------------------------------------------"))
    run.err.append((sim.now - 2.9, f"MPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD"))
    run.err.append((sim.now - 2.8, "with errorcode 1."))
    task_fails(sim, run, [], 1, rank // 8)


def segfault(sim: Sim, run: Run) -> None:
    """The program's own bad pointer."""
    rng, place = sim.rng, sim.rng.randrange(len(run.nodes))
    node = run.nodes[place]
    sim.log.kern(
        node,
        sim.now - 2,
        f"icon[{rng.randint(20000, 90000)}]: segfault at {rng.randint(8, 4000):x} ip 00007f{rng.randint(0, 0xFFFFFFFF):08x}1a sp "
        f"00007ffd{rng.randint(0, 0xFFFFFFFF):08x} error 4 in libnetcdff.so.7[7f1a20000000+8d000]",
        "info",
    )
    run.err.append(
        (
            sim.now - 1.5,
            f"[{node.name}:{rng.randint(20000, 90000)}:0:{rng.randint(20000, 90000)}] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x28)",
        )
    )
    run.err.append((sim.now - 0.5, f"srun: error: {node.name}: task {place * 8}: Segmentation fault (core dumped)"))
    sim.finish(run, End("FAILED", "app.error", "139:0", "NonZeroExitCode"))
