"""From classified lines to events: one thing said in several files, or by several layers, is one event.

The same kernel line stands in syslog, kern.log, messages and dmesg with three resolutions of time; one carrier loss is
told by the driver, the IB core, the bond and rtnetlink. Lines of one host, event type and device that lie within
``COALESCE_S`` of each other are one event; all its lines stay listed.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from correlator.model import Event

if TYPE_CHECKING:
    from correlator.reads import Reads

#: Longer than the spread of copies of one line (a whole second of resolution plus driver-to-core delay), shorter than
#: the fastest flap an operator tells apart.
COALESCE_S = 1.5

#: Event families where different words mean the same thing on one device.
_BY_DEVICE = ("nic.", "switch.", "pcie.", "gpu.")

#: Entities that name the device an event is about, most specific name first.
DEVICE_KEYS = ("port", "ibdev", "interface", "pci", "gpu_uuid", "nvswitch", "lustre_target", "nfs_server", "device", "bond", "gpu", "dimm")  # fmt: skip

_LAYERS = {
    "nic": "link", "fabric": "link", "switch": "switch", "gpu": "gpu", "storage": "storage", "job": "job",
    "kernel": "kernel", "pcie": "kernel", "platform": "kernel", "sys": "node",
}  # fmt: skip

_COPY_NOISE = re.compile(
    r"^(?:\[\s*\d+\.\d+\]\s*|\[[^\]]*\]\s*|(?:error|debug\d?|verbose|info|fatal):\s*|slurm[a-z]*(?:-\S+?)?(?:\[\d+\])?:\s*)+"
)

#: Which of several copies speaks for an event: the daemon's own file, then the host's logs, then rtnetlink, then the
#: log host's copy.
_SPEAKS = {"slurm": 0, "ip_link": 2, "ip": 2, "loghost": 3, "json": 3}

_COLUMNS = """format, time, time_quality, resolution_us, received_time, cluster, host, source, unit, severity, event, job_id,
  message, entities, file, line"""

_QUERY = f"""SELECT {_COLUMNS} FROM raw.log_view WHERE event IS NOT NULL AND event <> 'other' AND time IS NOT NULL
  AND cluster IS NOT DISTINCT FROM ?"""

#: What a program printed without a stamp was printed after the stamped line before it and before the one behind it;
#: where a file has no stamps at all, near the end of the run (that is when programs print errors).
_UNTIMED = f"""
WITH wanted AS (
  SELECT {_COLUMNS} FROM raw.log_view WHERE event IS NOT NULL AND event <> 'other' AND time IS NULL
    AND job_id IS NOT NULL AND source IN ('job_stdout', 'job_stderr') AND cluster IS NOT DISTINCT FROM ?
), stamped AS (
  SELECT file, line, time FROM raw.logs WHERE time IS NOT NULL AND file IN (SELECT file FROM wanted)
), ends AS (
  SELECT job_id, coalesce(restarts, 0) AS restarts, max("end") AS ended FROM raw.jobs
  WHERE "end" IS NOT NULL AND cluster IS NOT DISTINCT FROM ? GROUP BY ALL
), placed AS (
  SELECT w.* EXCLUDE (time), a.restarts,
    (SELECT max(s.time) FROM stamped s WHERE s.file = w.file AND s.line < w.line) AS before,
    (SELECT min(s.time) FROM stamped s WHERE s.file = w.file AND s.line > w.line) AS behind
  FROM wanted w LEFT JOIN (SELECT DISTINCT file, restarts FROM raw.artifacts) a ON a.file = w.file
)
SELECT p.* EXCLUDE (restarts, before, behind),
  coalesce(p.behind, (SELECT max(e.ended) FROM ends e WHERE e.job_id = p.job_id
    AND (p.restarts IS NULL OR e.restarts = p.restarts)), p.before) AS time, p.before AS not_before
FROM placed p
"""

#: How far from the end of a run an unstamped error line may have been printed, seconds.
UNSTAMPED_S = 60.0


def seconds_of(moment: datetime | None) -> float | None:
    return None if moment is None else moment.replace(tzinfo=UTC).timestamp()


def moment_of(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def device_of(entities: dict[str, Any]) -> str | None:
    if not entities:
        return None
    for key in DEVICE_KEYS:
        value = entities.get(key)
        if value not in (None, "", []):
            return str(value)
    return None


def layer_of(event: str, source: str | None) -> str:
    if event.startswith("slurm."):
        return source if source in ("slurmctld", "slurmd") else "slurmd" if source == "slurmstepd" else "slurmctld"
    return _LAYERS.get(event.split(".", 1)[0], "node")


def gather(store: Reads, cluster: str | None) -> list[Event]:
    """All events of one cluster, in a total order that does not depend on the order of arrival."""
    rows = store.frame(_QUERY, [cluster]).to_dicts()
    for row in store.frame(_UNTIMED, [cluster, cluster]).to_dicts():
        if row["time"] is None:
            continue
        row.update(time_quality="inferred", resolution_us=int(UNSTAMPED_S * 2e6))
        rows.append(row)
    return coalesce(rows)


def _group_key(row: dict[str, Any], entities: dict[str, Any]) -> tuple[Any, ...]:
    event = row["event"]
    device = device_of(entities)
    code = entities.get("xid", entities.get("sxid"))
    if event.startswith(_BY_DEVICE):
        return (row["cluster"] or "", row["host"] or "", event, device or "", str(code), -1, "")
    text = _COPY_NOISE.sub("", row["message"] or "")
    return (row["cluster"] or "", row["host"] or "", event, device or "", str(code), row["job_id"] or -1, text)


def coalesce(rows: list[dict[str, Any]]) -> list[Event]:
    """Rows of ``raw.log_view`` -> events. Pure: any order of rows and any number of copies give the same list."""
    groups: dict[tuple[Any, ...], list[tuple[float, int, str, int, dict[str, Any], dict[str, Any]]]] = {}
    for row in rows:
        entities = json.loads(row["entities"]) if row["entities"] else {}
        time = seconds_of(row["time"])
        assert time is not None
        place = (time, row["resolution_us"] or 1_000_000, row["file"] or "", row["line"] or 0, row, entities)
        groups.setdefault(_group_key(row, entities), []).append(place)
    events: list[Event] = []
    for key, places in groups.items():
        places.sort(key=lambda p: (p[0], p[1], p[2], p[3]))
        cluster: list[Any] = []
        for place in places:
            if cluster and place[0] - cluster[-1][0] > COALESCE_S:
                events.append(_event(key, cluster))
                cluster = []
            cluster.append(place)
        events.append(_event(key, cluster))
    events.sort(key=lambda e: (e.time, e.kind, e.host or "", e.device or "", e.id))
    return events


def _event(key: tuple[Any, ...], places: list[Any]) -> Event:
    """One line speaks for all and gives the time, the words and the place; the others stay listed."""
    if len(places) == 1:
        return _alone(key, places[0])
    rank = {id(p): (_SPEAKS.get(p[4].get("format") or "", 1), p[1], p[0], p[2], p[3]) for p in places}
    speaker = min(places, key=lambda p: rank[id(p)])
    time, finest, file, line, row, _ = speaker
    resolution = finest
    merged: dict[str, Any] = {}
    for place in sorted(places, key=lambda p: (p[1], p[0], p[2], p[3]), reverse=True):
        merged.update({k: v for k, v in place[5].items() if v not in (None, "")})
    refs = sorted({(p[2], p[3]) for p in places if (p[2], p[3]) != (file, line)})
    received = [s for p in places if (s := seconds_of(p[4]["received_time"])) is not None]
    jobs = sorted({p[4]["job_id"] for p in places if p[4]["job_id"] is not None})
    digest = hashlib.blake2s(repr((key, round(time, 6))).encode(), digest_size=5).hexdigest()
    lines_per_copy = max(1, len({p[3] for p in places if p[2] == file}))
    return Event(
        id=f"e{digest}", time=time, sigma=resolution / 1e6 / 2, kind=row["event"], host=row["host"], device=key[3] or None,
        job_id=jobs[0] if jobs else None, message=row["message"] or "", source=row["source"],
        layer=layer_of(row["event"], row["source"]), severity=row["severity"], file=file or None, line=line or None,
        received=min(received) if received else None, time_quality=row["time_quality"] or "line", count=lines_per_copy,
        last=max(p[0] for p in places if p[2] == file), entities=merged, also=tuple(refs),
    )  # fmt: skip


def _alone(key: tuple[Any, ...], place: Any) -> Event:
    """What ``_event`` says of a line without copies: nearly all of them."""
    time, resolution, file, line, row, entities = place
    digest = hashlib.blake2s(repr((key, round(time, 6))).encode(), digest_size=5).hexdigest()
    return Event(
        id=f"e{digest}", time=time, sigma=resolution / 1e6 / 2, kind=row["event"], host=row["host"], device=key[3] or None,
        job_id=row["job_id"], message=row["message"] or "", source=row["source"], layer=layer_of(row["event"], row["source"]),
        severity=row["severity"], file=file or None, line=line or None, received=seconds_of(row["received_time"]),
        time_quality=row["time_quality"] or "line", count=1, last=time, entities={k: v for k, v in entities.items() if v not in (None, "")},
    )  # fmt: skip


def table(events: list[Event], incident_of: dict[str, str], cluster: str | None) -> pl.DataFrame:
    """Events as rows of ``model.events``."""
    rows = [
        {
            "event_id": e.id, "time": moment_of(e.time), "time_quality": e.time_quality, "resolution_us": int(e.sigma * 2e6),
            "received_time": moment_of(e.received), "cluster": cluster, "host": e.host, "source": e.source,
            "unit": None, "layer": e.layer, "event": e.kind, "severity": e.severity, "device": e.device,
            "job_id": e.job_id, "message": e.message, "entities": json.dumps(e.entities, sort_keys=True) if e.entities else None,
            "count": e.count, "incident_id": incident_of.get(e.id), "file": e.file, "line": e.line,
            "refs": json.dumps([{"file": f, "line": n} for f, n in e.also]),
        }
        for e in events
    ]  # fmt: skip
    schema: dict[str, Any] = {
        "event_id": pl.String, "time": pl.Datetime("us"), "time_quality": pl.String, "resolution_us": pl.Int64,
        "received_time": pl.Datetime("us"), "cluster": pl.String, "host": pl.String, "source": pl.String,
        "unit": pl.String, "layer": pl.String, "event": pl.String, "severity": pl.String, "device": pl.String,
        "job_id": pl.Int64, "message": pl.String, "entities": pl.String, "count": pl.Int64, "incident_id": pl.String,
        "file": pl.String, "line": pl.Int64, "refs": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)
