"""The site's Slurm configuration: slurm.conf, topology.conf and the running configuration of slurmctld."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Context, Reading, SourceKind

_FOLDERS = ("/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc", "/opt/slurm/etc", "/sched")
_DOCUMENTS = {"slurm.conf": "slurm_conf", "topology.conf": "topology_conf"}
#: JobCompPass, AccountingStoragePass, AuthInfo's keys: nothing that the service needs.
_SECRET = re.compile(r"(?im)^(\s*\w*(?:Pass|Secret|Token)\w*\s*=\s*).*$")
#: The first lines of ``scontrol show config`` carry the time of the request.
_ASKED_AT = re.compile(r"(?m)^(?:Configuration data as of|BOOT_TIME|NEXT_JOB_ID).*$")


@dataclass
class SlurmConf:
    context: Context
    folder: str
    scontrol: str
    interval: float
    _sent: dict[str, int] = field(default_factory=dict)

    def open(self, positions: Mapping[str, Any]) -> None:
        self._sent = dict((positions.get("slurm_conf") or {}).get("sent", {}))

    def poll(self) -> Iterator[Reading]:
        found = self._texts()
        if not found:
            raise Missing(f"no slurm.conf in {', '.join(self._folders())}, and no {self.scontrol}")
        now = self.context.now()
        body = b""
        count = 0
        for (kind, path), text in found.items():
            text = _SECRET.sub(r"\1(not sent)", text)
            checksum = zlib.crc32(_ASKED_AT.sub("", text).encode())
            if self._sent.get(path) != checksum:
                self._sent[path] = checksum
                body += wire.document(kind, text, "slurm_conf", now, path=path, timezone="UTC")
                count += 1
        if body:
            yield Reading(body, count, {"slurm_conf": {"sent": dict(self._sent)}})

    def _folders(self) -> list[str]:
        if self.folder:
            return [self.folder]
        named = os.environ.get("SLURM_CONF", "")
        return [str(Path(named).parent)] * bool(named) + list(_FOLDERS)

    def _texts(self) -> dict[tuple[str, str], str]:
        found: dict[tuple[str, str], str] = {}
        for folder in self._folders():
            for name, kind in _DOCUMENTS.items():
                text = self.context.text(f"{folder}/{name}")
                if text:
                    found[kind, f"{folder}/{name}"] = text + "\n"
            if found:
                break
        with contextlib.suppress(Missing, OSError, TimeoutError):  # the files hold nearly the same
            found["scontrol_config", "scontrol show config"] = self.context.answer([self.scontrol, "show", "config"])
        return found

    def close(self) -> None:
        """Nothing is held open."""


def _make(context: Context, options: Mapping[str, Any]) -> SlurmConf:
    return SlurmConf(context, options["folder"], options["scontrol"], options["every_s"])


SOURCE = SourceKind(
    "slurm_conf", _make, {"folder": "", "scontrol": "scontrol", "every_s": 300.0},
    reads="slurm.conf, topology.conf and scontrol show config, when they change; passwords are removed",
    costs="two files and one scontrol every 5 min",
    blind_to="files that slurm.conf includes, except through scontrol; changes that were not reconfigured yet",
    role="controller",
)  # fmt: skip
