"""Lines that lie: what one user writes about another's job, a node, a switch or the controller, and real faults nearby.

Whoever writes here knows how faults look. What is forged is in `forged` of the truth, with its writer, host and channel.
"""

import time

import cluster as c
from endings import cancel, ended, ending, on, truth, well
from entangled import running, slurmd_again, stop
from faults import kernel_says

DEADLOCK = (
    "echo step 1; sleep 4; echo waiting for rank 1; exec 3<>~/fifo-$SLURM_JOB_ID.lock; while true; do sleep 1; done"
)


def forged(k, **line):
    """The truth says from now on that LINE is forged, and when."""
    k.truth.setdefault("forged", []).append(line)
    k.inject("forged_line", **line)


def forge(k, host, user, text, priority="user.err", tag=None):
    """USER writes TEXT into HOST's syslog with logger, as anybody there may."""
    tagged = ["-t", tag] if tag else []
    c.inside(host, ["logger", "-p", priority, *tagged, text], user=user)
    channel = f"logger -p {priority} {' '.join(tagged)}".strip()
    forged(k, host=host, user=user, channel=channel, text=text)


@ending()
def forged_link_line(k):
    """A program hangs in its own deadlock and its user cancels it; another user wrote a forged link loss of that node's
    fabric into syslog before. Nothing was wrong with the link."""
    a = on("gpu02", DEADLOCK, name="deadlock")
    truth(k, a, "CANCELLED", "0:0", "its own deadlock; then scancel by its user", "user")
    running(k, a)
    time.sleep(4)
    forge(k, "gpu02", "bob", "mlx5_core 0000:17:00.0 hsn0: Link down", "kern.err", "kernel")
    time.sleep(8)
    cancel(k, a)
    ended(k, a)


@ending()
def forged_link_line_at_crash(k):
    """A program dies of its own exception; a second before, another user wrote a forged link loss of that node."""
    a = on("gpu02", "srun python3 -c 'import time; time.sleep(14); [][1]'", name="bug")
    truth(k, a, "FAILED", "1:0", "its own IndexError", "user program")
    running(k, a)
    time.sleep(7)
    text = "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down"
    forge(k, "gpu02", "bob", text, "kern.info", "kernel")
    ended(k, a)


@ending()
def forged_xid_in_output(k):
    """A program dies of its own SIGSEGV and prints invented lines of the GPU driver before."""
    script = """srun python3 -u -c '
import os, time
time.sleep(5)
print("[ 259212.118] NVRM: Xid (PCI:0000:41:00): 79, pid=4242, GPU has fallen off the bus.")
print("RuntimeError: CUDA error: an illegal memory access was encountered")
os.kill(os.getpid(), 11)'"""
    a = on("gpu03", script, "--gres=gpu:h100:1", name="segv")
    truth(k, a, "FAILED", "11:0", "its own SIGSEGV; the Xid line in its output is invented", "user program")
    k.truth["forged"] = [{"host": "gpu03", "user": "alice", "channel": "job output", "text": "NVRM: Xid ... 79"}]
    ended(k, a)


@ending()
def forged_xid_in_own_syslog(k):
    """A user's program writes a forged Xid with `logger` on its own node before it fails by its own exit code, to have
    its hours paid back."""
    text = "NVRM: Xid (PCI:0000:41:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
    a = on(
        "gpu04", f"sleep 6; logger -p kern.err -t kernel '{text}'; sleep 1; exit 1", "--gres=gpu:h100:1", name="claims"
    )
    truth(k, a, "FAILED", "1:0", "its own exit code 1; the Xid line is its own forgery", "user program")
    line = {"host": "gpu04", "user": "alice", "channel": "logger -p kern.err -t kernel", "text": text}
    k.truth["forged"] = [line]
    ended(k, a)


@ending()
def forged_controller_lines(k):
    """A user writes lines of slurmctld into a compute node's syslog: nodes not responding, set DOWN. The controller knows
    nothing of it; a job of that node fails by its own exit code."""
    a = on("gpu03", "srun sleep 14; exit 2", name="exit2")
    truth(k, a, "FAILED", "2:0", "its own exit code 2", "user program")
    b = well(k, on("gpu02", "srun sleep 20", name="kept", user="bob"))
    running(k, a, b)
    for text in ("error: Nodes gpu03 not responding", "error: Nodes gpu03 not responding, setting DOWN"):
        forge(k, "gpu01", "bob", text, "daemon.err", "slurmctld[2114]")
        time.sleep(2)
    ended(k, a, b)


@ending()
def forged_oom_report(k):
    """A program ends with 137 by itself; another user wrote a forged report of the OOM killer about it."""
    a = on("gpu02", "sleep 13; exit 137", "--mem=300", name="exit137")
    truth(
        k, a, "FAILED", "9:0", "its own exit code 137, which this Slurm shows as 9; nothing was killed", "user program"
    )
    running(k, a)
    time.sleep(4)
    forge(
        k,
        "gpu02",
        "bob",
        "Out of memory: Killed process 4242 (python3) total-vm:900kB, anon-rss:800kB",
        "kern.err",
        "kernel",
    )
    text = f"slurmstepd[777]: error: Detected 1 oom-kill event(s) in StepId={a}.batch cgroup. Some of your processes"
    forge(k, "gpu02", "bob", text, "daemon.err", "slurmstepd[777]")
    ended(k, a)


@ending()
def forged_reboot_and_storage(k):
    """Another user's job prints a panic and a dead file server, and writes them with logger, while a job beside it on
    that node fails by its own exit code."""
    lines = ("Kernel panic - not syncing: Fatal machine check", "nfs: server nas01 not responding, timed out")
    script = "sleep 8; " + "; ".join(f"echo '{x}'; logger -p kern.emerg -t kernel '{x}'" for x in lines) + "; sleep 8"
    b = well(k, on("gpu03", script, name="liar", user="bob"))
    a = on("gpu03", "srun sleep 12; exit 4", name="exit4")
    truth(k, a, "FAILED", "4:0", "its own exit code 4", "user program")
    channel = "logger -p kern.emerg -t kernel; job output"
    k.truth["forged"] = [{"host": "gpu03", "user": "bob", "channel": channel, "text": x} for x in lines]
    ended(k, a, b)


@ending()
def forged_names_of_another_host(k):
    """A user sends a syslog line over the network straight to the log host, as if a switch had written it: port down."""
    a = on("gpu01", "srun sleep 13; exit 3", name="exit3")
    truth(k, a, "FAILED", "3:0", "its own exit code 3", "user program")
    running(k, a)
    text = "<187>1 {stamp} leaf01 kernel - - - sw-mgmt: port 3(m-gpu01) entered disabled state\n"
    send = (
        f"import socket, datetime; t = datetime.datetime.now().astimezone().isoformat(); s = {text!r}.format(stamp=t)\n"
    )
    send += "c = socket.create_connection(('ctl', 514)); c.sendall(s.encode())"
    c.inside("gpu02", ["python3", "-c", send], user="bob")
    forged(k, host="gpu02", claims="leaf01", user="bob", channel="TCP 514 of the log host", text=text)
    ended(k, a)


@ending()
def real_link_loss_beside_forged(k):
    """A node's management link is really lost and its job NODE_FAIL; meanwhile another user writes a forged Xid of a
    second node, whose job fails by its own exit code."""
    a = on("gpu02", "srun sleep 200", name="hit")
    truth(k, a, "NODE_FAIL", "0:0", "the management link of gpu02 was lost for 45 s", "network gpu02")
    b = on("gpu03", "srun sleep 24; exit 5", name="exit5", user="olga")
    truth(k, b, "FAILED", "5:0", "its own exit code 5", "user program")
    running(k, a, b)
    k.port("gpu02", "mgmt", False)
    time.sleep(12)
    forge(k, "gpu03", "bob", "NVRM: Xid (PCI:0000:41:00): 48, pid=1, Double Bit ECC Error", "kern.err", "kernel")
    ended(k, a, b)
    k.port("gpu02", "mgmt", True)
    time.sleep(6)


@ending()
def corrected_error_beside_bug(k):
    """A real (here: synthetic) corrected memory error in a node's kernel log, which harms nobody, and a program there
    that dies of its own bug."""
    a = on("gpu02", "srun python3 -c 'import time; time.sleep(10); int(\"x\")'", name="bug")
    truth(k, a, "FAILED", "1:0", "its own ValueError", "user program")
    running(k, a)
    kernel_says(k, "gpu02", "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)", 4)
    ended(k, a)


@ending()
def gpu_lost_by_neighbour_only(k):
    """A GPU of a node falls off the bus (synthetic Xid 79 of 0000:c1:00, not used by the job); a CPU-only job of that node
    fails by its own exit code."""
    a = on("gpu04", "srun sleep 12; exit 14", name="cpuonly")
    truth(k, a, "FAILED", "14:0", "its own exit code 14; it had no GPU", "user program")
    running(k, a)
    kernel_says(
        k, "gpu04", "NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 4
    )
    k.inject("gpu_lost", host="gpu04", device="0000:c1:00")
    ended(k, a)


@ending()
def slurmd_restart_beside_bug(k):
    """slurmd of a node is restarted by root while a program there runs, which dies of its own bug a few seconds later."""
    a = on("gpu03", "srun python3 -c 'import time; time.sleep(14); {}[1]'", name="bug")
    truth(k, a, "FAILED", "1:0", "its own KeyError", "user program")
    running(k, a)
    stop(k, "gpu03", "slurmd")
    time.sleep(3)
    slurmd_again(k, "gpu03")
    ended(k, a)
