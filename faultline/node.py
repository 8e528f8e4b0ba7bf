"""``faultline node NAME``: whether a node is fit, what Slurm had it as, its open incidents, what to do."""

from __future__ import annotations

import json
from typing import Any

from faultline.backends import Backend
from faultline.terminal import console
from faultline.why_text import short_time
from parsers.visible import visible

#: The newest states that are printed as text; JSON has all.
STATES_SHOWN = 12
_STYLE = {"fit": "green", "doubtful": "yellow", "unfit": "red"}


def show(backend: Backend, name: str, form: str) -> None:
    """Prints the answer as ``form``: text or json. Raises ``CommandError`` for an unknown node."""
    found = about(backend, name)
    if form == "json":
        print(json.dumps(found, indent=1, sort_keys=True))
    else:
        _print(found)


def about(backend: Backend, name: str) -> dict[str, Any]:
    """The answer of ``GET /api/v1/nodes/NAME/fitness``, and more of the node: ``states`` (newest first), its open
    ``incidents``, ``advice``."""
    fitness, node, repairs = backend.node(name)
    named = {reason["evidence"].removeprefix("incident ") for reason in fitness["reasons"]}
    incidents = [one for one in node["incidents"] if one.get("status") == "provisional" or one["id"] in named]
    rooted = [one for one in incidents if one["root_cause"]["host"] == node["host"]]
    urgent = [one for one in repairs if one["urgency"] != "watch"]
    # The repair list knows both ends of the incident's link, and whether a person gave the node back since.
    better = {(identifier, one["device"]) for one in urgent for identifier in one["incidents"]}
    # What has "users" is for people whose jobs were hurt.
    advice = [
        item for one in rooted if (one["id"], one["root_cause"].get("device")) not in better
        for item in one.get("advice") or () if not item.get("users")
    ]  # fmt: skip
    advice += [{"text": one["action"], "command": one["command"]} for one in urgent]
    return fitness | {
        "cluster": node["cluster"], "state": node["state"], "reason": node["reason"], "state_since": node["since"],
        "states": [
            {name: state[name] for name in ("time", "until", "state", "reason", "actor", "source")} for state in reversed(node["states"])
        ],
        "incidents": [
            {name: one.get(name) for name in ("id", "title", "severity", "category", "status", "start", "end", "root_cause")}
            for one in incidents
        ],
        "advice": [{"text": item["text"], "command": item.get("command")} for item in _once(advice)],
    }  # fmt: skip


def _once(advice: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({item["text"]: item for item in advice}.values())


def _print(found: dict[str, Any]) -> None:
    out = console()
    age = f"computed {found['age_s']:.0f} s ago by the {found['by']}"
    out.print(f"{found['node']} is [{_STYLE[found['fitness']]}]{found['fitness']}[/] for a job ({age}).")
    if not found["reasons"]:
        out.print("  Nothing is known against it.")
    for reason in found["reasons"]:
        since = f", since {short_time(reason['since'])[:19]}" if reason["since"] else ""
        text = reason["text"]
        for item in found["advice"]:  # printed below, with its command
            text = text.removesuffix(f": {item['text']}")
        _line(f"  - {text} ({reason['evidence']}{since})")
    if found["states"]:
        out.print("\nStates, newest first (UTC)")
    for state in found["states"][:STATES_SHOWN]:
        who = f"  by {state['actor']}" if state["actor"] else ""
        _line(
            f"  {short_time(state['time'])[:19]}  {state['state'] or 'unknown':<12}{who}  {state['reason'] or ''}".rstrip()
        )
    if len(found["states"]) > STATES_SHOWN:
        out.print(f"  and {len(found['states']) - STATES_SHOWN} more: --format json")
    if found["incidents"]:
        out.print("\nOpen incidents")
    for one in found["incidents"]:
        _line(f"  {one['id']}  {one['severity']}  {short_time(one['start'])[:19]}  {one['title'] or ''}")
    if found["advice"]:
        out.print("\nWhat to do")
    for item in found["advice"]:
        _line(f"  - {item['text']}")
        if item["command"]:
            _line(f"      {item['command']}")


def _line(text: str) -> None:
    """A line whose text is untrusted: no markup of the console's is read in it."""
    console().print(visible(text), markup=False)
