"""Programs that never start, or not as their users thought: output, folder, interpreter, container, site scripts."""

import os
import time

import cluster as c
from endings import cancel, ended, ending, on, sbatch, truth, well
from entangled import running
from further import as_before, over
from spaces import SHARED, hdir


@ending()
def output_folder_missing(k):
    """--output names a folder that does not exist; the program never starts (0:53)."""
    a = on("gpu02", "srun hostname", "-o", "/home/alice/runs/2026/%j.out", name="nofolder")
    truth(k, a, "FAILED", "0:53", "the folder of its --output does not exist", "user submission")
    ended(k, a, limit=60)


@ending()
def output_not_permitted(k):
    """--output is in another user's home, where the user may not write."""
    os.chmod(f"{SHARED}/home/bob", 0o755)
    a = on("gpu02", "srun hostname", "-o", "/home/bob/mine.out", name="notmine")
    truth(k, a, "FAILED", "0:53", "she may not write to the folder of her --output", "user submission")
    ended(k, a, limit=60)


@ending()
def input_missing(k):
    """--input names a file that does not exist."""
    a = on("gpu03", "cat", "-i", "/home/alice/no-such-input.txt", name="noinput")
    truth(k, a, "FAILED", "0:53", "the file of its --input does not exist", "user submission")
    ended(k, a, limit=60)


@ending()
def working_folder_missing(k):
    """--chdir names a folder that does not exist; Slurm goes to /tmp instead, where the program's data are not."""
    a = on("gpu03", "srun cat train.yaml", "-D", "/home/alice/deleted", name="nochdir")
    truth(
        k, a, "FAILED", "1:0", "the folder of its --chdir does not exist, so its files are not there", "user submission"
    )
    ended(k, a, limit=60)


@ending()
def interpreter_missing(k):
    """The script's first line names an interpreter that does not exist."""
    a = sbatch(
        "#!/opt/anaconda2/bin/python\nprint(1)\n", "-J", "oldscript", "-w", "gpu02", "-o", "/home/alice/%x-%j.out"
    )
    truth(k, a, "FAILED", "2:0", "the interpreter in the script's first line does not exist", "user submission")
    ended(k, a, limit=60)


@ending()
def bad_programs(k):
    """srun is given a file that is no program (exec format), one that may not be run, and one that is not there."""
    home = f"{SHARED}/home/alice"
    c.write(f"{home}/arm.bin", "\x7fELF not for this machine", 0o755)
    c.write(f"{home}/plain.bin", "text", 0o644)
    for name, program, code in (
        ("format", "./arm.bin", 8),
        ("denied", "./plain.bin", 13),
        ("missing", "./gone.bin", 2),
    ):
        a = c.submit(f"srun {program}", name=name)
        truth(k, a, "FAILED", f"{code}:0", f"srun cannot execute {program} (errno {code})", "user submission")
    ended(k)


@ending()
def container_without_runtime(k):
    """srun --container on a cluster without oci.conf."""
    a = on("gpu02", "srun --container=/home/alice/bundle true", name="container")
    truth(k, a, "FAILED", "1:0", "it asks for a container, and no runtime is configured", "user submission")
    ended(k, a, limit=60)


@ending()
def x11_not_offered(k):
    """srun --x11 on a cluster whose PrologFlags have no X11."""
    a = on("gpu02", "srun --x11 true", name="xclock")
    truth(k, a, "FAILED", "1:0", "it asks for X11 forwarding, which this cluster does not offer", "user submission")
    ended(k, a, limit=60)


@ending()
def mpi_plugin_missing(k):
    """srun --mpi names a plugin that is not installed."""
    a = on("gpu02", "srun --mpi=pmix_v9 true", name="mpi")
    truth(k, a, "FAILED", "1:0", "it asks for an MPI plugin that is not there", "user submission")
    ended(k, a, limit=60)


@ending()
def step_asks_too_much(k):
    """Steps ask for more memory, and for more GPUs, than their jobs have: srun creates no step."""
    a = on("gpu02", "srun --mem=3000 hostname", "--mem=200", name="memory")
    b = on("gpu03", "srun --gres=gpu:h100:4 hostname", "--gres=gpu:h100:1", name="gpus", user="bob")
    for job, what in ((a, "memory"), (b, "GPUs")):
        truth(k, job, "FAILED", "1:0", f"its step asks for more {what} than the job has", "user submission")
    ended(k, a, b, limit=60)


@ending()
def licences_taken(k):
    """All licences are taken by another job; the user cancels her waiting one."""
    b = well(k, on("gpu01", "srun sleep 25", "-L", "matlab:2", name="holds", user="bob"))
    running(k, b)
    a = on("gpu02", "srun hostname", "-L", "matlab:1", name="waits")
    truth(k, a, "CANCELLED", "0:0", "scancel by its user while it waited for a licence", "user")
    time.sleep(8)
    cancel(k, a)
    ended(k, a, b)


@ending()
def task_prolog_fails(k):
    """The site's task prolog fails on one node (exit 1)."""
    path = "/etc/slurm/site/task_prolog.sh"
    over("gpu03", "#!/bin/bash\necho print scratch is not mounted on $(hostname)\nexit 1\n", path)
    c.inside("gpu03", ["chmod", "755", path])
    k.inject("task_prolog_exit_1", host="gpu03")
    a = on("gpu[02-03]", "srun hostname", "-N2", name="unlucky")
    truth(k, a, "FAILED", "1:0", "the task prolog failed on gpu03", "node gpu03")
    ended(k, a, limit=60)
    as_before("gpu03", path)


@ending()
def prolog_hangs_on_one(k):
    """The prolog of one of two nodes hangs until PrologEpilogTimeout (20 s): drained, the job held; root cancels it."""
    c.write(hdir("gpu02", "run/fault.prolog"), "hang")
    k.inject("prolog_hangs", host="gpu02")
    a = c.submit("srun hostname", "-N2", "-w", "gpu[01-02]", name="unlucky")
    truth(k, a, "REQUEUED,CANCELLED", "0:0,0:0", "the prolog hung on gpu02", "node gpu02")
    k.wait_node("gpu02", "drain", 60)
    k.wait(a, ["PENDING", "REQUEUE_HOLD"], 60)
    cancel(k, a, None)
    ended(k, a)


@ending()
def controller_prolog_fails(k):
    """The controller's own prolog (PrologSlurmctld) fails: the job is put back into the queue; its user cancels it."""
    fault = hdir("ctl", "run/fault.prolog_slurmctld")
    c.write(fault, "1")
    k.inject("prolog_slurmctld_exit_1", host="ctl")
    a = c.submit("srun hostname", "-w", "gpu02", name="unlucky")
    truth(k, a, "REQUEUED,CANCELLED", "0:0,0:0", "PrologSlurmctld failed on the controller", "slurm")
    time.sleep(12)
    os.unlink(fault)
    cancel(k, a)
    ended(k, a)


@ending()
def epilog_hangs(k):
    """The epilog of a node hangs until PrologEpilogTimeout after a good job, and after one that failed by itself."""
    c.write(hdir("gpu03", "run/fault.epilog"), "hang")
    k.inject("epilog_hangs", host="gpu03")
    a = well(k, on("gpu03", "srun sleep 4", name="fine"))
    b = on("gpu03", "srun sleep 4; exit 6", name="exit6", user="bob")
    truth(k, b, "FAILED", "6:0", "its own exit code 6", "user program")
    k.node("gpu03", "drained: Epilog error")
    k.wait_node("gpu03", "drain", 60)
    ended(k, a, b)


@ending()
def no_shell_start_up(k):
    """The user's own .bashrc-like file, which the script sources, ends the shell: exit 3 before the first command."""
    c.write(f"{SHARED}/home/alice/env.sh", "module load cuda/12 || exit 3\n")
    a = on("gpu02", ". ~/env.sh; srun hostname", name="setup")
    truth(k, a, "FAILED", "3:0", "its own set-up file ended the script: no `module` here", "user submission")
    ended(k, a, limit=60)
