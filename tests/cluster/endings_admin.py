"""What an administrator does to nodes and jobs: down, drain, fail, reboot, power, maintenance."""

import time

import cluster as c
from capture import ctl
from endings import cancel, ended, ending, on, sbatch, truth, well
from entangled import running
from further import resume


def set_node(k, host, state, reason):
    ctl("scontrol", "update", f"nodename={host}", f"state={state}", f"reason={reason}")
    k.inject(f"set_{state}", host=host, user="root", reason=reason)


@ending()
def set_down_under_job(k):
    """An administrator sets a node DOWN under a job, to replace a DIMM; a job beside it goes on."""
    a = on("gpu[02-03]", "srun sleep 200", "-N2", name="hit")
    truth(k, a, "NODE_FAIL", "0:0", "root set gpu03 DOWN (replace DIMM A4)", "administrator")
    b = well(k, on("gpu01", "srun sleep 14", name="kept", user="bob"))
    running(k, a, b)
    set_node(k, "gpu03", "down", "replace DIMM A4")
    ended(k, a, b)
    time.sleep(3)
    resume("gpu03")


@ending()
def drained_under_job(k):
    """An administrator drains a node under a job, which fails by its own exit code; the drain is not the cause."""
    a = on("gpu03", "srun sleep 12; exit 13", name="exit13")
    truth(k, a, "FAILED", "13:0", "its own exit code 13", "user program")
    running(k, a)
    set_node(k, "gpu03", "drain", "firmware update")
    ended(k, a)
    time.sleep(3)
    resume("gpu03")


@ending()
def set_fail_under_job(k):
    """An administrator sets a node FAIL under a job: it is not to get new ones; the job ends well."""
    a = well(k, on("gpu03", "srun sleep 14", name="kept"))
    running(k, a)
    set_node(k, "gpu03", "fail", "predictive disk failure")
    ended(k, a)
    time.sleep(3)
    resume("gpu03")


@ending()
def drained_and_waiting(k):
    """A job waits for a node that an administrator drained; its user cancels it."""
    set_node(k, "gpu04", "drain", "cooling")
    a = on("gpu04", "srun hostname", name="waits")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user while it waited for gpu04, which root had drained", "user")
    time.sleep(10)
    cancel(k, a)
    ended(k, a)
    resume("gpu04")


@ending()
def maintenance_refuses(k):
    """A maintenance reservation begins in a minute: a job that is too long for the time before it waits, a short one runs."""
    ctl("scontrol", "create", "reservation", "reservationname=work", "starttime=now+90", "duration=60", "user=root",
        "flags=maint", "nodes=ALL")  # fmt: skip
    k.inject("reservation", flags="maint", user="root")
    a = c.submit("srun hostname", "-t", "30", name="toolong")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user while it waited for the maintenance to end", "user")
    b = well(k, c.submit("srun sleep 3", "-t", "1", name="short", user="bob"))
    time.sleep(14)
    cancel(k, a)
    ended(k, a, b)
    ctl("scontrol", "delete", "reservationname=work")


@ending(ResumeTimeout="25")
def reboot_never_returns(k):
    """An administrator reboots an idle node (ASAP) that a waiting job wants; it never comes back: DOWN after
    ResumeTimeout. The user cancels her job, which never ran."""
    ctl("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=kernel update", "gpu04")
    k.inject("reboot_asap", host="gpu04", user="root")
    time.sleep(3)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    a = on("gpu04", "srun hostname", name="waits")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user: gpu04 did not come back from a reboot", "user")
    k.node("gpu04", "DOWN: reboot timed out")
    k.wait_node("gpu04", "down", 120)
    time.sleep(4)
    cancel(k, a)
    ended(k, a)
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(8)
    resume("gpu04")


def reboot_first():
    """root submits a job that asks for a reboot of its node first."""
    opts = ("--reboot", "-w", "gpu04", "--no-requeue", "-o", "/home/%x-%j.out")
    return sbatch("#!/bin/bash\nsrun hostname\n", *opts, user=None)


@ending(ResumeTimeout="25")
def job_asks_for_reboot(k):
    """root submits a job that asks for a reboot of its node first (--reboot), which never comes back: BOOT_FAIL."""
    a = reboot_first()
    truth(k, a, "BOOT_FAIL", "0:0", "gpu04 did not come back from the reboot that the job asked for", "node gpu04")
    time.sleep(5)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    ended(k, a, limit=150)
    ctl("scancel", str(a))
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(8)
    resume("gpu04")


@ending(ResumeTimeout="25")
def job_asks_for_reboot_in_vain(k):
    """root submits a job that asks for a reboot of its node first (--reboot); the node answers all the time and never
    boots."""
    a = reboot_first()
    truth(k, a, "BOOT_FAIL", "0:0", "gpu04 did not boot within ResumeTimeout, as the job had asked", "node gpu04")
    ended(k, a, limit=150)
    ctl("scancel", str(a))
    time.sleep(3)
    resume("gpu04")


@ending(
    SuspendProgram="/bin/true", ResumeProgram="/bin/true", SuspendTime="86400", SuspendTimeout="5", ResumeTimeout="25"
)
def powered_down_under_job(k):
    """An administrator powers a node down by force under a job (POWER_DOWN_FORCE)."""
    a = on("gpu04", "srun sleep 200", name="hit")
    truth(k, a, "NODE_FAIL", "0:0", "root powered gpu04 down by force", "administrator")
    running(k, a)
    ctl("scontrol", "update", "nodename=gpu04", "state=power_down_force", "reason=save power")
    k.inject("power_down_force", host="gpu04", user="root")
    ended(k, a, limit=60)
    time.sleep(10)
    ctl("scancel", str(a))
    ctl("scontrol", "update", "nodename=gpu04", "state=power_up")
    time.sleep(8)
    resume("gpu04")


@ending(
    SuspendProgram="/bin/true", ResumeProgram="/bin/true", SuspendTime="86400", SuspendTimeout="5", ResumeTimeout="20"
)
def never_powered_up(k):
    """A powered-down node is given to a job and does not boot within ResumeTimeout: the job, which may not be requeued,
    ends with its node."""
    ctl("scontrol", "update", "nodename=gpu04", "state=power_down_force")
    k.inject("power_down", host="gpu04", user="root")
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(12)
    a = on("gpu04", "srun hostname", name="waits")
    truth(k, a, "NODE_FAIL", "0:0", "gpu04 did not boot within ResumeTimeout", "node gpu04")
    ended(k, a, limit=120)
    ctl("scancel", str(a))
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(8)
    resume("gpu04")


@ending()
def admin_cancels_all_of_a_node(k):
    """An administrator cancels all jobs of one node (scancel -w) before work on it; a job elsewhere goes on."""
    a = on("gpu02", "srun sleep 200", name="one")
    b = on("gpu[02-03]", "srun sleep 200", "-N2", name="two", user="bob")
    for job in (a, b):
        truth(k, job, "CANCELLED", "0:0", "scancel by root of all jobs on gpu02", "administrator")
    d = well(k, on("gpu01", "srun sleep 15", name="kept"))
    running(k, a, b, d)
    ctl("scancel", "-w", "gpu02")
    k.inject("scancel", host="gpu02", user="root")
    ended(k, a, b, d)
