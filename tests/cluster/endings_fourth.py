"""By a fourth party: faults whose errors appear first on innocent nodes, and mistakes of users in the second of a real fault.

It had read neither the correlator nor the parsers. Truths are as those of `endings_third.py`: `category`, `hosts` to blame and
`accept` of each job, and the `incidents` that should be found.
"""

import datetime
import os
import signal
import time

import cluster as c
from capture import ctl, iso
from endings import cancel, ended, ending, on, tasks, well
from endings_second import LOOP, pair, program, says
from endings_third import blames, incident, puppet, tell, told_pid, traceback, without
from endings_third_sources import back
from entangled import firewall, running, slurmd_again, start, stop
from faults import kernel_says, serve, unserve
from further import as_before, over
from spaces import AS_MUNGE, AS_SLURM, hdir

SERVER = """
import os, socket
server = socket.create_server(("", 24567))
print("feature server is up on", os.uname().nodename, flush=True)
while True:
    peer = server.accept()[0]
    peer.settimeout(20)
    peer.sendall(peer.recv(64))
    peer.close()
"""
CLIENT = """
import socket, sys, time
for step in range(int(sys.argv[2])):
    try:
        s = socket.create_connection((sys.argv[1], 24567), 4)
        s.sendall(b"features of %d" % step)
        s.recv(64)
        s.close()
    except OSError as e:
        sys.exit(f"ConnectionError: no features from {sys.argv[1]}:24567 at step {step}: {e}")
    if step % 8 == 0:
        print("step", step, flush=True)
    time.sleep(0.5)
"""


# ------------------------------------------------------------------------------------ errors appear on innocent nodes first
@ending()
def server_of_another_job_is_lost(k):
    """A feature server is a job of bob's on gpu04, which loses power. A job of alice's on gpu01, which asks that server, fails some
    seconds later: the only error is on gpu01. Olga's client fails by her own mistake, as no server ever ran on gpu03."""
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power for 9 s")
    b = on("gpu04", f"srun python3 {program('bob', 'server.py', SERVER)}", name="server", user="bob")
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "gpu04 lost power for 9 s")
    k.wait(b, ["RUNNING"])
    time.sleep(3)
    run = f"srun python3 {program('alice', 'client.py', CLIENT)}"
    a = on("gpu01", f"{run} gpu04-hsn 200", name="train")
    blames(k, a, "FAILED", "1:0", "infra.node", "node gpu04", "the node of the server that it asked lost power")
    d = on("gpu02", f"sleep 18; {run} gpu03-hsn 20", name="train", user="olga")
    cause = "she names a node on which no server ever ran"
    blames(k, d, "FAILED", "1:0", "app.error", "user submission", cause)
    e = well(k, on("gpu01", "srun sleep 35", name="kept", user="olga"))
    running(k, a, b, d, e)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(9)
    back(k, "gpu04")
    ended(k)


@ending()
def receiver_of_a_module_fails(k):
    """The receiver of gpu03's fabric module fails: its link stays up, and nearly nothing that is sent to it arrives (the driver's
    line is synthetic). The ranks of gpu03 say that they miss their peers gpu02 and gpu04, which are well; two users' jobs are
    lost. A third user's on gpu02 and gpu04 is well, and so is one on gpu03 without the fabric."""
    incident(k, "infra.network", ["gpu03"], "the fabric module of gpu03 receives nearly nothing")
    cause = "the receiver of gpu03's fabric module failed"
    a = pair("gpu[02-03]", 120, 8, name="train")
    b = pair("gpu[03-04]", 120, 12, name="train", user="bob")
    for job in (a, b):
        blames(k, job, "FAILED", "1:0", "infra.network", "network gpu03", cause)
    d = well(k, pair("gpu[02,04]", 40, name="rides", user="olga"))
    e = well(k, on("gpu03", "srun sleep 35", name="kept", user="olga"))
    running(k, a, b, d, e)
    module = "Port module event[error]: module 0, Cable error, High Temperature"
    kernel_says(k, "gpu03", f"mlx5_core 0000:17:00.0: {module}", 3)
    time.sleep(2)
    firewall("gpu03", 'iifname "hsn0" numgen random mod 1000 < 985 drop')
    k.inject("packet_loss", host="gpu03", share=0.985, net="hsn", direction="in")
    ended(k)
    c.inside("gpu03", ["nft", "flush ruleset"])
    k.inject("packet_loss_over", host="gpu03")


@ending()
def slurmd_and_fabric_at_once(k):
    """In one second slurmd of gpu02 is killed for good and the fabric link of gpu04 is lost for 25 s. One job is on gpu01 and gpu02, one on
    gpu03 and gpu04, whose rank on gpu03 complains first, and one on both bad nodes: the fabric ends it before Slurm gives gpu02 up."""
    incident(k, "infra.node", ["gpu02"], "slurmd of gpu02 was killed and stayed away")
    incident(k, "infra.network", ["gpu04"], "the fabric link of gpu04 was lost for 25 s")
    a = on("gpu[01-02]", "srun sleep 200", "-N2", name="hit")
    cause = "slurmd of gpu02 was killed and stayed away"
    blames(k, a, "NODE_FAIL", "0:0", "infra.node", "node gpu02", cause, ["infra.scheduler"])
    b = pair("gpu[03-04]", 120, 8, name="train", user="bob")
    d = pair("gpu[02,04]", 120, 8, name="both", user="olga")
    for job in (b, d):
        blames(k, job, "FAILED", "1:0", "infra.network", "network gpu04", "the fabric link of gpu04 was lost for 25 s")
    e = well(k, pair("gpu[01,03]", 40, name="rides"))
    running(k, a, b, d, e)
    stop(k, "gpu02", "slurmd")
    k.flap("gpu04", "hsn", down_for=25)
    ended(k, a)
    time.sleep(6)
    slurmd_again(k, "gpu02")
    ended(k)


def late_lines(k, host, seconds, since, until):
    """The lines of HOST's syslog between SINCE and UNTIL stand SECONDS earlier: glibc stamps them, whose clock cannot be set here."""
    whole = k.finish
    k.truth["shifted_lines"] = {"host": host, "seconds": -seconds, "since": iso(since), "until": iso(until)}

    def earlier(line, column):
        words = line.split(" ")
        try:
            when = datetime.datetime.fromisoformat(words[column])
        except (IndexError, ValueError):
            return line
        if host in words[column + 1 : column + 2] and since <= when.timestamp() <= until:
            words[column] = (when - datetime.timedelta(seconds=seconds)).isoformat(timespec="microseconds")
        return " ".join(words)

    def finish():
        whole()
        for path, column in ((f"{k.dir}/hosts/{host}/syslog", 0), (f"{k.dir}/hosts/ctl/central.log", 1)):
            if os.path.exists(path):
                c.write(path, "".join(earlier(x, column) for x in open(path)))

    k.finish = finish


@ending()
def fabric_of_a_node_with_a_late_clock(k):
    """The clock of gpu03 is 200 s behind (its time server is gone), which munge still accepts: its own lines stand 200 s too early. Its
    fabric link is lost for 25 s under a job of two nodes. Bob's job on it alone dies of his own bug, olga's is well."""
    without(k, "links")
    incident(k, "infra.network", ["gpu03"], "the fabric link of gpu03 was lost for 25 s")
    daemons = ("slurmd", "munged", "rsyslogd")
    rsyslog = ["rsyslogd", "-f", "/etc/rsyslog.conf", "-i", "/run/rsyslogd.pid"]
    pid_file = hdir("gpu03", "run/rsyslogd.pid")

    def again(clock):
        for name in daemons:
            c.kill_daemon("gpu03", name, signal.SIGTERM)
        c.wait(lambda: not any(c.pidof("gpu03", x) for x in daemons), 20, "end of the daemons")
        if os.path.exists(pid_file):
            os.unlink(pid_file)
        for argv in (rsyslog, [*AS_MUNGE, "munged", "--force"], ["slurmd"]):
            start("gpu03", *argv, faketime=clock)
        time.sleep(5)

    begun = time.time()
    again("-200s")
    k.inject("clock_behind", host="gpu03", seconds=200)
    try:
        a = pair("gpu[02-03]", 120, 8, name="train")
        blames(k, a, "FAILED", "1:0", "infra.network", "network gpu03", "the fabric link of gpu03 was lost for 25 s")
        bug = program(
            "bob", "shape.py", "import time\ntime.sleep(26)\nraise ValueError('shapes (3,4) and (5,2) not aligned')\n"
        )
        b = on("gpu03", f"srun python3 {bug}", name="shape", user="bob")
        blames(k, b, "FAILED", "1:0", "app.error", "user program", "his own ValueError")
        d = well(k, on("gpu03", "srun sleep 40", name="kept", user="olga"))
        running(k, a, b, d)
        time.sleep(4)
        k.flap("gpu03", "hsn", down_for=25)
        ended(k)
    finally:
        late_lines(k, "gpu03", 200, begun, time.time())
        again(None)
        k.inject("clock_right", host="gpu03")


# -------------------------------------------------------------------------------------- mistakes in the second of a fault
@ending()
def device_assert_beside_lost_gpu(k):
    """A GPU of gpu03 falls off the bus under bob's job (synthetic). Three seconds later alice's program of another GPU there dies of a label
    beyond its classes: a device-side assert, for which the driver logs Xid 43 of her process (synthetic)."""
    one = "--gres=gpu:h100:1"
    incident(k, "infra.gpu", ["gpu03"], "a GPU of gpu03 fell off the bus")
    b = on("gpu03", f"{puppet('bob')} 90", one, name="train", user="bob")
    blames(k, b, "FAILED", "1:0", "infra.gpu", "node gpu03", "its GPU fell off the bus")
    a = on("gpu03", f"{puppet('alice')} 90", one, name="classes")
    blames(k, a, "FAILED", "1:0", "app.error", "user program", "a label beyond its classes: a device-side assert")
    d = well(k, pair("gpu[02-03]", 35, name="rides", user="olga"))
    running(k, a, b, d)
    time.sleep(4)
    lost, number = told_pid("bob", "train", b)
    bus = f"PCI:0000:{17 + 16 * number:02x}:00"
    kernel_says(k, "gpu03", f"NVRM: Xid ({bus}): 79, pid={lost}, name=python3, GPU has fallen off the bus.")
    k.inject("gpu_lost", host="gpu03", gpu=number, job=b)
    tell(b, traceback("loss.backward()", "RuntimeError: CUDA error: unspecified launch failure"))
    time.sleep(3)
    pid, number = told_pid("alice", "classes", a)
    bus = f"PCI:0000:{17 + 16 * number:02x}:00"
    kernel_says(k, "gpu03", f"NVRM: Xid ({bus}): 43, pid={pid}, name=python3, Ch 00000008")
    where = "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [7,0,0]"
    error = f"{where} Assertion `t >= 0 && t < n_classes` failed.\n"
    tell(a, error + traceback("loss = criterion(out, y)", "RuntimeError: CUDA error: device-side assert triggered"))
    ended(k)


STORES = """
import os, time
f = os.open("/srv/data.bin", os.O_RDWR)
for step in range(36):
    os.write(f, bytes(4096)); print("step", step, flush=True); time.sleep(1)
"""


@ending()
def own_limit_beside_slow_storage(k):
    """The file server of gpu02's /srv does not answer for a minute. A program of alice's that writes there, and takes 36 s on gpu01, reaches
    its limit of one minute. Bob's loop on gpu02 never touches /srv, iterates all the time and reaches its own limit too."""
    served = {node: serve(node, "/srv") for node in ("gpu01", "gpu02")}
    incident(k, "infra.storage", ["gpu02"], "the file server of gpu02's /srv did not answer for a minute")
    run = f"srun python3 {program('alice', 'stores.py', STORES)}"
    a = on("gpu02", run, "-t", "1", name="stores")
    blames(k, a, "TIMEOUT", "0:0", "infra.storage", "storage", "its file server did not answer for a minute")
    b = on("gpu02", f"srun python3 {program('bob', 'loop.py', LOOP)}", "-t", "1", name="loop", user="bob")
    blames(k, b, "TIMEOUT", "0:0", "app.timeout", "user program", "his loop never ends; it does not use that storage")
    d = well(k, on("gpu01", run, "-t", "1", name="stores"))
    e = well(k, on("gpu02", "srun sleep 50", name="kept", user="olga"))
    running(k, a, b, d, e)
    c.inside("gpu02", ["touch", "/run/fs.hang"])
    k.inject("storage_hangs", host="gpu02", server="nas01")
    time.sleep(9)
    kernel_says(k, "gpu02", "nfs: server nas01 not responding, still trying", 5)
    k.wait(a, (*k.DONE, "COMPLETING"), 100)
    time.sleep(4)
    c.inside("gpu02", ["rm", "-f", "/run/fs.hang"])
    k.inject("storage_answers", host="gpu02", server="nas01")
    kernel_says(k, "gpu02", "nfs: server nas01 OK", 5)
    ended(k)
    for node, process in served.items():
        unserve(node, "/srv", process)


@ending()
def own_bug_right_before_lost_power(k):
    """Alice's program on gpu03 dies of its own KeyError, olga's ends well, and within the next second gpu03 loses power under
    bob's job."""
    incident(k, "infra.node", ["gpu03"], "gpu03 lost power for 8 s")
    a = on("gpu03", f"{puppet('alice')} 90", name="train")
    blames(k, a, "FAILED", "1:0", "app.error", "user program", "its own KeyError, a second before gpu03 lost power")
    b = on("gpu03", "srun sleep 200", name="hit", user="bob")
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", "node gpu03", "gpu03 lost power for 8 s")
    d = well(k, on("gpu03", f"{puppet('olga')} 12", name="short", user="olga"))
    running(k, a, b, d)
    k.wait(d, k.DONE)
    tell(a, traceback("batch['labels']", "KeyError: 'labels'"))
    k.wait(a, k.DONE)
    k.inject("power_off", c.power_off("gpu03"), host="gpu03")
    time.sleep(8)
    back(k, "gpu03")
    ended(k)


@ending()
def slow_prolog_beside_missing_module(k):
    """The prolog of gpu02 takes 14 s and succeeds; in it the management link flaps 4 s. Alice's job then fails at its first import, as it does
    on gpu04: she forgot to load a module. Olga cancels hers in the prolog, bob's job of two nodes is well."""
    c.write(hdir("gpu02", "run/fault.prolog"), "slow 14")
    k.inject("prolog_slow", host="gpu02", seconds=14)
    own = program("alice", "fit.py", "import time\ntime.sleep(2)\nimport apex_fused\n")
    run = f"srun python3 {own}"
    cause = "she did not load the module that it imports"
    for node in ("gpu02", "gpu04"):
        a = on(node, run, name="fit")
        blames(k, a, "FAILED", "1:0", "app.error", "user submission", cause)
    well(k, pair("gpu[02-03]", 15, name="rides", user="bob"))
    d = on("gpu02", "srun sleep 60", name="hasty", user="olga")
    blames(k, d, "CANCELLED", "0:0", "user.cancel", "user", "she cancelled it")
    time.sleep(3)
    k.flap("gpu02", "mgmt", down_for=4)
    cancel(k, d, "olga")
    ended(k)


NOTES = """
import os, sys, time
path = f"/tmp/scratch.{os.environ['USER']}"
with open(path, "w") as f:
    f.write("0")
for step in range(int(sys.argv[1])):
    with open(path) as f:
        done = int(f.read())
    with open(path, "r+") as f:
        f.write(str(done + 1))
    print("step", done, flush=True)
    time.sleep(1)
"""


@ending()
def cron_of_site_empties_tmp(k):
    """A cron job of root's on gpu02 removes what two users' running programs keep in /tmp: both die of FileNotFoundError in one second (cron's
    line is synthetic). The same program is well on gpu01. Olga's own path is wrong: she gets the same error on gpu02."""
    incident(k, "infra.node", ["gpu02"], "a cron job of root's emptied /tmp of gpu02 under running jobs")
    run = f"srun python3 {program('alice', 'notes.py', NOTES)}"
    runs = []
    for user in ("alice", "bob"):
        a = on("gpu02", f"{run} 90", name="notes", user=user)
        cause = "a cron job of root's removed its files from /tmp"
        blames(k, a, "FAILED", "1:0", "infra.node", "node gpu02", cause, ["infra.storage", "unknown"])
        runs.append(a)
    d = well(k, on("gpu01", f"{run} 25", name="notes", user="bob"))
    bug = program("olga", "load.py", "import time\ntime.sleep(22)\nopen('/home/olga/data/train.csv')\n")
    e = on("gpu02", f"srun python3 {bug}", name="load", user="olga")
    blames(k, e, "FAILED", "1:0", "app.error", "user program", "her own path is wrong: she never had that folder")
    running(k, *runs, d, e)
    time.sleep(6)
    says(k, "gpu02", "CRON[4411]", "(root) CMD (/usr/local/sbin/tmp-clean --older-than 7d /tmp)", "info")
    c.inside("gpu02", ["sh", "-c", "rm -rf /tmp/scratch.*"])
    k.inject("tmp_emptied", host="gpu02", user="root")
    ended(k)


# ------------------------------------------------------------------------------------------------------ the controller, arrays
@ending()
def failover_beside_lost_slurmd(k):
    """slurmctld is killed and its backup takes over (`up --backup`); in between slurmd of gpu04 is killed for good. Bob's job fails by
    its own exit code while there is no controller, olga cancels hers at the backup, alice's other job is well."""
    incident(k, "infra.node", ["gpu04"], "slurmd of gpu04 was killed and stayed away")
    incident(k, "infra.scheduler", ["ctl"], "slurmctld was killed; its backup took over")
    a = on("gpu04", "srun sleep 300", name="hit")
    cause = "slurmd of gpu04 was killed and stayed away"
    blames(k, a, "NODE_FAIL", "0:0", "infra.node", "node gpu04", cause, ["infra.scheduler"])
    b = on("gpu03", "srun sleep 22; exit 4", name="exit4", user="bob")
    blames(k, b, "FAILED", "4:0", "app.error", "user program", "its own exit code")
    d = on("gpu02", "srun sleep 300", name="stopped", user="olga")
    blames(k, d, "CANCELLED", "0:0", "user.cancel", "user", "she cancelled it")
    e = well(k, on("gpu01", "srun sleep 70", name="kept"))
    running(k, a, b, d, e)
    stop(k, "ctl", "slurmctld")
    time.sleep(5)
    stop(k, "gpu04", "slurmd")
    time.sleep(45)
    cancel(k, d, "olga")
    ended(k, a, b, d, e, limit=100)
    start("ctl", *AS_SLURM, "slurmctld")
    k.inject("slurmctld_start", host="ctl")
    time.sleep(10)


@ending()
def array_requeued_from_one_node(k):
    """An array of four tasks, one a node: the node of the last loses power, and that task is put back and ends well in its second run. Task 1
    fails by its own bad sample on another node, meanwhile. Bob's job of the lost node may not be requeued."""
    script = "[ $SLURM_ARRAY_TASK_ID != 1 ] || { sleep 22; echo 'ValueError: sample 1 has no label' >&2; exit 3; }\nsrun sleep 30"
    a = c.submit(script, "-a", "0-3", "-N1", "-c", "5", "--requeue", name="array")
    time.sleep(5)
    nodes = dict(x.split() for x in ctl("squeue", "-h", "-r", "-t", "R", "-o", "%i %N").splitlines())
    lost = nodes[f"{a}_3"]
    incident(k, "infra.node", [lost], f"{lost} lost power for 8 s")
    cause = f"{lost} lost power for 8 s"
    for shown, raw in tasks(a).items():
        if shown == f"{a}_3":
            blames(k, raw, "NODE_FAIL,COMPLETED", "0:0,0:0", "infra.node", f"node {lost}", cause, note=shown)
        elif shown == f"{a}_1":
            blames(k, raw, "FAILED", "3:0", "app.error", "user program", "its own bad sample", note=shown)
        else:
            well(k, raw, shown)
    b = on(lost, "srun sleep 200", name="hit", user="bob")
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", f"node {lost}", cause)
    k.wait(b, ["RUNNING"])
    time.sleep(3)
    k.inject("power_off", c.power_off(lost), host=lost)
    time.sleep(8)
    back(k, lost)
    for j in k.truth["jobs"]:
        if j["note"] == f"{a}_3":
            k.wait(j["id"], ["RUNNING"], 200)
    ended(k)


# ---------------------------------------------------------------------------------------------------- drained while running
@ending()
def drain_beside_own_bug_of_parts(k):
    """The fabric link of gpu03 is lost for 20 s and the health check drains it. Bob's job on that fabric is lost, alice's heterogeneous job goes on and
    fails by the exit code of its second part on gpu04, olga's job waits for gpu03 until she cancels it."""
    for host in c.load()["nodes"]:
        c.write(hdir(host, "run/nhc.on"), "")
    incident(k, "infra.network", ["gpu03"], "the fabric link of gpu03 was lost for 20 s")
    script = "srun --het-group=0 sleep 40 & sleep 32; srun --het-group=1 bash -c 'exit 4'; r=$?; wait; exit $r"
    a = c.submit(script, "-N1", "-w", "gpu03", "--no-requeue", ":", "-N1", "-w", "gpu04", name="het")
    b = pair("gpu[02-03]", 90, 8, name="train", user="bob")
    blames(k, b, "FAILED", "1:0", "infra.network", "network gpu03", "the fabric link of gpu03 was lost for 20 s")
    time.sleep(5)
    for shown, raw in tasks(a).items():
        cause = "the step of its second part ended with exit code 4"
        blames(k, raw, "FAILED", "4:0", "app.error", "user program", cause, note=shown)
    running(k, b)
    k.flap("gpu03", "hsn", down_for=20)
    d = on("gpu03", "srun sleep 5", name="waits", user="olga")
    blames(k, d, "CANCELLED", "0:0", "user.cancel", "user", "she cancelled it as gpu03 was drained")
    time.sleep(5)
    cancel(k, d, "olga")
    ended(k)


@ending()
def drained_by_prolog_beside_own_memory(k):
    """The prolog of gpu03 fails for olga's job, which is put back and held, and root cancels it; gpu03 is drained under alice's and bob's jobs.
    Alice's then takes more memory than she asked for, bob's is well."""
    a = on("gpu03", "sleep 18\nsrun python3 /home/jobs/memhog.py 600", "--mem=100", name="memhog")
    blames(k, a, "OUT_OF_MEMORY", "0:125", "app.oom", "user program", "its own memory")
    b = well(k, on("gpu03", "srun sleep 35", name="kept", user="bob"))
    incident(k, "infra.node", ["gpu03"], "the prolog of gpu03 failed")
    running(k, a, b)
    c.write(hdir("gpu03", "run/fault.prolog"), "1")
    k.inject("prolog_exit_1", host="gpu03")
    d = c.submit("srun hostname; sleep 3", "-w", "gpu03", name="unlucky", user="olga")
    blames(k, d, "REQUEUED,CANCELLED", "0:0,0:0", "infra.node", "node gpu03", "the prolog of gpu03 failed")
    k.wait_node("gpu03", "drain", 60)
    k.wait(d, ["PENDING", "REQUEUE_HOLD"], 40)
    time.sleep(3)
    cancel(k, d, None)
    ended(k)


@ending()
def names_of_one_node_wrong_beside_typo(k):
    """The hosts file of gpu03 lost its lines of the fabric: alice's client there cannot find bob's server on gpu01, which is well and serves her
    other client on gpu02 all the time. Olga's client on gpu02 has a typing error in the server's name."""
    incident(k, "infra.node", ["gpu03"], "gpu03 cannot resolve names of the fabric")
    lines = [x for x in open(f"{c.SHARED}/etc/hosts") if "-hsn" not in x]
    over("gpu03", "".join(lines), "/etc/hosts")
    k.inject("names_lost", host="gpu03")
    b = well(
        k,
        on(
            "gpu01",
            f"timeout -s KILL 45 srun python3 {program('bob', 'server.py', SERVER)} || true",
            name="server",
            user="bob",
        ),
    )
    k.wait(b, ["RUNNING"])
    time.sleep(3)
    run = f"sleep 5; srun python3 {program('alice', 'client.py', CLIENT)}"
    a = on("gpu03", f"{run} gpu01-hsn 40", name="train")
    blames(k, a, "FAILED", "1:0", "infra.node", "node gpu03", "gpu03 cannot resolve names", ["infra.network"])
    d = on("gpu02", f"{run} gpu1-hsn 40", name="train", user="olga")
    blames(k, d, "FAILED", "1:0", "app.error", "user submission", "a typing error in the server's name")
    well(k, on("gpu02", f"{run} gpu01-hsn 40", name="train"))
    ended(k)
    as_before("gpu03", "/etc/hosts")
    k.inject("names_back", host="gpu03")
