"""Which silent hosts are reported to a target. Hosts that fall silent together are one message, and one thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from faultline.notify.message import Message
from faultline.notify.patience import Patience
from faultline.notify.sent import SILENT, SOURCE, SPEAKS, Kept, Known, News

#: Silence is reported once it has been seen for this long; that a host sends again, too. In seconds.
SILENT_S, BACK_S = 30.0, 600.0
#: After a message about silence, others wait this long, so that a relay that died is two messages and not fifty.
GATHER = timedelta(minutes=10)
#: Hosts that fall silent within this time of each other share a thread; a host that does so again within a day stays in its
#: own.
TOGETHER, AGAIN = timedelta(hours=1), timedelta(days=1)
#: Most hosts that a title names.
MOST_NAMED = 3


@dataclass
class SilenceNews:
    """News of one round for one target (its name). ``link``: the address of the pages; ``known``: what was sent to the target."""

    patience: Patience
    link: str
    now: datetime
    target: str
    known: Known

    def of(self, alerts: Mapping[str, str]) -> Iterator[News]:
        """``alerts``: the silent hosts, and the text about each."""
        reported = {name.removeprefix(SOURCE): one for name, one in self.known.items() if name.startswith(SOURCE)}
        silent = {host for host, one in reported.items() if one.digest == SILENT}
        fallen = [h for h in sorted(alerts.keys() - silent) if self._lasts(h, SILENT, SILENT_S, reported)]
        returned = [h for h in sorted(silent - alerts.keys()) if self._lasts(h, SPEAKS, BACK_S, reported)]
        last = max((one.at for one in reported.values()), default=datetime.min)
        if self.now - last < GATHER:
            return
        if fallen:
            yield self._of_fallen(fallen, alerts, reported)
        for thread in dict.fromkeys(reported[host].thread for host in returned):
            its = [host for host in returned if reported[host].thread == thread]
            still = [host for host in silent - set(its) if reported[host].thread == thread]
            yield self._of_returned(its, len(still), thread, reported)

    def _lasts(self, host: str, state: str, wait_s: float, reported: Known) -> bool:
        return self.patience.has_lasted(
            self.target, SOURCE + host, state, wait_s, reported[host].times if host in reported else 1
        )

    def _of_fallen(self, hosts: Sequence[str], alerts: Mapping[str, str], reported: Known) -> News:
        own = [reported[h] for h in hosts if h in reported and self.now - reported[h].at < AGAIN]
        open_now = [one for one in reported.values() if one.digest == SILENT and self.now - one.at < TOGETHER]
        before = max([*own, *open_now], key=lambda one: one.at, default=None)
        thread = before.thread if before else f"{SOURCE}{hosts[0]} {self.now:%Y%m%dT%H%M%S}"
        title = alerts[hosts[0]]
        if len(hosts) > 1:
            title = f"{len(hosts)} hosts are silent: {_named(hosts)}; {title}"
        message = Message(
            _key(thread), "silent", "degraded", title, f"{self.link}/sources", thread=thread, number=before.times if before else 0
        )  # fmt: skip
        return News(message, tuple(Kept(SOURCE + host, SILENT) for host in hosts), thread)

    def _of_returned(self, hosts: Sequence[str], still: int, thread: str, reported: Known) -> News:
        """The last of a thread is ``heard``. An alert also ends if its node goes out of service."""
        title = f"{_named(hosts)}: heard again, or out of service"
        if still:
            title += f"; {still} still silent"
        times = max(reported[host].times for host in hosts)
        message = Message(
            _key(thread), "changed" if still else "heard", "benign", title, f"{self.link}/sources", thread=thread, number=times
        )  # fmt: skip
        return News(message, tuple(Kept(SOURCE + host, SPEAKS) for host in hosts), thread)


def _key(thread: str) -> str:
    """The host that began a thread stands for all of it."""
    return thread.rpartition(" ")[0]


def _named(hosts: Sequence[str]) -> str:
    more = len(hosts) - MOST_NAMED
    return ", ".join(hosts[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
