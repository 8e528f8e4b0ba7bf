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
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from hosts import (
    run_init,
    start_daemons,
    start_host,
)
from kernel_lines import run_kmsgd
from spaces import (
    CG,
    CG_ROOT,
    CONTROLLERS,
    ENV,
    HERE,
    HSN,
    MGMT,
    NAME,
    PREFIX,
    RT,
    SHARED,
    START_UPTIME,
    USERS,
    daemon,
    hostname,
    inside,
    kill,
    load,
    ns,
    ours,
    pidof,
    render,
    save,
    sh,
    start_ticks,
    switch_port,
    uid,
    wait,
    write,
)


def with_settings(text, settings):
    """slurm.conf's text with SETTINGS (name: value) replaced, or appended at its end."""
    for name, value in settings.items():
        line = f"{name}={value}"
        text, changed = re.subn(rf"(?m)^{re.escape(name)}=.*$", lambda _, new=line: new, text)
        text += "" if changed else line + "\n"
    return text


def lay_out(st, hooks):
    """The files that all hosts share."""
    etc = os.path.join(SHARED, "etc")
    os.makedirs(etc + "/munge")
    for name in ("slurm.conf", "cgroup.conf", "gres.conf", "topology.conf"):
        write(f"{etc}/slurm/{name}", with_settings(render(name, st), st["settings"] if name == "slurm.conf" else {}))
    write(f"{etc}/slurm/plugstack.conf", "")
    write(f"{etc}/slurm/slurmdbd.conf", "# only on ctl\n", 0o600)
    write(f"{etc}/slurmdbd.conf", render("slurmdbd.conf", st), 0o600)
    os.chown(f"{etc}/slurmdbd.conf", uid("slurm").pw_uid, uid("slurm").pw_gid)
    write(f"{etc}/my.cnf", render("my.cnf", st))
    shutil.copytree(os.path.join(HERE, "site"), f"{etc}/slurm/site")
    if hooks:
        shutil.copytree(hooks, f"{etc}/slurm/site/hooks")
    key = f"{etc}/munge/munge.key"
    with open(key, "wb") as f:
        f.write(os.urandom(128))
    mu = uid("munge")
    os.chmod(key, 0o400)
    os.chmod(etc + "/munge", 0o700)
    for p in (key, etc + "/munge"):
        os.chown(p, mu.pw_uid, mu.pw_gid)
    lines = ["127.0.0.1 localhost"]
    for h, d in st["hosts"].items():
        lines += [f"{MGMT}{d['n']} {h} {hostname(st, h)}", f"{HSN}{d['n']} {h}-hsn"]
    write(f"{etc}/hosts", "\n".join(lines) + "\n")
    write(f"{etc}/resolv.conf", "")
    for name, form in (("passwd", "{u}:x:{n}:{n}::/home/{u}:/bin/bash\n"), ("group", "{u}:x:{n}:\n")):
        own = [x for x in open(f"/etc/{name}") if x.split(":")[0] not in USERS]  # the machine may have an alice too
        write(f"{etc}/{name}", "".join([*own, *(form.format(u=u, n=n) for u, n in USERS.items())]))
    for u, n in USERS.items():
        os.makedirs(f"{SHARED}/home/{u}")
        os.chown(f"{SHARED}/home/{u}", n, n)
    shutil.copytree(os.path.join(HERE, "jobs"), f"{SHARED}/home/jobs")


def start_kmsgd(st):
    """Starts the reader that gives each host its own share of the kernel's lines."""
    log = open(os.path.join(RT, "kmsgd.out"), "ab")
    p = subprocess.Popen(
        [sys.executable, os.path.join(HERE, "cluster.py"), "_kmsgd"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={**ENV, "FAULTLINE_MINI_DIR": RT, "FAULTLINE_MINI_NAME": NAME},
    )
    st["kmsgd"] = {"pid": p.pid, "start": start_ticks(p.pid)}
    save(st)


def wire(hosts):
    """Every bridge and every switch port is in leaf01's network namespace."""
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
        for kind, dev, br, net in (("mgmt", "eth0", "sw-mgmt", MGMT), ("hsn", "hsn0", "sw-hsn", HSN)):
            port = switch_port(h, kind)
            sh(["ip", "-n", sw, "link", "add", port, "type", "veth", "peer", "name", dev, "netns", ns(h)])
            sh(["ip", "-n", ns(h), "addr", "add", f"{net}{d['n']}/24", "dev", dev])
            sh(["ip", "-n", ns(h), "link", "set", dev, "up"])
            sh(["ip", "-n", sw, "link", "set", port, "master", br, "up"])


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
    if a.backup:
        hosts["ctl2"] = {"role": "backup", "n": 2}
    hosts.update({n: {"role": "node", "n": 10 + i} for i, n in enumerate(nodes, 1)})
    st = {
        "nodes": nodes,
        "hosts": hosts,
        "hostnames": a.hostnames,
        "settings": dict(x.split("=", 1) for x in a.set),
        "vars": {
            "CTL_IP": MGMT + "1",
            "NODE_LIST": f"gpu[01-{a.nodes:02d}]" if a.nodes > 1 else "gpu01",
            "SLURMD_TIMEOUT": a.slurmd_timeout,
            "DEBUG": a.debug,
            "LOG_TIME_FORMAT": a.log_time_format,
            "RETURN_TO_SERVICE": a.return_to_service,
            "TREE_WIDTH": a.tree_width,
            "PROLOG_FLAGS": a.prolog_flags,
            "BACKUP_HOST": f"SlurmctldHost=ctl2({MGMT}2)" if a.backup else "# no backup controller",
            "PRESERVE_FQDN": "on" if a.hostnames == "fqdn" else "off",
            "NODE_HOSTNAME": f"NodeHostname=GPU[01-{a.nodes:02d}]" if a.hostnames == "upper" else "",
        },
    }
    os.makedirs(RT)
    os.chmod(RT, 0o755)
    save(st)

    lay_out(st, a.hooks)
    start_kmsgd(st)
    wire(hosts)
    for h in ["ctl", "leaf01", *(["ctl2"] if a.backup else []), *nodes]:
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
    # What the hosts mounted their own on. Its removal would take the mounts of another cluster's hosts away.
    if not glob.glob("/tmp/faultline-mini*/state.json"):
        with contextlib.suppress(OSError):
            os.rmdir("/etc/faultline")
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
    sh(["ip", "-n", ns("leaf01"), "link", "set", switch_port(host, net), "up" if up else "down"])
    return t


# What the NIC drivers of real nodes log on a link change; the veth driver logs nothing.
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

    Returns the times, and (with nic_lines) the synthetic driver lines written for them.
    """
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
            f"<{level}>[{CG_ROOT}:{host}] {text}\n"
        )  # without the newline the kernel holds the record back until the next one
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
    c.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a line of slurm.conf")
    c.add_argument(
        "--hostnames", choices=["short", "fqdn", "upper"], default="short", help="what the machines call themselves"
    )
    c.add_argument("--backup", action="store_true", help="a second controller, ctl2, which takes over")
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
