"""By a third party: faults of which a source was not collected, faults that nothing logs, and two at once."""

import os
import time

import cluster as c
from endings import cancel, ended, ending, on, well
from endings_second import DEVICES, pair, program
from endings_third import PUPPET, blames, incident, puppet, tell, told_pid, traceback, without
from entangled import running, stop
from faults import WRITES, kernel_says, serve, unserve
from further import resume
from spaces import HSN, SHARED


def lines_of(job, user, name):
    """How many lines a job has printed."""
    path = f"{SHARED}/home/{user}/{name}-{job}.out"
    return len(open(path).readlines()) if os.path.exists(path) else 0


def back(k, host):
    """HOST, which lost power, boots, and is taken into service again."""
    k.inject("power_on", c.power_on(host), host=host)
    time.sleep(8)
    resume(host)


# ------------------------------------------------------------------------------------------------- a source is missing
@ending()
def fabric_lost_and_nobody_logged(k):
    """The fabric link of gpu04 is lost for 25 s, and neither the switch's log nor any kernel log is collected: only the
    watchdog of the job tells. Another user's job on the fabric rides; a third one's fails by her own assertion on gpu03."""
    without(k, "kernel", "switch", "links")
    a = pair("gpu[03-04]", 90, name="train")
    cause = "the fabric link of gpu04 was lost for 25 s"
    blames(k, a, "FAILED", "1:0", "infra.network", "network gpu04", cause, ["unknown"])
    b = well(k, pair("gpu[01-02]", 40, name="rides", user="bob"))
    bug = program("olga", "mesh.py", "import time\ntime.sleep(20)\nassert len([]) > 0, 'mesh has no cells'\n")
    d = on("gpu03", f"srun python3 {bug}", name="mesh", user="olga")
    blames(k, d, "FAILED", "1:0", "app.error", "user program", "her own assertion")
    running(k, a, b, d)
    k.flap("gpu04", "hsn", down_for=25)
    ended(k)


@ending()
def power_lost_and_controller_log_gone(k):
    """gpu04 loses power under a job of two nodes, and slurmctld's log of that time was rotated away. Another user's job fails
    by its own exit code on gpu02 in that time, a third one's goes on on the other node of the lost job."""
    without(k, "slurmctld")
    a = on("gpu[03-04]", "srun sleep 200", "-N2", name="train")
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power for 8 s")
    blames(k, a, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "gpu04 lost power for 8 s")
    b = on("gpu02", "srun sleep 18; exit 4", name="exit4", user="bob")
    blames(k, b, "FAILED", "4:0", "app.error", "user program", "its own exit code")
    d = well(k, on("gpu03", "srun sleep 45", name="kept", user="olga"))
    running(k, a, b, d)
    time.sleep(4)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(8)
    back(k, "gpu04")
    ended(k)


@ending()
def gpu_lost_and_no_kernel_log(k):
    """A GPU of gpu03 is lost (its device file is removed) under one user's job and takes the next user's job on it as well; no
    kernel log is collected. Another user's job of two other GPUs there goes on; the same program is well on gpu01."""
    without(k, "kernel")
    run = f"srun python3 {program('alice', 'devices.py', DEVICES)}"
    one = "--gres=gpu:h100:1"
    incident(k, "infra.gpu", ["gpu03"], "GPU 0 of gpu03 was lost")
    a = on("gpu03", f"{run} 100", one, name="train")
    blames(k, a, "FAILED", "1:0", "infra.gpu", "node gpu03", "its GPU of gpu03 was lost", ["infra.node", "unknown"])
    k.wait(a, ["RUNNING"])
    b = well(k, on("gpu03", f"{run} 30", "--gres=gpu:h100:2", name="train", user="bob"))
    well(k, on("gpu01", f"{run} 15", one, name="train", user="olga"))
    running(k, a, b)
    time.sleep(2)
    number = open(f"{SHARED}/home/alice/train-{a}.out").read().split(" on ")[1].split()[0]
    c.inside("gpu03", ["rm", f"/dev/nvidia{number}"], check=True)
    k.inject("gpu_lost", host="gpu03", gpu=int(number), job=a)
    ended(k, a)
    d = on("gpu03", f"{run} 20", one, name="next", user="olga")
    blames(
        k, d, "FAILED", "1:0", "infra.gpu", "node gpu03", "a GPU of gpu03 was lost before", ["infra.node", "unknown"]
    )
    ended(k)
    c.inside("gpu03", ["mknod", "-m", "666", f"/dev/nvidia{number}", "c", "1", "3"], check=True)


@ending()
def no_accounting_and_no_kernel_log(k):
    """Neither accounting nor any kernel log is collected: a job takes too much memory, one is cancelled by its user, one fails
    by its own exit code, and slurmd of gpu03 is killed for good under a fourth."""
    without(k, "accounting", "kernel")
    incident(k, "infra.node", ["gpu03"], "slurmd of gpu03 was killed and stayed away")
    a = on("gpu01", "sleep 8\nsrun python3 /home/jobs/memhog.py 600", "--mem=100", name="memhog")
    blames(k, a, "OUT_OF_MEMORY", "0:125", "app.oom", "user program", "its own memory")
    b = on("gpu02", "srun sleep 200", name="stopped", user="bob")
    blames(k, b, "CANCELLED", "0:0", "user.cancel", "user", "he cancelled it")
    d = on("gpu02", "srun sleep 25; exit 7", name="exit7", user="olga")
    blames(k, d, "FAILED", "7:0", "app.error", "user program", "its own exit code")
    e = on("gpu03", "srun sleep 200", name="hit")
    cause = "slurmd of gpu03 was killed and stayed away"
    blames(k, e, "NODE_FAIL", "0:0", "infra.node", "node gpu03", cause, ["infra.scheduler"])
    running(k, a, b, d, e)
    stop(k, "gpu03", "slurmd")
    time.sleep(12)
    cancel(k, b, "bob")
    ended(k)


# ---------------------------------------------------------------------------------------------------- nothing tells of it
@ending()
def duplicate_address_on_the_fabric(k):
    """A machine that was put into the rack answers for the fabric address of gpu02: gpu01 sends what is meant for gpu02 to
    nobody. The job's watchdog ends it. No log tells; gpu02 reaches gpu03 all the time, where another user's job is well."""
    a = pair("gpu[01-02]", 120, name="train")
    cause = "another machine answered for the fabric address of gpu02"
    blames(k, a, "FAILED", "1:0", "infra.network", "network gpu02", cause, ["unknown"])
    b = well(k, pair("gpu[02-03]", 35, name="kept", user="bob"))
    bug = program("olga", "fit.py", "import time\ntime.sleep(14)\nprint([1, 2][5])\n")
    d = on("gpu01", f"srun python3 {bug}", name="fit", user="olga")
    blames(k, d, "FAILED", "1:0", "app.error", "user program", "her own IndexError")
    running(k, a, b, d)
    time.sleep(3)
    address = f"{HSN}12"
    wrong = ["lladdr", "02:00:5e:00:53:99", "dev", "hsn0", "nud", "permanent"]
    c.sh(["ip", "-n", c.ns("gpu01"), "neigh", "replace", address, *wrong])
    k.inject("address_taken", host="gpu02", net="hsn", seen_by="gpu01")
    ended(k, a)
    c.sh(["ip", "-n", c.ns("gpu01"), "neigh", "del", address, "dev", "hsn0"])
    k.inject("address_free", host="gpu02", net="hsn")
    ended(k)


MAPPED = """
import mmap, time
f = open("/home/jobs/train.idx", "rb")
data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
for step in range(200):
    for at in range(0, len(data), 4096):
        data[at]
    print("step", step, flush=True)
    time.sleep(0.5)
"""


@ending()
def shared_file_is_truncated(k):
    """An administrator's script truncates a shared data file while programs of two users have it mapped, on two nodes: both die
    of SIGBUS in one second, and nothing logs why. A third user's program, which does not use it, goes on."""
    c.write(f"{SHARED}/home/jobs/train.idx", "x" * (1 << 20))
    run = f"srun python3 {program('alice', 'mapped.py', MAPPED)}"
    runs = []
    for node, user in (("gpu02", "alice"), ("gpu04", "bob")):
        a = on(node, run, name="loader", user=user)
        cause = "an administrator's script truncated the data file that it had mapped"
        blames(k, a, "FAILED", "7:0", "infra.storage", "administrator", cause, ["unknown"])
        runs.append(a)
    d = well(k, on("gpu02", "srun sleep 25", name="kept", user="olga"))
    running(k, *runs, d)
    time.sleep(4)
    os.truncate(f"{SHARED}/home/jobs/train.idx", 0)
    k.inject("file_truncated", host="nas01", user="root", path="/home/jobs/train.idx")
    ended(k)
    os.unlink(f"{SHARED}/home/jobs/train.idx")


# --------------------------------------------------------------------------------------------------------- two at once
@ending()
def memory_of_a_gpu_beside_lost_power(k):
    """In the same seconds a GPU of gpu01 has an uncorrectable memory error (its lines are synthetic) under one user's job, and
    gpu04 loses power under another one's. A job of another GPU of gpu01 is well, a third user's dies of her own bug."""
    one = "--gres=gpu:h100:1"
    incident(k, "infra.gpu", ["gpu01"], "an uncorrectable memory error of a GPU of gpu01")
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power for 6 s")
    a = on("gpu01", f"{puppet('alice')} 90", one, name="train")
    blames(k, a, "FAILED", "1:0", "infra.gpu", "node gpu01", "an uncorrectable memory error of its GPU")
    k.wait(a, ["RUNNING"])
    b = on("gpu[03-04]", "srun sleep 200", "-N2", name="hit", user="bob")
    blames(k, b, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "gpu04 lost power for 6 s")
    other = f"srun python3 {program('bob', 'train.py', PUPPET)} 30"
    d = well(k, on("gpu01", other, one, name="kept", user="bob"))
    bug = program("olga", "norm.py", "import time\ntime.sleep(15)\nprint(1 / 0)\n")
    e = on("gpu03", f"srun python3 {bug}", name="norm", user="olga")
    blames(k, e, "FAILED", "1:0", "app.error", "user program", "her own ZeroDivisionError")
    running(k, a, b, d, e)
    c.wait(lambda: lines_of(a, "alice", "train"), 20, "output")
    time.sleep(4)
    pid, number = told_pid("alice", "train", a)
    bus = f"PCI:0000:{17 + 16 * number:02x}:00"
    k.inject("gpu_memory_error", host="gpu01", gpu=number, job=a)
    kernel_says(k, "gpu01", f"NVRM: Xid ({bus}): 63, pid={pid}, name=python3, Row Remapper: New row marked for remapping, "
                            "reset gpu to activate.")  # fmt: skip
    kernel_says(k, "gpu01", f"NVRM: Xid ({bus}): 94, pid={pid}, name=python3, Contained: SM (0x1). RST: No, D-RST: No")
    tell(a, traceback("loss.item()", "RuntimeError: CUDA error: uncorrectable ECC error encountered"))
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    back(k, "gpu04")
    ended(k)


@ending()
def storage_errors_beside_dead_munge(k):
    """In the same seconds the file system of two nodes answers with I/O errors under jobs of two users, and munged of gpu04 dies
    under a third one's. A job of gpu01 that does not use that storage fails by its own bug, one on gpu03 is well."""
    incident(k, "infra.storage", ["gpu01", "gpu02"], "the file system /srv of gpu01 and gpu02 answers with I/O errors")
    incident(k, "infra.node", ["gpu04"], "munged of gpu04 died")
    e = on("gpu04", "srun sleep 200", name="hit", user="olga")
    blames(k, e, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "munged of gpu04 died", ["infra.scheduler"])
    bug = program("olga", "tree.py", "import time\ntime.sleep(14)\nprint(None.left)\n")
    d = on("gpu01", f"srun python3 {bug}", name="tree", user="olga")
    blames(k, d, "FAILED", "1:0", "app.error", "user program", "her own AttributeError")
    f = well(k, on("gpu03", "srun sleep 40", name="kept"))
    running(k, d, e, f)
    time.sleep(5)
    stop(k, "gpu04", "munged")
    served = {node: serve(node, "/srv", "--error") for node in ("gpu01", "gpu02")}
    k.inject("storage_errors", host="gpu01,gpu02", server="nas01")
    for node, user in (("gpu01", "alice"), ("gpu02", "bob")):
        a = on(node, WRITES, name="writes", user=user)
        blames(k, a, "FAILED", "1:0", "infra.storage", "storage", "the file system /srv answered with I/O errors")
    ended(k)
    for node, process in served.items():
        unserve(node, "/srv", process)


@ending()
def preempted_beside_lost_power(k):
    """In the second in which gpu04 loses power under one user's job, another user's job is preempted on gpu02 for an urgent one
    and put back into the queue. The urgent one is well, the preempted one is cancelled by its user in the queue."""
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power for 8 s")
    a = on("gpu04", "srun sleep 200", name="hit")
    blames(k, a, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "gpu04 lost power for 8 s")
    b = c.submit("srun sleep 100", "-w", "gpu02", "--requeue", "--exclusive", name="patient", user="bob")
    note = "its first run was preempted, its second never ran"
    blames(k, b, "PREEMPTED,CANCELLED", "0:0,0:0", "sched.preempt", "nobody", "preempted for an urgent job", ["user.cancel"],
           note=note)  # fmt: skip
    f = well(k, on("gpu03", "srun sleep 40", name="kept"))
    running(k, a, b, f)
    time.sleep(4)
    d = well(k, on("gpu02", "srun sleep 30", "-p", "urgent", "--exclusive", name="urgent", user="olga"))
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    k.wait(d, ["RUNNING"], 60)
    time.sleep(4)
    cancel(k, b, "bob")
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(8)
    resume("gpu04")
    ended(k)
