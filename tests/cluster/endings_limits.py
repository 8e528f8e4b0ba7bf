"""Limits: of time, memory, processes and files; and standstills that only end at the time limit."""

import time

import cluster as c
from capture import ctl
from endings import cancel, ended, ending, on, truth, well
from entangled import running
from faults import WRITES, hang, kernel_says, kill_in, serve, set_cgroup, unserve
from spaces import CG, CG_ROOT


@ending()
def time_limit(k):
    """A program that is at work all the time reaches its time limit of one minute."""
    a = on("gpu02", "srun bash -c 'while true; do echo step $((++i)); sleep 1; done'", "-t", "1", name="slow")
    truth(k, a, "TIMEOUT", "0:0", "its own time limit of one minute was too short", "user submission")
    ended(k, a, limit=150)


@ending()
def time_limit_trapped(k):
    """A script is told 30 s before its limit (--signal), saves its state and ends with exit code 99 before the limit."""
    script = "trap 'echo saved; exit 99' USR1; sleep 240 & wait"
    a = on("gpu02", script, "-t", "1", "--signal=B:USR1@30", name="checkpoint")
    truth(k, a, "FAILED", "99:0", "it chose to end with 99 at the warning before its limit", "user program")
    ended(k, a, limit=150)


@ending(OverTimeLimit="1")
def over_time_limit(k):
    """OverTimeLimit=1 lets a job go on for a minute beyond its limit; then it is ended."""
    a = on("gpu02", "srun sleep 400", "-t", "1", name="late")
    truth(k, a, "TIMEOUT", "0:0", "its own time limit and the minute that OverTimeLimit adds", "user submission")
    ended(k, a, limit=240)


@ending()
def deadline_while_pending(k):
    """A job cannot start before its deadline, as its node is taken."""
    b = well(k, on("gpu03", "srun sleep 80", "--exclusive", name="first", user="bob"))
    running(k, b)
    a = on("gpu03", "sleep 5", "-t", "1", "--deadline=now+65", "--exclusive", name="late")
    truth(k, a, "DEADLINE", "0:0", "its deadline came while it waited for a node", "user submission")
    ended(k, a, b, limit=150)


@ending()
def deadline_while_running(k):
    """A job without a time limit of its own is running when its deadline comes."""
    a = on("gpu03", "srun sleep 400", "--time-min=1", "-t", "10", "--deadline=now+75", name="overrun")
    truth(k, a, "DEADLINE", "0:0", "its deadline came while it ran", "user submission")
    ended(k, a, limit=200)


@ending()
def stopped_by_root_until_limit(k):
    """Root of a node stops a job's program (SIGSTOP) and forgets it; the job reaches its time limit."""
    a = on("gpu02", "srun bash -c 'while true; do echo step $((++i)); sleep 1; done'", "-t", "1", name="frozen")
    truth(k, a, "TIMEOUT", "0:0", "kill -STOP by root on gpu02; then its time limit", "administrator")
    running(k, a)
    time.sleep(8)
    kill_in("gpu02", "echo step", "STOP")
    k.inject("kill_stop", host="gpu02", user="root", job=a)
    ended(k, a, limit=150)


@ending()
def own_deadlock_until_limit(k):
    """Two ranks wait for each other's file for ever; output stops; the job reaches its time limit. No fault anywhere."""
    inner = "echo rank $SLURM_PROCID step 1; sleep 5; echo rank $SLURM_PROCID waits; while [ ! -e ~/never ]; do sleep 1; done"
    a = on("gpu[01-02]", f"srun bash -c '{inner}'", "-N2", "-t", "1", name="deadlock")
    truth(k, a, "TIMEOUT", "0:0", "its own deadlock; then its time limit", "user program")
    ended(k, a, limit=150)


@ending()
def storage_hangs_until_limit(k):
    """The file server of two nodes stops answering under two users' jobs: their processes are in D state (really) until
    both time limits. A third user's job of the same nodes, which does not use it, ends well."""
    hosts = ("gpu01", "gpu02")
    served = {h: serve(h, "/srv") for h in hosts}
    a = on("gpu01", WRITES, "-t", "1", name="writes")
    b = on("gpu02", WRITES, "-t", "1", name="writes", user="bob")
    for job in (a, b):
        truth(k, job, "TIMEOUT", "0:0", "the file server nas01 did not answer any more; then its time limit", "storage")
    d = well(k, on("gpu02", "srun sleep 45", name="computes", user="olga"))
    running(k, a, b, d)
    for h in hosts:
        hang(k, h)
    time.sleep(12)
    for h in hosts:
        kernel_says(k, h, "nfs: server nas01 not responding, still trying", 5)
    ended(k, a, b, d, limit=150)
    time.sleep(8)
    for h in hosts:
        c.inside(h, ["rm", "-f", "/run/fs.hang"])
        k.inject("storage_answers", host=h, server="nas01")
        kernel_says(k, h, "nfs: server nas01 OK", 5)
        unserve(h, "/srv", served[h])
    time.sleep(6)


@ending()
def storage_hangs_silently(k):
    """As storage_hangs_until_limit on one node with one job, and no line of the kernel: only that output stopped, that
    the processes could not be killed and that the job's limit came."""
    served = serve("gpu03", "/srv")
    a = on("gpu03", WRITES, "-t", "1", name="writes")
    truth(k, a, "TIMEOUT", "0:0", "the file server did not answer any more; then its time limit", "storage")
    running(k, a)
    hang(k, "gpu03")
    ended(k, a, limit=150)
    time.sleep(10)
    k.inject("storage_answers", host="gpu03", server="nas01")
    unserve("gpu03", "/srv", served)
    time.sleep(4)


@ending(UnkillableStepTimeout="15")
def unkillable_after_cancel(k):
    """A user cancels her job whose process hangs in D state; it cannot be killed for UnkillableStepTimeout (15 s), and
    slurmd drains the node with "Kill task failed". The cancelling is hers, the drain is the storage's."""
    served = serve("gpu02", "/srv")
    a = on("gpu02", WRITES, name="writes")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user, as its file server did not answer", "user")
    running(k, a)
    hang(k, "gpu02")
    time.sleep(8)
    cancel(k, a)
    k.wait_node("gpu02", "drain", 60)
    k.node("gpu02", "drained: Kill task failed, by the storage that hangs")
    time.sleep(5)
    unserve("gpu02", "/srv", served)
    k.inject("storage_answers", host="gpu02", server="nas01")
    ended(k, a)
    time.sleep(4)


@ending()
def step_memory_in_good_job(k):
    """A step takes more memory than it may and is killed; the script expects that, tries less and ends well."""
    script = "srun --mem=120 python3 /home/jobs/memhog.py 600 || echo too much; srun hostname"
    a = well(k, on("gpu02", script, "--mem=120", name="tries"))
    ended(k, a)


@ending()
def script_memory(k):
    """The batch script itself, without srun, takes more memory than the job asked for."""
    a = on("gpu02", "python3 /home/jobs/memhog.py 600", "--mem=100", name="memhog")
    truth(k, a, "OUT_OF_MEMORY", "0:125", "it took more memory than it asked for (100 MB)", "user submission")
    ended(k, a)


@ending()
def memory_neighbour(k):
    """A job is killed for its memory on a node; another user's job of that node fails at that time by its own bug."""
    b = on("gpu02", "srun sleep 11; exit 4", "--mem=100", name="exit4", user="bob")
    truth(k, b, "FAILED", "4:0", "its own exit code 4", "user program")
    a = on("gpu02", "sleep 4; srun python3 /home/jobs/memhog.py 600", "--mem=100", name="memhog")
    truth(k, a, "OUT_OF_MEMORY", "0:125", "its step took more memory than it asked for", "user submission")
    ended(k, a, b)


def fork_where_few_are_left(k, forks, left):
    """Jobs of two users make FORKS processes each on a node that allows LEFT more, and one on a node beside it."""
    fork = f'srun sleep 12; python3 -c \'import subprocess as s; [s.Popen(["sleep", "3"]) for i in range({forks})]\''
    a, b = on("gpu03", fork, name="forks"), on("gpu03", fork, name="forks", user="bob")
    for job in (a, b):
        truth(k, job, "FAILED", "1:0", "gpu03 allows no more processes (EAGAIN at fork)", "node gpu03")
    d = well(k, on("gpu04", fork, name="forks"))
    running(k, a, b, d)
    most = int(open(f"{CG}/pids/{CG_ROOT}/gpu03/pids.current").read()) + left
    set_cgroup("pids/gpu03/pids.max", str(most))
    k.inject("pid_limit", host="gpu03", limit=most)
    k.wait(a, k.DONE, 50)
    k.wait(b, k.DONE, 10)
    set_cgroup("pids/gpu03/pids.max", "max")
    k.inject("pid_limit_over", host="gpu03")
    ended(k, a, b, d)


@ending()
def processes_used_up(k):
    """The number of processes of a node is used up (an agent of root made too many): programs of two users cannot fork
    there, while those of a node beside it can."""
    fork_where_few_are_left(k, forks=40, left=2)


@ending()
def processes_nearly_used_up(k):
    """As processes_used_up, but steps of the jobs end just before they fork, and each gives some processes back."""
    fork_where_few_are_left(k, forks=20, left=6)


@ending()
def own_file_limit(k):
    """A user lowers her own limit of open files and reaches it."""
    open_many = "python3 -c 'import time; time.sleep(3); f = [open(\"/etc/hosts\") for i in range(90)]'"
    a = on("gpu03", f"ulimit -n 40; {open_many}", name="files")
    truth(k, a, "FAILED", "1:0", "its own ulimit -n 40: too many open files", "user program")
    ended(k, a)


@ending()
def limit_shortened_by_admin(k):
    """An administrator shortens a running job's time limit below what it has used."""
    a = on("gpu01", "srun sleep 400", "-t", "10", name="shortened", user="bob")
    truth(k, a, "TIMEOUT", "0:0", "its time limit, which root shortened to one minute", "administrator")
    running(k, a)
    ctl("scontrol", "update", f"jobid={a}", "timelimit=1")
    k.inject("time_limit_shortened", job=a, user="root")
    ended(k, a, limit=150)
