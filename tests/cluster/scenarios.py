#!/usr/bin/env python3
"""Real faults on the cluster of cluster.py, each captured with its ground truth.

    scenarios.py list
    scenarios.py run NAME... | all [--out FOLDER]

The cluster must be up.  For each scenario: the state before, the fault, the state
after, and every log as it grew meanwhile, under OUT/NAME/:

    truth.json          what was injected when; which nodes and jobs it hit, which not
    observed.jsonl      node and job states as polled (about twice a second)
    slurm/              sacct, sacctmgr events, scontrol, sdiag, sinfo, jobcomp
    hosts/HOST/         that host's logs (slurm*, syslog in two formats, kernel, link monitor), link counters
    kmsg.jsonl          the machine's kernel ring buffer as read
    jobs/               the jobs' own output
"""

import signal
import time

import cluster as c
import entangled  # noqa: F401  registers more scenarios
import entangled_jobs  # noqa: F401
import further  # noqa: F401
import later  # noqa: F401
import moments  # noqa: F401
import unusual  # noqa: F401
from capture import SCENARIOS, Capture, clean, command_line, ctl, scaled, scenario
from spaces import AS_MUNGE, AS_SLURM, hdir


# ---------------------------------------------------------------------- the faults
@scenario
def healthy(k):
    """No fault: two multi-node jobs end well. The logs of a quiet cluster."""
    a = c.ring(4, 15)
    b = c.submit("srun hostname; sleep 5", "-N2", name="hello", user="bob")
    k.job(a, "COMPLETED", False)
    k.job(b, "COMPLETED", False)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def mgmt_flap_short(k):
    """Management link of one node flaps three times for 3 s, less than SlurmdTimeout: no job may fail."""
    a = k.job(c.ring(4, 45), "COMPLETED", False)
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    k.flap("gpu02", "mgmt", down_for=3, count=3, gap=5)
    k.node("gpu02", "stays in service")
    k.wait(a, k.DONE)


@scenario
def mgmt_flap_medium(k):
    """Management link down 14 s: longer than a ping, shorter than SlurmdTimeout.

    'not responding', then back; jobs go on.
    """
    a = k.job(c.ring(4, 45), "COMPLETED", False)
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    k.flap("gpu02", "mgmt", down_for=scaled(14))
    k.node("gpu02", "not responding for a moment, then in service")
    k.wait(a, k.DONE)


@scenario
def mgmt_flap_long(k):
    """Management link of a node (not the batch host) down for 60 s, longer than SlurmdTimeout: node DOWN,
    its job NODE_FAIL; a job on other nodes goes on; the node comes back by itself (ReturnToService=1)."""
    a = c.ring(2, int(scaled(100)), 10, "-w", "gpu[01-02]", "--no-requeue", name="hit")
    b = c.ring(2, int(scaled(60)), 10, "-w", "gpu[03-04]", "--no-requeue", name="bystander", user="bob")
    k.job(a, "NODE_FAIL", True, "link_down gpu02 mgmt")
    k.job(b, "COMPLETED", False)
    k.wait(a, ["RUNNING"])
    k.wait(b, ["RUNNING"])
    time.sleep(4)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    k.wait_node("gpu02", "idle")
    k.node("gpu02", "DOWN, then back in service")


@scenario
def mgmt_flap_requeue(k):
    """As mgmt_flap_long with a job that may be requeued: two accounting records of one job id, NODE_FAIL and (two
    minutes later, on the same nodes, the lost one being back for a while) COMPLETED."""
    a = k.job(
        c.ring(2, int(scaled(60)), 10, "--requeue", "-x", "gpu[01-02]", name="hit"),
        "NODE_FAIL,COMPLETED",
        True,
        "link_down gpu04 mgmt",
        "requeued; the second run is good",
    )
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    k.flap("gpu04", "mgmt", down_for=scaled(45))
    k.wait(a, ["PENDING"], 20)
    k.wait(a, ["RUNNING"], 180)
    k.wait(a, k.DONE, 120)
    k.node("gpu04", "DOWN; comes back when slurmctld next asks DOWN nodes to register (up to 20 ping rounds)")


@scenario
def fabric_flap_short(k):
    """Fabric link flaps 2 s three times: TCP carries the job over; nothing in Slurm's logs."""
    a = k.job(c.ring(4, 40, 10), "COMPLETED", False)
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    k.flap("gpu03", "hsn", down_for=2, count=3, gap=5)
    k.wait(a, k.DONE)
    k.node("gpu03", "in service")


@scenario
def fabric_flap_long(k):
    """Fabric link of one node down for 25 s: the job's own watchdog ends it (exit 1). Slurm sees no node fault;
    the node's health check drains the node while the link is down."""
    for h in c.load()["nodes"]:
        c.write(hdir(h, "run/nhc.on"), "")
    a = k.job(c.ring(4, 90, 10), "FAILED", True, "link_down gpu03 hsn")
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    k.flap("gpu03", "hsn", down_for=25)
    k.wait(a, k.DONE)
    k.node("gpu03", "drained by the health check")


@scenario
def slurmd_killed(k):
    """slurmd of a node is killed (SIGKILL) and stays away: node DOWN after SlurmdTimeout,
    job NODE_FAIL, no link event."""
    a = k.job(
        c.ring(2, int(scaled(120)), 10, "-w", "gpu[02-03]", "--no-requeue", name="hit"),
        "NODE_FAIL",
        True,
        "slurmd killed gpu03",
    )
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    t, p = c.kill_daemon("gpu03")
    k.inject("slurmd_sigkill", t, host="gpu03", pids=p)
    k.wait(a, k.DONE)
    time.sleep(5)
    c.daemon("gpu03", ["slurmd"])
    k.inject("slurmd_start", host="gpu03")
    k.wait_node("gpu03", "idle")
    k.node("gpu03", "DOWN, then back in service")


@scenario
def slurmd_restarted(k):
    """slurmd is stopped (SIGTERM) and started 5 s later, under a running job: nothing fails."""
    a = k.job(c.ring(2, 30, 10, "-w", "gpu[02-03]", name="kept"), "COMPLETED", False)
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    t, p = c.kill_daemon("gpu03", sig=signal.SIGTERM)
    k.inject("slurmd_sigterm", t, host="gpu03", pids=p)
    time.sleep(5)
    c.daemon("gpu03", ["slurmd"])
    k.inject("slurmd_start", host="gpu03")
    k.wait(a, k.DONE)
    k.node("gpu03", "in service")


@scenario
def node_reboot(k):
    """A node loses power under a job and is back 8 s later (before SlurmdTimeout):
    slurmctld finds the reboot when slurmd registers."""
    a = k.job(
        c.ring(2, 120, 10, "-w", "gpu[03-04]", "--no-requeue", name="hit"),
        "NODE_FAIL",
        True,
        "power_off gpu04",
        "the ring's watchdog may be first: then FAILED",
    )
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    k.wait(a, k.DONE)
    time.sleep(12)
    k.node("gpu04", "DOWN: unexpectedly rebooted; stays so until resumed by hand")


@scenario
def job_faults(k):
    """Jobs that end badly by themselves: exit code 3, SIGSEGV, time limit, cancelled while running and while pending,
    a failing step under a good script. No fault of the cluster."""
    j = [
        k.job(c.submit("exit 3", name="exit3"), "FAILED", False, "own exit code"),
        k.job(
            c.submit("srun python3 -c 'import os,signal; os.kill(os.getpid(), 11)'", name="segv"),
            "FAILED",
            False,
            "own signal",
        ),
        k.job(c.submit("srun sleep 600", "-t", "1", name="toolong", user="bob"), "TIMEOUT", False, "time limit"),
        k.job(c.submit("srun sleep 600", "-N2", name="cancelled"), "CANCELLED", False, "scancel by user"),
        k.job(
            c.submit("sleep 1", "-d", "afterok:1000000", "-H", name="held"), "CANCELLED", False, "scancel while pending"
        ),
        k.job(
            c.submit("srun false; srun true", name="badstep"), "COMPLETED", False, "a step failed, the script did not"
        ),
    ]
    k.wait(j[3], ["RUNNING"])
    time.sleep(5)
    c.inside("ctl", ["scancel", str(j[3])], user="alice")
    k.inject("scancel", job=j[3], user="alice")
    c.inside("ctl", ["scancel", str(j[4])])
    k.inject("scancel", job=j[4], user="root")
    for x in j:
        k.wait(x, k.DONE, 150)


@scenario
def oom(k):
    """A job takes more memory than it asked for: the kernel's OOM killer ends it (real, by its memory cgroup)."""
    a = k.job(
        c.submit("srun python3 /home/jobs/memhog.py 600", "-w", "gpu02", "--mem=100", name="memhog"),
        "FAILED",
        False,
        "own memory",
        "only the STEP is OUT_OF_MEMORY (0:125); the job is FAILED 1:0, as the batch script ends with srun's exit code",
    )
    b = k.job(c.submit("sleep 12", "-w", "gpu02", "--mem=100", name="quiet", user="bob"), "COMPLETED", False)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def epilog_fails(k):
    """The epilog of one node fails: the job is good, the node is drained after it."""
    c.write(hdir("gpu03", "run/fault.epilog"), "7")
    k.inject("epilog_exit_7", host="gpu03")
    a = k.job(c.submit("srun hostname; sleep 3", "-N2", "-w", "gpu[03-04]", name="fine"), "COMPLETED", False)
    k.wait(a, k.DONE)
    k.wait_node("gpu03", "drain")
    k.node("gpu03", "drained: Epilog error")


@scenario
def mgmt_flap_batch_host(k):
    """Management link of the job's first node, where the batch script runs, down longer than SlurmdTimeout."""
    a = k.job(
        c.ring(2, int(scaled(110)), 10, "-w", "gpu[01-02]", "--no-requeue", name="hit"),
        "NODE_FAIL",
        True,
        "link_down gpu01 mgmt",
    )
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    k.flap("gpu01", "mgmt", down_for=scaled(50))
    k.wait(a, k.DONE)
    k.node("gpu01", "DOWN; comes back when slurmctld next asks DOWN nodes to register")


@scenario
def mgmt_flap_requeue_pinned(k):
    """As mgmt_flap_requeue, but the job can only run on the node that was lost: it starts again in the second
    that node is back, and that second run fails of the first fault's after-effects."""
    a = k.job(
        c.ring(2, int(scaled(60)), 10, "--requeue", "-w", "gpu[03-04]", name="hit"),
        "NODE_FAIL,FAILED",
        True,
        "link_down gpu04 mgmt",
        "requeued; the second run meets a revoked credential on gpu04",
    )
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    k.flap("gpu04", "mgmt", down_for=scaled(45))
    k.wait(a, ["PENDING"], 20)
    k.wait(a, ["RUNNING", "FAILED"], 240)
    k.wait(a, k.DONE, 120)
    k.node("gpu04", "DOWN, then back in service")


@scenario
def fabric_flap_decoy(k):
    """Fabric link of a node down 4 s while a job of one node fails there by its own bug: the flap is not its cause."""
    a = k.job(c.ring(4, 40, 10, name="rides"), "COMPLETED", False)
    b = k.job(
        c.submit("srun python3 -c 'import time; time.sleep(13); {}[\"lr\"]'", "-w", "gpu03", name="buggy", user="bob"),
        "FAILED",
        False,
        "own bug",
        "the link of the same node flapped at that time",
    )
    k.wait(a, ["RUNNING"])
    k.wait(b, ["RUNNING"])
    time.sleep(7)
    k.flap("gpu03", "hsn", down_for=4)
    k.wait(b, k.DONE)
    k.wait(a, k.DONE)
    k.node("gpu03", "in service")


@scenario
def prolog_fails(k):
    """The prolog of one node fails: the job is held after a requeue (and cancelled by the administrator),
    the node drained."""
    c.write(hdir("gpu02", "run/fault.prolog"), "1")
    k.inject("prolog_exit_1", host="gpu02")
    a = k.job(
        c.submit("srun hostname; sleep 3", "-N2", "-w", "gpu[01-02]", name="unlucky"),
        "REQUEUED,CANCELLED",
        True,
        "prolog exit 1 gpu02",
    )
    k.wait_node("gpu02", "drain", 60)
    k.wait(a, ["PENDING", "REQUEUE_HOLD"], 60)
    time.sleep(3)
    ctl("scancel", str(a))
    k.inject("scancel", job=a, user="root")
    k.wait(a, k.DONE)
    k.node("gpu02", "drained: Prolog error")


@scenario
def disk_full(k):
    """A job fills its node's /tmp and ends with exit code 28; then the node's slurmd spool is full when a job comes."""
    a = k.job(
        c.submit("bash /home/jobs/diskhog.sh", "-w", "gpu02", name="diskhog"), "FAILED", False, "own: filled /tmp"
    )
    k.wait(a, k.DONE)
    k.inject("spool_full", host="gpu02")
    c.inside("gpu02", ["sh", "-c", "dd if=/dev/zero of=/var/spool/slurmd/fill bs=64k 2>/dev/null"])
    b = k.job(
        c.submit("srun hostname; sleep 5", "-w", "gpu02", "--no-requeue", name="nospace", user="bob"),
        "CANCELLED",
        True,
        "slurmd spool full gpu02",
    )
    k.wait(b, k.DONE, 60)
    k.wait_node("gpu02", "drain", 60)
    k.node("gpu02", "drained: SlurmdSpoolDir is full")


@scenario
def munge_dies(k):
    """munged of a node is killed: slurmd receives but cannot answer, node DOWN, job NODE_FAIL, no link event."""
    a = k.job(
        c.ring(2, int(scaled(120)), 10, "-w", "gpu[02-03]", "--no-requeue", name="hit"),
        "NODE_FAIL",
        True,
        "munged killed gpu02",
    )
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    t, p = c.kill_daemon("gpu02", "munged")
    k.inject("munged_sigkill", t, host="gpu02", pids=p)
    k.wait(a, k.DONE)
    time.sleep(5)
    c.daemon("gpu02", [*AS_MUNGE, "munged", "--force"])
    k.inject("munged_start", host="gpu02")
    k.node("gpu02", "DOWN until slurmctld next asks it to register")


@scenario
def switch_down(k):
    """The management switch is lost (every node's port down 50 s): all nodes DOWN at once, every job NODE_FAIL."""
    a = k.job(
        c.ring(2, int(scaled(110)), 10, "-w", "gpu[01-02]", "--no-requeue", name="hit"),
        "NODE_FAIL",
        True,
        "switch mgmt",
    )
    b = k.job(
        c.ring(2, int(scaled(110)), 10, "-w", "gpu[03-04]", "--no-requeue", name="hit", user="bob"),
        "NODE_FAIL",
        True,
        "switch mgmt",
    )
    k.wait(a, ["RUNNING"])
    k.wait(b, ["RUNNING"])
    time.sleep(4)
    hosts = c.load()["nodes"]
    for h in hosts:
        k.port(h, "mgmt", False)
    time.sleep(scaled(50))
    for h in hosts:
        k.port(h, "mgmt", True)
        k.node(h, "DOWN, then back in service")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    for h in hosts:
        k.wait_node(h, "idle")


@scenario
def controller_restart(k):
    """slurmctld is killed and started 10 s later; slurmdbd is killed and started 15 s later.

    The running job goes on.
    """
    a = k.job(c.ring(4, 45, 10, name="kept"), "COMPLETED", False)
    k.wait(a, ["RUNNING"])
    time.sleep(3)
    t, p = c.kill_daemon("ctl", "slurmdbd")
    k.inject("slurmdbd_sigkill", t, host="ctl", pids=p)
    time.sleep(3)
    t, p = c.kill_daemon("ctl", "slurmctld")
    k.inject("slurmctld_sigkill", t, host="ctl", pids=p)
    time.sleep(10)
    c.daemon("ctl", [*AS_SLURM, "slurmctld"])
    k.inject("slurmctld_start", host="ctl")
    time.sleep(5)
    c.daemon("ctl", [*AS_SLURM, "slurmdbd"])
    k.inject("slurmdbd_start", host="ctl")
    k.wait(a, k.DONE)
    time.sleep(5)


def main():
    names, out = command_line(SCENARIOS)
    for n in names:
        print(f"{n}:", flush=True)
        clean()
        k = Capture(n, SCENARIOS[n].__doc__, out)
        try:
            SCENARIOS[n](k)
        finally:
            k.finish()
    clean()


if __name__ == "__main__":
    main()
