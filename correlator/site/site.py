"""What is known about the site: Slurm's settings, cables, and the role of each interface."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from correlator.site.cabling import Cabling, Place, cabling
from correlator.site.interfaces import FABRIC, UNKNOWN, Interfaces, interfaces
from correlator.site.senders import controllers
from correlator.site.windows import Value
from parsers.documents.fields import number
from parsers.slurm_durations import seconds

#: Settings that windows use: (default, plausible range) in seconds. The range is used if no configuration was given:
#: Slurm's documentation and the sites we know keep these values inside it. Defaults: slurm.conf(5).
SETTINGS: dict[str, tuple[float, tuple[float, float]]] = {
    "SlurmdTimeout": (300, (10, 900)),
    "MessageTimeout": (10, (5, 100)),
    "TCPTimeout": (2, (1, 30)),
    "KillWait": (30, (1, 300)),
    "UnkillableStepTimeout": (60, (30, 600)),
    "HealthCheckInterval": (0, (0, 3600)),
    "BatchStartTimeout": (10, (5, 120)),
    "ResumeTimeout": (60, (30, 3600)),
    "OverTimeLimit": (0, (0, 0)),
    "PrologEpilogTimeout": (0, (0, 3600)),
}

#: Settings of a job's environment, with NCCL's own defaults (nccl env.rst) and PyTorch's (10 minutes since 2.2).
JOB_SETTINGS: dict[str, tuple[float, tuple[float, float]]] = {
    "NCCL_IB_TIMEOUT": (20, (14, 22)),
    "NCCL_IB_RETRY_CNT": (7, (7, 7)),
    "TORCH_DIST_TIMEOUT_SEC": (600, (600, 1800)),
}

#: The largest values that mean anything: fields of five and three bits of a queue pair (InfiniBand specification, 11.6),
#: and a week. Users write them: two to the power of 99999 is no window, and as a known value it would end every pass.
_MOST = {"NCCL_IB_TIMEOUT": 31, "NCCL_IB_RETRY_CNT": 7, "TORCH_DIST_TIMEOUT_SEC": 604_800}
#: More planes than any fabric has.
_MOST_PLANES = 64

#: Variables in which a multipath transport states how many planes it uses (MRC and plugins like it).
MULTIPLANE = re.compile(r"(?:NCCL|RCCL)_\w*(?:PLANES|MULTIPLANE|NUM_PATHS)", re.IGNORECASE)


@dataclass(frozen=True)
class Inventory:
    """What applies to all times: rows of settings, cables and Slurm's tree."""

    settings: list[dict[str, Any]]
    links: list[dict[str, Any]]
    topology: list[dict[str, Any]]

    @cached_property
    def cabling(self) -> Cabling:
        """The cables in ``links``, computed once: a service keeps an inventory tick after tick."""
        return cabling(self.links)


@dataclass
class Site:
    """One cluster's knowledge.

    ``links`` maps (switch, port) to (host, device) if an inventory lists it, ``cables`` the other way; both are
    today's. What was believed at a moment: ``far_end``, ``cable_at``, ``members_at``.
    """

    cluster: str | None
    settings: dict[str, Value]
    job_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    links: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    cables: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    inventoried: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    leaf_of: dict[str, str] = field(default_factory=dict)
    members: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Those of ``members`` that Slurm's tree lists.
    listed: dict[str, frozenset[str]] = field(default_factory=dict)
    cabling: Cabling = field(default_factory=Cabling)
    parents: dict[str, frozenset[str]] = field(default_factory=dict)
    interfaces: Interfaces = field(default_factory=Interfaces)
    _values: dict[str | None, tuple[dict[str, Value], dict[str, Value]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def role(self, host: str | None, device: str | None, driver: str | None = None) -> str:
        """ "fabric", "management" or "unknown" for an interface (interfaces.py); an inventory's planes are a fabric's."""
        if not device:
            return UNKNOWN
        cable = self.cables.get((host or "", device))
        return FABRIC if cable and cable.get("plane") else self.interfaces.role(device, driver)

    def far_end(self, switch: str, port: str, time: float) -> Place | None:
        """The (host, device) connected to a switch's port at ``time``; None if unknown or nothing was."""
        moved = (switch, port) in self.cabling.moved_ports
        return self.cabling.far_end(switch, port, time) if moved else self.links.get((switch, port))

    def cable_at(self, host: str | None, device: str | None, time: float) -> dict[str, str]:
        """Switch, port, plane and rail of a NIC at ``time``; empty if unknown."""
        place = (host or "", device or "")
        held = [c for c in self.cabling.moved.get(place, ()) if c.at(time)]
        return held[-1].facts() if held else self.cables.get(place, {})

    def members_at(self, switch: str, time: float) -> frozenset[str]:
        """The nodes connected to a switch at ``time``."""
        known = self.cabling.changed.get(switch)
        if known is None:
            return self.members.get(switch, frozenset())
        return self.listed.get(switch, frozenset()).union(c.host for c in known if c.host and c.at(time))

    def carried_by(self, switch: str) -> frozenset[str]:
        """What the known cables of a switch carry: "fabric", "management", "unknown"; empty if none is known."""
        return frozenset(self.role(*place) for place, cable in self.cables.items() if cable["switch"] == switch)

    def values_for(self, run_key: str | None) -> dict[str, Value]:
        """Settings for a window, with those of the run's environment if it is known.

        Callers must not modify the result.
        """
        own = self.job_settings.get(run_key or "", {})
        kept = self._values.get(run_key if own else None)
        if kept is not None and kept[0] == self.settings:
            return kept[1]
        values = self._with_environment(own)
        self._values[run_key if own else None] = (dict(self.settings), values)
        return values

    def _with_environment(self, own: Mapping[str, str]) -> dict[str, Value]:
        values = dict(self.settings)
        for name, (default, (low, high)) in JOB_SETTINGS.items():
            given = number(own.get(name))
            if given is not None and 0 <= given <= _MOST[name]:
                values[name] = Value(given, given, True, "job environment")
            elif own and given is None:  # the environment is known and does not set it: the library's default applies
                values[name] = Value(default, default, True, "library default")
            else:
                values[name] = Value(low, high, False, "not known")
        return values

    def cabled(self, host: str | None, device: str | None, switch: object = None) -> bool:
        """Is the port in use? If an inventory lists the host's cables, a port without one is a spare.

        Neighbour discovery is no inventory: a port may be down, or carry InfiniBand, or its switch may not announce
        itself.
        """
        return bool(switch) or host not in self.inventoried or (host, device) in self.cables

    def planes_of(self, run_key: str | None) -> int:
        """The number of independent fabric planes of a run's transport, by its environment; 1 if it does not set it."""
        own = self.job_settings.get(run_key or "", {})
        numbers = [number(v) for k, v in own.items() if MULTIPLANE.fullmatch(k)]
        return int(max([n for n in numbers if n and 1 <= n <= _MOST_PLANES], default=1))

    def describe(self, names: Iterable[str], run_key: str | None = None) -> str:
        """ "SlurmdTimeout=24, MessageTimeout=10", or that a value is not known."""
        values = self.values_for(run_key)
        parts = []
        for name in sorted(names):
            value = values.get(name)
            if value is None:
                continue
            if value.known:
                origin = f" ({value.origin})" if "default" in value.origin else ""
                parts.append(f"{name}={value.low:g}{origin}")
            else:
                bounds = f"{value.low:g}..{value.high:g}" if value.low != value.high else f"{value.low:g}"
                how = value.origin if value.origin != "not known" else "assumed"
                parts.append(f"{name} not known ({bounds}, {how})")
        return ", ".join(parts)


def read_settings(rows: Iterable[Mapping[str, Any]], overrides: Mapping[str, object] | None = None) -> dict[str, Value]:
    """Cluster settings from stored rows. Any configuration file seen makes absent settings Slurm's defaults."""
    found: dict[str, tuple[str, str]] = {}
    seen_configuration = False
    for row in sorted(rows, key=lambda r: (str(r["name"]), str(r["value"]), str(r["source"]))):
        if row["scope"] == "cluster":
            seen_configuration = True
            found[row["name"]] = (str(row["value"]), str(row["source"]))
    for name, value in (overrides or {}).items():
        found[name] = (str(value), "configuration")
    settings = {}
    for name, (default, (low, high)) in SETTINGS.items():
        number = seconds(found[name][0]) if name in found else None
        if number is not None:
            settings[name] = Value(number, number, True, found[name][1])
        elif seen_configuration:
            settings[name] = Value(default, default, True, "Slurm's default")
        else:
            settings[name] = Value(low, high, False, "not known")
    return settings


def build_site(
    cluster: str | None,
    settings: Iterable[Mapping[str, Any]],
    cables: Cabling,
    topology: Iterable[Mapping[str, Any]],
    hosts: Iterable[str],
    overrides: Mapping[str, object] | None = None,
) -> Site:
    """Combines inventories, slurm.conf, topology.conf and job environments."""
    settings = list(settings)
    # Of a controller whose own logs are elsewhere, a switch's lines about its link may be the only ones.
    named = frozenset(hosts) | controllers(settings)
    site = Site(
        cluster=cluster, settings=read_settings(settings, overrides), interfaces=interfaces(overrides), hosts=named
    )
    for row in settings:
        scope = str(row["scope"] or "")
        if scope.startswith("job:"):
            site.job_settings.setdefault(scope[4:], {})[str(row["name"])] = str(row["value"])
    site.cabling = cables
    site.links, site.cables, site.inventoried = dict(site.cabling.links), site.cabling.cables, site.cabling.inventoried
    listed: defaultdict[str, set[str]] = defaultdict(set)
    parents: defaultdict[str, set[str]] = defaultdict(set)
    for row in topology:
        if row["kind"] == "node":
            listed[row["switch"]].add(row["child"])
            site.leaf_of[row["child"]] = row["switch"]
        else:
            parents[row["child"]].add(row["switch"])
    known = {**site.cabling.members, **listed}
    site.members = {s: frozenset(site.cabling.members.get(s, ())) | frozenset(listed.get(s, ())) for s in known}
    site.listed = {switch: frozenset(nodes) for switch, nodes in listed.items()}
    site.parents = {switch: frozenset(uppers) for switch, uppers in parents.items()}
    return site
