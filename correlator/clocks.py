"""Clocks that were off: by how much, from when to when, and how that is known.

Everyday differences (NTP keeps hosts within milliseconds, RFC 3164 writes whole seconds) are part of every event's
sigma. Here it is about clocks that were seconds to hours off: a cause would seem to follow its effect. An offset is
believed when the host's own time daemon told it, or when two independent pairs of lines agree on it; it is applied to
events, never to the stored lines.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from correlator.events import UNSTAMPED_S
from correlator.model import Event

#: Smaller differences are within what launch delays and whole seconds explain.
NOTICEABLE_S = 5.0

#: Two pairs tell the same offset if they agree to this.
AGREE_S = 3.0

#: A prolog runs between allocation and launch; longer delays are told by nothing.
LAUNCH_S = 20.0

#: How many nodes must have started one step for the odd one out to be known.
STEP_NODES = 3


@dataclass(frozen=True)
class Offset:
    """``host``'s clock minus true time was ``seconds`` while it showed ``start`` to ``end`` (its own, wrong time)."""

    host: str
    start: float
    end: float
    seconds: float
    sigma: float
    why: str


@dataclass(frozen=True)
class _Sign:
    """At local time ``time`` the clock was ``seconds`` off (about 0: it was right). ``told``: the time daemon says so."""

    time: float
    seconds: float
    told: bool = False
    mended: bool = False


def offsets(events: Sequence[Event]) -> list[Offset]:
    """All stretches in which a host's clock was noticeably off; independent of the order of ``events``.

    Clocks are compared with one another: once some are known to be wrong, the right ones may be the majority of a step."""
    found = _once(events, frozenset())
    latest = found
    for _ in range(ROUNDS - 1):
        if not latest:
            break
        latest = _once(correct(events, found), frozenset(o.host for o in found))
        found = sorted([*found, *latest], key=lambda o: (o.host, o.start))
    return found


#: After so many rounds nothing more is learned from those that are known.
ROUNDS = 3


def _once(events: Sequence[Event], known: frozenset[str]) -> list[Offset]:
    signs: dict[str, list[_Sign]] = defaultdict(list)
    for host, sign in [*_told(events), *_launches(events), *_steps(events), *_received(events)]:
        signs[host].append(sign)
    return [
        o
        for host in sorted(signs.keys() - known)
        for o in _stretches(host, sorted(signs[host], key=lambda s: (s.time, s.seconds)))
    ]


def correct(events: Iterable[Event], found: Sequence[Offset]) -> list[Event]:
    """Events in true time, in their total order; what was moved says by how much in ``clock_offset``."""
    by_host: dict[str, list[Offset]] = defaultdict(list)
    for offset in found:
        by_host[offset.host].append(offset)
    if not by_host:
        return list(events)
    moved = [_moved(e, by_host[e.host]) if e.host in by_host else e for e in events]
    moved.sort(key=lambda e: (e.time, e.kind, e.host or "", e.device or "", e.id))
    return moved


def _moved(event: Event, found: Sequence[Offset]) -> Event:
    if event.sigma >= UNSTAMPED_S and event.source in ("job_stdout", "job_stderr"):
        return event  # it has no stamp of its host's clock: it was put near the end of its run
    for offset in found:
        if offset.start <= event.time <= offset.end:
            return replace(
                event, time=event.time - offset.seconds, last=event.last - offset.seconds,
                sigma=max(event.sigma, offset.sigma), clock_offset=offset.seconds,
            )  # fmt: skip
    return event


def _told(events: Sequence[Event]) -> Iterable[tuple[str, _Sign]]:
    """chrony: "System clock wrong by S seconds" (true = local + S), "was stepped by S": the end of it."""
    for event in events:
        if event.kind != "sys.clock" or not event.host:
            continue
        seconds = _number(event.entities.get("offset_s"))
        if seconds is None or abs(seconds) < NOTICEABLE_S:
            continue
        stepped = "step" in event.message or "reset" in event.message
        yield event.host, _Sign(event.time, -seconds, told=True, mended=stepped)


def _launches(events: Sequence[Event]) -> Iterable[tuple[str, _Sign]]:
    """slurmctld allocates, then the batch host launches: a launch before its allocation is a clock behind."""
    allocated = _allocations(events)
    late: dict[str, list[_Sign]] = defaultdict(list)
    prompt: set[str] = set()
    for event in events:
        start = allocated.get(event.job_id or -1)
        if event.kind != "slurm.step_start" or event.source != "slurmd" or start is None or not event.host:
            continue
        delay = event.time - start
        batch = event.message.startswith("Launching batch")
        if delay < -NOTICEABLE_S:
            yield event.host, _Sign(event.time, delay)
        elif batch and delay <= LAUNCH_S:
            prompt.add(event.host)
            yield event.host, _Sign(event.time, 0.0)
        elif batch and delay <= LATE_S:
            late[event.host].append(_Sign(event.time, delay))
    yield from _always_late(late, prompt)


#: A clock further ahead is not told from launches: a job that was requeued is launched again after its first allocation.
LATE_S = 900.0

#: So many launches must be late by the same, on a node that was never prompt, where most nodes are.
LATE_LAUNCHES = 3


def _always_late(late: dict[str, list[_Sign]], prompt: set[str]) -> Iterable[tuple[str, _Sign]]:
    """A slow prolog is late by more or less; a clock that is ahead is late by the same each time."""
    if 2 * len(late.keys() - prompt) > len(prompt):
        return
    for host, signs in sorted(late.items()):
        middle = median(s.seconds for s in signs)
        if (
            host not in prompt
            and len(signs) >= LATE_LAUNCHES
            and all(abs(s.seconds - middle) <= AGREE_S / 2 for s in signs)
        ):
            yield from ((host, sign) for sign in signs)


def _allocations(events: Sequence[Event]) -> dict[int, float]:
    """When slurmctld first gave each job its nodes."""
    allocated: dict[int, float] = {}
    for event in events:
        if event.kind == "slurm.job_start" and event.source == "slurmctld" and event.job_id is not None:
            allocated.setdefault(event.job_id, event.time)
    return allocated


def _steps(events: Sequence[Event]) -> Iterable[tuple[str, _Sign]]:
    """One launch request reaches all nodes of a step at once: who writes another time has another clock. Of two nodes the
    one whose launch follows the allocation is right."""
    allocated = _allocations(events)
    steps: dict[tuple[int, str], dict[str, float]] = defaultdict(dict)
    for event in events:
        if event.kind == "slurm.step_start" and event.source == "slurmd" and event.host and event.job_id is not None:
            step = event.entities.get("step_id")
            if step is not None and event.message.startswith("launch task"):
                steps[event.job_id, str(step)].setdefault(event.host, event.time)
    for key in sorted(steps):
        times = steps[key]
        middle = median(times.values())
        if len(times) < STEP_NODES or sum(abs(t - middle) <= AGREE_S for t in times.values()) * 2 <= len(times):
            # No majority agrees: a requeued job's two launches, or nobody's clock is right, or one of two.
            start = allocated.get(key[0])
            right = [t for t in times.values() if start is not None and -AGREE_S <= t - start <= LAUNCH_S]
            if len(times) != STEP_NODES - 1 or len(right) != 1:
                continue
            middle = right[0]
        for host, time in sorted(times.items()):
            off = time - middle
            if abs(off) >= NOTICEABLE_S:
                yield host, _Sign(time, off)
            elif abs(off) <= AGREE_S:
                yield host, _Sign(time, 0.0)


def _received(events: Sequence[Event]) -> Iterable[tuple[str, _Sign]]:
    """A line cannot arrive before it was written: then its writer's clock is ahead, by that much at least."""
    for event in events:
        if event.host and event.received is not None and event.time_quality == "line":
            ahead = event.time - event.received
            if ahead >= NOTICEABLE_S + event.sigma:
                yield event.host, _Sign(event.time, ahead)


def _stretches(host: str, signs: list[_Sign]) -> list[Offset]:
    """Groups agreeing signs; a sign of a right clock between two of them ends a stretch."""
    right = [s.time for s in signs if abs(s.seconds) < NOTICEABLE_S]
    off = [s for s in signs if abs(s.seconds) >= NOTICEABLE_S]
    found: list[Offset] = []
    while off:
        first = off[0]
        group = [
            s for s in off if abs(s.seconds - first.seconds) <= AGREE_S and not _between(right, first.time, s.time)
        ]
        off = [s for s in off if s not in group]
        told = any(s.told for s in group)
        if not told and len({s.time for s in group}) < 2:
            continue
        # A step is told in true time already: the clock that was stepped no longer shows what it had shown.
        wrong = [s.time for s in group if not s.mended] or [s.time - s.seconds for s in group]
        mended = min((s.time for s in group if s.mended), default=None)
        place = bisect.bisect_left(right, min(wrong))
        start = right[place - 1] + 0.001 if place else float("-inf")
        later = [t for t in right if t > max(wrong)]
        end = min(
            [t for t in (later[0] - 0.001 if later else None, mended - 0.001 if mended else None) if t is not None],
            default=float("inf"),
        )
        best = next((s.seconds for s in group if s.told), median(s.seconds for s in group))
        why = "its time daemon said so" if told else f"{len(group)} launches agree on it"
        found.append(Offset(host, start, end, best, 0.5 if told else AGREE_S, why))
    return found


def _between(times: list[float], low: float, high: float) -> bool:
    place = bisect.bisect_right(times, min(low, high))
    return place < len(times) and times[place] < max(low, high)


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except (TypeError, ValueError):
        return None
