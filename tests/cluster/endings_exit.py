"""How a program ends: exit codes, signals of its own, of root, of scancel."""

import signal
import time

import cluster as c
from capture import ctl
from endings import cancel, ended, ending, on, truth, well
from entangled import running
from faults import kill_in
from spaces import SHARED


@ending()
def exit_codes_small(k):
    """Three programs end with exit codes of their own: 1, 2 and 125."""
    for code in (1, 2, 125):
        a = c.submit(f"echo working; sleep 3; exit {code}", name=f"exit{code}")
        truth(k, a, "FAILED", f"{code}:0", f"its own exit code {code}", "user program")
    ended(k)


@ending()
def exit_codes_of_the_shell(k):
    """The last command of a script may not be run (126), or is not there (127)."""
    c.write(f"{SHARED}/home/alice/notes.txt", "no program\n")
    a = c.submit("/home/alice/notes.txt", name="denied")
    truth(k, a, "FAILED", "126:0", "the script's command is not executable", "user submission")
    b = c.submit("trian --lr 1", name="missing", user="bob")
    truth(k, b, "FAILED", "127:0", "the script's command does not exist (a typing error)", "user submission")
    ended(k, a, b)


@ending()
def exit_codes_like_signals(k):
    """Programs that end with 137, 139 and 143 as plain exit codes: no signal was sent, no memory was short."""
    for code in (137, 139, 143):
        a = c.submit(f"echo quitting; sleep 3; exit {code}", name=f"exit{code}")
        truth(k, a, "FAILED", f"{code}:0", f"its own exit code {code}; nothing killed it", "user program")
    ended(k)


@ending()
def signals_of_its_own(k):
    """Programs that raise SIGSEGV, SIGABRT, SIGFPE and SIGBUS themselves, under srun; the script passes srun's code on."""
    for name, number in (("segv", 11), ("abrt", 6), ("fpe", 8), ("bus", 7)):
        a = c.submit(f"srun python3 -c 'import os, time; time.sleep(3); os.kill(os.getpid(), {number})'", name=name)
        truth(k, a, "FAILED", f"{128 + number}:0", f"its program died of signal {number}", "user program")
    ended(k)


@ending()
def script_kills_itself(k):
    """A batch script sends SIGKILL to itself: 0:9 without anybody else."""
    a = on("gpu02", "sleep 4; kill -9 $$", name="suicide")
    truth(k, a, "FAILED", "0:9", "the script killed itself", "user program")
    ended(k, a)


@ending()
def root_kills_the_program(k):
    """Root of a node kills the job's program there (kill -9), as a watchdog or an administrator does. The kernel had
    enough memory. The link of another node's fabric flaps at that time."""
    a = on("gpu[01-02]", "srun -N2 sleep 241", "-N2", name="killed")
    truth(k, a, "FAILED", "137:0", "kill -9 by root on gpu02", "administrator")
    running(k, a)
    k.flap("gpu04", "hsn", down_for=2)
    kill_in("gpu02", "sleep 241")
    k.inject("kill_9", host="gpu02", user="root", job=a)
    time.sleep(2)
    kill_in("gpu01", "sleep 241")
    k.inject("kill_9", host="gpu01", user="root", job=a)
    ended(k, a)


@ending()
def root_kills_the_script(k):
    """Root of a node kills the job's batch shell (kill -9): 0:9."""
    a = on("gpu03", "sleep 242; true", name="killed")
    truth(k, a, "FAILED", "0:9", "kill -9 of the batch shell by root on gpu03", "administrator")
    running(k, a)
    kill_in("gpu03", "slurm_script")
    k.inject("kill_9", host="gpu03", user="root", job=a)
    ended(k, a)


@ending()
def own_processes_kill(k):
    """A user logs in to the node and kills her own job's program with kill -TERM."""
    a = on("gpu03", "srun sleep 243", name="killed")
    truth(k, a, "FAILED", "143:0", "kill -TERM by the job's own user on gpu03", "user")
    running(k, a)
    find = "kill -TERM $(ps -eo pid,args | awk '/sleep 243/ && !/awk/ && !/srun/ {print $1}')"
    c.inside("gpu03", ["sh", "-c", find], user="alice", capture_output=True)
    k.inject("kill_term", host="gpu03", user="alice", job=a)
    ended(k, a)


@ending()
def cancelled_by_three(k):
    """Running jobs are cancelled by their user, by an operator and by root."""
    ctl("sacctmgr", "-i", "modify", "user", "olga", "set", "adminlevel=operator")
    a, b, d = (
        on(f"gpu0{i}", "srun sleep 240", name=n, user="bob") for i, n in enumerate(("mine", "olgas", "roots"), 1)
    )
    truth(k, a, "CANCELLED", "0:0", "scancel by its user", "user")
    truth(k, b, "CANCELLED", "0:0", "scancel by the operator olga", "administrator")
    truth(k, d, "CANCELLED", "0:0", "scancel by root", "administrator")
    running(k, a, b, d)
    for job, user in ((a, "bob"), (b, "olga"), (d, None)):
        cancel(k, job, user)
    ended(k, a, b, d)


@ending()
def stranger_may_not_cancel(k):
    """A user tries to cancel another user's job and may not; the job fails by its own error a little later."""
    a = on("gpu02", "srun sleep 14; exit 9", name="victim")
    truth(k, a, "FAILED", "9:0", "its own exit code 9; bob's scancel was refused", "user program")
    running(k, a)
    c.inside("ctl", ["scancel", str(a)], user="bob", capture_output=True)
    k.inject("scancel_refused", job=a, user="bob")
    ended(k, a)


@ending()
def signal_to_steps(k):
    """A user sends SIGTERM to her job's steps (scancel --signal); the script goes on with srun's exit code."""
    a = on("gpu02", "srun sleep 240", name="signalled")
    truth(k, a, "FAILED", "143:0", "scancel --signal=TERM by its user", "user")
    running(k, a)
    c.inside("ctl", ["scancel", "--signal=TERM", str(a)], user="alice")
    k.inject("scancel_signal", job=a, user="alice")
    ended(k, a)


@ending()
def kill_on_bad_exit(k):
    """One rank of three ends with exit code 5, and srun --kill-on-bad-exit kills the others: their SIGKILL is not the
    cause."""
    inner = "if [ $SLURM_PROCID = 1 ]; then sleep 8; exit 5; fi; sleep 240"
    a = on("gpu[01-03]", f"srun --kill-on-bad-exit=1 bash -c '{inner}'", "-N3", name="badexit")
    truth(k, a, "FAILED", "5:0", "rank 1 ended with exit code 5; srun killed the others", "user program")
    ended(k, a)


@ending()
def worst_exit_code_of_ranks(k):
    """Ranks end with 0, 3 and 1; no one is killed. The job's exit code is the highest."""
    a = on("gpu[01-03]", "srun bash -c 'set -- 0 3 1; shift $SLURM_PROCID; sleep 4; exit $1'", "-N3", name="ranks")
    truth(k, a, "FAILED", "3:0", "rank 1 ended with exit code 3 and rank 2 with 1", "user program")
    ended(k, a)


@ending()
def timeout_command(k):
    """The user's own `timeout` ends the program after 6 s (exit code 124): no time limit of Slurm."""
    a = on("gpu04", "timeout 6 srun sleep 240", name="selftimed")
    truth(k, a, "FAILED", "124:0", "the user's own `timeout 6`", "user program")
    ended(k, a)


@ending()
def failing_step_in_good_job(k):
    """A step fails with 7 and the script ignores it: the job ends well, its derived exit code is 7."""
    a = well(k, on("gpu02", "srun bash -c 'exit 7' || true; srun hostname; exit 0", name="tolerant"))
    ended(k, a)


@ending()
def traceback_beside_link_loss(k):
    """A program dies of its own exception on gpu01, seconds after another node's management link is really lost."""
    a = on("gpu01", "srun python3 -c 'import time; time.sleep(16); {}[\"lr\"]'", name="buggy")
    truth(k, a, "FAILED", "1:0", "its own KeyError", "user program")
    running(k, a)
    k.flap("gpu04", "mgmt", down_for=9)
    ended(k, a)


@ending()
def term_trapped_and_clean(k):
    """A user asks her script by SIGUSR1 to stop; it saves its state and ends with 0: nothing went wrong."""
    a = well(k, on("gpu02", "trap 'echo saved; exit 0' USR1; sleep 240 & wait", name="polite"))
    running(k, a)
    c.inside("ctl", ["scancel", "-b", "--signal=USR1", str(a)], user="alice")
    k.inject("scancel_signal", job=a, user="alice", signal=int(signal.SIGUSR1))
    ended(k, a)
