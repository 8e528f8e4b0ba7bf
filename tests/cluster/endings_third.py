"""By a third party: mistakes of users that look like a fault of the cluster, the reverse, and users who lie.

It had read neither the correlator nor the parsers. Each truth also has `category`, `hosts` (to blame) and `accept` (what is
right as well, where no collected source shows the cause); `incidents` are those that should be found.
"""

import glob
import os
import signal
import time

import cluster as c
from capture import ctl
from endings import cancel, ended, ending, on, truth, well
from endings_liars import DEADLOCK, forged
from endings_second import pair, program, says
from entangled import running
from faults import kernel_says
from spaces import RT, SHARED

#: Files that a source's absence takes away, and words of its lines in other files.
SOURCES = {
    "kernel": (("hosts/*/kern.log", "hosts/*/dmesg.log"), (" kernel: ", " kern.")),
    "switch": (("hosts/leaf01/*",), (" leaf01 ",)),
    "links": (("hosts/*/ip-monitor.log",), ()),
    "slurmctld": (("hosts/ctl/slurmctld.log",), (" slurmctld[",)),
    "accounting": (("slurm/sacct.psv", "slurm/events.psv", "slurm/jobs.after.txt"), ()),
}


def blames(k, job, state, exit, category, blame, cause, accept=(), **more):
    """States the truth of JOB: also its CATEGORY, and what is right as well (ACCEPT)."""
    truth(k, job, state, exit, cause, blame, **more)
    hosts = [x for x in blame.split()[1:] if x in c.load()["nodes"]]
    k.truth["jobs"][-1].update(category=category, hosts=hosts, accept=[category, *accept])
    return job


def incident(k, category, hosts, what):
    """An incident that should be found."""
    k.truth.setdefault("incidents", []).append({"category": category, "hosts": hosts, "what": what})


def without(k, *names):
    """These SOURCES are not collected: they are taken out of the capture at its end."""
    k.truth["not_collected"] = list(names)
    whole = k.finish

    def finish():
        whole()
        for files, words in (SOURCES[x] for x in names):
            for path in (p for pattern in files for p in glob.glob(f"{k.dir}/{pattern}")):
                os.unlink(path)
            for path in (p for n in ("syslog", "central.log") for p in glob.glob(f"{k.dir}/hosts/*/{n}")):
                kept = [x for x in open(path, errors="replace") if not any(w in x for w in words)]
                c.write(path, "".join(kept))

    k.finish = finish


PUPPET = """
import os, sys, time
told = f"/home/jobs/fail.{os.environ['SLURM_JOB_ID']}"
print("pid", os.getpid(), "devices", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
for step in range(int(sys.argv[1]) * 4):
    if os.path.exists(told):
        sys.exit(open(told).read())
    if step % 8 == 0:
        print(f"epoch 0 step {step} loss {9.2 / (step + 1):.4f}", flush=True)
    time.sleep(0.25)
"""


def puppet(user):
    """A program of USER's that trains, until it is told to fail with a text (there are no real GPUs here)."""
    return f"srun python3 {program(user, 'train.py', PUPPET)}"


def tell(job, text):
    """The puppet of JOB fails with TEXT."""
    c.write(f"{SHARED}/home/jobs/fail.{job}", text)


def told_pid(user, name, job):
    """The process id and the first GPU that a puppet printed."""
    words = open(f"{SHARED}/home/{user}/{name}-{job}.out").read().split()
    return words[1], int(words[3].split(",")[0])


def traceback(line, error):
    return f'Traceback (most recent call last):\n  File "train.py", line 88, in <module>\n    {line}\n{error}'


# ------------------------------------------------------------------------------ mistakes that look like infrastructure
INTERFACE = """
import os, sys, time
time.sleep(9)
name, me = os.environ["NCCL_SOCKET_IFNAME"], f"{os.uname().nodename}:{os.getpid()}:{os.getpid()} [0]"
print(me, "NCCL INFO NCCL_SOCKET_IFNAME set by environment to", name, flush=True)
if not os.path.exists(f"/sys/class/net/{name}"):
    print(me, "bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found", flush=True)
    sys.exit("torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, "
             "internal error - please report this issue to the NCCL developers, NCCL version 2.18.6")
time.sleep(12)
"""


@ending()
def wrong_interface_named(k):
    """A user's script names a network interface that no node has (NCCL_SOCKET_IFNAME=ib7): her two ranks find no socket
    interface, some seconds after the fabric link of one of her nodes flapped 2 s. Another user's same program is well."""
    run = f"srun python3 {program('alice', 'nccl.py', INTERFACE)}"
    two = ("-N2", "--ntasks-per-node=1")
    a = on("gpu[01-02]", f"export NCCL_SOCKET_IFNAME=ib7\n{run}", *two, name="llm")
    blames(k, a, "FAILED", "1:0", "app.error", "user submission", "her script names an interface that no node has")
    b = well(k, on("gpu[02-03]", f"export NCCL_SOCKET_IFNAME=hsn0\n{run}", *two, name="llm", user="bob"))
    d = well(k, pair("gpu[02,04]", 25, name="rides", user="olga"))
    running(k, a, b, d)
    k.flap("gpu02", "hsn", down_for=2)
    ended(k)


@ending()
def own_illegal_access_on_two_nodes(k):
    """A user's CUDA kernel reads beyond its array: on both nodes where she runs it the driver logs Xid 31 for her process
    (synthetic), and her runs fail. Another user's job of another GPU of the first node is well."""
    run = puppet("alice")
    one = "--gres=gpu:h100:1"
    runs = [on(node, f"{run} 60", one, name="attn") for node in ("gpu02", "gpu04")]
    for job in runs:
        cause = "her CUDA kernel reads beyond its array (Xid 31 is of her process)"
        blames(k, job, "FAILED", "1:0", "app.error", "user program", cause)
    b = well(k, on("gpu02", f"srun python3 {program('bob', 'train.py', PUPPET)} 20", one, name="kept", user="bob"))
    running(k, *runs, b)
    time.sleep(4)
    for node, job in zip(("gpu02", "gpu04"), runs, strict=True):
        pid, number = told_pid("alice", "attn", job)
        where = f"Xid (PCI:0000:{17 + 16 * number:02x}:00): 31, pid={pid}, name=python3, Ch 0000000b"
        fault = "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f3a_c0000000."
        what = "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
        kernel_says(k, node, f"NVRM: {where}, intr 00000000. {fault} {what}")
        error = "RuntimeError: CUDA error: an illegal memory access was encountered"
        tell(job, traceback("loss.item()", error))
        time.sleep(5)
    ended(k)


@ending()
def fabric_manager_dies(k):
    """nvidia-fabricmanager of gpu03 dies (its lines are synthetic): GPU programs of two users fail at their start there
    (error 802), and are well on gpu01. A job without GPU is well on gpu03; a third user's takes all of its GPU's memory."""
    text = """
    import os, sys, time
    if os.path.exists("/run/fabricmanager.down"):
        sys.exit("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized")
    time.sleep(10)
    """.replace("\n    ", "\n")
    run, one = f"srun python3 {program('alice', 'init.py', text)}", "--gres=gpu:h100:1"
    incident(k, "infra.gpu", ["gpu03"], "nvidia-fabricmanager of gpu03 died; no GPU program can start there")
    unit = "nvidia-fabricmanager.service"
    says(k, "gpu03", "systemd[1]", f"{unit}: Main process exited, code=killed, status=11/SEGV")
    says(k, "gpu03", "systemd[1]", f"{unit}: Failed with result 'signal'.")
    c.inside("gpu03", ["touch", "/run/fabricmanager.down"])
    k.inject("fabricmanager_dies", host="gpu03")
    for user in ("alice", "bob"):
        cause = "nvidia-fabricmanager of gpu03 had died"
        a = on("gpu03", run, one, name="bert", user=user)
        blames(k, a, "FAILED", "1:0", "infra.gpu", "node gpu03", cause, ["infra.node"])
        well(k, on("gpu01", run, one, name="bert", user=user))
    well(k, on("gpu03", "srun sleep 12", name="cpu", user="olga"))
    d = on("gpu01", f"{puppet('olga')} 60", one, name="big", user="olga")
    blames(
        k, d, "FAILED", "1:0", "app.oom", "user program", "her batch does not fit into a GPU's memory", ["app.error"]
    )
    k.wait(d, ["RUNNING"])
    time.sleep(5)
    error = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB (GPU 0; 79.15 GiB total capacity; "
    error += "68.41 GiB already allocated; 9.80 GiB free; 68.60 GiB reserved in total by PyTorch)"
    tell(d, traceback("loss.backward()", error))
    ended(k)
    c.inside("gpu03", ["rm", "/run/fabricmanager.down"])


@ending()
def old_image_on_one_node(k):
    """gpu04 booted an old image, whose C library is too old for the site's solver: two users fail there, and are well
    elsewhere. A third user's own program needs a C library that no node has: she fails on two nodes."""
    lacks = "/lib64/libc.so.6: version `{}' not found (required by {})"
    solver = f'[ ! -e /run/old.image ] || {{ echo "$0: {lacks.format("GLIBC_2.34", "$0")}" >&2; exit 1; }}\nsleep 8\n'
    c.write(f"{SHARED}/home/jobs/solver", "#!/bin/sh\n" + solver.replace("`", "\\`"), 0o755)
    own = program(
        "olga", "sim", f'#!/bin/sh\necho "$0: {lacks.format("GLIBC_2.38", "$0")}" >&2\nexit 1\n'.replace("`", "\\`")
    )
    os.chmod(f"{SHARED}{own}", 0o755)
    incident(k, "infra.node", ["gpu04"], "gpu04 runs an old image, on which the site's programs do not start")
    c.inside("gpu04", ["touch", "/run/old.image"])
    k.inject("old_image", host="gpu04", user="root")
    for node, user in (("gpu04", "alice"), ("gpu02", "alice"), ("gpu04", "bob"), ("gpu01", "bob")):
        a = on(node, "srun /home/jobs/solver", name="solver", user=user)
        if node == "gpu04":
            blames(k, a, "FAILED", "1:0", "infra.node", "node gpu04", "the C library of gpu04's old image is too old")
        else:
            well(k, a)
        time.sleep(1)
    for node in ("gpu02", "gpu03"):
        d = on(node, f"sleep 4; srun {own}", name="sim", user="olga")
        blames(k, d, "FAILED", "1:0", "app.error", "user program", "she built it on a newer system than the cluster's")
    ended(k)
    c.inside("gpu04", ["rm", "/run/old.image"])
    os.unlink(f"{SHARED}/home/jobs/solver")


PORT = """
import os, socket, sys, time
try:
    s = socket.create_server(("", int(os.environ["MASTER_PORT"])), reuse_port=False)
except OSError as e:
    sys.exit(f"RuntimeError: The server socket has failed to listen on any local network address. The server socket has "
             f"failed to bind to [::]:{os.environ['MASTER_PORT']} (errno: {e.errno} - Address already in use).")
time.sleep(float(sys.argv[1]))
"""


@ending()
def own_other_job_holds_the_port(k):
    """A user's second job of gpu02 wants the port that her first job there holds (MASTER_PORT=29500 in both). A third of
    hers with that port is well on gpu03, another user's with another port on gpu02; slurmd of gpu02 is reconfigured."""
    run = f"srun python3 {program('alice', 'ddp.py', PORT)}"
    a = well(k, on("gpu02", f"export MASTER_PORT=29500\n{run} 28", name="first"))
    b = well(k, on("gpu02", f"export MASTER_PORT=29501\n{run} 25", name="others", user="bob"))
    running(k, a, b)
    ctl("scontrol", "reconfigure")
    k.inject("reconfigure", user="root")
    time.sleep(4)
    d = on("gpu02", f"export MASTER_PORT=29500\n{run} 10", name="second")
    blames(k, d, "FAILED", "1:0", "app.error", "user submission", "her own first job holds the port on gpu02")
    well(k, on("gpu03", f"export MASTER_PORT=29500\n{run} 8", name="third"))
    ended(k)


WORK = """
import os, time
for unit in range(60):
    time.sleep(2 if os.path.exists("/run/throttled") else 0.4)
    print("unit", unit, flush=True)
"""


@ending()
def throttled_node_misses_the_limit(k):
    """The fans of gpu02 fail: its processors are throttled to a fifth (the kernel's lines are synthetic), and a program that
    takes half a minute elsewhere reaches its limit of one minute. A light job on gpu02 is well."""
    run = f"srun python3 {program('bob', 'work.py', WORK)}"
    a = on("gpu02", run, "-t", "1", name="work", user="bob")
    incident(k, "infra.node", ["gpu02"], "gpu02 is too hot and throttles its processors")
    blames(k, a, "TIMEOUT", "0:0", "infra.node", "node gpu02", "gpu02 was throttled to a fifth of its speed by heat")
    b = well(k, on("gpu01", run, "-t", "1", name="work", user="bob"))
    d = well(k, on("gpu02", "srun sleep 40", name="light"))
    running(k, a, b, d)
    c.inside("gpu02", ["touch", "/run/throttled"])
    k.inject("throttled", host="gpu02")
    for events in (1, 814, 2293):
        for cpu in (0, 2, 4):
            text = "Package temperature above threshold, cpu clock throttled"
            kernel_says(k, "gpu02", f"CPU{cpu}: {text} (total events = {events})", 2)
        time.sleep(9)
    ended(k)
    c.inside("gpu02", ["rm", "/run/throttled"])


# ---------------------------------------------------------------------------------------------------------- users who lie
def refused(k, user, *opts, channel):
    """USER submits what slurmctld refuses, and logs."""
    argv = ["sbatch", "-J", "x", *opts, "--wrap", "true"]
    c.inside("ctl", argv, user=user, capture_output=True)
    forged(k, host="ctl", user=user, channel=channel, text=" ".join(opts))


def stamp():
    t = time.time()
    return time.strftime("[%Y-%m-%dT%H:%M:%S.", time.localtime(t)) + f"{int(t % 1 * 1000):03d}]"


@ending()
def lines_by_a_partitions_name(k):
    """A user submits to partitions whose names have a line's end and lines of slurmctld: its own log then says that gpu03 is
    DOWN and its job killed. That job fails by its own error seconds later; others are well."""
    bug = program("alice", "bug.py", "import time\ntime.sleep(16)\nprint({}['loss'])\n")
    a = on("gpu03", f"srun python3 {bug}", name="bug")
    blames(
        k, a, "FAILED", "1:0", "app.error", "user program", "its own KeyError; bob forged slurmctld's lines about gpu03"
    )
    b = well(k, on("gpu03", "srun sleep 25", name="kept", user="olga"))
    running(k, a, b)
    time.sleep(9)
    says = (
        "error: Nodes gpu03 not responding",
        "error: Nodes gpu03 not responding, setting DOWN",
        f"Killing JobId={a} on failed node gpu03",
    )
    for text in says:
        refused(k, "bob", "-p", f"nosuch\n{stamp()} {text}", channel="sbatch -p with a line's end, into slurmctld.log")
        time.sleep(0.5)
    ended(k)


@ending()
def row_by_a_jobs_comment(k):
    """A user's --comment has a line's end and another job's row as sacct prints it, with NODE_FAIL for its state: sacct's
    output then has that row. The other job fails by its own exit code; a third user cancels hers on that node."""
    a = on("gpu02", "srun sleep 16; exit 3", name="exit3")
    blames(
        k, a, "FAILED", "3:0", "app.error", "user program", "its own exit code; bob forged a row of accounting about it"
    )
    d = on("gpu02", "srun sleep 100", name="stopped", user="olga")
    blames(k, d, "CANCELLED", "0:0", "user.cancel", "user", "she cancelled it")
    running(k, a, d)
    time.sleep(4)
    show = ["sacct", "-P", "-X", "--format=ALL", "-j", str(a)]
    header, row = (x.split("|") for x in c.inside("ctl", show, user="bob", capture_output=True).stdout.splitlines()[:2])
    at = {name: i for i, name in enumerate(header)}
    row[at["State"]], row[at["ExitCode"]] = "NODE_FAIL", "0:0"
    row[at["End"]] = time.strftime("%Y-%m-%dT%H:%M:%S")
    row[at["Comment"]] = row[at["SubmitLine"]] = ""
    lie = "done\n" + "|".join(row) + "\n"
    b = well(k, on("gpu01", "sleep 2", "--comment", lie, name="short", user="bob"))
    forged(
        k, host="ctl", user="bob", channel="sbatch --comment with a line's end, into sacct", text="|".join(row), job=b
    )
    time.sleep(3)
    cancel(k, d, "olga")
    ended(k)


NAMED = """
import ctypes, sys, time
time.sleep(8)
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
ctypes.string_at(0)
"""


@ending()
def programs_with_names_of_others(k):
    """A user names his process `hsn0: Link down` before it dies of SIGSEGV, and another one `slurmd` before it takes too much
    memory: the kernel's own lines then say so. Another user's job on that node hangs by its own deadlock; she cancels it."""
    a = on("gpu02", DEADLOCK, name="deadlock")
    blames(k, a, "CANCELLED", "0:0", "user.cancel", "user", "its own deadlock; then scancel by its user")
    named = program("bob", "named.py", NAMED)
    b = on("gpu02", f"srun python3 {named} 'hsn0: Link down'", name="seg", user="bob")
    blames(k, b, "FAILED", "11:0", "app.error", "user program", "his own SIGSEGV under a chosen name")
    slurmd = "ln -sf /usr/bin/python3 $HOME/slurmd\nsleep 11\nsrun $HOME/slurmd /home/jobs/memhog.py 600"
    d = on("gpu02", slurmd, "--mem=100", name="hog", user="bob")
    blames(k, d, "OUT_OF_MEMORY", "0:125", "app.oom", "user program", "his own memory, under the name slurmd")
    well(k, on("gpu02", "srun sleep 30", name="kept", user="olga"))
    running(k, a, b, d)
    k.inject("named_by_its_user", host="gpu02", user="bob", name="hsn0: Link down")
    ended(k, b)
    time.sleep(1)
    lines = [x for x in open(f"{RT}/kmsg.jsonl") if "hsn0: Link down[" in x]
    text = lines[-1].split('"text": "')[1].rsplit('"', 1)[0]
    kernel_says(k, "gpu02", text, 6)  # the kernel's real line: it names no host, so it is handed to its own here
    ended(k, d)
    time.sleep(4)
    cancel(k, a)
    ended(k)


@ending()
def output_under_anothers_number(k):
    """A user's job writes its output under the number of another user's job, with a lost GPU and a node failure in it. That
    other job fails by its own exit code, and says nothing."""
    a = on("gpu03", "srun sleep 20; exit 9", "--gres=gpu:h100:1", name="fit")
    blames(k, a, "FAILED", "9:0", "app.error", "user program", "its own exit code; bob forged a second output of it")
    running(k, a)
    lies = (
        "NVRM: Xid (PCI:0000:11:00): 79, pid=4242, name=python3, GPU has fallen off the bus.",
        "RuntimeError: CUDA error: unspecified launch failure",
        f"slurmstepd: error: *** STEP {a}.0 ON gpu03 CANCELLED AT {time.strftime('%Y-%m-%dT%H:%M:%S')} DUE TO NODE FAILURE ***",
    )
    script = "sleep 8\n" + "\n".join(f"echo '{x}'" for x in lies)
    b = well(k, on("gpu02", script, "-o", f"/home/bob/train-{a}.out", name="train", user="bob"))
    for text in lies:
        forged(k, host="gpu02", user="bob", channel=f"sbatch -o train-{a}.out", text=text, job=b)
    well(k, on("gpu03", "srun sleep 25", "--gres=gpu:h100:2", name="kept", user="olga"))
    ended(k)


@ending()
def lines_by_a_health_log(k):
    """A node's old health check writes to a file that anybody may write to, and root's `logger` reads it: a user writes there
    that a GPU and the fabric are lost. Another user's program on that node dies of its own assertion."""
    pipe = "touch /tmp/health.log; chmod 666 /tmp/health.log; tail -n0 -F /tmp/health.log | logger -t nhc -p daemon.err"
    c.inside("gpu03", ["sh", "-c", pipe], popen=True, start_new_session=True)
    bug = program("alice", "check.py", "import time\ntime.sleep(17)\nassert 1 + 1 == 3, 'shape mismatch'\n")
    a = on("gpu03", f"srun python3 {bug}", "--gres=gpu:h100:1", name="check")
    blames(k, a, "FAILED", "1:0", "app.error", "user program", "its own assertion; bob forged lines of a health check")
    b = well(k, on("gpu03", "srun sleep 25", "--gres=gpu:h100:1", name="kept", user="olga"))
    running(k, a, b)
    time.sleep(8)
    for text in ("ERROR: nhc: Health check failed: check_hw_eth: hsn0 has no carrier",
                 "ERROR: nhc: Health check failed: check_nv_smi: GPU 0 has fallen off the bus (Xid 79)"):  # fmt: skip
        c.inside("gpu03", ["sh", "-c", f"echo '{text}' >> /tmp/health.log"], user="bob", check=True)
        forged(
            k, host="gpu03", user="bob", channel="a file that anybody may write to, read by root's logger", text=text
        )
    ended(k)
    for pid in c.pidof("gpu03", "tail"):
        os.kill(pid, signal.SIGTERM)
    c.inside("gpu03", ["rm", "-f", "/tmp/health.log"])
