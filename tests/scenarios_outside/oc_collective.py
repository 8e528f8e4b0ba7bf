"""How a job over many nodes dies when one of them, or the wire between, breaks: the innocent scream first."""

from collections.abc import Iterable

from oc_core import End, Incident, Run, Sim


def watchdog(sim: Sim, run: Run, t: float, places: Iterable[int]) -> None:
    """PyTorch's watchdog on some nodes' ranks."""
    rng = sim.rng
    seq = rng.randint(900, 90000)
    ms = sim.site.torch_timeout * 1000
    stamp = sim.site.stamp(t).strftime("%m%d %H:%M:%S")
    for place in places:
        for local in sorted(rng.sample(range(run.job.gpus), min(run.job.gpus, 2))):
            rank = place * run.job.gpus + local
            head = f"[rank{rank}]:[E{stamp}.{rng.randint(0, 999999999):09d} ProcessGroupNCCL.cpp:{rng.choice((563, 607, 616))}]"
            run.err.append(
                (
                    t + rng.uniform(0, 1.5),
                    f"{head} [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
                    f"OpType={rng.choice(('ALLREDUCE', '_ALLGATHER_BASE', '_REDUCE_SCATTER_BASE'))}, NumelIn=25165824, NumelOut=25165824, Timeout(ms)={ms}) ran for "
                    f"{ms + rng.randint(10, 900)} milliseconds before timing out.",
                )
            )
    run.err.append(
        (
            t + 2,
            f"[rank0]:[E{stamp}.{rng.randint(0, 999999999):09d} ProcessGroupNCCL.cpp:621] [Rank 0] Some NCCL operations have failed or timed out. Due to the "
            f"asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        )
    )


def nccl_ib(sim: Sim, run: Run, t: float, place: int, rail: int) -> None:
    """Retry exceeded on peers of a node whose rail is gone."""
    rng, bad = sim.rng, run.nodes[place]
    peers = [p for p in range(len(run.nodes)) if p != place] or [place]
    for n, p in enumerate(
        sorted({(place - 1) % len(run.nodes), (place + 1) % len(run.nodes)} & set(peers)) or peers[:1]
    ):
        node, pid = run.nodes[p], rng.randint(20000, 900000)
        head = f"{node.name}:{pid}:{pid + 400} [{rail * 2 % run.job.gpus}]"
        gid = (
            f"localGid fe80::{rng.randint(4096, 65535):x}:{rng.randint(4096, 65535):x} remoteGidsfe80::{rng.randint(4096, 65535):x}:{rng.randint(4096, 65535):x}"
            if rng.random() < 0.5
            else ""
        )
        run.err.append(
            (
                t + n * 0.4,
                f"{head} transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer {bad.ip}<{rng.randint(33000, 60000)}> with status=12 opcode=0 len=0 "
                f"vendor err 129 (Recv) {gid} hca mlx5_{rail}",
            )
        )
        run.err.append((t + n * 0.4 + 0.01, f"{head} NCCL INFO transport/net.cc:1298 -> 6"))
        run.err.append(
            (
                t + n * 0.4 + 1,
                f"[rank{p * run.job.gpus}]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, remote process exited "
                f"or there was a network error, NCCL version {sim.site.nccl.split('+')[0]}",
            )
        )
        run.err.append(
            (
                t + n * 0.4 + 1.01,
                f"[rank{p * run.job.gpus}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            )
        )


def nccl_closed(sim: Sim, run: Run, t: float, place: int) -> None:
    """Peers see the sockets of a dead node close or time out."""
    rng, bad = sim.rng, run.nodes[place]
    for p in [p for p in range(len(run.nodes)) if p != place][:4]:
        node, pid = run.nodes[p], rng.randint(20000, 900000)
        head = f"{node.name}:{pid}:{pid + 311} [{rng.randrange(run.job.gpus)}]"
        word = rng.choice(
            (
                f"NCCL WARN socketProgress: Connection closed by remote peer {bad.name}.{sim.site.domain}<{rng.randint(33000, 60000)}>",
                f"NCCL WARN socketPollConnect poll() returned 1, POLLERR|POLLHUP; connect to {bad.ip}<{rng.randint(33000, 60000)}> failed : Connection timed out",
                f"NCCL WARN Call to recv from {bad.ip}<{rng.randint(33000, 60000)}> failed : Connection reset by peer",
            )
        )
        run.err.append((t + rng.uniform(0, 2), f"{head} misc/socket.cc:{rng.choice((49, 484, 58))} {word}"))
        run.err.append((t + 2.5, f"{head} NCCL INFO proxy.cc:1485 -> 3"))


def mpi_ucx(sim: Sim, run: Run, t: float, place: int, rail: int) -> None:
    """UCX gives up on a transport to a node."""
    rng = sim.rng
    p = (place + 1) % len(run.nodes)
    node, pid = run.nodes[p], rng.randint(20000, 900000)
    layer = "IB" if sim.site.fabric == "ib" else "RoCE"
    run.err.append(
        (
            t,
            f"[{node.name}:{pid}:0:{pid}] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_{rail}:1/{layer} (synd 0x15 vend 0x81 hw_synd 0/0)",
        )
    )
    run.err.append(
        (
            t + 0.01,
            f"[{node.name}:{pid}:0:{pid}] ib_mlx5_log.c:177  RC QP 0x{rng.randint(0x1000, 0xFFFF):x} wqe[{rng.randint(10, 600)}]: SEND --e [inl len 18] [rqpn "
            f"0x{rng.randint(0x1000, 0xFFFF):x} dlid={rng.randint(2, 400)} sl=0 port=1 src_path_bits=0]",
        )
    )
    run.err.append((t + 1, f"==== backtrace (tid:  {pid}) ===="))


def abort(
    sim: Sim,
    run: Run,
    inc: Incident,
    place: int,
    first: float,
    wait: float,
    mode: str,
    rail: int = 0,
    local: list[str] | None = None,
    ambiguous: bool = False,
) -> None:
    """Dooms a run: progress stops now, screams at first, end at wait seconds from now."""
    rng, t0 = sim.rng, sim.now
    run.doomed = True
    run.stall = run.stall or t0
    for i, line in enumerate(local or []):
        rank = place * run.job.gpus
        run.err.append(
            (
                t0 + wait - 5 + i * 0.02 if mode == "watchdog" else t0 + 1.5 + i * 0.02,
                f"[rank{rank}]: {line}" if run.job.kind == "train" and "Fatal Python" not in line else line,
            )
        )
    if len(run.nodes) > 1:
        if run.job.kind == "mpi":
            mpi_ucx(sim, run, t0 + first, place, rail)
        elif mode == "ib":
            nccl_ib(sim, run, t0 + first, place, rail)
        elif mode == "watchdog":
            watchdog(sim, run, t0 + first, [p for p in range(len(run.nodes)) if p != place])
        else:
            nccl_closed(sim, run, t0 + first, place)
    witness = run.nodes[(place + 1) % len(run.nodes)]
    code = 134 if mode == "watchdog" and run.job.kind == "train" else 1

    def end() -> None:
        if run.end:
            return
        how = "Aborted (core dumped)" if code == 134 else "Exited with exit code 1"
        run.err.append((sim.now - 0.6, f"srun: error: {witness.name}: task {(place + 1) % len(run.nodes)}: {how}"))
        if len(run.nodes) > 1:
            run.err.append((sim.now - 0.4, f"srun: Terminating StepId={run.job.jid}.0"))
        sim.finish(run, End("FAILED", inc["category"], f"{code}:0", "NonZeroExitCode", inc, ambiguous=ambiguous))

    sim.at(t0 + max(wait, first + 4) + rng.uniform(0, 3), end)
