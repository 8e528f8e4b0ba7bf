"""Ends that a burst buffer makes (burst_buffer/lua): what is to be copied before a run is not there, or not made ready."""

import os
import time

import cluster as c
from capture import ctl
from endings import cancel, ended, ending, reread, truth, well
from spaces import SHARED, hdir

#: A site's script: each stage takes a second, and fails while a file of its name is there.
SCRIPT = """
local function stage(name)
  return function(...)
    os.execute("sleep 1")
    local fault = io.open("/etc/slurm/fault." .. name)
    if fault == nil then return slurm.SUCCESS, "" end
    fault:close()
    return slurm.ERROR, "flash01: no space left for this request"
  end
end
for _, name in ipairs({"job_process", "pools", "job_teardown", "setup", "data_in", "paths", "pre_run", "post_run", "data_out", "get_status"}) do
  _G["slurm_bb_" .. name] = stage(name)
end
function slurm_bb_job_process(...) return slurm.SUCCESS end
function slurm_bb_pools() return slurm.SUCCESS, '{"pools": [{"id": "flash", "quantity": 100, "granularity": 1, "free": 100}]}' end
function slurm_bb_real_size() return slurm.SUCCESS, "1" end
function slurm_bb_get_status() return slurm.SUCCESS, "" end
"""
FOLDER = f"{SHARED}/etc/slurm"
LUA = {"BurstBufferType": "burst_buffer/lua"}


def fault(stage, there=True):
    path = f"{FOLDER}/fault.{stage}"
    if there:
        c.write(path, "")
    else:
        os.unlink(path)


def with_script():
    """slurmctld reads the site's script when it starts."""
    c.write(f"{FOLDER}/burst_buffer.lua", SCRIPT)
    reread()


def buffered(script, *opts, **kw):
    return c.submit(f"#BB_LUA pool=flash capacity=1\n{script}", "-N1", "-n1", *opts, **kw)


def reason_of(job):
    return ctl("squeue", "-h", "-j", str(job), "-o", "%r")


@ending(**LUA)
def burst_buffer_stage_in(k):
    """The copy into the burst buffer fails: Slurm holds the job, and its user cancels it. Another one's is copied well."""
    with_script()
    a = well(k, buffered("sleep 4", name="fine"))
    ended(k, a)
    fault("data_in")
    k.inject("burst_buffer_fails", host="ctl", stage="data_in")
    b = buffered("sleep 4", name="unlucky", user="bob")
    truth(k, b, "CANCELLED", "0:0", "scancel by its user, as Slurm held it: its stage-in had failed", "user")
    c.wait(lambda: "data_in" in reason_of(b) or "BurstBuffer" in reason_of(b), 60, "a held job")
    time.sleep(5)
    fault("data_in", False)
    cancel(k, b, "bob")
    ended(k, b)


@ending(**LUA)
def burst_buffer_pre_run_fails(k):
    """The burst buffer of a job that has nodes is not made ready: Slurm puts it back into the queue; its user cancels it.

    By Slurm's source it waits two minutes before it is tried again; 22.05 had not tried it after four.
    """
    with_script()
    fault("pre_run")
    k.inject("burst_buffer_fails", host="ctl", stage="pre_run")
    a = buffered("sleep 4", name="unlucky")
    cause = "its burst buffer was not made ready before its first run; scancel by its user while it waited"
    truth(k, a, "REQUEUED,CANCELLED", "1:0,0:0", cause, "slurm")
    log = hdir("ctl", "var/log/slurm/slurmctld.log")
    c.wait(lambda: f"slurm_bb_pre_run failed for JobId={a}" in open(log, errors="replace").read(), 90, "a failure")
    time.sleep(5)
    fault("pre_run", False)
    cancel(k, a)
    ended(k, a)
