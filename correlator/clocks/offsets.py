"""Finds which timestamps are in which time zone.

Launches show it for nodes (``zone_votes.py``), allocations for accounting files (``accounting_zones.py``), and outages
of both ends of a cable for switches. What nodes log when slurmctld loses and finds them shows which timestamps are
correct (``reference.py``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from correlator.clocks.accounting_zones import NO_BOOKS, AccountingTime, Books
from correlator.clocks.cable_ends import link_end_differences
from correlator.clocks.offset import Offset
from correlator.clocks.pairs import Launches, compared_by_kind, launches
from correlator.clocks.reference import SLURM, TIMES, Word, fit, system_lines, words
from correlator.clocks.signs import ENDS_S, NOTICEABLE_S, Known
from correlator.clocks.zone_votes import (
    COPIES_S,
    LEAST,
    MOST,
    QUARTER_S,
    Stay,
    Votes,
    Zoned,
    kind_of,
    scripts,
    votes,
    zones,
)
from correlator.model.moments import UNSTAMPED_S
from correlator.model.nouns import Event
from correlator.site.open_lines import is_open
from correlator.site.senders import Senders
from parsers.writers import JOB, NO_USERS


@dataclass(frozen=True)
class Zones:
    """Which timestamps are in another zone.

    ``odd`` are launches (host, job, quarters of an hour) that show other zones and are not believed. ``hosts`` are the
    hosts that were judged, if there are such launches. ``log_ahead`` is how far slurmctld's log is ahead, in seconds.
    ``accounting_time`` holds the zones of accounting files.
    """

    offsets: tuple[Offset, ...] = ()
    odd: frozenset[tuple[str, int, int]] = frozenset()
    hosts: frozenset[str] = frozenset()
    #: The host of each job's batch script, whose clock stamps the output, and when the job was allocated (true time).
    scripts: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    log_ahead: float = 0.0
    accounting_time: AccountingTime = field(default_factory=AccountingTime)

    def ahead_in_output(self, job: int | None, time: float, host: str | None = None) -> float:
        """How far a timestamp in a job's output is ahead, seconds.

        It is as far ahead as its ``host``, or the host of the batch script, unless it would then precede the job: a
        container may have its own zone.
        """
        script, allocated = self.scripts.get(job or -1, (None, float("-inf")))
        off = ahead((o for o in self.offsets if o.host == (host or script)), time, True, True)
        return off if time - off >= allocated - NOTICEABLE_S else 0.0


NO_ZONES = Zones()


def ahead(zoned: Iterable[Offset], time: float, inferred: bool, slurm: bool) -> float:
    """How far a host's timestamp is ahead because of its zone, seconds; ``inferred``, ``slurm`` as in ``Offset.holds``."""
    return next((o.seconds for o in zoned if o.holds(time, inferred, slurm)), 0.0)


def zones_in(events: Sequence[Event], known: Known, books: Books = NO_BOOKS) -> Zones:
    """Finds which timestamps are in another zone than assumed, from everything stored."""
    launched = launches(compared_by_kind(events, known.senders), known.begun)
    failed_nodes = words(events, known.senders) or books.failures()
    signs = _Signs(events, votes(launched), failed_nodes, books.accounting_time, known.senders)
    right = signs.right()
    log_offset = signs.system_log_offset({right or 0})
    if right is None and log_offset:  # a log host may have written the other timestamps as well
        right = signs.right({log_offset})
    shown = correct(events, offsets := signs.offsets(right or 0, log_offset or 0))
    if (right is None or log_offset is None) and (more := _zoned_ahead(shown, known)):
        right, log_offset = (more, log_offset) if right is None else (right, -more)
        shown = correct(events, offsets := signs.offsets(right, log_offset or 0))
    offsets += _of_switches(shown, known)
    log_ahead = -(right or 0) * QUARTER_S
    accounting_time = replace(books.accounting_time, log_ahead=log_ahead) if log_ahead else books.accounting_time
    if not offsets and not signs.far:
        return Zones(accounting_time=accounting_time)
    found = Zones(tuple(offsets), frozenset(), _hosts(events), log_ahead=log_ahead, accounting_time=accounting_time)
    return replace(found, scripts=_scripts(launched, found), odd=frozenset(_odd(signs.votes, found)))


def _scripts(launched: Launches, found: Zones) -> dict[int, tuple[str, float]]:
    if not found.offsets:
        return {}
    return {job: (host, at - found.log_ahead) for job, (host, at) in scripts(launched).items()}


def _hosts(events: Iterable[Event]) -> frozenset[str]:
    return frozenset(e.host for e in events if e.host)


def _of_no_user(events: Iterable[Event], senders: Senders) -> list[Event]:
    """Those whose lines no user can have written."""
    return [e for e in events if e.authority in NO_USERS or not (e.authority == JOB or is_open(e, senders))]


class _Signs:
    """The evidence about zones: launches (``votes``), slurmctld's ``words`` on nodes, and ``accounting_time``.

    All numbers are quarters of an hour.
    """

    def __init__(
        self, events: Sequence[Event], votes: Votes, words: Sequence[Word], accounting_time: AccountingTime, senders: Senders,
    ) -> None:  # fmt: skip
        self.events, self.votes, self.words, self.accounting_time = events, votes, words, accounting_time
        self.senders = senders
        #: Zones of launches, other than slurmctld's.
        self.far = {vote.quarters for some in votes.values() for vote in some} - {0}
        self.believed = zones(votes, _hosts(events), _of_no_user(events, senders)) if self.far else {}
        self.nodes = {name for _, names in words for name in names}

    def right(self, maybe: Collection[int] = ()) -> int | None:
        """How far timestamps that name their zone are ahead of slurmctld's log, which is then to be moved.

        None without evidence. ``maybe`` are further candidates.
        """
        from_slurmctld = (e for e in self.events if e.source == "slurmctld")
        logged = {e.time_quality for e in _of_no_user(from_slurmctld, self.senders)}
        if logged and "inferred" not in logged:
            return 0  # the log names its zone
        exact = Counter(v.quarters for some in self.votes.values() for v in some if not v.inferred)
        exact.update(self.accounting_time.epochs.values())
        exact.update(_copies(self.events, self.senders))
        if exact:
            ((quarters, count),) = exact.most_common(1)
            if count > 1 and count >= TIMES * (exact.total() - count):
                return quarters
        stays = [*(zoned.stays for zoned in self.believed.values()), *self.accounting_time.stays.values()]
        others = {stay.quarters for some in stays for stay in some}.union(maybe)
        found = fit(self.words, system_lines(self.events, self.nodes, self.senders, zoned=True), others).clear(others)
        return self._two_of_three() if found is None else found

    def _two_of_three(self) -> int | None:
        """How far all nodes and all accounting files are ahead of slurmctld's log, if they agree.

        The log is then in another zone.
        """
        nodes = (
            {zoned.stays for zoned in self.believed.values()} if self.believed.keys() >= self.votes.keys() else set()
        )
        if len(nodes) != 1 or nodes != set(self.accounting_time.stays.values()):
            return None
        (stays,) = nodes
        return stays[0].quarters if len(stays) == 1 else None

    def system_log_offset(self, maybe: Collection[int]) -> int | None:
        """How far nodes' system logs without a zone are ahead of their slurmd logs, by slurmctld's words on nodes.

        A log host may write its own time. None without evidence.
        """
        lines = system_lines(self.events, self.nodes, self.senders, zoned=False)
        for host in lines.keys() & self.believed.keys():
            off = list(_stretches(host, self.believed[host], 0.0))
            lines[host] = sorted(t - ahead(off, t, True, True) for t in lines[host])
        others = {-quarters for quarters in self.far}.union(maybe)
        return fit(self.words, lines, others).clear(others)

    def offsets(self, right: int, log_offset: int) -> list[Offset]:
        """The offsets of all hosts except switches."""
        named = [e for e in self.events if e.source in ("slurmctld", "switch")]
        certain = _of_no_user(named, self.senders)
        controllers = {e.host for e in certain if e.source == "slurmctld"}
        switches = {e.host for e in certain if e.source == "switch"}
        kinds = {kind_of(host) for host in self.votes}
        # Hosts without evidence are in slurmctld's zone, unless all nodes are in the correct one.
        alike = not self.votes or any(host not in self.believed for host in self.votes)
        found: list[Offset] = []
        for host in sorted(_hosts(self.events)):
            of_log = host in controllers and host not in self.votes
            zoned = self.believed.get(host)
            if of_log or (zoned is None and host not in switches and (kind_of(host) in kinds or alike)):
                zoned = Zoned(_EVER)
            if zoned is not None:
                found += _of_host(host, zoned, -right * QUARTER_S, 0 if host in controllers else log_offset)
        return found


_COPIED = ("slurm.job_start", "slurm.job_end", "slurm.node_down")


def _copies(events: Iterable[Event], senders: Senders) -> Iterable[int]:
    """How many quarters of an hour slurmctld's lines with a zone are ahead of the same lines in its log."""
    lines: dict[tuple[object, ...], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for event in events:
        if event.source == "slurmctld" and event.kind in _COPIED and not is_open(event, senders):
            key = (event.kind, event.job_id, str(event.entities.get("nodes")))
            lines[key][event.time_quality == "line"].append(event.time)
    for unzoned, zoned in lines.values():
        if len(unzoned) == len(zoned) == 1:
            quarters = round((zoned[0] - unzoned[0]) / QUARTER_S)
            if abs(zoned[0] - unzoned[0] - quarters * QUARTER_S) <= COPIES_S:
                yield quarters


def _of_host(host: str, zoned: Zoned, log_ahead: float, log_offset: int) -> list[Offset]:
    own = list(_stretches(host, zoned, log_ahead))
    if not log_offset:
        return own
    why = "what it tells of its losses, and slurmctld of them, is as far apart as zones are"
    system = [replace(o, of="system", why=why) for o in _stretches(host, _later(zoned, log_offset), log_ahead)]
    return [*(replace(o, of="slurm") for o in own), *system]


_OF_LOG = "stamps that name their zone fit to what slurmctld says of nodes, if its log is in another one"

_EVER = (Stay(float("-inf"), float("inf"), 0),)


def _later(zoned: Zoned, quarters: int) -> Zoned:
    return replace(zoned, stays=tuple(replace(s, quarters=s.quarters + quarters) for s in zoned.stays or _EVER))


def _stretches(host: str, found: Zoned, log_ahead: float) -> Iterable[Offset]:
    if found.doubt:
        why = "others of its kind write in different zones, and nothing tells in which it does"
        yield Offset(host, float("-inf"), float("inf"), log_ahead, found.doubt, why, True, found.inferred)
    for stay in found.stays:
        off = stay.quarters * QUARTER_S
        if off + log_ahead:
            why = (
                _OF_LOG
                if log_ahead
                else "its jobs' launches, or those on hosts of its kind, tell that it writes in another zone"
            )
            yield Offset(host, stay.start + off, stay.end + off, off + log_ahead, 0.0, why, True, found.inferred)


def _odd(votes_by_host: Votes, known: Zones) -> Iterable[tuple[str, int, int]]:
    """Launches that show another zone than the known one."""
    by_host: dict[str, list[Offset]] = defaultdict(list)
    for offset in known.offsets:
        by_host[offset.host].append(offset)
    for host, some in votes_by_host.items():
        for vote in some:
            shown, off = vote.time + vote.quarters * QUARTER_S, vote.quarters * QUARTER_S + known.log_ahead
            there = [o for o in by_host[host] if o.of != "system" and o.start <= shown <= o.end]
            if any(o.sigma for o in there) or off not in ({o.seconds for o in there} or {0.0}):
                yield host, vote.job, vote.quarters


def zones_further(before: Zones, events: Sequence[Event], launched: Launches, books: Books = NO_BOOKS) -> Zones | None:
    """Applies the latest events to the known zones. ``launched``: their launches.

    Returns None if launches or accounting show another zone than the known one, or if a host is new while zones differ.
    Which timestamps are correct is decided again on a full pass.
    """
    launch_votes = votes(launched)
    if not before.odd.issuperset(_odd(launch_votes, before)):
        return None
    logged = {job: at for job, (at, doubt) in launched.allocated.items() if not doubt and job not in launched.again}
    if before.accounting_time.contradicts(books.rows, logged):
        return None
    if not before.offsets:
        return before
    if not before.hosts.issuperset(_hosts(events)):
        return None
    return replace(before, scripts={**before.scripts, **_scripts(launched, before)})


_OUTPUT = ("job_stdout", "job_stderr")


def without_stamp(event: Event) -> bool:
    """Is it output without a timestamp of its host's clock? Such output is placed near the end of its run."""
    return event.sigma >= UNSTAMPED_S and event.source in _OUTPUT


def correct(events: Iterable[Event], found: Sequence[Offset], zones: Zones = NO_ZONES) -> list[Event]:
    """Events in true time, in their total order; a moved event has its offset in ``clock_offset``."""
    by_host: dict[str, list[Offset]] = defaultdict(list)
    for offset in found:
        by_host[offset.host].append(offset)
    if not by_host:
        return list(events)
    moved = [
        _moved(e, by_host[e.host], zones) if e.host in by_host else _moved(e, (), zones) if e.source in _OUTPUT else e
        for e in events
    ]
    moved.sort(key=lambda e: (e.time, e.kind, e.host or "", e.device or "", e.id))
    return moved


def _moved(event: Event, found: Sequence[Offset], zones: Zones) -> Event:
    if without_stamp(event) or event.time_quality == "received":  # the receiver's clock
        return event
    if event.source in _OUTPUT:
        if event.time_quality == "inferred":
            event = _earlier(event, zones.ahead_in_output(event.job_id, event.time, event.host), 0.0)
    else:
        zone = next((o for o in found if o.zone and _is_about(o, event)), None)
        event = _earlier(event, zone.seconds, zone.sigma) if zone else event
    # What remains after the zone is corrected is the clock's offset.
    clock = next((o for o in found if not o.zone and _is_about(o, event)), None)
    return _earlier(event, clock.seconds, clock.sigma) if clock else event


def _earlier(event: Event, seconds: float, sigma: float) -> Event:
    if not seconds and sigma <= event.sigma:
        return event
    return replace(
        event, time=event.time - seconds, last=event.last - seconds, sigma=max(event.sigma, sigma),
        clock_offset=event.clock_offset + seconds,
    )  # fmt: skip


def _is_about(offset: Offset, event: Event) -> bool:
    return offset.holds(event.time, event.time_quality == "inferred", event.source in SLURM)


#: At least this many outages of ports must agree, and ``TIMES`` as many as disagree.
OUTAGES = 2


def _cables(events: Iterable[Event], known: Known) -> dict[str, Counter[int]]:
    """By switch, how many quarters of an hour it is ahead in outages that both ends of a cable report."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for switch, off in link_end_differences(events, known):
        quarters = round(off / QUARTER_S)
        if abs(off) <= ENDS_S or (abs(off - quarters * QUARTER_S) <= NOTICEABLE_S and LEAST <= abs(quarters) <= MOST):
            found[switch][quarters] += 1
    return found


def _zoned_ahead(events: Sequence[Event], known: Known) -> int:
    """How many quarters of an hour nodes' timestamps with a zone are ahead of those without one.

    The difference is taken from the distance of each to the switches.
    """
    links = [e for e in events if e.kind.startswith(("nic.link_", "switch.port_"))]
    log_votes = [
        sum(_cables((e for e in links if e.source == "switch" or e.time_quality == quality), known).values(), Counter())
        for quality in ("line", "inferred")
    ]
    return _clear(log_votes[1]) - _clear(log_votes[0]) if all(map(_agreed, log_votes)) else 0


def _of_switches(events: Sequence[Event], known: Known) -> Iterable[Offset]:
    """Zones of switches, given ``events`` with all known offsets applied.

    All switches whose timestamps name a zone are configured alike, and so are all others, unless some are known to
    differ.
    """
    by_switch = _cables(events, known)
    if not any(quarters for found in by_switch.values() for quarters in found):
        return
    switches = {e.host for e in events if e.source == "switch" and e.host}
    zoned = {e.host for e in events if e.source == "switch" and e.time_quality == "line"}
    for ours in (switches - zoned, switches & zoned):
        common = _clear(sum((by_switch[s] for s in ours if s in by_switch), Counter()))
        for switch in sorted(ours):
            own = by_switch.get(switch)
            quarters = common if not own or set(own) == {common} else _clear(own)
            if quarters:
                off, why = quarters * QUARTER_S, "what both ends of its cables tell is as far apart as zones are"
                yield Offset(switch, float("-inf"), float("inf"), off, 0.0, why, True, switch not in zoned)


def _agreed(counts: Counter[int]) -> bool:
    """Do enough outages agree?"""
    ((_, count),) = counts.most_common(1) or ((0, 0),)
    return count >= OUTAGES and count >= TIMES * (counts.total() - count)


def _clear(counts: Counter[int]) -> int:
    """The number of quarters of an hour on which outages agree; 0 if they do not."""
    return counts.most_common(1)[0][0] if _agreed(counts) else 0


__all__ = ["NO_ZONES", "SLURM", "Offset", "Zones", "ahead", "zones_further", "zones_in"]
