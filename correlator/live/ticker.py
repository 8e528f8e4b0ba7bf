"""The tick: what the service runs repeatedly while lines arrive.

``Ticker(store).tick()`` finds what was stored since the last tick and brings ``model`` to exactly the result of a full
pass over the same rows (``correlator.engine.correlate``). If nothing new was stored, a tick costs one count. Otherwise
it concludes anew about the time window that the new and late rows can change (``correlator.live.window``). What the
service published, and when, is kept in ``kept``: first detection of each incident, versions of each verdict, and former
ids of incidents that merged, split or changed their root.
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from correlator.engine import clusters_of, conclude_cluster, load_edges, write
from correlator.gc_pause import clear_away, paused, set_aside
from correlator.live.arrivals import Arrivals, Change
from correlator.live.awaited import silent_in
from correlator.live.changes import everything, same_objects
from correlator.live.finality import settled
from correlator.live.frozen import freeze, thaw
from correlator.live.history import History, HistoryUpdate
from correlator.live.inbox import BEHIND_S, Inbox, NewRows, Recalled, Received
from correlator.live.old import let_go, pack_old
from correlator.live.patch import Storing, store_incidents, store_runs
from correlator.live.reach import longest_window, untouched_until
from correlator.live.state import LiveConclusions, Touched, index_of, stored
from correlator.live.window import Window
from correlator.site.interfaces import remember
from parsers.moments import utc
from store.changes import growth
from store.questions.conclusions import incident_ids

if TYPE_CHECKING:
    from correlator.gather.collected import Spans
    from store.changes import Changes, Mark
    from store.door import Door

#: Tables of ``raw`` that the correlator reads.
INPUTS = ("logs", "jobs", "steps", "settings", "links", "topology", "node_states", "metrics", "artifacts", "boots")

#: Tables whose rows apply to all times: a new row there requires a full pass.
TIMELESS = frozenset({"settings", "links", "topology"})

#: A full pass runs this often, seconds, unless that would cost more than ``FULL_SHARE`` of this thread's time: a pass over
#: a long history takes minutes.
FULL_EVERY_S = 3600.0
FULL_SHARE = 0.02

#: What a tick restored stays for as many ticks: some of it, the beginning of what still lasts, is asked for by each.
RESTED_TICKS = 16

#: The number of attempts to get a consistent count of rows while rows keep arriving.
LOOKS = 3


@dataclass(frozen=True)
class TickReport:
    """What one tick did. Run keys and incident ids are those of ``corr-result/1``; ``seconds`` is wall time.

    ``full``: concluded about everything, not about a time window. ``provisional`` and ``final`` are runs whose verdict
    is new or changed; ``opened``, ``changed`` and ``closed`` are incidents (closed: no longer concluded; ``aliases``
    gives the id under which one continues, if it does).
    """

    worked: bool = False
    full: bool = False
    seconds: float = 0.0
    lines: int = 0
    provisional: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)


class Ticker:
    """Keeps ``model`` up to date with ``raw``. One per store, called from one thread; the store's writer lock guards
    the rest.

    ``settings`` and ``edge_paths`` are as for ``correlate``. A new ``Ticker`` on an existing store begins with a full
    pass. A full pass also runs every ``FULL_EVERY_S`` or, if it takes long, less often, so that no conclusion rests on
    time windows alone for ever.
    """

    def __init__(
        self, store: Door, *, settings: Mapping[str, object] | None = None, edge_paths: Sequence[Path] = ()
    ) -> None:
        self.store = store
        self.settings = settings
        self._rules = load_edges(edge_paths)
        remember(store, settings)
        self._seen: Mark | None = None
        #: What is stored between two ticks, and the count of rows received when the last one began.
        self._inbox = Inbox(store)
        self._received: Received | None = None
        self._known: dict[str | None, LiveConclusions] = {}
        self._history: History | None = None
        self._full_at, self._full_took = 0.0, 0.0
        self._ticks = 0
        #: Former conclusions and the inputs of these, which the next tick frees: nearly always one without news, which
        #: nobody waits for.
        self._to_free: list[object] = []
        #: Conclusions whose new final documents the next tick lets go of, and which ones these are.
        self._to_freeze: list[tuple[LiveConclusions, Touched]] = []

    def tick(self, now: datetime | None = None, *, full: bool = False) -> TickReport:
        """Processes what was stored since the last tick. ``now`` (UTC) is recorded as the time of publication."""
        clear_away()
        with paused():
            report = self._tick(now, full)
            if report.worked:
                set_aside()
            return report

    def _tick(self, now: datetime | None, full: bool) -> TickReport:
        begun = time.perf_counter()
        self._let_go()
        (new, received), moment = self._look(), _naive(now)
        before, partly = self._known, True
        with Storing(self.store) as storing:
            if new.nothing and not full:
                found = list(before.values())
            else:
                received_rows = self._inbox.take(self._received, received, new)
                whole = full or self._is_due(begun) or not self._grew_only(new, received_rows)
                found, partly = self._conclude(new, whole, storing, received_rows)
            if not partly:
                self._full_at, self._full_took = begun, time.perf_counter() - begun
            found = [self._settled(c, moment, before.get(c.cluster)) for c in found]
            concluded = [c.change.touched for c in found]
            found = [same_objects(c, before.get(c.cluster)) for c in found]
            if new.nothing and all(c is before.get(c.cluster) for c in found):
                self._seen = new.until
                self._rest(found)
                return TickReport(seconds=time.perf_counter() - begun)
            lines = growth(new.tables["logs"])
            report = self._say(found, before, moment, partly, storing)
        self._seen, self._received, self._known = new.until, received, {c.cluster: c for c in found}
        self._inbox.senders = {c.cluster: c.memory.basis.believed.senders for c in found}
        if not partly:
            self._inbox.recalled = {c.cluster: nothing_behind(c) for c in found if not c.memory.basis.clocks.offsets}
        self._ticks += 1
        for conclusions, touched in zip(found, concluded, strict=True):
            if not partly or conclusions is not before.get(conclusions.cluster):
                some = touched if partly and touched else everything(conclusions)  # a full pass reads frozen ones, too
                self._to_freeze.append((conclusions, some))
            pack_old(conclusions, False)  # builds the index after a full pass, so that no tick that is waited for does
            self._to_free.append(conclusions.change.inputs)
            conclusions.change = stored()
        self._to_free.append(before)
        if not partly:  # too much to wait
            self._let_go()
        lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in report.report.items()}
        return TickReport(worked=True, full=not partly, seconds=time.perf_counter() - begun, lines=lines, **lists)

    def _settled(self, known: LiveConclusions, moment: datetime, former: LiveConclusions | None) -> LiveConclusions:
        """``known`` with what is final at ``moment`` and what waits. ``former``: the conclusions before."""
        silent = silent_in(self.store, known.cluster, known.memory.basis)
        return settled(known, longest_window(known, self._rules.edges), moment, silent, former)

    def _rest(self, known: Sequence[LiveConclusions]) -> None:
        """Does what can wait for a tick without news."""
        for conclusions in known:
            pack_old(conclusions, True)

    def _is_due(self, now: float) -> bool:
        """Is it time for a full pass?"""
        return now - self._full_at > max(FULL_EVERY_S, self._full_took / FULL_SHARE)

    def _look(self) -> tuple[Changes, Received | None]:
        """What changed, and the count of rows received by then; None if rows kept arriving during the look."""
        for _ in range(LOOKS):
            before = self._inbox.mark()
            new = self.store.changes(INPUTS, self._seen)
            if before is not None and before == self._inbox.mark():
                return new, before
        return new, None

    def _conclude(
        self, new: Changes, full: bool, storing: Storing, received_rows: dict[str | None, NewRows] | None
    ) -> tuple[list[LiveConclusions], bool]:
        """Conclusions about all clusters, and whether clusters with new rows needed only part of their rows."""
        empty = frozenset(table for table, rows in new.rows.items() if not rows)
        if full or new.too_old:
            names = clusters_of(self.store)
            return [self._anew(c, empty) for c in names], False
        changed_tables = frozenset(table for table, change in new.tables.items() if change.added)
        with ThreadPoolExecutor(3, thread_name_prefix="asking") as beside:
            arrivals = Arrivals(
                self.store, new, changed_tables, beside, received_rows, self._inbox.recalled, empty, self._inbox.senders
            )
            return self._conclude_new_rows(arrivals, storing)

    def _anew(self, cluster: str | None, empty: frozenset[str], spans: Spans | None = None) -> LiveConclusions:
        return LiveConclusions.of(conclude_cluster(self.store, cluster, self._rules, self.settings, empty, spans))

    def _conclude_new_rows(self, arrivals: Arrivals, storing: Storing) -> tuple[list[LiveConclusions], bool]:
        found, partly = [], True
        clusters = sorted({*self._known, *arrivals.further(self._known)}, key=lambda c: (c is not None, c or ""))
        for cluster in clusters:
            # No other writer may run while something is being stored, so only the last cluster begins to store early.
            last = partly and cluster == clusters[-1] and len(clusters) == len(self._known)
            change = self._change(cluster, arrivals)
            conclusions = self._in_part(cluster, change, storing if last else None)
            if conclusions is None:
                partly = False
                conclusions = self._anew(cluster, arrivals.empty, self._spans(cluster, change))
            found.append(conclusions)
        return found, partly

    def _say(
        self, found: list[LiveConclusions], before: Mapping[str | None, LiveConclusions], moment: datetime, partly: bool, storing: Storing
    ) -> HistoryUpdate:  # fmt: skip
        """Stores the conclusions and whatever of them was not published before."""
        offline: set[str] = set()
        if self._history is None:
            # What is in the store already was concluded by an offline ``ingest``: not a detection by a service.
            self._history = History(self.store)
            offline = {r["incident_id"] for r in self.store.ask(incident_ids())}
        history, first = self._history, not self._known
        changed = [c for c in found if c is not before.get(c.cluster)]
        whole = first or not partly or len(found) != len(before)
        with self.store.others_tidy():
            if whole:
                storing.give_up()
                for conclusions in found:
                    thaw(conclusions)
                update = history.note(changed, moment, before, offline)
                detected = ChainMap(update.detected, history.detected)
                results, lines = [c.result for c in found], {c.cluster: c.change.lines for c in found}
                write(self.store, results, detected, lambda writer: history.write(writer, update, moment), lines)
            else:
                update = self._patch(changed, found, before, moment, offline, storing)
        history.remember(update)
        return update

    def _patch(
        self, changed: list[LiveConclusions], found: list[LiveConclusions], before: Mapping[str | None, LiveConclusions], moment: datetime,
        offline: set[str], storing: Storing,
    ) -> HistoryUpdate:  # fmt: skip
        """Updates ``model`` from ``before`` to ``found``.

        Rows are computed while the database stores earlier ones, events first.
        """
        history = self._history
        assert history is not None
        for conclusions in changed:
            if conclusions.cluster not in storing.patches:
                storing.begin(before[conclusions.cluster], conclusions)
            storing.patches[conclusions.cluster].after = conclusions
        patches = list(storing.patches.values())
        update = history.note(changed, moment, before, offline)
        storing.submit(history.write, update, moment)
        detected = ChainMap(update.detected, history.detected)
        for one in patches:
            one.set_incidents(detected, update.texts)
        storing.submit(store_incidents, patches)
        for one in patches:
            one.set_runs(update.texts)
            one.set_facts()
        storing.submit(store_runs, patches, found)
        storing.commit()
        return update

    def _let_go(self) -> None:
        """Lets go of what the last tick replaced and of the final documents that it stored; now and then, of what ticks
        restored and of old events."""
        self._to_free.clear()
        for conclusions, touched in self._to_freeze:
            assert self._history is not None
            freeze(self.store, conclusions, touched, self._history.digest)
        self._to_freeze.clear()
        if self._ticks >= RESTED_TICKS:
            let_go()
            self._ticks = 0

    def _grew_only(self, new: Changes, received_rows: dict[str | None, NewRows] | None) -> bool:
        """Were rows only added, none of them to what applies to all times (``TIMELESS``)?

        Lines that were only moved are not new; only the inbox can tell them from new ones.
        """
        if new.too_old:
            return False
        for table, change in new.tables.items():
            lost = change.removed or (change.moved and not (table == "logs" and received_rows is not None))
            if lost or (table in TIMELESS and change.added):
                return False
        return True

    def _change(self, cluster: str | None, arrivals: Arrivals) -> Change | None:
        """What the new rows mean for a cluster; None if there are none, or nothing was concluded about it before."""
        if (before := self._known.get(cluster)) is None:
            return None
        index, basis = index_of(before), before.memory.basis
        return arrivals.change(
            cluster,
            lambda jobs: index.last_runs(before.result.runs, jobs),
            basis.last,
            basis.collected.reporting_hosts,
            lambda earliest: untouched_until(before, earliest) - basis.clocks.furthest,
        )

    def _spans(self, cluster: str | None, change: Change | None) -> Spans | None:
        """The spans of all lines of a cluster: those known before its new rows, which were only added, and theirs. To ask for
        them again would read every stored line."""
        before = self._known.get(cluster)
        if before is None or change is None:
            return None
        return before.memory.basis.collected.but(change.collected).spans

    def _in_part(self, cluster: str | None, change: Change | None, storing: Storing | None) -> LiveConclusions | None:
        """Conclusions about a cluster with the new rows; None if everything must be concluded anew.

        ``storing`` begins as soon as the events are known.
        """
        before = self._known.get(cluster)
        if before is None or change is None:
            return before
        if change.ahead is None:
            self._inbox.recalled.pop(cluster, None)
        begin = (lambda merged: storing.begin(before, merged)) if storing else (lambda merged: None)
        window = Window(self.store, before, self._rules, self.settings, change, begin)
        found = None if window.whole else window.again()
        if found is not None and change.ahead is not None:
            self._inbox.keep(cluster, change.ahead.recalled())
        return found


def nothing_behind(known: LiveConclusions) -> Recalled:
    """No line later than the last known event: there is none after a full pass, if no clock is off."""
    repeated = index_of(known).repeated
    latest = (some[-1].time for some in (known.result.events, known.memory.basis.strays) if some)
    last = max([repeated.latest, *latest])
    return Recalled(last + BEHIND_S, [])


def _naive(now: datetime | None) -> datetime:
    return utc(now or datetime.now(UTC))


__all__ = ["INPUTS", "TickReport", "Ticker"]
