"""The time axis as data: lanes, marks, bands and arrows of one incident or one job, in seconds after T0.

Pure functions from documents and rows to a JSON shape; the canvas (static/axis) draws it and decides nothing about
meaning. T0 is the first event in evidence, so that every lag on the axis is a lag since the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from correlator.facts.gpus import bus
from correlator.facts.registry import kind_of
from parsers.moments import later
from web.axis_ends import SECOND_S, End, Hop, first_evidence, hops_of, mark_of, moments
from web.chain import chain_steps, step_numbers
from web.folds import ALIKE, folds
from web.glyphs import glyph_of
from web.lags import lag_of
from web.shaping import BAD_STATES, LAYERS, layer_of, layers, moment, short_file, state_kind

Row = dict[str, Any]
ERRORS = {"error", "err", "critical", "crit", "alert", "emerg", "fatal"}
WARNINGS = {"warning", "warn"}
#: Built-in layers that have one lane for each host. In all others, devices and ports have their own.
OF_HOSTS = LAYERS.keys() - {"switch", "link", "gpu", "storage"}
SUB = {"switch": "port", "link": "link", "gpu": "device", "kernel": "syslog", "node": "node state"}
RESOLUTION_DEFAULT_S = 0.001
#: What an incident did to a job, the gravest first.
PARTS = ("ended", "slowed")


@dataclass
class Builder:
    """Collects lanes as they are named; lanes come out in the order of layers, then hosts."""

    t0: datetime
    lanes: dict[str, Row] = field(default_factory=dict)
    marks: list[Row] = field(default_factory=list)
    bands: list[Row] = field(default_factory=list)
    beats: list[list[Any]] = field(default_factory=list)

    def at(self, value: object) -> float | None:
        when = moment(value)
        return round((when - self.t0).total_seconds(), 6) if when else None

    def lane(self, layer: str, host: str, detail: str = "", sub: str | None = None) -> str:
        """The lane's id; a lane is created on first use."""
        layer = layer if layer in layers() else "kernel"
        name = f"{host}  {detail}".strip() if detail else host
        lane = f"{layer}|{name}"
        if lane not in self.lanes:
            self.lanes[lane] = {
                "id": lane, "layer": layer, "group": layers()[layer], "label": name, "host": host,
                "sub": SUB.get(layer, "log") if sub is None else sub,
            }  # fmt: skip
        return lane

    def sorted_lanes(self) -> list[Row]:
        """By layer; those of jobs that the incident ended come first, then those that it slowed, with what they printed; then by name."""
        order = {layer: place for place, layer in enumerate(layers())}
        parts = {lane["host"]: PARTS.index(lane["part"]) for lane in self.lanes.values() if lane.get("part")}

        def place(lane: Row) -> tuple[int, int, str]:
            part = parts.get(lane["host"], len(PARTS)) if lane["layer"] == "job" else 0
            return order[lane["layer"]], part, lane["label"]

        return sorted(self.lanes.values(), key=place)


def has_devices(layer: str) -> bool:
    """Does each device have a lane of its own in this layer?"""
    return layer in layers() and layer not in OF_HOSTS


def event_lane(builder: Builder, event: Row, jobs: dict[str, Row]) -> str:
    """The lane of an event: one per device and port, one per daemon and host, one per job."""
    layer, host = str(event.get("layer") or layer_of(event.get("source"))), str(event.get("host") or "?")
    device = str(event.get("device") or "")
    if layer == "job":
        return job_lane(builder, str(event.get("job_id") or device.removeprefix("job ") or "?"), jobs)
    if has_devices(layer):
        # The kernel writes the address of one GPU with its function and without it.
        address = bus(device) if layer == "gpu" else None
        return builder.lane(layer, host, address or device or layer)
    if layer == "node":
        return builder.lane("node", str(device or host))
    return builder.lane(layer, host, layer)


def job_lane(builder: Builder, job: str, jobs: dict[str, Row]) -> str:
    run = jobs.get(job) or {}
    gpus = f"{run['gpus']} GPU" if run.get("gpus") else ""
    sub = ", ".join(part for part in (str(run.get("user") or ""), gpus) if part)
    return builder.lane("job", job, str(run.get("name") or ""), sub or "job")


def mark(builder: Builder, event: Row, lane: str) -> Row | None:
    """One event in the form of the canvas; an event without a time is not on the axis, only in the table."""
    at = builder.at(event.get("time"))
    if at is None:
        return None
    severity = str(event.get("severity") or "").lower()
    fine = event.get("resolution_s")
    if fine is None and event.get("resolution_us") is not None:
        fine = float(event["resolution_us"]) / 1e6
    received = builder.at(event.get("received_time"))
    place = event.get("file") or event.get("source")
    return {
        "id": str(event.get("id") or event.get("event_id")), "t": at, "lane": lane,
        "glyph": glyph_of(event.get("event")), "event": event.get("event"), "host": event.get("host"),
        "text": event.get("message"), "role": event.get("role") or "context",
        "level": "error" if severity in ERRORS else "warning" if severity in WARNINGS else "info",
        "count": int(event.get("count") or 1), "file": place, "short": short_file(place), "line": event.get("line"),
        "pm": float(fine if fine is not None else RESOLUTION_DEFAULT_S), "quality": event.get("time_quality") or "line",
        "late": round(received - at, 3) if received is not None and received - at > 5 else None,
        **({"last": builder.at(event["last"])} if event.get("last") else {}),
    }  # fmt: skip


def add_states(builder: Builder, states: Iterable[Row], end: datetime) -> None:
    """Node states as bands: each holds until the next one, unless its source says when it ended."""
    by_host: dict[str, list[Row]] = {}
    for row in states:
        by_host.setdefault(str(row["host"]), []).append(row)
    for host, rows in by_host.items():
        lane = builder.lane("node", host)
        for here, following in zip(rows, [*rows[1:], None], strict=True):
            until = following["time"] if following else here.get("until") or end
            if here.get("until") and here["until"] < until:
                until = here["until"]
            start, stop = builder.at(here["time"]), builder.at(max(until, here["time"]))
            state, reason = str(here.get("state") or "unknown"), here.get("reason")
            words = f"{state}  {reason}" if reason and reason.lower() not in {"none", ""} else state
            kind = state_kind(state)
            builder.bands.append({"lane": lane, "start": start, "end": stop, "kind": kind, "text": words})


def add_runs(builder: Builder, runs: Iterable[Row], end: datetime) -> dict[str, Row]:
    """Job bars with how they ended; returns the runs by key and by plain job id."""
    known: dict[str, Row] = {}
    for run in runs:
        known[str(run["run_key"])] = run
        known.setdefault(str(run["job_id"]), run)
    for run in {id(run): run for run in known.values()}.values():
        start = builder.at(run.get("start") or run.get("submit"))
        if start is None:
            continue
        state = str(run.get("state") or "unknown").split(" ")[0]
        kind = "bad" if state in BAD_STATES else "good" if state == "COMPLETED" else "other"
        lane = job_lane(builder, str(run["run_key"]), known)
        builder.bands.append({
            "lane": lane, "start": start, "end": builder.at(run.get("end") or end), "pm": None,
            "kind": "job", "text": run.get("node_list") or "", "state": state, "ending": kind,
            "open": run.get("end") is None, "job": run["run_key"], "nodes": run.get("nodes") or [],
        })  # fmt: skip
    return known


def settle_ends(builder: Builder) -> None:
    """Moves the end of job bars from accounting's whole second to the time of the line that reports it."""
    for band in builder.bands:
        if band["kind"] != "job" or band["open"]:
            continue
        ends = [
            item["t"] for item in builder.marks if item["lane"] == band["lane"] and item["glyph"] in {"kill", "end"}
        ]
        near = [at for at in ends if 0 <= at - band["end"] <= 1]
        band["pm"] = [band["end"], band["end"] + 1]
        band["told"] = bool(near)
        if near:
            band["end"] = near[0]


def name_parts(builder: Builder, doc: Row, jobs: dict[str, Row]) -> None:
    """Tells the jobs that this incident ended or slowed from those that only ran meanwhile."""
    slowed = {str(key): "slowed" for key in doc.get("slowed_jobs") or []}
    ended = {str(job.get("job_id")): "ended" for job in doc.get("jobs") or []}
    for key, part in {**slowed, **ended}.items():
        if key in jobs:
            builder.lanes[job_lane(builder, str(jobs[key]["run_key"]), jobs)]["part"] = part


def add_spans(builder: Builder, spans: Iterable[Row], end: datetime) -> None:
    """Outages and periods without data, with labels. A span without an end is still going on."""
    for item in spans:
        layer = str(item.get("layer") or "kernel")
        host, device = str(item.get("host") or "?"), str(item.get("device") or "")
        named = str(item.get("lane") or "").removeprefix(host).strip()
        detail = device if has_devices(layer) and device else named or layer
        lane = builder.lane(layer, host, "" if layer == "node" else detail)
        start, stop = builder.at(item.get("start")), builder.at(item.get("end") or end)
        if start is not None and stop is not None:
            stop = min(stop, builder.at(end) or stop) if item.get("kind") == "late" else stop
            kind = str(item.get("kind") or "blind")
            words = item.get("text") or kind
            builder.bands.append({"lane": lane, "start": start, "end": stop, "kind": kind, "text": words})


def add_steps(builder: Builder, hops: Iterable[Hop], jobs: dict[str, Row]) -> None:
    """The marks of facts that have no line of their own, and of the ends of runs."""
    seen = {item["id"] for item in builder.marks}
    for hop in hops:
        for end in (hop.cause, hop.effect):
            if end.own and end.id not in seen:
                seen.add(end.id)
                builder.marks.append(mark_of(end, fact_lane(builder, end, jobs), builder.t0, jobs.get(str(end.run))))


#: Why a part of a heterogeneous job ended (slurm src/slurmctld/job_mgr.c).
ENDED_WITH = {"text": "Slurm ends all parts of a heterogeneous job with the first that fails"}


def add_ended(builder: Builder, doc: Row, jobs: dict[str, Row], hops: Iterable[Hop]) -> list[Hop]:
    """The ends of runs that the incident ended and that no step leads to, and the hops to those that ended with another part of
    their heterogeneous job."""
    seen = {item["id"] for item in builder.marks}
    ends = {end.id: end for hop in hops for end in (hop.cause, hop.effect) if end.ends_run}
    found = []
    for job in doc.get("jobs") or []:
        key = str(job.get("job_id"))
        run = jobs.get(key)
        if run is None or not run.get("end") or f"run:{key}" in seen:
            continue
        kind, last = (
            f"run.{str(run.get('state')).split(' ')[0].lower()}",
            later(run["end"], timedelta(seconds=SECOND_S)),
        )
        end = End(kind, None, None, key, f"job {key} ended", "effect", run["end"], last, None)
        builder.marks.append(mark_of(end, job_lane(builder, key, jobs), builder.t0, run))
        if first := ends.get(f"run:{job.get('ended_with')}"):
            found.append(Hop(ENDED_WITH, first, end))
    return found


def fact_lane(builder: Builder, end: End, jobs: dict[str, Row]) -> str:
    """The lane of a fact, by its kind."""
    if end.run is not None:
        return job_lane(builder, end.run, jobs)
    layer, host, device = kind_of(end.kind).layer, end.host or "cluster", end.device or ""
    if layer == "node":
        return builder.lane("node", host)
    if not has_devices(layer):
        return builder.lane(layer, host, layer)
    several = device.count(",") + 1
    return builder.lane(layer, host, f"{several} devices" if several > 2 else device or layer)


def add_measures(builder: Builder, measured: Iterable[Row]) -> list[Row]:
    """Measured values, each on a lane of its own behind those of its layer's devices; the series with times of the axis. ``own``: the device
    whose value is the last of each point; ``lost``: was that one not sampled any more?"""
    out = []
    for one in measured:
        count, own = one["devices"], one.get("own")
        of = f"{own} of {count}" if own else f"{count} {one.get('noun', 'devices')}"
        sub = f"{one['unit']}, {of}" if count > 1 else one["unit"]
        lane = builder.lane(one["layer"], one["host"], one["name"], sub.strip(", "))
        pieces = [[[builder.at(at), *values] for at, *values in piece] for piece in one["pieces"]]
        more = {"zero": True} if one.get("zero") else {}
        more |= {"own": own, "devices": count, "lost": one["lost"]} if own else {}
        out.append({"lane": lane, "name": one["name"], "unit": one["unit"], "pieces": pieces, **more})
    return out


def arrows(
    hops: Iterable[Hop],
    builder: Builder,
    marks: dict[str, Row],
    numbers: Mapping[int, int],
    after: Mapping[str, int] | None = None,
) -> list[Row]:
    """Chain steps with both ends on the axis; ``numbers`` are those of the evidence chain, by the identity of the step. ``after``: those of
    the steps that lead to the cause's mark, for what is no step of its own.

    ``lag`` is what is drawn, ``range`` whether only its bounds are known; ``allowed`` is where on the axis the effect may be.
    """
    out = []
    for place, hop in enumerate(hops, 1):
        cause, effect, step = marks.get(hop.cause.id), marks.get(hop.effect.id), hop.step
        if not cause or not effect or cause is effect:
            continue
        lag = lag_of(hop)
        out.append({
            "n": (after or {}).get(cause["id"], numbers.get(id(step), place)), "from": cause["id"], "to": effect["id"], "lag": round(lag.high, 6),
            "lag_text": lag.text, "range": lag.is_range, "window": step["window_s"] if lag.allowed else None,
            "allowed": lag.allowed and [builder.at(when) for when in lag.allowed],
            "because": step.get("because") or "", "text": step.get("text") or "", "edge": step.get("edge"),
            "recovery": effect["role"] == "recovery",
        })  # fmt: skip
    return out


#: A recovery within this of the last effect is part of the picture that opens (seconds).
RECOVERS_S = 30.0

#: The picture opens with at least this share of the whole: 18 ms of 12 minutes say nothing.
LEAST_SHOWN = 0.05


def focus(marks: list[Row], low: float, high: float) -> list[float]:
    """The range to open with: from the cause to the last effect, without the long wait for recovery."""
    inside = [item["t"] for item in marks if item["role"] in {"cause", "effect", "symptom"}]
    if not inside:
        return [low, high]
    first, last = min(inside), max(inside)
    soon = last + max(RECOVERS_S, 0.5 * (last - first))
    near = [item["t"] for item in marks if item["role"] == "recovery" and item["t"] <= soon]
    last = max([last, *near])
    room = max(last - first, 0.05)
    least = (high - low) * LEAST_SHOWN
    if 1.35 * room < least:  # cause and effects at one moment: with what is around it
        return [max(low, first - 0.3 * least), min(high, last + 0.7 * least)]
    return [max(low, first - 0.09 * room), min(high, last + 0.26 * room)]


def document_range(doc: Row, row: Row) -> tuple[datetime, datetime, datetime]:
    """T0, start and end of what the axis may show, from everything in the document that has a time."""
    events = [found for item in doc.get("events") or [] if (found := moment(item.get("time")))]
    # Late lines may arrive days after they were written: the picture ends where its events do.
    lasting = [item for item in doc.get("spans") or [] if item.get("kind") != "late"]
    edges = [moment(item.get(name)) for item in lasting for name in ("start", "end")]
    times = [*events, *[edge for edge in edges if edge]]
    times += [value for value in (moment(row.get("start")), moment(row.get("end"))) if value]
    hops = hops_of(doc)
    times += moments(hops)
    if not times:
        raise ValueError("no event of this incident has a time")
    t0 = first_evidence(doc, hops) or min(times)
    low, high = min(times), max(times)
    room = max((high - low) * 0.06, timedelta(seconds=1))
    return t0, later(low, -room), later(high, room)


def build(
    row: Row, *, events: Iterable[Row], states: Iterable[Row], runs: Iterable[Row], beats: Iterable[Row],
    measured: Iterable[Row] = (), notes: Iterable[str] = (), start: datetime, end: datetime, t0: datetime,
) -> Row:  # fmt: skip
    """The axis of an incident. Events of the document have roles; those of the store around it are context."""
    doc, builder = row["document"], Builder(t0)
    states = list(states)
    seen = {str(state["host"]) for state in states}
    # Slurm's own record of a node's states is better than the document's summary of it.
    spans = [item for item in doc.get("spans") or [] if item.get("layer") != "node" or item.get("host") not in seen]
    add_spans(builder, spans, end)
    known = add_runs(builder, runs, end)
    stored = {str(event["event_id"]): event for event in events}
    events_by_id = {str(item.get("id")): item for item in doc.get("events") or []}
    for key in [*events_by_id, *[key for key in stored if key not in events_by_id]]:
        # The document has the role of an event; the store has its job, its file and its count.
        values = {name: value for name, value in events_by_id.get(key, {}).items() if value is not None}
        event = {**stored.get(key, {}), **values} if values else stored[key]
        found = mark(builder, event, event_lane(builder, event, known))
        if found:
            builder.marks.append(found)
    hops = hops_of(doc)
    add_steps(builder, hops, known)
    along = add_ended(builder, doc, known, hops)
    settle_ends(builder)
    name_parts(builder, doc, known)
    add_states(builder, states, end)
    for beat in beats:
        builder.beats.append([job_lane(builder, str(beat["job_id"]), known), builder.at(beat["time"])])
    series = add_measures(builder, measured)
    builder.marks.sort(key=lambda item: (item["t"], item["id"]))
    low, high = builder.at(start) or 0.0, builder.at(end) or 0.0
    marks = {item["id"]: item for item in builder.marks}
    steps = chain_steps(doc, events_by_id)
    heads = {str(item["event"].get("id")) for item in steps}
    keep = {item["lane"] for item in builder.marks if item["id"] in heads}
    lanes = builder.sorted_lanes()
    drawn = arrows(hops, builder, marks, step_numbers(steps))
    return {
        "t0": t0, "start": low, "end": high, "focus": focus(builder.marks, low, high), "lanes": lanes,
        "folds": folds(lanes, builder.marks, builder.bands, keep), "alike": ALIKE,
        "marks": builder.marks, "bands": builder.bands, "beats": builder.beats, "series": series, "notes": list(notes),
        "arrows": [*drawn, *arrows(along, builder, marks, {}, {arrow["to"]: arrow["n"] for arrow in drawn})],
        "roots": [{"id": item["event"]["id"], "n": item["n"]} for item in steps if not item["step"]],
        "groups": list(dict.fromkeys(layers().values())),
    }  # fmt: skip
