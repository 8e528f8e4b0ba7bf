"""Faults of one node's environment: two users fail alike there, a third run of the same program is well elsewhere."""

import time

import cluster as c
from capture import ctl
from endings import ended, ending, on, truth, well
from entangled import running
from faults import kernel_says, kill_in, serve, unserve
from further import as_before, over
from spaces import SHARED


def alike(k, script, bad, exit, cause, *opts, good="gpu01", state="FAILED"):
    """Two users run SCRIPT on node BAD, where it must fail, and one on GOOD, where it must not."""
    pair = [on(bad, script, *opts, name="train", user=u) for u in ("alice", "bob")]
    for job in pair:
        truth(k, job, state, exit, cause, f"node {bad}")
    return [*pair, well(k, on(good, script, *opts, name="train", user="alice"))]


@ending()
def home_not_mounted(k):
    """/home is not mounted on one node (an empty folder is there): Slurm cannot open the jobs' output (0:53)."""
    c.inside("gpu03", ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", "/home"], check=True)
    k.inject("home_not_mounted", host="gpu03")
    ended(k, *alike(k, "srun sleep 5", "gpu03", "0:53", "/home is not mounted on gpu03"), limit=60)
    c.inside("gpu03", ["umount", "/home"])


@ending()
def home_stale(k):
    """/home of one node is a stale file handle (ESTALE): the server's export was made anew."""
    served = serve("gpu02", "/home", "--stale")
    k.inject("home_stale", host="gpu02")
    jobs = alike(k, "srun sleep 5", "gpu02", "0:53", "/home is a stale file handle on gpu02")
    ended(k, *jobs, limit=60)
    unserve("gpu02", "/home", served)


@ending()
def home_stale_meanwhile(k):
    """/home of one node becomes stale under running programs, which then cannot write their results."""
    script = "sleep 14; srun bash -c 'echo done > $HOME/result-$SLURM_JOB_ID' || exit 1"
    jobs = alike(k, script, "gpu02", "1:0", "/home became a stale file handle on gpu02")
    running(k, *jobs)
    served = serve("gpu02", "/home", "--stale")
    k.inject("home_stale", host="gpu02")
    ended(k, *jobs, limit=90)
    unserve("gpu02", "/home", served)


@ending()
def home_read_only(k):
    """/home of one node is mounted read-only."""
    c.inside("gpu04", ["mount", "-o", "remount,bind,ro", "/home"], check=True)
    k.inject("home_read_only", host="gpu04")
    ended(k, *alike(k, "srun sleep 5", "gpu04", "0:53", "/home is read-only on gpu04"), limit=60)
    c.inside("gpu04", ["mount", "-o", "remount,bind,rw", "/home"], check=True)


@ending()
def user_database_lost(k):
    """The user database of one node has no users any more: getpwuid fails in the programs of two users."""
    jobs = "sleep 3; srun python3 -c 'import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir)'"
    lines = [x for x in open(f"{SHARED}/etc/passwd") if x.split(":")[0] not in ("alice", "bob", "olga")]
    over("gpu03", "".join(lines), "/etc/passwd")
    k.inject("users_unknown", host="gpu03")
    ended(k, *alike(k, jobs, "gpu03", "1:0", "gpu03 does not know its users (getpwuid)"), limit=60)
    as_before("gpu03", "/etc/passwd")


@ending()
def names_lost_for_two(k):
    """One node resolves no names any more: programs of two users cannot reach their data server."""
    script = "sleep 3; srun python3 -c 'import socket; print(socket.getaddrinfo(\"gpu04-hsn\", 2049))'"
    over("gpu02", "127.0.0.1 localhost\n", "/etc/hosts")
    k.inject("names_lost", host="gpu02")
    ended(k, *alike(k, script, "gpu02", "1:0", "gpu02 resolves no names"), limit=60)
    as_before("gpu02", "/etc/hosts")


@ending()
def device_missing(k):
    """The GPUs' device files of one node are gone (the driver was unloaded): programs of two users find no device."""
    script = 'sleep 3; srun python3 -c \'open("/dev/nvidia0"), open("/dev/nvidia1")\''
    c.inside("gpu04", ["sh", "-c", "rm /dev/nvidia[0-3]"])
    k.inject("devices_gone", host="gpu04")
    ended(k, *alike(k, script, "gpu04", "1:0", "gpu04 has no GPU device files", "--gres=gpu:h100:1"), limit=60)
    c.inside("gpu04", ["sh", "-c", "for i in 0 1 2 3; do mknod -m 666 /dev/nvidia$i c 1 3; done"])


@ending()
def driver_mismatch(k):
    """The GPU driver of one node was updated while loaded: each program's NVML does not fit the kernel's module. (The
    kernel's line is synthetic, the programs read the version from a file.)"""
    test = 'v = open("/sys/module/nvidia_version").read() if 0 else open("/run/nvidia_version").read()'
    script = f"""sleep 3; srun python3 -c '{test}
if v.strip() != "550.54.15": raise SystemExit("Failed to initialize NVML: Driver/library version mismatch")'"""
    for host in ("gpu01", "gpu02"):
        version = "550.54.15" if host == "gpu01" else "550.90.07"
        c.inside(host, ["sh", "-c", f"echo {version} > /run/nvidia_version; chmod 644 /run/nvidia_version"])
    k.inject("driver_mismatch", host="gpu02")
    jobs = alike(k, script, "gpu02", "1:0", "the GPU driver's library does not fit its kernel module on gpu02")
    time.sleep(6)
    text = "NVRM: API mismatch: the client has the version 550.90.07, but\nNVRM: this kernel module has the version 550.54.15."
    for line in text.split("\n"):
        kernel_says(k, "gpu02", line)
    ended(k, *jobs, limit=60)


@ending()
def tmp_full_by_agent(k):
    """An agent of root fills /tmp of one node; two users' programs find no room there."""
    c.inside("gpu03", ["sh", "-c", "dd if=/dev/zero of=/tmp/scratch.agent bs=1M 2>/dev/null"])
    k.inject("tmp_full", host="gpu03", user="root")
    script = "sleep 3; srun dd if=/dev/zero of=/tmp/scratch.$SLURM_JOB_ID bs=1M count=8"
    ended(k, *alike(k, script, "gpu03", "1:0", "/tmp of gpu03 is full, by an agent of root"), limit=60)
    c.inside("gpu03", ["sh", "-c", "rm -f /tmp/scratch.*"])


@ending()
def tmp_read_only(k):
    """/tmp of one node is read-only after an error of its disk (the kernel's lines are synthetic)."""
    c.inside("gpu04", ["mount", "-o", "remount,ro", "/tmp"], check=True)
    k.inject("tmp_read_only", host="gpu04")
    kernel_says(
        k, "gpu04", "EXT4-fs error (device nvme0n1p4): ext4_journal_check_start:83: Detected aborted journal", 2
    )
    kernel_says(k, "gpu04", "EXT4-fs (nvme0n1p4): Remounting filesystem read-only", 2)
    script = "sleep 3; srun bash -c 'echo x > /tmp/scratch.$SLURM_JOB_ID'"
    ended(k, *alike(k, script, "gpu04", "1:0", "/tmp of gpu04 is read-only after a disk error"), limit=60)
    c.inside("gpu04", ["mount", "-o", "remount,rw", "/tmp"], check=True)


@ending()
def shared_memory_full(k):
    """/dev/shm of one node is full of what an earlier job left there: data loaders of two users fail."""
    c.inside("gpu02", ["sh", "-c", "dd if=/dev/zero of=/dev/shm/left bs=1M 2>/dev/null"])
    k.inject("shm_full", host="gpu02")
    script = "sleep 3; srun dd if=/dev/zero of=/dev/shm/scratch.$SLURM_JOB_ID bs=1M count=8"
    ended(k, *alike(k, script, "gpu02", "1:0", "/dev/shm of gpu02 is full of leftovers"), limit=60)
    c.inside("gpu02", ["sh", "-c", "rm -f /dev/shm/left /dev/shm/scratch.*"])


@ending()
def software_missing(k):
    """The software tree is not mounted on one node: programs of two users are not there."""
    c.inside("gpu04", ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", "/home/jobs"], check=True)
    k.inject("software_not_mounted", host="gpu04")
    script = "sleep 3; srun python3 /home/jobs/memhog.py 20"
    ended(k, *alike(k, script, "gpu04", "2:0", "the software tree is not mounted on gpu04", "--mem=200"), limit=90)
    c.inside("gpu04", ["umount", "/home/jobs"])


@ending()
def spool_read_only(k):
    """slurmd's spool of a node is read-only: it cannot write a job's script there, and the job does not start."""
    c.inside("gpu03", ["mount", "-o", "remount,ro", "/var/spool/slurmd"], check=True)
    k.inject("spool_read_only", host="gpu03")
    a = on("gpu03", "srun hostname", name="nospool")
    truth(k, a, "CANCELLED", "0:0", "slurmd's spool is read-only on gpu03", "node gpu03")
    ended(k, a, limit=60)
    time.sleep(4)
    c.inside("gpu03", ["mount", "-o", "remount,rw", "/var/spool/slurmd"], check=True)
    ctl("scancel", str(a))
    ended(k, a, limit=30)


@ending()
def memory_guard_kills(k):
    """The memory guard of a node (as earlyoom) kills the largest program there, as an agent of root took the memory; the
    job was within what it asked for."""
    a = on("gpu02", "srun sleep 244", "--mem=500", name="largest")
    truth(
        k, a, "FAILED", "137:0", "earlyoom of gpu02 killed it, as an agent of root took the node's memory", "node gpu02"
    )
    running(k, a)
    said = "mem avail:   131 of  3950 MiB ( 3.32%), swap free:    0 of    0 MiB ( 0.00%)"
    log = ["logger", "-t", "earlyoom[812]", "-p", "daemon.warning"]
    c.inside("gpu02", [*log, said])
    c.inside("gpu02", [*log, "low memory! at or below SIGKILL limits: mem  5.00%, swap  5.00%"])
    c.inside("gpu02", [*log, 'sending SIGKILL to process 4242 uid 20001 "sleep": badness 888, VmRSS 402 MiB'])
    kill_in("gpu02", "sleep 244")
    k.inject("memory_guard_kills", host="gpu02", user="root", job=a)
    ended(k, a, limit=60)


@ending()
def own_home_mistake_beside(k):
    """On a node without fault, two users make mistakes of their own that only look alike: a wrong path each."""
    a = on("gpu03", "srun cat /home/alice/data/train.bin", name="train")
    b = on("gpu03", "srun cat /home/bob/dta/train.bin", name="train", user="bob")
    for job in (a, b):
        truth(k, job, "FAILED", "1:0", "its own wrong path", "user program")
    d = on("gpu01", "srun cat /home/alice/data/train.bin", name="train")
    truth(k, d, "FAILED", "1:0", "its own wrong path: it fails alike on another node", "user program")
    ended(k, a, b, d, limit=60)
