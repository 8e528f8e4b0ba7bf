"""Coincidences and look-alikes: whoever only counts failures on a node, or only reads the last line, is wrong here."""

import time

import cluster as c
from capture import ctl
from endings import ended, ending, on, tasks, truth, well
from entangled import running
from spaces import SHARED


@ending()
def own_bugs_by_coincidence(k):
    """Three jobs of two users fail on one node in the same half minute, each by another bug of its own."""
    bugs = {"alice": ["[][3]", 'open("/home/alice/nope")'], "bob": ["1/0"]}
    for user, found in bugs.items():
        for bug in found:
            a = on("gpu03", f"sleep {4 + len(bug) // 3}; srun python3 -c '{bug}'", name="bug", user=user)
            truth(k, a, "FAILED", "1:0", f"its own bug: {bug}", "user program")
    ended(k)


@ending()
def shared_program_on_one_node_only(k):
    """A broken program of the shared software tree was run by two users, on one node only: nothing speaks for the node."""
    c.write(
        f"{SHARED}/home/jobs/mesher.py", "raise SystemExit('mesher: bad build 7.1: symbol lookup error: mesh_init')\n"
    )
    k.inject("software_broken", user="root")
    for user in ("alice", "bob"):
        a = on("gpu02", "sleep 4; srun python3 /home/jobs/mesher.py", name="mesh", user=user)
        truth(k, a, "FAILED", "1:0", "the site's mesher.py is broken, on every node", "administrator")
    ended(k)


@ending()
def licence_server_down(k):
    """The licence server of a program does not answer: runs of two users fail on three nodes."""
    says = "raise SystemExit('License checkout failed: cannot connect to license server lic01 (-15,10:111)')"
    c.write(f"{SHARED}/home/jobs/solve.py", says + "\n")
    k.inject("licence_server_down", server="lic01")
    for node, user in (("gpu01", "alice"), ("gpu02", "bob"), ("gpu03", "alice")):
        a = on(node, "sleep 4; srun python3 /home/jobs/solve.py", name="solve", user=user)
        truth(k, a, "FAILED", "1:0", "the licence server lic01 did not answer", "administrator")
    ended(k)


@ending()
def own_ticket_expired(k):
    """A user's Kerberos ticket has expired: her runs fail on two nodes of which another user's run is well."""
    script = "sleep 4; echo '/proj/a: Key has expired' >&2; exit 1"
    for node in ("gpu01", "gpu02"):
        a = on(node, script, name="krb")
        truth(k, a, "FAILED", "1:0", "her own Kerberos ticket has expired", "user program")
    well(k, on("gpu02", "sleep 6; srun hostname", name="krb", user="bob"))
    ended(k)


@ending()
def own_process_limit(k):
    """A user's own ulimit -u stops her program's forks; another user's program forks on that node at that time."""
    fork = 'import subprocess as s; [s.Popen(["sleep", "2"]) for i in range(9)]'
    a = on("gpu03", f"sleep 5; ulimit -u 1; exec python3 -c '{fork}'", name="forks")
    truth(k, a, "FAILED", "1:0", "its own ulimit -u 1", "user program")
    b = well(k, on("gpu03", f"sleep 5; python3 -c '{fork}'", name="forks", user="bob"))
    ended(k, a, b)


@ending()
def own_folder_removed(k):
    """A user removes the folder in which her job works, on the login host: the file handle is gone on the job's node."""
    c.inside("ctl", ["mkdir", "-p", "run7"], user="alice")
    a = on(
        "gpu02", "srun sleep 10; srun bash -c 'echo x > result && cat result'", "-D", "/home/alice/run7", name="run7"
    )
    truth(k, a, "FAILED", "1:0", "its user removed the folder in which it worked", "user")
    running(k, a)
    c.inside("ctl", ["rm", "-r", "run7"], user="alice")
    k.inject("folder_removed", user="alice")
    ended(k, a)


@ending()
def array_on_bad_node(k):
    """An array of eight tasks runs on four nodes, and one node has lost its GPU device files: only the tasks there fail."""
    c.inside("gpu03", ["sh", "-c", "rm /dev/nvidia[0-3]"])
    k.inject("devices_gone", host="gpu03")
    script = "sleep 9; srun python3 -c 'import os; open(\"/dev/nvidia0\")'"
    a = c.submit(script, "-a", "0-7", "-N1", "-c", "4", "--gres=gpu:h100:2", "--no-requeue", name="array")
    time.sleep(6)
    nodes = dict(x.split() for x in ctl("squeue", "-h", "-r", "-o", "%i %N").splitlines())
    for shown, raw in tasks(a).items():
        if nodes.get(shown) == "gpu03":
            truth(k, raw, "FAILED", "1:0", "gpu03 has no GPU device files", "node gpu03", note=shown)
        else:
            well(k, raw, shown)
    ended(k)
    c.inside("gpu03", ["sh", "-c", "for i in 0 1 2 3; do mknod -m 666 /dev/nvidia$i c 1 3; done"])


@ending()
def preempted_then_time_limit(k):
    """A job is preempted and requeued, and its second run reaches its time limit of one minute."""
    a = c.submit("srun sleep 300", "-w", "gpu02", "-c", "8", "-t", "1", "--requeue", name="humble")
    truth(
        k,
        a,
        "PREEMPTED,TIMEOUT",
        "0:0,0:0",
        "preempted; its second run had a time limit that was too short",
        "user submission",
    )
    running(k, a)
    b = well(k, on("gpu02", "srun sleep 5", "-p", "urgent", "-c", "8", name="urgent", user="bob"))
    k.inject("preempting_job", job=b)
    ended(k, b)
    k.wait(a, ["RUNNING"], 200)
    ended(k, a, limit=150)


@ending()
def user_shortens_limit(k):
    """A user shortens her running job's time limit herself, below what it has used."""
    a = on("gpu01", "srun sleep 400", "-t", "10", name="shortened")
    truth(k, a, "TIMEOUT", "0:0", "its time limit, which its user shortened to one minute", "user")
    running(k, a)
    c.inside("ctl", ["scontrol", "update", f"jobid={a}", "timelimit=1"], user="alice")
    k.inject("time_limit_shortened", job=a, user="alice")
    ended(k, a, limit=150)


@ending()
def home_gone_beside_flap(k):
    """/home is not mounted on one node, and the link of its fabric flaps while two users' jobs start there: the flap is not
    the cause."""
    c.inside("gpu03", ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", "/home"], check=True)
    k.inject("home_not_mounted", host="gpu03")
    k.port("gpu03", "hsn", False)
    for user in ("alice", "bob"):
        a = on("gpu03", "srun sleep 5", name="train", user=user)
        truth(k, a, "FAILED", "0:53", "/home is not mounted on gpu03", "node gpu03")
    well(k, on("gpu01", "srun sleep 5", name="train"))
    time.sleep(4)
    k.port("gpu03", "hsn", True)
    ended(k, limit=60)
    c.inside("gpu03", ["umount", "/home"])
