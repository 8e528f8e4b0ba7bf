"""``faultline slurm remove``: takes the hooks away, and never a script that Slurm still calls."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collector.agent.failure import AgentError, Missing
from collector.agent.slurm.host import Host
from collector.agent.slurm.installation import Installation
from collector.agent.slurm.programs import FOLDER, PROGRAMS, call
from collector.agent.slurm_setup.changes import RECORD, Record
from collector.agent.source import Context

#: ``scontrol show config`` pads its names.
_RUNNING = re.compile(rf"(?m)^\s*(\w+)\s*=\s*(\S*{re.escape(FOLDER)}/\S*)")


def still_called(found: Installation) -> list[str]:
    """What in slurm.conf and in the site's programs calls a script of ours."""
    calls = [call(found.host, found.conf, program) for program in PROGRAMS]
    lines = [f"{c.at}: {c.program.setting}={c.value}" for c in calls if c.state == "direct"]
    return lines + [f"{c.by}: calls {c.program.script} or a copy of it" for c in calls
                    if c.state == "chained" and f"{FOLDER}/" in (found.host.text(c.by) or "")]  # fmt: skip


def called_by_running(host: Host, found: Installation) -> list[str]:
    """What the running slurmctld calls, from ``scontrol``. Raises ``AgentError`` if Slurm runs here and does not say."""
    if not host.is_this:
        return []
    try:
        text = Context().answer(["scontrol", "show", "config"], timeout=15.0)
    except Missing:
        text = ""
    except (OSError, TimeoutError) as error:
        if found.daemons:
            raise AgentError(
                f"scontrol does not say which scripts Slurm calls ({error}): a script that is missing drains nodes; stop "
                f"{found.daemons[0].name} here or make scontrol work, then run this again"
            ) from error
        text = ""
    return [f"{name}={value}" for name, value in _RUNNING.findall(text)]


def planned(record: Record) -> Iterator[str]:
    """What would be undone, a line each."""
    for path, made in reversed(record.made.items()):
        before = made["before"]
        kind = "file" if "content" in made["after"] else "folder"
        yield f"undo     {kind} {path}: " + ("goes" if before is None else "becomes what it was")
    if not record.made:
        yield f"undo     nothing: {RECORD} names nothing that was made here"


def undo(record: Record) -> list[str]:
    """Undoes everything, the last first. Returns what stays and why; the record stays with it, to be used again."""
    stays: list[str] = []
    for path in list(reversed(record.made)):
        if RECORD.startswith(f"{path}/"):
            if stays:
                continue
            record.forget()
        why = record.undo(path)
        if why:
            stays.append(why)
    if record.made and stays:
        record.save()
    return stays


def reconfigure(host: Host) -> None:
    """Has the daemons read slurm.conf again. Raises ``AgentError`` if they do not."""
    if not host.is_this:
        return
    try:
        Context().answer(["scontrol", "reconfigure"], timeout=30.0)
    except (Missing, OSError, TimeoutError) as error:
        raise AgentError(
            f"slurm.conf was edited, and scontrol reconfigure failed: {error}; run it, then this again"
        ) from error
