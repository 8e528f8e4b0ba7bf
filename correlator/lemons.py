"""Lemons: nodes on which more incidents are rooted than chance explains.

Incidents per node and time are Poisson with a rate that itself varies from node to node; what all nodes together show
gives a Gamma prior for it (mean of the cluster, weight of one incident). A node is a lemon when so many incidents or more would
be seen on an ordinary node with a probability below ``TAIL``. People's own faults do not count: only incidents that are rooted in the
node's hardware or system, that hurt or degraded something, and that hit different runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

#: A node is named when an ordinary node would show as much with less than this probability (correlation.md: < 1e-3).
TAIL = 1e-3

#: Two incidents may be bad luck and one repair that did not hold; three on different runs are a pattern.
LEAST = 3

#: Roots that speak of the node itself, not of people, switches or storage.
OWN_ROOTS = frozenset({
    "gpu.xid", "gpu.thermal", "pcie.aer", "nic.link_flap", "nic.link_down", "nic.link_errors", "node.disk_error", "node.panic",
    "node.reboot", "node.unresponsive", "slurm.slurmd_crash", "node.munge_failure",
})  # fmt: skip


def tail(count: int, expected: float, weight: float = 1.0) -> float:
    """P(at least ``count``) under Gamma-Poisson with mean ``expected`` and shape ``weight``: the negative binomial's tail."""
    if count <= 0:
        return 1.0
    success = weight / (weight + max(expected, 1e-12))
    below, term = 0.0, success**weight
    for n in range(count):
        below += term
        term *= (weight + n) / (n + 1) * (1.0 - success)
    return max(0.0, 1.0 - below)


def counts(incidents: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Node -> incidents rooted on it that count, those of the same run once."""
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for incident in incidents:
        root = incident["root_cause"]
        if root["host"] and root["event"] in OWN_ROOTS and incident["severity"] == "impact":
            jobs = sorted(j["job_id"].split("#")[0] for j in incident["jobs"])
            seen[root["host"]].add(jobs[0] if jobs else incident["id"])
    return {host: len(stories) for host, stories in sorted(seen.items())}


def risk(incidents: Iterable[Mapping[str, Any]], hosts: int) -> dict[str, dict[str, Any]]:
    """Per node with any incident: how many, how many an ordinary node has, and how unlikely that is."""
    found = counts(incidents)
    rows = {}
    for host, count in found.items():
        # The others' mean: a lemon must not raise the bar that it is measured against.
        expected = (sum(found.values()) - count + 0.5) / max(1, hosts - 1)
        chance = tail(count, expected)
        rows[host] = {
            "incidents": count,
            "expected": round(expected, 4),
            "probability": chance,
            "lemon": count >= LEAST and chance < TAIL,
        }
    return rows


def suspects(incidents: Iterable[Mapping[str, Any]], hosts: int | None = None) -> list[str]:
    """The lemons among the nodes. ``hosts``: nodes of the cluster; those that incidents name where it is not known."""
    listed = list(incidents)
    count = hosts if hosts is not None else len({h for i in listed for h in i["hosts"]})
    return [host for host, row in risk(listed, count).items() if row["lemon"]]


__all__ = ["LEAST", "OWN_ROOTS", "TAIL", "counts", "risk", "suspects", "tail"]
