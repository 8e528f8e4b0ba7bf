"""``GET /api/v1/gate/HOST``: what a node's agent is answered about its own node, and whether prologs there may refuse jobs.

The answer is that of ``GET /api/v1/nodes/HOST/fitness``, with ``drain`` beside it. Agents ask with their own token, which
must be bound to their host, and no page's user needs one of them.

A refused prolog makes Slurm drain the node, so a fault of ours that calls every node unfit would empty the cluster. The
right to refuse is therefore granted to a few nodes an hour (``[gate]``), whatever their number, and only for a reason
that Slurm does not know of yet.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse

from collector.intake import CERTIFICATE, NAMES, Intake
from collector.receivers.refusals import Refused
from faultline.config import Gate as Settings
from web.fitness import Memory, fitness_of
from web.methods import as_get
from web.problems import ProblemError
from web.reading import Reader

log = structlog.get_logger()

_PATH = re.compile(r"/api/v1/gate/([^/]{1,255})")
HOUR_S = 3600.0
#: How long an agent may use a grant, seconds; it asks again every two minutes.
GRANT_S = 600.0
#: An answer older than this grants nothing.
FRESH_S = 300.0
#: The file of grants, in the data folder: a restart gives no second set.
GRANTS_FILE = "gate-grants.json"


class Grants:
    """Which nodes were allowed to refuse jobs, and when (epoch seconds). Safe to use from several threads."""

    def __init__(self, settings: Settings, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._settings, self._file, self._clock = settings, file, clock
        self._lock = threading.Lock()
        self._given: dict[tuple[str, str], float] = {}
        self._withheld: set[tuple[str, str]] = set()
        #: What cannot be read grants nothing for an hour: as many as allowed may just have been given.
        self._blind_until = 0.0
        try:
            for cluster, node, at in json.loads(file.read_text(encoding="utf-8")):
                self._given[str(cluster), str(node)] = float(at)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:
            self._blind_until = clock() + HOUR_S
            log.warning(
                "grants of the gate cannot be read; nothing is granted for an hour", file=str(file), error=str(error)
            )

    def ask(self, node: str, cluster: str | None, nodes: int) -> tuple[bool, str]:
        """Whether an unfit node of a cluster of ``nodes`` may refuse jobs, and why not."""
        place, now = (cluster or "", node), self._clock()
        with self._lock:
            self._given = {one: at for one, at in self._given.items() if now - at < HOUR_S}
            if now < self._blind_until:
                return False, f"{self._file} cannot be read: nothing is granted for an hour"
            if place in self._given:
                return True, ""
            most = min(self._settings.nodes_per_hour, max(1, int(self._settings.share_per_hour * nodes)))
            given = sum(one[0] == place[0] for one in self._given)
            if given >= most:
                why = f"{given} nodes were refused within the hour, and [gate] allows {most}"
                if place not in self._withheld:
                    log.warning("the gate may refuse no more jobs", node=node, reason=why)
                self._withheld.add(place)
                return False, why
            self._given[place] = now
            try:
                self._save()
            except OSError as error:
                del self._given[place]
                return False, f"{self._file} cannot be written: {error.strerror or error}"
            self._withheld.discard(place)
        log.info("the gate may refuse jobs", node=node)
        return True, ""

    def _save(self) -> None:
        draft = self._file.with_name(f".{self._file.name}.draft")
        draft.write_text(json.dumps([[*place, at] for place, at in self._given.items()]), encoding="utf-8")
        draft.replace(self._file)

    def counts(self) -> tuple[int, int]:
        """Nodes that were granted a refusal within the hour, and those that were not since then."""
        now = self._clock()
        with self._lock:
            given = {one for one, at in self._given.items() if now - at < HOUR_S}
            return len(given), len(self._withheld - given)


class NodeGate(Collector):
    """Answers agents."""

    def __init__(self, read: Reader, memory: Memory, grants: Grants) -> None:
        self._read, self._memory, self.grants = read, memory, grants

    def answer(
        self, host: str, cluster: str | None, *, drain: bool, unfit: bool, clusters: Collection[str] = ()
    ) -> dict[str, Any]:
        """The answer about a host. ``drain``: its agent asks for the right to refuse jobs; ``unfit``: it sees a fault
        itself; ``clusters``: those that it stands for, any if there are none. Raises ``ProblemError`` for an unknown
        node, and for one of another cluster."""
        row = self._row(host, cluster)
        if row["cluster"] and any(
            ours and row["cluster"] not in ours for ours in ((cluster,) if cluster else (), clusters)
        ):
            raise ProblemError(
                404, f"No line and no Slurm record names a node {host} of this cluster.", do="See the list of nodes."
            )
        found = fitness_of(self._memory, row)
        granted, why = self._granted(row, found["age_s"], unfit) if drain else (False, "the agent does not ask for it")
        return found | {"drain": {"granted": granted, "until_s": GRANT_S if granted else 0.0, "why": why}}

    def _row(self, host: str, cluster: str | None) -> dict[str, Any]:
        if cluster:
            with suppress(ProblemError):
                return self._read.node(f"{host}@{cluster}")
        return self._read.node(host)

    def _granted(self, row: dict[str, Any], age_s: float, unfit: bool) -> tuple[bool, str]:
        answers, _ = self._memory.latest()
        one = answers.nodes.get(row["name"])
        if one is None or not (one.should_drain or unfit):
            return False, "it is not unfit for a reason that Slurm does not know of"
        if age_s > FRESH_S:
            return False, f"the answer is {age_s:.0f} s old"
        nodes = sum(other.runs_jobs and other.cluster == one.cluster for other in answers.nodes.values())
        return self.grants.ask(one.node, one.cluster, nodes)

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics of the gate."""
        given, withheld = self.grants.counts()
        yield GaugeMetricFamily("faultline_gate_granted", "Nodes that may refuse jobs, granted within the hour.", given)
        yield GaugeMetricFamily(
            "faultline_gate_withheld", "Unfit nodes beyond the number that may refuse jobs.", withheld
        )


def is_gates(path: str) -> bool:
    """Whether a path is the gate's."""
    return _PATH.fullmatch(path) is not None


async def respond(scope: MutableMapping[str, Any], receive: Any, send: Any, intake: Intake, gate: NodeGate) -> None:
    """Answers a request for which ``is_gates`` is true."""
    path, method = scope["path"], scope["method"]
    scope, send = as_get(scope, send)
    try:
        if method not in ("GET", "HEAD"):
            raise ProblemError(405, f"{method} is no method of {path}.", do="Use GET.", headers={"Allow": "GET, HEAD"})
        found = _PATH.fullmatch(path)
        assert found is not None
        query = {
            name: values[-1] for name, values in parse_qs(scope.get("query_string", b"").decode("latin-1")).items()
        }
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host, cluster = found[1], query.get("cluster")
        certified, names = bool(scope.get(CERTIFICATE)), scope.get(NAMES, ())
        sender = intake.sender_about(headers, host, cluster, certified=certified, names=names)
        document = await asyncio.to_thread(
            gate.answer, host, cluster, drain=query.get("drain") == "yes", unfit=query.get("unfit") == "yes",
            clusters=sender.limits.clusters if sender is not None else (),
        )  # fmt: skip
        answer: Any = JSONResponse(document, headers={"Cache-Control": "no-store"})
    except Refused as refusal:
        answer = ProblemError(refusal.status, refusal.text, do=refusal.do).response(path)
    except ProblemError as problem:
        answer = problem.response(path)
    await answer(scope, receive, send)
