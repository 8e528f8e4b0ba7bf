"""Compares clocks by the times at which lines were written and received."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from correlator.clocks.signs import AGREE_S, AROUND_S, NOTICEABLE_S, PAIR_RECEIVED, ZONE_S, HostSign, Sign
from correlator.model.nouns import Event
from correlator.site.open_lines import is_open
from correlator.site.senders import NOBODY, Senders
from parsers.writers import JOB, NETWORK, NO_USERS, UNVERIFIED, USERS

#: A clock that is behind makes every line late by the same amount: at least this many lines, over at least this long. A
#: queue that drains after an outage delays each line differently.
LIVE_LINES, LIVE_S = 4, 600.0


def of_arrivals(events: Sequence[Event], senders: Senders) -> Iterable[HostSign]:
    """Compares the time of a line with its arrival.

    A line cannot arrive before it was written: then its writer's clock is ahead, by at least that much. If all lines
    arrive late by the same amount while others' arrive at once, their writer's clock is behind. A timestamp that names
    no zone shows the first only, if it is less ahead than zones are, and where no user can choose it.
    """
    late: dict[str, list[tuple[float, float]]] = defaultdict(list)
    # Nearly all of very many events arrive at once: one expression tells.
    for event in [e for e in events if e.received is not None and abs(e.received - e.time) >= NOTICEABLE_S]:
        if event.received is None or event.time_quality not in ("line", "inferred") or not event.host:
            continue
        if is_dated_by_anybody(event, senders):
            continue
        lag, zoned = event.received - event.time, event.time_quality == "line"
        if lag >= NOTICEABLE_S and zoned:
            late[event.host].append((event.time, lag))
        elif lag <= -NOTICEABLE_S - event.sigma and (zoned or (lag > -ZONE_S and event.authority not in USERS)):
            yield event.host, Sign(event.time, -lag, PAIR_RECEIVED)
    if any(list(_late_alike(lags)) for lags in late.values()):
        yield from _all_late(events, senders)


def arrived_early(event: Event, senders: Senders = NOBODY) -> float:
    """By how many seconds at least its writer's clock was ahead, as far as nothing was corrected: it arrived before it was
    written. 0 if it did not, or if a zone or a user may have made it so."""
    if event.received is None or event.clock_offset or event.time_quality not in ("line", "inferred"):
        return 0.0
    early, zoned = event.time - event.received, event.time_quality == "line"
    shown = early >= NOTICEABLE_S + event.sigma and (zoned or (early < ZONE_S and event.authority not in USERS))
    return early if shown and not is_dated_by_anybody(event, senders) else 0.0


def is_dated_by_anybody(event: Event, senders: Senders) -> bool:
    """May a user have chosen its time, or the time at which it was sent?"""
    if "sender" in event.entities:
        return True
    if event.authority in NO_USERS:
        return False
    return event.authority in (JOB, NETWORK, UNVERIFIED) or is_open(event, senders)


def _all_late(events: Sequence[Event], senders: Senders) -> Iterable[HostSign]:
    lags: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if (
            event.received is not None
            and event.time_quality == "line"
            and event.host
            and not is_dated_by_anybody(event, senders)
        ):
            lags[event.host].append((event.time, event.received - event.time))
    for host, host_lags in sorted(lags.items()):
        for run in _late_alike(host_lags):
            low, high = run[0][0] - AROUND_S, run[-1][0] + AROUND_S
            other_lags = [[abs(lag) for at, lag in t if low <= at <= high] for h, t in lags.items() if h != host]
            at_once = [min(found) < NOTICEABLE_S for found in other_lags if found]
            if at_once and 3 * sum(at_once) >= 2 * len(at_once):
                yield from ((host, Sign(at, -lag, PAIR_RECEIVED)) for at, lag in run)


def _late_alike(lags: list[tuple[float, float]]) -> Iterable[list[tuple[float, float]]]:
    """Runs of a host's lines that were all late by the same amount."""
    lags.sort()
    runs: list[list[tuple[float, float]]] = [[]]
    for at, lag in lags:
        if lag < NOTICEABLE_S or (runs[-1] and abs(lag - runs[-1][0][1]) > AGREE_S):
            runs.append([])
        if lag >= NOTICEABLE_S:
            runs[-1].append((at, lag))
    for run in runs:
        if len(run) >= LIVE_LINES and run[-1][0] - run[0][0] >= LIVE_S:
            yield run
