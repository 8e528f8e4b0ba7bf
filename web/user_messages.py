"""What an operator can send to the users whose jobs an incident ended: a message each, about their own jobs only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from correlator.model.certainty import in_words
from web.reading import Reader
from web.shaping import stamp, zone

#: Jobs that messages are about, at most: beyond that a mail to everybody is the better way.
MOST_JOBS = 200


def messages_about(read: Reader, document: Mapping[str, Any], address: str) -> list[dict[str, Any]]:
    """The messages about an incident. ``address``: where this service is reached."""
    keys = [str(item.get("job_id")) for item in document.get("jobs") or ()]
    again = {str(name) for item in document.get("advice") or () for name in item.get("users") or ()}
    return messages(read.for_users(keys[:MOST_JOBS]), again, address)


def messages(runs: Iterable[Mapping[str, Any]], again: set[str], address: str) -> list[dict[str, Any]]:
    """``user``, ``keys`` and ``text`` of each message, by user. ``runs``: as ``store.questions.runs.for_users`` has them;
    ``again``: users some of whose jobs Slurm did not queue again."""
    by_user: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        if run["user"] and run["headline"]:
            by_user.setdefault(run["user"], []).append(run)
    return [
        {"user": user, "keys": [run["run_key"] for run in own],
         "text": "\n\n".join([*(_about(run, address) for run in own), _next(user in again, len(own))])}
        for user, own in sorted(by_user.items())
    ]  # fmt: skip


def _about(run: Mapping[str, Any], address: str) -> str:
    name = f" ({run['name']})" if run["name"] else ""
    ended = f" at {stamp(run['end'])} {zone(run['end'])}" if run["end"] else ""
    sure = in_words(run["confidence"], run["category"]) + ("" if run["final"] == "true" else "; this may still change")
    return "\n".join([
        f"Your job {run['run_key']}{name} ended {run['state']}{ended}.",
        str(run["headline"]),
        *([f"What happened: {run['summary']}"] if run["summary"] else []),
        f"{sure}. The evidence: {address}/jobs/{quote(run['run_key'], safe='')}",
    ])  # fmt: skip


def _next(has_to_submit: bool, jobs: int) -> str:
    """What the user has to do; the verdict's own advice is for those who run the cluster."""
    if not has_to_submit:
        return f"Slurm has queued {'it' if jobs == 1 else 'them'} again by itself: you need not submit anything."
    return f"Please submit {'it again' if jobs == 1 else 'again what squeue does not show'}."
