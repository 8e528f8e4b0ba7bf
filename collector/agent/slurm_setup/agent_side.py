"""What is wrong with the agent that shall read the spools: not there, not running, not reading that folder."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from collector.agent.config import Config
from collector.agent.gate.answer_file import FOLDER as GATE_FOLDER
from collector.agent.hook_failures import WROTE_NOTHING
from collector.agent.hook_folder import CLAIM
from collector.agent.slurm.host import Host
from collector.agent.slurm.programs import GATE, Call
from collector.agent.slurm_setup.findings import Finding


def of_agent(host: Host, config: Config | str, spools: Sequence[str], controller: bool) -> Iterator[Finding]:
    """``config``: the agent's configuration, or why there is none."""
    if isinstance(config, str):
        yield Finding("no-agent", f"no agent reads the spools: {config}", "install it with deploy/agent/install.sh")
        return
    enabled = config.enabled().get("hooks")
    if enabled is None:
        yield Finding(
            "agent-not-reading",
            f"{config.where} turns the source 'hooks' off",
            "remove its line enabled = false and restart the agent",
        )
        return
    folders = [str(folder) for folder in enabled[1]["folders"]]
    for spool in spools:
        if spool not in folders:
            yield Finding("agent-not-reading", f"{config.where} has the agent read {', '.join(folders)}, not {spool}",
                          f'add "{spool}" to folders of [sources.hooks] and restart the agent')  # fmt: skip
    if not _locked(host.path(config.spool) / "lock"):
        yield Finding("agent-not-running", f"no agent runs with {config.where}", "systemctl start faultline-agent")
        return
    yield from _of_status(host, config)
    for spool in spools:
        folder = host.path(spool)
        if spool in folders and folder.is_dir() and os.access(folder, os.R_OK) and not _locked(folder / CLAIM):
            yield Finding("agent-not-reading", f"nobody empties {spool}: no process holds {spool}/{CLAIM}",
                          "faultline agent status says why; a folder that was just made is found within a minute")  # fmt: skip


def of_gate(host: Host, config: Config | str, calls: Sequence[Call]) -> Iterator[Finding]:
    """That a script asks the gate in a folder in which this agent keeps no answer: then each answer is doubtful."""
    if isinstance(config, str) or (kept := f"{config.spool}/gate") == GATE_FOLDER:
        return
    for made in calls:
        text = host.text(made.by or made.value) or ""
        asks = made.is_made and (made.by.endswith(GATE[1]) or made.program.scripts[1] in text)
        if asks and f"FAULTLINE_GATE={kept}" not in text:
            yield Finding("gate-elsewhere", f"{config.where} has the agent keep the gate's answer in {kept}, and the script reads "
                          f"{GATE_FOLDER}: it answers doubtful",
                          f"put FAULTLINE_GATE={kept} before the call in a program of the site, or leave the agent's spool where it is by default",
                          made.program.setting)  # fmt: skip


def _of_status(host: Host, config: Config) -> Iterator[Finding]:
    status: dict[str, Any] = {}
    try:
        status = json.loads((host.path(config.spool) / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for source in status.get("sources", ()):
        detail = str(source.get("detail"))
        # What is absent, or what hooks could not write, is found by the spools themselves.
        if (
            source.get("name") == "hooks"
            and source.get("state") not in ("ok", "absent")
            and WROTE_NOTHING not in detail
        ):
            yield Finding("agent-not-reading", f"the agent does not read the spools: {detail}",
                          "do what it says; the agent looks again every minute")  # fmt: skip


def _locked(path: Path) -> bool:
    """Whether a process holds a lock on the file. Makes nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return True  # who may not see it cannot say that nobody holds it
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
