"""A host's life: its init and what it starts at boot."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from spaces import (
    AS_MUNGE,
    AS_SLURM,
    CG,
    CG_ROOT,
    CONTROLLERS,
    ENV,
    HERE,
    NAME,
    RT,
    SHARED,
    USERS,
    daemon,
    enter_cgroup,
    hdir,
    hostname,
    inside,
    load,
    ns,
    render,
    save,
    start_ticks,
    uid,
    uptime,
    wait,
    write,
)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def bind(source, place):
    mount("--bind", source, place)


def mount_files(root, role):
    """Mounts the parts of the machine's file system that belong to this host or its cluster."""
    for d in ("log", "spool"):
        bind(f"{root}/var/{d}", f"/var/{d}")
    for name in ("hostname", "rsyslog.conf"):
        bind(f"{root}/etc/{name}", f"/etc/{name}")
    for name in ("hosts", "passwd", "group", "resolv.conf", "slurm", "munge"):
        bind(f"{SHARED}/etc/{name}", f"/etc/{name}")
    os.makedirs("/etc/faultline", exist_ok=True)  # a place to mount on; `down` removes it where it is empty
    bind(f"{root}/etc/faultline", "/etc/faultline")
    bind(f"{SHARED}/home", "/home")
    bind(f"{root}/var/lib/munge", "/var/lib/munge")
    if role in ("ctl", "backup"):
        bind(f"{SHARED}/slurmctld", "/var/spool/slurmctld")  # a backup controller continues with the same state
    if role == "ctl":
        bind(f"{root}/var/lib/mysql", "/var/lib/mysql")
        bind(f"{SHARED}/etc/my.cnf", "/etc/mysql/my.cnf")
        bind(f"{SHARED}/etc/slurmdbd.conf", "/etc/slurm/slurmdbd.conf")
    elif role != "backup":
        mount("-t", "tmpfs", "-o", "size=24m,mode=0755", "tmpfs", "/var/spool/slurmd")  # small: it can be filled


def mount_devices(root, role):
    """Mounts its own /dev, so /dev/log is this host's, with stubs for the GPUs."""
    dev = f"{root}/dev"
    os.makedirs(dev, exist_ok=True)
    mount("-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs", dev)
    os.umask(0)
    memory = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
    for name, minor in memory.items():
        os.mknod(f"{dev}/{name}", 0o20666, os.makedev(1, minor))
    os.mknod(f"{dev}/tty", 0o20666, os.makedev(5, 0))
    for i in range(4 if role == "node" else 0):
        os.mknod(f"{dev}/nvidia{i}", 0o20666, os.makedev(1, memory["null"]))
    os.makedirs(f"{dev}/pts")
    os.makedirs(f"{dev}/shm")
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620", "devpts", f"{dev}/pts")
    os.symlink("pts/ptmx", f"{dev}/ptmx")
    for i, n in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{i}", f"{dev}/{n}")
    os.symlink("/proc/self/fd", f"{dev}/fd")
    mount("-t", "tmpfs", "-o", "size=256m,mode=1777", "tmpfs", f"{dev}/shm")
    os.umask(0o022)
    mount("--rbind", dev, "/dev")


def mount_kernel():
    """Mounts the kernel's own trees as this host sees them."""
    # /sys shows the network devices of the namespace it was mounted in, so it is mounted again.
    mount("-t", "sysfs", "sysfs", "/sys")
    # its own part of the cgroup tree, as the root of what it sees
    mount("-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", CG)
    for c in CONTROLLERS:
        os.makedirs(f"{CG}/{c}")
        mount("-t", "cgroup", "-o", c, "cgroup", f"{CG}/{c}")


def run_init(host, role):
    """Pid 1 of a host: builds its view of the file system, then reaps children for ever."""
    root = hdir(host)
    mount("--make-rprivate", "/")
    socket.sethostname(hostname(load(), host))
    mount_files(root, role)
    mount_devices(root, role)
    mount_kernel()
    bind(f"{root}/run", "/run")
    # the checkout, also if it is below the /tmp that is about to be hidden
    bind(os.path.dirname(os.path.dirname(HERE)), "/mnt")
    write(f"{root}/ready", str(time.time()))
    mount("-t", "tmpfs", "-o", "size=64m,mode=1777", "tmpfs", "/tmp")  # small too; hides RT from here on
    os.chdir("/")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:  # reap
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.1)
        except InterruptedError:
            pass


def make_folders(st, host):
    """Creates HOST's own directories and files, with their owners."""
    h = st["hosts"][host]
    for d in (
        "var/log/slurm",
        "var/log/munge",
        "var/spool/slurmd",
        "var/spool/slurmctld",
        "var/spool/rsyslog",
        "var/spool/faultline-hooks",
        "var/spool/faultline-task-hooks",
        "var/lib/munge",
        "etc/faultline",
    ):
        os.makedirs(hdir(host, d), exist_ok=True)
    shutil.rmtree(hdir(host, "run"), ignore_errors=True)
    for d in ("munge", "mysqld", "slurm"):
        os.makedirs(hdir(host, "run", d))
    mu, sl, my = uid("munge"), uid("slurm"), uid("mysql")
    for d in ("var/log/munge", "var/lib/munge", "run/munge"):
        os.chown(hdir(host, d), mu.pw_uid, mu.pw_gid)
    os.chmod(hdir(host, "var/lib/munge"), 0o711)
    os.chown(hdir(host, "run/mysqld"), my.pw_uid, my.pw_gid)
    # slurmctld's hooks run as its own user, slurmd's as root
    slurms = ("var/spool/faultline-hooks",) if h["role"] == "ctl" else ()
    os.chmod(hdir(host, "var/spool/faultline-task-hooks"), 0o1733)  # task prolog hooks run as the job's user
    os.makedirs(f"{SHARED}/slurmctld", exist_ok=True)
    for d in (*(hdir(host, d) for d in ("var/log/slurm", "run/slurm", *slurms)), f"{SHARED}/slurmctld"):
        os.chown(d, sl.pw_uid, sl.pw_gid)
    write(hdir(host, "etc/hostname"), hostname(st, host) + "\n")
    t = "rsyslog-loghost.conf" if h["role"] == "ctl" else "rsyslog-node.conf"
    write(hdir(host, "etc/rsyslog.conf"), render(t, st))
    if h["role"] == "ctl":
        os.makedirs(hdir(host, "var/lib/mysql"), exist_ok=True)
        os.chown(hdir(host, "var/lib/mysql"), my.pw_uid, my.pw_gid)
        os.chmod(hdir(host, "var/log"), 0o755)


def make_cgroups(host):
    """HOST's own group below each controller."""
    for c in CONTROLLERS:
        for d in (f"{CG}/{c}/{CG_ROOT}", f"{CG}/{c}/{CG_ROOT}/{host}"):
            if not os.path.isdir(d):
                os.mkdir(d)
                if c == "cpuset":
                    for k in ("cpuset.cpus", "cpuset.mems"):
                        open(f"{d}/{k}", "w").write(open(os.path.dirname(d) + "/" + k).read())


def start_host(st, host, boot_uptime):
    """Creates the namespaces of HOST (its network namespace exists) and starts its init."""
    h = st["hosts"][host]
    make_folders(st, host)
    make_cgroups(host)
    if os.path.exists(hdir(host, "ready")):
        os.unlink(hdir(host, "ready"))
    off = int(boot_uptime - uptime())  # of the host's boot clock against the machine's
    log = open(hdir(host, "init.out"), "ab")
    p = subprocess.Popen(
        [
            "nsenter",
            f"--net=/run/netns/{ns(host)}",
            "--",
            "unshare",
            "--fork",
            "--kill-child",
            "--pid",
            "--mount",
            "--uts",
            "--ipc",
            "--cgroup",
            "--time",
            f"--boottime={off}",
            "--mount-proc",
            sys.executable,
            os.path.join(HERE, "cluster.py"),
            "_init",
            host,
            h["role"],
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={**ENV, "FAULTLINE_MINI_DIR": RT, "FAULTLINE_MINI_NAME": NAME},
        preexec_fn=lambda: enter_cgroup(host),
    )
    for _ in range(100):
        if os.path.exists(hdir(host, "ready")):
            break
        if p.poll() is not None:
            raise SystemExit(f"{host}: init died: {open(hdir(host, 'init.out')).read()}")
        time.sleep(0.05)
    time.sleep(0.1)
    kid = int(open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()[0])
    h["outer"] = {"pid": p.pid, "start": start_ticks(p.pid)}
    h["init"] = {"pid": kid, "start": start_ticks(kid)}
    h["boot_offset"] = off
    h["booted"] = time.time()
    save(st)


def start_daemons(st, host):
    """Starts what a host starts at boot, in order."""
    role = st["hosts"][host]["role"]
    daemon(host, ["rsyslogd", "-f", "/etc/rsyslog.conf", "-i", "/run/rsyslogd.pid"])
    # link changes as the host itself sees them, with its own clock
    daemon(host, ["ip", "-ts", "monitor", "link"], out=hdir(host, "var/log/ip-monitor.log"))
    if role == "switch":
        return
    daemon(host, [*AS_MUNGE, "munged"])
    if role == "ctl":
        first = not os.path.isdir(hdir(host, "var/lib/mysql/mysql"))
        if first:
            daemon(
                host,
                ["mariadb-install-db", "--user=mysql", "--skip-test-db", "--auth-root-authentication-method=normal"],
            )
        daemon(host, ["mariadbd"], out=hdir(host, "mariadb.out"))
        sql = ["mariadb", "-u", "root", "-e"]
        wait(lambda: inside(host, [*sql, "select 1"], capture_output=True).returncode == 0, 40, "mariadb")
        if first:
            inside(
                host,
                [
                    *sql,
                    "create database slurm_acct_db; create user slurm@localhost identified by 'mini';"
                    "grant all on slurm_acct_db.* to slurm@localhost;",
                ],
                check=True,
            )
        daemon(host, [*AS_SLURM, "slurmdbd"])
        wait(
            lambda: inside(host, ["sacctmgr", "-n", "show", "cluster"], capture_output=True).returncode == 0,
            40,
            "slurmdbd",
        )
        if first:
            acct = [["add", "cluster", "mini"], ["add", "account", "ml", "Cluster=mini"]]
            acct += [["add", "user", u, "Account=ml"] for u in USERS]
            for a in acct:
                inside(host, ["sacctmgr", "-i", *a], check=True, capture_output=True)
        daemon(host, [*AS_SLURM, "slurmctld"])
        wait(lambda: inside(host, ["scontrol", "ping"], capture_output=True).returncode == 0, 30, "slurmctld")
    elif role == "backup":
        daemon(host, [*AS_SLURM, "slurmctld"])
    else:
        daemon(host, ["slurmd"])
