"""Jobs that end by themselves, by their users or by the scheduler while something else goes wrong beside them."""

import time

import cluster as c
from capture import ctl, scaled, scenario
from entangled import hit, running

#: One rank of a ring fails after some seconds, the others find their neighbour gone.
ONE_RANK = """srun bash -c 'if [ $SLURM_PROCID = {rank} ]; then
  timeout {seconds} python3 /home/jobs/ring.py 600 10; {what}
else python3 /home/jobs/ring.py 600 10; fi'"""


def one_rank(rank, seconds, what, *opts, name, user="alice"):
    return c.submit(
        ONE_RANK.format(rank=rank, seconds=seconds, what=what),
        "-N4", "--ntasks-per-node=1", "-c", "2", "--gres=gpu:h100:2", *opts, name=name, user=user,
    )  # fmt: skip


@scenario
def rank_segfaults(k):
    """One rank of a four-node job dies of its own SIGSEGV; the others log that their peer is gone."""
    what = 'python3 -c "import os; os.kill(os.getpid(), 11)"'
    a = k.job(one_rank(2, 12, what, name="segv"), "FAILED", False, "own signal")
    k.wait(a, k.DONE)


@scenario
def rank_raises(k):
    """One rank of a four-node job raises a Python exception; the others log that their peer is gone.

    The fabric link of another node of the job flaps 2 s some seconds before.
    """
    what = 'python3 -c "import json; json.loads(chr(123))"'
    a = k.job(one_rank(1, 16, what, name="raises"), "FAILED", False, "own bug")
    running(k, a)
    k.flap("gpu04", "hsn", down_for=2)
    k.wait(a, k.DONE)


@scenario
def rank_out_of_memory(k):
    """One rank of a four-node job takes more memory than the job asked for on its node; the others lose their peer."""
    a = one_rank(3, 10, "python3 /home/jobs/memhog.py 900", "--mem=150", name="bigrank")
    k.job(a, "FAILED", False, "own memory")
    k.wait(a, k.DONE)


@scenario
def cancelled_in_flap(k):
    """A user cancels her job 12 s into a loss of its node's management link, which lasts 60 s: the node goes DOWN
    after the job was cancelled."""
    a = k.job(hit("gpu[01-02]", name="regretted"), "CANCELLED", False, "scancel by user")
    running(k, a)
    k.port("gpu02", "mgmt", False)
    time.sleep(12)
    c.inside("ctl", ["scancel", str(a)], user="alice")
    k.inject("scancel", job=a, user="alice")
    time.sleep(scaled(48))
    k.port("gpu02", "mgmt", True)
    k.wait(a, k.DONE)
    k.wait_node("gpu02", "idle")


@scenario
def time_limit_in_flap(k):
    """A job reaches its time limit while the fabric link of one of its nodes flaps for 3 s, three times; and one on
    a single node that failed by itself between two flaps."""
    a = c.ring(2, 300, 30, "-w", "gpu[03-04]", "-t", "1", name="toolong")
    k.job(a, "TIMEOUT", False, "time limit")
    b = c.submit("srun sleep 52; echo 'bad argument: --lr' >&2; exit 2", "-w", "gpu03", name="usage", user="bob")
    k.job(b, "FAILED", False, "own exit code")
    running(k, a, b)
    time.sleep(40)
    k.flap("gpu03", "hsn", down_for=3, count=3, gap=6)
    k.wait(a, k.DONE, 120)
    k.wait(b, k.DONE)


@scenario
def failed_after_flap(k):
    """A job fails by its own exit code 5 s after the management link of its node came back after 14 s; one goes on."""
    a = c.submit("srun sleep 30; exit 3", "-w", "gpu02", name="exit3")
    k.job(a, "FAILED", False, "own exit code")
    b = k.job(c.ring(2, 45, 10, "-w", "gpu[02-03]", name="rides", user="bob"), "COMPLETED", False)
    running(k, a, b)
    k.flap("gpu02", "mgmt", down_for=14)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def array_and_heterogeneous(k):
    """An array job of four tasks, of which the third fails; a heterogeneous job whose second component fails."""
    a = c.submit("sleep 4; [ $SLURM_ARRAY_TASK_ID != 3 ] || exit 9", "-a", "1-4", name="array")
    b = c.submit("sleep 5; srun --het-group=1 false", "-N1", ":", "-N1", name="het", user="bob")
    for _ in range(60):
        time.sleep(1)
        rows = ctl("sacct", "-n", "-X", "-P", "-j", f"{a},{b}", "-o", "JobIDRaw,JobID,State").splitlines()
        seen = [r.split("|") for r in rows]
        if len(seen) >= 5 and all(s.split()[0] in k.DONE for _, _, s in seen):
            break
    time.sleep(2)
    for raw, shown, state in seen:
        bad = not state.startswith("COMPLETED")
        expect = "FAILED" if shown.endswith("_3") or state.startswith("FAILED") else "COMPLETED"
        k.job(int(raw), expect, False, "own exit code" if bad else None, shown)


@scenario
def preempted_in_flap(k):
    """A job is preempted by one of a more urgent partition while its node's fabric link flaps 3 s; it is requeued,
    and runs again to a good end."""
    a = c.submit("srun sleep 20", "-w", "gpu02", "-n1", "-c", "8", "--requeue", "-t", "2", name="humble")
    k.job(a, "PREEMPTED,COMPLETED", False, "preempted")
    running(k, a)
    k.flap("gpu02", "hsn", down_for=3)
    b = c.submit("srun sleep 10", "-p", "urgent", "-w", "gpu02", "-n1", "-c", "8", name="urgent", user="bob")
    k.job(b, "COMPLETED", False)
    k.inject("preempting_job", job=b)
    k.wait(b, k.DONE)
    k.wait(a, ["RUNNING"], 200)
    k.wait(a, k.DONE)


@scenario
def admin_cancels(k):
    """root cancels a user's job (to make room for work on the node) and drains the node; no fault."""
    a = k.job(hit("gpu[01-02]", name="evicted"), "CANCELLED", False, "scancel by root")
    running(k, a)
    ctl("scontrol", "update", "nodename=gpu02", "state=drain", "reason=firmware update")
    k.inject("drain", host="gpu02", user="root")
    ctl("scancel", str(a))
    k.inject("scancel", job=a, user="root")
    k.wait(a, k.DONE)
    time.sleep(3)


@scenario
def gpu_lost(k):
    """The kernel of a node logs that a GPU fell off the bus (a synthetic line); the rank on it dies of a CUDA error."""
    what = 'echo "RuntimeError: CUDA error: unspecified launch failure" >&2; exit 1'
    a = k.job(one_rank(2, 14, what, name="train"), "FAILED", True, "xid 79 gpu03")
    running(k, a)
    time.sleep(6)
    text = "NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    t = c.kmsg("gpu03", text, 3)
    k.inject("xid_79", t, host="gpu03")
    k.truth["synthetic_lines"].append({"t": t, "host": "gpu03", "text": text})
    k.wait(a, k.DONE)
