"""Alertmanager's API (v2): it groups, silences and routes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from faultline.notify.kind import Notifier, Send
from faultline.notify.message import Message
from faultline.notify.sent import SOURCE
from faultline.notify.webhook import checked, post, token_of
from parsers.visible import visible

#: An alert is sent once. Without an explicit end, Alertmanager would consider it resolved after five minutes.
LASTS = timedelta(days=1)


def alert(message: Message) -> dict[str, Any]:
    """One alert. Its labels are the same for all messages of a thread, so that the last one resolves it."""
    labels = {
        "alertname": "FaultlineSourceSilent" if message.key.startswith(SOURCE) else "FaultlineIncident",
        "key": message.thread, "cluster": message.cluster or "",
    }  # fmt: skip
    notes = {"summary": visible(message.title, lines=False), "description": message.text, "severity": message.severity}
    made: dict[str, Any] = {"labels": labels, "annotations": notes, "generatorURL": message.link}
    if start := message.document.get("start"):
        made["startsAt"] = start
    over = message.state in ("withdrawn", "heard")
    made["endsAt"] = (datetime.now(UTC) + (timedelta(0) if over else LASTS)).isoformat(timespec="seconds")
    return made


def _make(options: Mapping[str, Any]) -> Send:
    url = checked(options["url"]).rstrip("/") + "/api/v2/alerts"

    def send(message: Message) -> None:
        post(url, [alert(message)], token_of(options))

    return send


NOTIFIER = Notifier("alertmanager", "alerts for Prometheus' Alertmanager", {"url": None, "token_file": ""}, _make)
