"""Faults of nodes and of Slurm that overlap, hide or look like another one. The truth is recorded as injected."""

import os
import signal
import time

import cluster as c
from capture import ctl, scaled, scenario
from spaces import AS_MUNGE, AS_SLURM, hdir

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def start(host, *argv, faketime=None):
    """Starts a daemon of HOST, under another clock if FAKETIME ("+6m") sets one."""
    env = ["env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME={faketime}"] if faketime else []
    # after the change of user: the library's semaphore belongs to its creator
    user = AS_MUNGE if argv[: len(AS_MUNGE)] == tuple(AS_MUNGE) else []
    c.daemon(host, [*user, *env, *argv[len(user) :]])


def stop(k, host, name, sig=signal.SIGKILL):
    t, pids = c.kill_daemon(host, name, sig)
    k.inject(f"{name}_{sig.name.lower()}", t, host=host, pids=pids)


def slurmd_again(k, host):
    start(host, "slurmd")
    k.inject("slurmd_start", host=host)


def running(k, *jobs):
    for job in jobs:
        k.wait(job, ["RUNNING"])
    time.sleep(4)


def hit(nodes, seconds=120, *opts, name="hit", user="alice"):
    return c.ring(2, int(scaled(seconds)), 10, "-w", nodes, "--no-requeue", *opts, name=name, user=user)


@scenario
def slurmd_killed_and_back(k):
    """slurmd of a node is killed (SIGKILL) and started 8 s later, under a running job: nothing fails."""
    a = k.job(c.ring(2, 35, 10, "-w", "gpu[02-03]", name="kept"), "COMPLETED", False)
    running(k, a)
    stop(k, "gpu03", "slurmd")
    time.sleep(8)
    slurmd_again(k, "gpu03")
    k.wait(a, k.DONE)


@scenario
def slurmd_hangs(k):
    """slurmd of a node is stopped (SIGSTOP): its port accepts, nobody answers; node DOWN, job NODE_FAIL."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "silence gpu02")
    running(k, a)
    stop(k, "gpu02", "slurmd", signal.SIGSTOP)
    k.wait(a, k.DONE)
    time.sleep(3)
    stop(k, "gpu02", "slurmd", signal.SIGCONT)
    time.sleep(5)


@scenario
def munge_key_wrong(k):
    """munged of a node is restarted with another key: nobody accepts the node's credentials; DOWN, job NODE_FAIL."""
    a = k.job(hit("gpu[02-03]"), "NODE_FAIL", True, "munged key gpu03")
    running(k, a)
    stop(k, "gpu03", "munged")
    key = "/var/log/munge/other.key"
    c.inside("gpu03", ["sh", "-c", f"head -c 128 /dev/urandom > {key}; chown munge {key}; chmod 400 {key}"])
    start("gpu03", *AS_MUNGE, "munged", "--force", f"--key-file={key}")
    k.inject("munged_other_key", host="gpu03")
    k.wait(a, k.DONE)
    time.sleep(3)
    stop(k, "gpu03", "munged")
    start("gpu03", *AS_MUNGE, "munged", "--force")
    k.inject("munged_start", host="gpu03")
    time.sleep(5)


@scenario
def clock_jumps(k):
    """The clock of a node's munged, slurmd and rsyslogd is 6 minutes ahead from a restart on: credentials are refused
    (munge allows 5 minutes), node DOWN, job NODE_FAIL. Its own lines carry the wrong time."""
    a = k.job(hit("gpu[02-03]"), "NODE_FAIL", True, "clock gpu02 +6 min")
    running(k, a)
    for name, sig in (("slurmd", signal.SIGTERM), ("munged", signal.SIGTERM), ("rsyslogd", signal.SIGTERM)):
        stop(k, "gpu02", name, sig)
    time.sleep(2)
    rsyslog = ["rsyslogd", "-f", "/etc/rsyslog.conf", "-i", "/run/rsyslogd.pid"]
    start("gpu02", *rsyslog, faketime="+6m")
    start("gpu02", *AS_MUNGE, "munged", "--force", faketime="+6m")
    start("gpu02", "slurmd", faketime="+6m")
    k.inject("clock_ahead", host="gpu02", seconds=360)
    k.wait(a, k.DONE)
    time.sleep(3)
    for name in ("slurmd", "munged", "rsyslogd"):
        stop(k, "gpu02", name)
    os.path.exists(hdir("gpu02", "run/rsyslogd.pid")) and os.unlink(hdir("gpu02", "run/rsyslogd.pid"))
    start("gpu02", *rsyslog)
    start("gpu02", *AS_MUNGE, "munged", "--force")
    start("gpu02", "slurmd")
    k.inject("clock_right", host="gpu02")
    time.sleep(5)


@scenario
def controller_restart_in_fault(k):
    """The management link of a node is lost for 75 s; slurmctld is killed 12 s into it and started 8 s later.
    It gives the node up later than it would have; the job is NODE_FAIL of the link."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "link_down gpu02 mgmt")
    b = k.job(hit("gpu[03-04]", 60, name="bystander", user="bob"), "COMPLETED", False)
    running(k, a, b)
    k.port("gpu02", "mgmt", False)
    time.sleep(12)
    stop(k, "ctl", "slurmctld")
    time.sleep(8)
    start("ctl", *AS_SLURM, "slurmctld")
    k.inject("slurmctld_start", host="ctl")
    k.wait(a, k.DONE, 90)
    k.port("gpu02", "mgmt", True)
    k.wait(b, k.DONE)
    k.wait_node("gpu02", "idle")


@scenario
def controller_away(k):
    """slurmctld is away for 60 s; meanwhile one job ends well and one by its own exit code. slurmdbd is away before."""
    a = k.job(c.ring(2, 25, 10, "-w", "gpu[01-02]", name="good"), "COMPLETED", False)
    b = k.job(c.submit("sleep 20; exit 4", "-w", "gpu03", name="exit4", user="bob"), "FAILED", False, "own exit code")
    running(k, a, b)
    stop(k, "ctl", "slurmdbd")
    time.sleep(2)
    stop(k, "ctl", "slurmctld")
    time.sleep(60)
    start("ctl", *AS_SLURM, "slurmctld")
    k.inject("slurmctld_start", host="ctl")
    time.sleep(10)
    start("ctl", *AS_SLURM, "slurmdbd")
    k.inject("slurmdbd_start", host="ctl")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    time.sleep(10)


@scenario
def prolog_hangs(k):
    """The prolog of a node hangs longer than PrologEpilogTimeout: the node is drained, the job held or cancelled."""
    c.write(hdir("gpu02", "run/fault.prolog"), "hang")
    k.inject("prolog_hang", host="gpu02")
    a = c.submit("srun hostname; sleep 3", "-N2", "-w", "gpu[01-02]", name="unlucky")
    k.job(a, "REQUEUED,CANCELLED", True, "prolog hang gpu02")
    k.wait_node("gpu02", "drain", 90)
    k.wait(a, ["PENDING", "REQUEUE_HOLD"], 40)
    time.sleep(3)
    ctl("scancel", str(a))
    k.inject("scancel", job=a, user="root")
    k.wait(a, k.DONE)


@scenario
def epilog_hangs(k):
    """The epilog of a node hangs longer than PrologEpilogTimeout; the job was good. The next job goes elsewhere."""
    c.write(hdir("gpu03", "run/fault.epilog"), "hang")
    k.inject("epilog_hang", host="gpu03")
    a = k.job(c.submit("srun hostname; sleep 3", "-N2", "-w", "gpu[03-04]", name="fine"), "COMPLETED", False)
    k.wait(a, k.DONE)
    b = k.job(c.submit("srun sleep 3; exit 2", "-w", "gpu04", name="exit2"), "FAILED", False, "own exit code")
    k.wait(b, k.DONE)
    k.wait_node("gpu03", "drain", 60)


@scenario
def two_faults(k):
    """Two faults within seconds: the management link of gpu02 is lost, slurmd of gpu04 is killed. A job on each."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "link_down gpu02 mgmt")
    b = k.job(hit("gpu[03-04]", user="bob"), "NODE_FAIL", True, "slurmd killed gpu04")
    running(k, a, b)
    k.port("gpu02", "mgmt", False)
    time.sleep(5)
    stop(k, "gpu04", "slurmd")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    time.sleep(8)
    k.port("gpu02", "mgmt", True)
    slurmd_again(k, "gpu04")
    k.wait_node("gpu02", "idle")


@scenario
def flap_beside_crash(k):
    """The fabric link of gpu02 flaps 3 s (which the job survives), the slurmd of gpu01 is killed: a job is on both."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "slurmd killed gpu01")
    running(k, a)
    stop(k, "gpu01", "slurmd")
    time.sleep(3)
    k.flap("gpu02", "hsn", down_for=3)
    k.wait(a, k.DONE)
    time.sleep(8)
    slurmd_again(k, "gpu01")
    time.sleep(6)


@scenario
def flap_without_job(k):
    """The management link of a node without a job is lost for 60 s: the node is DOWN, nobody is hurt. A job of
    another node fails by its own exit code meanwhile."""
    a = k.job(c.submit("srun sleep 40; exit 5", "-w", "gpu01", name="exit5"), "FAILED", False, "own exit code")
    running(k, a)
    k.flap("gpu04", "mgmt", down_for=scaled(55))
    k.wait(a, k.DONE)
    k.wait_node("gpu04", "idle")


@scenario
def half_cut_off(k):
    """The management links of two of four nodes are lost in the same moment for 60 s: their job is NODE_FAIL, the
    other one goes on."""
    a = k.job(hit("gpu[03-04]"), "NODE_FAIL", True, "link_down gpu03,gpu04 mgmt")
    b = k.job(hit("gpu[01-02]", 55, name="bystander", user="bob"), "COMPLETED", False)
    running(k, a, b)
    for host in ("gpu03", "gpu04"):
        k.port(host, "mgmt", False)
    k.wait(a, k.DONE)
    time.sleep(12)
    for host in ("gpu03", "gpu04"):
        k.port(host, "mgmt", True)
    k.wait(b, k.DONE)
    k.wait_node("gpu04", "idle")


def firewall(host, rule):
    chain = f"chain arriving {{\n type filter hook input priority 0;\n {rule}\n}}\n"
    c.inside(host, ["nft", f"table inet fault {{\n{chain}}}\n"], check=True, capture_output=True)


@scenario
def packets_lost(k):
    """Four of five packets to a node are lost (no link goes down, no log shows it): DOWN, job NODE_FAIL."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "silence gpu02")
    running(k, a)
    firewall("gpu02", 'iifname "eth0" numgen random mod 100 < 85 drop')
    k.inject("packet_loss", host="gpu02", share=0.85)
    k.wait(a, k.DONE, 150)
    time.sleep(3)
    c.inside("gpu02", ["nft", "flush ruleset"])
    k.inject("packet_loss_over", host="gpu02")
    time.sleep(10)


@scenario
def port_filtered(k):
    """A filter drops what is sent to a node's slurmd (port 6818) and nothing else: DOWN, job NODE_FAIL."""
    a = k.job(hit("gpu[03-04]"), "NODE_FAIL", True, "silence gpu04")
    running(k, a)
    firewall("gpu04", "tcp dport 6818 drop")
    k.inject("filter", host="gpu04", port=6818)
    k.wait(a, k.DONE)
    time.sleep(3)
    c.inside("gpu04", ["nft", "flush ruleset"])
    k.inject("filter_gone", host="gpu04")
    time.sleep(8)


@scenario
def admin_drains(k):
    """An administrator drains a node with a job on it: the job goes on and ends well."""
    a = k.job(c.ring(2, 20, 10, "-w", "gpu[01-02]", name="kept"), "COMPLETED", False)
    running(k, a)
    ctl("scontrol", "update", "nodename=gpu02", "state=drain", "reason=replace fan")
    k.inject("drain", host="gpu02", user="root")
    k.wait(a, k.DONE)
    time.sleep(3)


@scenario
def admin_downs(k):
    """An administrator sets a node DOWN under a job, one second after a 2 s flap of its fabric link."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "admin down gpu02")
    running(k, a)
    k.flap("gpu02", "hsn", down_for=2)
    time.sleep(1)
    ctl("scontrol", "update", "nodename=gpu02", "state=down", "reason=swap DIMM")
    k.inject("set_down", host="gpu02", user="root")
    k.wait(a, k.DONE)
    time.sleep(4)


@scenario
def power_lost(k):
    """A node loses power for 60 s, longer than SlurmdTimeout: DOWN, job NODE_FAIL.

    Only the switch logs the loss of its links; the node boots later.
    """
    a = k.job(hit("gpu[03-04]", 120, name="hit"), "NODE_FAIL", True, "power_lost gpu04", "the watchdog may be first")
    running(k, a)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    k.wait(a, k.DONE)
    time.sleep(20)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(12)


@scenario
def reboot_requeues(k):
    """A node loses power for 6 s under a job that may be requeued and does not notice by itself (its ranks do not
    talk): NODE_FAIL, then a good run."""
    a = c.submit("srun sleep 25", "-N2", "-w", "gpu[03-04]", "--requeue", name="sleeper")
    k.job(a, "NODE_FAIL,COMPLETED", True, "power_off gpu04")
    running(k, a)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    k.wait(a, ["PENDING"], 60)
    ctl("scontrol", "update", "nodename=gpu04", "state=resume")
    k.inject("resume", host="gpu04", user="root")
    k.wait(a, ["RUNNING"], 200)
    k.wait(a, k.DONE, 90)


@scenario
def requeue_on_return(k):
    """The management link of a node is lost until after its job, which can run nowhere else, may start again: it starts
    in the second the node is back. Now and then slurmd still refuses that job ("Job credential revoked"): then the
    second run fails of the first fault."""
    a = c.submit(
        f"srun python3 /home/jobs/ring.py {int(scaled(60))} 10",
        *("-N2", "--ntasks-per-node=1", "-c", "2", "--requeue", "-w", "gpu[03-04]"), name="pinned",
    )  # fmt: skip
    k.job(a, "NODE_FAIL,COMPLETED", True, "link_down gpu04 mgmt", "the second run may be FAILED")
    running(k, a)
    k.port("gpu04", "mgmt", False)
    k.wait(a, ["PENDING"], 60)
    time.sleep(125)
    k.port("gpu04", "mgmt", True)
    k.wait(a, ["RUNNING", "FAILED", "COMPLETED"], 240)
    k.wait(a, k.DONE, 120)


@scenario
def flap_then_slurmd_killed(k):
    """The management link of a node flaps 5 s (which Slurm does not notice); 10 s later its slurmd is killed for good."""
    a = k.job(hit("gpu[02-03]"), "NODE_FAIL", True, "slurmd killed gpu03")
    running(k, a)
    k.flap("gpu03", "mgmt", down_for=5)
    time.sleep(10)
    stop(k, "gpu03", "slurmd")
    k.wait(a, k.DONE)
    time.sleep(8)
    slurmd_again(k, "gpu03")
    time.sleep(8)


@scenario
def slurmd_killed_then_flap(k):
    """slurmd of a node is killed; before the node is given up, its management link flaps 4 s: the link is not the cause."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "slurmd killed gpu02")
    running(k, a)
    stop(k, "gpu02", "slurmd")
    time.sleep(scaled(10))
    k.flap("gpu02", "mgmt", down_for=4)
    k.wait(a, k.DONE)
    time.sleep(8)
    slurmd_again(k, "gpu02")
    time.sleep(8)


@scenario
def two_nodes_one_lost(k):
    """Both nodes of a job lose their management link: gpu01 for 10 s, and 3 s later gpu02 for 70 s, which is given up."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "link_down gpu02 mgmt")
    running(k, a)
    k.port("gpu01", "mgmt", False)
    time.sleep(3)
    k.port("gpu02", "mgmt", False)
    time.sleep(scaled(7))
    k.port("gpu01", "mgmt", True)
    time.sleep(scaled(63))
    k.port("gpu02", "mgmt", True)
    k.wait(a, k.DONE)
    time.sleep(5)


@scenario
def switch_blinks(k):
    """Every management link is lost for 5 s, in which a job fails by its own exit code; the others go on."""
    a = k.job(c.submit("srun sleep 12; exit 9", "-w", "gpu01", name="exit9"), "FAILED", False, "own exit code")
    b = k.job(c.ring(2, 35, 10, "-w", "gpu[02-03]", name="rides", user="bob"), "COMPLETED", False)
    running(k, a, b)
    time.sleep(5)
    for host in c.load()["nodes"]:
        k.port(host, "mgmt", False)
    time.sleep(5)
    for host in c.load()["nodes"]:
        k.port(host, "mgmt", True)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
