"""Rare faults, or those that hit the controller, a daemon's own files or the job's bookkeeping instead of a node."""

import os
import signal
import time

import cluster as c
from capture import ctl, scaled, scenario
from entangled import hit, running, slurmd_again, start, stop
from spaces import AS_MUNGE, AS_SLURM, hdir


@scenario
def controller_cut_off(k):
    """The management link of the controller itself is lost for 60 s: no node answers it, all are DOWN, both jobs
    NODE_FAIL. No node's own link was lost."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "link_down ctl mgmt")
    b = k.job(hit("gpu[03-04]", user="bob"), "NODE_FAIL", True, "link_down ctl mgmt")
    running(k, a, b)
    k.flap("ctl", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    time.sleep(8)


@scenario
def slurmd_stopped(k):
    """An administrator stops slurmd of a node (SIGTERM) and does not start it again: DOWN, job NODE_FAIL."""
    a = k.job(hit("gpu[02-03]"), "NODE_FAIL", True, "slurmd stopped gpu03")
    running(k, a)
    stop(k, "gpu03", "slurmd", signal.SIGTERM)
    k.wait(a, k.DONE)
    time.sleep(5)
    slurmd_again(k, "gpu03")
    k.wait_node("gpu03", "idle")


@scenario
def device_gone(k):
    """A GPU's device file is gone when slurmd of a node is started anew: slurmd refuses to start (fatal), the node is
    DOWN, its job NODE_FAIL."""
    a = k.job(hit("gpu[03-04]"), "NODE_FAIL", True, "slurmd killed gpu04")
    running(k, a)
    c.inside("gpu04", ["rm", "/dev/nvidia3"])
    k.inject("device_gone", host="gpu04", device="/dev/nvidia3")
    stop(k, "gpu04", "slurmd", signal.SIGTERM)
    time.sleep(2)
    c.inside("gpu04", ["slurmd"], capture_output=True)  # fails
    k.inject("slurmd_start", host="gpu04")
    k.wait(a, k.DONE)
    time.sleep(3)
    c.inside("gpu04", ["mknod", "-m", "666", "/dev/nvidia3", "c", "1", "3"])
    start("gpu04", "slurmd")
    time.sleep(8)


@scenario
def stepd_killed(k):
    """All slurmstepd of a job are killed on its first node (SIGKILL), as a machine without memory does."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "stepd killed gpu01")
    running(k, a)
    stop(k, "gpu01", "slurmstepd")
    k.wait(a, k.DONE, 150)
    time.sleep(5)


@scenario
def array_link_lost(k):
    """The management link of one node is lost under an array job of one task per node: one task NODE_FAIL."""
    a = c.submit("srun sleep 70", "-a", "1-4", "-N1", "--exclusive", "--no-requeue", name="array")
    time.sleep(12)
    rows = [x.split("|") for x in ctl("squeue", "-h", "-r", "-j", str(a), "-o", "%A|%i|%N").splitlines()]
    for raw, shown, node in rows:
        bad = node == "gpu03"
        k.job(int(raw), "NODE_FAIL" if bad else "COMPLETED", bad, "link_down gpu03 mgmt" if bad else None, shown)
    k.flap("gpu03", "mgmt", down_for=scaled(60))
    for raw, _, _ in rows:
        k.wait(int(raw), k.DONE)


@scenario
def het_link_lost(k):
    """The management link of the second component's node is lost under a heterogeneous job: both components end."""
    a = c.submit(
        "srun --het-group=0,1 sleep 90", "-N1", "-w", "gpu01", "--no-requeue", ":", "-N1", "-w", "gpu02", name="het"
    )
    running(k, a)
    rows = [x.split("|") for x in ctl("squeue", "-h", "-o", "%A|%i").splitlines()]
    for raw, shown in rows:
        k.job(int(raw), "NODE_FAIL", True, "link_down gpu02 mgmt", shown)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    for raw, _ in rows:
        k.wait(int(raw), k.DONE)


@scenario
def controller_hangs(k):
    """slurmctld is stopped (SIGSTOP) for 40 s; meanwhile a job fails by its own exit code and one ends well."""
    a = k.job(c.submit("srun sleep 18; exit 6", "-w", "gpu01", name="exit6"), "FAILED", False, "own exit code")
    b = k.job(c.ring(2, 30, 10, "-w", "gpu[02-03]", name="kept", user="bob"), "COMPLETED", False)
    running(k, a, b)
    stop(k, "ctl", "slurmctld", signal.SIGSTOP)
    time.sleep(40)
    stop(k, "ctl", "slurmctld", signal.SIGCONT)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    time.sleep(5)


@scenario
def accounting_away(k):
    """slurmdbd is killed for 40 s; meanwhile a job fails by its own bug and another one reaches its time limit."""
    a = k.job(
        c.submit("srun python3 -c '{}[1]'", "-w", "gpu01", "--begin=now+12", name="bug"), "FAILED", False, "own bug"
    )
    b = k.job(
        c.submit("srun sleep 300", "-w", "gpu02", "-t", "1", name="long", user="bob"), "TIMEOUT", False, "time limit"
    )
    k.wait(b, ["RUNNING"])
    stop(k, "ctl", "slurmdbd")
    time.sleep(40)
    start("ctl", *AS_SLURM, "slurmdbd")
    k.inject("slurmdbd_start", host="ctl")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE, 150)
    time.sleep(8)


@scenario
def epilog_after_failure(k):
    """A job fails by its own exit code, and after it the epilog of its node fails: the drain is not the cause."""
    c.write(hdir("gpu03", "run/fault.epilog"), "7")
    k.inject("epilog_exit_7", host="gpu03")
    a = k.job(c.submit("srun sleep 5; exit 3", "-w", "gpu03", name="exit3"), "FAILED", False, "own exit code")
    k.wait(a, k.DONE)
    k.wait_node("gpu03", "drain")


@scenario
def ends_then_link_lost(k):
    """A job fails by its own exit code; in that second the management link of its other node is lost for 60 s, so that
    the job stays COMPLETING until the node is DOWN. The link did not end it."""
    a = k.job(
        c.submit("srun sleep 14; exit 4", "-N2", "-w", "gpu[01-02]", name="exit4"), "FAILED", False, "own exit code"
    )
    k.wait(a, ["RUNNING"])
    begun = time.time()
    while time.time() < begun + 40 and c.job_state(a) == "RUNNING":
        time.sleep(0.02)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    time.sleep(5)


@scenario
def fabric_switch_down(k):
    """The fabric of all nodes is lost for 30 s (one switch): the watchdog of each job ends it."""
    a = k.job(c.ring(2, 90, 10, "-w", "gpu[01-02]", name="hit"), "FAILED", True, "switch hsn")
    b = k.job(c.ring(2, 90, 10, "-w", "gpu[03-04]", name="hit", user="bob"), "FAILED", True, "switch hsn")
    running(k, a, b)
    for h in c.load()["nodes"]:
        k.port(h, "hsn", False)
    time.sleep(30)
    for h in c.load()["nodes"]:
        k.port(h, "hsn", True)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def both_links_lost(k):
    """Both links of a node are lost in one second for 60 s: the job's watchdog sees the fabric first."""
    a = k.job(hit("gpu[02-03]"), "FAILED", True, "link_down gpu03 hsn", "the node is set DOWN later, without a job")
    running(k, a)
    k.port("gpu03", "hsn", False)
    k.port("gpu03", "mgmt", False)
    time.sleep(scaled(60))
    k.port("gpu03", "mgmt", True)
    k.port("gpu03", "hsn", True)
    k.wait(a, k.DONE)
    time.sleep(5)


@scenario
def killed_by_signal(k):
    """A user sends SIGKILL to her job's step with scancel while its node's fabric link flaps 2 s: FAILED by a signal."""
    a = k.job(hit("gpu[01-02]", name="signalled"), "FAILED", False, "scancel by user with a signal")
    running(k, a)
    k.flap("gpu02", "hsn", down_for=2)
    c.inside("ctl", ["scancel", "-s", "KILL", f"{a}.0"], user="alice")
    k.inject("scancel_signal", job=a, user="alice")
    k.wait(a, k.DONE)
    time.sleep(3)


@scenario
def bookkeeping(k):
    """Ends without any fault: a job whose dependency can never be satisfied, and one that its user requeues."""
    a = k.job(c.submit("exit 3", name="first"), "FAILED", False, "own exit code")
    b = c.submit("sleep 1", "-d", f"afterok:{a}", "--kill-on-invalid-dep=yes", name="second")
    k.job(b, "CANCELLED", False, "scancel by slurmctld: its dependency failed")
    e = c.submit("srun sleep 25", "-w", "gpu02", "--requeue", name="again")
    k.job(e, "REQUEUED,COMPLETED", False, "scancel by user: requeued")
    running(k, e)
    c.inside("ctl", ["scontrol", "requeue", str(e)], user="alice")
    k.inject("requeue", job=e, user="alice")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    k.wait(e, ["RUNNING"], 200)
    k.wait(e, k.DONE)


@scenario
def rank_killed(k):
    """One rank of a four-node job is killed by a signal of its own (SIGKILL) 6 s after a flap of 4 s of the management
    link of another node; the output says only that the rank was killed and that peers were lost."""
    from entangled_jobs import one_rank

    what = 'python3 -c "import os; os.kill(os.getppid(), 9)"'
    a = k.job(one_rank(2, 16, what, name="killed"), "FAILED", False, "own signal")
    running(k, a)
    k.flap("gpu02", "mgmt", down_for=4)
    k.wait(a, k.DONE)
    os.sync()


@scenario
def controller_munge_dies(k):
    """munged of the controller is killed for 70 s: it can send nothing and believe nobody; all nodes may be given up."""
    a = c.ring(2, int(scaled(120)), 10, "-w", "gpu[01-02]", "--no-requeue", name="hit")
    running(k, a)
    stop(k, "ctl", "munged")
    time.sleep(scaled(70))
    start("ctl", *AS_MUNGE, "munged", "--force")
    k.inject("munged_start", host="ctl")
    k.wait(a, k.DONE, 150)
    lost = c.job_state(a) == "NODE_FAIL"
    k.job(a, "NODE_FAIL" if lost else "COMPLETED", lost, "munged killed ctl" if lost else None)


@scenario
def database_dies(k):
    """mariadb is killed for 30 s under slurmdbd; meanwhile a job fails by its own exit code, one is cancelled by its user,
    and the fabric link of the first one's node flaps 3 s."""
    a = k.job(c.submit("srun sleep 20; exit 8", "-w", "gpu02", name="exit8"), "FAILED", False, "own exit code")
    b = k.job(hit("gpu[03-04]", user="bob"), "CANCELLED", False, "scancel by user")
    running(k, a, b)
    stop(k, "ctl", "mariadbd")
    k.flap("gpu02", "hsn", down_for=3)
    time.sleep(5)
    c.inside("ctl", ["scancel", str(b)], user="bob")
    k.inject("scancel", job=b, user="bob")
    time.sleep(20)
    c.daemon("ctl", ["mariadbd"], out=hdir("ctl", "mariadb.out"))
    k.inject("mariadbd_start", host="ctl")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    time.sleep(20)
