"""``faultline slurm verify``: each reason why a hook of this host would write nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from collector.agent.config import Config
from collector.agent.failure import Missing
from collector.agent.hook_folder import HookFolder
from collector.agent.slurm import access
from collector.agent.slurm.host import ANY_USER, Account
from collector.agent.slurm.installation import CONTROLLER, Installation
from collector.agent.slurm.programs import PROGRAMS, Call, Program, call, chaining
from collector.agent.slurm_setup import agent_side, conf_side, script_side
from collector.agent.slurm_setup.findings import Finding

#: Limits of the hooks (``FAULTLINE_HOOK_MAX_FILES``, ``_MAX_BYTES``).
MOST_FILES, MOST_BYTES = 4096, 64 << 20


@dataclass(frozen=True)
class Verified:
    """``calls``: the programs that were verified."""

    calls: tuple[Call, ...]
    findings: tuple[Finding, ...]


def verify(
    found: Installation, config: Config | str, programs: Sequence[Program] = PROGRAMS, dry_run: bool = False
) -> Verified:
    """Looks at all that stands between Slurm and the agent. ``config``: the agent's, or why it cannot be read.

    ``dry_run``: nothing is written and no script is run; otherwise each script is run once, as its user, into a folder of
    its own, and each spool gets a file for a moment.
    """
    here = [program for program in programs if program.role in found.roles]
    calls = tuple(call(found.host, found.conf, program) for program in here)
    findings = list(conf_side.of_installation(found))
    findings += conf_side.of_running(found, calls)
    findings += conf_side.of_node(
        found, config.host if isinstance(config, Config) else socket.gethostname().partition(".")[0]
    )
    for made in calls:
        findings += _of_hook(found, made, dry_run)
    spools = {program.spool: program for program in here}
    users = {name: user for name, program in spools.items() if (user := _user(found, program)) is not None}
    for name, user in users.items():
        findings += _of_spool(found, name, user, dry_run)
    findings += agent_side.of_agent(found.host, config, list(spools), CONTROLLER in found.roles)
    findings += agent_side.of_gate(found.host, config, calls)
    return Verified(calls, tuple(dict.fromkeys(findings)))


def _user(found: Installation, program: Program) -> Account | None:
    if not program.user:
        return ANY_USER
    # On a controller that is a node as well, the spool is SlurmUser's, and root writes into it too.
    setting = "SlurmUser" if CONTROLLER in found.roles else program.user
    try:
        return found.user(setting)
    except Missing:
        return None


def _of_hook(found: Installation, made: Call, dry_run: bool) -> Iterator[Finding]:
    program = made.program
    if made.state == "unset":
        yield Finding(
            "not-called", f"{found.conf.path} does not set it",
            f"add {program.setting}={program.script} and run scontrol reconfigure", program.setting,
        )  # fmt: skip
        return
    if made.state == "other":
        yield Finding(
            "not-called",
            f"{made.value} ({made.at}) is the site's and does not call {program.script}",
            chaining(made),
            program.setting,
        )
        return
    try:
        user = found.user(program.user) if program.user else ANY_USER
    except Missing as why:
        yield Finding("no-account", str(why), f"create the account, or correct {found.conf.path}", program.setting)
        return
    yield from script_side.of_script(found.host, made, user, dry_run)
    if program.event == "healthcheck" and found.conf.get("HealthCheckInterval", "0") == "0":
        yield Finding("never-runs", "HealthCheckInterval is 0 or not set, so that Slurm never runs it",
                      f"add HealthCheckInterval=300 to {found.conf.path} and run scontrol reconfigure", program.setting)  # fmt: skip


def _of_spool(found: Installation, name: str, user: Account, dry_run: bool) -> Iterator[Finding]:
    folder = found.host.path(name)
    cure = "run faultline slurm install, which makes it so"
    if not folder.is_dir():
        what = f"{name} is missing" if not folder.exists() else f"{name} is no folder"
        if user.uid == 0 and what.endswith("missing"):
            return  # root's first hook makes it
        yield Finding("no-spool", f"{what}, and {user} may not make it", cure)
        return
    refused = HookFolder(folder).problem()
    if refused:
        yield Finding("spool-not-trusted", f"the agent does not read it: {refused}", cure)
    yield from script_side.wrong_label(found.host, name)
    full = access.room(folder)
    if full:
        only = "read-only" in full
        yield Finding("read-only" if only else "disk-full", f"{name}: {full}",
                      "mount it for writing" if only else f"make room on it (df {name})")  # fmt: skip
    denied = access.may_write(folder, user)
    if denied and "read-only" not in denied:
        closed = _closed_above(folder, user)
        what = f"{user}, whom Slurm runs hooks as here, may not write into {name} ({access.described(folder)}"
        yield Finding("spool-denied", f"{what}{closed}): {denied}", cure)
    elif not denied and not full and not dry_run:
        failed = access.try_to_write(folder, user)
        if failed:
            yield Finding("spool-denied", f"{user} could not write a file into {name}: {failed}",
                          "free what the message names (a quota, a disk, a file server)")  # fmt: skip
    yield from _of_contents(folder, name)


def _closed_above(folder: Path, user: Account) -> str:
    """Names the folder above that lets the user not through."""
    for step in reversed(folder.parents):
        if access.may_write(step, user) and not _passes(step, user):
            return f", below {step}, {access.described(step)}"
    return ""


def _passes(step: Path, user: Account) -> bool:
    about = step.stat()
    shift = 6 if about.st_uid == user.uid else 3 if about.st_gid in (user.gid, *user.groups) else 0
    return user.uid == 0 or bool(about.st_mode >> shift & 1)


def _of_contents(folder: Path, name: str) -> Iterator[Finding]:
    """A spool that nobody empties."""
    try:
        entries = [entry for entry in folder.iterdir() if entry.name.endswith((".hook", ".hook.tmp"))]
        size = sum(entry.lstat().st_size for entry in entries)
    except OSError:
        return
    if len(entries) >= MOST_FILES or size > MOST_BYTES:
        yield Finding("spool-full", f"{name} holds {len(entries)} records, {size} bytes: hooks write no more into it",
                      "start the agent, which empties it (systemctl start faultline-agent)")  # fmt: skip
