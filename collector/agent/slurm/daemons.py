"""Slurm's daemons on this host: the processes that run, and what their units would start."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from collector.agent.slurm.host import Host

NAMES = ("slurmctld", "slurmd")
_UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_OPTION_FILES = ("/etc/default/{}", "/etc/sysconfig/{}")
_CONF_VARIABLE = re.compile(r"^\s*(?:Environment=\"?|export\s+)?SLURM_CONF=[\"']?([^\s\"']+)", re.MULTILINE)
_CONF_OPTION = re.compile(r"(?:^|[\s\"'=])-f\s*(/[^\s\"']+)")
_CONFIGLESS = "--conf-server"


@dataclass(frozen=True, slots=True)
class Daemon:
    """``conf``: the slurm.conf that its arguments or environment name; empty: its default. ``pid`` is 0 for a unit that does not run."""

    name: str
    pid: int
    uid: int
    conf: str
    configless: bool

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})" if self.pid else f"the unit of {self.name}"


def running(host: Host) -> list[Daemon]:
    """slurmctld and slurmd of this host, those of containers excluded."""
    found = []
    own = _namespace(host, "self")
    try:
        pids = sorted(int(name) for name in os.listdir(host.path("/proc")) if name.isdigit())  # noqa: PTH208
    except OSError:
        return []
    for pid in pids:
        name = (host.text(f"/proc/{pid}/comm") or "").strip()
        if name not in NAMES:
            continue
        theirs = _namespace(host, str(pid))
        if own and theirs and own != theirs:
            continue
        arguments = (host.text(f"/proc/{pid}/cmdline") or "").split("\0")
        environ = dict(
            pair.partition("=")[::2] for pair in (host.text(f"/proc/{pid}/environ") or "").split("\0") if "=" in pair
        )
        configless = any(argument.startswith(_CONFIGLESS) for argument in arguments)
        try:
            uid = host.path(f"/proc/{pid}").stat().st_uid
        except OSError:
            continue
        found.append(Daemon(name, pid, uid, _argument(arguments) or environ.get("SLURM_CONF", ""), configless))
    return found


def units(host: Host) -> list[Daemon]:
    """What the units and option files of the daemons say; none for a daemon without a unit."""
    found = []
    for name in NAMES:
        files = [f"{folder}/{name}.service" for folder in _UNIT_FOLDERS]
        for folder in _UNIT_FOLDERS[:2]:
            files += [host.shown(path) for path in sorted(host.path(f"{folder}/{name}.service.d").glob("*.conf"))]
        texts = [text for file in files if (text := host.text(file)) is not None]
        if not texts:
            continue
        texts += [text for form in _OPTION_FILES if (text := host.text(form.format(name))) is not None]
        whole = "\n".join(line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#"))
        named = _CONF_VARIABLE.search(whole) or _CONF_OPTION.search(whole)
        found.append(Daemon(name, 0, -1, named[1] if named else "", _CONFIGLESS in whole))
    return found


def _argument(arguments: list[str]) -> str:
    """The value of ``-f``, in both spellings."""
    for place, argument in enumerate(arguments):
        if argument == "-f":
            return arguments[place + 1] if place + 1 < len(arguments) else ""
        if argument.startswith("-f/"):
            return argument[2:]
    return ""


def _namespace(host: Host, pid: str) -> str:
    try:
        return str(host.path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""
