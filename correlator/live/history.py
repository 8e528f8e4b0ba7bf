"""What the running service published, and when: first detections, versions of verdicts, former ids of incidents.

An incident's id is made from its root, so that a replay finds the same ids. Late lines may show an earlier or a common
root. The id changes then, and the former one stays as an alias, so that a link in a ticket keeps working.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from correlator.detections import detections
from correlator.facts.registry import cause_of
from correlator.incidents.documents import undated
from correlator.incidents.incident import Incident
from correlator.live.changes import everything
from correlator.live.frozen import thawed
from correlator.model.json_text import digest, has_digest, sorted_json
from store.errors import NoSuchTable
from store.questions import kept
from store.tables import ALIASES, DETECTIONS, VERSIONS

if TYPE_CHECKING:
    from correlator.live.state import LiveConclusions
    from store.door import Asks, Writer


@dataclass
class HistoryUpdate:
    """What one tick adds to the history: rows of ``kept`` and the lists of a ``TickReport``."""

    report: dict[str, Any]
    versions: list[dict[str, Any]] = field(default_factory=list)
    detected: dict[str, datetime] = field(default_factory=dict)
    clusters: dict[str, str | None] = field(default_factory=dict)
    #: id() of a document -> its JSON text, so that storing it need not serialise it again.
    texts: dict[int, str] = field(default_factory=dict)


class History:
    """What was published so far, held in memory by the service: a tick does not query the store for it.

    ``note`` computes what is new, ``write`` stores it inside a transaction, and ``remember`` counts it as published
    once that is committed.
    """

    def __init__(self, store: Asks) -> None:
        self._verdicts: dict[tuple[str | None, str], tuple[int, str | None]] = {
            (r["cluster"], r["name"]): (r["version"], r["digest"]) for r in store.ask(kept.last_versions("verdict"))
        }
        self._incidents = {(r["cluster"], r["name"]): r for r in store.ask(kept.last_versions("incident"))}
        self.detected = detections(store)
        self._aliases = {r["alias"] for r in store.ask(kept.aliases())}

    def note(self, found: Sequence[LiveConclusions], now: datetime, before: Mapping[str | None, LiveConclusions], offline: Collection[str] = ()) -> HistoryUpdate:  # fmt: skip
        """Computes what is new against what was published before.

        Documents of ``before``, the last conclusions, that are still the same objects are not compared. ``offline`` are
        incidents that an offline ``ingest`` concluded, which does not count as a detection by a running service.
        """
        update = HistoryUpdate(
            {"provisional": [], "final": [], "opened": [], "changed": [], "closed": [], "aliases": {}}
        )
        for conclusions in found:
            last = before.get(conclusions.cluster)
            touched = conclusions.change.touched or everything(conclusions)
            result = conclusions.result
            for name in sorted(n for n in touched.verdicts if n in result.verdicts):
                verdict = result.verdicts[name]
                version, digest = self._verdicts.get((conclusions.cluster, name), (0, None))
                update.texts[id(verdict)] = text = sorted_json(verdict)
                row = _row(conclusions.cluster, "verdict", name, verdict, text, version, digest, now)
                if row:
                    update.versions.append(row)
                    update.report["final" if verdict["final"] else "provisional"].append(name)
            for place in sorted(touched.incidents):
                self._note_incident(update, conclusions.cluster, result.incidents[place], now)
            self._note_gone(update, conclusions, last, now)
        update.detected = {i: now for i in update.report["opened"] if i not in offline}
        for alias, heir in update.report["aliases"].items():
            # An incident that continues under another id was detected when it was first published, even if an earlier
            # tick opened its heir beside it.
            first = self.detected.get(alias)
            if first is not None and first < update.detected.get(heir, self.detected.get(heir, now)):
                update.detected[heir] = first
                for conclusions in found:
                    _report_again(conclusions, heir)
        return update

    def _note_incident(
        self, update: HistoryUpdate, cluster: str | None, incident: Mapping[str, Any], now: datetime
    ) -> None:
        last = self._incidents.get((cluster, incident["id"]))
        version, digest = (last["version"], last["digest"]) if last else (0, None)
        update.texts[id(incident)] = text = sorted_json(incident)
        text = undated(incident, text)
        row = _row(cluster, "incident", incident["id"], incident, text, version, digest, now)
        update.clusters[incident["id"]] = cluster
        if row:
            update.versions.append(row)
            update.report["changed" if last else "opened"].append(incident["id"])

    def _note_gone(
        self, update: HistoryUpdate, conclusions: LiveConclusions, last: LiveConclusions | None, now: datetime
    ) -> None:
        """Notes the incidents that are no longer concluded, and which incident continues each."""
        cluster = conclusions.cluster
        touched = conclusions.change.touched if last else None
        if touched:  # what replaces a document is touched too: there may be very many others
            incident: Collection[str] = touched.gone
            alive = {conclusions.result.incidents[n]["id"] for n in touched.incidents}
        else:
            incident = [n for c, n in self._incidents if c == cluster]
            alive = {i["id"] for i in conclusions.result.incidents} if incident else set()
        heirs = _Heirs(conclusions)
        for name in sorted(n for n in incident if n not in alive):
            row = self._incidents.get((cluster, name))
            if row is None or not row["digest"]:
                continue
            update.report["closed"].append(name)
            update.versions.append({**row, "version": row["version"] + 1, "said_at": now, "digest": None})
            heir = heirs.of(row)
            if heir:
                update.report["aliases"][name] = heir
                update.clusters[heir] = cluster

    def write(self, writer: Writer, update: HistoryUpdate, now: datetime) -> None:
        """Stores an update inside the caller's transaction."""
        writer.insert(VERSIONS, pl.DataFrame(update.versions, schema=_VERSIONS))
        rows = [
            {"cluster": update.clusters[i], "incident_id": i, "detected_at": at} for i, at in update.detected.items()
        ]
        writer.insert(DETECTIONS, pl.DataFrame(rows, schema=_DETECTIONS))
        for alias, heir in update.report["aliases"].items():
            # An heir that is itself replaced passes its aliases on.
            writer.change(kept.hand_on_aliases(alias, heir))
            row = {"cluster": update.clusters[heir], "alias": alias, "incident_id": heir, "since": now}
            writer.insert(ALIASES, pl.DataFrame([row], schema=_ALIASES))
        back = [i for i in update.clusters if i in self._aliases]
        if back:  # concluded again under its own id
            writer.change(kept.drop_aliases(back))

    def digest(self, kind: str, cluster: str | None, name: str) -> str | None:
        """The digest of the last published version of a document ("verdict", "incident"); None if it is gone."""
        if kind == "verdict":
            return self._verdicts.get((cluster, name), (0, None))[1]
        row = self._incidents.get((cluster, name))
        return row["digest"] if row else None

    def remember(self, update: HistoryUpdate) -> None:
        for row in update.versions:
            place = (row["cluster"], row["name"])
            if row["kind"] == "verdict":
                self._verdicts[place] = (row["version"], row["digest"])
            else:
                self._incidents[place] = row
        for name, at in update.detected.items():
            self.detected[name] = min(at, self.detected.get(name, at))
        self._aliases.update(update.report["aliases"])


def _row(cluster: str | None, kind: str, name: str, document: Mapping[str, Any], text: str, version: int, digest_before: str | None, now: datetime) -> dict[str, Any] | None:  # fmt: skip
    if digest_before is not None and has_digest(text, digest_before):
        return None
    jobs = [j["job_id"] for j in document.get("jobs", ())]
    root = document.get("root_cause") or {}
    return {
        "cluster": cluster, "kind": kind, "name": name, "version": version + 1, "said_at": now,
        "final": bool(document.get("final", document.get("status") == "final")), "category": document.get("category"),
        "incident_id": document.get("incident_id"), "confidence": document.get("confidence"),
        "summary": document.get("summary") or sorted_json({"title": document.get("title"), "jobs": jobs, "hosts": document.get("hosts"),
                                                          "event": root.get("event"), "host": root.get("host"), "device": root.get("device")}),
        "digest": digest(text),
    }  # fmt: skip


def _report_again(conclusions: LiveConclusions, name: str) -> None:
    """Adds an incident to those to be stored, if only some are: its detection time has changed."""
    touched, incidents = conclusions.change.touched, conclusions.result.incidents
    if touched is None or any(incidents[n]["id"] == name for n in touched.incidents):
        return
    for place, incident in enumerate(incidents):
        if incident["id"] == name:
            touched.incidents.append(place)
            touched.gone[name] = (incident, conclusions.memory.basis.stories[place])
            incidents[place] = thawed([incident]).get(name, incident)


class _Heirs:
    """Finds which incident continues one that is no longer concluded."""

    def __init__(self, conclusions: LiveConclusions) -> None:
        self._incidents = conclusions.memory.basis.stories
        self._near: defaultdict[tuple[str, str], list[Incident]] | None = None
        self._hosts: dict[str, frozenset[str]] = {}

    def _candidates(self, story: Mapping[str, Any]) -> Iterable[Incident]:
        """Incidents that share a run or the host with it, each once."""
        if self._near is None:
            self._near = defaultdict(list)
            for incident in self._incidents:
                hosts = self._hosts[incident.id] = frozenset(incident.hosts)
                for place in {*(("job", v.run.key) for v in incident.verdicts), *(("host", h) for h in hosts)}:
                    self._near[place].append(incident)
        places = [*(("job", str(j)) for j in story.get("jobs") or ()), ("host", str(story.get("host")))]
        return {i.id: i for place in places for i in self._near.get(place, ())}.values()

    def of(self, gone: Mapping[str, Any]) -> str | None:
        """The incident with most runs in common, else on the same device or host; None if there is none."""
        try:
            story = json.loads(gone["summary"])
        except ValueError:
            return None
        shared: dict[str, int] = {}
        for incident in self._candidates(story):
            common = {v.run.key for v in incident.verdicts} & set(story.get("jobs") or ())
            same_place = story.get("host") in self._hosts[incident.id]
            same_device = same_place and incident.root.device == story.get("device")
            score = 10 * len(common) + 2 * same_device + same_place
            if score >= 2 or (score == 1 and not story.get("jobs") and cause_of(incident.root).placed):
                shared[incident.id] = score
        return min(shared, key=lambda i: (-shared[i], i)) if shared else None


_TEXTS = ("category", "incident_id")
_VERSIONS: dict[str, Any] = {
    "cluster": pl.String, "kind": pl.String, "name": pl.String, "version": pl.Int64, "said_at": pl.Datetime("us"), "final": pl.Boolean,
    **dict.fromkeys(_TEXTS, pl.String), "confidence": pl.Float64, "summary": pl.String, "digest": pl.String,
}  # fmt: skip
_DETECTIONS: dict[str, Any] = {"cluster": pl.String, "incident_id": pl.String, "detected_at": pl.Datetime("us")}
_ALIASES: dict[str, Any] = {**dict.fromkeys(("cluster", "alias", "incident_id"), pl.String), "since": pl.Datetime("us")}


def resolve(store: Asks, incident_id: str) -> str:
    """The id under which an incident continues today."""
    try:
        rows = store.ask(kept.heir(incident_id))
    except NoSuchTable:
        return incident_id
    return str(rows[0]["incident_id"]) if rows else incident_id
