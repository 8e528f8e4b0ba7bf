"""Tests of edges on log lines: parsed, stored and concluded as all lines are, with the edge as the only one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from correlator.clocks import clocks
from correlator.edges.scopes import scopes
from correlator.engine import SPARSE, gather_world, measure, read_inventory
from correlator.evidence.weigh import Weigher, describe_cause
from correlator.facts.registry import conclude
from correlator.facts.world import World
from correlator.gather import events as event_rows
from correlator.gather import runs as run_rows
from correlator.gather.standing import controllers, speakers_of
from correlator.gc_pause import paused
from correlator.model.nouns import Fact, Hop
from correlator.selftest.case import Case, Line
from correlator.site.site import JOB_SETTINGS
from parsers.engine import LineParser
from parsers.hostlist import expand
from parsers.record import Origin, frame
from store import open_store

if TYPE_CHECKING:
    from parsers.patterns import Catalogue
    from store.door import Door

#: When the lines' offsets begin: any moment will do.
BEGINNING = datetime(2026, 3, 3, 10)

#: Sources that write their own timestamp before their lines, in brackets.
_SLURM = frozenset({"slurmctld", "slurmd", "slurmstepd", "slurmdbd", "slurmrestd"})

_OUTPUT = ("stdout", "stderr")

#: Tables that no situation has rows of (``tables_of``): they are not asked.
_EMPTY = frozenset(SPARSE) - {"settings", "links"}


def outcomes_of_lines(cases: Sequence[Case], catalogue: Catalogue | None = None) -> Iterator[tuple[Case, str]]:
    """Each test, and what is wrong with it. All are in one store, each situation as a cluster of its own."""
    distinct = {case.situation: case for case in cases}
    different = list(distinct.values())
    worlds: dict[str, World] = {}
    with open_store(None) as store:
        store.append(tables_of(different, LineParser(catalogue)))
        with paused():
            for number, case in enumerate(different):
                worlds[case.situation] = _world(store, cluster_of(number), case)
        for case in cases:
            yield case, _judged(case, worlds[case.situation])


def tables_of(cases: Sequence[Case], parser: LineParser) -> dict[str, pl.DataFrame]:
    """The store's tables for these situations, each as a cluster of its own."""
    tables = {"logs": _logs(cases, parser)}
    for name, rows_of in (("jobs", _jobs), ("settings", _settings), ("links", _links)):
        rows = [{"cluster": cluster_of(n), **row} for n, case in enumerate(cases) for row in rows_of(case)]
        tables[name] = frame(name, rows)
    return tables


def cluster_of(number: int) -> str:
    return f"test{number}"


def _moment(at: float) -> datetime:
    return BEGINNING + timedelta(seconds=at)


def _jobs(case: Case) -> list[dict[str, object]]:
    return [
        {"job_id": job.id, "submit": _moment(job.start - 1), "start": _moment(job.start), "end": _moment(job.end), "state": job.state,
         "node_list": job.nodes, "nodes": expand(job.nodes), "exit_code": job.exit_code, "exit_signal": job.signal, "user": job.user, "cancelled_by": job.cancelled_by,
         "source": "sacct", "file": "test", "line": number}
        for number, job in enumerate(case.jobs)
    ]  # fmt: skip


def _settings(case: Case) -> list[dict[str, object]]:
    # A configuration that was seen makes everything that it does not name Slurm's default.
    found: list[dict[str, object]] = [{"scope": "cluster", "name": "ClusterName", "value": "test", "source": "test"}]
    for job in case.jobs:
        own = {name: f"{case.settings.get(name, default):g}" for name, (default, _) in JOB_SETTINGS.items()}
        environment = {**own, **job.env}
        found += [{"scope": f"job:{job.id}", "name": n, "value": v, "source": "test"} for n, v in environment.items()]
    return found


def _links(case: Case) -> list[dict[str, object]]:
    return [
        {"host": link["host"], "device": link["device"], "switch": link["switch"], "switch_port": link.get("port"),
         "plane": link.get("plane"), "source": "test"}
        for link in case.links
    ]  # fmt: skip


def _logs(cases: Sequence[Case], parser: LineParser) -> pl.DataFrame:
    """All lines as their sources would have written them, through the parser; those of one source and place together, but a
    Slurm daemon's of each case by themselves: lines of its file that are older than those before them are claims."""
    groups: defaultdict[tuple[str, str, int], list[tuple[int, int, Line]]] = defaultdict(list)
    for case_number, case in enumerate(cases):
        for number, line in enumerate(case.lines, 1):
            own = (line.source, line.place) if line.source in _SLURM or line.source in _OUTPUT else ("syslog", "")
            file = case_number if line.source in _SLURM else 0
            groups[*own, file].append((case_number, number, line))
    return pl.concat([_parsed(parser, source, place, lines) for (source, place, _), lines in groups.items()])


def _parsed(parser: LineParser, source: str, place: str, lines: Sequence[tuple[int, int, Line]]) -> pl.DataFrame:
    origin = Origin(path="test", timezone_known=True, reference=_moment(0))
    if source in _OUTPUT:
        origin = origin.but(source=f"job_{source}", job_id=int(place))
    elif source in _SLURM:
        origin = origin.but(source=source, host=place)
    rows = parser.parse([_written(line).encode() for _, _, line in lines], origin)
    if source in _OUTPUT:  # output has no timestamps, or the program's own
        moments = pl.Series("time", [_moment(line.at) for _, _, line in lines], pl.Datetime("us"))
        rows = rows.with_columns(moments, time_quality=pl.lit("line"), resolution_us=pl.lit(1000, pl.Int64))
    # The author of a test states which program wrote a line. The journal says so of the kernel and of daemons.
    noted = pl.lit("journald") if source == "syslog" else pl.col("format")
    return rows.with_columns(
        noted.alias("format"),
        pl.Series("cluster", [cluster_of(n) for n, _, _ in lines], pl.String),
        pl.Series("line", [n for _, n, _ in lines]),
    )


def _written(line: Line) -> str:
    """The line with its timestamp."""
    stamp = _moment(line.at).isoformat(timespec="microseconds")
    if line.source in _OUTPUT:
        return line.text
    if line.source in _SLURM:
        return f"[{stamp[:-3]}] {line.text}"
    pid = f"[{line.pid}]" if line.pid else ""
    return f"{stamp}+00:00 {line.place} {line.source}{pid}: {line.text}"


def _world(store: Door, cluster: str, case: Case) -> World:
    """The same steps as ``engine.conclude_cluster``."""
    stamped = event_rows.prepared(event_rows.stamped(store, cluster))
    speakers = speakers_of(controllers(stamped.events, ()))
    events, _ = event_rows.with_unstamped(stamped, store, cluster, speakers, ())  # every line has a time
    off = clocks.compared(events)
    events = off.corrected(events)
    tells_pace = any(line.source in _OUTPUT for line in case.lines)
    empty = _EMPTY if case.links else _EMPTY | {"links"}
    runs = run_rows.gather(store, cluster, events, stepped="steps" not in empty)
    settings = {name: f"{value:g}" for name, value in case.settings.items() if name not in JOB_SETTINGS}
    world = gather_world(
        store, cluster, settings, events, runs, [], off, measured=measure(store, cluster, empty, any_pace=tells_pace),
        inventory=read_inventory(store, cluster, empty),
    )  # fmt: skip
    conclude(world)
    return world


def _judged(case: Case, world: World) -> str:
    """What is wrong with a test, in words; empty if it passed."""
    edge = case.edge
    causes, effects = ([f for f in world.facts if f.kind in kinds] for kinds in (edge.cause, edge.effect))
    for kinds, found in ((edge.cause, causes), (edge.effect, effects)):
        if not found:
            found_kinds = sorted({f.kind for f in world.facts}) or sorted({e.kind for e in world.events})
            return f"its lines tell of no {' or '.join(kinds)}, only of {', '.join(found_kinds) or 'nothing'}: the edge was not tried"
    # A blocking edge is tried like any other.
    weigher = Weigher(world, [replace(edge, blocks=False)])
    tried = [weigher.into(effect) for effect in effects]
    hops = [hop for found, _ in tried for hop in found]
    reasons = [f"{describe_cause(world, r.cause)} did not cause {_name(world, r.effect)}: {r.reason}" for _, found in tried for r in found]  # fmt: skip
    if case.holds and not hops:
        return f"expected to hold, but does not: {'; '.join(reasons or _why_untried(world, case, causes, effects))}"
    if not case.holds and hops:
        return f"expected not to hold, but does: {_hop_text(world, hops[0])}"
    if case.why and not any(case.why in reason for reason in reasons):
        return f"does not hold, as expected, but not because {case.why!r}: {'; '.join(reasons or _why_untried(world, case, causes, effects))}"
    return ""


def _name(world: World, fact: Fact) -> str:
    return fact.kind if fact.host is None and fact.run is None else describe_cause(world, fact)


def _hop_text(world: World, hop: Hop) -> str:
    low, high = hop.window
    return f"{describe_cause(world, hop.cause)} caused {_name(world, hop.effect)} {hop.lag:.1f} s later, {low:g} to {high:g} s allowed"


def _why_untried(world: World, case: Case, causes: Iterable[Fact], effects: Sequence[Fact]) -> list[str]:
    """Why nothing was tried: the scope, or too much time between them."""
    within = scopes()[case.edge.scope].test
    pairs = [(cause, effect) for cause in causes for effect in effects if cause is not effect]
    joined = [(c, e) for c, e in pairs if within(world, c, e)]
    if not joined:
        return [f"none of its facts are related by the scope {case.edge.scope!r}"]
    return [f"{_name(world, e)} came {e.start - c.start:.1f} s after {describe_cause(world, c)}, far from {case.edge.window}" for c, e in joined[:3]]  # fmt: skip
