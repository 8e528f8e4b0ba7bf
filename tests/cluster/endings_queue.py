"""Ends that the queue makes: arrays, heterogeneous jobs, dependencies, preemption, requeues, holds, suspension."""

import time

import cluster as c
from capture import ctl
from endings import cancel, ended, ending, on, tasks, truth, well
from entangled import running
from spaces import hdir

BASE = "batch_sched_delay=1,sched_interval=15,bf_interval=15"


def as_user(k, what, user, *argv, **more):
    """USER (root if None) runs a command of Slurm on the controller, and the truth says so."""
    c.inside("ctl", list(argv), user=user, capture_output=True)
    k.inject(what, user=user or "root", **more)


def one_of_tasks(k, array, number, *end, by):
    """States the END of task NUMBER of ARRAY, with BY to blame; the others end well."""
    for shown, raw in tasks(array).items():
        if shown == f"{array}_{number}":
            truth(k, raw, *end, by, note=shown)
        else:
            well(k, raw, shown)


def held_by_slurm(job):
    """Waits until Slurm holds JOB, as it was requeued too often."""
    end = time.time() + 330
    while time.time() < end and "JobHoldMaxRequeue" not in ctl("squeue", "-h", "-j", str(job), "-o", "%r"):
        time.sleep(2)


@ending()
def array_one_fails(k):
    """One task of an array of four fails by its own exit code; the others end well."""
    a = c.submit("sleep 8; [ $SLURM_ARRAY_TASK_ID != 2 ] || exit 3", "-a", "0-3", "-N1", "-n1", name="array")
    time.sleep(4)
    one_of_tasks(k, a, 2, "FAILED", "3:0", "its own exit code 3", by="user program")
    ended(k)


@ending()
def array_cancelled(k):
    """A throttled array (two at a time) is cancelled by its user: running and waiting tasks."""
    a = c.submit("sleep 100", "-a", "0-5%2", "-N1", "-n1", name="array")
    note = "two tasks run, and the other four share one record"
    truth(k, a, "CANCELLED,CANCELLED,CANCELLED", "0:0,0:0,0:0", "scancel by its user", "user", note=note)
    time.sleep(6)
    cancel(k, a)
    ended(k, a)


@ending()
def array_task_cancelled(k):
    """A user cancels one task of an array; the others end well."""
    a = c.submit("sleep 15", "-a", "1-3", "-N1", "-n1", name="array")
    time.sleep(5)
    one_of_tasks(k, a, 3, "CANCELLED", "0:0", "scancel of this task by its user", by="user")
    as_user(k, "scancel", "alice", "scancel", f"{a}_3", job=a)
    ended(k)


@ending()
def het_part_fails(k):
    """The step of the second part of a heterogeneous job fails by its own exit code 4; the script passes it on."""
    script = "srun --het-group=0 sleep 12 & srun --het-group=1 bash -c 'sleep 6; exit 4'; r=$?; wait; exit $r"
    a = c.submit(script, "-N1", "-w", "gpu01", "--no-requeue", ":", "-N1", "-w", "gpu02", name="het")
    time.sleep(4)
    for shown, raw in tasks(a).items():
        truth(k, raw, "FAILED", "4:0", "the step of its second part ended with exit code 4", "user program", note=shown)
    ended(k)


@ending()
def het_cancelled(k):
    """A heterogeneous job is cancelled by its user."""
    a = c.submit(
        "srun --het-group=0,1 sleep 200", "-N1", "-w", "gpu03", "--no-requeue", ":", "-N1", "-w", "gpu04", name="het"
    )
    time.sleep(6)
    for shown, raw in tasks(a).items():
        truth(k, raw, "CANCELLED", "0:0", "scancel by its user", "user", note=shown)
    cancel(k, a)
    ended(k)


@ending()
def dependency_never_satisfied(k):
    """Three jobs depend on one that fails: one with --kill-on-invalid-dep, one waits and is cancelled by its user, and
    one runs as it asked for that failure (afternotok)."""
    a = on("gpu01", "sleep 6; exit 3", name="first")
    truth(k, a, "FAILED", "3:0", "its own exit code 3", "user program")
    b = c.submit("sleep 1", "-d", f"afterok:{a}", "--kill-on-invalid-dep=yes", name="killed")
    truth(k, b, "CANCELLED", "0:0", "Slurm cancelled it: its dependency failed", "user program")
    d = c.submit("sleep 1", "-d", f"afterok:{a}", name="waits")
    truth(k, d, "CANCELLED", "0:0", "scancel by its user: DependencyNeverSatisfied", "user")
    e = well(k, c.submit("sleep 1", "-d", f"afternotok:{a}", name="rescues"))
    ended(k, a, b)
    time.sleep(6)
    cancel(k, d)
    ended(k, d, e)


@ending()
def preempted_and_requeued(k):
    """A job is preempted by one of a more urgent partition, goes back to the queue and ends well in its second run."""
    a = c.submit("srun sleep 22", "-w", "gpu02", "-c", "8", "--requeue", name="humble")
    truth(k, a, "PREEMPTED,COMPLETED", "0:0,0:0", "preempted by a job of partition urgent", "nobody")
    running(k, a)
    b = well(k, on("gpu02", "srun sleep 6", "-p", "urgent", "-c", "8", name="urgent", user="bob"))
    k.inject("preempting_job", job=b)
    ended(k, b)
    k.wait(a, ["RUNNING"], 180)
    ended(k, a)


def qos(**modes):
    """Makes a QOS for each name with its preemption mode, and one that preempts them all."""
    for name, mode in modes.items():
        ctl("sacctmgr", "-i", "add", "qos", name)
        ctl("sacctmgr", "-i", "modify", "qos", name, "set", f"preemptmode={mode}")
    ctl("sacctmgr", "-i", "add", "qos", "boss")
    ctl("sacctmgr", "-i", "modify", "qos", "boss", "set", "priority=100", f"preempt={','.join(modes)}")
    ctl("sacctmgr", "-i", "modify", "account", "ml", "set", f"qos=normal,boss,{','.join(modes)}")
    time.sleep(3)


@ending(PreemptType="preempt/qos", AccountingStorageEnforce="associations,qos")
def preempted_by_qos_cancel(k):
    """A job of a QOS that is cancelled when preempted must go for one of a stronger QOS."""
    qos(scavenger="cancel")
    a = on("gpu03", "srun sleep 200", "-c", "8", "--qos=scavenger", name="scavenger")
    truth(k, a, "PREEMPTED", "0:0", "preempted by a job of QOS boss", "nobody")
    running(k, a)
    b = well(k, on("gpu03", "srun sleep 6", "-c", "8", "--qos=boss", name="boss", user="bob"))
    k.inject("preempting_job", job=b)
    ended(k, a, b)


@ending(PreemptType="preempt/qos", AccountingStorageEnforce="associations,qos")
def preempted_by_qos_requeue(k):
    """A job of a QOS that is requeued when preempted; its user cancels it in the queue."""
    qos(flexible="requeue")
    a = c.submit("srun sleep 200", "-w", "gpu03", "-c", "8", "--qos=flexible", "--requeue", name="flexible")
    truth(k, a, "PREEMPTED,CANCELLED", "0:0,0:0", "preempted by a job of QOS boss; then scancel by its user", "user")
    running(k, a)
    b = well(k, on("gpu03", "srun sleep 14", "-c", "8", "--qos=boss", name="boss", user="bob"))
    k.inject("preempting_job", job=b)
    k.wait(a, ["PENDING"], 60)
    time.sleep(4)
    cancel(k, a)
    ended(k, a, b)


@ending(PreemptMode="SUSPEND,GANG")
def preempted_by_suspension(k):
    """A job is suspended for one of a more urgent partition, goes on afterwards and fails by its own exit code."""
    a = on("gpu02", "srun sleep 25; exit 6", "-c", "8", "--mem=300", name="humble")
    truth(k, a, "FAILED", "6:0", "its own exit code 6; it had been suspended for another job", "user program")
    running(k, a)
    b = well(k, on("gpu02", "srun sleep 12", "-p", "urgent", "-c", "8", "--mem=300", name="urgent", user="bob"))
    k.inject("preempting_job", job=b)
    ended(k, b, a)


@ending()
def requeued_then_good(k):
    """A user requeues her job, root another one; both end well in their second runs."""
    a = c.submit("srun sleep 12", "-w", "gpu01", "--requeue", name="again")
    b = c.submit("srun sleep 12", "-w", "gpu02", "--requeue", name="again", user="bob")
    truth(k, a, "REQUEUED,COMPLETED", "0:0,0:0", "scontrol requeue by its user", "user", note="the second run is good")
    truth(
        k,
        b,
        "REQUEUED,COMPLETED",
        "0:0,0:0",
        "scontrol requeue by root",
        "administrator",
        note="the second run is good",
    )
    running(k, a, b)
    as_user(k, "requeue", "alice", "scontrol", "requeue", str(a), job=a)
    as_user(k, "requeue", None, "scontrol", "requeue", str(b), job=b)
    for job in (a, b):
        k.wait(job, ["RUNNING"], 200)
    ended(k, a, b)


@ending()
def requeued_and_held(k):
    """An administrator requeues a running job and holds it (requeuehold); its user cancels it."""
    a = c.submit("srun sleep 200", "-w", "gpu02", "--requeue", name="held")
    truth(
        k, a, "REQUEUED,CANCELLED", "0:0,0:0", "scontrol requeuehold by root; then scancel by its user", "administrator"
    )
    running(k, a)
    as_user(k, "requeuehold", None, "scontrol", "requeuehold", str(a), job=a)
    k.wait(a, ["PENDING", "REQUEUE_HOLD"], 30)
    time.sleep(5)
    cancel(k, a)
    ended(k, a)


@ending(RequeueExit="75", RequeueExitHold="76")
def requeue_exit_codes(k):
    """Programs end with the exit codes that this site requeues (75), and requeues and holds (76)."""
    script = "sleep 5; [ ${SLURM_RESTART_COUNT:-0} = 0 ] && exit %d; echo second run; exit 0"
    a = c.submit(script % 75, "-w", "gpu01", "--requeue", name="exit75")
    truth(k, a, "REQUEUED,COMPLETED", "75:0,0:0", "its own exit code 75, for which the site requeues", "user program")
    b = c.submit(script % 76, "-w", "gpu02", "--requeue", name="exit76", user="bob")
    truth(
        k,
        b,
        "REQUEUED,CANCELLED",
        "76:0,0:0",
        "its own exit code 76: requeued and held; scancel by its user",
        "user program",
    )
    time.sleep(16)
    cancel(k, b, "bob")
    k.wait(a, ["RUNNING", "COMPLETED"], 180)
    ended(k, a, b)


@ending(SchedulerParameters=f"{BASE},nohold_on_prolog_fail,max_batch_requeue=2")
def requeued_too_often(k):
    """The prolog fails on each node that a job is given, until Slurm holds it (JobHoldMaxRequeue); root cancels it."""
    for h in c.load()["nodes"]:
        c.write(hdir(h, "run/fault.prolog"), "1")
        k.inject("prolog_exit_1", host=h)
    a = c.submit("srun hostname", "-N1", "--requeue", name="unlucky")
    truth(
        k,
        a,
        "REQUEUED,REQUEUED,CANCELLED",
        "0:0,0:0,0:0",
        "the prolog failed on every node",
        "node gpu01 gpu02 gpu03 gpu04",
    )
    held_by_slurm(a)
    cancel(k, a, None)
    ended(k, a)


@ending(SchedulerParameters=f"{BASE},max_batch_requeue=1")
def launched_in_vain_everywhere(k):
    """slurmd's spool is read-only on every node: the launch of a job fails, it is requeued, and held after its second try
    (JobHoldMaxRequeue); root cancels it."""
    nodes = c.load()["nodes"]
    for h in nodes:
        c.inside(h, ["mount", "-o", "remount,ro", "/var/spool/slurmd"], check=True)
        k.inject("spool_read_only", host=h)
    a = c.submit("srun hostname", "-N1", "--requeue", name="unlucky")
    runs = "REQUEUED,REQUEUED,CANCELLED", "0:0,0:0,0:0"
    truth(k, a, *runs, "slurmd's spool is read-only on every node", f"node {' '.join(nodes)}")
    held_by_slurm(a)
    for h in nodes:
        c.inside(h, ["mount", "-o", "remount,rw", "/var/spool/slurmd"], check=True)
    cancel(k, a, None)
    ended(k, a)


@ending()
def suspended_and_resumed(k):
    """An administrator suspends two jobs for 12 s and resumes them: one ends well, one fails by its own exit code."""
    a = well(k, on("gpu01", "srun sleep 16", name="good"))
    b = on("gpu02", "srun sleep 16; exit 8", name="exit8", user="bob")
    truth(k, b, "FAILED", "8:0", "its own exit code 8", "user program")
    running(k, a, b)
    for job in (a, b):
        as_user(k, "suspend", None, "scontrol", "suspend", str(job), job=job)
    time.sleep(12)
    for job in (a, b):
        as_user(k, "resume", None, "scontrol", "resume", str(job), job=job)
    ended(k, a, b)


@ending()
def suspended_then_cancelled(k):
    """An administrator suspends a job, and its user cancels it while it is suspended."""
    a = on("gpu03", "srun sleep 200", name="paused")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user while it was suspended by root", "user")
    running(k, a)
    as_user(k, "suspend", None, "scontrol", "suspend", str(a), job=a)
    time.sleep(8)
    cancel(k, a)
    ended(k, a)


@ending()
def held_and_cancelled(k):
    """Jobs are held by their user and by root, and cancelled by their user without ever having run."""
    a = c.submit("sleep 1", "-H", name="userheld")
    b = c.submit("sleep 1", "--begin=now+300", name="adminheld")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user: held by her", "user")
    truth(k, b, "CANCELLED", "0:0", "scancel by its user: held by root", "user")
    as_user(k, "hold", None, "scontrol", "hold", str(b), job=b)
    time.sleep(6)
    for job in (a, b):
        cancel(k, job)
    ended(k, a, b)
