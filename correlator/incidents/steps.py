"""Steps of a causal chain with their lines, and what became of other runs that the cause reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from correlator.facts.registry import kind_of
from correlator.incidents.incident import LISTED
from correlator.model.attributes import INFERRED
from correlator.model.nouns import Event, Fact, Hop, Others
from correlator.model.time_texts import stamp

#: A line tells of the beginning of a fact if it is at most this much later (seconds).
BEGINS_S = 5.0


def lead_event(fact: Fact) -> Event | None:
    """The event that represents a fact in a chain: the first line of its own host, if that tells of its beginning.

    A switch that lost its power tells nothing before it is up again; the links that went with it do.
    """
    preferred, late = None, None
    latest = fact.start + fact.sigma + BEGINS_S
    for event in fact.events:  # nearly always the first one is it, and some facts have thousands
        if not event.kind.endswith("_up"):
            if event.host == fact.host:
                if event.time <= latest:
                    return event
                late = late or event
            preferred = preferred or event
    if preferred is None:
        return next(iter(fact.events), None)
    return preferred if preferred.time <= latest else late or preferred


def says(fact: Fact) -> str:
    """The text for a fact without a line of its own: one that was measured or concluded."""
    measured = kind_of(fact.kind).measured
    return measured(fact) if measured else ""


def chain_rows(hops: list[Hop]) -> list[dict[str, Any]]:
    """Causal steps with lag, allowed window and the configuration behind it.

    Where and when a step begins or ends is given whatever its lines say: ``pm_s`` is the uncertainty of the time, seconds. ``until``: of
    a fact whose beginning is inferred, the last moment at which it can have been.
    """
    rows = []
    facts = {id(fact): fact for hop in hops for fact in (hop.cause, hop.effect)}
    ends = {key: _end(fact) for key, fact in facts.items()}  # one root is in very many steps
    for step, hop in enumerate(hops, 1):
        cause, effect = hop.cause, hop.effect
        cause_id, cause_says, cause_time, cause_pm, cause_until = ends[id(cause)]
        effect_id, effect_says, effect_time, effect_pm, effect_until = ends[id(effect)]
        rows.append({
            "step": step, "cause": cause_id, "effect": effect_id, "edge": hop.edge.id,
            "lag_s": round(hop.lag, 3), "window_s": [round(hop.window[0], 3), round(hop.window[1], 3)], "because": hop.because,
            "text": hop.edge.text, "cause_fact": cause.kind, "effect_fact": effect.kind,
            "coincidence": round(hop.coincidence, 6), "strength": round(hop.strength, 3),
            "others": _others_row(hop), "cause_says": cause_says, "effect_says": effect_says,
            "cause_time": cause_time, "cause_pm_s": cause_pm, "cause_until": cause_until, "cause_host": cause.host, "cause_device": cause.device, "cause_run": cause.run,
            "effect_time": effect_time, "effect_pm_s": effect_pm, "effect_until": effect_until, "effect_host": effect.host, "effect_device": effect.device, "effect_run": effect.run,
        })  # fmt: skip
    return rows


def _end(fact: Fact) -> tuple[str | None, str, str | None, float, str | None]:
    """An end of a step: the id of its line, what it says without one, its time, how uncertain that is, and until when it can have begun."""
    lead = lead_event(fact)
    until = stamp(fact.end) if fact.attrs.get(INFERRED) and fact.end is not None else None
    return lead.id if lead else None, says(fact), stamp(fact.start), round(fact.sigma, 6), until


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
