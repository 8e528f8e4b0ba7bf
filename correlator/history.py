"""What the running service said, and when: first detections, versions of verdicts, former ids of incidents.

An incident's id is made from its root, so that a replay finds the same ids. Late lines may show an earlier or a common
root; then the id changes, and the former one stays as an alias, so that a link in a ticket keeps working.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

if TYPE_CHECKING:
    from correlator.engine import Conclusions
    from store.duckdb_store import DuckStore


def keep(store: DuckStore, found: Iterable[Conclusions], now: datetime, *, silent: bool = False,
         before: Mapping[str | None, Conclusions] | None = None) -> dict[str, Any]:  # fmt: skip
    """Notes what is new against what was said before; returns the lists of a ``TickReport``.

    ``silent``: the first look at a store. What stands in ``model`` already was concluded by an offline ``ingest``, which
    is no detection by a running service. ``before``: what the last tick said; documents that are the same objects still
    need no second look.
    """
    found = list(found)
    offline = {r["incident_id"] for r in store.rows("SELECT incident_id FROM model.incidents")} if silent else set()
    said = {(r["cluster"], r["name"]): r for r in store.rows(
        "SELECT * FROM kept.versions WHERE kind = 'verdict' QUALIFY row_number() OVER (PARTITION BY cluster, name ORDER BY version DESC) = 1")}  # fmt: skip
    known = {(r["cluster"], r["name"]): r for r in store.rows(
        "SELECT * FROM kept.versions WHERE kind = 'incident' QUALIFY row_number() OVER (PARTITION BY cluster, name ORDER BY version DESC) = 1")}  # fmt: skip
    rows: list[dict[str, Any]] = []
    report: dict[str, Any] = {"provisional": [], "final": [], "opened": [], "changed": [], "closed": [], "aliases": {}}
    for conclusions in found:
        last = (before or {}).get(conclusions.cluster)
        unchanged = {id(d) for d in (*last.verdicts.values(), *last.incidents)} if last else set()
        for name, verdict in sorted(conclusions.verdicts.items()):
            if id(verdict) in unchanged:
                continue
            row = _row(conclusions.cluster, "verdict", name, verdict, said, now)
            if row:
                rows.append(row)
                report["final" if verdict["final"] else "provisional"].append(name)
        for incident in conclusions.incidents:
            if id(incident) in unchanged:
                continue
            row = _row(conclusions.cluster, "incident", incident["id"], incident, known, now)
            if row:
                rows.append(row)
                report["opened" if row["version"] == 1 else "changed"].append(incident["id"])
        alive = {i["id"] for i in conclusions.incidents}
        gone = [(c, n) for (c, n), r in known.items() if c == conclusions.cluster and n not in alive and r["digest"]]
        for cluster, name in sorted(gone, key=lambda g: g[1]):
            report["closed"].append(name)
            rows.append(
                {
                    **known[(cluster, name)],
                    "version": known[(cluster, name)]["version"] + 1,
                    "said_at": now,
                    "digest": None,
                }
            )
            heir = _heir(known[(cluster, name)], conclusions)
            if heir:
                report["aliases"][name] = heir
    _store(store, rows, report, found, now, offline)
    return {k: tuple(v) if isinstance(v, list) else v for k, v in report.items()}


def _row(cluster: str | None, kind: str, name: str, document: Mapping[str, Any], before: Mapping[Any, Mapping[str, Any]], now: datetime) -> dict[str, Any] | None:  # fmt: skip
    digest = hashlib.blake2s(json.dumps({k: v for k, v in document.items() if k != "detected_at"}, sort_keys=True).encode(), digest_size=8).hexdigest()  # fmt: skip
    last = before.get((cluster, name))
    if last is not None and last["digest"] == digest:
        return None
    jobs = [j["job_id"] for j in document.get("jobs", ())]
    root = document.get("root_cause") or {}
    return {
        "cluster": cluster, "kind": kind, "name": name, "version": last["version"] + 1 if last else 1, "said_at": now,
        "final": bool(document.get("final", document.get("status") == "final")), "category": document.get("category"),
        "incident_id": document.get("incident_id"), "confidence": document.get("confidence"),
        "summary": document.get("summary") or json.dumps({"title": document.get("title"), "jobs": jobs, "hosts": document.get("hosts"),
                                                          "event": root.get("event"), "host": root.get("host"), "device": root.get("device")}),
        "digest": digest,
    }  # fmt: skip


def _heir(gone: Mapping[str, Any], conclusions: Conclusions) -> str | None:
    """The incident that took over the story: most runs in common, else the same device or host, else nothing."""
    try:
        story = json.loads(gone["summary"])
    except ValueError:
        return None
    shared: Counter[str] = Counter()
    for incident in conclusions.incidents:
        common = {j["job_id"] for j in incident["jobs"]} & set(story.get("jobs") or ())
        same_place = story.get("host") in incident["hosts"]
        same_device = same_place and incident["root_cause"]["device"] == story.get("device")
        score = 10 * len(common) + 2 * same_device + same_place
        if score >= 2 or (score == 1 and not story.get("jobs") and incident["root_cause"]["event"] == "switch.failure"):
            shared[incident["id"]] = score
    return min(shared, key=lambda i: (-shared[i], i)) if shared else None


def _store(
    store: DuckStore,
    rows: list[dict[str, Any]],
    report: dict[str, Any],
    found: list[Conclusions],
    now: datetime,
    offline: set[str],
) -> None:
    from store.duckdb_store import insert

    cluster_of = {i["id"]: c.cluster for c in found for i in c.incidents}
    if not rows:
        return
    with store.transaction() as connection:
        insert(connection, "kept.versions", pl.DataFrame(rows, schema=_VERSIONS))
        # A story that goes on under another id was detected when it was first told.
        told = detections(store)
        former: dict[str, datetime] = {}
        for alias, heir in report["aliases"].items():
            if alias in told:
                former[heir] = min(told[alias], former.get(heir, now))
        detected = [i for i in report["opened"] if i not in offline]
        if detected:
            rows = [{"cluster": cluster_of[i], "incident_id": i, "detected_at": former.get(i, now)} for i in detected]
            insert(connection, "kept.detections", pl.DataFrame(rows, schema=_DETECTIONS))
        for alias, heir in report["aliases"].items():
            # An heir that is replaced itself hands its aliases on.
            connection.execute("UPDATE kept.aliases SET incident_id = ? WHERE incident_id = ?", [heir, alias])
            connection.execute("INSERT INTO kept.aliases VALUES (?, ?, ?, ?)", [cluster_of[heir], alias, heir, now])
        alive = [i["id"] for c in found for i in c.incidents]
        connection.execute("DELETE FROM kept.aliases WHERE list_contains(?, alias)", [alive])


_TEXTS = ("category", "incident_id")
_VERSIONS: dict[str, Any] = {
    "cluster": pl.String, "kind": pl.String, "name": pl.String, "version": pl.Int64, "said_at": pl.Datetime("us"), "final": pl.Boolean,
    **dict.fromkeys(_TEXTS, pl.String), "confidence": pl.Float64, "summary": pl.String, "digest": pl.String,
}  # fmt: skip
_DETECTIONS: dict[str, Any] = {"cluster": pl.String, "incident_id": pl.String, "detected_at": pl.Datetime("us")}


def detections(store: DuckStore) -> dict[str, datetime]:
    """Incident id -> when the running service first said it (UTC); empty after offline work only."""
    try:
        rows = store.rows("SELECT incident_id, min(detected_at) AS at FROM kept.detections GROUP BY incident_id")
    except duckdb.CatalogException:  # a store written by an older version and opened for reading
        return {}
    return {r["incident_id"]: r["at"] for r in rows}


def resolve(store: DuckStore, incident_id: str) -> str:
    """The id under which an incident's story stands today."""
    try:
        rows = store.rows(
            "SELECT incident_id FROM kept.aliases WHERE alias = ? ORDER BY since DESC LIMIT 1", [incident_id]
        )
    except duckdb.CatalogException:
        return incident_id
    return str(rows[0]["incident_id"]) if rows else incident_id
