"""Faults by which a run dies before Slurm notices, and faults that a run survives. The truth is recorded as injected."""

import time

import cluster as c
from capture import ctl, scaled, scenario
from entangled import running
from further import resume, single
from moments import as_it_ended


@scenario
def peers_lose_dead_node(k):
    """A node loses power under a job whose ranks talk: its peer gives up after 10 s, before Slurm has noticed."""
    a = c.ring(2, 120, 10, "-w", "gpu[03-04]", "--no-requeue", name="hit")
    running(k, a)
    time.sleep(5)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    k.wait(a, k.DONE, 90)
    as_it_ended(k, a, "power_lost gpu04")  # srun waits for the other task unless it is ordered to kill it
    time.sleep(scaled(50))
    k.inject("power_on", c.power_on("gpu04"), host="gpu04")
    time.sleep(8)
    resume("gpu04")


@scenario
def step_memory_outlived(k):
    """A step takes more memory than its job asked for; its script goes on, and ends with its own exit code 80 s later."""
    script = "srun --mem=200M python3 -c 'x=bytearray(800*1024*1024)' || true; sleep 80; exit 3"
    a = k.job(single(script, "gpu02", "--mem=200M", name="goeson"), "FAILED", False, "own exit code")
    k.wait(a, k.DONE, 150)


@scenario
def requeued_by_root_then_limit(k):
    """root requeues a job while the management link of its node flaps for 8 s; its second run reaches its time limit."""
    a = c.submit("srun sleep 300", "-w", "gpu02", "--requeue", "-t", "1", name="again")
    k.job(a, "REQUEUED,TIMEOUT", False, "requeue by root;time limit")
    running(k, a)
    k.port("gpu02", "mgmt", False)
    time.sleep(4)
    ctl("scontrol", "requeue", str(a))
    k.inject("requeue", job=a, user="root")
    time.sleep(4)
    k.port("gpu02", "mgmt", True)
    k.wait(a, ["RUNNING"], 200)
    k.wait(a, k.DONE, 200)


@scenario
def het_power_lost(k):
    """The node of the second component of a heterogeneous job loses power for 6 s: both components end."""
    a = c.submit(
        "srun --het-group=0,1 sleep 90", "-N1", "-w", "gpu01", "--no-requeue", ":", "-N1", "-w", "gpu02", name="het"
    )
    running(k, a)
    rows = [x.split("|") for x in ctl("squeue", "-h", "-o", "%A|%i").splitlines()]
    for raw, shown in rows:
        k.job(int(raw), "NODE_FAIL", True, "power_lost gpu02", shown)
    k.inject("power_off", c.power_off("gpu02"), host="gpu02")
    time.sleep(6)
    k.inject("power_on", c.power_on("gpu02"), host="gpu02")
    for raw, _ in rows:
        k.wait(int(raw), k.DONE)
    time.sleep(5)
