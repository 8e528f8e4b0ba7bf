"""Scopes: the subjects between which an edge may hold. Each is declared once, beside its test.

@SCOPES.named("same bus", "The cause and the effect are on the same host and PCI bus.", on_hosts=_own_host)
def _same_bus(world: World, cause: Fact, effect: Fact) -> bool: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from correlator.edges.conditions.declaration import first_line
from correlator.facts.configuration import took_from
from correlator.facts.gpu_holders import not_held
from correlator.facts.gpus import bus
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import vocabulary
from correlator.facts.world import World, run_of
from correlator.model.attributes import EVICTED, FAILED_NODES, HOSTS, PROMOTED, RUNS, SERVER, TOKEN, UNDER, UNTIL, WORDS
from correlator.model.nouns import Fact

#: ``test(world, cause, effect)``: may the one explain the other, by where they are?
Test = Callable[[World, Fact, Fact], bool]

#: Why a cause is outside of a scope, in words; None if it is not near enough to be worth a word.
WhyOutside = Callable[[World, Fact, Fact], str | None]

#: ``places(world, fact)``: hosts, runs or switches; None for any.
Hosts = Callable[[World, Fact], Iterable[str]]
PlacesOf = Callable[[World, Fact], Iterable[str] | None]


@dataclass(frozen=True)
class Scope:
    """A relation between the place of a cause and the place of an effect. Edges name it."""

    name: str
    #: What the cause and the effect have in common, in one sentence.
    summary: str
    test: Test
    #: For a scope that can tell why a near cause is outside: such a cause is shown as a rejected rival.
    outside: WhyOutside | None = None
    #: For a scope that holds for causes on certain hosts only: those hosts, by the effect. Other facts are not examined.
    on_hosts: Hosts | None = None
    #: For a scope that holds for causes that touch one of certain places only (``evidence/candidates.places_of``): those
    #: places, by the effect.
    touching: PlacesOf | None = None
    #: The cause is of the effect's own run: its lines are read however old they are, and other facts are not examined.
    own_run: bool = False
    #: For a scope in which one cause reaches several runs: the hosts that it reaches, by the cause. What became of the
    #: other runs there is evidence (``exposure.py``), unless the edge says otherwise. If slurmctld itself names the node
    #: that a run was ended for, other runs are none.
    reaches: Hosts | None = None
    #: Does a cause by itself reach other runs? Otherwise only with the larger failure that it is part of, such as a link
    #: that is lost with its switch, and an edge that means that must say so (``shared``).
    reaches_alone: bool = True
    #: Where the runs are that it reaches, in words, if that is not the cause's host.
    reached: str = ""
    #: The name under which a site's edge files may still have it.
    formerly: str = ""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a scope whose causes are to be looked up in two ways, ``TypeError`` for no function."""
        for called in (self.test, self.outside, self.on_hosts, self.touching, self.reaches):
            if called is not None and not callable(called):
                raise TypeError(f"scope {self.name}: a {type(called).__name__} is no function")
        if sum((self.on_hosts is not None, self.touching is not None, self.own_run)) > 1:
            raise ValueError(f"scope {self.name}: give one of on_hosts, touching and own_run")

    @property
    def shared(self) -> bool:
        """Are other runs evidence about an edge of this scope that does not say?"""
        return self.reaches is not None and self.reaches_alone


class Scopes(dict[str, Scope]):
    """Scopes by name."""

    def named(
        self, name: str, summary: str, *, outside: WhyOutside | None = None, on_hosts: Hosts | None = None,
        touching: PlacesOf | None = None, own_run: bool = False, reaches: Hosts | None = None, reaches_alone: bool = True,
        reached: str = "", formerly: str = "",
    ) -> Callable[[Test], Test]:  # fmt: skip
        """Declares the function as the test of a scope. The function itself stays what it is."""
        if name in self:
            raise ValueError(f"the scope {name!r} is declared already")

        def declare(test: Test) -> Test:
            self[name] = Scope(
                name, summary, test, outside, on_hosts, touching, own_run, reaches, reaches_alone, reached, formerly
            )
            return test

        return declare


def declared(name: str, offered: Scope | Test) -> Scope:
    """A scope of a package, by the name that edges use. It may be a bare function: then the first line of its docstring
    says what it means, and a cause of it reaches no other runs."""
    if isinstance(offered, Scope):
        return offered if offered.name == name else replace(offered, name=name)
    return Scope(name, first_line(offered), offered)


SCOPES = Scopes()


# ------------------------------------------------------------------------------------------------------ nodes and devices


def _own_host(world: World, fact: Fact) -> Iterable[str]:
    return [fact.host] if fact.host else []


def _nodes(world: World, effect: Fact) -> Iterable[str]:
    run = run_of(world, effect)
    return run.nodes if run else ()


@SCOPES.named(
    "same node",
    "The cause and the effect are on the same host.",
    on_hosts=_own_host,
    reaches=_own_host,
    reaches_alone=False,
)
def _same_node(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host is not None and cause.host == effect.host


@SCOPES.named("same bus", "The cause and the effect are on the same host and PCI bus.", on_hosts=_own_host)
def _same_bus(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host == effect.host and bus(cause.device) is not None and bus(cause.device) == bus(effect.device)


@SCOPES.named("node in allocation", "The cause is on a node of the run.", on_hosts=_nodes, reaches=_own_host)
def _in_allocation(world: World, cause: Fact, effect: Fact) -> bool:
    run = run_of(world, effect)
    return run is not None and cause.host in run.nodes


def _not_its_device(world: World, cause: Fact, effect: Fact) -> str | None:
    run = run_of(world, effect)
    return not_held(world, run, cause) if run is not None and cause.host in run.nodes else None


@SCOPES.named(
    "device in allocation",
    "The cause is of a GPU that the run held, or may have held.",
    outside=_not_its_device,
    on_hosts=_nodes,
)
def _device(world: World, cause: Fact, effect: Fact) -> bool:
    """The run may have held the GPU (facts/gpu_holders.py)."""
    run = run_of(world, effect)
    return run is not None and cause.host in run.nodes and not_held(world, run, cause) is None


def _failed_nodes(world: World, effect: Fact) -> Iterable[str]:
    return effect.attrs.get(FAILED_NODES, ())


@SCOPES.named(
    "failed node of run", "The cause is on a node that Slurm named as the run's failed node.", on_hosts=_failed_nodes
)
def _failed_node(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host in effect.attrs.get(FAILED_NODES, ())


# ---------------------------------------------------------------------------------------------------------------- runs


@SCOPES.named("same run", "The cause and the effect are of the same run.", own_run=True)
def _same_run(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.run is not None and cause.run == effect.run


def _of_run(world: World, effect: Fact) -> Iterable[str]:
    run = run_of(world, effect)
    return (str(run.job_id), *run.nodes) if run else ()


@SCOPES.named("same run or its node", "The cause is of the same run, or on one of its nodes.", touching=_of_run)
def _same_run_or_node(world: World, cause: Fact, effect: Fact) -> bool:
    run = run_of(world, effect)
    if run is None:
        return False
    if cause.run:
        return cause.run == str(run.job_id)
    return not {cause.host, *cause.attrs.get(HOSTS, ())}.isdisjoint(run.nodes)


def _own_run(world: World, effect: Fact) -> Iterable[str]:
    return [effect.run] if effect.run else []


@SCOPES.named(
    "reported by the run", "The run's own output reports the cause.", touching=_own_run, formerly="told by the run"
)
def _stated_by_run(world: World, cause: Fact, effect: Fact) -> bool:
    """The run's own output reports it."""
    return effect.run is not None and (cause.run == effect.run or effect.run in cause.attrs.get(RUNS, ()))


@SCOPES.named(
    "node or partition of the run", "The cause took a node, or the partition, of the run out of Slurm's configuration."
)
def _taken_away(world: World, cause: Fact, effect: Fact) -> bool:
    """Slurm's configuration no longer has a node, or the partition, of the run."""
    run = run_of(world, effect)
    return run is not None and took_from(cause, run)


# ------------------------------------------------------------------------------------------------------------- storage


#: A target that this many clients lost was lost by all of them, also those whose logs are missing.
WIDE = 3


@lru_cache(
    maxsize=8_192
)  # hundreds of clients, asked for with each run of its time; in a storm there are thousands of outages
def _hosts(outage: Fact) -> frozenset[str]:
    return frozenset(outage.attrs.get(HOSTS, ()))


def _users_of_storage(world: World, effect: Fact) -> Iterable[str] | None:
    return None if (effect.attrs.get(WORDS) or {}).get("storage") else _nodes(world, effect)


def _clients(world: World, cause: Fact) -> Iterable[str]:
    """If clients were evicted, the others only waited, and nothing else was to be expected of them."""
    return set(cause.attrs.get(EVICTED) or cause.attrs.get(HOSTS, ()))


@SCOPES.named(
    "run used the storage",
    "The cause is of a file system that the run used.",
    touching=_users_of_storage,
    reaches=_clients,
)
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


def _first_client(world: World, effect: Fact) -> Iterable[str]:
    """A cause has all of them."""
    return sorted(effect.attrs.get(HOSTS, ()))[:1]


@SCOPES.named("all its clients", "The cause cut off every client that lost the storage.", touching=_first_client)
def _lost_with_link(world: World, cause: Fact, effect: Fact) -> bool:
    """Every client that lost the storage had lost this link, or was behind this switch.

    The storage itself was up for all others.
    """
    clients = effect.attrs.get(HOSTS, ())
    if not clients or effect.attrs.get(SERVER):
        return False
    if cause.kind == LINK_OUTAGE.name:  # very many of these are compared
        return len(clients) == 1 and next(iter(clients)) == cause.host
    return set(clients) <= set(cause.attrs.get(UNDER) or cause.attrs.get(HOSTS, ()))


# ---------------------------------------------------------------------------------------------------- links and switches


def _under_a_switch(world: World, effect: Fact) -> Iterable[str]:
    if effect.host is None:
        return _nodes(world, effect)
    return [effect.host, *world.controllers] if effect.kind == NODE_DOWN.name else [effect.host]


def _cut_off(world: World, cause: Fact) -> Iterable[str]:
    """Nodes of a lost switch: those whose links were lost, and those without a log of their own."""
    lost = set(cause.attrs.get(HOSTS, ()))
    return lost | (set(cause.attrs.get(UNDER, ())) - world.reporting_hosts) if world.reporting_hosts else lost


@SCOPES.named(
    "node under switch",
    "The effect is on a node behind the failed switch, or of a run there.",
    touching=_under_a_switch,
    reaches=_cut_off,
)
def _under_switch(world: World, cause: Fact, effect: Fact) -> bool:
    """All nodes of a failed switch are cut off, also those whose own logs are missing."""
    hosts = set(cause.attrs.get(UNDER) or cause.attrs.get(HOSTS, ()))
    run = run_of(world, effect)
    if run and effect.host is None:
        return bool(hosts & set(run.nodes))
    # A node that the controller cannot reach is given up, whichever of the two was cut off.
    return effect.host in hosts or (effect.kind == NODE_DOWN.name and bool(hosts & world.controllers))


def _its_switch(world: World, effect: Fact) -> Iterable[str]:
    return [str(name)] if (name := effect.attrs.get(PROMOTED)) else []


@SCOPES.named("link of switch", "The effect is a link outage that was attributed to this switch.", touching=_its_switch)
def _link_of_switch(world: World, cause: Fact, effect: Fact) -> bool:
    name = cause.host or cause.attrs.get(TOKEN)
    return name is not None and effect.attrs.get(PROMOTED) == name


def _controllers(world: World, effect: Fact) -> Iterable[str]:
    return world.controllers


def _every_host(world: World, cause: Fact) -> Iterable[str]:
    return world.runs_on


@SCOPES.named(
    "controller's own link",
    "The cause is on the host of slurmctld, the effect elsewhere.",
    on_hosts=_controllers,
    reaches=_every_host,
    reached="of the cluster",
)
def _link_of_controller(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host in world.controllers and effect.host != cause.host


# -------------------------------------------------------------------------------------------------------------- groups


#: Most of a switch's nodes (as promotion in facts/links/detector.py).
MOST = 0.6


def _with_others(world: World, effect: Fact) -> Iterable[str]:
    return [*filter(None, [effect.host]), *effect.attrs.get(HOSTS, ())]


@SCOPES.named(
    "went down together", "The effect is of a node or switch in the group that went down.", touching=_with_others
)
def _fell_with(world: World, cause: Fact, effect: Fact) -> bool:
    """Is the effect of a machine that was lost with the others, or of a switch most of whose nodes were?"""
    hosts = set(cause.attrs.get(HOSTS, ()))
    cut_off = set(effect.attrs.get(HOSTS, ()))
    return effect.host in hosts or (bool(cut_off) and len(cut_off & hosts) >= MOST * len(cut_off))


@SCOPES.named("fell silent together", "The effect is on a node of the group, while it was silent.", touching=_own_host)
def _fell_silent_with(world: World, cause: Fact, effect: Fact) -> bool:
    return (
        effect.host in cause.attrs.get(HOSTS, ())
        and cause.start - 1.0 <= effect.start <= cause.attrs.get(UNTIL, cause.start) + 1.0
    )


@SCOPES.named("whole cluster", "The cause and the effect are in the same cluster.")
def _whole_cluster(world: World, cause: Fact, effect: Fact) -> bool:
    return True


# -------------------------------------------------------------------------------------------------------------- lookup


@cache
def scopes() -> Mapping[str, Scope]:
    """All scopes by name, including those of installed packages."""
    found: Mapping[str, Scope | Test] = vocabulary("SCOPES", SCOPES)
    return {name: declared(name, one) for name, one in found.items()}


def former() -> Mapping[str, str]:
    """Former names of scopes, which a site's edge files may have -> today's. A name of today is none."""
    known = scopes()
    return {one.formerly: name for name, one in known.items() if one.formerly and one.formerly not in known}
