"""What is said while a node is silent: its next lines may tell of another cause.

A link that is lost and a machine that lost its power look the same from outside until the machine speaks again: then it
tells that its link was away, or that it booted. So a verdict that rests on such a silence is held back while it is
provisional and nothing more was heard of the node. Held documents say so themselves (``awaited``), with the confidence
that comes back as soon as the node has spoken or the verdict is final; nothing that was concluded changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from correlator.facts.registry import kind_of
from correlator.gather.telemetry import last_spoke
from correlator.model.nouns import Fact
from parsers.hostlist import fold

if TYPE_CHECKING:
    from correlator.conclusions import Conclusions
    from correlator.incidents.incident import Incident
    from store.door import Asks

Document = dict[str, Any]

#: host -> since when (epoch seconds) it has to speak -> those that were heard before and not since.
Silent = Callable[[Mapping[str, float]], frozenset[str]]

#: So sure at most is what is said during the silence: of sixteen verdicts on recorded faults that rested on one, a second after
#: their run's end, six became another.
HELD_SURE = 0.5

#: A machine without power writes nothing from the moment in which its link goes; its driver, bond and network daemon repeat
#: the loss within this (seconds, links.REPEATED_S).
LAST_WORDS_S = 10.0


def awaited(root: Fact) -> dict[str, float]:
    """The hosts that have to be heard before a root cause is told surely, and since when; none where nothing hangs on it."""
    if root.attrs.get("unresumed") or root.attrs.get("unsaid"):
        return {}
    awaits = kind_of(root.kind).awaits
    if awaits is None or not awaits(root):
        return {}
    hosts = [root.host] if root.host else list(root.attrs.get("hosts", ()))
    return dict.fromkeys(hosts, root.start + root.sigma + LAST_WORDS_S)


#: A node of which no line of the kernel or the system was ever collected, and no other in so long before (seconds), is not
#: waited for: nothing follows from its silence.
LOGGED_WITHIN_S = 3600.0


def silent_in(store: Asks, known: Conclusions) -> Silent:
    """Whom the log lines of a cluster in a store, in true time, show to be silent."""

    def silent(since: Mapping[str, float]) -> frozenset[str]:
        off = {o.host: o.seconds for o in known.clocks.offsets if o.host in since and o.end >= since[o.host]}
        low = min(since.values()) - LOGGED_WITHIN_S - known.clocks.furthest
        last = last_spoke(store, known.cluster, since.keys(), low)
        logging_hosts = known.reporting_hosts | last.keys()
        return frozenset(h for h in since if h in logging_hosts and last.get(h, low) - off.get(h, 0.0) <= since[h])

    return silent


def waiting(stories: Iterable[Incident], silent: Silent) -> dict[str, tuple[str, ...]]:
    """By the ids of incidents: the hosts of their root, where none of them was heard since."""
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
    """A verdict or incident as it is said while ``hosts`` are awaited; as it was concluded where there are none. The same
    object where nothing differs."""
    if document.get("awaited", {}).get("hosts", []) == list(hosts):
        return document
    plain = _released(document)
    if not hosts or plain["confidence"] <= HELD_SURE:
        return plain
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
    """The root among an incident's candidates is as probable as the incident is told surely."""
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
    """An incident whose jobs are told as surely as their own verdicts."""
    jobs = [
        {**j, "confidence": verdicts[j["job_id"]]["confidence"]} if j["job_id"] in verdicts else j
        for j in incident["jobs"]
    ]
    return incident if jobs == incident["jobs"] else {**incident, "jobs": jobs}


__all__ = ["HELD_SURE", "Silent", "awaited", "held", "silent_in", "waiting", "with_jobs_of"]
