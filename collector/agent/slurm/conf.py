"""slurm.conf as Slurm reads it: names without regard to case, several settings on a line, comments, continued lines,
included files. Each setting knows the file and line that set it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from collector.agent.slurm.host import Host

#: How deep included files may include others.
MOST_DEEP = 10
_SETTING = re.compile(r'([A-Za-z]\w*)\s*[-+*/]?=\s*("[^"]*"|\S+)')
_INCLUDE = re.compile(r"\s*include\s+(\S+)", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#.*$")
#: Lines about nodes and partitions: their settings are not the cluster's.
_LISTS = ("nodename", "partitionname", "downnodes", "frontendname", "nodeset")
#: Slurm's words for "not set".
_NOTHING = ("", "(null)", "none", "n/a")


@dataclass(frozen=True, slots=True)
class Setting:
    """``file`` and ``line``: where it stands, as the host calls the file."""

    value: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass
class SlurmConf:
    """``path``: as the host calls it. ``missing``: included files that cannot be read."""

    path: str
    settings: dict[str, Setting] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def get(self, name: str, default: str = "") -> str:
        found = self.settings.get(name.lower())
        return default if found is None or found.value.lower() in _NOTHING else found.value

    def at(self, name: str) -> Setting | None:
        """Where a setting stands; None where it is not set."""
        return self.settings.get(name.lower()) if self.get(name) else None


def read(host: Host, path: str) -> SlurmConf | None:
    """Reads slurm.conf and what it includes; None if the file itself cannot be read."""
    conf = SlurmConf(path)
    return conf if _read(host, path, conf, 0) else None


def _read(host: Host, path: str, conf: SlurmConf, depth: int) -> bool:
    text = host.text(path)
    if text is None:
        return False
    for number, line in _lines(text):
        included = _INCLUDE.match(line)
        if included:
            name = str(PurePosixPath(conf.path).parent / included[1])
            if depth >= MOST_DEEP or not _read(host, name, conf, depth + 1):
                conf.missing.append(name)
            continue
        found = _SETTING.findall(line)
        if not found or found[0][0].lower() in _LISTS:
            continue
        for name, value in found:  # set twice: Slurm takes the last one
            conf.settings[name.lower()] = Setting(value.strip('"'), path, number)
    return True


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continued ones joined; with the number of their first line."""
    begun, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", raw).rstrip()
        first = first or number
        if line.endswith("\\"):
            begun += line[:-1]
            continue
        yield first, begun + line
        begun, first = "", 0
    if begun:
        yield first, begun


def folder_of(conf: SlurmConf) -> Path:
    return Path(conf.path).parent
