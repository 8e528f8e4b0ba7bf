"""The faults of the other files at other moments: just below a timeout, while a job begins or ends, one after another.

The truth is recorded as injected. If it is random whether Slurm gives a node up, the end state is taken from Slurm and
the cause is still what was injected. Causes of runs of one job, in order, are separated by ``;``.
"""

import os
import signal
import time

import cluster as c
from capture import ctl, scaled, scenario
from entangled import firewall, hit, running, slurmd_again, start, stop
from entangled_jobs import one_rank
from further import resume, single
from spaces import AS_MUNGE, AS_SLURM, hdir


def as_it_ended(k, job, cause):
    """The fault's victim, if it was one: what became of JOB is random, the reason is not."""
    state = c.job_state(job)
    good = state == "COMPLETED"
    k.job(job, state, not good, None if good else cause)


def until(k, job, states, limit=60):
    """Like ``k.wait``, but returns as soon as the state is reached."""
    end = time.time() + limit
    while time.time() < end and c.job_state(job) not in states:
        time.sleep(0.05)


# ------------------------------------------------------------------------------------------ how long, how often
@scenario
def flap_just_under(k):
    """The management link of a node is lost for 20 s of a SlurmdTimeout of 24: a job rides it; another one fails by its own
    exit code 3 s after the link is back."""
    a = k.job(c.ring(2, 50, 10, "-w", "gpu[01-02]", name="rides"), "COMPLETED", False)
    b = k.job(single("srun sleep 27; exit 3", "gpu02", name="exit3", user="bob"), "FAILED", False, "own exit code")
    running(k, a, b)
    k.flap("gpu02", "mgmt", down_for=scaled(20))
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def flap_at_the_edge(k):
    """The management link of a node is lost for 33 s of a SlurmdTimeout of 24, which is about when Slurm gives a node up."""
    a = hit("gpu[01-02]", 60)
    running(k, a)
    k.flap("gpu02", "mgmt", down_for=scaled(33))
    k.wait(a, k.DONE)
    as_it_ended(k, a, "link_down gpu02 mgmt")


@scenario
def second_flap_kills(k):
    """The management link of a node flaps 6 s, and 15 s later is lost for 60 s.

    slurmd is restarted in between and the controller reads its configuration again.
    """
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "link_down gpu02 mgmt")
    running(k, a)
    k.flap("gpu02", "mgmt", down_for=6)
    stop(k, "gpu02", "slurmd", signal.SIGTERM)
    time.sleep(3)
    slurmd_again(k, "gpu02")
    ctl("scontrol", "reconfigure")
    k.inject("reconfigure")
    time.sleep(9)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    time.sleep(4)


@scenario
def two_fabric_links(k):
    """The fabric links of gpu01 and, 3 s later, of gpu03 are lost for 28 s: two jobs, two causes, no switch."""
    a = k.job(c.ring(2, 90, 10, "-w", "gpu[01-02]", name="hit"), "FAILED", True, "link_down gpu01 hsn")
    b = k.job(c.ring(2, 90, 10, "-w", "gpu[03-04]", name="hit", user="bob"), "FAILED", True, "link_down gpu03 hsn")
    running(k, a, b)
    k.port("gpu01", "hsn", False)
    time.sleep(3)
    k.port("gpu03", "hsn", False)
    time.sleep(25)
    k.port("gpu01", "hsn", True)
    time.sleep(3)
    k.port("gpu03", "hsn", True)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


# ------------------------------------------------------------------------------------------ a job that begins or ends
@scenario
def flap_in_prolog(k):
    """The management link of a node is lost for 60 s while a job's prolog runs there (12 s, and ends well)."""
    c.write(hdir("gpu02", "run/fault.prolog"), "slow 12")
    k.inject("prolog_slow", host="gpu02", seconds=12)
    a = c.submit("srun sleep 60", "-N2", "-w", "gpu[01-02]", "--no-requeue", name="early")
    time.sleep(3)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    as_it_ended(k, a, "link_down gpu02 mgmt")


@scenario
def flap_in_launch(k):
    """The management link of a node is lost just when a job is started on it: the step cannot be launched there."""
    a = c.submit("sleep 3; srun sleep 60", "-N2", "-w", "gpu[01-02]", "--no-requeue", name="launch")
    until(k, a, ["RUNNING"])
    time.sleep(1.5)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    as_it_ended(k, a, "link_down gpu02 mgmt")


@scenario
def flap_in_epilog(k):
    """A job fails by its own exit code; its node's epilog takes 6 s, in which the node's management link is lost for 60 s.
    Another job, on both nodes, ended well a moment before and is COMPLETING as well."""
    c.write(hdir("gpu02", "run/fault.epilog"), "slow 6")
    a = k.job(single("srun sleep 14; exit 3", "gpu02", name="exit3"), "FAILED", False, "own exit code")
    b = k.job(c.submit("srun sleep 12", "-N2", "-w", "gpu[01-02]", name="good", user="bob"), "COMPLETED", False)
    running(k, a, b)
    until(k, a, ["COMPLETING", "FAILED"])
    k.inject("epilog_slow", host="gpu02", seconds=6)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def returns_to_own_error(k):
    """The management link of a node without job is lost for 60 s; the first job after its return fails by its own exit
    code within seconds."""
    k.flap("gpu03", "mgmt", down_for=scaled(60))
    a = k.job(single("srun hostname; sleep 2; exit 4", "gpu03", name="exit4"), "FAILED", False, "own exit code")
    k.wait(a, k.DONE, 200)


@scenario
def second_run_own_error(k):
    """The management link of a node is lost: its job is requeued, and its second run fails by its own exit code."""
    script = 'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then srun sleep 200; else srun sleep 6; exit 3; fi'
    a = c.submit(script, "-N2", "-x", "gpu[01-02]", "--requeue", name="again")
    k.job(a, "NODE_FAIL,FAILED", True, "link_down gpu04 mgmt; own exit code")
    running(k, a)
    k.flap("gpu04", "mgmt", down_for=scaled(45))
    k.wait(a, ["PENDING"], 20)
    k.wait(a, ["RUNNING", "FAILED"], 240)
    k.wait(a, k.DONE, 120)


@scenario
def requeued_in_flap(k):
    """A user requeues her job 5 s into a loss of 14 s of its node's management link; its second run is good."""
    a = c.submit("srun sleep 25", "-w", "gpu02", "--requeue", name="again")
    k.job(a, "REQUEUED,COMPLETED", False, "scancel by user: requeued")
    running(k, a)
    k.port("gpu02", "mgmt", False)
    time.sleep(5)
    c.inside("ctl", ["scontrol", "requeue", str(a)], user="alice")
    k.inject("requeue", job=a, user="alice")
    time.sleep(9)
    k.port("gpu02", "mgmt", True)
    k.wait(a, ["RUNNING"], 200)
    k.wait(a, k.DONE)


# ------------------------------------------------------------------------------------------ several jobs, several nodes
@scenario
def shared_node_lost(k):
    """Two jobs share a node whose management link is lost for 60 s: both are NODE_FAIL. A third one, on the other node
    of the first, fails by its own exit code meanwhile."""
    a = c.submit("srun sleep 200", "-N2", "--ntasks-per-node=1", "-w", "gpu[01-02]", "--no-requeue", name="wide")
    k.job(a, "NODE_FAIL", True, "link_down gpu02 mgmt")
    b = k.job(single("srun sleep 200", "gpu02", name="small", user="bob"), "NODE_FAIL", True, "link_down gpu02 mgmt")
    d = k.job(single("srun sleep 18; exit 6", "gpu01", name="exit6", user="bob"), "FAILED", False, "own exit code")
    running(k, a, b, d)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    for job in (a, b, d):
        k.wait(job, k.DONE)


@scenario
def reboot_beside_flap(k):
    """A job is on gpu02 and gpu04: the management link of gpu02 flaps 10 s while gpu04 loses power for 6 s."""
    a = k.job(single("srun sleep 200", "gpu[02,04]", "-N2", name="hit"), "NODE_FAIL", True, "power_off gpu04")
    b = k.job(c.ring(2, 40, 10, "-w", "gpu[01,03]", name="rides", user="bob"), "COMPLETED", False)
    running(k, a, b)
    k.port("gpu02", "mgmt", False)
    time.sleep(2)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(2)
    k.port("gpu02", "mgmt", True)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def hang_beside_lost_link(k):
    """One rank of a job stops by its own deadlock, and the others' watchdogs end the job; the fabric link of a node on
    which it has nothing is lost for 25 s meanwhile, that of one of its own nodes flapped 2 s before."""
    script = """srun bash -c 'if [ $SLURM_PROCID = 1 ]; then
  python3 /home/jobs/ring.py 600 60 & p=$!; sleep 14; kill -STOP $p; sleep 40; kill -9 $p; exit 1
else python3 /home/jobs/ring.py 600 10; fi'"""
    a = c.submit(script, "-N3", "--ntasks-per-node=1", "-w", "gpu[01-03]", "--no-requeue", name="deadlock")
    k.job(a, "FAILED", False, "own deadlock")
    running(k, a)
    k.flap("gpu03", "hsn", down_for=2)
    k.flap("gpu04", "hsn", down_for=25)
    k.wait(a, k.DONE)


@scenario
def bad_exit_kills_all(k):
    """srun --kill-on-bad-exit: a rank's own exit code ends all ranks at once, 2 s after the fabric links of two other
    nodes of the job flapped for 3 s."""
    script = "srun -K1 bash -c 'if [ $SLURM_PROCID = 2 ]; then sleep 16; exit 7; else sleep 100; fi'"
    a = c.submit(script, "-N4", "--ntasks-per-node=1", name="badexit")
    k.job(a, "FAILED", False, "own exit code")
    running(k, a)
    time.sleep(4)
    k.port("gpu02", "hsn", False)
    k.port("gpu04", "hsn", False)
    time.sleep(3)
    k.port("gpu02", "hsn", True)
    k.port("gpu04", "hsn", True)
    k.wait(a, k.DONE)


@scenario
def rank_raises_after_flap(k):
    """One rank raises a Python exception 2 s after the fabric link of its own node came back from 4 s; all others lose
    their peer."""
    what = 'python3 -c "import json; json.loads(chr(123))"'
    a = k.job(one_rank(2, 14, what, name="raises"), "FAILED", False, "own bug")
    running(k, a)
    time.sleep(3)
    k.flap("gpu03", "hsn", down_for=4)
    k.wait(a, k.DONE)


@scenario
def rank_out_of_memory_beside_flap(k):
    """One rank takes more memory than its job asked for while the management link of another of its nodes is lost for
    14 s."""
    a = one_rank(3, 12, "python3 /home/jobs/memhog.py 900", "--mem=150", name="bigrank")
    k.job(a, "FAILED", False, "own memory")
    running(k, a)
    time.sleep(2)
    k.flap("gpu02", "mgmt", down_for=14)
    k.wait(a, k.DONE)


# ------------------------------------------------------------------------------------------ users and administrators
@scenario
def cancelled_after_power_lost(k):
    """A node loses power; its user cancels the job, whose ranks do not talk, 6 s later, before Slurm has noticed."""
    a = k.job(single("srun sleep 300", "gpu[03-04]", "-N2", name="regretted"), "CANCELLED", False, "scancel by user")
    running(k, a)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    c.inside("ctl", ["scancel", str(a)], user="alice")
    k.inject("scancel", job=a, user="alice")
    time.sleep(8)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    k.wait(a, k.DONE)
    time.sleep(12)


@scenario
def power_lost_after_failure(k):
    """A job fails by its own exit code, and a second later one of its nodes loses power for 10 s."""
    a = c.submit("srun sleep 14; exit 4", "-N2", "-w", "gpu[01-02]", "--no-requeue", name="exit4")
    k.job(a, "FAILED", False, "own exit code")
    running(k, a)
    until(k, a, ["COMPLETING", "FAILED"])
    time.sleep(1)
    k.inject("power_off", c.power_off("gpu02"), host="gpu02")
    time.sleep(10)
    k.inject("power_on", c.power_on("gpu02"), host="gpu02")
    k.wait(a, k.DONE)
    time.sleep(12)


@scenario
def drained_then_own_error(k):
    """An administrator drains a node under a job for "link flaps, INC-4711"; the job fails by its own exit code 8 s
    later. The node's fabric link had flapped 3 s a while before."""
    a = c.submit("srun sleep 32; exit 5", "-N2", "-w", "gpu[01-02]", "--no-requeue", name="exit5")
    k.job(a, "FAILED", False, "own exit code")
    running(k, a)
    k.flap("gpu02", "hsn", down_for=3)
    time.sleep(12)
    ctl("scontrol", "update", "nodename=gpu02", "state=drain", "reason=link flaps, INC-4711")
    k.inject("drain", host="gpu02", user="root")
    k.wait(a, k.DONE)
    time.sleep(2)


@scenario
def downed_and_power_cycled(k):
    """An administrator sets a node DOWN under a job and has it boot 3 s later."""
    a = k.job(single("srun sleep 300", "gpu[01-02]", "-N2", name="hit"), "NODE_FAIL", True, "admin down gpu02")
    running(k, a)
    ctl("scontrol", "update", "nodename=gpu02", "state=down", "reason=BMC update")
    k.inject("set_down", host="gpu02", user="root")
    time.sleep(3)
    k.inject("power_off", c.power_off("gpu02"), host="gpu02")
    time.sleep(5)
    k.inject("power_on", c.power_on("gpu02"), host="gpu02")
    k.wait(a, k.DONE)
    time.sleep(14)


@scenario
def suspended_link_lost(k):
    """A job is suspended by an administrator; then the management link of its node is lost for 60 s."""
    a = k.job(single("srun sleep 300", "gpu[01-02]", "-N2", name="hit"), "NODE_FAIL", True, "link_down gpu02 mgmt")
    running(k, a)
    ctl("scontrol", "suspend", str(a))
    k.inject("suspend", job=a, user="root")
    time.sleep(4)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    time.sleep(3)


# ------------------------------------------------------------------------------------------ limits
@scenario
def limit_in_outage(k):
    """A job reaches its time limit 10 s into a loss of 60 s of its node's management link; the node is DOWN afterwards."""
    a = k.job(single("srun sleep 300", "gpu[01-02]", "-N2", "-t", "1", name="toolong"), "TIMEOUT", False, "time limit")
    k.wait(a, ["RUNNING"])
    time.sleep(50)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE)
    time.sleep(3)


@scenario
def limit_in_stall(k):
    """The fabric link of a node is lost for good under a job whose watchdog is slow (600 s): it stalls, and its time limit
    ends it."""
    a = c.ring(2, 300, 600, "-w", "gpu[03-04]", "-t", "1", "--no-requeue", name="stalled")
    k.job(a, "TIMEOUT", True, "stalled gpu03 hsn")
    running(k, a)
    time.sleep(8)
    k.port("gpu03", "hsn", False)
    k.wait(a, k.DONE, 150)
    k.port("gpu03", "hsn", True)


@scenario
def step_limit(k):
    """A step reaches its own limit (srun -t) 4 s after the fabric link of its node flapped 3 s."""
    a = k.job(single("srun -t 1 sleep 300", "gpu02", name="steplimit"), "FAILED", False, "own step limit")
    running(k, a)
    time.sleep(47)
    k.flap("gpu02", "hsn", down_for=3)
    k.wait(a, k.DONE, 120)


# ------------------------------------------------------------------------------------------ daemons and clocks
@scenario
def slurmd_back_then_own_error(k):
    """slurmd of a node is killed and started 8 s later, its munged as well; a job there fails by its own exit code 4 s
    after that."""
    a = k.job(single("srun sleep 25; exit 2", "gpu03", name="exit2"), "FAILED", False, "own exit code")
    b = k.job(c.ring(2, 45, 10, "-w", "gpu[03-04]", name="rides", user="bob"), "COMPLETED", False)
    running(k, a, b)
    time.sleep(4)
    stop(k, "gpu03", "slurmd")
    stop(k, "gpu03", "munged")
    time.sleep(7)
    start("gpu03", *AS_MUNGE, "munged", "--force")
    slurmd_again(k, "gpu03")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def controller_hangs_in_flap(k):
    """The management link of a node is lost for 75 s; slurmctld is stopped (SIGSTOP) for 20 s of it, slurmdbd killed for
    all of it. A job elsewhere fails by its own exit code meanwhile."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "link_down gpu02 mgmt")
    b = k.job(single("srun sleep 30; exit 9", "gpu03", name="exit9", user="bob"), "FAILED", False, "own exit code")
    running(k, a, b)
    stop(k, "ctl", "slurmdbd")
    k.port("gpu02", "mgmt", False)
    time.sleep(8)
    stop(k, "ctl", "slurmctld", signal.SIGSTOP)
    time.sleep(20)
    stop(k, "ctl", "slurmctld", signal.SIGCONT)
    k.wait(a, k.DONE, 90)
    k.port("gpu02", "mgmt", True)
    start("ctl", *AS_SLURM, "slurmdbd")
    k.inject("slurmdbd_start", host="ctl")
    k.wait(b, k.DONE)
    time.sleep(10)


@scenario
def clock_wrong_at_launch(k):
    """The clock of a node's slurmd and rsyslogd is 4 minutes ahead (munge allows 5) when a job is launched there: a job's
    credential holds for two minutes, slurmd refuses it as expired. Later the node's management link is lost for 60 s."""
    rsyslog = ["rsyslogd", "-f", "/etc/rsyslog.conf", "-i", "/run/rsyslogd.pid"]
    for name in ("slurmd", "rsyslogd"):
        stop(k, "gpu02", name, signal.SIGTERM)
    time.sleep(2)
    for argv in (rsyslog, ["slurmd"]):
        start("gpu02", *argv, faketime="+4m")
    k.inject("clock_ahead", host="gpu02", seconds=240)
    time.sleep(20)
    a = k.job(hit("gpu[01-02]"), "FAILED", True, "clock gpu02 +4 min")
    k.wait(a, k.DONE)
    k.flap("gpu02", "mgmt", down_for=scaled(60))
    time.sleep(6)
    for name in ("slurmd", "rsyslogd"):
        stop(k, "gpu02", name)
    os.path.exists(hdir("gpu02", "run/rsyslogd.pid")) and os.unlink(hdir("gpu02", "run/rsyslogd.pid"))
    start("gpu02", *rsyslog)
    start("gpu02", "slurmd")
    k.inject("clock_right", host="gpu02")


@scenario
def packets_lost_then_own_error(k):
    """Nine of ten packets to a node are lost for 20 s (no log shows it), then all is well.

    Its job fails by its own exit code 5 s later, and another one of that node goes on.
    """
    a = k.job(single("srun sleep 33; exit 3", "gpu02", name="exit3"), "FAILED", False, "own exit code")
    b = k.job(c.submit("srun sleep 50", "-N2", "-w", "gpu[02-03]", name="kept", user="bob"), "COMPLETED", False)
    running(k, a, b)
    firewall("gpu02", 'iifname "eth0" numgen random mod 100 < 90 drop')
    k.inject("packet_loss", host="gpu02", share=0.9)
    time.sleep(scaled(20))
    c.inside("gpu02", ["nft", "flush ruleset"])
    k.inject("packet_loss_over", host="gpu02")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def launcher_cut_off(k):
    """The management link of the host on which a user started srun is lost for 60 s; her job is on other nodes."""
    argv = ["srun", "-N2", "-w", "gpu[01-02]", "-J", "interactive", "sleep", "70"]
    c.inside("gpu04", argv, user="alice", popen=True)
    time.sleep(6)
    a = int(ctl("squeue", "-h", "-o", "%A", "-n", "interactive").split()[0])
    running(k, a)
    k.flap("gpu04", "mgmt", down_for=scaled(60))
    k.wait(a, k.DONE, 150)
    as_it_ended(k, a, "cut_off gpu04 mgmt")
    resume("gpu04")
