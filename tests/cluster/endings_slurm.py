"""What Slurm's own daemons, their configuration and their launch of jobs can do to a job."""

import signal
import time

import cluster as c
from capture import ctl
from endings import CONF, cancel, configure, ended, ending, on, reread, truth, well
from entangled import running, slurmd_again, start, stop
from faults import set_cgroup
from spaces import AS_MUNGE, AS_SLURM, SHARED


def controller_again(k, sig=signal.SIGTERM, away=0.0):
    """slurmctld ends and is started again."""
    stop(k, "ctl", "slurmctld", sig)
    c.wait(lambda: not c.pidof("ctl", "slurmctld"), 30, "end of slurmctld")
    time.sleep(away)
    start("ctl", *AS_SLURM, "slurmctld")
    k.inject("slurmctld_start", host="ctl")


@ending()
def node_removed_from_config(k):
    """An administrator removes a node from slurm.conf under its job and restarts slurmctld: the node has vanished."""
    a = on("gpu04", "srun sleep 200", name="orphan")
    truth(k, a, "NODE_FAIL", "0:0", "gpu04 was removed from slurm.conf and slurmctld restarted", "administrator")
    b = well(k, on("gpu01", "srun sleep 30", name="kept", user="bob"))
    running(k, a, b)
    path = f"{SHARED}/etc/slurm/topology.conf"
    topology = open(path).read()
    old = configure(open(CONF).read().replace("gpu[01-04]", "gpu[01-03]"))
    c.write(path, topology.replace("gpu[01-04]", "gpu[01-03]"))
    k.inject("node_removed", host="gpu04", user="root")
    controller_again(k)
    time.sleep(10)
    ended(k, a, b, limit=60)
    configure(old)
    c.write(path, topology)
    k.inject("node_added", host="gpu04", user="root")
    controller_again(k)
    time.sleep(6)


@ending()
def partition_removed(k):
    """An administrator removes a partition from slurm.conf under its job and restarts slurmctld."""
    a = on("gpu02", "srun sleep 200", "-p", "urgent", name="orphan")
    truth(
        k,
        a,
        "NODE_FAIL",
        "0:0",
        "partition urgent was removed from slurm.conf and slurmctld restarted",
        "administrator",
    )
    running(k, a)
    text = open(CONF).read()
    old = configure("".join(x for x in text.splitlines(True) if not x.startswith("PartitionName=urgent")))
    k.inject("partition_removed", partition="urgent", user="root")
    controller_again(k)
    time.sleep(10)
    ended(k, a, limit=30)
    configure(old)
    controller_again(k)
    time.sleep(4)
    ctl("scancel", str(a))
    time.sleep(3)


@ending()
def partition_down(k):
    """An administrator sets a partition DOWN: the running job goes on and ends well, the waiting one is cancelled by its
    user."""
    a = well(k, on("gpu02", "srun sleep 20", "-p", "urgent", name="runs"))
    running(k, a)
    ctl("scontrol", "update", "partitionname=urgent", "state=down")
    k.inject("partition_down", partition="urgent", user="root")
    b = c.submit("srun hostname", "-p", "urgent", name="waits", user="bob")
    truth(k, b, "CANCELLED", "0:0", "scancel by its user: its partition was DOWN", "user")
    time.sleep(10)
    cancel(k, b, "bob")
    ended(k, a, b)
    ctl("scontrol", "update", "partitionname=urgent", "state=up")


@ending()
def controller_killed_in_launch(k):
    """slurmctld is killed (SIGKILL) one second after four jobs were submitted, and started 8 s later: all end as their
    programs do."""
    ids = [on(f"gpu0{i}", f"srun sleep 14; exit {i % 2}", name=f"launch{i}") for i in (1, 2, 3, 4)]
    for i, job in enumerate(ids, 1):
        if i % 2:
            truth(k, job, "FAILED", "1:0", "its own exit code 1", "user program")
        else:
            well(k, job)
    time.sleep(1)
    controller_again(k, signal.SIGKILL, 8)
    ended(k, *ids)


@ending()
def controller_restarted_under_failure(k):
    """slurmctld is restarted cleanly; a job fails by its own exit code while it is away, and one ends well."""
    a = on("gpu01", "srun sleep 14; exit 5", name="exit5")
    truth(k, a, "FAILED", "5:0", "its own exit code 5", "user program")
    b = well(k, on("gpu02", "srun sleep 40", name="kept", user="bob"))
    running(k, a, b)
    time.sleep(4)
    controller_again(k, away=14)
    ended(k, a, b)


@ending()
def accounting_away_meanwhile(k):
    """slurmdbd is away for a job's whole life; the job ends by its own exit code and is accounted afterwards."""
    stop(k, "ctl", "slurmdbd")
    a = on("gpu01", "srun sleep 5; exit 11", name="exit11")
    truth(k, a, "FAILED", "11:0", "its own exit code 11", "user program")
    ended(k, a)
    time.sleep(5)
    start("ctl", *AS_SLURM, "slurmdbd")
    k.inject("slurmdbd_start", host="ctl")
    time.sleep(20)


def kill_stepd(k, host, job, step):
    """Root of HOST kills (SIGKILL) the slurmstepd of one step of JOB."""
    find = f"ps -eo pid,args | awk '/slurmstepd: \\[{job}.{step}\\]/ && !/awk/ {{print $1}}'"
    c.inside(host, ["sh", "-c", f"kill -9 $({find})"])
    k.inject("stepd_killed", host=host, step=step, user="root", job=job)


@ending()
def batch_stepd_killed(k):
    """The slurmstepd of a job's batch script alone is killed (SIGKILL) on its node, by root."""
    a = on("gpu03", "srun sleep 200", name="hit")
    truth(k, a, "NODE_FAIL", "0:0", "the batch script's slurmstepd was killed by root on gpu03", "node gpu03")
    running(k, a)
    kill_stepd(k, "gpu03", a, "batch")
    ended(k, a, limit=150)
    ctl("scancel", str(a))
    time.sleep(3)


@ending()
def step_stepd_killed(k):
    """The slurmstepd of a job's step 0 is killed (SIGKILL) on one of its nodes, by root."""
    a = on("gpu[01-02]", "srun sleep 200", "-N2", name="hit")
    truth(k, a, "FAILED", "1:0", "the slurmstepd of step 0 was killed by root on gpu02", "node gpu02")
    running(k, a)
    kill_stepd(k, "gpu02", a, "0")
    ended(k, a, limit=100)
    ctl("scancel", str(a))
    time.sleep(3)


@ending()
def slurmd_deaf_at_launch(k):
    """slurmd of a node is stopped (SIGSTOP) and a job is launched there: no answer, the node is DOWN after SlurmdTimeout,
    and the job, which may not be requeued, NODE_FAIL."""
    stop(k, "gpu03", "slurmd", signal.SIGSTOP)
    a = on("gpu03", "srun hostname", name="unheard")
    truth(k, a, "NODE_FAIL", "0:0", "slurmd of gpu03 did not answer (SIGSTOP)", "node gpu03")
    ended(k, a, limit=120)
    time.sleep(2)
    stop(k, "gpu03", "slurmd", signal.SIGCONT)
    time.sleep(5)


@ending()
def batch_launch_timeout(k):
    """The prolog of a node takes 9 s, and BatchStartTimeout is 2 s: slow, but the launch is waited for (the prolog's time
    is added), and the job ends well."""
    c.inside("gpu02", ["sh", "-c", "echo slow 9 > /run/fault.prolog"])
    k.inject("prolog_slow", host="gpu02", seconds=9)
    a = well(k, on("gpu02", "srun sleep 2", name="slowstart"))
    ended(k, a, limit=90)


@ending()
def link_lost_in_step_launch(k):
    """The management link of one node is lost for 9 s while a job starts a step there: the step is launched late or not,
    but no node is given up."""
    a = on("gpu[01-02]", "sleep 9; srun hostname; exit $?", "-N2", name="launches")
    truth(k, a, "FAILED", "1:0", "the management link of gpu02 was lost during the launch of its step", "network gpu02")
    k.wait(a, ["RUNNING"])
    time.sleep(6)
    k.flap("gpu02", "mgmt", down_for=12)
    ended(k, a, limit=120)


@ending()
def munge_dead_in_step_launch(k):
    """munged of one node dies before a job starts a step there: its slurmd cannot check the request."""
    a = on("gpu[01-02]", "sleep 9; srun hostname; exit $?", "-N2", name="launches")
    truth(k, a, "FAILED", "1:0", "munged was dead on gpu02", "node gpu02")
    k.wait(a, ["RUNNING"])
    time.sleep(4)
    stop(k, "gpu02", "munged")
    ended(k, a, limit=60)
    start("gpu02", *AS_MUNGE, "munged", "--force")
    k.inject("munged_start", host="gpu02")
    ended(k, a, limit=60)


@ending()
def munge_clock_behind(k):
    """munged of one node runs 10 minutes behind: credentials are rewound or expired when a job's step starts there."""
    a = on("gpu[01-02]", "sleep 9; srun hostname; exit $?", "-N2", name="launches")
    truth(k, a, "FAILED", "1:0", "the clock of gpu02's munged is 10 minutes behind", "node gpu02")
    k.wait(a, ["RUNNING"])
    time.sleep(3)
    stop(k, "gpu02", "munged", signal.SIGTERM)
    time.sleep(1)
    start("gpu02", *AS_MUNGE, "munged", "--force", faketime="-10m")
    k.inject("clock_behind", host="gpu02", seconds=600)
    ended(k, a, limit=60)
    stop(k, "gpu02", "munged")
    time.sleep(1)
    start("gpu02", *AS_MUNGE, "munged", "--force")
    k.inject("clock_right", host="gpu02")
    ended(k, a, limit=60)


@ending()
def frozen_step(k):
    """A job's processes are frozen by the cgroup freezer of their node (an agent of root forgot them); the user cancels
    the job, which cannot be killed until they are thawed."""
    a = on("gpu02", "srun sleep 200", name="frozen")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user, as root's agent had frozen her processes on gpu02", "user")
    running(k, a)
    set_cgroup("freezer/gpu02/slurm_gpu02/freezer.state", "FROZEN")
    k.inject("frozen", host="gpu02", user="root", job=a)
    time.sleep(6)
    cancel(k, a)
    time.sleep(25)
    set_cgroup("freezer/gpu02/slurm_gpu02/freezer.state", "THAWED")
    k.inject("thawed", host="gpu02", user="root")
    ended(k, a)
    time.sleep(6)


@ending()
def slurmd_restarted_at_end(k):
    """slurmd of a node is killed while a job ends there and started 10 s later: the job's own exit code stands."""
    a = on("gpu03", "srun sleep 10; exit 12", name="exit12")
    truth(k, a, "FAILED", "12:0", "its own exit code 12", "user program")
    running(k, a)
    time.sleep(3)
    stop(k, "gpu03", "slurmd")
    time.sleep(12)
    slurmd_again(k, "gpu03")
    ended(k, a, limit=120)


@ending()
def reconfigured_meanwhile(k):
    """An administrator changes KillWait and says `scontrol reconfigure` under a job that fails by its own bug."""
    a = on("gpu01", "srun python3 -c 'import time; time.sleep(14); 1/0'", name="bug")
    truth(k, a, "FAILED", "1:0", "its own ZeroDivisionError", "user program")
    running(k, a)
    old = configure(open(CONF).read().replace("KillWait=5", "KillWait=6"))
    ctl("scontrol", "reconfigure")
    k.inject("reconfigure", user="root")
    ended(k, a)
    configure(old)
    reread()
