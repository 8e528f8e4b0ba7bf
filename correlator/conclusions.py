"""What a pass over the stored rows yields about one cluster: its conclusions, and what the next pass builds on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from correlator.clocks import clocks
from correlator.evidence.exposure import Seen
from correlator.evidence.forgeries import Forgery, Proof
from correlator.evidence.weigh import BaseRates
from correlator.gather import events as event_rows
from correlator.gather.collected import Collected
from correlator.gather.standing import Controllers, Disowned
from correlator.incidents.incident import Incident
from correlator.incidents.lemons import Roots
from correlator.model.nouns import Event, Fact, Run
from correlator.site.site import Inventory, Site
from correlator.verdicts.horizon import Horizon


@dataclass
class Conclusions:
    """What is concluded about one cluster, and stored in ``model``: nothing that is not stored is kept here.

    ``incidents`` are documents in order of their start, ``verdicts`` documents by the key of a run. ``lemons`` are nodes
    that were the root of suspiciously many incidents. ``disowned`` are hosts whose lines are shown without the event that
    they claim, ``forgeries`` the lines that were shown to be false.
    """

    cluster: str | None
    events: Sequence[Event] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    incidents: list[Mapping[str, Any]] = field(default_factory=list)
    verdicts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    lemons: list[str] = field(default_factory=list)
    node_states: list[dict[str, Any]] = field(default_factory=list)
    disowned: Disowned = frozenset()
    forgeries: list[Forgery] = field(default_factory=list)


@dataclass(frozen=True)
class Basis:
    """What a pass learned on the way to its conclusions. The next tick builds on it; it is not stored.

    Moments are in epoch seconds.
    """

    #: The incidents behind the documents, in the same order.
    stories: list[Incident] = field(default_factory=list)
    site: Site | None = None
    inventory: Inventory | None = None
    #: The moments of the first and the last known event, and when each host was first seen.
    first: float = 0.0
    last: float = 0.0
    seen: Mapping[str, float] = field(default_factory=dict)
    rates: BaseRates | None = None
    clocks: clocks.Clocks = field(default_factory=clocks.Clocks)
    #: Maps (job, restart count) to (moment, seconds per step) from its output.
    progress: dict[tuple[int, int], list[tuple[float, float]]] = field(default_factory=dict)
    #: Which sources were collected, and when.
    collected: Collected = field(default_factory=Collected)
    #: The hosts that run slurmctld by its own lines and slurm.conf; those that are trusted, and whose addresses are known.
    controllers: frozenset[str] = frozenset()
    believed: Controllers = field(default_factory=lambda: Controllers(frozenset()))
    #: The events behind ``Conclusions.disowned``, which count for nothing, and what is known of them.
    strays: Sequence[Event] = field(default_factory=list)
    proof: Proof | None = None
    #: Does any stored line in the kernel's name show the kernel's clock? None if nothing asked for it.
    any_kernel_clock: bool | None = None
    #: Did slurmctld ever log a changed time limit? None if nothing asked for it.
    any_new_limit: bool | None = None
    #: Are there rows about jobs? They decide which lines count for runs (gather/of_runs.py).
    accounted: bool = False
    #: Jobs with output lines without a timestamp, whose time depends on what else is known of the job.
    unstamped: frozenset[int] = frozenset()
    #: How many incidents that end runs have their root on each node.
    roots: Roots = field(default_factory=Roots)
    #: Comparisons with other runs that a cause reached or that had a host.
    looks: list[Seen] = field(default_factory=list)
    #: The earliest effect for which it is not known yet what became of runs that a cause reached.
    uncovered: float | None = None


@dataclass(frozen=True)
class Pass:
    """What one pass yields.

    ``horizons`` says how far each verdict can still change, by the key of a run. ``lines`` are the events that were read,
    with their columns: those rows are stored as they were read.
    """

    result: Conclusions
    basis: Basis
    horizons: Mapping[str, Horizon] = field(default_factory=dict)
    lines: event_rows.Lines | None = None
