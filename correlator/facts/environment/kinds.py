"""The kinds of facts about a node's environment, and their attributes."""

from __future__ import annotations

from dataclasses import replace
from typing import NotRequired, TypedDict

from correlator.model.attributes import DIFFERS, HOSTS
from correlator.model.attrs import Attr, attr
from correlator.model.kinds import Cause, Kind
from correlator.model.nouns import Fact


class NodeEnvironment(TypedDict):
    """``symptom``: what all programs met (symptoms.py). ``fault``: what that means for the node; ``look``: where to look.

    ``counts``: how many jobs failed alike there and elsewhere. ``runs`` failed by it. ``sure``: 0..1, from the odds.
    ``differs``: what all these nodes run otherwise than those where these users' jobs are well. ``hosts``: the nodes, if several that share
    such a difference are meant; the fact has no host then.
    """

    symptom: str
    fault: str
    look: str
    counts: str
    runs: list[str]
    sure: float
    differs: NotRequired[str]
    hosts: NotRequired[list[str]]


class EnvironmentInOutput(TypedDict):
    """``symptom``, ``fault`` and ``counts`` as for ``node.environment``, as far as one user's jobs show them."""

    symptom: str
    fault: str
    counts: str


SYMPTOM: Attr[str] = attr("symptom")
FAULT: Attr[str] = attr("fault")
COUNTS: Attr[str] = attr("counts")
#: The symptom of GPUs that wait for their fabric manager.
FABRIC = "fabric"
#: The symptom of names that are not found.
NAMES = "names"
#: The symptom of processes that cannot be started.
PROCESSES = "processes"

_BROKEN = Cause(
    "node.environment", "infra.node", "{fault}: {counts}", "something that programs need is broken on its node",
    (
        ("Look at {look} on {host}. Drain it until programs of different users run there again.",
         "scontrol update nodename={host} state=drain reason='environment: {symptom}'"),
    ),
    short="{fault}", words="any", family="software",
    doubt="No line of the node itself tells of it: the errors of different users' jobs do",
    disproof="The same error of these users' jobs on other nodes, or a job that did the same there and ended well.",
)  # fmt: skip
#: Nodes that share what the others lack; which of the things that they share it is, nothing shows.
_BROKEN_TOGETHER = replace(
    _BROKEN, plain="something that programs need is broken on nodes that share a difference",
    advice=(
        ("Look at {look} on {nodes}, and at what they run otherwise than the other nodes: {differs}. Drain them until programs of different users run there again.",
         "scontrol update nodename={nodes} state=drain reason='environment: {symptom}'"),
    ),
    doubt="That these nodes run something else does not show that it is the cause: they may share more than is known",
)  # fmt: skip
_BROKEN_FABRIC = replace(_BROKEN, category="infra.gpu", plain="the GPUs of its node were not ready")


def _special(fact: Fact) -> Cause | None:
    if fact.attrs.get(HOSTS):
        return _BROKEN_TOGETHER
    return _BROKEN_FABRIC if fact.attrs[SYMPTOM] == FABRIC else None


NODE_ENVIRONMENT = Kind(
    "node.environment", "node", "Jobs of several users failed alike on one node, and not elsewhere.", NodeEnvironment,
    brief="jobs of several users fail alike", cause=_BROKEN,
    variant=_special, measured=lambda fact: fact.attrs.get(DIFFERS, ""),
)  # fmt: skip

_IN_OUTPUT = Cause(
    "node.environment", "infra.node", "{fault}, as the run's own output says", "something on its node is broken, as its output says",
    (("Try the same on {host} as another user.", None),),
    short="{fault}", reported="its node's environment is broken", words="any", family="software",
)  # fmt: skip


def _as_it_says(fact: Fact) -> Cause:
    return replace(_IN_OUTPUT, reported=f"{fact.attrs[FAULT]} ({fact.attrs[COUNTS]})")


ENVIRONMENT_IN_OUTPUT = Kind(
    "environment.told", "job", "A run's output reports that its node's environment is broken, and one user's jobs alone show it.",
    EnvironmentInOutput, brief="its node's environment, as its run says", cause=_IN_OUTPUT, variant=_as_it_says,
)  # fmt: skip
