"""The agent's configuration (TOML). Every key but ``server`` has a default; an unknown one is an error.

server = "https://faultline.cluster:8514"
token_file = "/etc/faultline/agent.token"
controller = true                      # also read what only slurmctld's host knows

[sources.files]
paths = ["/var/log/syslog", "/var/log/slurm/*.log", "/opt/app/log/*.txt"]
[sources.nvml]
enabled = false

[node_names]                           # where a container's host has another name than Slurm's node
aks-gpu-vmss000001 = "gpu001"
"""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from collector.agent.failure import AgentError
from collector.agent.gate.keeper import LOG, MODES
from collector.agent.instance import CLOUDS
from collector.agent.instance import bearer as instance_token
from collector.agent.source import SourceKind
from collector.agent.sources import BUILT_IN, kinds

DEFAULT_CONFIG = Path("/etc/faultline/agent.toml")
DEFAULT_SPOOL = "/var/lib/faultline-agent"


@dataclass(frozen=True)
class Config:
    """The agent's settings.

    ``enrol``: the cloud whose metadata service says which machine this is, instead of a token ("azure" or "aws").
    ``spool_mb`` and ``memory_mb`` are caps. ``spool_wait``: above this share of ``spool_mb``, files and journal are not
    read until there is room; 1 reads on and drops the oldest. ``nice`` is added to the process's niceness; ``cpus``
    pins it (empty: any CPU). ``flush_s``: the longest time a line waits for others. ``last_gasp_s``: time to deliver
    the rest after SIGTERM. ``gate``: what prologs that ask are answered (``collector.agent.gate.keeper``): "log" keeps an
    answer, "drain" also asks the service for the right to refuse jobs, "off" keeps none. ``host``: none is the variable
    FAULTLINE_HOST (a pod's ``spec.nodeName``), and without it the short host name; ``node_names`` makes it Slurm's name.
    """

    server: str
    token: str = ""
    token_file: str = ""
    enrol: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    agent: str = ""
    host: str = ""
    cluster: str = ""
    timezone: str = ""
    spool: str = DEFAULT_SPOOL
    spool_mb: float = 512.0
    spool_wait: float = 0.75
    memory_mb: float = 96.0
    nice: int = 10
    cpus: tuple[int, ...] = ()
    flush_s: float = 1.0
    last_gasp_s: float = 5.0
    controller: bool = False
    gate: str = LOG
    plugins: tuple[str, ...] = ()
    node_names: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    where: str = ""

    def bearer(self) -> str:
        """The token, read from its file if one is named; "" for an instance that is not enrolled yet. Raises
        ``AgentError``."""
        if self.enrol:
            return instance_token(Path(self.spool))
        if not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AgentError(f"{self.where}: token_file {self.token_file}: cannot be read: {error}") from error

    def enabled(self) -> dict[str, tuple[SourceKind, dict[str, Any]]]:
        """The sources that run here, with all their options. Raises ``AgentError`` that names the key."""
        wanted = [n for n in BUILT_IN if self.sources.get(n, {}).get("enabled") is not False]
        found: dict[str, tuple[SourceKind, dict[str, Any]]] = {}
        for name, kind in kinds(self.plugins, wanted).items():
            given = self.sources.get(name, {})
            asked = given.get("enabled", kind.role == "node" or self.controller)
            if asked:
                found[name] = (kind, _options(kind, given, self.where))
        unknown = sorted(set(self.sources) - set(BUILT_IN) - set(found))
        if unknown:
            raise AgentError(f"{self.where}: sources.{unknown[0]}: unknown; known are {', '.join(BUILT_IN)}")
        return found


def load(path: Path) -> Config:
    """Reads a configuration. Raises ``AgentError`` with file, key and reason."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AgentError(
            f"{path}: cannot be read: {error.strerror}; 'faultline agent enroll --server URL --token T' writes one"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AgentError(f"{path}: not TOML: {error}") from error
    return validate(values, str(path))


def validate(values: Mapping[str, Any], where: str) -> Config:
    """A checked configuration from plain values."""
    given = dict(values)
    known = {f.name: f for f in fields(Config) if f.name != "where"}
    for key, value in given.items():
        if key not in known:
            raise AgentError(f"{where}: {key}: unknown key; known are {', '.join(known)}")
        _typed(where, key, value, {"server": ""}.get(key, known[key].default))
    for name, options in given.get("sources", {}).items():
        if not isinstance(options, dict):
            raise AgentError(f"{where}: sources.{name}: must be a table, such as [sources.{name}]")
    if "server" not in given:
        raise AgentError(f"{where}: server: missing; give the service's address, such as https://faultline:8514")
    url = urlsplit(given["server"])
    if url.scheme not in ("http", "https") or not url.hostname:
        raise AgentError(f"{where}: server: {given['server']!r} is no http:// or https:// address")
    for key in ("cpus", "plugins"):
        given[key] = tuple(given.get(key, ()))
    host = _slurm_name(given, where)
    given["host"], given["agent"] = host, given.get("agent") or host
    given["timezone"] = given.get("timezone") or local_zone()
    if not re.fullmatch(r"[A-Za-z0-9._:@%+-]{1,128}", given["agent"]):
        raise AgentError(f"{where}: agent: {given['agent']!r} must be 1 to 128 of A-Z a-z 0-9 . _ : @ % + -")
    config = Config(**given, where=where)
    for key in ("spool_mb", "memory_mb", "flush_s", "last_gasp_s"):
        if getattr(config, key) <= 0:
            raise AgentError(f"{where}: {key}: must be above 0")
    if not 0 < config.spool_wait <= 1:
        raise AgentError(f"{where}: spool_wait: must be above 0 and at most 1")
    if config.enrol and (config.enrol not in CLOUDS or config.token or config.token_file):
        clouds = ", ".join(CLOUDS)
        raise AgentError(f"{where}: enrol: must be one of {clouds}, and then there is no token or token_file")
    if config.enrol and url.scheme != "https" and url.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise AgentError(f"{where}: enrol: needs an https:// address: whoever is in between could enrol in its place")
    if config.gate not in MODES:
        raise AgentError(f"{where}: gate: {config.gate!r} is unknown; there are {', '.join(MODES)}")
    config.enabled()
    return config


def _slurm_name(given: Mapping[str, Any], where: str) -> str:
    """The node's name in Slurm. Two nodes with one name would be blamed for each other's faults: that is refused."""
    names = given.get("node_names", {})
    for name, node in names.items():
        if not isinstance(node, str) or not node:
            raise AgentError(f"{where}: node_names.{name}: {node!r} is not the name of a node")
    twice = sorted(node for node, count in Counter(names.values()).items() if count > 1)
    if twice:
        raise AgentError(f"{where}: node_names: {twice[0]} is the name of more than one node")
    host = given.get("host") or os.environ.get("FAULTLINE_HOST", "") or socket.gethostname()
    return str(names.get(host) or names.get(host.split(".")[0]) or (given.get("host") or host.split(".")[0]))


def _typed(where: str, key: str, value: Any, default: Any) -> None:
    """Refuses a value whose type differs from its default's (a dataclass factory as ``default`` means a table)."""
    expected = type(default)
    if expected in (tuple, list):
        ok, shown = isinstance(value, list), "a list"
        item = int if key == "cpus" else str
        ok = ok and all(isinstance(x, item) and not isinstance(x, bool) for x in value)
    elif expected is bool:
        ok, shown = isinstance(value, bool), "true or false"
    elif expected in (int, float):
        ok = isinstance(value, int if expected is int else (int, float)) and not isinstance(value, bool)
        shown = "a whole number" if expected is int else "a number"
    elif expected is str:
        ok, shown = isinstance(value, str), "a text"
    else:
        ok, shown = isinstance(value, dict), "a table"
    if not ok:
        raise AgentError(f"{where}: {key}: {value!r} is not {shown}")


def _options(kind: SourceKind, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    options = dict(kind.options)
    for key, value in given.items():
        if key == "enabled":
            _typed(where, f"sources.{kind.name}.enabled", value, True)
        elif key not in options:
            known = ", ".join(["enabled", *options])
            raise AgentError(f"{where}: sources.{kind.name}.{key}: unknown option; known are {known}")
        else:
            _typed(where, f"sources.{kind.name}.{key}", value, kind.options[key])
            options[key] = value
    return options


def local_zone(root: Path = Path("/")) -> str:
    """The host's IANA zone, from TZ, /etc/timezone or the target of /etc/localtime; UTC if none names one."""
    named = os.environ.get("TZ", "").lstrip(":")
    if "/" in named and not named.startswith("/"):
        return named
    try:
        text = (root / "etc/timezone").read_text(encoding="ascii").strip()
        if text:
            return text
    except (OSError, UnicodeDecodeError):
        pass
    try:
        target = str((root / "etc/localtime").readlink())
    except OSError:
        return "UTC"
    return target.partition("zoneinfo/")[2] or "UTC"
