"""By a fifth party: users who lie through lines that daemons of root and the kernel write, in which a word is the user's own."""

import time

import cluster as c
from endings import ended, ending, on, well
from endings_fifth import ONE, bus
from endings_liars import forged
from endings_second import pair, program, says
from endings_third import NAMED, blames, incident, puppet, stamp, tell, traceback
from entangled import running, slurmd_again, stop
from faults import kernel_says
from spaces import RT


@ending()
def lines_by_names_of_outputs_and_programs(k):
    """Bob's --output is in a folder that is not there, and the program that he names to srun is not there either; both names have a line's end and lines of slurmd
    in them, so that slurmstepd of gpu03 writes those into slurmd.log. Alice's program there dies of its own KeyError, olga's is well."""
    a = on("gpu03", f"{puppet('alice')} 90", ONE, name="train")
    cause = "its own KeyError; bob forged slurmd's lines about gpu03"
    blames(k, a, "FAILED", "1:0", "app.error", "user program", cause)
    d = well(k, on("gpu03", "srun sleep 40", name="kept", user="olga"))
    running(k, a, d)
    when = time.strftime("%Y-%m-%dT%H:%M:%S")
    node = f"[{a}.0] error: *** STEP {a}.0 ON gpu03 CANCELLED AT {when} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
    text = f"error: Node configuration differs from hardware: gres/gpu count 3\n{stamp()} {node}"
    b = on("gpu03", "true", "-o", f"/home/bob/no/x\n{stamp()} {text}", name="x", user="bob")
    forged(k, host="gpu03", user="bob", channel="sbatch -o with a line's end, into slurmd.log", text=text, job=b)
    blames(k, b, "FAILED", "0:53", "app.error", "user submission", "the folder of its output is not there")
    time.sleep(3)
    text = "error: Unable to register with slurm controller: Socket timed out on send/recv operation"
    e = on("gpu03", f"srun $'./x\\n{stamp()} {text}'", name="y", user="bob")
    forged(k, host="gpu03", user="bob", channel="srun PROGRAM with a line's end, into slurmd.log", text=text, job=e)
    blames(k, e, "FAILED", "2:0", "app.error", "user submission", "his program is not there")
    time.sleep(4)
    tell(a, traceback("batch['labels']", "KeyError: 'labels'"))
    ended(k)


@ending()
def users_words_in_lines_of_root(k):
    """Lines that daemons of root write on gpu02 (synthetic, in the daemons' own forms) have words of bob's in them: the name that he gives to sshd, his crontab's command, the
    folder in which he calls sudo, the name of his process that dumped core. Alice's program there, with a GPU, dies of its own bug; olga's is well."""
    a = on("gpu02", f"{puppet('alice')} 90", ONE, name="train")
    blames(k, a, "FAILED", "1:0", "app.error", "user program", "its own IndexError; bob's words are in lines of root")
    d = well(k, on("gpu02", "srun sleep 40", name="kept", user="olga"))
    running(k, a, d)
    lies = (
        ("sshd[2201]", f"Invalid user kernel: NVRM: Xid ({bus(0)}): 79, GPU has fallen off the bus. from 10.77.0.11 port 48122"),
        ("sshd[2201]", "Failed password for invalid user nfs: server nas01 not responding, timed out from 10.77.0.11 port 48122 ssh2"),
        ("CRON[2304]", "(bob) CMD (: slurmd.service: Main process exited, code=killed, status=9/KILL)"),
        ("sudo", "     bob : command not allowed ; TTY=pts/0 ; PWD=/home/bob/hsn0: Link down ; USER=root ; COMMAND=/usr/sbin/reboot"),
        ("systemd-coredump[2320]", "Process 2319 (slurmd) of user 20002 dumped core."),
    )  # fmt: skip
    for tag, text in lies:
        says(k, "gpu02", tag, text, "info")
        forged(k, host="gpu02", user="bob", channel=f"his word in a line of {tag}", text=text)
        time.sleep(0.7)
    time.sleep(2)
    tell(a, traceback("tokens[length]", "IndexError: list index out of range"))
    ended(k)


@ending()
def processes_named_like_the_driver(k):
    """Bob names his processes so that the kernel's (real) lines of their crashes begin as those of the GPU driver, of a panic and of a machine check, and calls one of his `slurmstepd`
    that takes too much memory. Alice's program on that node, with a GPU, dies of its own bug, olga's is well."""
    a = on("gpu03", f"{puppet('alice')} 90", ONE, name="train")
    blames(k, a, "FAILED", "1:0", "app.error", "user program", "its own TypeError; bob chose names of processes")
    d = well(k, on("gpu03", "srun sleep 45", name="kept", user="olga"))
    named = program("bob", "named.py", NAMED)
    names = ("NVRM: Xid 79, p", "Kernel panic - ", "mce: [Hardware ")
    crashes = [on("gpu03", f"srun python3 {named} '{x}'", name="seg", user="bob") for x in names]
    for job in crashes:
        blames(k, job, "FAILED", "11:0", "app.error", "user program", "his own SIGSEGV under a chosen name")
    hog = "ln -sf /usr/bin/python3 $HOME/slurmstepd\nsleep 11\nsrun $HOME/slurmstepd /home/jobs/memhog.py 600"
    e = on("gpu03", hog, "--mem=100", name="hog", user="bob")
    blames(k, e, "FAILED", "1:0", "app.oom", "user program", "his own memory, under the name slurmstepd")
    running(k, a, d, e)
    ended(k, *crashes)
    time.sleep(1)
    lines = [x for x in open(f"{RT}/kmsg.jsonl") if "segfault at" in x]
    for name in names:
        line = [x for x in lines if f'"{name}[' in x][-1]
        text = line.split('"text": "')[1].rsplit('"', 1)[0]
        kernel_says(k, "gpu03", text, 6)  # the kernel's real line: it names no host, so it is handed to its own here
        forged(k, host="gpu03", user="bob", channel="prctl(PR_SET_NAME), in the kernel's line of a crash", text=text)
    ended(k, e)
    time.sleep(2)
    tell(a, traceback("loss + None", "TypeError: unsupported operand type(s) for +: 'float' and 'NoneType'"))
    ended(k)


CLAIMS = """
import os, sys, time
job, node = os.environ["SLURM_JOB_ID"], os.environ["SLURMD_NODENAME"]
print("pid", os.getpid(), flush=True)
while not os.path.exists(f"/home/jobs/claim.{job}"):
    time.sleep(0.3)
now = time.strftime("%Y-%m-%dT%H:%M:%S")
for line in (
    "srun: error: Node failure on " + node,
    f"slurmstepd: error: *** JOB {job} ON {node} CANCELLED AT {now} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    f"srun: error: {node}: task 0: Killed",
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
):
    print(line, file=sys.stderr, flush=True)
sys.exit(1)
"""


@ending()
def refund_by_words_of_slurm(k):
    """slurmd of gpu02 is killed and back after 9 s, which harms nobody. In that time bob's job there prints what srun and slurmstepd would say of a lost node, and ends with
    exit code 1, to have his hours paid back. Olga's job on gpu02 goes on; alice's on gpu04 is really lost with its slurmd, a little later."""
    incident(k, "infra.node", ["gpu04"], "slurmd of gpu04 was killed and stayed away")
    b = on("gpu02", f"srun python3 {program('bob', 'claims.py', CLAIMS)}", ONE, name="claims", user="bob")
    cause = "its own exit; the lost node that it shows is made up, as gpu02 was never given up"
    blames(k, b, "FAILED", "1:0", "app.error", "user program", cause, ["unknown"])
    d = well(k, pair("gpu[02-03]", 60, 8, name="rides", user="olga"))
    a = on("gpu04", "srun sleep 200", name="hit")
    cause = "slurmd of gpu04 was killed and stayed away"
    blames(k, a, "NODE_FAIL", "0:0", "infra.node", "node gpu04", cause, ["infra.scheduler"])
    running(k, a, b, d)
    stop(k, "gpu02", "slurmd")
    time.sleep(3)
    c.write(f"{c.SHARED}/home/jobs/claim.{b}", "now\n")
    forged(k, host="gpu02", user="bob", channel="job output", text="srun: error: Node failure on gpu02", job=b)
    time.sleep(6)
    slurmd_again(k, "gpu02")
    time.sleep(2)
    stop(k, "gpu04", "slurmd")
    ended(k)
    slurmd_again(k, "gpu04")
    time.sleep(5)
