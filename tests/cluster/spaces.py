"""Where the mini cluster keeps its files, and how anything is run in one of its hosts."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
#: Distinguishes clusters that are up at the same time; at most two letters (it is part of the switch ports' names).
NAME = os.environ.get("FAULTLINE_MINI_NAME", "")
RT = os.environ.get("FAULTLINE_MINI_DIR", f"/tmp/faultline-mini{NAME}")
STATE = os.path.join(RT, "state.json")
SHARED = os.path.join(RT, "shared")  # what all hosts share: /etc/slurm, /home...
PREFIX = f"ms{NAME}-"  # of the network namespaces' names
CG = "/sys/fs/cgroup"
CG_ROOT = f"faultline-mini{NAME}"
CONTROLLERS = ["memory", "freezer", "cpuacct", "cpuset", "devices", "pids", "cpu"]
MGMT, HSN = "10.77.0.", "10.78.0."
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root"}
AS_SLURM = ["setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups"]
AS_MUNGE = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
USERS = {"alice": 20001, "bob": 20002, "olga": 20003}
START_UPTIME = 3 * 86400  # the uptime that a host reports at first


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
    """When a process began, in clock ticks: distinguishes a reused pid from ours."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def ours(p):
    return bool(p) and start_ticks(p["pid"]) == p["start"]


def kill(p, sig=signal.SIGKILL, wait=5.0):
    """Ends a process that we started (recorded with its start time), by pid."""
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
        except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or before it was read
            return
        time.sleep(0.05)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


def hdir(host, *more):
    return os.path.join(RT, "hosts", host, *more)


def hostname(st, host):
    """What HOST calls itself: as Slurm does, or with a domain, or (nodes only) in upper case."""
    if st.get("hostnames") == "fqdn":
        return f"{host}.mini.example"
    return host.upper() if st.get("hostnames") == "upper" and st["hosts"][host]["role"] == "node" else host


def ns(host):
    return PREFIX + host


def switch_port(host, net):
    """The switch's port to HOST on NET (mgmt or hsn)."""
    return f"{'m' if net == 'mgmt' else 'f'}{NAME}-{host}"


def uptime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def uid(name):
    import pwd

    return pwd.getpwnam(name)


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


def enter_cgroup(host):
    for c in CONTROLLERS:
        d = f"{CG}/{c}/{CG_ROOT}/{host}"
        if os.path.isdir(d):
            with open(d + "/cgroup.procs", "w") as f:
                f.write(str(os.getpid()))


def inside(host, argv, user=None, **kw):
    """Runs ARGV in HOST (as USER) by subprocess.run. The process counts towards the host's cgroup."""
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
    """Starts something in HOST that goes into the background by itself or stays (out given)."""
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
