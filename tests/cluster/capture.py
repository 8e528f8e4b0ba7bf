"""One scenario's capture: the state before, what is polled meanwhile, the new lines of every log, and the truth."""

import argparse
import datetime
import glob
import json
import os
import shutil
import threading
import time

import cluster as c
from spaces import AS_MUNGE, hdir, switch_port

SCENARIOS = {}


def scenario(f):
    """A fault that `scenarios.py run NAME` can inject, under its function's name."""
    SCENARIOS[f.__name__] = f
    return f


def command_line(scenarios):
    """The names of the SCENARIOS to run, and the folder of their captures; "list" prints all and ends."""
    p = argparse.ArgumentParser()
    s = p.add_subparsers(dest="cmd", required=True)
    s.add_parser("list")
    r = s.add_parser("run")
    r.add_argument("names", nargs="+")
    r.add_argument("--out", default="captures")
    a = p.parse_args()
    if a.cmd == "list":
        width = max(map(len, scenarios))
        for n, f in scenarios.items():
            print(f"{n:{width}} {' '.join(f.__doc__.split())}")
        raise SystemExit
    return list(scenarios) if a.names == ["all"] else a.names, a.out


def iso(t):
    return datetime.datetime.fromtimestamp(t).isoformat(timespec="milliseconds")


def ctl(*argv, **kw):
    return c.inside("ctl", list(argv), capture_output=True, **kw).stdout


def scaled(seconds):
    """SECONDS were chosen for SlurmdTimeout=24: the same share of this cluster's SlurmdTimeout."""
    return seconds * int(c.load()["vars"]["SLURMD_TIMEOUT"]) / 24


class Capture:
    def __init__(self, name, doc, out):
        self.dir = os.path.join(out, name)
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir + "/slurm")
        os.makedirs(self.dir + "/jobs")
        self.t0 = time.time()
        conf = ctl("scontrol", "show", "config")
        c.write(self.dir + "/slurm/config.txt", conf)
        for file in ("slurm.conf", "topology.conf"):
            shutil.copy(f"{c.SHARED}/etc/slurm/{file}", self.dir + "/slurm/")
        keys = (
            "SlurmdTimeout",
            "MessageTimeout",
            "TCPTimeout",
            "KillWait",
            "ReturnToService",
            "JobRequeue",
            "BatchStartTimeout",
            "PrologFlags",
            "PrologEpilogTimeout",
            "UnkillableStepTimeout",
            "LogTimeFormat",
            "HealthCheckInterval",
            "TreeWidth",
            "SlurmctldDebug",
        )
        cfg = {
            k: v
            for k, v in (
                (x.split("=", 1)[0].strip(), x.split("=", 1)[1].strip()) for x in conf.splitlines() if "=" in x
            )
            if k in keys
        }
        self.truth = {
            "scenario": name,
            "what": " ".join(doc.split()),
            "slurm": "22.05.8",
            "config": cfg,
            "begin": iso(self.t0),
            "injections": [],
            "synthetic_lines": [],
            "jobs": [],
            "nodes": {},
        }
        self.marks = {f: os.path.getsize(f) for f in self.logs()}
        self.snap("before")
        self.stop = threading.Event()
        self.poller = threading.Thread(target=self.poll, daemon=True)
        self.poller.start()

    def logs(self):
        fs = glob.glob(c.RT + "/hosts/*/var/log/**/*", recursive=True)
        return [
            f
            for f in fs
            if os.path.isfile(f)
            and "site-env" not in f
            and "/remote/" not in f
            and "/munge/" not in f
            and os.path.basename(f) != "core"
        ] + [c.RT + "/kmsg.jsonl"]

    def snap(self, when):
        d = self.dir + "/slurm/"
        for name, argv in (
            ("nodes", ["scontrol", "show", "node", "-o"]),
            ("jobs", ["scontrol", "show", "job", "-o"]),
            ("sinfo", ["sinfo", "-N", "-l"]),
            ("squeue", ["squeue", "-l", "-t", "all"]),
            ("sdiag", ["sdiag"]),
        ):
            c.write(f"{d}{name}.{when}.txt", ctl(*argv))
        for h in c.load()["hosts"]:
            r = c.sh(["ip", "-n", c.ns(h), "-s", "-d", "-j", "link"], check=False).stdout
            c.write(f"{self.dir}/hosts/{h}/links.{when}.json", r)

    def poll(self):
        seen, old = (
            {},
            {
                x.split()[0]
                for x in open(self.dir + "/slurm/squeue.before.txt")
                if x.split()[:1] and x.split()[0].isdigit()
            },
        )
        with open(self.dir + "/observed.jsonl", "w") as f:
            while not self.stop.wait(0.4):
                now = {}
                for x in ctl("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %T %E").splitlines():
                    n, s, r = x.split(" ", 2)
                    now["node", n] = {"state": s, "reason": r}
                for x in ctl("squeue", "-h", "-t", "all", "-o", "%i %T %N %r").splitlines():
                    v = x.split(" ")
                    if v[0] in old:  # of an earlier scenario
                        continue
                    now["job", v[0]] = {"state": v[1], "nodes": v[2], "reason": " ".join(v[3:])}
                t = time.time()
                for k, v in now.items():
                    if seen.get(k) != v:
                        f.write(json.dumps({"t": iso(t), k[0]: k[1], **v}) + "\n")
                        f.flush()
                seen.update(now)

    # -- what the scenarios call
    def inject(self, what, t=None, **more):
        t = t or time.time()
        self.truth["injections"].append({"t": iso(t), "epoch": round(t, 6), "what": what, **more})
        print(f"   {iso(t)} {what} {more}", flush=True)

    def flap(self, host, net="mgmt", **kw):
        for f in c.flap(host, net, **kw):
            self.inject("link_down", f["down"], host=host, net=net, port=switch_port(host, net))
            self.inject("link_up", f["up"], host=host, net=net, port=switch_port(host, net))
            self.truth["synthetic_lines"] += [{**x, "t": iso(x["t"])} for x in f["lines"]]

    def port(self, host, net, up):
        t = c.port(host, net, up)
        self.inject("link_up" if up else "link_down", t, host=host, net=net, port=switch_port(host, net))
        x = c.nic_line(host, net, up)
        self.truth["synthetic_lines"].append({**x, "t": iso(x["t"])})

    def job(self, job, expect, affected, cause=None, note=None):
        """States what must become of a job: the end state, and whether the fault caused it."""
        self.truth["jobs"].append({"id": job, "expected": expect, "affected": affected, "cause": cause, "note": note})
        return job

    def node(self, host, expect):
        self.truth["nodes"][host] = expect

    def wait(self, job, states, limit=120):
        end = time.time() + max(limit, scaled(limit))
        while time.time() < end:
            s = c.job_state(job)
            if s in states:
                return s
            time.sleep(0.5)
        print(f"   job {job} is {c.job_state(job)}, wanted {states}", flush=True)

    def wait_node(self, host, want, limit=200):
        if want == "idle" and str(c.load()["vars"]["RETURN_TO_SERVICE"]) == "0":
            return "down"  # until it is resumed
        end = time.time() + max(limit, scaled(limit))
        while time.time() < end:
            s = ctl("sinfo", "-h", "-N", "-p", "gpu", "-n", host, "-o", "%T").strip()
            if s.startswith(want):
                return s
            time.sleep(0.5)
        print(f"   node {host} is {s}, wanted {want}", flush=True)

    DONE = ("COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")

    def finish(self):
        time.sleep(3)
        self.stop.set()
        self.poller.join()
        self.snap("after")
        self.save_accounting()
        self.save_logs()
        self.compare()
        self.truth["end"] = iso(time.time())
        c.write(self.dir + "/truth.json", json.dumps(self.truth, indent=1) + "\n")
        bad = [
            (j["id"], j["expected"], [a["state"] for a in j["accounting"]])
            for j in self.truth["jobs"]
            if not j["as_expected"]
        ]
        print(f"   done in {time.time() - self.t0:.0f} s; not as expected: {bad}", flush=True)

    def save_accounting(self):
        """Saves what sacct and sacctmgr report about this capture's jobs and nodes."""
        d = self.dir
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self.t0))
        mine = [str(j["id"]) for j in self.truth["jobs"]]
        sel = ["-j", ",".join(mine)] if mine else ["-a", "-S", since]
        c.write(d + "/slurm/sacct.psv", ctl("sacct", "-D", "-P", "--format=ALL", *sel))
        c.write(
            d + "/slurm/sacct.short.psv",
            ctl(
                "sacct",
                "-D",
                "-P",
                "-o",
                "JobID,JobName,User,State,ExitCode,DerivedExitCode,"
                "Submit,Eligible,Start,End,ElapsedRaw,NodeList,Reason,Flags,DBIndex,AllocTRES",
                *sel,
            ),
        )
        c.write(d + "/slurm/sacct.json", ctl("sacct", "-D", "--json", *sel))
        c.write(
            d + "/slurm/events.psv",
            ctl(
                "sacctmgr",
                "-P",
                "show",
                "event",
                "start=" + since,
                "format=Cluster,NodeName,Start,End,State,Reason,User,Event,TRES",
            ),
        )

    def save_logs(self):
        """Saves the new lines of every log since the start, and the jobs' output."""
        d = self.dir
        for f in self.logs():
            at = self.marks.get(f, 0)
            with open(f, "rb") as src:
                src.seek(at)
                data = src.read()
            if not data:
                continue
            parts = os.path.relpath(f, c.RT).split("/")
            if parts[0] == "hosts":
                to = f"{d}/hosts/{parts[1]}/{parts[-1]}" if parts[-1] != "jobcomp.log" else f"{d}/slurm/jobcomp.log"
            else:
                to = f"{d}/{parts[-1]}"
            os.makedirs(os.path.dirname(to), exist_ok=True)
            open(to, "wb").write(data)
        for f in glob.glob(c.RT + "/hosts/*/var/log/slurm/site-env/*"):
            if os.path.getmtime(f) >= self.t0:
                h = os.path.relpath(f, c.RT).split("/")[1]
                os.makedirs(f"{d}/hosts/{h}/site-env", exist_ok=True)
                shutil.copy(f, f"{d}/hosts/{h}/site-env/")
        for f in glob.glob(c.SHARED + "/home/*/*.out"):
            if os.path.getmtime(f) >= self.t0:
                shutil.copy(f, d + "/jobs/")

    def compare(self):
        """Writes accounting's final states next to what was expected."""
        for j in self.truth["jobs"]:
            compare_job(j, str(j["id"]))
        for n, e in list(self.truth["nodes"].items()):
            now = ctl("sinfo", "-h", "-N", "-p", "gpu", "-n", n, "-o", "%T|%E").strip()
            self.truth["nodes"][n] = {"expected": e, "state_at_end": now}


def compare_job(j, shown):
    """Writes accounting's end states of the job that Slurm shows as SHOWN next to what the truth J expected."""
    keys = ("state", "exit", "derived_exit", "start", "end", "nodes", "name", "user")
    fields = "State,ExitCode,DerivedExitCode,Start,End,NodeList,JobName,User"
    text = ctl("sacct", "-D", "-n", "-X", "-P", "-j", shown, "-o", fields)
    j["accounting"] = [dict(zip(keys, x.split("|"), strict=False)) for x in text.splitlines()]
    j["as_expected"] = [a["state"].split()[0] for a in j["accounting"]] == j["expected"].split(",")


def clean():
    """Back to an idle cluster (after the capture)."""
    st = c.load()
    for h in st["nodes"]:
        for f in glob.glob(hdir(h, "run/fault.*")) + glob.glob(hdir(h, "run/nhc.on")):
            os.unlink(f)
        for net in ("mgmt", "hsn"):
            c.port(h, net, True)
        if not c.pidof(h, "munged"):
            c.daemon(h, [*AS_MUNGE, "munged"])
        if not c.pidof(h, "slurmd"):
            c.daemon(h, ["slurmd"])
        c.inside(h, ["sh", "-c", "rm -f /tmp/scratch.* /var/spool/slurmd/fill"])
    ctl("scancel", "--state=PENDING,RUNNING,SUSPENDED", "-u", "alice")
    ctl("scancel", "-u", "bob")
    end = time.time() + 60
    while time.time() < end:
        s = c.node_states()
        if set(s.values()) == {"idle"}:
            return
        for n, x in s.items():
            if x.strip("*") in ("down", "drain", "drng", "fail"):
                ctl("scontrol", "update", f"nodename={n}", "state=resume")
        time.sleep(1)
    print("   not clean:", c.node_states(), flush=True)
