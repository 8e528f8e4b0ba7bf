"""Events and facts that no window reaches any more are packed: a late line restores those of its stretch."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nextafter

from correlator.live.lookup import chosen
from correlator.live.reach import LONGEST_S, MARGIN_S
from correlator.live.state import LiveConclusions, index_of
from correlator.model.append_only_list import AppendOnlyList
from correlator.model.nouns import FACTS
from correlator.model.packed import pack_restored
from correlator.model.thinned import first_at, thin_again, thinned

#: What is older than the latest news by so many times what a tick reads again is old.
TIMES = 2
#: So many of the latest events are never old: a few lines may be dated far in the future.
LATEST = 4096
#: What became old waits for a tick without news, which keeps nobody waiting, until it is so many events: 100 MB at most.
MOST_WAITING = 65_536
#: Old events that a tick with news packs at least, once too many wait, and one without news at most: 30 and 120 ms.
PIECE, RESTING_PIECE = 16_384, 65_536


def pack_old(known: LiveConclusions, is_resting: bool) -> None:
    """Packs some of what became old by the change of ``known``, and of what was concluded anew of what was old already.

    ``is_resting``: there is no news.
    """
    index, border = index_of(known), known.change.border
    result, memory = known.result, known.memory
    if len(result.events) < LATEST:
        return
    news = result.events[-LATEST].time
    longest = LONGEST_S if memory.longest is None else memory.longest
    low = min(memory.packed_until, border)
    high = min(border, news) if border > float("-inf") else news
    high = max(low, high - TIMES * (longest + MARGIN_S))
    first, end = (first_at(result.events, moment) for moment in (low, high))
    waiting = end - first
    piece = RESTING_PIECE if is_resting else max(PIECE, waiting - MOST_WAITING) if waiting > MOST_WAITING else 0
    if waiting > piece:
        # All events of one moment are packed together, however many.
        high = min(high, max(result.events[first + piece].time, nextafter(low, inf))) if piece else low
    known.memory = replace(memory, packed_until=high)
    if high <= low:
        return
    if not isinstance(result.events, AppendOnlyList):
        result.events = AppendOnlyList(result.events)
    result.events.hold(first_at(result.events, high), thinned)
    last = index.facts.last
    FACTS.pack(chosen(result.facts, (last >= low) & (last < high)))


def let_go() -> None:
    """Packs again what was restored. What is used at this moment stays."""
    thin_again()
    pack_restored()
