"""A replay as the incident's page draws it: jobs with the same course together, and confidence as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from correlator.model.certainty import NOT_KNOWN, sure_of
from web.shaping import between

Row = dict[str, Any]

#: The width of a step and the height of the whole, in units of the picture; the line keeps off both edges.
STEP, HIGH, EDGE = 40, 44, 2
#: Jobs of one course that are named.
NAMED = 4


def picture(replay: Mapping[str, Any]) -> Row:
    """``moments`` with the seconds after the first one and a statement for each course; ``strips``, one for each course: who,
    the words for a screen reader, and the parts of the line."""
    moments = replay["moments"]
    if not moments:
        return {**replay, "strips": []}
    courses = _courses(moments)
    shown = [
        one | {
            "after_s": between(moments[0]["time"], one["time"]),
            "groups": [{"who": _who(keys), "stated": one["verdicts"][keys[0]]} for keys in courses],
        }
        for one in moments
    ]  # fmt: skip
    lines = [(_who(keys), [one["verdicts"][keys[0]] for one in moments]) for keys in courses]
    if not lines:
        lines = [("Incident", [one["incident"] or {"verdict": "none", "confidence": None} for one in moments])]
    return {**replay, "moments": shown, "strips": [_strip(who, stated) for who, stated in lines]}


def _courses(moments: Sequence[Row]) -> list[list[str]]:
    """The jobs, those together of which the same was concluded at each moment."""
    found: dict[str, list[str]] = {}
    for key in moments[0]["verdicts"]:
        each = [one["verdicts"].get(key) or {} for one in moments]
        course = repr([[one.get(name) for name in ("verdict", "category", "confidence", "root_cause")] for one in each])
        found.setdefault(course, []).append(key)
    return list(found.values())


def _who(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f"Job{'s' if len(keys) > 1 else ''} {', '.join(keys[:NAMED])}{more}"


def _strip(who: str, stated: Sequence[Mapping[str, Any]]) -> Row:
    parts: list[Row] = []
    state, last = "none", float(HIGH - EDGE)
    words = []
    for n, one in enumerate(stated):
        has_verdict = one["verdict"] != "none" and isinstance(one["confidence"], (int, float))
        sure = sure_of(one["confidence"], one.get("category"))
        y = round(HIGH - EDGE - (HIGH - 2 * EDGE) * (sure or 0.0), 2) if has_verdict else float(HIGH - EDGE)
        if has_verdict:
            if one["verdict"] != state or not parts:
                parts.append({"state": one["verdict"], "path": f"M{STEP * n} {last:g}"})
            parts[-1]["path"] += f"V{y:g}H{STEP * (n + 1)}"
        state, last = one["verdict"] if has_verdict else "none", y
        number = NOT_KNOWN.lower() if sure is None else f"{sure:.2f}"
        words.append(f"{one['verdict']} {number}" if has_verdict else "nothing")
    return {"who": who, "parts": parts, "words": f"{who}: {', '.join(words)}"}
