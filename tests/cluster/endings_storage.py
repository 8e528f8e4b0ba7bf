"""Storage that errs, hangs for a while, hangs at a launch or is full for one user; and a node that stands still."""

import time

import cluster as c
from capture import scaled
from endings import ended, ending, on, truth, well
from entangled import running
from faults import WRITES, hang, kernel_says, serve, set_cgroup, unserve
from further import resume

FEW = WRITES.replace("range(1000)", "range(25)")


@ending()
def storage_errors(k):
    """The file system of two nodes answers each write with an I/O error: programs of two users die, on both nodes."""
    hosts = ("gpu01", "gpu02")
    served = {h: serve(h, "/srv", "--error") for h in hosts}
    jobs = [on(h, f"sleep 5; {FEW}", name="writes", user=u) for h, u in zip(hosts, ("alice", "bob"), strict=True)]
    for job in jobs:
        truth(k, job, "FAILED", "1:0", "the file system nas01:/scratch answers with I/O errors (EIO)", "storage")
    k.inject("storage_errors", hosts=hosts, server="nas01")
    ended(k, *jobs, limit=60)
    for h in hosts:
        unserve(h, "/srv", served[h])


@ending()
def own_quota(k):
    """One user's quota is used up (EDQUOT); another user's program writes to the same file system of the same node."""
    served = serve("gpu03", "/srv", "--quota", "20001")
    a = on("gpu03", f"sleep 3; {FEW}", name="writes")
    truth(k, a, "FAILED", "1:0", "her own quota was used up", "user program")
    b = well(k, on("gpu03", FEW.replace("range(25)", "range(12)"), name="writes", user="bob"))
    ended(k, a, b, limit=60)
    unserve("gpu03", "/srv", served)


@ending()
def storage_hangs_for_a_while(k):
    """The file server of a node does not answer for 20 s: one job waits and ends well, another one beside it, which does
    not use it, fails meanwhile by its own exit code."""
    served = serve("gpu02", "/srv")
    a = well(k, on("gpu02", FEW, name="writes"))
    b = on("gpu02", "srun sleep 18; exit 7", name="exit7", user="bob")
    truth(k, b, "FAILED", "7:0", "its own exit code 7; it did not use the storage that hung", "user program")
    running(k, a, b)
    hang(k, "gpu02")
    kernel_says(k, "gpu02", "nfs: server nas01 not responding, still trying", 5)
    ended(k, b, limit=60)
    c.inside("gpu02", ["rm", "/run/fs.hang"])
    k.inject("storage_answers", host="gpu02", server="nas01")
    kernel_says(k, "gpu02", "nfs: server nas01 OK", 5)
    ended(k, a, limit=60)
    unserve("gpu02", "/srv", served)


@ending()
def home_hangs_at_launch(k):
    """/home of one node hangs when a job is launched there: slurmstepd waits in D state for the output file, and then
    finds no such folder."""
    served = serve("gpu03", "/home")
    hang(k, "gpu03")
    a = on("gpu03", "srun hostname", name="waits")
    truth(k, a, "FAILED", "0:53", "/home of gpu03 hung at its launch and then could not be used", "node gpu03")
    time.sleep(35)
    unserve("gpu03", "/home", served)
    k.inject("storage_answers", host="gpu03", server="nas01")
    ended(k, a, limit=60)


@ending()
def node_freezes(k):
    """Everything on a node stands still at once (its kernel hangs): no answer, no line; DOWN after SlurmdTimeout. It goes
    on later as if nothing had been."""
    a = on("gpu[02-03]", "srun sleep 200", "-N2", name="hit")
    truth(k, a, "NODE_FAIL", "0:0", "gpu03 stood still", "node gpu03")
    b = well(k, on("gpu01", "srun sleep 30", name="kept", user="bob"))
    running(k, a, b)
    set_cgroup("freezer/gpu03/freezer.state", "FROZEN")
    k.inject("node_freezes", host="gpu03")
    ended(k, a, b, limit=120)
    time.sleep(3)
    set_cgroup("freezer/gpu03/freezer.state", "THAWED")
    k.inject("node_goes_on", host="gpu03")
    time.sleep(6)


@ending()
def panic_and_reboot(k):
    """A machine check makes a node's kernel panic (its last lines are synthetic), and the node boots again after 6 s."""
    a = on("gpu[03-04]", "srun sleep 200", "-N2", name="hit")
    truth(k, a, "NODE_FAIL", "0:0", "gpu04 panicked at a machine check and booted again", "node gpu04")
    b = well(k, on("gpu02", "srun sleep 20", name="kept", user="bob"))
    running(k, a, b)
    kernel_says(k, "gpu04", "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400", 0)
    kernel_says(k, "gpu04", "Kernel panic - not syncing: Fatal machine check", 0)
    time.sleep(1)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    ended(k, a, b, limit=90)
    time.sleep(scaled(6))
    resume("gpu04")


@ending()
def port_taken_by_leftover(k):
    """A process of an earlier, dead job still holds the port on one node that two users' programs listen on."""
    hold = "import socket, time; s = socket.create_server(('', 29500)); time.sleep(40)"
    p = c.inside("gpu02", ["python3", "-c", hold], popen=True)
    k.inject("leftover_process", host="gpu02", port=29500)
    script = "sleep 5; srun python3 -c 'import socket; socket.create_server((\"\", 29500)).close()'"
    jobs = [on("gpu02", script, name="train"), on("gpu02", script, "--begin=now+3", name="train", user="bob")]
    for job in jobs:
        truth(k, job, "FAILED", "1:0", "a left-over process holds port 29500 on gpu02", "node gpu02")
    well(k, on("gpu03", script, name="train"))
    ended(k, limit=60)
    p.kill()
    p.wait(5)
