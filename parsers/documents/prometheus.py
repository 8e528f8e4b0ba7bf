"""Prometheus text (0.0.4) and OpenMetrics: one sample per line, parsed as whole columns because there are many."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import PurePosixPath

import polars as pl

from parsers.documents import fields
from parsers.documents.document import Document
from parsers.record import Origin, Parsed, conform, frame

_SAMPLE = (
    r"^\s*(?P<metric>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(?P<set>.*)\})?\s*[ \t}]?\s*"
    r"(?P<value>[-+]?(?:[0-9.][0-9.eE+-]*|[Ii]nf(?:inity)?|[Nn]a[Nn]))(?:\s+(?P<stamp>-?[0-9][0-9.eE+]*))?\s*$"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_.:]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.DOTALL)
_ESCAPES = {"\\n": "\n", "\\\\": "\\", '\\"': '"'}
_DEVICES = ("gpu", "device", "nic", "port")
_HOSTS = ("Hostname", "hostname", "host", "node", "nodename")
_STAMPED = re.compile(r"(?P<epoch>\d{9,11})(?:\.\d+)?\.(?:prom|txt|metrics)(?:\.(?:gz|xz|zst))?")


def labels_of(text: str) -> dict[str, str] | None:
    """``gpu="0",name="a \\"b\\""`` -> {"gpu": "0", "name": 'a "b"'}; None if it is not a label set."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if not found:
            return None if text[at:].strip() else labels
        labels[found[1]] = re.sub(r'\\[n\\"]', lambda escape: _ESCAPES[escape[0]], found[2])
        at = found.end()
    return labels


def device_and_host(labels: dict[str, str]) -> tuple[str | None, str | None]:
    """The device and the host in a sample's labels; None if there is none."""
    return _first(labels, _DEVICES), _first(labels, _HOSTS)


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    text = data.decode("utf-8", "replace").removeprefix("﻿")
    lines = pl.Series("raw", text.split("\n")).to_frame().with_row_index("line", offset=1)
    # Exemplars (" # {...} 1.0") exist in OpenMetrics only and do not affect the sample's value.
    bare = pl.col("raw").str.strip_chars_end()
    lines = lines.filter((bare != "") & ~bare.str.contains(r"^\s*#")).with_columns(
        bare.str.replace(r" # \{[^{}]*\} [-+0-9.eE]+( [0-9.]+)?$", "").str.extract_groups(_SAMPLE).alias("sample")
    )
    lines = lines.unnest("sample")
    known = {piece: labels_of(piece) for piece in lines["set"].drop_nulls().unique()}
    read = {piece: labels for piece, labels in known.items() if labels is not None}
    texts = {piece: json.dumps(labels, sort_keys=True, ensure_ascii=False) for piece, labels in read.items() if labels}
    good = pl.col("value").is_not_null() & (pl.col("set").is_null() | pl.col("set").is_in(list(read)))
    samples = lines.filter(good).with_columns(
        labels=_looked_up(texts),
        device=_looked_up({piece: _first(labels, _DEVICES) for piece, labels in read.items()}),
        named=_looked_up({piece: _first(labels, _HOSTS) for piece, labels in read.items()}),
        cluster=pl.lit(origin.cluster), file=pl.lit(origin.path),
        value=pl.col("value").str.replace(r"^\+", "").str.to_lowercase().str.replace("infinity", "inf")
        .str.replace("nan", "NaN").cast(pl.Float64, strict=False),
    ).with_columns(
        host=pl.lit(origin.host) if origin.host else pl.col("named"),
        # 0.0.4 timestamps are milliseconds, OpenMetrics' are seconds: no sample in milliseconds is from before 2001.
        time=pl.coalesce(_stamp(), pl.lit(_time(origin), dtype=pl.Datetime("us"))),
    )  # fmt: skip
    parsed = Parsed({"metrics": conform("metrics", samples)})
    _keep_unread(lines.filter(~good), origin, kind, parsed)
    return parsed


def _looked_up(mapping: dict[str, str] | dict[str, str | None]) -> pl.Expr:
    return pl.col("set").replace_strict(
        list(mapping.keys()), list(mapping.values()), default=None, return_dtype=pl.String
    ) if mapping else pl.lit(None, dtype=pl.String)  # fmt: skip


def _first(labels: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


def _stamp() -> pl.Expr:
    number = pl.col("stamp").cast(pl.Float64, strict=False)
    micros = pl.when(number.abs() > 1e11).then(number * 1e3).otherwise(number * 1e6)
    return micros.round().cast(pl.Int64, strict=False).cast(pl.Datetime("us"))


def _time(origin: Origin) -> datetime | None:
    """The time of a scrape, from the file's name (metrics/HOST/EPOCH.prom) or its receipt."""
    stamped = _STAMPED.fullmatch(PurePosixPath(origin.path or "").name)
    return (fields.epoch_time(int(stamped["epoch"])) if stamped else None) or origin.received or origin.reference


def _keep_unread(lines: pl.DataFrame, origin: Origin, kind: str, parsed: Parsed) -> None:
    rows: list[dict[str, object]] = []
    for number, raw in lines.select("line", "raw").iter_rows():
        rows.append({
            "time": origin.received, "received_time": origin.received, "time_quality": "received", "raw": raw,
            "message": raw, "cluster": origin.cluster, "host": origin.host, "source": kind, "format": "plain",
            "event": "other", "tags": ["unparsed"], "file": origin.path, "line": number,
        })  # fmt: skip
    if rows:
        parsed.tables["logs"] = frame("logs", rows)
        place = origin.path or kind
        parsed.warnings.append(f"{place} line {rows[0]['line']}: no sample ({len(rows)} such lines in all)")


DOCUMENT = Document(kinds=("prometheus",), read=_read)
