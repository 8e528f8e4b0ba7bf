"""By a fifth party: what administrators change on one node only: prologs, keys, limits, groups, the number of GPUs.

Truths are as those of `endings_fifth.py`.
"""

import contextlib
import datetime
import os
import signal
import time

import cluster as c
from capture import ctl, iso
from endings import cancel, ended, ending, on, tasks, well
from endings_fifth import HOLDS, ONE
from endings_second import pair, program
from endings_third import blames, incident, puppet
from entangled import FAKETIME, running, start, stop
from further import as_before, over, restart_slurmd, resume
from hosts import start_daemons, start_host
from spaces import AS_MUNGE, AS_SLURM, SHARED

SITE = "/etc/slurm/site/"


def script_over(host, name, text):
    """From now on HOST has TEXT for the site's script NAME."""
    over(host, text, SITE + name)
    c.inside(host, ["chmod", "755", f"/run/over.{name}"], check=True)


WHOLE = """#!/bin/bash
. /etc/slurm/site/_env.sh prolog
# whole nodes get a bandwidth test first
case "$SLURM_JOB_GPUS" in
*,*,*,*) /usr/local/sbin/gpu-bandwith --all >&2 || exit 1 ;;
esac
exit 0
"""


@ending()
def prolog_fails_for_whole_nodes(k):
    """A new prolog of gpu02 tests the bandwidth of all four GPUs, and names a program that is not there: it fails for jobs with four GPUs only. Bob's job
    with one GPU was well; alice's with four is put back and held, and root cancels it; the same is well on gpu04, which has the old prolog.
    Olga's without GPU was running on gpu02 and fails by its own exit code while the node is drained."""
    script_over("gpu02", "prolog.sh", WHOLE)
    k.inject("prolog_changed", host="gpu02", user="root")
    incident(k, "infra.node", ["gpu02"], "the prolog of gpu02 failed for jobs with four GPUs")
    b = well(k, on("gpu02", "srun sleep 5", ONE, name="one", user="bob"))
    d = on("gpu02", "srun sleep 26; exit 3", name="exit3", user="olga")
    blames(k, d, "FAILED", "3:0", "app.error", "user program", "its own exit code")
    running(k, d)
    ended(k, b)
    time.sleep(2)
    run = f"{puppet('alice')} 5"
    e = well(k, on("gpu04", run, "--gres=gpu:h100:4", name="whole"))
    a = c.submit(run, "-w", "gpu02", "--gres=gpu:h100:4", name="whole")
    cause = "the new prolog of gpu02 failed for jobs with four GPUs"
    blames(k, a, "REQUEUED,CANCELLED", "0:0,0:0", "infra.node", "node gpu02", cause, ["infra.scheduler"])
    k.wait_node("gpu02", "dr", 60)
    k.wait(a, ["PENDING", "REQUEUE_HOLD"], 40)
    time.sleep(3)
    cancel(k, a, None)
    ended(k, a, b, d, e)
    as_before("gpu02", SITE + "prolog.sh")
    k.inject("prolog_as_before", host="gpu02")
    time.sleep(2)


@ending()
def munge_key_rotated_on_half(k):
    """An administrator gives gpu03 and gpu04 a new munge key and forgets the others: both are given up. Alice's job of gpu01 and gpu03 is lost, and bob's on
    gpu04; olga's on gpu02 is well, and alice's on gpu01 fails by its own exit code."""
    incident(k, "infra.node", ["gpu03", "gpu04"], "gpu03 and gpu04 got another munge key than the controller")
    cause = "gpu03 had another munge key than the controller"
    a = on("gpu[01,03]", "srun sleep 200", "-N2", name="hit")
    blames(k, a, "NODE_FAIL", "0:0", "infra.node", "node gpu03", cause, ["infra.scheduler"])
    b = on("gpu04", "srun sleep 200", name="hit", user="bob")
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", "node gpu04", cause.replace("03", "04"), ["infra.scheduler"])
    d = well(k, on("gpu02", "srun sleep 50", name="kept", user="olga"))
    e = on("gpu01", "srun sleep 24; exit 7", name="exit7")
    blames(k, e, "FAILED", "7:0", "app.error", "user program", "its own exit code")
    running(k, a, b, d, e)
    key = "/var/log/munge/rotated.key"
    for host in ("gpu03", "gpu04"):
        stop(k, host, "munged", signal.SIGTERM)
        c.inside(host, ["sh", "-c", f"head -c 128 /dev/urandom > {key}; chown munge {key}; chmod 400 {key}"])
        start(host, *AS_MUNGE, "munged", "--force", f"--key-file={key}")
        k.inject("munged_other_key", host=host, user="root")
    ended(k)
    time.sleep(3)
    for host in ("gpu03", "gpu04"):
        stop(k, host, "munged")
        start(host, *AS_MUNGE, "munged", "--force")
        k.inject("munged_start", host=host)
    time.sleep(4)
    resume("gpu03", "gpu04")


def of_array(array):
    """The node of each running element of ARRAY, by the id that Slurm shows."""
    rows = (x.split() for x in ctl("squeue", "-h", "-r", "-t", "R", "-o", "%i %N").splitlines())
    return {shown: node for shown, node in rows if shown.startswith(f"{array}_")}


SHARDS = """
import os, sys, time
time.sleep(6)
shards = [open("/home/jobs/ring.py") for _ in range(80)]
print(os.uname().nodename, "has", len(shards), "shards open", flush=True)
time.sleep(8)
"""


@ending()
def slurmd_restarted_with_few_files(k):
    """An administrator starts slurmd of gpu03 anew from a shell with `ulimit -n 64`, which the jobs of that node inherit from then on: of alice's array the
    elements on gpu03 cannot open their shards, and neither can bob's run of the same program; his on gpu01 is well. Olga lowers her own limit on
    gpu02 and gets the same error."""
    incident(k, "infra.node", ["gpu03"], "slurmd of gpu03 was started with a limit of 64 open files")
    stop(k, "gpu03", "slurmd", signal.SIGTERM)
    time.sleep(2)
    c.daemon("gpu03", ["bash", "-c", "ulimit -n 64; exec slurmd"])
    k.inject("slurmd_start", host="gpu03", open_files=64, user="root")
    time.sleep(4)
    run = f"srun python3 {program('alice', 'shards.py', SHARDS)}"
    a = c.submit(run, "-a", "0-7", "-N1", "-c", "3", "--no-requeue", name="array")
    c.wait(lambda: len(of_array(a)) == 8, 20, "all elements of the array")
    nodes = of_array(a)
    cause = "slurmd of gpu03 was started with a limit of 64 open files"
    for shown, raw in tasks(a).items():
        if nodes.get(shown) == "gpu03":
            blames(k, raw, "FAILED", "1:0", "infra.node", "node gpu03", cause, ["unknown"], note=shown)
        else:
            well(k, raw, shown)
    b = on("gpu03", run, name="shards", user="bob")
    blames(k, b, "FAILED", "1:0", "infra.node", "node gpu03", cause, ["unknown"])
    well(k, on("gpu01", run, name="shards", user="bob"))
    d = on("gpu02", f"ulimit -n 40; {run.removeprefix('srun ')}", name="shards", user="olga")
    blames(k, d, "FAILED", "1:0", "app.error", "user submission", "her own ulimit -n 40")
    ended(k)
    restart_slurmd(k, "gpu03")
    time.sleep(3)


@ending()
def group_conf_of_one_node_allows_less(k):
    """gpu03 has an old cgroup.conf, by which a job may use 30 % of the memory that it asked for: the programs of two users, which need half of it, are killed there
    (really), and are well on gpu01. Olga's takes more than she asked for on gpu02."""
    conf = open(f"{SHARED}/etc/slurm/cgroup.conf").read()
    over("gpu03", conf.replace("AllowedRAMSpace=100", "AllowedRAMSpace=30"), "/etc/slurm/cgroup.conf")
    restart_slurmd(k, "gpu03")
    k.inject("cgroup_conf_old", host="gpu03", allowed_ram_space=30)
    time.sleep(4)
    incident(k, "infra.node", ["gpu03"], "an old cgroup.conf on gpu03 allows jobs 30 % of their memory")
    run = f"srun python3 {program('alice', 'holds.py', HOLDS)} 200 12"
    cause = "an old cgroup.conf on gpu03 allows jobs 30 % of their memory"
    for user in ("alice", "bob"):
        a = on("gpu03", run, "--mem=400", name="holds", user=user)
        blames(k, a, "FAILED", "1:0", "infra.node", "node gpu03", cause, ["unknown"])
    well(k, on("gpu01", run, "--mem=400", name="holds"))
    well(k, on("gpu01", run, "--mem=400", name="holds", user="bob"))
    d = on("gpu02", "sleep 3\nsrun python3 /home/jobs/memhog.py 600", "--mem=100", name="memhog", user="olga")
    blames(k, d, "FAILED", "1:0", "app.oom", "user program", "her own memory")
    ended(k)
    as_before("gpu03", "/etc/slurm/cgroup.conf")
    restart_slurmd(k, "gpu03")
    time.sleep(3)


CLEANS = """#!/bin/bash
. /etc/slurm/site/_env.sh epilog
# nothing of the job's user may be left on the node
left=$(pgrep -d ' ' -u "$SLURM_JOB_USER")
[ -z "$left" ] && exit 0
logger -t slurm-epilog -p daemon.warning "job=$SLURM_JOB_ID leftover processes of $SLURM_JOB_USER killed: $left"
kill -KILL $left
exit 0
"""


@ending()
def epilog_kills_the_other_job(k):
    """The epilog of gpu02 kills whatever the job's user still has on the node, as if nobody had two jobs there: when alice's short job ends well, her other one is
    killed. Bob's own `timeout` kills his program there a second or so later; olga's is well, and so is alice's third one on gpu01."""
    script_over("gpu02", "epilog.sh", CLEANS)
    k.inject("epilog_changed", host="gpu02", user="root")
    incident(k, "infra.node", ["gpu02"], "the epilog of gpu02 kills all processes of the job's user")
    a = on("gpu02", f"{puppet('alice')} 90", name="train")
    cause = "the epilog of alice's other job killed it on gpu02"
    blames(k, a, "FAILED", "0:9", "infra.node", "node gpu02", cause, ["infra.scheduler", "unknown"])
    d = well(k, on("gpu02", "srun sleep 40", name="kept", user="olga"))
    e = well(k, on("gpu01", f"{puppet('alice')} 40", name="train"))
    running(k, a, d, e)
    b = on("gpu02", "timeout -s KILL 16 sleep 100", name="limits", user="bob")
    blames(k, b, "FAILED", "9:0", "app.error", "user submission", "his own `timeout`, with SIGKILL")
    f = well(k, on("gpu02", "srun sleep 14", name="short"))
    running(k, b, f)
    ended(k)
    as_before("gpu02", SITE + "epilog.sh")
    k.inject("epilog_as_before", host="gpu02")


@ending()
def back_with_two_gpus(k):
    """gpu04 loses power under bob's job and comes back with two GPUs of four (its gres.conf names two): slurmctld drains it. Alice's job, which waits for all
    four, reaches its deadline. Olga's job on gpu03 fails by its own exit code."""
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power and came back with two GPUs of four")
    b = on("gpu04", f"{puppet('bob')} 200", ONE, name="hit", user="bob")
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "gpu04 lost power for 8 s")
    d = on("gpu03", "srun sleep 26; exit 6", name="exit6", user="olga")
    blames(k, d, "FAILED", "6:0", "app.error", "user program", "its own exit code")
    running(k, b, d)
    a = on("gpu04", "srun hostname", "--gres=gpu:h100:4", "-t", "1", "--deadline=now+85", name="waits")
    cause = "its deadline came while its only node was drained, as two of its GPUs were missing"
    accept = ["infra.gpu", "infra.scheduler", "app.timeout", "unknown"]
    blames(k, a, "DEADLINE", "0:0", "infra.node", "node gpu04", cause, accept)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(8)
    for net in ("mgmt", "hsn"):
        c.port("gpu04", net, True)
    start_host(c.load(), "gpu04", 2)
    gres = open(f"{SHARED}/etc/slurm/gres.conf").read()
    over("gpu04", gres.replace("[0-3]", "[0-1]"), "/etc/slurm/gres.conf")
    start_daemons(c.load(), "gpu04")
    k.inject("power_on", host="gpu04", gpus=2)
    time.sleep(12)
    resume("gpu04")
    k.inject("resume", host="gpu04", user="root")
    ended(k, a, limit=150)
    ended(k)
    as_before("gpu04", "/etc/slurm/gres.conf")
    restart_slurmd(k, "gpu04")
    time.sleep(3)
    resume("gpu04")


@ending(TreeWidth="2")
def first_of_the_tree_hangs(k):
    """slurmd of gpu01 hangs (SIGSTOP) in a cluster whose messages go through a tree of width two: what the controller sends to the next nodes goes through it. Bob's
    job on gpu01 is lost. Alice's on gpu02 and gpu03 is well, whatever the controller says of those nodes meanwhile; olga's on gpu02 fails by its own exit code."""
    incident(k, "infra.node", ["gpu01"], "slurmd of gpu01 hung")
    b = on("gpu01", "srun sleep 200", name="hit", user="bob")
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", "node gpu01", "slurmd of gpu01 hung", ["infra.scheduler"])
    a = well(k, on("gpu[02-03]", "srun sleep 60", "-N2", name="kept"))
    d = on("gpu02", "srun sleep 30; exit 4", name="exit4", user="olga")
    blames(k, d, "FAILED", "4:0", "app.error", "user program", "its own exit code")
    running(k, a, b, d)
    stop(k, "gpu01", "slurmd", signal.SIGSTOP)
    ended(k)
    time.sleep(2)
    stop(k, "gpu01", "slurmd", signal.SIGCONT)
    time.sleep(5)
    resume("gpu01")


def controller_lines(k, seconds, since, until):
    """The clock of ctl was SECONDS ahead from SINCE to UNTIL: what glibc and rsyslog stamped there is put there too."""
    whole = k.finish
    k.truth["shifted_lines"] = {"host": "ctl", "seconds": seconds, "since": iso(since), "until": iso(until)}

    def later(line, columns):
        words = line.split(" ")
        for column in columns:
            try:
                when = datetime.datetime.fromisoformat(words[column])
            except (IndexError, ValueError):
                continue
            if since <= when.timestamp() <= until:
                moved = when + datetime.timedelta(seconds=seconds)
                words[column] = moved.isoformat(timespec="microseconds")
        return " ".join(words)

    def finish():
        whole()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{k.dir}/observed.jsonl")  # by a watch that was right
        for name in ("syslog", "kern.log", "central.log"):
            path = f"{k.dir}/hosts/ctl/{name}"
            if not os.path.exists(path):
                continue
            lines = []
            for line in open(path):  # central.log: received here, then as the sender says
                own = name != "central.log" or " ctl " in line[:80]
                lines.append(later(line, (0, 1) if own and name == "central.log" else (0,)))
            c.write(path, "".join(lines))

    k.finish = finish


@ending()
def clock_of_the_controller_ahead(k):
    """The clock of the controller is 150 s ahead (its time server is wrong), which munge still accepts: slurmctld's lines and all of accounting stand 150 s too late. The
    fabric link of gpu03 is lost for 25 s under alice's job. Bob's there dies of his own bug in those seconds; olga's is well."""
    incident(k, "infra.network", ["gpu03"], "the fabric link of gpu03 was lost for 25 s")
    begun = time.time()
    stop(k, "ctl", "slurmctld", signal.SIGTERM)
    c.wait(lambda: not c.pidof("ctl", "slurmctld"), 30, "end of slurmctld")
    c.daemon("ctl", [*AS_SLURM, "env", f"LD_PRELOAD={FAKETIME}", "FAKETIME=+150s", "slurmctld"])
    k.inject("clock_ahead", host="ctl", seconds=150)
    c.wait(lambda: c.inside("ctl", ["scontrol", "ping"], capture_output=True).returncode == 0, 30, "slurmctld")
    time.sleep(6)
    try:
        a = pair("gpu[02-03]", 120, 8, name="train")
        blames(k, a, "FAILED", "1:0", "infra.network", "network gpu03", "the fabric link of gpu03 was lost for 25 s")
        text = "import time\ntime.sleep(22)\nraise ValueError('shapes (3,4) and (5,2) not aligned')\n"
        b = on("gpu03", f"srun python3 {program('bob', 'shape.py', text)}", name="shape", user="bob")
        blames(k, b, "FAILED", "1:0", "app.error", "user program", "his own ValueError")
        d = well(k, on("gpu03", "srun sleep 45", name="kept", user="olga"))
        running(k, a, b, d)
        time.sleep(4)
        k.flap("gpu03", "hsn", down_for=25)
        ended(k)
    finally:
        controller_lines(k, 150, begun, time.time())
        stop(k, "ctl", "slurmctld", signal.SIGTERM)
        c.wait(lambda: not c.pidof("ctl", "slurmctld"), 30, "end of slurmctld")
        start("ctl", *AS_SLURM, "slurmctld")
        k.inject("clock_right", host="ctl")
        c.wait(lambda: c.inside("ctl", ["scontrol", "ping"], capture_output=True).returncode == 0, 30, "slurmctld")
    time.sleep(155)  # sacct shows nothing that begins later than now
