"""Holds back conclusions that rest on a node's silence: its next lines may show another cause.

A lost link and a machine that lost power look the same from outside until the machine logs again: only then does it
report that its link was down, or that it booted. So a verdict that rests on such a silence is held back while it is
provisional and the node has logged nothing since. Held documents say so (``awaited``) and carry the confidence that
returns once the node logs or the verdict is final. The conclusions themselves do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from correlator.clocks.clocks import still_ahead
from correlator.facts.registry import kind_of
from correlator.gather.telemetry import last_spoke
from correlator.live.frozen import whole
from correlator.model.attributes import HOSTS, UNRESUMED, UNSAID
from correlator.model.nouns import Fact
from parsers.hostlist import fold

if TYPE_CHECKING:
    from correlator.conclusions import Basis
    from correlator.incidents.incident import Incident
    from store.door import Asks

Document = Mapping[str, Any]

#: Maps each host to the moment (epoch seconds) since which a line is awaited; returns the hosts that logged before but
#: not since.
Silent = Callable[[Mapping[str, float]], frozenset[str]]

#: The highest confidence of a held document: of sixteen verdicts on recorded faults that rested on a silence one second
#: after their run's end, six changed later.
HELD_SURE = 0.5

#: A machine without power writes nothing once its link goes down; on a live one the driver, bond and network daemon
#: repeat the loss within this many seconds (links.REPEATED_S).
LAST_WORDS_S = 10.0


def awaited(root: Fact) -> dict[str, float]:
    """The hosts that must log before a root cause is certain, and since when; empty if nothing depends on it."""
    if root.attrs.get(UNRESUMED) or root.attrs.get(UNSAID):
        return {}
    awaits = kind_of(root.kind).awaits
    if awaits is None or not awaits(root):
        return {}
    hosts = [root.host] if root.host else list(root.attrs.get(HOSTS, ()))
    return dict.fromkeys(hosts, root.start + root.sigma + LAST_WORDS_S)


#: A node is not awaited if no line of its kernel or system was ever collected and nothing else from it within this many
#: seconds before: its silence proves nothing.
LOGGED_WITHIN_S = 3600.0


def silent_in(store: Asks, cluster: str | None, basis: Basis) -> Silent:
    """A function that finds the silent hosts in a cluster's stored log lines, in true time."""

    def silent(since: Mapping[str, float]) -> frozenset[str]:
        off = still_ahead(basis.clocks.offsets, since)
        low = min(since.values()) - LOGGED_WITHIN_S - basis.clocks.furthest
        last = last_spoke(store, cluster, since.keys(), low)
        logging_hosts = basis.collected.reporting_hosts | last.keys()
        return frozenset(h for h in since if h in logging_hosts and last.get(h, low) - off.get(h, 0.0) <= since[h])

    return silent


def waiting(stories: Iterable[Incident], silent: Silent) -> dict[str, tuple[str, ...]]:
    """Maps the id of each incident whose root's hosts have all been silent since the fault to these hosts."""
    asked = {story.id: hosts for story in stories if story.verdicts and (hosts := awaited(story.root))}
    if not asked:
        return {}
    since: dict[str, float] = {}
    for hosts in asked.values():
        for host, moment in hosts.items():
            since[host] = max(moment, since.get(host, moment))
    mute = silent(since)
    return {name: tuple(sorted(hosts)) for name, hosts in asked.items() if mute.issuperset(hosts)}


def held(document: Document, hosts: tuple[str, ...]) -> Document:
    """The document as published while ``hosts`` are awaited, or as concluded if there are none.

    Returns the same object if nothing differs.
    """
    if document.get("awaited", {}).get("hosts", []) == list(hosts):
        return document
    plain = _released(document)
    if not hosts or plain["confidence"] <= HELD_SURE:
        return plain
    plain = whole(plain)
    they = "it has" if len(hosts) == 1 else "they have"
    doubt = f"Waiting for the next lines of {fold(hosts)}: {they} said nothing since, and may tell of another cause"
    found = {
        **plain, "confidence": HELD_SURE, "doubts": [*plain["doubts"], doubt],
        "awaited": {"hosts": list(hosts), "confidence": plain["confidence"]},
    }  # fmt: skip
    return _with_candidate(found, plain["confidence"], HELD_SURE)


def _released(document: Document) -> Document:
    if "awaited" not in document:
        return document
    confidence = document["awaited"]["confidence"]
    found = {k: v for k, v in document.items() if k != "awaited"}
    found |= {"confidence": confidence, "doubts": document["doubts"][:-1]}
    return _with_candidate(found, HELD_SURE, confidence)


def _with_candidate(document: Document, before: float, after: float) -> Document:
    """Gives the root's entry among an incident's candidates the confidence of the incident."""
    root = document["root_cause"]
    return document if "candidates" not in document else {
        **document,
        "candidates": [
            {**c, "probability": after}
            if c["probability"] == before and all(c[k] == root[k] for k in ("event", "host", "device")) else c
            for c in document["candidates"]
        ],
    }  # fmt: skip


def with_jobs_of(incident: Document, verdicts: Mapping[str, Document]) -> Document:
    """The incident with each job's confidence taken from the job's own verdict."""
    jobs = [
        {**j, "confidence": verdicts[j["job_id"]]["confidence"]} if j["job_id"] in verdicts else j
        for j in incident["jobs"]
    ]
    return incident if jobs == incident["jobs"] else {**incident, "jobs": jobs}


__all__ = ["HELD_SURE", "Silent", "awaited", "held", "silent_in", "waiting", "with_jobs_of"]
