"""Faults that scenarios of several endings_*.py inject: what root of a node kills, what hangs, what the kernel says."""

import contextlib
import os

import cluster as c
from spaces import CG, CG_ROOT, hdir

FS = "/mnt/tests/cluster/hanging_fs.py"
WRITES = """srun python3 -u -c '
import os, time
f = os.open("/srv/data.bin", os.O_RDWR)
for step in range(1000):
    os.write(f, bytes(4096)); print("step", step, flush=True); time.sleep(1)
'"""


def kill_in(host, user_word, sig="KILL"):
    """Root of HOST kills the processes whose command line has USER_WORD; returns what kill said."""
    find = f"ps -eo pid,args | awk '/{user_word}/ && !/awk/ && !/srun/ && !/slurmstepd/ {{print $1}}'"
    return c.inside(host, ["sh", "-c", f"kill -{sig} $({find})"], capture_output=True).stderr


def kernel_says(k, host, text, level=3):
    """A line that the kernel of a real node would write (synthetic)."""
    k.truth["synthetic_lines"].append({"t": c.kmsg(host, text, level), "host": host, "text": text})


def set_cgroup(path, value):
    """Writes VALUE to a file of the hosts' cgroups: PATH is "CONTROLLER/HOST/.../FILE"."""
    controller, rest = path.split("/", 1)
    with open(f"{CG}/{controller}/{CG_ROOT}/{rest}", "w") as f:
        f.write(value)


def serve(host, folder, *options):
    """Mounts a hanging file system on FOLDER of HOST; returns its process."""
    out = open(hdir(host, "fs.out"), "ab")
    p = c.inside(host, ["python3", FS, folder, *options], popen=True, stdout=out, stderr=out)
    c.wait(lambda: folder in c.inside(host, ["cat", "/proc/mounts"], capture_output=True).stdout, 10, "file system")
    return p


def hang(k, host):
    """The file server of HOST's mount stops answering."""
    c.inside(host, ["touch", "/run/fs.hang"])
    k.inject("storage_hangs", host=host, server="nas01")


def unserve(host, folder, p):
    c.inside(host, ["rm", "-f", "/run/fs.hang"])
    for pid in c.pidof(host, "python3"):
        with contextlib.suppress(OSError):  # one that has just ended
            if FS in open(f"/proc/{pid}/cmdline").read():
                os.kill(pid, 9)
    p.wait(10)
    c.inside(host, ["umount", "-l", folder], capture_output=True)
