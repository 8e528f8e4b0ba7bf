"""Faults of a site's daily life: a full /tmp, a controller that fails over, a node without names, users or cgroups.

The truth is recorded as injected; the name of a job's cause is in ``tests/correlator/engine/test_captures.py``.
"""

import os
import signal
import time

import cluster as c
from capture import ctl, scaled, scenario
from entangled import firewall, hit, running, slurmd_again, start, stop
from spaces import AS_SLURM, SHARED, hdir


def single(script, node, *opts, **kw):
    return c.submit(script, "-w", node, "--no-requeue", *opts, **kw)


def over(host, text, path):
    """From now on only HOST sees TEXT in the file PATH."""
    c.write(hdir(host, "run/over"), text)
    c.inside(host, ["sh", "-c", f"cp /run/over /run/over.{os.path.basename(path)}"], check=True)
    c.inside(host, ["mount", "--bind", f"/run/over.{os.path.basename(path)}", path], check=True)


def as_before(host, path):
    c.inside(host, ["umount", path], capture_output=True)


def restart_slurmd(k, host):
    stop(k, host, "slurmd", signal.SIGTERM)
    time.sleep(2)
    slurmd_again(k, host)


def resume(*hosts):
    for host in hosts:
        ctl("scontrol", "update", f"nodename={host}", "state=resume")


# ------------------------------------------------------------------------------------------ files, names, configuration
@scenario
def neighbour_fills_tmp(k):
    """A job fills /tmp of its node and dies of it; another one on that node finds no room a few seconds later."""
    b = single("sleep 22; cp /usr/bin/python3* /tmp || exit 1", "gpu02", name="victim", user="bob")
    k.job(b, "FAILED", True, "disk full gpu02")
    a = k.job(single("bash /home/jobs/diskhog.sh", "gpu02", name="diskhog"), "FAILED", False, "own: filled /tmp")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def output_path_missing(k):
    """A job's output folder does not exist: slurmd cannot open its stdout, the job ends before its first line."""
    a = c.submit("srun hostname", "-w", "gpu02", "--no-requeue", "-o", "/home/alice/nowhere/%j.out", name="nowhere")
    k.job(a, "FAILED", False, "own: output folder missing")
    k.wait(a, k.DONE, 60)
    time.sleep(3)


@scenario
def programs_missing(k):
    """Jobs whose program is not there (127), may not be run (126), or whose interpreter is missing."""
    home = f"{SHARED}/home/alice"
    c.write(f"{home}/plain.txt", "no program\n")
    c.write(f"{home}/old.py", "#!/usr/bin/python2.6\nprint 1\n", 0o755)
    scripts = {"missing": "srun no_such_trainer --lr 1", "denied": "./plain.txt", "interpreter": "srun ./old.py"}
    for name, script in scripts.items():
        k.wait(k.job(c.submit(script, name=name), "FAILED", False, "own exit code"), k.DONE, 60)


@scenario
def names_lost(k):
    """A node cannot resolve any name any more (its hosts file is empty): a job there fails with the resolver's error."""
    over("gpu03", "127.0.0.1 localhost\n", "/etc/hosts")
    k.inject("names_lost", host="gpu03")
    look = 'import socket; socket.create_connection(("gpu01-hsn", 7))'
    a = k.job(single(f"srun python3 -c '{look}'", "gpu03", name="lookup"), "FAILED", True, "names lost gpu03")
    k.wait(a, k.DONE)
    as_before("gpu03", "/etc/hosts")


@scenario
def user_unknown(k):
    """A node does not know a user (its directory service is down): slurmctld sends it the name, her job ends well."""
    over("gpu03", open("/etc/passwd").read(), "/etc/passwd")
    k.inject("user_unknown", host="gpu03", user="bob")
    a = k.job(single("srun hostname", "gpu03", name="whoami", user="bob"), "COMPLETED", False)
    k.wait(a, k.DONE, 60)
    as_before("gpu03", "/etc/passwd")


@scenario
def cgroups_read_only(k):
    """The cgroup trees of a node are read-only: no step can be made there, slurmd cancels the job as root."""
    mounts = ("freezer", "memory")
    for name in mounts:
        c.inside("gpu03", ["mount", "-o", "remount,bind,ro", f"/sys/fs/cgroup/{name}"], check=True)
    k.inject("cgroups_read_only", host="gpu03")
    a = k.job(single("srun hostname", "gpu03", name="nocgroup"), "CANCELLED", True, "cgroups gpu03")
    k.wait(a, k.DONE, 60)
    time.sleep(5)
    for name in mounts:
        c.inside("gpu03", ["mount", "-o", "remount,bind,rw", f"/sys/fs/cgroup/{name}"], check=True)


@scenario
def config_differs(k):
    """slurmd of a node is restarted with another slurm.conf than the controller's (the controller says so); a job there
    fails by its own exit code."""
    a = single("srun sleep 20; exit 3", "gpu03", name="exit3")
    k.job(a, "FAILED", False, "own exit code")
    running(k, a)
    conf = open(f"{SHARED}/etc/slurm/slurm.conf").read()
    over("gpu03", conf.replace("TCPTimeout=2", "TCPTimeout=3"), "/etc/slurm/slurm.conf")
    k.inject("config_differs", host="gpu03")
    restart_slurmd(k, "gpu03")
    k.wait(a, k.DONE)
    as_before("gpu03", "/etc/slurm/slurm.conf")
    restart_slurmd(k, "gpu03")


@scenario
def gres_count_low(k):
    """slurmd of a node is restarted and finds three GPUs of four: the node is drained, its running job ends well; one
    on another node fails by its own exit code."""
    a = k.job(single("srun sleep 25", "gpu04", "--gres=gpu:h100:1", name="kept"), "COMPLETED", False)
    b = k.job(single("srun sleep 30; exit 6", "gpu03", name="exit6", user="bob"), "FAILED", False, "own exit code")
    running(k, a, b)
    gres = open(f"{SHARED}/etc/slurm/gres.conf").read()
    over("gpu04", gres.replace("[0-3]", "[0-2]"), "/etc/slurm/gres.conf")
    k.inject("gres_count_low", host="gpu04", gpus=3)
    restart_slurmd(k, "gpu04")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    as_before("gpu04", "/etc/slurm/gres.conf")
    restart_slurmd(k, "gpu04")


# -------------------------------------------------------------------------------------------------- the controller
@scenario
def controller_failover(k):
    """slurmctld is killed and its backup takes over after SlurmctldTimeout (`up --backup`); meanwhile a job fails by its
    own exit code, another one afterwards; one goes on through it all."""
    a = k.job(c.ring(2, 90, 10, "-w", "gpu[01-02]", name="kept"), "COMPLETED", False)
    b = k.job(single("srun sleep 20; exit 4", "gpu03", name="exit4", user="bob"), "FAILED", False, "own exit code")
    running(k, a, b)
    stop(k, "ctl", "slurmctld")
    time.sleep(50)
    d = k.job(single("srun sleep 3; exit 7", "gpu04", name="exit7"), "FAILED", False, "own exit code")
    k.wait(d, k.DONE, 60)
    start("ctl", *AS_SLURM, "slurmctld")
    k.inject("slurmctld_start", host="ctl")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    time.sleep(10)


@scenario
def state_save_denied(k):
    """slurmctld may no longer write its StateSaveLocation for 40 s; a job ends well, one by its own exit code."""
    a = k.job(c.ring(2, 30, 10, "-w", "gpu[01-02]", name="kept"), "COMPLETED", False)
    b = k.job(single("srun sleep 20; exit 4", "gpu03", name="exit4", user="bob"), "FAILED", False, "own exit code")
    running(k, a, b)
    owner = os.stat(f"{SHARED}/slurmctld")
    os.chown(f"{SHARED}/slurmctld", 0, 0)
    k.inject("state_save_denied", host="ctl")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)
    time.sleep(10)
    os.chown(f"{SHARED}/slurmctld", owner.st_uid, owner.st_gid)
    k.inject("state_save_allowed", host="ctl")
    time.sleep(8)


# ------------------------------------------------------------------------------------------ power, reboots, maintenance
@scenario
def reboot_asap(k):
    """An administrator asks for a reboot ASAP under a job: the job ends well, the node boots, the next job runs there."""
    a = k.job(c.ring(2, 20, 10, "-w", "gpu[03-04]", name="kept"), "COMPLETED", False)
    running(k, a)
    ctl("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=kernel update", "gpu04")
    k.inject("reboot_asap", host="gpu04", user="root")
    b = k.job(c.submit("srun hostname", "-w", "gpu04", name="next", user="bob"), "COMPLETED", False)
    k.wait(a, k.DONE)
    asked = hdir("gpu04", "run/reboot.asked")
    for _ in range(60):
        if os.path.exists(asked):
            break
        time.sleep(0.5)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(5)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    k.wait(b, k.DONE, 90)


@scenario
def power_lost_twice(k):
    """A node loses power for some seconds twice: each time a job on it is NODE_FAIL."""
    for number in (1, 2):
        a = single("srun sleep 120", "gpu[03-04]", "-N2", name=f"hit{number}")
        k.job(a, "NODE_FAIL", True, "power_off gpu04")
        running(k, a)
        k.inject("power_off", c.power_off("gpu04"), host="gpu04")
        time.sleep(5)
        k.inject("power_on", c.power_on("gpu04"), host="gpu04")
        k.wait(a, k.DONE)
        time.sleep(8)
        resume("gpu04")
        k.inject("resume", host="gpu04", user="root")
        k.wait_node("gpu04", "idle", 30)


@scenario
def batch_host_power_lost(k):
    """The batch host of a job of four nodes loses power and stays off; the other nodes are well."""
    a = k.job(single("srun sleep 300", "gpu[01-04]", "-N4", name="hit"), "NODE_FAIL", True, "power_lost gpu01")
    running(k, a)
    k.inject("power_off", c.power_off("gpu01"), host="gpu01")
    k.wait(a, k.DONE)
    time.sleep(5)
    k.inject("power_on", c.power_on("gpu01"), host="gpu01")
    time.sleep(10)


@scenario
def down_in_maintenance(k):
    """A node is in a maintenance reservation, which leaves its job alone; then the administrator sets it DOWN."""
    a = k.job(hit("gpu[01-02]"), "NODE_FAIL", True, "admin down gpu02")
    running(k, a)
    ctl("scontrol", "create", "reservation", "reservationname=fans", "starttime=now", "duration=20", "user=root",
        "flags=maint,ignore_jobs", "nodes=gpu02")  # fmt: skip
    k.inject("reservation", host="gpu02", flags="maint,ignore_jobs")
    time.sleep(8)
    ctl("scontrol", "update", "nodename=gpu02", "state=down", "reason=fan replacement")
    k.inject("set_down", host="gpu02", user="root")
    k.wait(a, k.DONE)
    time.sleep(3)
    ctl("scontrol", "delete", "reservationname=fans")


@scenario
def launcher_lost(k):
    """The host on which a user started srun loses power: InactiveLimit (`up --set InactiveLimit=30`) ends her job, which
    is on other nodes."""
    c.inside(
        "gpu04", ["srun", "-N2", "-w", "gpu[01-02]", "-J", "interactive", "sleep", "400"], user="alice", popen=True
    )
    time.sleep(6)
    a = int(ctl("squeue", "-h", "-o", "%A", "-n", "interactive").split()[0])
    k.job(a, "TIMEOUT", True, "launcher lost gpu04")
    running(k, a)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    k.wait(a, k.DONE, 150)
    time.sleep(3)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(12)
    ctl("scancel", str(a))


# ------------------------------------------------------------------------------------------------ links beside jobs
@scenario
def own_memory_beside_flap(k):
    """A job takes more memory than it asked for while its node's fabric link flaps 3 s; another job rides the flap."""
    a = k.job(c.ring(2, 30, 10, "-w", "gpu[02-03]", name="rides", user="bob"), "COMPLETED", False)
    running(k, a)
    b = single("sleep 5; srun python3 /home/jobs/memhog.py 600", "gpu02", "--mem=100", name="memhog")
    k.job(b, "FAILED", False, "own memory")
    k.wait(b, ["RUNNING"])
    time.sleep(3)
    k.flap("gpu02", "hsn", down_for=3)
    k.wait(b, k.DONE)
    k.wait(a, k.DONE)


@scenario
def limit_right_after_flap(k):
    """A job reaches its time limit a second or so after the fabric link of its node came back from 2 s."""
    a = k.job(c.ring(2, 300, 30, "-w", "gpu[01-02]", "-t", "1", name="toolong"), "TIMEOUT", False, "time limit")
    k.wait(a, ["RUNNING"])
    begun = time.time()
    time.sleep(57)
    while time.time() < begun + 100 and c.job_state(a) == "RUNNING":
        k.flap("gpu02", "hsn", down_for=2)
        time.sleep(1.5)
    k.wait(a, k.DONE)


@scenario
def drained_by_check_mid_job(k):
    """The fabric link of a node is lost for 20 s and the health check drains it; a job of that node alone, which does
    not use the fabric, fails by its own exit code 15 s later."""
    for host in c.load()["nodes"]:
        c.write(hdir(host, "run/nhc.on"), "")
    a = k.job(single("srun sleep 45; exit 5", "gpu03", name="exit5"), "FAILED", False, "own exit code")
    running(k, a)
    k.flap("gpu03", "hsn", down_for=20)
    k.wait(a, k.DONE)


@scenario
def flaps_of_many(k):
    """In one minute the fabric links of four nodes flap: 3 s each, but 25 s that of gpu02, whose job dies of it."""
    a = k.job(c.ring(2, 90, 10, "-w", "gpu[01-02]", name="hit"), "FAILED", True, "link_down gpu02 hsn")
    b = k.job(c.ring(2, 70, 10, "-w", "gpu[03-04]", name="rides", user="bob"), "COMPLETED", False)
    running(k, a, b)
    for host, length in (("gpu03", 3), ("gpu01", 3), ("gpu02", 25), ("gpu04", 3), ("gpu03", 3)):
        k.flap(host, "hsn", down_for=length)
        time.sleep(2)
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def flap_storm(k):
    """The management link of a node is down 10 s and up 1.5 s, eight times: with luck slurmd answers in between, if not
    the node is DOWN and its job NODE_FAIL."""
    a = hit("gpu[01-02]", 100)
    running(k, a)
    k.flap("gpu02", "mgmt", down_for=scaled(10), count=8, gap=1.5)
    k.wait(a, k.DONE, 200)
    if c.job_state(a) == "NODE_FAIL":
        k.job(a, "NODE_FAIL", True, "link_down gpu02 mgmt")
    else:
        k.job(a, "COMPLETED", False)


@scenario
def fabric_packets_lost(k):
    """A third of the packets on one node's fabric are lost for 25 s: the job is slow, but ends well; one on a node beside
    it fails by its own exit code."""
    a = k.job(c.ring(2, 40, 15, "-w", "gpu[01-02]", name="kept"), "COMPLETED", False)
    b = k.job(single("srun sleep 20; exit 2", "gpu02", name="exit2", user="bob"), "FAILED", False, "own exit code")
    running(k, a, b)
    firewall("gpu02", 'iifname "hsn0" numgen random mod 100 < 30 drop')
    k.inject("packet_loss", host="gpu02", share=0.3, net="hsn")
    time.sleep(25)
    c.inside("gpu02", ["nft", "flush ruleset"])
    k.inject("packet_loss_over", host="gpu02")
    k.wait(a, k.DONE)
    k.wait(b, k.DONE)


@scenario
def epilog_slow(k):
    """The epilog of a node takes 12 s, in which its fabric link flaps; the job was good, the next one fails by itself."""
    c.inside("gpu03", ["sh", "-c", "echo hang > /run/fault.epilog"])
    a = k.job(c.submit("srun sleep 4", "-N2", "-w", "gpu[03-04]", name="fine"), "COMPLETED", False)
    b = k.job(
        c.submit("srun sleep 6; exit 2", "-w", "gpu03", "--exclusive", name="exit2"), "FAILED", False, "own exit code"
    )
    k.wait(a, ["COMPLETING", "COMPLETED"], 60)
    k.inject("epilog_slow", host="gpu03")
    k.flap("gpu03", "hsn", down_for=3)
    time.sleep(9)
    os.unlink(hdir("gpu03", "run/fault.epilog"))
    c.inside("gpu03", ["sh", "-c", "kill $(ps -eo pid,args | awk '/sleep 300/ && !/awk/ {print $1}')"])
    k.wait(b, k.DONE)


# -------------------------------------------------------------------------------------- users, limits, the scheduler
@scenario
def user_signals_script(k):
    """A user sends SIGTERM to her job's script with scancel, 5 s after a flap of 3 s of its node's management link; the
    script ends with 143."""
    a = single("trap 'kill $p; exit 143' TERM; sleep 300 & p=$!; wait", "gpu02", name="signalled")
    k.job(a, "FAILED", False, "scancel by user with a signal")
    running(k, a)
    k.flap("gpu02", "mgmt", down_for=3)
    time.sleep(5)
    c.inside("ctl", ["scancel", "-b", "-s", "TERM", str(a)], user="alice")
    k.inject("scancel_signal", job=a, user="alice")
    k.wait(a, k.DONE)


@scenario
def array_exit_codes(k):
    """Tasks of an array end with 0, 1, 126 and 137 while the management link of one node flaps 4 s."""
    a = c.submit("sleep 15; set -- 0 1 126 137; shift $SLURM_ARRAY_TASK_ID; exit $1", "-a", "0-3", "-N1", "--exclusive",
                 name="array")  # fmt: skip
    time.sleep(10)
    rows = [x.split("|") for x in ctl("squeue", "-h", "-r", "-j", str(a), "-o", "%A|%i").splitlines()]
    for raw, shown in rows:
        good = shown.endswith("_0")
        k.job(int(raw), "COMPLETED" if good else "FAILED", False, None if good else "own exit code", shown)
    k.flap("gpu02", "mgmt", down_for=4)
    for raw, _ in rows:
        k.wait(int(raw), k.DONE)


@scenario
def preempted_for_good(k):
    """A job that may not be requeued is preempted by one of a more urgent partition, while the management link of
    another node is lost for 60 s."""
    a = c.submit("srun sleep 200", "-w", "gpu02", "-n1", "-c", "8", "--no-requeue", name="humble")
    k.job(a, "PREEMPTED", False, "preempted")
    running(k, a)
    k.port("gpu04", "mgmt", False)
    time.sleep(10)
    b = c.submit("srun sleep 10", "-p", "urgent", "-w", "gpu02", "-n1", "-c", "8", name="urgent", user="bob")
    k.job(b, "COMPLETED", False)
    k.inject("preempting_job", job=b)
    k.wait(b, k.DONE)
    time.sleep(scaled(40))
    k.port("gpu04", "mgmt", True)
    k.wait(a, k.DONE)


@scenario
def deadline_and_limit(k):
    """A job waits for a node until its deadline; an administrator shortens the time limit of the one that it waits for."""
    b = k.job(
        single("srun sleep 300", "gpu02", "-c", "8", name="shortened", user="bob"), "TIMEOUT", False, "time limit"
    )
    running(k, b)
    a = c.submit("sleep 5", "-t", "1", "--deadline=now+70", "-w", "gpu02", "-c", "8", name="late")
    k.job(a, "DEADLINE", False, "deadline")
    time.sleep(20)
    ctl("scontrol", "update", f"jobid={b}", "timelimit=2")
    k.inject("time_limit_shortened", job=b, user="root")
    k.wait(a, k.DONE, 120)
    k.wait(b, k.DONE, 180)


@scenario
def prolog_fails_then_released(k):
    """The prolog of one node of three fails; the administrator releases the held job, which runs well elsewhere."""
    c.write(hdir("gpu02", "run/fault.prolog"), "1")
    k.inject("prolog_exit_1", host="gpu02")
    a = c.submit("srun hostname; sleep 3", "-N3", "--exclusive", name="unlucky")
    k.job(a, "REQUEUED,COMPLETED", True, "prolog exit 1 gpu02")
    k.wait_node("gpu02", "drain", 60)
    k.wait(a, ["PENDING", "REQUEUE_HOLD"], 60)
    ctl("scontrol", "release", str(a))
    k.inject("release", job=a, user="root")
    k.wait(a, ["RUNNING", "COMPLETED"], 200)
    k.wait(a, k.DONE)
