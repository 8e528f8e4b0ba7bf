"""By a fifth party: faults beside a death that has another cause, symptoms that name the wrong node, faults that were over.

It had read neither the correlator nor the parsers. Truths are as those of `endings_third.py`: `category`, `hosts` to blame and
`accept` of each job, and the `incidents` that should be found.
"""

import os
import subprocess
import time

import cluster as c
from endings import cancel, ended, ending, on, well
from endings_queue import as_user
from endings_second import LOOP, pair, program
from endings_third import blames, incident, puppet, tell, told_pid, traceback
from endings_third_sources import back
from entangled import running
from faults import kernel_says, serve, set_cgroup, unserve
from further import resume
from spaces import CG, CG_ROOT, SHARED

ONE = "--gres=gpu:h100:1"


def bus(number):
    """The PCI address of the GPU of that NUMBER, as the driver writes it."""
    return f"PCI:0000:{17 + 16 * number:02x}:00"


# ----------------------------------------------------------------------------------------- several faults, one of them kills
@ending()
def loud_node_beside_lost_fabric(k):
    """gpu03 is loud: a GPU that no job has falls off the bus, its fabric card's firmware is reset and is back after 2.5 s (those lines
    are synthetic). 9 s later the fabric link of gpu02 is lost for 25 s: alice's job of gpu02 and gpu03 dies of that, bob's of gpu03
    and gpu04 rides the reset, and olga's without fabric or GPU dies on gpu03 of her own assertion."""
    incident(k, "infra.gpu", ["gpu03"], "a GPU of gpu03 that no job has fell off the bus")
    incident(k, "infra.network", ["gpu02"], "the fabric link of gpu02 was lost for 25 s")
    a = pair("gpu[02-03]", 120, 8, name="train")
    blames(k, a, "FAILED", "1:0", "infra.network", "network gpu02", "the fabric link of gpu02 was lost for 25 s")
    b = well(k, pair("gpu[03-04]", 55, 10, name="rides", user="bob"))
    text = "import time\ntime.sleep(19)\nassert [] != [], 'halo exchange: ghost cells differ'\n"
    d = on("gpu03", f"srun python3 {program('olga', 'halo.py', text)}", name="halo", user="olga")
    blames(k, d, "FAILED", "1:0", "app.error", "user program", "her own assertion")
    running(k, a, b, d)
    xid = f"NVRM: Xid ({bus(3)}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    kernel_says(k, "gpu03", xid)
    k.inject("gpu_lost", host="gpu03", gpu=3)
    card = "mlx5_core 0000:17:00.0: "
    kernel_says(k, "gpu03", card + "poll_health:819:(pid 0): device's health compromised - reached miss count")
    kernel_says(k, "gpu03", card + "mlx5_error_sw_reset:242:(pid 1187): start")
    k.flap("gpu03", "hsn", down_for=2.5)
    kernel_says(k, "gpu03", card + "mlx5_health_try_recover:337:(pid 1187): health recovery succeeded", 6)
    k.inject("firmware_reset", host="gpu03")
    time.sleep(9)
    k.flap("gpu02", "hsn", down_for=25)
    ended(k)


@ending()
def own_memory_beside_ecc(k):
    """A GPU of gpu02 has a contained memory error under bob's program, which dies of it, and the node's memory logs corrected errors
    (all synthetic). Three seconds later alice's program there, with another GPU, takes more memory than she asked for."""
    incident(k, "infra.gpu", ["gpu02"], "a contained memory error of a GPU of gpu02")
    b = on("gpu02", f"{puppet('bob')} 90", ONE, name="train", user="bob")
    blames(k, b, "FAILED", "1:0", "infra.gpu", "node gpu02", "a contained memory error of its GPU")
    a = on("gpu02", "while [ ! -e ~/grow ]; do sleep 0.5; done\nsrun python3 /home/jobs/memhog.py 600", "--mem=100", ONE,
           name="tokens")  # fmt: skip
    blames(k, a, "FAILED", "1:0", "app.oom", "user program", "her own memory")
    d = well(k, on("gpu02", f"{puppet('olga')} 30", ONE, name="kept", user="olga"))
    running(k, a, b, d)
    for count in (1, 3):
        where = "CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1f2a3c offset:0x40 grain:32 syndrome:0x0)"
        kernel_says(k, "gpu02", f"EDAC MC0: {count} CE memory read error on {where}", 4)
    pid, number = told_pid("bob", "train", b)
    what = "Contained: SM (0x1). RST: No, D-RST: No"
    kernel_says(k, "gpu02", f"NVRM: Xid ({bus(number)}): 94, pid={pid}, name=python3, Ch 0000000a, {what}")
    row = "Row Remapper: New row (0x00000000000a2f3c) marked for remapping, reset gpu to activate."
    kernel_says(k, "gpu02", f"NVRM: Xid ({bus(number)}): 63, pid='<unknown>', name=<unknown>, {row}")
    k.inject("gpu_memory_error", host="gpu02", gpu=number, job=b)
    tell(b, traceback("loss.backward()", "RuntimeError: CUDA error: uncorrectable ECC error encountered"))
    time.sleep(3)
    c.write(f"{SHARED}/home/alice/grow", "now\n")
    ended(k)
    os.unlink(f"{SHARED}/home/alice/grow")


HUNG = """
import os, sys, time
print("pid", os.getpid(), "devices", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
step = 0
while not os.path.exists(f"/home/jobs/hang.{os.environ['SLURM_JOB_ID']}"):
    if step % 8 == 0:
        print(f"step {step} loss {9.2 / (step + 1):.4f}", flush=True)
    step += 1
    time.sleep(0.25)
time.sleep(3600)
"""


def hangs(job):
    """The program HUNG of JOB returns no more from its driver."""
    c.write(f"{SHARED}/home/jobs/hang.{job}", "now\n")


@ending()
def gsp_timeout_until_the_limit(k):
    """The firmware (GSP) of alice's GPU on gpu02 answers no more (synthetic): her program hangs in the driver until its limit of one
    minute. Bob's loop with another GPU there iterates all the time and reaches his own limit in the same minute; olga's is well."""
    incident(k, "infra.gpu", ["gpu02"], "the firmware of a GPU of gpu02 answers no more")
    a = on("gpu02", f"srun python3 {program('alice', 'hung.py', HUNG)}", ONE, "-t", "1", name="train")
    blames(
        k,
        a,
        "TIMEOUT",
        "0:0",
        "infra.gpu",
        "node gpu02",
        "its GPU's firmware answered no more; it hung until its limit",
    )
    b = on("gpu02", f"srun python3 {program('bob', 'loop.py', LOOP)}", ONE, "-t", "1", name="loop", user="bob")
    blames(k, b, "TIMEOUT", "0:0", "app.timeout", "user program", "his loop never ends")
    d = well(k, on("gpu02", f"{puppet('olga')} 45", ONE, name="kept", user="olga"))
    running(k, a, b, d)
    time.sleep(4)
    pid, number = told_pid("alice", "train", a)
    hangs(a)
    what = "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8)."
    kernel_says(k, "gpu02", f"NVRM: Xid ({bus(number)}): 119, pid={pid}, name=python3, {what}")
    k.inject("gsp_timeout", host="gpu02", gpu=number, job=a)
    time.sleep(6)
    what = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    kernel_says(k, "gpu02", f"NVRM: Xid ({bus(number)}): 154, pid={pid}, name=python3, {what}")
    ended(k)


@ending()
def requeued_from_a_sick_node(k):
    """A GPU of gpu03 falls off the bus (synthetic) and alice's program hangs: root drains the node and requeues her job, which ends well
    on gpu02. Bob's job on gpu03, of another GPU, fails meanwhile by its own exit code."""
    incident(k, "infra.gpu", ["gpu03"], "a GPU of gpu03 fell off the bus")
    script = (
        f"[ ${{SLURM_RESTART_COUNT:-0}} = 0 ] || exec srun sleep 5\nsrun python3 {program('alice', 'hung.py', HUNG)}"
    )
    a = c.submit(script, "-w", "gpu03", ONE, "--requeue", name="train")
    cause = "its GPU fell off the bus; root therefore requeued it"
    blames(k, a, "REQUEUED,COMPLETED", "0:0,0:0", "infra.gpu", "node gpu03", cause, ["infra.node", "infra.scheduler"])
    b = on("gpu03", "srun sleep 24; exit 5", ONE, name="exit5", user="bob")
    blames(k, b, "FAILED", "5:0", "app.error", "user program", "its own exit code")
    running(k, a, b)
    pid, number = told_pid("alice", "train", a)
    hangs(a)
    xid = f"NVRM: Xid ({bus(number)}): 79, pid={pid}, name=python3, GPU has fallen off the bus."
    kernel_says(k, "gpu03", xid)
    k.inject("gpu_lost", host="gpu03", gpu=number, job=a)
    time.sleep(8)
    as_user(k, "drain", None, "scontrol", "update", "nodename=gpu03", "state=drain", "reason=Xid 79, RMA 2217")
    as_user(k, "requeue", None, "scontrol", "requeue", str(a), job=a)
    k.wait(a, ["PENDING"], 40)
    as_user(k, "moved", None, "scontrol", "update", f"jobid={a}", "reqnodelist=gpu02", job=a)
    k.wait(a, ["RUNNING"], 200)
    ended(k)


# ---------------------------------------------------------------------------------------------- the symptom names another one
FEEDS = """
import os, socket, sys, time
rank, port = int(os.environ["SLURM_PROCID"]), 22000 + int(os.environ["SLURM_JOB_ID"]) % 1000
me = f"{os.uname().nodename} rank{rank}"
if rank == 0:
    peer = socket.create_server(("", port)).accept()[0]
else:
    for _ in range(60):
        try:
            peer = socket.create_connection(("gpu02-hsn", port), 3)
            break
        except OSError:
            time.sleep(0.5)
data = os.open("/srv/data.bin", os.O_RDONLY)
peer.settimeout(8)
for step in range(300):
    batch = os.pread(data, 4096, 0)
    try:
        peer.sendall(batch[:64])
        if not peer.recv(64):
            sys.exit(f"{me}: ERROR: peer closed the connection (step {step})")
    except TimeoutError:
        sys.exit(f"{me}: ERROR: collective timed out: nothing from {peer.getpeername()[0]} for 8 s (step {step})")
    except OSError as e:
        sys.exit(f"{me}: ERROR: connection to {peer.getpeername()[0]} failed: {e} (step {step})")
    if step % 8 == 0:
        print(me, "step", step, flush=True)
    time.sleep(0.25)
"""


@ending()
def rank_waits_for_its_data(k):
    """The file server of gpu03's /srv does not answer: alice's rank there waits in D state for its batch, and the watchdog of her rank on gpu02
    ends the job: "nothing from 10.78.0.13". The fabric link of gpu02 had flapped 2 s, 6 s before. Bob's job of the same two
    nodes uses the fabric alone and is well, and so is olga's on gpu03."""
    served = {node: serve(node, "/srv") for node in ("gpu02", "gpu03")}
    incident(k, "infra.storage", ["gpu03"], "the file server of gpu03's /srv did not answer for 20 s")
    a = on("gpu[02-03]", f"srun python3 {program('alice', 'feeds.py', FEEDS)}", "-N2", "--ntasks-per-node=1", "-c", "2",
           name="train")  # fmt: skip
    cause = "the file server of gpu03 did not answer; its other rank only missed that one"
    blames(k, a, "FAILED", "1:0", "infra.storage", "storage gpu03", cause)
    b = well(k, pair("gpu[02-03]", 50, 8, name="rides", user="bob"))
    d = well(k, on("gpu03", "srun sleep 45", name="kept", user="olga"))
    running(k, a, b, d)
    k.flap("gpu02", "hsn", down_for=2)
    time.sleep(6)
    c.inside("gpu03", ["touch", "/run/fs.hang"])
    k.inject("storage_hangs", host="gpu03", server="nas01")
    time.sleep(6)
    kernel_says(k, "gpu03", "nfs: server nas01 not responding, still trying", 5)
    time.sleep(14)
    c.inside("gpu03", ["rm", "-f", "/run/fs.hang"])
    k.inject("storage_answers", host="gpu03", server="nas01")
    kernel_says(k, "gpu03", "nfs: server nas01 OK", 5)
    ended(k)
    for node, process in served.items():
        unserve(node, "/srv", process)


@ending()
def dependants_of_a_lost_job(k):
    """gpu03 loses power under bob's job, and his next one, which depends on it, is cancelled by Slurm. Alice's first job fails by its own exit code
    on gpu02 in that time, and her next one is cancelled likewise. Olga's job on gpu04 is cancelled by root, to make room."""
    incident(k, "infra.node", ["gpu03"], "gpu03 lost power for 8 s")
    b = on("gpu03", "srun sleep 200", name="first", user="bob")
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", "node gpu03", "gpu03 lost power for 8 s")
    a = on("gpu02", "srun sleep 16; exit 3", name="first")
    blames(k, a, "FAILED", "3:0", "app.error", "user program", "its own exit code")
    after = "--kill-on-invalid-dep=yes"
    d = c.submit("sleep 1", "-d", f"afterok:{b}", after, name="second", user="bob")
    cause = "Slurm cancelled it, as the job that it depends on was lost with gpu03"
    blames(k, d, "CANCELLED", "0:0", "infra.node", "node gpu03", cause, ["user.cancel", "infra.scheduler", "unknown"])
    e = c.submit("sleep 1", "-d", f"afterok:{a}", after, name="second")
    cause = "Slurm cancelled it, as the job that it depends on failed by its own exit code"
    blames(k, e, "CANCELLED", "0:0", "app.error", "user program", cause, ["user.cancel", "unknown"])
    well(k, c.submit("sleep 1", "-d", f"afternotok:{b}", name="rescue", user="bob"))
    f = on("gpu04", "srun sleep 200", name="room", user="olga")
    accept = ["infra.scheduler"]
    blames(k, f, "CANCELLED", "0:0", "user.cancel", "administrator", "root cancelled it to make room", accept)
    running(k, a, b, f)
    k.inject("power_off", c.power_off("gpu03"), host="gpu03")
    time.sleep(3)
    cancel(k, f, None)
    time.sleep(5)
    back(k, "gpu03")
    ended(k)


# --------------------------------------------------------------------------------------------------------- the fault was over
WRITER = """
import os, sys, time
f = os.open("/srv/data.bin", os.O_RDWR)
patience, last = float(sys.argv[1]), int(sys.argv[2])
for step in range(last):
    begun = time.time()
    os.write(f, bytes(4096))
    if time.time() - begun > patience:
        sys.exit(f"TimeoutError: checkpoint of step {step} took {time.time() - begun:.0f} s, more than {patience:.0f} s")
    print("step", step, flush=True)
    time.sleep(1)
state = {"step": last}
print(state["momentum"])
"""


@ending()
def storage_heals_before_own_bug(k):
    """The file server of gpu02's /srv does not answer for 16 s, and then it does. Alice's program waits, goes on for eight steps and dies of its own
    KeyError. Bob's gives up in the second in which its write ends, as it took too long. Olga's does not use it and is well."""
    served = serve("gpu02", "/srv")
    incident(k, "infra.storage", ["gpu02"], "the file server of gpu02's /srv did not answer for 16 s")
    writer = program("alice", "writer.py", WRITER)
    a = on("gpu02", f"srun python3 {writer} 60 20", name="ckpt")
    blames(k, a, "FAILED", "1:0", "app.error", "user program", "its own KeyError, long after the storage was back")
    b = on("gpu02", f"srun python3 {writer} 10 200", name="ckpt", user="bob")
    cause = "its write took 16 s, as the file server did not answer"
    blames(k, b, "FAILED", "1:0", "infra.storage", "storage gpu02", cause)
    d = well(k, on("gpu02", "srun sleep 40", name="kept", user="olga"))
    running(k, a, b, d)
    time.sleep(4)
    c.inside("gpu02", ["touch", "/run/fs.hang"])
    k.inject("storage_hangs", host="gpu02", server="nas01")
    time.sleep(7)
    kernel_says(k, "gpu02", "nfs: server nas01 not responding, still trying", 5)
    time.sleep(9)
    c.inside("gpu02", ["rm", "-f", "/run/fs.hang"])
    k.inject("storage_answers", host="gpu02", server="nas01")
    kernel_says(k, "gpu02", "nfs: server nas01 OK", 5)
    ended(k)
    unserve("gpu02", "/srv", served)


@ending()
def lockups_of_two_nodes(k):
    """The kernels of gpu02 and gpu03 report a soft lockup in one second (synthetic). gpu02 goes on, and bob's program there dies of its own bug 7 s
    later; gpu03 stands still for good (really), so that alice's job is lost. Olga's on gpu02 is well."""
    incident(k, "infra.node", ["gpu03"], "the kernel of gpu03 locked up, and the node stood still")
    a = on("gpu03", "srun sleep 200", name="hit")
    blames(
        k, a, "NODE_FAIL", "0:0", "infra.node", "node gpu03", "the kernel of gpu03 locked up, and the node stood still"
    )
    text = "import time\ntime.sleep(15)\nprint([1, 2][int('0x', 16)])\n"
    b = on("gpu02", f"srun python3 {program('bob', 'hex.py', text)}", name="hex", user="bob")
    blames(k, b, "FAILED", "1:0", "app.error", "user program", "his own ValueError")
    d = well(k, on("gpu02", "srun sleep 35", name="kept", user="olga"))
    running(k, a, b, d)
    kernel_says(k, "gpu02", "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:1123]", 0)
    for cpu, task in ((5, "kworker/5:2:877"), (2, "migration/2:24")):
        kernel_says(k, "gpu03", f"watchdog: BUG: soft lockup - CPU#{cpu} stuck for 23s! [{task}]", 0)
    set_cgroup("freezer/gpu03/freezer.state", "FROZEN")
    k.inject("node_freezes", host="gpu03")
    ended(k, limit=120)
    time.sleep(3)
    set_cgroup("freezer/gpu03/freezer.state", "THAWED")
    k.inject("node_goes_on", host="gpu03")
    time.sleep(6)
    resume("gpu03")


# ---------------------------------------------------------------------------------------------------- neighbours and agents
def own_root(k, host):
    """In lines of HOST's kernel the group of the host itself is `/`, as one sees it from there, and not nothing."""
    whole = k.finish

    def finish():
        whole()
        for name in ("syslog", "kern.log", "dmesg.log"):
            path = f"{k.dir}/hosts/{host}/{name}"
            if os.path.exists(path):
                text = open(path).read().replace("oom_memcg=,", "oom_memcg=/,")
                c.write(path, text.replace("by pids controller in \n", "by pids controller in /\n"))

    k.finish = finish


HOLDS = """
import sys, time
kept = []
for step in range(int(sys.argv[1]) // 20):
    kept.append(bytearray(b"\\x01") * (20 << 20))
    print("cache", (step + 1) * 20, "MiB", flush=True)
    time.sleep(0.3)
for step in range(int(sys.argv[2])):
    time.sleep(1)
print("done", flush=True)
"""


@ending()
def agent_takes_the_memory(k):
    """An agent of root takes the rest of gpu03's memory: the kernel (really) kills the largest program, alice's, which has
    220 MB of the 500 that she asked for. Bob's takes more than he asked for there, half a minute before. Olga's is well."""
    own_root(k, "gpu03")
    incident(k, "infra.node", ["gpu03"], "an agent of root took the memory of gpu03")
    a = on("gpu03", f"srun python3 {program('alice', 'holds.py', HOLDS)} 220 90", "--mem=500", name="holds")
    cause = "the memory of gpu03 was used up by an agent of root; it was within what it asked for"
    blames(k, a, "FAILED", "1:0", "infra.node", "node gpu03", cause, ["unknown"])
    b = on("gpu03", "sleep 6\nsrun python3 /home/jobs/memhog.py 600", "--mem=100", name="memhog", user="bob")
    blames(k, b, "FAILED", "1:0", "app.oom", "user program", "his own memory")
    d = well(k, on("gpu03", "srun sleep 55", name="kept", user="olga"))
    running(k, a, d)
    k.wait(b, k.DONE)
    time.sleep(14)
    group = f"{CG}/memory/{CG_ROOT}/gpu03"
    usage = dict(x.split() for x in open(f"{group}/memory.stat"))
    kernel = int(open(f"{group}/memory.kmem.usage_in_bytes").read())
    most = int(usage["total_rss"]) + int(usage.get("total_shmem", 0)) + kernel + (60 << 20)
    set_cgroup("memory/gpu03/memory.limit_in_bytes", str(most))
    k.inject("memory_of_node", host="gpu03", bytes=most)
    agent = "exec -a inventory-agent python3 /home/jobs/memhog.py 160"
    p = c.inside("gpu03", ["bash", "-c", agent], popen=True, stdout=subprocess.DEVNULL)
    k.inject("agent_takes_memory", host="gpu03", user="root")
    ended(k, a, limit=60)
    p.wait(90)
    set_cgroup("memory/gpu03/memory.limit_in_bytes", "-1")
    ended(k)


TAKES = """
import subprocess, time
workers = []
try:
    while True:
        workers.append(subprocess.Popen(["sleep", "60"]))
except OSError as e:
    print(f"pool: only {len(workers)} workers: {e}", flush=True)
for worker in workers[:12]:
    worker.kill()
    worker.wait()
time.sleep(16)
for worker in workers[12:]:
    worker.kill()
    worker.wait()
print("pool: done", flush=True)
"""
FORKS = """
import subprocess, sys, time
time.sleep(float(sys.argv[1]))
loaders = []
try:
    for _ in range(30):
        loaders.append(subprocess.Popen(["sleep", "2"]))
    print("loaders", len(loaders), flush=True)
finally:
    for loader in loaders:
        loader.kill()
"""


@ending()
def neighbour_takes_all_processes(k):
    """Bob's pool on gpu03 starts as many processes as the node allows (really), stays with them and ends well. Alice's program there cannot fork meanwhile;
    olga's forks there afterwards, and so does alice's on gpu01 all the time."""
    own_root(k, "gpu03")
    incident(k, "infra.node", ["gpu03"], "a job of bob's used up the processes that gpu03 allows")
    run = f"srun python3 {program('alice', 'forks.py', FORKS)}"
    a = on("gpu03", f"{run} 16", name="loaders")
    cause = "gpu03 allowed no more processes: a job of bob's had them all"
    blames(k, a, "FAILED", "1:0", "infra.node", "node gpu03", cause, ["unknown"])
    takes = program("bob", "takes.py", TAKES)
    b = well(k, on("gpu03", f"sleep 8; srun python3 {takes}; sleep 12", name="pool", user="bob"))
    d = well(k, on("gpu03", f"{run} 34", name="loaders", user="olga"))
    e = well(k, on("gpu01", f"{run} 16", name="loaders"))
    running(k, a, b, d, e)
    most = int(open(f"{CG}/pids/{CG_ROOT}/gpu03/pids.current").read()) + 40
    set_cgroup("pids/gpu03/pids.max", str(most))
    k.inject("pid_limit", host="gpu03", limit=most)
    ended(k)
    set_cgroup("pids/gpu03/pids.max", "max")
