"""The states of Slurm's nodes: the only list of them.

Slurm keeps one base state and some flags (``slurm.h``: ``enum node_states``, ``NODE_STATE_FLAGS``). The names are those
of Slurm's development branch (commit 0008e61) and those of 22.05 that it no longer has. Slurm writes them in three
notations (``src/common/slurm_protocol_defs.c``; sinfo(1), "NODE STATE CODES"):

- scontrol and slurmrestd list the base state and every flag: ``IDLE+DRAIN+NOT_RESPONDING``. Before 21.08, ``*`` was the
  last flag.
- sinfo (``%T``) prints one word and one suffix: ``drained*``. The word may combine a base state and a flag:
  ``drained``, ``failing``.
- sinfo (``%t``) prints a compact word: ``drng``.

Parsers keep the text as Slurm wrote it. Facts, queries and pages interpret it with :func:`node_state`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

BASE_STATES = frozenset({"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"})

#: The state of a node on which jobs run, for one of which Slurm reports none.
RUNS_JOBS = "ALLOCATED"

#: The flags of a node that saves power: it is off, about to be switched off, or starting.
POWER_FLAGS = frozenset({"POWER_DOWN", "POWERED_DOWN", "POWERING_DOWN", "POWER_UP", "POWERING_UP", "POWER_DRAIN"})
FLAGS = POWER_FLAGS | {
    "BLOCKED", "CLOUD", "COMPLETING", "DRAIN", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "EXTERNAL", "FAIL", "INVALID_REG", "MAINTENANCE",
    "NOT_RESPONDING", "PERFCTRS", "PLANNED", "REBOOT_CANCELED", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "RESUME", "UNDRAIN",
}  # fmt: skip

#: The meaning of the character after a state.
SUFFIXES = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN", "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED", "+": "COMPLETING",
}  # fmt: skip

#: Other words for a state: sinfo's, their compact forms, and older versions'.
_OTHER_WORDS = {
    "ALLOC": "ALLOCATED", "BLOCK": "BLOCKED", "BOOT": "REBOOT_ISSUED", "CANCEL_REBOOT": "REBOOT_CANCELED", "COMP": "COMPLETING",
    "DRAINED": "DRAIN", "DRAINING": "DRAIN", "DRNG": "DRAIN", "FAILG": "FAIL", "FAILING": "FAIL", "FUTR": "FUTURE",
    "INVAL": "INVALID_REG", "MAINT": "MAINTENANCE", "MIX": "MIXED", "NO_RESPOND": "NOT_RESPONDING", "NPC": "PERFCTRS",
    "PLND": "PLANNED", "POW_DN": "POWERED_DOWN", "POW_UP": "POWERING_UP", "REBOOT": "REBOOT_REQUESTED", "RESV": "RESERVED",
    "UNK": "UNKNOWN",
}  # fmt: skip
#: Every word that Slurm writes for a state, in upper case, and the base state or flag that it denotes.
WORDS = {name: name for name in BASE_STATES | FLAGS} | _OTHER_WORDS

#: The node does not answer, takes no jobs, or soon will not. A node whose state Slurm does not know is not up either.
_NOT_UP = frozenset({
    "DOWN", "UNKNOWN", "FUTURE", "DYNAMIC_FUTURE", "DRAIN", "FAIL", "NOT_RESPONDING", "POWER_DOWN", "POWERED_DOWN", "POWERING_DOWN",
    "POWER_DRAIN", "REBOOT_REQUESTED", "REBOOT_ISSUED",
})  # fmt: skip

_WORD = re.compile(r"[A-Z_]+")


@dataclass(frozen=True)
class NodeState:
    """A node's state according to Slurm. ``base`` is None if the text has flags only, as ``drained*`` does."""

    base: str | None
    flags: frozenset[str]

    @property
    def is_down(self) -> bool:
        """Slurm gave the node up. A node that Slurm switched off to save power is not DOWN."""
        return self.base == "DOWN"

    @property
    def is_draining(self) -> bool:
        """It takes no new jobs, or none runs on it any more."""
        return "DRAIN" in self.flags

    @property
    def is_silent(self) -> bool:
        """It did not answer slurmctld's last ping."""
        return "NOT_RESPONDING" in self.flags

    @property
    def is_in_maintenance(self) -> bool:
        """A reservation for maintenance holds it."""
        return "MAINTENANCE" in self.flags

    @property
    def is_rebooting(self) -> bool:
        """A reboot was asked for, or is under way."""
        return not self.flags.isdisjoint({"REBOOT_ISSUED", "REBOOT_REQUESTED"})

    @property
    def is_powered(self) -> bool:
        """Slurm's power saving has nothing to do with its state."""
        return self.flags.isdisjoint(POWER_FLAGS)

    @property
    def is_busy(self) -> bool:
        """It runs a job, or cleans up behind one."""
        return self.base in ("ALLOCATED", "MIXED") or (self.base is None and "COMPLETING" in self.flags)

    @property
    def is_up(self) -> bool:
        """It answers, and nothing known to Slurm keeps it from running jobs."""
        return self.base not in _NOT_UP and self.flags.isdisjoint(_NOT_UP)

    @property
    def is_broken(self) -> bool:
        """DOWN, in error, expected to fail, or registered with other hardware than configured."""
        return self.is_down or self.base == "ERROR" or not self.flags.isdisjoint({"FAIL", "INVALID_REG"})


@lru_cache(maxsize=4096)
def node_state(text: str) -> NodeState:
    """The state in a text of Slurm, in any of its three notations and any case. Unknown words are ignored."""
    upper = text.strip().upper()
    words = [WORDS[word] for word in _WORD.findall(upper) if word in WORDS]
    flags = {word for word in words if word in FLAGS}
    flags.update(flag for mark, flag in SUFFIXES.items() if mark not in "+-" and mark in upper)
    if upper[-1:] in ("+", "-"):  # inside a text, a plus joins words
        flags.add(SUFFIXES[upper[-1]])
    return NodeState(next((word for word in words if word in BASE_STATES), None), frozenset(flags))


def pattern_of(names: Iterable[str]) -> str:
    """A regular expression (RE2, case-insensitive) for texts that contain one of these base states or flags as a word.
    Suffixes are ignored."""
    wanted = frozenset(names)
    words = sorted((word for word, name in WORDS.items() if name in wanted), key=lambda word: (-len(word), word))
    return rf"(?i)(^|[^A-Z_])({'|'.join(words)})($|[^A-Z_])"


#: What a state says of the node's service, by precedence: the base states and flags of which one says so, and those of
#: which none may be there.
_KINDS: tuple[tuple[str, frozenset[str], frozenset[str]], ...] = tuple(
    (kind, frozenset(names), frozenset(unless))
    for kind, names, unless in (
        ("down", {"DOWN", "ERROR"}, ()), ("failed", {"FAIL", "INVALID_REG"}, ()), ("silent", {"NOT_RESPONDING"}, ()),
        ("drain", {"DRAIN", "MAINTENANCE", "REBOOT_ISSUED", "REBOOT_REQUESTED"}, ()), ("off", POWER_FLAGS, ()),
        ("busy", {"ALLOCATED", "MIXED"}, ()), ("idle", {"IDLE"}, ()),
        ("busy", {"COMPLETING"}, {"UNKNOWN", "FUTURE"}),
        ("up", {"RESERVED"}, ()),  # sinfo shows a reservation in place of the state
    )
)  # fmt: skip
#: Slurm's log says only that a node is back.
_BACK = ("up", r"(?i)^\s*up\s*$")


@lru_cache(maxsize=4096)
def kind_of_state(text: str) -> str:
    """What a node's state says of its service: down, failed (FAIL, or registered with other hardware than configured),
    silent, drain (in maintenance or to be restarted as well), off (to save power), busy, idle, up or unknown."""
    state = node_state(text)
    names = state.flags | {state.base}
    found = (kind for kind, some, unless in _KINDS if not names.isdisjoint(some) and names.isdisjoint(unless))
    return next(found, _BACK[0] if re.match(_BACK[1], text) else "unknown")


def kind_patterns() -> list[tuple[str, str, str]]:
    """``kind_of_state`` as regular expressions (RE2): (kind, pattern, a pattern that must not match or ""); the first that
    fits decides, and without one the kind is unknown."""
    return [(kind, _pattern(some), _pattern(unless) if unless else "") for kind, some, unless in _KINDS] + [
        (*_BACK, "")
    ]


def _pattern(names: frozenset[str]) -> str:
    """``pattern_of`` with suffixes; a plus joins words inside a text."""
    marks = [mark for mark, flag in SUFFIXES.items() if flag in names]
    anywhere = re.escape("".join(mark for mark in marks if mark not in "+-"))
    last = [rf"[{re.escape(mark)}]\s*$" for mark in marks if mark in "+-"]
    return "|".join([pattern_of(names), *([f"[{anywhere}]"] if anywhere else []), *last])
