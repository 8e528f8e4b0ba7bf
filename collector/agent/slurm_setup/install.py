"""``faultline slurm install``: what it would write, and writing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from collector.agent.failure import AgentError, Missing
from collector.agent.slurm.host import ROOT, Account, Host
from collector.agent.slurm.installation import CONTROLLER, NODE, Installation
from collector.agent.slurm.programs import (
    COMMON,
    FOLDER,
    GATE,
    LEFT_ALONE,
    PROGRAMS,
    QUICK,
    SPOOL,
    TASK_SPOOL,
    Call,
    Program,
    call,
    chaining,
)
from collector.agent.slurm_setup import conf_lines
from collector.agent.slurm_setup.changes import Change, Record, state

#: The scripts of deploy/slurm, which the package carries.
SCRIPTS = Path(__file__).with_name("scripts")


@dataclass(frozen=True)
class Plan:
    """``lines``: what slurm.conf lacks; ``calls``: how it stands with each wanted program."""

    host: Host
    changes: tuple[Change, ...]
    lines: tuple[str, ...]
    calls: tuple[Call, ...]
    #: Makers of folders alone know no installation.
    found: Installation | None

    def needed(self) -> list[Change]:
        return [change for change in self.changes if change.words(self.host)]

    def apply(self) -> None:
        record = Record.load(self.host)
        for change in self.needed():
            record.note(change, state(self.host.path(change.path)))
            change.apply(self.host)
        record.save()


def plan(found: Installation, programs: Sequence[Program] = PROGRAMS) -> Plan:
    """The plan for this host. Raises ``AgentError`` where an account is unknown."""
    host = found.host
    calls = tuple(call(host, found.conf, program) for program in programs)
    changes = [*_scripts(host, programs), *_spools(host, spool_owner(found), any(not p.user for p in programs))]
    return Plan(host, _ordered(host, changes), tuple(conf_lines.missing(found.conf, calls)), calls, found)


def folders(host: Host, found: Installation | None, roles: frozenset[str]) -> Plan:
    """Only the spools: what the agent's installer needs, also where Slurm is not installed yet."""
    owner = spool_owner(found) if found is not None else ROOT
    if found is None and CONTROLLER in roles:
        owner = host.account("slurm") or ROOT
    return Plan(host, _ordered(host, _spools(host, owner, NODE in roles)), (), (), found)


def spool_owner(found: Installation) -> Account:
    """Who writes into the spool of Slurm's hooks here: SlurmUser on a controller, SlurmdUser elsewhere."""
    try:
        users = {role: found.user(setting) for role, setting in ((CONTROLLER, "SlurmUser"), (NODE, "SlurmdUser"))
                 if role in found.roles}  # fmt: skip
    except Missing as why:
        raise AgentError(f"{why}; create the account, or correct {found.conf.path}") from why
    others = {user.uid: user for user in users.values() if user.uid != 0}
    if len(others) > 1:
        raise AgentError(
            f"SlurmUser and SlurmdUser of {found.conf.path} are two users, neither is root, and both run hooks on this host: "
            "one spool cannot belong to both"
        )
    return next(iter(others.values()), ROOT)


def _scripts(host: Host, programs: Sequence[Program]) -> Iterator[Change]:
    gate = GATE if any(program.role == NODE for program in programs) else ()
    for name in (COMMON, QUICK, *gate, *(f"{program.event}.sh" for program in programs)):
        try:
            content = (SCRIPTS / name).read_bytes()
        except OSError as error:
            raise AgentError(
                f"{SCRIPTS / name}: {error.strerror}; this installation of faultline is not complete"
            ) from error
        yield Change(f"{FOLDER}/{name}", 0o755, 0, 0, content)


def _spools(host: Host, owner: Account, with_tasks: bool) -> Iterator[Change]:
    yield Change(SPOOL, 0o700, owner.uid, owner.gid)
    if with_tasks:
        yield Change(TASK_SPOOL, 0o1733, 0, 0)


def _ordered(host: Host, wanted: Iterable[Change]) -> tuple[Change, ...]:
    """With the folders that are missing above them, from the top."""
    above: dict[str, Change] = {}
    changes = list(wanted)
    for change in changes:
        for parent in reversed(PurePosixPath(change.path).parents):
            there = state(host.path(parent)) if "faultline" in parent.parts else None
            if there is not None:  # what lies above a spool or a script must let SlurmUser and users through
                above.setdefault(str(parent), Change(str(parent), there["mode"] | 0o011, there["uid"], there["gid"]))
            elif not host.path(parent).exists():
                above.setdefault(str(parent), Change(str(parent), 0o755, 0, 0))
    return (*above.values(), *changes)


def explained(plan: Plan) -> Iterator[str]:
    """The plan for a person, a line each."""
    found = plan.found
    if found is not None:
        kept = ", kept from its controller (configless)" if found.configless else ""
        yield f"Slurm    {found.conf.path}{kept} ({found.why}); cluster {found.cluster or 'without a name'}"
        roles = [f"{name} runs (pid {daemon.pid})" if (daemon := found.runs(name)) else f"{name} is installed, not running"
                 for name, role in (("slurmctld", CONTROLLER), ("slurmd", NODE)) if role in found.roles]  # fmt: skip
        yield f"host     {'; '.join(roles) or 'no Slurm daemon is installed: --controller or --node says what it is'}"
        users = ", ".join(f"{name}={found.conf.get(name, 'root')}" for name in ("SlurmUser", "SlurmdUser"))
        logs = ", ".join(f"{name}={found.conf.get(name, '(syslog)')}" for name in ("SlurmctldLogFile", "SlurmdLogFile"))
        spools = ", ".join(
            f"{name}={found.conf.get(name, '(default)')}" for name in ("StateSaveLocation", "SlurmdSpoolDir")
        )
        yield f"users    {users}"
        yield f"paths    {logs}, {spools}"
        for other in found.others:
            yield f"note     {other} is another configuration, which does not count here"
    needed = plan.needed()
    for change in needed:
        yield f"write    {change.words(plan.host)}"
    if not needed:
        yield "write    nothing: all files are as they should be"
    yield from _conf_explained(plan)


def _conf_explained(plan: Plan) -> Iterator[str]:
    if plan.found is None:
        return
    conf = plan.found.conf
    for made in plan.calls:
        setting = made.program.setting
        if made.state == "direct":
            yield f"calls    {setting}={made.value} ({made.at}) is there"
        elif made.state == "chained":
            yield f"calls    {setting}={made.value} ({made.at}) is the site's and calls the hook in {made.by}"
        elif made.state == "other":
            yield f"alone    {setting}={made.value} ({made.at}) is the site's and stays; to have it call the hook as well,"
            yield f"         {chaining(made)}"
    for name in LEFT_ALONE:
        if conf.get(name):
            yield f"alone    {name}={conf.get(name)} ({conf.at(name)}): the hooks have no part in it"
    if plan.lines:
        where = "slurm.conf on the controller (this one is a copy)" if plan.found.configless else conf.path
        yield f"add      to {where}, once {FOLDER} is on every host (Slurm drains a node without Prolog's file, and fails jobs without TaskProlog's):"
        yield from (f"         {line}" for line in plan.lines)
        yield "         then: scontrol reconfigure"
    else:
        yield f"add      nothing: {conf.path} has no line to be added"
