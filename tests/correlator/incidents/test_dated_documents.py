"""An incident's JSON with and without when it was first published, made from one text."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from correlator.incidents.documents import dated, undated
from correlator.model.json_text import sorted_json

INCIDENTS: list[dict[str, Any]] = [
    {"id": "i1", "detected_at": None, "category": "infra.link", "title": "leaf12 went down"},
    {"id": "i2", "detected_at": None, "category": 'a line said "detected_at":null, and ended', "title": None},
    {"id": "i3", "detected_at": None, "category": "a number of more than 64 bits", "size": 1 << 70},
    {"id": "i4", "detected_at": "2026-11-21T12:00:00.000000Z"},
    {"id": "i5"},
]


@pytest.mark.parametrize("incident", INCIDENTS)
def test_the_text_is_that_of_the_changed_document(incident: dict[str, Any]) -> None:
    text, moment = sorted_json(incident), datetime(2026, 11, 21, 12, 0, 1, 5)
    without = {key: value for key, value in incident.items() if key != "detected_at"}
    assert undated(incident, text) == sorted_json(without)
    assert dated(incident, text, moment) == sorted_json({**without, "detected_at": "2026-11-21T12:00:01.000005Z"})
    assert dated(incident, text, None) == text
