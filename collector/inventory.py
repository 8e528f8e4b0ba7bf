"""Which sources send, since when, how late, and which fell silent. Derived from the ledger; nothing is configured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from collector.ledger import Ledger, Node, Source
from parsers.node_states import node_state
from parsers.record import JOB_OUTPUT
from store.door import Asks
from store.questions import intake

#: A node is up if anything of it arrived within this. Its agent reports every minute what it reads.
UP_WITHIN = timedelta(minutes=5)
#: A file or stream is silent after this many of its average gaps, and after this many of its longest one, but never before
#: ``SILENT_AT_LEAST``: logs come in bursts.
SILENT_GAPS, SILENT_LONGEST = 10.0, 3.0
SILENT_AT_LEAST, SILENT_AT_MOST = timedelta(minutes=15), timedelta(days=3)
#: A source with fewer lines, or known for a shorter time, has no established rhythm yet.
HABIT_LINES, HABIT_SPAN = 20, timedelta(hours=6)
#: Sources are forgotten after this: an old job's output is not a source that fell silent.
FORGOTTEN = timedelta(days=7)
#: Sources that write only when something happens: a machine in order is quiet for days.
_EVENTFUL = ("kernel", *JOB_OUTPUT)
#: What reads a stream of an agent that is no file: the beginning of the stream's name, and the agent's source.
_READERS = {"kmsg": "kmsg", "journal": "journald"}
#: The stream that stands for an agent itself.
AGENT = "agent"


@dataclass(frozen=True)
class Alert:
    """A file or stream that is silent although its node is up; ``source`` writes most of it. An agent that fell silent has
    ``AGENT`` as source and no file."""

    host: str
    source: str
    file: str
    since: datetime
    text: str


@dataclass(frozen=True)
class Gone:
    """An agent that reports no more, and whose node is not up either: shut down, deleted, or cut off. ``batches`` and ``bytes`` waited
    on its disk when it last reported (``since``): they are lost with it if it does not come back."""

    host: str
    since: datetime
    state: str | None
    batches: int
    bytes: int
    dropped_lines: int
    text: str


class Inventory:
    """Answers queries of the sources page. Times are naive UTC; ``since``: from when on the service has listened, so that
    its own absence is nobody's silence."""

    def __init__(self, store: Asks, ledger: Ledger, since: datetime = datetime.min) -> None:
        self.store, self.ledger, self.since = store, ledger, since

    def alerts(self, now: datetime) -> list[Alert]:
        """What fell silent while its node is up, one entry for a file or stream: agents, and what no agent reads.

        A file that an agent reads, by its own report, is quiet and not silent. If the agent itself fell silent, that is the
        one entry for all that it read. Anything else is judged by its own rhythm; what writes only when something happens
        has none.
        """
        slurm_up = self._slurm_up(now)
        agents = {node.host: node for node in self.ledger.nodes.values() if node.status is not None and node.status_at}
        found = [alert for node in agents.values() if (alert := self._of_agent(node, now, slurm_up))]
        silent_agents = {alert.host for alert in found}
        newest = self._newest()
        for (host, file), members in self._streams().items():
            last = max(members, key=lambda source: source.last_seen)
            silent = now - max(last.last_seen, self.since)
            if silent <= SILENT_AT_LEAST or silent > FORGOTTEN or (host in silent_agents and last.transport == AGENT):
                continue
            rhythmic = [source for source in members if _has_rhythm(source)]
            if (
                not rhythmic
                or silent <= min(map(patience, rhythmic))
                or self._is_read(agents.get(host), file, last, now)
            ):
                continue
            is_up = now - newest[host] <= UP_WITHIN
            if is_up or host in slurm_up:
                why = "other sources of the node speak" if is_up else f"Slurm says the node is {slurm_up[host]}"
                most = max(rhythmic, key=lambda source: source.lines)
                text = f"{most.source or 'lines'} of {host} silent for {words(now - last.last_seen)}; {why}"
                found.append(Alert(host, most.source, file, last.last_seen, text))
        return sorted(found, key=lambda alert: (alert.since, alert.host, alert.file))

    def _of_agent(self, node: Node, now: datetime, slurm_up: Mapping[str, str]) -> Alert | None:
        """An agent that reports no more, although its node is up: nothing of the node is read, whatever happens there."""
        assert node.status_at is not None
        silent, is_up = now - max(node.status_at, self.since), now - node.last_seen <= UP_WITHIN
        if not SILENT_AT_LEAST < silent <= FORGOTTEN or not (is_up or node.host in slurm_up):
            return None
        why = "other sources of the node speak" if is_up else f"Slurm says the node is {slurm_up[node.host]}"
        text = f"{AGENT} of {node.host} silent for {words(now - node.status_at)}; {why}"
        return Alert(node.host, AGENT, "", node.status_at, text)

    def gone(self, now: datetime) -> list[Gone]:
        """Agents that went away with their nodes, those with something unshipped first."""
        states, newest = self._states(now), self._newest()
        found = [
            _gone(node, now, states.get(node.host)) for node in self.ledger.nodes.values()
            if node.status is not None and node.status_at is not None
            and SILENT_AT_LEAST < now - max(node.status_at, self.since) <= FORGOTTEN and now - newest[node.host] > UP_WITHIN
            and not _is_up(states.get(node.host))
        ]  # fmt: skip
        return sorted(found, key=lambda one: (not one.batches, one.since, one.host))

    def _streams(self) -> dict[tuple[str, str], list[Source]]:
        """The sources of each host's files and streams: a line of one shows that the others of the same file are read."""
        found: dict[tuple[str, str], list[Source]] = {}
        for source in self.ledger.sources.values():
            if source.host:
                found.setdefault((source.host, source.file), []).append(source)
        return found

    def _newest(self) -> dict[str, datetime]:
        """When anything of each host last arrived."""
        newest: dict[str, datetime] = {}
        seen = [(source.host, source.last_seen) for source in self.ledger.sources.values() if source.host]
        for host, last in seen + [(node.host, node.last_seen) for node in self.ledger.nodes.values()]:
            newest[host] = max(newest.get(host, last), last)
        return newest

    @staticmethod
    def _is_read(agent: Node | None, file: str, source: Source, now: datetime) -> bool:
        """Whether the node's agent reports that it reads a file or stream: then there is nothing to read."""
        if agent is None or source.transport != AGENT or agent.status_at is None or now - agent.status_at > UP_WITHIN:
            return False
        stream = file.partition(":")[2]
        reader = next((kind for name, kind in _READERS.items() if stream.startswith(name)), None)
        reader = reader or ("files" if stream.startswith("/") else stream)
        states = {one.get("name"): one.get("state") for one in json.loads(agent.status or "{}").get("sources") or ()}
        return states.get(reader) == "ok"

    def _slurm_up(self, now: datetime) -> dict[str, str]:
        """Nodes that Slurm considered usable within the last hour."""
        return {host: state for host, state in self._states(now).items() if _is_up(state)}

    def _states(self, now: datetime) -> dict[str, str]:
        """The state that Slurm reported of each node within the last hour."""
        rows = self.store.ask(intake.states_lately(now - timedelta(hours=1)))
        return {r["host"]: r["state"] for r in rows if r["state"]}


def _is_up(state: str | None) -> bool:
    return state is not None and node_state(state).is_up


def _gone(node: Node, now: datetime, state: str | None) -> Gone:
    assert node.status_at is not None
    spool = json.loads(node.status or "{}").get("spool") or {}
    batches, size, dropped = (_count(spool.get(name)) for name in ("batches", "bytes", "dropped_lines"))
    what = f"up to {size:,} bytes in {batches:,} batches unshipped" if batches else "nothing unshipped"
    lost = f", {dropped:,} lines dropped for want of room" if dropped else ""
    slurm = f" (Slurm: {state})" if state else ""
    text = f"{node.host} gone for {words(now - node.status_at)}{slurm}: {what}{lost} when its agent last reported"
    return Gone(node.host, node.status_at, state, batches, size if batches else 0, dropped, text)


def _count(value: object) -> int:
    """A number of a report; reports are the agent's own words."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def blind(store: Asks, limit: int = 200) -> list[dict[str, Any]]:
    """The newest blind periods."""
    return store.ask(intake.blind(limit))


def quarantine(store: Asks, limit: int = 200) -> list[dict[str, Any]]:
    """Batches set aside and not replayed, newest first."""
    return store.ask(intake.quarantine(limit))


def _has_rhythm(source: Source) -> bool:
    if source.source in _EVENTFUL or source.lines < HABIT_LINES:
        return False
    return source.last_seen - source.first_seen >= HABIT_SPAN


def patience(source: Source) -> timedelta:
    """How long a source may be silent, by its own rhythm."""
    expected = max((source.gap_s or 0.0) * SILENT_GAPS, (source.longest_s or 0.0) * SILENT_LONGEST)
    return max(SILENT_AT_LEAST, min(timedelta(seconds=expected), SILENT_AT_MOST))


def by_host(alerts: Sequence[Alert]) -> list[tuple[str, str]]:
    """For notifications: each host with a silent source, and the text about it."""
    found: dict[str, list[Alert]] = {}
    for alert in alerts:
        found.setdefault(alert.host, []).append(alert)
    return [
        (host, some[0].text + (f" (and {len(some) - 1} more of its files)" if len(some) > 1 else ""))
        for host, some in found.items()
    ]


def words(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
