"""The correlator: everything stored about a cluster -> events, runs, incidents, verdicts.

A pure function of the set of stored rows: the order of arrival, duplicates and restarts change nothing. Its results
replace the tables of ``model``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from correlator.clocks import clocks
from correlator.clocks.clocks import Books, accounting_time_in, node_failures
from correlator.conclusions import Basis, Conclusions, Pass
from correlator.detections import detections
from correlator.edges import load as edge_files
from correlator.edges.load import Rules
from correlator.evidence import forgeries
from correlator.evidence.weigh import BaseRates, Weigher
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import conclude, root_event
from correlator.facts.world import World, bus_of
from correlator.gather import collected, kernel_copies, kernel_lines, of_timeouts, silences, software, telemetry
from correlator.gather import event_table as stored_events
from correlator.gather import events as event_rows
from correlator.gather import runs as run_rows
from correlator.gather.addresses import of_log_hosts, read_senders
from correlator.gather.collected import Collected, Spans
from correlator.gather.of_runs import Witnesses
from correlator.gather.runs_fast import Fields
from correlator.gather.standing import (
    Controllers,
    controllers,
    disowned,
    in_doubt,
    speakers_of,
    unruled,
    without,
)
from correlator.gc_pause import paused
from correlator.incidents import incidents as incident_rows
from correlator.incidents import lemons
from correlator.incidents.documents import dated, incident_document, times_of, verdict_document
from correlator.incidents.incident import Incident
from correlator.incidents.lemons import Roots
from correlator.incidents.stored import result
from correlator.model import fact_table
from correlator.model.fact_index import by_kind
from correlator.model.json_text import sorted_json
from correlator.model.measurements import Throttled, XidSeen
from correlator.model.nouns import Edge, Event, Run
from correlator.site.first_seen import first_seen
from correlator.site.interfaces import remember
from correlator.site.site import Inventory, build_site
from correlator.site.timeouts import narrow_slurmd_timeout
from correlator.verdicts.horizon import Horizon, Horizons
from correlator.verdicts.judge import judge
from correlator.verdicts.verdict import Verdict
from parsers.moments import utc
from store import disowned as false_claims
from store.questions import changes, job_output, job_rows
from store.questions import inventory as inventory_rows
from store.questions import telemetry as samples
from store.questions.source import ALL, Source
from store.tables import CONCLUDED_FACTS, EVENTS, FACTS, INCIDENTS, MODEL_NODE_STATES, RUNS

if TYPE_CHECKING:
    from store.door import Asks, Door, Writer


#: Tables of ``raw`` that many stores have no rows of. To count their rows takes one look, and each of their questions
#: costs the engine 1 to 3 ms of planning.
SPARSE = ("steps", "settings", "links", "topology", "node_states", "metrics", "boots")


def correlate(
    store: Door, *, settings: Mapping[str, object] | None = None, edge_paths: Sequence[Path] = ()
) -> list[Conclusions]:
    """Concludes anew about every cluster in the store and writes ``model``. ``settings`` override Slurm's values."""
    rules = load_edges(edge_paths)
    remember(store, settings)
    with paused():
        rows = store.changes(SPARSE).rows
        empty = frozenset(table for table in SPARSE if not rows[table])
        passes = [conclude_cluster(store, cluster, rules, settings, empty) for cluster in clusters_of(store)]
        found = [one.result for one in passes]
        write(store, found, lines={one.result.cluster: one.lines for one in passes})
    return found


def load_edges(edge_paths: Sequence[Path] = ()) -> Rules:
    """The rules of built-in and site edge files. Raises ``ValueError`` naming every invalid entry."""
    rules, problems = edge_files.rules(edge_paths)
    if problems:
        raise ValueError("; ".join(str(p) for p in problems))
    return rules


def clusters_of(store: Door) -> list[str | None]:
    """The clusters with stored rows; None for rows without a cluster."""
    return [r["cluster"] for r in store.ask(inventory_rows.clusters())]


def conclude_cluster(
    store: Door, cluster: str | None, rules: Rules, settings: Mapping[str, object] | None = None, empty: Collection[str] = (),
    spans: Spans | None = None,
) -> Pass:  # fmt: skip
    """Concludes about everything stored about one cluster, from scratch. Every tick must reach the same result. ``empty``
    names tables of ``raw`` without rows, which are not queried; ``spans``: those of all lines (gather/collected.py), if known.
    """
    timed = event_rows.stamped(store, cluster)
    inventory = read_inventory(store, cluster, empty)
    sources = Collected(collected.asked(store, cluster) if spans is None else spans)
    nodes = {r["host"] for r in store.ask(job_rows.hosts_of_jobs(cluster))}
    log_host_folders = of_log_hosts(sources.log_host_folders, nodes, inventory.settings)
    senders = read_senders(store, cluster, timed, inventory.settings, settings, log_host_folders)
    stamped = event_rows.prepared(timed, senders)
    believed = controllers(stamped.events, inventory.settings, nodes, senders)
    speakers = speakers_of(believed)
    books = Books(
        accounting_time := accounting_time_in(store, cluster, speakers),
        lambda: node_failures(store, cluster, accounting_time),
    )
    unstamped = frozenset(r["job_id"] for r in store.ask(job_output.jobs_without_stamps(cluster)))
    events, lines = event_rows.with_unstamped(stamped, store, cluster, speakers, unstamped)
    doubtful = in_doubt(events, believed)
    clock_offsets = clocks.compared(
        without(events, unruled(doubtful, believed)),
        clocks.Known(inventory.cabling, telemetry.begun(store, cluster, accounting_time), believed.senders),
        books,
    )
    # Output without a timestamp is placed by the end of its run, as accounting or slurmctld gives it.
    if clock_offsets.zones.accounting_time:
        events, lines = event_rows.with_unstamped(
            stamped, store, cluster, speakers, unstamped, clock_offsets.zones.accounting_time
        )
        doubtful = in_doubt(events, believed)
    # Correcting their times changes neither who can have written events nor their ids.
    others, dropped = disowned(doubtful, believed), unruled(doubtful, believed)
    corrected = clock_offsets.corrected(events)
    events, strays = list(without(corrected, dropped)), forgeries.strays(corrected, dropped)
    witnesses = Witnesses(senders, bool(nodes))
    runs = run_rows.gather(store, cluster, events, clock_offsets.zones.accounting_time, "steps" not in empty, witnesses, moved=run_rows.moved_by(clock_offsets, believed))  # fmt: skip
    kernel_clocks, limits = kernel_lines.Asked(store, cluster), of_timeouts.ChangedLimits(store, cluster)
    world = gather_world(
        store, cluster, settings, events, runs, [] if "node_states" in empty else node_states(store, cluster), clock_offsets,
        measured=measure(store, cluster, empty), inventory=inventory, believed=believed, sources=sources,
        kernel_clocks=kernel_clocks, limits=limits,
    )  # fmt: skip
    conclude(world)
    narrow_slurmd_timeout(world.site, world.facts_of(LINK_OUTAGE.name), world.facts_of(NODE_DOWN.name))
    seen = first_seen((events[0] for events in world.by_host.values()), world.runs)
    rates = BaseRates(by_kind(world.facts), seen.values(), world.first, rules.innocent)
    found = conclude_world(world, rules.edges, rates)
    result, roots = found.result, Roots.of(found.result.incidents)
    proof = forgeries.proof(strays, world.events, believed, inventory.settings, lambda: nodes) if strays else None
    result.disowned, result.forgeries = others, forgeries.gathered(world, strays, proof)
    result.lemons = roots.suspects(len(world.site.hosts))
    return Pass(result, replace(
        found.basis, seen=seen, clocks=clock_offsets, strays=strays, proof=proof, roots=roots, unstamped=unstamped,
        any_kernel_clock=kernel_clocks.any_clock, any_new_limit=limits.any_change, accounted=witnesses.accounted,
        looks=[*found.basis.looks, *(one.look for one in result.forgeries if one.look)],
    ), found.horizons, lines)  # fmt: skip


def read_inventory(store: Asks, cluster: str | None, empty: Collection[str] = ()) -> Inventory:
    """The inventory. ``empty`` names tables of ``raw`` without rows, which are not queried."""
    tables = {"settings": inventory_rows.settings, "links": inventory_rows.links, "topology": inventory_rows.topology}
    settings, links, topology = ([] if name in empty else store.ask(rows(cluster)) for name, rows in tables.items())
    return Inventory(settings, links, topology)


@dataclass(frozen=True)
class Measured:
    """What telemetry and job output show; the fields are those of ``World``, whether there are measurements of GPUs, and
    whether there are any at all."""

    gpu_jobs: dict[tuple[str, str], list[tuple[float, int]]]
    throttling: list[Throttled]
    xids_seen: list[XidSeen]
    progress: dict[tuple[int, int], list[tuple[float, float]]]
    booted: list[tuple[float, str]] = field(default_factory=list)
    gpus: bool = False
    any: bool = True


def measure(
    store: Asks, cluster: str | None, empty: Collection[str] = (), source: Source = ALL, *, any_pace: bool = True,
    gpus: bool = False,
) -> Measured:  # fmt: skip
    """Reads measurements. ``empty`` names tables of ``raw`` without rows, which are not queried. ``any_pace``: may job
    output show the pace of a job? ``gpus``: it is known already that GPUs are measured."""
    measured = "metrics" not in empty and bool(store.ask(samples.any_sample(cluster, source)))
    return Measured(
        _gpu_jobs(store, cluster, source) if measured else {}, telemetry.throttled(store, cluster, source) if measured else [],
        telemetry.xids_seen(store, cluster, source) if measured else [], telemetry.progress(store, cluster, source) if any_pace else {},
        [] if "boots" in empty else telemetry.booted(store, cluster, source),
        gpus or (measured and telemetry.sampled(store, cluster, source)), "metrics" not in empty,
    )  # fmt: skip


def gather_world(
    store: Asks, cluster: str | None, settings: Mapping[str, object] | None, events: list[Event], runs: list[Run],
    states: list[dict[str, Any]], off: clocks.Clocks, hosts: Iterable[str] = (), before: Basis | None = None,
    measured: Measured | None = None, inventory: Inventory | None = None, believed: Controllers | None = None,
    kernel_clocks: kernel_lines.Clocks | None = None, limits: of_timeouts.ChangedLimits | None = None,
    earlier: tuple[Sequence[Run], float] = ((), float("-inf")), sources: Collected | None = None, more: Spans | None = None,
) -> World:  # fmt: skip
    """Collects all that is known besides events and runs.

    ``hosts`` are further hosts known to exist. ``before`` is what earlier passes with the same inventory learned, before the
    lines with the spans ``more`` were collected (gather/collected.py). ``measured``, ``inventory`` and ``sources`` are passed
    if they were read already. ``earlier``: the world's ``earlier_runs`` and ``runs_since``.
    """
    measured = measured or measure(store, cluster)
    known = set(filter(None, map(attrgetter("host"), events))).union(hosts, *map(attrgetter("nodes"), runs))
    inventory = inventory or (before.inventory if before else None) or read_inventory(store, cluster)
    sources = sources or (before.collected if before else Collected(collected.asked(store, cluster)))
    sources = sources.but(more, telemetry=measured.gpus)
    world = World(
        build_site(cluster, inventory.settings, inventory.cabling, inventory.topology, known, settings),
        events,
        runs,
        node_states=states,
        gpu_jobs=measured.gpu_jobs,
        throttling=measured.throttling,
        xids_seen=measured.xids_seen,
        progress=_in_true_time(measured.progress, off.zones),
        spoke=telemetry.speaking(store, cluster, off.zones.offsets),
        booted=measured.booted,
        slurmd_starts=telemetry.starting(store, cluster, off.zones.offsets),
        legs=telemetry.bonds(store, cluster),
        outputs=of_timeouts.outputs(store, cluster, off.zones),
        work=of_timeouts.work(store, cluster, is_measured=measured.any),
        new_limits=(limits or of_timeouts.ChangedLimits(store, cluster)).read(
            speakers_of(believed or Controllers(frozenset())), off.zones
        ),
        kernel_clocks=kernel_clocks or kernel_lines.Asked(store, cluster),
        line_copies=kernel_copies.Asked(store, cluster),
        gpu_minors=telemetry.gpu_minors(store, cluster, is_measured=measured.any),
        software=software.versions(store, cluster, is_measured=measured.any),
        clocks=off.offsets,
        accounting_time=off.zones.accounting_time,
        silences=silences.Asked(store, cluster),
        collected=sources,
        reporting_hosts=sources.reporting_hosts,
        asked=True,
        inventory=inventory,
        believed=believed,
        earlier_runs=earlier[0],
        runs_since=earlier[1],
    )
    if before:  # a window may contain no line of slurmctld
        world.controllers |= before.controllers
    return world


def _in_true_time(progress: Mapping[tuple[int, int], list[tuple[float, float]]], zones: clocks.Zones) -> dict[tuple[int, int], list[tuple[float, float]]]:  # fmt: skip
    """The step times of job output, corrected where its timestamps are in another zone."""
    if not zones.offsets:
        return dict(progress)
    return {
        run: [(at - zones.ahead_in_output(run[0], at), pace) for at, pace in samples]
        for run, samples in progress.items()
    }


class Weighed:
    """What follows from the facts of a world, before its documents are written, which takes as long again."""

    def __init__(self, world: World, edges: list[Edge], rates: BaseRates) -> None:
        self.world, self.edges, self.rates, self.weigher = world, edges, rates, Weigher(world, edges, rates)
        self.verdicts = judge(world, self.weigher)
        self.stories = incident_rows.gather(world, self.weigher, self.verdicts)

    def concluded(self) -> Pass:
        """Everything except the documents and the horizons of verdicts."""
        world, exposed = self.world, self.weigher.exposed
        result = Conclusions(
            world.site.cluster, world.events, world.runs, facts=world.facts, node_states=world.node_states
        )
        basis = Basis(
            stories=self.stories, site=world.site, inventory=world.inventory, first=world.first, last=world.last, rates=self.rates,
            progress=world.progress, collected=world.collected or Collected(), controllers=world.controllers,
            believed=world.believed or Controllers(frozenset()), looks=[*world.looks, *exposed.looks], uncovered=exposed.uncovered,
        )  # fmt: skip
        return Pass(result, basis)

    def incident_documents(self, stories: Iterable[Incident]) -> list[dict[str, Any]]:
        times = times_of(self.stories)
        return [incident_document(self.world, self.weigher, story, times) for story in stories]

    def verdict_documents(self, verdicts: Iterable[Verdict]) -> dict[str, dict[str, Any]]:
        """Verdict documents by the keys of runs."""
        story_of = {id(v): story for story in self.stories for v in story.verdicts}
        return {v.run.key: verdict_document(self.world, self.weigher, v, story_of.get(id(v))) for v in verdicts}

    def horizons(self, verdicts: Iterable[Verdict]) -> dict[str, Horizon]:
        """How far verdicts can still change, by the keys of runs, without those that ended long ago."""
        horizons = Horizons(self.world, self.weigher, self.edges)
        return {v.run.key: horizon for v in verdicts if (horizon := horizons.of(v)) is not None}


def conclude_world(world: World, edges: list[Edge], rates: BaseRates) -> Pass:
    """From facts to documents: verdicts and incidents."""
    weighed = Weighed(world, edges, rates)
    found = weighed.concluded()
    found.result.incidents = [*weighed.incident_documents(weighed.stories)]
    found.result.verdicts = {**weighed.verdict_documents(weighed.verdicts)}
    return replace(found, horizons=weighed.horizons(weighed.verdicts))


def node_states(store: Asks, cluster: str | None, source: Source = ALL) -> list[dict[str, Any]]:
    return store.ask(inventory_rows.node_states(cluster, source))


def _gpu_jobs(store: Asks, cluster: str | None, source: Source) -> dict[tuple[str, str], list[tuple[float, int]]]:
    """(host, bus) -> [(time, job)] from telemetry that labels a GPU with its job (dcgm-exporter's hpc_job)."""
    rows = store.ask(samples.jobs_of_gpus(cluster, source))
    found: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for row in rows:
        if row["pci"] and row["job"] is not None:
            found.setdefault((row["host"], bus_of(row["pci"])), []).append((row["t"], row["job"]))
    return found


def _moment(text: str | None) -> datetime | None:
    return None if text is None else utc(datetime.fromisoformat(text))


#: What ``write`` keeps as facts, if there is nothing to keep.
NO_FACTS = {lemons.FACT: lemons.written(()), false_claims.FACT: false_claims.fact((), ())}


def write(
    store: Door, found: Sequence[Conclusions], detected: Mapping[str, datetime] | None = None,
    also: Callable[[Writer], None] | None = None, lines: Mapping[str | None, event_rows.Lines | None] | None = None,
) -> None:  # fmt: skip
    """Replaces ``model`` by these conclusions. ``detected``: when each incident was first published, if known. ``also``
    stores more in the same transaction. ``lines``: the events of a cluster that were just read, with their columns, if any."""
    first, read = detections(store) if detected is None else detected, lines or {}
    tables = {
        EVENTS: pl.concat([rows for c in found for rows in _event_tables(c, read.get(c.cluster))]) if found else stored_events.table([], {}, None),
        RUNS: run_table(found), INCIDENTS: incident_table(found, first),
        CONCLUDED_FACTS: fact_table.table({i: row for c in found for i, row in fact_table.rows(c.facts, c.cluster).items()}),
        MODEL_NODE_STATES: pl.DataFrame([s for c in found for s in c.node_states], schema={
            "time": pl.Datetime("us"), "until": pl.Datetime("us"), **dict.fromkeys(("cluster", "host", "state", "reason", "actor", "source"), pl.String)}),
    }  # fmt: skip
    facts = {
        lemons.FACT: lemons.written((c.cluster, c.lemons) for c in found),
        false_claims.FACT: disowned_fact(found),
    }
    # They rarely change, and replacing them costs as much as a table. Without one, there are none.
    changed = {name: value for name, value in facts.items() if (store.fact(name) or NO_FACTS[name]) != value}
    with store.write() as writer:
        if also is not None:
            also(writer)
        for table, rows in tables.items():
            writer.change(changes.all_rows(table))
            writer.insert(table, rows)
        if changed:
            writer.replace(FACTS, ("name",), pl.DataFrame({"name": list(changed), "value": list(changed.values())}))


def disowned_fact(found: Iterable[Conclusions]) -> str:
    """Hosts whose lines are shown without the event that they claim, of all clusters, in the form the store keeps."""
    reported = [(c.cluster, one) for c in found for one in c.disowned]
    return false_claims.fact(
        ((cluster, one[1]) for cluster, one in reported if one[0] == "slurmctld"),
        ((cluster, one[1], one[2]) for cluster, one in reported if one[0] == "sender"),
        ((cluster, one[1]) for cluster, one in reported if one[0] == "slurmctld file"),
    )


def homes(incidents: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Event id -> the incident that it belongs to."""
    return {e["id"]: i["id"] for i in incidents for e in i["events"]}


def _event_tables(conclusions: Conclusions, lines: event_rows.Lines | None) -> Iterable[pl.DataFrame]:
    yield stored_events.table(conclusions.events, homes(conclusions.incidents), conclusions.cluster, lines)
    if conclusions.forgeries:
        yield forged_table(conclusions, conclusions.forgeries)


def forged_table(conclusions: Conclusions, forged: Iterable[forgeries.Forgery]) -> pl.DataFrame:
    return stored_events.table([one.event for one in forged], {}, conclusions.cluster)


def incident_table(
    found: Sequence[Conclusions], detected: Mapping[str, datetime], texts: Mapping[int, str] | None = None
) -> pl.DataFrame:
    """The incidents as rows. ``detected``: when the running service first published each. ``texts``: id() of a document
    -> its JSON text, if already made."""
    known = texts or {}
    rows = [
        {"incident_id": i["id"], "cluster": c.cluster, "start": _moment(i["start"]), "end": _moment(i["end"]), "severity": i["severity"],
         "category": i["category"], "root_event": i["root_cause"]["event"], "root_host": i["root_cause"]["host"],
         "root_device": i["root_cause"]["device"], "document": dated(i, known.get(id(i)) or sorted_json(i), detected.get(i["id"]))}
        for c in found for i in c.incidents
    ]  # fmt: skip
    further = ("severity", "category", "root_event", "root_host", "root_device", "document")
    return pl.DataFrame(rows, schema={"incident_id": pl.String, "cluster": pl.String, "start": pl.Datetime("us"), "end": pl.Datetime("us"),
                                      **dict.fromkeys(further, pl.String)})  # fmt: skip


_RUN_TEXTS = ("name", "user", "account", "partition", "node_list", "gpu_index", "work_dir", "submit_line")
_RUN_NUMBERS = ("array_job_id", "array_task_id", "exit_code", "exit_signal", "gpus", "time_limit_s")


def run_table(found: Sequence[Conclusions], texts: Mapping[int, str] | None = None) -> pl.DataFrame:
    """The runs as rows. ``texts``: id() of a verdict's document -> its JSON text, if already made."""
    known = texts or {}
    runs = [r for c in found for r in c.runs]
    fields = Fields(r.row for r in runs)
    clusters = [c.cluster for c in found for _ in c.runs]
    verdicts = [c.verdicts.get(r.key) for c in found for r in c.runs]

    def of_run(name: str, kind: Any, attribute: str | None = None) -> pl.Series:
        return pl.Series(name, list(map(attrgetter(attribute or name), runs)), kind)

    def of_row(name: str, kind: Any) -> pl.Series:
        return pl.Series(name, fields.of(name), kind)

    def of_verdict(name: str, kind: Any) -> pl.Series:
        return pl.Series(name, [None if v is None else v[name] for v in verdicts], kind)

    def moments(name: str) -> pl.Series:
        # Seconds of a run are those of its row: Python's datetime objects take ten times as long.
        return (of_run(name, pl.Float64) * 1e6).round(0).cast(pl.Int64).cast(pl.Datetime("us"))

    return pl.DataFrame([
        of_run("run_key", pl.String, "key"), pl.Series("cluster", clusters, pl.String), of_run("job_id", pl.Int64), of_run("attempt", pl.Int64),
        of_run("state", pl.String), *(of_row(name, pl.String) for name in _RUN_TEXTS),
        *(of_row(name, pl.Int64) for name in _RUN_NUMBERS), *(moments(name) for name in ("submit", "start", "end")),
        _lists("nodes", [r.nodes for r in runs]), pl.Series("node_count", [len(r.nodes) for r in runs], pl.Int64),
        of_verdict("category", pl.String), of_verdict("incident_id", pl.String), of_verdict("confidence", pl.Float64),
        pl.Series("document", [None if v is None else known.get(id(v)) or sorted_json(v) for v in verdicts], pl.String),
    ])  # fmt: skip


def _lists(name: str, values: list[tuple[str, ...]]) -> pl.Series:
    """A column of lists of texts.

    Polars makes a series of each list, which is many times slower; ``pyarrow.array`` would import pandas.
    """
    ends = pl.Series([0, *accumulate(map(len, values))], dtype=pl.Int64).to_arrow()
    texts = pl.Series(list(chain.from_iterable(values)), dtype=pl.String).to_arrow()
    return pl.Series(name, pa.LargeListArray.from_arrays(ends, texts))


__all__ = [
    "Conclusions",
    "Pass",
    "clusters_of",
    "conclude_cluster",
    "correlate",
    "load_edges",
    "result",
    "root_event",
    "write",
]
