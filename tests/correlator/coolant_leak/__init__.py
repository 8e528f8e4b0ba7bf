"""Coolant leaks into a node, as reported by its rack's controller: an example of another package, all in this folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from correlator.edges.conditions.declaration import Conditions
from correlator.edges.scopes import Scopes
from correlator.facts.world import World, run_of
from correlator.model.kinds import Cause, Kind, Lane
from correlator.model.nouns import Fact

HERE = Path(__file__).parent


class Leak(TypedDict):
    """The ``tray`` that is wet."""

    tray: str


COOLANT_LEAK = Kind(
    "coolant.leak", "cooling", "Coolant leaked into a tray of a node.", Leak,
    brief="coolant leak", events=("coolant.leak", "coolant.dried"),
    cause=Cause(
        "node.coolant_leak", "infra.node", "coolant leaked into {tray} of {host}", "coolant leaked into its node",
        (("Close the valve of {host}, power it off and dry {tray}.", "scontrol update nodename={host} state=down reason='coolant leak'"),),
        short="coolant leak in {host}", unharmed="degraded", family="machine", software=("tray_",),
        disproof="A dry tray: then the sensor is at fault.",
    ),
)  # fmt: skip


def leaks(world: World) -> list[Fact]:
    """One fact for each line of the controller."""
    return [
        COOLANT_LEAK.fact(e.time, None, e.sigma, e.host, attrs={"tray": str(e.entities["device"])}, events=(e,))
        for e in world.kinds("coolant.leak")
    ]


CONDITIONS = Conditions()


@CONDITIONS.named("tray still wet", "The tray was not dried before the run ended.")
def still_wet(world: World, cause: Fact, effect: Fact) -> str | None:
    dried = [e for e in world.kinds("coolant.dried") if e.host == cause.host and cause.start < e.time < effect.start]
    return f"{cause.attrs['tray']} of {cause.host} was dry again" if dried else None


SCOPES = Scopes()


def nodes_of_run(world: World, effect: Fact) -> Iterable[str]:
    run = run_of(world, effect)
    return run.nodes if run else ()


def wet_nodes(world: World, cause: Fact) -> Iterable[str]:
    """The tray's own node: the next tray has its own pan."""
    return [cause.host] if cause.host else []


@SCOPES.named(
    "under the tray",
    "The run is on the node of the tray.",
    on_hosts=nodes_of_run,
    reaches=wet_nodes,
    reached="under that tray",
)
def under_the_tray(world: World, cause: Fact, effect: Fact) -> bool:
    return cause.host in nodes_of_run(world, effect)


LANES = (Lane("cooling", "Cooling", after="gpu"),)
KINDS = (COOLANT_LEAK,)
DETECTORS = [leaks]
EDGES = [HERE / "edges.toml"]
PATTERNS = [HERE / "patterns.toml"]
