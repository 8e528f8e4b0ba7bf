"""Limits that the site sets for users and for a QOS."""

import time

import cluster as c
from capture import ctl
from endings import CONF, cancel, configure, ended, ending, on, truth, well
from entangled import running


@ending(AccountingStorageEnforce="associations,limits,qos", PriorityType="priority/multifactor", PriorityCalcPeriod="1")
def budget_used_up(k):
    """The processor minutes that a QOS may use (two) are used up while its job runs: Slurm ends it."""
    ctl("sacctmgr", "-i", "add", "qos", "small")
    ctl("sacctmgr", "-i", "modify", "qos", "small", "set", "grptresmins=cpu=2")
    ctl("sacctmgr", "-i", "modify", "account", "ml", "set", "qos=normal,small")
    time.sleep(3)
    a = on("gpu02", "srun sleep 200", "-c", "8", "-t", "3", "--qos=small", name="budget")
    truth(k, a, "TIMEOUT", "0:0", "its QOS had no processor minutes left (GrpTRESMins)", "user submission")
    ended(k, a, limit=120)
    ctl("scancel", str(a))
    time.sleep(2)


@ending()
def waits_for_group_limit(k):
    """A user's second job waits for a limit of her association (GrpJobs=1) and is cancelled by her."""
    ctl("sacctmgr", "-i", "modify", "user", "alice", "set", "maxjobs=1")
    old = configure(c.with_settings(open(CONF).read(), {"KillWait": "5"}))
    a = well(k, on("gpu01", "srun sleep 15", name="first"))
    running(k, a)
    b = on("gpu02", "srun sleep 15", name="second")
    truth(k, b, "CANCELLED", "0:0", "scancel by its user while it waited for a limit of her account", "user")
    time.sleep(6)
    cancel(k, b)
    ended(k, a, b)
    configure(old)
    ctl("sacctmgr", "-i", "modify", "user", "alice", "set", "maxjobs=-1")
