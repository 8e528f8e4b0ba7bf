"""What is concluded about the end of one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from correlator.evidence.chains import Chain, Rejection
from correlator.model.nouns import Event, Fact, Run


def quoted(event: Event) -> str:
    """The text of a line for a sentence, cut where it is long."""
    return event.message if len(event.message) <= 120 else event.message[:117] + "..."


class Explanation(NamedTuple):
    """Why a run ended, by its own lines and accounting's: no cause in the infrastructure is in it. ``sure``: 0 to 1."""

    category: str
    reason: str
    events: list[Event]
    sure: float


class Unproven(NamedTuple):
    """What is missing in the evidence of a cause.

    ``at_most`` is the highest confidence. The lines are in ``place``; ``host`` is the host that they claim to be from
    (None: none). ``why`` says what speaks against them, for people.
    """

    at_most: float
    place: str
    host: str | None
    why: str

    @property
    def doubt(self) -> str:
        """The doubt in a verdict that rests on the cause."""
        return f"Only lines in {self.place}, {self._writers}, tell of the cause; {self.why}. {self._check}"

    @property
    def outweighed(self) -> str:
        """The doubt in a verdict that another explanation carries."""
        return (
            f"Lines in {self.place}, {self._writers}, tell of another cause; {self.why}. "
            f"They count for nothing against an explanation that is as sure. {self._check}"
        )

    @property
    def _writers(self) -> str:
        return f"where anybody on {self.host} can write"

    @property
    def _check(self) -> str:
        return "The node's journalctl -k or dmesg shows whether its kernel wrote them"


class Denied(NamedTuple):
    """A line that does not count: another file shows that it is not the kernel's, nothing shows its sender, or users can
    have written it. ``claim``: what it claims, for people, as "gpu.xid (0000:41:00 of gpu03, 18:58:03.791 UTC)"; ``why``
    likewise; ``users``: those who can."""

    event: Event
    claim: str
    why: str
    users: frozenset[str] = frozenset()


class Missing(NamedTuple):
    """A witness of a cause or an effect that was not collected.

    ``places`` are the names of its sources (``gather.collected.place``); none if no source names it.
    """

    words: str
    places: frozenset[str] = frozenset()


@dataclass
class Verdict:
    """``category`` and, for infrastructure, the chain and its root.

    ``confidence`` is 0..1. ``at_most`` limits it after calibration, which does not know what was collected of this
    run's nodes. ``explained``: more is known than how the run ended (an exit code, a time limit). ``denied``: lines in
    the name of one of its nodes that do not count.
    ``missing``: the witnesses of its chain that were not collected. ``against``: what denies its root.
    ``left_open``: the first of ``others`` would be the cause, but for a source that is absent.
    ``unlogged``: the explanation is the run's own, and no log of most of its nodes could contradict it.
    ``ended_with``: the other part of its heterogeneous job that failed, with which Slurm ended it.
    ``unstarted``: what kept its program from starting; empty if it started. ``headline`` and ``advice`` replace the
    category's.
    """

    run: Run
    end: Fact
    category: str
    confidence: float
    chain: Chain | None = None
    others: list[Chain] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    own: list[Event] = field(default_factory=list)
    reason: str = ""
    doubts: list[str] = field(default_factory=list)
    at_most: float = 1.0
    explained: bool = False
    denied: list[Denied] = field(default_factory=list)
    missing: tuple[Missing, ...] = ()
    against: str = ""
    left_open: bool = False
    unlogged: bool = False
    ended_with: Run | None = None
    unstarted: str = ""
    headline: str = ""
    advice: str = ""

    @property
    def unwitnessed(self) -> int:
        """The number of witnesses that could not be asked, or that deny the root."""
        return len(self.missing) + bool(self.against)

    @property
    def root(self) -> Fact | None:
        return self.chain.root if self.chain else None
