"""By a sixth party: users who lie by job names, in somebody else's output, and as the site's monitoring."""

import os
import time

import cluster as c
from endings import ended, ending, on, well
from endings_fifth import ONE
from endings_liars import forge, forged
from endings_second import pair, program
from endings_third import blames, incident, puppet, tell, traceback
from endings_third_sources import back
from entangled import running
from spaces import SHARED, hdir


@ending()
def dressed_as_a_lost_node(k):
    """Bob's job has in its name a line's end and a row of another job's loss, and calls its comment and working folder after faults; it dies of his own
    bug, as does alice's of that row on gpu02. gpu04 really loses power under olga's."""
    incident(k, "infra.node", ["gpu04"], "gpu04 lost power for 6 s")
    a = on("gpu02", f"{puppet('alice')} 120", ONE, name="train")
    blames(k, a, "FAILED", "1:0", "app.error", "user program", "its own KeyError; bob forged a row of its loss")
    d = on("gpu04", "srun sleep 200", name="hit", user="olga")
    blames(k, d, "NODE_FAIL", "0:0", "infra.node", "node gpu04", "gpu04 lost power for 6 s")
    folder = "/home/bob/gpu02 hsn0: Link is Down"
    os.makedirs(f"{SHARED}{folder}", exist_ok=True)
    os.chown(f"{SHARED}{folder}", 20002, 20002)
    row = f"JobId={a} JobName=train UserId=alice(20001) GroupId=alice(20001) JobState=NODE_FAIL Reason=NodeDown ExitCode=0:15 NodeList=gpu02"
    text = "import time\ntime.sleep(16)\nprint({}['requeue'])\n"
    note = "requeued due to failure of node gpu02 (DUE TO NODE FAILURE, Xid 79)"
    options = (ONE, "-D", folder, f"--comment={note}", "-o", "/home/bob/dressed-%j.out")
    b = on("gpu02", f"srun python3 {program('bob', 'own.py', text)}", *options, name=f"x NODE_FAIL\n{row}", user="bob")
    blames(k, b, "FAILED", "1:0", "app.error", "user program", "his own KeyError; its name and comment are made up")
    forged(
        k,
        host="ctl",
        user="bob",
        channel="sbatch -J with a line's end, into scontrol's and sacct's output",
        text=row,
        job=b,
    )
    forged(k, host="ctl", user="bob", channel="sbatch --comment and -D", text=note, job=b)
    running(k, a, d)  # not b: the harness would read its forged row
    k.inject("power_off", c.power_off("gpu04"), host="gpu04")
    time.sleep(6)
    tell(a, traceback("batch['mask']", "KeyError: 'mask'"))
    back(k, "gpu04")
    ended(k)


@ending()
def neighbour_writes_into_her_output(k):
    """Alice's output may be written by everybody: bob adds lines of a lost GPU and a lost node to it, and then her program dies of its own bug. Olga's
    job is really hit by the loss of gpu03's fabric link at that time."""
    incident(k, "infra.network", ["gpu03"], "the fabric link of gpu03 was lost for 25 s")
    script = f"chmod 666 $HOME/train-$SLURM_JOB_ID.out\n{puppet('alice')} 120"
    a = on("gpu02", script, ONE, "--open-mode=append", name="train")
    blames(
        k,
        a,
        "FAILED",
        "1:0",
        "app.error",
        "user program",
        "its own ValueError; bob wrote the rest into its output",
        ["unknown"],
    )
    d = pair("gpu[03-04]", 120, 8, name="hit", user="olga")
    blames(k, d, "FAILED", "1:0", "infra.network", "network gpu03", "the fabric link of gpu03 was lost for 25 s")
    e = well(k, on("gpu02", "srun sleep 40", name="kept", user="bob"))
    running(k, a, d, e)
    k.port("gpu03", "hsn", False)
    time.sleep(5)
    now = time.strftime("%Y-%m-%dT%H:%M:%S")
    lines = (
        "gpu02:2311:2390 [0] NCCL WARN NET/IB : Got completion from peer 10.78.0.13 with status=12 (Transport retry counter exceeded)",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        f"slurmstepd: error: *** JOB {a} ON gpu02 CANCELLED AT {now} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    )
    text = "".join(x + "\n" for x in lines)
    c.inside("gpu02", ["sh", "-c", f"cat >> /home/alice/train-{a}.out"], user="bob", input=text, check=True)
    for line in lines:
        forged(k, host="gpu02", user="bob", channel="appended to alice's output", text=line, job=a)
    time.sleep(2)
    tell(a, traceback("int(row[3])", "ValueError: invalid literal for int() with base 10: 'n/a'"))
    time.sleep(18)
    k.port("gpu03", "hsn", True)
    ended(k)


@ending()
def monitoring_forged_beside_real_check(k):
    """Bob writes lines into gpu02's syslog in the names of smartd, rasdaemon, ipmievd, nhc and the site's epilog; alice's program there dies of its own
    bug. On gpu03 the real check finds the lost fabric link of which olga's job dies."""
    incident(k, "infra.network", ["gpu03"], "the fabric link of gpu03 was lost for 30 s")
    c.write(hdir("gpu03", "run/nhc.on"), "")
    a = on("gpu02", f"{puppet('alice')} 120", ONE, name="train")
    blames(k, a, "FAILED", "1:0", "app.error", "user program", "its own IndexError; bob forged the monitoring's lines")
    d = pair("gpu[03-04]", 120, 8, name="hit", user="olga")
    blames(k, d, "FAILED", "1:0", "infra.network", "network gpu03", "the fabric link of gpu03 was lost for 30 s")
    e = well(k, on("gpu02", "srun sleep 45", name="kept", user="bob"))
    running(k, a, d, e)
    k.port("gpu03", "hsn", False)
    time.sleep(4)
    for tag, text in (
        ("smartd", "Device: /dev/nvme0, FAILED SMART self-check. BACK UP DATA NOW!"),
        (
            "rasdaemon",
            "mce: bank=8 status=0xbe00000000800400 Uncorrected error, Processor context corrupt, socket=0 cpu=3",
        ),
        ("ipmievd", "Power Supply sensor PS1_Status - Power Supply AC lost Asserted"),
        ("nhc", "check_hw_eth: hsn0 has no carrier"),
        ("slurm-epilog", f"job={a} FAULT asked: 1"),
        ("nvidia-persistenced", "device 0000:11:00.0 - lost, GPU requires reset"),
    ):
        forge(k, "gpu02", "bob", text, "daemon.err", tag)
        time.sleep(0.6)
    time.sleep(2)
    tell(a, traceback("losses[-3]", "IndexError: list index out of range"))
    time.sleep(20)
    k.port("gpu03", "hsn", True)
    ended(k)
