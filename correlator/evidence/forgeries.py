"""Lines that were shown to be false, as events of their own: ``security.forged_evidence``, for operators.

A claim becomes such an event only if something shows that it is false: the kernel's other lines, a copy with a
program's facility, the own file of its host, the address that sent it. A job's output is never one, since it is not
believed beyond its job. Neither is a line that is only doubtful: a clock may have been set, a file may be missing.

These events are no evidence. Nothing concludes from them, and no incident, verdict or other event depends on them. They
name users who could have written a line, not who wrote it. Users who see only their own runs do not see them, because
no rule of ``store.duckdb.visible`` names them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from correlator.facts.world import World
from correlator.gather.kernel_copies import Copies, is_own
from correlator.gather.kernel_lines import DENIED, OF_USER, REFUTED
from correlator.gather.outlived import OUTLIVED
from correlator.gather.presence import MARGIN_S, user_there_between
from correlator.gather.standing import OUTPUT, Controllers
from correlator.gather.uncounted import OPEN, OPEN_DEVICE
from correlator.model.false_lines import (
    AS_CONTROLLER,
    CONTROLLERS_FILE,
    CONTROLLERS_LOG,
    FORGED,
    LAYER,
    LOCAL,
    LOG_HOST,
    OTHER_ADDRESS,
    Channel,
)
from correlator.model.nouns import Event, Run
from correlator.site.senders import configured_nodes

#: Claims of one host, channel and event within a quarter of an hour are one event.
QUARTER_S = 900.0
#: A report of the same by the host itself, this long before or after a claim (seconds), shows that the claim is true.
SAME_BEFORE_S, SAME_AFTER_S = 900.0, 600.0
#: An event names at most this many users, devices, jobs, hosts and further lines.
MOST = 20

_SHOWN = {REFUTED: LOCAL, OF_USER: LOCAL, DENIED: LOG_HOST, OUTLIVED: CONTROLLERS_LOG}


@dataclass(frozen=True, slots=True)
class Claim:
    """A line that was shown to be false. ``address`` sent it, if known."""

    event: Event
    channel: Channel
    why: str
    address: str | None = None


@dataclass(frozen=True)
class Proof:
    """What ``strays`` in slurmctld's name are compared with: is a true controller ``seen``, and which of the hosts
    ``asked`` about are compute nodes (``computing``)?"""

    seen: bool
    asked: frozenset[str]
    computing: frozenset[str]


@dataclass(frozen=True)
class Around:
    """The question whose runs were on ``host`` between two moments, asked for an event ``at``. If later rows change the
    answer, a tick makes the event again."""

    at: float
    host: str
    since: float
    until: float
    unlogged: ClassVar[frozenset[str]] = frozenset()

    def sees(self, run: Run | None) -> tuple[object, ...]:
        """The properties of a run that count here."""
        user = None if run is None else user_there_between(run, self.host, self.since, self.until)
        return () if user is None else (user,)


@dataclass(frozen=True)
class Forgery:
    """The event about some claims. ``until`` ends their quarter of an hour; ``look`` is the question about users, if
    any."""

    event: Event
    claims: tuple[Claim, ...]
    until: float
    look: Around | None


def strays(corrected: Iterable[Event], dropped: Collection[str]) -> list[Event]:
    """The events that ``standing.ruling`` drops: in the name of slurmctld or of another host."""
    return [e for e in corrected if e.id in dropped and e.source not in OUTPUT] if dropped else []


def proof(
    found: Iterable[Event],
    events: Iterable[Event],
    believed: Controllers,
    settings: Iterable[Mapping[str, Any]],
    nodes: Callable[[], Collection[str]],
    before: Proof | None = None,
) -> Proof:
    """What is known of the strays ``found``. ``events``: those that count, in addition to those of ``before``;
    ``nodes`` returns where jobs ran."""
    asked = frozenset(e.host for e in found if e.source == "slurmctld" and not e.own and e.host)
    if before is not None:
        asked |= before.asked
    seen = before is not None and before.seen
    if asked and not seen:
        seen = any(e.source == "slurmctld" and e.host in believed.hosts for e in events)
    computing = asked & configured_nodes(settings)
    if asked - computing:
        computing |= asked & frozenset(nodes())
    return Proof(seen, asked, computing)


def gathered(
    world: World,
    found: Sequence[Event],
    shown: Proof | None,
    before: Sequence[Forgery] = (),
    border: float = float("-inf"),
) -> list[Forgery]:
    """All forgeries in order. ``found`` are the strays, ``shown`` what is known of them.

    ``before``: those known so far, of which nothing differs before ``border``.
    """
    late = [e for e in found if e.time >= border]
    claims = [c for c in (*_shown_false(world), *_in_anothers_name(world, late, shown)) if c.event.time >= border]
    kept = [one for one in before if one.until <= border]
    if len(kept) == len(before) and not claims:
        return kept
    claims += [c for one in before if one.until > border for c in one.claims if c.event.time < border]
    groups: dict[tuple[str, str, str, int], list[Claim]] = defaultdict(list)
    for claim in claims:
        event = claim.event
        groups[(event.host or "", claim.channel.name, event.kind, int(event.time // QUARTER_S))].append(claim)
    made = [_made(world, key, group) for key, group in groups.items()]
    return [*kept, *sorted(made, key=lambda one: (one.event.time, one.event.id))]


# ---------------------------------------------------------------------------------------------------- what shows it


def _sender(event: Event) -> str | None:
    address = event.entities.get("sender")
    return None if address is None else str(address)


def _shown_false(world: World) -> Iterable[Claim]:
    """Lines in the kernel's name, and within slurmctld's own file."""
    for event, how, why in world.refuted:
        if how in _SHOWN:
            yield Claim(event, _SHOWN[how], why, _sender(event))


def _in_anothers_name(world: World, found: Sequence[Event], shown: Proof | None) -> Iterable[Claim]:
    believed = world.believed
    if not found or shown is None or believed is None:
        return
    named = ", ".join(sorted(believed.named or believed.hosts))
    sent = []
    for event in found:
        if event.source == "slurmctld" and event.own:
            if event.host in believed.impostors:
                yield Claim(event, CONTROLLERS_FILE, f"{named} is the controller by slurm.conf, and its lines are here")
        elif event.source == "slurmctld" and event.host not in believed.hosts:
            if believed.sure and shown.seen and event.host in shown.computing:
                why = f"slurmctld runs on {named}, whose lines are here, and {event.host} is a compute node"
                yield Claim(event, AS_CONTROLLER, why, _sender(event))
        elif _sender(event) is not None:
            sent.append(event)
    yield from _sent_by_others(world, sent, believed)


def _sent_by_others(world: World, sent: Sequence[Event], believed: Controllers) -> Iterable[Claim]:
    """Lines from other addresses. A relay that nobody named in ``relays`` forwards true lines, and lines of hosts that
    reach us in no other way: neither are forged."""
    hosts = {e.host for e in sent if e.host}
    if not hosts:
        return
    speaking = _speaking(world, sent, hosts, believed)
    true = _true(world, sent)
    for event in sent:
        quarter = int(event.written_at // QUARTER_S)
        if (event.host, quarter) not in speaking and (event.host, quarter - 1) not in speaking:
            continue
        key = (event.host, event.kind, event.device)
        if any(-SAME_BEFORE_S <= at - event.time <= SAME_AFTER_S for at in true.get(key, ())):
            continue
        address = _sender(event) or ""
        other = believed.senders.nodes.get(address) or believed.senders.controllers.get(address)
        whose = f"{other}'s address" if other else f"no address of {event.host}"
        yield Claim(
            event, OTHER_ADDRESS, f"{address} is {whose}, and {event.host}'s own lines do not have the same", address
        )


def _speaking(
    world: World, sent: Sequence[Event], hosts: Collection[str], believed: Controllers
) -> set[tuple[str | None, int]]:
    """(host, quarter of an hour) with lines in the host's own files, or from its own address."""
    known = believed.senders
    found: set[tuple[str | None, int]] = set()
    for event in world.events:
        address = _sender(event) if event.host in hosts else None
        if address is not None and event.host in (known.nodes.get(address), known.controllers.get(address)):
            found.add((event.host, int(event.written_at // QUARTER_S)))
    return found | _in_own_files(sent, hosts, world.line_copies)


def _in_own_files(sent: Sequence[Event], hosts: Collection[str], copies: Copies | None) -> set[tuple[str | None, int]]:
    if copies is None:
        return set()
    quarters = {int(e.written_at // QUARTER_S) for e in sent}
    since, until = (min(quarters) - 1) * QUARTER_S, (max(quarters) + 1) * QUARTER_S
    files = {row["file"] for row in copies.files_of(hosts, since, until) if is_own(row["file"], row["host"])}
    if not files:
        return set()
    places = {(host, quarter - n) for host in hosts for quarter in quarters for n in (0, 1)}
    return {(row["host"], int(row["first"] // QUARTER_S)) for row in copies.spans(files, places)}


def _true(world: World, sent: Iterable[Event]) -> Mapping[tuple[str | None, str, str | None], list[float]]:
    """When what the lines claim was reported by those who may, or by a line that any user of the host can have written:
    whoever repeats that need not be the forger."""
    sent = list(sent)
    wanted = {(e.host, e.kind, e.device) for e in sent}
    found: dict[tuple[str | None, str, str | None], list[float]] = defaultdict(list)
    open_ones = (
        e
        for host in {e.host for e in sent}
        for e, why in world.not_counted.get(host or "", ())
        if why in (OPEN, OPEN_DEVICE)
    )
    for event in chain(world.admitted, open_ones):
        if (key := (event.host, event.kind, event.device)) in wanted:
            found[key].append(event.time)
    return found


# ------------------------------------------------------------------------------------------------------- the event


def _made(world: World, key: tuple[str, str, str, int], group: Iterable[Claim]) -> Forgery:
    host, _, kind, quarter = key
    claims = sorted(group, key=lambda c: (c.event.time, c.event.id))
    first, channel = claims[0].event, claims[0].channel
    since, until = quarter * QUARTER_S, (quarter + 1) * QUARTER_S
    addresses = sorted({c.address for c in claims if c.address is not None})
    place = _place(world, channel, host, addresses)
    look = Around(claims[-1].event.time, place, since, until) if place else None
    users = _users(world, look) if look else []
    count = sum(max(1, c.event.count) for c in claims)
    writer = _writer(channel, first, place, addresses, users)
    blamed = _blamed(claims)
    fields = {
        "claimed_event": kind, "claimed_source": first.source, "channel": channel.name, "because": claims[0].why,
        "writer": writer, "users": users, "addresses": addresses[:MOST], "written_on": place, **blamed,
    }  # fmt: skip
    lines = {(c.event.file, c.event.line) for c in claims if c.event.file and c.event.line}
    also = sorted((file, line) for file, line in lines if file and line and (file, line) != (first.file, first.line))
    event = Event(
        id="f" + hashlib.blake2s("\x1f".join(map(str, (world.site.cluster, *key))).encode(), digest_size=5).hexdigest(),
        time=first.time, sigma=first.sigma, kind=FORGED, host=first.host, device=None, job_id=None,
        message=_message(channel, first, blamed, count, claims[0].why, writer), source=first.source, layer=LAYER,
        severity="warning", file=first.file, line=first.line, received=first.received, time_quality=first.time_quality,
        count=count, last=claims[-1].event.last, entities={k: v for k, v in fields.items() if v}, also=tuple(also[:MOST]),
    )  # fmt: skip
    return Forgery(event, tuple(claims), until, look)


def _place(world: World, channel: Channel, host: str, addresses: Sequence[str]) -> str | None:
    """The host on which the lines were written, if it is known."""
    if channel in (LOCAL, AS_CONTROLLER, CONTROLLERS_FILE):
        return host or None
    senders = world.believed.senders if world.believed else None
    known = {senders.nodes.get(a) or senders.controllers.get(a) for a in addresses} if senders else set()
    return known.pop() if len(known) == 1 else None


def _users(world: World, look: Around) -> list[str]:
    runs = list(world.runs_on.get(look.host, ()))
    if look.since - MARGIN_S < world.runs_since:
        runs += world.earlier_runs
    there = {user_there_between(run, look.host, look.since, look.until) for run in runs}
    return sorted(user for user in there if user is not None)[:MOST]


def _writer(channel: Channel, event: Event, place: str | None, addresses: Sequence[str], users: Sequence[str]) -> str:
    """Who could have written the lines, in words."""
    if channel is CONTROLLERS_LOG:
        return "any user who can submit jobs: slurmctld writes what they chose, line ends included"
    if channel is CONTROLLERS_FILE:
        return f"root of {place}, or whoever sends its files"
    ran = f", where {'jobs' if len(users) > 1 else 'a job'} of {' and '.join(users)} ran" if users else ""
    if channel in (LOCAL, AS_CONTROLLER):
        return f"any user of {place}{ran}"
    if addresses:
        of = f" ({place}{ran})" if place else ""
        return f"any program that sends from {' or '.join(addresses[:3])}{of}"
    return f"anybody who can send a line to the log host of {event.file or 'another log'}"


def _blamed(claims: Iterable[Claim]) -> dict[str, list[Any]]:
    """On whom the lines would have put the blame."""
    hosts: set[str] = set()
    devices: set[str] = set()
    jobs: set[int] = set()
    for event in (claim.event for claim in claims):
        named = event.entities.get("nodes") if event.source == "slurmctld" else event.host
        hosts.update([named] if isinstance(named, str) else map(str, named or ()))
        devices.update([event.device] if event.device else [])
        jobs.update([event.job_id] if event.job_id is not None else [])
    found: dict[str, list[Any]] = {"blamed_hosts": sorted(hosts), "blamed_devices": sorted(devices), "blamed_jobs": sorted(jobs)}  # fmt: skip
    return {name: values[:MOST] for name, values in found.items()}


def _message(
    channel: Channel, event: Event, blamed: Mapping[str, Sequence[Any]], count: int, why: str, writer: str
) -> str:
    names = {"kernel": f"{event.host}'s kernel", "slurmctld": "slurmctld"}
    name = names.get(event.source or "", f"{event.host}'s {event.source or 'syslog'}")
    target = [*map(str, blamed["blamed_devices"][:3]), *map(str, blamed["blamed_hosts"][:3])]
    target += [f"job {job}" for job in blamed["blamed_jobs"][:3]]
    of = f" of {', '.join(target)}" if target else ""
    lines = "A line" if count == 1 else f"{count} lines"
    return (
        f"{lines} in the name of {name} ({channel.name}): {event.kind}{of}. Not true: {why}. "
        f"Could have been written by {writer}."
    )
