"""Which events count for nothing, because others than their program can have written them, and why.

* The kernel's other lines or another file show that a line is not the kernel's (kernel_lines.py, kernel_copies.py).
* Nothing shows who sent it (``SENT``).
* It stands in a file that does not show its writer (``SHARED``, or known by the kernel's name only), and a user's job was
  on its host: its user could have written it to blame the node, or to excuse a failure. If no other user's job was there,
  verdicts/judge.py leaves open whether it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from correlator.gather.confirmed import Confirmed
from correlator.gather.kernel_lines import BARE, NAME, REFUTED, SENT, SHARED, STAMPED
from correlator.gather.presence import WhoWasThere
from correlator.model.kinds import TOLD_S
from correlator.model.nouns import Event
from store.questions.authority import RELAYED

REFUTED_WHY = "it carries no uptime, and earlier lines of this kernel carry one"
SENT_WHY = "anybody can have sent it, and nothing shows that it came from that host"
OPEN_WHY = "the file does not show who wrote it, and {whose} on {host}"
HOSTLESS_WHY = "the file does not show who wrote it, and it names no host"
#: What speaks against a line of a file only because users can write to the file.
_OF_FILES = frozenset({SHARED, STAMPED, BARE})


def of_closed_files(doubtful: Iterable[Event], doubted: Mapping[str, str]) -> set[str]:
    """The ids of the events that are their program's if no user can write to the syslog files of the nodes."""
    return {e.id for e in doubtful if doubted[e.id] in _OF_FILES and not (e.file or "").startswith(RELAYED)}


def is_open(event: Event, how: str) -> bool:
    """Can any user of its host have written it, by what speaks against it? Facility ``kern`` is not open to users."""
    return how not in (REFUTED, SENT) and (how == SHARED or event.known_by == NAME)


class Uncounted(NamedTuple):
    """Why an event does not count, in words. ``users``: those who can have written it, where that is why."""

    why: str
    users: frozenset[str] = frozenset()


def reasons(
    doubtful: Iterable[Event],
    doubted: Mapping[str, str],
    words: Mapping[str, str],
    users_at: Callable[[str, float], frozenset[str]],
    confirmed: Callable[[], Confirmed],
) -> dict[str, Uncounted]:
    """Why some of the events that are ``doubted`` do not count, by their ids. ``words``: what other files show against
    some; ``users_at`` returns the users who had runs on a host at about a moment; ``confirmed`` returns what others
    confirm."""
    found = {}
    for event in doubtful:
        how = doubted[event.id]
        if event.id in words:
            found[event.id] = Uncounted(words[event.id])
        elif how == REFUTED:
            found[event.id] = Uncounted(REFUTED_WHY)
        elif how == SENT:
            found[event.id] = Uncounted(SENT_WHY)
        elif is_open(event, how):
            if event.host is None:
                found[event.id] = Uncounted(HOSTLESS_WHY)
            elif users := users_at(event.host, event.time):
                others = confirmed()
                if not others.measured(event) and (len(users) > 1 or not others.followed(event)):
                    found[event.id] = _open(event.host, users)
    return found


def _open(host: str, users: frozenset[str]) -> Uncounted:
    return Uncounted(_open_why(host, len(users) > 1), users)


@lru_cache(maxsize=65_536)
def _open_why(host: str, several: bool) -> str:
    return OPEN_WHY.format(host=host, whose="jobs of several users were" if several else "a user's job was")


def questions(open_to_users: Iterable[Event]) -> list[WhoWasThere]:
    """Which users were there when these events were written: if later rows change that, an event counts or no longer
    does, which changes conclusions from ``TOLD_S`` before it on."""
    return WhoWasThere.of({(event.time, event.host) for event in open_to_users if event.host}, TOLD_S)
