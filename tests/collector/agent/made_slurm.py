"""A host with a Slurm that was made for a test: slurm.conf, accounts, daemons in /proc, tools."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Sequence
from copy import copy
from pathlib import Path

from collector.agent.slurm.host import Host
from collector.agent.slurm_setup.commands import main

CONF = """ClusterName=mini
SlurmctldHost=ctl
SlurmUser=slurm   # not root
SlurmctldLogFile=/var/log/slurmctld.log
StateSaveLocation=/var/spool/slurmctld
JobSubmitPlugins=lua
NodeName=gpu[01-02] CPUs=8 State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES
"""
SLURM_UID = 64031
HOOKS = ("prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "healthcheck")
FOLDER, SPOOL, TASKS = "/etc/faultline/slurm", "/var/spool/faultline/hooks", "/var/spool/faultline/task-hooks"


class MadeSlurm:
    """``daemons``: what runs; their files lie below ``root``."""

    def __init__(self, root: Path, conf: str = CONF, daemons: Sequence[str] = ("slurmctld", "slurmd")) -> None:
        self._live_at(root)
        self.put("/etc/passwd", f"root:x:0:0::/:\nslurm:x:{SLURM_UID}:{SLURM_UID}::/:\nalice:x:20001:20001::/:\n")
        self.put("/etc/group", "root:x:0:\n")
        self.put("/etc/slurm/slurm.conf", conf)
        for tool in ("sh", "tr", "awk", "date", "mv", "du", "cat", "rm"):
            self.put(f"/bin/{tool}", "")
        self.put("/etc/faultline/agent.toml", 'server = "http://127.0.0.1:8514"\nspool = "/agent"\n')
        (root / "agent").mkdir()
        for pid, name in enumerate(daemons, 101):
            self.runs(name, pid)
        self._held: list[int] = []

    def _live_at(self, root: Path) -> None:
        self.root, self.host = root, Host(root, {})
        for folder in (root, *root.parents):  # its users pass
            if folder.name.startswith(("pytest-", "popen-")) or folder == root:
                folder.chmod(folder.stat().st_mode | 0o755)

    def copied(self, root: Path) -> MadeSlurm:
        """The same host in another folder, owners included; no agent runs there."""
        subprocess.run(["cp", "-a", f"{self.root}/.", str(root)], check=True)
        made = copy(self)
        made._live_at(root)
        made._held = []
        return made

    def put(self, name: str, text: str) -> Path:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def runs(self, name: str, pid: int, *arguments: str) -> None:
        self.put(f"/proc/{pid}/comm", f"{name}\n")
        self.put(f"/proc/{pid}/cmdline", "\0".join([name, *arguments]) + "\0")

    def agent(self, state: str = "ok", detail: str = "") -> None:
        """An agent that runs, and reads the spools where ``state`` is ok."""
        self.end_agent()
        sources = [{"name": "hooks", "state": state, "detail": detail}]
        (self.root / "agent/status.json").write_text(json.dumps({"sources": sources}))
        locks = [self.root / "agent/lock", *(self.path(s) / ".reader" for s in (SPOOL, TASKS) if state == "ok")]
        for path in locks:
            if path.parent.is_dir():
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._held.append(handle)

    def end_agent(self) -> None:
        for handle in self._held:
            os.close(handle)
        self._held.clear()

    def slurm(self, verb: str, *arguments: str) -> int:
        return main([verb, "--root", str(self.root), *arguments])

    def tree(self) -> dict[str, tuple[int, int, int, bytes]]:
        """All files and folders: mode, owner and content."""
        found = {}
        for path in sorted(
            p for top in ("etc", "var") for p in (self.root / top).rglob("*") if (self.root / top).exists()
        ):
            about = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[str(path.relative_to(self.root))] = (about.st_mode, about.st_uid, about.st_gid, content)
        return found
