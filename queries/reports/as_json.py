"""A report as JSON: the same document, all rows, times in ISO 8601 UTC."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

from queries.reports.model import Document

FORMAT = "faultline-report/1"


def json_text(document: Document) -> str:
    """``document`` as indented JSON text with a ``format`` key."""
    return json.dumps({"format": FORMAT, **_tree(document)}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _tree(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _tree(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds") + "Z"
    if isinstance(value, dict):
        return {str(key): _tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tree(item) for item in value]
    if isinstance(value, float):
        return round(value, 6)
    return value
