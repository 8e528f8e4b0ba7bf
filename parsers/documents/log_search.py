"""Answers of log stores: Loki's ``query_range`` (streams of labels and values) and Elasticsearch's ``_search`` (hits).

Each entry becomes one row of logs, parsed like the same entry on a line of its own; the entry is kept as ``raw``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import polars as pl

from parsers.documents.document import Document
from parsers.engine import LineParser
from parsers.json_text import loads
from parsers.record import Origin, Parsed, empty


@lru_cache(maxsize=1)
def _parser() -> LineParser:
    return LineParser()


def _seconds(nanoseconds: Any) -> str | None:
    """Loki's nanoseconds since 1970 as RFC 3339; None for anything else."""
    text = str(nanoseconds)
    if not (text.isdigit() and len(text) == 19):
        return None
    moment = pl.Series([int(text) // 1000]).cast(pl.Datetime("us")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    return str(moment[0])


def _entries(answer: Any) -> Iterator[dict[str, Any]]:
    """Every entry of an answer as an object around its line."""
    if not isinstance(answer, dict):
        return
    data, hits = answer.get("data"), answer.get("hits")
    for stream in data.get("result", []) if isinstance(data, dict) else []:
        for value in stream.get("values", []):
            yield {"timestamp": _seconds(value[0]), "labels": stream.get("stream", {}), "line": str(value[1])}
    for hit in hits.get("hits", []) if isinstance(hits, dict) else []:
        yield {"_source": hit.get("_source", {})}


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    lines = [json.dumps(entry, ensure_ascii=False).encode() for entry in _entries(loads(data))]
    return Parsed({"logs": _parser().parse(lines, origin) if lines else empty("logs")})


DOCUMENT = Document(kinds=("log_search",), read=_read)
