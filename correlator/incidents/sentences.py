"""From facts to sentences: titles, chains with raw lines, rivals with the fact that rejects them, doubts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from correlator.clocks.clocks import hours_off
from correlator.edges.conditions.links import name_of
from correlator.evidence.chains import Rejection
from correlator.evidence.weigh import Weigher, describe_cause
from correlator.facts.jobs.kinds import COMM_ERROR, RUN_NODE_FAIL
from correlator.facts.links.kinds import SWITCH_OUTAGE
from correlator.facts.nodes.kinds import NODE_DOWN
from correlator.facts.registry import cause_of, kind_of, kinds_where, root_event, short_of, title_of
from correlator.facts.slow_runs import SLOW
from correlator.facts.world import World
from correlator.incidents.incident import LISTED, Incident, events_of
from correlator.incidents.incidents import survivors
from correlator.model.attributes import ENDS, FAILED_NODES, FAR_END_ONLY, INFERRED, PROMOTED, RATIO
from correlator.model.kinds import Band, Trace, fill
from correlator.model.nouns import Event, Fact, Hop, Others, Run
from correlator.verdicts.verdict import Verdict
from parsers.hostlist import fold
from parsers.job_states import Phase, phase_of

#: A line that arrived this much later than it was written is reported as late.
LATE_S = 10.0


_EPOCH = datetime(1970, 1, 1)


@lru_cache(maxsize=8192)  # an event is in its incident, in verdicts, chains and spans
def stamp(seconds: float | None) -> str | None:
    """RFC 3339 UTC with microseconds, or null."""
    if seconds is None:
        return None
    whole, fraction = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_whole_second(whole)}.{fraction:06d}Z"


@lru_cache(maxsize=1024)  # events come in bursts
def _whole_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3] + " UTC"


def event_row(event: Event, role: str = "context") -> dict[str, Any]:
    return {
        "id": event.id, "time": stamp(event.time), "host": event.host, "event": event.kind, "message": event.message,
        "source": event.file or event.source, "line": event.line, "layer": event.layer, "device": event.device,
        "severity": event.severity, "role": role, "received_time": stamp(event.received), "time_quality": event.time_quality,
        "resolution_s": event.sigma * 2, "clock_offset_s": round(event.clock_offset, 3) if event.clock_offset else 0.0,
        "also": [{"source": f, "line": n} for f, n in event.also] if event.also else [],
        "authority": event.authority or None,
    }  # fmt: skip


#: Words of ours that begin a sentence; names of hosts, devices and daemons keep their spelling.
_SENTENCE_STARTS = frozenset({"the", "a", "switch", "somebody", "storage", "disk"})


#: The maximum length of a headline: a line of a terminal.
HEADLINE = 80


def headline(incident: Incident) -> str:
    """When, what, where and with what effect, within ``HEADLINE`` characters: for lists and terminals."""
    root = incident.root
    name = short_of(root)
    if incident.times > 1:
        name += f", {incident.times} times"
    effect = _effect(incident)
    when = datetime.fromtimestamp(incident.start, UTC).strftime("%b %d %H:%M")
    room = HEADLINE - len(when) - len(effect) - 4
    if len(name) > room:
        name = name[: room - 3].rstrip() + "..."
    return f"{when}  {name}: {effect}"


def _effect(incident: Incident) -> str:
    states = sorted({v.run.state for v in incident.verdicts})
    if len(incident.verdicts) == 1:
        return f"job {incident.verdicts[0].run.key} {states[0]}"
    if incident.verdicts:
        return f"{len(incident.verdicts)} jobs {states[0] if len(states) == 1 else 'ended'}"
    if incident.slowed:
        return f"{len(incident.slowed)} job{'s' if len(incident.slowed) > 1 else ''} slowed"
    downs = {f.host for f in incident.members if f.kind == NODE_DOWN.name}
    return f"{len(downs)} node{'s' if len(downs) > 1 else ''} DOWN" if downs else "no job hurt"


def title(world: World, incident: Incident) -> str:
    """What broke, what Slurm did, which jobs it ended, and which survived: one sentence each."""
    root = incident.root
    broke = title_of(root)
    parts = [broke[:1].upper() + broke[1:] if broke.split(" ", 1)[0] in _SENTENCE_STARTS else broke]
    if incident.times > 1:
        parts[0] += f", {incident.times} times in all"
    downs = [f for f in incident.members if f.kind == NODE_DOWN.name]
    node_fails = [v for v in incident.verdicts if v.end.kind == RUN_NODE_FAIL.name]
    if downs and node_fails:
        hosts = fold(sorted({f.host for f in downs if f.host}))
        delay = min(f.start for f in downs) - root.start
        after = "" if root.attrs.get(INFERRED) or delay <= 0 else f" after {delay:.1f} s"
        parts.append(f"Slurm set {hosts} DOWN{after}, which ended {_jobs(node_fails)} as NODE_FAIL")
    elif node_fails:
        parts.append(f"Slurm ended {_jobs(node_fails)} as NODE_FAIL")
    elif downs:
        parts.append(f"Slurm set {fold(sorted({f.host for f in downs if f.host}))} DOWN")
    paces = {f.run: f.attrs[RATIO] for f in incident.members if f.kind == SLOW.name}
    for verdict in incident.verdicts:
        if verdict in node_fails:
            continue
        pace = paces.get(verdict.run.key)
        if pace:
            parts.append(f"Job {verdict.run.key} became {pace:.1f} times slower and ended {verdict.run.state}")
            continue
        delay = verdict.end.start - root.start
        # Whole-second timestamps, clocks and copies of a line may put a cause a moment after its effect.
        parts.append(
            f"Job {verdict.run.key} ended {verdict.run.state}" + (f" {delay:.1f} s later" if delay >= 0.05 else "")
        )
    hurt = {v.run.key for v in incident.verdicts}
    for run in incident.slowed:
        if run.key not in hurt:
            parts.append(f"Job {run.key} became {paces.get(run.key, 1.0):.1f} times slower")
    if not incident.verdicts:
        parts += _ended_beside(world, downs) or ["No job was hurt" if not incident.slowed else "No job failed"]
    else:
        untouched = survivors(world, incident)
        if untouched.count:
            names = ", ".join(r.key for r in untouched.named[:3])
            names += f" and {untouched.count - 3} more" if untouched.count > 3 else ""
            several = untouched.count > 1
            parts.append(f"Job{'s' if several else ''} {names} {'were' if several else 'was'} untouched")
    return ". ".join(parts) + "."


#: A run that ended within this of its node being set DOWN ended by it, or by the same on another of its nodes.
BESIDE_S = 5.0


def _ended_beside(world: World, downs: list[Fact]) -> list[str]:
    """Runs that were on a node when it was set DOWN and ended then, but whose verdict names another cause."""
    keys = sorted({
        run.key for down in downs for run in world.runs_on.get(down.host or "", ())
        if run.ended_badly and run.end is not None and abs(run.end - down.start) <= BESIDE_S
    })  # fmt: skip
    return [f"Job {key} was on it and ended in that moment; its verdict names another cause" for key in keys[:3]]


def _jobs(verdicts: list[Verdict]) -> str:
    keys = [v.run.key for v in verdicts]
    return (
        f"job {keys[0]}"
        if len(keys) == 1
        else "jobs " + ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
    )


def lead_event(fact: Fact) -> Event | None:
    """The event that represents a fact in a chain."""
    preferred = None
    for event in fact.events:  # nearly always the first one is it, and some facts have thousands
        if not event.kind.endswith("_up"):
            if event.host == fact.host:
                return event
            preferred = preferred or event
    return preferred or next(iter(fact.events), None)


def says(fact: Fact) -> str:
    """The text for a fact without a line of its own: one that was measured or concluded."""
    measured = kind_of(fact.kind).measured
    return measured(fact) if measured else ""


def chain_rows(hops: list[Hop]) -> list[dict[str, Any]]:
    """Causal steps with lag, allowed window and the configuration behind it."""
    rows = []
    facts = {id(fact): fact for hop in hops for fact in (hop.cause, hop.effect)}
    leads = {key: lead_event(fact) for key, fact in facts.items()}  # one root is in very many steps
    for step, hop in enumerate(hops, 1):
        cause, effect = leads[id(hop.cause)], leads[id(hop.effect)]
        rows.append({
            "step": step, "cause": cause.id if cause else None, "effect": effect.id if effect else None, "edge": hop.edge.id,
            "lag_s": round(hop.lag, 3), "window_s": [round(hop.window[0], 3), round(hop.window[1], 3)], "because": hop.because,
            "text": hop.edge.text, "cause_fact": hop.cause.kind, "effect_fact": hop.effect.kind,
            "coincidence": round(hop.coincidence, 6), "strength": round(hop.strength, 3),
            "others": _others_row(hop), "cause_says": says(hop.cause), "effect_says": says(hop.effect), "effect_time": stamp(hop.effect.start), "effect_host": hop.effect.host,
        })  # fmt: skip
    return rows


def _others_row(hop: Hop) -> dict[str, Any] | None:
    """What became of the other runs that the cause reached, and its effect on the step's weight."""
    others = hop.others
    if others is None:
        return None
    return {
        "where": others.where, "weight": round(others.factor, 4), "hit_count": len(others.hit), "spared_count": len(others.survivors),
        "looked_at": others.asked, "reached": others.reached, "before": others.before, "hit": list(others.hit[:LISTED]), "spared": list(others.survivors[:LISTED]),
    }  # fmt: skip


def others_say(hops: Iterable[Hop]) -> list[str]:
    """The same in words: "7 other jobs behind leaf12 (2, 3, 4 and 4 more) ran on: weight x 0.03", each place once."""
    others_by_text: dict[str, Others] = {}
    for others in (h.others for h in hops if h.others):
        known = others_by_text.get(others.where)
        if known is None or others.factor < known.factor:
            others_by_text[others.where] = others
    return [_in_words(others) for _, others in sorted(others_by_text.items())]


def _in_words(others: Others) -> str:
    parts = [
        (others.survivors, "ran on"),
        (others.hit, "were hit as well" if len(others.hit) > 1 else "was hit as well"),
    ]
    sentences = [
        f"{len(keys)} other job{'s' if len(keys) > 1 else ''} {others.where} ({_few(keys)}) {what}" for keys, what in parts if keys
    ]  # fmt: skip
    if others.before:
        sentences.append(
            f"it had itself run on through the same {others.before} time{'s' if others.before > 1 else ''} before"
        )
    part = f" ({others.asked} looked at of {others.reached} that it reached)" if others.asked < others.reached else ""
    return f"{' and '.join(sentences)}{part}: weight x {others.factor:.2g}"


def _few(keys: Sequence[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def mind_changed_by(hops: Iterable[Hop]) -> list[str]:
    """What about the other runs would change the verdict."""
    found = []
    for others in {h.others.where: h.others for h in hops if h.others}.values():
        if others.survivors:
            count = len(others.survivors)
            name = f"one of the {count} jobs" if count > 1 else f"job {others.survivors[0]}"
            found.append(f"A sign that {name} {others.where} that ran on was hurt as well would speak for it.")
        elif not others.before:
            found.append(f"Another job {others.where} that ran on through it would speak against it.")
    return found


#: A rival that has this share of the best explanation's weight is its equal.
AS_WELL = 0.8


def rival_rows(world: World, weigher: Weigher, verdicts: list[Verdict], root: Fact | None) -> list[dict[str, Any]]:
    """Rival causes and why they were rejected.

    First what was tried and failed, then what would have left a trace and did not.
    """
    rows: dict[tuple[str, str | None, str | None], dict[str, Any]] = {}
    for verdict in verdicts:
        for rejection in verdict.rejections:
            if (
                rejection.cause is root
                or rejection.cause.kind in (COMM_ERROR.name, NODE_DOWN.name)
                or rejection.cause.attrs.get(PROMOTED)
            ):
                continue
            _add(rows, rejection)
        for chain in verdict.others:
            if root is None or chain.root is not root:
                key = (describe_cause(world, chain.root), chain.root.host, chain.root.device)
                even = verdict.chain is not None and chain.weight >= AS_WELL * verdict.chain.weight
                against = others_say(h for h in chain.hops if h.others and h.others.survivors)
                why = (
                    "not rejected: it may have ended the run as well"
                    if even
                    else "; ".join(against) or "another explanation carries more"
                )
                rows.setdefault(key, {"cause": key[0], "host": key[1], "device": key[2], "rejected": why})
        for one in verdict.denied:
            claim = _claimed(one.event), one.event.host, one.event.device
            rows.setdefault(claim, {"cause": claim[0], "host": claim[1], "device": claim[2], "rejected": one.why})
        for row in _absent(world, verdict, root):
            rows.setdefault((row["cause"], row["host"], row["device"]), row)
    return [rows[key] for key in sorted(rows, key=lambda k: (k[0], k[1] or "", k[2] or ""))][:12]


def _claimed(event: Event) -> str:
    """What a line claims: "gpu.xid (0000:41:00 of gpu03, 18:58:03.791 UTC)"."""
    where = f"{event.device} of {event.host}" if event.device else event.host
    return f"{event.kind} ({where}, {clock(event.time)})"


#: At most this many claims are named among the doubts.
DENIALS = 3


def denials(verdict: Verdict) -> list[str]:
    """The claims about the run's nodes that count for nothing."""
    named = [
        f"A line{_as_kernel(one.event)} in {one.event.file or 'a log'} claims {_claimed(one.event)} and does not count: {one.why}"
        for one in verdict.denied[:DENIALS]
    ]
    further = verdict.denied[DENIALS:]
    which = _as_kernel(*(one.event for one in further))
    return [*named, f"{len(further)} further lines{which} do not count either"] if further else named


def _as_kernel(*events: Event) -> str:
    return " in the kernel's name" if all(e.source == "kernel" for e in events) else ""


def _add(rows: dict[tuple[str, str | None, str | None], dict[str, Any]], rejection: Rejection) -> None:
    fact = rejection.cause
    kind = kind_of(fact.kind)
    what = "link loss" if kind.flaps else kind.cause.event if kind.cause else fact.kind
    name = f"{what} ({name_of(fact)}, {clock(fact.start)})"
    rows.setdefault(
        (name, fact.host, fact.device),
        {"cause": name, "host": fact.host, "device": fact.device, "rejected": rejection.reason},
    )


@cache
def _traces() -> list[tuple[str, Trace]]:
    """What else sets a node DOWN, and the trace that it leaves, by kind."""
    return [(name, kind.trace) for name in sorted(kinds_where(lambda k: k.trace)) if (kind := kind_of(name)).trace]


def _absent(world: World, verdict: Verdict, root: Fact | None) -> list[dict[str, Any]]:
    if verdict.end.kind != RUN_NODE_FAIL.name or (root is not None and root.kind == SWITCH_OUTAGE.name):
        return []
    rows = []
    for host in verdict.end.attrs.get(FAILED_NODES, ())[:2]:
        for name, trace in _traces():
            if root is not None and name == root.kind:
                continue
            near = [f for f in world.facts_of(name, *trace.also)
                    if (trace.anywhere or f.host == host) and abs(f.start - verdict.end.start) <= 900]  # fmt: skip
            if not near:
                rows.append(
                    {"cause": f"{trace.rival} ({host})", "host": host, "device": None, "rejected": trace.absent}
                )
    return rows


def grounds(world: World, incident: Incident) -> list[str]:
    """What the confidence rests on."""
    found = []
    root = incident.root
    if root.attrs.get(ENDS) == ["nic", "switch"]:
        found.append("Both ends of the link logged the loss")
    elif root.attrs.get(FAR_END_ONLY):
        found.append(f"Only the switch end logged the loss; {root.host} itself said nothing")
    inside = [h for h in incident.hops if h.window[0] - 0.01 <= h.lag <= h.window[1] + 0.01]
    if incident.hops:
        found.append(f"{len(inside)} of {len(incident.hops)} delays lie inside their windows")
    chances = [h.coincidence for h in incident.hops if h.cause is root]
    if chances:
        found.append(
            f"Chance of a coincidence: {max(chances):.2g}"
            if max(chances) >= 0.001
            else "Chance of a coincidence below 0.001"
        )
    found += others_say(incident.hops)
    if root.attrs.get(INFERRED) and (ground := cause_of(root).inferred_from):
        found.append(ground)
    if incident.verdicts and (untouched := survivors(world, incident)).count:
        found.append(f"{untouched.count} other job{'s' if untouched.count > 1 else ''} ran on without trouble")
    return found


def doubts(incident: Incident) -> list[str]:
    """What is unknown or only estimated."""
    found = []
    unknown = sorted({part for h in incident.hops for part in h.because.split("), ") if "not known" in part})
    if unknown:
        found.append(
            "No Slurm configuration was found; windows are as wide as what is plausible: "
            + "; ".join(part.rstrip(")") + ")" for part in unknown)
        )
    events = events_of(incident)
    late = [e for e in events if e.received is not None and e.received - e.time > LATE_S]
    if late:
        worst = max(late, key=lambda e: (e.received or 0.0) - e.time)
        found.append(
            f"{len(late)} line{'s' if len(late) > 1 else ''} of {worst.host} arrived up to {(worst.received or 0) - worst.time:.1f} s late"
        )
    if any(e.time_quality == "inferred" for e in events):
        found.append("The year or zone of some stamps was inferred")
    moved = [e for e in events if e.clock_offset]
    for host, seconds in sorted({e.host: e.clock_offset for e in moved}.items(), key=str):
        if zone := hours_off(seconds):
            found.append(f"The stamps of {host} are in another zone, {zone}; its lines are shown where they belong")
            continue
        side = "ahead" if seconds > 0 else "behind"
        known = f"{abs(seconds):.1f} s {side}, give or take {min(e.sigma for e in moved if e.host == host):.1f} s"
        found.append(f"The clock of {host} was {known}; its lines are shown where they belong")
    if incident.unproven:
        found.append(incident.unproven.doubt)
    cause = cause_of(incident.root)
    if cause.doubt:
        found.append(cause.doubt)
    if incident.root.attrs.get(INFERRED):
        begun, known = clock(incident.root.start), clock(incident.root.end or incident.root.start)
        found.append(f"When {cause.began} is not known: between {begun} and {known}")
    return found


def advice(incident: Incident) -> list[dict[str, Any]]:
    """What to do: a text, a command or null, and the ``users`` that the text names, if any."""
    rows: list[dict[str, Any]] = [
        {"text": fill(text, incident.root), "command": fill(command, incident.root) if command else None}
        for text, command in cause_of(incident.root).advice
    ]
    again = [v for v in incident.verdicts if not is_requeued(v)]
    users = sorted({str(v.run.row.get("user")) for v in again if v.run.row.get("user")})
    if users:
        cause = cause_of(incident.root)
        avoid = cause.avoid and incident.root.host
        where = f", without {avoid} until it is mended (--exclude={avoid})" if avoid else ""
        where = f" {cause.again}" if cause.again else where
        text = f"Tell {', '.join(users)} to submit again{where}: the code was not at fault."
        rows.append({"text": text, "command": None, "users": users})
    return rows


def is_requeued(verdict: Verdict) -> bool:
    """Did Slurm itself put the job back into its queue?"""
    return phase_of(verdict.run.state) is Phase.REQUEUED or any(
        e.kind == "slurm.job_requeue" for e in verdict.end.events
    )


def spans(incident: Incident) -> list[dict[str, Any]]:
    """Bands on the time axis: links without carrier, nodes DOWN, hosts whose lines came late."""
    rows = []
    for fact in [incident.root, *incident.members, *incident.flaps]:
        bands = kind_of(fact.kind).bands
        rows += [_span(band, fact) for band in (bands(fact) if bands else ())]
    by_host: dict[str, list[Event]] = {}
    for event in events_of(incident):
        if event.host and event.received is not None and event.received - event.time > LATE_S:
            by_host.setdefault(event.host, []).append(event)
    for host, events in sorted(by_host.items()):
        start, end = min(e.time for e in events), max(e.received or e.time for e in events)
        rows.append({"lane": f"{host} kernel", "layer": "kernel", "host": host, "device": None, "start": stamp(start), "end": stamp(end),
                     "kind": "late", "text": f"{host} silent; its lines came {end - start:.1f} s late"})  # fmt: skip
    return rows


def _span(band: Band, fact: Fact) -> dict[str, Any]:
    length = f", {fact.duration:.1f} s" if fact.duration is not None else ", still so when the data ends"
    return {"lane": band.lane, "layer": band.layer, "host": band.host, "device": band.device, "start": stamp(fact.start), "end": stamp(fact.end),
            "kind": band.state, "text": band.text + length}  # fmt: skip


#: A node counts as wanted, and its GPUs as known, if a run was on it within this before it went DOWN, seconds.
WANTED_S = 900.0


def gpu_hours(world: World, incident: Incident) -> float:
    """GPU-hours that ended runs had computed, and that nodes out of service could not."""
    lost = 0.0
    for verdict in incident.verdicts:
        run = verdict.run
        if run.start is not None and run.end is not None:
            lost += run.gpus * (run.end - run.start) / 3600.0
    for fact in incident.members:
        if fact.kind == NODE_DOWN.name and fact.duration is not None and fact.host:
            near = [r for r in world.runs_on.get(fact.host, ()) if r.start is not None and r.start <= fact.start
                    and (r.end is None or r.end >= fact.start - WANTED_S)]  # fmt: skip
            last = max(near, key=lambda r: (r.start or 0.0, r.key), default=None)
            lost += last.gpus / max(1, len(last.nodes)) * fact.duration / 3600.0 if last else 0.0
    return round(lost, 4)


@lru_cache(maxsize=4096)
def folded(nodes: tuple[str, ...]) -> str:
    """A run with its folded node list, computed once for its verdict and its incident."""
    return nodes[0] if len(nodes) == 1 else fold(nodes)


def run_summary(run: Run) -> dict[str, Any]:
    disputed = {"disputed": run.row["disputed"]} if "disputed" in run.row else {}
    return {**disputed, "state": run.state, "user": run.row.get("user"), "name": run.row.get("name"), "nodes": folded(run.nodes), "gpus": run.gpus,
            "start": stamp(run.start), "end": stamp(run.end)}  # fmt: skip


__all__ = [
    "advice",
    "chain_rows",
    "denials",
    "doubts",
    "event_row",
    "gpu_hours",
    "grounds",
    "headline",
    "lead_event",
    "rival_rows",
    "root_event",
    "run_summary",
    "spans",
    "stamp",
    "title",
]
