"""The contract's categories of verdicts and incidents: all that is stated about a run because of its category alone.

A cause names its category (``Cause.category``), and an operator's answer may name one. ``infra.*`` are faults of the
cluster: what is stated about those comes from their cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: The category of a verdict that names no cause.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Statement:
    """A headline and advice for the run's user."""

    headline: str
    advice: str


@dataclass(frozen=True)
class Category:
    """A category of verdicts."""

    name: str
    #: Its name on pages.
    words: str
    #: The headline of a verdict without a cause of its own, and its advice.
    headline: str = ""
    advice: str | None = None
    #: Replaces the advice if no line of the run's output shows an error.
    unprinted: str | None = None
    #: Replaces headline and advice for a run that somebody else than its user ended.
    by_others: Statement | None = None
    #: What would change a verdict without a cause that says so itself.
    change: str = "A log of the run's nodes, switches or output that was not collected."
    #: Was it the program's own doing? None: neither its doing nor that of the cluster.
    your_code: bool | None = None

    @property
    def infra(self) -> bool:
        """Is it a fault of the cluster?"""
        return self.name.startswith("infra.")


#: For ends that the run's own logs explain.
_OWN_CHANGE = "A fault of a node, link or GPU of this run that its logs did not show until now."

_DECLARED = (
    Category("infra.network", "network", your_code=False),
    Category("infra.gpu", "GPU", your_code=False),
    Category("infra.node", "node", your_code=False),
    Category("infra.storage", "storage", your_code=False),
    Category("infra.scheduler", "scheduler", your_code=False),
    Category(
        "app.error", "program", "Your program ended by its own error.", "Look at the marked lines of the output.",
        unprinted="No line of its output that was collected tells why. Look at what the program wrote elsewhere, and at its exit code.",
        change=_OWN_CHANGE, your_code=True,
    ),
    Category(
        "app.oom", "memory", "Your job needed more memory than it had asked for.", "Ask for more memory (--mem, --mem-per-gpu) or use less.",
        change=_OWN_CHANGE, your_code=True,
    ),
    Category(
        "app.timeout", "time limit", "Your job reached its time limit.", "Ask for more time (--time), or write checkpoints and continue from them.",
        change=_OWN_CHANGE, your_code=True,
    ),
    Category(
        "user.cancel", "cancelled by a person", "Your job was cancelled.", change=_OWN_CHANGE,
        by_others=Statement("Your job was cancelled, and not by you.", "Ask the operators of the cluster why it was cancelled."),
    ),
    Category("sched.preempt", "preempted", "Slurm preempted your job for one of higher priority.", change=_OWN_CHANGE),
    Category(
        UNKNOWN, UNKNOWN, "What was collected does not tell why your job ended.",
        "If it happens again on other nodes, suspect the program; on the same nodes, show this page to the operators.",
    ),
)  # fmt: skip

CATEGORIES: Mapping[str, Category] = MappingProxyType({category.name: category for category in _DECLARED})


def category_of(name: str) -> Category:
    """The category of this name. One that is not declared (a stored verdict may have it) says only what its name does."""
    if name in CATEGORIES:
        return CATEGORIES[name]
    if name.startswith("infra."):
        return Category(name, name, your_code=False)
    return Category(name, name, change=_OWN_CHANGE, your_code=True if name.startswith("app.") else None)
