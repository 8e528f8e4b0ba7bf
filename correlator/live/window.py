"""Concludes anew about a time window only, and merges the result into the conclusions before
(``correlator.live.merge``).

What happened at one moment can change verdicts and incidents up to ``margin`` before it, and those look back as far as
the longest causal window (``reach``). So a change at time t needs conclusions about [t - margin - reach, ...) from: the
rows of that window, all rows of the runs active in it, and the events of everything that still lasts when it begins.
What ended before t - margin stays unchanged. If that is not enough (another setting, another clock, another base rate),
``Window.again`` returns None and the caller concludes about everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from correlator.clocks import clocks
from correlator.clocks.clocks import Books, Known
from correlator.conclusions import Pass
from correlator.edges.load import Rules
from correlator.engine import Measured, Weighed, gather_world, measure, node_states
from correlator.evidence import forgeries
from correlator.evidence.exposure import lacks, other_now
from correlator.evidence.weigh import BaseRates
from correlator.facts.jobs.kinds import RUN_FAILED
from correlator.facts.links.detector import BY_NAME, may_end_at
from correlator.facts.links.kinds import LINK_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import conclude
from correlator.facts.world import World
from correlator.gather import events as event_rows
from correlator.gather import kernel_lines, of_timeouts, telemetry, unstamped_lines
from correlator.gather import runs as run_rows
from correlator.gather.addresses import are_of_agents
from correlator.gather.collected import GPUS
from correlator.gather.events import COALESCE_S
from correlator.gather.of_runs import Witnesses
from correlator.gather.runs_fast import EMPTY
from correlator.gather.since import since
from correlator.gather.standing import Disowned, asks_again, disowned, in_doubt, speakers_of, unruled, without
from correlator.incidents.incident import events_of
from correlator.live import log_hosts
from correlator.live.arrivals import Change
from correlator.live.far_causes import far_causes
from correlator.live.lookup import Spans, chosen
from correlator.live.merge import Merge
from correlator.live.reach import MARGIN_S, longest_window, untouched_until
from correlator.live.state import LiveConclusions, index_of
from correlator.model.fact_index import FactsByKind, number_of
from correlator.model.nouns import Event, Fact, Run
from correlator.model.thinned import first_at, of_kinds
from correlator.site.cabling import Cabling
from correlator.site.first_seen import HOUR_S, first_seen, hour_of
from correlator.site.site import Site
from correlator.site.timeouts import narrow_slurmd_timeout
from store.questions import job_rows

if TYPE_CHECKING:
    from store.door import Door

#: A run's end in accounting and the fact that ended it may differ by this many seconds.
ENDS_WITH_S = 5.0


class _Gathered(NamedTuple):
    """What is known of a window before its facts are concluded.

    ``runs`` are those of ``jobs``, ``former`` the same as known before; ``others`` are all others. ``strays``: the events
    that ``standing.ruling`` drops, ``proof`` what is known of them, ``strangers`` their claims.
    """

    events: list[Event]
    runs: list[Run]
    others: list[Run]
    former: list[Run]
    jobs: Collection[int]
    states: list[dict[str, Any]]
    measured: Measured
    off: clocks.Clocks
    strays: list[Event]
    proof: forgeries.Proof | None
    strangers: Disowned


class Window:
    """One change to one cluster's conclusions."""

    def __init__(
        self,
        store: Door,
        before: LiveConclusions,
        rules: Rules,
        settings: Mapping[str, object] | None,
        change: Change,
        begin: Callable[[LiveConclusions], None] = lambda merged: None,
    ) -> None:
        """``begin`` receives the new conclusions before their documents are written."""
        self.store, self.rules, self.settings, self.change, self.begin = store, rules, settings, change, begin
        self.before, self.cluster, basis = before, before.cluster, before.memory.basis
        #: What was concluded before the change, and what it was concluded from.
        self.known, self.basis = before.result, basis
        self.lines: event_rows.Lines | None = None
        self.index = index_of(before)
        #: How far timestamps are from true time, and from which timestamp on new lines are evidence about clocks.
        self.skew = basis.clocks.furthest
        self.evidence_from = basis.clocks.evidence_from(change.earliest)
        #: The time zones in which accounting reported the known jobs.
        self.accounting_time = basis.clocks.zones.accounting_time
        border = change.earliest - max(self.skew, self.accounting_time.furthest) - MARGIN_S
        if basis.uncovered is not None:  # what became of other runs that a cause reached may be known now
            border = min(border, basis.uncovered - ENDS_WITH_S)
        self.reach = longest_window(before, rules.edges) + MARGIN_S
        may_show, clock, limit = change.may_show, basis.any_kernel_clock, basis.any_new_limit
        self.kernel_clocks = kernel_lines.Asked(
            store, before.cluster, any_clock=None if clock is False and may_show.kernel_clock else clock
        )
        self.limits = of_timeouts.ChangedLimits(
            store, before.cluster, any_change=None if limit is False and may_show.new_limit else limit
        )
        self._begin(border)

    def _begin(self, border: float) -> None:
        change, spans, repeated = self.change, self.index.spans, self.index.repeated
        lasting = repeated.time[(repeated.time < border) & (repeated.last >= border - COALESCE_S)]
        border = float(lasting.min(initial=border))
        just = self.known.events[first_at(self.known.events, border - COALESCE_S) :][:1]
        #: Results are replaced from here on.
        self.border = min([border, *(e.time for e in just)])
        #: Incidents concluded anew: they reach into the window, or something in them may have ended.
        self.live = set(spans.names[spans.last(self.reach) >= self.border])
        self.live |= {name for name, hosts in spans.hosts.items() if not hosts.isdisjoint(change.ending)}
        self.live |= {name for name, jobs in spans.jobs.items() if not jobs.isdisjoint(change.jobs)}
        self._look_back()

    def _look_back(self) -> None:
        #: Rows are read from here on.
        spans = self.index.spans
        first = spans.first[spans.among(self.live)].min(initial=np.inf) if self.live else np.inf
        self.since = float(min(self.border, first) - self.reach)

    @property
    def whole(self) -> bool:
        """Is the window so long that concluding about everything costs no more?"""
        events = self.known.events
        inside = len(events) - first_at(events, self.since)
        return self.since <= self.basis.first or inside > 0.7 * len(events)

    def again(self) -> LiveConclusions | None:
        """The conclusions with the change applied; None if everything must be concluded anew."""
        if self._unmuted() or self._first_accounted() or log_hosts.has_new(self.basis, self.change, self._nodes):
            return None
        found = self._gathered()
        if found is None:
            return None
        if self._begins_earlier(found):
            return None if self.whole else self.again()
        world = self._world(found)
        if world is None or (seen := self._seen(world, found.former)) is None:
            return None
        return self._concluded(world, found, seen)

    def _gathered(self) -> _Gathered | None:
        """The rows of the window and what they show before any fact is concluded; None if that differs for all rows."""
        basis, empty = self.basis, self.change.empty
        jobs = self.change.jobs | set(self.index.run_jobs[self.index.run_ends >= self.since].tolist())
        # What does not depend on events comes first, while the events are being read.
        states = [] if "node_states" in empty else node_states(self.store, self.cluster, since(self.since))
        zoned = self.skew if basis.clocks.zones.offsets else 0.0
        any_pace = bool(basis.progress) or self.change.may_show.pace
        measured = measure(self.store, self.cluster, empty, since(self.since - zoned), any_pace=any_pace, gpus=basis.collected.telemetry)  # fmt: skip
        carried = self._carried(jobs)
        others, former = self.index.without(self.known.runs, jobs)
        rows = self._job_rows(former)
        as_they_were, read = self._events()
        # Known events were ruled on already, but an agent may have shown since then whose address sent them.
        believed = basis.believed
        doubtful = in_doubt(read, believed, sent=self.lines is None or self.lines.sent)
        ruled = in_doubt(chain(as_they_were, carried), believed)
        if not self._is_believed(chain(as_they_were, read, carried), [*doubtful, *ruled]):
            return None
        dropped = unruled(doubtful, believed)
        off = self._clocks(without([*as_they_were, *read], dropped), carried, rows.table)
        if off is None:
            return None
        read = self._corrected(read, off)
        new = without([*as_they_were, *read], dropped)
        strays = self._strays(forgeries.strays(read, dropped))
        proof = self._proof(strays, new)
        if strays and (proof is None or self._shows_more(proof)):
            return None
        events = self._joined_events(new, carried)
        strangers = self.known.disowned | disowned(doubtful, believed)
        runs = self._runs(former, rows, events, run_rows.moved_by(off, believed))
        if log_hosts.run_jobs(basis, self.change, runs, self._nodes):
            return None
        return _Gathered(events, runs, others, former, jobs, states, measured, off, strays, proof, strangers)

    def _begins_earlier(self, found: _Gathered) -> bool:
        """Do other runs, or incidents that the new runs are named in, make the window begin earlier? It does then."""
        runs, jobs, looks = found.runs, found.jobs, self.basis.looks
        earlier = other_now(looks, found.former, runs, self.border, lambda since: self._elsewhere(since, jobs))
        if (earlier := earlier - ENDS_WITH_S) < self.border:
            self._begin(earlier)
            return True
        if further := self._spoken_of(found.former, runs) - self.live:
            self.live |= further
            self._look_back()
            return True
        return False

    def _world(self, found: _Gathered) -> World | None:
        """The world of the window; None if it shows what changes conclusions outside of it."""
        basis = self.basis
        hosts = basis.site.hosts if basis.site else frozenset()
        world = gather_world(
            self.store, self.cluster, self.settings, found.events, found.runs, found.states, found.off, hosts, basis,
            found.measured, believed=basis.believed, kernel_clocks=self.kernel_clocks, limits=self.limits,
            earlier=(found.others, self.since), more=self.change.collected,
        )  # fmt: skip
        # Earlier than anything known: base rates change. Other controllers: whom a lost link cut off may change.
        if (world.events and world.first < basis.first) or world.controllers != basis.controllers:
            return None
        first_gauges = world.collected and world.collected.telemetry and not basis.collected.telemetry
        if first_gauges and lacks(basis.looks, {GPUS}):
            return None
        world.past = self._past
        world.first, world.last = min(basis.first, world.first), max(basis.last, world.last)
        world.progress = _joined(basis.progress, world.progress, self.since)
        return world

    def _concluded(self, world: World, gathered: _Gathered, seen: dict[Any, float]) -> LiveConclusions | None:
        """The facts, incidents and verdicts of the window, merged into those before; None as for ``again``."""
        conclude(world)
        merge = Merge(self.before, self.change, self.border, self.reach, self.live)
        facts, times = merge.facts(world)
        kinds = FactsByKind(facts, times.kind, times.start)
        if not world.site.settings["SlurmdTimeout"].known:
            narrow_slurmd_timeout(world.site, kinds.get(LINK_OUTAGE.name), kinds.get(NODE_DOWN.name))
        if not _same_site(world.site, self.basis.site):
            return None
        world.recall(far_causes(world, self.known.facts, self.index.facts, self.rules.edges, self.since, self.reach))
        weighed = Weighed(world, self.rules.edges, BaseRates(kinds, seen.values(), world.first, self.rules.innocent))
        lately = Spans.of(weighed.stories)
        if (first := merge.first_restated(weighed, lately)) - self.reach < self.since:
            self.since = first - self.reach
            return None if self.whole else self.again()
        found = self._found(weighed, gathered, seen)
        merged, verdicts = merge.merged(found, weighed, lately, facts, kinds, times, gathered.others, gathered.former)
        self.begin(merged)
        return merge.in_words(merged, weighed, verdicts)

    def _found(self, weighed: Weighed, gathered: _Gathered, seen: Mapping[str, float]) -> Pass:
        """What the pass over the window yields, without documents."""
        found = weighed.concluded()
        result, strays, proof = found.result, gathered.strays, gathered.proof
        result.disowned = gathered.strangers
        result.forgeries = forgeries.gathered(weighed.world, strays, proof, self.known.forgeries, self.border)
        further = [one.look for one in result.forgeries if one.look and one.look.at >= self.border]
        return replace(found, lines=self.lines, basis=replace(
            found.basis, seen=seen, clocks=gathered.off, strays=strays, proof=proof, looks=[*found.basis.looks, *further],
            any_kernel_clock=self.kernel_clocks.any_clock, any_new_limit=self.limits.any_change,
        ))  # fmt: skip

    def _strays(self, read: list[Event]) -> list[Event]:
        """All events that count for nothing, with those ``read`` again from their lines."""
        known = self.basis.strays
        return [*known[: first_at(known, self.cut)], *read] if known else read

    def _proof(self, strays: Sequence[Event], new: Iterable[Event]) -> forgeries.Proof | None:
        basis = self.basis
        if not strays or basis.proof is None or basis.inventory is None:
            return basis.proof
        return forgeries.proof(strays, new, basis.believed, basis.inventory.settings, self._nodes, basis.proof)

    def _shows_more(self, proof: forgeries.Proof) -> bool:
        """Does ``proof`` show more than before of the hosts that were asked about before?"""
        then = self.basis.proof
        if then is None or not then.asked:
            return False
        return proof.seen is not then.seen or not then.asked.isdisjoint(proof.computing - then.computing)

    def _elsewhere(self, since: float, jobs: Collection[int]) -> list[Run]:
        """The known runs of other jobs that ended after ``since``."""
        return [r for r in chosen(self.known.runs, self.index.run_ends >= since) if r.job_id not in jobs]

    def _past(self, low: float) -> tuple[list[Run], list[Fact]]:
        """The runs that ended from ``low`` to the beginning of the window, and the facts about their failures."""
        ends, starts = self.index.run_ends, self.index.facts.start
        runs = chosen(self.known.runs, (ends >= low) & (ends < self.since))
        around = (starts >= low - ENDS_WITH_S) & (starts < self.since + ENDS_WITH_S)
        return runs, chosen(self.known.facts, around & (self.index.facts.kind == number_of(RUN_FAILED.name)))

    def _joined_events(self, new: Sequence[Event], carried: list[Event]) -> list[Event]:
        """New and carried events in order, each once.

        A carried event that reaches into the window replaces its pieces there.
        """
        reaching = {(e.host, e.kind, e.device): e for e in carried if e.time < self.since <= e.last}
        fresh = (
            [e for e in new if not _piece_of(e, reaching.get((e.host, e.kind, e.device)))] if reaching else list(new)
        )
        names = {e.id for e in fresh}
        return event_rows.in_order(fresh, [e for e in carried if e.id not in names])

    def _unmuted(self) -> bool:
        """Does a verdict carry a doubt for lack of a node's log that is now collected?"""
        basis = self.basis
        if lacks(basis.looks, basis.collected.new_in(self.change.collected)):
            return True
        new_hosts = self.change.reporting_hosts - basis.collected.reporting_hosts
        if not new_hosts or not basis.collected.reporting_hosts:
            return bool(new_hosts)
        muted = (r for r in self.known.runs if r.key in self.known.verdicts and not new_hosts.isdisjoint(r.nodes))
        return lacks(basis.looks, new_hosts) or any(True for _ in muted)

    def _first_accounted(self) -> bool:
        """Are there rows about jobs for the first time? From now on fewer lines make runs."""
        return not self.basis.accounted and "jobs" not in self.change.empty and bool(self._nodes())

    def _seen(self, world: World, former: list[Run]) -> dict[str, float] | None:
        """When each host was first seen, including the rows of the window.

        None if that changes conclusions about the time before the border: the number of hosts, or which host a line
        names.
        """
        before, fresh = self.basis.seen, first_seen((events[0] for events in world.by_host.values()), world.runs)
        seen = dict(before)
        for host, moment in before.items():
            if moment >= self.since:  # seen in rows of the window only, and all of those were read again
                if host not in fresh:
                    return None
                seen[host] = fresh[host]
        for host, moment in fresh.items():
            seen[host] = min(moment, seen.get(host, moment))
        for host, moment in first_seen([], former).items():
            now = fresh.get(host, float("inf"))
            if (
                before[host] == moment < min(now, self.since)
            ):  # the run in which it was first seen began at another time
                if hour_of(now) != hour_of(moment):
                    return None
                seen[host] = now
        for host, moment in seen.items():
            then = before.get(host)
            if moment != then and (then is None or hour_of(then) != hour_of(moment)):
                first = moment if then is None else min(moment, then)
                if hour_of(first) + HOUR_S <= self.border:
                    return None
        never = frozenset(seen.keys() - before.keys())
        past = of_kinds(self.known.events, BY_NAME) if never else ()
        return None if any(may_end_at(e, never) for e in past if e.time < self.border) else seen

    def _events(self) -> tuple[Sequence[Event], list[Event]]:
        """The events of the window: unchanged ones, and those read again from their lines, as their hosts' clocks
        showed them.

        An event is unchanged if no new line can be a copy of it or move it in time. All events read again lie after
        ``self.cut`` in true time.
        """
        basis, cluster = self.basis, self.cluster
        unstamped = self.change.jobs & (basis.unstamped | self.change.unstamped)
        if unstamped:
            self.cut = self.since
            lines = event_rows.stamped(self.store, cluster, since(self.cut - self.skew))
            speakers = speakers_of(basis.believed)
            untimed = unstamped_lines.placed(self.store, cluster, speakers, unstamped, self.accounting_time or None)
            lines = pl.concat([lines, untimed])
            events, self.lines = event_rows.read(lines, basis.believed.senders)
            return [], events
        self.cut = max(self.since, untouched_until(self.before, self.change.earliest))
        first, behind = (first_at(self.known.events, t) for t in (self.since, self.cut))
        events, self.lines = self._read_from(self.cut - self.skew)
        return self.known.events[first:behind], events

    def _clocks(self, read: Sequence[Event], carried: list[Event], rows: pl.DataFrame) -> clocks.Clocks | None:
        """Which clocks are off, given the events of the window and new ``rows`` about jobs.

        None if everything must be read again.
        """
        basis = self.basis
        cables = basis.inventory.cabling if basis.inventory else Cabling()
        if basis.clocks.offsets:
            shown = sorted(map(clocks.as_shown, [*read, *carried]), key=event_rows.order)
        else:
            shown = event_rows.in_order(list(read), carried)
        known = Known(cables, telemetry.begun(self.store, self.cluster, self.accounting_time), basis.believed.senders)
        return clocks.compared_further(
            basis.clocks, shown, known, self.evidence_from, Books(self.accounting_time, rows=rows)
        )

    def _corrected(self, read: list[Event], off: clocks.Clocks) -> list[Event]:
        """The events in true time. The lines were read from the earliest timestamp that may belong to the window."""
        if not off.offsets:
            return read
        moved = off.corrected(read)
        return [e for e in moved if e.time >= self.cut or clocks.without_stamp(e)]

    def _read_from(self, cut: float) -> tuple[list[Event], event_rows.Lines]:
        """The events whose lines are at or after ``cut``, from the inbox or the lines read ahead if possible."""
        found = self.change.ahead.read(cut) if self.change.ahead else None
        if found:
            return found
        lines = event_rows.stamped(self.store, self.cluster, since(cut))
        return event_rows.read(lines, self.basis.believed.senders)

    def _carried(self, jobs: Iterable[int]) -> list[Event]:
        """Events before the window that it needs: those of facts that still last, and the runs' own lines."""
        wanted = set(jobs)
        times = self.index.facts
        lasting = chosen(self.known.facts, (times.start < self.since) & (times.until >= self.since))
        found = {e.id: e for f in lasting for e in f.events}
        for story in chosen(self.basis.stories, self.index.spans.among(self.live)):
            found.update((e.id, e) for e in events_of(story))
        for place in self.index.event_jobs.of_jobs(wanted):
            event = self.known.events[place]
            if event.time < self.since or self._placed(event):
                found[event.id] = event
        behind = first_at(self.known.events, self.since)
        unstamped = self.basis.unstamped - wanted  # also for jobs without a known run
        for place in self.index.event_jobs.of_jobs(unstamped, behind) if unstamped else ():
            event = self.known.events[place]
            if self._placed(event):
                found[event.id] = event
        read_again = self.change.jobs
        return [e for e in found.values() if e.time < self.since or (self._placed(e) and e.job_id not in read_again)]

    def _placed(self, event: Event) -> bool:
        """Is it output without a timestamp, which a query by time does not find?

        A timestamp with an inferred year counts as one.
        """
        return (
            event.time_quality == "inferred"
            and event.job_id in self.basis.unstamped
            and event.source in ("job_stdout", "job_stderr")
        )

    def _job_rows(self, former: list[Run]) -> run_rows.Rows:
        """The stored rows about the jobs whose runs are built again. ``former``: the runs as known before."""
        new_jobs = self.change.jobs | (frozenset(r.job_id for r in former) if self.skew else frozenset())
        known = frozenset(r.job_id for r in former if r.job_id in new_jobs)
        return run_rows.rows_of(
            self.store, self.cluster, new_jobs, known, self.change.new, self.change.job_rows, "steps" not in self.change.empty
        )  # fmt: skip

    def _runs(
        self, former: list[Run], rows: run_rows.Rows, events: list[Event], moved: run_rows.Moved | None
    ) -> list[Run]:
        """The runs of the window; those without new rows are unchanged. ``former``: as known before; ``moved``: see gather."""
        prepared: Mapping[int, Run] = self.change.prepared_runs
        if self.accounting_time:
            rows = rows._replace(
                table=self.accounting_time.corrected(rows.table),
                steps=self.accounting_time.corrected_steps(rows.steps, rows.table),
            )
            prepared = EMPTY
        witnesses = Witnesses(self.basis.believed.senders, self.basis.accounted)
        again = run_rows.gather_some(rows, events, prepared, witnesses, moved=moved)
        return sorted([*(r for r in former if r.job_id not in rows.jobs), *again], key=attrgetter("job_id"))

    def _spoken_of(self, former: list[Run], runs: list[Run]) -> set[str]:
        """Incidents that name a run which has changed."""
        found: set[str] = set()
        changed_runs = (r for r in former if r.job_id in self.change.jobs)
        known = {job: list(some) for job, some in groupby(changed_runs, attrgetter("job_id"))}
        for job, some in groupby((r for r in runs if r.job_id in known), attrgetter("job_id")):
            before, after = known[job], list(some)
            pairs = (
                list(zip(before, after, strict=False))
                if len(before) == len(after)
                else [(b, a) for b in before for a in after]
            )
            for one, other in pairs:
                if (one.key, one.nodes, one.start, one.gpus) != (other.key, other.nodes, other.start, other.gpus):
                    found.update(self.index.speaking_of(one, other))
        return found

    def _is_believed(self, events: Iterable[Event], doubtful: Sequence[Event]) -> bool:
        """Are the controllers and addresses of ``before`` still right? ``doubtful``: the events that are ``in_doubt``."""
        believed = self.basis.believed
        if asks_again(events, doubtful, believed, self._nodes):
            return False
        return not are_of_agents(self.store, self.cluster, doubtful, believed.senders)

    def _nodes(self) -> frozenset[str]:
        return frozenset(r["host"] for r in self.store.ask(job_rows.hosts_of_jobs(self.cluster)))


def _piece_of(event: Event, whole: Event | None) -> bool:
    """Is it the rest of a long series of repeated lines that began before the window and is carried as one event?"""
    return whole is not None and event.id != whole.id and event.time <= whole.last + COALESCE_S


def _joined(old: Mapping[Any, list[Any]], new: Mapping[Any, list[Any]], since: float) -> dict[Any, list[Any]]:
    keys = sorted({*old, *new})
    return {
        k: [*(p for p in old.get(k, ()) if p[0] < since), *(p for p in new.get(k, ()) if p[0] >= since)] for k in keys
    }


def _same_site(now: Site, then: Site | None) -> bool:
    return then is not None and (now.settings, now.job_settings, now.cabling, now.members, now.leaf_of) == (
        then.settings, then.job_settings, then.cabling, then.members, then.leaf_of)  # fmt: skip
