"""Nodes of a running Slurm: read, drained, resumed. ``Nodes`` is all that the advisor knows of Slurm.

``scontrol`` is called with an argument vector, never by a shell. A hostlist as a node's name (``gpu[01-99]``) would mean many
nodes, so a name is only passed on if it is one node's.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from faultline import programs
from parsers.node_states import NodeState, node_state

#: How long ``scontrol`` may take, in seconds. slurmctld answers within MessageTimeout (10 s by default), or not at all.
TIMEOUT_S = 20.0
#: Slurm stores longer reasons, but sinfo and people cut them.
LONGEST_REASON = 200

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_FIELD = {name: re.compile(rf"(?:^|\s){name}=(\S*)") for name in ("NodeName", "State", "Partitions")}
#: ``Reason=bad cable [dora@2026-03-01T12:00:00]``; a reason may contain brackets, so the stamp is the last one.
_REASON = re.compile(r"\sReason=(?P<reason>.*) \[(?P<stamp>[^\[\]\s@]+@\d{4}-\d\d-\d\dT[\d:]+)\](?:\s|$)")
_UNFIT_FOR_TEXT = re.compile(r"[^A-Za-z0-9 _.,:/()+-]+")


class SlurmError(Exception):
    """Slurm did not do what it was asked, or did not say; the text says which and why."""


@dataclass(frozen=True)
class SlurmNode:
    """A node as slurmctld has it. ``stamp``: who set the reason and when (``dora@2026-03-01T12:00:00``, UTC), "" if there is
    no reason."""

    name: str
    state: str
    partitions: tuple[str, ...] = ()
    reason: str = ""
    stamp: str = ""

    @property
    def read(self) -> NodeState:
        """Its state, understood."""
        return node_state(self.state)

    @property
    def set_at(self) -> str:
        """When the reason was set, as Slurm wrote it; "" if there is none."""
        return self.stamp.rpartition("@")[2]

    @property
    def serves(self) -> bool:
        """It can run jobs; one that saves power starts when a job needs it."""
        state = self.read
        if state.is_in_maintenance or state.is_broken or state.is_draining:
            return False
        return state.is_up or not (state.is_powered or state.is_silent)


class Nodes(Protocol):
    """Slurm's nodes. Everything raises ``SlurmError``."""

    def all(self) -> Mapping[str, SlurmNode]:
        """Every node, by name."""

    def one(self, name: str) -> SlurmNode:
        """A node, as it is now."""

    def drain(self, name: str, reason: str) -> None:
        """Keeps new jobs away from a node; running ones go on."""

    def resume(self, name: str) -> None:
        """Gives a node back to jobs."""


def plain(text: str) -> str:
    """A reason that Slurm's texts can hold: one line of plain characters, at most ``LONGEST_REASON``."""
    return " ".join(_UNFIT_FOR_TEXT.sub(" ", text).split())[:LONGEST_REASON].rstrip()


def called(
    argv: Sequence[str], timeout_s: float, stdin: bytes = b"", ended: threading.Event | None = None
) -> tuple[int, str]:
    """Exit code and output of a program that was given ``stdin``. All of its processes are killed at the time limit, or when
    ``ended`` is set.

    Raises ``subprocess.TimeoutExpired``, ``OSError`` and ``ServiceEndsError``.
    """
    environ = {name: value for name, value in os.environ.items() if name != "SLURM_TIME_FORMAT"}
    environ |= {"TZ": "UTC", "LC_ALL": "C.UTF-8"}
    code, output, _ = programs.finished(argv, timeout_s, stdin, ended=ended, env=environ)
    return code, output


class Scontrol:
    """Slurm's nodes by ``scontrol``, as the user of the service: Slurm must let it (``SlurmUser``, root, or an operator)."""

    def __init__(self, program: str, timeout_s: float = TIMEOUT_S, ended: threading.Event | None = None) -> None:
        self._program, self._timeout_s, self._ended = program, timeout_s, ended

    def all(self) -> Mapping[str, SlurmNode]:
        found = read_nodes(self._output_of("--oneliner", "show", "node"))
        if not found:
            raise SlurmError(f"{self._program} show node names no node")
        return found

    def one(self, name: str) -> SlurmNode:
        found = read_nodes(self._output_of("--oneliner", "show", "node", _checked(name)))
        if name not in found:
            raise SlurmError(f"{self._program} show node {name} does not say what it is")
        return found[name]

    def drain(self, name: str, reason: str) -> None:
        self._output_of("update", f"NodeName={_checked(name)}", "State=DRAIN", f"Reason={plain(reason)}")

    def resume(self, name: str) -> None:
        self._output_of("update", f"NodeName={_checked(name)}", "State=RESUME")

    def _output_of(self, *words: str) -> str:
        try:
            code, output = called([self._program, *words], self._timeout_s, ended=self._ended)
        except subprocess.TimeoutExpired as error:
            raise SlurmError(f"{self._program} {words[0]}: no answer within {self._timeout_s:g} s") from error
        except programs.ServiceEndsError as error:
            raise SlurmError(f"{self._program} {words[0]}: {error}") from error
        except OSError as error:
            raise SlurmError(f"{self._program}: {error.strerror}") from error
        if code:
            raise SlurmError(f"{self._program} {words[0]}: {' '.join(output.split())[:200] or f'exit code {code}'}")
        return output


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SlurmError(f"{name[:60]!r} is not the name of one node")
    return name


def read_nodes(text: str) -> dict[str, SlurmNode]:
    """The nodes in the output of ``scontrol --oneliner show node``."""
    found = {}
    for line in text.splitlines():
        name, state, partitions = (pattern.search(line) for pattern in _FIELD.values())
        if name is None or state is None:
            continue
        reason = _REASON.search(line)
        found[name[1]] = SlurmNode(
            name[1], state[1], tuple(part for part in (partitions[1] if partitions else "").split(",") if part),
            reason["reason"] if reason else "", reason["stamp"] if reason else "",
        )  # fmt: skip
    return found


__all__ = ["Nodes", "Scontrol", "SlurmError", "SlurmNode", "called", "plain", "read_nodes"]
