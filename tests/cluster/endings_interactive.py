"""Jobs without a batch script: srun and salloc of a user on the login host."""

import os
import signal
import time

import cluster as c
from capture import ctl
from endings import cancel, ended, ending, truth
from entangled import running


def interactive(name, *argv, user="alice"):
    """A user starts srun or salloc for a job NAME on the controller's host; returns the process and the job's id."""
    p = c.inside("ctl", list(argv), user=user, popen=True)

    def found():
        return ctl("squeue", "-h", "-t", "all", "-o", "%A", "-n", name).split()

    c.wait(found, 20, f"job {name}")
    return p, int(found()[-1])


@ending()
def srun_exit_code(k):
    """A program under srun, without a script, ends with exit code 7."""
    p, a = interactive("seven", "srun", "-J", "seven", "-w", "gpu04", "bash", "-c", "sleep 6; exit 7")
    truth(k, a, "FAILED", "7:0", "its own exit code 7", "user program")
    ended(k, a)
    p.wait(20)


@ending()
def srun_segfault(k):
    """A program under srun, without a script, dies of SIGSEGV: here accounting has the signal itself."""
    dies = "import os, time; time.sleep(6); os.kill(os.getpid(), 11)"
    p, a = interactive("segv", "srun", "-J", "segv", "-w", "gpu04", "python3", "-c", dies)
    truth(k, a, "FAILED", "0:11", "its own SIGSEGV", "user program")
    ended(k, a)
    p.wait(20)


@ending()
def srun_out_of_memory(k):
    """A program under srun, without a script, takes more memory than it asked for."""
    hog = ["python3", "/home/jobs/memhog.py", "600"]
    p, a = interactive("memhog", "srun", "-J", "memhog", "-w", "gpu03", "--mem=100", *hog)
    truth(k, a, "OUT_OF_MEMORY", "0:125", "it took more memory than it asked for (100 MB)", "user submission")
    ended(k, a)
    p.wait(20)


@ending()
def srun_interrupted(k):
    """A user stops her srun by two Ctrl-C in a second."""
    p, a = interactive("ctrlc", "srun", "-J", "ctrlc", "-w", "gpu02", "sleep", "246")
    truth(k, a, "CANCELLED", "0:0", "two Ctrl-C of its user", "user")
    running(k, a)
    for _ in range(2):
        for pid in c.pidof("ctl", "srun"):
            if b"ctrlc" in open(f"/proc/{pid}/cmdline", "rb").read():
                os.kill(pid, signal.SIGINT)
        time.sleep(0.4)
    k.inject("ctrl_c", host="ctl", user="alice", job=a)
    ended(k, a)
    p.wait(20)


@ending()
def salloc_command_fails(k):
    """The command of a salloc ends with exit code 3: the allocation is given back."""
    p, a = interactive("alloc", "salloc", "-J", "alloc", "-w", "gpu02", "bash", "-c", "srun sleep 5; exit 3")
    truth(k, a, "FAILED", "3:0", "its own command ended with exit code 3", "user program")
    ended(k, a)
    p.wait(20)


@ending()
def salloc_time_limit(k):
    """An allocation of one minute runs out under a user who thinks."""
    p, a = interactive("thinks", "salloc", "-J", "thinks", "-t", "1", "-w", "gpu01", "sleep", "200")
    truth(k, a, "TIMEOUT", "0:0", "its own time limit of one minute", "user submission")
    ended(k, a, limit=150)
    p.terminate()
    p.wait(20)


@ending()
def interactive_and_killed_srun(k):
    """A user runs srun from the login host and its process is killed (SIGKILL) there: srun was the user's, nobody else's."""
    p, a = interactive("interactive", "srun", "-w", "gpu04", "-J", "interactive", "sleep", "245")
    truth(k, a, "CANCELLED", "0:0", "its user's srun was killed on the login host; she cancelled the rest", "user")
    time.sleep(5)
    c.inside("ctl", ["sh", "-c", "kill -9 $(ps -eo pid,args | awk '/srun -w gpu04/ && !/awk/ {print $1}')"])
    k.inject("kill_9", host="ctl", user="alice", job=a)
    time.sleep(10)
    cancel(k, a)
    ended(k, a)
    p.wait(5)
