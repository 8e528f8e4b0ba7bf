"""Scopes: the subjects between which an edge may hold. ``SCOPES[name](world, cause, effect) -> bool``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache

from correlator.facts.configuration import took_from
from correlator.facts.gpu_holders import not_held
from correlator.facts.gpus import bus
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import vocabulary
from correlator.facts.world import World, run_of
from correlator.model.attributes import EVICTED, FAILED_NODES, HOSTS, PROMOTED, RUNS, SERVER, TOKEN, UNDER, UNTIL, WORDS
from correlator.model.nouns import Fact

Scope = Callable[[World, Fact, Fact], bool]

#: Why a cause is outside of a scope, in words.
WhyOutside = Callable[[World, Fact, Fact], str | None]


def _same_node(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host is not None and cause.host == effect.host


def _under_switch(world: World, cause: Fact, effect: Fact) -> bool:
    """All nodes of a failed switch are cut off, also those whose own logs are missing."""
    hosts = set(cause.attrs.get(UNDER) or cause.attrs.get(HOSTS, ()))
    run = run_of(world, effect)
    if run and effect.host is None:
        return bool(hosts & set(run.nodes))
    # A node that the controller cannot reach is given up, whichever of the two was cut off.
    return effect.host in hosts or (effect.kind == NODE_DOWN.name and bool(hosts & world.controllers))


def _link_of_controller(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host in world.controllers and effect.host != cause.host


def _fell_with(world: World, cause: Fact, effect: Fact) -> bool:
    """Is the effect of a machine that was lost with the others, or of a switch most of whose nodes were?"""
    hosts = set(cause.attrs.get(HOSTS, ()))
    cut_off = set(effect.attrs.get(HOSTS, ()))
    return effect.host in hosts or (bool(cut_off) and len(cut_off & hosts) >= MOST * len(cut_off))


def _link_of_switch(world: World, cause: Fact, effect: Fact) -> bool:
    name = cause.host or cause.attrs.get(TOKEN)
    return name is not None and effect.attrs.get(PROMOTED) == name


def _in_allocation(world: World, cause: Fact, effect: Fact) -> bool:
    run = run_of(world, effect)
    return run is not None and cause.host in run.nodes


def _failed_node(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host in effect.attrs.get(FAILED_NODES, ())


def _same_run(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.run is not None and cause.run == effect.run


def _same_run_or_node(world: World, cause: Fact, effect: Fact) -> bool:
    run = run_of(world, effect)
    if run is None:
        return False
    if cause.run:
        return cause.run == str(run.job_id)
    return not {cause.host, *cause.attrs.get(HOSTS, ())}.isdisjoint(run.nodes)


def _device(world: World, cause: Fact, effect: Fact) -> bool:
    """The run may have held the GPU (facts/gpu_holders.py)."""
    run = run_of(world, effect)
    return run is not None and cause.host in run.nodes and not_held(world, run, cause) is None


def _not_its_device(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    return not_held(world, run, cause) if run is not None and cause.host in run.nodes else None


def _same_bus(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host == effect.host and bus(cause.device) is not None and bus(cause.device) == bus(effect.device)


#: Most of a switch's nodes (as promotion in facts/links/detector.py).
MOST = 0.6

#: A target that this many clients lost was lost by all of them, also those whose logs are missing.
WIDE = 3


@lru_cache(maxsize=256)  # hundreds of clients, asked for with each run of its time
def _hosts(outage: Fact) -> frozenset[str]:
    return frozenset(outage.attrs.get(HOSTS, ()))


def _used_storage(world: World, cause: Fact, effect: Fact) -> bool:
    run = run_of(world, effect)
    if run is None:
        return False
    file_system = str(cause.device or "").split("-")[0]
    hosts = _hosts(cause)
    if hosts.isdisjoint(run.nodes):
        lines = (effect.attrs.get(WORDS) or {}).get("storage", ())
        return len(hosts) >= WIDE and bool(file_system) and any(f"/{file_system}/" in e.message for e in lines)
    place = str(run.row.get("work_dir") or world.site.job_settings.get(run.key, {}).get("WORKDIR") or "")
    return (
        not place
        or not file_system
        or all(e.kind == "storage.nfs_error" for e in cause.events)  # a server's name does not name its mounts
        or f"/{file_system}/" in f"{place}/"
        or not place.startswith(("/lustre", "/scratch", "/gpfs"))
    )


def _lost_with_link(world: World, cause: Fact, effect: Fact) -> bool:
    """Every client that lost the storage had lost this link, or was behind this switch.

    The storage itself was up for all others.
    """
    lost = {cause.host} if cause.kind == LINK_OUTAGE.name else set(cause.attrs.get(UNDER) or cause.attrs.get(HOSTS, ()))
    clients = set(effect.attrs.get(HOSTS, ()))
    return bool(clients) and not effect.attrs.get(SERVER) and clients <= lost


def _fell_silent_with(world: World, cause: Fact, effect: Fact) -> bool:
    return (
        effect.host in cause.attrs.get(HOSTS, ())
        and cause.start - 1.0 <= effect.start <= cause.attrs.get(UNTIL, cause.start) + 1.0
    )


def _stated_by_run(world: World, cause: Fact, effect: Fact) -> bool:
    """The run's own output reports it."""
    return effect.run is not None and (cause.run == effect.run or effect.run in cause.attrs.get(RUNS, ()))


def _taken_away(world: World, cause: Fact, effect: Fact) -> bool:
    """Slurm's configuration no longer has a node, or the partition, of the run."""
    run = run_of(world, effect)
    return run is not None and took_from(cause, run)


def _whole_cluster(world: World, cause: Fact, effect: Fact) -> bool:
    return True


def _nodes(world: World, effect: Fact) -> Iterable[str]:
    run = run_of(world, effect)
    return run.nodes if run else ()


#: Scopes that can tell why a near cause is outside: such a cause is shown as a rejected rival.
OUTSIDE: dict[str, WhyOutside] = {"device in allocation": _not_its_device}

#: Scopes that hold for causes on certain hosts only, and those hosts: other facts need not be examined.
HOSTS_OF: dict[str, Callable[[World, Fact], Iterable[str]]] = {
    "same node": lambda world, effect: [effect.host] if effect.host else [],
    "same bus": lambda world, effect: [effect.host] if effect.host else [],
    "node in allocation": _nodes,
    "device in allocation": _nodes,
    "failed node of run": lambda world, effect: effect.attrs.get(FAILED_NODES, ()),
    "controller's own link": lambda world, effect: world.controllers,
}


def _users_of_storage(world: World, effect: Fact) -> Iterable[str] | None:
    return None if (effect.attrs.get(WORDS) or {}).get("storage") else _nodes(world, effect)


def _under_a_switch(world: World, effect: Fact) -> Iterable[str]:
    if effect.host is None:
        return _nodes(world, effect)
    return [effect.host, *world.controllers] if effect.kind == NODE_DOWN.name else [effect.host]


def _of_run(world: World, effect: Fact) -> Iterable[str]:
    run = run_of(world, effect)
    return (str(run.job_id), *run.nodes) if run else ()


def _with_others(world: World, effect: Fact) -> Iterable[str]:
    return [*filter(None, [effect.host]), *effect.attrs.get(HOSTS, ())]


#: Scopes that hold for causes that touch one of certain places only (``evidence/candidates.places_of``), and those places;
#: None for any.
TOUCHED_BY: dict[str, Callable[[World, Fact], Iterable[str] | None]] = {
    "node under switch": _under_a_switch,
    "link of switch": lambda world, effect: [str(name)] if (name := effect.attrs.get(PROMOTED)) else [],
    "same run or its node": _of_run,
    "went down together": _with_others,
    "run used the storage": _users_of_storage,
    "all its clients": lambda world, effect: sorted(effect.attrs.get(HOSTS, ()))[:1],  # a cause has all of them
    "reported by the run": lambda world, effect: [effect.run] if effect.run else [],
    "fell silent together": lambda world, effect: [effect.host] if effect.host else [],
}


def _one_host(world: World, cause: Fact) -> Iterable[str]:
    return [cause.host] if cause.host else []


def _cut_off(world: World, cause: Fact) -> Iterable[str]:
    """Nodes of a lost switch: those whose links were lost, and those without a log of their own."""
    lost = set(cause.attrs.get(HOSTS, ()))
    return lost | (set(cause.attrs.get(UNDER, ())) - world.reporting_hosts) if world.reporting_hosts else lost


def _clients(world: World, cause: Fact) -> Iterable[str]:
    """If clients were evicted, the others only waited, and nothing else was to be expected of them."""
    return set(cause.attrs.get(EVICTED) or cause.attrs.get(HOSTS, ()))


def _every_host(world: World, cause: Fact) -> Iterable[str]:
    return world.runs_on


#: A cause on one node reaches others only if it is part of a larger failure: a link lost with its switch. An edge of
#: this scope that means that must say so.
ONE_NODE = "same node"

#: Scopes in which one cause reaches several runs, and the hosts that it reaches: what became of the other runs there is
#: evidence (``exposure.py``), unless the edge says otherwise. If slurmctld itself names the node that a run was ended
#: for, other runs are none.
REACH: dict[str, Callable[[World, Fact], Iterable[str]]] = {
    ONE_NODE: _one_host,
    "node in allocation": _one_host,
    "node under switch": _cut_off,
    "run used the storage": _clients,
    "controller's own link": _every_host,
}

SCOPES: dict[str, Scope] = {
    "same node": _same_node, "node under switch": _under_switch, "link of switch": _link_of_switch,
    "node in allocation": _in_allocation, "failed node of run": _failed_node, "same run": _same_run,
    "same run or its node": _same_run_or_node, "device in allocation": _device, "same bus": _same_bus,
    "controller's own link": _link_of_controller, "went down together": _fell_with,
    "run used the storage": _used_storage, "all its clients": _lost_with_link, "whole cluster": _whole_cluster, "reported by the run": _stated_by_run, "fell silent together": _fell_silent_with,
    "node or partition of the run": _taken_away,
}  # fmt: skip

#: Scopes that were renamed: a site's edge files may have the former names.
FORMER = {"told by the run": "reported by the run"}


@cache
def scopes() -> Mapping[str, Scope]:
    """All scopes by name, including those of installed packages."""
    return vocabulary("SCOPES", SCOPES)
