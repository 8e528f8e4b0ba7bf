"""Alertmanager's API (v2): it groups, silences and routes; an alert that is not told again ends by itself there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faultline.notify.kind import Notifier, Send
from faultline.notify.message import Message
from faultline.notify.webhook import checked, post, token_of


def alert(message: Message) -> dict[str, Any]:
    """One alert. Its labels stay the same from the first word to the last, so that the last one ends it."""
    labels = {
        "alertname": "FaultlineSourceSilent" if message.state in ("silent", "heard") else "FaultlineIncident",
        "key": message.key, "cluster": message.cluster or "",
    }  # fmt: skip
    notes = {"summary": message.title, "description": message.text, "severity": message.severity}
    made: dict[str, Any] = {"labels": labels, "annotations": notes, "generatorURL": message.link}
    start, end = message.document.get("start"), message.document.get("end")
    if start:
        made["startsAt"] = start
    if message.state in ("withdrawn", "heard"):
        made["endsAt"] = end or start or "1970-01-01T00:00:01Z"
    return made


def _make(options: Mapping[str, Any]) -> Send:
    url = checked(options["url"]).rstrip("/") + "/api/v2/alerts"

    def send(message: Message) -> None:
        post(url, [alert(message)], token_of(options))

    return send


NOTIFIER = Notifier("alertmanager", "alerts for Prometheus' Alertmanager", {"url": None, "token_file": ""}, _make)
