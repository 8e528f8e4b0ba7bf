"""All that is known about one cluster while facts are concluded, and what detectors share."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from correlator.clocks.clocks import ENDS_S, NOTICEABLE_S, AccountingTime, Offset, arrived_early, clock_ahead
from correlator.gather import kernel_copies, kernel_lines, own_devices, shared_lines, uncounted
from correlator.gather.collected import Collected
from correlator.gather.confirmed import Confirmed, is_of_interest
from correlator.gather.gpu_counts import CountedBefore, counted_by_settings, gpus_of_nodes, nodes_with_slices
from correlator.gather.of_timeouts import NewLimits, Outputs, Work
from correlator.gather.outlived import outlived
from correlator.gather.presence import MARGIN_S, WhoWasThere, user_of
from correlator.gather.silences import Answers
from correlator.gather.software import Software
from correlator.gather.standing import Controllers, admitted, controllers, ruling
from correlator.model.attributes import HOSTS, LINKS
from correlator.model.kinds import Kind
from correlator.model.measurements import NewLimit, Output, Throttled, XidSeen
from correlator.model.nouns import Event, Fact, Revision, Run, in_order
from correlator.model.run_index import RunsInTime
from correlator.site.open_lines import is_remote
from correlator.site.senders import senders
from correlator.site.site import Inventory, Site
from parsers.job_states import same_end


def bus_of(device: str) -> str:
    """The PCI bus part of a device name, lower case, without the function: telemetry and kernel write it differently."""
    parts = device.lower().split(".")[0].split(":")
    return f"{parts[0][-4:]:0>4}:{parts[1]}:{parts[2]}" if len(parts) == 3 else device


_in_time = attrgetter("time", "id")


@dataclass
class World:
    """All that is known about one cluster while facts are concluded. Times are epoch seconds, UTC.

    ``progress`` maps (job, restart count) to (time, seconds per step) from its output.
    ``spoke(host)`` returns the times of the lines that the host itself wrote, ascending (read only for few hosts).
    ``slurmd_starts(host)`` returns (time, uptime of the machine) of each start of its slurmd that logs it.
    ``booted`` holds (BootTime, host) of nodes for which Slurm had reported another BootTime before.
    ``legs(host)`` returns (time, bond, interface) from the bonding driver's lines. ``reporting_hosts`` are the hosts whose kernel or system
    log was collected; ``asked``: known even if there are none. ``collected``: which sources were collected, and when; None if not known.
    ``outputs(jobs)``, ``new_limits(jobs)``, ``work(runs)``: when runs that reached a limit wrote, got another, or their GPUs worked.
    ``kernel_clocks``, ``line_copies``: what a host's kernel lines show about its clock, and other files about such lines.
    ``gpu_minors(host)``: (time, PCI address, number of the device file) of GPUs. ``silences``, ``software``: gather/silences.py, software.py.
    ``earlier_runs``: further runs, all over before ``runs_since``, about which nothing is concluded here. ``past(since)``: of those that ended after
    ``since``, the runs and their ``run.failed``.
    ``believed``: the controllers, if determined from more than these events. ``declared``: all kinds of facts, by name.
    ``left_out``: sentences that name the detectors that failed in this pass.
    """

    site: Site
    events: list[Event]
    runs: list[Run]
    facts: list[Fact] = field(default_factory=list)
    node_states: list[dict[str, object]] = field(default_factory=list)
    gpu_jobs: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=dict)
    throttling: list[Throttled] = field(default_factory=list)
    reporting_hosts: frozenset[str] = frozenset()
    asked: bool = False
    collected: Collected | None = None
    clocks: list[Offset] = field(default_factory=list)
    accounting_time: AccountingTime = field(default_factory=AccountingTime)
    xids_seen: list[XidSeen] = field(default_factory=list)
    progress: dict[tuple[int, int], list[tuple[float, float]]] = field(default_factory=dict)
    spoke: Callable[[str], Sequence[float]] = lambda host: ()
    slurmd_starts: Callable[[str], Sequence[tuple[float, float]]] = lambda host: ()
    booted: list[tuple[float, str]] = field(default_factory=list)
    legs: Callable[[str], Sequence[tuple[float, str, str]]] = lambda host: ()
    outputs: Outputs = lambda jobs: {}
    new_limits: NewLimits = lambda jobs, since, until: {}
    work: Work = lambda runs: {}
    software: Software = lambda hosts, peers, moment: ()
    kernel_clocks: kernel_lines.Clocks = kernel_lines.unasked
    line_copies: kernel_copies.Copies | None = None
    silences: Answers | None = None
    #: What denies a fact, by its key; "" if nothing does. Each is asked about once.
    denials: dict[tuple[str, float, str, str, str], str] = field(default_factory=dict, init=False)
    _roles: dict[Fact, frozenset[str]] = field(default_factory=dict, init=False)
    _facts_on: dict[tuple[str, bool], tuple[Sequence[Fact], dict[str | None, list[Fact]]]] = field(
        default_factory=dict, init=False
    )
    gpu_minors: Callable[[str], Sequence[tuple[float, str, int]]] = lambda host: ()
    earlier_runs: Sequence[Run] = ()
    runs_since: float = float("-inf")
    past: Callable[[float], tuple[Sequence[Run], Sequence[Fact]]] = lambda since: ((), ())
    inventory: Inventory | None = None
    believed: Controllers | None = None
    declared: Mapping[str, Kind[Any]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ruled: Sequence[Event] = self.events
        if self.believed is None:
            settings = self.inventory.settings if self.inventory else ()
            nodes = {n for run in self.runs for n in run.nodes}
            self.believed = controllers(self.events, settings, nodes, senders(settings))
            ruled = ruling(self.events, self.believed)
        self._index_runs()
        #: The events that count; those whose source may not report on their subject stay only in ``events``.
        self.admitted, by_source, self.by_kind = admitted(ruled, self.runs_of_job, self.runs_on)
        relays, of_kernel = self.believed.senders.relays, by_source.get("kernel", [])
        #: For events that others than their program can have written, by id: what speaks against them.
        self.doubted, words = kernel_copies.standing(of_kernel, self.kernel_clocks, self.line_copies, relays)
        self.doubted |= own_devices.standing(of_kernel, self.doubted)
        self.doubted |= shared_lines.standing(self.admitted, self.by_kind, relays)
        #: Events that do not count, by the host that they name, and why, without those that the kernel's other lines refute; and
        #: those that are shown to be false, with how it is known and why (evidence/forgeries.py).
        self.refuted, alive = outlived(self.by_kind, self.runs_on, self.runs_of_job, hosts_of)
        self.not_counted: dict[str, list[tuple[Event, str]]] = defaultdict(list, alive)
        #: Questions about other runs: if later rows change an answer, a tick judges again.
        self.looks: list[CountedBefore | WhoWasThere] = []
        if no_ends := list(chain((e for e, _, _ in self.refuted), (e for some in alive.values() for e, _ in some))):
            self._without(no_ends, by_source)
        if self.doubted:
            self._leave_out([e for e in self.admitted if e.id in self.doubted], words, by_source)
        self._index_events()
        self._spoke: dict[str, Sequence[float]] = {}
        self._outputs: Mapping[int, Output] | None = None
        self._new_limits: Mapping[int, list[NewLimit]] | None = None
        self._states: dict[str, list[dict[str, object]]] | None = None
        self._counted_since: float | None = None
        self._counted_by_runs = False
        from_slurmctld = by_source.get("slurmctld", [])
        #: The hosts that run slurmctld, by its own lines and slurm.conf.
        self.controllers = self.believed.hosts.union(map(attrgetter("host"), from_slurmctld)) - {None, ""}
        launched = (e for e in self.by_kind.get("slurm.step_start", ()) if e.source == "slurmd" and e.own)
        self.het_components = _het_components(chain(from_slurmctld, launched))
        self.in_time = RunsInTime(self.runs)
        self.bad_in_time = RunsInTime([r for r in self.runs if r.ended_badly])
        self._facts_by_kind: tuple[int, dict[str, list[Fact]]] = (-1, {})
        self._facts_by_job: tuple[int, dict[str, list[Fact]]] = (-1, {})

    def _index_runs(self) -> None:
        self.runs_on: dict[str, list[Run]] = defaultdict(list)
        self.run: dict[str, Run] = {}
        self.runs_of_job: dict[int, list[Run]] = defaultdict(list)
        for run in self.runs:
            self.run[run.key] = run
            self.runs_of_job[run.job_id].append(run)
            for node in run.nodes:
                self.runs_on[node].append(run)
        self._last_used: dict[str, Run] = {}
        self._earlier_on: dict[str, list[Run]] = defaultdict(list)
        self._users_on: dict[str, list[tuple[float, float, str]]] = {}  # by host: since, until, and whose

    def _index_events(self) -> None:
        by_job: dict[int, list[Event]] = defaultdict(list)
        by_host: dict[str, list[Event]] = defaultdict(list)
        for event in self.admitted:
            if (job := event.job_id) is not None:
                by_job[job].append(event)
            if host := event.host:
                by_host[host].append(event)
        self.by_job, self.by_host = by_job, by_host
        times = [e.time for e in self.admitted]
        self.first, self.last = (min(times), max(times)) if times else (0.0, 0.0)

    def _without(self, events: Sequence[Event], by_source: dict[str | None, list[Event]]) -> None:
        """Takes ``events`` out of ``admitted``, ``by_kind`` and ``by_source``."""
        ids = {e.id for e in events}
        self.admitted = [e for e in self.admitted if e.id not in ids]
        for kind in {e.kind for e in events}:
            self.by_kind[kind] = [e for e in self.by_kind[kind] if e.id not in ids]
        for source in {e.source for e in events}:
            by_source[source] = [e for e in by_source[source] if e.id not in ids]

    def _leave_out(
        self, doubtful: list[Event], words: Mapping[str, str], by_source: dict[str | None, list[Event]]
    ) -> None:
        """Takes what does not count out of ``admitted``, ``by_kind`` and ``by_source``. ``doubtful``: the events that are
        ``doubted``; ``words``: what other files show against some of them."""
        assert self.believed is not None
        senders = self.believed.senders
        if not (senders.users_write_syslog and senders.users_send_syslog):
            believed = uncounted.believed(doubtful, self.doubted, senders)
            self.doubted = {name: how for name, how in self.doubted.items() if name not in believed}
            doubtful = [e for e in doubtful if e.id not in believed]
        open_to_users = [e for e in doubtful if e.host and self.doubted[e.id] not in uncounted.NEVER]
        earliest = min((e.time + min(e.clock_offset, 0.0) for e in open_to_users), default=float("inf"))
        if earliest - MARGIN_S < self.runs_since:
            hosts = {e.host for e in open_to_users if e.host}
            for run in (r for r in self.earlier_runs if r.end is None or r.end + MARGIN_S >= earliest):
                for host in hosts.intersection(run.nodes):
                    self._earlier_on[host].append(run)
            self._users_on.clear()
        self.looks += uncounted.questions(open_to_users)
        reasons = uncounted.reasons(doubtful, self.doubted, words, self)
        left_out = [e for e in doubtful if e.id in reasons]
        for event in left_out:
            how, why = self.doubted[event.id], reasons[event.id]
            if how == kernel_lines.REFUTED or event.id in words:
                self.refuted.append((event, how, why))
            if event.host and how != kernel_lines.REFUTED:
                self.not_counted[event.host].append((event, why))
        if reasons:
            self._without(left_out, by_source)
        # No user could have written the others, or somebody else confirms them.
        self.doubted = {name: how for name, how in self.doubted.items() if how not in uncounted.OPEN_TO_USERS}

    def is_remote(self, event: Event) -> bool:
        """Can users of other hosts have sent it in the name of its host?"""
        assert self.believed is not None
        return is_remote(event, self.believed.senders)

    def is_used(self, host: str, time: float) -> bool:
        """Had any user a run on a host at about ``time``? Asked for very many lines."""
        if (last := self._last_used.get(host)) and last.covers(time, MARGIN_S):  # most lines are written during one run
            return True
        for run in self._runs_on(host):
            if run.covers(time, MARGIN_S) and user_of(run) is not None:
                self._last_used[host] = run
                return True
        return False

    def users_at(self, host: str, time: float) -> frozenset[str]:
        """The users known to have had runs on a host at about ``time``."""
        if (known := self._users_on.get(host)) is None:  # most hosts are asked about several times
            known = self._users_on[host] = [
                (run.start - MARGIN_S, float("inf") if run.end is None else run.end + MARGIN_S, user)
                for run in self._runs_on(host) if run.start is not None and (user := user_of(run))
            ]  # fmt: skip
        return frozenset([user for since, until, user in known if since <= time <= until])

    def _runs_on(self, host: str) -> Sequence[Run]:
        """Its runs, and those of before that lines of the window ask for."""
        runs, earlier = self.runs_on.get(host, ()), self._earlier_on.get(host)
        return [*runs, *earlier] if earlier else runs

    @cached_property
    def completed_as(self) -> Mapping[tuple[object, object], Sequence[Run]]:
        """The runs that ended well, by user and name."""
        found: defaultdict[tuple[object, object], list[Run]] = defaultdict(list)
        for run in (r for r in self.runs if r.state == "COMPLETED"):
            found[run.row.get("user"), run.row.get("name")].append(run)
        return found

    @cached_property
    def gpus_of_nodes(self) -> Mapping[str, int]:
        """How many GPUs slurm.conf gives each node."""
        return gpus_of_nodes(self.inventory.settings) if self.inventory else {}

    @cached_property
    def nodes_with_slices(self) -> frozenset[str]:
        """The nodes to which slurm.conf gives slices of GPUs."""
        return nodes_with_slices(self.inventory.settings) if self.inventory else frozenset()

    @cached_property
    def written_early(self) -> list[tuple[float, float]]:
        """Lines of slurmctld that arrived before they were written, and are not corrected: (time, by how many seconds)."""
        own = chain.from_iterable(self.by_host.get(host, ()) for host in self.controllers)
        assert self.believed is not None
        senders = self.believed.senders
        return [(e.time, early) for e in own if e.source == "slurmctld" and (early := arrived_early(e, senders))]

    @cached_property
    def launched_early(self) -> list[tuple[str, float, float]]:
        """Launches that slurmds logged before slurmctld logged that their job was submitted: one of the two clocks is off,
        and nothing corrected it. (host, time, by how many seconds)."""
        submits = (e for e in self.kinds("slurm.job_submit") if e.source == "slurmctld")
        submitted: dict[int | None, float] = {}
        for event in submits:
            submitted[event.job_id] = min(event.time, submitted.get(event.job_id, event.time))
        starts = [e for e in self.kinds("slurm.step_start") if e.source == "slurmd" and e.job_id in submitted]
        early = ((e.host or "", e.time, submitted[e.job_id] - e.time) for e in starts)
        # An id of long before was another job's.
        return [(host, at, by) for host, at, by in early if NOTICEABLE_S <= by <= ENDS_S]

    @cached_property
    def confirmed(self) -> Confirmed:
        """What others than users show of the hosts."""
        # Whether an event is of links follows from its kind, unlike other layers: the first one tells it of all.
        some = chain.from_iterable(es for kind, es in self.by_kind.items() if es and is_of_interest(kind, es[0].layer))
        return Confirmed(some, self.xids_seen, bus_of, hosts_of, self.site.far_end)

    def spoke_at(self, host: str) -> Sequence[float]:
        """``spoke`` in true time: corrects clocks known to be off; telemetry.py corrects zones."""
        if host not in self._spoke:
            times, off = self.spoke(host), [o for o in self.clocks if o.host == host and not o.zone]
            self._spoke[host] = sorted(t - clock_ahead(off, t) for t in times) if off else times
        return self._spoke[host]

    def output_of(self, run: Run) -> Output:
        """When a run that reached its time limit wrote output; the times may be of other runs of its job."""
        if self._outputs is None:
            self._outputs = self.outputs(frozenset(r.job_id for r in self.timed_out))
        return self._outputs.get(run.job_id, Output())

    def new_limits_of(self, run: Run) -> list[NewLimit]:
        """The changes of its time limit during a run that reached it, in order."""
        if self._new_limits is None:
            spans = [(r.start or 0.0, r.end or r.start or 0.0) for r in self.timed_out]
            jobs = frozenset(r.job_id for r in self.timed_out)
            first, last = min((s for s, _ in spans), default=0.0), max((e for _, e in spans), default=0.0)
            self._new_limits = self.new_limits(jobs, first, last) if spans else {}
        return [new for new in self._new_limits.get(run.job_id, ()) if run.covers(new.time)]

    @cached_property
    def timed_out(self) -> list[Run]:
        """The runs that reached their time limit."""
        return [r for r in self.runs if r.start is not None and same_end(r.state) == "TIMEOUT"]

    def states_of(self, host: str) -> Sequence[dict[str, object]]:
        """Slurm's answers about a node, in time order."""
        if self._states is None:
            self._states = defaultdict(list)
            for row in sorted(self.node_states, key=lambda r: str(r["time"])):
                self._states[str(row["host"])].append(row)
        return self._states.get(host, ())

    def kinds(self, *kinds: str) -> Iterable[Event]:
        """Events of these kinds in time order."""
        found = [e for kind in kinds for e in self.by_kind.get(kind, ())]
        return sorted(found, key=_in_time) if len(kinds) > 1 else found

    def mute(self, run: Run) -> list[str]:
        """Nodes of the run whose kernel and system logs were not collected."""
        return [n for n in run.nodes if self.unlogged(n)]

    def unlogged(self, host: str | None) -> bool:
        """Is it known that no kernel or system log of a host was collected?"""
        return (self.asked or bool(self.reporting_hosts)) and host not in self.reporting_hosts

    def kinds_where(self, test: Callable[[Kind[Any]], object]) -> list[str]:
        """The names of the declared kinds for which ``test`` holds."""
        return [name for name, kind in self.declared.items() if test(kind)]

    def facts_moved(self) -> None:
        """The lookups of facts are made anew: some were replaced, or stand in another order."""
        self._facts_by_kind, self._facts_by_job = (-1, {}), (-1, {})

    def conclude(self, found: Iterable[Fact | Revision]) -> None:
        """Adds what a detector found, in an order that does not depend on its internals."""
        listed = list(found)
        if revised := {id(one.of): one.fact for one in listed if isinstance(one, Revision)}:
            self.facts = [revised.get(id(fact), fact) for fact in self.facts]
            self.facts_moved()
        self.facts += sorted((one for one in listed if isinstance(one, Fact)), key=lambda f: f.key)

    def recall(self, facts: Iterable[Fact]) -> None:
        """Adds facts of other passes among those of their kinds, in the order in which a detector would have found
        them."""
        added: defaultdict[str, list[Fact]] = defaultdict(list)
        for fact in facts:
            added[fact.kind].append(fact)
        if not added:
            return
        whole = {kind: sorted([*self.facts_of(kind), *some], key=lambda f: f.key) for kind, some in added.items()}
        listed: list[Fact] = []
        for fact in self.facts:
            if fact.kind in added:
                listed += whole.pop(fact.kind, ())
            else:
                listed.append(fact)
        self.facts = [*listed, *chain.from_iterable(whole.values())]

    def facts_of(self, *kinds: str) -> Sequence[Fact]:
        count, known = self._facts_by_kind
        if count != len(self.facts):  # each detector adds some; who asked before keeps the lists of that time
            added: defaultdict[str, list[Fact]] = defaultdict(list)
            for fact in islice(self.facts, max(count, 0), None):
                added[fact.kind].append(fact)
            for kind, some in added.items():
                known[kind] = [*known.get(kind, ()), *some]
            self._facts_by_kind = (len(self.facts), known)
        if len(kinds) == 1:  # asked for each run, and never changed by who asks
            return known.get(kinds[0], ())
        return [f for kind in dict.fromkeys(kinds) for f in known.get(kind, ())]

    def roles_of_links(self, switch: Fact) -> frozenset[str]:
        """The roles of the links that a switch's loss took; asked for with each consequence of it."""
        if switch not in self._roles:
            links = switch.attrs.get(LINKS, ())
            self._roles[switch] = frozenset(self.site.role(host, device) for host, device in links)
        return self._roles[switch]

    def facts_on(self, kind: str, hosts: Collection[str], *, listed: bool = False) -> list[Fact]:
        """The facts of a kind on these hosts, in their order. ``listed``: also those with one of them among their ``HOSTS``."""
        facts = self.facts_of(kind)
        if not facts:
            return []
        known = self._facts_on.get((kind, listed))
        if known is None or known[0] is not facts:
            by_host: defaultdict[str | None, list[Fact]] = defaultdict(list)
            for fact in facts:
                for host in {fact.host, *fact.attrs.get(HOSTS, ())} if listed else (fact.host,):
                    by_host[host].append(fact)
            known = self._facts_on[kind, listed] = facts, by_host
        found = {id(fact): fact for host in dict.fromkeys(hosts) for fact in known[1].get(host, ())}.values()
        return sorted(found, key=lambda f: f.key) if len(hosts) > 1 else list(found)

    def facts_of_job(self, job_id: int) -> list[Fact]:
        """Facts tied to a job by its number: cancelled, preempted, over its time limit."""
        count, known = self._facts_by_job
        if count != len(self.facts):
            known = defaultdict(list)
            for fact in self.facts:
                if fact.run is not None:
                    known[fact.run].append(fact)
            self._facts_by_job = (len(self.facts), known)
        return known.get(str(job_id), [])

    def gpu_owner(self, host: str, device: str, time: float) -> int | None:
        """The job that telemetry saw on a GPU around ``time``; None if it saw none.

        Telemetry is sampled minutes apart: a label counts only for jobs that had the node at ``time``.
        """
        running = {run.job_id for run in self.runs_at(host, time, slack=5.0)}
        spans = self.gpu_jobs.get((host, bus_of(device)), ())
        near = [(abs(time - seen), job) for seen, job in spans if abs(time - seen) <= 900.0 and job in running]
        return min(near)[1] if near else None

    def gpus_are_counted(self, time: float) -> bool:
        """Does accounting count the GPUs of runs: by slurm.conf, or for a run that began before ``time``?"""
        if self._counted_since is None:
            by_settings = counted_by_settings(self.inventory.settings if self.inventory else ())
            self._counted_by_runs = by_settings is None
            if by_settings is None:
                runs = chain(self.runs, self.earlier_runs)
                starts = (r.start for r in runs if r.start is not None and r.gpus)
                self._counted_since = min(starts, default=float("inf"))
            else:
                self._counted_since = float("-inf" if by_settings else "inf")
        if self._counted_by_runs and (look := CountedBefore(time)) not in self.looks:
            self.looks.append(look)
        return self._counted_since < time

    def runs_at(self, host: str, time: float, slack: float = 1.0) -> list[Run]:
        """Runs that had ``host`` at ``time``."""
        return [r for r in self.runs_on.get(host, ()) if r.covers(time, slack)]


def _het_components(from_slurm: Iterable[Event]) -> dict[int, frozenset[int]]:
    """Job -> all components of its heterogeneous job, as slurmctld names them (``JobId=100+1(101)``), and slurmds in
    their own logs where they launch its steps (``100+1.0 (StepId=101.0)``).
    """
    of_whole: dict[str, set[int]] = defaultdict(set)
    # Few of very many events match: the sign is tested before the entities are read.
    for event in [e for e in from_slurm if "+" in e.message]:
        if event.job_id is not None and (whole := event.entities.get("het_job_id")):
            of_whole[str(whole)].add(event.job_id)
    return {job: frozenset(parts) for parts in of_whole.values() if len(parts) > 1 for job in parts}


def bursts(events: Iterable[Event], gap: float) -> list[list[Event]]:
    """Events in time order, split where nothing came for ``gap`` seconds."""
    found: list[list[Event]] = []
    for event in events:
        if found and event.time - found[-1][-1].time <= gap:
            found[-1].append(event)
        else:
            found.append([event])
    return found


def merge_near(facts: Iterable[Fact], gap: float) -> list[Fact]:
    """Facts of one kind on one device that follow each other within ``gap`` seconds become one that spans them all."""
    kept: list[Fact] = []
    last: dict[tuple[str, str, str], int] = {}
    for fact in sorted(facts, key=lambda f: f.key[1:] + f.key[:1]):
        device = (fact.kind, fact.host or "", fact.device or "")
        place = last.get(device)
        previous = None if place is None else kept[place]
        if place is not None and previous is not None and fact.start - _until(previous) <= gap:
            end, run = max(previous.end or previous.start, fact.end or fact.start), previous.run or fact.run
            kept[place] = replace(previous, end=end, run=run, events=in_order(previous.events, fact.events))
            continue
        last[device] = len(kept)
        kept.append(fact)
    return kept


def _until(fact: Fact) -> float:
    return fact.end if fact.end is not None else fact.start


def hosts_of(event: Event) -> list[str]:
    """The nodes that an event is about: a list in the line, else the host that wrote it."""
    nodes = event.entities.get("nodes")
    if isinstance(nodes, str):
        nodes = [nodes]
    return list(nodes) if nodes else [event.host] if event.host else []


#: A boot's first lines may have timestamps this much earlier than the boot time that others compute.
BOOT_STAMPS_S = 15.0


def word_between(world: World, host: str, low: float, high: float) -> float | None:
    """When the host itself wrote its last line after ``low`` and before ``high`` (its boot); None if it was silent."""
    spoke = world.spoke_at(host)
    place = bisect_right(spoke, high - BOOT_STAMPS_S)
    return spoke[place - 1] if place and spoke[place - 1] > low else None


def run_of(world: World, fact: Fact) -> Run | None:
    return world.run.get(fact.run) if fact.run else None
