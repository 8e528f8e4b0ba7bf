"""Writes what is not a daemon's log: jobs' output, accounting, inventory, metrics, truth."""

import json
from pathlib import Path

from oc_core import Incident, Run, Sim
from oc_log import put, write_all
from oc_own import folder
from oc_site import hostlist

COLUMNS = "JobID|JobIDRaw|JobName|User|Account|Partition|QOS|State|ExitCode|DerivedExitCode|Reason|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NodeList|AllocTRES|ReqTRES|Restarts|WorkDir"


def clock(sim: Sim, t: float) -> str:
    """sacct's time."""
    return sim.site.stamp(t).strftime("%Y-%m-%dT%H:%M:%S") if t else "Unknown"


def sacct_rows(sim: Sim, run: Run) -> list[str]:
    """A run's row and those of its steps."""
    job = run.job
    state = run.state or ("RUNNING" if run.start else "PENDING")
    by = next((v.get("by") for v in [sim.verdicts.get(run.key, {})]), None)
    shown = f"CANCELLED by {by if by is not None else 0}" if state == "CANCELLED" else state
    elapsed = int((run.end or sim.site.end) - run.start) if run.start else 0
    cpus = job.nnodes * job.gpus * 12
    tres = f"billing={cpus},cpu={cpus},gres/gpu={job.nnodes * job.gpus},mem={cpus * 10}G,node={job.nnodes}"
    names = hostlist([n.name for n in run.nodes]) if run.nodes else "None assigned"
    derived = run.code if state == "FAILED" else "0:0"
    times = f"{clock(sim, run.submit)}|{clock(sim, run.start) if run.start else ('None' if run.end else 'Unknown')}|{clock(sim, run.end)}"
    who = f"{job.name}|{job.user}|{job.account}|{job.partition}|{job.qos}"
    rows = [
        f"{job.shown}|{job.jid}|{who}|{shown}|{run.code}|{derived}|{run.reason}|{times}|{elapsed}|{job.limit}|{job.nnodes}|{names}|{tres if run.nodes else ''}|{tres}|{run.restart}|{folder(sim, job)}"
    ]
    if not run.start:
        return rows
    step_times = f"{clock(sim, run.start)}|{clock(sim, run.start)}|{clock(sim, run.end)}"
    bad = {"TIMEOUT": "CANCELLED", "REQUEUED": "CANCELLED", "PREEMPTED": "CANCELLED"}.get(state, state)
    for step, name, what in (
        ("batch", "batch", bad if state != "OUT_OF_MEMORY" else "OUT_OF_MEMORY"),
        ("extern", "extern", "COMPLETED" if state != "NODE_FAIL" else "NODE_FAIL"),
        ("0", "python3", run.step_state or bad),
    ):
        if state == "RUNNING":
            what = "RUNNING"
        step_code = {"COMPLETED": "0:0", "CANCELLED": "0:15"}.get(what, run.code)
        rows.append(
            f"{job.shown}.{step}|{job.jid}.{step}|{name}||{job.account}|||{what}|{step_code}|||{step_times}|{elapsed}||{job.nnodes}|{names}|{tres}||{run.restart}|"
        )
    return rows


CHATTER = (
    "[W init.cpp:767] Warning: nvfuser is no longer supported in torch script, use _jit_set_nvfuser_enabled is deprecated and a no-op (function operator())",
    "UserWarning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward pass.",
    "srun: warning: can't honor --ntasks-per-node set to 8 which doesn't match the requested tasks 2 with the maximum number of requested nodes 2",
    "slurmstepd: error: mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:193: pmi/pmix: can not load PMIx library",
    "wandb: Network error (ConnectionError), entering retry loop.",
    "tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    "Retrying in 5s: 503 Server Error: Service Unavailable for url: https://api.wandb.ai/files",
    "WARNING: error reading cache entry 41, rebuilding",
)


def progress(sim: Sim, run: Run) -> list[tuple[float, str]]:
    """What the program prints while it works."""
    rng, job = sim.rng, run.job
    until = min(run.stall or run.end or sim.site.end, run.end or sim.site.end)
    lines: list[tuple[float, str]] = [
        (run.start + 1, f"job {job.jid} on {hostlist([n.name for n in run.nodes])} starts {clock(sim, run.start + 1)}")
    ]
    if job.kind == "train":
        for p, node in enumerate(run.nodes[:3]):
            lines.append(
                (
                    run.start + 9 + p * 0.1,
                    f"{node.name}:{rng.randint(9000, 90000)}:{rng.randint(9000, 90000)} [0] NCCL INFO NET/IB : Using "
                    f"[0]mlx5_0:1/{'IB' if sim.site.fabric == 'ib' else 'RoCE'} [1]mlx5_1:1/{'IB' if sim.site.fabric == 'ib' else 'RoCE'} [RO]; OOB {sim.site.mgmt_nic}:{node.ip}<0>",
                )
            )
        lines.append((run.start + 8, f"NCCL version {sim.site.nccl}"))
    t, step, base = run.start + 30, 0, rng.uniform(0.4, 2.5)
    style = rng.randrange(3)
    while t < until - 1:
        factor = next((f for since, f in run.slow if t > since), 1.0)
        step += max(1, int(60 / (base * factor)))
        if job.kind == "mpi":
            lines.append(
                (
                    t,
                    f"Step {step:10d}  Time {step * 0.002:.4f} ps   Pot. Energy {-1.2e6 + rng.uniform(-900, 900):.5e}   {base * factor:.3f} s/step",
                )
            )
        elif job.kind == "notebook":
            lines.append(
                (
                    t,
                    f"[I {sim.site.stamp(t).strftime('%Y-%m-%d %H:%M:%S')}.{rng.randint(0, 999):03d} ServerApp] Saving file at /analysis.ipynb",
                )
            )
        elif style == 0:
            lines.append(
                (
                    t,
                    f"{sim.site.stamp(t).strftime('%Y-%m-%d %H:%M:%S')} | INFO | step {step} loss {2 + 9 / (1 + step / 300):.4f} tok/s {int(41000 / factor)}",
                )
            )
        elif style == 1:
            lines.append(
                (
                    t,
                    f" iteration {step:8d}/  500000 | consumed samples: {step * 512:12d} | elapsed time per iteration (ms): {base * factor * 1000:.1f} | learning rate: "
                    f"3.000E-04 | lm loss: {2 + 9 / (1 + step / 300):.6E}",
                )
            )
        else:
            lines.append(
                (
                    t,
                    f"{{'loss': {2 + 9 / (1 + step / 300):.4f}, 'grad_norm': {rng.uniform(0.2, 2):.3f}, 'epoch': {step / 9000:.2f}}}",
                )
            )
        t += rng.uniform(50, 130)
    return lines


def write_job(sim: Sim, run: Run, root: Path, merged: bool) -> None:
    """stdout, stderr, script and environment of a run."""
    job = run.job
    place = root / "jobs" / str(job.jid)
    if run.restart:
        place = place / f"restart-{run.restart}"
    out, err = (
        [x for x in lines if x[0] <= sim.site.end]
        for lines in (([] if run.stall and run.stall < run.start else progress(sim, run)) + run.out, run.err)
    )
    for _ in range(sim.rng.choice((0, 0, 1, 2))):
        err.append(
            (
                run.start + 20 + sim.rng.random() * max(1, (run.stall or run.end or sim.site.end) - run.start - 40),
                sim.rng.choice(CHATTER),
            )
        )
    if run.stall and run.stall < run.start:
        err = []
    if merged:
        out, err = out + err, []
    put(place / "stdout", [x for _, x in sorted(out, key=lambda k: k[0])])
    if not merged:
        put(place / "stderr", [x for _, x in sorted(err, key=lambda k: k[0])])
    launch = {
        "train": "srun python -m torch.distributed.run train.py",
        "mpi": "srun --mpi=pmix ./model",
        "notebook": "jupyter lab --no-browser",
    }.get(job.kind, "python main.py")
    put(
        place / "script.sh",
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={job.name}",
            f"#SBATCH --partition={job.partition}",
            f"#SBATCH --nodes={job.nnodes}",
            f"#SBATCH --gres=gpu:{job.gpus}",
            f"#SBATCH --time={job.limit}",
            *(["#SBATCH --requeue"] if job.requeue else []),
            f"cd {folder(sim, job)}",
            launch,
        ],
    )
    env = [
        f"SLURM_JOB_ID={job.jid}",
        f"SLURM_JOB_NAME={job.name}",
        f"SLURM_JOB_NODELIST={hostlist([n.name for n in run.nodes])}",
        f"SLURM_JOB_NUM_NODES={job.nnodes}",
        f"SLURM_JOB_PARTITION={job.partition}",
        f"SLURM_JOB_USER={job.user}",
        f"SLURM_RESTART_COUNT={run.restart}",
        f"SLURM_JOB_GPUS={','.join(str(g) for g in run.held[run.nodes[0].name])}",
    ]
    if job.array:
        env += [f"SLURM_ARRAY_JOB_ID={job.array[0]}", f"SLURM_ARRAY_TASK_ID={job.array[1]}"]
    put(place / "env", env)


def write_metrics(sim: Sim, root: Path) -> None:
    """DCGM figures of a few hosts; the hot ones among them."""
    hot = {i["root_cause"]["host"]: i for i in sim.incidents if i["kind"] == "gpu_thermal_straggler"}
    some = [n for n in sim.site.nodes if n.name in hot] + sim.rng.sample(sim.site.nodes, 5)
    for node in some:
        t = sim.site.start + 60
        while t < sim.site.end:
            lines = []
            inc = hot.get(node.name)
            for metric in ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP"):
                lines += [f"# HELP {metric} from dcgm-exporter", f"# TYPE {metric} gauge"]
                for gpu in range(8):
                    sick = inc and gpu == inc["extra"]["gpu"] and inc["start"] < t < inc["end"]
                    value = (
                        (sim.rng.randint(690, 900) if sick else 1980)
                        if metric.endswith("CLOCK")
                        else (sim.rng.randint(88, 94) if sick else sim.rng.randint(52, 74))
                    )
                    bdf = node.bdf(gpu).upper().replace("0000:", "00000000:", 1)
                    about = f'device="nvidia{gpu}",modelName="NVIDIA {node.kind.upper()}",Hostname="{node.name}"'
                    lines.append(
                        f'{metric}{{gpu="{gpu}",UUID="GPU-{sim.site.seed:08x}-{node.group:04x}-{gpu:04x}",pci_bus_id="{bdf}.0",{about}}} {value}'
                    )
            put(root / "metrics" / node.name / f"{int(t)}.prom", lines)
            t += 600


def write_inventory(sim: Sim, root: Path) -> None:
    """Cabling, topology and slurm.conf."""
    site = sim.site
    rows = ["node,nic,switch,port"]
    for node in site.nodes:
        i = site.index(node)
        rows.append(f"{node.name},{site.mgmt_nic},{site.mgmt_switch(node.group)},{site.port(i)}")
        rows += [f"{node.name},{site.rail_nic(r)},{site.leaf(node.group, r)},{site.port(i, r)}" for r in range(4)]
    put(root / "inventory" / "links.csv", rows)
    groups = [[n.name for n in site.nodes if n.group == g] for g in range(site.groups)]
    put(
        root / "topology.conf",
        [f"SwitchName=rack{g + 1:02d} Nodes={hostlist(names)}" for g, names in enumerate(groups)]
        + [f"SwitchName=core Switches=rack[01-{site.groups:02d}]"],
    )
    kinds = {k: [n.name for n in site.nodes if n.kind == k] for k in ("h100", "a100")}
    put(
        root / "slurm.conf",
        [
            f"ClusterName=c{site.seed}",
            f"SlurmctldHost={site.controller}",
            f"SlurmdTimeout={site.timeout}",
            "MessageTimeout=10",
            "KillWait=30",
            "UnkillableStepTimeout=60",
            "ReturnToService=1",
            "JobRequeue=1",
            "PreemptType=preempt/qos",
            "PreemptMode=REQUEUE",
            "GresTypes=gpu",
            f"LogTimeFormat={site.slurm_format}",
            *[
                f"NodeName={hostlist(v)} CPUs=96 RealMemory=1031534 Gres=gpu:{k}:8 State=UNKNOWN"
                for k, v in kinds.items()
            ],
            *[f"PartitionName={k} Nodes={hostlist(v)} MaxTime=1-00:00:00 State=UP" for k, v in kinds.items()],
        ],
    )


def truth(sim: Sim) -> Incident:
    """truth.json."""
    by_key = {r.key: r for r in sim.runs}
    for inc in sim.incidents:
        if inc["severity"] == "impact" and not (inc["jobs"] or inc["jobs_slowed"] or inc["nodes_down"]):
            inc["severity"] = "noeffect"
    for key, verdict in sim.verdicts.items():
        run = by_key[key]
        if verdict["category"].startswith("infra") or not run.start:
            continue
        around = [
            i["id"]
            for i in sim.incidents
            if run.start - 60 <= i["start"] <= run.end + 300 and set(i["hosts"]) & set(run.held)
        ]
        if around:
            verdict["trap"] = True
            verdict["not"] = around
    site = sim.site
    rest = {r.key: ("RUNNING" if r.start else "PENDING") for r in sim.runs if not r.end}
    return {
        "seed": site.seed,
        "difficulty": "outside",
        "nodes": len(site.nodes),
        "hours": site.hours,
        "window": [site.start, site.end],
        "perturb": {"skew": 4.0, "dup": 0.003, "disorder": 40},
        "config": {
            "SlurmdTimeout": site.timeout,
            "timezone": site.tz.key,
            "fabric": site.fabric,
            "vendor": site.vendor,
            "storage": site.storage,
            "slurm_format": site.slurm_format,
            "sys_format": site.sys_format,
            "lost": [n.name for n in site.nodes if n.lost],
            "mute_switch": site.mute_switch,
        },
        "lemons": [],
        "incidents": sim.incidents,
        "verdicts": sim.verdicts,
        "completed": sim.completed,
        "unfinished": rest,
        "jobs_total": len(sim.runs),
    }


def write(sim: Sim, out: Path) -> None:
    """The whole folder: logs/ and truth.json."""
    root = out / "logs"
    merged = sim.site.seed % 3 == 1
    rows = [COLUMNS]
    for run in sorted(sim.runs, key=lambda r: (r.job.jid, r.restart)):
        rows += sacct_rows(sim, run)
        if run.start:
            write_job(sim, run, root, merged)
    put(root / "accounting" / "sacct.txt", rows)
    write_inventory(sim, root)
    write_metrics(sim, root)
    write_all(sim.log, root)
    (out / "truth.json").write_text(json.dumps(truth(sim), indent=1))
