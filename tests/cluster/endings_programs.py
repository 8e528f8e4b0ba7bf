"""Mistakes of users that look like a node's or the cluster's, and faults of the site's software that no node has."""

import time

import cluster as c
from endings import ended, ending, on, truth, well
from spaces import SHARED


@ending()
def shared_software_broken(k):
    """An administrator installed a broken program in the shared software tree: two users' runs fail on every node."""
    c.write(f"{SHARED}/home/jobs/solver.py", "import solver_core_v9\n")
    k.inject("software_broken", user="root")
    jobs = [on(f"gpu0{i}", "sleep 3; srun python3 /home/jobs/solver.py", name="solve", user=("alice", "bob")[i % 2])
            for i in (1, 2, 3, 4)]  # fmt: skip
    for job in jobs:
        truth(k, job, "FAILED", "1:0", "the site's solver.py lacks a module, on every node", "administrator")
    ended(k, *jobs, limit=60)


@ending()
def others_cache_in_tmp(k):
    """A user's program wants /tmp/cache of a node, which another user's job made there for itself: permission denied."""
    b = well(k, on("gpu02", "mkdir -m 700 /tmp/cache; sleep 12; rm -r /tmp/cache", name="caches", user="bob"))
    a = on("gpu02", "sleep 5; srun bash -c 'mkdir -p /tmp/cache; echo x > /tmp/cache/x'", name="caches")
    truth(k, a, "FAILED", "1:0", "its own fixed name in /tmp, which another user's job has taken", "user program")
    ended(k, a, b, limit=60)


@ending()
def rank_dies_and_peers_hang(k):
    """One rank of two ends with exit code 5 and the other one waits for it until the time limit of one minute."""
    inner = "if [ $SLURM_PROCID = 1 ]; then sleep 5; echo rank 1: assertion failed; exit 5; fi; sleep 240"
    a = on("gpu[01-02]", f"srun bash -c '{inner}'", "-N2", "-t", "1", name="onerank")
    truth(k, a, "TIMEOUT", "0:0", "rank 1 ended with exit code 5; its peer waited until the time limit", "user program")
    ended(k, a, limit=150)


@ending()
def srun_wait_kills_rest(k):
    """srun --wait=5: one task ends at once, and srun kills the other ones 5 s later."""
    inner = "[ $SLURM_PROCID = 0 ] && exit 0; sleep 240"
    a = on("gpu[01-02]", f"srun --wait=5 bash -c '{inner}'", "-N2", name="waitfive")
    truth(k, a, "FAILED", "9:0", "its own --wait=5: srun killed the task that went on", "user submission")
    ended(k, a, limit=60)


@ending()
def step_time_limit(k):
    """A step has a time limit of its own (one minute) in a job that has ten; the script ends with srun's code."""
    a = on("gpu04", "srun -t 1 sleep 240", "-t", "10", name="steplimit")
    truth(k, a, "FAILED", "15:0", "its own time limit for the step", "user submission")
    ended(k, a, limit=150)


@ending()
def too_many_tasks(k):
    """srun asks for more tasks than the job has processors."""
    a = on("gpu04", "srun -n 6 hostname", "-n", "2", name="tasks")
    truth(k, a, "FAILED", "1:0", "it asks for more tasks than it has processors", "user submission")
    ended(k, a, limit=60)


@ending()
def broadcast_source_missing(k):
    """sbcast is to copy a file that does not exist to all nodes."""
    a = on("gpu[03-04]", "sbcast model.bin /tmp/model.bin || exit 1; srun hostname", "-N2", name="sbcast")
    truth(k, a, "FAILED", "1:0", "the file of its sbcast does not exist", "user submission")
    ended(k, a, limit=60)


@ending()
def broadcast_finds_tmp_full(k):
    """sbcast copies a program to the nodes of a job, and /tmp of one of them is full (by an agent of root)."""
    c.inside("gpu04", ["sh", "-c", "dd if=/dev/zero of=/tmp/scratch.agent bs=1M 2>/dev/null"])
    k.inject("tmp_full", host="gpu04", user="root")
    script = "sbcast -f /usr/bin/mariadb /tmp/scratch.program || exit 1; srun true"
    a = on("gpu[03-04]", script, "-N2", name="sbcast")
    truth(k, a, "FAILED", "1:0", "/tmp of gpu04 is full, by an agent of root", "node gpu04")
    well(k, on("gpu[01-02]", script, "-N2", name="sbcast", user="bob"))
    ended(k, limit=60)
    for h in c.load()["nodes"]:
        c.inside(h, ["sh", "-c", "rm -f /tmp/scratch.*"])


@ending(MaxStepCount="3")
def too_many_steps(k):
    """A script starts more steps than the site allows a job (MaxStepCount=3); the last one's failure ends it."""
    a = on("gpu02", "for i in 1 2 3 4 5; do srun true || exit 1; done", name="steps")
    truth(k, a, "FAILED", "1:0", "it starts more steps than MaxStepCount allows", "user submission")
    ended(k, a, limit=60)


@ending()
def output_quoted_fault(k):
    """A program prints another log (a test of its log reader, full of node faults) and then fails by its own exit code."""
    lines = ["slurmctld: error: Nodes gpu01 not responding, setting DOWN", "mlx5_core 0000:17:00.0 hsn0: Link down",
             "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0 cgroup.", "NVRM: Xid (PCI:0000:41:00): 48"]  # fmt: skip
    script = "sleep 4; " + "; ".join(f"echo 'test line: {x}'" for x in lines) + "; exit 3"
    a = on("gpu03", script, name="logtest")
    truth(k, a, "FAILED", "3:0", "its own exit code 3; the lines in its output are test data", "user program")
    ended(k, a, limit=60)


@ending()
def wrong_node_type(k):
    """A user's program asks for a GPU that it did not request: no device is given, and it ends with its own error."""
    test = 'import os; raise SystemExit(0 if os.environ.get("CUDA_VISIBLE_DEVICES") else "CUDA error: no CUDA-capable device is detected")'
    a = on("gpu03", f"sleep 3; srun python3 -c '{test}'", name="nogpu")
    truth(k, a, "FAILED", "1:0", "it requested no GPU", "user submission")
    b = well(k, on("gpu03", f"sleep 3; srun python3 -c '{test}'", "--gres=gpu:h100:1", name="nogpu", user="bob"))
    ended(k, a, b, limit=60)


@ending()
def same_bug_in_two_runs_of_one_user(k):
    """One user's program fails twice on one node and once on another one by its own bug, and another user's is well there."""
    script = "sleep 3; srun python3 -c 'import json; json.loads(\"\")'"
    jobs = [on(n, script, name="parse") for n in ("gpu02", "gpu02", "gpu03")]
    for job in jobs:
        truth(k, job, "FAILED", "1:0", "its own JSONDecodeError", "user program")
    b = well(k, on("gpu02", "sleep 3; srun python3 -c 'import json; json.loads(\"1\")'", name="parse", user="bob"))
    ended(k, *jobs, b, limit=60)
    time.sleep(1)
