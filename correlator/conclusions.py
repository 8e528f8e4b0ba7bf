"""What is concluded about one cluster."""

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
from correlator.verdicts.verdict import Verdict


@dataclass
class Conclusions:
    """What is concluded about one cluster."""

    cluster: str | None
    events: Sequence[Event] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    incidents: list[Mapping[str, Any]] = field(default_factory=list)
    verdicts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    lemons: list[str] = field(default_factory=list)
    node_states: list[dict[str, Any]] = field(default_factory=list)
    #: The incidents behind the documents, for the next ticks; not stored.
    stories: list[Incident] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    #: How far what was just judged can still change, by key of a run, until a tick has read it.
    horizons: dict[str, Horizon] = field(default_factory=dict)
    #: What a tick has just judged, until it knows that its window holds all causes.
    weighed: list[Verdict] = field(default_factory=list)
    site: Site | None = None
    rates: BaseRates | None = None
    clocks: clocks.Clocks = field(default_factory=clocks.Clocks)
    progress: dict[tuple[int, int], list[tuple[float, float]]] = field(default_factory=dict)
    #: Which sources were collected, and when.
    collected: Collected = field(default_factory=Collected)
    controllers: frozenset[str] = frozenset()
    believed: Controllers = field(default_factory=lambda: Controllers(frozenset()))
    #: Hosts whose lines are shown without the event that they claim.
    disowned: Disowned = frozenset()
    #: The events behind ``disowned``, what is known of them, and the lines that were shown to be false.
    strays: Sequence[Event] = field(default_factory=list)
    proof: Proof | None = None
    forgeries: list[Forgery] = field(default_factory=list)
    #: Does any stored line in the kernel's name show the kernel's clock? None if nothing asked for it.
    any_kernel_clock: bool | None = None
    #: Did slurmctld ever log a changed time limit? None if nothing asked for it.
    any_new_limit: bool | None = None
    #: Are there rows about jobs? They decide which lines count for runs (gather/of_runs.py).
    accounted: bool = False
    #: Jobs with output lines without a timestamp, whose time depends on what else is known of the job.
    unstamped: frozenset[int] = frozenset()
    first: float = 0.0
    last: float = 0.0
    inventory: Inventory | None = None
    #: When each host was first seen, the longest causal window, and the longest logged timeout;
    #: ``reach.longest_window`` computes the last two once.
    seen: dict[str, float] = field(default_factory=dict)
    longest: float | None = None
    logged_timeout: float = 0.0
    #: How many incidents that end runs have their root on each node.
    roots: Roots = field(default_factory=Roots)
    #: Comparisons with other runs that a cause reached or that had a host. ``uncovered`` is the earliest effect for which
    #: it is not known yet what became of runs that a cause reached.
    looks: list[Seen] = field(default_factory=list)
    uncovered: float | None = None
    #: The events that were read, with their columns.
    lines: event_rows.Lines | None = None
    #: Former inputs that nothing uses any more: freeing them takes a while and can wait for a better moment.
    to_free: list[object] = field(default_factory=list)

    @property
    def reporting_hosts(self) -> frozenset[str]:
        """The hosts whose kernel or system log was collected at any time."""
        return self.collected.reporting_hosts
