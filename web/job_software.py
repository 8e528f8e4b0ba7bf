"""What the nodes of a run ran when it began (kernel, drivers, firmware, image), and what of it the last good run had otherwise.

The node's agent reports it, no user. Where the changed thing is of the kind that broke (``Cause.software``), on the node
that broke, the page states that it fits the verdict. It weighs nothing in it: a new version is no proof. What nodes run otherwise
than others supports a verdict where jobs of several users fail on them alike (``correlator.facts.environment.differences``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from correlator.facts.registry import software_of
from correlator.model.software_names import called
from parsers.hostlist import fold
from store.questions import events, job_files, software
from web.reading import Reader, Row

#: Node -> name -> version; several devices with different ones are listed together.
Versions = Mapping[str, Mapping[str, str]]


def document(read: Reader, run: Row, verdict: Mapping[str, Any]) -> dict[str, Any] | None:
    """``at_start`` (each name and version with its nodes) and ``since_last_good``; None if nothing was reported."""
    own = at_start(read, run)
    if not own:
        return None
    began = run["start"] or run["submit"]
    good = (
        read.one(job_files.last_good(run["user"], run["name"], run["cluster"], began, kept=False))
        if run["user"] and run["name"]
        else None
    )
    found = changes(at_start(read, good), own, verdict) if good else []
    differs = (
        {"run": good["run_key"], "changes": found, "sentences": sentences(found), "more": 0} if good and found else None
    )
    return {"at_start": _by_version(own), "since_last_good": differs}


def at_start(read: Reader, run: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What the nodes of a run had when it began; of kernels also what they logged when they booted."""
    nodes, began = list(run["nodes"] or ()), run["start"]
    if not nodes or began is None:
        return {}
    found: dict[str, dict[str, set[str]]] = {}
    for row in read.ask(software.at(nodes, run["cluster"], began)):
        if row["name"] and row["version"]:
            found.setdefault(row["host"], {}).setdefault(row["name"], set()).add(row["version"])
    for row in read.ask(events.boots(nodes, run["cluster"], began)):
        version = json.loads(row["entities"] or "{}").get("version")
        if version and "kernel" not in found.get(row["host"], {}):
            found.setdefault(row["host"], {})["kernel"] = {str(version)}
    return {
        host: {name: ", ".join(sorted(versions)) for name, versions in had.items()}
        for host, had in sorted(found.items())
    }


def changes(before: Versions, after: Versions, verdict: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Versions that no node of the earlier run had: ``name``, ``before``, ``after``, ``nodes``, ``count`` of ``of`` nodes, and
    ``fits``: whether that is of the kind that broke, on the node that broke."""
    found = []
    for name in sorted({name for had in after.values() for name in had}):
        was = sorted({had[name] for had in before.values() if name in had})
        now = {host: had[name] for host, had in after.items() if name in had}
        for version in sorted({version for version in now.values() if was and version not in was}):
            hosts = [host for host, one in now.items() if one == version]
            found.append({
                "name": name, "before": ", ".join(was), "after": version, "nodes": fold(sorted(hosts)), "count": len(hosts), "of": len(now),
                "fits": _fits(name, hosts, verdict or {}),
            })  # fmt: skip
    return sorted(found, key=lambda one: (not one["fits"], one["name"], one["after"]))


def sentences(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Differences in words."""
    return [
        f"{called(one['name'])} {one['before']} -> {one['after']} on {one['count']} of {one['of']} nodes"
        + (f" ({one['nodes']}): it fits what broke" if one["fits"] else "")
        for one in found
    ]


def _fits(name: str, hosts: Iterable[str], verdict: Mapping[str, Any]) -> bool:
    cause = verdict.get("root_cause") or {}
    return cause.get("host") in set(hosts) and name.startswith(software_of(str(cause.get("event") or "")))


def _by_version(own: Versions) -> list[dict[str, Any]]:
    nodes: dict[tuple[str, str], list[str]] = {}
    for host, had in own.items():
        for name, version in had.items():
            nodes.setdefault((name, version), []).append(host)
    return [
        {"name": name, "called": called(name), "version": version, "nodes": fold(sorted(hosts)), "count": len(hosts)}
        for (name, version), hosts in sorted(nodes.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    ]
