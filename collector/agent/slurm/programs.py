"""The programs of slurm.conf that hand a job's environment to Faultline, and whether slurm.conf has them called."""

from __future__ import annotations

import glob
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from collector.agent.slurm.conf import Setting, SlurmConf
from collector.agent.slurm.host import Host
from collector.agent.slurm.installation import CONTROLLER, NODE

#: Where the scripts of deploy/slurm are put.
FOLDER = "/etc/faultline/slurm"
SPOOL = "/var/spool/faultline/hooks"
TASK_SPOOL = "/var/spool/faultline/task-hooks"
#: The script that the others call.
COMMON = "faultline-hook.sh"
#: What they read first: hands a record over in memory, without a process (collector.agent.hook_memory).
QUICK = "faultline-memory.sh"
#: The gate (docs/hooks.md): what the health check calls, and what a site may name as Prolog instead of the hook alone.
GATE = ("faultline-gate.sh", "prolog-gate.sh")
#: Settings that name programs of a site which Faultline has no part in.
LEFT_ALONE = ("JobSubmitPlugins", "CliFilterPlugins", "RebootProgram", "TaskEpilog", "SrunProlog", "SrunEpilog", "ResvProlog",
              "ResvEpilog", "MailProg", "PowerParameters", "SuspendProgram", "ResumeProgram", "PlugStackConfig")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """``user``: the setting that names who Slurm runs it as; empty: the job's user."""

    event: str
    setting: str
    role: str
    user: str

    @property
    def script(self) -> str:
        return f"{FOLDER}/{self.event}.sh"

    @property
    def scripts(self) -> tuple[str, str]:
        """What slurm.conf or a program of the site may call: the hook, or the hook with the gate behind it."""
        return self.script, f"{FOLDER}/{self.event}-gate.sh"

    @property
    def spool(self) -> str:
        return SPOOL if self.user else TASK_SPOOL


PROGRAMS = (
    Program("prolog", "Prolog", NODE, "SlurmdUser"),
    Program("epilog", "Epilog", NODE, "SlurmdUser"),
    Program("prologslurmctld", "PrologSlurmctld", CONTROLLER, "SlurmUser"),
    Program("epilogslurmctld", "EpilogSlurmctld", CONTROLLER, "SlurmUser"),
    Program("taskprolog", "TaskProlog", NODE, ""),
    Program("healthcheck", "HealthCheckProgram", NODE, "SlurmdUser"),
)
BY_EVENT = {program.event: program for program in PROGRAMS}


@dataclass(frozen=True, slots=True)
class Call:
    """How slurm.conf has a program called. ``state``: ``unset``, ``direct``, ``chained`` (by a program of the site, named
    by ``by``) or ``other`` (a program of the site that does not call it)."""

    program: Program
    state: str
    value: str = ""
    at: Setting | None = None
    by: str = ""

    @property
    def is_made(self) -> bool:
        return self.state in ("direct", "chained")


def call(host: Host, conf: SlurmConf, program: Program) -> Call:
    """Whether, and how, slurm.conf has ``program`` called."""
    value, at = conf.get(program.setting), conf.at(program.setting)
    if not value:
        return Call(program, "unset")
    ours = program.scripts
    for path in ours:
        if path in value.split(","):
            return Call(program, "direct", value, at, path)
    for path in programs_of(host, value):
        if path in ours or _resolved(host, path) in ours:
            return Call(program, "direct", value, at, path)
        if mentions(host.text(path) or "", program):
            return Call(program, "chained", value, at, path)
    return Call(program, "other", value, at)


def programs_of(host: Host, value: str) -> list[str]:
    """The programs that a setting names: Slurm takes patterns, and newer versions lists."""
    found: list[str] = []
    for one in value.split(","):
        if any(sign in one for sign in "*?["):
            found += [host.shown(Path(path)) for path in sorted(glob.glob(str(host.path(one))))]  # noqa: PTH207
        else:
            found.append(one)
    return found


def _resolved(host: Host, path: str) -> str:
    """What a link points to, as the host calls it."""
    try:
        target = host.path(path).readlink()
    except OSError:
        return path
    return str(target)


def mentions(text: str, program: Program) -> bool:
    """Whether a script of the site calls the hook: outside of comments."""
    called = re.compile(
        rf"(?:\S*/{re.escape(program.event)}(?:-gate)?\.sh|faultline\S*\s+hook\s+{re.escape(program.event)})\b"
    )
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(
        found and ("faultline" in line or _is_variable(line)) for line in lines if (found := called.search(line))
    )


def copied(text: str, program: Program) -> str:
    """The copy of our script that a script of the site calls, by its whole path; empty if none is written out."""
    found = re.search(rf"(?m)^[^#\n]*?(/[\w./+-]*/{re.escape(program.event)}(?:-gate)?\.sh)\b", text)
    return found[1] if found else ""


def _is_variable(line: str) -> bool:
    """``hook=/opt/site/hooks/prolog.sh``: a path below another folder that holds copies of the scripts."""
    return "hook" in line.lower()


def chaining(made: Call) -> str:
    """How the site's own program can call the hook, in one line."""
    script, value = shlex.quote(made.program.script), made.value
    if any(sign in value for sign in "*?["):
        folder = value.rsplit("/", 1)[0]
        return f"ln -s {script} {folder}/faultline-{made.program.event}.sh"
    return f"put this line behind the first one of {value}:  {script} || :"
