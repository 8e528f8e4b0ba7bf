"""Network links as the kernel reports them: rtnetlink events at once, and the carrier counters every few seconds.

Drivers do not always log a carrier loss, and a management link that is down for three seconds leaves no trace in any
log. The kernel counts every loss (``carrier_up_count``, ``carrier_down_count``) but limits its events to one a second
per link, so losses that only the counters show are reported too.

Events have the format of ``ip -ts monitor link``, counters that of ``ip -s -j link``: the service parses both anyway.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.agent import wire
from collector.agent.failure import Missing
from collector.agent.source import Context, Reading, SourceKind
from collector.agent.sources import netlink
from collector.agent.sources.netlink import IFF_RUNNING, IFF_UP, Link

#: Interfaces of containers come and go with every job step; their carrier says nothing about a cable.
_EXCLUDED = [
    "lo",
    "veth*",
    "docker*",
    "br-*",
    "cali*",
    "cni*",
    "flannel*",
    "vxlan*",
    "tap*",
    "tun*",
    "virbr*",
    "dummy*",
]
#: All counters are reported once an hour; carrier counts when they change; increased errors and drops once a minute.
_EVERYTHING_S, _ERRORS_S = 3600.0, 60.0


@dataclass
class Links:
    context: Context
    exclude: list[str]
    poll_s: float
    interval: float = 0.0
    handle: int | None = None
    _socket: socket.socket | None = None
    _known: dict[str, Link] = field(default_factory=dict)
    _kept: dict[str, Any] = field(default_factory=dict)
    _poll_at: float = float("-inf")
    _sent_at: float = float("-inf")
    _errors_at: float = float("-inf")
    _sent: dict[str, tuple[object, object]] = field(default_factory=dict)
    _looked: float | None = None

    def open(self, positions: Mapping[str, Any]) -> None:
        if not hasattr(socket, "AF_NETLINK"):
            raise Missing("rtnetlink is Linux's; this system has none")
        self._socket = netlink.listen()
        self.handle = self._socket.fileno()
        kept = positions.get("links") or {}
        if kept.get("boot") == self.context.boot_id():
            self._kept, self._looked = kept.get("counts", {}), kept.get("time")
        self._poll_at = self._sent_at = float("-inf")

    def poll(self) -> Iterator[Reading]:
        lines: list[str] = []
        overrun = self._events(lines)
        monotonic, now = self.context.monotonic(), self.context.now()
        positions: dict[str, Any] = {}
        body: list[bytes] = []
        if overrun or monotonic - self._poll_at >= self.poll_s:
            self._poll_at = monotonic
            found = [link for link in netlink.dump() if self._wanted(link)]
            for link in found:
                self._compare(link, lines)
            self._forget(found)
            body += self._counters(found, monotonic, now)
            self._looked = now
        if lines:
            body.append(wire.lines_record(
                b'{"stream":"links","source":"kernel","timezone":"UTC"', "\n".join(lines).encode(), read=wire.stamp(now)
            ))  # fmt: skip
        if not body:
            return
        counts = {link.name: _counts(link) for link in self._known.values()}
        positions["links"] = {"boot": self.context.boot_id(), "time": now, "counts": counts}
        yield Reading(b"".join(body), len(lines), positions)

    def _wanted(self, link: Link) -> bool:
        return not any(fnmatch.fnmatch(link.name, pattern) for pattern in self.exclude)

    def _events(self, lines: list[str]) -> bool:
        """Reads waiting events. True if the kernel had to drop some: the counters cover those."""
        assert self._socket is not None
        overrun = False
        while True:
            try:
                data = self._socket.recv(64 * 1024)
            except BlockingIOError:
                return overrun
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                overrun = True
                continue
            for link in netlink.parse(data):
                # The bridge announces its ports a second time, without counters.
                if link is not None and link.name and link.ups is not None and self._wanted(link):
                    self._compare(link, lines)

    def _compare(self, link: Link, lines: list[str]) -> None:
        """Reports what differs from the known state of the link."""
        before = self._known.get(link.name)
        if link.deleted:
            if before is not None:
                lines.append(self._line(link, "Deleted "))
                self._kept[link.name] = _counts(self._known.pop(link.name))
            return
        self._known[link.name] = link
        if before is None or before.index != link.index:
            self._first_sight(link, lines)
            return
        missed = self._missed(before.ups, before.downs, link, _carrier(before))
        changed = _carrier(before) != _carrier(link) or before.operstate != link.operstate
        if missed:
            lines += self._counted(link, missed)
        elif changed or (before.flags ^ link.flags) & IFF_UP:
            lines.append(self._line(link))

    def _first_sight(self, link: Link, lines: list[str]) -> None:
        """A link that this process sees for the first time: compared with the counters of the last process."""
        kept = self._kept.get(link.name)
        if kept and kept[0] == link.index and kept[1] is not None:
            was_up = bool(kept[3])
            missed = self._missed(kept[1], kept[2], link, was_up)
            if missed:
                lines += self._counted(link, missed)
            elif was_up != _carrier(link):
                lines.append(self._line(link))
        elif link.flags & IFF_UP and not _carrier(link):
            lines.append(self._line(link))  # found without carrier: report it

    @staticmethod
    def _missed(ups: int | None, downs: int | None, link: Link, was_up: bool) -> int:
        """Carrier losses that no event reported: losses counted, less the one that the states themselves show."""
        if downs is None or link.downs is None:
            return 0
        shown = int(was_up and not _carrier(link))
        return max(0, link.downs - downs - shown)

    def _counted(self, link: Link, missed: int) -> list[str]:
        """Lines for losses that were counted but not announced; the current state comes last."""
        now = self.context.now()
        since = wire.stamp(self._looked) if self._looked else "the start"
        note = f"counted, not announced: {missed} carrier losses between {since} and {wire.stamp(now)}"
        down = Link(**{**vars(link), "flags": link.flags & ~(IFF_RUNNING | 0x10000), "operstate": "DOWN"})
        rows = [self._line(down, note=note)]
        if _carrier(link):
            rows.append(self._line(link, note=note))
        return rows

    def _line(self, link: Link, deleted: str = "", note: str = "") -> str:
        """The first line that ``ip -ts monitor link`` prints, in UTC."""
        stamp = wire.stamp(self.context.now()).rstrip("Z")
        below = f"@if{link.below}" if link.below and link.below != link.index else ""
        master = ""
        if link.master:
            names = {known.index: known.name for known in self._known.values()}
            master = f"master {names.get(link.master, f'if{link.master}')} "
        qdisc = f"qdisc {link.qdisc} " if link.qdisc else ""
        counts = f" carrier_up_count {link.ups} carrier_down_count {link.downs}" if link.ups is not None else ""
        return (
            f"[{stamp}] {deleted}{link.index}: {link.name}{below}: <{link.flag_names()}> mtu {link.mtu} {qdisc}{master}"
            f"state {link.operstate} group {link.group or 'default'}{counts}{' # ' + note if note else ''}"
        )

    def _forget(self, found: list[Link]) -> None:
        names = {link.name for link in found}
        for name in [name for name in self._known if name not in names]:
            self._kept[name] = _counts(self._known.pop(name))  # if it comes back, counting continues from here

    def _counters(self, found: list[Link], monotonic: float, now: float) -> list[bytes]:
        everything = monotonic - self._sent_at >= _EVERYTHING_S
        if everything:
            self._sent_at = monotonic
        errors = monotonic - self._errors_at >= _ERRORS_S
        if errors:
            self._errors_at = monotonic
        rows = []
        for link in found:
            values = ((link.changes, link.ups, link.downs, link.operstate), link.stats)
            carrier, stats = self._sent.get(link.name, (None, None))
            if everything or carrier != values[0] or (errors and stats != values[1]):
                rows.append(_as_iproute2(link))
                self._sent[link.name] = values
        return [wire.document("link_counters", json.dumps(rows), "links", now)] if rows else []

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self.handle = None
        self._known.clear()


def _carrier(link: Link) -> bool:
    return bool(link.flags & IFF_RUNNING)


def _counts(link: Link) -> list[Any]:
    return [link.index, link.ups, link.downs, _carrier(link)]


def _as_iproute2(link: Link) -> dict[str, Any]:
    stats = dict(link.stats)
    return {
        "ifname": link.name, "ifindex": link.index, "operstate": link.operstate, "carrier_changes": link.changes,
        "carrier_up_count": link.ups, "carrier_down_count": link.downs,
        "stats64": {
            "rx": {"errors": stats.get("rx_errors"), "dropped": stats.get("rx_dropped")},
            "tx": {"errors": stats.get("tx_errors"), "dropped": stats.get("tx_dropped"),
                   "carrier_errors": stats.get("tx_carrier_errors")},
        },
    }  # fmt: skip


def _make(context: Context, options: Mapping[str, Any]) -> Links:
    return Links(context, options["exclude"], options["poll_s"])


SOURCE = SourceKind(
    "links", _make, {"exclude": _EXCLUDED, "poll_s": 5.0},
    reads="rtnetlink link events, carrier_up_count and carrier_down_count, errors and drops of every interface",
    costs="nothing while no link changes; one dump of all links every 5 s (0.2 ms for ten)",
    blind_to="the exact time of a loss shorter than a second that was only counted; links in other network namespaces",
    slow=False,
)  # fmt: skip
