"""Reads the situation of every node from a store, and answers for all of them at once.

One pass over the store costs about as much as the repair list, however many nodes are asked about: a service keeps the
answers for a while (``web.fitness``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from correlator.facts.registry import families, grave
from correlator.fitness.model import Answers, NodeFitness
from correlator.fitness.rules import PROVEN, GraveLine, NodeIncident, Situation, judged
from correlator.incidents import lemons
from correlator.repairs.repairs import repairs
from parsers.moments import later
from parsers.writers import NO_USERS
from store.door import Answers as Rows
from store.errors import NoSuchTable
from store.questions import conclusions, nodes, repair_list
from store.questions import fitness as questions

#: What happened before is not read: two rounds through the hall.
DAYS = 14.0
#: No cluster has more hosts.
_MOST_HOSTS = 1_000_000

Row = Mapping[str, Any]


def answers(store: Rows, now: datetime) -> Answers:
    """The answers about all nodes. ``now``: naive UTC."""
    known = _Situations(store, now)
    return Answers(now, {one.node: judged(one, now) for one in known.all})


def answer(store: Rows, name: str, now: datetime) -> NodeFitness | None:
    """The answer about the node with this name in the whole store; None if nobody named one."""
    return answers(store, now).nodes.get(name)


class _Situations:
    """One situation per node. Rows without a cluster are about every node of that host."""

    def __init__(self, store: Rows, now: datetime) -> None:
        # Of a store that took nothing for months, what was last known still holds.
        last = store.ask(repair_list.last_event())[0]["dated"] or now
        self._store, self._since = store, later(min(last, now), -timedelta(days=DAYS))
        self._of: defaultdict[str, list[Situation]] = defaultdict(list)
        self.all: list[Situation] = []
        for row in store.ask(nodes.listed_nodes(limit=_MOST_HOSTS)):
            one = Situation(row["name"], row["host"], row["cluster"], row["state"], row["reason"], row["since"])
            self.all.append(one)
            self._of[one.host].append(one)
        self._read_slurm()
        self._read_last_seen()
        self._read_lines(self._read_incidents())
        self._read_repairs()

    def _at(self, row: Row) -> Iterator[Situation]:
        """The nodes that a row is about."""
        cluster = row.get("cluster")
        for one in self._of.get(row["host"], ()):
            if cluster is None or one.cluster is None or one.cluster == cluster:
                yield one

    def _read_slurm(self) -> None:
        for row in self._store.ask(questions.nodes_of_runs()):
            for one in self._at(row):
                one.had_jobs = True
        for row in self._store.ask(questions.ends_of_drains(self._since)):
            for one in self._at(row):
                one.undrained = _newest(one.undrained, row["time"])

    def _read_last_seen(self) -> None:
        """When each node last sent anything. What an ingest stored has no intake: then by its events."""
        for row in self._store.ask(questions.boots(self._since)):
            for one in self._at(row):
                one.booted = _newest(one.booted, row["time"])
        try:
            agents, lines = (self._store.ask(q()) for q in (questions.last_of_agents, questions.last_lines))
        except NoSuchTable:
            agents, lines = [], []
        for row in agents:
            for one in self._at(row):
                one.has_agent, one.last_seen = True, _newest(one.last_seen, row["time"])
        for row in [*lines, *self._store.ask(questions.last_events())]:
            for one in self._at(row):
                if not one.has_agent:
                    one.last_seen = _newest(one.last_seen, row["time"])

    def _read_incidents(self) -> set[str]:
        """Returns the incidents that prove their lines."""
        proven: set[str] = set()
        of_nodes = families()
        for row in self._store.ask(questions.incidents_of_nodes(self._since)):
            if (row["confidence"] or 0.0) >= PROVEN:
                proven.add(row["incident_id"])
            lasting = dict(_lasting(row))
            rooted = row["root_host"] if row["root_event"] in of_nodes else None
            for host in {*lasting, *([rooted] if rooted else [])}:
                for one in self._at({"host": host, "cluster": row["cluster"]}):
                    one.incidents.append(NodeIncident(
                        row["incident_id"], row["title"] or row["root_event"], row["start"], row["end"] or row["start"], host == rooted,
                        row["status"] == "provisional" or row["end"] is None, lasting.get(host, ""),
                    ))  # fmt: skip
        return proven

    def _read_lines(self, proven: set[str]) -> None:
        failed = self._store.ask(questions.failed_validations(self._since))
        passed = self._passed(failed)
        for rows, kept in (
            (self._store.ask(questions.grave_lines(grave(), self._since)), "lines"),
            (failed, "validations"),
        ):
            for row in rows:
                believed = row["authority"] in NO_USERS or row["incident_id"] in proven
                code = str(row["xid"] or "")
                check = row.get("check")
                line = GraveLine(
                    row["event"], row["message"] or "", row["since"], row["time"], row["device"], int(code) if code.isdecimal() else None,
                    row["authority"], row["source"], believed, check, passed.get((row["host"], row["source"], check)) if check else None,
                )  # fmt: skip
                for one in self._at(row):
                    getattr(one, kept).append(line)

    def _passed(self, failed: Sequence[Row]) -> dict[tuple[str, str, str], datetime]:
        """When validators last reported that checks which had failed pass: by host, validator and check."""
        checks = {(row["host"], row["source"], row["check"]) for row in failed if row["check"]}
        if not checks:
            return {}
        found: dict[tuple[str, str, str], datetime] = {}
        reports = questions.later_reports(sorted({host for host, _, _ in checks}), min(row["time"] for row in failed))
        for row in self._store.ask(reports):
            report = next((m for pattern in _PASSED if (m := pattern.search(row["message"] or ""))), None)
            if report and (key := (row["host"], row["source"], report["check"].lower())) in checks:
                found[key] = row["time"]
        return found

    def _read_repairs(self) -> None:
        for repair in repairs(self._store).repairs:
            for one in self._at({"host": repair.host, "cluster": repair.cluster}):
                one.repairs.append(repair)
        fact = self._store.ask(conclusions.fact(lemons.FACT))
        for cluster, host in lemons.read(fact[0]["value"] if fact else None):
            for one in self._at({"host": host, "cluster": cluster}):
                one.lemon = True


def _lasting(row: Row) -> Iterable[tuple[str, str]]:
    """Host and text of the bands of an incident that had not ended when it was concluded (``incidents.rows.spans``)."""
    for host, kind, text in zip(row["band_host"] or (), row["band_kind"] or (), row["band_text"] or (), strict=False):
        if host and kind not in _NO_FAULTS and text and text.endswith(STILL_SO):
            yield host, f"{text.removesuffix(STILL_SO)} in incident {row['incident_id']}, and no sign that it ended"


#: healthagent's reports: of a check that passes, and of a service that runs again (Azure CycleCloud healthagent, reporter.py and
#: async_systemd.py).
_PASSED = (
    re.compile(
        r"Updated health report for (?P<check>[\w. -]+?): \{.*?[\x22\x27]status[\x22\x27]: [\x22\x27](?:OK|Ok)[\x22\x27]"
    ),
    re.compile(r"(?:^|- )(?P<check>[\w@.-]+\.service) Service Recovered$"),
)

#: Bands of lines that came late, and of Slurm's states, which are known better.
_NO_FAULTS = frozenset({"late", "down"})
#: How the text of a band ends whose end is not known (``correlator.incidents.rows``).
STILL_SO = ", still so when the data ends"


def _newest(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)
