#!/usr/bin/env python3
"""A real Slurm cluster of a few hosts on one machine, made of namespaces.

Each host ("ctl", "leaf01", "gpu01"...) is a set of Linux namespaces of its own:
network, mount, pid, UTS, IPC, cgroup and time.  So each has its own name, its
own uptime, its own /etc/slurm, /var/log, /var/spool, /run, /tmp and /dev, its
own process tree, and its own memory cgroup (the OOM killer is real).

    leaf01   the switch: bridges sw-mgmt and sw-hsn, one port per host on each
             (ports m-HOST and f-HOST); a fault is "port down", as a cable pull
    ctl      slurmctld, slurmdbd, mariadb, munged, rsyslogd (the log host)
    gpuNN    slurmd, munged, rsyslogd; eth0 = management, hsn0 = fabric

Everything lives in $FAULTLINE_MINI_DIR (default /tmp/faultline-mini).  `down` removes the
namespaces, cgroups and that folder; it ends only processes that `up` started
(it kills each host's init, by pid, and the kernel ends the rest of that host).

Needs root, and: slurm-wlm slurmctld slurmd slurmdbd slurm-client munge rsyslog
mariadb-server iproute2 util-linux.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RT = os.environ.get("FAULTLINE_MINI_DIR", "/tmp/faultline-mini")
STATE = os.path.join(RT, "state.json")
SHARED = os.path.join(RT, "shared")  # what all hosts see alike: /etc/slurm, /home...
PREFIX = "ms-"  # of the network namespaces' names
CG = "/sys/fs/cgroup"
CG_ROOT = "faultline-mini"
CONTROLLERS = ["memory", "freezer", "cpuacct", "cpuset", "devices", "pids", "cpu"]
MGMT, HSN = "10.77.0.", "10.78.0."
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
AS_SLURM = ["setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups"]
AS_MUNGE = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
USERS = {"alice": 20001, "bob": 20002}
START_UPTIME = 3 * 86400  # the uptime a host pretends to have at first


# ---------------------------------------------------------------- small things
def sh(cmd, check=True, **kw):
    """Run a command on the machine itself."""
    r = subprocess.run(cmd, shell=isinstance(cmd, str), text=True, capture_output=True, **kw)
    if check and r.returncode:
        raise SystemExit(f"failed ({r.returncode}): {cmd}\n{r.stdout}{r.stderr}")
    return r


def load():
    try:
        with open(STATE) as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def save(st):
    tmp = STATE + ".new"
    with open(tmp, "w") as f:
        json.dump(st, f, indent=1)
    os.replace(tmp, STATE)


def start_ticks(pid):
    """When a process began, in clock ticks: tells a reused pid from ours."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def ours(p):
    return bool(p) and start_ticks(p["pid"]) == p["start"]


def kill(p, sig=signal.SIGKILL, wait=5.0):
    """End a process that we started (recorded with its start time), by pid."""
    if not ours(p):
        return
    try:
        os.kill(p["pid"], sig)
    except ProcessLookupError:
        return
    end = time.time() + wait
    while ours(p) and time.time() < end:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(p["pid"], os.WNOHANG)
        try:
            with open(f"/proc/{p['pid']}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.05)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


def hdir(host, *more):
    return os.path.join(RT, "hosts", host, *more)


def ns(host):
    return PREFIX + host


def uptime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def uid(name):
    import pwd

    return pwd.getpwnam(name)


# ------------------------------------------------- running things inside a host
def enter_cgroup(host):
    for c in CONTROLLERS:
        d = f"{CG}/{c}/{CG_ROOT}/{host}"
        if os.path.isdir(d):
            with open(d + "/cgroup.procs", "w") as f:
                f.write(str(os.getpid()))


def inside(host, argv, user=None, **kw):
    """subprocess.run ARGV in HOST (as USER).  The process counts to the host's cgroup."""
    st = load()
    p = st["hosts"][host]["init"]
    if not ours(p):
        raise SystemExit(f"{host} is not running")
    cmd = ["nsenter", "-t", str(p["pid"]), "-a", "--"]
    if user:
        cmd += [
            "setpriv",
            f"--reuid={user}",
            f"--regid={USERS[user]}",
            "--init-groups",
            "--",
            "env",
            f"HOME=/home/{user}",
            f"USER={user}",
            f"LOGNAME={user}",
        ]
        cmd += ["sh", "-c", 'cd "$HOME" && exec "$@"', "sh"]
    kw.setdefault("text", True)
    popen = kw.pop("popen", False)
    kw["preexec_fn"] = lambda: enter_cgroup(host)
    kw["env"] = {**ENV, **kw.get("env", {})}
    return (subprocess.Popen if popen else subprocess.run)(cmd + list(argv), **kw)


def daemon(host, argv, out=None):
    """Start something in HOST that goes into the background by itself or stays (out given)."""
    if out is None:
        r = inside(host, argv, capture_output=True)
        if r.returncode:
            raise SystemExit(f"{host}: {argv} failed: {r.stdout}{r.stderr}")
        return
    f = open(out, "ab")
    inside(host, argv, popen=True, stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True)
    f.close()


def pidof(host, name):
    """The pids (as the machine sees them) of HOST's processes with that comm."""
    st = load()
    want = os.readlink(f"/proc/{st['hosts'][host]['init']['pid']}/ns/pid")
    found = []
    for d in os.listdir("/proc"):
        if d.isdigit():
            try:
                if open(f"/proc/{d}/comm").read().strip() == name and os.readlink(f"/proc/{d}/ns/pid") == want:
                    found.append(int(d))
            except OSError:
                pass
    return sorted(found)


# ------------------------------------------------------------------- a host's init
def run_init(host, role):
    """Pid 1 of a host: builds its view of the file system, then reaps children for ever."""

    def mount(*a):
        subprocess.run(["mount", *a], check=True)

    def bind(src, dst):
        mount("--bind", src, dst)

    root = hdir(host)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    socket.sethostname(host)
    for d in ("log", "spool"):
        bind(f"{root}/var/{d}", f"/var/{d}")
    for name in ("hostname", "rsyslog.conf"):
        bind(f"{root}/etc/{name}", f"/etc/{name}")
    for name in ("hosts", "passwd", "group", "resolv.conf", "slurm", "munge"):
        bind(f"{SHARED}/etc/{name}", f"/etc/{name}")
    bind(f"{SHARED}/home", "/home")
    bind(f"{root}/var/lib/munge", "/var/lib/munge")
    if role == "ctl":
        bind(f"{root}/var/lib/mysql", "/var/lib/mysql")
        bind(f"{SHARED}/etc/my.cnf", "/etc/mysql/my.cnf")
        bind(f"{SHARED}/etc/slurmdbd.conf", "/etc/slurm/slurmdbd.conf")
    else:
        mount("-t", "tmpfs", "-o", "size=24m,mode=0755", "tmpfs", "/var/spool/slurmd")  # small: it can be filled
    # a /dev of its own (so /dev/log is this host's), with stand-ins for the GPUs
    os.makedirs(f"{root}/dev", exist_ok=True)
    mount("-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs", f"{root}/dev")
    os.umask(0)
    for name, major, minor in (
        ("null", 1, 3),
        ("zero", 1, 5),
        ("full", 1, 7),
        ("random", 1, 8),
        ("urandom", 1, 9),
        ("tty", 5, 0),
    ):
        os.mknod(f"{root}/dev/{name}", 0o20666, os.makedev(major, minor))
    if role == "node":
        for i in range(4):
            os.mknod(f"{root}/dev/nvidia{i}", 0o20666, os.makedev(1, 3))
    os.makedirs(f"{root}/dev/pts")
    os.makedirs(f"{root}/dev/shm")
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620", "devpts", f"{root}/dev/pts")
    os.symlink("pts/ptmx", f"{root}/dev/ptmx")
    for i, n in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{i}", f"{root}/dev/{n}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    mount("-t", "tmpfs", "-o", "size=256m,mode=1777", "tmpfs", f"{root}/dev/shm")
    os.umask(0o022)
    mount("--rbind", f"{root}/dev", "/dev")
    # /sys shows the network devices of the namespace it was mounted in: so mount it anew
    mount("-t", "sysfs", "sysfs", "/sys")
    # its own part of the cgroup tree, as the root of what it sees
    mount("-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", CG)
    for c in CONTROLLERS:
        os.makedirs(f"{CG}/{c}")
        mount("-t", "cgroup", "-o", c, "cgroup", f"{CG}/{c}")
    bind(f"{root}/run", "/run")
    bind(
        os.path.dirname(os.path.dirname(HERE)), "/mnt"
    )  # the checkout, also where it lies below the /tmp that is hidden now
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


def start_host(st, host, boot_uptime):
    """Make the namespaces of HOST (its network namespace exists) and start its init."""
    h = st["hosts"][host]
    for d in (
        "var/log/slurm",
        "var/log/munge",
        "var/spool/slurmd",
        "var/spool/slurmctld",
        "var/spool/rsyslog",
        "var/spool/faultline-hooks",
        "var/lib/munge",
        "etc",
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
    for d in ("var/log/slurm", "var/spool/slurmctld", "run/slurm", *slurms):
        os.chown(hdir(host, d), sl.pw_uid, sl.pw_gid)
    write(hdir(host, "etc/hostname"), host + "\n")
    t = "rsyslog-loghost.conf" if h["role"] == "ctl" else "rsyslog-node.conf"
    write(hdir(host, "etc/rsyslog.conf"), render(t, st))
    if h["role"] == "ctl":
        os.makedirs(hdir(host, "var/lib/mysql"), exist_ok=True)
        os.chown(hdir(host, "var/lib/mysql"), my.pw_uid, my.pw_gid)
        os.chmod(hdir(host, "var/log"), 0o755)
    for c in CONTROLLERS:
        for d in (f"{CG}/{c}/{CG_ROOT}", f"{CG}/{c}/{CG_ROOT}/{host}"):
            if not os.path.isdir(d):
                os.mkdir(d)
                if c == "cpuset":
                    for k in ("cpuset.cpus", "cpuset.mems"):
                        open(f"{d}/{k}", "w").write(open(os.path.dirname(d) + "/" + k).read())
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
            os.path.abspath(__file__),
            "_init",
            host,
            h["role"],
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={**ENV, "FAULTLINE_MINI_DIR": RT},
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
    """What a host starts at boot, in order."""
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
    else:
        daemon(host, ["slurmd"])


def wait(cond, limit, what):
    end = time.time() + limit
    while time.time() < end:
        if cond():
            return
        time.sleep(0.3)
    raise SystemExit(f"{what} did not come up within {limit} s")


def render(name, st):
    text = open(os.path.join(HERE, "templates", name)).read()
    for k, v in st["vars"].items():
        text = text.replace(f"@{k}@", str(v))
    left = re.findall(r"@[A-Z_]+@", text)
    if left:
        raise SystemExit(f"{name}: nothing to fill in for {left}")
    return text


# ---------------------------------------------------------------- the kernel's lines
def run_kmsgd():
    """Reads /dev/kmsg and hands each line to the host it belongs to.

    The ring buffer is one for all namespaces.  A line belongs to the switch when it
    names one of its bridges, to a host when it names its cgroup, or carries the tag
    that `kmsg HOST TEXT` puts before an injected line.  An OOM report is kept together
    and goes where the cgroup in it points.  kmsg.jsonl keeps everything as it was read.
    """
    fd = os.open("/dev/kmsg", os.O_RDONLY)
    os.lseek(fd, 0, os.SEEK_END)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    raw = open(os.path.join(RT, "kmsg.jsonl"), "a", buffering=1)
    block, _mono0 = None, None

    def deliver(host, prio, mono, text):
        st = load()
        h = st["hosts"].get(host)
        if not h:
            return
        text = text.replace(f"/{CG_ROOT}/{host}", "")
        up = mono / 1e6 + h.get("boot_offset", 0)  # what this host's own dmesg would show
        with open(hdir(host, "var/log/dmesg.log"), "a") as f:
            f.write(f"[{int(up):5d}.{int(up % 1 * 1e6):06d}] {text}\n")
        with contextlib.suppress(OSError):  # the host is off
            sock.sendto(
                f"<{prio % 8}>kernel: [{int(up):5d}.{int(up % 1 * 1e6):06d}] {text}".encode(),
                hdir(host, "run/klog.sock"),
            )

    while True:
        try:
            rec = os.read(fd, 8192).decode("utf-8", "replace")
        except BrokenPipeError:
            continue  # lines were overwritten before we read them
        head, text = rec.split(";", 1)
        text = text.split("\n", 1)[0]
        prio, seq, mono = (int(x) for x in head.split(",")[:3])
        raw.write(
            json.dumps(
                {
                    "read_at": round(time.time(), 6),
                    "facility": prio >> 3,
                    "severity": prio & 7,
                    "seq": seq,
                    "kmsg_us": mono,
                    "text": text,
                }
            )
            + "\n"
        )
        m = re.match(r"\[faultline-mini:(\w+)\] (.*)", text)
        if m:
            deliver(m[1], prio, mono, m[2])
            continue
        if "invoked oom-killer" in text:
            block = []
        if block is not None:
            block.append((prio, mono, text))
            if "Killed process" in text or len(block) > 200:
                host = next((x[1] for x in (re.search(rf"/{CG_ROOT}/(\w+)/", t) for _, _, t in block) if x), None)
                for b in block if host else ():
                    deliver(host, *b)
                block = None
            continue
        m = re.match(r"(sw-mgmt|sw-hsn): ", text) or re.search(r"\b([mf]-(ctl|gpu\d+))\b: ", text)
        if m:
            deliver("leaf01", prio, mono, text)
            continue
        m = re.search(rf"/{CG_ROOT}/(\w+)", text)
        if m:
            deliver(m[1], prio, mono, text)


# ------------------------------------------------------------------------- commands
def cmd_up(a):
    if os.geteuid():
        raise SystemExit("must be root")
    missing = [
        x for x in ("slurmctld", "slurmd", "slurmdbd", "munged", "rsyslogd", "mariadbd", "ip") if not shutil.which(x)
    ]
    if missing:
        raise SystemExit(
            f"missing: {missing}; apt-get install slurm-wlm slurmdbd munge rsyslog mariadb-server iproute2"
        )
    st = load()
    if st and all(ours(h.get("init")) for h in st["hosts"].values()):
        print("already up")
        return cmd_status(a)
    cmd_down(a, quiet=True)
    t0 = time.time()
    nodes = [f"gpu{i:02d}" for i in range(1, a.nodes + 1)]
    hosts = {"leaf01": {"role": "switch", "n": 254}, "ctl": {"role": "ctl", "n": 1}}
    hosts.update({n: {"role": "node", "n": 10 + i} for i, n in enumerate(nodes, 1)})
    st = {
        "nodes": nodes,
        "hosts": hosts,
        "vars": {
            "CTL_IP": MGMT + "1",
            "NODE_LIST": f"gpu[01-{a.nodes:02d}]" if a.nodes > 1 else "gpu01",
            "SLURMD_TIMEOUT": a.slurmd_timeout,
            "DEBUG": a.debug,
            "LOG_TIME_FORMAT": a.log_time_format,
            "RETURN_TO_SERVICE": a.return_to_service,
            "TREE_WIDTH": a.tree_width,
            "PROLOG_FLAGS": a.prolog_flags,
        },
    }
    os.makedirs(RT)
    os.chmod(RT, 0o755)
    save(st)

    # what all hosts share
    etc = os.path.join(SHARED, "etc")
    os.makedirs(etc + "/munge")
    for name in ("slurm.conf", "cgroup.conf", "gres.conf", "topology.conf"):
        write(f"{etc}/slurm/{name}", render(name, st))
    write(f"{etc}/slurm/plugstack.conf", "")
    write(f"{etc}/slurm/slurmdbd.conf", "# only on ctl\n", 0o600)
    write(f"{etc}/slurmdbd.conf", render("slurmdbd.conf", st), 0o600)
    os.chown(f"{etc}/slurmdbd.conf", uid("slurm").pw_uid, uid("slurm").pw_gid)
    write(f"{etc}/my.cnf", render("my.cnf", st))
    shutil.copytree(os.path.join(HERE, "site"), f"{etc}/slurm/site")
    if a.hooks:
        shutil.copytree(a.hooks, f"{etc}/slurm/site/hooks")
    key = f"{etc}/munge/munge.key"
    with open(key, "wb") as f:
        f.write(os.urandom(128))
    mu = uid("munge")
    os.chmod(key, 0o400)
    os.chmod(etc + "/munge", 0o700)
    for p in (key, etc + "/munge"):
        os.chown(p, mu.pw_uid, mu.pw_gid)
    lines = ["127.0.0.1 localhost"]
    for h, d in hosts.items():
        lines += [f"{MGMT}{d['n']} {h}", f"{HSN}{d['n']} {h}-hsn"]
    write(f"{etc}/hosts", "\n".join(lines) + "\n")
    write(f"{etc}/resolv.conf", "")
    write(
        f"{etc}/passwd",
        open("/etc/passwd").read() + "".join(f"{u}:x:{n}:{n}::/home/{u}:/bin/bash\n" for u, n in USERS.items()),
    )
    write(f"{etc}/group", open("/etc/group").read() + "".join(f"{u}:x:{n}:\n" for u, n in USERS.items()))
    for u, n in USERS.items():
        os.makedirs(f"{SHARED}/home/{u}")
        os.chown(f"{SHARED}/home/{u}", n, n)
    shutil.copytree(os.path.join(HERE, "jobs"), f"{SHARED}/home/jobs")

    log = open(os.path.join(RT, "kmsgd.out"), "ab")
    p = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "_kmsgd"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={**ENV, "FAULTLINE_MINI_DIR": RT},
    )
    st["kmsgd"] = {"pid": p.pid, "start": start_ticks(p.pid)}
    save(st)

    # the wires: every bridge and every switch port is in leaf01's network namespace
    sw = ns("leaf01")
    for h in hosts:
        sh(["ip", "netns", "add", ns(h)])
        sh(["ip", "-n", ns(h), "link", "set", "lo", "up"])
    for br, net in (("sw-mgmt", MGMT), ("sw-hsn", HSN)):
        sh(["ip", "-n", sw, "link", "add", br, "type", "bridge", "stp_state", "0", "forward_delay", "0"])
        sh(["ip", "-n", sw, "link", "set", br, "up"])
        sh(["ip", "-n", sw, "addr", "add", f"{net}254/24", "dev", br])
    for h, d in hosts.items():
        if h == "leaf01":
            continue
        for port, dev, br, net in ((f"m-{h}", "eth0", "sw-mgmt", MGMT), (f"f-{h}", "hsn0", "sw-hsn", HSN)):
            sh(["ip", "-n", sw, "link", "add", port, "type", "veth", "peer", "name", dev, "netns", ns(h)])
            sh(["ip", "-n", ns(h), "addr", "add", f"{net}{d['n']}/24", "dev", dev])
            sh(["ip", "-n", ns(h), "link", "set", dev, "up"])
            sh(["ip", "-n", sw, "link", "set", port, "master", br, "up"])

    for h in ["ctl", "leaf01", *nodes]:
        start_host(st, h, START_UPTIME + 60 * hosts[h]["n"])
        start_daemons(st, h)
    wait(lambda: set(node_states().values()) == {"idle"}, 60, "nodes idle")
    st["up_took"] = round(time.time() - t0, 1)
    save(st)
    print(f"up after {st['up_took']} s: {node_states()}")


def node_states():
    r = inside("ctl", ["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %t"], capture_output=True)
    return dict(x.split() for x in r.stdout.splitlines())


def cmd_down(a, quiet=False):
    st = load()
    if st:
        kill(st.get("kmsgd"))
        for h in st["hosts"].values():
            kill(h.get("init"))  # the kernel ends everything else in that pid namespace
        for h in st["hosts"].values():
            kill(h.get("outer"))
    names = [x.split()[0] for x in sh(["ip", "netns", "list"]).stdout.splitlines()]
    for n in names:
        if n.startswith(PREFIX):
            sh(["ip", "netns", "del", n])
    for c in CONTROLLERS:
        top = f"{CG}/{c}/{CG_ROOT}"
        for _ in range(20):  # processes may still be leaving
            ok = True
            for d, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(d)
                except OSError:
                    ok = False
            if ok:
                break
            time.sleep(0.1)
    if os.path.isdir(RT):
        shutil.rmtree(RT)
    if not quiet:
        print("down")


def cmd_status(a):
    st = load()
    if not st:
        print("not up")
        return 1
    for h, d in st["hosts"].items():
        print(
            f"{h:8} {d['role']:7} {'running' if ours(d.get('init')) else 'OFF':8} init={d.get('init', {}).get('pid')}"
        )
    print(inside("ctl", ["sinfo", "-N", "-p", "gpu", "-o", "%N %t %E %H"], capture_output=True).stdout, end="")
    print(inside("ctl", ["squeue", "-o", "%i %T %u %N %r"], capture_output=True).stdout, end="")
    sw = sh(["ip", "-br", "-n", ns("leaf01"), "link"]).stdout
    print("".join(x + "\n" for x in sw.splitlines() if " DOWN" in x), end="")


def cmd_run(a):
    return inside(a.host, a.argv, user=a.user).returncode


def port(host, net, up):
    """Bring the switch port of HOST on NET (mgmt or hsn) up or down; returns when it was done."""
    t = time.time()
    sh(["ip", "-n", ns("leaf01"), "link", "set", ("m-" if net == "mgmt" else "f-") + host, "up" if up else "down"])
    return t


# What the NIC drivers of real nodes write on a link change; the veth driver writes nothing.
NIC_LINES = {
    "mgmt": "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is {Updown}{igb_more}",
    "hsn": "mlx5_core 0000:17:00.0 hsn0: Link {updown}",
}


def nic_line(host, net, up):
    """A driver's line for that change, into the kernel log (synthetic)."""
    text = NIC_LINES[net].format(
        updown="up" if up else "down",
        Updown="Up" if up else "Down",
        igb_more=" 1000 Mbps Full Duplex, Flow Control: RX/TX" if up else "",
    )
    return {"t": kmsg(host, text, 6), "host": host, "text": text}


def flap(host, net="mgmt", down_for=5.0, count=1, gap=3.0, nic_lines=True):
    """COUNT times: port down, DOWN_FOR seconds, port up, GAP seconds.

    Returns the times, and (with nic_lines) the synthetic driver lines written for them."""
    times = []
    for i in range(count):
        d = port(host, net, False)
        lines = [nic_line(host, net, False)] if nic_lines else []
        time.sleep(down_for)
        u = port(host, net, True)
        lines += [nic_line(host, net, True)] if nic_lines else []
        times.append({"down": d, "up": u, "lines": lines})
        if i + 1 < count:
            time.sleep(gap)
    return times


def cmd_flap(a):
    print(json.dumps(flap(a.host, a.net, a.down_for, a.count, a.gap, not a.no_nic_lines)))


def kmsg(host, text, level=4):
    """Put a line into the real kernel ring buffer, tagged as HOST's."""
    with open("/dev/kmsg", "w") as f:
        f.write(
            f"<{level}>[faultline-mini:{host}] {text}\n"
        )  # without the newline the kernel keeps the record back until the next one
    return time.time()


def cmd_kmsg(a):
    print(kmsg(a.host, a.text, a.level))


def kill_daemon(host, name="slurmd", sig=signal.SIGKILL):
    t = time.time()
    pids = pidof(host, name)
    for p in pids:
        os.kill(p, sig)
    return t, pids


def cmd_kill_slurmd(a):
    print(kill_daemon(a.host, "slurmd", signal.SIGTERM if a.term else signal.SIGKILL))


def cmd_start_slurmd(a):
    daemon(a.host, ["slurmd"])


def power_off(host):
    """As when the plug is pulled: both links lose carrier, every process is gone."""
    st = load()
    t = time.time()
    for net in ("mgmt", "hsn"):
        port(host, net, False)
    kill(st["hosts"][host]["init"])
    kill(st["hosts"][host]["outer"])
    return t


def power_on(host, uptime_at_start=2):
    st = load()
    t = time.time()
    for net in ("mgmt", "hsn"):
        port(host, net, True)
    start_host(st, host, uptime_at_start)
    start_daemons(load(), host)
    return t


def cmd_reboot(a):
    off = power_off(a.host)
    time.sleep(a.off_for)
    on = power_on(a.host)
    print(json.dumps({"off": off, "on": on}))


def submit(script, *opts, user="alice", name="job"):
    """sbatch a script's text; returns the job id."""
    r = inside(
        "ctl",
        ["sbatch", "--parsable", "-J", name, "-o", f"/home/{user}/%x-%j.out", *opts],
        user=user,
        input="#!/bin/bash\n" + script + "\n",
        capture_output=True,
    )
    if r.returncode:
        raise SystemExit("sbatch: " + r.stderr)
    return int(r.stdout.strip().split(";")[0])


def ring(nodes=4, seconds=60, limit=10, *opts, **kw):
    """A multi-node job over the fabric, one task and two GPUs a node."""
    return submit(
        f"srun python3 /home/jobs/ring.py {seconds} {limit}",
        "-N",
        str(nodes),
        "--ntasks-per-node=1",
        "--gres=gpu:h100:2",
        "-c",
        "2",
        *opts,
        name=kw.pop("name", "ring"),
        **kw,
    )


def cmd_submit(a):
    if a.script == "ring":
        print(ring(a.nodes, a.seconds))
    else:
        print(submit(a.script, "-N", str(a.nodes), *a.opt, user=a.user or "alice"))


def cmd_oom(a):
    print(submit("srun python3 /home/jobs/memhog.py 600", "-w", a.host, "--mem=100", name="memhog"))


def job_state(job):
    r = inside("ctl", ["scontrol", "show", "job", "-o", str(job)], capture_output=True)
    m = re.search(r"JobState=(\S+)", r.stdout)
    return m[1] if m else "UNKNOWN"


def main():
    p = argparse.ArgumentParser(description="a small real Slurm cluster in namespaces")
    s = p.add_subparsers(dest="cmd", required=True)
    c = s.add_parser("up")
    c.set_defaults(f=cmd_up)
    c.add_argument("--nodes", type=int, default=4)
    c.add_argument("--slurmd-timeout", type=int, default=24)
    c.add_argument("--return-to-service", type=int, default=1)
    c.add_argument("--tree-width", type=int, default=50)
    c.add_argument("--prolog-flags", default="Alloc,Contain")
    c.add_argument("--debug", default="info", help="log level of the daemons: info, verbose, debug...")
    c.add_argument("--log-time-format", default="iso8601_ms")
    c.add_argument("--hooks", help="a folder like deploy/slurm, whose scripts prolog and epilog call first")
    s.add_parser("down").set_defaults(f=cmd_down)
    s.add_parser("status").set_defaults(f=cmd_status)
    c = s.add_parser("run", help="run a command in a host")
    c.set_defaults(f=cmd_run)
    c.add_argument("--user")
    c.add_argument("host")
    c.add_argument("argv", nargs=argparse.REMAINDER)
    c = s.add_parser("flap", help="take the host's switch port down and up")
    c.set_defaults(f=cmd_flap)
    c.add_argument("host")
    c.add_argument("--net", choices=["mgmt", "hsn"], default="mgmt")
    c.add_argument("--down-for", type=float, default=5)
    c.add_argument("--count", type=int, default=1)
    c.add_argument("--gap", type=float, default=3)
    c.add_argument("--no-nic-lines", action="store_true", help="write no NIC driver lines into the kernel log")
    c = s.add_parser("kmsg", help="write a line into the kernel log for a host")
    c.set_defaults(f=cmd_kmsg)
    c.add_argument("host")
    c.add_argument("text")
    c.add_argument("--level", type=int, default=4)
    c = s.add_parser("kill-slurmd")
    c.set_defaults(f=cmd_kill_slurmd)
    c.add_argument("host")
    c.add_argument("--term", action="store_true")
    c = s.add_parser("start-slurmd")
    c.set_defaults(f=cmd_start_slurmd)
    c.add_argument("host")
    c = s.add_parser("reboot")
    c.set_defaults(f=cmd_reboot)
    c.add_argument("host")
    c.add_argument("--off-for", type=float, default=5)
    c = s.add_parser("submit", help="'ring', or a script's text")
    c.set_defaults(f=cmd_submit)
    c.add_argument("script")
    c.add_argument("--nodes", type=int, default=4)
    c.add_argument("--seconds", type=int, default=60)
    c.add_argument("--user")
    c.add_argument("opt", nargs="*")
    c = s.add_parser("oom")
    c.set_defaults(f=cmd_oom)
    c.add_argument("host")
    if sys.argv[1:2] == ["_init"]:
        return run_init(*sys.argv[2:4])
    if sys.argv[1:2] == ["_kmsgd"]:
        return run_kmsgd()
    a = p.parse_args()
    return a.f(a) or 0


if __name__ == "__main__":
    sys.exit(main())
