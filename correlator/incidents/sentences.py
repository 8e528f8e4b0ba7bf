"""From facts to sentences: headlines, titles, grounds, doubts and advice; and the GPU-hours that an incident cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from correlator.clocks.clocks import hours_off
from correlator.facts.jobs.kinds import RUN_NODE_FAIL
from correlator.facts.nodes.kinds import NODE_DOWN, is_resume
from correlator.facts.registry import cause_of, short_of, title_of
from correlator.facts.slow_runs import SLOW
from correlator.facts.world import World
from correlator.incidents.incident import Incident, events_of
from correlator.incidents.incidents import survivors
from correlator.incidents.rows import LATE_S
from correlator.incidents.steps import others_say
from correlator.model.attributes import DIFFERS, END_UNSEEN, ENDS, FAR_END_ONLY, INFERRED, RATIO
from correlator.model.kinds import Advice, fill
from correlator.model.nouns import Fact
from correlator.model.time_texts import clock, lasting
from correlator.verdicts.verdict import Verdict
from parsers.hostlist import fold
from parsers.job_states import Phase, phase_of

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
    if incident.left_open:
        return f"{_jobs(incident.left_open)} undecided"
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
        # When an inferred cause began is not known.
        delay = 0.0 if root.attrs.get(INFERRED) else verdict.end.start - root.start
        # Whole-second timestamps, clocks and copies of a line may put a cause a moment after its effect.
        parts.append(
            f"Job {verdict.run.key} ended {verdict.run.state}" + (f" {delay:.1f} s later" if delay >= 0.05 else "")
        )
    hurt = {v.run.key for v in incident.verdicts}
    for run in incident.slowed:
        if run.key not in hurt:
            parts.append(f"Job {run.key} became {paces.get(run.key, 1.0):.1f} times slower")
    if not incident.verdicts:
        parts += _without_victims(world, incident, downs)
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


def _without_victims(world: World, incident: Incident, downs: list[Fact]) -> list[str]:
    """What became of the runs, if no verdict names the incident."""
    if incident.left_open:
        return [f"Whether it ended {_jobs(incident.left_open)} is open"]
    return _ended_beside(world, downs) or ["No job was hurt" if not incident.slowed else "No job failed"]


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
    found += [root.attrs[DIFFERS]] if root.attrs.get(DIFFERS) else []
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
            f"{len(late)} line{'s' if len(late) > 1 else ''} of {worst.host} arrived up to {lasting((worst.received or 0) - worst.time)} late"
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
    if lacking := list(dict.fromkeys(one.words for verdict in incident.verdicts for one in verdict.missing)):
        found.append(f"Would be surer with {listed(lacking)}: not collected from the source itself at that time")
    found += dict.fromkeys(f"Against it: {verdict.against}" for verdict in incident.verdicts if verdict.against)
    if incident.root.attrs.get(INFERRED):
        begun, known = clock(incident.root.start), clock(incident.root.end or incident.root.start)
        found.append(f"When {cause.began} is not known: between {begun} and {known}")
    return found


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def advice(incident: Incident) -> list[dict[str, Any]]:
    """What to do: a text, a command or null, and the ``users`` that the text names, if any."""
    rows: list[dict[str, Any]] = [
        {"text": fill(text, incident.root), "command": fill(command, incident.root) if command else None}
        for text, command in _what_to_do(incident)
        if not (is_resume(command) and _is_back(incident))
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


def _is_back(incident: Incident) -> bool:
    """Is every node that Slurm set DOWN in it back in service? Slurm takes back by itself what answers again (ReturnToService)."""
    downs = [fact for fact in incident.members if fact.kind == NODE_DOWN.name]
    return bool(downs) and all(fact.end is not None and not fact.attrs.get(END_UNSEEN) for fact in downs)


def _what_to_do(incident: Incident) -> tuple[Advice, ...]:
    """The advice for the cause as it is: a link that came back and hurt nobody is no reason to drain its node."""
    root, cause = incident.root, cause_of(incident.root)
    lasts = any(f.end is None and not f.attrs.get(END_UNSEEN) for f in (root, *incident.flaps))
    # A node that was set DOWN and is back lost no more than its time: as the repair list has it, that is one loss to watch.
    down = any(f.kind == NODE_DOWN.name for f in incident.members) and not _is_back(incident)
    if not lasts and not (incident.verdicts or incident.slowed or incident.left_open or down):
        return cause.instead.unhurt or cause.advice
    if cause.instead.switch and any(e.host == root.host and e.source == "switch" for e in root.events):
        return cause.instead.switch
    if lasts:
        return cause.advice
    return cause.instead.once or cause.advice if incident.times == 1 else cause.advice


def is_requeued(verdict: Verdict) -> bool:
    """Did Slurm itself put the job back into its queue?"""
    return phase_of(verdict.run.state) is Phase.REQUEUED or any(
        e.kind == "slurm.job_requeue" for e in verdict.end.events
    )


#: A node counts as wanted, and its GPUs as known, if a run was on it within this before it went DOWN, seconds.
WANTED_S = 900.0


def gpu_hours(world: World, incident: Incident) -> float:
    """GPU-hours that ended runs had computed, that nodes out of service could not, and for which slowed runs waited."""
    lost = 0.0
    ended = {verdict.run.key for verdict in incident.verdicts}
    waited = {f.run: SLOW.attrs_of(f)["lost"] for f in incident.members if f.kind == SLOW.name}
    for run in incident.slowed:
        if run.key not in ended:  # all that the others computed is lost
            lost += run.gpus * waited.get(run.key, 0.0) / 3600.0
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
