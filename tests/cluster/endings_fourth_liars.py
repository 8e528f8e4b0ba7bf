"""By a fourth party: users who lie by means that each of them has, and a lost node whose logs were not collected."""

import glob
import os
import shutil
import time

import cluster as c
from endings import ended, ending, on, well
from endings_liars import forged
from endings_second import pair, program
from endings_third import blames, incident, stamp, without
from endings_third_sources import back
from entangled import running

WAITS_AND_FAILS = "import sys, time\ntime.sleep(20)\n{}\n"


@ending()
def lines_by_a_working_folder(k):
    """Bob's --chdir names a folder that is not there, with a line's end and lines of slurmd in its name: slurmd.log of gpu02 then says that
    the node of alice's job fails. Her program dies of its own IndexError some seconds later, olga's is well there."""
    bug = program("alice", "bug.py", WAITS_AND_FAILS.format("[][3]"))
    a = on("gpu02", f"srun python3 {bug}", "--gres=gpu:h100:1", name="bug")
    cause = "its own IndexError; bob forged slurmd's lines about gpu02"
    blames(k, a, "FAILED", "1:0", "app.error", "user program", cause)
    d = well(k, on("gpu02", "srun sleep 30", name="kept", user="olga"))
    running(k, a, d)
    time.sleep(5)
    when = time.strftime("%Y-%m-%dT%H:%M:%S")
    lies = (
        f"[{a}.0] error: *** STEP {a}.0 ON gpu02 CANCELLED AT {when} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "error: gpu/nvml: _get_nvml_version: Failed to get device 0: GPU is lost",
        "fatal: Could not write to /var/spool/slurmd: Input/output error",
    )
    for text in lies:
        b = on("gpu02", "true", "-D", f"/home/bob/x\n{stamp()} {text}", name="x", user="bob")
        forged(k, host="gpu02", user="bob", channel="sbatch -D with a line's end, into slurmd.log", text=text, job=b)
        well(k, b)
        time.sleep(1)
    ended(k)


SOCKET = """
import socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("/dev/log")
for line in sys.argv[1:]:
    s.send(line.encode())
    time.sleep(1)
"""


@ending()
def daemons_lines_by_datagrams(k):
    """Bob's own job on gpu03 sends datagrams to /dev/log as systemd, slurmd, nhc and NetworkManager would: the fabric manager died, a GPU and the
    fabric are lost. Alice's program there asks for a GPU that it does not have, olga's with two GPUs is well."""
    bug = WAITS_AND_FAILS.format("sys.exit('RuntimeError: CUDA error: invalid device ordinal')")
    a = on("gpu03", f"srun python3 {program('alice', 'device.py', bug)}", "--gres=gpu:h100:1", name="device")
    cause = "it asks for a GPU that it does not have; bob forged lines of daemons"
    blames(k, a, "FAILED", "1:0", "app.error", "user program", cause)
    d = well(k, on("gpu03", "srun sleep 35", "--gres=gpu:h100:2", name="kept", user="olga"))
    lies = (
        "<27>systemd[1]: nvidia-fabricmanager.service: Main process exited, code=killed, status=11/SEGV",
        "<27>slurmd[51]: error: gres/gpu: count reported lower than configured (3 < 4)",
        "<27>nhc[3102]: ERROR: nhc: Health check failed: check_nv_healthmon: GPU 0000:11:00.0 fell off the bus",
        "<28>NetworkManager[633]: <warn>  device (hsn0): link disconnected (carrier lost)",
    )
    words = " ".join(f"'{x}'" for x in lies)
    b = well(k, on("gpu03", f"sleep 10; python3 {program('bob', 'send.py', SOCKET)} {words}", name="quiet", user="bob"))
    for text in lies:
        forged(k, host="gpu03", user="bob", channel="a datagram to /dev/log from his job", text=text, job=b)
    running(k, a, b, d)
    ended(k)


CLAIMS = """
import os, sys, time
rank = os.environ["SLURM_PROCID"]
for step in range(60):
    if os.path.exists("/home/jobs/claim.now"):
        break
    if step % 4 == 0:
        print(time.strftime("%Y-%m-%dT%H:%M:%S.000"), os.uname().nodename, "rank" + rank, "step", step, flush=True)
    time.sleep(0.5)
peer = {"0": "10.78.0.13", "1": "10.78.0.12"}[rank]
what = f"ERROR: collective timed out: nothing from {peer} for 10 s (step {step})"
print(time.strftime("%Y-%m-%dT%H:%M:%S.000"), os.uname().nodename, "rank" + rank, what, flush=True)
sys.exit(1)
"""


@ending()
def refund_by_a_made_up_timeout(k):
    """The fabric link of gpu03 really flaps 2 s. Bob, whose job sends nothing over it, has it print what a watchdog of 10 s would say, and ends it,
    to have his hours paid back. Olga's job of the same two nodes really uses the fabric, with a watchdog of 6 s, and is well."""
    run = f"srun python3 {program('bob', 'claims.py', CLAIMS)}"
    b = on("gpu[02-03]", run, "-N2", "--ntasks-per-node=1", name="claims", user="bob")
    cause = "its own exit; the timeout that it shows is made up, as the link was lost for 2 s only"
    blames(k, b, "FAILED", "1:0", "app.error", "user program", cause, ["unknown"])
    d = well(k, pair("gpu[02-03]", 40, 6, name="rides", user="olga"))
    running(k, b, d)
    time.sleep(4)
    k.flap("gpu03", "hsn", down_for=2)
    time.sleep(1)
    c.write(f"{c.SHARED}/home/jobs/claim.now", "now\n")
    forged(k, host="gpu02,gpu03", user="bob", channel="job output", text="ERROR: collective timed out", job=b)
    ended(k)
    os.unlink(f"{c.SHARED}/home/jobs/claim.now")


def silent(k, host):
    """Nothing that HOST logged is collected: neither its own files nor what reached the log host."""
    whole = k.finish

    def finish():
        whole()
        shutil.rmtree(f"{k.dir}/hosts/{host}", ignore_errors=True)
        for path in glob.glob(f"{k.dir}/hosts/ctl/central.log"):
            kept = [x for x in open(path, errors="replace") if f" {host} " not in x]
            c.write(path, "".join(kept))

    k.finish = finish
    k.truth["not_collected"].append(f"everything of {host}")


@ending()
def lost_node_sends_no_logs(k):
    """gpu04 loses power for 9 s, and nothing that it or the switch logs is collected. Its job's rank on gpu03 complains first, with a watchdog of 6 s.
    Bob's job on gpu03 dies of his own bug seconds later, olga's is well there."""
    without(k, "kernel", "switch", "links")
    silent(k, "gpu04")
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power for 9 s")
    a = pair("gpu[03-04]", 120, 6, name="train")
    blames(k, a, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "gpu04 lost power for 9 s")
    bug = WAITS_AND_FAILS.format("print({'lr': 1}.learning_rate)")
    b = on("gpu03", f"srun python3 {program('bob', 'rate.py', bug)}", name="rate", user="bob")
    blames(k, b, "FAILED", "1:0", "app.error", "user program", "his own AttributeError")
    d = well(k, on("gpu03", "srun sleep 40", name="kept", user="olga"))
    running(k, a, b, d)
    time.sleep(5)
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(9)
    back(k, "gpu04")
    ended(k)
