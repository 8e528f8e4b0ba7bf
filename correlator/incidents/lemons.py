"""Lemons: nodes that are the root of more incidents of one kind than chance explains.

All other nodes give the rate at which ordinary nodes have an incident of a family (GPUs, links, disks, the machine
itself): a Gamma posterior of their count and their number, with Jeffreys' prior. The count on one more ordinary node is
then negative binomial (Gamma-Poisson). A node is a lemon if it would have its count or more with a probability below
``FALSE_NAMES`` / nodes. People's own faults do not count, only incidents that are rooted in the node and ended runs;
those of one job count once.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from correlator.facts.registry import families

#: At most this many ordinary nodes of a cluster are named by chance, per family: the threshold rises with the number of
#: nodes (0.005 on 40 nodes, 0.0002 on 1,000).
FALSE_NAMES = 0.2

#: On a handful of nodes no probability above this names one.
LARGEST_TAIL = 0.01

#: Two incidents may be bad luck and one repair that did not hold; three on different jobs are a pattern.
LEAST = 3

#: Jeffreys' prior for a Poisson rate.
PRIOR_SHAPE = 0.5


def tail(count: int, others: int, nodes: int) -> float:
    """P(at least ``count`` incidents on a node) when ``nodes`` other nodes had ``others`` together."""
    shape, exposure = others + PRIOR_SHAPE, max(1, nodes)
    stay, move = math.log(exposure / (exposure + 1.0)), -math.log(exposure + 1.0)
    below = sum(
        math.exp(math.lgamma(shape + n) - math.lgamma(shape) - math.lgamma(n + 1.0) + shape * stay + n * move)
        for n in range(count)
    )
    return min(1.0, max(0.0, 1.0 - below))


def counts(incidents: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """(node, family) -> incidents rooted there that ended runs, those of one job once."""
    return {place: len(incidents_there) for place, incidents_there in sorted(Roots.of(incidents).stories.items())}


#: (node, family) of an incident that ended runs and the first of its jobs; None if its root is not in a node.
Rooted = tuple[tuple[str, str] | None, str]


def rooted(incident: Mapping[str, Any]) -> Rooted:
    """Where an incident that ended runs is rooted, and the first of its jobs; None if the root is not in a node."""
    root = incident["root_cause"]
    family = families().get(root["event"])  # only causes about the node itself, not about people, switches or storage
    if not root["host"] or not family or incident["severity"] != "impact":
        return None, ""
    jobs = (j["job_id"].split("#")[0] for j in incident["jobs"])
    return (root["host"], family), min(jobs, default=incident["id"])


def risk(incidents: Iterable[Mapping[str, Any]], nodes: int) -> dict[str, list[dict[str, Any]]]:
    """Per node with any such incident, a row per family, the least probable first.

    A row has the count, the count of an ordinary node in a cluster of ``nodes``, and the probability of this count or
    more there.
    """
    found = counts(incidents)
    total: defaultdict[str, int] = defaultdict(int)
    for (_, family), count in found.items():
        total[family] += count
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for (host, family), count in found.items():
        # The others' rate: a lemon must not raise the threshold for itself.
        others = total[family] - count
        chance = tail(count, others, nodes - 1)
        rows[host].append({
            "family": family, "incidents": count, "expected": round((others + PRIOR_SHAPE) / max(1, nodes - 1), 4),
            "probability": chance, "lemon": _lemon(count, chance, nodes),
        })  # fmt: skip
    return {host: sorted(parts, key=lambda r: (r["probability"], r["family"])) for host, parts in rows.items()}


@dataclass(frozen=True)
class Roots:
    """(node, family) -> the jobs of incidents rooted there that ended runs, and how many incidents each is the first
    job of.

    Holds ``counts`` in a form to which single incidents can be added and from which they can be removed.
    """

    stories: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, incidents: Iterable[Mapping[str, Any]]) -> Roots:
        return cls().but([], map(rooted, incidents))

    def but(self, gone: Iterable[Rooted], more: Iterable[Rooted]) -> Roots:
        """A copy without some incidents and with others, given by where they are ``rooted``."""
        stories = dict(self.stories)
        changed: dict[tuple[str, str], dict[str, int]] = {}
        for incidents, step in ((gone, -1), (more, 1)):
            for place, story in incidents:
                if place is not None:
                    incidents_there = changed.setdefault(place, dict(stories.get(place, ())))
                    incidents_there[story] = incidents_there.get(story, 0) + step
        for place, incidents_there in changed.items():
            stories[place] = {story: count for story, count in incidents_there.items() if count}
        return Roots(stories)

    def suspects(self, nodes: int) -> list[str]:
        """The lemons among the nodes of a cluster, by name: ``risk`` of the nodes that could be one."""
        total: defaultdict[str, int] = defaultdict(int)
        for (_, family), incidents_there in self.stories.items():
            total[family] += len(incidents_there)
        found = {
            host for (host, family), incidents_there in self.stories.items()
            if (n := len(incidents_there)) >= LEAST and _lemon(n, tail(n, total[family] - n, nodes - 1), nodes)
        }  # fmt: skip
        return sorted(found)


def suspects(incidents: Iterable[Mapping[str, Any]], nodes: int) -> list[str]:
    return Roots.of(incidents).suspects(nodes)


#: The fact that holds the lemons of all clusters.
FACT = "lemons"


def written(of_clusters: Iterable[tuple[str | None, Iterable[str]]]) -> str:
    """The fact's text: (cluster, host) of each."""
    pairs = {(cluster, host) for cluster, hosts in of_clusters for host in hosts}
    return json.dumps(sorted(pairs, key=lambda pair: (pair[1], pair[0] or "")))


def read(text: str | None) -> list[tuple[str | None, str]]:
    """(cluster, host) of each lemon; without a cluster if an older version wrote hosts only."""
    return [(None, one) if isinstance(one, str) else (one[0], one[1]) for one in json.loads(text or "[]")]


def _lemon(count: int, chance: float, nodes: int) -> bool:
    return count >= LEAST and chance < min(LARGEST_TAIL, FALSE_NAMES / max(1, nodes))
