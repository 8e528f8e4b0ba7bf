"""By a second party: real faults beside mistakes that look like them, several users and jobs, two faults in a quarter."""

import os
import signal
import time

import cluster as c
from capture import ctl
from endings import cancel, ended, ending, on, tasks, truth, well
from entangled import running, slurmd_again, start, stop
from faults import WRITES, hang, kernel_says, kill_in, serve, unserve
from further import as_before, over, resume
from spaces import AS_SLURM, HSN, SHARED


def program(user, name, text):
    """Writes a program of USER's into her home; returns its path."""
    path = f"/home/{user}/{name}"
    c.write(f"{SHARED}{path}", text.lstrip())
    return path


def pair(nodes, seconds=40, limit=10, size=2, **kw):
    """A job of SIZE nodes over the fabric, without GPUs, so that several share a node."""
    script = f"srun python3 /home/jobs/ring.py {seconds} {limit}"
    return on(nodes, script, "-N", str(size), "--ntasks-per-node=1", "-c", "2", **kw)


def says(k, host, tag, text, level="warning"):
    """A line of a daemon of HOST, by root, as that daemon would write it."""
    c.inside(host, ["logger", "-t", tag, "-p", f"daemon.{level}", text])
    k.truth["synthetic_lines"].append({"t": time.time(), "host": host, "text": f"{tag}: {text}"})


SOLVER = """
import os, socket, sys, time
rank, port = int(os.environ["SLURM_PROCID"]), 21000 + int(os.environ["SLURM_JOB_ID"]) % 1000
if rank == 0:
    peer = socket.create_server(("", port)).accept()[0]
else:
    for _ in range(60):
        try:
            peer = socket.create_connection(("gpu01-hsn", port), 3)
            break
        except OSError:
            time.sleep(0.5)
for step in range(300):
    time.sleep(0.5)
    if rank == 1 and step == 30:
        print("solver: domain.cpp:411: exchange: Assertion `halo.size() == expected' failed.", file=sys.stderr, flush=True)
        os.abort()
    peer.sendall(b"x" * 64)
    if not peer.recv(64):
        sys.exit("rank 0: peer rank 1 closed the connection unexpectedly, connection reset")
    if step % 10 == 0:
        print("rank", rank, "step", step, flush=True)
"""


@ending()
def rank_aborts_beside_strangers_link(k):
    """Rank 1 of a user's program aborts by its own assertion, in the seconds in which the fabric link of a node of
    another user's job is lost for 25 s, whose watchdog ends it. A third user's job shares a node with each of them."""
    a = on("gpu[01-02]", f"srun python3 {program('alice', 'solver.py', SOLVER)}", "-N2", "--ntasks-per-node=1",
           name="solver")  # fmt: skip
    truth(k, a, "FAILED", "134:0", "its own assertion: rank 1 aborted (SIGABRT), rank 0 lost its peer", "user program")
    b = pair("gpu[03-04]", 90, name="train", user="bob")
    truth(k, b, "FAILED", "1:0", "the fabric link of gpu04 was lost for 25 s", "network gpu04")
    d = well(k, on("gpu[02-03]", "srun sleep 40", "-N2", name="render", user="olga"))
    running(k, a, b, d)
    k.flap("gpu04", "hsn", down_for=25)
    ended(k)


@ending()
def hosts_file_of_old_network(k):
    """An administrator rolls out a hosts file with the fabric addresses of a former network to one node: jobs of three
    users with that node cannot connect; one without it is well, and so is one on it after the repair."""
    lines = open(f"{SHARED}/etc/hosts").read()
    over("gpu03", lines.replace(HSN, "10.79.0."), "/etc/hosts")
    k.inject("hosts_file_wrong", host="gpu03", user="root")
    for nodes, user in (("gpu[01,03]", "alice"), ("gpu[02-03]", "bob"), ("gpu[03-04]", "olga")):
        a = pair(nodes, 20, name="ring", user=user)
        truth(k, a, "FAILED", "2:0", "gpu03 has wrong addresses of the fabric in its hosts file", "node gpu03")
    well(k, pair("gpu[01-02]", 20, name="ring"))
    ended(k)
    as_before("gpu03", "/etc/hosts")
    k.inject("hosts_file_right", host="gpu03", user="root")
    well(k, pair("gpu[03-04]", 10, name="ring"))
    ended(k)


STEPS = """
import sys, time
for step in range(int(sys.argv[1])):
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a") as f:
            f.write(f"step {step}\\n")
    print("step", step, flush=True)
    time.sleep(1)
"""


@ending()
def scratch_read_only_under_some(k):
    """The local scratch of a node (/tmp) becomes read-only after an I/O error of its disk under jobs of two users, of
    which one does not write there. The next one there fails as well. A third user's own folder is read-only elsewhere."""
    run = f"srun python3 {program('alice', 'steps.py', STEPS)}"
    a = on("gpu04", f"{run} 60 /tmp/scratch.alice", name="writes")
    truth(k, a, "FAILED", "1:0", "the scratch disk of gpu04 had an I/O error and became read-only", "node gpu04")
    b = well(k, on("gpu04", f"{run} 30", name="computes", user="bob"))
    own = "rm -rf /tmp/scratch.cache; mkdir -m 555 /tmp/scratch.cache; sleep 12; "
    d = on("gpu03", f"{own}{run} 20 /tmp/scratch.cache/steps", name="cached", user="olga")
    truth(k, d, "FAILED", "1:0", "she made her cache folder read-only herself (mode 555)", "user program")
    running(k, a, b, d)
    kernel_says(k, "gpu04", "blk_update_request: I/O error, dev nvme0n1, sector 187221760 op 0x1:(WRITE) flags 0x800")
    kernel_says(
        k, "gpu04", "EXT4-fs error (device nvme0n1p4): ext4_journal_check_start:83: Detected aborted journal", 2
    )
    kernel_says(k, "gpu04", "EXT4-fs (nvme0n1p4): Remounting filesystem read-only", 2)
    remount = ["mount", "-o", "remount,ro", "/tmp"]
    c.wait(lambda: c.inside("gpu04", remount, capture_output=True).returncode == 0, 20, "read-only /tmp")
    k.inject("tmp_read_only", host="gpu04")
    time.sleep(5)
    e = on("gpu04", f"{run} 5 /tmp/scratch.bob", name="next", user="bob")
    truth(k, e, "FAILED", "1:0", "the scratch disk of gpu04 was read-only after an I/O error", "node gpu04")
    ended(k)
    c.inside("gpu04", ["mount", "-o", "remount,rw", "/tmp"], check=True)
    c.inside("gpu03", ["sh", "-c", "rm -rf /tmp/scratch.cache"])


@ending()
def rolling_restart_beside_bug(k):
    """An administrator restarts slurmd of all four nodes one after another (an update) under jobs of three users: none is
    hurt, but one dies of its own bug a second after the slurmd of its node came back."""
    a = well(k, pair("gpu[01-02]", 50, name="train"))
    b = well(k, pair("gpu[03-04]", 50, name="train", user="bob"))
    bug = program("olga", "fit.py", "import time\ntime.sleep(16)\nlosses = []\nprint(sum(losses) / len(losses))\n")
    d = on("gpu02", f"srun python3 {bug}", name="fit", user="olga")
    truth(k, d, "FAILED", "1:0", "its own ZeroDivisionError", "user program")
    running(k, a, b, d)
    for host in c.load()["nodes"]:
        stop(k, host, "slurmd", signal.SIGTERM)
        time.sleep(3)
        slurmd_again(k, host)
        time.sleep(3)
    well(k, on("gpu02", "srun sleep 4", name="next", user="olga"))
    ended(k)


@ending()
def two_nodes_of_a_switch_lost(k):
    """The management links of the two nodes of one switch are lost for longer than SlurmdTimeout: jobs of two users, one on
    each, are lost. On the other nodes one job goes on, and one fails meanwhile of its own wrong address."""
    a = on("gpu03", "srun sleep 200", name="hit")
    b = on("gpu04", "srun sleep 200", name="hit", user="bob")
    for job in (a, b):
        truth(k, job, "NODE_FAIL", "0:0", "the management links of gpu03 and gpu04 were lost", "network gpu03 gpu04")
    well(k, pair("gpu[01-02]", 60, name="rides", user="olga"))
    wrong = 'import socket, time; time.sleep(20); socket.create_connection(("10.97.0.12", 5432), 5)'
    e = on("gpu02", f"srun python3 -c '{wrong}'", name="database")
    truth(k, e, "FAILED", "1:0", "its own wrong address (10.97 for 10.77): no such network", "user program")
    running(k, a, b, e)
    for host in ("gpu03", "gpu04"):
        k.port(host, "mgmt", False)
    ended(k, a, b)
    time.sleep(8)
    for host in ("gpu03", "gpu04"):
        k.port(host, "mgmt", True)
    ended(k)
    k.wait_node("gpu03", "idle", 40)
    k.wait_node("gpu04", "idle", 40)


@ending()
def one_of_four_dies(k):
    """A node of a job of four loses power and stays off; the other three ranks print only that their peers are gone.
    Another user's job of such a surviving node is well, and a third one's there fails as she forgot to start her server."""
    a = pair("gpu[01-04]", 200, 8, 4, name="train")
    truth(k, a, "NODE_FAIL", "0:0", "gpu03 lost power; the other ranks lost their peer", "node gpu03")
    b = well(k, on("gpu02", "srun sleep 30", name="kept", user="bob"))
    own = 'import socket, time; time.sleep(20); socket.create_connection(("gpu01-hsn", 6379), 5)'
    d = on("gpu04", f"srun python3 -c '{own}'", name="client", user="olga")
    truth(k, d, "FAILED", "1:0", "nobody listens on gpu01:6379: she did not start her server", "user program")
    running(k, a, b, d)
    k.inject("power_off", c.power_off("gpu03"), host="gpu03")
    ended(k)
    time.sleep(5)
    k.inject("power_on", c.power_on("gpu03"), host="gpu03")
    time.sleep(10)


@ending()
def own_cleanup_kills_own_other_job(k):
    """The script of a user's second job begins with a clean-up (pkill -x python3) and so kills the program of her first
    job on that node. Another user's program there may not be killed by her, and her third job is on another node."""
    train = program("alice", "steps.py", STEPS)
    a = on("gpu02", f"srun python3 {train} 200", name="first")
    truth(k, a, "FAILED", "143:0", "pkill -TERM by the script of another job of the same user", "user")
    b = well(k, on("gpu02", f"srun python3 {train} 35", name="others", user="bob"))
    d = well(k, on("gpu01", f"srun python3 {train} 30", name="third"))
    running(k, a, b, d)
    e = on("gpu02", "pkill -x python3 # no left-overs of mine\nsrun sleep 10", name="second")
    well(k, e, "its script kills the program of the user's first job")
    k.inject("pkill_by_own_script", host="gpu02", user="alice", job=e)
    ended(k)


@ending()
def array_fails_of_two_causes(k):
    """An array of eight tasks: /dev/shm of one node is full of what an agent of root left there, and the tasks on it fail;
    one task on another node fails of its own bad input. Another user's job of that full node does not need it."""
    c.inside("gpu04", ["sh", "-c", "dd if=/dev/zero of=/dev/shm/left bs=1M 2>/dev/null"])
    k.inject("shm_full", host="gpu04", user="root")
    b = well(k, on("gpu04", "srun sleep 25", name="kept", user="bob"))
    script = """sleep 9
if [ $SLURM_ARRAY_TASK_ID = 2 ]; then echo 'ValueError: sample 2 has no label' >&2; exit 3; fi
srun dd if=/dev/zero of=/dev/shm/part.$SLURM_ARRAY_JOB_ID.$SLURM_ARRAY_TASK_ID bs=1M count=8"""
    a = c.submit(script, "-a", "0-7", "-N1", "-c", "3", "--no-requeue", name="array")
    time.sleep(6)
    nodes = dict(x.split() for x in ctl("squeue", "-h", "-r", "-t", "R", "-o", "%i %N").splitlines())
    for shown, raw in tasks(a).items():
        if shown == f"{a}_2":
            truth(k, raw, "FAILED", "3:0", "its own bad input: sample 2 has no label", "user program", note=shown)
        elif nodes.get(shown) == "gpu04":
            truth(
                k, raw, "FAILED", "1:0", "/dev/shm of gpu04 was full of an agent's leftovers", "node gpu04", note=shown
            )
        else:
            well(k, raw, shown)
    ended(k, b)
    ended(k)
    for host in c.load()["nodes"]:
        c.inside(host, ["sh", "-c", "rm -f /dev/shm/left /dev/shm/part.*"])


@ending()
def spool_full_beside_own_full_disk(k):
    """/var of a node (slurmd's spool) becomes full under a running job, which ends well; the next user's job cannot be
    launched there. A third user fills /tmp of another node herself and gets the same error text."""
    a = well(k, on("gpu03", "srun sleep 30", name="kept"))
    running(k, a)
    c.inside("gpu03", ["sh", "-c", "dd if=/dev/zero of=/var/spool/slurmd/fill bs=64k 2>/dev/null"])
    k.inject("spool_full", host="gpu03", user="root")
    b = on("gpu03", "srun hostname; sleep 3", name="next", user="bob")
    truth(k, b, "CANCELLED", "0:0", "/var/spool/slurmd of gpu03 is full: the job could not be launched", "node gpu03")
    d = on("gpu02", "sleep 5; srun dd if=/dev/zero of=/tmp/scratch.$SLURM_JOB_ID bs=1M count=500", name="export",
           user="olga")  # fmt: skip
    truth(k, d, "FAILED", "1:0", "she filled /tmp of her node (64 MiB) herself", "user program")
    ended(k, a, b, d, limit=60)
    time.sleep(4)
    c.inside("gpu03", ["rm", "-f", "/var/spool/slurmd/fill"])
    ctl("scancel", str(b))
    c.inside("gpu02", ["sh", "-c", "rm -f /tmp/scratch.*"])
    ended(k)


@ending()
def cancelled_in_fear(k):
    """A node without anything of hers loses power, another user's job is lost with it; a user sees that and cancels her
    own job, whose nodes are well. A third user's job goes on."""
    a = pair("gpu[01-02]", 200, name="train")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user, after a node that the job did not use was lost", "user")
    b = on("gpu04", "srun sleep 200", name="hit", user="bob")
    truth(k, b, "NODE_FAIL", "0:0", "gpu04 lost power", "node gpu04")
    d = well(k, on("gpu03", "srun sleep 60", name="kept", user="olga"))
    running(k, a, b, d)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    ended(k, b)
    time.sleep(4)
    cancel(k, a)
    ended(k)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(10)


LOOP = """
import time
residual, i = 1.0, 0
while residual > 1e-6:
    i += 1
    if i % 10 == 0:
        print("iteration", i, "residual", residual, flush=True)
    time.sleep(0.2)
"""


@ending()
def endless_loop_beside_hung_storage(k):
    """A user's solver does not converge and prints the same residual until its time limit; in that minute the file server
    of another node stops answering, and another user's job there hangs until its own limit. A third user's job of the
    node with the hung storage does not use it and ends well."""
    served = serve("gpu02", "/srv")
    a = on("gpu01", f"srun python3 {program('alice', 'loop.py', LOOP)}", "-t", "1", name="solver")
    truth(k, a, "TIMEOUT", "0:0", "its own loop does not end; its time limit", "user program")
    b = on("gpu02", WRITES, "-t", "1", name="writes", user="bob")
    truth(k, b, "TIMEOUT", "0:0", "the file server nas01 did not answer any more; then its time limit", "storage")
    d = well(k, on("gpu02", "srun sleep 45", name="computes", user="olga"))
    running(k, a, b, d)
    hang(k, "gpu02")
    time.sleep(10)
    kernel_says(k, "gpu02", "nfs: server nas01 not responding, still trying", 5)
    ended(k, limit=150)
    time.sleep(5)
    c.inside("gpu02", ["rm", "-f", "/run/fs.hang"])
    k.inject("storage_answers", host="gpu02", server="nas01")
    kernel_says(k, "gpu02", "nfs: server nas01 OK", 5)
    unserve("gpu02", "/srv", served)
    time.sleep(4)


@ending()
def boots_without_its_software(k):
    """Two faults, one after the other: a node loses power for 6 s under a job, and after its boot the software tree is not
    mounted there, so that runs of two users fail at once. Elsewhere three are well and one has its own wrong path. After
    the repair a run on the node is well."""
    c.write(f"{SHARED}/home/jobs/prepare.py", "import time\nprint('prepared', flush=True)\ntime.sleep(6)\n")
    good = "srun python3 /home/jobs/prepare.py"
    a = on("gpu[03-04]", "srun sleep 200", "-N2", name="train")
    truth(k, a, "NODE_FAIL", "0:0", "gpu04 lost power for 6 s", "node gpu04")
    running(k, a)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    c.inside("gpu04", ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", "/home/jobs"], check=True)
    k.inject("software_not_mounted", host="gpu04")
    ended(k, a)
    time.sleep(6)
    resume("gpu04")
    k.inject("resume", host="gpu04", user="root")
    k.wait_node("gpu04", "idle", 30)
    for user in ("bob", "olga"):
        b = on("gpu04", good, name="prepare", user=user)
        truth(k, b, "FAILED", "2:0", "the software tree was not mounted on gpu04 after its boot", "node gpu04")
    for node, user in (("gpu01", "alice"), ("gpu02", "bob"), ("gpu03", "olga")):
        well(k, on(node, good, name="prepare", user=user))
    d = on("gpu02", "sleep 2; srun python3 /home/jobs/prepair.py", name="prepare")
    truth(k, d, "FAILED", "2:0", "its own wrong path (prepair.py)", "user submission")
    ended(k)
    c.inside("gpu04", ["umount", "/home/jobs"], check=True)
    k.inject("software_mounted", host="gpu04", user="root")
    well(k, on("gpu04", good, name="prepare", user="bob"))
    ended(k)
    os.unlink(f"{SHARED}/home/jobs/prepare.py")


@ending()
def controller_crashes_twice(k):
    """slurmctld crashes twice in half a minute (its kernel lines are synthetic) and is started again each time; four jobs
    of three users go on, and one has its own segmentation fault while the controller is away."""
    well(k, pair("gpu[01-02]", 55, name="train"))
    well(k, on("gpu03", "srun sleep 20", name="short", user="bob"))
    well(k, on("gpu03", "srun sleep 45", name="long", user="bob"))
    well(k, on("gpu04", "srun sleep 50", name="kept"))
    crash = "import ctypes, os, time\nprint(os.getpid(), flush=True)\ntime.sleep(12)\nctypes.string_at(0)\n"
    d = on("gpu04", f"srun python3 {program('olga', 'crash.py', crash)}", name="crash", user="olga")
    truth(k, d, "FAILED", "11:0", "its own null pointer (SIGSEGV)", "user program")
    running(k, *[j["id"] for j in k.truth["jobs"]])
    for away in (10, 5):
        where = "ip 00007f2f5c0a81d4 sp 00007f2f4b7fdb60 error 4 in libslurmfull.so[7f2f5bf60000+1a6000]"
        kernel_says(k, "ctl", f"slurmctld[712]: segfault at 28 {where}", 6)
        stop(k, "ctl", "slurmctld")
        time.sleep(away)
        start("ctl", *AS_SLURM, "slurmctld")
        k.inject("slurmctld_start", host="ctl")
        time.sleep(12)
    ended(k)


@ending()
def second_run_finds_its_own_folder(k):
    """A node loses power under jobs of two users, which are put back into the queue: the second run of one is good, that
    of the other fails as its script makes a folder that its first run had made."""
    a = c.submit("srun sleep 20", "-w", "gpu04", "--requeue", name="good")
    truth(k, a, "NODE_FAIL,COMPLETED", "0:0,0:0", "gpu04 lost power under its first run", "node gpu04")
    b = c.submit("mkdir $HOME/results-$SLURM_JOB_ID || exit 1\nsrun sleep 20", "-w", "gpu04", "--requeue",
                 name="once", user="bob")  # fmt: skip
    note = "gpu04's loss of power ended its first run, its script the second"
    cause = "its script cannot be run twice: mkdir of a folder that is there"
    truth(k, b, "NODE_FAIL,FAILED", "0:0,1:0", cause, "user program", affected=True, note=note)
    well(k, on("gpu02", "srun sleep 40", name="kept", user="olga"))
    running(k, a, b)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    k.wait(a, ["PENDING"], 60)
    k.wait(b, ["PENDING"], 60)
    time.sleep(4)
    resume("gpu04")
    k.inject("resume", host="gpu04", user="root")
    for job in (a, b):
        k.wait(job, ["RUNNING", "FAILED", "COMPLETED"], 200)
    ended(k)


DEVICES = """
import os, sys, time
for step in range(int(sys.argv[1])):
    for i in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        try:
            open(f"/dev/nvidia{i}").close()
        except OSError as e:
            sys.exit(f"RuntimeError: CUDA error: no CUDA-capable device is detected ({e})")
    print("step", step, "on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    time.sleep(1)
"""


def gpu_lost(k, own):
    """GPUs of three users' jobs on one node, and the device of the first is lost; OWN: what the third one runs."""
    run = f"srun python3 {program('alice', 'devices.py', DEVICES)}"
    a = on("gpu03", f"{run} 100", "--gres=gpu:h100:1", name="train")
    truth(k, a, "FAILED", "1:0", "its GPU fell off the bus on gpu03", "node gpu03")
    k.wait(a, ["RUNNING"])
    b = well(k, on("gpu03", f"{run} 35", "--gres=gpu:h100:2", name="train", user="bob"))
    d = on("gpu03", own, "--gres=gpu:h100:1", name="train", user="olga")
    truth(k, d, "FAILED", "1:0", "it asks for GPU 7 by its own number: there is none", "user program")
    running(k, a, b, d)
    out = open(f"{SHARED}/home/alice/train-{a}.out").read()
    number = out.split(" on ")[1].split()[0]
    c.inside("gpu03", ["rm", f"/dev/nvidia{number}"], check=True)
    k.inject("gpu_off_the_bus", host="gpu03", gpu=int(number), job=a)
    bus = f"0000:{17 + 16 * int(number):02x}:00"
    kernel_says(k, "gpu03", f"NVRM: GPU at PCI:{bus}: GPU-6a1d1a58-4b1b-7a4e-0e6a-8e1f7d1b0c4{number}")
    kernel_says(k, "gpu03", f"NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    ended(k)
    c.inside("gpu03", ["mknod", "-m", "666", f"/dev/nvidia{number}", "c", "1", "3"], check=True)


@ending()
def gpu_lost_under_one_of_three(k):
    """One of a node's GPUs falls off the bus (its kernel lines are synthetic, its device file is removed) under the job
    that has it. Another user's job of another GPU there goes on; a third user's fails there as it names a GPU of its own
    choice that no node has."""
    gpu_lost(k, "sleep 14; export CUDA_VISIBLE_DEVICES=7; srun python3 /home/alice/devices.py 20")


@ending()
def gpu_lost_beside_wrong_number(k):
    """As gpu_lost_under_one_of_three, with the wrong number set where srun does not put the right one in its place."""
    gpu_lost(k, "sleep 14; srun env CUDA_VISIBLE_DEVICES=7 python3 /home/alice/devices.py 20")


SENDS = """
import socket, sys, time
for step in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"loss 0.5", ("gpu04-hsn", 8125))
    time.sleep(1)
"""


@ending()
def fabric_address_lost(k):
    """A node's fabric interface loses its address (a lease that was not renewed) while its link stays up: a job of two
    nodes stalls and its watchdog ends it, another user's program there has no network. A third user's job there dies of
    its own bug, the same program elsewhere is well."""
    address = [f"{HSN}13/24", "dev", "hsn0"]
    sends = f"srun python3 {program('bob', 'sends.py', SENDS)}"
    a = pair("gpu[02-03]", 120, name="train")
    truth(k, a, "FAILED", "1:0", "gpu03 lost the address of its fabric interface", "node gpu03")
    b = on("gpu03", f"{sends} 60", name="sends", user="bob")
    truth(k, b, "FAILED", "1:0", "gpu03 lost the address of its fabric interface", "node gpu03")
    bug = program("olga", "rate.py", "import time\ntime.sleep(15)\nprint(int('1e-3'))\n")
    d = on("gpu03", f"srun python3 {bug}", name="rate", user="olga")
    truth(k, d, "FAILED", "1:0", "its own ValueError", "user program")
    e = well(k, on("gpu01", f"{sends} 30", name="sends", user="bob"))
    f = well(k, pair("gpu[01,04]", 40, name="kept"))
    running(k, a, b, d, e, f)
    says(k, "gpu03", "NetworkManager[633]", "<warn>  dhcp4 (hsn0): state changed bound -> expired")
    c.sh(["ip", "-n", c.ns("gpu03"), "addr", "del", *address])
    k.inject("address_lost", host="gpu03", net="hsn")
    ended(k)
    c.sh(["ip", "-n", c.ns("gpu03"), "addr", "add", *address])
    k.inject("address_back", host="gpu03", net="hsn")


@ending()
def cleanup_of_site_kills_wrong_job(k):
    """A clean-up of the site (root's cron) takes a user's running program for a stray one and kills it. Beside it, on that
    node, one job ends well and one is ended by its own `timeout` in the same seconds; the link of its fabric flaps 2 s."""
    steps = program("bob", "fit.py", STEPS)
    a = on("gpu02", f"srun python3 {steps} 200", name="fit", user="bob")
    truth(k, a, "FAILED", "137:0", "kill -9 by the site's clean-up of stray processes (root's cron)", "administrator")
    b = well(k, on("gpu02", "srun sleep 35", name="kept"))
    d = on("gpu02", "timeout 14 srun sleep 240", name="selftimed", user="olga")
    truth(k, d, "FAILED", "124:0", "her own `timeout 14`", "user program")
    running(k, a, b, d)
    k.flap("gpu02", "hsn", down_for=2)
    find = "ps -eo pid,args | awk '/fit.py/ && !/awk/ && !/srun/ && !/slurmstepd/ {print $1}'"
    pids = c.inside("gpu02", ["sh", "-c", find], capture_output=True).stdout.split()
    says(k, "gpu02", "stray-cleanup[2214]", f"killing {len(pids)} stray process of uid 20002 without a job: {pids[0]} (python3)",
         "notice")  # fmt: skip
    kill_in("gpu02", "fit.py")
    k.inject("kill_9", host="gpu02", user="root", job=a)
    ended(k)
