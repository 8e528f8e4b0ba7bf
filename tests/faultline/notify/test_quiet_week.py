"""A week of a quiet cluster of 50 nodes with five faults: what an operator is mailed. Its clock is that of its events."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from collector.inventory import Inventory, by_host
from collector.ledger import LONGEST_LIFE_S, Node, Source
from faultline.notify.dispatch import Dispatcher, Target
from faultline.notify.message import Message
from store import open_store
from store.duckdb.store import DuckStore

MONDAY = datetime(2026, 11, 16)
HOSTS = [f"gpu{number:02d}" for number in range(50)]
#: The last ten send syslog over TCP and have no agent.
AGENTS = HOSTS[:40]
#: Mean seconds between two arrivals, by day of the week and at other times. A kernel in order writes every few days.
STREAMS = {"syslog": (400, 900), "slurmd": (1200, 40_000), "kernel": (300_000, 300_000)}
STATUS = json.dumps({"sources": [{"name": name, "state": "ok"} for name in ("files", "kmsg", "journald")]})


@dataclass
class Week:
    """The cluster, what the service knows of its streams, and the operator's mails."""

    store: DuckStore
    random: random.Random = field(default_factory=lambda: random.Random(27))
    now: datetime = MONDAY
    mails: list[Message] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sources: dict[tuple[str, str, str], Source] = {}
        self.nodes = {host: Node(host, None, MONDAY, MONDAY) for host in HOSTS}
        ledger: Any = SimpleNamespace(sources=self.sources, nodes=self.nodes)
        slurm: Any = SimpleNamespace(ask=lambda _: [{"host": host, "state": "idle"} for host in HOSTS])
        self.inventory = Inventory(slurm, ledger, MONDAY)
        target = Target("operator", self.mails.append, forgeries=False)
        self.dispatcher = Dispatcher(
            self.store, [target], "http://x", lambda: by_host(self.inventory.alerts(self.now)), lambda: self.now,
            lambda: (self.now - MONDAY).total_seconds(),
        )  # fmt: skip
        self.next = {(host, name): MONDAY for host in HOSTS for name in STREAMS}
        self.next |= {(host, "boot"): MONDAY for host in HOSTS}

    def arrive(self, host: str, name: str, lines: int = 1) -> None:
        """What ``collector.ledger`` keeps of an arrival, line by line."""
        if host in self.dead:
            return
        by_agent = host in AGENTS
        file = f"{host}:{'kmsg' if name == 'kernel' else f'/var/log/{name}'}" if by_agent else f"tcp:{host}"
        key = (host, name, file)
        made = self.sources.setdefault(
            key, Source(host, name, file, "agent" if by_agent else "tcp", self.now, self.now)
        )
        gap = (self.now - made.last_seen).total_seconds()
        made.gap_s = gap if made.gap_s is None else made.gap_s + (gap - made.gap_s) * 0.1
        made.longest_s = max(gap, (made.longest_s or 0.0) * math.exp(-gap / LONGEST_LIFE_S))
        made.last_seen, made.lines = self.now, made.lines + lines
        self.nodes[host].last_seen = self.now

    def until(self, end: datetime, step: timedelta) -> None:
        while self.now < end:
            self.now += step
            is_day = self.now.weekday() < 5 and 8 <= self.now.hour < 20
            for (host, name), due in self.next.items():
                if due > self.now:
                    continue
                if name == "boot":
                    self.arrive(host, "kernel", 900)
                    self.next[host, name] = datetime.max
                    continue
                self.arrive(host, name)
                mean = STREAMS[name][0 if is_day else 1]
                self.next[host, name] = self.now + timedelta(seconds=self.random.expovariate(1 / mean))
            for host in AGENTS:
                if host not in self.dead:
                    self.nodes[host].status, self.nodes[host].status_at = STATUS, self.now
                    self.nodes[host].last_seen = self.now
            is_time = step < timedelta(minutes=10) or (self.now.minute == 0 and self.now.hour % 3 == 0)
            if is_time or self.inventory.alerts(self.now):
                self.dispatcher.round()

    def closely(self, minutes: int) -> None:
        self.until(self.now + timedelta(minutes=minutes), timedelta(minutes=1))

    # -- what the correlator concludes -------------------------------------------------------------------------------

    def conclude(
        self, name: str, host: str, jobs: int = 1, event: str = "link.down", start: datetime | None = None
    ) -> None:
        begun = start or self.now
        document = {
            "title": f"{event} on {host}", "confidence": 0.9, "category": "infra.network", "severity": "impact",
            "root_cause": {"event": event, "host": host, "device": None}, "jobs": [{"job_id": n, "restart": 0} for n in range(jobs)],
        }  # fmt: skip
        self.retract(name)
        with self.store.transaction() as connection:
            connection.execute(
                'INSERT INTO model.incidents (incident_id, start, "end", severity, document) VALUES (?, ?, ?, ?, ?)',
                [name, begun, begun + timedelta(minutes=2), "impact", json.dumps(document)],
            )

    def retract(self, name: str, heir: str | None = None) -> None:
        with self.store.transaction() as connection:
            connection.execute("DELETE FROM model.incidents WHERE incident_id = ?", [name])
            if heir:
                connection.execute("INSERT INTO kept.aliases VALUES (NULL, ?, ?, ?)", [name, heir, self.now])


def grows(week: Week) -> None:
    for jobs in (1, 2, 2, 3, 9):
        week.conclude("I-grows", "gpu03", jobs, start=week.now if jobs == 1 else week.now - timedelta(minutes=5))
        week.closely(3)


def comes_and_goes(week: Week) -> None:
    start = week.now
    for minutes in (2, 1, 5, 12, 4, 2):
        week.conclude("I-flaps", "gpu11", start=start)
        week.closely(minutes)
        week.retract("I-flaps")
        week.closely(minutes)
    week.conclude("I-flaps", "gpu11", start=start)
    week.closely(20)


def gets_another_name(week: Week) -> None:
    start = week.now
    week.conclude("I-first", "gpu12", event="node.down")
    week.closely(2)
    week.retract("I-first", "I-second")
    week.conclude("I-second", "leaf1", event="switch.down", start=start)
    week.closely(10)


def is_concluded_anew(week: Week) -> None:
    start = week.now
    week.conclude("I-before", "gpu20", event="node.down")
    week.closely(2)
    week.retract("I-before")
    week.conclude("I-after", "gpu20", event="gpu.xid", start=start - timedelta(minutes=3))
    week.closely(10)


def agent_dies(week: Week) -> None:
    week.dead.add("gpu33")
    week.closely(40)
    week.until(week.now + timedelta(hours=3), timedelta(minutes=10))
    week.dead.clear()
    week.closely(15)


FAULTS: dict[int, Callable[[Week], None]] = {
    30: grows, 51: comes_and_goes, 80: gets_another_name, 101: is_concluded_anew, 130: agent_dies,
}  # fmt: skip


@pytest.fixture(scope="module")
def week() -> Iterator[Week]:
    with open_store(None) as store:
        week = Week(store)
        for hour, fault in FAULTS.items():
            week.until(MONDAY + timedelta(hours=hour), timedelta(minutes=10))
            fault(week)
        week.until(MONDAY + timedelta(days=7), timedelta(minutes=10))
        yield week


def test_five_faults_are_five_threads_and_quiet_logs_are_none(week: Week) -> None:
    assert sorted({message.thread.split(" 2026")[0] for message in week.mails}) == [
        "I-before", "I-first", "I-flaps", "I-grows", "source gpu33"
    ]  # fmt: skip
    begun = [message for message in week.mails if message.number == 0]
    assert [message.state for message in begun] == ["opened"] * 4 + ["silent"]
    print(f"{len(week.mails)} mails in {len(begun)} threads:", *(m.subject for m in week.mails), sep="\n")


def test_a_fault_that_comes_and_goes_is_a_few_mails(week: Week) -> None:
    flaps = [message.state for message in week.mails if message.thread == "I-flaps"]
    assert flaps == ["opened", "withdrawn", "again"]
    assert len(week.mails) <= 3 * len(FAULTS)


def test_logs_were_quiet_for_days_and_nights(week: Week) -> None:
    kernels = [one for one in week.sources.values() if one.source == "kernel"]
    assert max(one.longest_s or 0.0 for one in kernels) > 2 * 86400
    assert max(one.longest_s or 0.0 for one in week.sources.values() if one.source == "slurmd") > 8 * 3600
