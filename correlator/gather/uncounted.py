"""Which events count for nothing, because others than their program can have written them, and why.

* The kernel's other lines or another file show that a line is not the kernel's (kernel_lines.py, kernel_copies.py).
* Nothing shows who sent it (``SENT``).
* It stands in a file that does not show its writer (``SHARED``, or known by the kernel's name only), and jobs of two
  users were on its host: either could have written it to blame the node of the other, or to excuse a failure. Where one
  user was alone, verdicts/kernel_words.py says what it is worth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from correlator.gather.kernel_lines import BARE, NAME, REFUTED, SENT, SHARED, STAMPED
from correlator.gather.presence import Crowds
from correlator.model.kinds import TOLD_S
from correlator.model.nouns import Event
from store.questions.authority import RELAYED

REFUTED_WHY = "it carries no uptime, and earlier lines of this kernel carry one"
SENT_WHY = "anybody can have sent it, and nothing shows that it came from that host"
CROWDED_WHY = "the file does not show who wrote it, and jobs of several users were on {host}"
#: What speaks against a line of a file only because users can write to the file.
_OF_FILES = frozenset({SHARED, STAMPED, BARE})


def of_closed_files(doubtful: Iterable[Event], doubted: Mapping[str, str]) -> set[str]:
    """The ids of the events that are their program's if no user can write to the syslog files of the nodes."""
    return {e.id for e in doubtful if doubted[e.id] in _OF_FILES and not (e.file or "").startswith(RELAYED)}


def is_open(event: Event, how: str) -> bool:
    """Can any user of its host have written it, by what speaks against it? Facility ``kern`` is not open to users."""
    return how not in (REFUTED, SENT) and (how == SHARED or event.known_by == NAME)


def reasons(
    doubtful: Iterable[Event],
    doubted: Mapping[str, str],
    words: Mapping[str, str],
    crowded_at: Callable[[str, float], bool],
) -> dict[str, str]:
    """Why some of the events that are ``doubted`` do not count, in words, by their ids. ``words``: what other files show
    against some; ``crowded_at`` says whether several users had runs on a host at about a moment."""
    found = {}
    for event in doubtful:
        how = doubted[event.id]
        if event.id in words:
            found[event.id] = words[event.id]
        elif how == REFUTED:
            found[event.id] = REFUTED_WHY
        elif how == SENT:
            found[event.id] = SENT_WHY
        elif is_open(event, how) and event.host and crowded_at(event.host, event.time):
            found[event.id] = CROWDED_WHY.format(host=event.host)
    return found


def questions(open_to_users: Iterable[Event]) -> list[Crowds]:
    """Whether several users were there when these events were written: if later rows change that, an event counts or no
    longer does, which changes conclusions from ``TOLD_S`` before it on."""
    asked: defaultdict[str, set[float]] = defaultdict(set)
    for event in open_to_users:
        if event.host:
            asked[event.host].add(event.time)
    return Crowds.of({host: sorted(moments) for host, moments in asked.items()}, TOLD_S)
