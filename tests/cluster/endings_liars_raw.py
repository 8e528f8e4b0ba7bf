"""Lies without `logger`: straight into the syslog socket, or over the network to the log host, with any facility,
name, host and time."""

import time

import cluster as c
from endings import cancel, ended, ending, on, truth, well
from endings_liars import DEADLOCK, forged
from entangled import running

LOCAL = """
import socket, sys
priority, text = sys.argv[1:3]
up = float(open('/proc/uptime').read().split()[0])
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect('/dev/log')
s.send(f'<{priority}>kernel: [{up:12.6f}] {text}'.encode())
"""
REMOTE = """
import datetime, socket, sys
priority, text, host, name, late = sys.argv[1:6]
when = (datetime.datetime.now() - datetime.timedelta(seconds=float(late))).astimezone().isoformat()
s = socket.create_connection(('ctl', 514))
s.sendall(f'<{priority}>1 {when} {host} {name} - - - {text}\\n'.encode())
"""


def lie(k, writer, program, text, claims, name="kernel", priority=3, late=0):
    """bob, on host WRITER, forges TEXT as a line of CLAIMS."""
    words = [str(priority), text, claims, name, str(late)]
    c.inside(writer, ["python3", "-c", program, *words], user="bob", check=True)
    channel = "/dev/log" if "/dev/log" in program else "TCP 514 of the log host"
    forged(k, host=writer, claims=claims, user="bob", channel=channel, priority=priority, text=text)


@ending()
def forged_kernel_line_by_socket(k):
    """A user writes a line of the kernel into the syslog socket of a node, of the facility kern and with the right uptime:
    it is in kern.log, and not in the kernel's ring. A job of that node hangs by its own deadlock and is cancelled."""
    a = on("gpu02", DEADLOCK, name="deadlock")
    truth(k, a, "CANCELLED", "0:0", "its own deadlock; then scancel by its user", "user")
    running(k, a)
    lie(k, "gpu02", LOCAL, "mlx5_core 0000:17:00.0 hsn0: Link down", "gpu02")
    time.sleep(8)
    cancel(k, a)
    ended(k, a)


@ending()
def forged_xid_by_socket(k):
    """As forged_kernel_line_by_socket: an Xid of the GPU that a job holds, a second before its own segfault."""
    dies = "srun python3 -c 'import os, time; time.sleep(13); os.kill(os.getpid(), 11)'"
    a = on("gpu03", dies, "--gres=gpu:h100:4", name="segv")
    truth(k, a, "FAILED", "11:0", "its own SIGSEGV (139, which sacct shows as 11)", "user program")
    running(k, a)
    time.sleep(6)
    lie(
        k,
        "gpu03",
        LOCAL,
        "NVRM: Xid (PCI:0000:41:00): 79, pid=4242, name=python3, GPU has fallen off the bus.",
        "gpu03",
    )
    ended(k, a)


@ending()
def forged_kernel_line_of_another_node(k):
    """A user of gpu02 sends the log host a kernel line as if gpu03 had written it. A job of gpu03 fails by itself."""
    a = on("gpu03", "srun sleep 12; exit 3", name="exit3")
    truth(k, a, "FAILED", "3:0", "its own exit code 3", "user program")
    running(k, a)
    lie(k, "gpu02", REMOTE, "NVRM: Xid (PCI:0000:41:00): 48, pid=4242, Double Bit ECC Error", "gpu03")
    ended(k, a)


@ending()
def forged_switch_line(k):
    """A user of gpu02 sends the log host a kernel line as if the switch had written it: the port of gpu01 lost. A job of
    gpu01 dies of its own exception."""
    a = on("gpu01", "srun python3 -c 'import time; time.sleep(12); 1/0'", name="bug")
    truth(k, a, "FAILED", "1:0", "its own ZeroDivisionError", "user program")
    running(k, a)
    time.sleep(4)
    lie(k, "gpu02", REMOTE, "sw-hsn: port 3(fea-gpu01) entered disabled state", "leaf01")
    ended(k, a)


@ending()
def forged_controller_line_by_network(k):
    """A user of gpu02 sends the log host lines as if slurmctld had written them: gpu03 not responding, set DOWN."""
    a = on("gpu03", "srun sleep 14; exit 2", name="exit2")
    truth(k, a, "FAILED", "2:0", "its own exit code 2", "user program")
    b = well(k, on("gpu03", "srun sleep 25", name="kept", user="olga"))
    running(k, a, b)
    for text in ("error: Nodes gpu03 not responding", "error: Nodes gpu03 not responding, setting DOWN"):
        lie(k, "gpu02", REMOTE, text, "ctl", "slurmctld", 27)
        time.sleep(2)
    ended(k, a, b)


@ending()
def forged_afterwards(k):
    """A job has failed by its own exit code; afterwards a user sends a line with the time of 8 s ago, so that it stands
    before that end."""
    a = on("gpu04", "srun sleep 8; exit 6", name="exit6")
    truth(k, a, "FAILED", "6:0", "its own exit code 6", "user program")
    ended(k, a)
    lie(k, "gpu02", REMOTE, "mlx5_core 0000:17:00.0 hsn0: Link down", "gpu04", late=8)
    time.sleep(2)
