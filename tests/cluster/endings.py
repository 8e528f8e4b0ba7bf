#!/usr/bin/env python3
"""Every way in which Slurm ends a job, and the faults of one node's environment, each captured with its truth.

    endings.py list
    endings.py run NAME... [--out FOLDER]

The scenarios are in endings_*.py. Each states, before anything happens: the end state and exit code that accounting will
show, the cause in words, who is to blame and which nodes are not. `run` goes on after a failed scenario, and leaves only
what a site's collector has: the daemons' logs, syslog, kernel log, accounting and the jobs' output.
"""

import glob
import importlib
import json
import os
import re
import signal
import subprocess
import traceback

import cluster as c
from capture import Capture, clean, command_line, compare_job, ctl
from entangled import start
from spaces import AS_SLURM, HERE, SHARED

#: Scenarios of endings_*.py, by name.
ENDINGS = {}
#: What a capture keeps: the rest repeats it.
KEPT = (
    "hosts/*/slurmctld.log",
    "hosts/*/slurmdbd.log",
    "hosts/*/slurmd.log",
    "hosts/*/syslog",
    "hosts/*/kern.log",
    "hosts/*/dmesg.log",
    "hosts/*/ip-monitor.log",
    "jobs/*",
    "slurm/sacct.psv",
    "slurm/events.psv",
    "slurm/config.txt",
    "slurm/slurm.conf",
    "slurm/topology.conf",
    "slurm/jobs.after.txt",
    "observed.jsonl",
    "truth.json",
)
#: Whoever is blamed with one of these words did not write the job's program.
NOT_THE_USER = ("node", "network", "storage", "slurm", "administrator")
CONF = f"{SHARED}/etc/slurm/slurm.conf"


def ending(**settings):
    """A scenario under its function's name, with these lines of slurm.conf while it runs."""

    def known(f):
        f.settings = settings
        ENDINGS[f.__name__] = f
        return f

    return known


def truth(k, job, state, exit, cause, blame, affected=None, note=None):
    """States the end of JOB before it comes.

    STATE and EXIT: what accounting will show, one for each run, with commas. CAUSE: in words. BLAME: "user program",
    "user submission", "user" (she asked for it), "administrator", "node NAME", "network", "storage", "slurm" or
    "nobody". AFFECTED: whether something that the user does not answer for ended it.
    """
    if affected is None:
        affected = blame.split()[0] in NOT_THE_USER
    k.job(job, state, affected, cause, note)
    innocent = [n for n in c.load()["nodes"] if n not in blame.split()]
    k.truth["jobs"][-1].update(expected_exit=exit, blame=blame, not_to_blame=innocent)
    return job


def well(k, job, note=None):
    """JOB must end well."""
    return truth(k, job, "COMPLETED", "0:0", None, "nobody", False, note)


def on(node, script, *opts, **kw):
    """Submits SCRIPT to NODE, not to be requeued."""
    return c.submit(script, "-w", node, "--no-requeue", *opts, **kw)


def sbatch(text, *opts, user="alice"):
    """Submits TEXT as it is, with its own first line."""
    r = c.inside("ctl", ["sbatch", "--parsable", *opts], user=user, input=text, capture_output=True)
    if r.returncode:
        raise SystemExit("sbatch: " + r.stderr)
    return int(r.stdout)


def cancel(k, job, user="alice"):
    """USER (root if None) cancels JOB, and the truth says so."""
    c.inside("ctl", ["scancel", str(job)], user=user)
    k.inject("scancel", job=job, user=user or "root")


def ended(k, *jobs, limit=120):
    """Waits for the end of JOBS: without any, of all whose truth was stated."""
    for job in jobs or [j["id"] for j in k.truth["jobs"]]:
        k.wait(job, (*k.DONE, "PREEMPTED", "REVOKED", "SPECIAL_EXIT"), limit)


def tasks(job):
    """The raw id of each task of an array, or part of a heterogeneous job, by the id that Slurm shows."""
    rows = [x.split("|") for x in ctl("squeue", "-h", "-r", "-o", "%A|%i").splitlines()]
    return {shown: int(raw) for raw, shown in rows if re.match(rf"{job}[_+]", shown)}


def reread():
    """The controller is stopped and started, the nodes read their configuration again."""
    c.kill_daemon("ctl", "slurmctld", signal.SIGTERM)
    c.wait(lambda: not c.pidof("ctl", "slurmctld"), 30, "end of slurmctld")
    start("ctl", *AS_SLURM, "slurmctld")
    c.wait(lambda: c.inside("ctl", ["scontrol", "ping"], capture_output=True).returncode == 0, 30, "slurmctld")
    ctl("scontrol", "reconfigure")


def configure(text):
    """Replaces slurm.conf; returns what it was."""
    old = open(CONF).read()
    with open(CONF, "w") as f:  # in place: the hosts see this file by a bind mount of its folder
        f.write(text)
    return old


def own_rows(j):
    """Compares a part of a heterogeneous job or a task of an array alone: its raw id may be that of the whole too."""
    if re.fullmatch(r"\d+[_+]\d+", j.get("note") or ""):
        compare_job(j, j["note"])


def check_exits(truth_file):
    """Writes next to each job whether its exit codes are the expected ones."""
    with open(truth_file) as f:
        found = json.load(f)
    for j in found["jobs"]:
        own_rows(j)
        j["exit_as_expected"] = [a["exit"] for a in j.get("accounting", [])] == (j.get("expected_exit") or "").split(
            ","
        )
    found["as_expected"] = all(j.get("as_expected") and j["exit_as_expected"] for j in found["jobs"])
    c.write(truth_file, json.dumps(found, indent=1) + "\n")
    return found


def prune(folder):
    """Leaves out of a capture what repeats the rest, and other scenarios' jobs.

    The log host's own file, which alone has each line's facility, stays where lines were forged or made.
    """
    with open(f"{folder}/truth.json") as f:
        found = json.load(f)
    facility = ("hosts/ctl/central.log",) if found["synthetic_lines"] or found.get("forged") else ()
    kept = {
        p
        for pattern in (*KEPT, *facility)
        for p in glob.glob(f"{folder}/{pattern}")
        if os.path.getsize(p) or "/jobs/" in p
    }
    for d, _, files in os.walk(folder, topdown=False):
        for name in files:
            if f"{d}/{name}" not in kept:
                os.unlink(f"{d}/{name}")
        if not os.listdir(d):
            os.rmdir(d)
    ours = {str(j["id"]) for j in found["jobs"]}
    shown = f"{folder}/slurm/jobs.after.txt"
    lines = open(shown).readlines() if os.path.exists(shown) else []
    c.write(shown, "".join(x for x in lines if (m := re.match(r"JobId=(\d+)", x)) and m[1] in ours))


def bind_again():
    """The hosts' user database is a bind mount; useradd on the machine itself takes it away from all of them."""
    lost = 0
    for host in c.load()["hosts"]:
        for name in ("passwd", "group"):
            ours = f"{SHARED}/etc/{name}"
            if c.inside(host, ["cat", f"/etc/{name}"], capture_output=True).stdout != open(ours).read():
                # the host no longer sees our folder, but can have the text
                text = f"cat > /run/own.{name} && mount --bind /run/own.{name} /etc/{name}"
                c.inside(host, ["sh", "-c", text], input=open(ours).read(), check=True)
                lost += 1
    return lost


def run(name, out):
    f = ENDINGS[name]
    old = None
    bind_again()
    clean()
    if f.settings:
        old = configure(c.with_settings(open(CONF).read(), f.settings))
        reread()
        clean()
    k = Capture(name, f.__doc__, out)
    try:
        f(k)
    except (Exception, SystemExit):
        k.truth["broken"] = traceback.format_exc()
        traceback.print_exc()
    if lost := bind_again():
        k.truth["broken"] = f"the user database was lost on {lost} hosts meanwhile"
    k.finish()
    found = check_exits(f"{k.dir}/truth.json")
    for j in found["jobs"]:
        rows = [(a["state"], a["exit"]) for a in j.get("accounting", [])]
        good = j.get("as_expected") and j["exit_as_expected"]
        print(
            f"RESULT {name} {j['id']} {j['expected']} {j.get('expected_exit')} -> {rows} {'ok' if good else 'SURPRISE'}"
        )
    prune(k.dir)
    size = subprocess.run(["du", "-sk", k.dir], text=True, capture_output=True).stdout.split()[0]
    print(f"   {size} KB", flush=True)
    if old is not None:
        clean()
        configure(old)
        reread()


def main():
    for path in sorted(glob.glob(os.path.join(HERE, "endings_*.py"))):
        importlib.import_module(os.path.basename(path).removesuffix(".py"))
    names, out = command_line(ENDINGS)
    for n in names:
        print(f"{n}:", flush=True)
        run(n, out)
    clean()


if __name__ == "__main__":
    import endings  # the module that endings_*.py fill, not this one

    endings.main()
