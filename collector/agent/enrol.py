"""``faultline agent enroll``: checks that the service accepts this host, then writes configuration and token."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from collector.agent import wire
from collector.agent.config import DEFAULT_SPOOL, validate
from collector.agent.failure import AgentError
from collector.agent.sender import Answer, Connection

_TEMPLATE = """\
# Written by "faultline agent enroll". All keys: docs/agent.md.
server = {server}
{token}{enrol}{tls}{cluster}spool = {spool}
controller = {controller}

# Sources are on by themselves; one that finds nothing here says so in "faultline agent status". To change one:
# [sources.files]
# paths = ["/var/log/syslog", "/var/log/slurm/*.log"]
# [sources.nvml]
# enabled = false
"""


def enroll(
    *, config: Path, server: str, token: str, ca: str = "", cert: str = "", key: str = "", cluster: str = "",
    controller: bool = False, spool: str = "", ask: bool = True, force: bool = False, instance: str = "",
) -> Iterator[str]:  # fmt: skip
    """Yields what was done, one line at a time. Raises ``AgentError`` before anything is written. ``instance``: the cloud
    that says which machine this is ("azure", "aws"); the agent then enrols by itself."""
    if config.exists() and not force:
        raise AgentError(f"{config}: exists already; --force replaces it")
    values = {"server": server, "ca": ca, "cert": cert, "key": key, "cluster": cluster, "controller": controller}
    if instance:
        if token:
            raise AgentError("--instance and --token exclude each other")
        values["enrol"], ask = instance, False
    checked = validate(values, "command line")
    if ask:
        answer = _hello(Connection(server, lambda: token, ca, cert, key, timeout=10.0), checked.agent, checked.host)
        if answer.code != 200:
            raise AgentError(_refusal(server, answer))
        yield f"{server} accepts {checked.host}"
    token_file = config.with_suffix(".token")
    text = _TEMPLATE.format(
        server=_toml(server), token=f"token_file = {_toml(str(token_file))}\n" if token else "",
        enrol=f"enrol = {_toml(instance)}\n" if instance else "",
        tls="".join(f"{n} = {_toml(v)}\n" for n, v in (("ca", ca), ("cert", cert), ("key", key)) if v),
        cluster=f"cluster = {_toml(cluster)}\n" if cluster else "", spool=_toml(spool or DEFAULT_SPOOL),
        controller="true" if controller else "false",
    )  # fmt: skip
    try:
        config.parent.mkdir(parents=True, exist_ok=True)
        if token:
            _write(token_file, token + "\n", 0o600)
            yield f"{token_file}: the token, readable by its owner only"
        _write(config, text, 0o644)
    except OSError as error:
        raise AgentError(f"{error.filename or config}: cannot be written: {error.strerror}") from error
    yield f"{config}: written; start the agent with 'systemctl enable --now faultline-agent'"


def _hello(connection: Connection, agent: str, host: str) -> Answer:
    """Sends a status record: it proves address, certificate and token, and registers the host."""
    status = {"version": "enrolled", "sources": []}
    body = wire.defaults({"agent": agent, "host": host}) + wire.record(status=status, stream="agent")
    try:
        return connection.request("POST", "/api/v1/ingest", body, {"Content-Type": "application/x-ndjson"})
    finally:
        connection.close()


def _refusal(server: str, answer: Answer) -> str:
    if answer.code in (401, 403):
        return f"{server} refuses this token (HTTP {answer.code}: {answer.detail}); ask its administrator for one"
    if answer.code == 0:
        return f"{answer.detail}; is the service running, and is --ca right? (--image writes without asking)"
    return f"{server} answers HTTP {answer.code}: {answer.detail}; is it a Faultline service?"


def _write(path: Path, text: str, mode: int) -> None:
    new = path.with_name(path.name + ".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    new.replace(path)


def _toml(text: str) -> str:
    """A string in TOML syntax. Raises ``AgentError`` for one that no TOML file can hold.

    Written with the standard library: a node needs no package for the agent, tomli-w neither. JSON's escapes are TOML's,
    with two exceptions: TOML has no surrogate pairs (so no character is escaped for its number), and DEL must be escaped.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AgentError(f"{text!a}: is not UTF-8, and the configuration must be") from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
